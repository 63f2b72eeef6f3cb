"""What a checkpoint of a run holds besides its weights, and when one is due."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from safetensors.numpy import save

from bert_keras.checkpoints.safetensors_file import opened
from bert_keras.errors import CheckpointError

FILE = "training_state.safetensors"
WriteCheckpoint = Callable[[Path], object]
# Of training in a process, after which it writes its first checkpoint, unless the
# interval is shorter: a process that is often killed gets on nevertheless.
_FIRST_SECONDS = 60.0


class TrainingState:
    """The variables of a run besides the model's weights, which an exact resume needs.

    The optimizer's variables (moments, step, loss scale) and the model's other ones
    (the states of dropout's seeds), as one safetensors file in the order of Keras.
    `weights` are weights of the model that are also kept here.
    """

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *,
        weights: Sequence[Any] = (),
    ) -> None:
        known = {id(weight) for weight in model.weights}
        others = [v for v in model.variables if id(v) not in known]
        self._variables = {
            **_numbered("optimizer", optimizer.variables),
            **_numbered("state", others),
            **_numbered("weights", weights),
        }

    def checkpoint(self) -> WriteCheckpoint:
        """Return a function that writes the current values into a folder."""
        arrays = {
            name: own(keras.ops.convert_to_numpy(variable))
            for name, variable in self._variables.items()
        }
        # `save_file` hides the system's error.
        return lambda folder: (folder / FILE).write_bytes(save(arrays))

    def restore(self, folder: Path) -> None:
        """Set the variables from a checkpoint.

        Raises:
            CheckpointError: the file is missing, broken or from another run.
        """
        path = folder / FILE
        with opened(path) as file:
            names = set(file.keys())
            for name in sorted(names ^ set(self._variables)):
                raise CheckpointError(f"{path}: belongs to another model: {name}")
            for name, variable in self._variables.items():
                stored = file.get_slice(name)
                shape = tuple(stored.get_shape())
                if shape != tuple(variable.shape):
                    raise CheckpointError(
                        f"{path}: {name} must have the shape {tuple(variable.shape)}; "
                        f"has {shape}"
                    )
            for name, variable in self._variables.items():
                variable.assign(file.get_tensor(name))


def own(array: np.ndarray) -> np.ndarray:
    """Return an array that shares no memory with a variable."""
    return array if array.flags.owndata else array.copy()


def _numbered(scope: str, variables: Sequence[Any]) -> dict[str, Any]:
    """Return names that do not depend on other objects of the process."""
    return {f"{scope}/{n:05d}": variable for n, variable in enumerate(variables)}


class CheckpointClock:
    """Says when a checkpoint is due.

    `every` is the interval: seconds such as `300s`, a number of updates, or `epoch`. Of
    seconds, the first checkpoint of a process is due after a minute at most.
    """

    def __init__(self, every: str | int) -> None:
        every = str(every)
        self._seconds = float(every[:-1]) if every.endswith("s") else math.inf
        self._updates = int(every) if every.isdecimal() else 0
        self._is_by_epoch = every == "epoch"
        self.start()

    def start(self) -> None:
        """Count the seconds of training from now on."""
        self._due_at = time.monotonic() + min(self._seconds, _FIRST_SECONDS)

    def saved(self) -> None:
        """Count the seconds from now on, as a checkpoint has been written."""
        self._due_at = time.monotonic() + self._seconds

    def is_due(self, step: int, *, ends_epoch: bool) -> bool:
        """Return whether a checkpoint is due after a number of updates."""
        if self._updates:
            return step % self._updates == 0
        return ends_epoch if self._is_by_epoch else time.monotonic() >= self._due_at
