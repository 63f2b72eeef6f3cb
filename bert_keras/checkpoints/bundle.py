"""The `.index` file of a TensorFlow checkpoint: what is stored, checked byte for byte.

Nothing in it is believed: a false shape costs no memory, and what is wrong inside, with
right checksums even, is an error and not the end of the process, as in TensorFlow.
`Variable` reads what it tells of.

Source: TensorFlow, `core/lib/io/table_format.txt` and `core/protobuf/
tensor_bundle.proto`; Snappy's `format_description.txt`. A table of sorted keys: blocks
of entries, an index block, a footer of 48 bytes. Imports no TensorFlow.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from bert_keras.checkpoints.base import Shape, one_line
from bert_keras.checkpoints.variable import Variable, masked_checksum
from bert_keras.checkpoints.wire import BrokenError, fields, varint
from bert_keras.errors import CheckpointError

_MAGIC = 0xDB4775248B80FB57
_MOST_BYTES = 4 << 20  # BERT-large with optimizer slots has about 60 KB
_MOST_ENTRIES = 100_000
_LONGEST_NAME = 512


def read_index(prefix: Path) -> dict[str, Variable]:
    """Return the variables of a checkpoint by name; reads `<prefix>.index` alone.

    Raises:
        CheckpointError: the file is absent, broken, or uses what is not read.
    """
    path = Path(f"{prefix}.index")
    if not os.path.isfile(path):
        raise CheckpointError(f"{prefix}: holds no {path.name}")
    try:
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise BrokenError(f"more than {_MOST_BYTES:,} bytes")
        pairs = list(_table(path.read_bytes()))
        if not pairs or pairs[0][0]:
            raise BrokenError("no header entry")
        files = _header(pairs[0][1])
        return {
            name: _entry(name, value, prefix, files)
            for name, value in ((key.decode(), value) for key, value in pairs[1:])
        }
    except (BrokenError, OSError, IndexError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{path}: broken or no TensorFlow checkpoint: {one_line(error)}"
        ) from None


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the (key, value) pairs of a table; keys must rise."""
    if len(data) < 48 or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise BrokenError("wrong magic number")
    at = len(data) - 48
    for _ in range(2):
        _, at = varint(data, at)  # the metaindex, which is empty
    last = None
    count = free = 0
    for _, handle in _block(data, *_handle(data, at)):
        place, size = _handle(handle, 0)
        if place < free:  # one block named many times would cost time and memory
            raise BrokenError("blocks overlap")
        free = place + size
        for key, value in _block(data, place, size):
            count += 1
            if (last is not None and key <= last) or count > _MOST_ENTRIES:
                raise BrokenError("keys are not sorted, or too many")
            last = key
            yield key, value


def _handle(data: bytes, at: int) -> tuple[int, int]:
    """Return the place and size of a block."""
    place, at = varint(data, at)
    size, _ = varint(data, at)
    return place, size


