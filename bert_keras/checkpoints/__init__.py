"""Map the files of a folder or hub name to {canonical name: array}.

Read `formats`, `huggingface`, `matching`, `checkpoint`, `names`, in that order; the
other formats have a file each. This room uses no model class, and imports TensorFlow
only to write TensorFlow's formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.checkpoints.checkpoint import Checkpoint as Checkpoint
    from bert_keras.checkpoints.checkpoint import LazyArrays as LazyArrays
    from bert_keras.checkpoints.formats import one_revision as one_revision
    from bert_keras.checkpoints.formats import read_checkpoint as read_checkpoint
    from bert_keras.checkpoints.formats import resolve as resolve
    from bert_keras.checkpoints.google import read_google as read_google
    from bert_keras.checkpoints.google import write_google as write_google
    from bert_keras.checkpoints.huggingface import read_huggingface as read_huggingface
    from bert_keras.checkpoints.huggingface import (
        write_huggingface as write_huggingface,
    )
    from bert_keras.checkpoints.keras_hub import read_keras_hub as read_keras_hub
    from bert_keras.checkpoints.keras_hub import write_keras_hub as write_keras_hub
    from bert_keras.checkpoints.matching import MismatchError as MismatchError
    from bert_keras.checkpoints.matching import assign as assign
    from bert_keras.checkpoints.matching import check_encoder as check_encoder
    from bert_keras.checkpoints.matching import check_head as check_head
    from bert_keras.checkpoints.matching import has_pooler as has_pooler
    from bert_keras.checkpoints.matching import head_config as head_config
    from bert_keras.checkpoints.matching import match as match
    from bert_keras.checkpoints.model_garden import (
        read_model_garden as read_model_garden,
    )
    from bert_keras.checkpoints.model_garden import (
        write_model_garden as write_model_garden,
    )
    from bert_keras.checkpoints.tf_hub import read_tf_hub as read_tf_hub

_PLACES = {
    "Checkpoint": "checkpoint",
    "LazyArrays": "checkpoint",
    "MismatchError": "matching",
    "assign": "matching",
    "check_encoder": "matching",
    "check_head": "matching",
    "has_pooler": "matching",
    "head_config": "matching",
    "match": "matching",
    "one_revision": "formats",
    "read_checkpoint": "formats",
    "read_google": "google",
    "read_huggingface": "huggingface",
    "read_keras_hub": "keras_hub",
    "read_model_garden": "model_garden",
    "read_tf_hub": "tf_hub",
    "resolve": "formats",
    "write_google": "google",
    "write_huggingface": "huggingface",
    "write_keras_hub": "keras_hub",
    "write_model_garden": "model_garden",
}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # otherwise type checkers accept any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
