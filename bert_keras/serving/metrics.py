"""Metrics of a server for Prometheus: `Metrics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from bert_keras.serving.batcher import Seen
from bert_keras.serving.signatures import Row

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """Counters of one server, in their own registry.

    Args:
        queued: returns the number of waiting rows by model.

    Attributes:
        in_progress: requests that are accepted, but not yet answered.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, queued: Callable[[], Mapping[str, int]]) -> None:
        self._registry = CollectorRegistry()

        def new(kind: Any, name: str, help: str, *labels: str, **more: Any) -> Any:
            name = f"bert_keras_{name}"
            return kind(name, help, labels, registry=self._registry, **more)

        labels = ("protocol", "model")
        help = "Requests by protocol, model and status code"
        self._requests = new(Counter, "requests", help, *labels, "code")
        help = "Requests that were not answered, by protocol and model"
        self._errors = new(Counter, "request_errors", help, *labels)
        help = "Seconds from a request's arrival to its answer"
        self._latency = new(
            Histogram, "request_seconds", help, *labels, buckets=_SECONDS
        )
        help = "Texts computed at once"
        self._texts = new(Histogram, "batch_texts", help, "model", buckets=_TEXTS)
        help = "Tokens computed at once, padding included"
        self._tokens = new(Histogram, "batch_tokens", help, "model", buckets=_TOKENS)
        help = "Padding tokens computed"
        self._padding = new(Counter, "padding_tokens", help, "model")
        help = "Requests accepted but not yet answered"
        self.in_progress: Gauge = new(Gauge, "requests_in_progress", help)
        self._queue_length = new(Gauge, "queue_length", "Texts waiting", "model")
        self._queued = queued

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

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        for name, count in self._queued().items():
            self._queue_length.labels(name).set(count)
        return generate_latest(self._registry)
