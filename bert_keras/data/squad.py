"""Questions and answers in the format of SQuAD 1.1 and 2.0: `read_squad`.

A file is SQuAD's JSON, a list of its paragraphs, or has one question per row, as
`datasets` writes them: JSON, Parquet or CSV with `question`, `context` and `answers`.

Sources: Rajpurkar et al. 2016 (arXiv:1606.05250); Rajpurkar et al. 2018
(arXiv:1806.03822), which adds `is_impossible` and `plausible_answers`; the latter are
ignored.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bert_keras.data.columns import Columns
from bert_keras.data.json_rows import json_rows, one_object, whole_number
from bert_keras.data.memory import MemoryRows, Row, is_path, source_of
from bert_keras.data.objects import objects_of
from bert_keras.data.offsets import UNITS, Convert
from bert_keras.data.rows import ColumnNames, format_of, read_text, start_of
from bert_keras.errors import ConfigError, DataError, NoRowsError, first_of
from bert_keras.files.json_file import is_unicode
from bert_keras.files.parquet import is_stored
from bert_keras.runs.notes import say_once

NO_ANSWER, UNKNOWN = -1, -2  # of `place_of`: no answer, or not in the context
_ROLES = ("id", "question", "context", "answers")
_NO_START = (None, "-1", "-1.0")  # of an empty answer; cells of rows are strings
_KEYS = {"paragraphs", "qas"}  # of SQuAD's articles and paragraphs


def read_squad(
    path: Any,
    *,
    columns: ColumnNames | None = None,
    header: str = "auto",
    bad_rows: str = "error",
) -> Columns:
    """Return the questions of a SQuAD file, one per row, in their order.

    Args:
        path: the file, or a table in memory, as `as_columns` takes it. In rows,
            `answers` are as in SQuAD's files, `(text, start)` pairs, or lists of
            texts and starts; or a column holds the text (`answer_text`, `answer`) and
            another `answer_start`, both empty, or -1 as the start, for no answer.
        columns: for rows, role (`id`, `question`, `context`, `answers`) to column.
        header: `no` is an error for a table, whose columns have names.
        bad_rows: `skip` leaves out invalid questions, and a note counts them.

    Returns:
        Columns of `id`, `question`, `context` and `answers`: a list of (text, start in
        characters) of each question, empty if it has no answer. Starts are not
        checked. `lines` number the questions from 1.

    Raises:
        DataError: the file is missing, is not SQuAD, or has invalid questions; the
            error has their count and the first ten ids.
    """
    chosen = {role: str(name or role) for role, name in (columns or {}).items()}
    place, rows = _articles(source_of(path), list(chosen.values()), header=header)
    if columns and _are_nested(rows):
        raise ConfigError(
            "`columns` must be left out: SQuAD's JSON has its own names; "
            f"received {dict(columns)}"
        )
    questions = _questions(place, rows, chosen)
    return _in_characters(_columns(place, questions, bad_rows=bad_rows))


def is_squad(content: Any) -> bool:
    """Return whether the JSON of a file has SQuAD's articles or paragraphs."""
    items = content.get("data") if isinstance(content, dict) else content
    return isinstance(items, list) and _are_nested(list(enumerate(items)))


def read_questions(path: Any) -> Columns | None:
    """Return the columns of `read_squad` without `answers`; `None`: it is a table."""
    if not is_path(path) or is_stored(os.fspath(path)):
        return None
    source = os.fspath(path)
    text = start_of(source)
    is_json = text.lstrip().startswith(("{", "["))
    if not is_json or not any(key in text for key in _KEYS):
        return None
    is_row = text.partition("\n")[0].rstrip().endswith("}")
    if is_row and one_object(text) is None and not _are_nested(json_rows(source, text)):
        return None
    place, rows = _articles(source)
    if not _are_nested(rows):
        return None
    return _columns(place, _questions(place, rows, {}), with_answers=False)


