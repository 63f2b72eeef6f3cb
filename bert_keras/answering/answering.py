"""What answers the texts of a `Predictor`: `Answering`. Needs no TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_FEW_TEXTS, _FEW_BYTES = 4, 600  # fewer are one batch; others gain as two in flight
_MOST_BYTES = 1 << 22  # tokenized together: a graph takes about 50 times as much memory
DEFAULT = "serving_default"  # the signature of texts
Parts = tuple[Sequence[Any], ...]  # N texts of each role


class Spec(NamedTuple):
    """Name, shape (`None` for any size) and dtype of an input or an output."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]


class Measured(NamedTuple):
    """Texts with how long they are, int [N] each.

    Args:
        texts: the N texts of each role, or what `Answering.answer` takes in their
            place.
        read, lost: tokens of each text that are read, and that are not.
        windows: the windows of each text and their tokens, int [N, 2]; 0 without.
    """

    texts: Parts
    read: np.ndarray
    lost: np.ndarray
    windows: np.ndarray


class Answering:
    """Computes the answers of texts, a batch at a time.

    Attributes:
        in_small_batches: whether a batch should stay in the processor's cache.
        answers_untraced: whether `answer` can do without a graph, for a process that
            answers once.
        runs_keras: whether a Keras model is computed, in a precision of one's choice.
        is_direct: whether texts are answered without a graph of TensorFlow.
    """

    in_small_batches: bool = True
    answers_untraced: bool = False
    runs_keras: bool = False
    is_direct: bool = False

    def measure(self, texts: Parts, *, scored: bool = False) -> Measured:
        """Return how long texts are; `scored` are texts to score."""
        raise NotImplementedError

    def answer(
        self, texts: Parts, *, scored: bool = False, traced: bool = True
    ) -> dict[str, np.ndarray]:
        """Return arrays [B, …] by name, for users or to `score`.

        Args:
            texts: B strings of each role, or parts of `Measured.texts`.
            scored: whether the answers are for the task's `score`.
            traced: `False` computes without a graph.
        """
        raise NotImplementedError

    def outputs(self, signature: str = DEFAULT) -> Mapping[str, Any]:
        """Return dtype and shape of the answers to texts of a signature, by name."""
        raise NotImplementedError

    def is_small_batch(self, texts: Parts) -> bool:
        """Return whether texts are so few that they are best computed in one batch."""
        if len(texts[0]) < _FEW_TEXTS:
            return True
        return sum(bytes_of(text) for part in texts for text in part) < _FEW_BYTES


def bytes_of(text: str | Sequence[str] | int) -> int:
    """Return the bytes of a text, or of a list of texts, in UTF-8; 0 of a side."""
    if isinstance(text, int):
        return 0
    if isinstance(text, str):
        return len(text.encode("utf-8", "surrogatepass"))
    return sum(map(bytes_of, text))


def rows_together(texts: Parts, *, most: int) -> Iterator[range]:
    """Yield the rows, by index from 0, whose texts are tokenized together.

    They are at most so many, and have at most 4 MiB unless it is one row.

    Example:
        >>> list(rows_together((["a", "b", "c"],), most=2))
        [range(0, 2), range(2, 3)]
    """
    first, size, count = 0, 0, len(texts[0])
    for row in range(count):
        added = sum(bytes_of(part[row]) for part in texts)
        if row > first and (row - first == most or size + added > _MOST_BYTES):
            yield range(first, row)
            first, size = row, 0
        size += added
    if count:
        yield range(first, count)
