"""Metrics of a server for Prometheus: `Metrics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from bert_keras.serving.batcher import Seen
from bert_keras.serving.signatures import Row

_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0),
)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """Counters of one server, in their own registry.

    Args:
        queued: returns the number of waiting rows by model.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, queued: Callable[[], Mapping[str, int]]) -> None:
        self._registry = CollectorRegistry()
        of: dict[str, Any] = {"registry": self._registry}
        self._requests = Counter(
            "bert_keras_requests",
            "Requests by protocol, model and status code",
            ("protocol", "model", "code"),
            **of,
        )
        self._errors = Counter(
            "bert_keras_request_errors",
            "Requests that were not answered, by protocol and model",
            ("protocol", "model"),
            **of,
        )
        self._latency = Histogram(
            "bert_keras_request_seconds",
            "Seconds from a request's arrival to its answer",
            ("protocol", "model"),
            buckets=_SECONDS,
            **of,
        )
        self._texts = Histogram(
            "bert_keras_batch_texts",
            "Texts computed at once",
            ("model",),
            buckets=_TEXTS,
            **of,
        )
        self._tokens = Histogram(
            "bert_keras_batch_tokens",
            "Tokens computed at once, padding included",
            ("model",),
            buckets=_TOKENS,
            **of,
        )
        self._padding = Counter(
            "bert_keras_padding_tokens", "Padding tokens computed", ("model",), **of
        )
        self._in_progress = Gauge(
            "bert_keras_requests_in_progress",
            "Requests accepted but not yet answered",
            **of,
        )
        self._registry.register(_Queues(queued))

    def seen_of(self, name: str) -> Seen:
        """Return a function that counts the batches of a model."""
        texts, tokens = self._texts.labels(name), self._tokens.labels(name)
        padding = self._padding.labels(name)

        def seen(rows: Sequence[Row], computed: int) -> None:
            texts.observe(len(rows))
            tokens.observe(computed)
            padding.inc(computed - sum(row.length for row in rows))

        return seen

    def count(self, protocol: str, model: str, code: int, seconds: float) -> None:
        """Count a request; `model` is empty if there is no such model."""
        self._requests.labels(protocol, model, code).inc()
        self._latency.labels(protocol, model).observe(seconds)
        if code >= 400:
            self._errors.labels(protocol, model).inc()

    def set_in_progress(self, count: int) -> None:
        """Set the number of requests in progress."""
        self._in_progress.set(count)

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)


class _Queues:
    """Reads the length of the queues when metrics are collected."""

    def __init__(self, queued: Callable[[], Mapping[str, int]]) -> None:
        self._queued = queued

    def collect(self) -> list[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "bert_keras_queue_length", "Texts waiting", labels=["model"]
        )
        for name, count in self._queued().items():
            family.add_metric([name], count)
        return [family]
