"""The Open Inference Protocol, version 2, over HTTP; strings are BYTES.

Source: kserve/open-inference-protocol, "inference_rest".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bert_keras.errors import shown
from bert_keras.serving.errors import RequestError
from bert_keras.serving.rest import json_response, read_body, requested_model
from bert_keras.serving.service import Service
from bert_keras.serving.signatures import (
    DTYPES,
    TRUNCATED,
    Parts,
    Signature,
    TensorInfo,
)
from bert_keras.serving.tensors import parse_json
from bert_keras.serving.version import DEFAULT
from bert_keras.tasks.base import plain_values
from bert_keras.version import __version__


class OpenInference:
    """The routes of the protocol.

    Args:
        service: answers the requests.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        one = "/v2/models/{name:name}"
        found: list[BaseRoute] = [
            Route("/v2", self.server),
            Route("/v2/health/live", self.live),
            Route("/v2/health/ready", self.live),
        ]
        for place in (f"{one}/versions/{{version:name}}", one):
            found += [
                Route(f"{place}/infer", self.infer, methods=["POST"]),
                Route(f"{place}/ready", self.ready),
                Route(place, self.model),
            ]
        return found

    async def server(self, request: Request) -> Response:
        """Return the name and version of the server."""
        return json_response(
            {"name": "bert_keras", "version": __version__, "extensions": []}
        )

    async def live(self, request: Request) -> Response:
        """Confirm that the server runs; it listens once all models are loaded."""
        return json_response({"live": True, "ready": True})

    async def ready(self, request: Request) -> Response:
        """Confirm that a model answers."""
        name, version = requested_model(request)
        with self._service.models.lease(name, version):
            request.state.record.model = name
        return json_response({"name": name, "ready": True})

    async def model(self, request: Request) -> Response:
        """Return inputs and outputs of a model's default signature."""
        name, version = requested_model(request)
        with self._service.models.lease(name, version) as leased:
            request.state.record.model = name
            signature = leased.signatures[DEFAULT]
            number = str(leased.number)
        return json_response(
            {
                "name": name,
                "versions": [number],
                "platform": "tensorflow_savedmodel",
                "inputs": [_described(info) for info in signature.inputs],
                "outputs": [_described(info) for info in signature.outputs],
            }
        )

    async def infer(self, request: Request) -> Response:
        """Answer inputs with outputs, of the signature that `parameters` may name."""
        service = self._service
        name, version = requested_model(request)
        body = await read_body(request, service.config.max_body_bytes)
        if "inference-header-content-length" in request.headers:
            raise RequestError(
                "the tensors must be in the JSON, not binary: send them with "
                "`binary_data=False`"
            )
        given = await service.work(len(body), lambda: parse_json(body))
        identity = given.get("id")
        if identity is not None and not isinstance(identity, str):
            raise RequestError(f"`id` must be a string; received {shown(identity)}")
        parameters = given.get("parameters", {})
        chosen = parameters.get("signature_name", "") if _is_dict(parameters) else None
        if not isinstance(chosen, str):
            raise RequestError(
                "`parameters` must be an object, its `signature_name` a string"
            )
        answered = await service.predict(
            request.state.record,
            model=name,
            version=version,
            signature=chosen,
            decode=lambda signature: self._decoded(signature, given.get("inputs")),
            size=len(body),
            outputs=_wanted(given.get("outputs", [])),
        )
        found: dict[str, Any] = {"model_name": name}
        found["model_version"] = str(answered.version)
        if identity is not None:
            found["id"] = identity
        if answered.truncated:
            # A parameter is a string, a number or a boolean.
            lost = ",".join(map(str, answered.truncated))
            found["parameters"] = {TRUNCATED: lost}
        size = sum(values.nbytes for values in answered.answers.values())
        return await service.work(
            size,
            lambda: json_response(
                {**found, "outputs": [_output(*a) for a in answered.answers.items()]}
            ),
        )

    def _decoded(self, signature: Signature, inputs: Any) -> Parts:
        infos = {info.name: info for info in signature.inputs}
        if not isinstance(inputs, list) or not all(map(_is_dict, inputs)):
            raise RequestError(
                f"`inputs` must be a list of objects; received {shown(inputs)}"
            )
        columns = {}
        for given in inputs:
            name = given.get("name")
            if not isinstance(name, str) or name not in infos or name in columns:
                names = [str(each.get("name")) for each in inputs]
                raise RequestError(
                    f"`inputs` must name each of {', '.join(infos)} once; received "
                    f"{shown(name)}{signature.elsewhere(names)}"
                )
            columns[name] = _column(infos[name], given)
        return self._service.decoder.columns(signature, columns)


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _wanted(outputs: Any) -> list[str]:
    """Return the names of the requested outputs."""
    if isinstance(outputs, list) and all(map(_is_dict, outputs)):
        names = [each.get("name") for each in outputs]
        if all(isinstance(name, str) for name in names):
            return names
    raise RequestError(
        f"`outputs` must be a list of objects with a `name`; received {shown(outputs)}"
    )


def _column(info: TensorInfo, given: dict[str, Any]) -> list[Any]:
    """Return the values of an input, nested according to its shape."""
    name, shape, data = info.name, given.get("shape"), given.get("data")
    datatype = DTYPES[info.dtype][1]
    if given.get("datatype") != datatype:
        raise RequestError(
            f"`datatype` of {name} must be {datatype}; received "
            f"{shown(given.get('datatype'))}"
        )
    sizes = shape if isinstance(shape, list) else []
    if len(sizes) != len(info.shape) or any(
        type(size) is not int or not 0 < size < 2**31 for size in sizes
    ):
        raise RequestError(
            f"`shape` of {name} must be {len(info.shape)} whole numbers of at least 1; "
            f"received {shown(shape)}"
        )
    if not isinstance(data, list):
        raise RequestError(f"`data` of {name} must be a list; received {shown(data)}")
    if len(sizes) > 1 and data and isinstance(data[0], list):
        if len(data) != sizes[0]:
            raise _unfit(name, sizes)
        return data  # nested already; its inner shape is checked with the signature
    if len(data) != math.prod(sizes):
        raise _unfit(name, sizes)
    for size in reversed(sizes[1:]):
        data = [data[start : start + size] for start in range(0, len(data), size)]
    return data


def _unfit(name: str, sizes: list[int]) -> RequestError:
    return RequestError(
        f"`data` of {name} must have {math.prod(sizes)} values for the shape "
        f"{shown(sizes)}"
    )


def _described(info: TensorInfo) -> dict[str, Any]:
    datatype = DTYPES[info.dtype][1]
    return {"name": info.name, "datatype": datatype, "shape": info.sizes}


def _output(name: str, values: np.ndarray) -> dict[str, Any]:
    kind = "string" if values.dtype == object else values.dtype.name
    return {
        "name": name,
        "datatype": DTYPES[kind][1],
        "shape": list(values.shape),
        "data": plain_values(values.reshape(-1)),
    }
