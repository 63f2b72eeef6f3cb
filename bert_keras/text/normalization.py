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

from bert_keras.errors import ConfigError, received
from bert_keras.text import characters
from bert_keras.text.added_tokens import AddedToken
from bert_keras.text.characters import FIRST_TOKEN, TOO_LONG
from bert_keras.text.ragged import put, rows_begun, segment_ids
from bert_keras.text.splitting import Splitting
from bert_keras.text.token_matcher import Matches, TokenMatcher


class Words(NamedTuple):
    """The words of B texts, and the offsets of their characters.

    Args:
        strings: string [W], normalized words of all texts, in order.
        row_splits: int64 [B + 1], the first word of each text.
        word_splits: int64 [W + 1], the first character of each word.
        codes: int32 [C], the code points of the words.
        sources: int32 [C], which decoded character each one comes from.
        lasts: int32 [C], the last decoded character that each one comes from; of an
            added token it is another than the first.
        decoded: int32 ragged [B, None], the code points of the texts.
        starts: int64 ragged [B, None], the first byte of each decoded character, or
            None if not requested.
    """

    strings: Any
    row_splits: Any
    word_splits: Any
    codes: Any
    sources: Any
    lasts: Any
    decoded: Any
    starts: Any


class _Characters(NamedTuple):
    """Normalized characters, some of which are dropped, int32 [N] each.

    `breaks` counts the texts, except the first, that start at a character; the other
    fields are as in `Words`.
    """

    codes: Any
    kinds: Any
    breaks: Any
    sources: Any
    lasts: Any


