"""TF Serving's REST API: requests, answers and errors."""

from __future__ import annotations

import asyncio
import base64
import gzip
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer
from serving.conftest import Client, Folders

Predict = Callable[[str, Any], list[dict[str, Any]]]
TEXTS = ["win cash now", "see you at six", "日本 é", "free"]


def near(found: Any, wanted: Any) -> bool:
    return np.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize("model", ["spam", "exported"])
def test_rows_are_answered_as_predict_answers(
    client: Client, model: str, predict: Predict
) -> None:
    wanted = predict("spam", TEXTS)
    status, found = client.post(f"/v1/models/{model}:predict", {"instances": TEXTS})
    assert status == 200
    rows = found["predictions"]
    assert [row["label"] for row in rows] == [row["label"] for row in wanted]
    for row, right in zip(rows, wanted, strict=True):
        named = dict(zip(row["classes"], row["probabilities"], strict=True))
        assert near(list(named.values()), list(right["probabilities"].values()))
        assert list(named) == list(right["probabilities"])


def test_rows_and_columns_agree(client: Client) -> None:
    path = "/v1/models/spam:predict"
    rows = client.post(path, {"instances": [{"text": text} for text in TEXTS]})[1]
    columns = client.post(path, {"inputs": {"text": TEXTS}})[1]
    bare = client.post(path, {"inputs": TEXTS})[1]
    assert columns["outputs"]["label"] == [row["label"] for row in rows["predictions"]]
    assert bare["outputs"]["label"] == columns["outputs"]["label"]
    assert set(columns["outputs"]) == {"label", "score", "probabilities", "classes"}


def test_the_answers_are_those_of_the_saved_model(
    client: Client, folders: Folders
) -> None:
    signature = tf.saved_model.load(str(folders.exported / "1")).signatures[
        "serving_default"
    ]
    wanted = signature(text=tf.constant(TEXTS))
    found = client.post("/v1/models/exported:predict", {"inputs": TEXTS})[1]["outputs"]
    assert set(found) == set(wanted)
    assert near(found["probabilities"], wanted["probabilities"].numpy())


def test_base64_is_the_text(client: Client) -> None:
    coded = b64("日本 é")
    path = "/v1/models/spam:predict"
    plain = client.post(path, {"instances": ["日本 é"]})
    assert client.post(path, {"instances": [coded]}) == plain
    assert client.post(path, {"instances": [{"text": coded}]}) == plain


def test_the_client_sends_lone_surrogates_which_predict_drops(
    server: Any, predict: Predict
) -> None:
    from bert_keras.serving.client import Client as OwnClient

    (wanted,) = predict("spam", ["win \ud800cash now"])
    with OwnClient(server.url, model="spam") as own:
        (found,) = own.predict(["win \ud800cash now"])
    assert near(found["score"], wanted["score"])


def test_pairs_have_two_inputs(client: Client, predict: Predict) -> None:
    (wanted,) = predict("pairs", [("win cash", "free prize")])
    row = {"text_a": "win cash", "text_b": "free prize"}
    status, found = client.post("/v1/models/pairs:predict", {"instances": [row]})
    assert status == 200
    assert near(found["predictions"][0]["score"], wanted["score"])
    for wrong in ("win", {"text_a": "win"}, {**row, "text_c": ""}):
        status, found = client.post("/v1/models/pairs:predict", {"instances": [wrong]})
        assert status == 400
        assert "text_a, text_b" in found["error"]


def test_the_signature_of_other_inputs_is_named(client: Client) -> None:
    body = {"instances": [{"words": [["win"]]}]}
    status, found = client.post("/v1/models/tagger:predict", body)
    assert status == 400
    assert found["error"].endswith("the signature `words` has the inputs words")
    inputs = [{"name": "words", "shape": [1, 1], "datatype": "BYTES", "data": ["a"]}]
    status, found = client.post("/v2/models/tagger/infer", {"inputs": inputs})
    assert status == 400
    assert "the signature `words` has the inputs words" in found["error"]


