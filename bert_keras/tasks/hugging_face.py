"""`HuggingFaceHead`: a task as an entry of Hugging Face's `config.json`, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import Self  # in typing since Python 3.11

from bert_keras.config import BertConfig
from bert_keras.errors import ConfigError
from bert_keras.text.preprocessor import Preprocessor


class HuggingFaceHead:
    """How other tools name the head of a task; by default they have no such head.

    Attributes:
        architecture: Hugging Face's class name of the same model.
    """

    name: ClassVar[str]
    architecture: ClassVar[str] = "BertModel"

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        """Return whether a Hugging Face `config.json` is of this task's model."""
        named = cls.architecture in (config.get("architectures") or ())
        return named and cls.architecture != "BertModel"  # which has no head

    @classmethod
    def from_model_config(cls, config: Mapping[str, Any]) -> Self:
        """Return the task described by a Hugging Face `config.json`."""
        raise ConfigError(
            f"has no settings of the task {cls.name}: train it on this model first"
        )

    def model_config(self) -> dict[str, Any]:
        """Return the entries that Hugging Face reads from `config.json`."""
        return {}

    def folder_config(
        self, config: BertConfig, preprocessor: Preprocessor
    ) -> dict[str, Any]:
        """Return what other tools read from the `config.json` of a model folder."""
        return {
            "model_type": "bert",
            "architectures": [self.architecture],
            **config.to_dict(),
            **self.model_config(),
            "pad_token_id": preprocessor.tokenizer.pad_id,
        }
