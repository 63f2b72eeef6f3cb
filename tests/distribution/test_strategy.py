"""Which strategy is picked, what a cluster tells, and how a batch is parted."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.distribution import strategy as module
from bert_keras.distribution.replicas import Share, check_optimizer
from bert_keras.distribution.strategy import Devices, find_strategy
from bert_keras.errors import ConfigError, WorkerLostError
from bert_keras.model.optimizers import BertAdamW

TWO = {"worker": ["localhost:1", "localhost:2"]}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove this machine's own cluster variables."""
    for name in ("TF_CONFIG", "SLURM_STEP_NUM_TASKS", *module._TPU_NAMES):
        monkeypatch.delenv(name, raising=False)


def tell(monkeypatch: pytest.MonkeyPatch, cluster: Any, **task: Any) -> None:
    found = {"cluster": cluster, "task": task}
    monkeypatch.setenv("TF_CONFIG", json.dumps(found))


def test_one_device_is_the_fallback() -> None:
    for name in ("auto", "single"):
        devices = find_strategy(name)
        assert devices.name == "single"
        assert devices.replicas == 1 and devices.is_chief
        assert devices.strategy is tf.distribute.get_strategy()
        assert devices.line() == "strategy single: on the processor, without a GPU"


def test_auto_uses_the_available_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> str:
        return find_strategy("auto")  # type: ignore[return-value]

    for name in ("single", "mirrored", "multi-worker", "tpu"):
        monkeypatch.setitem(module._MAKERS, name, lambda name=name: name)
    devices = {"GPU": 1, "TPU": 0}
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: [None] * devices[kind]
    )
    assert made() == "single"
    devices["GPU"] = 2
    assert made() == "mirrored"
    devices["TPU"] = 8
    assert made() == "tpu"
    monkeypatch.setenv("TPU_NAME", "mine")
    devices["TPU"] = 0
    assert made() == "tpu"
    tell(monkeypatch, {"worker": ["localhost:1"]}, type="worker", index=0)
    assert made() == "tpu"  # a single worker is not a cluster
    tell(monkeypatch, TWO, type="worker", index=0)
    assert made() == "multi-worker"
    monkeypatch.delenv("TF_CONFIG")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    assert made() == "multi-worker"


def test_missing_devices_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(lambda: find_strategy("all"), "`strategy` must be one of auto, single")
    refused(lambda: find_strategy("mirrored"), "needs at least two GPUs", "found 0")
    refused(lambda: find_strategy("multi-worker"), "needs TF_CONFIG", "srun")
    for given, told in (
        ("{", "must be a JSON object with `cluster`; received {"),
        ("[]", "must be a JSON object"),
        (json.dumps({"cluster": {"ps": ["a:1"]}}), "chief and workers only"),
        (json.dumps({"cluster": TWO}), "`task` with type and index"),
        (
            json.dumps({"cluster": TWO, "task": {"type": "worker", "index": 2}}),
            "of one of its 2 workers; received",
        ),
    ):
        monkeypatch.setenv("TF_CONFIG", given)
        refused(lambda: find_strategy("multi-worker"), "TF_CONFIG", told)


def test_the_chief_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tell(monkeypatch, {**TWO, "chief": ["localhost:0"]}, type="worker", index="1")
    workers = module._cluster_workers()
    assert workers == [("chief", 0), ("worker", 0), ("worker", 1)]
    assert module._own_place(workers) == 2


def test_a_slurm_step_is_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    step = {
        "SLURM_PROCID": "2",
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_NODELIST": "node[01-02]",
        "SLURM_STEP_TASKS_PER_NODE": "2,1",
        "SLURMD_NODENAME": "node02",
    }
    for name, value in step.items():
        monkeypatch.setenv(name, value)
    assert module._slurm_cluster() == {
        "cluster": {"worker": ["node01:8888", "node01:8889", "node02:8888"]},
        "task": {"type": "worker", "index": 2},
    }
    monkeypatch.setenv("SLURMD_NODENAME", "node01")
    refused(module._slurm_cluster, "must run on node02; runs on node01: set TF_CONFIG")
    monkeypatch.delenv("SLURM_STEP_NODELIST")
    refused(module._slurm_cluster, "do not describe the step", "SLURM_STEP_NODELIST")


