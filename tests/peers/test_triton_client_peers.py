"""The Open Inference Protocol, asked by the unmodified `tritonclient`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tritonclient")
pytest.importorskip("starlette")

from bert_keras.inference.predictor import load_predictor
from bert_keras.models.model_folder import save_model
from bert_keras.serving import Server
from bert_keras.serving.config import ServeConfig

TEXTS = ["win cash now", "it rains", "see you at six", "日本"]


@pytest.fixture(scope="module")
def served(make_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return a running server and the model folder that it serves."""
    from bert_keras.tasks.classification import Classification

    model = make_model(Classification(classes=("a", "b", "c")))
    folder = tmp_path_factory.mktemp("served") / "letters"
    save_model(model, folder)
    config = ServeConfig(port=0, grpc_port=0)
    with Server([str(folder)], config=config, is_quiet=True).running() as server:
        yield server, folder


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tritonclient_with_its_defaults(served: Any, protocol: str) -> None:
    server, folder = served
    module = pytest.importorskip(f"tritonclient.{protocol}")
    address = (
        server.grpc_address if protocol == "grpc" else server.url[len("http://") :]
    )
    with module.InferenceServerClient(address) as client:
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready("letters")
        options = {"as_json": True} if protocol == "grpc" else {}
        about = client.get_model_metadata("letters", **options)
        assert [each["name"] for each in about["inputs"]] == ["text"]
        text = module.InferInput("text", [len(TEXTS)], "BYTES")
        text.set_data_from_numpy(np.array(TEXTS, object))
        found = client.infer("letters", [text])
        named = client.infer(
            "letters", [text], outputs=[module.InferRequestedOutput("label")]
        )
        with pytest.raises(Exception, match="`shape` of text"):
            wrong = module.InferInput("text", [2, 2], "BYTES")
            wrong.set_data_from_numpy(np.array(TEXTS, object).reshape(2, 2))
            client.infer("letters", [wrong])
        with pytest.raises(Exception, match="`text` must not be empty"):
            blank = module.InferInput("text", [2], "BYTES")
            blank.set_data_from_numpy(np.array(["a", ""], object))
            client.infer("letters", [blank])
    expected = load_predictor(folder).predict(TEXTS)
    labels = [each.decode() for each in found.as_numpy("label")]
    assert labels == [each["label"] for each in expected]
    assert labels == [each.decode() for each in named.as_numpy("label")]
    assert named.as_numpy("probabilities") is None
    wanted = [list(each["probabilities"].values()) for each in expected]
    np.testing.assert_allclose(found.as_numpy("probabilities"), wanted, atol=1e-6)
