"""How models are served: `ServeConfig`; imports nothing heavy."""

from __future__ import annotations

import dataclasses

from bert_keras.settings import (
    INT32,
    check_options,
    option,
    with_options_documented,
)

_LAST_PORT = 65_535


@with_options_documented
@dataclasses.dataclass(frozen=True)
class ServeConfig:
    """How models are served, and what a request may ask for at most.

    Raises:
        ConfigError: a value is not allowed.
    """

    host: str = option(
        "127.0.0.1",
        "address to listen on; 0.0.0.0 lets other machines in",
        unit="host",
    )
    port: int = option(
        8501, "port of HTTP; 0: any free one", unit="port", least=0, most=_LAST_PORT
    )
    grpc_port: int | None = option(
        None,
        "port of gRPC; 0: any free one",
        unit="port",
        least=0,
        most=_LAST_PORT,
        unset="8500 where tensorflow-serving-api is installed, else no gRPC",
    )
    no_grpc: bool = option(False, "serve HTTP alone")
    max_batch_tokens: int = option(
        1024,
        "tokens computed at once; a longer text is computed alone",
        unit="tokens",
        least=1,
        most=INT32,
    )
    batch_timeout_ms: float = option(
        1.0,
        "how long a request waits for others to be computed with, while another batch "
        "is computed; else it does not wait",
        unit="milliseconds",
        least=0,
        most=60_000,
    )
    max_requests: int = option(
        256,
        "requests in progress; more are answered 503 at once",
        unit="requests",
        least=1,
        most=INT32,
    )
    max_connections: int = option(
        1024,
        "open connections; more are closed at once",
        unit="connections",
        least=1,
        most=INT32,
    )
    max_body_bytes: int = option(
        2 * 1024 * 1024, "size of a request", unit="bytes", least=1, most=INT32
    )
    max_texts: int = option(
        512, "texts of a request", unit="texts", least=1, most=INT32
    )
    max_characters: int = option(
        100_000, "characters of a text", unit="characters", least=1, most=INT32
    )
    request_timeout: float = option(
        30.0,
        "time of a request, from its first byte to its answer",
        unit="seconds",
        above=0,
        most=86_400,
    )
    poll_interval: float = option(
        1.0,
        "time between two looks for new versions of a SavedModel",
        unit="seconds",
        above=0,
        most=86_400,
    )
    api_key_file: str | None = option(
        None,
        "file of accepted keys, one a line; requests must then send `Authorization: "
        "Bearer KEY`",
        unit="file",
        unset="no key is asked for",
    )

    def __post_init__(self) -> None:
        check_options(self)
