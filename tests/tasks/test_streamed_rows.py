"""Rows without labels of every format, in parts: `stream_rows`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from bert_keras.data.row_source import RowSource
from bert_keras.errors import DataError
from bert_keras.inference.answered_rows import read_rows
from bert_keras.tasks import find_task
from bert_keras.tasks.base import Task, stream_rows

PAIRS = [{"query": f"q{n}", "document": f"d {n}", "label": n} for n in range(5)]
CHOICES = [{"context": f"c{n}", "choices": ["a", f"b {n}"]} for n in range(5)]
ASKED = [{**row, "question": f"why {n}?"} for n, row in enumerate(CHOICES)]
WORDS = [{"tokens": ["Ann", f"met{n}"], "ner_tags": ["O", "O"]} for n in range(5)]
CONLL = "".join(f"# id {n}\nAnn B-PER\nmet{n} O\n\n" for n in range(5))
CONLLU = "".join(
    f"# text = Ann\n1\tAnn{n}\tAnn\tPROPN" + "\t_" * 6 + "\n\n" for n in range(5)
)
TABLE = "sentence,word,tag\n" + "".join(f'{n},"Ann, {n}",O\n,met,O\n' for n in range(5))
SWAG = "sent1,sent2,ending0,ending1,ending2,ending3\n" + "".join(
    f"A man,He{n},smiles,runs,sings,sleeps\n" for n in range(5)
)
QUESTIONS = [{"question": f"Who {n}?", "context": "Ann and her qas"} for n in range(5)]


def lines_of(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def outcome(task: Task, path: Path, rows_at_once: int | None) -> tuple[Any, ...]:
    """Return the parts, cells, lines and error of rows; `None`: read as a whole."""
    parts, error = [], ""
    try:
        if rows_at_once is None:
            parts = [task.read(path, roles=task.roles, bad_rows="keep")]
        else:
            source = RowSource(path, bad_rows="keep")
            parts += stream_rows(task, source, rows_at_once=rows_at_once)
    except DataError as found:
        error = str(found)
    roles = parts[0].cells if parts else {}
    cells = {role: [c for part in parts for c in part[role]] for role in roles}
    return len(parts), cells, [line for part in parts for line in part.lines], error


@pytest.mark.parametrize(
    ("name", "file", "text", "bad"),  # the task, a file, and a row that is refused
    [
        ("reranking", "a.jsonl", lines_of(PAIRS), '{"query": 1, "document": [1]}'),
        ("reranking", "a.tsv", "text_a\ttext_b\n" + "q\td\n" * 5, "q"),
        ("reranking", "a.parquet", lines_of(PAIRS), ""),
        ("multiple-choice", "a.jsonl", lines_of(CHOICES), '{"context": "c"}'),
        ("multiple-choice", "a.jsonl", lines_of(ASKED), "["),
        ("multiple-choice", "a.parquet", lines_of(ASKED), ""),
        ("multiple-choice", "a.csv", SWAG, "A man"),
        ("token-classification", "a.conll", CONLL, "Bo"),
        ("token-classification", "a.txt", CONLLU, "1\tBo"),
        ("token-classification", "a.csv", TABLE, "6,,O"),
        ("token-classification", "a.jsonl", lines_of(WORDS), '{"tokens": [1]}'),
        ("token-classification", "a.parquet", lines_of(WORDS), ""),
        ("token-classification", "a.csv", "words\n" + "\"['Ann', 'met']\"\n" * 5, ",,"),
        ("token-classification", "a.txt", "text\n" + "Ann met\n" * 5, "a\tb"),
        ("feature-tagging", "a.conll", CONLL, "Bo"),
        ("masked-lm", "a.txt", "a [MASK]\r\n" * 4 + "\nb\n", "a\0"),
        ("translation", "a.de", "ein\n\r\nzwei\n\ndrei\n\n", ""),
        ("question-answering", "a.jsonl", lines_of(QUESTIONS), '{"context": [1]}'),
    ],
)
def test_rows_in_parts_are_the_rows_of_the_whole_file(
    tmp_path: Path, name: str, file: str, text: str, bad: str
) -> None:
    task, path = new_task(name), tmp_path / file
    if path.suffix == ".parquet":
        rows = [json.loads(line) for line in text.splitlines()]
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text(text, encoding="utf-8", newline="")
    _, *whole = outcome(task, path, None)
    count, *found = outcome(task, path, 2)
    assert found == whole and count > 2 and not found[-1]
    if bad:
        path.write_text(text + bad + "\n", encoding="utf-8", newline="")
        error = outcome(task, path, None)[-1]
        count, *found = outcome(task, path, 2)
        assert found[-1] == error and count > 1, "the rows before are read"


def new_task(name: str) -> Task:
    needs = any(word in name for word in ("tag", "token", "classification"))
    settings = {"classes": ("O", "B-PER")} if needs else {}
    return find_task(name)(**settings)


@pytest.mark.parametrize(
    ("file", "text", "first"),
    [
        ("a.csv", "id,text,date\n7,a,1\n,b,2\n", 2),
        ("a.jsonl", '{"id": 7, "text": "a"}\n{"text": "b", "date": 2}\n', 1),
    ],
)
def test_a_column_id_names_the_rows(
    tmp_path: Path, file: str, text: str, first: int
) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    task = find_task("classification")(("no", "yes"))
    rows = read_rows(task, RowSource(str(tmp_path / file)))
    assert list(rows) == [("7", "a", first), ("", "b", first + 1)]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("classification", {"text": "a"}),
        ("question-answering", QUESTIONS[0]),
        ("multiple-choice", CHOICES[0]),
        ("reranking", {"query": "q", "document": "d"}),
        ("token-classification", {"words": ["Ann", "met"]}),
        ("translation", {"source": "a"}),
    ],
)
def test_another_column_may_name_the_rows(
    tmp_path: Path, name: str, row: dict[str, Any]
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(lines_of([{**row, "number": n} for n in (5, 6)]), encoding="utf-8")

    def names(column: str) -> list[str | None]:
        source = RowSource(str(path), {"id": column})
        return [name for name, *_ in read_rows(new_task(name), source)]

    assert names("number") == ["5", "6"]
    with pytest.raises(DataError, match="has no column `no` of ids"):
        names("no")
