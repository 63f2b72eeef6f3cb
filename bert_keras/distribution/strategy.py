"""The devices of a run: `find_strategy` selects a `tf.distribute` strategy.

A cluster gives each worker its place in `TF_CONFIG`, as Kubernetes' TFJob sets it,
or in Slurm's own variables.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from bert_keras.distribution.replicas import summed_function, take_from_first
from bert_keras.errors import ConfigError, WorkerLostError, one_line, reason_of
from bert_keras.runs.environment import emulates
from bert_keras.runs.notes import say, write
from bert_keras.settings import STRATEGIES, check_choice

_CLUSTER = "TF_CONFIG"
_SLURM_TASKS = "SLURM_STEP_NUM_TASKS"
# TensorFlow's prefix of the reason why an exchange between workers was aborted.
_ABORTED = "Collective ops is aborted by: "
_TPU_NAMES = ("TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS")


@dataclasses.dataclass(frozen=True)
class Devices:
    """The devices of a run.

    Example:
        >>> devices = find_strategy("auto")
        >>> with devices.strategy.scope():
        ...     model = BertPretrainer(BertEncoder(config))
    """

    name: str  # one of `STRATEGIES`, except `auto`
    strategy: tf.distribute.Strategy  # model and optimizer are created in its scope
    reason: str  # why this strategy was selected
    worker: int = 0  # number of this process among the workers
    workers: int = 1

    @property
    def replicas(self) -> int:
        """Number of copies of the model on all workers."""
        return int(self.strategy.num_replicas_in_sync)

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the results."""
        return self.worker == 0

    @property
    def has_static_shapes(self) -> bool:
        """Whether all batches must have one shape, as the TPU's compiler requires."""
        return self.name == "tpu"

    @property
    def has_gpu(self) -> bool:
        """Whether this machine has a GPU."""
        return bool(tf.config.list_physical_devices("GPU"))

    def check_batch_size(self, batch_size: int, parts: int) -> None:
        """Raise ConfigError unless each replica gets examples of each part of a batch.

        `parts` is the number of parts of an update (`accumulation`). With static
        shapes, all replicas must get the same number of examples.
        """
        if batch_size < parts * self.replicas:
            raise ConfigError(
                f"`batch_size` must be at least `accumulation` ({parts}) times the "
                f"number of replicas ({self.replicas}); received {batch_size}"
            )
        if self.has_static_shapes and batch_size % (parts * self.replicas):
            raise ConfigError(
                f"`batch_size` must be a multiple of `accumulation` ({parts}) times "
                f"the number of replicas ({self.replicas}) on a TPU; received "
                f"{batch_size}"
            )

    def agree(self, number: int) -> int:
        """Return the first worker's number on all workers."""
        return take_from_first(self.strategy, [], number)

    @functools.cached_property
    def vote(self) -> Callable[[bool], bool] | None:
        """Return a function that ORs a boolean over workers; `None` for one worker.

        All workers must call it at the same point.
        """
        if self.workers == 1:
            return None
        spec = [tf.TensorSpec([], tf.float32)]
        total = summed_function(self.strategy, lambda value: value, spec)
        return lambda value: float(total(tf.constant(float(value)))) > 0

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Raise `WorkerLostError` in place of TensorFlow's error for a lost worker.

        TensorFlow's coordination service, to which workers send heartbeats, notices
        within half a minute that one has ended or is unreachable, and aborts the
        others' exchanges. A worker that sends heartbeats but makes no progress is
        waited for.
        """
        try:
            yield
        except tf.errors.OpError as error:
            _, aborted, reason = str(error.message).partition(_ABORTED)
            if self.workers == 1 or not aborted:
                raise
            first = one_line(reason.partition("\n")[0].partition(". ")[0]).rstrip(":")
            raise WorkerLostError(
                f"another worker has ended or is unreachable ({first}); the same "
                "command on all workers resumes from the last checkpoint"
            ) from None

    def line(self) -> str:
        """Return the selected strategy and the reason."""
        place = f"worker {self.worker} of {self.workers}, " if self.workers > 1 else ""
        place += f"{self.replicas} replicas, " if self.replicas > 1 else ""
        return f"strategy {self.name}: {place}{self.reason}"

    def announce(self, precision: str) -> None:
        """Print the strategy, and say if processors emulate the precision."""
        write(self.line())  # by each worker
        has_others = self.name == "tpu" or self.has_gpu
        if not has_others and emulates(precision):
            say(
                f"precision {precision}: this processor has no instructions for it and "
                "emulates it; float32 is several times as fast"
            )


def find_strategy(name: str = "auto") -> Devices:
    """Return the devices to compute on; `auto` detects them.

    The strategies of several processes and of TPUs must be created before TensorFlow
    computes anything.

    Args:
        name: `single`; `mirrored`, all GPUs of this machine; `multi-worker`, the
            machines of `TF_CONFIG` or of a Slurm step; `tpu`, the TPU of this machine
            or of `TPU_NAME`; `auto`, the first available one of multi-worker, tpu and
            mirrored, else `single`.

    Raises:
        ConfigError: the strategy is unknown, or its devices are missing.
    """
    check_choice("strategy", name, STRATEGIES)
    return _MAKERS[_detected() if name == "auto" else name]()


def _detected() -> str:
    """Return the name of the first available strategy."""
    if len(_cluster_workers()) > 1 or int(os.environ.get(_SLURM_TASKS, "1")) > 1:
        return "multi-worker"
    is_named = any(os.environ.get(variable) for variable in _TPU_NAMES)
    if is_named or tf.config.list_physical_devices("TPU"):
        return "tpu"
    return "mirrored" if len(tf.config.list_physical_devices("GPU")) > 1 else "single"


def _single() -> Devices:
    if tf.distribute.has_strategy():
        raise ConfigError(
            "`strategy` single must be selected outside the scope of another strategy"
        )
    gpus = tf.config.list_physical_devices("GPU")
    reason = "one GPU" if gpus else "on the processor, without a GPU"
    if len(gpus) > 1:
        reason = f"one of {len(gpus)} GPUs"
    return Devices("single", tf.distribute.get_strategy(), reason)


def _mirrored() -> Devices:
    kinds = {kind: tf.config.list_logical_devices(kind) for kind in ("GPU", "CPU")}
    for kind, found in kinds.items():
        if len(found) > 1:
            strategy = tf.distribute.MirroredStrategy([each.name for each in found])
            return Devices("mirrored", strategy, f"{len(found)} {kind}s here")
    raise ConfigError(
        "`strategy` mirrored needs at least two GPUs; found "
        f"{len(kinds['GPU'])}: single computes on one device"
    )


def _multi_worker() -> Devices:
    reason = _CLUSTER
    if not _cluster_workers() and _SLURM_TASKS in os.environ:
        os.environ[_CLUSTER] = json.dumps(_slurm_cluster())
        reason = "Slurm's step"
    workers = _cluster_workers()
    if not workers:
        raise ConfigError(
            f"`strategy` multi-worker needs {_CLUSTER} with a cluster of workers, or "
            "srun; found neither"
        )
    number = _own_place(workers)
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise ConfigError(
            "`strategy` multi-worker must be created before TensorFlow computes: "
            f"{_first_sentence(error)}"
        ) from None
    except (tf.errors.OpError, ValueError) as error:
        raise ConfigError(
            f"the workers of {_CLUSTER} cannot connect: {_first_sentence(error)}"
        ) from None
    return Devices("multi-worker", strategy, reason, number, len(workers))


def _tpu() -> Devices:
    try:
        name = "" if os.environ.get(_TPU_NAMES[0]) else "local"
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"`strategy` tpu needs a TPU; there is none: {_first_sentence(error)}"
        ) from None
    return Devices("tpu", strategy, name or f"{_TPU_NAMES[0]} is set")


_MAKERS = {
    "single": _single,
    "mirrored": _mirrored,
    "multi-worker": _multi_worker,
    "tpu": _tpu,
}


def _tf_config() -> dict[str, Any]:
    """Return the content of `TF_CONFIG`."""
    given = os.environ.get(_CLUSTER) or "{}"
    try:
        found = json.loads(given)
        cluster = found.get("cluster", {})
        cluster.items()
    except (ValueError, AttributeError):
        raise ConfigError(
            f"{_CLUSTER} must be a JSON object with `cluster`; received {given[:80]}"
        ) from None
    return found


def _cluster_workers() -> list[tuple[str, int]]:
    """Return kind and number of each process that trains, the chief first."""
    cluster = _tf_config().get("cluster", {})
    others = sorted(set(cluster) - {"chief", "worker", "evaluator"})
    if others:
        raise ConfigError(
            f"{_CLUSTER} must have a chief and workers only; received {others[0]}"
        )
    kinds = ("chief", "worker")
    return [(kind, n) for kind in kinds for n in range(len(cluster.get(kind, ())))]


def _own_place(workers: list[tuple[str, int]]) -> int:
    """Return the number of this process among the workers."""
    task = _tf_config().get("task") or {}
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return workers.index((task["type"], int(task["index"])))
    raise ConfigError(
        f"{_CLUSTER} must have a `task` with type and index of one of its "
        f"{len(workers)} workers; received {task}"
    )


def _slurm_cluster() -> dict[str, Any]:
    """Return the equivalent of `TF_CONFIG` for a Slurm step.

    Slurm itself gives each task its GPUs, so TensorFlow is told to expect one per task,
    and then detects them itself.

    Raises:
        ConfigError: Slurm's variables are broken, or TensorFlow, which sorts the
            machines by name as text, takes this machine for another one.
    """
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver
    try:
        most = int(os.environ[_SLURM_TASKS])
        found = resolver(gpus_per_node=most, gpus_per_task=1, auto_set_gpu=False)
        cluster = found.cluster_spec().as_dict()
        kind, number = found.get_task_info()
        host = cluster[kind][number].rsplit(":", 1)[0]
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"Slurm's variables do not describe the step: {_first_sentence(error)}"
        ) from None
    own = os.environ.get("SLURMD_NODENAME", host)
    if own != host:
        raise ConfigError(
            f"Slurm's task {number} must run on {host}; runs on {own}: set {_CLUSTER}"
        )
    return {"cluster": cluster, "task": {"type": kind, "index": number}}


def _first_sentence(error: Exception) -> str:
    return one_line(reason_of(error).partition(". ")[0], longest=120)
