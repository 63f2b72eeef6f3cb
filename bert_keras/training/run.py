"""A fine-tuning run: `open_run` opens its state folder, `finish_run` writes the result.

The folder is hidden next to the model folder: `.NAME.run` for `NAME`. So an existing
model stays unchanged until the new one is complete, and a finished model folder holds
no state of the run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from bert_keras.data.table import Columns, without_slices
from bert_keras.errors import ConfigError
from bert_keras.files.atomic import replaced_folder
from bert_keras.files.json_file import json_text
from bert_keras.inference.predictor import Predictor
from bert_keras.models.model_card import usage_of, write_readme
from bert_keras.models.model_folder import write_model
from bert_keras.models.task_model import TaskModel
from bert_keras.report.comparison import write_run
from bert_keras.report.report import DOUBTFUL, csv_text, rows_with_set, write_report
from bert_keras.runs.environment import environment
from bert_keras.runs.progress import say
from bert_keras.runs.run_folder import SETTINGS, RunFolder, digest_of, what_differs
from bert_keras.settings import RESUME, check_choice
from bert_keras.tasks.base import Task
from bert_keras.tasks.protocols import Reportable, Settling, Tunable, describe
from bert_keras.text.new_tokens import described
from bert_keras.text.tokenizer_files import vocabulary_hash
from bert_keras.training import config as training_config
from bert_keras.training.config import TrainConfig
from bert_keras.training.divergence import Divergence
from bert_keras.training.epochs import FineTuningLoop
from bert_keras.training.findings import explained_mistakes, findings_of
from bert_keras.training.lengths import TextLengths
from bert_keras.training.updates import new_optimizer

FINISHED = ".finished.json"  # suffix of the notes about finished runs
# How a run chooses what the user does not: 2 since the dev rows are stratified and the
# length follows the rows. Runs of earlier versions do not have the entry.
_DEFAULTS, DEFAULTS = "defaults", 2
# Settings that may differ when a run resumes: the weights do not depend on them.
_FREE = (
    *("checkpoint_every", "save_every", "keep", "on_nonfinite", "restarts", "strategy"),
    *("tensorboard", "track", "card", "explain_mistakes"),
)


def run_path(output: str | os.PathLike[str], name: str = "run") -> Path:
    """Return the run folder that belongs to a model folder."""
    target = Path(os.path.realpath(output))
    return target.with_name(f".{target.name}.{name}")


def open_run(path: Path, settings: Mapping[str, Any], *, resume: str) -> RunFolder:
    """Return the folder of a run: that of the same interrupted run, or a new one.

    `settings` determine the weights. `resume` is `auto`, which resumes the same run, or
    `never`, which deletes an existing run.

    Raises:
        ConfigError: there is an unfinished run with other settings.
        CheckpointError: another process uses the folder, or writing fails.
    """
    check_choice("resume", resume, RESUME)
    found = _settings_of(path)
    if found is not None:
        wanted = json.loads(json.dumps(settings))
        with RunFolder(path, found) as old:
            # Its own checkpoints, and the entries of several runs.
            kept = (f"*{FINISHED}", ".*.run*/checkpoints/step-*")
            holds = old.steps or any(list(path.glob(pattern)) for pattern in kept)
            difference = what_differs(found, wanted)
            if holds and resume == "auto" and _DEFAULTS not in found | wanted.keys():
                say(f"{path}: an earlier version began this run: its choices are kept")
            if holds and difference and resume == "auto":
                earlier = " of an earlier version" if _DEFAULTS not in found else ""
                raise ConfigError(
                    f"{path}: holds an unfinished run{earlier} with another "
                    f"{difference}: use the same to resume it, or `--resume never` to "
                    "start over"
                )
            if difference or resume == "never":
                remove_run(old)
    return RunFolder(path, settings)


def has_earlier_run(path: Path) -> bool:
    """Return whether a folder holds an unfinished run of a version without `DEFAULTS`.

    Such a run resumes with the dev rows and the length that its version chose.
    """
    found = _settings_of(path)
    if found is None or _DEFAULTS in found:
        return False
    return any(path.glob("checkpoints/step-*"))


def tests_of(data: Mapping[str, Any]) -> list[str]:
    """Return the names of the test sets of a run."""
    return [name for name in data if name not in ("train", "dev")]


def remove_run(run: RunFolder) -> None:
    """Remove a run folder atomically, while its lock is held."""
    gone = run.path.with_name(f"{run.path.name}-gone")
    shutil.rmtree(gone, ignore_errors=True)  # left by a process that was killed here
    run.path.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def discard_run(path: Path, settings: Mapping[str, Any]) -> None:
    """Remove a run folder if it exists and is of these settings.

    Raises:
        CheckpointError: another process uses the folder.
    """
    found = _settings_of(path)
    if found is None:
        return
    wanted = json.loads(json.dumps(settings))
    if all(found.get(name) == value for name, value in wanted.items()):
        with RunFolder(path, found) as run:
            remove_run(run)


def recorded_settings(
    task: Task,
    encoder: str | os.PathLike[str],
    config: TrainConfig,
    data: Mapping[str, Columns],
    *,
    is_earlier: bool = False,
) -> dict[str, Any]:
    """Return the settings of a run from the user, with the data, as JSON values.

    `is_earlier` is whether the run was begun by a version without `DEFAULTS`.
    """
    recorded = {k: v for k, v in dataclasses.asdict(config).items() if k not in _FREE}
    return {
        **({} if is_earlier else {_DEFAULTS: DEFAULTS}),
        "task": task.name,
        "encoder": os.fspath(encoder),
        **{f"{name} rows": _digest(columns) for name, columns in data.items()},
        **recorded,
        "task settings": json.loads(json.dumps(task.settings(), default=str)),
    }


def model_settings(model: TaskModel) -> dict[str, Any]:
    """Return the other settings that determine the final weights."""
    weights = model.backbone.weights
    return {
        "preprocessing": model.preprocessor.settings(),
        "vocabulary": vocabulary_hash(model.preprocessor.tokenizer.vocabulary),
        "weights of the encoder": digest_of(
            (weight.path, keras.ops.convert_to_numpy(weight)) for weight in weights
        ),
    }


def _settings_of(path: Path) -> dict[str, Any] | None:
    """Return the settings of the run in a folder, or `None` if there is no run."""
    try:
        found = json.loads((path / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # RunFolder reports the error
    if not isinstance(found, dict):
        return None
    return {name: value for name, value in found.items() if name != "format"}


def _digest(columns: Columns) -> str:
    """Return the number of rows and a digest that does not depend on their file."""
    found = hashlib.blake2b(digest_size=8)
    for role in without_slices(columns):
        cells = json.dumps([role, columns[role]], ensure_ascii=True, default=str)
        found.update(cells.encode())
    return f"{len(columns):,} rows, {found.hexdigest()}"


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """The result of `train`.

    Args:
        folder: the model folder, with `report.html` and `scores.json`.
        model: the model with the weights of its best epoch.
        scores: name of the data set to its scores.
        history: rows of the curves, by step and by epoch.
        report: the content of the report, the arguments of `write_report`.
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
    *,
    lengths: Mapping[str, TextLengths],
    slices: Sequence[str] = (),
) -> TrainResult:
    """Score the best epoch of a run, and write its model folder and report.

    All workers score, so that all return the same; the chief writes. `data` are the
    rows by name: `train`, `dev` and the tests, `lengths` those of their texts; `failed`
    is the divergence of the run, certain or possible, if any.

    Raises:
        CheckpointError: the folder of the best epoch is broken, or writing fails.
    """
    config, model = loop.config, loop.best_model()
    if isinstance(model.task, Settling):
        model.task = model.task.settle(model)
    task = model.task
    predictor = Predictor(model)
    scores: dict[str, dict[str, Any]] = {}
    scored: dict[str, tuple[Columns, Any, Any]] = {}
    answers: Any = {}
    facts: dict[str, Any]
    facts = {name: _facts(model, rows, lengths[name]) for name, rows in data.items()}
    facts["train"]["real_token_share"] = loop.progress.real_share
    if "dev" in data:
        scores["dev"], answers = loop.best.scores or {}, loop.best.answers or {}
        dev = data["dev"]
        tuned = task.tune(dev, answers) if isinstance(task, Tunable) else task
        if tuned != task:
            model.task = task = tuned
            answers = loop.answers(predictor, "dev", data["dev"])
            scores["dev"] = task.score(data["dev"], answers)
        scored["dev"] = (data["dev"], answers, lengths["dev"].whole)
    else:
        facts["dev"] = "no dev rows: the model is that of the last epoch"
    for name in tests_of(data):
        answers = loop.answers(predictor, name, data[name])
        scores[name] = task.score(data[name], answers)
        scored[name] = (data[name], answers, lengths[name].whole)
    of_data = dict(scores)
    if failed and failed.is_certain:
        loss = failed.loss if math.isfinite(failed.loss) else None
        scores["diverged"] = {**dataclasses.asdict(failed), "loss": loss}
    last = next(reversed(scored), "train")  # the set whose mistakes are shown
    mistakes: list[dict[str, Any]] = []
    if scored and isinstance(task, Reportable):
        mistakes = task.mistakes(data[last], answers)
    report: dict[str, Any] = {
        "settings": _shown_settings(loop, model, encoder, failed),
        "data": facts,
        "history": loop.history,
        "scores": scores,
        "mistakes": mistakes,
        "best_score": task.best_score,
        "environment": {**environment(), "devices": loop.devices.line()},
        "command": command,
        **findings_of(task, scored, slices),
        "usage": usage(task, output),
    }
    if loop.devices.is_chief:
        report["explanations"] = explained_mistakes(
            *(predictor, data[last], mistakes),
            most=config.explain_mistakes,
            seconds=min(
                training_config.EXPLAIN_SECONDS,
                training_config.EXPLAIN_SHARE * loop.progress.state()["seconds"],
            ),
        )
        with replaced_folder(output) as folder:
            write_model(model, folder)
            write_results(folder, output, report)
        loop.trackers.finish(report, output / "report.html")
    model.compile(
        new_optimizer(config, steps=loop.rows.steps, model=model),
        loss=task.loss(),
        metrics=task.metrics(),
    )
    return TrainResult(output, model, of_data, loop.history, report)


