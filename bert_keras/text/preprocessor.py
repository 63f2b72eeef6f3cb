"""Strings to batches: `Preprocessor`, the same for training, prediction and export.

Source: Devlin et al. 2018 (arXiv:1810.04805), figure 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import tree

from bert_keras.errors import ConfigError, received
from bert_keras.settings import LAYOUTS, TRUNCATIONS, check_choice, check_whole_number
from bert_keras.text.normalization import as_strings
from bert_keras.text.packing import (
    first_pieces,
    join,
    pack_rows,
    pad_rows,
    truncate_pair,
)
from bert_keras.text.ragged import sizes_of
from bert_keras.text.token_ids import as_bytes
from bert_keras.text.tokenizer import WordPieceTokenizer

_SETTINGS = ("max_length", "truncation", "layout", "length_multiple")
_PADDED = ("token_ids", "segment_ids", "padding_mask")
_PACKED = ("position_ids", "sequence_ids")
# JAX compiles a model anew for each length, which takes seconds to minutes.
_FEW_LENGTHS = (16, 32, 64, 128, 256, 512)


@keras.saving.register_keras_serializable(package="bert_keras")
class Preprocessor(keras.layers.Layer):
    """A Keras layer that turns strings into a batch dict, in graph.

    It can stand in a functional model, after `keras.Input((), dtype="string")`, or in
    `tf.data.Dataset.map`; under JAX and torch, which compute no strings, only there.
    `.keras` files and SavedModels of models that hold it contain the vocabulary.

    Args:
        tokenizer: the WordPiece tokenizer.
        max_length: maximum tokens of a text or pair, specials included.
        truncation: how a pair is truncated, see `truncate_pair`.
        layout: `padded` (one text per row, as any Keras model reads it) or `packed`
            (several texts per row).
        length_multiple: row lengths are rounded up to a multiple of this, for compilers
            that need few distinct lengths. On JAX, padded rows have 16, 32, 64 … or
            `max_length` tokens unless this is above 1.

    Call: tf.string [B] or a list of strings, or a pair (tuple) of those. Returns a
    dict, see `pack_rows` and `pad_rows`.

    Example:
        >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad"]
        >>> preprocessor = Preprocessor(WordPieceTokenizer(words), max_length=8)
        >>> preprocessor(["good", "bad good"])["token_ids"].numpy().tolist()
        [[2, 4, 3, 0], [2, 5, 4, 3]]

    Attributes:
        on_pairs: called when pairs are read; a model without segments tells so.
    """

    on_pairs: Callable[[], object] | None = None

    def __init__(
        self,
        tokenizer: WordPieceTokenizer,
        *,
        max_length: int = 128,
        truncation: str = "longest_first",
        layout: str = "padded",
        length_multiple: int = 1,
        **kwargs: Any,
    ) -> None:
        check_whole_number("max_length", max_length, least=3)
        check_whole_number("length_multiple", length_multiple, least=1)
        check_choice("truncation", truncation, TRUNCATIONS)
        check_choice("layout", layout, LAYOUTS)
        super().__init__(**kwargs)
        # Keras would make tensors of its backend of the strings.
        self._convert_input_args = False
        self._allow_non_tensor_positional_args = True
        self.tokenizer = tokenizer
        self.max_length = max_length
        self.truncation = truncation
        self.layout = layout
        self.length_multiple = length_multiple
        self.built = True

    @tf.autograph.experimental.do_not_convert  # has no Python control flow to convert
    def __call__(self, texts: Any, **context: Any) -> Any:
        if not any(keras.utils.is_keras_tensor(each) for each in tree.flatten(texts)):
            return self.call(texts)  # whether in training or not
        for each in tree.flatten(texts):
            if each.dtype != "string" or len(each.shape) != 1:
                raise ConfigError(
                    'texts of a model must be `keras.Input((), dtype="string")`; '
                    f"received an input of shape {each.shape} and dtype {each.dtype}"
                )
        return super().__call__(texts, **context)

    def call(self, texts: Any) -> dict[str, Any]:
        ids, segments = self.join(texts)
        return self.lay(ids, segments)

    def compute_output_spec(self, texts: Any) -> dict[str, Any]:
        rows = tree.flatten(texts)[0].shape[0] if self.layout == "padded" else None
        shapes: dict[str, Any] = dict.fromkeys(_PADDED, (rows, None))
        if self.layout == "packed":
            shapes |= dict.fromkeys(_PACKED, (None, None))
            shapes["cls_positions"] = (None,)
        return {key: keras.KerasTensor(s, dtype="int32") for key, s in shapes.items()}

    def lay(self, ids: Any, segments: Any, **others: Any) -> dict[str, Any]:
        """Return joined texts, ragged int32 [B, None], as rows of the layout.

        `others` are int32 [B, None] of the same tokens; see `unpack` for the way back.
        """
        lay = pad_rows if self.layout == "padded" else pack_rows
        multiple: Any = self.length_multiple
        if (
            self.layout == "padded"
            and multiple == 1
            and keras.config.backend() == "jax"
        ):
            multiple = self._least_length(ids)
        settings = {"pad_id": self.tokenizer.pad_id, "multiple": multiple}
        return lay(ids, segments, **settings, **others)

    def _least_length(self, ids: Any) -> Any:
        """Return the first of a few lengths that is enough for rows, int32 []."""
        lengths = [n for n in _FEW_LENGTHS if n < self.max_length] + [self.max_length]
        enough = tf.constant(lengths) >= tf.reduce_max(sizes_of(ids))
        return tf.reduce_min(tf.where(enough, lengths, self.max_length))

    def join(self, texts: Any, limits: Any = None) -> tuple[Any, Any]:
        """Return the joined, truncated tokens and segments, ragged int32 [B, None].

        `limits` are as in `truncated`.
        """
        return self.join_pieces(*self.pieces(texts), limits=limits)

    def join_pieces(
        self,
        a: Any,
        b: Any = None,
        *,
        keep: Callable[[Any, Any], Any] = first_pieces,
        limits: Any = None,
    ) -> tuple[Any, Any]:
        """Do the same as `join` for tokenized texts, ragged int32 [B, None].

        `keep` is as in `truncate_pair`.
        """
        a, b = self.truncated(a, b, keep=keep, limits=limits)
        return join(a, b, cls_id=self.tokenizer.cls_id, sep_id=self.tokenizer.sep_id)

    def pair_choices(self, contexts: Any, choices: Any) -> dict[str, Any]:
        """Return the batch dict of `choice_inputs`: each context with its choices.

        Contexts are tf.string [B], choices [B, C], "" where a row has fewer.
        """
        there = tf.where(choices != "")
        # A context is tokenized once for all its choices.
        first = tf.gather(self.tokenizer(contexts), there[:, 0])
        second = self.tokenizer(tf.gather_nd(choices, there))
        batch = self.lay(*self.join_pieces(first, second))
        shape = tf.shape(choices, tf.int64)
        if "cls_positions" in batch:
            starts = batch.pop("cls_positions")
            batch = {name: value[:, tf.newaxis] for name, value in batch.items()}
            none = tf.fill(shape, -1)
            batch["cls_positions"] = tf.tensor_scatter_nd_update(none, there, starts)
            return batch
        whole = tf.concat([shape, tf.shape(batch["token_ids"], tf.int64)[1:]], 0)
        return {k: tf.scatter_nd(there, value, whole) for k, value in batch.items()}

    def choice_lengths(self, contexts: Any, choices: Any) -> tuple[Any, Any]:
        """Return the `lengths` of each context with its longest choice.

        Also the largest number of tokens truncated from one of its choices.
        """
        shape = tf.shape(choices)
        pairs = (tf.repeat(contexts, shape[1]), tf.reshape(choices, [-1]))
        sizes, lost = (tf.reshape(each, shape) for each in self.lengths(pairs))
        return tf.reduce_max(sizes, axis=1), tf.reduce_max(lost, axis=1)

    def truncated(
        self,
        a: Any,
        b: Any = None,
        *,
        keep: Callable[[Any, Any], Any] = first_pieces,
        limits: Any = None,
    ) -> tuple[Any, Any]:
        """Return those pieces of texts that a row holds, ragged int32 [B, None] each.

        `keep` is as in `truncate_pair`. `limits`, int or int32 [B], are the most tokens
        of single texts in place of `max_length`.
        """
        if b is None:
            most = self.max_length if limits is None else limits
            return keep(a, tf.minimum(sizes_of(a), most - 2)), None
        if self.on_pairs is not None:
            self.on_pairs()
        room, how = self.max_length - 3, self.truncation
        return truncate_pair(a, b, room, how=how, keep=keep)

    def lengths(self, texts: Any, limits: Any = None) -> tuple[Any, Any]:
        """Return how many tokens of each text are kept, and how many are truncated.

        int32 [B] each, special tokens included; `limits` are as in `truncated`.
        """
        return self.lengths_of(*self.pieces(texts), limits=limits)

    def lengths_of(
        self, a: Any, b: Any = None, *, limits: Any = None
    ) -> tuple[Any, Any]:
        """Do the same as `lengths` for tokenized texts, ragged int32 [B, None]."""
        whole = sizes_of(a) + 2 if b is None else sizes_of(a) + sizes_of(b) + 3
        kept = tf.minimum(whole, self.max_length if limits is None else limits)
        return kept, whole - kept

    def pieces(self, texts: Any) -> tuple[Any, Any]:
        """Return the pieces of the texts, and of the second ones or `None`.

        Ragged int32 [B, None] each, without special tokens, not truncated.
        """
        # A list of strings is not a pair; a list of two tensors is.
        is_pair = isinstance(texts, tuple) or (
            isinstance(texts, list) and any(hasattr(each, "shape") for each in texts)
        )
        if not is_pair:
            return self.tokenizer(as_strings(texts)), None
        if len(texts) != 2 or any(isinstance(each, str | bytes) for each in texts):
            raise ConfigError(
                "`texts` must be a list of strings, or for pairs a tuple of two lists; "
                f"{received(texts)}"
            )
        if self.on_pairs is not None:
            self.on_pairs()
        first, second = (self.tokenizer(as_strings(each)) for each in texts)
        sizes = first.shape[0], second.shape[0]
        if None not in sizes and sizes[0] != sizes[1]:
            raise ConfigError(
                "`texts` must have a second text for each first one; received "
                f"{sizes[0]} and {sizes[1]}"
            )
        return first, second

    def settings(self) -> dict[str, Any]:
        """Return all settings except the tokenizer, as plain values."""
        return {name: getattr(self, name) for name in _SETTINGS}

    def replace(self, **changes: Any) -> Preprocessor:
        """Return another preprocessor with the same tokenizer and changed settings."""
        other = Preprocessor(self.tokenizer, **{**self.settings(), **changes})
        other.on_pairs = self.on_pairs
        return other

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "tokenizer": self.tokenizer.get_config(),
            **self.settings(),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Preprocessor:
        settings = dict(config)
        tokenizer = WordPieceTokenizer.from_config(settings.pop("tokenizer"))
        return cls(tokenizer, **settings)


def as_tensors(parts: Sequence[Sequence[Any]]) -> Any:
    """Return the texts of each role as inputs of a model: one tensor, or a tuple."""
    return one_or_all(tuple(map(as_tensor, parts)))


def one_or_all(texts: tuple[Any, ...]) -> Any:
    """Return the texts of a single role unchanged, of several roles as a tuple."""
    return texts if len(texts) > 1 else texts[0]


def as_tensor(texts: Sequence[Any]) -> tf.Tensor:
    """Return the texts of a role as a tensor.

    tf.string [N], or [N, M] for lists of strings, shorter ones padded with empty
    strings; int32 [N] for numbers. A lone surrogate becomes invalid UTF-8.
    """
    if len(texts) and isinstance(texts[0], int):
        return tf.constant(texts, tf.int32)
    if not len(texts) or isinstance(texts[0], str):
        return tf.constant([as_bytes(text) for text in texts], tf.string)
    rows = [[as_bytes(text) for text in row] for row in texts]
    return tf.ragged.constant(rows, tf.string, ragged_rank=1).to_tensor(b"")
