"""Starting, limits, keys, metrics, and the end of a server."""

from __future__ import annotations

import json
import logging
import logging.handlers
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, refused

from bert_keras.errors import BertKerasError
from bert_keras.serving import ServeConfig, Server
from bert_keras.serving import server as server_module
from bert_keras.serving.service import read_keys
from serving.conftest import KEYS, Client, Folders

ASKED = {"instances": ["win cash"]}
PATH = "/v1/models/spam:predict"


def test_metrics_count_requests_and_batches(client: Client) -> None:
    def metrics() -> dict[str, float]:
        status, _, body = client.send("GET", "/monitoring/prometheus/metrics")
        assert status == 200
        lines = [line for line in body.decode().splitlines() if line[0] != "#"]
        return {
            name: float(value) for name, _, value in (x.rpartition(" ") for x in lines)
        }

    answered = 'bert_keras_requests_total{code="200",model="spam",protocol="rest"}'
    wrong = 'bert_keras_request_errors_total{model="spam",protocol="rest"}'
    texts = 'bert_keras_batch_texts_sum{model="spam"}'
    before = metrics()
    client.post(PATH, {"instances": ["a", "b"]})
    client.post(PATH, {"instances": ["a"], "signature_name": "no"})
    client.post("/v1/models/made-up-name:predict", ASKED)
    found = metrics()
    assert found[answered] == before.get(answered, 0) + 1
    assert found[wrong] == before.get(wrong, 0) + 1
    assert found[texts] == before.get(texts, 0) + 2
    assert found['bert_keras_queue_length{model="spam"}'] == 0
    assert found["bert_keras_requests_in_progress"] == 0
    assert not any("made-up-name" in name for name in found)


def test_an_unexpected_error_is_told_in_json_and_logged_once(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: Any, **named: Any) -> None:
        raise KeyError("win cash")

    monkeypatch.setattr(server._service, "predict", broken)
    logged = logging.handlers.BufferingHandler(99)
    for name in KEYS:
        monkeypatch.setattr(logging.getLogger(name), "handlers", [logged])
    assert client.post(PATH, ASKED) == (500, {"error": "an error of the server"})
    client.get("/v1/models")  # answered once the error is logged
    errors = [each for each in logged.buffer if each.levelno >= logging.ERROR]
    assert [each.getMessage() for each in errors] == ["an error of the server"]


def test_openapi_describes_the_models(client: Client) -> None:
    status, found = client.get("/openapi.json")
    assert status == 200
    assert found["openapi"].startswith("3.")
    post = found["paths"]["/v1/models/pairs:predict"]["post"]
    schema = post["requestBody"]["content"]["application/json"]["schema"]
    row = schema["oneOf"][0]["properties"]["instances"]["items"]
    assert row["required"] == ["text_a", "text_b"]
    for path, methods in found["paths"].items():
        if "get" in methods:
            assert client.send("GET", path)[0] == 200, path


def test_there_is_a_page(client: Client) -> None:
    status, headers, body = client.send("GET", "/")
    assert status == 200
    assert headers["content-type"].startswith("text/html")
    files = re.findall(rb'(?:src|href)="([^"]+\.(?:js|css|svg))"', body)
    assert len(files) == 3
    for file in files:
        assert client.send("GET", "/" + file.decode())[0] == 200, file


def test_keys_are_required(folders: Folders, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# ours\nsecret\n\nother\n", encoding="utf-8")
    config = ServeConfig(port=0, no_grpc=True, api_key_file=str(keys))
    paths = [f"spam={folders.spam}"]
    with Server(paths, config=config, is_quiet=True).running() as server:
        client, body = Client(server.url), json.dumps(ASKED).encode()

        def status(path: str, key: str | None) -> int:
            headers = {} if key is None else {"Authorization": key}
            given = body if path == PATH else None
            return client.send("POST" if given else "GET", path, given, headers)[0]

        for key in (None, "secret", "Bearer", "Bearer secre", "Basic secret"):
            assert status(PATH, key) == 401
            assert status("/v1/models", key) == 401
            assert status("/v2/health/live", key) == 200
        for key in ("Bearer secret", "bearer other"):
            assert status(PATH, key) == 200


def test_a_file_without_keys_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# none\n")
    refused(lambda: read_keys(str(tmp_path / "empty")), "contains none")
    refused(lambda: read_keys(str(tmp_path / "no")), "api_key_file", "no")


def test_too_many_requests_and_slow_ones(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ServeConfig(port=0, no_grpc=True, max_requests=2, request_timeout=1.5)
    paths = [f"spam={folders.spam}"]
    with Server(paths, config=config, is_quiet=True).running() as server:
        client = Client(server.url)
        with server._models.lease("spam") as version:
            version.wait_for_warm_up()
            signature = version.signatures["serving_default"]
        go_on = threading.Event()
        compute = signature.compute

        def slow(rows: Any) -> Any:
            go_on.wait(20)
            return compute(rows)

        monkeypatch.setattr(signature, "compute", slow)
        found: list[int] = []
        threads = [
            threading.Thread(target=lambda: found.append(client.post(PATH, ASKED)[0]))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 10
        while server._service._in_progress < 2:
            assert time.monotonic() < end
        status, headers, body = client.send("POST", PATH, json.dumps(ASKED).encode())
        assert (status, headers["retry-after"]) == (503, "1")
        assert b"in progress" in body
        for thread in threads:
            thread.join()
        assert found == [504, 504]
        go_on.set()
        assert client.post(PATH, ASKED)[0] == 200


def test_an_occupied_port_is_named(folders: Folders) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = ServeConfig(port=port, no_grpc=True)
        refused(lambda: Server([str(folders.spam)], config=config), f"{port}", "free")
    config = ServeConfig(host="no.such.host.invalid", no_grpc=True)
    refused(lambda: Server([str(folders.spam)], config=config), "no.such.host.invalid")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_GRPC_PACKAGES", ("no_such_package",))
    message = "no_such_package: pip install 'bert_keras[serving]'"
    refused(lambda: server_module._with_grpc(ServeConfig(grpc_port=8500)), message)
    assert not server_module._with_grpc(ServeConfig())
    assert not server_module._with_grpc(ServeConfig(no_grpc=True))
    told = "`grpc_port` must be left out with `no_grpc`; received 1"
    refused(lambda: ServeConfig(grpc_port=1, no_grpc=True), told)
    monkeypatch.setattr(server_module, "_HTTP_PACKAGES", ("no_such_package",))
    with pytest.raises(BertKerasError, match="no_such_package"):
        Server([])


@pytest.mark.slow
def test_sigterm_answers_accepted_requests(folders: Folders) -> None:
    """The command exits 0, its logs are JSON and contain no text."""
    command = [sys.executable, "-m", "bert_keras", "serve", f"spam={folders.spam}"]
    command += ["--port", "0", "--no-grpc"]
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        assert lines[1].startswith("serving spam on http://127.0.0.1:")
        client = Client(lines[1].split()[-1])
        body = json.dumps({"instances": ["secret words " * 100]}).encode()
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
            connection.sendall(f"{head}\r\n\r\n".encode() + body[:20])
            time.sleep(0.3)  # the head is read
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            connection.sendall(body[20:])
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        with pytest.raises(OSError):
            client.get("/v1/models")
        rest = process.stderr.read()
        assert process.wait(60) == 0
    told = [json.loads(line) for line in [*lines, *rest.splitlines()] if line[0] == "{"]
    assert [each["event"] for each in told] == ["model loaded", "request"]
    assert told[1]["texts"] == 1
    assert "secret" not in "".join(lines) + rest
