"""The routes of a server, and the rules for all of them: `App`.

Each request is counted, must have a key if the server requires one, ends within the
time limit, and is answered with an `error_body` if it is wrong.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles

from bert_keras.serving.embedding_apis import EmbeddingApis
from bert_keras.serving.errors import RequestError, error_body
from bert_keras.serving.http_connection import HEAD_BYTES
from bert_keras.serving.logs import log, log_error
from bert_keras.serving.open_inference import OpenInference
from bert_keras.serving.openapi import openapi
from bert_keras.serving.rest import Rest, json_response
from bert_keras.serving.service import RequestRecord, Service

STATIC = Path(__file__).parent / "static"
# Probes send no key; the page, which asks for the key, contains no data of a model.
_PAGE = ("/", *(f"/{file.name}" for file in STATIC.iterdir()))
_FREE_OF_KEYS = frozenset(("/v2/health/live", "/v2/health/ready", *_PAGE))
_SENDING_SECONDS = 30.0  # for the client to read its answer
# A browser must not guess a type, show our page inside another one, or let the page
# run or request anything other than this server's own files.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_CLOSES = (b"connection", b"close")  # after a body that was not read to its end
_HEADERS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]


class App:
    """An ASGI application.

    Args:
        service: answers the requests.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._routes = Starlette(
            routes=self._all_routes(),
            exception_handlers={
                RequestError: _refused,  # type: ignore[dict-item]
                HTTPException: _not_routed,  # type: ignore[dict-item]
                Exception: _failed,
            },
        )
        self._routes.router.redirect_slashes = False

    def _all_routes(self) -> list[BaseRoute]:
        # Not a Mount: it would match every path, and hide that a method is wrong.
        static = StaticFiles(directory=STATIC, html=True)
        return [
            *Rest(self._service).routes(),
            *OpenInference(self._service).routes(),
            *EmbeddingApis(self._service).routes(),
            Route("/monitoring/prometheus/metrics", self._metrics),
            Route("/openapi.json", self._openapi),
            *(Route(path, static) for path in _PAGE),
        ]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self._routes(scope, receive, send)
        protocol = "v2" if scope["path"].startswith("/v2") else "rest"
        record = RequestRecord(protocol)
        scope.setdefault("state", {})["record"] = record
        code, unread = 0, _has_body(scope)

        async def receiving() -> Any:
            nonlocal unread
            message = await receive()
            unread = unread and message.get("more_body", False)
            return message

        async def counting(message: Any) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
                headers = [*message["headers"], *_HEADERS]
                if unread and _CLOSES not in headers:
                    headers.append(_CLOSES)
                message = {**message, "headers": headers}
            await send(message)

        try:
            seconds = self._service.config.request_timeout + _SENDING_SECONDS
            with anyio.fail_after(seconds):
                await self._answer(scope, receiving, counting)
        except TimeoutError:
            log("a client does not read its answer", level=logging.WARNING)
            raise
        except Exception as error:
            if not code:  # raised outside of the routes, which answer by `_failed`
                failed = await _failed(Request(scope), error)
                await failed(scope, receiving, counting)
        finally:
            self._service.count(record, code or 500)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            # One that arrives in pieces is refused by the connection, before its end.
            if _head_size(scope) > HEAD_BYTES:
                raise RequestError(
                    f"the head must have at most {HEAD_BYTES} bytes; received more",
                    status=431,
                )
            if scope["path"] not in _FREE_OF_KEYS:
                given = dict(scope["headers"]).get(b"authorization")
                self._service.check_key(given)
        except RequestError as error:
            refused = _error_response(error, scope["path"])
            return await refused(scope, receive, send)
        await self._routes(scope, receive, send)

    async def _metrics(self, request: Request) -> Response:
        metrics = self._service.metrics
        return Response(metrics.text(), media_type=metrics.content_type)

    async def _openapi(self, request: Request) -> Response:
        return json_response(openapi(self._service))


def _has_body(scope: Any) -> bool:
    """Return whether a request declares a body."""
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0").strip()
    return b"transfer-encoding" in headers or length.strip(b"0") != b""


def _head_size(scope: Any) -> int:
    """Return the bytes of the path, the query and the headers of a request."""
    lines = [(scope["raw_path"], scope["query_string"]), *scope["headers"]]
    return sum(len(first) + len(second) for first, second in lines)


def _error_response(error: RequestError, path: str) -> Response:
    body = error_body(path, str(error), error.status)
    found = json_response(body, status=error.status)
    if error.retry_after is not None:
        found.headers["retry-after"] = str(error.retry_after)
    if error.status == 401:
        found.headers["www-authenticate"] = "Bearer"
    if error.status in (408, 413, 431):
        found.headers["connection"] = "close"  # part of the body may still arrive
    return found


async def _refused(request: Request, error: RequestError) -> Response:
    return _error_response(error, request.url.path)


async def _failed(request: Request, error: Exception) -> Response:
    log_error("an error of the server", error)
    failure = RequestError("an error of the server", status=500)
    return _error_response(failure, request.url.path)


async def _not_routed(request: Request, error: HTTPException) -> Response:
    """Answer a wrong path or method."""
    line = f"{request.method} {request.url.path}"[:200]
    wrong = RequestError(f"{error.detail}: {line}", status=error.status_code)
    found = _error_response(wrong, request.url.path)
    found.headers.update(error.headers or {})
    return found
