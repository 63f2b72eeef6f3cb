"""The REST API of TF Serving: predict, status and metadata.

Source: TensorFlow Serving's "RESTful API".
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bert_keras.errors import shown
from bert_keras.serving.errors import RequestError
from bert_keras.serving.service import RequestRecord, Service
from bert_keras.serving.signatures import TRUNCATED, TensorInfo
from bert_keras.serving.tensors import column_form, dump_json, parse_json, row_form
from bert_keras.serving.version import DEFAULT, Version

_DISCARDED = 8  # times the largest body is read, so that the client reads our answer
_MOST_CLASSES = 100  # that the listing of models names
_MORE = ("signature_name", "top", "redact")  # that a request to predict may have
_BODY_SECONDS = 10.0  # for the whole body


class _Name(StringConvertor):
    """The name or version of a model: GET of `NAME:predict` is a wrong method."""

    regex = "[^/:]+"


register_url_convertor("name", _Name())


class Rest:
    """The routes of TF Serving's REST API.

    Args:
        service: answers the requests.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[BaseRoute]:
        """Return the routes; `/v1/models`, the list of all, is ours."""
        one = "/v1/models/{name:name}"
        version = one + "/versions/{version:name}"
        found: list[BaseRoute] = [Route("/v1/models", self.listing)]
        for place in (version, one):  # the longer path first
            found += [
                Route(f"{place}:predict", self.predict, methods=["POST"]),
                Route(f"{place}/metadata", self.metadata),
                Route(place, self.status),
            ]
        return found

    async def predict(self, request: Request) -> Response:
        """Answer `instances` with `predictions`, and `inputs` with `outputs`.

        If a text is longer than the model reads, the answer has `truncated_tokens`, the
        tokens of each text that were not read, which TF Serving does not tell. `top`,
        the number of texts that a search answers with, and `redact`, see
        `Version.redaction`, are ours, too.
        """
        service = self._service
        record: RequestRecord = request.state.record
        name, version = requested_model(request)
        body = await read_body(request, service.config.max_body_bytes)
        given = await service.work(len(body), lambda: parse_json(body))
        unknown = sorted(set(given) - {"instances", "inputs", *_MORE})
        if unknown:
            raise RequestError(
                "the body must have `instances` or `inputs`, and may have "
                f"{', '.join(f'`{name}`' for name in _MORE)}; received "
                f"{shown(unknown[0])}"
            )
        if ("instances" in given) == ("inputs" in given):
            raise RequestError("the body must have either `instances` or `inputs`")
        signature = given.get("signature_name", "")
        if not isinstance(signature, str):
            raise RequestError(
                f"`signature_name` must be a string; received {shown(signature)}"
            )
        in_rows = "instances" in given
        decode = service.decoder.rows if in_rows else service.decoder.columns
        values = given["instances" if in_rows else "inputs"]
        answered = await service.predict(
            record,
            model=name,
            version=version,
            signature=signature,
            decode=lambda signature: decode(signature, values),
            size=len(body),
            top=given.get("top"),
            redact=given.get("redact"),
        )
        answers = answered.answers
        size = sum(array.nbytes for array in answers.values())
        form, key = (row_form, "predictions") if in_rows else (column_form, "outputs")
        more = {TRUNCATED: answered.truncated} if answered.truncated else {}
        return await service.work(
            size, lambda: json_response({key: form(answers), **more})
        )

    async def status(self, request: Request) -> Response:
        """Return the state of the versions of a model.

        `id`, `object`, `created` and `owned_by` are the fields of OpenAI's form.
        """
        name, version = requested_model(request)
        found = self._service.models.states(name, version)
        request.state.record.model = name
        return json_response(
            {
                "model_version_status": [
                    {
                        "version": str(each.number),
                        "state": each.state,
                        "status": {
                            "error_code": "INTERNAL" if each.error else "OK",
                            "error_message": each.error,
                        },
                    }
                    for each in found
                ],
                **_of_openai(name),
            }
        )

    async def metadata(self, request: Request) -> Response:
        """Return the signatures of a model."""
        name, version = requested_model(request)
        with self._service.models.lease(name, version) as leased:
            request.state.record.model = name
            found = leased.signatures.items()
            signatures = {key: each.definition() for key, each in found}
            # TF Serving does not tell it, nor does a protobuf map keep it.
            order = {key: [info.name for info in each.inputs] for key, each in found}
            searches = {key: each.search for key, each in found if each.search}
            number = str(leased.number)
        return json_response(
            {
                "model_spec": {"name": name, "signature_name": "", "version": number},
                "metadata": {"signature_def": {"signature_def": signatures}},
                "input_order": order,
                **({"search": searches} if searches else {}),
            }
        )

    async def listing(self, request: Request) -> Response:
        """Return all models, each with its task and signatures.

        `object` and `data` have the form of OpenAI's listing.
        """
        data = [_of_openai(name) for name in self._service.models.names]
        models = model_list(self._service)
        return json_response({"models": models, "object": "list", "data": data})


