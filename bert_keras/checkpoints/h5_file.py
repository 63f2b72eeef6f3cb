"""One HDF5 weights file as Keras writes it: its arrays by path, and a writer.

A file is untrusted data, so only what Keras's `saving_lib.py` writes is accepted:
groups, and arrays that are contiguous in the file itself. No links, no other files, no
compression (a small file could claim any amount of memory).
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints.checkpoint import (
    Block,
    Shape,
    StoredTensor,
    as_checkpoint_error,
)
from bert_keras.errors import CheckpointError, one_line
from bert_keras.files.lfs import check_no_pointer

_MOST_GROUPS = 100_000  # BERT-large has about 1,000
_DEEPEST = 12
# What h5py and the HDF5 library raise for broken files.
_BROKEN = (OSError, RuntimeError, ValueError, KeyError, TypeError, OverflowError)


class StoredArray(StoredTensor):
    """One array in a file; its name is its path there."""

    def check(self) -> None:
        """Raise a CheckpointError unless it holds contiguous floating-point values.

        The position of the values is checked against the file size, so a false shape
        costs no memory.
        """
        super().check()
        with self._dataset() as dataset:
            wanted = math.prod(self.shape) * dataset.dtype.itemsize
            start = dataset.id.get_offset()
            whole = (
                dataset.chunks is None
                and not dataset.external
                and not dataset.is_virtual
                and dataset.id.get_storage_size() == wanted
            )
            size = os.stat(self.file).st_size
            if not whole or start is None or start + wanted > size:
                raise CheckpointError(
                    f"{self.file}: {self.name} of shape {list(self.shape)} must lie in "
                    "one piece in the file itself; it does not, or is truncated"
                )

    def blocks(self) -> Iterator[Block]:
        self.check()
        with self._dataset() as dataset:
            for rows in self.row_blocks():
                yield rows, _values(dataset, rows)

    @contextlib.contextmanager
    def _dataset(self) -> Iterator[Any]:
        """Open the file and its array, which must be unchanged."""
        with _opened(self.file) as file:
            found = file[self.name]
            if (_shape_of(found), _dtype_of(found)) != (self.shape, self.dtype):
                raise CheckpointError(f"{self.file}: changed while it was read")
            yield found


def _shape_of(found: Any) -> Shape:
    return tuple(getattr(found, "shape", None) or ())


def _dtype_of(dataset: Any) -> str:
    """Return safetensors' name of a float type; bfloat16 by Keras's attribute."""
    kind = dataset.dtype
    if kind.str == "|V2" and dataset.attrs.get("dtype") == "bfloat16":
        return "BF16"
    return f"F{8 * kind.itemsize}" if kind.kind == "f" else str(kind)


def _values(dataset: Any, rows: Any) -> np.ndarray:
    """Return rows of an array; bfloat16 is the upper half of a float32."""
    values = np.asarray(dataset[rows])
    if values.dtype.kind == "f":
        return values
    return (values.view("<u2").astype("<u4") << 16).view("<f4")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open an HDF5 file; a broken one raises a CheckpointError."""
    import h5py

    check_no_pointer(path)
    with (
        as_checkpoint_error(f"{path}: broken or truncated", *_BROKEN),
        h5py.File(path, "r", locking=False) as file,
    ):
        yield file


def stored_arrays(path: Path) -> dict[str, StoredArray]:
    """Return the arrays of one file by path; reads no values."""
    import h5py

    arrays: dict[str, StoredArray] = {}
    with _opened(path) as file:
        waiting: list[tuple[str, int]] = [("", 0)]
        seen = 0
        while waiting:
            place, depth = waiting.pop()
            group = file[place or "/"]
            for key in group:
                seen += 1
                if seen > _MOST_GROUPS or depth > _DEEPEST:
                    raise CheckpointError(f"{path}: holds too many or too deep groups")
                inner = f"{place}/{key}".lstrip("/")
                if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                    raise CheckpointError(
                        f"{path}: {one_line(inner)} is a link, which is not followed"
                    )
                found = group.get(key, getclass=True)
                if found is h5py.Group:
                    waiting.append((inner, depth + 1))
                elif found is h5py.Dataset:
                    array = group[key]
                    shape, dtype = _shape_of(array), _dtype_of(array)
                    arrays[inner] = StoredArray(path, inner, shape, dtype)
    return arrays


def write_arrays(
    path: Path,
    places: Iterable[str],
    values: Callable[[str], np.ndarray],
    extra: Mapping[str, np.ndarray],
) -> None:
    """Write a new file of arrays; each is read once and released.

    Args:
        path: the file, which must not exist.
        places: the paths of the arrays; the part before `:` is ignored.
        values: returns the array of a place.
        extra: further places, and their arrays.
    """
    import h5py

    with h5py.File(path, "x") as file:
        for place in (*places, *extra):
            array = extra[place] if place in extra else values(place)
            file.create_dataset(place.partition(":")[2], data=array)
