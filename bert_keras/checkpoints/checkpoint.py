"""What every reader returns: `Checkpoint`, whose arrays are read on demand.

Also `StoredTensor`, a tensor that is still in its file, our entry in a `config.json`,
and what readers and writers share.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any

import numpy as np

from bert_keras.checkpoints.names import head_axis
from bert_keras.config import KEY, BertConfig
from bert_keras.errors import (
    CheckpointError,
    ConfigError,
    first_of,
    one_line,
    reason_of,
    shown,
)

_BLOCK = 1 << 20  # values checked at a time: the mask stays at 1 MB

_BLOCK_BYTES = 4 << 20  # read at a time

Shape = tuple[int, ...]
Block = tuple[slice | EllipsisType, np.ndarray]  # rows of a tensor, and their values
FLOATS = ("F32", "F16", "BF16", "F64")  # all become float32


class StoredTensor(abc.ABC):
    """A tensor in a file: the file, its name there, shape and data type."""

    transposed = False  # whether `read` swaps the two axes

    def __init__(self, file: Path, name: str, shape: Shape, dtype: str) -> None:
        self.file, self.name, self.shape, self.dtype = file, name, shape, dtype

    def check(self) -> None:
        """Raise a CheckpointError unless the tensor holds floating-point values."""
        place = f"{self.file}: {one_line(self.name)}"
        if self.dtype not in FLOATS:
            raise CheckpointError(
                f"{place} must be one of {', '.join(FLOATS)}; is {self.dtype}"
            )
        if 0 in self.shape:
            raise CheckpointError(f"{place} is empty: {list(self.shape)}")

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yield the values in `row_blocks`, as stored."""

    def row_blocks(self) -> Iterator[slice | EllipsisType]:
        """Yield slices of the first axis, a few MB each; `...` of a single number."""
        if not self.shape:
            yield ...
            return
        step = max(1, _BLOCK_BYTES // (8 * math.prod(self.shape[1:])))
        for start in range(0, self.shape[0], step):
            yield slice(start, min(start + step, self.shape[0]))

    def read(self) -> np.ndarray:
        """Return the values as float32 in C order; copies one block at a time."""
        array = _empty(self.shape[::-1] if self.transposed else self.shape)
        view = array.T if self.transposed else array
        # LazyArrays finds values that are not finite, also values that overflow here.
        with np.errstate(all="ignore"):
            for rows, block in self.blocks():
                view[rows] = block
        return array

    def equals(self, other: StoredTensor) -> bool:
        """Return whether both hold the same values in the same type and shape."""
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            return False
        pairs = zip(self.blocks(), other.blocks(), strict=True)
        return all(np.array_equal(a, b) for (_, a), (_, b) in pairs)


def choose(
    chosen: dict[str, Any], name: str, tensor: StoredTensor, *, transpose: bool = False
) -> None:
    """Enter a stored tensor under its canonical name, if it can be that weight."""
    place = f"{tensor.file}: {one_line(tensor.name)}"
    if name in chosen:
        raise CheckpointError(f"{place} and {chosen[name].name} are both `{name}`")
    if transpose and len(tensor.shape) != 2:
        raise CheckpointError(f"{place} must have 2 axes; has {list(tensor.shape)}")
    tensor.check()
    tensor.transposed = transpose
    chosen[name] = tensor


class LazyArrays(Mapping[str, np.ndarray]):
    """Canonical names to float32 arrays, each read from its file on demand.

    Nothing is cached, so assigning weights one by one keeps one array in memory.
    `dict(arrays)` reads all.

    Args:
        shapes: canonical name to canonical shape.
        read: returns the array of a name.
        place: the file or folder, for error messages.
    """

    def __init__(
        self,
        shapes: Mapping[str, Shape],
        read: Callable[[str], np.ndarray],
        *,
        place: str,
    ) -> None:
        self.shapes: dict[str, Shape] = {name: tuple(shapes[name]) for name in shapes}
        self._read, self._place = read, place

    @classmethod
    def of(
        cls,
        chosen: Mapping[str, StoredTensor],
        *,
        place: str,
        shapes: Mapping[str, Shape] | None = None,
    ) -> LazyArrays:
        """Return the arrays of stored tensors, reshaped if `shapes` are given."""
        found = shapes or {
            name: tensor.shape[::-1] if tensor.transposed else tensor.shape
            for name, tensor in chosen.items()
        }
        return cls(found, lambda n: chosen[n].read().reshape(found[n]), place=place)

    def with_others(self, others: LazyArrays) -> LazyArrays:
        """Return these arrays and others, which are taken for a name in both."""
        return LazyArrays(
            {**self.shapes, **others.shapes},
            lambda name: others[name] if name in others else self[name],
            place=others._place,
        )

    def __getitem__(self, name: str) -> np.ndarray:
        """Return one array: float32, C order, its own memory.

        Raises:
            CheckpointError: the file cannot be read, or a value is NaN or infinite.
        """
        array = self._read(name)
        check_finite(array, name=name, place=self._place)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __contains__(self, name: object) -> bool:
        return name in self.shapes  # Mapping's own would read the array


@dataclasses.dataclass(frozen=True, eq=False)
class Checkpoint:
    """One checkpoint, opened: its config, and its weights under canonical names.

    Args:
        path: the folder.
        origin: `huggingface`, `google`, `keras-hub`, `model-garden` or `tf-hub`.
        config: the sizes; its `hidden_act` is what the checkpoint's makers computed.
        raw_config: the whole parsed `config.json` or `bert_config.json`; for other
            formats, their settings under the keys of a `config.json`.
        arrays: canonical name to float32 array, read on demand.
        notes: lines to tell the user, such as which activation was chosen.
        unrecognized: names in the file, as spelled there, that have no canonical name.
        unread: their shapes, where they are known.
        tokenizer: arguments of `WordPieceTokenizer` that are stored among the weights,
            for settings that no tokenizer file gives.
        home: the folder of sentence-transformers that holds `path` as its encoder;
            `None` where it is `path` itself.

    Raises:
        CheckpointError: our entry in the config is malformed.
    """

    path: Path
    origin: str
    config: BertConfig
    raw_config: dict[str, Any]
    arrays: LazyArrays
    notes: tuple[str, ...] = ()
    unrecognized: tuple[str, ...] = ()
    unread: Mapping[str, Shape] = dataclasses.field(default_factory=dict)
    tokenizer: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    home: Path | None = None

    def __post_init__(self) -> None:
        entry = self.raw_config.get(KEY)
        if entry is not None:
            _check_own_entry(
                entry,
                positions=self.config.max_position_embeddings,
                place=f"{self.path}: config.json",
            )

    @property
    def own_entry(self) -> dict[str, Any]:
        """Our entry in the config; empty if absent."""
        return self.raw_config.get(KEY) or {}

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Canonical name to canonical shape; reads no array."""
        return self.arrays.shapes


def _empty(shape: Shape) -> np.ndarray:
    """Return float32 memory that TensorFlow uses as a tensor without copying it.

    Its tensors start at multiples of 64 bytes (`TF_NewTensor`).
    """
    count = math.prod(shape)
    raw = np.empty(4 * count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * count].view(np.float32).reshape(shape)


def shapes_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Shape]:
    """Return the shapes of arrays by name; reads no lazy array."""
    if isinstance(arrays, LazyArrays):
        return dict(arrays.shapes)
    return {name: np.shape(arrays[name]) for name in arrays}


def check_finite(array: np.ndarray, *, name: str, place: str) -> None:
    """Raise a CheckpointError if a value is NaN or infinite."""
    values = array.reshape(-1)
    for start in range(0, values.size, _BLOCK):
        if not np.isfinite(values[start : start + _BLOCK]).all():
            raise CheckpointError(
                f"{place}: `{name}` holds values that are not finite (NaN or infinity)"
            )


def weight_of(
    arrays: Mapping[str, np.ndarray], name: str, *, place: str, heads: int | None = None
) -> np.ndarray:
    """Return a weight to write, float32; with `heads`, as `split_heads` returns it.

    Raises:
        CheckpointError: a value is NaN or infinite; begins with `place`.
    """
    array = np.asarray(arrays[name], np.float32)
    check_finite(array, name=name, place=place)
    return array if heads is None else split_heads(name, array, heads)


def bert_config(values: Mapping[str, Any], *, path: Path) -> BertConfig:
    """Return the sizes in a parsed config; other keys are ignored."""
    try:
        return BertConfig.from_dict(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {one_line(error)}") from None


def listed(names: list[str]) -> str:
    """Return the first few names and how many more there are."""
    return first_of([one_line(name, longest=120) for name in names], most=4)


def joined_heads(name: str, tensor: StoredTensor, heads: int) -> Shape:
    """Return the canonical shape of a weight that may be stored with a head axis."""
    axis, shape = head_axis(name), tensor.shape
    if axis is None:
        return shape
    axes = 3 if name.endswith("/kernel") else 2
    if len(shape) != axes or shape[axis] != heads:
        raise CheckpointError(
            f"{tensor.file}: {tensor.name} must have {axes} axes, {heads} heads in "
            f"axis {axis}; has {list(shape)}"
        )
    return (*shape[:axis], math.prod(shape[axis : axis + 2]), *shape[axis + 2 :])


def split_heads(name: str, array: np.ndarray, heads: int) -> np.ndarray:
    """Split the head axis of a weight in canonical shape, as some formats store it."""
    axis = head_axis(name)
    if axis is None:
        return array
    shape = array.shape
    return array.reshape(*shape[:axis], heads, -1, *shape[axis + 1 :])


@contextlib.contextmanager
def as_checkpoint_error(what: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn these errors into a CheckpointError of one line that begins with `what`."""
    try:
        yield
    except CheckpointError:
        raise
    except errors as error:
        raise CheckpointError(f"{what}: {one_line(reason_of(error))}") from None


FORMAT = 1  # of our entry in a config
_PREPROCESSING = {
    "max_length": int,
    "truncation": str,
    "layout": str,
    "length_multiple": int,
}


def _check_own_entry(entry: Any, *, positions: int, place: str) -> None:
    """Raise unless our entry in a config has our format, and values of its types.

    No row may be longer than `positions`, the encoder's `max_position_embeddings`.
    """
    if not isinstance(entry, dict) or entry.get("format") != FORMAT:
        raise CheckpointError(
            f"{place}: `{KEY}` must be of format {FORMAT}; received {shown(entry)}"
        )
    for key, kind in (("task", str), ("settings", dict), ("preprocessing", dict)):
        if key in entry and not isinstance(entry[key], kind):
            word = "a string" if kind is str else "an object"
            raise CheckpointError(
                f"{place}: `{key}` of `{KEY}` must be {word}; "
                f"received {shown(entry[key])}"
            )
    recorded = entry.get("preprocessing", {})
    for key, value in recorded.items():
        if type(value) is not _PREPROCESSING.get(key):
            raise CheckpointError(
                f"{place}: `preprocessing` of `{KEY}` must hold whole numbers "
                "`max_length` and `length_multiple`, strings `truncation` and "
                f"`layout`; received {shown({key: value})}"
            )
    for key in ("max_length", "length_multiple"):  # both are row lengths
        if recorded.get(key, 0) > positions:
            raise CheckpointError(
                f"{place}: `{key}` must be at most `max_position_embeddings`, "
                f"{positions:,}; received {recorded[key]:,}"
            )