def _columns(
    place: str,
    questions: Iterable[tuple[str, dict[str, Any], Any]],
    *,
    with_answers: bool = True,
    bad_rows: str = "error",
) -> Columns:
    """Return the id, the object and the context of each question as columns."""
    cells: dict[str, Any] = {"id": [], "question": [], "context": []}
    if with_answers:
        cells["answers"] = []
    problems = []
    seen: set[str] = set()
    for name, question, context in questions:
        problem = _problem(question, context, with_answers)
        if name in seen:
            problem = problem or "occurs twice in the file"
        if problem:
            problems.append(f"question {name!r} {problem}")
            continue
        seen.add(name)
        cells["id"].append(name)
        cells["question"].append(question["question"])
        cells["context"].append(context)
        if with_answers:
            given = [] if _is_impossible(question) else question["answers"]
            pairs = [(answer["text"], answer["answer_start"]) for answer in given]
            cells["answers"].append(pairs)
    if problems:
        count = f"{len(problems)} bad questions: " if len(problems) > 1 else ""
        if bad_rows != "skip" or not cells["id"]:
            raise DataError(f"{count}{first_of(problems, between='; ')}", path=place)
        say_once(f"{place}: left out {len(problems):,} bad questions: {problems[0]}")
    if not cells["id"]:
        raise NoRowsError("contains no questions", path=place)
    return Columns(place, cells, list(range(1, len(cells["id"]) + 1)))


def is_answers(cell: Any) -> bool:
    """Return whether a cell is a list of (text, first character)."""
    return isinstance(cell, list | tuple) and all(
        isinstance(answer, list | tuple)
        and [type(part) for part in answer] == [str, int]
        for answer in cell
    )


def stands_at(context: str, text: str, start: int) -> bool:
    """Return whether an answer's text is in its context at a character."""
    return start >= 0 and bool(text) and context.startswith(text, start)


def place_of(context: str, answers: Sequence[Any]) -> tuple[int, int]:
    """Return first character and end of the first answer that is at its stated place.

    `NO_ANSWER` twice if there are no answers, `UNKNOWN` if all places are wrong.
    """
    for text, start in answers:
        if stands_at(context, text, start):
            return start, start + len(text)
    code = UNKNOWN if answers else NO_ANSWER
    return code, code


def _in_characters(columns: Columns) -> Columns:
    """Return questions whose starts are in characters, from the unit that is right."""
    questions = list(zip(columns["context"], columns["answers"], strict=True))

    def are_right(convert: Convert) -> bool:
        return all(
            stands_at(context, text, convert(context, start))
            for context, answers in questions
            for text, start in answers
        )

    unit = next((name for name, convert in UNITS.items() if are_right(convert)), None)
    if unit in (None, "characters"):
        return columns
    say_once(
        f"{columns.path}: `answer_start` counts {unit}, as the texts of the answers "
        "show: converted to characters"
    )
    convert = UNITS[str(unit)]
    answers = [
        [(text, convert(context, start)) for text, start in given]
        for context, given in questions
    ]
    return dataclasses.replace(columns, cells={**columns.cells, "answers": answers})


def _articles(
    source: str | MemoryRows, selected: Sequence[str] = (), *, header: str = "auto"
) -> tuple[str, list[Row]]:
    """Return the name of a source and its articles, paragraphs or questions."""
    text = read_text(source) if isinstance(source, str) else ""
    if not isinstance(source, str) or format_of(source, text) != "jsonl":
        return objects_of(source, selected, header=header)
    content = one_object(text)
    if content is None:
        if text.startswith("{") and not text.partition("\n")[0].rstrip().endswith("}"):
            _refuse_broken(source, text)
        return objects_of(source, selected, header=header)
    items = content.get("data")
    if not isinstance(items, list):
        message = "must be SQuAD's JSON: an object with a list `data`"
        raise DataError(message, path=source)
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            message = f"article {number} must hold a list `paragraphs`"
            raise DataError(message, path=source)
    return source, list(enumerate(items, 1))


