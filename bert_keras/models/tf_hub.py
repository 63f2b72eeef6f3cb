"""Write a BERT in TF-Hub's form: two SavedModels, `preprocess` and `encoder`.

Both follow the hub's interface of reusable SavedModels, so that `hub.KerasLayer`, or
`tf.saved_model.load` and a call, work with them without our code. What a SavedModel
cannot express, such as the activation, is stored in `encoder/assets.extra`, where
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

from bert_keras.checkpoints import LazyArrays, match, tf_hub
from bert_keras.checkpoints.checkpoint import (
    KEY,
    as_checkpoint_error,
    bert_config,
    shapes_of,
    weight_of,
)
from bert_keras.checkpoints.names import to_hub
from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.heads import MaskedLMHead
from bert_keras.model.layers import undrawn
from bert_keras.models.export import check_backend, meta_graphs, refuse_unknown_ops
from bert_keras.models.saved_model_folder import EXTRA
from bert_keras.text.packing import join, truncate_pair
from bert_keras.text.ragged import sizes_of, slices, starts_of
from bert_keras.text.tokenizer import WordPieceTokenizer

# The hub's names for the inputs of an encoder, and ours.
INPUTS = {
    "input_word_ids": "token_ids",
    "input_mask": "padding_mask",
    "input_type_ids": "segment_ids",
}


class SavedPart(tf.train.Checkpoint):
    """An object of a SavedModel; its attributes are functions, variables and parts."""

    save_counter = None  # by which a checkpoint counts its saves: an extra variable


def hub_preprocessor(
    tokenizer: WordPieceTokenizer, *, seq_length: int, vocabulary: Path
) -> tuple[Any, Any]:
    """Return a preprocessor for `tf.saved_model.save`, and its signature.

    It takes strings [B] and gives the dict of `INPUTS`, int32 [B, seq_length]. Its
    part `tokenize` gives ragged int32 [B, None], `tokenize.get_special_tokens_dict`
    the ids of the special tokens; `bert_pack_inputs` takes a list of one or two such
    ragged tensors, and optionally another `seq_length`, and gives the dict. Two texts
    that are too long together are truncated by `round_robin`.

    Args:
        tokenizer: text to ids.
        seq_length: default length of a row, in tokens.
        vocabulary: its `vocab.txt`, which becomes an asset.
    """

    @tf.function(input_signature=[_texts("inputs")], autograph=False)
    def tokenize(inputs: Any) -> Any:
        return tokenizer(inputs)

    @tf.function(autograph=False)
    def pack(inputs: Any, seq_length: Any = seq_length) -> dict[str, Any]:
        return _packed(inputs, seq_length, tokenizer)

    @tf.function(input_signature=[_texts("sentences")], autograph=False)
    def preprocess(sentences: Any) -> dict[str, Any]:
        return _packed([tokenize(sentences)], seq_length, tokenizer)

    @tf.function(input_signature=[], autograph=False)
    def special_tokens() -> dict[str, Any]:
        ids = special_token_ids(tokenizer)
        return {name: tf.constant(ids[name]) for name in ids}

    pieces = tf.RaggedTensorSpec([None, None], tf.int32)
    for count in (1, 2):
        pack.get_concrete_function([pieces] * count, tf.TensorSpec([], tf.int32))
    root = _callable(preprocess)
    root.tokenize = _callable(tokenize)
    root.tokenize.get_special_tokens_dict = _callable(special_tokens)
    root.bert_pack_inputs = _callable(pack)
    root.variables = list(tokenizer.variables)  # tf-text's model of the vocabulary
    root.tokenize.variables = list(tokenizer.variables)
    root.vocab_file = tf.saved_model.Asset(os.fspath(vocabulary))
    return root, preprocess


def special_token_ids(tokenizer: WordPieceTokenizer) -> dict[str, int]:
    """Return the ids that the hub's preprocessors return, under their names."""
    ids = {
        "start_of_sequence_id": tokenizer.cls_id,
        "end_of_segment_id": tokenizer.sep_id,
        "padding_id": tokenizer.pad_id,
        "vocab_size": tokenizer.vocab_size,
    }
    if tokenizer.mask_id is not None:
        ids["mask_id"] = tokenizer.mask_id
    return ids