def test_lists_of_words_are_tagged(client: Client) -> None:
    asked = {"signature_name": "words", "instances": [["win", "cash", "now"]]}
    status, found = client.post("/v1/models/tagger:predict", asked)
    assert status == 200
    (row,) = found["predictions"]
    assert len(row["tags"]) == len(row["scores"]) == 3
    asked["instances"] = [["win", ""], ["", ""]]
    status, found = client.post("/v1/models/tagger:predict", asked)
    assert status == 400 and "`words` must hold a text that is not" in found["error"]


def test_texts_are_redacted(server: Any, client: Client, predict: Predict) -> None:
    from bert_keras.serving.client import AsyncClient
    from bert_keras.serving.client import Client as OwnClient

    path = "/v1/models/tagger:predict"
    texts = ["win cash now, see you at six!", "lunch " * 200]
    rows = predict("tagger", texts)
    assert any(row["entities"] for row in rows)
    with OwnClient(server.url, model="tagger") as own:
        found = own.redact(texts, types="X")
        words = own.redact([["win", "cash"]], types=["X"])

    async def ask() -> Any:
        async with AsyncClient(server.url, model="tagger") as own:
            return await own.redact(texts)

    assert asyncio.run(ask()) == found
    for text, row, redacted in zip(texts, rows, found, strict=True):
        for each in reversed(row["entities"]):
            text = f"{text[: each['start']]}[X]{text[each['end'] :]}"
        assert redacted["text"] == text
        for each in redacted["entities"]:
            assert each["text"] == text[each["start"] : each["end"]] == "[X]"
    tags = predict("tagger", [["win", "cash"]])[0]["tags"]
    wanted = [
        word if tag == "O" else "[X]"
        for word, tag in zip(["win", "cash"], tags, strict=True)
    ]
    assert words[0]["text"] == wanted
    status, answer = client.post(path, {"instances": texts, "redact": True})
    assert status == 200
    assert [each["text"] for each in answer["predictions"]] == [
        each["text"] for each in found
    ]
    tensor = {"name": "text", "datatype": "BYTES", "shape": [2], "data": texts}
    asked = {
        "inputs": [tensor],
        "outputs": [{"name": "text"}],
        "parameters": {"redact": "X"},
    }
    status, answer = client.post("/v2/models/tagger/infer", asked)
    assert status == 200
    assert answer["outputs"][0]["data"] == [each["text"] for each in found]
    plain = client.post(path, {"instances": texts, "redact": False})[1]
    assert "text" not in plain["predictions"][0]
    listed = {m["name"]: m["redacts"] for m in client.get("/v1/models")[1]["models"]}
    assert listed["tagger"] is True and listed["spam"] is False
    paths = client.get("/openapi.json")[1]["paths"]
    for name, redacts in listed.items():
        body = paths[f"/v1/models/{name}:predict"]["post"]["requestBody"]["content"]
        for form in body["application/json"]["schema"]["oneOf"]:
            assert ("redact" in form["properties"]) is redacts


@pytest.mark.parametrize(
    ("model", "more", "part"),
    [
        ("spam", {"redact": True}, "received one of classification"),
        ("tagger", {"redact": ["Y"]}, "must be of X; received 'Y'"),
        ("tagger", {"redact": 1}, "must be true, or types of entities; received 1"),
        (
            "tagger",
            {"redact": True, "instances": ["win", "a" * 101]},
            "`text` at 1: to be redacted, a text must have words of at most 100",
        ),
        (
            "tagger",
            {"redact": True, "signature_name": "ids", "instances": [[2, 3]]},
            "`redact` must be left out for `ids`",
        ),
    ],
)
def test_what_cannot_be_redacted_is_refused(
    client: Client, model: str, more: dict[str, Any], part: str
) -> None:
    status, found = client.post(
        f"/v1/models/{model}:predict", {"instances": ["win"], **more}
    )
    assert status == 400 and part in found["error"]


