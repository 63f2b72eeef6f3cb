"""Requests that come together are computed together, and fail alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.serving.batcher import Batcher
from bert_keras.serving.errors import RequestError
from bert_keras.serving.signatures import Answers, Parts, Row, Signature, TensorInfo


class Doubling(Signature):
    """Answers numbers by their doubles; a row is as long as its number."""

    def __init__(self) -> None:
        super().__init__("double", [TensorInfo("x", "int32", (None,))], [], dict)
        self.batches: list[list[int]] = []
        self.prepared: list[int] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def rows_of(self, parts: Parts) -> list[Row]:
        self.prepared.append(len(parts[0]))
        return [Row(abs(int(value)), int(value)) for value in parts[0]]

    def compute(self, rows: Sequence[Row]) -> tuple[Answers, int]:
        values = [row.values for row in rows]
        self.batches.append(values)
        assert self.go_on.wait(20)
        if 13 in values:
            raise tf.errors.InvalidArgumentError(None, None, "13")
        doubled = np.array([2.0 * value for value in values])
        return {"y": np.where(doubled < 0, np.nan, doubled)}, sum(values)


@pytest.fixture
def signature() -> Doubling:
    return Doubling()


@pytest.fixture
def batcher() -> Iterator[Batcher]:
    found = Batcher(max_batch_tokens=100, timeout_ms=0)
    yield found
    found.close()


def blocked(batcher: Batcher, signature: Doubling) -> list[Future[Answers]]:
    """Keep all threads busy until `go_on` is set."""
    signature.go_on.clear()
    futures = []
    for _ in batcher._threads:
        futures.append(submitted(batcher, signature, [1]))
        until(lambda: len(signature.batches) == len(futures))
    return futures


def submitted(
    batcher: Batcher, signature: Doubling, values: list[int]
) -> Future[Answers]:
    return batcher.submit(signature, [[b"%d" % value for value in values]])


def until(holds: Any) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_requests_are_batched_while_others_are_computed(
    batcher: Batcher, signature: Doubling
) -> None:
    first = blocked(batcher, signature)
    texts = [[10, 11], [10], [90], [11, 10]]
    futures = [submitted(batcher, signature, values) for values in texts]
    until(lambda: batcher.queued == 4)
    signature.go_on.set()
    for values, future in zip(texts, futures, strict=True):
        assert future.result(20)["y"].tolist() == [2.0 * value for value in values]
    assert [f.result(20)["y"].tolist() for f in first] == [[2.0], [2.0]]
    assert sorted(map(sorted, signature.batches[2:])) == [[10, 10, 10, 11, 11], [90]]
    # Tokenized together, in one call.
    assert signature.prepared == [1, 1, 6]
    assert batcher.queued == 0


def test_a_batch_holds_half_of_what_waits(signature: Doubling) -> None:
    batcher = Batcher(max_batch_tokens=1000, timeout_ms=0)
    blocked(batcher, signature)
    futures = [submitted(batcher, signature, [100]) for _ in range(8)]
    until(lambda: batcher.queued == 8)
    signature.go_on.set()
    wait(futures, 20)
    # Of 800 tokens 400; of 400 not fewer than 320.
    assert sorted(map(len, signature.batches[2:])) == [1, 3, 4]
    batcher.close()


def test_a_request_that_fails_fails_alone(
    batcher: Batcher, signature: Doubling
) -> None:
    blocked(batcher, signature)
    texts = [[12], [13, 12], [-12], [14]]
    futures = [submitted(batcher, signature, values) for values in texts]
    signature.go_on.set()
    wait(futures, 20)
    assert futures[0].result()["y"].tolist() == [24.0]
    assert futures[3].result()["y"].tolist() == [28.0]
    for number, status, part in ((1, 400, "rejects"), (2, 500, "not finite")):
        error = futures[number].exception()
        assert isinstance(error, RequestError)
        assert error.status == status
        assert part in str(error)


def test_a_cancelled_request_is_not_computed(
    batcher: Batcher, signature: Doubling
) -> None:
    blocked(batcher, signature)
    gone = submitted(batcher, signature, [50])
    stays = submitted(batcher, signature, [20])
    assert gone.cancel()
    signature.go_on.set()
    assert stays.result(20)["y"].tolist() == [40.0]
    assert [50] not in signature.batches


def test_a_request_cancelled_while_a_batch_is_chosen(
    batcher: Batcher, signature: Doubling, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = blocked(batcher, signature)
    gone = submitted(batcher, signature, [2])
    until(lambda: batcher.queued == 1)
    oldest = batcher._oldest

    def oldest_then_cancelled() -> Any:
        found = oldest()
        gone.cancel()
        return found

    monkeypatch.setattr(batcher, "_oldest", oldest_then_cancelled)
    signature.go_on.set()
    wait(first, 20)
    assert submitted(batcher, signature, [3]).result(20)["y"].tolist() == [6.0]
    assert all(thread.is_alive() for thread in batcher._threads)
    assert [2] not in signature.batches


def test_a_long_request_is_computed_in_parts(
    batcher: Batcher, signature: Doubling
) -> None:
    values = [30, 500, 31, 500, 29, 30, 32]
    answers = submitted(batcher, signature, values).result(20)
    assert answers["y"].tolist() == [2.0 * value for value in values]
    assert all(sum(batch) <= 128 for batch in signature.batches if 500 not in batch)
    assert signature.batches.count([500]) == 2


def test_close_answers_submitted_requests(signature: Doubling) -> None:
    batcher = Batcher(max_batch_tokens=100, timeout_ms=500)
    blocked(batcher, signature)
    futures = [submitted(batcher, signature, [number]) for number in (5, 60, 7)]
    threading.Timer(0.05, signature.go_on.set).start()
    batcher.close()
    assert [f.result(0)["y"].tolist() for f in futures] == [[10.0], [120.0], [14.0]]
    assert not any(thread.is_alive() for thread in batcher._threads)
    with pytest.raises(RuntimeError):
        submitted(batcher, signature, [1])


def test_a_row_alone_does_not_wait(signature: Doubling) -> None:
    batcher = Batcher(max_batch_tokens=100, timeout_ms=10_000)
    start = time.monotonic()
    submitted(batcher, signature, [1]).result(20)
    assert time.monotonic() - start < 5
    batcher.close()
