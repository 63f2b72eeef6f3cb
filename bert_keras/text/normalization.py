"""Texts to the words of the reference tokenizer, in the TF graph.

Holds `WordSplitter`: cleaning, lower-casing, accent stripping and splitting as in the
`BertNormalizer` and `BertPreTokenizer` of `tokenizers` 0.23, by the tables of
`characters.py`. All ops are core TensorFlow.

Before it strips accents, the reference puts marks in canonical order (Unicode Standard,
section 3.11). Most marks are accents and are removed, so their order does not matter;
only batches with marks that are kept are reordered.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bert_keras.errors import ConfigError
from bert_keras.text import characters
from bert_keras.text.ragged import rows_begun, segment_ids

# Private-use characters are dropped from every text, so these can represent something
# else inside words: the special tokens (one each, from here on) ...
FIRST_SPECIAL = 0xE000
# ... and each character of a word that is too long.
_TOO_LONG = 0xF8FF


class Words(NamedTuple):
    """The words of B texts, and the offsets of their characters.

    Args:
        strings: string [W], normalized words of all texts, in order.
        row_splits: int64 [B + 1], the first word of each text.
        word_splits: int64 [W + 1], the first character of each word.
        codes: int32 [C], the code points of the words.
        sources: int32 [C], which decoded character each one comes from.
        decoded: int32 ragged [B, None], the code points of the texts.
        starts: int64 ragged [B, None], the first byte of each decoded character, or
            None if not requested.
    """

    strings: Any
    row_splits: Any
    word_splits: Any
    codes: Any
    sources: Any
    decoded: Any
    starts: Any


class WordSplitter(tf.Module):
    """Split texts into normalized words.

    Args:
        lowercase: lower-case each character separately.
        strip_accents: decompose canonically (NFD) and drop the accents.
        tokenize_chinese_chars: split off each CJK character.
        special_tokens: ASCII tokens in brackets which, written in a text, become a
            word of one character, U+E000 for the first of them and so on.
        max_word_characters: longer words become a word that no vocabulary holds.

    Example:
        >>> splitter = WordSplitter(
        ...     lowercase=True, strip_accents=True, tokenize_chinese_chars=True
        ... )
        >>> splitter(tf.constant(["Héllo, 世界"])).strings.numpy().tolist()
        [b'hello', b',', b'\\xe4\\xb8\\x96', b'\\xe7\\x95\\x8c']
    """

    def __init__(
        self,
        *,
        lowercase: bool,
        strip_accents: bool,
        tokenize_chinese_chars: bool,
        special_tokens: Sequence[str] = (),
        max_word_characters: int = 100,
    ) -> None:
        super().__init__(name="word_splitter")
        self._specials = tuple(special_tokens)
        self._max_word_characters = max_word_characters
        table = characters.character_table(
            lowercase=lowercase,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
        )
        # Variables, since constants are copied into each exported function; on
        # the CPU, where the string ops and tf.data run.
        constant = functools.partial(tf.Variable, trainable=False)
        with tf.device("CPU:0"):
            self._pages = constant(table.pages)
            self._entries = constant(table.entries)
            self._expansions = constant(table.expansions)
            if strip_accents:
                marks = characters.mark_table(lowercase=lowercase)
                self._mark_codes = constant(marks.codes)
                self._mark_cells = constant(marks.cells)
                self._mark_classes = constant(marks.classes)
        self._orders_marks = strip_accents

    def __call__(self, texts: Any, *, with_starts: bool = False) -> Words:
        """Return the words of `texts`, string [B]; invalid UTF-8 bytes are dropped."""
        if with_starts:
            decoded, starts = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
        else:
            decoded, starts = tf.strings.unicode_decode(texts, "UTF-8"), None
        raw = decoded.values
        page = tf.gather(self._pages, tf.bitwise.right_shift(raw, characters.PAGE_BITS))
        page = tf.bitwise.left_shift(page, characters.PAGE_BITS)
        place = tf.bitwise.bitwise_and(raw, (1 << characters.PAGE_BITS) - 1)
        numbers, kinds = _unpack(tf.gather(self._entries, page + place))
        several = tf.equal(kinds, characters.SEVERAL)
        codes = raw + numbers
        if self._specials:
            codes, kinds = self._mark_special_tokens(decoded, codes, kinds)
        sources = tf.range(tf.size(raw))
        breaks = rows_begun(decoded.row_splits)
        codes, kinds, breaks, sources = tf.cond(
            tf.reduce_any(several),
            lambda: self._expand(raw, several, numbers, codes, kinds, breaks),
            lambda: (codes, kinds, breaks, sources),
        )
        # A word is the text between two breaks: at a row's start, at a space, before
        # and after a character that stands alone. A dropped character is not a break.
        alone = tf.cast(tf.equal(kinds, characters.ALONE), tf.int32)
        space = tf.cast(tf.equal(kinds, characters.SPACE), tf.int32)
        numbers = tf.cumsum(breaks + space + 2 * alone) - alone
        kept = tf.where(kinds <= characters.ALONE)[:, 0]
        codes, numbers, sources = (
            tf.gather(x, kept) for x in (codes, numbers, sources)
        )
        new = tf.not_equal(numbers, tf.concat([[-1], numbers[:-1]], axis=0))
        first = tf.where(new)[:, 0]
        word_splits = tf.concat([first, [tf.size(codes, tf.int64)]], axis=0)
        codes = self._hide_long_words(codes, word_splits)
        word_codes = tf.RaggedTensor.from_row_splits(codes, word_splits, validate=False)
        return Words(
            strings=tf.strings.unicode_encode(word_codes, "UTF-8"),
            row_splits=tf.searchsorted(
                tf.gather(sources, first),
                tf.cast(decoded.row_splits, tf.int32),
                out_type=tf.int64,
            ),
            word_splits=word_splits,
            codes=codes,
            sources=sources,
            decoded=decoded,
            starts=starts,
        )

    def _expand(
        self, raw: Any, several: Any, numbers: Any, codes: Any, kinds: Any, breaks: Any
    ) -> tuple[Any, Any, Any, Any]:
        """Replace characters by their decompositions."""
        packed = tf.bitwise.left_shift(codes, characters.KIND_BITS) + kinds
        nothing = tf.fill(tf.shape(codes), -1)
        cells = tf.where(
            several[:, None],
            tf.gather(self._expansions, tf.where(several, numbers, 0)),
            tf.stack([packed] + [nothing] * (characters.MOST_OUTPUTS - 1), axis=1),
        )
        used = tf.where(cells >= 0)
        codes, kinds = _unpack(tf.gather_nd(cells, used))

        def as_they_are() -> tuple[Any, Any, Any, Any]:
            sources = tf.cast(used[:, 0], tf.int32)
            started = tf.where(tf.equal(used[:, 1], 0), tf.gather(breaks, sources), 0)
            return codes, kinds, started, sources

        if not self._orders_marks:
            return as_they_are()
        return tf.cond(
            tf.reduce_any(tf.equal(kinds, characters.MARK)),
            lambda: self._in_canonical_order(raw, cells, breaks),
            as_they_are,
        )

    def _in_canonical_order(
        self, raw: Any, cells: Any, breaks: Any
    ) -> tuple[Any, Any, Any, Any]:
        """Expand as `_expand` does, with each run of marks in canonical order.

        The reference assigns sources by position: the first character after sorting
        gets the source of the first before. A part that a character has more than once,
        such as the accent of `é`, gets the source of the part before it.
        """
        place = tf.searchsorted(self._mark_codes, raw)
        place = tf.minimum(place, tf.size(self._mark_codes) - 1)
        known = tf.equal(tf.gather(self._mark_codes, place), raw)[:, None]
        # Cleaning comes first: a dropped character does not separate two marks.
        cleaned = tf.equal(_unpack(cells)[1], characters.GONE)
        more = characters.MOST_DECOMPOSED - characters.MOST_OUTPUTS
        cells = tf.pad(
            tf.where(cleaned, -1, cells), [[0, 0], [0, more]], constant_values=-1
        )
        cells = tf.where(known, tf.gather(self._mark_cells, place), cells)
        classes = tf.where(known, tf.gather(self._mark_classes, place), 0)
        used = tf.where(cells >= 0)
        classes = tf.gather_nd(classes, used)
        sources = tf.cast(used[:, 0], tf.int32)
        rows = tf.gather(tf.cumsum(breaks), sources)
        started = rows - tf.concat([[0], rows[:-1]], axis=0)
        new_run = tf.equal(classes, 0) | (started > 0)
        runs = tf.cumsum(tf.cast(new_run, tf.int64))
        order = tf.argsort(256 * runs + tf.cast(classes, tf.int64), stable=True)
        codes, kinds = _unpack(tf.gather(tf.gather_nd(cells, used), order))
        is_first = tf.equal(used[:, 1], 0)
        places = tf.cumsum(tf.cast(tf.gather(is_first, order), tf.int32)) - 1
        sources = tf.gather(tf.boolean_mask(sources, is_first), places)
        return codes, kinds, started, sources

    def sources_of(
        self, words: Words, word: Any, starts: Any, ends: Any
    ) -> tuple[Any, Any]:
        """Return the first and last decoded character of P pieces of words.

        `word`, int32 [P], is the number of each piece's word, and `starts` and `ends`,
        int64 [P], are its first byte in the word and the byte after its last.
        """
        byte_splits = tf.concat([[0], tf.cumsum(utf8_bytes(words.codes))], axis=0)
        char_of_byte = segment_ids(byte_splits)
        base = tf.gather(tf.gather(byte_splits, words.word_splits), word)
        first = tf.gather(char_of_byte, base + tf.cast(starts, tf.int32))
        last = tf.gather(char_of_byte, base + tf.cast(ends, tf.int32) - 1)
        last_code = tf.gather(words.codes, last)
        first = tf.gather(words.sources, first)
        last = tf.gather(words.sources, last)
        for i, token in enumerate(self._specials):
            last += tf.where(tf.equal(last_code, FIRST_SPECIAL + i), len(token) - 1, 0)
        return first, last

    def _mark_special_tokens(
        self, decoded: Any, codes: Any, kinds: Any
    ) -> tuple[Any, Any]:
        """Replace each special token by one character that stands alone."""
        raw = decoded.values
        width = max(map(len, self._specials))
        tokens = tf.constant([[ord(c) for c in t.ljust(width)] for t in self._specials])
        lengths = tf.constant([len(t) for t in self._specials], tf.int64)
        steps = tf.range(width, dtype=tf.int64)
        first = tf.where(tf.equal(raw, ord("[")))
        end = tf.gather(
            decoded.row_splits[1:], tf.gather(segment_ids(decoded.row_splits), first)
        )
        places = first + steps
        seen = tf.gather(raw, tf.minimum(places, tf.size(raw, tf.int64) - 1))
        seen = tf.where(places < end, seen, -1)
        same = tf.equal(seen[:, None], tokens) | (steps >= lengths[:, None])
        found = tf.reduce_all(same, axis=2)
        which = tf.argmax(found, axis=1, output_type=tf.int32)
        is_special = tf.reduce_any(found, axis=1)
        which, places = which[is_special], tf.boolean_mask(places, is_special)
        inside = steps < tf.gather(lengths, which)[:, None]
        gone = tf.boolean_mask(places, inside)
        kinds = tf.tensor_scatter_nd_update(
            kinds, gone[:, None], tf.fill(tf.shape(gone), characters.GONE)
        )
        kinds = tf.tensor_scatter_nd_update(
            kinds, places[:, :1], tf.fill(tf.shape(which), characters.ALONE)
        )
        codes = tf.tensor_scatter_nd_update(codes, places[:, :1], which + FIRST_SPECIAL)
        return codes, kinds

    def _hide_long_words(self, codes: Any, word_splits: Any) -> Any:
        """Make words of too many characters unknown: WordPiece itself counts bytes."""
        lengths = word_splits[1:] - word_splits[:-1]
        long = lengths > self._max_word_characters
        return tf.cond(
            tf.reduce_any(long),
            lambda: tf.where(
                tf.gather(long, segment_ids(word_splits)), _TOO_LONG, codes
            ),
            lambda: codes,
        )


def as_strings(texts: Any) -> Any:
    """Return `texts`, string [B] or a list of str or bytes, as a tensor."""
    if isinstance(texts, list | tuple):
        # A lone surrogate has no UTF-8 form; its bytes are dropped like other broken
        # ones.
        texts = [
            text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
            for text in texts
        ]
    try:
        strings = tf.convert_to_tensor(texts, tf.string)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"`texts` must be strings; received {error}") from None
    if strings.shape.rank is None:
        return tf.ensure_shape(strings, [None])
    if strings.shape.rank != 1:
        raise ConfigError(
            f"`texts` must be a list or a 1-D tensor of strings; "
            f"received shape {strings.shape}"
        )
    return strings


def _unpack(cells: Any) -> tuple[Any, Any]:
    """Split the cells of a character table into numbers and kinds."""
    kinds = tf.bitwise.bitwise_and(cells, (1 << characters.KIND_BITS) - 1)
    return tf.bitwise.right_shift(cells, characters.KIND_BITS), kinds


def utf8_bytes(codes: Any) -> Any:
    """Return how many bytes each code point takes in UTF-8, int32."""
    return 1 + sum(tf.cast(codes > most, tf.int32) for most in (0x7F, 0x7FF, 0xFFFF))
