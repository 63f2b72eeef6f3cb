"""Heads on the encoder: `PooledHead`, and layers for multiple choice.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.2.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

NO_CHOICE = -1e9  # score of padding; finite in float32


def choice_inputs() -> dict[str, Any]:
    """Return Keras inputs of a batch dict of choices.

    Padded: `token_ids`, `segment_ids`, `padding_mask` int32 [B, C, T], a text of
    padding alone where a row has fewer choices, as Hugging Face has them. Packed: those
    and `position_ids`, `sequence_ids` are [R, 1, T], and `cls_positions` [B, C] says
    where each choice starts, -1 where there is none.
    """
    inputs = {
        name: keras.Input((None, None), dtype="int32", name=name)
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    for name in ("position_ids", "sequence_ids"):
        inputs[name] = keras.Input(
            (None, None), dtype="int32", name=name, optional=True
        )
    inputs["cls_positions"] = keras.Input(
        (None,), dtype="int32", name="cls_positions", optional=True
    )
    return inputs


@keras.saving.register_keras_serializable(package="bert_keras")
class ChoiceRows(keras.layers.Layer):
    """Reshapes a batch dict of choices to one of texts, for the encoder.

    Call: the dict of `choice_inputs`, with `None` for what a padded batch lacks.
    Returns the dict of the same names, [B*C, T] or [R, T], `cls_positions` [B*C].
    """

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: _flat(name, value) for name, value in inputs.items()}

    def compute_output_spec(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {
            name: keras.KerasTensor((None, *value.shape[2:]), dtype=value.dtype)
            for name, value in inputs.items()
        }


def _flat(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name == "cls_positions":
        return ops.reshape(ops.maximum(value, 0), (-1,))
    rows, choices, length = ops.shape(value)
    return ops.reshape(value, (rows * choices, length))


@keras.saving.register_keras_serializable(package="bert_keras")
class ChoiceScores(keras.layers.Layer):
    """Reshapes one score a text to one row of scores a context.

    Call: `scores` [B*C, 1] or [S, 1], and of the batch dict of `choice_inputs` the
    `padding_mask` and, if packed, the `cls_positions`. Returns float32 [B, C], -1e9
    where a row has no such choice.
    """

    def call(self, scores: Any, padding_mask: Any, cls_positions: Any = None) -> Any:
        if cls_positions is None:
            there = ops.any(ops.cast(padding_mask, "bool"), axis=-1)
        else:
            there = cls_positions >= 0
        scores = ops.reshape(ops.cast(scores, "float32"), ops.shape(there))
        return ops.where(there, scores, NO_CHOICE)

    def compute_output_spec(
        self, scores: Any, padding_mask: Any, cls_positions: Any = None
    ) -> Any:
        rows = padding_mask if cls_positions is None else cls_positions
        return keras.KerasTensor(rows.shape[:2], dtype="float32")


@keras.saving.register_keras_serializable(package="bert_keras")
class PooledHead(keras.layers.Dense):
    """Dropout, then one linear layer on the pooled output: W C + b.

    Args:
        units: number of outputs C.
        dropout_rate: rate of the dropout on the pooled output.
        initializer_range: standard deviation of the normal initializer, which is that
            of transformers. Google's code cuts it off at two deviations, so that 0.88
            of them are left, with which a new task begins to learn more slowly.
        seed: seed of initializer and dropout.
        **kwargs: of `keras.layers.Dense`.

    Call: pooled output [B, H]. Returns logits, float32 [B, C].

    Example:
        >>> PooledHead(4)(np.ones((2, 8), "float32")).shape
        (2, 4)
    """

    def __init__(
        self,
        units: int,
        *,
        dropout_rate: float = 0.1,
        initializer_range: float = 0.02,
        seed: int | None = None,
        name: str = "classifier",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault(
            "kernel_initializer",
            keras.initializers.RandomNormal(stddev=initializer_range, seed=seed),
        )
        super().__init__(units, name=name, **kwargs)
        self.dropout_rate = dropout_rate
        self.initializer_range = initializer_range
        self.seed = seed
        self.dropout = keras.layers.Dropout(
            dropout_rate, seed=seed, dtype=self.dtype_policy
        )

    @classmethod
    def on(
        cls, encoder: Any, units: int, *, seed: int | None, **settings: Any
    ) -> PooledHead:
        """Return a head with dropout, initializer and dtype of an encoder.

        Args:
            encoder: a `BertEncoder`.
            units, seed: of the head.
            **settings: other arguments of the head, in place of the encoder's.
        """
        config = encoder.config
        given = {
            "dropout_rate": config.hidden_dropout_prob,
            "initializer_range": config.initializer_range,
            "dtype": encoder.dtype_policy,
        }
        return cls(units, seed=seed, **{**given, **settings})

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        logits = super().call(self.dropout(inputs, training=training))
        return ops.cast(logits, "float32")

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> Any:
        shape = (*inputs.shape[:-1], self.units)
        return keras.KerasTensor(shape, dtype="float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "dropout_rate": self.dropout_rate,
            "initializer_range": self.initializer_range,
            "seed": self.seed,
        }


def new_heads(model: keras.Model, encoder: Any) -> list[str]:
    """Return a line for each head that starts at random on pretrained weights.

    Args:
        model: stands on the encoder.
        encoder: a `BertEncoder`; one without a `source` is itself new.
    """
    if encoder.source is None:
        return []
    return [
        f"{encoder.source}: {name} starts at random; "
        f"`{type(model).__name__}.from_pretrained` takes a head that a folder has"
        for name in head_names(model, encoder)
    ]


def head_names(model: keras.Model, encoder: Any) -> list[str]:
    """Return the names of the heads with weights, such as `classifier`."""
    known = {id(weight) for weight in encoder.weights}
    paths = [w.path.split("/") for w in model.weights if id(w) not in known]
    names = ["/".join(path[: 2 if path[0] == "cls" else 1]) for path in paths]
    return list(dict.fromkeys(names))