def usage(task: Task, output: Path) -> dict[str, str]:
    """Return the code that uses a model, for the report."""
    specs = next(iter(task.signatures().values()))
    return usage_of(
        output,
        task=task.name,
        settings=task.settings(),
        inputs=[spec.name for spec in specs],
    )


def _shown_settings(
    loop: FineTuningLoop,
    model: TaskModel,
    encoder: str | os.PathLike[str],
    failed: Divergence | None,
) -> dict[str, Any]:
    """Return the settings that the report shows, and notes on the run."""
    shown = {
        "task": model.task.name,
        "encoder": os.fspath(encoder),
        **dataclasses.asdict(loop.config),
        "max_length": model.preprocessor.max_length,
    }
    for name, value in model.task.settings().items():
        if name != "classes" and not isinstance(value, dict):  # nor a vocabulary
            shown[name] = value
    if loop.config.add_tokens:
        shown["add_tokens"] = described(loop.config.add_tokens)
    shown["best_epoch"] = loop.best.epoch
    if loop.dev is not None:
        shown["best_epoch_dev_loss"] = loop.best.loss
    if loop.ending:
        shown["training"] = loop.ending
    shown["training_seconds"] = round(loop.progress.state()["seconds"], 1)
    if loop.skipped:
        shown["skipped_updates"] = "; ".join(loop.skipped)
    if failed:
        shown["diverged" if failed.is_certain else "too_few_updates"] = str(failed)
    return shown