def test_each_example_goes_to_one_replica() -> None:
    for workers, local, size in ((1, 2, 8), (2, 2, 10), (3, 1, 2)):
        replicas = workers * local
        data = tf.data.Dataset.range(23).batch(size)
        found = [
            [
                part.numpy()
                for (part,) in data.flat_map(
                    Share(worker * local, local, replicas).parts
                )
            ]
            for worker in range(workers)
        ]
        for number, batch in enumerate(data):
            parts = [
                part
                for of_worker in found
                for part in of_worker[number * local : (number + 1) * local]
            ]
            assert len(parts) == replicas
            sizes = [len(part) for part in parts]
            assert max(sizes) - min(sizes) <= 1
            np.testing.assert_array_equal(np.sort(np.concatenate(parts)), batch)


def test_parts_of_one_size_have_that_shape() -> None:
    data = tf.data.Dataset.range(20).batch(8, drop_remainder=True)
    (spec,) = data.flat_map(Share(0, 2, 4).parts).element_spec
    assert spec.shape == [2]


def test_a_batch_that_is_too_small_is_rejected() -> None:
    four: Any = SimpleNamespace(num_replicas_in_sync=4)
    tpu, mirrored = Devices("tpu", four, ""), Devices("mirrored", four, "")
    tpu.check_batch_size(8, 2)
    mirrored.check_batch_size(9, 2)
    few = "`batch_size` must be at least"
    refused(lambda: mirrored.check_batch_size(7, 2), few, "(2)", "(4)", "7")
    refused(lambda: tpu.check_batch_size(9, 2), "must be a multiple", "TPU", "9")


@pytest.mark.parametrize(
    "setting",
    [{"clipnorm": 1.0}, {"clipvalue": 1.0}, {"gradient_accumulation_steps": 2}],
)
def test_optimizers_that_are_wrong_on_replicas_are_rejected(setting: dict) -> None:
    check_optimizer(BertAdamW(1e-3))
    (name,) = setting
    without = {"global_clipnorm": None} if "clip" in name else {}
    optimizer = BertAdamW(1e-3, **without, **setting)
    refused(lambda: check_optimizer(optimizer), f"`{name}` of the optimizer must be")


def test_tpu_devices_need_fixed_shapes() -> None:
    one = find_strategy("single")
    assert not one.has_static_shapes
    assert dataclasses.replace(one, name="tpu").has_static_shapes


UNHEALTHY = (
    "Error reported from /job:worker/task:1: The following tasks are unhealthy "
    "(stopped sending heartbeats)"
)


@pytest.mark.parametrize(
    ("kind", "reason", "more"),
    [
        (tf.errors.UnavailableError, "Socket closed", "\nAdditional GRPC error …"),
        (tf.errors.UnavailableError, UNHEALTHY, ":\n/job:worker/replica:0/task:1"),
        (tf.errors.DeadlineExceededError, "Deadline Exceeded", "\n\nRPC: …/Heartbeat"),
        (tf.errors.UnavailableError, "Failed to send RPC", ". Either the leader …\n"),
    ],
    ids=["socket", "heartbeats", "deadline", "sentence"],
)
def test_the_error_of_a_lost_worker_is_one_line(
    kind: type[tf.errors.OpError], reason: str, more: str
) -> None:
    def lose(workers: int) -> None:
        with dataclasses.replace(find_strategy("single"), workers=workers).together():
            raise kind(
                None, None, f"Graph\n\nCollective ops is aborted by: {reason}{more}"
            )

    with pytest.raises(WorkerLostError) as found:
        lose(2)
    assert str(found.value) == (
        f"another worker has ended or is unreachable ({reason}); the same command on "
        "all workers resumes from the last checkpoint"
    )
    with pytest.raises(kind):
        lose(1)


def test_a_worker_s_own_error_is_kept() -> None:
    devices = dataclasses.replace(find_strategy("single"), workers=2)
    with pytest.raises(tf.errors.UnavailableError), devices.together():
        raise tf.errors.UnavailableError(None, None, "gs://data/train.tsv: try again")
    with pytest.raises(ConfigError), devices.together():
        raise ConfigError("`steps` must be at least 1; received 0")
