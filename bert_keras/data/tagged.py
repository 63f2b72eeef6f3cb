"""Sentences with a tag for each word: CoNLL files, and JSONL of texts with spans.

* CoNLL: one word per line, 2 to 4 cells separated by tabs or spaces, the word first and
  its tag last, a blank line between sentences; `-DOCSTART-` lines are skipped. Tags are
  BIO, IOB1 or BIOES (or BILOU); all are converted to BIO.
* JSONL: `text`, and `spans` or `entities`, a list of `{"start", "end", "label"}` in
  characters. Texts are split into words as BERT's tokenizer splits them.

Errors name file and line. Source of the format: Tjong Kim Sang and De Meulder 2003
(CoNLL-2003 shared task), section 2.1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_keras.data.json_rows import json_cell, json_rows
from bert_keras.data.memory import MemoryRows, source_of
from bert_keras.data.rows import (
    ColumnNames,
    ending_of,
    existing,
    format_of,
    quote,
    read_text,
    refuse_lines,
)
from bert_keras.data.table import Columns
from bert_keras.errors import ConfigError, DataError, first_of, received
from bert_keras.runs.progress import say
from bert_keras.scoring.entities import (
    PREFIXES,
    Entity,
    entities_of,
    parse_tag,
    stray_tags,
    tags_of,
)
from bert_keras.text import characters

SPAN_KEYS = ("spans", "entities")
WORD_LINES = "word_lines"  # a role next to `text` and `label`: the line of each word
ENDINGS = (".conll", ".bio", ".iob", ".iob2", ".bioes")
_DOCUMENT = "-DOCSTART-"
_MOST_COLUMNS = 4


def read_tagged(
    path: Any,
    *,
    columns: ColumnNames | None = None,
    header: str = "auto",
) -> Columns:
    """Return the words and the BIO tags of each sentence, a list each.

    Args:
        path: JSONL by its ending or its first character, else CoNLL. Or a table in
            memory, as `as_columns` takes it: lists of words and of tags, strings that
            are split at spaces, or texts with spans.
        columns: `text` and `label` to a JSONL key, or to the number, from 0, of a CoNLL
            column; by default the first and the last.
        header: `yes` skips the first line of a CoNLL file.

    Raises:
        DataError: the file is missing or broken, a tag is invalid, or a span does not
            begin and end at word boundaries.
    """
    chosen = {role: name for role, name in (columns or {}).items() if name is not None}
    place = source_of(path)
    if isinstance(place, MemoryRows):
        label = str(chosen.get("label", "label"))
        if label in place.columns and not _are_spans(place.columns[label]):
            return _read_word_lists(place, {"text": "text", "label": "label", **chosen})
        return _read_spans(place.path, place.rows(), chosen)
    text = read_text(place)
    if format_of(place, text) == "jsonl":
        return _read_spans(place, json_rows(place, text), chosen)
    return _read_conll(place, text, chosen, header)


def read_words(
    path: str | os.PathLike[str],
    *,
    columns: ColumnNames | None = None,
    header: str = "auto",
) -> Columns | None:
    """Return the words of each sentence of a CoNLL file, or `None` for other files.

    A CoNLL file is recognized by its ending, or by blank lines between other lines.
    """
    place = os.fspath(path)
    text = read_text(place)
    if format_of(place, text) == "jsonl":
        return None
    if ending_of(place) not in ENDINGS and not re.search(r"\n[ \t\r]*\n", text):
        return None
    chosen = {"text": (columns or {}).get("text"), "label": None}
    return _read_conll(place, text, chosen, header)


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


def to_bio(tags: Sequence[str]) -> list[str]:
    """Convert the tags of a sentence from any scheme to BIO."""
    return tags_of(entities_of(tags), len(tags))


def tag_problem(tag: str) -> str:
    """Return the fault of a tag, empty if there is none."""
    if tag == "O" or parse_tag(tag)[1] != tag:
        return ""
    prefixes = ", ".join(f"{prefix}-" for prefix in PREFIXES)
    return f"the tag must be O, or a type after one of {prefixes}; {received(tag)}"


def _read_conll(path: str, text: str, chosen: ColumnNames, header: str) -> Columns:
    lines = text.split("\n")
    first = 1 if header == "yes" else 0
    sentences: list[list[tuple[int, list[str]]]] = [[]]
    tabs = None
    for number, line in enumerate(lines[first:], first + 1):
        line = line.removesuffix("\r")
        if not line.strip(" \t") or line.startswith(_DOCUMENT):
            sentences.append([])
            continue
        tabs = "\t" in line if tabs is None else tabs
        # Not `split()`: it would also break at U+00A0 and other marks in a word.
        cells = line.split("\t") if tabs else re.split(" +", line.strip(" "))
        sentences[-1].append((number, [cell.strip(" ") for cell in cells]))
    sentences = [sentence for sentence in sentences if sentence]
    if not sentences:
        raise DataError("holds no words", path=path)
    width = len(sentences[0][0][1])
    places = _conll_places(path, chosen, width)
    problems: list[tuple[int, str]] = []
    for number, cells in (row for sentence in sentences for row in sentence):
        if len(cells) != width:
            reason = f"has {_counted(len(cells))} where the first row has {width}"
            problems.append((number, reason))
        elif not cells[places["text"]]:
            problems.append((number, "the word is empty"))
        elif "label" in places and (reason := tag_problem(cells[places["label"]])):
            problems.append((number, reason))
    refuse_lines(path, problems)
    found: dict[str, list[Any]] = {
        role: [[cells[place] for _, cells in sentence] for sentence in sentences]
        for role, place in places.items()
    }
    word_lines = [[number for number, _ in sentence] for sentence in sentences]
    if "label" in found:
        _report_strays(path, found["label"], word_lines)
        found["label"] = [to_bio(tags) for tags in found["label"]]
    found[WORD_LINES] = word_lines
    return Columns(path, found, [sentence[0][0] for sentence in sentences])


def _report_strays(
    path: str, labels: list[list[str]], word_lines: list[list[int]]
) -> None:
    """Report I- tags that do not follow a tag of the same entity."""
    if lines := [word_lines[row][place] for row, place in stray_tags(labels)]:
        shown = first_of(lines)
        say(f"{path}: {len(lines):,} tags I-x start entities, like B-x: lines {shown}")


def _conll_places(path: str, chosen: ColumnNames, width: int) -> dict[str, int]:
    """Return the columns of word and, if requested, tag."""
    places = {"text": 0, "label": width - 1}
    for role, column in chosen.items():
        if role not in places:
            raise ConfigError(
                f"the columns must be those of text and label; received {role!r}"
            )
        if column is None:  # no label requested, or the default
            if role == "label":
                del places[role]
            continue
        if not str(column).isdecimal() or int(column) >= width:
            raise DataError(
                f"has columns 0 to {width - 1} without names; received {column!r} for "
                f"`{role}`",
                path=path,
            )
        places[role] = int(column)
    if "label" in places and (
        width < 2 or (width > _MOST_COLUMNS and "label" not in chosen)
    ):
        raise DataError(
            f"must hold 2 to {_MOST_COLUMNS} columns, a word first and its tag last, "
            f"or the number of the tag's column be given; holds {_counted(width)}",
            path=path,
        )
    return places


def _counted(columns: int) -> str:
    return f"{columns} column{'s' * (columns != 1)}"


def _are_spans(cells: list[Any]) -> bool:
    """Return whether the cells of a column are lists of spans, not of tags."""
    items = [item for cell in cells if isinstance(cell, list) for item in cell]
    return bool(items) and all(isinstance(item, dict) for item in items)


def _read_word_lists(table: MemoryRows, chosen: ColumnNames) -> Columns:
    """Return columns of words and tags in memory, a list of strings per row."""
    found: dict[str, list[Any]] = {}
    problems: list[tuple[int, str]] = []
    for role, column in chosen.items():
        if str(column) not in table.columns:
            names = existing(list(table.columns), named=True)
            message = f"have no column {quote(str(column))}; they have {names}"
            raise DataError(message, path=table.path)
        cells = table.columns[str(column)]
        found[role] = [c.split() if isinstance(c, str) else c for c in cells]
        for line, words in enumerate(found[role], 1):
            strings = isinstance(words, list) and all(isinstance(w, str) for w in words)
            if not strings or not words:
                reason = f"`{role}` must be words, or a list of them; {received(words)}"
                problems.append((line, reason))
    refuse_lines(table.path, problems)
    return Columns(table.path, found, list(range(1, len(cells) + 1)))


def _read_spans(
    path: str,
    rows: list[tuple[int, dict[str, Any]]],
    chosen: ColumnNames,
) -> Columns:
    keys = {key for _, row in rows for key in row}
    default = next((key for key in SPAN_KEYS if key in keys), SPAN_KEYS[0])
    text_key, label_key = (
        str(chosen.get(role, key))
        for role, key in (("text", "text"), ("label", default))
    )
    words, tags, problems = [], [], []
    for line, row in rows:
        cell, reason = json_cell(row.get(text_key))
        if reason:
            problems.append((line, f"`text` (key `{text_key}`) {reason}"))
            continue
        bounds = split_words(cell)
        entities, reasons = _entities_in(cell, bounds, row.get(label_key), label_key)
        if not bounds:
            reasons.append(f"`text` (key `{text_key}`) holds no words")
        problems += [(line, reason) for reason in reasons]
        words.append([cell[start:end] for start, end in bounds])
        tags.append(tags_of(entities, len(bounds)))
    refuse_lines(path, problems)
    return Columns(path, {"text": words, "label": tags}, [line for line, _ in rows])


def _entities_in(
    text: str, bounds: list[tuple[int, int]], spans: Any, key: str
) -> tuple[list[Entity], list[str]]:
    """Return the spans of a text in words, and their faults."""
    if not isinstance(spans, list):
        what = "missing" if spans is None else f"a {type(spans).__name__}"
        return [], [f"`{key}` must be a list of spans, [] for none; it is {what}"]
    first = {start: word for word, (start, _) in enumerate(bounds)}
    last = {end: word for word, (_, end) in enumerate(bounds)}
    found, problems = [], []
    taken = [False] * len(bounds)
    for span in spans:
        start, end, label = _span(span)
        if label is None:
            problems.append(
                f'a span of `{key}` must be {{"start": N, "end": N, "label": NAME}}; '
                f"received {str(span)[:80]}"
            )
            continue
        shown = f"the span {start} to {end} of `{key}`"
        if not start < end <= len(text):
            problems.append(
                f"{shown} must lie in the {len(text)} characters of the text and not "
                "be empty"
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


def _span(span: Any) -> tuple[int, int, str | None]:
    """Return start, end and label of a span; the label is `None` if invalid."""
    if not isinstance(span, dict):
        return 0, 0, None
    start, end, label = (span.get(key) for key in ("start", "end", "label"))
    # JSONL numbers are strings, spelled as in the file.
    places = [int(str(n)) for n in (start, end) if re.fullmatch(r"\d{1,9}", str(n))]
    cell, reason = json_cell(label)
    if len(places) < 2 or reason or not isinstance(label, str):
        return 0, 0, None
    return places[0], places[1], cell