def test_ids_are_answered(client: Client, folders: Folders) -> None:
    tokenizer = WordPieceTokenizer.from_folder(folders.spam)
    batch = Preprocessor(tokenizer, layout="padded")(tf.constant(TEXTS))
    inputs = {name: value.numpy().tolist() for name, value in batch.items()}
    names = ("token_ids", "segment_ids", "padding_mask")
    asked = {"signature_name": "ids", "inputs": {name: inputs[name] for name in names}}
    texts = client.post("/v1/models/spam:predict", {"inputs": TEXTS})[1]["outputs"]
    for model in ("spam", "exported"):
        status, found = client.post(f"/v1/models/{model}:predict", asked)
        assert status == 200
        assert near(found["outputs"]["probabilities"], texts["probabilities"])


def test_ids_out_of_range_are_refused_in_the_graph(client: Client) -> None:
    rows = {name: [[0, 1, 1]] for name in ("segment_ids", "padding_mask")}
    for model in ("spam", "exported"):
        for name, wrong in (("token_ids", -1), ("token_ids", 999), ("segment_ids", -1)):
            inputs = {"token_ids": [[2, 5, 3]], **rows} | {name: [[2, wrong, 1]]}
            inputs |= {} if name == "token_ids" else {name: [[0, wrong, 1]]}
            asked = {"signature_name": "ids", "inputs": inputs}
            status, found = client.post(f"/v1/models/{model}:predict", asked)
            rule = f"`{name}` must be from 0 to "
            assert status == 400 and found["error"].startswith(rule)
            assert found["error"].endswith(f"; received {wrong}")


def test_status_and_versions(client: Client) -> None:
    available = {
        "version": "1",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    owned = {"object": "model", "created": 0, "owned_by": "bert_keras"}
    wanted = (200, {"model_version_status": [available], "id": "exported", **owned})
    assert client.get("/v1/models/exported") == wanted
    assert client.get("/v1/models/exported/versions/1") == wanted
    for path in ("/v1/models/other", "/v1/models/exported/versions/2"):
        assert client.get(path)[0] == 404
    asked = {"instances": TEXTS[:1]}
    path = "/v1/models/exported/versions/{}:predict"
    assert client.post(path.format(1), asked)[0] == 200
    for version in ("2", "x", "9" * 50):
        status, found = client.post(path.format(version), asked)
        assert status == 404
        assert "exported" in found["error"]


def test_metadata_is_that_of_the_saved_model(client: Client, folders: Folders) -> None:
    status, found = client.get("/v1/models/exported/metadata")
    assert status == 200
    assert found["model_spec"] == {
        "name": "exported",
        "signature_name": "",
        "version": "1",
    }
    signatures = found["metadata"]["signature_def"]["signature_def"]
    loaded = tf.saved_model.load(str(folders.exported / "1")).signatures
    assert set(signatures) == set(loaded)
    text = signatures["serving_default"]["inputs"]["text"]
    assert text["dtype"] == "DT_STRING"
    assert [dim["size"] for dim in text["tensor_shape"]["dim"]] == ["-1"]
    assert set(signatures["ids"]["outputs"]) == set(loaded["ids"].structured_outputs)


def test_the_list_names_models_tasks_and_inputs(client: Client) -> None:
    status, found = client.get("/v1/models")
    assert status == 200
    models = {model["name"]: model for model in found["models"]}
    assert list(models) == ["spam", "exported", "pairs", "tagger"]
    assert models["tagger"]["task"] == "token-classification"
    inputs = models["pairs"]["signatures"]["serving_default"]["inputs"]
    assert inputs == [
        {"name": name, "dtype": "string", "shape": [-1]}
        for name in ("text_a", "text_b")
    ]


BAD_BODIES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "JSON"),
    "broken": (b'{"instances": ["a"', "JSON"),
    "not-utf8": (b'{"instances": ["\xff\xfe"]}', "UTF-8"),
    "nan": (b'{"instances": [NaN]}', "NaN"),
    "deep": (b"[" * 100_000, "deeply"),
    "huge-number": (b'{"instances": [' + b"9" * 5000 + b"]}", "JSON"),
    "list": (b"[1]", "object"),
    "neither": (b"{}", "either"),
    "both": (b'{"instances": ["a"], "inputs": ["a"]}', "either"),
    "unknown-key": (b'{"instances": ["a"], "other": 1}', "other"),
    "no-rows": (b'{"instances": []}', "1 to 40"),
    "no-list": (b'{"instances": "a"}', "list"),
    "number": (b'{"instances": [1]}', "strings"),
    "null": (b'{"inputs": [null]}', "strings"),
    "nested": (b'{"instances": [["a"]]}', "strings"),
    "wrong-name": (b'{"instances": [{"txt": "a"}]}', "text"),
    "bad-base64": (b'{"instances": [{"b64": "?"}]}', "base64"),
    "not-utf-8": (b'{"instances": [{"b64": "Y2Fm6Q=="}]}', "byte 0xe9 is not"),
    "half-surrogate": (b'{"instances": ["\\ud800"]}', "surrogate"),
    "signature": (b'{"instances": ["a"], "signature_name": "no"}', "serving_default"),
    "signature-type": (b'{"instances": ["a"], "signature_name": 3}', "string"),
    "ids-type": (
        b'{"signature_name": "ids", "instances": [{"token_ids": ["a"], '
        b'"segment_ids": [0], "padding_mask": [1]}]}',
        "int32",
    ),
    "ids-ragged": (
        b'{"signature_name": "ids", "inputs": {"token_ids": [[2], [2, 3]], '
        b'"segment_ids": [[0], [0, 0]], "padding_mask": [[1], [1, 1]]}}',
        "one length",
    ),
    "ids-out-of-range": (
        b'{"signature_name": "ids", "instances": [{"token_ids": [2, 100000, 3], '
        b'"segment_ids": [0, 0, 0], "padding_mask": [1, 1, 1]}]}',
        "must be from 0 to",
    ),
    "ids-unequal": (
        b'{"signature_name": "ids", "instances": [{"token_ids": [2, 3, 3], '
        b'"segment_ids": [0, 0], "padding_mask": [1, 1, 1]}]}',
        "must have rows of one shape; received (3,), (2,), (3,)",
    ),
    "ids-of-one": (
        b'{"signature_name": "ids", "instances": [{"token_ids": [2, 3, 3], '
        b'"segment_ids": [0], "padding_mask": [1]}]}',
        "must have rows of one shape; received (3,), (1,), (1,)",
    ),
}