def write_results(folder: Path, output: Path, report: dict[str, Any]) -> None:
    """Write scores, report and, unless left out, card into an existing model folder.

    `output` is the folder that it will replace; its name is that of the model, and its
    README.md stays if it is not a card of ours. `report` are the arguments of
    `write_report`.
    """
    scores = json_text(report["scores"], ensure_ascii=True, indent=2)
    (folder / "scores.json").write_text(scores + "\n", encoding="utf-8")
    title = f"{report['settings']['task']}: {output.name}"
    write_report(folder / "report.html", title=title, **report)
    write_run(folder, report)
    doubtful = csv_text(rows_with_set(report.get("doubtful_labels", {})))
    if doubtful:
        (folder / DOUBTFUL).write_text(doubtful, encoding="utf-8", errors="replace")
    card = report["settings"].get("card", True)
    write_readme(output, folder, name=output.name, card=card, report=report)


def _facts(model: TaskModel, columns: Columns, lengths: TextLengths) -> dict[str, Any]:
    """Return the report's facts on a data set."""
    truncation = lengths.truncation()
    facts = {
        **describe(model.task, columns),
        "mean_tokens": round(float(lengths.whole.mean()), 1),
        "longest_tokens": int(lengths.whole.max()),
        "truncated": truncation.cut,
        "digest": _digest(columns).rpartition(" ")[2],
    }
    if truncation.cut:
        share = truncation.lost / int(lengths.whole.sum())
        facts["share_of_tokens_not_read"] = round(share, 4)
    return facts
