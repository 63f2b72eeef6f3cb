"""Files of a model for other engines, as far as no engine is needed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import tensorflow as tf

from bert_keras.models.engine_graph import EngineGraph
from bert_keras.models.model_file import _mended_openvino
from bert_keras.tasks.classification import Classification


def test_the_exporter_of_onnx_finds_no_layers(make_model: Any) -> None:
    """It would trace each function of each layer that it finds."""
    model = make_model(Classification(("ham", "spam")))
    graph = EngineGraph(model, with_weights=True)
    found = list(tf.train.TrackableView(graph).descendants())
    layers = {id(layer) for layer in model._flatten_layers()}
    assert layers and not layers & {id(each) for each in found}


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
