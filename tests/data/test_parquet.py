"""Parquet and Arrow files are read like the same rows in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROWS, refused

from bert_keras.data import large_files
from bert_keras.data.squad import read_questions, read_squad
from bert_keras.data.table import as_columns, read_columns, stream_columns
from bert_keras.data.tagged import read_tagged
from bert_keras.data.text_column import TextColumn
from bert_keras.errors import NoRowsError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")
ROLES = {"text": "text", "label": "label"}


ENDINGS = ["parquet", "arrow", "feather", "stream.arrow", "saved"]


def write(path: Path, **columns: list[Any]) -> str:
    return write_table(path, pyarrow.table(columns))


def write_table(path: Path, table: Any) -> str:
    """Write a table in the format of the path's ending."""
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    elif path.suffix == ".feather":
        feather.write_feather(table, str(path), compression="lz4")
    elif path.suffix == ".saved":  # as `datasets` does
        path.mkdir()
        names = ["data-0.arrow", "data-1.arrow"]
        state = {"_data_files": [{"filename": name} for name in names]}
        (path / "state.json").write_text(json.dumps(state))
        for name, part in zip(names, (table[:1], table[1:]), strict=True):
            with pyarrow.ipc.new_stream(path / name, table.schema) as writer:
                writer.write_table(part)
    else:
        new = pyarrow.ipc.new_stream if ".stream" in path.name else pyarrow.ipc.new_file
        with new(path, table.schema) as writer:
            writer.write_table(table)
    return str(path)


@pytest.fixture(params=ENDINGS)
def file(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    texts, labels = zip(*ROWS, strict=True)
    path = tmp_path / f"rows.{request.param}"
    return write(path, text=list(texts), label=list(labels))


def test_columns_are_those_of_a_table(file: str) -> None:
    found = read_columns(file, ROLES)
    assert list(zip(found["text"], found["label"], strict=True)) == ROWS
    assert (found.path, found.lines) == (file, list(range(1, len(ROWS) + 1)))
    assert as_columns(file)["text"] == found["text"]
    assert as_columns(file, body="text")["body"] == found["text"]


def test_a_large_file_is_read_in_parts(file: str) -> None:
    parts = list(stream_columns(file, ROLES, rows_at_once=5))
    saved = [1, 5, 5, 1]
    assert [len(part) for part in parts] == (saved if "saved" in file else [5, 5, 2])
    assert [line for part in parts for line in part.lines] == list(range(1, 13))
    assert [text for part in parts for text in part["text"]] == [t for t, _ in ROWS]


def test_a_large_file_is_like_a_small_one(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = read_columns(file, ROLES)
    monkeypatch.setattr(large_files, "LEAST_BYTES", 0)
    held = pyarrow.total_allocated_bytes()
    found = read_columns(file, ROLES)
    assert isinstance(found["text"], TextColumn)
    if "arrow" in file or "saved" in file:  # mapped
        assert pyarrow.total_allocated_bytes() == held
    assert [*found["text"]] == small["text"] and [*found.lines] == [*small.lines]
    assert found.indices("label", sorted(set(small["label"]))).tolist() == (
        small.indices("label", sorted(set(small["label"]))).tolist()
    )


@pytest.mark.parametrize("ending", ENDINGS)
def test_names_of_classes_that_datasets_writes(tmp_path: Path, ending: str) -> None:
    classes = {"names": ["O", "B-x"], "_type": "ClassLabel"}
    features = {"label": classes, "tags": {"feature": classes, "_type": "Sequence"}}
    stored = {"huggingface": json.dumps({"info": {"features": features}})}
    cells = {"text": ["a b", "c"], "label": [1, 0], "tags": [[1, 0], [1]]}
    table = pyarrow.table(cells).replace_schema_metadata(stored)
    path = write_table(tmp_path / f"a.{ending}", table)
    assert read_columns(path, ROLES)["label"] == ["B-x", "O"]
    assert read_tagged(path, columns={"label": "tags"})["label"] == [
        ["B-x", "O"],
        ["B-x"],
    ]
    labels = [cell for part in stream_columns(path, ROLES) for cell in part["label"]]
    assert labels == as_columns(table)["label"] == ["B-x", "O"]


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
    kind = "a Parquet" if "parquet" in file else "an Arrow"
    refused(lambda: read_columns(file, {"text": 0}), f"of {kind} file have names")
    broken = tmp_path / "broken.x"
    broken = broken.with_suffix(Path(file).suffix)
    if broken.suffix == ".saved":
        broken.mkdir()
        (broken / "state.json").write_text("{}")
        refused(lambda: read_columns(str(broken), ROLES), f"{broken}: must name its")
    else:
        broken.write_text("text,label\n")
        refused(lambda: read_columns(str(broken), ROLES), f"{broken}: cannot be read: ")
        missing = str(tmp_path / f"missing{broken.suffix}")
        refused(lambda: read_columns(missing, ROLES), f"{missing}: cannot be read: ")
    empty = write(tmp_path / f"empty{broken.suffix}", text=[], label=[])
    with pytest.raises(NoRowsError, match="has no rows"):
        read_columns(empty, ROLES)
