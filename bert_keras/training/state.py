"""What training needs beside the weights to go on exactly: `TrainingState`.

Optimizer variables (moments, step, loss scale) and the model's other variables (the
states of dropout's seeds) as one safetensors file, in the order that Keras gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from safetensors.numpy import save

from bert_keras.checkpoints.safetensors_file import opened
from bert_keras.errors import CheckpointError

FILE = "training_state.safetensors"


class TrainingState:
    """The variables that belong to a run, beside the model's weights.

    Args:
        model: its variables that are no weights are those of dropout's seeds.
        optimizer: built.
        weights: weights of the model that are to be kept here as well.
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

    def copy(self) -> dict[str, np.ndarray]:
        """Return the values as they are now."""
        return {
            name: np.array(keras.ops.convert_to_numpy(variable))
            for name, variable in self._variables.items()
        }

    def restore(self, folder: Path) -> None:
        """Set the variables from a checkpoint.

        Raises:
            CheckpointError: the file is missing, broken or of another run.
        """
        path = folder / FILE
        with opened(path) as file:
            names = set(file.keys())
            for name in sorted(names ^ set(self._variables)):
                raise CheckpointError(f"{path}: is of another model: {name}")
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


def write_state(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write what `TrainingState.copy` gave into a checkpoint's folder.

    Raises:
        OSError: the disk refuses.
    """
    (folder / FILE).write_bytes(save(arrays))  # `save_file` hides what the disk says


def _numbered(scope: str, variables: Sequence[Any]) -> dict[str, Any]:
    """Return names that do not follow from what else was made in the process."""
    return {f"{scope}/{n:05d}": variable for n, variable in enumerate(variables)}
