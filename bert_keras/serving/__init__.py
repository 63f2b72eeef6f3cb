"""Models behind a server: clients that ask it, and the files to run it.

`client` speaks TF Serving's REST API. `deployment` writes a folder that runs TF Serving
from the files of `templates`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.serving.client import AsyncClient as AsyncClient
    from bert_keras.serving.client import Client as Client
    from bert_keras.serving.deployment import write_deployment as write_deployment

_PLACES = {
    "AsyncClient": "client",
    "Client": "client",
    "write_deployment": "deployment",
}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # else type checkers take any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
