"""What every checkpoint reader returns: `Checkpoint`, with arrays read when asked for.

Also `StoredTensor`, a tensor that stays in its file until then, and the few helpers
that readers share: sizes, files written beside and then moved, lists of names.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import EllipsisType
from typing import IO, Any

import numpy as np

from bert_keras.checkpoints.names import head_axis
from bert_keras.checkpoints.own_entry import KEY, own_entry
from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError, ConfigError, one_line

_BLOCK = 1 << 20  # values checked at a time: the mask stays at 1 MB

Shape = tuple[int, ...]
FLOATS = ("F32", "F16", "BF16", "F64")  # all become float32


class StoredTensor(abc.ABC):
    """Where one tensor stands: its file, its name there, shape and data type."""

    def __init__(self, file: Path, name: str, shape: Shape, dtype: str) -> None:
        self.file, self.name, self.shape, self.dtype = file, name, shape, dtype

    def check(self) -> None:
        """Raise a CheckpointError unless the tensor holds floating-point values."""
        if self.dtype not in FLOATS:
            raise CheckpointError(
                f"{self.file}: {one_line(self.name)} must be one of "
                f"{', '.join(FLOATS)}; is {self.dtype}"
            )
        if 0 in self.shape:
            raise CheckpointError(
                f"{self.file}: {one_line(self.name)} is empty: {list(self.shape)}"
            )

    @abc.abstractmethod
    def blocks(self) -> Iterator[tuple[slice | EllipsisType, np.ndarray]]:
        """Yield the rows of the first axis in blocks of a few MB, as stored."""

    def read(self, *, transpose: bool = False) -> np.ndarray:
        """Return the values as float32 in C order; no more than a block is copied."""
        array = _empty(self.shape[::-1] if transpose else self.shape)
        view = array.T if transpose else array
        # What is not finite, before the cast or by it, is found by LazyArrays.
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


class LazyArrays(Mapping[str, np.ndarray]):
    """Canonical names to float32 arrays, each read from its file when asked for.

    Nothing is kept: asking twice reads twice, so whoever assigns weights one by one
    holds one array at a time. `dict(arrays)` reads all.

    Args:
        shapes: canonical name to canonical shape.
        read: returns the array of a name.
        place: the file or folder, for messages.
    """

    def __init__(
        self,
        shapes: Mapping[str, Shape],
        read: Callable[[str], np.ndarray],
        *,
        place: str,
    ) -> None:
        self.shapes: dict[str, Shape] = {name: tuple(shapes[name]) for name in shapes}
        self._read = read
        self._place = place

    def __getitem__(self, name: str) -> np.ndarray:
        """Return one array: float32, C order, its own memory.

        Raises:
            KeyError: there is no such name.
            CheckpointError: the file cannot be read, or a value is NaN or infinite.
        """
        shape = self.shapes[name]
        array = self._read(name)
        if array.shape != shape:
            raise CheckpointError(
                f"{self._place}: `{name}` changed while it was read: it was "
                f"{list(shape)}, it is {list(array.shape)}"
            )
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
        raw_config: the whole parsed `config.json` or `bert_config.json`; of others,
            what their files say in the words of a `config.json`.
        arrays: canonical name to float32 array, read when asked for.
        notes: lines to tell the user, such as which activation was chosen.
        unrecognized: names in the file, as spelled there, that have no canonical name.
        tokenizer: arguments of `WordPieceTokenizer` that stand among the weights,
            where no file beside them tells.

    Raises:
        CheckpointError: our entry in the config is broken.
    """

    path: Path
    origin: str
    config: BertConfig
    raw_config: dict[str, Any]
    arrays: LazyArrays
    notes: tuple[str, ...] = ()
    unrecognized: tuple[str, ...] = ()
    tokenizer: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        own_entry(
            self.raw_config,
            positions=self.config.max_position_embeddings,
            place=f"{self.path}: config.json",
        )

    @property
    def own_entry(self) -> dict[str, Any]:
        """Our entry in the config, see `own_entry`; empty where there is none."""
        return self.raw_config.get(KEY) or {}

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """Canonical name to canonical shape; reads no array."""
        return self.arrays.shapes


def _empty(shape: Shape) -> np.ndarray:
    """Return float32 memory that TensorFlow takes as a tensor without a copy of it.

    Its tensors start at multiples of 64 bytes (`TF_NewTensor`).
    """
    count = math.prod(shape)
    raw = np.empty(4 * count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * count].view(np.float32).reshape(shape)


def shapes_of(arrays: Mapping[str, np.ndarray]) -> dict[str, Shape]:
    """Return the shapes of arrays by name; reads none that is lazy."""
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


def bert_config(values: Mapping[str, Any], *, path: Path) -> BertConfig:
    """Return the sizes in a parsed config; keys that are no sizes are passed over.

    Raises:
        ConfigError: a value is out of its range; names the file.
    """
    try:
        return BertConfig.from_dict(values)
    except ConfigError as error:
        raise ConfigError(f"{path}: {one_line(error)}") from None


def written(
    folder: Path, undo: contextlib.ExitStack, write: Callable[[IO[bytes]], object]
) -> Path:
    """Return a new file in `folder`, safe on disk, to be moved where it belongs.

    Args:
        folder: the folder it will stay in: `os.replace` needs the same disk.
        undo: deletes the file, if it is still there, when it closes.
        write: writes the content to the file that it is given.
    """
    path = folder / f".writing-{secrets.token_hex(8)}"
    undo.callback(path.unlink, missing_ok=True)
    with open(path, "xb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    return path


def listed(names: list[str], *, most: int = 4) -> str:
    """Return the first few names and how many more there are."""
    shown = ", ".join(one_line(name, longest=120) for name in names[:most])
    more = len(names) - most
    return f"{shown} and {more:,} more" if more > 0 else shown


def joined_heads(name: str, shape: Shape, heads: int, place: str) -> Shape:
    """Return the canonical shape of a weight that is stored with an axis of heads.

    Args:
        name: its canonical name.
        shape: as it is stored.
        heads: attention heads of the model.
        place: file and name there, for messages.

    Raises:
        CheckpointError: the shape has other axes, or another number of heads.
    """
    axis = head_axis(name)
    if axis is None:
        return shape
    axes = 3 if name.endswith("/kernel") else 2
    if len(shape) != axes or shape[axis] != heads:
        raise CheckpointError(
            f"{place} must have {axes} axes, {heads} heads in axis {axis}; has "
            f"{list(shape)}"
        )
    return (*shape[:axis], math.prod(shape[axis : axis + 2]), *shape[axis + 2 :])
