"""The Open Inference Protocol, version 2, over HTTP; strings are BYTES.

Sources: kserve/open-inference-protocol, "inference_rest"; Triton's "binary tensor data
extension". `infer` serves gRPC as well, see `open_inference_grpc`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from bert_keras.errors import shown
from bert_keras.serving.errors import RequestError
from bert_keras.serving.rest import (
    check_fields,
    json_response,
    read_body,
    requested_model,
)
from bert_keras.serving.service import Answered, RequestRecord, Service
from bert_keras.serving.signatures import (
    DTYPES,
    TRUNCATED,
    Parts,
    Signature,
    TensorInfo,
)
from bert_keras.serving.tensor_bytes import bytes_of, split, values_of
from bert_keras.serving.tensors import dump_json, parse_json
from bert_keras.serving.version import DEFAULT
from bert_keras.tasks.answer_rows import plain_values
from bert_keras.version import __version__

EXTENSIONS = ("binary_tensor_data",)
_HEAD = "inference-header-content-length"  # bytes of the JSON before binary data
_SIZE = "binary_data_size"
_OF_INPUT = ("name", "shape", "datatype", "parameters", "data")
_PARAMETERS = (
    *("signature_name", "top", "redact", "content_type"),
    *("binary_data_output", "binary_data", _SIZE),
)
# Parameters of Triton that would change the answer.
_REFUSED = ("sequence_id", "shared_memory_region", "classification")


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
            {
                "name": "bert_keras",
                "version": __version__,
                "extensions": list(EXTENSIONS),
            }
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
            number, platform = str(leased.number), leased.platform
        return json_response(
            {
                "name": name,
                "versions": [number],
                "platform": platform,
                "inputs": [*map(declared, signature.inputs)],
                "outputs": [*map(declared, signature.outputs)],
            }
        )

    async def infer(self, request: Request) -> Response:
        """Answer inputs with outputs, of the signature that `parameters` may name."""
        service = self._service
        name, version = requested_model(request)
        body = await read_body(request, service.config.max_body_bytes)
        head = request.headers.get(_HEAD)
        given = await service.work(len(body), lambda: _parse(body, head))
        answered = await infer(
            service, request.state.record, name, version, given, len(body)
        )
        size = sum(values.nbytes for values in answered.answers.values())
        return await service.work(size, lambda: _response(name, given, answered))


async def infer(
    service: Service,
    record: RequestRecord,
    name: str,
    version: str | None,
    given: Mapping[str, Any],
    size: int,
) -> Answered:
    """Return the answers to a request of the protocol.

    Args:
        service: answers it.
        record: filled with the facts of the request.
        name, version: the model, as in `Models.lease`.
        given: `inputs`, and perhaps `outputs` and `parameters`, as in JSON; the `data`
            of an input may be bytes.
        size: bytes of the request.

    Raises:
        RequestError: as in `Service.predict`.
    """
    parameters = _parameters(given)
    chosen = parameters.get("signature_name", "")
    if not isinstance(chosen, str):
        raise RequestError(
            "`parameters` must be an object, its `signature_name` a string"
        )
    return await service.predict(
        record,
        model=name,
        version=version,
        signature=chosen,
        decode=lambda signature: _decoded(service, signature, given.get("inputs")),
        size=size,
        outputs=[each["name"] for each in _wanted(given.get("outputs", []))],
        top=parameters.get("top"),
        redact=parameters.get("redact"),
    )


def truncated_parameter(truncated: list[int]) -> dict[str, str]:
    """Return the parameter that tells of texts which were not read to their end.

    A parameter is a string, a number or a boolean: the counts are joined by commas.
    """
    return {TRUNCATED: ",".join(map(str, truncated))} if truncated else {}


def _parse(body: bytes, head: str | None) -> dict[str, Any]:
    """Return a request; `head` is the size of its JSON if binary data follows it."""
    size = len(body)
    if head is not None:
        if not head.isascii() or not head.isdigit() or int(head[:18]) > len(body):
            raise RequestError(
                f"`Inference-Header-Content-Length` must be at most {len(body)}, the "
                f"bytes of the body; received {shown(head)}"
            )
        size = int(head)
    given = parse_json(body[:size])
    check_fields("the body", given, ("id", "inputs", "outputs", "parameters"))
    identity = given.get("id")
    if identity is not None and not isinstance(identity, str):
        raise RequestError(f"`id` must be a string; received {shown(identity)}")
    tensors = {}
    for name, fields in (("inputs", _OF_INPUT), ("outputs", ("name", "parameters"))):
        listed = given.get(name)
        tensors[name] = [*filter(_is_dict, listed if isinstance(listed, list) else ())]
        for each in tensors[name]:
            check_fields(f"an element of `{name}`", each, fields)
    binary = [each for each in tensors["inputs"] if _SIZE in _parameters(each)]
    for each in binary:
        length = each["parameters"][_SIZE]
        if type(length) is not int or length < 0 or "data" in each:
            also = " and `data`" if "data" in each else ""
            raise RequestError(
                f"`{_SIZE}` of {shown(each.get('name'))} must be a whole number, in "
                f"place of `data`; received {shown(length)}{also}"
            )
    parts = split(body[size:], [each["parameters"][_SIZE] for each in binary])
    for each, data in zip(binary, parts, strict=True):
        each["data"] = data
    return given


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request or a tensor."""
    found = given.get("parameters", {})
    if not _is_dict(found):
        raise RequestError(f"`parameters` must be an object; received {shown(found)}")
    refused = [key for key in _REFUSED if found.get(key)]
    refused += [key for key in found if key not in (*_REFUSED, *_PARAMETERS)]
    if refused:
        raise RequestError(
            f"the parameter {refused[0]} is not served; the extensions of this server "
            f"are {', '.join(EXTENSIONS)}, its parameters {', '.join(_PARAMETERS)}"
        )
    return dict(found)


