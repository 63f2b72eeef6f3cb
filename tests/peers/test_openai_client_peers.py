"""`serve`, asked by the unmodified clients of OpenAI and of Hugging Face."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette")

from bert_keras.inference.predictor import Predictor
from bert_keras.models.model_folder import save_model
from bert_keras.serving import Server
from bert_keras.serving.config import ServeConfig
from bert_keras.tasks.embedding import Embedding

openai = pytest.importorskip("openai")
TEXTS = ["free cash prize", "lunch at six", "日本"]


@pytest.fixture(scope="module")
def served(
    make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, np.ndarray]]:
    """Return the address of a running server, and the vectors of TEXTS."""
    folder = tmp_path_factory.mktemp("served") / "vectors"
    model = make_model(Embedding())
    save_model(model, folder)
    rows = Predictor(model).predict(TEXTS)
    config = ServeConfig(port=0, no_grpc=True)
    with Server([str(folder)], config=config, is_quiet=True).running() as server:
        yield server.url, np.array([row["embedding"] for row in rows])


def test_the_client_of_openai(served: tuple[str, np.ndarray]) -> None:
    url, wanted = served
    with openai.OpenAI(base_url=f"{url}/v1", api_key="any") as client:
        assert [each.id for each in client.models.list()] == ["vectors"]
        # By default the client asks for base64.
        found = client.embeddings.create(model="vectors", input=TEXTS)
        np.testing.assert_allclose(
            [each.embedding for each in found.data], wanted, atol=1e-5
        )
        assert found.usage.total_tokens > 0
        short = client.embeddings.create(
            model="vectors", input=TEXTS[0], dimensions=8, encoding_format="float"
        )
        assert len(short.data[0].embedding) == 8
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="other", input="a")


def test_the_client_of_hugging_face(served: tuple[str, np.ndarray]) -> None:
    from huggingface_hub import InferenceClient

    url, wanted = served
    client = InferenceClient(model=f"{url}/embed")
    found = client.feature_extraction(TEXTS[0])
    np.testing.assert_allclose(np.squeeze(found), wanted[0], atol=1e-5)
