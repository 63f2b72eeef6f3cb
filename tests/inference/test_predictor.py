"""Prediction: answers in order, whatever the batches, and clear words for misuse."""

from __future__ import annotations

import concurrent.futures
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROWS, refused

from bert_keras.answering import answer_graphs
from bert_keras.answering.answer_graphs import AnswerGraphs
from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import Predictor, _cuts, joined, load_predictor
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding

TEXTS = ["free cash prize", "", "lunch at six", "é 日本 🎉", "sale " * 40]


@pytest.fixture(scope="module")
def predictor(spam_model: Any) -> Predictor:
    return Predictor(spam_model)


@pytest.fixture(scope="module")
def pair_predictor(pair_model: Any) -> Predictor:
    return Predictor(pair_model)


def test_one_answer_per_text(predictor: Predictor) -> None:
    rows = predictor.predict(TEXTS)
    assert len(rows) == len(TEXTS)
    for row in rows:
        assert set(row["probabilities"]) == {"ham", "promo", "spam"}
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-6)
        assert row["score"] == max(row["probabilities"].values())
        assert row["probabilities"][row["label"]] == row["score"]


def test_a_trained_model_knows_its_training_rows(predictor: Predictor) -> None:
    rows = predictor.predict([text for text, _ in ROWS])
    assert [row["label"] for row in rows] == [label for _, label in ROWS]


