"""One variable of a TensorFlow checkpoint: its place in a data file, and its values.

Read block by block into memory of NumPy: TensorFlow's own reader holds a whole variable
more, in memory that its allocator does not give back. Every value that is read is
held against the checksum that the index has of it.

Source: TensorFlow, `core/util/tensor_bundle/tensor_bundle.cc` (how values and strings
are written), `core/lib/hash/crc32c.h` (the mask). Imports no TensorFlow.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import EllipsisType
from typing import IO

import google_crc32c
import numpy as np

from bert_keras.checkpoints.base import Shape, StoredTensor
from bert_keras.checkpoints.wire import BrokenError, varint
from bert_keras.errors import CheckpointError, reason_of

BOOL, STRING = 10, 7  # in `types.proto`
_FLOATS = {1: "F32", 2: "F64", 14: "BF16", 19: "F16"}
_STORED = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2"}
_BLOCK_BYTES = 4 << 20


class Variable(StoredTensor):
    """One variable of a TensorFlow checkpoint.

    Args:
        file: the data file.
        name: its key.
        shape: of the variable.
        kind: the number of its type in `types.proto`.
        offset: where it starts, in bytes.
        size: bytes that it takes.
        checksum: masked CRC-32C of its bytes; `None` where none is told.
    """

    def __init__(
        self,
        file: Path,
        name: str,
        shape: Shape,
        kind: int,
        *,
        offset: int,
        size: int,
        checksum: int | None,
    ) -> None:
        dtype = _FLOATS.get(kind, f"type {kind} of TensorFlow")
        super().__init__(file, name, shape, dtype)
        self.kind = kind
        self.offset, self.size, self._checksum = offset, size, checksum

    @property
    def is_float(self) -> bool:
        """Whether it holds floating-point values."""
        return self.kind in _FLOATS

    def check(self) -> None:
        """Raise a CheckpointError unless the data file holds these floats."""
        super().check()
        if not os.path.isfile(self.file):
            raise CheckpointError(f"{self.file.parent}: holds no {self.file.name}")
        wanted = math.prod(self.shape) * np.dtype(_STORED[self.dtype]).itemsize
        if self.size != wanted or self.offset + wanted > self.file.stat().st_size:
            raise CheckpointError(
                f"{self.file}: broken or cut off: {self.name} of shape "
                f"{list(self.shape)} is not there"
            )

    def blocks(self) -> Iterator[tuple[slice | EllipsisType, np.ndarray]]:
        """Yield the rows of the first axis in blocks of a few MB.

        bfloat16 comes as float32. An error in the values is raised after the last.
        """
        stored = np.dtype(_STORED[self.dtype])
        rows = self.shape[0] if self.shape else 1
        width = stored.itemsize * math.prod(self.shape[1:])
        step = max(1, _BLOCK_BYTES // width)
        checksum = 0
        try:
            with open(self.file, "rb") as file:
                file.seek(self.offset)
                for start in range(0, rows, step):
                    end = min(start + step, rows)
                    data = _read(file, width * (end - start))
                    checksum = google_crc32c.extend(checksum, data)
                    block = np.frombuffer(data, stored)
                    if self.dtype == "BF16":
                        block = (block.astype("<u4") << 16).view("<f4")
                    if not self.shape:
                        yield ..., block.reshape(())
                        continue
                    yield slice(start, end), block.reshape(-1, *self.shape[1:])
            self._compare(checksum)
        except (BrokenError, OSError) as error:
            raise CheckpointError(
                f"{self.file}: broken or cut off: {self.name}: {reason_of(error)}"
            ) from None

    def read_bytes(self) -> bytes:
        """Return the bytes as they stand in the data file.

        Raises:
            BrokenError, OSError: they are not all there, or others.
        """
        data = self._data()
        self._compare(google_crc32c.value(data))
        return data

    def read_string(self) -> bytes:
        """Return the one string that the variable holds.

        It stands behind its length and a checksum of that; the checksum in the index
        is that of the length, as four bytes, and all that follows.

        Raises:
            BrokenError, IndexError, OSError: it holds no such thing.
        """
        if self.kind != STRING or self.shape:
            raise BrokenError(f"{self.name} must be one string")
        data = self._data()
        length, at = varint(data, 0)
        if at + 4 + length != len(data):
            raise BrokenError(f"{self.name} is cut off")
        start = google_crc32c.value(length.to_bytes(4, "little"))
        self._compare(google_crc32c.extend(start, data[at:]))
        return data[at + 4 :]

    def _data(self) -> bytes:
        with open(self.file, "rb") as file:
            if self.offset + self.size > os.fstat(file.fileno()).st_size:
                raise BrokenError(f"{self.name} is cut off")
            file.seek(self.offset)
            return _read(file, self.size)

    def _compare(self, checksum: int) -> None:
        if self._checksum not in (None, _masked(checksum)):
            raise BrokenError("the values have another checksum than the index says")


def masked_checksum(data: bytes) -> int:
    """Return the masked CRC-32C of bytes, as TensorFlow's files hold it."""
    return _masked(google_crc32c.value(data))


def _masked(checksum: int) -> int:
    turned = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    return (turned + 0xA282EAD8) & 0xFFFFFFFF


def _read(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise BrokenError("cut off")
    return data