def _response(name: str, given: Mapping[str, Any], answered: Answered) -> Response:
    """Return the answers, those that the request asks to be binary after the JSON."""
    found: dict[str, Any] = {"model_name": name}
    found["model_version"] = str(answered.version)
    if given.get("id") is not None:
        found["id"] = given["id"]
    if answered.truncated:
        found["parameters"] = truncated_parameter(answered.truncated)
    all_binary = _parameters(given).get("binary_data_output", False) is True
    is_binary = {
        each["name"]: _parameters(each).get("binary_data", all_binary) is True
        for each in _wanted(given.get("outputs", []))
    }
    outputs, parts = [], []
    for key, values in answered.answers.items():
        output = described(key, values)
        if is_binary.get(key, all_binary):
            parts.append(bytes_of(values))
            output["parameters"] = {_SIZE: len(parts[-1])}
        else:
            output["data"] = plain_values(values.reshape(-1))
        outputs.append(output)
    head = dump_json({**found, "outputs": outputs})
    if not parts:
        return Response(head, media_type="application/json")
    return Response(
        b"".join((head, *parts)),
        headers={_HEAD: str(len(head))},
        media_type="application/octet-stream",
    )


def _decoded(service: Service, signature: Signature, inputs: Any) -> Parts:
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
    return service.decoder.columns(signature, columns)


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _wanted(outputs: Any) -> list[dict[str, Any]]:
    """Return the requested outputs, each with its name."""
    if isinstance(outputs, list) and all(map(_is_dict, outputs)):
        if all(isinstance(each.get("name"), str) for each in outputs):
            for each in outputs:
                _parameters(each)
            return outputs
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
    _parameters(given)
    if isinstance(data, bytes):
        data = values_of(name, datatype, data)
    if not isinstance(data, list):
        raise RequestError(f"`data` of {name} must be a list; received {shown(data)}")
    if len(sizes) > 1 and data and isinstance(data[0], list):
        values = [data]
        for size in sizes:
            if any(not isinstance(x, list) or len(x) != size for x in values):
                raise _unfit(name, sizes)
            values = [value for each in values for value in each]
        return data
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


def declared(info: TensorInfo) -> dict[str, Any]:
    """Return name, datatype and shape of an input or output of a signature."""
    datatype = DTYPES[info.dtype][1]
    return {"name": info.name, "datatype": datatype, "shape": info.sizes}


def described(name: str, values: np.ndarray) -> dict[str, Any]:
    """Return name, datatype and shape of an output."""
    kind = "string" if values.dtype == object else values.dtype.name
    return {"name": name, "datatype": DTYPES[kind][1], "shape": list(values.shape)}
