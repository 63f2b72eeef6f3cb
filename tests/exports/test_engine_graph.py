"""Files of a model for other engines, as far as no engine is needed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.exports.engine_files import NAMES
from bert_keras.exports.engine_graph import EngineGraph
from bert_keras.exports.model_file import _mended_openvino
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding


def test_the_exporter_of_onnx_finds_no_layers(make_model: Any) -> None:
    """It would trace each function of each layer that it finds."""
    model = make_model(Classification(("ham", "spam")))
    graph = EngineGraph(model, with_weights=True)
    found = list(tf.train.TrackableView(graph).descendants())
    layers = {id(layer) for layer in model._flatten_layers()}
    assert layers and not layers & {id(each) for each in found}


def test_a_vector_is_shortened_in_the_graph(make_model: Any) -> None:
    model = make_model(Embedding(dimensions=(8, 4), truncate_dim=4))
    texts = tf.constant(["win cash now", "see you"])
    wanted = model.answer(texts)["embedding"]
    batch = model.task.features(model.preprocessor.replace(layout="padded"), texts)
    graph = EngineGraph(model)
    named = graph({NAMES[name]: batch[name] for name in NAMES})
    shape = graph.outputs_by_name()["sentence_embedding"].shape
    assert shape == (None, 4)
    np.testing.assert_allclose(named["sentence_embedding"], wanted, atol=1e-6)
    again = model.task.answer(model.task.from_named(named, batch), batch)
    np.testing.assert_allclose(again["embedding"], wanted, atol=1e-6)


def test_openvino_converts_on_python_3_13(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its `exec("del tensorflow")` raises there (PEP 667)."""

    def fails(framework: str) -> dict[str, str]:
        raise NameError("name 'tensorflow' is not defined")

    *parents, utils = [
        ModuleType(".".join("openvino.frontend.tensorflow.utils".split(".")[:n]))
        for n in range(1, 5)
    ]
    for module in (*parents, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    utils.get_environment_setup = fails  # type: ignore[attr-defined]
    with _mended_openvino("onnx"):
        assert utils.get_environment_setup is fails
    with _mended_openvino("openvino"):
        assert utils.get_environment_setup("tf")["tensorflow"] == tf.__version__
    assert utils.get_environment_setup is fails
