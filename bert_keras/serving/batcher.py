"""Compute concurrent requests together: `Batcher`.

Threads take the waiting requests: they tokenize all new texts in one call, then compute
batches of rows that fit together. While all threads compute, requests queue up, so
batches grow with the load and a single request does not wait.
"""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_keras.inference.predictor import joined
from bert_keras.lazy_names import deferred
from bert_keras.serving.errors import RequestError
from bert_keras.serving.signatures import TRUNCATED, Answers, Parts, Row, Signature

if TYPE_CHECKING:
    from bert_keras.exports import saved_model
else:
    (saved_model,) = deferred("bert_keras.exports.saved_model")

THREADS = 2  # one prepares its next batch while the other computes
_BYTES_AT_ONCE = 256 * 1024  # of texts tokenized in one call
_WINDOW = 1024  # waiting rows that are compared by length
# Tokens. Larger batches are hardly faster per token, and others wait longer. With 160
# the 99th percentile at half load is slightly lower, but throughput falls by 5%, and
# memory grows twice as fast.
_SMALL = 320

Seen = Callable[[Sequence[Row], int], object]


class AnswersFuture(concurrent.futures.Future[Answers]):
    """The answers to a request.

    Attributes:
        tokens: the tokens that were read of its texts, once it is done.
    """

    tokens = 0


