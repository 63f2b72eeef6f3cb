"""Explanations of every task: numbers, words, targets, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import thorough
from task_cases import cases_of, first_case

import bert_keras
from bert_keras.errors import ConfigError, DataError
from bert_keras.explanations.explainer import explain
from bert_keras.explanations.explanation import Explanation
from bert_keras.inference.predictor import Predictor
from bert_keras.inference.served_model import ServedModel
from bert_keras.tasks import TASKS

LONG = " ".join(["see you at six, win cash now"] * 3)  # two windows
# Texts for tasks that do not read one text.
ITEMS: dict[str, Any] = {
    "embedding": ("see you at six", "win cash, now"),
    "feature-tagging": ["see", "Bob", "at", "six,six"],
    "masked-lm": "see [MASK] at [MASK] éwins",
    "multiple-choice": ("see you", ["at home", "win cash now!"]),
    "next-sentence": ("see you", "at home"),
    "question-answering": ("who wins?", LONG),
    "summarization": "See you. Win cash now! Lunch at home. You at six.",
    "token-classification": "see Bob at six,six",
}
TEXT = "see you at SIX; unwinnable!"


@pytest.fixture(autouse=True, scope="module")
def eager(spam_model: Any) -> Iterator[None]:
    """Tracing takes longer than what is computed here; training is traced."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def log_odds(p: float) -> float:
    return math.log(p / (1 - p))


def expected(name: str, answer: Any) -> list[float]:
    """Return the numbers that `predict` implies."""
    if name == "multi-label":
        return [log_odds(answer["probabilities"][each]) for each in answer["labels"]]
    if name in ("classification", "multiple-choice"):
        return [log_odds(answer["score"])]
    if name == "next-sentence":
        return [abs(log_odds(answer["probability"]))]
    if name == "regression":
        return [answer["score"]]
    if name == "embedding":
        return [answer["similarity"]]
    if name == "masked-lm":
        return [log_odds(each[0]["probability"]) for each in answer["masks"]]
    if name == "summarization":
        return [log_odds(each["score"]) for each in answer["sentences"]]
    return []


def ranges(explanation: Explanation) -> None:
    """Check that each word is where it says."""
    for word in explanation.words:
        text = explanation.texts[word.role]
        assert text[word.start : word.end] == word.text != ""


WRITERS = ("abstractive-summarization", "translation")


@pytest.mark.parametrize("name", [thorough(WRITERS[0]), WRITERS[1]])
@pytest.mark.slow
def test_tasks_that_write_are_refused(
    name: str, make_model: Callable[..., Any]
) -> None:
    model = make_model(first_case(name).task)
    with pytest.raises(ConfigError, match=f"the task {name} cannot be explained"):
        explain(model, [TEXT])


# Of these the targets of an explanation differ: a class, a tag, a span, a word.
OFTEN = "classification token-classification question-answering masked-lm".split()
EXPLAINED = [
    name if name in OFTEN else thorough(name)
    for name in sorted(set(TASKS) - set(WRITERS))
]


@pytest.mark.parametrize("name", EXPLAINED)
@pytest.mark.slow
def test_each_task_is_explained(name: str, make_model: Callable[..., Any]) -> None:
    model = make_model(first_case(name).task)
    found = explain(model, [ITEMS.get(name, TEXT)], steps=20)[0]
    assert found.targets and found.words
    assert found.attributions.shape == (len(found.targets), len(found.words))
    assert found.gaps.max() < 0.01
    changes = found.values - found.baseline_values
    np.testing.assert_allclose(found.attributions.sum(1), changes, atol=2e-3)
    np.testing.assert_allclose(
        found.values, expected(name, found.answer) or found.values, atol=1e-4
    )
    assert np.abs(found.attributions).max() > 1e-3
    ranges(found)
    if name not in ("token-classification", "question-answering", "summarization"):
        assert (np.abs(found.attributions).max(0) > 0).all()  # nothing is cut