@pytest.mark.parametrize("kind", BAD_BODIES)
def test_a_wrong_body_is_rejected(client: Client, kind: str) -> None:
    body, part = BAD_BODIES[kind]
    status, _, answer = client.send("POST", "/v1/models/spam:predict", body)
    assert status == 400
    assert part.encode() in answer
    assert answer.startswith(b'{"error":')
    assert b"\\n" not in answer


def b64(text: str) -> dict[str, str]:
    return {"b64": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()}


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["a"] * 41, "1 to 40"),
        (["a" * 2001], "at most 2000 characters; received 2001"),
        ([b64("日" * 2001)], "at most 2000 characters; received 2001"),
    ],
    ids=["n", "long", "bytes"],
)
def test_too_much_is_rejected(client: Client, rows: Any, told: str) -> None:
    status, found = client.post("/v1/models/spam:predict", {"instances": rows})
    assert status == 413
    assert told in found["error"]


def test_characters_are_counted_not_bytes(client: Client) -> None:
    found = client.post("/v1/models/spam:predict", {"instances": [b64("日" * 2000)]})
    assert found[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/spam:predict", 405),
        ("POST", "/v1/models/spam", 405),
        ("GET", "/v1/models/spam/versions/1:predict", 405),
        ("PUT", "/v1/models/spam:predict", 405),
        ("GET", "/v2/models/spam/infer", 405),
        ("POST", "/v1/models/spam:classify", 404),
        ("GET", "/v1/models/spam/", 404),
        ("GET", "/nothing", 404),
        ("POST", "/decode", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/%2e%2e/%2e%2e/server.py", 404),
        ("GET", "/..%2fserver.py", 404),
        ("POST", "/", 405),
        ("POST", "/v1/models/spam/versions/1/versions/1:predict", 404),
    ],
)
def test_a_wrong_path_or_method_is_rejected(
    client: Client, method: str, path: str, status: int
) -> None:
    body = None if method == "GET" else b"{}"
    found, headers, answer = client.send(method, path, body)
    assert found == status
    assert answer.startswith(b'{"error":')
    if path.endswith((":predict", "/infer")) and status == 405:
        assert headers["allow"] == "POST"


