"""Text to a batch as TF-Hub's preprocessors do it, as an object to save.

Source: tensorflow/hub `docs/common_saved_model_apis/text.md`; tensorflow/models
`official/nlp/modeling/layers/text_layers.py` for what the parts are called and give.
The ids are those of our own tokenizer.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert_keras.packing import join, truncate_pair
from bert_keras.ragged import sizes_of, slices, starts_of
from bert_keras.tokenizer import WordPieceTokenizer

# The hub's names of the inputs of an encoder, and ours.
INPUTS = {
    "input_word_ids": "token_ids",
    "input_mask": "padding_mask",
    "input_type_ids": "segment_ids",
}


class SavedPart(tf.train.Checkpoint):
    """An object of a SavedModel; its attributes are functions, variables, parts."""

    save_counter = None  # which a checkpoint counts its saves with: one variable more


def hub_preprocessor(
    tokenizer: WordPieceTokenizer, *, seq_length: int, vocabulary: Path
) -> tuple[Any, Any]:
    """Return a preprocessor for `tf.saved_model.save`, and its signature.

    It takes strings [B] and gives the dict of `INPUTS`, int32 [B, seq_length]. Its
    part `tokenize` gives ragged int32 [B, None], `tokenize.get_special_tokens_dict`
    the ids of the special tokens; `bert_pack_inputs` takes a list of one or two such
    ragged tensors, and perhaps another `seq_length`, and gives the dict. Two texts that
    are too long together give way in turn, piece by piece, the longer one first.

    Args:
        tokenizer: text to ids.
        seq_length: tokens of a row, where a call does not say another number.
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
    """Return the ids that the hub's preprocessors tell, under their names."""
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
    """Return an object that is called as the function is."""
    part = SavedPart()
    part.__call__ = function
    return part


def _packed(texts: list[Any], length: Any, tokenizer: WordPieceTokenizer) -> Any:
    """Return one or two texts a row, ragged int32 [B, None] each, as the hub's dict."""
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
    # A number known now becomes part of the shape, which KerasLayer hands on.
    shape = [None, length]
    if not isinstance(length, int):
        shape = tf.stack([tf.shape(ids.row_splits)[0] - 1, length])
    return {
        "input_word_ids": ids.to_tensor(tokenizer.pad_id, shape=shape),
        "input_mask": real.to_tensor(0, shape=shape),
        "input_type_ids": segments.to_tensor(0, shape=shape),
    }
