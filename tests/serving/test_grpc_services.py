"""The gRPC interface of TF Serving."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.json_format import ParseDict
from tensorflow.core.protobuf import error_codes_pb2

from bert_keras.serving import Server
from bert_keras.serving.tensor_bytes import values_of
from serving.conftest import Client

grpc = pytest.importorskip("grpc")
apis = pytest.importorskip("tensorflow_serving.apis")

from tensorflow_serving.apis import (  # noqa: E402
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

TEXTS = ["win cash now", "see you at six", "日本"]


@pytest.fixture(scope="module")
def channel(server: Server) -> Iterator[Any]:
    with grpc.insecure_channel(server.grpc_address) as found:
        yield found


@pytest.fixture(scope="module")
def prediction(channel: Any) -> Any:
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def asked(model: str, **inputs: Any) -> Any:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    for name, values in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    return request


@pytest.mark.parametrize("model", ["spam", "exported"])
def test_the_answers_are_those_of_rest(
    prediction: Any, client: Client, model: str
) -> None:
    path = f"/v1/models/{model}:predict"
    rest = client.post(path, {"inputs": TEXTS})[1]["outputs"]
    found = prediction.Predict(asked(model, text=TEXTS), timeout=30)
    assert (found.model_spec.name, found.model_spec.version.value) == (model, 1)
    assert found.model_spec.signature_name == "serving_default"
    labels = tf.make_ndarray(found.outputs["label"])
    assert [label.decode() for label in labels] == rest["label"]
    scores = tf.make_ndarray(found.outputs["probabilities"])
    assert np.allclose(scores, rest["probabilities"], atol=1e-5)


def test_ids_words_versions_and_filters(prediction: Any) -> None:
    ids = {
        "token_ids": [[2, 6, 3]],
        "segment_ids": [[0] * 3],
        "padding_mask": [[1] * 3],
    }
    request = asked("spam", **{k: np.array(v, np.int32) for k, v in ids.items()})
    request.model_spec.signature_name = "ids"
    request.model_spec.version.value = 1
    request.output_filter.append("label")
    assert list(prediction.Predict(request, timeout=30).outputs) == ["label"]
    request = asked("tagger", words=[["win", "cash"], ["see", "you"]])
    request.model_spec.signature_name = "words"
    found = prediction.Predict(request, timeout=30)
    assert tf.make_ndarray(found.outputs["tags"]).shape == (2, 2)


def wrong_requests() -> dict[str, tuple[Any, Any]]:
    invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    version, label = asked("spam", text=TEXTS), asked("spam", text=TEXTS)
    version.model_spec.version.value = 7
    label.model_spec.version_label = "stable"
    filtered, signature = asked("spam", text=TEXTS), asked("spam", text=TEXTS)
    filtered.output_filter.append("no")
    signature.model_spec.signature_name = "no"
    broadcast = asked("spam", text=["a"])
    broadcast.inputs["text"].tensor_shape.dim[0].size = 10**9
    overfull = asked("spam", text=TEXTS)
    overfull.inputs["text"].tensor_shape.dim[0].size = 2
    return {
        "model": (asked("no", text=TEXTS), missing),
        "version": (version, missing),
        "label": (label, invalid),
        "filter": (filtered, invalid),
        "signature": (signature, invalid),
        "input": (asked("spam", other=TEXTS), invalid),
        "none": (asked("spam"), invalid),
        "dtype": (asked("spam", text=[1, 2]), invalid),
        "rank": (asked("spam", text=[["a"]]), invalid),
        "scalar": (asked("spam", text="a"), invalid),
        "broadcast": (broadcast, invalid),
        "overfull": (overfull, invalid),
        "long": (asked("spam", text=["a" * 2001]), invalid),
    }


@pytest.mark.parametrize("kind", wrong_requests())
def test_a_wrong_request_is_rejected(prediction: Any, kind: str) -> None:
    request, code = wrong_requests()[kind]
    with pytest.raises(grpc.RpcError) as caught:
        prediction.Predict(request, timeout=30)
    assert caught.value.code() == code
    assert "\n" not in caught.value.details()


def test_metadata_and_status(prediction: Any, channel: Any, client: Client) -> None:
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "pairs"
    request.metadata_field.append("signature_def")
    found = prediction.GetModelMetadata(request, timeout=30)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert found.metadata["signature_def"].Unpack(signatures)
    inputs = signatures.signature_def["serving_default"].inputs
    assert {name: each.dtype for name, each in inputs.items()} == {
        "text_a": tf.string.as_datatype_enum,
        "text_b": tf.string.as_datatype_enum,
    }
    rest = client.get("/v1/models/pairs/metadata")[1]["metadata"]["signature_def"]
    assert ParseDict(rest, get_model_metadata_pb2.SignatureDefMap()) == signatures
    models = model_service_pb2_grpc.ModelServiceStub(channel)
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "pairs"
    (status,) = models.GetModelStatus(request, timeout=30).model_version_status
    states = get_model_status_pb2.ModelVersionStatus.State
    assert (status.version, status.state) == (1, states.AVAILABLE)
    assert status.HasField("status")
    assert status.status.error_code == error_codes_pb2.OK
    request.model_spec.name = "no"
    with pytest.raises(grpc.RpcError) as caught:
        models.GetModelStatus(request, timeout=30)
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


def test_tokens_that_are_not_read_are_in_the_metadata(prediction: Any) -> None:
    _, call = prediction.Predict.with_call(asked("spam", text=["a", "free " * 40]))
    assert dict(call.trailing_metadata())["truncated-tokens"] == "0,18"
    _, call = prediction.Predict.with_call(asked("spam", text=["a"]))
    assert "truncated-tokens" not in dict(call.trailing_metadata())


def test_the_open_inference_protocol_has_the_same_answers(
    server: Server, channel: Any, client: Client
) -> None:
    """Its messages are built from their fields; tritonclient reads them in peers."""
    from bert_keras.serving import open_inference_grpc as own

    def call(name: str, /, **fields: Any) -> Any:
        method = channel.unary_unary(
            f"/inference.GRPCInferenceService/{name}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=own.MESSAGES[f"{name}Response"].FromString,
        )
        return method(ParseDict(fields, own.MESSAGES[f"{name}Request"]()), timeout=30)

    assert call("ServerLive").live
    assert call("ModelReady", name="spam").ready
    assert not call("ModelReady", name="nope").ready
    plain = {"name": "text", "datatype": "BYTES", "shape": [3]}
    contents = [base64.b64encode(each.encode()).decode() for each in TEXTS]
    text = {**plain, "contents": {"bytes_contents": contents}}
    found = call("ModelInfer", model_name="spam", id="x", inputs=[text])
    assert (found.id, found.model_name, found.model_version) == ("x", "spam", "1")
    rest = client.post("/v2/models/spam/infer", {"inputs": [{**plain, "data": TEXTS}]})
    for output, raw, wanted in zip(
        found.outputs, found.raw_output_contents, rest[1]["outputs"], strict=True
    ):
        values = values_of(output.name, output.datatype, raw)
        if output.datatype == "BYTES":
            values = [value.decode() for value in values]
            assert values == wanted["data"]
        else:
            assert values == pytest.approx(wanted["data"], abs=1e-6)
    for wrong in (
        {"inputs": [{**text, "shape": [2]}]},
        {"inputs": [text], "raw_input_contents": ["YQ==", "YQ=="]},
        {"inputs": [{**text, "contents": {}}]},
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call("ModelInfer", model_name="spam", **wrong)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
