"""Weights as constants: equal answers, updated when they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROWS

from bert_keras.answering.frozen_weights import (
    FrozenWeights,
    _Constants,
    gains_by_freezing,
)
from bert_keras.inference.predictor import Predictor
from bert_keras.tasks.classification import Classification

TEXTS = [text for text, _ in ROWS]
TASK = Classification(("ham", "spam", "promo"))


@pytest.fixture(scope="module")
def bfloat16_model(make_model: Callable[..., Any]) -> Any:
    return make_model(TASK, dtype="mixed_bfloat16")


def scores(predictor: Predictor) -> np.ndarray:
    answers = predictor.predict(TEXTS)
    return np.array([list(answer["probabilities"].values()) for answer in answers])


def frozen_answer(model: Any) -> Callable[..., Any]:
    weights = FrozenWeights(model)

    def answer(texts: Any) -> Any:
        with weights.scope():
            return model.answer(texts)

    return answer


def graph_of(function: Any) -> Any:
    signature = tf.TensorSpec([None], tf.string)
    traced = tf.function(function, input_signature=[signature], autograph=False)
    return traced.get_concrete_function()


def test_frozen_weights_in_float32_answers_as_the_model_does(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(TASK)
    texts = tf.constant(TEXTS)
    frozen = graph_of(frozen_answer(model))(texts)
    plain = graph_of(model.answer)(texts)
    assert set(frozen) == set(plain)
    for name in ("score", "probabilities"):
        np.testing.assert_allclose(frozen[name], plain[name], atol=1e-5)


def test_a_frozen_graph_reads_no_variable(bfloat16_model: Any) -> None:
    def weights(function: Any) -> set[int]:
        used = {id(variable) for variable in graph_of(function).graph.variables}
        return used & {id(weight.value) for weight in bfloat16_model.weights}

    assert not weights(frozen_answer(bfloat16_model))
    assert weights(bfloat16_model.answer)


def test_the_constants_of_a_loop_are_outside_of_its_body() -> None:
    positive = keras.initializers.RandomUniform(0.1, 1.0)  # no sum is near 0
    dense = keras.layers.Dense(2, use_bias=False, kernel_initializer=positive)
    dense.build((None, 2))
    values = {id(weight): weight.value.read_value() for weight in dense.weights}

    @tf.function(input_signature=[tf.TensorSpec([1, 2])], autograph=False)
    def run(x: Any) -> Any:
        def body(step: Any, x: Any) -> Any:
            return step + 1, dense(x)

        with _Constants(values, {}):
            return tf.while_loop(lambda step, x: step < 3, body, (0, x))[1]

    functions = run.get_concrete_function().graph.as_graph_def().library.function
    (body,) = (each for each in functions if "while_body" in each.signature.name)
    assert not [node for node in body.node_def if "Call" in node.op]
    x = np.array([[1, 2]], "float32")
    wanted = x @ np.linalg.matrix_power(dense.kernel.numpy(), 3)
    np.testing.assert_allclose(run(x), wanted, rtol=1e-5)


def test_bfloat16_is_frozen_and_float32_is_not(
    make_model: Callable[..., Any], bfloat16_model: Any
) -> None:
    assert gains_by_freezing(bfloat16_model)
    assert not gains_by_freezing(make_model(TASK))


@pytest.mark.slow
def test_frozen_answers_in_bfloat16_are_those_of_variables(bfloat16_model: Any) -> None:
    frozen = scores(Predictor(bfloat16_model))
    plain = scores(Predictor(bfloat16_model, freeze=False))
    np.testing.assert_allclose(frozen, plain, atol=1e-2)


@pytest.mark.thorough
def test_changed_weights_are_frozen_again(make_model: Callable[..., Any]) -> None:
    model = make_model(TASK, dtype="mixed_bfloat16")
    predictor = Predictor(model)
    before = scores(predictor)
    model.compile(loss=TASK.loss(), optimizer="adam")
    model.fit(TEXTS, [label for _, label in ROWS], epochs=2, verbose=0)
    trained = scores(predictor)
    assert abs(trained - before).max() > 1e-3
    np.testing.assert_allclose(trained, scores(Predictor(model)), atol=1e-6)
    bias = next(w for w in model.weights if w.path == "classifier/bias")
    bias.assign([0.0, 30.0, 0.0])
    assert scores(predictor)[:, 1].min() > 0.99


def test_unchanged_weights_keep_their_graphs(bfloat16_model: Any) -> None:
    predictor = Predictor(bfloat16_model)
    scores(predictor)
    graphs = predictor.answering._answer
    scores(predictor)
    assert predictor.answering._answer is graphs