def _of_openai(name: str) -> dict[str, Any]:
    """Return the facts of a model in OpenAI's form."""
    return {"id": name, "object": "model", "created": 0, "owned_by": "bert_keras"}


def model_list(service: Service) -> list[dict[str, Any]]:
    """Return what clients need to know of each model.

    That is its name, version, task and signatures, up to 100 of its classes, and the
    example of its card: the text of each field, if there is one.
    """
    found = []
    for name in service.models.names:
        with service.models.lease(name) as leased:
            found.append({"name": name, **_described(leased)})
    return found


def _described(version: Version) -> dict[str, Any]:
    def described(info: TensorInfo) -> dict[str, Any]:
        return {"name": info.name, "dtype": info.dtype, "shape": info.sizes}

    return {
        "version": str(version.number),
        "task": version.task,
        "default_signature": DEFAULT,
        "classes": version.classes[:_MOST_CLASSES],
        "example": version.example,
        "redacts": version.redacts,
        "signatures": {
            name: {
                "inputs": [*map(described, each.inputs)],
                "outputs": [*map(described, each.outputs)],
                **({"search": each.search} if each.search else {}),
            }
            for name, each in version.signatures.items()
        },
    }


def requested_model(request: Request) -> tuple[str, str | None]:
    """Return the name and the version, if any, in the path of a request."""
    return request.path_params["name"], request.path_params.get("version")


async def read_body(request: Request, most: int) -> bytes:
    """Return the body of a request, unpacked if it is packed with gzip.

    Raises:
        RequestError: it is larger than `most` bytes (413), packed or not, does not
            arrive (408), is packed otherwise (415) or its gzip stream is broken.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise RequestError(
            f"`Content-Encoding` must be gzip or identity; received {shown(encoding)}",
            status=415,
        )
    declared = request.headers.get("content-length", "0")
    too_large = RequestError(
        f"the body must have at most {most} bytes; received more", status=413
    )
    waits = request.headers.get("expect", "").lower() == "100-continue"
    if len(declared) > 18 or int(declared) > most * (1 if waits else _DISCARDED):
        raise too_large
    unpacked = None if encoding == "identity" else _Gunzip(most)
    chunks, size = [], 0
    try:
        with anyio.fail_after(_BODY_SECONDS):
            async for chunk in request.stream():
                size += len(chunk)
                if size <= most:
                    chunks.append(unpacked.feed(chunk) if unpacked else chunk)
                elif size > most * _DISCARDED:
                    break
    except TimeoutError:
        if size <= most:
            raise RequestError("the body did not arrive in time", status=408) from None
    except ClientDisconnect:
        raise RequestError("the body ended early") from None
    if size > most or (unpacked and unpacked.size > most):
        raise too_large
    if unpacked:
        unpacked.check_end()
    return b"".join(chunks)


class _Gunzip:
    """Unpacks a gzip stream (RFC 1952) in parts, up to one byte more than `most`.

    Attributes:
        size: bytes unpacked so far.
    """

    def __init__(self, most: int) -> None:
        self._most, self.size = most, 0
        self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)

    def feed(self, data: bytes) -> bytes:
        """Return what a part of the stream holds; nothing beyond the limit."""
        parts = []
        while data and self.size <= self._most:
            if self._decoder.eof:  # a stream may have several members
                self._decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                part = self._decoder.decompress(data, self._most + 1 - self.size)
            except zlib.error as error:
                raise RequestError(f"the body must be gzip: {error}") from None
            parts.append(part)
            self.size += len(part)
            data = self._decoder.unused_data or self._decoder.unconsumed_tail
        return b"".join(parts)

    def check_end(self) -> None:
        """Raise a RequestError unless the stream is complete."""
        if not self._decoder.eof:
            raise RequestError("the body must be gzip: the stream has no end")


def check_fields(where: str, given: Mapping[str, Any], may: Sequence[str]) -> None:
    """Raise RequestError if an object of a request has another field."""
    for name in given:
        if name not in may:
            raise RequestError(
                f"{where} may have {', '.join(may)}; received {shown(name)}"
            )


def json_response(value: Any, *, status: int = 200) -> Response:
    """Return a value as an HTTP response."""
    return Response(dump_json(value), status, media_type="application/json")
