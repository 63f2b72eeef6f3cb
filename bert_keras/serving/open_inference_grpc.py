"""The Open Inference Protocol over gRPC: `GRPCInferenceService`.

The messages are built here from their fields, in a pool of their own, so that a
process may also hold a client's generated ones. Source: kserve/open-inference-protocol,
"inference_grpc".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bert_keras.errors import shown
from bert_keras.serving.errors import RequestError
from bert_keras.serving.grpc_calls import Answering
from bert_keras.serving.open_inference import (
    declared,
    described,
    infer,
    truncated_parameter,
)
from bert_keras.serving.service import Answered, RequestRecord, Service
from bert_keras.serving.tensor_bytes import bytes_of
from bert_keras.serving.version import DEFAULT
from bert_keras.version import __version__

_SERVICE = "inference.GRPCInferenceService"
# Fields in the order of their numbers, from 1: type, name, and * for a repeated one.
# A type with a capital is a message; `map` stands for parameters by name.
_MODEL = "string name, string version"
_TENSOR = "string name, string datatype, int64 shape*"
_FIELDS = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready",
    "ModelReadyRequest": _MODEL,
    "ModelReadyResponse": "bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name, string version, string extensions*",
    "ModelMetadataRequest": _MODEL,
    "TensorMetadata": _TENSOR,
    "ModelMetadataResponse": (
        "string name, string versions*, string platform, TensorMetadata inputs*, "
        "TensorMetadata outputs*"
    ),
    "InferParameter": (
        "bool bool_param, int64 int64_param, string string_param, "
        "double double_param, uint64 uint64_param"
    ),
    "InferTensorContents": (
        "bool bool_contents*, int32 int_contents*, int64 int64_contents*, "
        "uint32 uint_contents*, uint64 uint64_contents*, float fp32_contents*, "
        "double fp64_contents*, bytes bytes_contents*"
    ),
    "InferInputTensor": f"{_TENSOR}, map parameters, InferTensorContents contents",
    "InferRequestedOutputTensor": "string name, map parameters",
    "ModelInferRequest": (
        "string model_name, string model_version, string id, map parameters, "
        "InferInputTensor inputs*, InferRequestedOutputTensor outputs*, "
        "bytes raw_input_contents*"
    ),
    "InferOutputTensor": f"{_TENSOR}, map parameters, InferTensorContents contents",
    "ModelInferResponse": (
        "string model_name, string model_version, string id, map parameters, "
        "InferOutputTensor outputs*, bytes raw_output_contents*"
    ),
}
_CHOICE = "InferParameter"  # its fields exclude each other
_Field = descriptor_pb2.FieldDescriptorProto


def _classes() -> dict[str, Any]:
    """Return the classes of the messages by name."""
    file = descriptor_pb2.FileDescriptorProto(
        name="open_inference.proto", package="inference", syntax="proto3"
    )
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        if name == _CHOICE:
            message.oneof_decl.add(name="parameter_choice")
        for number, field in enumerate(filter(None, fields.split(", ")), 1):
            _add_field(message, number, *field.split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"inference.{name}")
        )
        for name in _FIELDS
    }


def _add_field(message: Any, number: int, kind: str, name: str) -> None:
    added = message.field.add(name=name.rstrip("*"), number=number)
    is_list = name.endswith("*") or kind == "map"
    added.label = _Field.LABEL_REPEATED if is_list else _Field.LABEL_OPTIONAL
    if message.name == _CHOICE:
        added.oneof_index = 0
    if kind == "map":
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        _add_field(entry, 1, "string", "key")
        _add_field(entry, 2, _CHOICE, "value")
        kind = f"{message.name}.ParametersEntry"
    if kind[0].isupper():
        added.type, added.type_name = _Field.TYPE_MESSAGE, f".inference.{kind}"
    else:
        added.type = _Field.Type.Value(f"TYPE_{kind.upper()}")


MESSAGES: Mapping[str, Any] = _classes()  # their classes, by name


def open_inference_handler(service: Service) -> Any:
    """Return the handler of the protocol's methods for a server of `grpc.aio`."""
    methods = _Methods(service)

    def handler(name: str) -> Any:
        method: Callable[..., Any] = getattr(methods, name)

        async def call(request: Any, context: Any) -> Any:
            async with Answering(service, context) as record:
                response = MESSAGES[f"{name}Response"]()
                await method(request, response, record)
                return response

        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=MESSAGES[f"{name}Request"].FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    names = [name.removesuffix("Request") for name in MESSAGES]
    return grpc.method_handlers_generic_handler(
        _SERVICE, {name: handler(name) for name in names if hasattr(methods, name)}
    )


