"""What a student learns from inside its teacher: `TaughtStates`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_keras.errors import ConfigError
from bert_keras.model.distillation import hidden_state_errors, relation_divergences
from bert_keras.model.encoder import recorded_states


class TaughtStates:
    """The loss on the hidden states, or on the relations of tokens, of a batch.

    `recording`, `read` and `sum` are called in this order, in the graph of an update.

    Args:
        kind: `hidden`, or `relations` of the tokens in the last block.
        teacher: reads the batches of the student; both models have a `backbone`.

    Raises:
        ConfigError: there are several replicas.
    """

    def __init__(self, kind: str, teacher: Any) -> None:
        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        if replicas > 1:
            raise ConfigError(
                f"`distill` must be soft on several replicas; received {kind} on "
                f"{replicas}"
            )
        self._kind = kind
        self._teacher: Any = teacher
        self._student: Any = None
        self._theirs: Sequence[Any] = ()
        self._ours: Sequence[Any] = ()

    @contextlib.contextmanager
    def recording(self, student: Any) -> Iterator[None]:
        """Keep the hidden states that the student computes in this block."""
        self._student = student
        with recorded_states(student.backbone) as self._ours:
            yield

    def read(self, inputs: dict[str, Any]) -> Any:
        """Return the teacher's outputs of a batch, and keep its hidden states."""
        with recorded_states(self._teacher.backbone) as found:
            outputs = self._teacher(inputs, training=False)
        self._theirs = [tf.stop_gradient(each) for each in found]
        return outputs

    def sum(self, inputs: dict[str, Any]) -> Any:
        """Return the loss of a batch, summed over its tokens, float32 []."""
        mask = _of_texts(inputs["padding_mask"])
        if self._kind == "hidden":
            return tf.reduce_sum(hidden_state_errors(self._theirs, self._ours, mask))
        texts = inputs.get("sequence_ids")
        bias = self._teacher.backbone.attention_bias(
            mask, None if texts is None else _of_texts(texts)
        )
        theirs = map(tf.stop_gradient, _projections(self._teacher, self._theirs))
        ours = _projections(self._student, self._ours)
        return tf.reduce_sum(relation_divergences([*theirs], ours, bias, mask))

    def count(self, inputs: dict[str, Any]) -> Any:
        """Return the number of tokens of a batch, float32 []."""
        return tf.reduce_sum(tf.cast(inputs["padding_mask"], tf.float32))


def _of_texts(x: Any) -> Any:
    """Return an input [B, T], or of choices [B, C, T], as the encoder gets it."""
    return tf.reshape(x, [-1, tf.shape(x)[-1]])


def _projections(model: Any, states: Sequence[Any]) -> list[Any]:
    """Return queries, keys and values of the last block, [B, T, H] each."""
    block = model.backbone.blocks[-1]
    x = tf.cast(states[-1], block.compute_dtype)
    return [layer(x) for layer in (block.query, block.key, block.value)]