def _texts(name: str) -> Any:
    return tf.TensorSpec([None], tf.string, name=name)


def _callable(function: Any) -> Any:
    """Return an object that can be called like the function."""
    part = SavedPart()
    part.__call__ = function
    return part


def _packed(texts: list[Any], length: Any, tokenizer: WordPieceTokenizer) -> Any:
    """Return the hub's dict for one or two texts per row, ragged int32 [B, None]."""
    room = tf.maximum(length - 1 - len(texts), 0)
    first, second = texts[0], None
    if len(texts) == 1:
        kept = tf.minimum(sizes_of(first), room)
        first = slices(first.values, starts_of(first), kept)
    else:
        first, second = truncate_pair(first, texts[1], room, how="round_robin")
    ids, segments = join(
        first, second, cls_id=tokenizer.cls_id, sep_id=tokenizer.sep_id
    )
    real = ids.with_values(tf.ones_like(ids.values))
    # A static length becomes part of the shape, which KerasLayer passes on.
    shape = [None, length]
    if not isinstance(length, int):
        shape = tf.stack([tf.shape(ids.row_splits)[0] - 1, length])
    return {
        "input_word_ids": ids.to_tensor(tokenizer.pad_id, shape=shape),
        "input_mask": real.to_tensor(0, shape=shape),
        "input_type_ids": segments.to_tensor(0, shape=shape),
    }


POOLER, MASKED_LM = "bert/pooler/", "cls/predictions/"
_POSITIONS = "masked_lm_positions"


def hub_encoder(
    config: BertConfig,
    arrays: Mapping[str, np.ndarray],
    *,
    lowercase: bool,
    vocabulary: Path,
) -> tuple[Any, Any]:
    """Return an encoder for `tf.saved_model.save`, and its signature.

    It takes the dict of `INPUTS`, int32 [B, T], and `training`; dropout uses
    TensorFlow's random generator. It gives `pooled_output` and `default` [B, H],
    `sequence_output` [B, T, H] and `encoder_outputs`, a list of the hidden states
    after each block. With a masked-LM head it has `mlm`, which also takes
    `masked_lm_positions` int32 [B, P] and gives `mlm_logits` [B, P, V]. Variables have
    the names and shapes of the hub's own; attention's have an axis of heads.

    Args:
        config: the sizes.
        arrays: canonical name to array, canonical shape, of the encoder and optionally
            of the masked-LM head; each is read once. Without a pooler,
            `pooled_output` is the hidden state of `[CLS]`.
        lowercase: of the tokenizer, returned by `do_lower_case`.
        vocabulary: its `vocab.txt`, which becomes an asset.

    Raises:
        CheckpointError: a value is not finite.
        MismatchError: a weight is missing, unexpected or misshapen.
    """
    network = _Network(config, arrays)

    @tf.function(autograph=False)
    def encode(inputs: Any, training: bool = False) -> dict[str, Any]:
        with network.scope():
            outputs, _ = network.encode(inputs, training)
        return {**outputs, "default": outputs["pooled_output"]}

    @tf.function(autograph=False)
    def predict(inputs: Any, training: bool = False) -> dict[str, Any]:
        with network.scope():
            outputs, batch = network.encode(inputs, training)
            tokens, positions = outputs["sequence_output"], inputs[_POSITIONS]
            table = network.encoder.token_table(batch)
            return {**outputs, "mlm_logits": network.head(tokens, table, positions)}

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32, name=n) for n in INPUTS],
        autograph=False,
    )
    def serve(*rows: Any) -> dict[str, Any]:
        outputs = encode(dict(zip(INPUTS, rows, strict=True)), training=False)
        del outputs["encoder_outputs"]  # a signature cannot return lists
        return outputs

    variables = network.variables
    core = [v for name, v in variables.items() if not name.startswith(MASKED_LM)]
    root = _reusable(encode, tuple(INPUTS), core)
    if len(core) < len(variables):
        inputs = (*INPUTS, _POSITIONS)
        root.mlm = _reusable(predict, inputs, list(variables.values()))
    # For users without the preprocessor.
    root.do_lower_case = tf.Variable(lowercase, trainable=False, name="do_lower_case")
    root.vocab_file = tf.saved_model.Asset(os.fspath(vocabulary))
    root.variables = [*core, root.do_lower_case]
    return root, serve


