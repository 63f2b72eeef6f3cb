"""Parquet files are read like the same rows in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROWS, refused

from bert_keras.data.squad import read_questions, read_squad
from bert_keras.data.table import as_columns, read_columns, stream_columns
from bert_keras.data.tagged import read_tagged
from bert_keras.errors import NoRowsError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
ROLES = {"text": "text", "label": "label"}


def write(path: Path, **columns: list[Any]) -> str:
    parquet.write_table(pyarrow.table(columns), path)
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    texts, labels = zip(*ROWS, strict=True)
    return write(tmp_path / "rows.parquet", text=list(texts), label=list(labels))


def test_columns_are_those_of_a_table(file: str) -> None:
    found = read_columns(file, ROLES)
    assert list(zip(found["text"], found["label"], strict=True)) == ROWS
    assert (found.path, found.lines) == (file, list(range(1, len(ROWS) + 1)))
    assert as_columns(file)["text"] == found["text"]
    assert as_columns(file, body="text")["body"] == found["text"]


def test_a_large_file_is_read_in_parts(file: str) -> None:
    parts = list(stream_columns(file, ROLES, rows_at_once=5))
    assert [len(part) for part in parts] == [5, 5, 2]
    assert [line for part in parts for line in part.lines] == list(range(1, 13))
    assert [text for part in parts for text in part["text"]] == [t for t, _ in ROWS]


def test_names_of_classes_that_datasets_writes(tmp_path: Path) -> None:
    classes = {"names": ["O", "B-x"], "_type": "ClassLabel"}
    features = {"label": classes, "tags": {"feature": classes, "_type": "Sequence"}}
    stored = {"huggingface": json.dumps({"info": {"features": features}})}
    cells = {"text": ["a b", "c"], "label": [1, 0], "tags": [[1, 0], [1]]}
    path = str(tmp_path / "a.parquet")
    table = pyarrow.table(cells).replace_schema_metadata(stored)
    parquet.write_table(table, path)
    assert read_columns(path, ROLES)["label"] == ["B-x", "O"]
    assert read_tagged(path, columns={"label": "tags"})["label"] == [
        ["B-x", "O"],
        ["B-x"],
    ]
    (part,) = stream_columns(path, ROLES)
    assert part["label"] == as_columns(table)["label"] == ["B-x", "O"]


def test_numbers_words_and_questions(tmp_path: Path) -> None:
    path = write(tmp_path / "n.parquet", text=["a", "b"], label=[1, 2.5])
    assert read_columns(path, ROLES)["label"] == ["1.0", "2.5"]
    path = write(tmp_path / "w.parquet", text=[["a", "b"]], label=[["O", "B-x"]])
    assert read_tagged(path)["label"] == [["O", "B-x"]]
    answers = [{"text": ["b"], "answer_start": [2]}]
    given: dict[str, Any] = {"question": ["q"], "context": ["a b"], "answers": answers}
    path = write(tmp_path / "q.parquet", **given)
    assert read_squad(path, columns={})["answers"] == [[("b", 2)]]
    assert read_questions(path) is None


def test_what_is_wrong_is_told_by_file_and_row(file: str, tmp_path: Path) -> None:
    path = write(tmp_path / "bad.parquet", text=["a", None], label=["x", "y"])
    refused(lambda: read_columns(path, ROLES), f"{path}:2: `text`", "is missing")
    refused(lambda: list(stream_columns(path, ROLES, rows_at_once=1)), f"{path}")
    wanted = {"text": "body"}
    refused(lambda: read_columns(file, wanted), f"{file}: has no column `body`")
    refused(lambda: read_columns(file, {"text": 0}), "of a Parquet file have names")
    broken = tmp_path / "broken.parquet"
    broken.write_text("text,label\n")
    refused(lambda: read_columns(str(broken), ROLES), f"{broken}: cannot be read: ")
    missing = tmp_path / "missing.parquet"
    refused(lambda: read_columns(str(missing), ROLES), f"{missing}: cannot be read: No")
    empty = write(tmp_path / "empty.parquet", text=[], label=[])
    with pytest.raises(NoRowsError, match="has no rows"):
        read_columns(empty, ROLES)
