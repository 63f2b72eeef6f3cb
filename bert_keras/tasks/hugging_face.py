"""`HeadCodec`: a task's head in Hugging Face's `config.json`, both ways."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_keras.config import BertConfig
from bert_keras.data.class_names import class_entries, class_names
from bert_keras.errors import ConfigError
from bert_keras.lazy_names import deferred
from bert_keras.settings import CROSS, LAST_LAYER
from bert_keras.tasks.catalog import TASKS

if TYPE_CHECKING:
    from pathlib import Path

    from bert_keras.checkpoints import sentence_files
    from bert_keras.text.preprocessor import Preprocessor
else:
    (sentence_files,) = deferred("bert_keras.checkpoints.sentence_files")

ENCODER_ALONE = "BertModel"  # the class of a model without a head
MASKED_LM = "BertForMaskedLM"
PAIR_CLASSIFIER = "BertForSequenceClassification"
SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"


@dataclasses.dataclass(frozen=True)
class HeadCodec:
    """How other tools name the head of a task; by default they have no such head.

    Args:
        architecture: Hugging Face's class name of the same model.
        problem_type: its name of the meaning of the outputs, which distinguishes the
            tasks of one architecture; empty if there is one.
    """

    architecture: str = ENCODER_ALONE
    problem_type: str = ""

    def reads(self, config: Mapping[str, Any]) -> bool:
        """Return whether a Hugging Face `config.json` is of this task's model."""
        named = self.architecture in (config.get("architectures") or ())
        return named and self.architecture != ENCODER_ALONE

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the task's settings by a `config.json`; `None` if it has none."""
        return None if self.architecture == ENCODER_ALONE else {}

    def entries(self, task: Any) -> dict[str, Any]:
        """Return the entries of a task that Hugging Face reads from `config.json`."""
        return {}

    def architecture_of(self, task: Any) -> str:
        """Return Hugging Face's class name of a task's model."""
        return self.architecture

    def modules(self, task: Any) -> dict[str, Any]:
        """Return `pooling`, `normalize` and `head`, the number of outputs, of a head
        that modules of sentence-transformers compute; empty for others.
        """
        return {}

    def folder_config(
        self, task: Any, config: BertConfig, preprocessor: Preprocessor
    ) -> dict[str, Any]:
        """Return what other tools read from the `config.json` of a model folder."""
        return {
            "model_type": "bert",
            "architectures": [self.architecture_of(task)],
            **config.to_dict(),
            **self.entries(task),
            "pad_token_id": preprocessor.tokenizer.pad_id,
        }

    def write_files(
        self, task: Any, folder: Path, *, hidden_size: int, preprocessor: Preprocessor
    ) -> None:
        """Write further files of a model folder that other tools need."""


def from_model_config(task_class: Any, config: Mapping[str, Any]) -> Any:
    """Return the task that a Hugging Face `config.json` describes.

    Raises:
        ConfigError: it does not describe one.
    """
    settings = task_class.head_codec.settings(config)
    if settings is None:
        raise ConfigError(
            f"has no settings of the task {task_class.name}: train it on this model "
            "first"
        )
    return task_class(**settings)


@dataclasses.dataclass(frozen=True)
class PooledCodec(HeadCodec):
    """A `BertForSequenceClassification`: one linear layer on the pooled output."""

    architecture: str = PAIR_CLASSIFIER

    def reads(self, config: Mapping[str, Any]) -> bool:
        if not super().reads(config) or not self.problem_type:
            return super().reads(config)
        # The default of `BertForSequenceClassification`.
        count, activation = len(class_names(config)), sentence_files.pair_scores(config)
        single = REGRESSION if count == 1 else SINGLE_LABEL
        if activation is not None and count == 1:  # `CrossEncoder` ignores the entry
            return self.problem_type == single
        by_activation = {"sigmoid": MULTI_LABEL, "softmax": SINGLE_LABEL}
        applied = by_activation.get(activation or "") or config.get("problem_type")
        return self.problem_type == (applied or single)

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        return None

    def architecture_of(self, task: Any) -> str:
        """Return the class name; Hugging Face has none for a head without a pooler."""
        return self.architecture if task.needs.pooler else ENCODER_ALONE

    def folder_config(
        self, task: Any, config: BertConfig, preprocessor: Preprocessor
    ) -> dict[str, Any]:
        """Return what other tools read, the activation of `CrossEncoder` included."""
        found = super().folder_config(task, config, preprocessor)
        is_scorer = task.pairs and self.architecture_of(task) == PAIR_CLASSIFIER
        return {
            **found,
            **(sentence_files.pair_entry(task.pair_activation) if is_scorer else {}),
        }

    def modules(self, task: Any) -> dict[str, Any]:
        """Return the settings of a head of ours on the pooled tokens of a text or pair.

        `encode` pools the last layer, and truncates long texts.
        """
        is_read = task.layers == LAST_LAYER and task.long == "truncate"
        is_read = is_read and task.pair_encoder == CROSS
        if task.needs.pooler or not is_read or task.name not in TASKS:
            return {}
        own = {"pooling": task.pooling, "normalize": task.normalize}
        return {**own, "head": task.units}

    def write_files(
        self, task: Any, folder: Path, *, hidden_size: int, preprocessor: Preprocessor
    ) -> None:
        """Write sentence-transformers' files, if its modules compute the head."""
        if found := self.modules(task):
            length = preprocessor.max_length
            sentence_files.write_sentence_files(
                folder, hidden_size=hidden_size, max_length=length, **found
            )


def unread_elsewhere(task: Any) -> str:
    """Return a line about a pooled head that no other tool reads from the folder."""
    codec = task.head_codec
    if not isinstance(codec, PooledCodec) or task.needs.pooler or codec.modules(task):
        return ""
    what = (
        "pooled tokens of all layers"
        if task.layers != LAST_LAYER
        else "the pooled tokens"
    )
    if task.pair_encoder != CROSS:
        what += " of both texts of a pair"
    if task.long != "truncate":
        what += f" of long texts by {task.long}"
    return (
        f"no other tool opens the model folder: the head reads {what}; an export as "
        "SavedModel or ONNX works everywhere"
    )


class ClassesCodec(PooledCodec):
    """A pooled head with one output for each of its named classes."""

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        return {"classes": class_names(config), "pairs": reads_pairs(config)}

    def entries(self, task: Any) -> dict[str, Any]:
        return {**class_entries(task.classes), "problem_type": self.problem_type}


def reads_pairs(config: Mapping[str, Any]) -> bool | None:
    """Return whether a folder's model reads pairs; `None` if it does not say."""
    return None if sentence_files.pair_scores(config) is None else True
