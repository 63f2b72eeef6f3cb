"""How models are served: `ServeConfig`; imports nothing heavy."""

from __future__ import annotations

import dataclasses

from bert_keras.errors import ConfigError
from bert_keras.settings import (
    ENGINES,
    HYBRID,
    HYBRID_WEIGHT,
    SEARCH_ENGINES,
    check_options,
    option,
    options_of,
    with_options_documented,
)

_LAST_PORT = 65_535


@with_options_documented
@dataclasses.dataclass(frozen=True)
class ServeConfig:
    """How models are served, and the limits of a request.

    Raises:
        ConfigError: a value is not allowed.
    """

    host: str = option(
        "127.0.0.1", "address to listen on; 0.0.0.0 accepts other machines", unit="host"
    )
    port: int = option(
        8501, "HTTP port; 0: any free port", unit="port", least=0, most=_LAST_PORT
    )
    grpc_port: int | None = option(
        None,
        "gRPC port; 0: any free port",
        unit="port",
        least=0,
        most=_LAST_PORT,
        unset="8500 if tensorflow-serving-api is installed, else no gRPC",
    )
    no_grpc: bool = option(False, "serve only HTTP")
    max_batch_tokens: int = option(
        640,
        "maximum tokens computed at once; a longer text is computed alone",
        unit="tokens",
        least=1,
    )
    batch_timeout_ms: float = option(
        1.0,
        "maximum time that a request waits to be batched with others while another "
        "batch is computed; else it does not wait",
        unit="milliseconds",
        least=0,
        most=60_000,
    )
    max_requests: int = option(
        256,
        "maximum requests in progress; more are answered with 503 at once",
        unit="requests",
        least=1,
    )
    max_connections: int = option(
        1024,
        "maximum open connections; more are closed at once",
        unit="connections",
        least=1,
    )
    max_body_bytes: int = option(
        2 * 1024 * 1024, "maximum size of a request", unit="bytes", least=1
    )
    max_texts: int = option(512, "maximum texts of a request", unit="texts", least=1)
    max_characters: int = option(
        100_000, "maximum characters of a text", unit="characters", least=1
    )
    request_timeout: float = option(
        30.0,
        "maximum time of a request, from its first byte to its answer",
        unit="seconds",
        above=0,
        most=86_400,
    )
    poll_interval: float = option(
        1.0,
        "time between checks for new versions of a SavedModel",
        unit="seconds",
        above=0,
        most=86_400,
    )
    engine: str | None = option(
        None,
        "what computes model folders; an exported folder has its engine",
        words=ENGINES,
        unset="tensorflow, or the engine of an exported folder",
    )
    index: str | None = option(
        None,
        "index that `search --index` wrote, or NAME=INDEX if there are several models: "
        "the embedding model then has the signature `search`",
        unit="index",
        unset="no index",
    )
    index_top: int = option(
        10,
        "maximum number of texts in an answer; a request's `top` can be lower",
        unit="texts",
        least=1,
    )
    hybrid: bool = HYBRID.field()
    hybrid_weight: float = HYBRID_WEIGHT.field()
    rerank: str | None = option(
        None,
        "model of the task reranking that sorts the texts by its scores",
        unit="model",
        unset="no model",
    )
    candidates: int | None = option(
        None,
        "number of texts per query that the model of `rerank` sorts",
        unit="texts",
        least=1,
        unset="100, or `index_top` if it is more",
    )
    index_engine: str = option(
        "auto",
        "exact compares all texts; faiss, and centroids for vectors of tokens, are "
        "faster for very many, but may miss some; auto: from 100,000 texts, centroids, "
        "or faiss for float32, if it is installed",
        words=("auto", *SEARCH_ENGINES),
    )
    positive_class: str | None = option(
        None,
        "for a classifier of pairs: the class that means relevant, whose probability "
        "is the score of a document; NAME=CLASS if there are several models",
        unit="class",
        unset="the model's own positive_class",
    )
    api_key_file: str | None = option(
        None,
        "file of accepted keys, one per line; requests must then send `Authorization: "
        "Bearer KEY`",
        unit="file",
        unset="no key is required",
    )

    def __post_init__(self) -> None:
        check_options(self)
        for name, needed in (
            ("index_top", "index"),
            ("index_engine", "index"),
            ("hybrid", "index"),
            ("hybrid_weight", "hybrid"),
            ("rerank", "index"),
            ("candidates", "rerank"),
        ):
            given, usual = getattr(self, name), options_of(type(self))[name].default
            if not getattr(self, needed) and given != usual:
                raise ConfigError(f"`{name}` needs `{needed}`; received {given}")
        if self.no_grpc and self.grpc_port is not None:
            raise ConfigError(
                "`grpc_port` must be left out with `no_grpc`; received "
                f"{self.grpc_port}"
            )
        if self.candidates is not None and self.candidates < self.index_top:
            raise ConfigError(
                f"`candidates` must be at least `index_top`, {self.index_top}; "
                f"received {self.candidates}"
            )
