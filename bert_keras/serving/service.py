"""The path of a request to a model and back, for all protocols: `Service`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import hmac
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import anyio

from bert_keras.errors import ConfigError, UnreadError, reason_of, received
from bert_keras.serving.config import ServeConfig
from bert_keras.serving.errors import RequestError
from bert_keras.serving.logs import log
from bert_keras.serving.metrics import Metrics
from bert_keras.serving.models import Models
from bert_keras.serving.signatures import TRUNCATED, Answers, Parts, Signature
from bert_keras.serving.tensors import Decode, Decoder
from bert_keras.tasks.redaction import Redaction

_T = TypeVar("_T")
_SMALL_BYTES = 64 * 1024  # handled on the event loop; more bytes in a thread
_RETRY_SECONDS = 1


@dataclasses.dataclass
class RequestRecord:
    """The facts of a request to log and count, as far as they are known.

    Args:
        protocol: `rest`, `v2` or `grpc`.
        model: the name of a model in service, or an empty string.
        version: its number.
        texts: the number of texts.
    """

    protocol: str
    model: str = ""
    version: int | None = None
    texts: int | None = None
    started: float = dataclasses.field(default_factory=time.perf_counter)


@dataclasses.dataclass(frozen=True)
class Answered:
    """The answers to a request, and the version and signature that gave them.

    `truncated` are the tokens of each text that the model did not read; empty if it
    read all. `tokens` are those that it read, of all texts.
    """

    version: int
    signature: Signature
    answers: Answers
    truncated: list[int]
    tokens: int


class Service:
    """Answers requests of all protocols, within limits.

    Args:
        models: the models in service.
        config: the limits.
        metrics: where requests are counted.
        keys: accepted keys; empty if none is required.
    """

    def __init__(
        self, models: Models, config: ServeConfig, metrics: Metrics, keys: list[bytes]
    ) -> None:
        self.models = models
        self.config = config
        self.metrics = metrics
        self.decoder = Decoder(config)
        self._keys = keys
        self._in_progress = 0

    @property
    def asks_for_key(self) -> bool:
        """Whether requests must have a key."""
        return bool(self._keys)

    def check_key(self, authorization: bytes | None) -> None:
        """Raise unless a key is accepted.

        Args:
            authorization: `Bearer KEY`, or `None` if nothing was sent.

        Raises:
            RequestError: the key is missing or unknown, status 401.
        """
        if not self._keys:
            return
        kind, _, key = (authorization or b"").partition(b" ")
        matches = [hmac.compare_digest(key.strip(), known) for known in self._keys]
        if kind.lower() != b"bearer" or not any(matches):
            raise RequestError(
                "`Authorization` must be `Bearer KEY` with an accepted key", status=401
            )

    async def predict(
        self,
        record: RequestRecord,
        *,
        model: str,
        version: str | None,
        signature: str,
        decode: Decode,
        size: int,
        outputs: list[str] | None = None,
        top: Any = None,
        redact: Any = None,
    ) -> Answered:
        """Return the answers to a request.

        Args:
            record: filled with the facts of the request.
            model, version: as in `Models.lease`.
            signature: its name; an empty one means the default.
            decode: returns the values of the request, for a signature.
            size: bytes of the request.
            outputs: names of the requested outputs; `None` or an empty list: all.
            top: the number of texts that a search answers with; `None`: as many as it
                may.
            redact: as in `Version.redaction`.

        Raises:
            RequestError: the request is wrong, arrives when too many are in progress
                (503), or takes too long (504).
        """
        with self.models.lease(model, version) as leased, self._progress():
            record.model, record.version = model, leased.number
            found = leased.signature(signature)
            if top is not None:
                found = found.with_top(top)
            redaction = leased.redaction(found, redact)
            names = [each.name for each in found.outputs]
            names += [] if redaction is None else ["text"]
            unknown = sorted(set(outputs or ()) - set(names))
            if unknown:
                raise RequestError(
                    f"`outputs` must be of {', '.join(names)}; {received(unknown[0])}"
                )
            parts = await self.work(size, lambda: decode(found))
            record.texts = len(parts[0])
            if redaction is not None:
                await anyio.to_thread.run_sync(_check_read, redaction, found, parts)
            future = leased.submit(found, parts)
            passed = time.perf_counter() - record.started
            try:
                with anyio.fail_after(max(self.config.request_timeout - passed, 0.0)):
                    answers = await asyncio.wrap_future(future)
            except TimeoutError:
                raise RequestError(
                    f"the request took longer than {self.config.request_timeout:g} s",
                    status=504,
                ) from None
            truncated: list[int] = []
            if TRUNCATED in answers and TRUNCATED not in names:
                truncated = answers.pop(TRUNCATED).tolist()
            if top is not None:
                answers = {name: values[:, :top] for name, values in answers.items()}
            if redaction is not None:
                redact = functools.partial(redaction, parts[0], answers)
                answers = await self.work(size, redact)
            if outputs:
                answers = {name: answers[name] for name in outputs}
            return Answered(leased.number, found, answers, truncated, future.tokens)

    async def work(self, size: int, function: Callable[[], _T]) -> _T:
        """Return the result of a function; for many bytes it runs in a thread."""
        if size <= _SMALL_BYTES:
            return function()
        return await anyio.to_thread.run_sync(function)

    def count(self, record: RequestRecord, code: int) -> None:
        """Count and log a finished request; `code` is the HTTP status."""
        seconds = time.perf_counter() - record.started
        self.metrics.count(record.protocol, record.model, code, seconds)
        log(
            "request",
            protocol=record.protocol,
            model=record.model,
            version=record.version,
            code=code,
            texts=record.texts,
            milliseconds=round(seconds * 1000, 2),
        )

    @contextlib.contextmanager
    def _progress(self) -> Iterator[None]:
        """Count a request as in progress.

        Raises:
            RequestError: there are too many, status 503.
        """
        if self._in_progress >= self.config.max_requests:
            raise RequestError(
                f"{self._in_progress} requests are in progress, which is the limit",
                status=503,
                retry_after=_RETRY_SECONDS,
            )
        self._in_progress += 1
        try:
            with self.metrics.in_progress.track_inprogress():
                yield
        finally:
            self._in_progress -= 1


def _check_read(redaction: Redaction, signature: Signature, parts: Parts) -> None:
    """Raise RequestError if the model does not read a text to be redacted."""
    try:
        redaction.check(parts[0])
    except UnreadError as error:
        place = f"`{signature.inputs[0].name}` at {error.row}"
        raise RequestError(f"{place}: {error.message}") from None


def read_keys(path: str | None) -> list[bytes]:
    """Return the keys of a file, one per line; lines that start with # are comments.

    Raises:
        ConfigError: the file cannot be read, or contains no keys.
    """
    if path is None:
        return []
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(
            f"`api_key_file` must be a file of keys; {path}: {reason_of(error)}"
        ) from None
    keys = [line.strip() for line in lines if line.strip()[:1] not in (b"", b"#")]
    if not keys:
        raise ConfigError(f"`api_key_file` must hold a key; {path} contains none")
    return keys
