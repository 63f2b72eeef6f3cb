"""One safetensors file: its tensors, read block by block, and written.

Format: https://github.com/huggingface/safetensors. The library checks that shapes,
offsets and the size of the file agree.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bert_keras.checkpoints.checkpoint import Block, StoredTensor, as_checkpoint_error
from bert_keras.errors import CheckpointError
from bert_keras.files.lfs import check_no_pointer

_WRITTEN = ("float32", "float16")
_BROKEN = (OSError, SafetensorError, UnicodeDecodeError)
_MOST_HEADER_BYTES = 16 << 20  # BERT-large has about 50 KB


class SafeTensor(StoredTensor):
    """One tensor of a safetensors file."""

    def blocks(self) -> Iterator[Block]:
        # Each block reopens the file (0.2 ms), which releases the pages that the last
        # one mapped, so that a large table does not count twice.
        for rows in self.row_blocks():
            with self._stored() as (file, stored):
                block = file.get_tensor(self.name) if rows is ... else stored[rows]
            yield rows, block

    @contextlib.contextmanager
    def _stored(self) -> Iterator[tuple[Any, Any]]:
        """Open the file and its tensor, which must be unchanged."""
        with opened(self.file) as file:
            stored = file.get_slice(self.name)
            found = (tuple(stored.get_shape()), stored.get_dtype())
            if found != (self.shape, self.dtype):
                raise CheckpointError(f"{self.file}: changed while it was read")
            yield file, stored


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a safetensors file; a broken one raises a CheckpointError.

    The length of the header is checked first, so that a false one costs no memory.
    """
    check_no_pointer(path)
    with as_checkpoint_error(f"{path}: broken or truncated", *_BROKEN):
        with open(path, "rb") as raw:
            start = raw.read(8)
            size = os.fstat(raw.fileno()).st_size
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else -1
        if not 0 <= length <= size - 8:
            raise CheckpointError(
                f"{path}: broken or truncated: not a safetensors file"
            )
        if length > _MOST_HEADER_BYTES:
            raise CheckpointError(
                f"{path}: the header must have at most {_MOST_HEADER_BYTES:,} bytes; "
                f"has {length:,}"
            )
        with safe_open(path, framework="numpy") as file:
            yield file


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file by name; reads only the header."""
    tensors: dict[str, StoredTensor] = {}
    with opened(path) as file:
        for name in list(file.keys()):
            stored = file.get_slice(name)
            shape = tuple(stored.get_shape())
            tensors[name] = SafeTensor(path, name, shape, stored.get_dtype())
    return tensors


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a whole safetensors file of float32 or float16 arrays in C order.

    Raises:
        CheckpointError: an array is of another kind.
        OSError, SafetensorError: writing fails.
    """
    for name, array in tensors.items():
        if array.dtype.name not in _WRITTEN:
            raise CheckpointError(
                f"`{name}` must be float32 or float16; received {array.dtype.name}"
            )
        if not array.flags.c_contiguous:  # the library writes the memory unchanged
            raise CheckpointError(f"`{name}` must be in C order")
    path.touch()
    mode = path.stat().st_mode  # with the user's umask; the library takes 0o600
    save_file(dict(tensors), path, metadata={"format": "pt"})
    path.chmod(mode)
