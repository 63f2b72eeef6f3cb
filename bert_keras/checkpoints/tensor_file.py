"""One safetensors file: its tensors, read block by block, and a writer that streams.

Format: https://github.com/huggingface/safetensors (format section). The file holds
numbers alone, no code. Reading goes through the safetensors library, which checks that
shapes, offsets and the size of the file agree.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import EllipsisType
from typing import IO, Any

import numpy as np
from safetensors import SafetensorError, safe_open

from bert_keras.checkpoints.base import Shape, StoredTensor, one_line
from bert_keras.errors import CheckpointError

_STORED = {"float32": "F32", "float16": "F16"}
_MOST_HEADER_BYTES = 16 << 20  # BERT-large has about 50 KB
_BLOCK_BYTES = 4 << 20


class SafeTensor(StoredTensor):
    """One tensor of a safetensors file."""

    def blocks(self) -> Iterator[tuple[slice | EllipsisType, np.ndarray]]:
        """Yield the rows of the first axis in blocks of a few MB, as stored.

        Each block opens the file anew (0.2 ms): that gives back the pages which the
        last one mapped, so that a large table does not count twice.
        """
        if not self.shape:
            with self._stored() as (file, _):
                yield ..., file.get_tensor(self.name)
            return
        step = max(1, _BLOCK_BYTES // (8 * math.prod(self.shape[1:])))
        for start in range(0, self.shape[0], step):
            rows = slice(start, min(start + step, self.shape[0]))
            with self._stored() as (_, stored):
                block = stored[rows]
            yield rows, block

    @contextlib.contextmanager
    def _stored(self) -> Iterator[tuple[Any, Any]]:
        """Open the file, and the tensor in it, which must be what it was."""
        with opened(self.file) as file:
            stored = file.get_slice(self.name)
            found = (tuple(stored.get_shape()), stored.get_dtype())
            if found != (self.shape, self.dtype):
                raise CheckpointError(f"{self.file}: changed while it was read")
            yield file, stored


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a safetensors file; a broken one is a CheckpointError.

    The length of the header is looked at first, so that a false one costs no memory.
    """
    try:
        with open(path, "rb") as raw:
            start = raw.read(8)
            size = os.fstat(raw.fileno()).st_size
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
        if not 0 <= length <= size - 8:
            raise CheckpointError(f"{path}: broken or cut off: no safetensors file")
        if length > _MOST_HEADER_BYTES:
            raise CheckpointError(
                f"{path}: the header must have at most {_MOST_HEADER_BYTES:,} bytes; "
                f"has {length:,}"
            )
        with safe_open(path, framework="numpy") as file:
            yield file
    except (OSError, SafetensorError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path}: broken or cut off: {one_line(error)}") from None


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file by name; reads the header alone."""
    tensors: dict[str, StoredTensor] = {}
    with opened(path) as file:
        for name in list(file.keys()):
            stored = file.get_slice(name)
            shape = tuple(stored.get_shape())
            tensors[name] = SafeTensor(path, name, shape, stored.get_dtype())
    return tensors


def _header(
    tensors: Iterable[tuple[str, Shape, np.dtype]],
) -> tuple[bytes, list[str]]:
    """Return the start of a file, and the names in the order of their values.

    Raises:
        CheckpointError: a type is neither float32 nor float16.
    """
    rows = []
    for name, shape, dtype in tensors:
        if dtype.name not in _STORED:
            raise CheckpointError(
                f"`{name}` must be float32 or float16; received {dtype.name}"
            )
        # Wider values first keeps all of them aligned, as the library itself does.
        rows.append((-dtype.itemsize, name, shape, dtype.name))
    fields: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for size, name, shape, kind in sorted(rows):
        start, end = end, end - size * math.prod(shape)
        fields[name] = {
            "dtype": _STORED[kind],
            "shape": list(shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, [row[1] for row in sorted(rows)]


def write_tensors(
    file: IO[bytes],
    tensors: Sequence[tuple[str, Shape, np.dtype]],
    values: Callable[[str], np.ndarray],
) -> None:
    """Write a whole safetensors file; each tensor is asked for once, and let go.

    Args:
        file: open for writing in binary.
        tensors: name, shape and type of each tensor.
        values: returns the values of a name in that shape and type.

    Raises:
        CheckpointError: a type is neither float32 nor float16.
    """
    start, order = _header(tensors)
    file.write(start)
    for name in order:
        array = np.asarray(values(name), order="C")
        file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).data)