class _Network:
    """Our layers, run on variables with the hub's names and shapes.

    Attributes:
        encoder, head: the layers; `head` is `None` without a masked-LM head.
        variables: maps canonical names to variables.
    """

    def __init__(self, config: BertConfig, arrays: Mapping[str, np.ndarray]) -> None:
        shapes = shapes_of(arrays)
        self.has_pooler = any(name.startswith(POOLER) for name in shapes)
        with undrawn():
            self.encoder = BertEncoder(
                config, pooler=self.has_pooler, outputs=("hidden_states",)
            )
        self.head: Any = None
        self.weights = {weight.path: weight for weight in self.encoder.weights}
        if any(name.startswith(MASKED_LM) for name in shapes):
            self.head = MaskedLMHead.on(self.encoder)
            self.head.build()
            self.weights |= {weight.path: weight for weight in self.head.weights}
        wanted = {name: tuple(self.weights[name].shape) for name in self.weights}
        heads = config.num_attention_heads
        self.variables = {
            name: tf.Variable(
                weight_of(arrays, name, place="the source", heads=heads),
                name=to_hub(name),
            )
            for name in match(wanted, shapes)
        }

    def encode(self, inputs: Any, training: bool) -> tuple[dict[str, Any], Any]:
        """Return the hub's outputs, and our batch that they belong to."""
        batch = {ours: inputs[theirs] for theirs, ours in INPUTS.items()}
        found = self.encoder(batch, training=training)
        tokens = found["sequence_output"]
        outputs = {
            "pooled_output": found["pooled_output"]
            if self.has_pooler
            else tokens[:, 0],
            "sequence_output": tokens,
            "encoder_outputs": found["hidden_states"][1:],
        }
        return outputs, batch

    def scope(self) -> Any:
        """Return the scope in which the layers use the variables."""
        values = [
            (weight, tf.reshape(self.variables[name], weight.shape))
            for name, weight in self.weights.items()
        ]
        # Keras keeps the state of dropout in its own variables. Here TensorFlow draws
        # it, so that a SavedModel has no variables other than weights.
        for state in self.encoder.non_trainable_variables:
            drawn = tf.random.uniform(state.shape, maxval=2**31 - 1, dtype=tf.int32)
            values.append((state, tf.cast(drawn, state.dtype)))
        return keras.StatelessScope(state_mapping=values)


def _reusable(function: Any, inputs: tuple[str, ...], variables: list[Any]) -> Any:
    """Return a callable object, with one trace for training and one for inference."""
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in inputs}
    for training in (False, True):
        function.get_concrete_function(specs, training=training)
    part = SavedPart()
    part.__call__ = function
    part.variables = variables
    part.trainable_variables = list(variables)
    part.regularization_losses = []
    return part


_FOLDERS = (tf_hub.PREPROCESS, tf_hub.ENCODER)
_PARTS = (
    tf_hub.GRAPH,
    "fingerprint.pb",
    f"{tf_hub.VARIABLES}.index",
    f"{tf_hub.VARIABLES}.data-00000-of-00001",
    "assets/vocab.txt",
    f"{EXTRA}/tokenizer_config.json",
    f"{EXTRA}/tokenizer.json",
    f"{EXTRA}/vocab.txt",
)
NEEDED = f"{tf_hub.ENCODER}/{tf_hub.GRAPH}"
FILES = frozenset(f"{folder}/{part}" for folder in _FOLDERS for part in _PARTS)
FILES |= {f"{tf_hub.ENCODER}/{tf_hub.CONFIG}"}
_SEQ_LENGTH = 128  # row length of the hub's own preprocessors


