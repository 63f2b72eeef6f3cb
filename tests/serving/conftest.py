"""A server with tiny models, shared by the tests of a worker, and a client of it."""

from __future__ import annotations

import dataclasses
import http.client
import importlib.util
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bert_keras.serving import ServeConfig, Server

# Without the packages of the server, those of its clients are still tested.
_OF_THE_SERVER = ("grpc_services", "http_connection", "models", "open_inference")
_OF_THE_SERVER += ("page", "rest", "server")
collect_ignore: list[str] = []
if importlib.util.find_spec("starlette") is None:
    collect_ignore += [f"test_{name}.py" for name in _OF_THE_SERVER]
KEYS = ("bert_keras.serving", "uvicorn.error")


class Client:
    """Asks a server; one connection a request."""

    def __init__(self, url: str) -> None:
        self.port = int(url.rpartition(":")[2])

    def send(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, found, answer.read()
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, Any]:
        """Return status and JSON of a page."""
        status, _, body = self.send("GET", path)
        return status, json.loads(body)

    def post(self, path: str, value: Any) -> tuple[int, Any]:
        """Return status and JSON of the answer to JSON."""
        status, _, body = self.send("POST", path, json.dumps(value).encode())
        return status, json.loads(body)


@pytest.fixture(autouse=True)
def restored_logs() -> Iterator[None]:
    """Leave the logs as they were."""
    yield
    for name in KEYS:
        log = logging.getLogger(name)
        log.propagate = True


@dataclasses.dataclass(frozen=True)
class Folders:
    """Untrained models of one encoder: folders, and the export of the first one."""

    spam: Path
    exported: Path
    pairs: Path
    tagger: Path


@pytest.fixture(scope="session")
def folders(
    make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Folders:
    """Return the folders of the models that the server has."""
    from bert_keras.exports.saved_model import export_model
    from bert_keras.models.model_folder import save_model
    from bert_keras.tasks.classification import Classification
    from bert_keras.tasks.tagging.task import TokenClassification

    folder = tmp_path_factory.mktemp("served")
    spam = make_model(Classification(("ham", "spam", "promo")))
    export_model(spam, folder / "exported")
    return Folders(
        save_model(spam, folder / "spam"),
        folder / "exported",
        save_model(
            make_model(Classification(("no", "yes"), pairs=True)), folder / "pairs"
        ),
        save_model(
            make_model(TokenClassification(classes=("O", "B-X", "I-X"))),
            folder / "tagger",
        ),
    )


@pytest.fixture(scope="session")
def predict(folders: Folders) -> Callable[[str, Any], list[dict[str, Any]]]:
    """Return a function that answers texts by the model folder of a name."""
    from bert_keras.inference.predictor import load_predictor

    predictors: dict[str, Any] = {}

    def predict(name: str, texts: Any) -> list[dict[str, Any]]:
        if name not in predictors:
            predictors[name] = load_predictor(getattr(folders, name))
        return predictors[name].predict(texts)

    return predict


@pytest.fixture(scope="session")
def server(folders: Folders) -> Iterator[Server]:
    """Return a running server of four models; tests leave them as they are."""
    paths = [f"{name}={path}" for name, path in dataclasses.asdict(folders).items()]
    config = ServeConfig(port=0, grpc_port=0, max_texts=40, max_characters=2000)
    with Server(paths, config=config, is_quiet=True).running() as running:
        yield running


@pytest.fixture(scope="session")
def client(server: Server) -> Client:
    """Return a client of the server."""
    return Client(server.url)