def _block(data: bytes, place: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the (key, value) pairs of one block; a key may reuse the last one's start.

    The block ends with its restart points: places where a key is spelled in full.
    TensorFlow jumps to them, so they must be places that are read here too.
    """
    if place + size + 5 > len(data) or size < 4:
        raise BrokenError("a block outside the file")
    kind = data[place + size]
    block = data[place : place + size]
    stored = data[place + size + 1 : place + size + 5]
    if int.from_bytes(stored, "little") != masked_checksum(
        data[place : place + size + 1]
    ):
        raise BrokenError("a block's checksum is wrong")
    if kind == 1:
        block = _unsnappy(block)
        size = len(block)
    if kind > 1 or size < 4:
        raise BrokenError("an unknown kind of block")
    restarts = int.from_bytes(block[-4:], "little")
    end = size - 4 - 4 * restarts
    if end < 0 or not restarts:
        raise BrokenError("wrong restart points")
    points = {
        int.from_bytes(block[at : at + 4], "little") for at in range(end, size - 4, 4)
    }
    full = {0}
    key = b""
    at = 0
    while at < end:
        start = at
        shared, at = varint(block, at)
        unshared, at = varint(block, at)
        length, at = varint(block, at)
        if shared > len(key) or at + unshared + length > end:
            raise BrokenError("an entry outside its block")
        if shared + unshared > _LONGEST_NAME:
            raise BrokenError(f"a name of more than {_LONGEST_NAME} bytes")
        if not shared:
            full.add(start)
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length
    first = int.from_bytes(block[end : end + 4], "little")
    if first or not points <= full:
        raise BrokenError("wrong restart points")


def _unsnappy(data: bytes) -> bytes:
    """Return what Snappy compressed: literals, and copies of what came before."""
    wanted, at = varint(data, 0)
    if wanted > 32 * len(data):  # no copy of 64 bytes takes less than 3
        raise BrokenError("wrong length of a compressed block")
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        kind, length = tag & 3, (tag >> 2) + 1
        if not kind:
            if length > 60:
                more = length - 60
                length = int.from_bytes(data[at : at + more], "little") + 1
                at += more
            if at + length > len(data):
                raise BrokenError("a compressed block is cut off")
            out += data[at : at + length]
            at += length
            continue
        if kind == 1:
            length = (tag >> 2 & 7) + 4
            offset = (tag >> 5) << 8 | data[at]
            at += 1
        else:
            more = 2 if kind == 2 else 4
            offset = int.from_bytes(data[at : at + more], "little")
            at += more
        if not 0 < offset <= len(out):
            raise BrokenError("a compressed block copies from nowhere")
        chunk = bytes(out[len(out) - offset : len(out) - offset + length])
        out += (chunk * (length // len(chunk) + 1))[:length]  # copies may overlap
        if len(out) > wanted:
            break
    if len(out) != wanted:
        raise BrokenError("wrong length of a compressed block")
    return bytes(out)


def _header(data: bytes) -> int:
    """Return the number of data files (`BundleHeaderProto`)."""
    shards = 0
    for number, value in fields(data):
        if number == 1 and isinstance(value, int):
            shards = value
        elif number == 2 and value != 0:
            raise BrokenError("big-endian values, which are not read")
    if not 0 < shards < 100_000:
        raise BrokenError(f"{shards} data files")
    return shards


def _entry(name: str, data: bytes, prefix: Path, files: int) -> Variable:
    """Return one variable (`BundleEntryProto`)."""
    numbers = {1: 0, 3: 0, 4: 0, 5: 0}  # dtype, file, offset, size
    shape: Shape = ()
    checksum = None
    for number, value in fields(data):
        if number in numbers and isinstance(value, int) and value < 1 << 62:
            numbers[number] = value
        elif number == 2 and isinstance(value, bytes) and not shape:
            shape = tuple(_sizes(value))
        elif number == 6 and isinstance(value, bytes) and len(value) == 4:
            checksum = int.from_bytes(value, "little")
        elif number == 7:
            raise BrokenError(f"{name} is partitioned, which is not read")
        else:
            raise BrokenError(f"an unknown field for {name}")
    if math.prod(max(1, size) for size in shape) >= 1 << 62 or len(shape) > 8:
        raise BrokenError(f"{name} has an absurd shape")
    return Variable(
        Path(f"{prefix}.data-{numbers[3]:05d}-of-{files:05d}"),
        name,
        shape,
        numbers[1],
        offset=numbers[4],
        size=numbers[5],
        checksum=checksum,
    )


def _sizes(data: bytes) -> Iterator[int]:
    """Yield the sizes of the axes (`TensorShapeProto`)."""
    for number, axis in fields(data):
        if number != 2 or not isinstance(axis, bytes):
            raise BrokenError("an unknown shape")
        size = 0
        for inner, value in fields(axis):
            if inner == 1 and isinstance(value, int):
                size = value
            elif inner != 2:
                raise BrokenError("an unknown axis")
        if size >= 1 << 62:  # negative sizes stand as numbers near 2**64
            raise BrokenError("an absurd axis")
        yield size
