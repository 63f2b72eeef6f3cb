"""Files of a model for other engines, as far as no engine is needed."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bert_keras.models.engine_graph import EngineGraph
from bert_keras.tasks.classification import Classification


def test_the_exporter_of_onnx_finds_no_layers(make_model: Any) -> None:
    """It would trace each function of each layer that it finds."""
    model = make_model(Classification(("ham", "spam")))
    graph = EngineGraph(model, with_weights=True)
    found = list(tf.train.TrackableView(graph).descendants())
    layers = {id(layer) for layer in model._flatten_layers()}
    assert layers and not layers & {id(each) for each in found}
