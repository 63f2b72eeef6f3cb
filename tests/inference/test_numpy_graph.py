"""Answers of a task's graph, computed by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.inference.numpy_graph import _NumpyGraph, in_numpy
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.protocols import answer
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.reranking import Reranking

NAMES = ("a", "b", "ü")
VARIABLE = tf.Variable([1.0, 2.0, 3.0])
TASKS = {
    "classification": Classification(NAMES),
    "abstaining": Classification(NAMES, abstain_below=0.6, temperature=2.0),
    "multi-label": MultiLabel(NAMES, thresholds=(0.3, 0.5, 0.6)),
    "regression": Regression(mean=3.0, std=0.5),
    "reranking": Reranking(),
    "embedding": Embedding(),
    "shorter embedding": Embedding(truncate_dim=2),
}


def concrete(function: Any, units: int = 3) -> Any:
    spec = tf.TensorSpec([None, units], tf.float32)
    made = tf.function(function, input_signature=[spec], autograph=False)
    return made.get_concrete_function()


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("rows", [1, 40])
def test_answers_equal_those_of_tensorflow(name: str, rows: int) -> None:
    task = TASKS[name]
    graph = concrete(
        lambda outputs: answer(task, outputs, {}),
        1 if isinstance(task, Regression) else len(NAMES),
    )
    computed = in_numpy(graph)
    assert isinstance(computed, _NumpyGraph)
    outputs = 9 * np.random.default_rng(rows).normal(
        size=(rows, *graph.inputs[0].shape[1:])
    )
    outputs = outputs.astype("float32")
    outputs[0] *= 50  # far beyond where a sigmoid is 0 or 1
    found, wanted = computed(outputs), graph(tf.constant(outputs))
    assert set(found) == set(wanted)
    for key, value in wanted.items():
        assert found[key].dtype == value.numpy().dtype
        if value.dtype == tf.float32:
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-7)
        else:
            np.testing.assert_array_equal(found[key], value)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: {"y": tf.math.erf(x)},
        lambda x: {"y": tf.gather(x, [1], axis=0)},
        lambda x: {"y": x[..., 0]},
        lambda x: {"y": x + VARIABLE},
    ],
)
def test_tensorflow_computes_what_numpy_does_not_have(function: Any) -> None:
    graph = concrete(function)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    np.testing.assert_allclose(in_numpy(graph)(x)["y"], graph(tf.constant(x))["y"])
