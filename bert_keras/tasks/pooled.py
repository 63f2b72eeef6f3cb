"""What tasks on the pooled output share: `PooledTask`.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.1: C W^T.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, ClassVar

import tensorflow as tf

from bert_keras.data.class_names import class_names
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.heads import PooledHead
from bert_keras.tasks.base import Task

_SINGLE_LABEL = "single_label_classification"


class PooledTask(Task):
    """A task of one linear layer on the pooled output of a text, or of a pair.

    A subclass says in `units` how many outputs it needs; one that reads pairs, too, has
    a setting `pairs`.

    Attributes:
        problem_type: Hugging Face's word for what the outputs mean, which tells apart
            the tasks of one architecture; empty where there is one.
    """

    columns = {"text": "text", "text_pair": "text_pair", "label": "label"}
    optional_roles: ClassVar[tuple[str, ...]] = ("text_pair",)
    architecture = "BertForSequenceClassification"
    problem_type: ClassVar[str] = ""
    pairs: bool = False

    @property
    def roles(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("text", "text_pair") if self.pairs else ("text",)

    def signatures(self) -> dict[str, tuple[tf.TensorSpec, ...]]:
        names = ("text_a", "text_b") if self.pairs else ("text",)
        specs = (tf.TensorSpec([None], tf.string, name=name) for name in names)
        return {"serving_default": tuple(specs)}

    @property
    @abc.abstractmethod
    def units(self) -> int:
        """Return the number of outputs."""

    def outputs(
        self, encoder: BertEncoder, inputs: dict[str, Any], seed: int | None
    ) -> Any:
        head = PooledHead.on(encoder, self.units, seed=seed)
        return head(encoder.pool(inputs))

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        if not super().reads(config) or not cls.problem_type:
            return super().reads(config)
        # What `BertForSequenceClassification` takes a config without the word for.
        single = "regression" if len(class_names(config)) == 1 else _SINGLE_LABEL
        return cls.problem_type == (config.get("problem_type") or single)
