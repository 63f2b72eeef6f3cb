"""A first score, in seconds, of a run that trains for minutes: `FirstScore`.

A linear head is fitted on vectors of the encoder before it is trained. Its model folder
is kept in the run folder until the run ends, and is what Ctrl-C leaves.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bert_keras.distribution.strategy import Devices
from bert_keras.exports.model_card import VALIDATION
from bert_keras.files.atomic import replaced_folder
from bert_keras.models.folder import Folder
from bert_keras.models.task_model import TaskModel, with_head
from bert_keras.report.values import words
from bert_keras.runs.notes import collected, say
from bert_keras.runs.stop_signal import RunStopped
from bert_keras.tasks.base import Task, overrides
from bert_keras.training.balanced_batches import ROWS, updates_for
from bert_keras.training.choices import AUTO, Choice
from bert_keras.training.config import given_options, unused_by
from bert_keras.training.contrastive_fit import ContrastiveFit, rows_of_trainings
from bert_keras.training.data import UNLABELED, tests_of
from bert_keras.training.head_fit import HeadFit
from bert_keras.training.lengths import computation
from bert_keras.training.loop import RunContext
from bert_keras.training.methods import head_task
from bert_keras.training.plan import Plan, model_of
from bert_keras.training.progress import UPDATE_COST
from bert_keras.training.tracking import Trackers

FIRST, NOTE = "first", "first.json"  # inside the run folder
# Floating-point operations of a training that takes about a minute on two cores;
# shorter ones have no first score. A GPU does so many in a second.
LEAST_WORK, _TIMES_ON_GPU = 3e12, 50


@dataclasses.dataclass(frozen=True)
class FirstScore:
    """The score of a linear head on vectors of the frozen encoder.

    Args:
        value: of the task's best score.
        score: its name, such as `accuracy`.
        of: the rows it is of: `dev`, or a cross-validation.
        seconds: after the start of the run.
        rank: of the head, see `HeadTrainer`.
        folder: the model folder.
    """

    value: float
    score: str
    of: str
    seconds: float
    rank: tuple[float, float]
    folder: Path

    def line(self) -> str:
        """Return the score as a line of text."""
        return (
            f"after {self.seconds:.0f} s: {words(self.score).lower()} {self.value:.4f} "
            f"({self.of}) by a linear head on vectors of the encoder; Ctrl-C keeps it"
        )

    def compared_with(self, scores: Mapping[str, Mapping[str, Any]]) -> str:
        """Return the score and how training changed it, for the report."""
        line = (
            f"{words(self.score).lower()} {self.value:.4f} ({self.of}) by a linear "
            f"head on vectors of the encoder, after {self.seconds:.0f} s"
        )
        for name, found in scores.items():
            is_like = name == self.of or name.startswith(VALIDATION)
            if is_like and self.score in found:
                change = float(found[self.score]) - self.value
                line += f"; training changed it by {change:+.4f}"
                line += "" if name == self.of else f" ({name})"
        return line

    def kept(self, output: Path, stopped: RunStopped) -> RunStopped:
        """Write the model folder, unless there is a model, where Ctrl-C was pressed.

        Returns what to raise, which says where the folder is.
        """
        if not stopped.by_hand:
            return stopped
        place = self.folder
        if not output.exists():
            with replaced_folder(output) as folder:
                shutil.copytree(self.folder, folder, dirs_exist_ok=True)
            place = output
        return RunStopped(
            f"{stopped}; {place} is the model of the first score, "
            f"{words(self.score).lower()} {self.value:.4f}",
            by_hand=True,
        )


def first_score(
    plan: Plan,
    model: TaskModel,
    context: RunContext,
    *,
    fitted: HeadFit | None,
    finish: Callable[..., Any],
    begun: float,
) -> FirstScore | None:
    """Return the score of a linear head, whose model folder is in the run folder.

    `None` for a short run, and where there is no such head. The encoder and the random
    numbers of the run stay as they are; a resumed run finds what it has fitted.

    Args:
        plan: of the run.
        model: as the run begins to train it.
        context: of the run.
        fitted: the head of a linear probe, if the run begins with one.
        finish: `finish_run`.
        begun: when the run began, by `time.perf_counter`.
    """
    run, devices = context.folder, context.devices
    if run is None or not _has_one(plan, devices):
        return None
    folder, note = run.path / FIRST, run.path / NOTE
    if note.is_file() and folder.is_dir():
        found = json.loads(note.read_text(encoding="utf-8"))
        found["rank"] = tuple(found.get("rank", (0.0, 0.0)))
        return FirstScore(**found, folder=folder)
    if run.steps:
        return None
    linear = _linear_plan(plan)
    context = dataclasses.replace(
        context,
        folder=None,
        config=linear.config,
        trackers=Trackers(),
        tries_layers=linear.tries_layers,
    )
    if fitted is None:
        with collected(shown=False):
            own = model_of(linear, devices)  # may read other layers
            fitted = HeadFit(own, linear.rows, context)
            if plan.config.method == "contrastive":  # so that both have the same folds
                fitted.most_folds = ContrastiveFit.most_folds
                fitted.enough = ContrastiveFit.enough
            if not fitted.folds:
                return None
            fitted.train()
    else:  # the run goes on to train the head
        head = {weight.path: weight.numpy() for weight in model.weights}
        with devices.strategy.scope():
            own = with_head(model, model.task, model.preprocessor, head)
        fitted.model = own
    result = finish(linear, fitted, context, failed=None, into=folder)
    name, scores = next(iter(result.scores.items()))
    score = result.model.task.best_score
    seconds = round(time.perf_counter() - begun, 1)
    value = float(scores[score])
    first = FirstScore(value, score, name, seconds, fitted.rank, folder)
    values = dataclasses.asdict(first)
    run.add_note(NOTE, {k: v for k, v in values.items() if k != "folder"})
    say(first.line())
    return first


def _has_one(plan: Plan, devices: Devices) -> bool:
    """Return whether a run has a first score, by its plan."""
    config, task = plan.config, plan.task
    return (
        config.method != "linear"
        and overrides(task, "linear_targets")
        and hasattr(task, "pooling")
        and getattr(task, "combine", "") != "attention"
        and config.teacher is None
        and not config.lora_rank
        and not plan.request.is_one_of_several
        and devices.workers == devices.replicas == 1
        and not devices.has_static_shapes
        and (
            may_be_linear(plan)
            or work_of(plan) > LEAST_WORK * (_TIMES_ON_GPU if devices.has_gpu else 1)
        )
    )


def may_be_linear(plan: Plan) -> bool:
    """Return whether linear takes the place of contrastive if it scores higher."""
    config = plan.request.config
    return (
        plan.config.method == "contrastive"
        and config.method == AUTO
        and not given_options(config, unused_by("linear"))
    )


def work_of(plan: Plan) -> float:
    """Return about how many floating-point operations the updates of a run make."""
    encoder = Folder.open(plan.encoder).checkpoint.config
    lengths = plan.lengths["train"]
    products = 2 * encoder.hidden_size * computation(lengths.read, encoder)
    return 2 * UPDATE_COST * passes_of(plan) * encoder.num_hidden_layers * products


def passes_of(plan: Plan) -> float:
    """Return how many passes of updates over the training rows a run equals."""
    config, rows = plan.config, len(plan.rows["train"])
    if config.method == "linear":  # which makes no updates
        return 1 / UPDATE_COST
    if config.method == "contrastive":
        sizes = rows_of_trainings(rows, has_dev="dev" in plan.rows)
        return sum(map(updates_for, sizes)) * ROWS / rows
    return float(config.epochs or 1)


def _linear_plan(plan: Plan) -> Plan:
    """Return the plan of the linear head, which is scored on dev or the folds alone."""
    config = dataclasses.replace(plan.config, method="linear", explain_mistakes=0)
    others = {UNLABELED, *tests_of(plan.rows)}
    if plan.config.linear_probe:
        others.add("dev")  # the probe has not read it
    rows = {name: each for name, each in plan.rows.items() if name not in others}
    task: Any = plan.task
    tries = False
    if not plan.config.linear_probe:
        is_given = isinstance(plan.request.task, Task)
        given = None if is_given else plan.request.task_settings or {}
        folder = Folder.open(plan.encoder)
        task, tries = head_task(task, folder, len(rows["train"]), given)
    unused = {name.replace("_", " ") for name in unused_by("linear")}
    method = Choice("method", "linear", f"the first score of {plan.config.method}")
    unused |= {"method", "pair encoder", "pooling"}  # which may be others
    kept = [each for each in plan.choices if each.name not in unused]
    return dataclasses.replace(
        plan,
        request=dataclasses.replace(plan.request, slices=()),
        task=task,
        config=config,
        rows=rows,
        collections={},
        tries_layers=tries,
        choices=(method, *kept),
    )