@pytest.mark.parametrize("batch_size", [2, 64])
def test_the_batch_size_does_not_matter(predictor: Predictor, batch_size: int) -> None:
    columns = as_columns(text=TEXTS)
    wanted = predictor.model.answer(TEXTS)["probabilities"]
    found = predictor.answers(columns, batch_size=batch_size)["probabilities"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_batch_holds_texts_of_one_length(predictor: Predictor) -> None:
    cases = (str, str.upper, str.capitalize, str.title)
    texts = [case(text) for case in cases for text, _ in ROWS]
    seen = []
    graphs = AnswerGraphs(predictor.model)
    compute = graphs._answer[(1,)]()

    def watch(strings: Any) -> Any:
        seen.append([text.decode() for text in strings.numpy()])
        return compute(strings)

    watched = Predictor(predictor.model)
    watched.answering._answer = {(1,): lambda: watch}
    rows = watched.predict(texts, batch_size=8)
    assert rows == predictor.predict(texts, batch_size=8)
    sizes = {
        frozenset(predictor.model.preprocessor.lengths(batch)[0].numpy())
        for batch in seen
    }
    assert sorted(sum(seen, [])) == sorted(texts)
    assert all(max(some) - min(some) <= 3 for some in sizes)


def test_a_batch_has_few_tokens(predictor: Predictor) -> None:
    texts = [text for text, _ in ROWS]
    wanted = [row["score"] for row in predictor.predict(texts)]
    found = predictor.predict(texts, max_batch_tokens=20)
    assert [row["score"] for row in found] == pytest.approx(wanted, abs=1e-5)


def test_batches_are_limited_by_texts_and_tokens() -> None:
    lengths = np.array([30, 6, 5, 3, 2, 2])  # the longest first
    assert _cuts(lengths, 4, None) == [(0, 4), (4, 6)]
    # 3 x 3 tokens fit into 10, 2 x 6 do not; 30 alone do not either.
    assert _cuts(lengths, 9, 10) == [(0, 1), (1, 2), (2, 4), (4, 6)]
    assert _cuts(lengths, 2, 12) == [(0, 1), (1, 3), (3, 5), (5, 6)]
    # Two batches at a time, so that none is computed alone at the end.
    assert _cuts(lengths, 9, None) == [(0, 3), (3, 6)]
    assert _cuts(lengths[:5], 2, None) == [(0, 2), (2, 4), (4, 5)]
    assert _cuts(lengths[:0], 2, 12) == []


def test_short_texts_need_no_lengths(predictor: Predictor) -> None:
    class Unmeasured(AnswerGraphs):
        def measure(self, *given: Any, **more: Any) -> Any:
            raise NotImplementedError

    unmeasured = Predictor(predictor.model)
    unmeasured.answering = Unmeasured(predictor.model)
    assert len(unmeasured.predict(["free cash", "see you"])) == 2
    for texts, size in ((["a", "b"], 1), (["one of " * 4], 32)):
        with pytest.raises(NotImplementedError):
            unmeasured.predict(texts, batch_size=size)


def test_one_call_for_one_batch_traces_nothing(spam_model: Any) -> None:
    traced = []

    def counted(*texts: Any) -> Any:
        traced.append(tf.inside_function())
        return answer(*texts)

    predictor = Predictor(spam_model)
    answering: Any = predictor.answering
    answer, answering._function = answering._function, counted
    predictor.answer_once_without_graph()
    found = [predictor.predict(["win cash"])[0]["score"] for _ in range(3)]
    assert traced == [False]
    assert found[0] == pytest.approx(found[1], abs=1e-5) and found[1] == found[2]
    predictor = Predictor(spam_model)
    predictor.answer_once_without_graph()
    predictor.predict(TEXTS, batch_size=2)  # several batches have a graph
    assert predictor._untraced == 1


def test_threads_wait_for_one_graph(spam_model: Any, monkeypatch: Any) -> None:
    made, trace = [], answer_graphs.traced

    def traced(*given: Any) -> Any:
        made.append(given)
        return trace(*given)

    monkeypatch.setattr(answer_graphs, "traced", traced)
    graphs = AnswerGraphs(spam_model)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        answers = [*pool.map(lambda _: graphs.answer((["win cash"],)), range(3))]
    assert len(made) == 1
    assert len({answer["label"][0] for answer in answers}) == 1


def test_answers_of_different_lengths_are_padded() -> None:
    parts = [
        {"name": np.array([[b"a"]], object), "start": np.array([[4]])},
        {"name": np.array([[b"b", b"c"]], object), "start": np.array([[5, 6]])},
    ]
    found = joined(parts)
    assert found["name"].tolist() == [[b"a", b""], [b"b", b"c"]]
    assert found["start"].tolist() == [[4, -1], [5, 6]]


def test_no_texts_have_no_answers(predictor: Predictor) -> None:
    assert predictor.predict([]) == []


def test_pairs_may_be_tuples_or_lists(pair_predictor: Predictor) -> None:
    pairs = [("free cash", "cash"), ("see you", "")]
    rows = pair_predictor.predict(pairs)
    assert [row["label"] in ("different", "same") for row in rows] == [True, True]
    assert pair_predictor.predict([list(pair) for pair in pairs]) == rows


def test_the_order_within_a_pair_matters(pair_predictor: Predictor) -> None:
    first, second = pair_predictor.predict([("win cash", "home"), ("home", "win cash")])
    assert abs(first["score"] - second["score"]) > 1e-4


@pytest.mark.parametrize(
    ("texts", "part"),
    [
        ("one text", "a list of strings"),
        (["a", None], "None at index 1"),
        ([3], "received 3 at index 0"),
        (["a", ("b", "c")], "at index 1"),
        ([["a"]], "['a'] at index 0"),
        ([b"no UTF-8: \xff"], "must be UTF-8"),
    ],
)
def test_inputs_that_are_not_lists_of_strings(
    predictor: Predictor, texts: Any, part: str
) -> None:
    refused(lambda: predictor.predict(texts), "`texts`", part)


def test_pairs_for_a_model_of_single_texts(predictor: Predictor) -> None:
    refused(lambda: predictor.predict([("a", "b")]), "`texts`", "a string")


@pytest.mark.parametrize("text", ["a", ("a",), ("a", "b", "c"), ("a", 1)])
def test_inputs_that_are_not_pairs_for_a_model_of_pairs(
    pair_predictor: Predictor, text: Any
) -> None:
    refused(lambda: pair_predictor.predict([text]), "`texts`", "a pair of strings")


@pytest.mark.thorough
def test_many_predictors_cause_no_warning(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[Any] = []
    monkeypatch.setattr(tf.get_logger(), "warning", lambda *said: warnings.append(said))
    monkeypatch.setattr(tf.get_logger(), "handle", warnings.append)
    for _ in range(6):
        Predictor(predictor.model).predict(["a text"] * 3, batch_size=2)
    assert not warnings


def test_a_batch_size_of_zero(predictor: Predictor) -> None:
    refused(lambda: predictor.predict(["a"], batch_size=0), "`batch_size`", "0")


def test_a_token_limit_of_zero(predictor: Predictor) -> None:
    refused(lambda: predictor.predict(TEXTS, max_batch_tokens=0), "max_batch_tokens")


def test_a_lone_surrogate_is_dropped(predictor: Predictor) -> None:
    with_half, without = predictor.predict(["free \ud800cash", "free cash"])
    assert with_half["label"] == without["label"]
    assert with_half["score"] == pytest.approx(without["score"], abs=1e-6)


@pytest.mark.parametrize(
    "precision",
    ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.slow)],
)
@pytest.mark.slow
def test_half_precision_is_near(
    predictor: Predictor, spam_folder: Path, precision: str
) -> None:
    half = load_predictor(spam_folder, precision=precision).predict(TEXTS)
    for found, wanted in zip(half, predictor.predict(TEXTS), strict=True):
        for name, probability in wanted["probabilities"].items():
            assert found["probabilities"][name] == pytest.approx(probability, abs=0.05)


