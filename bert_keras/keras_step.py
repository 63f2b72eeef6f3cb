"""An update by Keras's own `train_on_batch`, called like `TrainStep`: `KerasStep`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from bert_keras.errors import ConfigError


class KerasStep:
    """Updates a task's model on the backends that `TrainStep` does not know.

    Args:
        model: a task's model.
        optimizer: built.

    Call: one batch. Returns the loss and its count, 1, as `TrainStep` does.

    Raises:
        ConfigError: an update comes in several batches.
    """

    def __init__(
        self, model: keras.Model, optimizer: keras.optimizers.Optimizer
    ) -> None:
        model.compile(optimizer, loss=model.task.loss(), auto_scale_loss=False)
        self.model = model

    def __call__(self, batches: Sequence[Any]) -> tuple[dict, dict]:
        if len(batches) > 1:
            raise ConfigError(
                "`accumulation` must be 1 where Keras runs on another backend than "
                f"tensorflow; received {len(batches)}"
            )
        inputs, labels = batches[0]
        self.model.reset_metrics()  # else the loss is the mean of all updates
        found = self.model.train_on_batch(
            {name: each.numpy() for name, each in inputs.items()},
            _arrays(labels["targets"]),
            _arrays(labels.get("weights")),
            return_dict=True,
        )
        return {"loss": (float(found["loss"]), 0.0)}, {"loss": 1.0}


def _arrays(values: Any) -> Any:
    return keras.tree.map_structure(
        lambda each: each if each is None else each.numpy(), values
    )
