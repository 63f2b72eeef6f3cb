"""Texts to rows of ids without TensorFlow: `TokenRows`, as a reader says.

The rows are those of `TextVector.batch` in the padded layout. Lengths, truncation and
windows are decided by the same functions; only the rows are laid with NumPy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_keras.config import WINDOW_STARTS
from bert_keras.reading.text_vector import PROMPT_LENGTHS, TextVector
from bert_keras.reading.windows import WINDOW_PLACES, LongTexts
from bert_keras.text.packing import head_of, kept_of_pair
from bert_keras.text.token_ids import TokenIds, Tokens
from bert_keras.text.windows import Cut


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
    """

    text: Tokens
    first: list[int] | None
    is_pair: bool
    prompt: int
    limit: int


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
        texts: Sequence[Sequence[str]],
        sides: Sequence[int] | None = None,
    ) -> list[TokenizedText]:
        """Return the tokens of B texts, or of B first and B second texts.

        `sides` are as in `TextVector.batch`.
        """
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
        parts = zip(tokens, firsts, sizes, limits, strict=True)
        return [
            TokenizedText(text, first, is_pair, prompt, limit)
            for text, first, prompt, limit in parts
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

    def lengths(self, reader: LongTexts, rows: Sequence[TokenizedText]) -> Lengths:
        """Return how many tokens of each text are read, lost and in windows."""
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

    def batch(
        self, reader: LongTexts, rows: Sequence[TokenizedText]
    ) -> dict[str, np.ndarray]:
        """Return the batch dict of tokenized texts, int32."""
        if reader.reads_windows:
            return self._windows(reader, rows)
        both_ends = reader.long == "head-tail"
        found = self._padded([self._truncated(row, both_ends) for row in rows])
        if not _pools_prompts(reader):
            found[PROMPT_LENGTHS] = np.array([row.prompt for row in rows], np.int32)
        return found

    def _truncated(
        self, row: TokenizedText, both_ends: bool
    ) -> tuple[list[int] | None, list[int]]:
        """Return the ids of a text, or of two, that a row holds."""
        ids, first = row.text.ids, row.first
        if first is None:
            return None, _kept(ids, row.limit - 2, both_ends)
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
        plan = self._cut(reader, rows).plan(sizes, of_first)
        steps = (np.broadcast_to(each, sizes.shape).tolist() for each in plan)
        laid: list[tuple[list[int] | None, list[int]]] = []
        starts, places, before = [], [], []
        for row, kept, most, step, count in zip(rows, *steps, strict=True):
            first = None if row.first is None else row.first[:kept]
            for number in range(count):
                part = slice(number * step, number * step + most)
                held, found = row.text.ids[part], row.text.places[part]
                if first is not None and not row.is_pair:
                    held = [*first, *held]
                laid.append((first if row.is_pair else None, held))
                starts.append(int(number == 0))
                places.append((found[0][0], found[-1][1]) if found else (0, 0))
                before.append(kept + 1 if kept else 0)
        batch = self._padded(laid)
        batch[WINDOW_STARTS] = np.array(starts, np.int32)
        batch[WINDOW_PLACES] = np.array(places, np.int32).reshape(-1, 2)
        if not _pools_prompts(reader):
            batch[PROMPT_LENGTHS] = np.array(before, np.int32)
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


def _pools_prompts(reader: LongTexts) -> bool:
    return not isinstance(reader, TextVector) or reader.include_prompt


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
