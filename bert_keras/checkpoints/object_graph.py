"""The object graph of a TensorFlow 2 checkpoint: which variable stands at which key.

Such a checkpoint names its values by the way to them through Python objects
(`variables/5/.ATTRIBUTES/VARIABLE_VALUE`), and holds one string more, a message that
tells the name each variable was made with (`transformer/layer_0/.../kernel`). It is
read here without TensorFlow, as the index is (`bundle`), before TensorFlow opens the
file.

Source: TensorFlow, `core/protobuf/trackable_object_graph.proto`, and
`core/util/tensor_bundle/tensor_bundle.cc` for how a string is stored: its length, four
bytes of checksum, its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bert_keras.checkpoints.base import one_line
from bert_keras.checkpoints.messages import BrokenError, fields, varint
from bert_keras.errors import CheckpointError

if TYPE_CHECKING:
    from bert_keras.checkpoints.bundle import Entry

ROOT = "_CHECKPOINTABLE_OBJECT_GRAPH"
_MOST_BYTES = 16 << 20  # that of BERT-large has about 100 KB
_STRING, _BOOL = 7, 10  # of `types.proto`
_CHECKSUM = 4  # bytes of it, behind the length of a string


def full_names(
    prefix: Path, entries: Mapping[str, Entry], shards: int
) -> dict[str, str]:
    """Return the key of each stored variable and the name it was made with.

    Args:
        prefix: of the checkpoint; `entries` and `shards` are those of its index.
        entries: key to entry. One of them must be `ROOT`.

    Raises:
        CheckpointError: the graph is not there, broken, or too large.
    """
    entry = entries[ROOT]
    if entry.dtype != _STRING or entry.shape:
        raise CheckpointError(f"{prefix}: {ROOT} must be one string")
    stored = _stored(prefix, entry, shards)
    try:
        length, at = varint(stored, 0)
        graph = stored[at + _CHECKSUM :]
        if len(graph) != length:
            raise BrokenError("a string of another length")
        found = dict(_variables(graph))
    except (BrokenError, IndexError) as error:
        raise CheckpointError(
            f"{prefix}: broken: the object graph cannot be read: {one_line(error)}"
        ) from None
    return {key: name for key, name in found.items() if key in entries}


def truth(prefix: Path, entry: Entry, shards: int) -> bool:
    """Return the value of a variable that holds one truth value.

    Raises:
        CheckpointError: it holds something else, or the file is cut off.
    """
    stored = _stored(prefix, entry, shards)
    if entry.dtype != _BOOL or entry.shape or stored not in (b"\0", b"\1"):
        raise CheckpointError(f"{prefix}: {entry.name} must hold one truth value")
    return stored == b"\1"


def _stored(prefix: Path, entry: Entry, shards: int) -> bytes:
    """Return the bytes of an entry as they stand in the data file."""
    data = Path(f"{prefix}.data-{entry.shard:05d}-of-{shards:05d}")
    if entry.size > _MOST_BYTES:
        raise CheckpointError(
            f"{prefix}: {entry.name} must have at most {_MOST_BYTES:,} bytes; has "
            f"{entry.size:,}"
        )
    try:
        with open(data, "rb") as file:
            file.seek(entry.offset)
            stored = file.read(entry.size)
    except (OSError, OverflowError) as error:
        raise CheckpointError(f"{data}: cannot be read: {one_line(error)}") from None
    if len(stored) != entry.size:
        raise CheckpointError(f"{data}: broken or cut off: {entry.name} is not there")
    return stored


def _variables(graph: bytes) -> Iterator[tuple[str, str]]:
    """Yield (key, name) of each variable in a `TrackableObjectGraph`."""
    for node in _parts(graph, 1):
        for attribute in _parts(node, 2):
            names = dict(fields(attribute))
            key, name = names.get(3), names.get(2)
            if isinstance(key, bytes) and isinstance(name, bytes):
                yield key.decode(errors="replace"), name.decode(errors="replace")


def _parts(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the parts of a message that stand under a field number."""
    for found, value in fields(message):
        if found == number and isinstance(value, bytes):
            yield value