def test_a_body_that_is_too_large_is_rejected(client: Client) -> None:
    body = b'{"instances": ["' + b"a" * 3_000_000 + b'"]}'
    status, _, answer = client.send("POST", "/v1/models/spam:predict", body)
    assert status == 413
    assert b"at most" in answer


@pytest.mark.parametrize("path", ["/v1/models/spam:predict", "/v2/models/spam/infer"])
@pytest.mark.slow
def test_bodies_packed_with_gzip(client: Client, path: str) -> None:
    body = b'{"instances": ["win cash now"]}'
    if path.startswith("/v2"):
        body = (
            b'{"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", '
            b'"data": ["win cash now"]}]}'
        )

    def send(packed: bytes, encoding: str = "gzip") -> tuple[int, bytes]:
        headers = {"Content-Encoding": encoding}
        status, _, answer = client.send("POST", path, packed, headers)
        return status, answer

    plain = send(body, "identity")
    assert plain[0] == 200
    assert send(gzip.compress(body)) == plain
    assert send(gzip.compress(body[:9]) + gzip.compress(body[9:]), "x-gzip") == plain
    bomb = gzip.compress(b" " * 300_000_000, compresslevel=9)
    assert send(bomb)[0] == 413
    for broken in (body, gzip.compress(body)[:-4], gzip.compress(body) + b"x"):
        status, answer = send(broken)
        assert status == 400 and b"must be gzip" in answer
    status, answer = send(body, "br")
    assert status == 415 and b"received 'br'" in answer


def test_a_body_that_is_not_read_closes_the_connection(client: Client) -> None:
    for path, status in (("/v1/models/spam", 405), ("/a/b", 404)):
        found, headers, _ = client.send("POST", path, b"{}")
        assert (found, headers.get("connection")) == (status, "close")
    found, headers, _ = client.send("POST", "/v1/models/spam:predict", b"{}")
    assert (found, headers.get("connection")) == (400, None)


def test_each_request_gets_its_own_answers(client: Client, predict: Predict) -> None:
    """Each of many requests at once gets what it gets alone."""
    from concurrent.futures import ThreadPoolExecutor

    texts = [" ".join((TEXTS * 5)[: 1 + number % 7]) for number in range(60)]
    wanted = predict("spam", texts)

    def ask(text: str) -> Any:
        return client.post("/v1/models/spam:predict", {"instances": [text]})

    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(ask, texts))
    for (status, answer), right in zip(found, wanted, strict=True):
        assert status == 200
        assert near(answer["predictions"][0]["score"], right["score"])


@pytest.mark.parametrize("model", ["spam", "exported"])
def test_tokens_that_are_not_read_are_told(
    client: Client, server: Any, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from bert_keras.serving.client import Client as OwnClient

    texts = ["see you", "free " * 40]  # of 42 tokens, 24 are read
    path = f"/v1/models/{model}:predict"
    assert client.post(path, {"inputs": texts})[1]["truncated_tokens"] == [0, 18]
    found = client.post(path, {"instances": texts})[1]
    assert found["truncated_tokens"] == [0, 18] and len(found["predictions"]) == 2
    assert set(found["predictions"][1]) == set(found["predictions"][0])
    assert "truncated_tokens" not in client.post(path, {"instances": texts[:1]})[1]
    tensor = {"name": "text", "shape": [2], "datatype": "BYTES", "data": texts}
    infer = client.post(f"/v2/models/{model}/infer", {"inputs": [tensor]})[1]
    assert infer["parameters"] == {"truncated_tokens": "0,18"}
    capsys.readouterr()
    with OwnClient(server.url, model=model) as own:
        assert len(own.predict(texts)) == len(own.predict(texts)) == 2
    err = capsys.readouterr().err
    assert err.count(": 1 of 2, 18 tokens in all") == 1
