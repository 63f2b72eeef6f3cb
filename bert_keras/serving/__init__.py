"""Models behind HTTP and gRPC: `bert-keras serve`.

Read `config`, then what a request passes through: `rest`, `open_inference` or
`grpc_services` (three protocols), `service` (limits, time, metrics of each request),
`tensors` (values of a request against a signature), `models` (names and versions),
`version` (a loaded model), `batcher` (requests computed together) and `signatures`
(how texts are measured and computed). `app` holds the routes, `http_connection` the
limits of a connection, and `server` starts and stops all of it. A page for people goes
into `static/`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.serving.config import ServeConfig as ServeConfig
    from bert_keras.serving.server import Server as Server
    from bert_keras.serving.server import serve as serve

_PLACES = {"ServeConfig": "config", "Server": "server", "serve": "server"}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # else type checkers take any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
