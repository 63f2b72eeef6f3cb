"""Rows as other tools write them: what is read, what is told, what is refused.

The small files that other tools' users met are in `shared/cases/data`; each form is
also here, in own rows.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import SHARED, refused

from bert_keras.data.class_names import label_names
from bert_keras.data.duplicates import shared_rows
from bert_keras.data.table import as_columns, read_columns
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.multi_label import MultiLabel

CASES = SHARED / "cases" / "data"
Told = Callable[[], str]


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str]) -> Told:
    """Return a function that returns the notes since its last call."""
    return lambda: capfd.readouterr().err


def case(name: str) -> Path:
    if not CASES.exists():
        pytest.skip("shared/cases/data is not beside this checkout")
    return CASES / name


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


TABLE = "text{0}label\nso good{0}yes\nso, bad{0}no\n"


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a"])
def test_a_header_decides_on_the_delimiter(
    tmp_path: Path, told: Told, delimiter: str, name: str
) -> None:
    path = write(tmp_path / name, TABLE.format(delimiter))
    wanted = {"text": ["so good", "so, bad"], "label": ["yes", "no"]}
    assert Classification.read(path).cells == wanted
    assert as_columns(path).cells == wanted
    is_told = delimiter != "\t" or name.endswith(".csv")
    assert told().count("cells are separated by") == is_told


def test_text_does_not_decide_on_the_delimiter(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "good;bad\nso;so\n")
    assert read_columns(path, {"text": 0})["text"] == ["good;bad", "so;so"]
    refused(lambda: read_columns(path, {"text": 1}), "column 0 alone", "commas")
    path = write(tmp_path / "b.csv", 'text\n"a;b"\n')
    assert Classification.read(path, roles=["text"])["text"] == ["a;b"]
    path = write(tmp_path / "c.csv", "id;text,label\n1;2,3\n")
    refused(lambda: Classification.read(path), "no column `text`", "`id;text`, `label`")


@pytest.mark.parametrize(
    ("name", "data", "part"),
    [
        ("a.csv", b"PAR1\x15\x04", "Parquet file: its name must end in .parquet"),
        ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1", "Excel workbook: save it as CSV"),
        ("a.csv", b"SQLite format 3\0", "SQLite database"),
    ],
)
def test_other_formats_are_named(
    tmp_path: Path, name: str, data: bytes, part: str
) -> None:
    (tmp_path / name).write_bytes(data)
    refused(lambda: Classification.read(tmp_path / name), part)


def test_a_workbook_is_named(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "x")
        archive.writestr("xl/workbook.xml", "x")
    refused(lambda: Classification.read(tmp_path / "a.xlsx"), "an Excel workbook")


def test_western_text_is_read_and_told(tmp_path: Path, told: Told) -> None:
    rows = "".join(f"a good café number {n},yes\n" for n in range(3))
    path = write(tmp_path / "a.csv", f"text,label\n{rows}", "cp1252")
    assert Classification.read(path)["text"][0] == "a good café number 0"
    assert "byte 0xe9 is not: read as Windows-1252" in told()
    # Where some of it is UTF-8, or most is not ASCII, it is something else.
    data = path.read_bytes() + "ü,no\n".encode()
    path.write_bytes(data)
    refused(lambda: Classification.read(path), "a.csv:2", "must be UTF-8")
    path = write(tmp_path / "b.csv", "text,label\nсуп,да\nчай,нет\n", "cp1251")
    refused(lambda: Classification.read(path), "b.csv:2", "must be UTF-8")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.csv", "text,label\na,x\ntext,label\nb,y\n", 3),
        ("a.tsv", "text\tlabel\na\tx\nb\ty\nlabel\ttext\ny\tb\n", 4),
    ],
)
def test_a_header_in_the_middle(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    path = write(tmp_path / name, text)
    refused(lambda: Classification.read(path), f"{name}:{line}: is a header again")


def test_a_text_may_be_the_name_of_its_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text\ntext\n")
    assert Classification.read(path, roles=["text"])["text"] == ["text"]


def test_quotes_in_tsv_are_told(tmp_path: Path, told: Told) -> None:
    text = 'text\tlabel\n"He said ""no"""\tx\n"b\tx\n" c"\ty\n'
    path = write(tmp_path / "a.tsv", text)
    assert Classification.read(path)["text"][0] == '"He said ""no"""'
    assert (
        "rows with cells quoted as in CSV: 1" in (line := told()) and "line 2" in line
    )
    path = write(tmp_path / "b.tsv", 'text\tlabel\n"two\nlines"\tx\n')
    refused(lambda: Classification.read(path), "b.tsv:2", "several lines needs .csv")
    assert Classification.read(path.rename(tmp_path / "b.csv"))["text"] == [
        "two\nlines"
    ]


