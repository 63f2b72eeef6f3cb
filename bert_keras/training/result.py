"""What fine-tuning leaves: the best model, its scores and the report: `finish_run`."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.data.table import Columns
from bert_keras.files.atomic import replaced_folder
from bert_keras.files.json_file import json_text
from bert_keras.inference.model_folder import write_model
from bert_keras.inference.predictor import Predictor
from bert_keras.report.report import write_report
from bert_keras.runs.environment import environment
from bert_keras.tasks.task_model import TaskModel, as_tensors
from bert_keras.training.divergence import Divergence
from bert_keras.training.epochs import FineTuningLoop
from bert_keras.training.updates import new_optimizer


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What `train` made.

    Args:
        folder: the model folder; holds `report.html` and `scores.json`, too.
        model: the model with the weights of its best epoch.
        scores: name of the data set to its scores.
        history: rows of the curves, by step and by epoch.
        report: what the report tells, the arguments of `write_report`.
    """

    folder: Path
    model: TaskModel
    scores: dict[str, dict[str, Any]]
    history: list[dict[str, Any]]
    report: dict[str, Any]


def finish_run(
    loop: FineTuningLoop,
    data: Mapping[str, Columns],
    encoder: str | os.PathLike[str],
    output: Path,
    command: str,
    failed: Divergence | None,
) -> TrainResult:
    """Score the best epoch of a run, and write its model folder and report.

    All workers score, so that all return the same; the chief writes.

    Args:
        loop: has made all updates.
        data: the rows by name: `train`, `dev` and the tests.
        encoder: what training started from, as it was given.
        output: the model folder.
        command: the command line, for the report.
        failed: how the run has diverged, or may have, if it has.

    Raises:
        CheckpointError: the best epoch's folder is broken, or the disk refuses.
    """
    config, model = loop.config, loop.best_model()
    model.task = task = model.task.settle(model)
    scores, answers, last = {"dev": loop.best.scores or {}}, loop.best.answers, "dev"
    tuned = task.tune(data["dev"], answers or {})
    predictor = Predictor(model)
    if tuned != task:
        model.task = task = tuned
        with loop.progress.scoring("dev", len(data["dev"])) as bar:
            answers = predictor.answers(data["dev"], seen=bar.add)
        scores["dev"] = task.score(data["dev"], answers)
    for last, rows in list(data.items())[2:]:
        with loop.progress.scoring(last, len(rows)) as bar:
            answers = predictor.answers(rows, seen=bar.add)
        scores[last] = task.score(rows, answers)
    of_data = dict(scores)
    if failed and failed.is_certain:
        loss = failed.loss if math.isfinite(failed.loss) else None
        scores["diverged"] = {**dataclasses.asdict(failed), "loss": loss}
    facts = {name: _facts(model, columns) for name, columns in data.items()}
    facts["train"]["real_token_share"] = loop.progress.real_share
    settings = {
        "task": task.name,
        "encoder": os.fspath(encoder),
        **dataclasses.asdict(config),
        "max_length": model.preprocessor.max_length,
        **{k: v for k, v in task.settings().items() if k != "classes"},
        "best_epoch": loop.best.epoch,
        "best_epoch_dev_loss": loop.best.loss,
        **({"training": loop.ending} if loop.ending else {}),
        "training_seconds": round(loop.progress.state()["seconds"], 1),
        **({"skipped_updates": "; ".join(loop.skipped)} if loop.skipped else {}),
        **_told(failed),
    }
    report = {
        "settings": settings,
        "data": facts,
        "history": loop.history,
        "scores": scores,
        "mistakes": task.mistakes(data[last], answers or {}),
        "best_score": task.best_score,
        "environment": {**environment(), "devices": loop.devices.line()},
        "command": command,
    }
    if loop.devices.is_chief:
        with replaced_folder(output) as folder:
            write_model(model, folder)
            write_results(folder, f"{task.name}: {output.name}", report)
    model.compile(
        new_optimizer(config, steps=loop.rows.steps),
        loss=task.loss(),
        metrics=task.metrics(),
    )
    return TrainResult(output, model, of_data, loop.history, report)


def _told(failed: Divergence | None) -> dict[str, str]:
    """Return what the report's settings say of a run that is no better than a guess."""
    if failed is None:
        return {}
    return {"diverged" if failed.is_certain else "too_few_updates": str(failed)}


def write_results(folder: Path, title: str, report: dict[str, Any]) -> None:
    """Write `scores.json` and `report.html` into a model folder that is there."""
    scores = json_text(report["scores"], ensure_ascii=True, indent=2)
    (folder / "scores.json").write_text(scores + "\n", encoding="utf-8")
    write_report(folder / "report.html", title=title, **report)


def _facts(model: TaskModel, columns: Columns) -> dict[str, Any]:
    """Return what the report says of a data set: rows, classes, lengths in tokens."""
    preprocessor, sizes, cut = model.preprocessor, [], 0
    texts = model.task.texts(columns, use="score")
    for start in range(0, len(texts[0]), 1024):
        parts = as_tensors([part[start : start + 1024] for part in texts])
        lengths, was_cut = model.task.lengths(preprocessor, parts)
        sizes.append(lengths.numpy())
        cut += int(tf.reduce_sum(tf.cast(was_cut, tf.int32)))
    lengths = np.concatenate(sizes)
    return {
        **model.task.describe(columns),
        "mean_tokens": round(float(lengths.mean()), 1),
        "longest_tokens": int(lengths.max()),
        "truncated": cut,
    }
