"""Pretraining as a task: the heads, their losses and metrics, see `Pretraining`.

Its batches come from `source`, and its steps and losses from `training`, as for any
other task. It has no answers: these belong to the tasks of `tasks`, which open a
pretrained model.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.1; of replaced tokens, Clark et
al. 2020 (arXiv:2003.10555), section 2.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_keras.checkpoints.huggingface import GENERATOR
from bert_keras.errors import ConfigError
from bert_keras.model.encoder import BertEncoder, batch_inputs, named_inputs
from bert_keras.model.heads import (
    NO_LABEL,
    MaskedAccuracy,
    MaskedLMHead,
    MaskedPerplexity,
    PooledHead,
)
from bert_keras.model.layers import moved
from bert_keras.model.replaced_tokens import (
    ReplacedTokenAccuracy,
    ReplacedTokenHead,
    ReplacedTokenLoss,
    ReplacedTokenPrecision,
    ReplacedTokenRecall,
    ReplacedTokens,
    judgements,
)

MASKED_LM, REPLACED = "masked_lm", "replaced_token"  # names of outputs and losses


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """Masked tokens and, with `next_sentence`, pairs of texts."""

    next_sentence: bool = True

    def inputs(self) -> dict[str, Any]:
        """Return the Keras inputs, see `BertPretrainer`."""
        inputs = batch_inputs(cls_positions=self.next_sentence)
        return inputs | named_inputs(["masked_positions"])

    def outputs(
        self, encoder: BertEncoder, inputs: dict[str, Any], seed: int | None
    ) -> dict[str, Any]:
        """Return the logits of each head, see `BertPretrainer`.

        Raises:
            ConfigError: the encoder's pooler is missing, or unused.
        """
        if self.next_sentence != (encoder.pooler is not None):
            raise ConfigError(
                "`encoder` must have the pooler if and only if `next_sentence` is "
                f"True; received pooler={encoder.pooler is not None} and "
                f"next_sentence={self.next_sentence}"
            )
        batch = {k: v for k, v in inputs.items() if k != "masked_positions"}
        head = MaskedLMHead.on(encoder, seed=seed)
        encoded = encoder.read_at(batch, inputs["masked_positions"])
        table = encoder.token_table(batch)
        outputs = {"masked_lm": head(encoded["sequence_output"], table)}
        if self.next_sentence:
            with keras.name_scope("cls"):
                pair_head = PooledHead.on(
                    encoder,
                    2,
                    seed=moved(seed, 1),  # separate from the other head's
                    dropout_rate=0.0,
                    name="seq_relationship",
                )
                outputs["next_sentence"] = pair_head(encoded["pooled_output"])
        return outputs

    def loss(self) -> dict[str, keras.losses.Loss]:
        """Return `pretraining_loss`."""
        return pretraining_loss(next_sentence=self.next_sentence)

    def metrics(self) -> dict[str, list[Any]]:
        """Return `pretraining_metrics`."""
        return pretraining_metrics(next_sentence=self.next_sentence)

    def correct(self, head: str, labels: Any, logits: Any) -> list[Any]:
        """Return how many labels of a head are the best class, float32 [], in graph."""
        best = tf.argmax(logits, axis=-1, output_type=labels.dtype)  # never `NO_LABEL`
        return [tf.reduce_sum(tf.cast(best == labels, tf.float32))]


@dataclasses.dataclass(frozen=True, eq=False)
class ReplacedTokenDetection(Pretraining):
    """Masked tokens for a generator, and replaced ones for the encoder.

    Args:
        generator: an encoder with the embeddings of the encoder.
        weight: of the encoder's loss; the generator's has the weight 1.
    """

    next_sentence: bool = False
    generator: Any = None
    weight: float = 50.0

    @property
    def loss_weights(self) -> dict[str, float]:
        """The factors of the losses in their sum."""
        return {MASKED_LM: 1.0, REPLACED: self.weight}

    def outputs(
        self, encoder: BertEncoder, inputs: dict[str, Any], seed: int | None
    ) -> dict[str, Any]:
        with keras.name_scope(GENERATOR):
            found = super().outputs(self.generator, inputs, seed)
        positions = inputs["masked_positions"]
        batch = {k: v for k, v in inputs.items() if k != "masked_positions"}
        sampler = ReplacedTokens(
            seed=moved(seed, 2), dtype="float32", name="replaced_tokens"
        )
        tokens = sampler(batch["token_ids"], found[MASKED_LM], positions)
        encoded = encoder({**batch, "token_ids": tokens})["sequence_output"]
        head = ReplacedTokenHead.on(encoder, seed=moved(seed, 3))
        return {**found, REPLACED: head(encoded, tokens)}

    def loss(self) -> dict[str, keras.losses.Loss]:
        return {**super().loss(), REPLACED: ReplacedTokenLoss()}

    def metrics(self) -> dict[str, list[Any]]:
        found = [
            ReplacedTokenAccuracy(name="accuracy"),
            ReplacedTokenPrecision(name="precision"),
            ReplacedTokenRecall(name="recall"),
        ]
        return {**super().metrics(), REPLACED: found}

    def correct(self, head: str, labels: Any, logits: Any) -> list[Any]:
        if head == REPLACED:
            return judgements(labels, logits)
        return super().correct(head, labels, logits)


def scores_of(head: str, means: Sequence[float]) -> dict[str, float]:
    """Return the scores of a head by name, from the means of `TaskObjective.sums`.

    Example:
        >>> scores_of("next_sentence", [0.5, 0.75])
        {'next_sentence_loss': 0.5, 'next_sentence_accuracy': 0.75}
    """
    loss, correct, *more = map(float, means)
    found = {f"{head}_loss": loss, f"{head}_accuracy": correct}
    if more:
        hits, called, replaced = more
        found[f"{head}_precision"] = hits / called if called else 0.0
        found[f"{head}_recall"] = hits / replaced if replaced else 0.0
    return found


def perplexity_of(scores: Mapping[str, float]) -> float:
    """Return the perplexity of the masked tokens."""
    return math.exp(min(scores[f"{MASKED_LM}_loss"], 700.0))


def pretraining_loss(*, next_sentence: bool = True) -> dict[str, keras.losses.Loss]:
    """Return the losses whose sum is the paper's, for `compile`.

    Each is a mean: over the masked tokens of the batch, and over its examples.
    """
    losses: dict[str, keras.losses.Loss] = {
        "masked_lm": keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=NO_LABEL
        )
    }
    if next_sentence:
        losses["next_sentence"] = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True
        )
    return losses


def pretraining_metrics(*, next_sentence: bool = True) -> dict[str, list[Any]]:
    """Return accuracy and perplexity of the masked LM and the accuracy of the pairs.

    For `compile`; Keras shows them as `masked_lm_accuracy`, `masked_lm_perplexity` and
    `next_sentence_accuracy`.
    """
    found = [MaskedAccuracy(name="accuracy"), MaskedPerplexity(name="perplexity")]
    metrics: dict[str, list[Any]] = {"masked_lm": found}
    if next_sentence:
        accuracy = keras.metrics.SparseCategoricalAccuracy(name="accuracy")
        metrics["next_sentence"] = [accuracy]
    return metrics