NFD = unicodedata.normalize("NFD", "café")


@pytest.mark.parametrize(
    "cells",
    [
        ["café", " café", "café\u00a0", NFD, "café "],
        ["1", "1.0", "01.0"[1:], " 1", "1.00"],
        ["True", "true", "TRUE", " True", "true"],
        ["café", "['café']", '["café"]', "('café',)", "[ 'café' ]"],
    ],
)
def test_a_class_has_one_name(cells: list[str]) -> None:
    others = {"1": "0", "T": "False"}
    other = others.get(cells[0][0], "tea")
    columns = as_columns(text=["a"] * 6, label=[*cells, other])
    task = Classification.from_columns(columns)
    assert len(task.classes) == 2
    wanted = [task.classes.index(label_names(cells)[0])] * 5
    assert task.targets(columns).tolist()[:5] == wanted
    single = [cell for cell in cells if "[" not in cell and "(" not in cell]
    assert (
        task.encode_targets(tf.constant(single)).numpy().tolist()
        == wanted[: len(single)]
    )


def test_names_that_are_not_one(tmp_path: Path) -> None:
    columns = as_columns(text=["a"] * 4, label=["4.0", "4.5", "1.10", "1.1"])
    assert set(Classification.from_columns(columns).classes) == set(columns["label"])
    columns = as_columns(text=["a", "b"], label=["['a', 'b']", "c"])
    refused(lambda: Classification.from_columns(columns), ":1: `label` must be a name")


def test_a_model_with_names_as_they_were(told: Told) -> None:
    task = Classification((" good", "True"), positive_class="good")
    columns = as_columns(text=["a", "b"], label=["good", "true"])
    assert task.targets(columns).tolist() == [0, 1]
    assert task.positive_class == " good"
    made = Classification.from_columns(columns, classes=["true ", " good"])
    assert made.classes == ("true", "good")
    numbered = as_columns(text=["a", "b"], label=[1, 0])
    assert made.targets(numbered).tolist() == [1, 0]
    assert "`label` holds the numbers of classes: 0 true, 1 good" in told()


def test_doubtful_labels_are_told() -> None:
    columns = as_columns(
        text=["a", "b", "a", "c"], label=["good", "Good", "bad", "bad"]
    )
    near, mixed = Classification.from_columns(columns).notes(columns)
    assert near.endswith("classes differ only in case or spaces: Good (1), good (1)")
    assert mixed.endswith(
        "2 rows have the texts of another row and another label: rows 1, 3"
    )
    other = as_columns(text=["x", "c"], label=["good", "bad"])
    task = Classification.from_columns(columns)
    (note,) = shared_rows(task.texts(columns), task.texts(other), other)
    assert note.endswith("1 of 2 rows is also a training row: row 2")


@pytest.mark.parametrize(
    "cell",
    [
        "['food', 'tea']",
        '["food","tea"]',
        "('food', 'tea')",
        "{'tea', 'food'}",
        "['food'\n 'tea']",
    ],
)
def test_lists_of_classes_in_cells(cell: str) -> None:
    columns = as_columns(text=["a"] * 3, label=[cell, "[]", "('food',)"])
    task = MultiLabel.from_columns(columns)
    assert task.classes == ("food", "tea")
    assert task.targets(columns).tolist() == [[1, 1], [0, 0], [1, 0]]


