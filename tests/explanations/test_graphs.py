"""Graphs that calls of `explain` share: traced once, current, and not in the way."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.explanations.explainer import explain
from bert_keras.explanations.graphs import Graphs, graphs_of
from bert_keras.tasks.classification import Classification

TEXTS = ["see you at six", "win cash now!"]


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Any]) -> Any:
    return make_model(Classification(("ham", "spam")), layout="padded")


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the names of the functions traced so far, without the tokenizer's.

    Its graph is that of all models with this vocabulary.
    """
    found: list[str] = []
    function = tf.function

    def counted(python_function: Any, **settings: Any) -> Any:
        def traced(*args: Any) -> Any:
            name = getattr(python_function, "func", python_function).__name__
            found.extend({name} - {"tokenize"})
            return python_function(*args)

        return function(traced, **settings)

    monkeypatch.setattr(tf, "function", counted)
    yield found


@pytest.mark.slow
def test_a_second_call_traces_nothing_and_sees_changed_weights(
    model: Any, traces: list[str]
) -> None:
    first = explain(model, TEXTS, steps=2)
    assert sorted(traces) == ["answer", "both"]
    again = explain(graphs_of(model).predictor, TEXTS, steps=2, target="spam")
    explain(model, ["a text of another length"], method="occlusion", baseline="mask")
    explain(model, TEXTS, steps=2, against="ham", target="spam")
    assert sorted(traces) == ["answer", "both", "lengths", "value"]
    head = model.trainable_weights[-1]
    before = head.numpy()
    head.assign(before + [0.0, 1.0])
    changed = explain(model, TEXTS, steps=2, target="spam")
    head.assign(before)
    assert sorted(traces) == ["answer", "both", "lengths", "value"]
    np.testing.assert_allclose(
        [each.values[0] for each in changed],
        [each.values[0] + 1 for each in again],
        atol=1e-4,
    )
    assert changed[0].answer != first[0].answer


def test_other_variables_and_settings_have_their_own_graphs(
    make_model: Callable[..., Any],
) -> None:
    made = make_model(Classification(("ham", "spam")))
    first = graphs_of(made)
    assert graphs_of(made) is first
    made.preprocessor = made.preprocessor.replace(max_length=8)
    shorter = graphs_of(made)
    assert shorter is not first and graphs_of(made) is shorter
    made.task = Classification(("ham", "spam"), temperature=2.0)
    cooler = graphs_of(made)
    assert cooler is not shorter
    made.backbone.enable_lora(2)
    assert graphs_of(made) is not cooler


@pytest.mark.slow
def test_graphs_neither_outlive_their_model_nor_are_saved(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    made = make_model(Classification(("ham", "spam")), layout="padded")
    explain(made, TEXTS, method="occlusion")
    made.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not any(isinstance(each, Graphs) for each in vars(loaded).values())
    seen = [
        weakref.ref(made),
        weakref.ref(made.weights[0]),
        weakref.ref(graphs_of(made)),
    ]
    del made
    gc.collect()
    assert [each() for each in seen] == [None] * 3