@pytest.mark.slow
def test_the_words_that_are_cut_count_nothing(spam_model: Any) -> None:
    found = explain(spam_model, ["you win " * 20])[0]
    there = np.abs(found.attributions[0]) > 0
    assert there.tolist() == [True] * 22 + [False] * 18  # 24 tokens with specials


def test_another_class_is_explained(spam_model: Any) -> None:
    text = ["free cash prize, lunch at home"]
    spam, promo = (
        explain(spam_model, text, target=name)[0] for name in ("spam", "promo")
    )
    both = explain(spam_model, text, target="spam", against="promo")[0]
    assert both.targets == ("spam",) and both.against == ("promo",)
    p = spam.answer["probabilities"]
    wanted = math.log(p["spam"] / p["promo"])
    assert both.values[0] == pytest.approx(wanted, abs=1e-3)
    assert promo.values[0] == pytest.approx(log_odds(p["promo"]), abs=1e-3)
    assert dict(spam.top(2)).keys() != dict(both.top(0)).keys()


@pytest.mark.slow
def test_the_choice_and_its_rival(make_model: Callable[..., Any]) -> None:
    model = make_model(cases_of("multiple-choice")["counts"].task)
    item = ITEMS["multiple-choice"]
    one = explain(model, [item], target="0", against="1", method="occlusion")[0]
    other = explain(model, [item], target="1", against="0", method="occlusion")[0]
    np.testing.assert_allclose(one.attributions, -other.attributions, atol=1e-5)
    roles = [word.role for word in one.words]
    assert roles == ["context"] * 2 + ["choice 0"] * 2 + ["choice 1"] * 4


@pytest.mark.thorough
def test_a_span_of_choice_is_explained(make_model: Callable[..., Any]) -> None:
    model = make_model(first_case("question-answering").task)
    found = explain(model, [("who?", LONG)], target="win cash", method="occlusion")[0]
    assert found.targets == ("start of 'win cash'", "end of 'win cash'")
    none = explain(model, [("who?", LONG)], target="", method="occlusion")[0]
    assert none.targets == ("no answer, start", "no answer, end")


