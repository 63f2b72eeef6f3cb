"""Serving: the server, its clients, and files that run TF Serving.

`bert-keras serve`: read `config`, then the path of a request: `rest`,
`open_inference` or `grpc_services` (three protocols), `service` (limits, time, metrics
of each request), `tensors` (values of a request against a signature), `models` (names
and versions), `version` (a loaded model), `batcher` and `batch_choice` (requests
computed together) and `signatures` (how texts are measured and computed). `app` holds
the routes, `http_connection` the limits of a connection, and `server` starts and stops
everything. The web page is in `static/`.

`client` uses TF Serving's REST API. `deployment` writes a folder that runs TF Serving
from the files of `templates`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.serving.client import AsyncClient as AsyncClient
    from bert_keras.serving.client import Client as Client
    from bert_keras.serving.config import ServeConfig as ServeConfig
    from bert_keras.serving.deployment import write_deployment as write_deployment
    from bert_keras.serving.server import Server as Server
    from bert_keras.serving.server import serve as serve

_PLACES = {
    "AsyncClient": "client",
    "Client": "client",
    "ServeConfig": "config",
    "Server": "server",
    "serve": "server",
    "write_deployment": "deployment",
}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # else type checkers accept any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
