"""Texts with spans, in characters, as words with BIO tags: `read_spans`.

A span is `{"start", "end", "label"}`, with other names of these as doccano, Label
Studio, `predict` and transformers write them, or a list of the three. Texts are split
into words as BERT's tokenizer splits them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bert_keras.data.class_names import cleaned
from bert_keras.data.columns import Columns
from bert_keras.data.json_rows import json_cell, whole_number
from bert_keras.data.memory import Row
from bert_keras.data.offsets import UNITS, Place, is_right, unit_of
from bert_keras.data.rows import good_rows
from bert_keras.errors import first_of
from bert_keras.runs.notes import say_once
from bert_keras.scoring.entities import Entity, tags_of
from bert_keras.text import characters

_STARTS, _ENDS = ("start", "start_offset"), ("end", "end_offset")
_LABELS = ("label", "labels", "type", "entity_group")


class Span(NamedTuple):
    """A labelled span of a text, and the text that its source gives for it, if any."""

    start: int
    end: int
    label: str
    text: str | None = None


def read_spans(
    path: str, rows: list[Row], text_key: str, span_key: str, *, bad_rows: str = "error"
) -> Columns:
    """Return the words and the BIO tags of each text, a list each.

    With `bad_rows="skip"` texts with a problem are left out, and a note counts them.
    Offsets that are right only in UTF-16 units or bytes are converted, and spaces at
    the ends of spans are dropped; notes count both.

    Raises:
        DataError: a text or a span is invalid, or a span cuts a word.
    """
    problems: list[tuple[int, str]] = []
    texts: list[str] = []
    spans: list[list[Span]] = []
    for line, row in rows:
        text, reason = json_cell(row.get(text_key))
        if reason:
            problems.append((line, f"`text` (key `{text_key}`) {reason}"))
        found, reasons = _spans_in(row.get(span_key), span_key)
        if reason:
            found, reasons = [], []
        problems += [(line, each) for each in reasons]
        texts.append(text)
        spans.append(found)
    spans = _in_characters(path, texts, spans)
    lines = [line for line, _ in rows]
    words, tags, trimmed = [], [], []
    for line, text, found in zip(lines, texts, spans, strict=True):
        bounds = split_words(text)
        tight = [_trimmed(text, span) for span in found]
        if tight != found:
            trimmed.append(line)
        entities, reasons = _entities(text, bounds, tight, span_key)
        if not bounds and text:
            reasons.append(f"`text` (key `{text_key}`) contains no words")
        problems += [(line, reason) for reason in reasons]
        words.append([text[start:end] for start, end in bounds])
        tags.append(tags_of(entities, len(bounds)))
    kept = good_rows(path, rows, problems, bad_rows=bad_rows)
    if trimmed:
        say_once(
            f"{path}: rows whose spans end with spaces, which are dropped: "
            f"{len(trimmed):,}: {first_of(trimmed)}"
        )
    return Columns(path, {"text": words, "label": tags}, lines).take(kept)


def are_spans(cell: Any) -> bool:
    """Return whether a cell is a non-empty list of spans."""
    return isinstance(cell, list) and bool(cell) and all(map(_is_span, cell))


def _is_span(item: Any) -> bool:
    if isinstance(item, dict):
        return True
    is_list = isinstance(item, list | tuple) and len(item) == 3
    return is_list and None not in map(whole_number, item[:2])


def _spans_in(cell: Any, key: str) -> tuple[list[Span], list[str]]:
    """Return the spans in a cell, and their faults."""
    if not isinstance(cell, list):
        what = "missing" if cell is None else f"a {type(cell).__name__}"
        return [], [f"`{key}` must be a list of spans, [] for none; it is {what}"]
    found, problems = [], []
    for item in cell:
        span = _span(item)
        if span is not None:
            found.append(span)
            continue
        problems.append(
            f'a span of `{key}` must be {{"start": N, "end": N, "label": NAME}} or '
            f"[N, N, NAME]; received {str(item)[:80]}"
        )
    return found, problems


def _span(item: Any) -> Span | None:
    """Return a span; `None` if it is invalid."""
    text = None
    if isinstance(item, list | tuple) and len(item) == 3:
        start, end, label = item
    elif isinstance(item, dict):
        start, end, label = (
            next((item[key] for key in keys if key in item), None)
            for keys in (_STARTS, _ENDS, _LABELS)
        )
        text = item.get("text")
    else:
        return None
    if isinstance(label, list) and len(label) == 1:
        label = label[0]
    first, last = whole_number(start), whole_number(end)
    name, reason = json_cell(label)
    if first is None or last is None or reason or not isinstance(label, str):
        return None
    return Span(first, last, cleaned(name), text if isinstance(text, str) else None)


def _in_characters(
    path: str, texts: list[str], spans: list[list[Span]]
) -> list[list[Span]]:
    """Return spans in characters, from the unit in which they have their own texts."""
    unit = unit_of(
        Place(text, span.start, span.end, span.text)
        for text, found in zip(texts, spans, strict=True)
        for span in found
    )
    if unit == "characters":
        return spans
    say_once(
        f"{path}: the offsets of spans count {unit}, as the texts of the spans show: "
        "converted to characters"
    )
    convert = UNITS[unit]
    return [
        [
            span._replace(start=convert(text, span.start), end=convert(text, span.end))
            for span in found
        ]
        for text, found in zip(texts, spans, strict=True)
    ]


def _trimmed(text: str, span: Span) -> Span:
    """Return a span without spaces at its ends; one of spaces alone is unchanged."""
    start, end = span.start, span.end
    inside = text[start:end] if 0 <= start < end <= len(text) else ""
    if not inside.strip():
        return span
    start += len(inside) - len(inside.lstrip())
    end -= len(inside) - len(inside.rstrip())
    own = None if span.text is None else span.text.strip()
    return Span(start, end, span.label, own)


def _entities(
    text: str, bounds: list[tuple[int, int]], spans: list[Span], key: str
) -> tuple[list[Entity], list[str]]:
    """Return the spans of a text in words, and their faults."""
    first = {start: word for word, (start, _) in enumerate(bounds)}
    last = {end: word for word, (_, end) in enumerate(bounds)}
    found, problems = [], []
    taken = [False] * len(bounds)
    for start, end, label, own in spans:
        shown = f"the span {start} to {end} of `{key}`"
        if not 0 <= start < end <= len(text):
            problems.append(
                f"{shown} must lie in the {len(text)} characters of the text and not "
                "be empty"
            )
        elif not is_right(Place(text, start, end, own)):
            problems.append(
                f"{shown} must be {own!r}, its own text; it is {text[start:end]!r}"
            )
        elif start not in first or end not in last:
            problems.append(
                f"{shown}, {text[start:end]!r}, must begin and end with a word of "
                f"{text[max(start - 12, 0) : end + 12]!r}"
            )
        elif any(taken[first[start] : last[end] + 1]):
            problems.append(f"{shown}, {text[start:end]!r}, must not overlap another")
        else:
            words = slice(first[start], last[end] + 1)
            taken[words] = [True] * (words.stop - words.start)
            found.append(Entity(label, words.start, words.stop))
    return found, problems


def split_words(text: str) -> list[tuple[int, int]]:
    """Return start and end of each word of a text, as BERT's tokenizer splits it.

    Words are separated by spaces; punctuation and CJK characters are separate
    words; characters that the tokenizer removes only count inside a word.

    Example:
        >>> split_words("Mr. Li")
        [(0, 2), (2, 3), (4, 6)]
    """
    table = characters.character_table(
        lowercase=False, strip_accents=False, tokenize_chinese_chars=True
    )
    codes = np.array([ord(character) for character in text], np.int64)
    mask, shift = (1 << characters.PAGE_BITS) - 1, characters.PAGE_BITS
    cells = table.entries[(table.pages[codes >> shift] << shift) + (codes & mask)]
    kinds = (cells & ((1 << characters.KIND_BITS) - 1)).tolist()
    found: list[tuple[int, int]] = []
    open_word = False
    for place, kind in enumerate(kinds):
        if kind == characters.WORD and open_word:
            found[-1] = (found[-1][0], place + 1)
        elif kind in (characters.WORD, characters.ALONE):
            found.append((place, place + 1))
        if kind != characters.GONE:  # a removed character does not end a word
            open_word = kind == characters.WORD
    return found
