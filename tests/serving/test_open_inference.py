"""The Open Inference Protocol."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from bert_keras.serving.tensor_bytes import values_of
from serving.conftest import Client

TEXTS = ["win cash now", "see you at six"]
INFER = "/v2/models/spam/infer"
INPUT: dict[str, Any] = {
    "name": "text",
    "shape": [2],
    "datatype": "BYTES",
    "data": TEXTS,
}


def test_the_server_is_live(client: Client) -> None:
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/spam/ready"):
        assert client.get(path)[0] == 200
    assert client.get("/v2")[1]["name"] == "bert_keras"
    assert client.get("/v2/models/spam/versions/1/ready")[0] == 200
    for path in ("/v2/models/no/ready", "/v2/models/spam/versions/2/ready"):
        assert client.get(path)[0] == 404


def test_a_model_lists_its_tensors(client: Client) -> None:
    found = client.get("/v2/models/pairs")[1]
    assert found["versions"] == ["1"]
    assert found["platform"] == "tensorflow_savedmodel"
    assert found["inputs"] == [
        {"name": name, "datatype": "BYTES", "shape": [-1]}
        for name in ("text_a", "text_b")
    ]
    outputs = {each["name"]: each for each in found["outputs"]}
    assert outputs["probabilities"]["datatype"] == "FP32"
    assert outputs["probabilities"]["shape"] == [-1, 2]


def test_the_answers_are_those_of_rest(client: Client) -> None:
    rest = client.post("/v1/models/spam:predict", {"inputs": TEXTS})[1]["outputs"]
    asked = {"id": "x1", "inputs": [INPUT]}
    status, found = client.post("/v2/models/spam/infer", asked)
    assert status == 200
    assert (found["id"], found["model_name"], found["model_version"]) == (
        *("x1", "spam"),
        "1",
    )
    outputs = {each["name"]: each for each in found["outputs"]}
    assert outputs["label"]["data"] == rest["label"]
    assert outputs["label"]["datatype"] == "BYTES"
    assert outputs["probabilities"]["shape"] == [2, 3]
    flat = sum(rest["probabilities"], [])
    assert outputs["probabilities"]["data"] == pytest.approx(flat, abs=1e-5)


def test_outputs_can_be_chosen(client: Client) -> None:
    asked: dict[str, Any] = {"inputs": [INPUT], "outputs": [{"name": "label"}]}
    found = client.post("/v2/models/spam/infer", asked)[1]
    assert [each["name"] for each in found["outputs"]] == ["label"]
    asked["outputs"] = [{"name": "no"}]
    status, found = client.post("/v2/models/spam/infer", asked)
    assert status == 400
    assert "probabilities" in found["error"]


def _binary(texts: list[str], **request: Any) -> tuple[bytes, dict[str, str]]:
    """Return a request as Triton's and KServe's clients send it, and its header."""
    data = b"".join(struct.pack("<I", len(t)) + t for t in map(str.encode, texts))
    given = {
        **INPUT,
        "shape": [len(texts)],
        "parameters": {"binary_data_size": len(data)},
    }
    del given["data"]
    head = json.dumps({"inputs": [given], **request}).encode()
    return head + data, {"Inference-Header-Content-Length": str(len(head))}


def test_binary_tensors_have_the_answers_of_json(client: Client) -> None:
    expected = client.post("/v2/models/spam/infer", {"inputs": [INPUT]})[1]["outputs"]
    body, headers = _binary(TEXTS, parameters={"binary_data_output": True})
    status, found, answer = client.send("POST", INFER, body, headers)
    assert status == 200
    place = int(found["inference-header-content-length"])
    outputs = json.loads(answer[:place])["outputs"]
    assert [each["name"] for each in outputs] == [each["name"] for each in expected]
    for output, wanted in zip(outputs, expected, strict=True):
        assert "data" not in output
        end = place + output["parameters"]["binary_data_size"]
        values = values_of(output["name"], output["datatype"], answer[place:end])
        place = end
        if output["datatype"] == "BYTES":
            assert [value.decode() for value in values] == wanted["data"]
        else:
            assert values == pytest.approx(wanted["data"], abs=1e-6)
    assert place == len(answer)


def test_outputs_are_binary_by_choice(client: Client) -> None:
    asked = [
        {"name": "label", "parameters": {"binary_data": True}},
        {"name": "probabilities"},
    ]
    body, headers = _binary(TEXTS, outputs=asked)
    status, found, answer = client.send("POST", INFER, body, headers)
    assert status == 200
    size = int(found["inference-header-content-length"])
    label, probabilities = json.loads(answer[:size])["outputs"]
    assert "data" not in label
    assert len(probabilities["data"]) == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda body, head: (body[:-1], head), "binary_data_size"),
        (lambda body, head: (body + b"a", head), "binary_data_size"),
        (lambda body, head: (body, len(body) + 1), "Inference-Header-Content-Length"),
        (lambda body, head: (body, "a"), "Inference-Header-Content-Length"),
        (
            lambda body, head: (body[:head] + b"\xff" * (len(body) - head), head),
            "end within",
        ),
        (lambda body, head: (body.replace(b"BYTES", b"INT32"), head), "datatype"),
    ],
)
def test_wrong_binary_data_is_rejected(client: Client, change: Any, words: str) -> None:
    body, headers = _binary(TEXTS)
    name = "Inference-Header-Content-Length"
    body, head = change(body, int(headers[name]))
    status, _, answer = client.send("POST", INFER, body, {name: str(head)})
    assert status == 400
    assert words in json.loads(answer)["error"]


@pytest.mark.parametrize("name", ["sequence_id", "classification", "signture_name"])
def test_a_parameter_that_would_change_answers_is_rejected(
    client: Client, name: str
) -> None:
    asked = {"inputs": [INPUT], "parameters": {name: 1}}
    status, found = client.post(INFER, asked)
    assert status == 400
    assert name in found["error"]


@pytest.mark.parametrize("data", [["a", "b", "c", "d"], [["a", "b"], ["c", "d"]]])
def test_lists_are_flat_or_nested(client: Client, data: list[Any]) -> None:
    words = {"name": "words", "shape": [2, 2], "datatype": "BYTES", "data": data}
    asked = {"inputs": [words], "parameters": {"signature_name": "words"}}
    status, found = client.post("/v2/models/tagger/infer", asked)
    assert status == 200
    assert [each["shape"] for each in found["outputs"]] == [[2, 2], [2, 2]]


@pytest.mark.parametrize(
    "data",
    [[["a", "b", "c"]], [["a", "b"]], [["a", "b"], ["c"]], [["a", "b"], "cd"]],
)
def test_nested_lists_have_the_shape(client: Client, data: list[Any]) -> None:
    words = {"name": "words", "shape": [2, 2], "datatype": "BYTES", "data": data}
    asked = {"inputs": [words], "parameters": {"signature_name": "words"}}
    status, found = client.post("/v2/models/tagger/infer", asked)
    assert status == 400 and "4 values for the shape" in found["error"]
    if len(data) == 1:
        words["shape"] = [1, 4]
        assert client.post("/v2/models/tagger/infer", asked)[0] == 400


@pytest.mark.parametrize(
    "change",
    [
        {"datatype": "FP32"},
        {"shape": [3]},
        {"shape": [2, 1]},
        {"shape": "2"},
        {"shape": [-2]},
        {"shape": [10**30]},
        {"data": "ab"},
        {"data": [1, 2]},
        {"name": "other"},
        {"name": None},
    ],
    ids=lambda change: "-".join(f"{k}-{v}" for k, v in change.items()),
)
def test_a_wrong_input_is_rejected(client: Client, change: dict[str, Any]) -> None:
    asked = {"inputs": [{**INPUT, **change}]}
    status, found = client.post("/v2/models/spam/infer", asked)
    assert status == 400
    assert found["error"]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"inputs": []},
        {"inputs": "a"},
        {"inputs": [INPUT, INPUT]},
        {"inputs": [INPUT], "id": 3},
        {"inputs": [INPUT], "parameters": []},
        {"inputs": [INPUT], "outputs": ["label"]},
        {"inputs": [INPUT], "output": []},
        {"inputs": [{**INPUT, "paramters": {}}]},
        {"inputs": [INPUT], "outputs": [{"name": "label", "shape": [1]}]},
    ],
    ids=lambda asked: "-".join(asked) or "empty",
)
def test_a_wrong_request_is_rejected(client: Client, asked: Any) -> None:
    assert client.post("/v2/models/spam/infer", asked)[0] == 400
