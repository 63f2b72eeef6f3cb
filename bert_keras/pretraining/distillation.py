"""What a student learns from its teacher in pretraining: `PretrainingDistillation`.

Source: Sanh et al. 2019 (arXiv:1910.01108), section 2, whose student learns the masked
tokens and its teacher's distributions of them.
"""

from __future__ import annotations

import contextlib
from typing import Any

import tensorflow as tf

from bert_keras.model.distillation import SoftTargetLoss
from bert_keras.model.heads import NO_LABEL
from bert_keras.models.objective import SOFT, STATES, LossSum
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.training.taught_states import TaughtStates

_HEAD = "masked_lm"
INPUTS = "inputs"  # of the student, in the labels of a batch


class PretrainingDistillation:
    """The losses on a teacher's distributions of the masked tokens, and on its states.

    Args:
        config: its weight, temperature and kind.
        teacher: a `BertPretrainer` that reads the batches of the student.
        tokens: number of tokens of the vocabulary; further rows of the embeddings of
            either model are no tokens.

    Raises:
        ConfigError: states are to be learned on several replicas.
    """

    def __init__(self, config: PretrainConfig, teacher: Any, *, tokens: int) -> None:
        self.weight = config.distill_weight
        self._teacher, self._tokens = teacher, tokens
        loss = SoftTargetLoss(
            "softmax", config.temperature, reduction="mean_with_sample_weight"
        )
        self._sum = LossSum(loss, rank=2)
        self._states: TaughtStates | None = None
        if config.distill != "soft":
            self._states = TaughtStates(config.distill, teacher)

    def recording(self, student: Any) -> contextlib.AbstractContextManager[None]:
        """Keep what `sums` reads of an update of the student in this block."""
        if self._states is None:
            return contextlib.nullcontext()
        return self._states.recording(student)

    def sums(self, outputs: Any, labels: dict[str, Any]) -> dict[str, Any]:
        """Return the mean of each loss of a batch times its count, float32 []."""
        inputs = labels[INPUTS]
        if self._states is None:
            read = self._teacher(inputs, training=False)
        else:
            read = self._states.read(inputs)
        theirs = tf.stop_gradient(read[_HEAD])[..., : self._tokens]
        ours = outputs[_HEAD][..., : self._tokens]
        found = {SOFT: self._sum.sum(theirs, ours, _weights(labels))}
        if self._states is not None:
            found[STATES] = self._states.sum(inputs)
        return found

    def counts(self, labels: dict[str, Any]) -> dict[str, Any]:
        """Return the number of items in the mean of each loss, float32 []."""
        found = {SOFT: self._sum.count(labels[_HEAD], _weights(labels))}
        if self._states is not None:
            found[STATES] = self._states.count(labels[INPUTS])
        return found


def _weights(labels: dict[str, Any]) -> Any:
    """Return 1 for each masked token, float32 [R, P]."""
    return tf.cast(labels[_HEAD] != NO_LABEL, tf.float32)