class _Methods:
    """The methods of the protocol; each fills the response."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def ServerLive(self, request: Any, response: Any, record: Any) -> None:
        response.live = True

    async def ServerReady(self, request: Any, response: Any, record: Any) -> None:
        response.ready = True

    async def ModelReady(self, request: Any, response: Any, record: Any) -> None:
        version = request.version or None
        try:
            with self._service.models.lease(request.name, version):
                record.model = request.name
        except RequestError as error:
            if error.status != 404:
                raise
            return  # an unknown model is not ready
        response.ready = True

    async def ServerMetadata(self, request: Any, response: Any, record: Any) -> None:
        response.name, response.version = "bert_keras", __version__
        # Raw contents are part of this protocol itself, not an extension.

    async def ModelMetadata(self, request: Any, response: Any, record: Any) -> None:
        version = request.version or None
        with self._service.models.lease(request.name, version) as leased:
            record.model = response.name = request.name
            signature = leased.signatures[DEFAULT]
            response.versions.append(str(leased.number))
            response.platform = leased.platform
        for side in ("inputs", "outputs"):
            for info in getattr(signature, side):
                getattr(response, side).add(**declared(info))

    async def ModelInfer(
        self, request: Any, response: Any, record: RequestRecord
    ) -> None:
        answered = await infer(
            self._service,
            record,
            request.model_name,
            request.model_version or None,
            _as_json(request),
            request.ByteSize(),
        )
        response.id = request.id
        response.model_name = request.model_name
        response.model_version = str(answered.version)
        _fill(response, answered)


def _as_json(request: Any) -> dict[str, Any]:
    """Return a request as the protocol has it in JSON; raw contents stay bytes.

    Raises:
        RequestError: some inputs are raw and others are not.
    """
    raw = list(request.raw_input_contents)
    if raw and len(raw) != len(request.inputs):
        raise RequestError(
            f"`raw_input_contents` must hold all {len(request.inputs)} inputs; "
            f"received {len(raw)}"
        )
    inputs = []
    for place, given in enumerate(request.inputs):
        contents = [list(values) for _, values in given.contents.ListFields()]
        if len(contents) + bool(raw) != 1:
            raise RequestError(
                f"`contents` of {shown(given.name)} must have one list of values, or "
                f"`raw_input_contents` in its place; received {len(contents)}"
            )
        inputs.append(
            {
                "name": given.name,
                "datatype": given.datatype,
                "shape": list(given.shape),
                "parameters": _values(given.parameters),
                "data": raw[place] if raw else contents[0],
            }
        )
    outputs = [
        {"name": each.name, "parameters": _values(each.parameters)}
        for each in request.outputs
    ]
    parameters = _values(request.parameters)
    return {"inputs": inputs, "outputs": outputs, "parameters": parameters}


def _values(parameters: Any) -> dict[str, Any]:
    found = {}
    for key, value in parameters.items():
        chosen = value.WhichOneof("parameter_choice")
        found[key] = getattr(value, chosen) if chosen else None
    return found


def _fill(response: Any, answered: Answered) -> None:
    """Write the answers into a response, all raw, as Triton does."""
    for key, text in truncated_parameter(answered.truncated).items():
        response.parameters[key].string_param = text
    for name, values in answered.answers.items():
        response.outputs.add(**described(name, values))
        response.raw_output_contents.append(bytes_of(values))
