"""The vectors of texts of any kind, by one interface: `VectorStore`.

A kind of vectors has a reader, see `bert_keras/reading/`, and a store here. Search,
mining, evaluation, index files and serving ask a store alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from bert_keras.errors import ConfigError
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.retrieval.sparse_vectors import SparseVectors
from bert_keras.retrieval.token_vectors import TokenVectors

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing since Python 3.11


class VectorStore(Protocol):
    """The vectors of N texts.

    Attributes:
        kind: of the vectors, as the setting `kind` of the task `embedding`.
        dtypes: the types of stored numbers, the default one first.
        formats: of the files with such vectors, see `vector_file`.
        dtype: of these numbers.
        width: D.
    """

    kind: ClassVar[str]
    dtypes: ClassVar[tuple[str, ...]]
    formats: ClassVar[tuple[int, ...]]

    @property
    def width(self) -> int: ...

    @property
    def dtype(self) -> str: ...

    @classmethod
    def of_batches(
        cls,
        batches: Iterable[np.ndarray],
        width: int,
        dtype: str = ...,
        *,
        rescored: bool = True,
    ) -> Self:
        """Return the vectors that a model answers with, float32 [B, …, D] each."""
        ...

    def __len__(self) -> int: ...

    def numbers(self, rows: Any) -> np.ndarray:
        """Return some vectors as a model answers with them."""
        ...

    def take(self, rows: Any) -> Self:
        """Return the vectors of some rows."""
        ...

    def compared(self) -> Self:
        """Return the vectors as `nearest` takes them."""
        ...

    def asked(self, queries: np.ndarray) -> np.ndarray:
        """Return a model's vectors of Q queries as `nearest` takes them."""
        ...

    def nearest(
        self, queries: np.ndarray, top: int, *, rescore: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and scores, [Q, top], best first; ties go to the earlier row.

        Rows are -1 where there are no more.
        """
        ...

    def pair_scores(self, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the score of each query and the vectors of a row, [Q]."""
        ...

    def variants(self, widths: Sequence[int]) -> Iterator[tuple[str, Self]]:
        """Yield the vectors in each form that is evaluated, with its name.

        `widths` are those for which the model was trained, too.
        """
        ...

    def is_same(self, vectors: np.ndarray, rows: np.ndarray) -> bool:
        """Return whether a model gives these vectors for the texts of some rows."""
        ...

    def entries(self) -> dict[str, Any]:
        """Return the arrays of a file, and its `format`."""
        ...

    @classmethod
    def from_entries(cls, stored: Mapping[str, Any]) -> Self:
        """Return the vectors of a file; ValueError if its arrays do not match."""
        ...


STORES: dict[str, type[VectorStore]] = {
    each.kind: each for each in (PackedVectors, SparseVectors, TokenVectors)
}
STORE_OF_FORMAT = {n: each for each in STORES.values() for n in each.formats}


def store_of(task: Any, dtype: str | None = None) -> type[VectorStore]:
    """Return the store of the vectors of a task of `embedding`.

    Raises:
        ConfigError: it has no such type of numbers.
    """
    found = STORES[task.kind]
    if dtype is not None and dtype not in found.dtypes:
        raise ConfigError(
            f"`dtype` must be {' or '.join(found.dtypes)} for vectors of `kind` "
            f"{found.kind}; received {dtype}"
        )
    return found
