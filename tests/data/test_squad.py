"""Files in SQuAD's format: what is read, and how what is broken is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED, refused

from bert_keras.data.squad import read_questions, read_squad

CONTEXT = "Ada Lovelace 🎉 was born in London."


def question(name: Any, **entries: Any) -> dict[str, Any]:
    """Return a question with an answer, changed."""
    answer = {"text": "London", "answer_start": 28}
    made = {"id": name, "question": "Where?", "answers": [answer], **entries}
    return {key: value for key, value in made.items() if value is not None}


def write(folder: Path, *questions: Any, context: Any = CONTEXT) -> Path:
    """Write a file of one paragraph."""
    paragraph = {"context": context, "qas": list(questions)}
    return write_json(folder, {"data": [{"title": "t", "paragraphs": [paragraph]}]})


def write_json(folder: Path, value: Any) -> Path:
    path = folder / "squad.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_questions_in_their_order(tmp_path: Path) -> None:
    several = [{"text": "Ada", "answer_start": 0}, {"text": "A", "answer_start": 99}]
    plausible = [{"text": "London", "answer_start": 28}]
    path = write(
        tmp_path,
        question("a"),
        question("b", answers=several, is_impossible=False),
        question("c", answers=[], is_impossible=True, plausible_answers=plausible),
        question("d", answers=None, is_impossible=True),
        question(5, question="", answers=[]),
    )
    columns = read_squad(path)
    assert columns["id"] == ["a", "b", "c", "d", "5"]
    assert columns["question"] == ["Where?"] * 4 + [""]
    assert columns["context"] == [CONTEXT] * 5
    wanted = [[("London", 28)], [("Ada", 0), ("A", 99)], [], [], []]
    assert columns["answers"] == wanted
    assert (columns.lines, columns.path) == ([1, 2, 3, 4, 5], str(path))


def test_gzip_and_questions_alone(tmp_path: Path) -> None:
    path = write(tmp_path, question("a", answers=None))
    packed = tmp_path / "squad.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    columns = read_questions(packed)
    assert columns is not None
    assert columns["id"] == ["a"]
    assert "answers" not in columns
    refused(lambda: read_squad(path), "squad.json", "'a'", "has no list `answers`")


def test_a_table_is_not_squad(tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    row = '{"question": "a", "context": "b"}\n'
    for text in (row, row * 2, "question\tcontext\na\tb\n"):
        rows.write_text(text)
        assert read_questions(rows) is None
    assert read_questions([{"question": "a", "context": "b"}]) is None
    refused(lambda: read_squad(rows), "rows.json", "is not JSON")
    rows.write_text('{\n"x": 1\n}')
    refused(lambda: read_squad(rows), "rows.json", "an object with a list `data`")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"question": None}, "must have a text `question`"),
        ({"question": "\ud800"}, "half of a surrogate pair"),
        ({"answers": None}, "has no list `answers`"),
        ({"answers": [{"text": "London"}]}, "a whole number `answer_start`"),
        ({"answers": [{"text": "x", "answer_start": True}]}, "a whole number"),
        ({"answers": ["London"]}, "a whole number `answer_start`"),
        ({"is_impossible": True}, "is marked as impossible and has answers"),
    ],
)
def test_a_broken_question_is_named(
    tmp_path: Path, entries: dict[str, Any], message: str
) -> None:
    path = write(tmp_path, question("fine"), question("q7", **entries))
    line = refused(lambda: read_squad(path), "squad.json: question 'q7'", message)
    assert "fine" not in line


def test_all_broken_questions_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path, *(question(f"q{i}", question=None) for i in range(12)))
    refused(lambda: read_squad(path), "12 bad questions", "'q9'", "and 2 more")
    path = write(tmp_path, question("q1"), question("q1"))
    refused(lambda: read_squad(path), "'q1' occurs twice")


def test_broken_files(tmp_path: Path) -> None:
    refused(lambda: read_squad(write(tmp_path)), "contains no questions")
    refused(lambda: read_squad(tmp_path / "none.json"), "no such file")
    refused(lambda: read_squad(write(tmp_path, question("a"), context=3)), "`context`")
    refused(lambda: read_squad(write(tmp_path, question(None))), "has no `id`")
    path = tmp_path / "cut.json"
    path.write_text('{"data": [\n{"paragraphs": [')
    refused(lambda: read_questions(path), "cut.json:2:", "is not JSON")
    for data in ([1], [{"paragraphs": 1}], [{"paragraphs": [{"qas": None}]}]):
        broken = write_json(tmp_path, {"data": data})
        refused(lambda broken=broken: read_squad(broken), "must hold a list")


@pytest.mark.parametrize(
    ("name", "questions", "without"),
    [
        ("squad_v1.1/half.json", 4961, 0),
        ("squad_v2.0/cs224n_dev-v2.0.json", 6078, 3168),
    ],
)
def test_the_data_sets_themselves(name: str, questions: int, without: int) -> None:
    path = SHARED / "data" / name
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    columns = read_squad(path)
    assert len(columns) == questions
    assert sum(not answers for answers in columns["answers"]) == without
    for context, answers in zip(columns["context"], columns["answers"], strict=True):
        assert all(context.startswith(text, start) for text, start in answers)
