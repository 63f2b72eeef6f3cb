"""Tables in memory: every kind that `as_columns` accepts, and its errors."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow
import pytest
import tensorflow as tf
from conftest import refused, write_tsv

from bert_keras.data.columns import Columns
from bert_keras.data.memory import rows_in_memory
from bert_keras.data.row_source import RowSource
from bert_keras.data.table import as_columns
from bert_keras.tasks import find_task
from bert_keras.training.data import labelled_rows


def rows_as_read(
    task: Any, data: Any, *, columns: Any = None, name: str = "data"
) -> Columns:
    """Return the rows of data, as a task reads them to train."""
    return labelled_rows(task, RowSource(data, columns or {}), name=name)


TEXTS = ["win cash", "lunch", "see you"]
LABELS = [1, 0, 1]
TABLE = {"text": TEXTS, "label": LABELS}
WANTED = {"text": TEXTS, "label": ["1", "0", "1"]}


class Frame:
    """What pandas and polars have in common."""

    def __init__(self, table: dict[Any, list[Any]], columns: Any = None) -> None:
        self.columns = list(table) if columns is None else columns
        self._table = table

    def __getitem__(self, name: Any) -> Any:
        return np.array(self._table[name], dtype=object)

    def to_dict(self, orient: str = "dict") -> Any:
        raise AssertionError("not needed")


class Series:
    """A column of polars or Arrow, whose own cells are not plain values."""

    def __init__(self, cells: list[Any]) -> None:
        self._cells = cells

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Any]:
        return iter([object()] * len(self))

    def to_list(self) -> list[Any]:
        return self._cells


class Arrow:
    """What a table and a record batch of Arrow have in common."""

    def __init__(self, table: dict[str, list[Any]], names: Any = None) -> None:
        self.column_names = list(table) if names is None else names
        self._table = table

    def to_pydict(self) -> dict[str, list[Any]]:
        return self._table


class Interchanged:
    """A table of a library that has Arrow's interface alone."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(schema)


class DataSet:
    """A data set of `datasets`, with the names of its classes."""

    def __init__(self, table: dict[str, list[Any]], **classes: list[str]) -> None:
        self.column_names = list(table)
        self.features = {name: SimpleNamespace() for name in table}
        for name, names in classes.items():
            of_list = isinstance(table[name][0], list)
            one = SimpleNamespace(names=names)
            self.features[name] = SimpleNamespace(feature=one) if of_list else one
        self._table = table

    def to_dict(self) -> dict[str, list[Any]]:
        return self._table


def tensors(**options: Any) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices({**TABLE, **options})


@pytest.mark.parametrize(
    "data",
    [
        TABLE,
        {"text": tuple(TEXTS), "label": np.array(LABELS)},
        {"text": np.array(TEXTS), "label": np.array(LABELS, "uint8")},
        {"text": [text.encode() for text in TEXTS], "label": ["1", "0", "1"]},
        {"text": Series(TEXTS), "label": Series(LABELS)},
        {"text": tf.constant(TEXTS), "label": tf.constant(LABELS)},
        [dict(zip(TABLE, row, strict=True)) for row in zip(TEXTS, LABELS, strict=True)],
        Frame(TABLE),
        Arrow(TABLE),
        Interchanged(pyarrow.table(TABLE)),
        DataSet(TABLE),
        DataSet({"text": TEXTS, "label": LABELS}, label=["0", "1"]),
        tensors(),
        tensors().batch(2),
        tensors().filter(lambda row: True),  # of unknown size
        tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)),
        tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(2),
        tf.data.Dataset.from_tensor_slices(({"text": TEXTS}, LABELS)),
        as_columns(text=TEXTS, label=LABELS),
    ],
    ids=lambda data: type(data).__name__,
)
def test_tables_in_memory(data: Any) -> None:
    columns = as_columns(data)
    assert columns.cells == WANTED and columns.lines == [1, 2, 3]
    task = find_task("classification")
    assert rows_as_read(task, data).cells == WANTED
    assert task.from_columns(columns).targets(columns).tolist() == [1, 0, 1]


def test_lists_are_the_cells_of_their_roles() -> None:
    assert as_columns(text=np.array(TEXTS), label=np.array(LABELS)).cells == WANTED
    labels = as_columns(label=[1.5, np.float32(0.1), True, np.False_])["label"]
    assert labels == ["1.5", "0.1", "true", "false"]
    assert as_columns(label=[Decimal("1.50"), Decimal(2)])["label"] == ["1.50", "2"]
    assert as_columns(label=np.array([0.1], "float32"))["label"] == ["0.1"]
    assert as_columns(label=Series([["x"], []]))["label"] == [["x"], []]
    assert as_columns(answers=[[("a", np.int64(3))]])["answers"] == [[["a", 3]]]
    refused(lambda: as_columns(), "`data`")
    refused(lambda: as_columns(text="win"), "`text` must be a list of cells", "'win'")
    refused(lambda: as_columns(text=5), "`text` must be a list of cells")


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a"])
def test_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    between = "," if name == "a.csv" else "\t"
    rows = [list(TABLE), *zip(TEXTS, map(str, LABELS), strict=True)]
    text = "".join(between.join(row) + "\n" for row in rows)
    if name == "a.jsonl":
        pairs = zip(TEXTS, LABELS, strict=True)
        text = "".join(json.dumps({"text": t, "label": n}) + "\n" for t, n in pairs)
    path.write_text(text)
    for given in (path, str(path)):
        assert as_columns(given).cells == WANTED
        chosen = as_columns(given, text="text", label="label")
        assert chosen.cells == WANTED and chosen.path == str(path)