@pytest.mark.parametrize("cell", ["['food' 'tea'", "[food, tea]", "['food'", "'tea'"])
def test_parts_of_lists_are_no_names(cell: str) -> None:
    columns = as_columns(text=["a", "b"], label=["food", cell])
    refused(lambda: MultiLabel.from_columns(columns), ":2: `label` must be a name or a")


def test_another_separator_is_told() -> None:
    columns = as_columns(text=["a", "b"], label=["food;tea", "food"])
    (note,) = MultiLabel.from_columns(columns).notes(columns)
    assert "such as 'food;tea': if it separates names, set `separator` to ;" in note
    task = MultiLabel.from_columns(columns, separator=";")
    assert task.classes == ("food", "tea") and not task.notes(columns)


FLAGS = [
    {"comment": "a", "toxic": 1, "threat": 0},
    {"comment": "b", "toxic": 1, "threat": 1},
    {"comment": "c", "toxic": 0, "threat": 0},
]


@pytest.mark.parametrize("form", ["memory", "csv", "jsonl", "floats"])
def test_a_column_for_each_class(tmp_path: Path, form: str) -> None:
    chosen = {"text": "comment", "label": "toxic,threat"}
    source: Any = FLAGS
    if form == "csv":
        lines = [",".join(map(str, row.values())) for row in FLAGS]
        text = "\n".join([",".join(FLAGS[0]), *lines])
        source = write(tmp_path / "a.csv", text)
    elif form == "jsonl":
        source = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, FLAGS)))
    elif form == "floats":
        source = {key: [row[key] for row in FLAGS] for key in FLAGS[0]}
        source["toxic"] = np.array(source["toxic"], "float32")
    columns = MultiLabel.read(source, columns=chosen)
    task = MultiLabel.from_columns(columns)
    assert task.classes == ("threat", "toxic")
    assert task.targets(columns).tolist() == [[0, 1], [1, 1], [0, 0]]
    chosen["label"] = "toxic,comment"
    refused(lambda: MultiLabel.read(source, columns=chosen), "`comment` must be 0 or 1")


# The files of the cases.


@pytest.mark.parametrize(
    ("name", "columns", "classes"),
    [
        ("18-delimiter/semicolon.csv", {}, ("bad", "good")),
        ("19-label-spaces/train.csv", {}, ("bad", "good")),
        ("23-label-types/true.csv", {}, ("false", "true")),
        ("23-label-types/float.csv", {}, ("0", "1")),
        ("23-label-types/int.csv", {}, ("0", "1")),
        ("23-label-types/case.csv", {}, ("Bad", "Good", "bad", "good")),
        ("17-tsv-quotes/quotes_only.tsv", {}, ("bad", "good")),
    ],
)
def test_classes_of_cases(name: str, columns: Any, classes: tuple[str, ...]) -> None:
    rows = Classification.read(case(name), columns=columns)
    assert Classification.from_columns(rows).classes == classes


def test_tables_of_cases(told: Told) -> None:
    test = Classification.read(case("19-label-spaces/test.csv"))
    train = Classification.read(case("19-label-spaces/train.csv"))
    task = Classification.from_columns(train)
    assert task.targets(test).tolist() == [1, 1, 1, 0, 0, 0]
    assert shared_rows(task.texts(train), task.texts(test), test)[0].count("6 of 6")
    refused(lambda: Classification.read(case("21-two-headers/train.csv")), "csv:10: ")
    refused(lambda: Classification.read(case("24-empty/train.csv")), "line 18", "19")
    refused(lambda: Classification.read(case("17-tsv-quotes/train.tsv")), ":19", ".csv")
    at = case("18-delimiter/at.txt")
    columns = {"text": "0", "label": "1"}
    refused(lambda: Classification.read(at, columns=columns), "between tabs")
    lists = MultiLabel.read(case("16-multilabel-lists/repr.csv"))
    assert MultiLabel.from_columns(lists).classes == ("food", "service")
    flags = MultiLabel.read(
        case("16-multilabel-lists/columns.csv"),
        columns={"text": "comment", "label": "toxic,insult,threat"},
    )
    task = MultiLabel.from_columns(flags)
    assert task.targets(flags).sum(0).tolist() == [2, 1, 3]
