"""What a run writes into its model folder besides the model: scores and report."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_keras.data.columns import Columns
from bert_keras.exports.model_card import usage_of, write_readme
from bert_keras.files.json_file import json_text
from bert_keras.models.task_model import TaskModel
from bert_keras.report.comparison import write_run
from bert_keras.report.report import DOUBTFUL, csv_text, rows_with_set, write_report
from bert_keras.tasks.base import Task
from bert_keras.tasks.protocols import input_specs
from bert_keras.text.new_tokens import described
from bert_keras.training.config import unused_by, unused_options
from bert_keras.training.data import digest_of_rows
from bert_keras.training.divergence import Divergence
from bert_keras.training.lengths import TextLengths
from bert_keras.training.plan import Plan
from bert_keras.training.trainer import Fitted


def write_results(folder: Path, output: Path, report: dict[str, Any]) -> None:
    """Write scores, report and, unless left out, card into an existing model folder.

    `output` is the folder that it will replace; its name is the model's name, and its
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


def usage(task: Task, output: Path) -> dict[str, str]:
    """Return the code that uses a model, for the report."""
    specs = next(iter(input_specs(task).values()))
    return usage_of(
        output,
        task=task.name,
        settings=task.get_config(),
        inputs=[spec.name for spec in specs],
    )


def shown_settings(
    plan: Plan, fitted: Fitted, failed: Divergence | None
) -> dict[str, Any]:
    """Return the settings that the report shows, and notes on the run.

    The fitted model has the task with the settings that were fitted on dev.
    """
    config, model = plan.config, fitted.model
    unused = {*unused_by(config.method), *unused_options(config)}
    shown = {
        "task": model.task.name,
        "encoder": os.fspath(plan.encoder),
        **{k: v for k, v in dataclasses.asdict(config).items() if k not in unused},
        "max_length": model.preprocessor.max_length,
    }
    for name, value in model.task.get_config().items():
        if name != "classes" and not isinstance(value, dict):  # nor a vocabulary
            shown[name] = value
    if config.add_tokens:
        shown["add_tokens"] = described(config.add_tokens)
    shown |= fitted.settings
    shown["training_seconds"] = round(fitted.seconds, 1)
    if failed:
        shown["diverged" if failed.is_certain else "too_few_updates"] = str(failed)
    return shown


def shown_students(rows: Sequence[Mapping[str, Any]], split: str) -> list[str]:
    """Return the rows of `Distillation.beside` as lines of text."""
    found = []
    for row in rows:
        name, score = list(row.items())[1]
        value = "unknown" if score is None else f"{score:.4f}"
        found.append(
            f"{row['model']} on {split}: {name} {value}, {row['milliseconds']:,.0f} ms "
            f"for 1,000 rows, {row['megabytes']:,.1f} MB"
        )
    return found


def facts_of(
    model: TaskModel, columns: Columns, lengths: TextLengths, *, labelled: bool = True
) -> dict[str, Any]:
    """Return the report's facts on a data set."""
    truncation = lengths.truncation()
    facts = {
        **(model.task.describe(columns) if labelled else {"rows": len(columns)}),
        "mean_tokens": round(float(lengths.whole.mean()), 1),
        "longest_tokens": int(lengths.whole.max()),
        "truncated": truncation.cut,
        "digest": digest_of_rows(columns).rpartition(" ")[2],
    }
    if truncation.cut:
        share = truncation.lost / int(lengths.whole.sum())
        facts["share_of_tokens_not_read"] = round(share, 4)
    return facts
