"""The clients against a server of TF Serving's REST API, which fails now and then."""

from __future__ import annotations

import asyncio
import datetime
import email.utils
import socket
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from conftest import ROOT, refused
from task_cases import first_case

from bert_keras.errors import DataError, ServerError
from bert_keras.inference.predictor import Predictor
from bert_keras.serving import client as client_module
from bert_keras.serving.client import AsyncClient, Client, _retry_after
from bert_keras.tasks import TASKS
from bert_keras.tasks.protocols import input_specs, texts_of
from serving.rest_stub import Stub, running, stub_of

pytest.importorskip("httpx")

TEXT = (tf.TensorSpec([None], tf.string, name="text"),)


def echo(text: Any) -> dict[str, Any]:
    return {"text": text, "length": tf.strings.length(text)}


@pytest.fixture(scope="module")
def server() -> Iterator[Stub]:
    """Return a server whose model gives texts back, with their lengths."""
    with running(stub_of({"serving_default": (TEXT, echo)})) as stub:
        yield stub


@pytest.fixture
def stub(server: Stub) -> Stub:
    """Return the server, which has seen nothing and fails with nothing."""
    server.requests.clear()
    server.failures.clear()
    return server


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the seconds that clients wait; they do not really wait.

    Only the client's view of both modules changes: servers of other tests sleep, too.
    """
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    for name, instead in (("time", found.append), ("asyncio", sleep)):
        module = vars(getattr(client_module, name)) | {"sleep": instead}
        monkeypatch.setattr(client_module, name, types.SimpleNamespace(**module))
    return found


def ask(kind: str, stub: Stub, texts: Any, **settings: Any) -> Any:
    """Return what a client of a kind answers."""
    if kind == "sync":
        with Client(stub.url, model="m", **settings) as client:
            return client.predict(texts)

    async def run() -> Any:
        async with AsyncClient(stub.url, model="m", **settings) as client:
            return await client.predict(texts)

    return asyncio.run(run())


KINDS = pytest.mark.parametrize("kind", ["sync", "async"])


def bodies(stub: Stub) -> list[Any]:
    return [body for method, _, _, body in stub.requests if method == "POST"]


@KINDS
def test_texts_go_in_batches_and_come_back_in_order(stub: Stub, kind: str) -> None:
    texts = [f"text {number}" for number in range(7)]
    rows = ask(kind, stub, texts, batch_size=3)
    assert rows == [{"text": text, "length": 6} for text in texts]
    sizes = sorted(len(body["inputs"]["text"]) for body in bodies(stub))
    assert sizes == [1, 3, 3]
    assert bodies(stub)[0]["signature_name"] == "serving_default"


def test_the_place_of_a_rejected_batch_is_told(stub: Stub) -> None:
    with Client(stub.url, model="m", batch_size=3) as client:
        client.predict(["a"])  # which reads the signatures
        first = '{"outputs": {"text": ["a", "a", "a"], "length": [1, 1, 1]}}'
        stub.failures += [(200, {}, first), (400, {}, '{"error": "x at index 1"}')]
        refused(lambda: client.predict(["a"] * 5), "x at index 1 (of the texts from 3)")


def test_requests_of_the_async_client_overlap() -> None:
    most, now = [], []

    def slow(text: Any) -> dict[str, Any]:
        now.append(1)
        most.append(len(now))
        client_module.time.sleep(0.1)
        now.pop()
        return {"score": tf.zeros(tf.shape(text))}

    with running(stub_of({"serving_default": (TEXT, slow)})) as stub:
        most.clear()
        ask("async", stub, ["a"] * 6, batch_size=1, concurrency=3)
    assert max(most) == 3


def test_a_server_that_does_not_redact_is_refused(stub: Stub) -> None:
    with Client(stub.url, model="m") as client:
        refused(lambda: client.redact(["a"]), "does not redact texts")
        assert bodies(stub)[-1]["redact"] is True


def test_no_texts_send_no_request(stub: Stub) -> None:
    assert ask("sync", stub, []) == []
    assert bodies(stub) == []


def test_any_form_that_predict_accepts(stub: Stub) -> None:
    given = [["a", "b"], (text for text in "ab"), {"text": ["a", "b"]}]
    given += [[{"text": "a"}, {"text": "b"}], tf.constant(["a", "b"])]
    for texts in given:
        assert [row["text"] for row in ask("sync", stub, texts)] == ["a", "b"]


def test_a_lone_surrogate_is_sent_as_bytes(stub: Stub) -> None:
    ask("sync", stub, ["é 日\0", "cash\udcff"])
    (body,) = bodies(stub)
    assert body["inputs"]["text"] == ["é 日\0", {"b64": "Y2FzaO2zvw=="}]


def test_the_place_of_a_model(stub: Stub) -> None:
    settings: list[dict[str, Any]] = [{}, {"version": 3}, {"label": "stable/1"}]
    for each in settings:
        with Client(f"{stub.url}/models/", model="a b", **each) as client:
            client.predict(["a"])
    paths = [path for method, path, *_ in stub.requests if method == "POST"]
    place = "/models/v1/models/a%20b"
    ends = [":predict", "/versions/3:predict", "/labels/stable%2F1:predict"]
    assert paths == [place + end for end in ends]


@KINDS
def test_the_key_goes_with_each_request(stub: Stub, kind: str) -> None:
    ask(kind, stub, ["a"], api_key="secret")
    assert len(stub.requests) == 2
    assert {h["authorization"] for _, _, h, _ in stub.requests} == {"Bearer secret"}


@KINDS
def test_a_request_to_a_busy_server_is_retried(
    stub: Stub, waits: list[float], kind: str
) -> None:
    stub.failures += [(503, {}, ""), (429, {"Retry-After": "7"}, ""), (502, {}, "x")]
    assert ask(kind, stub, ["a"])[0]["text"] == "a"
    first, asked, third = waits
    assert 0.125 <= first <= 0.25
    assert 7.25 <= asked <= 7.5  # or all clients of our server came back at once
    assert 0.5 <= third <= 1.0


@KINDS
def test_a_broken_connection_is_retried(
    stub: Stub, waits: list[float], kind: str
) -> None:
    stub.failures += [(0, {}, "")] * 2
    assert ask(kind, stub, ["a"])[0]["text"] == "a"
    assert len(waits) == 2


@KINDS
def test_a_server_that_stays_busy(stub: Stub, waits: list[float], kind: str) -> None:
    stub.failures += [(503, {}, '{"error": "queue is full"}')] * 3
    said = refused(
        lambda: ask(kind, stub, ["a"], retries=2), "503: queue is full (after 3 tries)"
    )
    assert said.startswith(f"{stub.url}/v1/models/m")
    assert len(waits) == 2


def test_waits_grow_to_a_minute(stub: Stub, waits: list[float]) -> None:
    stub.failures += [(503, {}, "")] * 12
    assert ask("sync", stub, ["a"], retries=12)[0]["text"] == "a"
    assert 30 <= waits[-1] <= 60


def test_a_retry_after_of_hours(stub: Stub, waits: list[float]) -> None:
    stub.failures += [(503, {"Retry-After": "7200"}, "down for repairs")]
    refused(lambda: ask("sync", stub, ["a"]), "503: down for repairs")
    assert not waits


@KINDS
def test_no_server_listens(waits: list[float], kind: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    refused(lambda: ask(kind, Stub(url=url), ["a"], retries=1), "after 2 tries", url)
    assert len(waits) == 1


@KINDS
def test_a_slow_request_is_not_retried(waits: list[float], kind: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        refused(lambda: ask(kind, Stub(url=url), ["a"], timeout=1.0), url, "within 1 s")
    assert not waits


@KINDS
@pytest.mark.parametrize(
    ("failure", "part"),
    [
        ((404, {}, '{"error": "Servable not found: m"}'), "404: Servable not found: m"),
        ((401, {}, "[1"), "401: [1"),
        ((302, {"Location": "http://127.0.0.1:1"}, ""), "302: Found"),
        ((200, {}, "<html>"), "cannot be read"),
        ((200, {}, "[]"), "lists no signatures"),
        ((200, {}, '{"metadata": {}}'), "lists no signatures"),
        (
            (200, {}, '{"metadata": {"signature_def": {"signature_def": {}}}}'),
            "has no signature that takes strings",
        ),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
)
def test_invalid_metadata(
    stub: Stub, waits: list[float], kind: str, failure: Any, part: str
) -> None:
    stub.failures.append(failure)
    with pytest.raises(ServerError) as caught:
        ask(kind, stub, ["a"])
    assert part in str(caught.value)
    assert not waits


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"outputs": {"length": [NaN]}}', "cannot be read: NaN is not a JSON number"),
        ('{"outputs": {"length": [1, 2]}}', "`length` must be a list of 1 values"),
        ('{"outputs": {"length": 1}}', "`length` must be a list of 1 values"),
        ('{"outputs": [1]}', "`outputs` must be an object"),
        ('{"predictions": []}', "does not match `serving_default`: KeyError"),
        ("[" * 100_000, "cannot be read"),
        (
            '{"outputs": {"label": ["a"], "score": [1], "classes": [1], '
            '"probabilities": [1]}}',
            "TypeError",
        ),
    ],
    ids=range(7),
)
def test_invalid_answers(stub: Stub, text: str, part: str) -> None:
    with Client(stub.url, model="m") as client:
        client.predict(["a"])
        stub.failures.append((200, {}, text))
        refused(lambda: client.predict(["a"]), stub.url, part)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"url": "localhost:8501"}, ("`url` must be http(s)", "'localhost:8501'")),
        ({"url": "http://[::1"}, ("`url` must be http(s)",)),
        ({"model": ""}, ("`model` must", "''")),
        ({"version": 0}, ("`version` must", "0")),
        ({"version": 1, "label": "x"}, ("`version` or `label`", "1 and 'x'")),
        ({"batch_size": 0}, ("`batch_size`",)),
        ({"timeout": 0}, ("`timeout`",)),
        ({"retries": -1}, ("`retries`",)),
        ({"api_key": "se cret"}, ("`api_key` must be",)),
        ({"api_key": ""}, ("`api_key` must be",)),
        ({"api_key": "a\r\nb: c"}, ("`api_key` must be",)),
    ],
    ids=range(11),
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_wrong_settings(kind: Any, settings: Any, parts: tuple[str, ...]) -> None:
    given = {"url": "http://localhost:8501", "model": "m", **settings}
    said = refused(lambda: kind(given.pop("url"), **given), *parts)
    assert "se cret" not in said


def test_a_text_that_is_missing(stub: Stub) -> None:
    with pytest.raises(
        DataError,
        match=r"each item of `texts` must hold text; received None at index 1",
    ):
        ask("sync", stub, ["a", None])
    with pytest.raises(DataError, match="must be a list of strings"):
        ask("sync", stub, "a")


def test_a_prompt_that_is_none() -> None:
    names = ("serving_default", "query", "document", "search")
    with running(stub_of(dict.fromkeys(names, (TEXT, echo)))) as stub:
        with Client(stub.url, model="m") as client:
            action = lambda: client.embed(["a"], prompt="search")  # noqa: E731
            refused(action, "`prompt` must be one of document, query for", "'search'")


def test_what_is_found_keeps_the_score_of_the_search() -> None:
    def find(text: Any) -> dict[str, Any]:
        names = ("scores", "search_scores", "texts", "ids")
        return {name: text[:, None] for name in names}

    with running(stub_of({"serving_default": (TEXT, find)})) as stub:
        with Client(stub.url, model="m") as client:
            ((found,),) = client.search(["a"])
    assert found == {"rank": 1, **dict.fromkeys(("score", "text", "id"), "a")} | {
        "search_score": "a"
    }


def test_a_confidence_ranks_nothing() -> None:
    pair = tuple(tf.TensorSpec([None], tf.string, name=n) for n in ("text_a", "text_b"))
    answer = lambda a, b: {"label": a, "score": tf.strings.length(b)}  # noqa: E731
    with running(stub_of({"serving_default": (pair, answer)})) as stub:
        with Client(stub.url, model="m") as client:
            refused(lambda: client.rank("a", ["b"]), "must score pairs", "label")

        async def rank() -> Any:
            async with AsyncClient(stub.url, model="m") as client:
                return await client.rank("a", ["b"])

        refused(lambda: asyncio.run(rank()), "must score pairs", "label")
        assert not bodies(stub)


def test_retry_after_is_seconds_or_a_date() -> None:
    now = datetime.datetime.now(datetime.timezone.utc)
    later = email.utils.format_datetime(now + datetime.timedelta(seconds=40))
    assert 38 < _retry_after(later) <= 40
    plain = later.replace("+0000", "-0000")  # a date without a zone is read as UTC
    assert 38 < _retry_after(plain) <= 40
    assert _retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert _retry_after("3") == 3.0
    assert _retry_after("soon") == _retry_after("") == 0


# Each task.


def items_of(case: Any) -> list[Any]:
    parts = texts_of(case.task, case.columns)
    parts = tuple(a[:2] + b[:2] for a, b in zip(parts, case.others, strict=True))
    return list(zip(*parts, strict=True)) if len(parts) > 1 else parts[0]


def near(value: Any) -> Any:
    """Return a value of JSON to compare with, whose numbers may differ by rounding."""
    if isinstance(value, dict):
        return {key: near(each) for key, each in value.items()}
    if isinstance(value, list):
        return [near(each) for each in value]
    return pytest.approx(value, abs=1e-4) if isinstance(value, float) else value


def decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogatepass")
    return type(value)(map(decoded, value))


# The forms of answers and inputs differ most among these; others are thorough.
OFTEN = {
    "multiple-choice": (),
    "question-answering": pytest.mark.slow,
    "token-classification": pytest.mark.slow,
}
FORMS = [
    pytest.param(name, marks=OFTEN.get(name, pytest.mark.thorough)) for name in TASKS
]


@pytest.mark.parametrize("name", FORMS)
def test_answers_are_those_of_predict(
    make_model: Callable[..., Any], name: str
) -> None:
    case = first_case(name)
    model = make_model(case.task)

    predictor, items = Predictor(model), items_of(case)

    def answer(*texts: Any) -> Any:
        parts = tuple(part.numpy().tolist() for part in texts)
        (answers,) = predictor.stream(decoded(parts))
        return answers

    signatures = {key: (specs, answer) for key, specs in input_specs(case.task).items()}
    with running(stub_of(signatures)) as stub, Client(stub.url, model="m") as client:
        assert client.predict(items) == near(predictor.predict(items))
        if len(signatures) > 1:
            other = case.other_form
            assert client.predict(other) == near(predictor.predict(other))
        names = [spec.name for spec in input_specs(case.task)["serving_default"]]
    if len(names) > 1:  # TF Serving tells no order
        stub = stub_of(signatures)
        stub.tells_order = False
        with running(stub), Client(stub.url, model="m") as client:
            refused(lambda: client.predict(items), "`texts`", "a dict", *names)
            rows = [dict(zip(names, item, strict=True)) for item in items]
            assert client.predict(rows) == near(predictor.predict(items))


@pytest.mark.thorough
def test_answers_of_a_saved_model(spam_export: Path, spam_model: Any) -> None:
    graph = tf.saved_model.load(spam_export).signatures["serving_default"]

    def answer(text: Any) -> Any:
        return graph(text=text)

    texts = ["free cash prize", "", "é 日本 🎉"]
    with running(stub_of({"serving_default": (TEXT, answer)})) as stub:
        assert ask("async", stub, texts) == near(Predictor(spam_model).predict(texts))


def test_a_client_needs_no_tensorflow() -> None:
    check = (
        "import sys, bert_keras\n"
        "bert_keras.Client('http://localhost:1', model='m')\n"
        "print([name for name in ('tensorflow', 'keras') if name in sys.modules])"
    )
    command = [sys.executable, "-c", check]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    refused(
        lambda: Client("http://localhost:1", model="m"),
        "needs the package httpx: pip install 'bert_keras[client]'",
    )
