"""Tables of the libraries themselves, if they are installed."""

from __future__ import annotations

import pytest

from bert_keras.data.items import as_strings
from bert_keras.data.row_source import RowSource
from bert_keras.data.table import as_columns
from bert_keras.tasks import find_task
from bert_keras.training.data import labelled_rows

TABLE = {"text": ["win cash", "lunch", "é日"], "label": [1, 0, 1]}
WANTED = {"text": TABLE["text"], "label": ["1", "0", "1"]}


def test_arrow() -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table(TABLE)
    words = table["label"].cast(arrow.string()).dictionary_encode()
    encoded = table.set_column(1, "label", words)
    for data in (table, table.to_batches()[0], encoded):
        assert as_columns(data).cells == WANTED
        assert (
            labelled_rows(find_task("classification"), RowSource(data)).cells == WANTED
        )
        assert as_strings(data) == TABLE["text"]
    columns = {name: table[name] for name in TABLE}
    assert as_columns(columns).cells == WANTED
    lists = arrow.table({"text": [["Ann", "met"]], "label": [["B-x", "O"]]})
    tags = labelled_rows(find_task("token-classification"), RowSource(lists))
    assert tags["label"] == [["B-x", "O"]]
    answers = [[{"text": "six", "answer_start": 3}], []]
    asked = {"question": ["When?"] * 2, "context": ["at six"] * 2, "answers": answers}
    found = labelled_rows(
        find_task("question-answering"), RowSource(arrow.table(asked))
    )
    assert found["answers"] == [[("six", 3)], []]


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TABLE)
    typed = frame.convert_dtypes()
    for data in (frame, typed, frame.astype({"label": "category"}), frame[::-1][::-1]):
        assert as_columns(data).cells == WANTED
        assert as_strings(data) == TABLE["text"]


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(TABLE)
    assert as_columns(frame).cells == WANTED
    assert as_strings(frame) == TABLE["text"]
    lists = polars.DataFrame({"text": ["a", "b"], "label": [["x", "y"], ["x"]]})
    found = labelled_rows(find_task("multi-label"), RowSource(lists))
    assert found["label"] == ['["x", "y"]', '["x"]']


@pytest.mark.parametrize("version", ["plain", "classes", "numpy"])
def test_datasets(version: str) -> None:
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict(TABLE)
    if version == "classes":
        data = data.cast_column("label", datasets.ClassLabel(names=["0", "1"]))
    if version == "numpy":
        data = data.with_format("numpy")
    assert as_columns(data).cells == WANTED
