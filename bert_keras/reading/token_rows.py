"""Texts to rows of ids without TensorFlow: `TokenRows`, as a reader says.

The rows are those of `TextVector.batch` in the padded layout. Lengths, truncation and
windows are decided by the same functions; only the rows are laid with NumPy.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_keras.config import WINDOW_STARTS
from bert_keras.errors import DataError
from bert_keras.reading.choices import GIVEN_LIMIT, LIMITS, PLACE, Choices
from bert_keras.reading.late_interaction import LateInteraction, expansion_id
from bert_keras.reading.text_vector import (
    COUNTED_TOKENS,
    PROMPT_LENGTHS,
    QUERY,
    TextVector,
)
from bert_keras.reading.token_windows import TOKEN_PLACES, WORD_PLACES, TokenWindows
from bert_keras.reading.windows import WINDOW_PLACES, LongTexts
from bert_keras.text.packing import head_of, kept_of_pair
from bert_keras.text.token_ids import TokenIds, Tokens, as_bytes
from bert_keras.text.windows import Cut, Places


class Lengths(NamedTuple):
    """How texts are read, int [B] each, special tokens included.

    Args:
        read: the tokens that are read of each.
        lost: the tokens that are not.
        windows: the windows of each text and their tokens, int [B, 2]; 0 without.
    """

    read: np.ndarray
    lost: np.ndarray
    windows: np.ndarray


class TokenizedText(NamedTuple):
    """The tokens of a text, or of a pair, with what stands before them.

    Args:
        text: of the text, or of the second text of a pair.
        first: of the first text of a pair, or of a prompt before windows.
        is_pair: whether `first` is a text.
        prompt: the tokens of a prompt that are not pooled, with `[CLS]`; 0 for none.
        limit: the most tokens of the row of a single text.
        given: the text, or the list of words, whose parts are answers.
        words: the first token of each word, if words are answered.
        is_query: whether it is a query to a reader that reads these otherwise.
    """

    text: Tokens
    first: list[int] | None
    is_pair: bool
    prompt: int
    limit: int
    given: Any = ""
    words: Sequence[int] = ()
    is_query: bool = False


class TokenizedChoices(NamedTuple):
    """The tokens of a text, and of each of its choices, see `Choices`.

    `is_usual` says that the choices are those of the reader. All rows of a call agree.
    """

    text: list[int]
    choices: Sequence[list[int]]
    names: Sequence[str]
    is_usual: bool


class TokenizedPair(NamedTuple):
    """The tokens of both texts of a pair, which have a row each."""

    first: TokenizedText
    second: TokenizedText


Tokenized = TokenizedText | TokenizedChoices | TokenizedPair


@dataclasses.dataclass(frozen=True)
class TokenRows:
    """Turns texts into tokens, and tokens into rows of a batch.

    Args:
        tokenizer: gives the ids.
        max_length: the most tokens of a row, special ones included.
        truncation: how a pair is truncated, as in `Preprocessor`.
    """

    tokenizer: TokenIds
    max_length: int
    truncation: str = "longest_first"

    def replace(self, **changes: Any) -> TokenRows:
        """Return the same with other settings."""
        return dataclasses.replace(self, **changes)

    def tokenize(
        self,
        reader: LongTexts,
        texts: Sequence[Sequence[Any]],
        sides: Sequence[int] | None = None,
    ) -> list[Any]:
        """Return `Tokenized` of B texts, or of B first and B second texts.

        Or of B lists of words, or of B texts and B lists of choices, as the reader
        says. `sides` are as in `TextVector.batch`.
        """
        if isinstance(reader, Choices):
            return self._with_choices(reader, *texts)
        if isinstance(reader, TokenWindows) and reader.of_words:
            return self._with_words(texts[0])
        if isinstance(reader, TextVector) and reader.separates(tuple(texts)):
            both = (self.tokenize(reader, [part]) for part in texts)
            return [TokenizedPair(*each) for each in zip(*both, strict=True)]
        given, is_pair = list(texts[-1]), len(texts) > 1
        prompts, limits = self._before(reader, len(given), sides)
        firsts: list[list[int] | None] = [None] * len(given)
        if is_pair:
            firsts = [each.ids for each in self.tokenizer(texts[0])]
        elif prompts is not None and reader.reads_windows:
            of_prompt = {text: self.tokenizer([text])[0].ids for text in set(prompts)}
            firsts = [of_prompt[text] for text in prompts]
        elif prompts is not None:
            given = [a + b for a, b in zip(prompts, given, strict=True)]
        tokens = self.tokenizer(given, with_places=reader.reads_windows)
        sizes = self._prompt_sizes(reader, prompts, len(given))
        is_query = isinstance(reader, LateInteraction) and reader.default_query
        queries = [is_query] * len(given)
        if sides is not None:
            queries = [side == QUERY for side in sides]
        parts = zip(tokens, firsts, sizes, limits, given, queries, strict=True)
        return [
            TokenizedText(text, first, is_pair, prompt, limit, string, (), query)
            for text, first, prompt, limit, string, query in parts
        ]

    def _with_words(self, texts: Sequence[Any]) -> list[TokenizedText]:
        """Return the tokens of texts, or of lists of words, and where words begin."""
        rows = []
        limit, inside = self.max_length, self.tokenizer.inside_ids
        if not texts or isinstance(texts[0], str):
            tokens = self.tokenizer(texts, with_places=True)
            for given, text in zip(texts, tokens, strict=True):
                words = [n for n, each in enumerate(text.ids) if each not in inside]
                row = TokenizedText(text, None, False, 0, limit, given, words)
                rows.append(row)
            return rows
        for given in texts:
            ids: list[int] = []
            words = []
            for each in self.tokenizer([word for word in given if word]):
                words.append(len(ids))
                # A word that is dropped, such as a control character, has a tag, too.
                ids += each.ids or [self.tokenizer.unk_id]
            row = TokenizedText(Tokens(ids), None, False, 0, limit, given, words)
            rows.append(row)
        return rows

    def _with_choices(
        self, reader: Choices, texts: Sequence[str], lists: Any = None
    ) -> list[TokenizedChoices]:
        """Return the tokens of texts and of their choices, each tokenized once."""
        names = [reader.usual] * len(texts) if lists is None else lists
        for each in names if reader.least else ():
            real = [name for name in each if name]
            if len(set(real)) != len(real) or len(real) < reader.least:
                raise DataError(reader.rule())
        distinct = sorted({name for each in names for name in each if name})
        sentences = [reader.template.replace(PLACE, name) for name in distinct]
        found = self.tokenizer(sentences)
        ids: dict[str, list[int]] = {"": []}
        ids.update((a, b.ids) for a, b in zip(distinct, found, strict=True))
        return [
            TokenizedChoices(text.ids, [ids[n] for n in each], each, lists is None)
            for text, each in zip(self.tokenizer(texts), names, strict=True)
        ]

    def _before(
        self, reader: LongTexts, count: int, sides: Sequence[int] | None
    ) -> tuple[list[str] | None, list[int]]:
        """Return the prompt of each text, or `None`, and the most tokens of each."""
        if not isinstance(reader, TextVector):
            return None, [self.max_length] * count
        prompts, limits = reader.before(self.max_length, has_sides=sides is not None)
        chosen = [0] * count if sides is None else sides
        names = None if prompts is None else [prompts[side] for side in chosen]
        return names, [limits[side] for side in chosen]

    def _prompt_sizes(
        self, reader: LongTexts, prompts: Sequence[str] | None, count: int
    ) -> list[int]:
        """Return the tokens of each prompt with `[CLS]`; 0 if they are pooled."""
        if prompts is None or _pools_prompts(reader):
            return [0] * count
        # A prompt is tokenized alone, as in sentence-transformers.
        sizes = {text: len(self.tokenizer([text])[0].ids) + 2 for text in set(prompts)}
        return [
            min(sizes[text], self.max_length) - 1 if text else 0 for text in prompts
        ]

    def lengths(self, reader: LongTexts, rows: Sequence[Any]) -> Lengths:
        """Return how many tokens of each text are read, lost and in windows.

        Of choices, and of texts of a pair with a row each, of the longest one.
        """
        if isinstance(reader, Choices):
            most = [len(row.text) + max(map(len, row.choices)) + 3 for row in rows]
            whole = np.array(most, np.int64)
            read = np.minimum(whole, self.max_length)
            return Lengths(read, whole - read, np.zeros((len(rows), 2), np.int64))
        if _have_two_rows(rows):
            both = [self.lengths(reader, part) for part in zip(*rows, strict=True)]
            return Lengths(*(np.maximum(*each) for each in zip(*both, strict=True)))
        sizes, first = _sizes(rows)
        special = 3 if _are_pairs(rows) else 2
        if not reader.reads_windows:
            whole = sizes + special + (0 if first is None else first)
            read = np.minimum(whole, np.array([row.limit for row in rows], np.int64))
            return Lengths(read, whole - read, np.zeros((len(rows), 2), np.int64))
        plan = self._cut(reader, rows).plan(sizes, first)
        read = plan.read(sizes)
        lost = sizes - read
        if first is not None:
            read, lost = read + plan.kept, lost + first - plan.kept
        windows = np.stack([plan.count, plan.computed(sizes, special)], axis=1)
        return Lengths(read + special, lost, windows)

    def batch(self, reader: LongTexts, rows: Sequence[Any]) -> dict[str, np.ndarray]:
        """Return the batch dict of tokenized texts, int32."""
        if isinstance(reader, Choices):
            return self._choices(reader, rows)
        if _have_two_rows(rows):
            rows = [text for pair in rows for text in pair]
        if reader.reads_windows:
            return self._windows(reader, rows)
        both_ends = reader.long == "head-tail"
        found = self._padded([self._truncated(row, both_ends) for row in rows])
        if isinstance(reader, LateInteraction):
            return self._counted(reader, rows, found)
        if not _pools_prompts(reader):
            found[PROMPT_LENGTHS] = np.array([row.prompt for row in rows], np.int32)
        return found

    def _counted(
        self,
        reader: LateInteraction,
        rows: Sequence[TokenizedText],
        batch: dict[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """Return the batch dict of `LateInteraction.batch` from that of its texts."""
        is_query = np.array([[row.is_query] for row in rows], bool).reshape(-1, 1)
        sizes = batch["padding_mask"].sum(axis=1, keepdims=True)
        counts = np.maximum(sizes, np.where(is_query, reader.query_expansion, 0))
        more = max(int(counts.max(initial=0)) - batch["token_ids"].shape[1], 0)
        found = {k: np.pad(x, ((0, 0), (0, more))) for k, x in batch.items()}
        ids, places = found["token_ids"], np.arange(found["token_ids"].shape[1])
        counted = places < counts
        ids[places >= sizes] = self.tokenizer.pad_id
        if reader.query_expansion:
            ids[counted & (places >= sizes)] = expansion_id(self.tokenizer)
            if reader.attend_expansion:
                found["padding_mask"] = counted.astype(np.int32)
        skipped = self.tokenizer.ids_of(reader.skip_words)
        is_left_out = np.isin(ids, skipped) & ~is_query
        return {**found, COUNTED_TOKENS: (counted & ~is_left_out).astype(np.int32)}

    def _truncated(
        self, row: TokenizedText, both_ends: bool
    ) -> tuple[list[int] | None, list[int]]:
        """Return the ids of a text, or of two, that a row holds."""
        ids, first = row.text.ids, row.first
        if first is None:
            return None, _kept(ids, row.limit - 2, both_ends)
        return self._pair(first, ids, both_ends)

    def _pair(
        self, first: list[int], ids: list[int], both_ends: bool = False
    ) -> tuple[list[int], list[int]]:
        """Return the ids of two texts that a row holds."""
        room = self.max_length - 3
        if len(first) + len(ids) <= room:
            return first, ids
        sizes = np.array(len(first)), np.array(len(ids))
        most = kept_of_pair(*sizes, room, how=self.truncation)
        return _kept(first, int(most[0]), both_ends), _kept(
            ids, int(most[1]), both_ends
        )

    def _windows(
        self, reader: LongTexts, rows: Sequence[TokenizedText]
    ) -> dict[str, np.ndarray]:
        """Return the batch dict of windows, see `LongTexts.long_batch`."""
        sizes, of_first = _sizes(rows)
        cut = self._cut(reader, rows)
        plan = cut.plan(sizes, of_first)
        counts = np.broadcast_to(plan.count, sizes.shape)
        text = np.repeat(np.arange(len(rows)), counts)
        number = np.arange(len(text)) - np.repeat(np.cumsum(counts) - counts, counts)
        found = cut.places(plan, sizes, text, number)
        laid: list[tuple[list[int] | None, list[int]]] = []
        places, columns, before = [], [], []
        for of, start, count, kept in zip(
            *(x.tolist() for x in (text, found.first, found.count, found.kept)),
            strict=True,
        ):
            row, part = rows[of], slice(start, start + count)
            first = None if row.first is None else row.first[:kept]
            held, there = row.text.ids[part], row.text.places[part]
            if first is not None and not row.is_pair:
                held = [*first, *held]
            laid.append((first if row.is_pair else None, held))
            columns.append(kept + (2 if row.is_pair else 1))
            places.append((there[0][0], there[-1][1]) if there else (0, 0))
            before.append(kept + 1 if kept else 0)
        batch = self._padded(laid)
        if isinstance(reader, TokenWindows):
            width = batch["token_ids"].shape[1]
            return {**batch, **_of_tokens(reader, rows, found, columns, width)}
        batch[WINDOW_STARTS] = np.array(number == 0, np.int32)
        batch[WINDOW_PLACES] = np.array(places, np.int32).reshape(-1, 2)
        if not _pools_prompts(reader):
            batch[PROMPT_LENGTHS] = np.array(before, np.int32)
        return batch

    def _choices(
        self, reader: Choices, rows: Sequence[TokenizedChoices]
    ) -> dict[str, np.ndarray]:
        """Return the batch dict of `choice_inputs`, with names and limits."""
        most = max((len(row.names) for row in rows), default=0)
        names = np.full((len(rows), most), b"", object)
        for number, row in enumerate(rows):
            names[number, : len(row.names)] = [as_bytes(name) for name in row.names]
        there = np.nonzero(names)
        pairs = [
            self._pair(rows[row].text, list(rows[row].choices[place]))
            for row, place in zip(*(each.tolist() for each in there), strict=True)
        ]
        batch: dict[str, np.ndarray] = {}
        for key, values in self._padded(pairs).items():
            batch[key] = np.zeros((*names.shape, values.shape[1]), np.int32)
            batch[key][there] = values
        batch[reader.entry] = names
        if reader.limits:
            is_usual = bool(rows) and rows[0].is_usual
            limits = np.array(reader.limits if is_usual else GIVEN_LIMIT, np.float32)
            batch[LIMITS] = np.broadcast_to(limits, names.shape)
        return batch

    def _cut(self, reader: LongTexts, rows: Sequence[TokenizedText]) -> Cut:
        return reader.cut(self.max_length, is_prefix=not _are_pairs(rows))

    def _padded(
        self, rows: Sequence[tuple[list[int] | None, list[int]]]
    ) -> dict[str, np.ndarray]:
        """Return rows of one text, or of two, padded to the longest."""
        cls, sep, pad = (
            self.tokenizer.cls_id,
            self.tokenizer.sep_id,
            self.tokenizer.pad_id,
        )
        ids, begun = [], []
        for first, second in rows:
            start = [cls] if first is None else [cls, *first, sep]
            ids.append([*start, *second, sep])
            begun.append(len(ids[-1]) if first is None else len(start))
        most = max(map(len, ids), default=1)
        token_ids, segments, mask = [], [], []
        for row, first_size in zip(ids, begun, strict=True):
            size, rest = len(row), [0] * (most - len(row))
            token_ids.append(row + [pad] * len(rest))
            segments.append([0] * first_size + [1] * (size - first_size) + rest)
            mask.append([1] * size + rest)
        found = {"token_ids": token_ids, "segment_ids": segments, "padding_mask": mask}
        return {
            name: np.array(lists, np.int32).reshape(len(ids), most)
            for name, lists in found.items()
        }


def _of_tokens(
    reader: TokenWindows,
    rows: Sequence[TokenizedText],
    places: Places,
    columns: Sequence[int],
    width: int,
) -> dict[str, np.ndarray]:
    """Return what the answers read of windows: their places, or those of words.

    `columns` are the first columns of the text in each window; rows have this `width`.
    """
    column = np.array(columns, np.int64)
    bounds = (places.own_first, places.own_end)
    if not reader.of_words:
        parts = (places.text, places.first, places.count, column, *bounds)
        return {TOKEN_PLACES: np.stack(parts, axis=1).astype(np.int32)}
    found: list[int] = []
    shift = np.arange(len(column)) * width + column - places.first
    for of, start, end, add in zip(
        *(x.tolist() for x in (places.text, *bounds, shift)), strict=True
    ):
        words = rows[of].words
        part = words[bisect.bisect_left(words, start) : bisect.bisect_left(words, end)]
        found += [word + add for word in part]
    return {WORD_PLACES: np.array(found, np.int32)}


def _pools_prompts(reader: LongTexts) -> bool:
    return not isinstance(reader, TextVector) or reader.include_prompt


def _have_two_rows(rows: Sequence[Any]) -> bool:
    return bool(rows) and isinstance(rows[0], TokenizedPair)


def _are_pairs(rows: Sequence[TokenizedText]) -> bool:
    return bool(rows) and rows[0].is_pair


def _sizes(rows: Sequence[TokenizedText]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the tokens of each text, and of what stands before them or `None`."""
    sizes = np.array([len(row.text.ids) for row in rows], np.int64)
    if not rows or rows[0].first is None:
        return sizes, None
    return sizes, np.array([len(row.first or ()) for row in rows], np.int64)


def _kept(ids: list[int], count: int, both_ends: bool) -> list[int]:
    """Return `count` ids of a text, from its start or from both ends."""
    if len(ids) <= count:
        return ids
    if not both_ends:
        return ids[:count]
    head = head_of(count)
    return [*ids[:head], *ids[len(ids) - (count - head) :]]
