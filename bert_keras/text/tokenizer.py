"""Text to WordPiece ids in the TF graph: `WordPieceTokenizer`.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3, and the `tokenizers` library
0.23, whose ids it reproduces. tf-text computes the WordPiece (Song et al. 2021,
arXiv:2012.15524). Exported graphs hold `FastWordpieceTokenizeWithOffsets` and otherwise
only core TensorFlow ops.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.core.pybinds import (
    pywrap_fast_wordpiece_tokenizer_model_builder as model_builder,
)

from bert_keras.errors import CheckpointError, ConfigError, one_line
from bert_keras.settings import check_choice, check_whole_number
from bert_keras.text import characters
from bert_keras.text import tokenizer_files as files
from bert_keras.text.added_tokens import AddedToken
from bert_keras.text.added_tokens import added_tokens as unique_tokens
from bert_keras.text.characters import FIRST_TOKEN, MOST_TOKENS
from bert_keras.text.normalization import (
    Words,
    WordSplitter,
    as_strings,
    utf8_bytes,
)
from bert_keras.text.ragged import segment_ids, sizes_of, slices, starts_of
from bert_keras.text.splitting import Splitting
from bert_keras.text.tokenizer_files import (
    REQUIRED_TOKENS,
    SPECIAL_TOKENS,
    check_tokens,
)

# Text of these characters alone needs no table: tf-text itself splits it the same way.
_PLAIN = r"[\t\n\r -~]*"
_MOST_CHARACTERS = 1_000_000  # of a word; tf-text counts its bytes in 32 bits
_LONGEST_PATTERN = 4_000  # characters; with more tokens all texts go the full way


class WordPieceTokenizer(tf.Module):
    """Turn texts into the WordPiece ids that the `tokenizers` library gives.

    Ids and offsets are equal for every string. `packing` adds the special tokens. Every
    op is a TensorFlow op on the CPU, under any Keras backend.
    `keras.export.ExportArchive.track` accepts the tokenizer.

    Args:
        vocabulary: the tokens, in the order of their ids; pieces inside a word start
            with `##`. `[PAD]`, `[UNK]`, `[CLS]` and `[SEP]` are required.
        lowercase: lower-case the text.
        strip_accents: drop accents; `None` means the same as `lowercase`.
        tokenize_chinese_chars: make each CJK character a word.
        special_tokens_in_text: `literal` reads `[MASK]` in a text as three words, so
            that no text can inject a special token; `parse` as the special token.
        max_word_characters: longer words are `[UNK]`. Hugging Face uses 100, Google's
            first code 200.
        added_tokens: tokens found in texts as they are written and never split:
            `AddedToken`, their texts, or mappings as in Hugging Face's files. Those
            that the vocabulary lacks get the ids after it. Flags of the five special
            tokens count with `parse` only.
        normalizer: of a tokenizer.json, in place of `lowercase`, `strip_accents` and
            `tokenize_chinese_chars`; see `Splitting`.
        pre_tokenizer: of a tokenizer.json, in place of BertPreTokenizer.

    Raises:
        ConfigError: a setting or the vocabulary breaks one of these rules.

    Example:
        >>> tokenizer = WordPieceTokenizer(
        ...     ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##want", "##ed"]
        ... )
        >>> tokenizer(["UNwantéd", ""]).to_list()
        [[4, 5, 6], []]
        >>> tokenizer.tokenize("UNwantéd")
        ['un', '##want', '##ed']
        >>> tokenizer.decode([2, 4, 5, 6, 3])
        'unwanted'
        >>> len(tokenizer), tokenizer.token_to_id("##ed")
        (7, 6)
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        lowercase: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        special_tokens_in_text: str = "literal",
        max_word_characters: int = 100,
        added_tokens: Sequence[AddedToken | str | Mapping[str, Any]] = (),
        normalizer: Mapping[str, Any] | None = None,
        pre_tokenizer: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(name="word_piece_tokenizer")
        check_choice(
            "special_tokens_in_text", special_tokens_in_text, ("literal", "parse")
        )
        check_whole_number(
            "max_word_characters", max_word_characters, least=1, most=_MOST_CHARACTERS
        )
        base = check_tokens(vocabulary)
        splitting = None
        if normalizer is not None or pre_tokenizer is not None:
            splitting = Splitting.of(
                normalizer or {"type": "Sequence"}, pre_tokenizer or _BERT_WORDS
            )
            lowercase = "lower" in splitting.names
            strip_accents = bool({"accents", "marks"} & splitting.names)
            tokenize_chinese_chars = "chinese" in splitting.names
        self._own_splitting = _Untracked((normalizer, pre_tokenizer))
        self.added_tokens = unique_tokens(added_tokens)
        known = set(base)
        new = [t.content for t in self.added_tokens if t.content not in known]
        self._base_size = len(base)
        self._vocabulary = _Untracked((*base, *new))
        self.notes: tuple[str, ...] = ()
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self._strip_accents = strip_accents
        self.tokenize_chinese_chars = tokenize_chinese_chars
        self.special_tokens_in_text = special_tokens_in_text
        self.max_word_characters = max_word_characters
        ids = {token: i for i, token in enumerate(self.vocabulary)}
        self._id_of = _Untracked(ids)
        self.pad_id, self.unk_id, self.cls_id, self.sep_id = (
            ids[token] for token in REQUIRED_TOKENS
        )
        self.mask_id: int | None = ids.get("[MASK]")
        self.added_tokens = tuple(
            sorted(self.added_tokens, key=lambda token: ids[token.content])
        )
        found = self._found_in_texts()
        self.finds_added_tokens = bool(found)
        self._plain_excludes = _pattern(found, lowercase=lowercase)
        if splitting is not None and not splitting.splits_plain_text_as_bert:
            self._plain_excludes = "(?s).*"
        self._splitter = WordSplitter(
            lowercase=lowercase,
            strip_accents=self.strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
            added_tokens=found,
            max_word_characters=max_word_characters,
            splitting=splitting,
        )
        cleans = splitting is None or "clean" in splitting.names
        # Untracked, or each SavedModel would hold it as a function of its own.
        self._shared = _Untracked(functools.cache(self._function))
        # As variables, so that graphs do not hold them as constants; on the CPU,
        # where the string ops and tf.data run.
        with tf.device("CPU:0"):
            # For plain ASCII texts; it also splits them into words.
            self._plain_model = _model(
                _replaced(_PLAIN_TOKEN, base),
                unk_id=self.unk_id,
                max_bytes=max_word_characters,
                split=True,
            )
            # The added tokens follow, one character each, since text that is no added
            # token may yield those in the vocabulary too.
            more = [(chr(FIRST_TOKEN + i), t.content) for i, t in enumerate(found)]
            tokens = _replaced(_WORD_TOKEN if cleans else _ANY_TOKEN, base)
            if splitting is not None:
                # A word may start with ##, and be `##ed` as a whole.
                inside = [token for token in base if token.startswith("##")]
                more += [(token, token) for token in inside if "\0" not in token]
                tokens = [_INSIDE + t[2:] if t[:2] == "##" else t for t in tokens]
            self._word_model = _model(
                [*tokens, *(written for written, _ in more)],
                unk_id=self.unk_id,
                max_bytes=4 * max_word_characters,
                split=False,
                inside="##" if splitting is None else _INSIDE,
            )
            self._found_ids: tf.Variable | None = None
            if more:
                self._found_ids = tf.Variable(
                    np.array([ids[token] for _, token in more], np.int32),
                    trainable=False,
                )

    def _found_in_texts(self) -> list[AddedToken]:
        """Return the added tokens that are looked for in texts."""
        others = [t for t in self.added_tokens if t.content not in SPECIAL_TOKENS]
        if self.special_tokens_in_text == "parse":
            given = {token.content: token for token in self.added_tokens}
            others += [
                given.get(token, AddedToken(token, special=True))
                for token in SPECIAL_TOKENS
                if self.token_to_id(token) is not None
            ]
        if len(others) > MOST_TOKENS:
            raise ConfigError(
                f"`added_tokens` must be at most {MOST_TOKENS}; received {len(others)}"
            )
        return others

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The tokens, in the order of their ids."""
        return self._vocabulary.value

    @property
    def splits_as_bert(self) -> bool:
        """Whether it has no `normalizer` and `pre_tokenizer` of its own."""
        return self._own_splitting.value == (None, None)

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""
        return len(self.vocabulary)

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __repr__(self) -> str:
        case = "uncased" if self.lowercase else "cased"
        return (
            f"<WordPieceTokenizer: {len(self):,} tokens, {case}, special tokens in "
            f"texts: {self.special_tokens_in_text}>"
        )

    @tf.autograph.experimental.do_not_convert  # makes tracing ten times faster
    def __call__(self, texts: Any) -> Any:
        """Return the ids of texts, without special tokens.

        Args:
            texts: string [B] or a list of str, or one string. Bytes that are not UTF-8
                are dropped.

        Returns:
            ragged int32 [B, None]; for one string, int32 [None].
        """
        if is_single(texts):
            return self([texts])[0]
        return self._call("ids", texts)

    @tf.autograph.experimental.do_not_convert
    def tokenize_with_offsets(
        self, texts: Any, *, unit: str = "bytes"
    ) -> tuple[Any, Any, Any]:
        """Return the ids and the position of each piece in the original text.

        Args:
            texts: string [B] or a list of str, or one string.
            unit: `bytes` of the UTF-8 text, or `characters` as Python counts them
                (each byte sequence that is not UTF-8 counts as in
                `bytes.decode("utf-8", "replace")`).

        Returns:
            ids, starts and ends (exclusive), each ragged int32 [B, None]; for one
            string, int32 [None].
        """
        check_choice("unit", unit, ("bytes", "characters"))
        if is_single(texts):
            found = self.tokenize_with_offsets([texts], unit=unit)
            return found[0][0], found[1][0], found[2][0]
        cells = self._call(unit, texts)
        ids, starts, ends = tf.unstack(cells.values, num=3, axis=1)
        return (
            cells.with_values(ids),
            cells.with_values(starts),
            cells.with_values(ends),
        )

    def tokenize(self, texts: Any) -> list[Any]:
        """Return the pieces of one text as strings, or a list of them for each text.

        Unlike a call, which returns ids, it does not run in a graph.
        """
        if is_single(texts):
            return self.tokenize([texts])[0]
        rows = self(texts).to_list()
        return [[self.vocabulary[i] for i in row] for row in rows]

    def decode(self, ids: Any, *, skip_special_tokens: bool = True) -> Any:
        """Return the text of ids, as the `tokenizers` library does.

        Pieces are joined to words, with spaces between words. The result is in general
        not the original text: the tokenizer drops spaces, case and accents.

        Args:
            ids: integers of one text [N], or of several, [B, N] or one list each.
            skip_special_tokens: leave out `[CLS]`, `[SEP]`, `[PAD]`, `[MASK]`,
                `[UNK]` and the added tokens that are special.

        Returns:
            a string, or a list with one for each text.
        """
        rows = _as_lists(ids)
        if rows and all(isinstance(row, list) for row in rows):
            return [
                self.decode(row, skip_special_tokens=skip_special_tokens)
                for row in rows
            ]
        tokens = [self.id_to_token(i) for i in rows]
        if skip_special_tokens:
            special = {t.content for t in self.added_tokens if t.special}
            special.update(SPECIAL_TOKENS)
            tokens = [token for token in tokens if token not in special]
        spaced = [t[2:] if t[:2] == "##" else _JOINED.sub("", f" {t}") for t in tokens]
        return "".join([*tokens[:1], *spaced[1:]])

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token, or `None` if the vocabulary lacks it."""
        return self._id_of.value.get(token)

    def id_to_token(self, id: int) -> str:
        """Return the token of an id."""
        check_whole_number("id", id, least=0, most=len(self) - 1)
        return self.vocabulary[id]

    def ids_to_tokens(self, ids: Any) -> Any:
        """Return the tokens of `ids`, integers of any (ragged) shape, as strings."""
        tokens = tf.constant(self.vocabulary)
        return tf.ragged.map_flat_values(lambda flat: tf.gather(tokens, flat), ids)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments as JSON values, the vocabulary as a list.

        `added_tokens` is there only if there are any.
        """
        config: dict[str, Any] = {
            "vocabulary": list(self.vocabulary[: self._base_size]),
            "lowercase": self.lowercase,
            "strip_accents": self._strip_accents,
            "tokenize_chinese_chars": self.tokenize_chinese_chars,
            "special_tokens_in_text": self.special_tokens_in_text,
            "max_word_characters": self.max_word_characters,
        }
        for name, value in zip(
            ("normalizer", "pre_tokenizer"), self._own_splitting.value, strict=True
        ):
            if value is not None:
                config[name] = dict(value)
        if self.added_tokens:
            config["added_tokens"] = [token.to_dict() for token in self.added_tokens]
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> WordPieceTokenizer:
        """Return the tokenizer that `get_config` described."""
        return cls(**config)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_config, (self.get_config(),)

    @classmethod
    def from_folder(
        cls, folder: str | os.PathLike[str], **changes: Any
    ) -> WordPieceTokenizer:
        """Return the tokenizer of a model folder, Google's or Hugging Face's.

        Args:
            folder: holds `vocab.txt` or `tokenizer.json`, and perhaps
                `tokenizer_config.json`. Lower-casing follows the first that specifies
                it: tokenizer_config.json, tokenizer.json, then the vocabulary itself;
                `notes` names the source. A broken file raises a CheckpointError.
            **changes: arguments of the class that override the folder.
        """
        settings, notes = files.read_folder(folder)
        try:
            tokenizer = cls(**(settings | changes))
        except ConfigError as error:
            raise CheckpointError(f"{os.fspath(folder)}: {one_line(error)}") from None
        given = tuple(f"{name}=" for name in changes)
        tokenizer.notes = tuple(note for note in notes if not note.startswith(given))
        return tokenizer

    def add_tokens(
        self,
        tokens: Sequence[AddedToken | str | Mapping[str, Any]],
        *,
        special: bool = False,
    ) -> WordPieceTokenizer:
        """Return a tokenizer with further added tokens; this one stays as it is.

        Tokens that the vocabulary lacks get the next ids: a model needs as many more
        rows in its embedding table. `special` counts for tokens given as texts.

        Example:
            >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]
            >>> tokenizer = WordPieceTokenizer(words).add_tokens(["covid19"])
            >>> tokenizer(["a covid19"]).to_list()
            [[4, 5]]
        """
        new = [
            AddedToken(t, special=special) if isinstance(t, str) else t for t in tokens
        ]
        config = self.get_config()
        config["added_tokens"] = [*self.added_tokens, *new]
        tokenizer = type(self)(**config)
        tokenizer.notes = self.notes
        return tokenizer

    def save(
        self,
        folder: str | os.PathLike[str],
        *,
        max_length: int | None = None,
        has_segments: bool = True,
    ) -> None:
        """Write vocab.txt and tokenizer_config.json, as Hugging Face's readers expect.

        `from_folder` returns an equal tokenizer. Each file is replaced in one step;
        other files of a tokenizer in the folder, such as tokenizer.json, are removed,
        with a warning.
        Other libraries truncate at `max_length` tokens, special tokens included, if it
        is given, and make no segment ids if the model has none.
        """
        files.write_folder(
            folder,
            self.get_config(),
            max_length=max_length,
            has_segments=has_segments,
        )

    def _call(self, what: str, texts: Any) -> Any:
        """Return `ids`, or the cells of `_offsets` in the unit `what`.

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
        """Do the same as `_call` for string [B], op by op."""
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
        if self.lowercase:
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


def _of_texts(values: Any, pieces: Any, words: Words) -> Any:
    """Return values of the pieces of words, ragged by texts."""
    row_splits = tf.gather(pieces.row_splits, words.row_splits)
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


def is_single(texts: Any) -> bool:
    """Return whether `texts` is one string rather than a list or tensor of them."""
    if isinstance(texts, str | bytes):
        return True
    return tf.is_tensor(texts) and texts.dtype == tf.string and texts.shape.rank == 0


def _as_lists(ids: Any) -> list[Any]:
    """Return ids of lists, arrays or (ragged) tensors as lists of int."""
    if isinstance(ids, tf.RaggedTensor):
        return ids.to_list()
    if isinstance(ids, list | tuple):
        parts = [_as_lists(i) if np.ndim(i) else i for i in ids]
        return [int(i) if isinstance(i, np.integer) else i for i in parts]
    return np.atleast_1d(np.asarray(ids)).tolist()


# No space before these in decoded text.
_JOINED = re.compile(r"^ (?=[.?!,]|n't|'m|'s|'ve|'re)")


class _Untracked:
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
_BERT_WORDS = {"type": "BertPreTokenizer"}


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
