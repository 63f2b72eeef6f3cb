"""Write a BERT as TF-Hub has it: two SavedModels, `preprocess` and `encoder`.

Both follow the hub's interface of reusable SavedModels, so that `hub.KerasLayer`, or
`tf.saved_model.load` and a call, work with them without code of ours. What a SavedModel
cannot say, such as the activation, stands in `encoder/assets.extra`, where
`read_checkpoint` finds it.

Source: tensorflow/hub `docs/reusable_saved_models.md` and
`docs/common_saved_model_apis/text.md`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bert_keras.checkpoints import LazyArrays, tf_hub
from bert_keras.checkpoints.base import bert_config, one_line, shapes_of
from bert_keras.config import BertConfig
from bert_keras.errors import BertKerasError, CheckpointError
from bert_keras.export import EXTRA, refuse_unknown_ops
from bert_keras.hub_encoder import MASKED_LM, POOLER, hub_encoder
from bert_keras.hub_preprocessor import hub_preprocessor
from bert_keras.tokenizer import WordPieceTokenizer

_FOLDERS = (tf_hub.PREPROCESS, tf_hub.ENCODER)
_PARTS = (
    tf_hub.GRAPH,
    "fingerprint.pb",
    f"{tf_hub.VARIABLES}.index",
    f"{tf_hub.VARIABLES}.data-00000-of-00001",
    "assets/vocab.txt",
    f"{EXTRA}/tokenizer_config.json",
    f"{EXTRA}/vocab.txt",
)
NEEDED = f"{tf_hub.ENCODER}/{tf_hub.GRAPH}"
FILES = frozenset(f"{folder}/{part}" for folder in _FOLDERS for part in _PARTS)
FILES |= {f"{tf_hub.ENCODER}/{tf_hub.CONFIG}"}
_SEQ_LENGTH = 128  # of the rows of the hub's own preprocessors


def write_tf_hub(
    folder: Path,
    arrays: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    tokenizer: WordPieceTokenizer,
) -> list[str]:
    """Write the two SavedModels of an encoder, with its masked-LM head if it has one.

    What they take and give: see `hub_preprocessor` and `hub_encoder`.

    Args:
        folder: a new folder.
        arrays: canonical name to array, canonical shape; each is asked for once.
        config: the whole of a `config.json`. The rows of `preprocess` are as long as
            the `max_length` in it, else 128.
        tokenizer: of the same vocabulary.

    Returns:
        Lines that tell what is left out and chosen.

    Raises:
        BertKerasError: Keras runs on another backend than TensorFlow.
        CheckpointError: a weight is missing or not finite, or the disk refuses.
        ConfigError: a size in `config` is out of its range.
    """
    if keras.config.backend() != "tensorflow":
        raise BertKerasError(
            "the format tf-hub needs Keras on TensorFlow (KERAS_BACKEND=tensorflow); "
            f"it runs on {keras.config.backend()}"
        )
    sizes = bert_config(config, path=Path(tf_hub.CONFIG))
    kept, notes = _kept(arrays)
    length = _seq_length(config, sizes)
    notes.append(f"preprocess gives rows of {length} tokens; bert_pack_inputs any")
    masked_lm = any(name.startswith(MASKED_LM) for name in kept)
    architecture = "BertForMaskedLM" if masked_lm else "BertModel"
    said = {**config, "architectures": [architecture]}
    extras = [folder / name / EXTRA for name in _FOLDERS]
    vocabulary = extras[0] / "vocab.txt"
    try:
        for extra in extras:
            tokenizer.save(extra)
        text = json.dumps(said, indent=2, sort_keys=True) + "\n"
        (folder / tf_hub.ENCODER / tf_hub.CONFIG).write_text(text, encoding="utf-8")
        model, serve = hub_preprocessor(
            tokenizer, seq_length=length, vocabulary=vocabulary
        )
        _save(model, serve, folder / tf_hub.PREPROCESS)
        model, serve = hub_encoder(
            sizes, kept, lowercase=tokenizer.lowercase, vocabulary=vocabulary
        )
        _save(model, serve, folder / tf_hub.ENCODER)
    except (OSError, tf.errors.OpError) as error:
        raise CheckpointError(f"{folder}: cannot write: {one_line(error)}") from None
    return notes


def _kept(arrays: Mapping[str, np.ndarray]) -> tuple[Mapping[str, Any], list[str]]:
    """Return the weights that a hub's encoder has, and notes on the others."""
    shapes = shapes_of(arrays)
    kept = {n: s for n, s in shapes.items() if n.startswith(("bert/", MASKED_LM))}
    lost = sorted({name.rpartition("/")[0] for name in shapes if name not in kept})
    notes = []
    if lost:
        notes.append(
            f"left out: {', '.join(lost)}: TF-Hub's encoders have no head but the "
            "masked-LM (`bert-keras export` writes a whole model)"
        )
    if not any(name.startswith(POOLER) for name in kept):
        notes.append(
            "there is no pooler: pooled_output is the last hidden state of [CLS]"
        )
    return LazyArrays(kept, arrays.__getitem__, place="the source"), notes


def _seq_length(config: Mapping[str, Any], sizes: BertConfig) -> int:
    """Return how long the rows of the preprocessor are."""
    ours = config.get("bert_keras")
    said = ours.get("preprocessing") if isinstance(ours, dict) else None
    length = said.get("max_length") if isinstance(said, dict) else None
    length = length if isinstance(length, int) and length > 2 else _SEQ_LENGTH
    return min(length, sizes.max_position_embeddings)


def _save(model: Any, serve: Any, folder: Path) -> None:
    """Write a SavedModel.

    Raises:
        BertKerasError: it holds an op that a stock server lacks.
    """
    tf.saved_model.save(model, os.fspath(folder), signatures=serve)
    written = saved_model_pb2.SavedModel.FromString(
        (folder / tf_hub.GRAPH).read_bytes()
    )
    refuse_unknown_ops(graph.graph_def for graph in written.meta_graphs)