def test_files_of_other_layouts(tmp_path: Path) -> None:
    tagged = tmp_path / "a.conll"
    tagged.write_text("Ann B-PER\nmet O\n\n")
    assert as_columns(tagged)["text"] == [["Ann", "met"]]
    squad = tmp_path / "a.json"
    answers = [{"text": "six", "answer_start": 3}]
    asked = [{"id": "x", "question": "When?", "answers": answers}]
    paragraphs = [{"context": "at six", "qas": asked}]
    squad.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    assert as_columns(squad)["answers"] == [[("six", 3)]]


def test_columns_are_chosen_by_role() -> None:
    table = {"body": TEXTS, "kind": LABELS, "notes": [None, "", "x"]}
    for data in (table, Frame(table), as_columns({"body": TEXTS, "kind": LABELS})):
        assert as_columns(data, text="body", label="kind").cells == WANTED
    columns = {"text": "body", "label": "kind"}
    task = find_task("classification")
    assert rows_as_read(task, table, columns=columns).cells == WANTED
    dates = {"when": [date(2020, 1, 1)], "body": ["a"]}
    for read in (lambda: as_columns(dates, text="when"), lambda: as_columns(**dates)):
        refused(read, "rows in memory:1:", "must be text", "received a date")
    assert as_columns(dates, text="body")["text"] == as_columns(dates)["body"]
    named = as_columns(Frame({0: TEXTS, 1: LABELS}), text="0", label="1")
    assert named.cells == WANTED
    pairs = tf.data.Dataset.from_tensor_slices(((TEXTS, TEXTS[::-1]), LABELS))
    assert as_columns(pairs)["text_pair"] == TEXTS[::-1]


def test_class_names_replace_their_numbers() -> None:
    data = DataSet(TABLE, label=["ham", "spam"])
    assert as_columns(data)["label"] == ["spam", "ham", "spam"]
    unlabeled = DataSet({"text": TEXTS, "label": [1, -1, 0]}, label=["ham", "spam"])
    assert as_columns(unlabeled)["label"] == ["spam", "-1", "ham"]


class NAType:
    """The value of an empty cell in pandas."""


@pytest.mark.parametrize("nothing", [None, float("nan"), np.nan, NAType()])
def test_missing_cells_are_named(nothing: Any) -> None:
    table = {"text": ["a", nothing, "b"], "label": [0, 1, 0]}
    task = find_task("classification")
    for read in (as_columns, lambda data: rows_as_read(task, data)):
        refused(lambda read=read: read(table), "rows in memory:2: `text`", "is missing")
    # A column that is not requested may hold anything.
    more = {**TABLE, "more": ["x", nothing, object()]}
    assert rows_as_read(task, more).cells == WANTED


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda: iter([]), ["`train` must be a path, a DataFrame", "list_iterator"]),
        (lambda: 5, ["received int"]),
        (lambda: None, ["received NoneType"]),
        (lambda: ["a", "b"], ["received list"]),
        (lambda: {}, ["received dict"]),
        (lambda: pyarrow.chunked_array([["a"]]), ["received pyarrow.lib.ChunkedArray"]),
        (lambda: np.zeros([2, 2]), ["received numpy.ndarray"]),
        (lambda: {"train": Frame(TABLE), "test": Frame(TABLE)}, ["of train, test"]),
        (lambda: [], ["contain no rows"]),
        (lambda: {"text": [], "label": []}, ["contain no rows"]),
        (lambda: {"text": ["a"], "label": [1, 2]}, ["`text` 1, `label` 2"]),
        (lambda: {"text": ["a"]}, ["no column `label`", "they have `text`"]),
        (lambda: {"text": ["a"], "label": [object()]}, [":1:", "received a object"]),
        (lambda: {"text": [" "], "label": [1]}, [":1:", "is empty"]),
        (lambda: {"text": [b"\xff"], "label": [1]}, [":1:", "UTF-8", "0xff"]),
        (lambda: {"text": ["a"], "label": [10**5000]}, [":1:", "too many digits"]),
        (lambda: Frame(TABLE, ["text", "text"]), ["one column `text`"]),
        (lambda: Arrow(TABLE, ["text", "text"]), ["one column `text`"]),
        (lambda: tensors().repeat(), ["finite", "infinite"]),
        (lambda: tf.data.Dataset.from_tensors((1, 2, 3)), ["tuples of 3"]),
        (lambda: "missing.tsv", ["missing.tsv: no such file"]),
    ],
)
def test_what_is_rejected(make: Callable[[], Any], parts: list[str]) -> None:
    task = find_task("classification")
    refused(lambda: rows_as_read(task, make(), name="train"), *parts)


