"""Fine-tuning in a separate process, on one device or on two logical CPUs.

    python finetuning_cases.py FOLDER OUTPUT STRATEGY CASE…

`FOLDER` holds a tiny encoder without dropout, `encoder`, and one with it, `dropping`.
What each case gives goes into `OUTPUT/CASE.npz`.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from replica_cases import devices_of

BAD_ROW = 5


def main(folder: str, output: str, strategy: str, *names: str) -> None:
    devices = devices_of(strategy)
    for name in names:
        found = results(Path(folder), Path(output), devices, name)
        np.savez(Path(output) / f"{name}.npz", **found)


def results(folder: Path, output: Path, devices: Any, name: str) -> dict[str, Any]:
    """Return what a case gives, as arrays."""
    if name in RUNS:
        return RUNS[name](folder, output / f"{name}-{devices.name}", devices)
    return updated(folder, devices, name)


def classes(folder: Path, output: Path, devices: Any) -> dict[str, Any]:
    """Train on parts of batches, the last of one row, and on one that is no number."""
    from conftest import ROWS

    from bert_keras.data.table import as_columns
    from bert_keras.tasks.classification import Classification

    class Weighed(Classification):
        def example_weights(self, columns: Any) -> np.ndarray:
            weights = np.linspace(0.5, 1.5, len(columns), dtype="float32")
            if len(columns) == 11:
                weights[BAD_ROW] = np.nan
            return weights

    texts, labels = zip(*ROWS[:11], strict=True)
    rows = as_columns(text=texts, label=labels)

    return trained(
        folder / "encoder",
        output,
        devices,
        Weighed(("ham", "promo", "spam")),
        rows,
        accumulation=2,
        on_nonfinite="skip",
    )


def stopped(run: Callable[[], object]) -> None:
    """Stop a run by SIGTERM in its second epoch of three steps."""
    from bert_keras.runs.stop_signal import RunStopped
    from bert_keras.training.progress import TrainingProgress

    add = TrainingProgress.add

    def watched(self: Any, update: Any) -> Any:
        if self.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return add(self, update)

    TrainingProgress.add = watched  # type: ignore[method-assign]
    try:
        run()
    except RunStopped:
        TrainingProgress.add = add  # type: ignore[method-assign]
        return
    raise AssertionError("was not stopped")


def tags(folder: Path, output: Path, devices: Any) -> dict[str, Any]:
    """Train where what counts are words; the last batch is one sentence."""
    from task_cases import cases_of

    case = cases_of("token-classification")["rows"]
    rows = case.columns.take(range(9))
    return trained(folder / "encoder", output, devices, case.task, rows)


def resumed(folder: Path, output: Path, devices: Any) -> dict[str, Any]:
    """Train with dropout, whole and stopped by SIGTERM in the second epoch."""
    from conftest import ROWS

    from bert_keras.data.table import as_columns
    from bert_keras.tasks.classification import Classification

    texts, labels = zip(*ROWS[:11], strict=True)
    rows = as_columns(text=texts, label=labels)
    task = Classification(("ham", "promo", "spam"))

    def run(name: str) -> dict[str, Any]:
        return trained(folder / "dropping", output / name, devices, task, rows)

    output.mkdir()
    whole = run("whole")
    stopped(lambda: run("stopped"))
    stood = sorted(os.listdir(output / ".stopped.run" / "checkpoints"))
    again = run("stopped")
    found = {f"whole {name}": value for name, value in whole.items()}
    found |= {f"again {name}": value for name, value in again.items()}
    return {**found, "stood": np.array(stood)}


def thin(folder: Path, output: Path, devices: Any) -> dict[str, Any]:
    """Train thin matrices alone, upon a frozen block."""
    from task_cases import first_case

    case = first_case("question-answering")
    return trained(
        folder / "encoder",
        output,
        devices,
        case.task,
        case.columns,
        freeze_layers=1,
        lora_rank=2,
    )


RUNS = {"classes": classes, "tags": tags, "resumed": resumed, "thin": thin}


def trained(
    encoder: Path, output: Path, devices: Any, task: Any, rows: Any, **changes: Any
) -> dict[str, Any]:
    """Return weights, curves and scores of a run of `train`."""
    from bert_keras.training.config import TrainConfig
    from bert_keras.training.finetune import train

    settings = {"epochs": 2, "batch_size": 4, "learning_rate": 3e-3, "max_length": 24}
    settings |= {"global_clipnorm": 0.1, "weight_decay": 0.1, "checkpoint_every": 3}
    result = train(
        task,
        encoder=encoder,
        train=rows,
        dev=rows,
        output=output,
        config=TrainConfig(**{**settings, "strategy": devices.name, **changes}),
        devices=devices,
    )
    rows_of_curves = [row for row in result.history if "loss" in row]
    skipped = result.report["settings"].get("skipped_updates", "")
    scores = [v for v in result.scores["dev"].values() if isinstance(v, float)]
    return {
        **{f"weights/{w.path}": w.numpy() for w in result.model.weights},
        **{
            name: np.array([row.get(name, np.nan) for row in rows_of_curves])
            for name in ("step", "loss", "accuracy")
        },
        "scores": np.array(scores),
        "real token share": result.report["data"]["train"]["real_token_share"],
        "skipped": np.array(skipped.split("; ")),
    }


def updated(folder: Path, devices: Any, name: str) -> dict[str, Any]:
    """Return weights and losses after some updates of a task, by the case's name."""
    import keras
    import tensorflow as tf
    from fit_cases import weighted
    from task_cases import cases_of

    from bert_keras.model.encoder import BertEncoder
    from bert_keras.models.task_model import TaskModel
    from bert_keras.text.preprocessor import Preprocessor
    from bert_keras.text.tokenizer import WordPieceTokenizer
    from bert_keras.training.config import TrainConfig
    from bert_keras.training.updates import (
        new_optimizer,
        own_metrics,
        training_rows,
        updates,
    )

    task_name, form, layout, *own = name.split(",")
    case = cases_of(task_name)[form]
    keras.utils.set_random_seed(3)
    config = TrainConfig(batch_size=4, learning_rate=3e-3, global_clipnorm=0.1)
    with devices.strategy.scope():
        encoder = BertEncoder.from_pretrained(
            str(folder / "encoder"),
            pooler=case.task.needs.pooler,
            outputs=case.task.needs.outputs,
        )
        tokenizer = WordPieceTokenizer.from_folder(folder / "encoder")
        preprocessor = Preprocessor(tokenizer, max_length=24, layout=layout)
        model = TaskModel(encoder, case.task, preprocessor, seed=1)
        if own:
            model.compile(loss=weighted)
        # So many that the last batch of an epoch is one row.
        count = (len(case.columns) - 1) // 4 * 4 + 1
        rows = training_rows(model, case.columns.take(range(count)), config)
        optimizer = new_optimizer(config, steps=rows.steps)
        optimizer.build(model.trainable_variables)
        metrics = own_metrics(model)
    made = updates(model, rows, optimizer, metrics=metrics)
    steps = rows.steps_per_epoch + 2
    some = list(itertools.islice(made, steps))
    assert rows.size(rows.steps_per_epoch - 1) == 1
    assert all(each.is_made for each in some)
    assert dataclasses.is_dataclass(some[0]) and tf.executing_eagerly()
    return {
        **{f"weights/{w.path}": w.numpy() for w in model.weights},
        "loss": np.array([each.loss for each in some]),
        "real tokens": np.array([each.real_tokens for each in some]),
        **{f"metric {m.name}": float(m.result()) for m in metrics},
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