class WordSplitter(tf.Module):
    """Split texts into normalized words.

    Args:
        lowercase: lower-case each character separately.
        strip_accents: decompose canonically (NFD) and drop the accents.
        tokenize_chinese_chars: split off each CJK character.
        added_tokens: tokens which, written in a text, become a word of one character,
            U+F0000 for the first of them and so on.
        max_word_characters: longer words become a word that no vocabulary holds.
        splitting: a normalizer and pre-tokenizer in place of BERT's; the first three
            arguments must say what it does.

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
        added_tokens: Sequence[AddedToken] = (),
        max_word_characters: int = 100,
        splitting: Splitting | None = None,
    ) -> None:
        super().__init__(name="word_splitter")
        self._max_word_characters = max_word_characters
        self._has_kinds_of_words = False
        self._cleans = splitting is None or "clean" in splitting.names
        if splitting is None:
            table = characters.character_table(
                lowercase=lowercase,
                strip_accents=strip_accents,
                tokenize_chinese_chars=tokenize_chinese_chars,
            )
            marks = (
                characters.mark_table(lowercase=lowercase) if strip_accents else None
            )
        else:
            table = splitting.table
            marks = splitting.marks if splitting.orders_marks else None
            self._has_kinds_of_words = bool({"letters", "digits"} & splitting.breaks)
        # Variables, since constants are copied into each exported function; on
        # the CPU, where the string ops and tf.data run.
        constant = functools.partial(tf.Variable, trainable=False)
        with tf.device("CPU:0"):
            self._pages = constant(table.pages)
            self._entries = constant(table.entries)
            self._expansions = constant(table.expansions)
            if marks is not None:
                self._mark_codes = constant(marks.codes)
                self._mark_cells = constant(marks.cells)
                self._mark_classes = constant(marks.classes)
        self._orders_marks = marks is not None
        self._literal: TokenMatcher | None = None
        self._normalized: TokenMatcher | None = None
        for group in (True, False):  # contents are normalized without any matcher
            chosen = [i for i, t in enumerate(added_tokens) if t.normalized is group]
            if not chosen:
                continue
            tokens = [added_tokens[i] for i in chosen]
            contents = [token.content for token in tokens]
            if group:
                codes = self._normalized_codes(contents)
                apart = tokenize_chinese_chars
                self._normalized = TokenMatcher(
                    codes, tokens, chosen, chinese_is_apart=apart
                )
            else:
                codes = [list(map(ord, content)) for content in contents]
                self._literal = TokenMatcher(codes, tokens, chosen)

    def _normalized_codes(self, contents: Sequence[str]) -> list[list[int]]:
        """Return the normalized code points of the contents of tokens."""
        decoded = tf.strings.unicode_decode(as_strings(list(contents)), "UTF-8")
        text = self._characters(decoded)
        kept = tf.where(tf.not_equal(text.kinds, characters.GONE))[:, 0]
        rows = tf.gather(tf.cumsum(text.breaks), kept)
        codes = tf.gather(self._matched_codes(text), kept)
        return tf.RaggedTensor.from_value_rowids(codes, rows, len(contents)).to_list()

    def __call__(self, texts: Any, *, with_starts: bool = False) -> Words:
        """Return the words of `texts`, string [B]; invalid UTF-8 bytes are dropped."""
        if with_starts:
            decoded, starts = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
        else:
            decoded, starts = tf.strings.unicode_decode(texts, "UTF-8"), None
        codes, kinds, breaks, sources, lasts = self._characters(decoded)
        # A word is the text between two breaks: at a row's start, at a space, before
        # and after a character that stands alone. A dropped character is not a break.
        alone = tf.cast(tf.equal(kinds, characters.ALONE), tf.int32)
        space = tf.cast(tf.equal(kinds, characters.SPACE), tf.int32)
        numbers = tf.cumsum(breaks + space + 2 * alone) - alone
        is_kept = kinds <= characters.ALONE
        if self._has_kinds_of_words:
            is_kept |= kinds >= characters.OTHER
        kept = tf.where(is_kept)[:, 0]
        codes, numbers, sources, lasts = (
            tf.gather(x, kept) for x in (codes, numbers, sources, lasts)
        )
        new = tf.not_equal(numbers, tf.concat([[-1], numbers[:-1]], axis=0))
        if self._has_kinds_of_words:
            kinds = tf.gather(kinds, kept)
            new |= tf.not_equal(kinds, tf.concat([[-1], kinds[:-1]], axis=0))
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
            lasts=lasts,
            decoded=decoded,
            starts=starts,
        )

    def _characters(self, decoded: Any) -> _Characters:
        """Return the normalized characters, with those that are dropped or spaces."""
        raw = decoded.values
        page = tf.gather(self._pages, tf.bitwise.right_shift(raw, characters.PAGE_BITS))
        page = tf.bitwise.left_shift(page, characters.PAGE_BITS)
        place = tf.bitwise.bitwise_and(raw, (1 << characters.PAGE_BITS) - 1)
        numbers, kinds = _unpack(tf.gather(self._entries, page + place))
        several = tf.equal(kinds, characters.SEVERAL)
        codes = raw + numbers
        sources = tf.range(tf.size(raw))
        lasts = sources
        if self._literal is not None:
            matches = self._literal(raw, segment_ids(decoded.row_splits))
            raw, lasts, inside = _replaced(matches, raw, lasts)
            codes = tf.where(inside, raw, codes)
            kinds = _replaced_kinds(matches, kinds, inside)
            several &= ~inside
        breaks = rows_begun(decoded.row_splits)
        found = tf.cond(
            tf.reduce_any(several),
            lambda: self._expand(raw, several, numbers, codes, kinds, breaks),
            lambda: (codes, kinds, breaks, sources),
        )
        codes, kinds, breaks, sources = found
        lasts = sources if self._literal is None else tf.gather(lasts, sources)
        text = _Characters(codes, kinds, breaks, sources, lasts)
        if self._normalized is None:
            return text
        return self._with_matches(text, self._normalized)

    def _with_matches(self, text: _Characters, matcher: TokenMatcher) -> _Characters:
        """Replace the tokens of the normalized text by one character each."""
        kept = tf.where(tf.not_equal(text.kinds, characters.GONE))[:, 0]
        kept = tf.cast(kept, tf.int32)
        matches = matcher(
            tf.gather(self._matched_codes(text), kept),
            tf.gather(tf.cumsum(text.breaks), kept),
        )
        matches = Matches(
            tf.gather(kept, matches.starts),
            tf.gather(kept, matches.stops - 1) + 1,
            matches.tokens,
        )
        codes, lasts, inside = _replaced(matches, text.codes, text.lasts)
        kinds = _replaced_kinds(matches, text.kinds, inside)
        return text._replace(codes=codes, kinds=kinds, lasts=lasts)

    def _matched_codes(self, text: _Characters) -> Any:
        """Return the code points in which normalized tokens are looked for."""
        if not self._cleans:
            return text.codes
        return tf.where(tf.equal(text.kinds, characters.SPACE), ord(" "), text.codes)

    def _expand(
        self, raw: Any, several: Any, numbers: Any, codes: Any, kinds: Any, breaks: Any
    ) -> tuple[Any, Any, Any, Any]:
        """Replace characters by their decompositions."""
        packed = tf.bitwise.left_shift(codes, characters.KIND_BITS) + kinds
        nothing = tf.fill(tf.shape(codes), -1)
        cells = tf.where(
            several[:, None],
            tf.gather(self._expansions, tf.where(several, numbers, 0)),
            tf.stack([packed] + [nothing] * (self._expansions.shape[1] - 1), axis=1),
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
        return tf.gather(words.sources, first), tf.gather(words.lasts, last)

    def _hide_long_words(self, codes: Any, word_splits: Any) -> Any:
        """Make words of too many characters unknown: WordPiece itself counts bytes."""
        lengths = word_splits[1:] - word_splits[:-1]
        long = lengths > self._max_word_characters
        return tf.cond(
            tf.reduce_any(long),
            lambda: tf.where(
                tf.gather(long, segment_ids(word_splits)), TOO_LONG, codes
            ),
            lambda: codes,
        )


def _replaced(matches: Matches, codes: Any, lasts: Any) -> tuple[Any, Any, Any]:
    """Return codes with one character for each token, lasts, and what is inside one."""
    size = tf.size(codes)
    ones = tf.ones_like(matches.starts)
    edges = tf.zeros([size + 1], tf.int32)
    edges = tf.tensor_scatter_nd_add(edges, matches.starts[:, None], ones)
    edges = tf.tensor_scatter_nd_sub(edges, matches.stops[:, None], ones)
    inside = tf.cumsum(edges)[:-1] > 0
    codes = tf.where(inside, TOO_LONG, codes)
    codes = put(codes, matches.starts, FIRST_TOKEN + matches.tokens)
    return (
        codes,
        put(lasts, matches.starts, tf.gather(lasts, matches.stops - 1)),
        inside,
    )


def _replaced_kinds(matches: Matches, kinds: Any, inside: Any) -> Any:
    kinds = tf.where(inside, characters.GONE, kinds)
    alone = tf.fill(tf.shape(matches.starts), characters.ALONE)
    return put(kinds, matches.starts, alone)


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
    except (TypeError, ValueError):
        raise ConfigError(f"`texts` must be strings; {received(texts)}") from None
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
