"""Scores of pretraining on data that it does not learn from: `HeldOut`."""

from __future__ import annotations

import math
import os
from typing import Any

import tensorflow as tf

from bert_keras.distribution.replicas import Share, distributed, summed_function
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import DataError
from bert_keras.pretraining.files import find_files
from bert_keras.pretraining.input import pretraining_dataset
from bert_keras.pretraining.plan import PretrainingPlan, check_sizes
from bert_keras.pretraining.pretrainer import BertPretrainer, PretrainingObjective
from bert_keras.pretraining.records import read_batches

_ROWS = 32  # of a batch; so that the examples do not follow from the training's batch


class HeldOut:
    """The first examples of a data set, with the same masks each time.

    The masks are those that this data was made for, whatever the config hides in
    training: so runs with other masks can be compared.

    Args:
        data: folder, file or pattern, as of `pretraining_dataset`.
        plan: the run: objective, layout, and how many examples.
        devices: where to compute. A TPU, which wants one shape, leaves out the last
            examples where they are less than a batch.

    Call: a model. Returns the means: `masked_lm_loss` (nats a token), `perplexity` (its
    exponential), `masked_lm_accuracy` and, where pairs are scored,
    `next_sentence_loss` and `next_sentence_accuracy`.

    Raises:
        ConfigError: the model is too small for the data; its masks are written out, and
            the objective is another.
        DataError: the data is missing or broken, or has no pairs to score.
    """

    def __init__(
        self,
        data: str | os.PathLike[str],
        plan: PretrainingPlan,
        devices: Devices,
    ) -> None:
        config = plan.config
        files = find_files(data, plan.tokenizer)
        check_sizes(plan.sizes, plan.tokenizer, [files])
        if plan.next_sentence and not files.has_pairs:
            raise DataError("must hold pairs, as the training data does", path=data)
        self._data = data
        self._objective = PretrainingObjective(plan.next_sentence)
        self._strategy = devices.strategy
        static = devices.has_static_shapes
        rows = _ROWS
        if static or devices.replicas > _ROWS:
            rows = math.ceil(_ROWS / devices.replicas) * devices.replicas

        def make(share: Share) -> tf.data.Dataset:
            dataset = pretraining_dataset(
                data,
                plan.tokenizer,
                batch_size=rows,
                objective=config.objective,
                next_sentence=plan.next_sentence,
                shuffle=0,
                redraw=False,
                layout="padded" if static else config.layout,
                padding="full" if static else "longest",
                drop_remainder=static,
                share=share,
            )
            batches = math.ceil(config.held_out_examples / rows)
            return dataset.take(batches * share.count)

        self._batches = distributed(devices.strategy, make)
        self._graph: Any = None

    def __call__(self, model: BertPretrainer) -> dict[str, float]:
        if self._graph is None:
            self._graph = self._graph_of(model)
        found: dict[str, list[Any]] = {}
        for batch, labels in read_batches(self._batches, self._data):
            for head, sums in self._graph(batch, labels).items():
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

    def _graph_of(self, model: BertPretrainer) -> Any:
        """Return what gives loss, correct answers and count of each head, float32 [3]
        each, of a batch.
        """

        def score(batch: Any, labels: Any) -> dict[str, Any]:
            sums = self._objective.sums(model(batch, training=False), labels)
            counts = self._objective.counts(labels)
            return {name: tf.stack([*sums[name], counts[name]]) for name in sums}

        return summed_function(self._strategy, score, self._batches.element_spec)
