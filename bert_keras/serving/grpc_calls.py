"""A gRPC call: its key, its count in the metrics, and its errors: `Answering`."""

from __future__ import annotations

from typing import Any

import grpc

from bert_keras.serving.errors import RequestError
from bert_keras.serving.logs import log_error
from bert_keras.serving.service import RequestRecord, Service

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.INVALID_ARGUMENT,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}


class Answering:
    """A request within the limits, counted and logged; errors become gRPC errors."""

    def __init__(self, service: Service, context: Any) -> None:
        self._service = service
        self._context = context
        self._record = RequestRecord("grpc")

    async def __aenter__(self) -> RequestRecord:
        metadata = dict(self._context.invocation_metadata())
        try:
            self._service.check_key(metadata.get("authorization", "").encode())
        except RequestError as error:
            await self._refuse(error)
        return self._record

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if error is None:
            self._service.count(self._record, 200)
        elif not isinstance(error, Exception):  # the client has cancelled the call
            self._service.count(self._record, 499)
        elif isinstance(error, RequestError):
            await self._refuse(error)
        else:
            log_error("an error of the server", error)
            await self._refuse(RequestError("an error of the server", status=500))

    async def _refuse(self, error: RequestError) -> None:
        self._service.count(self._record, error.status)
        code = _CODES.get(error.status, grpc.StatusCode.INTERNAL)
        await self._context.abort(code, str(error))