def _refuse_broken(path: str, text: str) -> None:
    """Raise the error of an object over several lines that cannot be parsed."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        message = f"is not JSON: {getattr(error, 'msg', error)}"
        line = getattr(error, "lineno", None)
        raise DataError(message, path=path, line=line) from None


def _are_nested(rows: list[Row]) -> bool:
    """Return whether items are articles or paragraphs, not questions."""
    return any(isinstance(row, dict) and _KEYS & row.keys() for _, row in rows)


def _questions(
    path: str, rows: list[Row], columns: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield the id, the object and the context of each question."""
    if not _are_nested(rows):
        yield from _questions_of_rows(rows, columns)
        return
    for number, article in rows:
        paragraphs = [article]
        if not isinstance(article, dict) or "qas" not in article:
            paragraphs = _list(path, article, "paragraphs", f"article {number}")
        for paragraph in paragraphs:
            where = f"a paragraph of article {number}"
            for question in _list(path, paragraph, "qas", where):
                name = question.get("id") if isinstance(question, dict) else None
                if not isinstance(name, str | int) or isinstance(name, bool):
                    message = f"a question of article {number} has no `id`"
                    raise DataError(message, path=path)
                answers = _answer_dicts(question.get("answers"))
                question = {**question, "answers": answers}
                yield str(name), question, paragraph.get("context")


def _questions_of_rows(
    rows: list[Row], columns: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield the same as `_questions`, from rows; `id` may be missing."""
    keys = {role: columns.get(role, role) for role in _ROLES}
    for number, (_, row) in enumerate(rows, 1):
        question = {role: row.get(key) for role, key in keys.items()}
        name = question["id"]
        question["is_impossible"] = row.get("is_impossible")
        answer = question["answers"]
        if "answer_start" in row and (answer is None or isinstance(answer, str)):
            others = (row.get(key) for key in ("answer_text", "answer", "text"))
            text = next((each for each in (answer, *others) if each is not None), None)
            start = row["answer_start"]
            is_none = not text and start in _NO_START
            question["answers"] = [] if is_none else [(text, start)]
        question["answers"] = _answer_dicts(question["answers"])
        yield str(number if name is None else name), question, question["context"]


def _is_impossible(question: Mapping[str, Any]) -> bool:
    return str(question.get("is_impossible")).lower() in ("true", "1", "1.0")


def _answer_dicts(answers: Any) -> Any:
    """Return the answers of a row in the form of SQuAD's files."""
    if isinstance(answers, dict):  # as in `datasets`: a list of each
        texts, starts = answers.get("text"), answers.get("answer_start")
        if isinstance(texts, list) and isinstance(starts, list):
            answers = list(zip(texts, starts, strict=False))
            if len(texts) != len(starts):
                return None
    if not isinstance(answers, list):
        return None
    return [_answer_dict(answer) for answer in answers]


def _answer_dict(answer: Any) -> Any:
    """Return an answer as in SQuAD's files; numbers of JSONL are strings."""
    if isinstance(answer, list | tuple) and len(answer) == 2:
        answer = {"text": answer[0], "answer_start": answer[1]}
    start = answer.get("answer_start") if isinstance(answer, dict) else None
    number = None if isinstance(start, int) else whole_number(start)
    return answer if number is None else {**answer, "answer_start": number}


def _list(path: str, parent: Any, key: str, name: str) -> list[Any]:
    values = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(values, list):
        raise DataError(f"{name} must hold a list `{key}`", path=path)
    return values


def _problem(question: dict[str, Any], context: Any, with_answers: bool) -> str:
    """Return the fault of a question, empty if there is none."""
    for key, value in (("question", question.get("question")), ("context", context)):
        if not isinstance(value, str):
            return f"must have a text `{key}`"
        if not is_unicode(value):
            return f"has half of a surrogate pair in its `{key}`"
    if not with_answers:
        return ""
    answers = question.get("answers")
    if not isinstance(answers, list):
        return "has no list `answers`" if not _is_impossible(question) else ""
    for answer in answers:
        text = answer.get("text") if isinstance(answer, dict) else None
        start = answer.get("answer_start") if isinstance(answer, dict) else None
        if not isinstance(text, str) or type(start) is not int:
            return "must have `text` and a whole number `answer_start` in each answer"
    if answers and _is_impossible(question):
        return "is marked as impossible and has answers"
    return ""