@pytest.mark.thorough
def test_an_entity_that_was_not_found_is_explained(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(first_case("token-classification").task)
    found = explain(model, [LONG], target="time", against="deal", method="occlusion")[0]
    assert found.targets and all(name.startswith("time: ") for name in found.targets)


@pytest.mark.parametrize("method", ["gradient-input", "occlusion", "shapley"])
@pytest.mark.slow
def test_other_methods(spam_model: Any, method: str) -> None:
    found = explain(spam_model, ["free cash prize!"], method=method)[0]
    assert found.attributions.shape == (1, 4)
    if method == "shapley":
        assert found.gaps[0] == pytest.approx(0, abs=1e-4)
    else:
        assert np.isnan(found.gaps[0])


def test_baselines_differ(spam_model: Any) -> None:
    pad, mask = (
        explain(spam_model, ["free cash"], baseline=each)[0] for each in ("pad", "mask")
    )
    assert pad.values[0] == pytest.approx(mask.values[0])
    assert pad.baseline_values[0] != pytest.approx(mask.baseline_values[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "magic"}, "`method` must be one of integrated-gradients"),
        ({"target": "eggs"}, "`target` must be one of ham, promo, spam; .*'eggs'"),
        (
            {"target": "spam", "against": "spam"},
            "`against` must differ from the answer",
        ),
        ({"baseline": "zero"}, "`baseline` must be one of pad, mask"),
        ({"steps": 0}, "`steps` must be a whole number from 1"),
        ({"method": "occlusion", "steps": 3}, "`steps` must be left out for occlusion"),
    ],
)
def test_wrong_settings_are_refused(
    spam_model: Any, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        explain(spam_model, ["see you"], **changes)


def test_models_without_gradients_are_refused(
    make_model: Callable[..., Any], spam_model: Any
) -> None:
    exported = Predictor.__new__(Predictor)
    exported.model = ServedModel.__new__(ServedModel)
    with pytest.raises(ConfigError, match="received an export"):
        explain(exported, ["see you"])
    half = make_model(spam_model.task, dtype="mixed_bfloat16")
    with pytest.raises(ConfigError, match="float32; received bfloat16"):
        explain(half, ["see you"])


def test_a_single_text_has_no_similarity(make_model: Callable[..., Any]) -> None:
    from bert_keras.tasks.embedding import Embedding

    model = make_model(Embedding())
    with pytest.raises(DataError, match="a pair of strings"):
        explain(model, ["see you"])
    assert len(explain(model, [])) == 0


def test_a_task_of_ones_own_is_explained_by_its_largest_output(
    make_model: Callable[..., Any], spam_model: Any
) -> None:
    import dataclasses

    from bert_keras.tasks.base import Task
    from bert_keras.tasks.multi_label import MultiLabel

    @dataclasses.dataclass(frozen=True)
    class Own(Task):
        name = "own"
        columns = {"text": "text"}
        best_score = "none"

        def targets(self, columns: Any) -> Any:
            return None

        def outputs(self, encoder: Any, inputs: Any, seed: Any) -> Any:
            return MultiLabel(("a", "b")).outputs(encoder, inputs, seed)

        def loss(self) -> Any:
            return None

        def answer(self, outputs: Any, batch: Any) -> Any:
            return {"own": outputs}

        def score(self, columns: Any, answers: Any) -> Any:
            return {}

    found = explain(make_model(Own()), ["win cash"], method="occlusion")[0]
    best = int(np.argmax(found.answer["own"]))
    assert found.targets == (f"output {best}",) and found.unit == "value"
    assert found.values[0] == pytest.approx(found.answer["own"][best], abs=1e-5)


def test_pages_and_json_hold_the_words(
    spam_model: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("bert_keras.runs.progress._SECONDS_BETWEEN_LINES", -1.0)
    texts = ["free <b>cash</b> & now", ""]
    found = explain(Predictor(spam_model), texts, method="occlusion")
    count = len(texts)
    assert f"explanations: {count} of {count} texts" in capsys.readouterr().err
    page = found.write(tmp_path / "page.html", title="Why").read_text("utf-8")
    assert "<title>Why</title>" in page and "default-src 'none'" in page
    assert "<b>cash" not in page and "cash</span>" in page
    notebook = found._repr_html_()
    assert "cash</span>" in notebook and "<html" not in notebook
    lines = found.write(tmp_path / "page.jsonl").read_text("utf-8").splitlines()
    first = json.loads(lines[0])
    assert len(lines) == 2 and first["texts"] == {"text": texts[0]}
    values = [word["attribution"] for word in first["targets"][0]["words"]]
    np.testing.assert_allclose(values, found[0].attributions[0], rtol=1e-6)
    with pytest.raises(DataError, match="cannot be written"):
        found.write(tmp_path / "missing" / "page.html")


def test_the_public_name_is_a_function() -> None:
    assert bert_keras.explain is explain


def test_where_reading_ends_is_marked(spam_model: Any, tmp_path: Path) -> None:
    long = " ".join(f"see you at {name}" for name in "abcdefghij")
    short, found = explain(spam_model, [TEXT, long], method="gradient-input")
    assert short.read_to == {}
    # 24 tokens are [CLS], 22 words of 40, and [SEP].
    assert long[: found.read_to["text"]].split() == long.split()[:22]
    bert_keras.explain(spam_model, [long], method="gradient-input").write(
        tmp_path / "page.html"
    )
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("⟨ reading ended here ⟩") == 1
    assert "at f see you at g" in page.split("⟨ reading ended here ⟩")[1]
    assert found.to_dict()["read_to"] == dict(found.read_to)
