"""Texts to WordPiece ids by TF ops: `WordPieces`, the graph of a tokenizer.

tf-text computes the WordPiece (Song et al. 2021, arXiv:2012.15524). Exported graphs
hold `FastWordpieceTokenizeWithOffsets` and otherwise only core TensorFlow ops.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.core.pybinds import (
    pywrap_fast_wordpiece_tokenizer_model_builder as model_builder,
)

from bert_keras.text import characters
from bert_keras.text.added_tokens import AddedToken
from bert_keras.text.characters import FIRST_TOKEN
from bert_keras.text.normalization import Words, WordSplitter, as_strings, utf8_bytes
from bert_keras.text.ragged import segment_ids, sizes_of, slices, starts_of
from bert_keras.text.splitting import Splitting

# Text of these characters alone needs no table: tf-text itself splits it the same way.
_PLAIN = r"[\t\n\r -~]*"
_LONGEST_PATTERN = 4_000  # characters; with more tokens all texts go the full way


class WordPieces(tf.Module):
    """The tables of a tokenizer, and its graphs.

    Args:
        vocabulary: the tokens, in the order of their ids; the last ones are added.
        base_size: the number of the others.
        unk_id: the id of words that the vocabulary lacks.
        found: the added tokens that are looked for in texts.
        lowercase, strip_accents, tokenize_chinese_chars, max_word_characters: as in
            `WordPieceTokenizer`.
        splitting: in place of BERT's normalizer and pre-tokenizer.
    """

    def __init__(
        self,
        vocabulary: tuple[str, ...],
        base_size: int,
        *,
        unk_id: int,
        found: tuple[AddedToken, ...],
        lowercase: bool,
        strip_accents: bool,
        tokenize_chinese_chars: bool,
        max_word_characters: int,
        splitting: Splitting | None,
    ) -> None:
        super().__init__(name="word_pieces")
        base = vocabulary[:base_size]
        self._base_size = base_size
        self._lowercase = lowercase
        self._plain_excludes = _pattern(found, lowercase=lowercase)
        if splitting is not None and not splitting.splits_plain_text_as_bert:
            self._plain_excludes = "(?s).*"
        self._splitter = WordSplitter(
            lowercase=lowercase,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
            added_tokens=found,
            max_word_characters=max_word_characters,
            splitting=splitting,
        )
        # Untracked, or each SavedModel would hold it as a function of its own.
        self._shared = Untracked(functools.cache(self._function))
        # The added tokens follow the others, one character each, since text that is no
        # added token may yield those in the vocabulary too.
        more = [(chr(FIRST_TOKEN + i), token.content) for i, token in enumerate(found)]
        cleans = splitting is None or "clean" in splitting.names
        tokens = _replaced(_WORD_TOKEN if cleans else _ANY_TOKEN, base)
        if splitting is not None:
            # A word may start with ##, and be `##ed` as a whole.
            inside = [token for token in base if token.startswith("##")]
            more += [(token, token) for token in inside if "\0" not in token]
            tokens = [_INSIDE + t[2:] if t[:2] == "##" else t for t in tokens]
        # As variables, so that graphs do not hold them as constants; on the CPU,
        # where the string ops and tf.data run.
        with tf.device("CPU:0"):
            # For plain ASCII texts; it also splits them into words.
            self._plain_model = _model(
                _replaced(_PLAIN_TOKEN, base),
                unk_id=unk_id,
                max_bytes=max_word_characters,
                split=True,
            )
            self._word_model = _model(
                [*tokens, *(written for written, _ in more)],
                unk_id=unk_id,
                max_bytes=4 * max_word_characters,
                split=False,
                inside="##" if splitting is None else _INSIDE,
            )
            self._found_ids: tf.Variable | None = None
            if more:
                ids = {token: i for i, token in enumerate(vocabulary)}
                self._found_ids = tf.Variable(
                    np.array([ids[token] for _, token in more], np.int32),
                    trainable=False,
                )

    def __call__(self, what: str, texts: Any) -> Any:
        """Return `ids`, or the cells of `_offsets` in the unit `what`, ragged.

        A graph calls a function that all graphs share: tracing it takes 0.2 s.
        """
        strings = as_strings(texts)
        with tf.device("CPU:0"):  # int32 would be copied between CPU and GPU
            if tf.executing_eagerly():
                return self._traceable(strings, what)
            return self._shared.value(what)(strings)

    def _function(self, what: str) -> Any:
        """Return `_traceable` as a graph function of string [B], traced once."""

        def tokenize(texts: Any) -> Any:
            with tf.device("CPU:0"):  # a function has no device of its caller
                return self._traceable(texts, what)

        spec = tf.TensorSpec([None], tf.string)
        return tf.function(tokenize, input_signature=[spec], autograph=False)

    def _traceable(self, texts: Any, what: str) -> Any:
        """Do the same as `__call__` for string [B], op by op."""
        if what == "ids":
            return self._tokenize(
                texts, lambda some: self._plain_pieces(some)[0], self._ids
            )
        return self._tokenize(
            texts, self._plain_offsets, lambda some: self._offsets(some, what)
        )

    def _tokenize(self, texts: Any, plain_way: Any, full_way: Any) -> Any:
        """Tokenize plain ASCII texts by the faster path, keeping the order."""
        plain = tf.strings.regex_full_match(texts, _PLAIN)
        if self._plain_excludes is not None:
            plain &= ~tf.strings.regex_full_match(texts, self._plain_excludes)

        def both_ways() -> Any:
            short, long = tf.where(plain)[:, 0], tf.where(~plain)[:, 0]
            first = plain_way(tf.gather(texts, short))
            second = full_way(tf.gather(texts, long))
            back = tf.math.invert_permutation(tf.concat([short, long], 0))
            sizes = tf.concat([sizes_of(first), sizes_of(second)], 0)
            starts = tf.gather(tf.cumsum(sizes, exclusive=True), back)
            values = tf.concat([first.values, second.values], 0)
            return slices(values, starts, tf.gather(sizes, back))

        return tf.cond(tf.reduce_all(plain), lambda: plain_way(texts), both_ways)

    def _plain_offsets(self, texts: Any) -> Any:
        # One byte is one character here, and lower-casing moves none.
        ids, starts, ends = self._plain_pieces(texts)
        cells = [tf.cast(part.values, tf.int32) for part in (ids, starts, ends)]
        return ids.with_values(tf.stack(cells, axis=1))

    def _plain_pieces(self, texts: Any) -> Any:
        if self._lowercase:
            texts = tf.strings.lower(texts)
        return pieces_of(self._plain_model, texts)

    def _ids(self, texts: Any) -> Any:
        words = self._splitter(texts)
        ids, _, _ = self._word_pieces(words)
        return _of_texts(ids.values, ids, words)

    def _word_pieces(self, words: Words) -> tuple[Any, Any, Any]:
        """Return ids, starts and ends in bytes of the pieces of words."""
        ids, starts, ends = pieces_of(self._word_model, words.strings)
        if self._found_ids is not None:
            found = ids.values - self._base_size
            known = tf.gather(self._found_ids, tf.maximum(found, 0))
            ids = ids.with_values(tf.where(found < 0, ids.values, known))
        return ids, starts, ends

    def _offsets(self, texts: Any, unit: str) -> Any:
        """Return ids, starts and ends as int32 ragged [B, None, 3]."""
        words = self._splitter(texts, with_starts=unit == "bytes")
        ids, starts, ends = self._word_pieces(words)
        first, last = self._splitter.sources_of(
            words, segment_ids(ids.row_splits), starts.values, ends.values
        )
        decoded = words.decoded
        if unit == "bytes":
            start = tf.cast(tf.gather(words.starts.values, first), tf.int32)
            end = tf.cast(tf.gather(words.starts.values, last), tf.int32)
            end += utf8_bytes(tf.gather(decoded.values, last))
        else:
            row = tf.gather(segment_ids(decoded.row_splits), first)
            base = tf.gather(starts_of(decoded), row)
            start, end = first - base, last - base + 1
        return _of_texts(tf.stack([ids.values, start, end], axis=1), ids, words)


def word_pieces(
    vocabulary: tuple[str, ...], base_size: int, **given: Any
) -> WordPieces:
    """Return `WordPieces`, the same ones for tokenizers of the same settings.

    A process that loads several models of one vocabulary traces its graphs once.
    Variables that a distribution strategy makes are its own.
    """
    if tf.distribute.has_strategy():
        return WordPieces(vocabulary, base_size, **given)
    return known_pieces(vocabulary, base_size, **given)


known_pieces = functools.lru_cache(maxsize=4)(WordPieces)


def _of_texts(values: Any, pieces: Any, words: Words) -> Any:
    """Return values of the pieces of words, ragged by texts."""
    row_splits = tf.gather(pieces.row_splits, words.row_splits)
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


class Untracked:
    """Hides a value from `tf.Module`, which would wrap each token of a vocabulary."""

    def __init__(self, value: Any) -> None:
        self.value = value


# For plain ASCII text: the parts that tf-text itself splits it into.
_PLAIN_TOKEN = re.compile(r"(?:##)?[0-9A-Za-z]+|[!-/:-@\[-`{-~]")
# For a word: no character that the normalization drops or splits at.
_DROPPED = "".join(
    rf"\U{first:08x}-\U{last:08x}"
    for first, last in (*characters.DELETED, *characters.SPACES)
)
_WORD_TOKEN = re.compile(rf"(?!##$)[^{_DROPPED}]+")

_SPACES = "".join(
    rf"\U{first:08x}-\U{last:08x}" for first, last in characters.WHITE_SPACE
)
_ANY_TOKEN = re.compile(rf"(?!##$)[^\0{_SPACES}\U000f0000-\U0010ffff]+")
_NO_TEXT = {_PLAIN_TOKEN: "\x01", _WORD_TOKEN: "\x01", _ANY_TOKEN: "\U0010fffc"}
_INSIDE = "\U0010fffb"  # what ## is in vocabularies whose words may start with ##


def _replaced(pattern: re.Pattern[str], vocabulary: Sequence[str]) -> list[str]:
    """Replace tokens that no text can yield, since tf-text mishandles some of them.

    The replacement holds a character that no text has after its normalization.
    """
    return [
        token if pattern.fullmatch(token) else f"{_NO_TEXT[pattern]}{i}"
        for i, token in enumerate(vocabulary)
    ]


def _pattern(tokens: Sequence[AddedToken], *, lowercase: bool) -> str | None:
    """Return what every plain ASCII text with one of the tokens matches, or `None`."""
    parts = []
    for token in tokens:
        escaped = re.escape(token.content).replace(r"\ ", " ")
        if token.normalized:
            # Cleaning and the stripping of accents leave plain characters or nothing.
            escaped = ".*".join(map(re.escape, re.findall(r"[!-~]+", token.content)))
            escaped = f"(?i:{escaped})" if lowercase else escaped
        elif not token.content.isascii():
            continue
        parts.append(escaped)
    pattern = f"(?s).*(?:{'|'.join(parts)}).*"
    if not parts:
        return None
    return pattern if len(pattern) <= _LONGEST_PATTERN else "(?s).*"


def _model(
    tokens: Sequence[str],
    *,
    unk_id: int,
    max_bytes: int,
    split: bool,
    inside: str = "##",
) -> tf.Variable:
    """Return tf-text's WordPiece model, uint8; with `split` it splits words too."""
    buffer = _model_bytes(tuple(tokens), max_bytes, inside, tokens[unk_id], not split)
    value = tf.io.decode_raw(buffer, tf.uint8)
    return tf.Variable(value, trainable=False, name="word_piece_model")


@functools.lru_cache(maxsize=4)  # of two tokenizers; to build one takes 0.1 s
def _model_bytes(tokens: tuple[str, ...], *settings: Any) -> bytes:
    return bytes(model_builder.build_fast_wordpiece_model(tokens, *settings, False))


def pieces_of(model: tf.Variable, texts: Any) -> Any:
    """Return ids int32, starts and ends in bytes, each ragged [texts, None]."""
    # Built here: a stored tokenizer would hold the model as a constant.
    tokenizer = tf_text.FastWordpieceTokenizer(
        model_buffer=tf.convert_to_tensor(model), token_out_type=tf.int32
    )
    return tokenizer.tokenize_with_offsets(texts)
