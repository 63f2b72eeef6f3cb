"""tf-text's WordPiece: models of a vocabulary, and words to pieces.

Source: Song et al. 2021 (arXiv:2012.15524).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.core.pybinds import (
    pywrap_fast_wordpiece_tokenizer_model_builder as model_builder,
)

from bert_keras.text import characters

# Of plain ASCII text: what tf-text splits it into by itself.
_PLAIN_TOKEN = re.compile(r"(?:##)?[0-9A-Za-z]+|[!-/:-@\[-`{-~]")
# Of a word: no character that the normalization drops or splits at.
_DROPPED = "".join(
    rf"\U{first:08x}-\U{last:08x}"
    for first, last in (*characters.DELETED, *characters.SPACES)
)
_WORD_TOKEN = re.compile(rf"(?!##$)[^{_DROPPED}]+")


def plain_model(
    vocabulary: Sequence[str], *, unk_id: int, max_characters: int
) -> tf.Variable:
    """Return the model for plain ASCII texts, which also splits them into words."""
    tokens = _replaced(_PLAIN_TOKEN, vocabulary)
    return _model(tokens, unk_id=unk_id, max_bytes=max_characters, split=True)


def word_model(
    vocabulary: Sequence[str],
    *,
    specials: Mapping[int, str],
    unk_id: int,
    max_characters: int,
) -> tf.Variable:
    """Return the model for words.

    Args:
        vocabulary: the tokens.
        specials: id of a special token to the character that stands for it in texts.
        unk_id: id of `[UNK]`.
        max_characters: longer words are unknown.
    """
    tokens = _replaced(_WORD_TOKEN, vocabulary)
    for number, character in specials.items():
        tokens[number] = character
    return _model(tokens, unk_id=unk_id, max_bytes=4 * max_characters, split=False)


def _replaced(pattern: re.Pattern[str], vocabulary: Sequence[str]) -> list[str]:
    """Replace tokens that no text can yield, since tf-text mishandles some of them.

    A token with a space makes it miss others, one with a NUL is rejected. The
    replacement holds a control character, which is removed from every text.
    """
    return [
        token if pattern.fullmatch(token) else f"\x01{i}"
        for i, token in enumerate(vocabulary)
    ]


def _model(
    tokens: Sequence[str], *, unk_id: int, max_bytes: int, split: bool
) -> tf.Variable:
    """Return tf-text's WordPiece model, uint8; with `split` it splits words too."""
    buffer = model_builder.build_fast_wordpiece_model(
        tokens, max_bytes, "##", tokens[unk_id], not split, False
    )
    value = tf.io.decode_raw(bytes(buffer), tf.uint8)
    return tf.Variable(value, trainable=False, name="word_piece_model")


def pieces_of(model: tf.Variable, texts: Any) -> Any:
    """Return ids int32, starts and ends in bytes, each ragged [texts, None]."""
    # Built here: a tokenizer that is kept would hold the model as a constant.
    tokenizer = tf_text.FastWordpieceTokenizer(
        model_buffer=tf.convert_to_tensor(model), token_out_type=tf.int32
    )
    return tokenizer.tokenize_with_offsets(texts)