def write_tf_hub(
    folder: Path,
    arrays: Mapping[str, np.ndarray],
    config: Mapping[str, Any],
    tokenizer: WordPieceTokenizer,
) -> list[str]:
    """Write the two SavedModels of an encoder, with its masked-LM head if it has one.

    For inputs and outputs see `hub_preprocessor` and `hub_encoder`.

    Args:
        folder: a new folder.
        arrays: canonical name to array, canonical shape; each is read once.
        config: a complete `config.json`. Its `max_length`, or else 128, is the row
            length of `preprocess`.
        tokenizer: with the same vocabulary.

    Returns:
        Notes on what is left out and chosen.

    Raises:
        BertKerasError: Keras runs on another backend than TensorFlow.
        CheckpointError: a weight is missing or not finite, or writing fails.
        ConfigError: a size in `config` is out of range.
    """
    check_backend("the format tf-hub")
    sizes = bert_config(config, path=Path(tf_hub.CONFIG))
    kept, notes = _kept(arrays)
    length = _seq_length(config, sizes)
    notes.append(
        f"preprocess returns rows of {length} tokens; bert_pack_inputs of any length"
    )
    masked_lm = any(name.startswith(MASKED_LM) for name in kept)
    architecture = "BertForMaskedLM" if masked_lm else "BertModel"
    complete = {**config, "architectures": [architecture]}
    extras = [folder / name / EXTRA for name in _FOLDERS]
    vocabulary = extras[0] / "vocab.txt"
    with as_checkpoint_error(f"{folder}: cannot write", OSError, tf.errors.OpError):
        for extra in extras:
            tokenizer.save(extra)
        text = json.dumps(complete, indent=2, sort_keys=True) + "\n"
        (folder / tf_hub.ENCODER / tf_hub.CONFIG).write_text(text, encoding="utf-8")
        model, serve = hub_preprocessor(
            tokenizer, seq_length=length, vocabulary=vocabulary
        )
        _save(model, serve, folder / tf_hub.PREPROCESS)
        model, serve = hub_encoder(
            sizes, kept, lowercase=tokenizer.lowercase, vocabulary=vocabulary
        )
        _save(model, serve, folder / tf_hub.ENCODER)
    return notes


def _kept(arrays: Mapping[str, np.ndarray]) -> tuple[Mapping[str, Any], list[str]]:
    """Return the weights that a hub's encoder has, and notes on the others."""
    shapes = shapes_of(arrays)
    kept = {n: s for n, s in shapes.items() if n.startswith(("bert/", MASKED_LM))}
    lost = sorted({name.rpartition("/")[0] for name in shapes if name not in kept})
    notes = []
    if lost:
        notes.append(
            f"left out: {', '.join(lost)}: TF-Hub's encoders have no head except the "
            "masked-LM head (`bert-keras export` writes a whole model)"
        )
    if not any(name.startswith(POOLER) for name in kept):
        notes.append(
            "there is no pooler: pooled_output is the last hidden state of [CLS]"
        )
    return LazyArrays(kept, arrays.__getitem__, place="the source"), notes


def _seq_length(config: Mapping[str, Any], sizes: BertConfig) -> int:
    """Return the row length of the preprocessor."""
    stored = (config.get(KEY) or {}).get("preprocessing", {})
    length = max(stored.get("max_length", _SEQ_LENGTH), 3)
    return min(length, sizes.max_position_embeddings)


def _save(model: Any, serve: Any, folder: Path) -> None:
    """Write a SavedModel, which may hold only ops of a stock server."""
    tf.saved_model.save(model, os.fspath(folder), signatures=serve)
    refuse_unknown_ops(graph.graph_def for graph in meta_graphs(folder))