class Batcher:
    """Computes the rows of requests to one model.

    Args:
        max_batch_tokens: maximum tokens of a batch; a longer row is computed alone.
        timeout_ms: how long a row waits for others while another batch is computed.
        seen: called with the rows of each batch and its tokens, padding included.
    """

    def __init__(
        self,
        *,
        max_batch_tokens: int,
        timeout_ms: float,
        seen: Seen = lambda rows, tokens: None,
    ) -> None:
        self._max_tokens = max_batch_tokens
        self._seconds = timeout_ms / 1000
        self._seen = seen
        self._changed = threading.Condition()
        self._new: collections.deque[_Job] = collections.deque()
        self._waiting: dict[Hashable, collections.deque[_Place]] = {}
        self._computing = 0
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"batcher-{i}", daemon=True)
            for i in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, signature: Signature, parts: Parts) -> AnswersFuture:
        """Return the answers to N texts, given as a list of N values for each input.

        The result raises a RequestError if the model rejects ids or answers with a
        number that is not finite. A cancelled future is not computed.
        """
        job = _Job(signature, parts)
        with self._changed:
            if self._is_closed:
                raise RuntimeError("the batcher is closed")
            self._new.append(job)
            self._changed.notify()
        return job.future

    @property
    def queued(self) -> int:
        """Number of waiting rows, and requests that are not yet tokenized."""
        with self._changed:
            return len(self._new) + sum(map(len, self._waiting.values()))

    def close(self) -> None:
        """Compute all submitted requests, then end the threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # The threads.

    def _work(self) -> None:
        while True:
            jobs, places = self._next()
            if not jobs and not places:
                return
            try:
                if jobs:
                    self._prepare(jobs)
                else:
                    self._compute(places)
            except Exception as error:  # the thread must continue
                for job in jobs or [place.job for place in places]:
                    job.fail(error)
            if places:
                with self._changed:
                    self._computing -= 1
                    self._changed.notify_all()

    def _next(self) -> tuple[list[_Job], list[_Place]]:
        """Return requests to tokenize, or else rows to compute; none at the end."""
        with self._changed:
            while True:
                if self._new:
                    jobs, size = [], 0
                    while self._new and size < _BYTES_AT_ONCE:
                        jobs.append(self._new.popleft())
                        size += jobs[-1].size
                    return jobs, []
                oldest = self._oldest()
                if oldest is None:
                    if self._is_closed:
                        return [], []
                    self._changed.wait()
                    continue
                key, arrived = oldest
                seconds = arrived + self._seconds - time.monotonic()
                if seconds > 0 and self._computing and not self._fills(key):
                    self._changed.wait(seconds)
                elif places := self._cut(key):
                    self._computing += 1
                    return [], places

    def _oldest(self) -> tuple[Hashable, float] | None:
        """Return the key and the arrival time of the row that has waited longest."""
        for key in list(self._waiting):
            places = self._waiting[key]
            while places and places[0].job.future.done():  # was cancelled, or failed
                places.popleft()
            if not places:
                del self._waiting[key]
        heads = [(places[0].job.arrived, k) for k, places in self._waiting.items()]
        if not heads:
            return None
        arrived, key = min(heads, key=lambda head: head[0])
        return key, arrived

    def _fills(self, key: Hashable) -> bool:
        """Return whether the rows of a key fill a batch."""
        places = itertools.islice(self._waiting[key], _WINDOW)
        tokens = sum(place.row.length for place in places)
        return self._is_closed or tokens >= self._max_tokens

    def _cut(self, key: Hashable) -> list[_Place]:
        """Take the oldest row and those that fit with it; none if all are cancelled."""
        waiting = self._waiting.pop(key)
        window = [waiting.popleft() for _ in range(min(len(waiting), _WINDOW))]
        window = [place for place in window if not place.job.future.done()]
        lengths = [place.row.length for place in window]
        # The same share is left for the other threads: the texts wait anyway.
        share = max(sum(lengths) // THREADS, _SMALL)
        chosen: set[int] = set()
        if window:
            signature = window[0].job.signature
            chosen.update(signature.choose(lengths, min(share, self._max_tokens)))
        left = [place for i, place in enumerate(window) if i not in chosen]
        waiting.extendleft(reversed(left))
        if waiting:
            self._waiting[key] = waiting
        return [place for i, place in enumerate(window) if i in chosen]

    def _prepare(self, jobs: list[_Job]) -> None:
        """Tokenize or measure texts, and queue their rows."""
        by_signature: dict[Signature, list[_Job]] = {}
        for job in jobs:
            by_signature.setdefault(job.signature, []).append(job)
        for signature, group in by_signature.items():
            parts = [
                list(itertools.chain.from_iterable(each))
                for each in zip(*(job.parts for job in group), strict=True)
            ]
            try:
                rows = signature.rows_of(parts)
            except Exception as error:
                _retry({job: [job] for job in group}, error, self._prepare)
                continue
            with self._changed:
                for job in group:
                    for number, row in enumerate(rows[: job.count]):
                        key = (signature, row.group)
                        place = _Place(job, number, row)
                        self._waiting.setdefault(key, collections.deque()).append(place)
                    del rows[: job.count]
                self._changed.notify_all()

    def _compute(self, places: list[_Place]) -> None:
        """Answer rows, and finish requests whose last rows are among them."""
        rows = [place.row for place in places]
        by_job: dict[_Job, list[int]] = {}
        for index, place in enumerate(places):
            by_job.setdefault(place.job, []).append(index)
        try:
            answers, tokens = places[0].job.signature.compute(rows)
        except Exception as error:
            parts = {job: [places[i] for i in part] for job, part in by_job.items()}
            _retry(parts, error, self._compute)
            return
        self._seen(rows, tokens)
        for job, indices in by_job.items():
            numbers = [places[index].number for index in indices]
            lost = [rows[index].lost for index in indices]
            job.future.tokens += sum(rows[index].length for index in indices)
            job.add(numbers, {k: v[indices] for k, v in answers.items()}, lost)


def _retry(
    parts: Mapping[_Job, Any], error: Exception, again: Callable[[Any], None]
) -> None:
    """Retry a failed batch separately for each request; a single request fails."""
    for job, part in parts.items():
        if len(parts) == 1:
            job.fail(error)
        else:
            again(part)


class _Job:
    """A request: its texts, and the answers so far."""

    def __init__(self, signature: Signature, parts: Parts) -> None:
        self.signature = signature
        self.parts = parts
        self.count = len(parts[0])
        self.size = sum(len(value) for part in parts for value in part)
        self.arrived = time.monotonic()
        self.future = AnswersFuture()
        self._lock = threading.Lock()
        self._numbers: list[int] = []
        self._answers: list[Answers] = []
        self._lost: list[int] = []

    def add(self, numbers: list[int], answers: Answers, lost: list[int]) -> None:
        """Store the answers of some rows, and the tokens that were not read.

        The last ones finish the request. If a text is truncated, its answers have the
        entry `TRUNCATED`.
        """
        with self._lock:
            self._numbers += numbers
            self._lost += lost
            self._answers.append(answers)
            if len(self._numbers) < self.count:
                return
        try:
            whole = joined(self._answers)
            order = np.argsort(self._numbers)
            whole = {name: values[order] for name, values in whole.items()}
            _check_finite(whole)
            found = self.signature.trimmed(whole, self.parts)
            if any(self._lost) and TRUNCATED not in found:
                found = {**found, TRUNCATED: np.array(self._lost, np.int32)[order]}
        except Exception as error:
            self.fail(error)
            return
        self._finish(lambda: self.future.set_result(found))

    def fail(self, error: Exception) -> None:
        """Finish the request with an error."""
        if _is_of_a_graph(error):
            error = RequestError(saved_model.rejection(error))
        self._finish(lambda: self.future.set_exception(error))

    def _finish(self, end: Callable[[], Any]) -> None:
        with self._lock:
            if not self.future.done() and self.future.set_running_or_notify_cancel():
                end()


def _is_of_a_graph(error: Exception) -> bool:
    """Return whether a graph of TensorFlow, if there is one, has refused its inputs."""
    tf = sys.modules.get("tensorflow")
    return tf is not None and isinstance(error, tf.errors.InvalidArgumentError)


class _Place(NamedTuple):
    """A row of a request."""

    job: _Job
    number: int
    row: Row


def _check_finite(answers: Answers) -> None:
    for name, values in answers.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise RequestError(
                f"the model answers `{name}` with a number that is not finite",
                status=500,
            )