def test_an_unknown_precision(spam_folder: Path) -> None:
    refused(
        lambda: load_predictor(spam_folder, precision="float8"), "precision", "float8"
    )


@dataclasses.dataclass(frozen=True)
class Shouted(Classification):
    """A custom task that is scored on other texts than it answers."""

    name = "shouted"

    def respond(
        self, texts: Any, preprocessor: Any, run: Any, *, scored: bool = False
    ) -> dict[str, Any]:
        if scored:
            texts = tf.fill(tf.shape(texts), "win cash now")
        batch = self.features(preprocessor, texts)
        return self.answer(run(batch), batch)


@pytest.mark.slow
def test_a_task_may_be_scored_on_other_texts(
    spam_model: Any, make_model: Callable[..., Any]
) -> None:
    model = make_model(Shouted(spam_model.task.classes))
    for mine, trained in zip(model.weights, spam_model.weights, strict=True):
        mine.assign(trained)
    predictor = Predictor(model)
    columns = as_columns(text=["see you at six", "lunch at home"], label=["ham"] * 2)
    found = predictor.answers(columns)["label"].tolist()
    assert found == [b"spam", b"spam"]
    assert [row["label"] for row in predictor.predict(columns)] == ["ham", "ham"]


def test_rows_of_several_texts_are_counted_once(make_model: Callable[..., Any]) -> None:
    """Of 140 pairs, 224 were scored."""
    predictor, seen = Predictor(make_model(Embedding())), []
    columns = as_columns(text=list("abcde"), text_pair=list("fghij"))
    for size in (3, 32):
        seen.clear()
        predictor.answers(columns, batch_size=size, seen=seen.append)
        assert sum(seen) == 5 and min(seen) >= 0


def test_answers_that_are_not_finite_are_reported(
    make_model: Callable[..., Any], spam_model: Any
) -> None:
    model = make_model(spam_model.task)
    kernel = model.get_layer("classifier").kernel
    kernel.assign(np.full(kernel.shape, 3e38, "float32"))
    predictor = Predictor(model)
    line = refused(lambda: predictor.predict(["win " * 99]), "not finite", "'win win")
    assert len(line) < 300
    columns = as_columns(text=["win cash"], label=["ham"])
    refused(lambda: predictor.answers(columns), "`score`", "1 of 1 texts", "'win cash'")


def test_long_texts_are_tokenized_a_few_at_a_time() -> None:
    from bert_keras.answering.answering import rows_together

    long, short = "x" * (3 << 20), "y" * (1 << 19)
    texts = [short, short, long, short, long, long, ""]
    found = [[*rows] for rows in rows_together((texts,), most=32)]
    assert found == [[0, 1, 2], [3, 4], [5, 6]]
    assert not [*rows_together(([],), most=32)]
