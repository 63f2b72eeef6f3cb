"""Counts of texts longer than a row and of tokens that are not read, and a report."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping

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
        kept: the tokens that are read, of all texts.
        longer, windows: the texts that are read in several windows, and these windows.
        read, in_one: the tokens of all windows where texts are read in windows, and
            how many one row of each text would hold.

    Example:
        >>> found = Truncation()
        >>> found.add(np.array([32, 20]), np.array([268, 0]))
        >>> str(found)
        '1 of 2 texts (50%) is truncated: it has 300 tokens, of which 89% are not read'
    """

    texts: int = 0
    cut: int = 0
    tokens: int = 0
    lost: int = 0
    kept: int = 0
    longer: int = 0
    windows: int = 0
    read: int = 0
    in_one: int = 0

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
            self.kept += int(read.sum())

    def add_windows(
        self, read: np.ndarray, lost: np.ndarray, windows: np.ndarray, max_length: int
    ) -> None:
        """Count the windows of texts that `add` has counted.

        `windows` int [N, 2] are their windows and the tokens of these.
        """
        counts, tokens = windows.T
        longer = counts > 1
        with self._lock:
            self.longer += int(longer.sum())
            self.windows += int(counts[longer].sum())
            self.read += int(tokens.sum())
            self.in_one += int(np.minimum(read + lost, max_length).sum())

    def merge(self, counts: Mapping[str, int]) -> None:
        """Add the counts of another process, by name."""
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def lines(
        self,
        *,
        of: str = "texts",
        length: int,
        in_windows: bool,
        drawn: int = 0,
        remedy: str = "",
    ) -> list[str]:
        """Return the lines about texts that are longer than `length` tokens, if any.

        Args:
            of: what the texts are.
            length: the maximum length in tokens.
            in_windows: whether longer texts are read in windows.
            drawn: the windows that training draws of each text; 0: it reads all.
            remedy: what would read the truncated texts in full, if anything would.
        """
        found = []
        if self.longer:
            of_text = self.windows / self.longer
            cost = f"{self.read / max(self.in_one, 1):,.1f} times the tokens of one row"
            if 0 < drawn < of_text:
                are = "is" if drawn == 1 else "are"
                cost = f"of which {drawn} {are} drawn in each epoch"
            verb = "is" if self.longer == 1 else "are"
            found.append(
                f"{self.longer:,} of {self.texts:,} {of} "
                f"({percent(self.longer, self.texts)}) {verb} longer than {length:,} "
                f"tokens: read in {of_text:,.1f} windows on average, {cost}"
            )
        if self.cut:
            line = self.line(of=of, length=None if in_windows else length)
            if remedy:
                more = percent(self.lost, self.kept)
                line += f"; {remedy} reads them in full, for {more} more tokens in all"
            found.append(line)
        return found

    def __str__(self) -> str:
        return self.line()

    def line(self, *, of: str = "texts", length: int | None = None) -> str:
        """Return the counts in one line.

        Args:
            of: what the texts are.
            length: the maximum length in tokens, if a text is truncated to it. If some
                have another one, such as queries, the line tells the mean.
        """
        verb = "is" if self.cut == 1 else "are"
        left = (self.tokens - self.lost) / max(self.cut, 1)
        to = f" to {left:,.0f} tokens" if length else ""
        mean = f"they have {self.tokens / max(self.cut, 1):,.1f} tokens on average"
        if self.cut == 1:
            mean = f"it has {self.tokens:,} tokens"
        elif length and left != length:
            to = f" to {left:,.1f} tokens on average"
        return (
            f"{self.cut:,} of {self.texts:,} {of} ({percent(self.cut, self.texts)}) "
            f"{verb} truncated{to}: {mean}, of which "
            f"{percent(self.lost, self.tokens)} are not read"
        )


def percent(part: int, whole: int) -> str:
    """Return a share as text; only none is 0%, and only all are 100%."""
    share = part / max(whole, 1)
    if 0 < share < 0.01:
        return "under 1%"
    return "over 99%" if 0.995 <= share < 1 else f"{share:.0%}"
