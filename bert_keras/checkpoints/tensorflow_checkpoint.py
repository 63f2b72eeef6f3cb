"""A TensorFlow checkpoint on disk: its index, its values, its graph of objects.

TensorFlow's own reader is not used: a wrong entry in the index, with a valid checksum,
ends the process instead of raising. Here nothing in a file is trusted: sizes are
checked against the file before memory is allocated, and all values against their
checksums. TensorFlow is not imported.

Source: TensorFlow, `core/lib/io/table_format.txt`, `core/protobuf/tensor_bundle.proto`,
`core/util/tensor_bundle/tensor_bundle.cc`, `core/lib/hash/crc32c.h`,
`core/protobuf/trackable_object_graph.proto`; Snappy's `format_description.txt`;
protobuf.dev, "Encoding".
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import google_crc32c
import numpy as np

from bert_keras.checkpoints.checkpoint import (
    Block,
    Shape,
    StoredTensor,
    as_checkpoint_error,
)
from bert_keras.errors import CheckpointError
from bert_keras.files.lfs import check_no_pointer


class BrokenError(Exception):
    """The bytes are malformed; the message locates the fault."""


# What the functions below raise for bytes that are not what they should be.
BROKEN = (BrokenError, OSError, IndexError, UnicodeDecodeError)


def refused(what: str) -> contextlib.AbstractContextManager[None]:
    """Turn these errors into a CheckpointError that begins with `what`."""
    return as_checkpoint_error(what, *BROKEN)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at an offset, at most 64 bits, and the offset after it."""
    value = 0
    for shift in range(0, 64, 7):
        byte = data[at]  # IndexError beyond the end
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            if value >= 1 << 64:
                break
            return value, at
    raise BrokenError("a number of more than 64 bits")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the (number, value) pairs of a protobuf message; may raise `BROKEN`."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise BrokenError("an unknown kind of field")
        if not tag >> 3 or at + size > len(data):
            raise BrokenError("a field outside its message")
        yield tag >> 3, data[at : at + size]
        at += size


# The variables and their values.

_BOOL, _STRING = 10, 7  # in `types.proto`
_FLOATS = {1: "F32", 2: "F64", 14: "BF16", 19: "F16"}
_STORED = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2"}


class Variable(StoredTensor):
    """One variable of a TensorFlow checkpoint.

    Args:
        file, name, shape: its data file, its key, its shape.
        kind: the number of its type in `types.proto`.
        offset, size: where it starts, and its length, in bytes.
        checksum: masked CRC-32C of its bytes; `None` if the index has none.
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
            raise CheckpointError(f"{self.file.parent}: contains no {self.file.name}")
        wanted = math.prod(self.shape) * np.dtype(_STORED[self.dtype]).itemsize
        if self.size != wanted or self.offset + wanted > self.file.stat().st_size:
            check_no_pointer(self.file)
            raise CheckpointError(
                f"{self.file}: broken or truncated: {self.name} of shape "
                f"{list(self.shape)} is missing"
            )

    def blocks(self) -> Iterator[Block]:
        """Yield blocks; bfloat16 becomes float32. Wrong values raise after the last."""
        stored = np.dtype(_STORED[self.dtype])
        width = stored.itemsize * math.prod(self.shape[1:])
        shape = (-1, *self.shape[1:]) if self.shape else ()
        checksum = 0
        with refused(f"{self.file}: broken or truncated: {self.name}"):
            with open(self.file, "rb") as file:
                file.seek(self.offset)
                for rows in self.row_blocks():
                    count = 1 if rows is ... else rows.stop - rows.start
                    data = _read_exactly(file, width * count)
                    checksum = google_crc32c.extend(checksum, data)
                    block = np.frombuffer(data, stored)
                    if self.dtype == "BF16":
                        block = (block.astype("<u4") << 16).view("<f4")
                    yield rows, block.reshape(shape)
            self._compare(checksum)

    def read_bytes(self) -> bytes:
        """Return the bytes as stored; raises an error if some are missing or wrong."""
        data = self._data()
        self._compare(google_crc32c.value(data))
        return data

    def read_boolean(self) -> bool:
        """Return the value of a variable that holds one boolean."""
        stored = self.read_bytes() if self.size == 1 else b""
        if self.kind != _BOOL or self.shape or stored not in (b"\0", b"\1"):
            raise BrokenError(f"{self.name} must hold one boolean")
        return stored == b"\1"

    def read_string(self) -> bytes:
        """Return the value of a variable that holds one string.

        The file has its length, a checksum of the length, then the string; the checksum
        in the index covers the length, as four bytes, and all that follows it.
        """
        if self.kind != _STRING or self.shape:
            raise BrokenError(f"{self.name} must be one string")
        data = self._data()
        length, at = varint(data, 0)
        if at + 4 + length != len(data):
            raise BrokenError(f"{self.name} is truncated")
        start = google_crc32c.value(length.to_bytes(4, "little"))
        self._compare(google_crc32c.extend(start, data[at:]))
        return data[at + 4 :]

    def _data(self) -> bytes:
        with open(self.file, "rb") as file:
            if self.offset + self.size > os.fstat(file.fileno()).st_size:
                check_no_pointer(self.file)
                raise BrokenError(f"{self.name} is truncated")
            file.seek(self.offset)
            return _read_exactly(file, self.size)

    def _compare(self, checksum: int) -> None:
        if self._checksum not in (None, _masked(checksum)):
            raise BrokenError("the values do not match the checksum of the index")


def _masked(checksum: int) -> int:
    """Return a CRC-32C as TensorFlow's files store it."""
    turned = (checksum >> 15 | checksum << 17) & 0xFFFFFFFF
    return (turned + 0xA282EAD8) & 0xFFFFFFFF


