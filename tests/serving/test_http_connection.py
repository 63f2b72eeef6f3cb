"""Hostile connections: each is answered 4xx or closed, and the next one is served."""

from __future__ import annotations

import contextlib
import json
import random
import socket
from collections.abc import Iterator

import pytest

from bert_keras.serving import http_connection, rest
from serving.conftest import Client

PATH = "/v1/models/spam:predict"
GOOD = json.dumps({"instances": ["win cash"]}).encode()


@contextlib.contextmanager
def connected(client: Client) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", client.port), timeout=30) as found:
        yield found


def head(length: int, *, path: str = PATH, more: str = "") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{more}\r\n"
    ).encode()


def statuses(connection: socket.socket) -> list[int]:
    """Return the status of each answer until the server closes."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(65536):
            data += chunk
    parts = data.split(b"HTTP/1.1 ")[1:]
    return [int(part[:3]) for part in parts]


def is_served(client: Client) -> bool:
    return client.send("POST", PATH, GOOD)[0] == 200


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server wait for a tenth of a second only."""
    monkeypatch.setattr(http_connection, "_HEAD_SECONDS", 0.1)
    monkeypatch.setattr(rest, "_BODY_SECONDS", 0.1)


@pytest.mark.slow
def test_a_silent_connection_is_closed(client: Client, impatient: None) -> None:
    with connected(client) as connection:
        assert statuses(connection) == [408]
    assert is_served(client)


@pytest.mark.parametrize("part", [b"PO", b"POST / HTTP/1.1\r\nHost", b"\r\n\r\n"])
def test_half_a_head_is_closed(client: Client, impatient: None, part: bytes) -> None:
    with connected(client) as connection:
        connection.sendall(part)
        assert statuses(connection) == [408]


def test_half_a_head_after_an_answer_is_closed(client: Client, impatient: None) -> None:
    with connected(client) as connection:
        connection.sendall(head(len(GOOD)) + GOOD + b"POST /")
        assert statuses(connection) == [200, 408]


def test_a_body_that_does_not_arrive_closes_the_connection(
    client: Client, impatient: None
) -> None:
    with connected(client) as connection:
        connection.sendall(head(len(GOOD) + 5) + GOOD)
        assert statuses(connection) == [408]
    assert is_served(client)


def test_more_body_than_declared_is_not_a_request(client: Client) -> None:
    with connected(client) as connection:
        connection.sendall(head(len(GOOD)) + GOOD + b"garbage\r\n\r\n")
        assert statuses(connection) in ([200, 400], [400])
    assert is_served(client)


@pytest.mark.parametrize(
    "more",
    ["X: " + "a" * 200_000 + "\r\n", "".join(f"X-{n}: a\r\n" for n in range(20_000))],
    ids=["long", "many"],
)
def test_a_head_has_a_limit(client: Client, more: str) -> None:
    with connected(client) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(head(5, more=more)[:-2])  # continues
        assert statuses(connection) in ([431], [])
    assert is_served(client)


def test_a_long_head_that_arrives_at_once_is_rejected(client: Client) -> None:
    half = "a" * (http_connection.HEAD_BYTES // 2)
    with connected(client) as connection:
        connection.sendall(head(0, path=f"/?{half}", more=f"X: {half}\r\n"))
        assert statuses(connection) == [431]
    assert is_served(client)


def test_a_long_body_that_does_not_end_is_rejected(
    client: Client, impatient: None
) -> None:
    long = b"x" * 3_000_000
    given = head(0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    with connected(client) as connection:
        connection.sendall(given + b"%x\r\n" % len(long) + long)
        assert statuses(connection) == [413]


def test_two_lengths_are_rejected(client: Client) -> None:
    for more in ("Content-Length: 7\r\n", "Transfer-Encoding: chunked\r\n"):
        with connected(client) as connection:
            connection.sendall(head(len(GOOD), more=more) + GOOD)
            connection.shutdown(socket.SHUT_WR)
            assert statuses(connection) == [400]


def test_a_length_beyond_the_limit_is_rejected_unread(client: Client) -> None:
    with connected(client) as connection:
        connection.sendall(head(10**12))
        assert statuses(connection) == [413]


def test_an_upgrade_is_ignored(client: Client) -> None:
    more = "Connection: Upgrade, close\r\nUpgrade: websocket\r\n"
    with connected(client) as connection:
        connection.sendall(head(len(GOOD), more=more) + GOOD)
        connection.shutdown(socket.SHUT_WR)
        assert all(status < 500 for status in statuses(connection))
    assert is_served(client)


def test_a_client_that_leaves_harms_nobody(client: Client) -> None:
    for _ in range(20):
        with connected(client) as connection:
            connection.sendall(head(len(GOOD)) + GOOD)
    assert is_served(client)


def malformed(draw: random.Random) -> bytes:
    """Return the bytes of a request that is wrong somewhere, or nearly right."""
    values = ["a", 1, None, [], {}, [["a"]], {"b64": "!"}, 1e999, "\ud800", True, -1]
    names = ["instances", "inputs", "signature_name", "text", "x", ""]

    def value(depth: int) -> object:
        kind = draw.randrange(4 if depth else 2)
        if kind < 2:
            return draw.choice(values)
        if kind == 2:
            return [value(depth - 1) for _ in range(draw.randrange(4))]
        return {draw.choice(names): value(depth - 1) for _ in range(draw.randrange(4))}

    body = json.dumps(value(4)).encode()
    for _ in range(draw.randrange(3)):
        place = draw.randrange(len(body) + 1)
        cut = draw.randrange(3)
        body = body[:place] + draw.randbytes(cut) + body[place + draw.randrange(3) :]
    if draw.random() < 0.1:
        body = draw.choice([b"[" * 50_000, b'{"a":' * 20_000, b"9" * 10_000, b"NaN"])
    paths = [
        *(PATH, "/v2/models/spam/infer", "/v1/models/spam", "/v1/models", "/"),
        *("/v1/models/%s:predict", "/v1/models/spam/versions/-1:predict", "//", "/%00"),
        *("/v1/models/../../etc/passwd", "/static/..%2f..%2fetc/passwd", "/\xff"),
        *("*", "http://other/", "/v2/models/spam/versions/1e9/infer", "/?a=%zz"),
    ]
    method = draw.choice(["POST"] * 6 + ["GET", "PUT", "HEAD", "X", "", "CONNECT"])
    version = draw.choice(["HTTP/1.1"] * 8 + ["HTTP/1.0", "HTTP/9", ""])
    length = str(len(body))
    if draw.random() < 0.15:
        length = draw.choice(["-1", "x", "1e3", "0x10", "9" * 30, "", "0"])
    lines = [
        f"{method} {draw.choice(paths)} {version}",
        "Host: x",
        f"Content-Length: {length}",
        "Connection: close",
    ]
    if draw.random() < 0.1:
        lines.insert(1, draw.choice(["\x00: a", "a", ": b", "Transfer-Encoding: x"]))
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def fuzz(client: Client, count: int, seed: int) -> None:
    draw = random.Random(seed)
    for number in range(count):
        request = malformed(draw)
        with connected(client) as connection:
            connection.settimeout(20)
            with contextlib.suppress(OSError):
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
            found = statuses(connection)
        assert all(status < 500 for status in found), request
        if number % 100 == 0:
            assert is_served(client)
    assert is_served(client)


def test_malformed_requests_are_rejected(client: Client) -> None:
    fuzz(client, 400, seed=1)


@pytest.mark.thorough
def test_ten_thousand_malformed_requests_are_rejected(client: Client) -> None:
    fuzz(client, 10_000, seed=2)
