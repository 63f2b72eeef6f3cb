"""Answers to files: whole or not at all, JSONL, CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
import os
import resource
from pathlib import Path
from typing import Any

import pytest
from conftest import refused
from pyarrow import parquet

from bert_keras.cli.main import main
from bert_keras.files import filesystems
from bert_keras.files.answer_file import answers_to, check_answer_file

ROWS: list[dict[str, Any]] = [
    {"text": 'a "quoted", text\nof two lines', "score": 0.5, "classes": ["é", "b"]},
    {"text": "", "score": 1.0, "classes": []},
]


def test_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with answers_to(str(path)) as write:
        for row in ROWS:
            write(row)
        assert not path.exists()
    assert [json.loads(line) for line in path.read_text("utf-8").splitlines()] == ROWS


def test_a_table_with_json_in_its_cells(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with answers_to(str(path)) as write:
        for row in ROWS:
            write(row)
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["text"] for row in found] == [row["text"] for row in ROWS]
    assert [json.loads(row["classes"]) for row in found] == [["é", "b"], []]
    assert [float(row["score"]) for row in found] == [0.5, 1.0]


@pytest.mark.parametrize("where", ["here", "memory"])
def test_rows_of_parquet(where: str, tmp_path: Path) -> None:
    path = (
        "memory://answers/a.parquet" if where == "memory" else f"{tmp_path}/a.parquet"
    )
    rows = [*ROWS, {"text": "b", "score": 1, "classes": None, "reason": "none"}]
    with answers_to(path) as write:
        for row in rows:
            write(row)
    file = io.BytesIO(filesystems.read(path) or b"")
    found = parquet.read_table(file).to_pylist()
    assert found == [{"reason": None, **row} for row in rows]
    with answers_to(path):
        pass
    assert not parquet.read_table(io.BytesIO(filesystems.read(path) or b"")).num_rows

    def write_all() -> None:
        with answers_to(path) as write:
            write({"score": "high"})
            write({"score": [1.0]})

    refused(write_all, f"{path}: cannot be written")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_an_old_file_stays_if_something_fails(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("old")
    with pytest.raises(RuntimeError), answers_to(str(path)) as write:
        write(ROWS[0])
        raise RuntimeError
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [name]


def test_what_a_killed_command_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".a.csv-x").mkdir()
    (tmp_path / ".a.csv-x" / "a.csv").write_text("half")
    (tmp_path / ".a.csv-x.writing").touch()
    with answers_to(str(tmp_path / "a.csv")) as write:
        write(ROWS[0])
    assert os.listdir(tmp_path) == ["a.csv"]


def test_a_full_disk(tmp_path: Path) -> None:
    path = str(tmp_path / "a.jsonl")

    def write_all() -> None:
        with answers_to(path) as write:
            write({"text": "a" * 10_000})

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        refused(write_all, f"{path}: cannot be written: File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not os.listdir(tmp_path)


def test_where_answers_cannot_go(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.touch()
    given = {"model": "m", "input": str(rows)}
    check_answer_file(None, given)
    check_answer_file(str(tmp_path / "new.csv"), given)
    refused(lambda: check_answer_file("a.txt", given), "`--output` must end in .jsonl")
    refused(lambda: check_answer_file("no/such/a.csv", given), "a folder that exists")
    refused(lambda: check_answer_file(str(rows), given), "`output`")


def test_the_verb_writes_the_answers_that_it_prints(
    spam_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", str(spam_folder), "win cash", "see you", "--quiet"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert main([*words, "--output", str(tmp_path / "a.jsonl")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "a.jsonl").read_text("utf-8") == printed
