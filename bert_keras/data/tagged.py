"""Sentences with a tag for each word, in all forms: `read_tagged` and `stream_words`.

* Files of one word a line, see `conll`.
* JSON, Parquet or rows in memory: lists of words and of tags (`tokens` and `ner_tags`),
  or texts with spans, see `spans` and `annotations`.
* CSV with one sentence a row: words and tags separated by spaces, or as lists.

Tags of entities (BIO, IOB1, BIOES, BILOU, BMES, or types with `O`) are converted to
BIO. Tags that are all plain, such as parts of speech, stay; so do numbers, which
`classes` must name.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bert_keras.data.class_names import cleaned
from bert_keras.data.columns import Columns
from bert_keras.data.conll import (
    ENDINGS,
    WORD_LINES,
    good_sentences,
    is_word_table,
    stream_conll,
    stream_word_table,
)
from bert_keras.data.memory import MemoryRows, Row, source_of
from bert_keras.data.objects import objects_of, stream_objects
from bert_keras.data.rows import (
    ColumnNames,
    dialect_of,
    ending_of,
    existing,
    format_of,
    good_rows,
    quote,
    read_text,
    start_of,
    stream_lines,
    table_rows,
)
from bert_keras.data.spans import are_spans, read_spans
from bert_keras.errors import ConfigError, DataError, first_of, received, shown
from bert_keras.files.parquet import is_stored
from bert_keras.runs.notes import say_once
from bert_keras.scoring.entities import (
    PREFIXES,
    entities_of,
    parse_tag,
    scheme_of,
    stray_tags,
    tags_of,
)

SPAN_KEYS = ("spans", "entities")
_TAG_KEYS = tuple("label labels ner_tags tags ner pos_tags upos chunk_tags".split())
_TEXT_KEYS, _WORD_KEYS = ("text", "sentence"), ("tokens", "words", "text", "sentence")


def read_tagged(
    path: Any,
    *,
    columns: ColumnNames | None = None,
    header: str = "auto",
    bad_rows: str = "error",
) -> Columns:
    """Return the words and the tags of each sentence, a list each.

    Args:
        path: a file or a table in memory, as `as_columns` takes it.
        columns: `text` and `label` to a name, or to the number, from 0, of a CoNLL
            column.
        header: `yes` skips the first line of a CoNLL file; `no` is an error for a
            table, whose columns have names.
        bad_rows: `skip` leaves out texts whose spans are wrong, such as those that cut
            a word.

    Raises:
        DataError: the file is missing or broken, a tag is invalid, or a span does not
            begin and end at word boundaries.
    """
    chosen = {role: name for role, name in (columns or {}).items() if name is not None}
    found = _read(source_of(path), chosen, header, bad_rows)
    return with_one_scheme(found, bad_rows=bad_rows)


def stream_words(
    source: str | MemoryRows,
    *,
    columns: ColumnNames | None = None,
    header: str = "auto",
    rows_at_once: int = sys.maxsize,
    name: str | None = None,
    bad_rows: str = "error",
) -> Iterator[Columns] | None:
    """Return the words of each sentence without tags in parts; `None` for plain texts.

    A CoNLL file is recognized by its ending, or by blank lines between other lines, at
    the start of the file; a `.csv` is none. `name` is the key of the `id` of rows that
    have words as a list, which may be missing; with `bad_rows="keep"`, these lists may
    be empty.
    """
    chosen = {"text": (columns or {}).get("text"), "label": None}
    selected = list(chosen.values())
    if isinstance(source, MemoryRows):
        place, parts = source.path, iter([objects_of(source, selected)[1]])
    else:
        if not is_stored(source):
            start, lines = start_of(source), stream_lines(source)
            words = _words_of(
                source, start, lines, chosen, header, rows_at_once=rows_at_once
            )
            if words is not None:
                return words
            if not _has_lists(source, start):
                return None
        place = source
        parts = stream_objects(source, rows_at_once, selected, header=header)
    first = next(parts)
    keys = _WORD_KEYS if chosen["text"] is None else (str(chosen["text"]),)
    key = _first(first, keys, _is_words)
    texts = _first(first, _TEXT_KEYS, _is_text)
    if key is None or texts is not None and chosen["text"] is None:
        return None

    def read(rows: list[Row]) -> Columns:
        found = _read_word_lists(place, rows, {"text": key}, bad_rows=bad_rows)
        if name is None or all(name not in row for _, row in rows):
            return found
        cells = (row.get(name) for _, row in rows)
        named = ["" if cell is None else str(cell) for cell in cells]
        return dataclasses.replace(found, cells={**found.cells, "id": named})

    return map(read, itertools.chain([first], parts))


def _words_of(
    path: str,
    start: str,
    lines: Iterable[str],
    chosen: ColumnNames,
    header: str,
    *,
    is_tagged: bool = False,
    **rules: Any,
) -> Iterator[Columns] | None:
    """Return the parts of a file with one word a line; `None` for another.

    Args:
        path: the file.
        start: its first lines.
        lines: all of them.
        chosen, header: as in `stream_conll`.
        is_tagged: whether the words have tags, so that the file is no table of texts.
        **rules: the other arguments of `stream_conll`.
    """
    table = _word_table(path, start) if header != "no" else None
    if table is not None:
        names, dialect = table
        rows = itertools.islice(table_rows(path, lines, dialect), 1, None)
        return stream_word_table(path, names, rows, chosen, **rules)
    is_conll = format_of(path, start) != "jsonl" and ending_of(path) != ".csv"
    if not is_tagged and ending_of(path) not in ENDINGS:
        is_conll = is_conll and bool(re.search(r"\n[ \t\r]*\n", start))
    return stream_conll(path, lines, chosen, header, **rules) if is_conll else None


def _has_lists(path: str, text: str) -> bool:
    """Return whether the rows of a file may be lists of words."""
    is_json = format_of(path, text) == "jsonl"
    return is_json or ending_of(path) == ".csv" and "['" in text


def with_one_scheme(columns: Columns, *, bad_rows: str = "error") -> Columns:
    """Return sentences with tags of entities in BIO; a note tells what was guessed.

    With `bad_rows="skip"` sentences with an invalid tag are left out.

    Raises:
        DataError: a tag is invalid, named by its line.
    """
    path = columns.path
    names = {tag: cleaned(tag) for tags in columns["label"] for tag in set(tags)}
    labels = [[names[tag] for tag in tags] for tags in columns["label"]]
    lines = columns.cells.get(WORD_LINES)
    if lines is None:
        lines = [
            [line] * len(tags) for line, tags in zip(columns.lines, labels, strict=True)
        ]
    scheme = scheme_of(names.values())
    problems = [
        (line, reason)
        for tags, numbers in zip(labels, lines, strict=True)
        for tag, line in zip(tags, numbers, strict=True)
        if (reason := tag_problem(tag, scheme))
    ]
    if problems:
        kept = good_sentences(path, lines, problems, bad_rows=bad_rows)
        return with_one_scheme(columns.take(kept))
    if scheme in ("words", "numbers"):
        if scheme == "words":
            lower = [tag for tag in names.values() if re.match("[bi]-.", tag)]
            if lower and "o" in names.values():
                raise DataError(
                    "tags must have prefixes in upper case, such as B- and I-, and O; "
                    f"received {shown(min(lower))} and 'o'",
                    path=path,
                )
            say_once(f"{path}: the tags have no B- or I-: each belongs to one word")
        return Columns(path, {**columns.cells, "label": labels}, columns.lines)
    if scheme == "types" and any(tag != "O" for tags in labels for tag in tags):
        say_once(
            f"{path}: the tags have O, but no B- or I-: adjacent words with the same "
            "tag are one entity"
        )
    elif strays := [lines[row][place] for row, place in stray_tags(labels)]:
        places = first_of(strays)
        say_once(
            f"{path}: {len(strays):,} tags I-x start entities, like B-x: lines {places}"
        )
    cells = {**columns.cells, "label": [to_bio(tags) for tags in labels]}
    return Columns(path, cells, columns.lines)


def to_bio(tags: Sequence[str]) -> list[str]:
    """Convert the tags of a sentence from any scheme of entities to BIO."""
    return tags_of(entities_of(tags), len(tags))


def tag_problem(tag: str, scheme: str = "entities") -> str:
    """Return the fault of a tag in a scheme of `scheme_of`, empty if there is none."""
    is_cut = re.fullmatch(f"[{''.join(PREFIXES)}][-_]", tag)
    is_type = scheme == "types" and "-" not in tag
    if scheme in ("words", "numbers") or is_type:
        if tag and not is_cut:
            return ""
    elif tag == "O" or parse_tag(tag)[1] != tag:
        return ""
    prefixes = ", ".join(f"{prefix}-" for prefix in PREFIXES)
    return f"the tag must be O, or a type after one of {prefixes}; {received(tag)}"


def _read(
    source: str | MemoryRows, chosen: ColumnNames, header: str, bad_rows: str
) -> Columns:
    """Return sentences with their tags as they are."""
    if not isinstance(source, MemoryRows):
        text = read_text(source)
        words = _words_of(
            source,
            text,
            io.StringIO(text, newline="\n"),
            chosen,
            header,
            is_tagged=True,
            rows_at_once=sys.maxsize,
            bad_rows=bad_rows,
        )
        if words is not None:
            return next(words)
    place, rows = objects_of(source, list(chosen.values()), header=header)
    for role in chosen:
        if role not in ("text", "label"):
            raise ConfigError(f"the columns must be text and label; received {role!r}")
    text_key, label_key, has_spans = _keys(rows, chosen)
    if has_spans:
        return read_spans(place, rows, text_key, label_key, bad_rows=bad_rows)
    keys = {"text": text_key, "label": label_key}
    return _read_word_lists(place, rows, keys, bad_rows=bad_rows)


def _word_table(path: str, text: str) -> tuple[list[str], tuple[str, str]] | None:
    """Return the header and the dialect of a table of words; `None` if it is none."""
    if format_of(path, text) == "jsonl":
        return None
    first = "\n".join(text.split("\n", 2)[:2])  # the header may be the second line
    dialect = dialect_of(path, first)
    header = [cell.strip() for cell in next(table_rows(path, first, dialect))[1]]
    return (header, dialect) if is_word_table(header) else None


def _keys(rows: list[Row], chosen: ColumnNames) -> tuple[str, str, bool]:
    """Return the keys of texts and labels, and whether labels are spans."""
    wanted: Sequence[str] = (*SPAN_KEYS, *_TAG_KEYS)
    tag_keys: Sequence[str] = _TAG_KEYS
    if "label" in chosen:
        wanted = tag_keys = (str(chosen["label"]),)
    spans = _first(rows, wanted, are_spans)
    tags = _first(rows, tag_keys, _is_words) or _first(rows, tag_keys, _is_text)
    if spans is None and tags is None:  # the reader of spans names the fault
        spans = next((key for key in wanted if key in rows[0][1]), wanted[0])
    texts = _first(rows, _TEXT_KEYS, _is_text) or _TEXT_KEYS[0]
    if spans is not None:
        return str(chosen.get("text", texts)), spans, True
    others = [key for key in _TAG_KEYS if key in rows[0][1]]
    if len(others) > 1 and "label" not in chosen:
        say_once(
            f"the tags are in `{tags}`, of {', '.join(others)}; `label` names another"
        )
    words = _first(rows, _WORD_KEYS, _is_words) or texts
    return str(chosen.get("text", words)), str(tags), False


def _first(
    rows: list[Row], keys: Iterable[str], fits: Callable[[Any], bool]
) -> str | None:
    """Return the first key whose first non-empty cell has a form."""
    for key in keys:
        cells = (row.get(key) for _, row in rows)
        cell = next((each for each in cells if each not in (None, "", [])), None)
        if cell is not None and fits(cell):
            return key
    return None


def _is_words(cell: Any) -> bool:
    return isinstance(cell, list) and bool(cell) and isinstance(cell[0], str | int)


def _is_text(cell: Any) -> bool:
    return isinstance(cell, str)


def _read_word_lists(
    path: str, rows: list[Row], keys: dict[str, str], *, bad_rows: str = "error"
) -> Columns:
    """Return columns of words and tags, a list of strings per row."""
    found: dict[str, list[Any]] = {}
    problems: list[tuple[int, str]] = []
    names = list(dict.fromkeys(key for _, row in rows for key in row))
    for role, key in keys.items():
        if key not in names:
            have = existing(names, named=True)
            message = f"have no column {quote(key)}; they have {have}"
            raise DataError(message, path=path)
        found[role] = []
        for line, row in rows:
            words = row.get(key)
            words = words.split() if isinstance(words, str) else words
            if role == "label" and isinstance(words, list):  # numbers of tags
                words = [str(w) if type(w) is int else w for w in words]
            found[role].append(words)
            strings = isinstance(words, list) and all(isinstance(w, str) for w in words)
            if not strings or not (words or bad_rows == "keep"):
                reason = f"`{role}` must be words, or a list of them; {received(words)}"
                problems.append((line, reason))
    columns = Columns(path, found, [line for line, _ in rows])
    return columns.take(good_rows(path, rows, problems, bad_rows=bad_rows))