def _read_exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise BrokenError("cut off")
    return data


# The index: a table of sorted keys. Blocks of entries, an index block, a footer.

_MOST_INDEX_BYTES = 4 << 20  # BERT-large with optimizer slots has about 60 KB
_MAGIC = 0xDB4775248B80FB57
_MOST_ENTRIES = 100_000
_LONGEST_NAME = 512


def read_index(prefix: Path) -> dict[str, Variable]:
    """Return the variables of a checkpoint by name; reads `<prefix>.index` alone.

    Raises:
        CheckpointError: the file is absent, broken, or uses an unsupported feature.
    """
    with refused(f"{prefix}.index: {_BROKEN_INDEX}"):
        (_, header), *entries = _pairs(prefix)
        files = _header(header)
        named = ((key.decode(), value) for key, value in entries)
        return {name: _entry(name, value, prefix, files) for name, value in named}


def read_names(prefix: Path) -> list[str]:
    """Return the names in a checkpoint, also where the files of values are absent.

    Raises errors as `read_index` does.
    """
    with refused(f"{prefix}.index: {_BROKEN_INDEX}"):
        return [key.decode() for key, _ in _pairs(prefix)[1:]]


_BROKEN_INDEX = "broken or not a TensorFlow checkpoint"


def _pairs(prefix: Path) -> list[tuple[bytes, bytes]]:
    """Return the (key, value) pairs of `<prefix>.index`, the header first."""
    path = Path(f"{prefix}.index")
    if not os.path.isfile(path):
        raise CheckpointError(f"{prefix}: contains no {path.name}")
    check_no_pointer(path)
    if path.stat().st_size > _MOST_INDEX_BYTES:
        raise BrokenError(f"more than {_MOST_INDEX_BYTES:,} bytes")
    pairs = list(_table(path.read_bytes()))
    if not pairs or pairs[0][0]:
        raise BrokenError("no header entry")
    return pairs


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the (key, value) pairs of a table; keys must be in ascending order."""
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
    """Yield the (key, value) pairs of a block; a key may begin like the previous one.

    The block ends with its restart points: offsets where a key is stored in full.
    TensorFlow jumps to them, so they must be offsets that are read here too.
    """
    if place + size + 5 > len(data) or size < 4:
        raise BrokenError("a block outside the file")
    kind = data[place + size]
    block = data[place : place + size]
    stored = data[place + size + 1 : place + size + 5]
    checksum = google_crc32c.value(data[place : place + size + 1])
    if int.from_bytes(stored, "little") != _masked(checksum):
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
                raise BrokenError("a compressed block is truncated")
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
            raise BrokenError("big-endian values, which are not supported")
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
            raise BrokenError(f"{name} is partitioned, which is not supported")
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
        if size >= 1 << 62:  # negative sizes are stored as numbers near 2**64
            raise BrokenError("an absurd axis")
        yield size


# The graph of objects.

ROOT = "_CHECKPOINTABLE_OBJECT_GRAPH"  # its key among the variables
_MOST_GRAPH_BYTES = 8 << 20  # a SavedModel of BERT-large has 0.4 MB
_MOST_NODES = 200_000


class Node(NamedTuple):
    """One object: its children by name; of a variable, its values and full name."""

    children: Mapping[str, int]
    variable: Variable | None = None
    full_name: str = ""


class ObjectGraph:
    """The objects of a checkpoint, by number; the root is 0.

    `slots` are the numbers of the variables that an optimizer keeps for each weight.
    """

    def __init__(self, nodes: list[Node], slots: frozenset[int]) -> None:
        self.nodes, self.slots = nodes, slots

    def add(self, children: Mapping[str, int]) -> int:
        """Add an object that holds others by name; returns its number."""
        self.nodes.append(Node(children))
        return len(self.nodes) - 1

    def find(self, start: int, path: str) -> int | None:
        """Return the number of the object at path `a/b/c` from `start`, or `None`."""
        number: int | None = start
        for step in path.split("/"):
            number = None if number is None else self.nodes[number].children.get(step)
        return number

    def variable(self, start: int, path: str) -> Variable | None:
        """Return the variable at a path from `start`, or `None`."""
        number = self.find(start, path)
        return None if number is None else self.nodes[number].variable

    def reachable(self, *, without: Collection[str]) -> list[int]:
        """Return the objects below the root, nearest first, not through `without`."""
        found = {0: None}
        waiting = [0]
        for number in waiting:
            for name, child in self.nodes[number].children.items():
                if child not in found and name not in without:
                    found[child] = None
                    waiting.append(child)
        return list(found)


def read_graph(variables: Mapping[str, Variable]) -> ObjectGraph:
    """Return the graph of a checkpoint whose index was read; may raise `BROKEN`."""
    if ROOT not in variables:
        raise BrokenError("no object graph")
    if variables[ROOT].size > _MOST_GRAPH_BYTES:
        raise BrokenError(f"an object graph of more than {_MOST_GRAPH_BYTES:,} bytes")
    data = variables[ROOT].read_string()
    nodes: list[Node] = []
    slots: set[int] = set()
    for number, value in fields(data):
        if number == 1 and isinstance(value, bytes):
            nodes.append(_node(value, slots, variables))
        if len(nodes) > _MOST_NODES:
            raise BrokenError(f"more than {_MOST_NODES:,} objects")
    numbers = [n for node in nodes for n in node.children.values()]
    if not nodes or max([0, *numbers, *slots]) >= len(nodes):
        raise BrokenError("the object graph names objects that it does not hold")
    return ObjectGraph(nodes, frozenset(slots))


def _node(data: bytes, slots: set[int], variables: Mapping[str, Variable]) -> Node:
    """Return one object (`TrackableObject`); adds its slots."""
    children: dict[str, int] = {}
    variable, full_name = None, ""
    for number, value in fields(data):
        if number not in (1, 2, 3) or not isinstance(value, bytes):
            continue
        parts = dict(fields(value))
        if number == 1:  # `ObjectReference`
            child, name = _number(parts.get(1)), _text(parts.get(2))
            if children.setdefault(name, child) != child:
                raise BrokenError(f"two objects are both `{name}`")
        elif number == 3:  # `SlotVariableReference`
            slots.add(_number(parts.get(3)))
        elif _text(parts.get(1)) == "VARIABLE_VALUE":  # `SerializedTensor`
            key, full_name = _text(parts.get(3)), _text(parts.get(2))
            variable = variables.get(key)
            if variable is None:
                raise BrokenError(f"the object graph names {key}, absent")
    return Node(children, variable, full_name)


def _number(value: int | bytes | None) -> int:
    return value if isinstance(value, int) else 0


def _text(value: int | bytes | None) -> str:
    return value.decode() if isinstance(value, bytes) else ""
