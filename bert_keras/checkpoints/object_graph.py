"""The graph of Python objects that a TensorFlow 2 checkpoint holds beside its values.

Such a checkpoint names a value after the attributes that led to it when it was saved,
by whichever way came first, so the same weight has other keys under other roots. The
graph tells of every way: here a weight is found from the object that it belongs to.

Source: TensorFlow, `core/protobuf/trackable_object_graph.proto` (the message) and
`tensor_bundle.proto` (how a string is stored). Imports no TensorFlow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from bert_keras.checkpoints.wire import BrokenError, fields

if TYPE_CHECKING:
    from bert_keras.checkpoints.variable import Variable

ROOT = "_CHECKPOINTABLE_OBJECT_GRAPH"  # its key among the variables
_MOST_BYTES = 8 << 20  # a SavedModel of BERT-large has 0.4 MB
_MOST_NODES = 200_000


class Node(NamedTuple):
    """One object: what it holds by name; of a variable, its key and its full name."""

    children: Mapping[str, int]
    key: str | None = None
    full_name: str = ""


class ObjectGraph:
    """The objects of a checkpoint, by number; the root is 0.

    Attributes:
        nodes: the objects.
        slots: numbers of the variables that an optimizer keeps beside each weight.
    """

    def __init__(self, nodes: list[Node], slots: frozenset[int]) -> None:
        self.nodes, self.slots = nodes, slots

    def add(self, children: Mapping[str, int]) -> int:
        """Add an object that holds others by name; returns its number."""
        self.nodes.append(Node(children))
        return len(self.nodes) - 1

    def find(self, start: int, path: str) -> int | None:
        """Return the number of what an object holds under `a/b/c`, or `None`."""
        number = start
        for step in path.split("/"):
            child = self.nodes[number].children.get(step)
            if child is None:
                return None
            number = child
        return number

    def reachable(self, *, without: Collection[str]) -> list[int]:
        """Return the objects that the root leads to, none by an attribute in `without`.

        In the order of breadth: what is nearer to the root comes first.
        """
        found = {0: None}
        waiting = [0]
        for number in waiting:
            for name, child in self.nodes[number].children.items():
                if child not in found and name not in without:
                    found[child] = None
                    waiting.append(child)
        return list(found)


def read_graph(variables: Mapping[str, Variable]) -> ObjectGraph:
    """Return the graph of a checkpoint whose index was read.

    Raises:
        BrokenError, OSError, IndexError, UnicodeDecodeError: it has none, or a broken
            one, or one that names values which are not there.
    """
    if ROOT not in variables:
        raise BrokenError("no object graph")
    if variables[ROOT].size > _MOST_BYTES:
        raise BrokenError(f"an object graph of more than {_MOST_BYTES:,} bytes")
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
    """Return one object (`TrackableObject`); adds the slots that it tells of."""
    children: dict[str, int] = {}
    key, full_name = None, ""
    for number, value in fields(data):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            child, name = _reference(value)
            if children.setdefault(name, child) != child:
                raise BrokenError(f"two objects are both `{name}`")
        elif number == 2:
            texts = dict(_texts(value))
            if texts.get(1) == "VARIABLE_VALUE":
                key, full_name = texts.get(3, ""), texts.get(2, "")
                if key not in variables:
                    raise BrokenError(f"the object graph names {key}, absent")
        elif number == 3:
            slots.update(n for field, n in _numbers(value) if field == 3)
    return Node(children, key, full_name)


def _reference(data: bytes) -> tuple[int, str]:
    """Return the number and the name of a child (`ObjectReference`)."""
    return dict(_numbers(data)).get(1, 0), dict(_texts(data)).get(2, "")


def _numbers(data: bytes) -> Iterator[tuple[int, int]]:
    yield from ((n, value) for n, value in fields(data) if isinstance(value, int))


def _texts(data: bytes) -> Iterator[tuple[int, str]]:
    for number, value in fields(data):
        if isinstance(value, bytes):
            yield number, value.decode()
