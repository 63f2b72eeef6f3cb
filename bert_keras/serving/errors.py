"""The error of a rejected request: `RequestError`, and its body: `error_body`.

Sources: the API references of OpenAI, Text Embeddings Inference (TEI), Jina and Cohere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class RequestError(Exception):
    """A request that is not answered; the message goes to the client.

    Args:
        message: one line: argument, rule and value.
        status: the HTTP status; 400 for a mistake of the client.
        retry_after: seconds after which the client may try again.
    """

    def __init__(
        self, message: str, *, status: int = 400, retry_after: int | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


def error_body(path: str, message: str, status: int) -> dict[str, Any]:
    """Return the body of an error, in the form of the API that has the path."""
    return _FORMS.get(path, _plain)(message, status)


def _plain(message: str, status: int) -> dict[str, Any]:
    """Return the form of TF Serving and of the Open Inference Protocol."""
    return {"error": message}


def _of_openai(message: str, status: int) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = {401: "invalid_api_key", 404: "model_not_found"}.get(status)
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _of_tei(message: str, status: int) -> dict[str, Any]:
    kind = "Validation" if status < 500 else "Backend"
    return {"error": message, "error_type": "Overloaded" if status == 503 else kind}


def _of_jina(message: str, status: int) -> dict[str, Any]:
    return {"detail": message}


def _of_cohere(message: str, status: int) -> dict[str, Any]:
    return {"message": message}


_TEI = ("embed", "embed_sparse", "similarity", "predict", "rerank", "tokenize", "info")
_FORMS: dict[str, Callable[[str, int], dict[str, Any]]] = {
    "/v1/embeddings": _of_openai,
    "/v1/rerank": _of_jina,
    "/v2/rerank": _of_cohere,
    **{f"/{name}": _of_tei for name in _TEI},
}
