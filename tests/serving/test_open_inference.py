"""The Open Inference Protocol."""

from __future__ import annotations

from typing import Any

import pytest

from serving.conftest import Client

TEXTS = ["win cash now", "see you at six"]
INPUT = {"name": "text", "shape": [2], "datatype": "BYTES", "data": TEXTS}


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


def test_binary_tensors_are_rejected_with_the_remedy(client: Client) -> None:
    """KServe's client sends JSON, whose length a header tells, and then the values."""
    head = b'{"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", '
    head += b'"parameters": {"binary_data_size": 7}}]}'
    status, _, body = client.send(
        "POST",
        "/v2/models/spam/infer",
        head + b"\x03\x00\x00\x00win",
        {"Inference-Header-Content-Length": str(len(head))},
    )
    assert status == 400
    assert b"binary_data=False" in body


@pytest.mark.parametrize("data", [["a", "b", "c", "d"], [["a", "b"], ["c", "d"]]])
def test_lists_are_flat_or_nested(client: Client, data: list[Any]) -> None:
    words = {"name": "words", "shape": [2, 2], "datatype": "BYTES", "data": data}
    asked = {"inputs": [words], "parameters": {"signature_name": "words"}}
    status, found = client.post("/v2/models/tagger/infer", asked)
    assert status == 200
    assert [each["shape"] for each in found["outputs"]] == [[2, 2], [2, 2]]


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
    ],
    ids=lambda asked: "-".join(asked) or "empty",
)
def test_a_wrong_request_is_rejected(client: Client, asked: Any) -> None:
    assert client.post("/v2/models/spam/infer", asked)[0] == 400
