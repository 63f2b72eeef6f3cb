"""What people pass as texts: the right answers, or one line, for every task."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused
from task_cases import first_case

from bert_keras.data.items import as_items, as_strings, is_blank
from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import Predictor
from bert_keras.retrieval.embedder import embed, load_embedder
from bert_keras.retrieval.index import SearchIndex, search
from bert_keras.tasks import TASKS
from bert_keras.tasks.protocols import input_specs, texts_of
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training.evaluation import evaluate

CASES = {name: first_case(name) for name in TASKS}
PAIR = (("text", "text_pair"), ("text_a", "text_b"))


class Series:
    """What pandas.Series has of use here."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def to_list(self) -> list[Any]:
        return self._values


class Frame:
    """What pandas.DataFrame has of use here."""

    def __init__(self, table: dict[str, list[Any]]) -> None:
        self._table = table
        self.columns = Series(list(table)).to_list()

    def __getitem__(self, column: str) -> Series:
        return Series(self._table[column])

    def __len__(self) -> int:
        return len(next(iter(self._table.values())))

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)  # the names: never used as texts


class Arrow:
    """What pyarrow.Table has of use here."""

    def __init__(self, table: dict[str, list[Any]]) -> None:
        self._table = table
        self.column_names = list(table)
        self.columns = list(table.values())

    def __getitem__(self, column: str) -> list[Any]:
        if not isinstance(column, str):
            raise TypeError("Index must either be string or integer")
        return self._table[column]

    def __len__(self) -> int:
        return len(self.columns[0])


class LazyFrame:
    """What polars.LazyFrame has of use here."""

    columns = ("text",)

    def __getitem__(self, column: str) -> list[Any]:
        raise TypeError("'LazyFrame' object is not subscriptable")


@pytest.mark.parametrize(
    "given",
    [
        ["a", "é"],
        ("a", "é"),
        (text for text in ("a", "é")),
        iter(["a", "é"]),
        {"a": 1, "é": 2}.keys(),
        np.array(["a", "é"]),
        np.array(["a", "é"], object),
        np.array([b"a", "é".encode()]),
        [np.str_("a"), np.str_("é")],
        [b"a", "é".encode()],
        [np.array("a"), tf.constant("é")],
        tf.constant(["a", "é"]),
        tf.data.Dataset.from_tensor_slices(["a", "é"]),
        Series(["a", "é"]),
        Frame({"label": ["x", "y"], "text": ["a", "é"]}),
        Arrow({"label": ["x", "y"], "text": ["a", "é"]}),
        {"text": ["a", "é"], "label": [0, 1]},
        {"text": tf.constant(["a", "é"])},
        [{"text": "a", "label": 0}, {"text": "é"}],
        as_columns(text=["a", "é"]),
    ],
)
def test_one_string_per_row(given: Any) -> None:
    assert as_strings(given) == ["a", "é"]


@pytest.mark.parametrize(
    "given",
    [
        [("a", "b"), ["c", "d"]],
        (("a", "b"), ("c", "d")),
        zip(["a", "c"], ["b", "d"], strict=True),
        np.array([["a", "b"], ["c", "d"]]),
        tf.constant([["a", "b"], ["c", "d"]]),
        tf.ragged.constant([["a", "b"], ["c", "d"]]),
        tf.data.Dataset.from_tensor_slices((["a", "c"], ["b", "d"])),
        {"text": ["a", "c"], "text_pair": ["b", "d"]},
        {"text_b": ["b", "d"], "text_a": ["a", "c"]},
        Frame({"text_pair": ["b", "d"], "text": ["a", "c"]}),
        [{"text": "a", "text_pair": "b"}, {"text_a": "c", "text_b": "d"}],
    ],
    ids=lambda given: type(given).__name__,
)
def test_pairs(given: Any) -> None:
    assert [tuple(row) for row in as_items(given, PAIR)] == [("a", "b"), ("c", "d")]


def test_two_columns_are_not_two_rows() -> None:
    for column in (list, np.array, tf.constant):
        columns = (column(["a", "b"]), column(["c", "d"]))
        refused(lambda columns=columns: as_items(columns, PAIR), "zip(*texts)")


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("one text", "a list of strings; received 'one text'"),
        (np.str_("one text"), "received 'one text'"),
        (b"bytes", "received b'bytes'"),
        (np.array("one text"), "a list of strings"),
        (tf.constant("one text"), "a list of strings"),
        (None, "received None"),
        (7, "received 7"),
        ({"a"}, "received {'a'}"),
        ({"text": "a"}, "`texts['text']` must be a list of strings; received 'a'"),
        ({"texts": ["a"]}, "the columns text; received texts"),
        ({}, "the columns text; received none"),
        ([{"words": "a"}], "must have text; received {'words': 'a'} at index 0"),
        ([b"\xff"], "must be UTF-8; received b'\\xff' at index 0"),
        (["a", None], "None at index 1"),
        (["a", float("nan")], "nan at index 1"),
        (np.array([1, 2]), "received 1 at index 0"),
        ([["a"]], "at index 0"),
        ({"text": [None]}, "at index 0"),
        ({"text": Frame({"text": ["a"]})}, "`texts['text']` must be a list of strings"),
        (LazyFrame(), "must be a list of strings"),
    ],
)
def test_what_is_rejected(given: Any, part: str) -> None:
    refused(lambda: as_strings(given), "`texts", part)


