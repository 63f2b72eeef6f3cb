"""The gRPC server: TF Serving's `PredictionService` and `ModelService`.

Needs tensorflow-serving-api. Source: `tensorflow_serving/apis/*.proto`.
"""

from __future__ import annotations

import math
from typing import Any

import grpc
import tensorflow as tf
from google.protobuf.json_format import ParseDict
from tensorflow.core.protobuf import error_codes_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from bert_keras.serving.errors import RequestError
from bert_keras.serving.grpc_calls import Answering
from bert_keras.serving.open_inference_grpc import open_inference_handler
from bert_keras.serving.service import Service
from bert_keras.serving.signatures import (
    DTYPES,
    TRUNCATED,
    Parts,
    Signature,
    TensorInfo,
)

_ENUM = {name: tf.dtypes.as_dtype(name).as_datatype_enum for name in DTYPES}


def grpc_server(service: Service, address: str) -> tuple[Any, int]:
    """Return a server of `grpc.aio`, not yet started, and its port.

    Raises:
        RuntimeError: the address is taken.
    """
    most = service.config.max_body_bytes
    server = grpc.aio.server(
        options=[("grpc.max_receive_message_length", most), ("grpc.so_reuseport", 0)],
        maximum_concurrent_rpcs=4 * service.config.max_requests,
    )
    services = _Services(service)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        services, server
    )
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(services, server)
    server.add_generic_rpc_handlers((open_inference_handler(service),))
    return server, server.add_insecure_port(address)


class _Services(
    prediction_service_pb2_grpc.PredictionServiceServicer,
    model_service_pb2_grpc.ModelServiceServicer,
):
    """Both services; their methods have different names."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def Predict(self, request: Any, context: Any) -> Any:
        async with Answering(self._service, context) as record:
            answered = await self._service.predict(
                record,
                model=request.model_spec.name,
                version=_version(request.model_spec),
                signature=request.model_spec.signature_name,
                decode=lambda signature: self._decoded(signature, request),
                size=request.ByteSize(),
                outputs=list(request.output_filter),
            )
            if answered.truncated:  # the message has no place for it
                numbers = ",".join(map(str, answered.truncated))
                context.set_trailing_metadata(((TRUNCATED.replace("_", "-"), numbers),))
            response = predict_pb2.PredictResponse()
            _fill(response.model_spec, record.model, answered.version)
            response.model_spec.signature_name = answered.signature.name
            for name, values in answered.answers.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(values))
            return response

    async def GetModelMetadata(self, request: Any, context: Any) -> Any:
        async with Answering(self._service, context) as record:
            if list(request.metadata_field) != ["signature_def"]:
                raise RequestError("`metadata_field` must be signature_def")
            spec = request.model_spec
            with self._service.models.lease(spec.name, _version(spec)) as leased:
                record.model, record.version = spec.name, leased.number
                signatures = get_model_metadata_pb2.SignatureDefMap()
                for each in leased.signatures.values():
                    definition = signatures.signature_def[each.name]
                    ParseDict(each.definition(), definition)
            response = get_model_metadata_pb2.GetModelMetadataResponse()
            _fill(response.model_spec, spec.name, leased.number)
            response.metadata["signature_def"].Pack(signatures)
            return response

    async def GetModelStatus(self, request: Any, context: Any) -> Any:
        async with Answering(self._service, context) as record:
            spec = request.model_spec
            found = self._service.models.states(spec.name, _version(spec))
            record.model = spec.name
            response = get_model_status_pb2.GetModelStatusResponse()
            for each in found:
                status = response.model_version_status.add(version=each.number)
                status.state = status.State.Value(each.state)
                code = error_codes_pb2.INTERNAL if each.error else error_codes_pb2.OK
                status.status.error_code = code
                status.status.error_message = each.error
            return response

    def _decoded(self, signature: Signature, request: Any) -> Parts:
        infos = {info.name: info for info in signature.inputs}
        given = {
            name: _values(infos[name], proto, self._service) if name in infos else []
            for name, proto in request.inputs.items()
        }
        return self._service.decoder.columns(signature, given)


def _version(spec: Any) -> str | None:
    if spec.version_label:
        raise RequestError("`version_label` is not served; use `version`")
    return str(spec.version.value) if spec.HasField("version") else None


def _fill(spec: Any, name: str, number: int) -> None:
    spec.name = name
    spec.version.value = number


def _values(info: TensorInfo, proto: Any, service: Service) -> list[Any]:
    """Return a TensorProto as nested lists.

    Raises:
        RequestError: it has another dtype or shape, or too few or many values.
    """
    name, sizes = info.name, [each.size for each in proto.tensor_shape.dim]
    if proto.dtype != _ENUM[info.dtype]:
        raise RequestError(f"`{name}` must be {DTYPES[info.dtype][0]}")
    fits = len(sizes) == len(info.shape) and not proto.tensor_shape.unknown_rank
    # One value may stand for many in a TensorProto: its size in bytes is no limit.
    most = service.config.max_body_bytes
    if not fits or min(sizes) < 1 or math.prod(sizes) > most:
        raise RequestError(
            f"`{name}` must have {len(info.shape)} dimensions of at least 1, with at "
            f"most {most} values; received {sizes[:9]}"
        )
    try:
        return tf.make_ndarray(proto).tolist()
    except (ValueError, TypeError):
        raise RequestError(
            f"`{name}` must have values for the shape {sizes[:9]}"
        ) from None
