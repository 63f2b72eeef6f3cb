"""One `pytorch_model.bin`: its tensors, read by torch as data only.

Such a file is a pickle, and a pickle may run code when it is opened. torch's loader
with `weights_only=True` accepts only tensors and plain containers; before release 2.6
it could be deceived (CVE-2025-32434). torch is an optional dependency.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints.checkpoint import Block, StoredTensor, as_checkpoint_error
from bert_keras.errors import CheckpointError, one_line
from bert_keras.files.lfs import check_no_pointer

_SAFE_SINCE = (2, 6)
_STATES = ("state_dict", "model_state_dict")  # where tools keep the tensors
# torch's names of data types to safetensors' names.
_TYPES = {
    "torch.float32": "F32",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.float64": "F64",
}


class PickledTensor(StoredTensor):
    """One tensor of a pickle, which torch maps into memory."""

    def __init__(self, file: Path, name: str, tensor: Any) -> None:
        dtype = _TYPES.get(str(tensor.dtype), str(tensor.dtype))
        super().__init__(file, name, tuple(tensor.shape), dtype)
        self._tensor = tensor

    def blocks(self) -> Iterator[Block]:
        for rows in self.row_blocks():
            yield rows, _array(self._tensor[rows])


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file by name; torch maps them where it can."""
    check_no_pointer(path)
    torch = check_torch(f"{path}:")
    _check_packing(path)
    try:
        try:
            values = torch.load(path, "cpu", weights_only=True, mmap=True)
        except RuntimeError:  # from before torch 1.6: not a zip, read as a whole
            values = torch.load(path, "cpu", weights_only=True)
    except pickle.UnpicklingError:  # its message is of several lines, for developers
        raise CheckpointError(
            f"{path}: broken, or holds something other than tensors, which is not "
            "opened: save the state_dict() of the model, not the model"
        ) from None
    except Exception as error:  # from torch or zip: none is documented
        reason = one_line(str(error).partition("\n")[0], longest=200)
        raise CheckpointError(
            f"{path}: broken, or holds something other than tensors, which is not "
            f"opened: {type(error).__name__}: {reason}"
        ) from None
    for key in _STATES:  # as in a checkpoint of a training run
        if isinstance(values, Mapping) and isinstance(values.get(key), Mapping):
            values = values[key]
    if not isinstance(values, Mapping):
        raise CheckpointError(
            f"{path}: must hold tensors by name; holds a {type(values).__name__}"
        )
    tensors: dict[str, StoredTensor] = {}
    for name, tensor in values.items():
        if not isinstance(name, str) or not _is_plain(torch, tensor):
            raise CheckpointError(
                f"{path}: must hold tensors by name; holds {one_line(name)}, a "
                f"{type(tensor).__name__}"
            )
        tensors[name] = PickledTensor(path, name, tensor)
    return tensors


def _check_packing(path: Path) -> None:
    """Raise if parts of the file are compressed, which torch never does.

    A small file could then claim any amount of memory.
    """
    broken = (OSError, ValueError, zipfile.BadZipFile)
    with as_checkpoint_error(f"{path}: broken or truncated", *broken):
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
    if any(
        part.compress_type or part.file_size != part.compress_size for part in parts
    ):
        raise CheckpointError(f"{path}: holds compressed parts, which are not read")


def check_torch(what: str) -> Any:
    """Return torch, in a release whose loader runs no code from a file.

    Raises:
        CheckpointError: torch is absent, or too old to be trusted with a pickle; begins
            with `what`, the file.
    """
    why = (
        f"{what} is a pickle, which can run code when it is opened, and is read only "
        "by torch 2.6 or later, as data only"
    )
    try:
        import torch
    except ImportError:
        raise CheckpointError(
            f"{why}: pip install 'bert_keras[torch]', or convert it to "
            "model.safetensors"
        ) from None
    found = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if found is None or tuple(map(int, found.groups())) < _SAFE_SINCE:
        raise CheckpointError(f"{why}; found {torch.__version__}")
    return torch


def is_readable() -> bool:
    """Return whether torch is installed in a release that is trusted with a pickle."""
    try:
        check_torch("")
    except CheckpointError:
        return False
    return True


def _is_plain(torch: Any, tensor: Any) -> bool:
    """Return whether a tensor stores all its numbers: not sparse, no repeated view."""
    return (
        isinstance(tensor, torch.Tensor)
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and tensor.numel() <= tensor.untyped_storage().nbytes()
    )


def _array(tensor: Any) -> np.ndarray:
    """Return a NumPy array; bfloat16, which NumPy lacks, becomes float32."""
    return (tensor if str(tensor.dtype) == "torch.float64" else tensor.float()).numpy()
