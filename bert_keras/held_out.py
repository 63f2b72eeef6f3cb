"""Scores of pretraining on data that it does not learn from: `HeldOut`."""

from __future__ import annotations

import math
import os
from typing import Any

import tensorflow as tf

from bert_keras.errors import DataError
from bert_keras.pretrain_config import PretrainConfig
from bert_keras.pretrainer import BertPretrainer
from bert_keras.pretraining_files import find_files
from bert_keras.pretraining_input import pretraining_dataset
from bert_keras.pretraining_objective import PretrainingObjective
from bert_keras.tokenizer import WordPieceTokenizer


class HeldOut:
    """The first examples of a data set, with the same masks each time.

    Args:
        data: folder, file or pattern, as of `pretraining_dataset`.
        tokenizer: that of the data.
        objective: what is scored.
        config: batch size, layout, objective, and how many examples.

    Call: a model. Returns the means: `masked_lm_loss` (nats a token), `perplexity` (its
    exponential), `masked_lm_accuracy` and, where pairs are scored,
    `next_sentence_loss` and `next_sentence_accuracy`.

    Raises:
        DataError: the data is missing or broken, or has no pairs to score.
    """

    def __init__(
        self,
        data: str | os.PathLike[str],
        tokenizer: WordPieceTokenizer,
        objective: PretrainingObjective,
        config: PretrainConfig,
    ) -> None:
        if objective.next_sentence and not find_files(data, tokenizer).has_pairs:
            raise DataError("must hold pairs, as the training data does", path=data)
        rows = config.batch_size // config.accumulation
        self._objective = objective
        self._batches = pretraining_dataset(
            data,
            tokenizer,
            batch_size=rows,
            objective=config.objective,
            next_sentence=objective.next_sentence,
            shuffle=0,
            redraw=False,
            layout=config.layout,
        ).take(math.ceil(config.held_out_examples / rows))
        self._sums: dict[int, Any] = {}  # a graph for each model

    def __call__(self, model: BertPretrainer) -> dict[str, float]:
        graph = self._sums.get(id(model))
        if graph is None:
            graph = self._sums[id(model)] = self._graph(model)
        found: dict[str, list[Any]] = {}
        for batch, labels in self._batches:
            for head, sums in graph(batch, labels).items():
                found.setdefault(head, []).append(sums)
        scores = {}
        for head, parts in found.items():
            loss, correct, count = tf.reduce_sum(
                tf.cast(tf.stack(parts), tf.float64), axis=0
            ).numpy()
            scores[f"{head}_loss"] = float(loss / max(count, 1.0))
            scores[f"{head}_accuracy"] = float(correct / max(count, 1.0))
        perplexity = math.exp(min(scores["masked_lm_loss"], 700.0))
        return {"perplexity": perplexity, **scores}

    def _graph(self, model: BertPretrainer) -> Any:
        """Return what gives loss, correct answers and count of each head, float32 [3]
        each, of a batch.
        """

        def score(batch: Any, labels: Any) -> dict[str, Any]:
            sums = self._objective.sums(model(batch, training=False), labels)
            counts = self._objective.counts(labels)
            return {name: tf.stack([*sums[name], counts[name]]) for name in sums}

        signature = self._batches.element_spec
        return tf.function(score, input_signature=signature, autograph=False)
