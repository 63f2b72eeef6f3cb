"""Questions and answers in the format of SQuAD 1.1 and 2.0: `read_squad`.

Sources: Rajpurkar et al. 2016 (arXiv:1606.05250); Rajpurkar et al. 2018
(arXiv:1806.03822), which adds `is_impossible` and `plausible_answers`; the latter are
ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bert_keras.data.memory import MemoryRows, is_path, source_of
from bert_keras.data.rows import ColumnNames, read_text
from bert_keras.data.table import Columns
from bert_keras.errors import ConfigError, DataError, NoRowsError, first_of
from bert_keras.files.parquet import is_parquet

NO_ANSWER, UNKNOWN = -1, -2  # of `place_of`: no answer, or not in the context
_ROLES = ("id", "question", "context", "answers")


def read_squad(path: Any, *, columns: ColumnNames | None = None) -> Columns:
    """Return the questions of a SQuAD file, one per row, in their order.

    Args:
        path: the file, possibly gzipped. Or a table in memory, as `as_columns` takes
            it, with one question per row; its `answers` are those of a file,
            `(text, start)` pairs, or lists of texts and starts, as in `datasets`.
        columns: of a table: role (`id`, `question`, `context`, `answers`) to column.

    Returns:
        Columns of `id`, `question`, `context` and `answers`: a list of (text, start in
        characters) of each question, empty if it has no answer. Starts are not
        checked. `lines` number the questions from 1.

    Raises:
        DataError: the file is missing, is not SQuAD, or has invalid questions; the
            error has their count and the first ten ids.
    """
    source = source_of(path)
    if isinstance(source, MemoryRows):
        return _columns(source.path, _questions_of_rows(source, columns or {}))
    if columns:
        raise ConfigError(
            "`columns` must be left out: SQuAD's JSON has its own names; "
            f"received {dict(columns)}"
        )
    return squad_columns(source, _load(source))


def squad_columns(path: str, content: Any) -> Columns:
    """Return the columns of `read_squad` from the JSON of a file."""
    return _columns(path, _questions(path, content))


def read_questions(path: Any) -> Columns | None:
    """Return the columns of `read_squad` without `answers`; `None`: it is a table."""
    if not is_path(path) or is_parquet(os.fspath(path)):
        return None
    source = os.fspath(path)
    content = _load(source)
    if not isinstance(content, dict) or "data" not in content:
        return None
    return _columns(source, _questions(source, content), with_answers=False)


def _columns(
    place: str,
    questions: Iterable[tuple[str, dict[str, Any], Any]],
    *,
    with_answers: bool = True,
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
            given = [] if question.get("is_impossible") else question["answers"]
            pairs = [(answer["text"], answer["answer_start"]) for answer in given]
            cells["answers"].append(pairs)
    if problems:
        count = f"{len(problems)} bad questions: " if len(problems) > 1 else ""
        raise DataError(f"{count}{first_of(problems, between='; ')}", path=place)
    if not cells["id"]:
        raise NoRowsError("holds no questions", path=place)
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


def _load(path: str) -> Any:
    """Return the JSON of a file, or `None` if it does not hold exactly one value."""
    text = read_text(path)
    if not text.lstrip().startswith("{"):
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # JSONL
            return None
        message = f"is not JSON: {error.msg}"
        raise DataError(message, path=path, line=error.lineno) from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}", path=path) from None


def _questions(path: str, content: Any) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield the id, the object and the context of each question."""
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise DataError("must be SQuAD's JSON: an object with a list `data`", path=path)
    for number, article in enumerate(content["data"], 1):
        for paragraph in _list(path, article, "paragraphs", f"article {number}"):
            where = f"a paragraph of article {number}"
            for question in _list(path, paragraph, "qas", where):
                name = question.get("id") if isinstance(question, dict) else None
                if not isinstance(name, str | int) or isinstance(name, bool):
                    message = f"a question of article {number} has no `id`"
                    raise DataError(message, path=path)
                yield str(name), question, paragraph.get("context")


def _questions_of_rows(
    table: MemoryRows, columns: ColumnNames
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield the same as `_questions`, from the rows of a table; `id` may be missing."""
    keys = {role: str(columns.get(role) or role) for role in _ROLES}
    for number, row in table.rows():
        question = {role: row.get(key) for role, key in keys.items()}
        name = question["id"]
        question["is_impossible"] = row.get("is_impossible") == "true"
        question["answers"] = _answer_dicts(question["answers"])
        yield str(number if name is None else name), question, question["context"]


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
    return [
        {"text": answer[0], "answer_start": answer[1]}
        if isinstance(answer, list | tuple) and len(answer) == 2
        else answer
        for answer in answers
    ]


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
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            return f"has half of a surrogate pair in its `{key}`"
    if not with_answers:
        return ""
    answers = question.get("answers")
    if not isinstance(answers, list):
        return "has no list `answers`" if not question.get("is_impossible") else ""
    for answer in answers:
        text = answer.get("text") if isinstance(answer, dict) else None
        start = answer.get("answer_start") if isinstance(answer, dict) else None
        if not isinstance(text, str) or type(start) is not int:
            return "must have `text` and a whole number `answer_start` in each answer"
    if answers and question.get("is_impossible"):
        return "is marked as impossible and has answers"
    return ""