def test_columns_of_two_lengths() -> None:
    table = {"text": ["a"], "text_pair": ["b", "c"]}
    refused(lambda: as_items(table, PAIR), "one length", "text 1, text_pair 2")


# Every task.


@functools.cache
def predictor_of(make_model: Callable[..., Any], name: str) -> Predictor:
    return Predictor(make_model(CASES[name].task))


@pytest.fixture(params=TASKS)
def asked(
    request: pytest.FixtureRequest, make_model: Callable[..., Any]
) -> tuple[Predictor, tuple[list[Any], ...]]:
    """Return the predictor of a task, untrained, and a list of texts for each role."""
    case = CASES[request.param]
    parts = tuple(part[:3] for part in texts_of(case.task, case.columns))
    return predictor_of(make_model, request.param), parts


@pytest.mark.slow
def test_every_task_accepts_common_inputs(asked: Any) -> None:
    predictor, parts = asked
    roles = predictor.model.task.roles
    names = [spec.name for spec in input_specs(predictor.model.task)["serving_default"]]
    items = list(zip(*parts, strict=True)) if len(parts) > 1 else parts[0]
    wanted = predictor.predict(items)
    assert len(wanted) == 3
    table = dict(zip(roles, parts, strict=True))
    for given in (
        (item for item in items),
        table,
        Frame(table),
        dict(zip(names, parts, strict=True)),
        [dict(zip(roles, row, strict=True)) for row in zip(*parts, strict=True)],
        tuple(items),
    ):
        assert predictor.predict(given) == wanted
    encoded = tf.nest.map_structure(lambda text: text.encode(), items)
    assert predictor.predict(encoded) == wanted
    assert predictor.predict([]) == predictor.predict(iter([])) == []


def test_every_task_rejects_other_inputs_in_one_line(asked: Any) -> None:
    predictor, parts = asked
    roles = predictor.model.task.roles
    for given in ("a", b"a", None, 3, [None], [3], {roles[0]: "a"}, [{}], {"a"}):
        refused(lambda given=given: predictor.predict(given), "`texts", "received")


@pytest.mark.slow
def test_embed_and_search_accept_the_same_inputs(encoder_folder: Any) -> None:
    predictor = load_embedder(encoder_folder)
    vectors = embed(predictor, ["win cash", "lunch"])
    again = embed(predictor, (text for text in ("win cash", "lunch")))
    np.testing.assert_array_equal(vectors, again)
    made = SearchIndex.of(
        predictor, iter(["win cash", "lunch"]), lines=np.array([4, 7])
    )
    assert [row["line"] for row in made(iter(["lunch"]))[0]] == [7, 4]
    refused(lambda: embed(predictor, "win"), "`texts`", "'win'")
    refused(lambda: SearchIndex.of(predictor, "win"), "`texts`", "'win'")
    refused(lambda: made([None]), "`queries`", "at index 0")
    refused(lambda: search(predictor, ["win"], ["a"]), "`query`", "at index 0")  # type: ignore[arg-type]
    refused(lambda: SearchIndex(predictor, ["a"], vectors[:1], lines=[1, 2]), "`lines`")


def test_evaluate_names_the_accepted_inputs(spam_model: Any, spam_folder: Any) -> None:
    columns = as_columns(text=["a"], label=["ham"])
    wrong: Any
    for wrong, part in (("no.tsv", "no.tsv"), (None, "`data`"), (7, "`data`")):
        refused(lambda wrong=wrong: evaluate(Predictor(spam_model), wrong), part)
    refused(lambda: evaluate(spam_folder, columns), "what `load_predictor` returns")


@pytest.mark.parametrize("size", [0, 2.5, "8", None, True])
def test_a_batch_size_is_a_whole_number(spam_model: Any, size: Any) -> None:
    refused(
        lambda: Predictor(spam_model).predict(["a"], batch_size=size), "`batch_size`"
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "\u3000\xa0",
        "\u200b\ufeff",
        "\x00\x1b",
        "\ufffd\ue000",
        " a",
        "\u0378",
    ],
)
def test_a_blank_text_has_no_tokens(text: str) -> None:
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    assert is_blank(text) == (not tokenizer(text).numpy().size)
