"""The losses of pretraining as sums and counts: `PretrainingObjective`.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.1 and appendix A.2: the mean of
the masked tokens' losses plus the mean of the pairs' losses.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class PretrainingObjective:
    """Sums of losses (nats) and of correct answers, for `TrainStep` and held-out data.

    Args:
        next_sentence: whether pairs are scored.
    """

    next_sentence: bool = True

    def counts(self, labels: dict[str, Any]) -> dict[str, Any]:
        """Return the numbers of masked tokens and of pairs, float32 [] each.

        Args:
            labels: `masked_lm` int32 [R, P], -1 where there is none; `next_sentence`
                int32 [S].
        """
        hidden = tf.cast(labels["masked_lm"] >= 0, tf.float32)
        found = {"masked_lm": tf.reduce_sum(hidden)}
        if self.next_sentence:
            pairs = tf.ones_like(labels["next_sentence"], tf.float32)
            found["next_sentence"] = tf.reduce_sum(pairs)
        return found

    def sums(
        self, outputs: dict[str, Any], labels: dict[str, Any]
    ) -> dict[str, tuple[Any, Any]]:
        """Return loss and correct answers of each head, float32 [] each.

        Args:
            outputs: logits of `BertPretrainer`.
            labels: as in `counts`.
        """
        hidden = labels["masked_lm"] >= 0
        found = {"masked_lm": _sums(outputs["masked_lm"], labels["masked_lm"], hidden)}
        if self.next_sentence:
            logits, pairs = outputs["next_sentence"], labels["next_sentence"]
            found["next_sentence"] = _sums(logits, pairs, tf.ones_like(pairs, tf.bool))
        return found


def _sums(logits: Any, labels: Any, counted: Any) -> tuple[Any, Any]:
    weights = tf.cast(counted, tf.float32)
    known = tf.maximum(labels, 0)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(known, logits)
    right = tf.argmax(logits, axis=-1, output_type=labels.dtype) == known
    correct = tf.cast(right, tf.float32)
    return tf.reduce_sum(losses * weights), tf.reduce_sum(correct * weights)