def test_a_column_that_is_missing_is_named() -> None:
    message = refused(lambda: as_columns(TABLE, text="body"), "`body`", "`text`")
    assert "name it" in message
    task = find_task("classification")
    refused(lambda: task.from_columns(as_columns(text=TEXTS)), "`label` is missing")
    refused(lambda: rows_as_read(task, TABLE, columns={"text": 0}), "received 0")


def rows_of(name: str, data: Any, **columns: str) -> Columns:
    return rows_as_read(find_task(name), data, columns=columns)


def test_tags_of_words() -> None:
    words, tags = [["Ann", "met"], ["Bo"]], [["B-PER", "O"], ["B-PER"]]
    wanted = {"text": words, "label": tags}
    arrays = [np.array(each) for each in words]
    numbers = DataSet({"text": words, "label": [[1, 0], [1]]}, label=["O", "B-PER"])
    for data in (
        wanted,
        {"text": arrays, "label": tags},
        {"text": ["Ann met", "Bo"], "label": ["B-PER O", "B-PER"]},
        numbers,
    ):
        assert rows_of("token-classification", data).cells == wanted
    named = {"tokens": words, "ner_tags": tags}
    chosen = {"text": "tokens", "label": "ner_tags"}
    assert rows_of("token-classification", named, **chosen).cells == wanted
    spans = [{"start": 0, "end": 3, "label": "PER"}]
    found = rows_of("token-classification", [{"text": "Ann met", "spans": spans}])
    assert found["label"] == [["B-PER", "O"]]
    wrong = {"text": words, "label": [["B-PER", "O"], [1]]}
    refused(lambda: rows_of("token-classification", wrong), ":2:", "tag", "'1'")
    refused(lambda: rows_of("token-classification", wanted, text="x"), "`x`")


def test_questions() -> None:
    context, name = "see you at six", "question-answering"
    asked = {"question": ["When?", "Why?"], "context": [context] * 2}
    spelled = [
        {"text": ["six"], "answer_start": [11]},
        {"text": [], "answer_start": []},
    ]
    dicts = [[{"text": "six", "answer_start": 11}], []]
    for answers in (spelled, dicts, [[("six", 11)], []]):
        found = rows_of(name, {**asked, "answers": answers})
        assert found["answers"] == [[("six", 11)], []]
        assert found["id"] == ["1", "2"]
    table = {**asked, "answers": dicts, "key": ["a", "b"]}
    assert rows_of(name, table, id="key")["id"] == ["a", "b"]
    wrong = {**asked, "answers": [[("six", "x1")], None]}
    impossible = {**table, "is_impossible": [True, np.True_]}
    refused(lambda: rows_of(name, impossible), "question '1' is marked as impossible")
    refused(lambda: rows_of(name, wrong), "question '1'", "question '2'", "answers")


def test_choices_and_labels_of_several_classes() -> None:
    table = {"context": ["a"], "choices": [["x", 2]], "label": [1]}
    assert rows_of("multiple-choice", table)["choices"] == [["x", "2"]]
    swag = {"sent1": ["a"], "sent2": ["b"], "ending0": ["x"], "ending1": ["y"]}
    swag |= {"ending2": ["z"], "ending3": ["w"], "label": [0]}
    assert rows_of("multiple-choice", swag)["choices"] == [["b x", "b y", "b z", "b w"]]
    task = find_task("multi-label")
    for labels in (["0,2", ""], [[0, 2], []], [np.array([0, 2]), []]):
        columns = rows_as_read(task, {"text": ["a", "b"], "label": labels})
        assert task.from_columns(columns).classes == ("0", "2")
    columns = as_columns(text=["a", "b"], label=[[0, 2], []])
    assert task.from_columns(columns).classes == ("0", "2")


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("regression", {"text": ["a", "b"], "label": [1, np.float64(2.5)]}),
        ("embedding", {"text": ["a", "b"], "text_pair": ["c", "d"]}),
        ("masked-lm", {"text": ["a", "b"]}),
        ("summarization", {"document": ["A. B."], "summary": ["A."]}),
        (
            "next-sentence",
            {"text": ["a"], "text_pair": ["b"], "label": ["next"]},
        ),
    ],
)
def test_other_tasks_read_tables(name: str, table: dict[str, Any]) -> None:
    task, columns = find_task(name), rows_of(name, table)
    assert len(columns) == len(table[next(iter(table))])
    task.from_columns(columns).targets(columns)


def test_a_file_and_its_frame_are_the_same_rows(tmp_path: Path) -> None:
    rows = list(zip(TEXTS, map(str, LABELS), strict=True))
    path = write_tsv(tmp_path / "a.tsv", [("text", "label"), *rows])
    task = find_task("classification")
    assert rows_as_read(task, path).cells == rows_as_read(task, Frame(TABLE)).cells
    assert list(itertools.chain(rows_in_memory(TABLE).rows()))[0] == (
        1,
        {"text": "win cash", "label": "1"},
    )
