"""Counts of the tokens of texts that are not read, and their report: `Truncation`."""

from __future__ import annotations

import dataclasses
import threading

import numpy as np


@dataclasses.dataclass
class Truncation:
    """Counts texts that are longer than a model reads, and their tokens.

    Several threads may add to it.

    Attributes:
        texts: all texts.
        cut: the truncated ones.
        tokens, lost: all tokens of the truncated texts, special tokens included, and
            the tokens that are not read.

    Example:
        >>> found = Truncation()
        >>> found.add(np.array([32, 20]), np.array([268, 0]))
        >>> str(found)
        '1 of 2 texts (50%) is truncated: 300.0 tokens on average, of which 89% are not
        read'
    """

    texts: int = 0
    cut: int = 0
    tokens: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def add(self, read: np.ndarray, lost: np.ndarray) -> None:
        """Count texts by their numbers of tokens read and not read, int [N] each."""
        cut = lost > 0
        with self._lock:
            self.texts += len(read)
            self.cut += int(cut.sum())
            self.tokens += int((read + lost)[cut].sum())
            self.lost += int(lost.sum())

    def __str__(self) -> str:
        return self.line()

    def line(self, *, of: str = "texts", length: int | None = None) -> str:
        """Return the counts in one line.

        Args:
            of: what the texts are.
            length: the maximum length in tokens, if a text is truncated to it.
        """
        verb = "is" if self.cut == 1 else "are"
        to = f" to {length:,} tokens" if length else ""
        mean = self.tokens / max(self.cut, 1)
        return (
            f"{self.cut:,} of {self.texts:,} {of} ({percent(self.cut, self.texts)}) "
            f"{verb} truncated{to}: {mean:,.1f} tokens on average, of which "
            f"{percent(self.lost, self.tokens)} are not read"
        )


def percent(part: int, whole: int) -> str:
    """Return a share as text; only none is 0%, and only all are 100%."""
    share = part / max(whole, 1)
    if 0 < share < 0.01:
        return "under 1%"
    return "over 99%" if 0.995 <= share < 1 else f"{share:.0%}"
