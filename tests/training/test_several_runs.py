"""Several seeds and a grid: messages, and resuming with the missing runs."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import ROWS, Clock, refused

from bert_keras.data.table import as_columns
from bert_keras.runs.progress import Progress
from bert_keras.settings import GRIDS
from bert_keras.tasks.classification import Classification
from bert_keras.training import several_runs
from bert_keras.training.config import TrainConfig
from bert_keras.training.finetune import TrainResult, sizes_of
from bert_keras.training.several_runs import (
    search_settings,
    summary,
    train_seeds,
    train_sizes,
    try_methods,
)

TEXTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))
COLUMNS = as_columns(text=TEXTS, label=LABELS)
HELD_OUT = "held-out"  # the rows of a fold


@dataclasses.dataclass
class Trainer:
    """Stands for `run_plan`: accuracies by seed, and a model trained before."""

    source: TrainResult
    accuracy: dict[Any, float]
    loss: dict[Any, float | None] = dataclasses.field(default_factory=dict)
    calls: list[TrainConfig] = dataclasses.field(default_factory=list)
    fails: Any = None
    left: list[float | None] = dataclasses.field(default_factory=list)  # if 1 s is

    def key(self, config: TrainConfig) -> Any:
        return config.seed

    def __call__(self, plan: Any, devices: Any) -> Any:
        config, output = plan.config, plan.output
        if self.key(config) == self.fails:
            raise KeyError("the machine is gone")
        self.calls.append(config)
        bar = Progress("scoring", unit="rows", total=0, later=lambda: 1.0)
        self.left.append(bar.seconds_left)
        shutil.copytree(self.source.folder, output)
        scores = {
            "dev": {"accuracy": self.accuracy[self.key(config)], "num_examples": 12},
            "test": {"accuracy": 0.5, "num_examples": 12},
        }
        if HELD_OUT in plan.rows:
            scores[HELD_OUT] = scores.pop("test")
        loss = self.loss.get(self.key(config), 0.5)
        settings = {"task": "classification", "seed": config.seed}
        settings["training_seconds"] = 2.0
        settings |= {} if loss is None else {"best_epoch_dev_loss": loss}
        report = {**self.source.report, "scores": scores, "settings": settings}
        return dataclasses.replace(self.source, scores=scores, report=report)


@pytest.fixture
def trainer(
    spam_run: TrainResult, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> Trainer:
    made = Trainer(spam_run, {7: 0.5, 8: 0.75, 9: 0.7})
    monkeypatch.setattr(several_runs, "run_plan", made)
    return made


@pytest.fixture(autouse=True)
def in_a_folder_with_an_encoder(
    encoder_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The encoder of all runs is `e`."""
    monkeypatch.chdir(tmp_path_factory.mktemp("encoders"))
    os.symlink(encoder_folder, "e")


def seeds(folder: Path, count: int = 3, **changes: Any) -> TrainResult:
    return train_seeds(
        Classification,
        seeds=count,
        output=folder / "model",
        config=TrainConfig(seed=7, **changes.pop("config", {})),
        **{"encoder": "e", "train": COLUMNS, "dev": COLUMNS, **changes},
    )


def search(folder: Path, **changes: Any) -> TrainResult:
    config = TrainConfig(**changes.pop("config"))
    given = {"encoder": "e", "train": COLUMNS, **changes}
    return search_settings(Classification, output=folder / "m", config=config, **given)


def sizes(folder: Path, **changes: Any) -> TrainResult:
    config = TrainConfig(**changes.pop("config"))
    given = {"encoder": "e", "train": COLUMNS, "test": {}, **changes}
    return train_sizes(Classification, output=folder / "m", config=config, **given)


def test_the_best_seed_is_kept_and_all_are_reported(
    trainer: Trainer, tmp_path: Path
) -> None:
    result = seeds(tmp_path)
    assert [config.seed for config in trainer.calls] == [7, 8, 9]
    assert trainer.left == [3.0, 2.0, 1.0]
    runs = json.loads((result.folder / "scores.json").read_text())["runs"]
    assert runs == result.scores["runs"]
    assert runs["per_run"]["seed-8"] == {"dev": 0.75, "test": 0.5}
    assert runs["mean"]["dev"]["accuracy"] == pytest.approx(0.65)
    # sqrt((0.15^2 + 0.1^2 + 0.05^2) / 2)
    deviation = runs["standard_deviation"]["dev"]["accuracy"]
    assert deviation == pytest.approx(0.132288, abs=1e-6)
    assert result.report["settings"]["best_run"] == "seed-8"
    page = (result.folder / "report.html").read_text()
    assert "seed-9" in page and "tandard deviation" in page
    charts = page.partition('id="curves-of-all-runs"')[2].partition("</section>")[0]
    assert charts.count("<svg") == 2 and charts.count("seed-9") == 2
    assert os.listdir(tmp_path) == ["model"]
    card = (result.folder / "README.md").read_text("utf-8")
    assert "0.75; of all runs 0.65 ± 0.13" in card
    assert result.model.task.classes == ("ham", "promo", "spam")


def test_among_tied_seeds_the_one_with_the_lowest_loss_is_kept(
    trainer: Trainer, tmp_path: Path
) -> None:
    trainer.accuracy |= {9: 0.75}
    trainer.loss = {7: None, 8: 0.6, 9: 0.4}  # methods without epochs have none
    assert seeds(tmp_path).report["settings"]["best_run"] == "seed-9"


def test_finished_seeds_are_not_trained_again(trainer: Trainer, tmp_path: Path) -> None:
    trainer.fails = 9
    with pytest.raises(KeyError):
        seeds(tmp_path)
    kept = sorted(path.name for path in (tmp_path / ".model.runs").iterdir())
    assert [n for n in kept if n[0] == "s"] == [
        *("seed-7", "seed-7.finished.json", "seed-8", "seed-8.finished.json")
    ]
    assert not (tmp_path / "model").exists()
    other = {"learning_rate": 1e-3}
    refused(lambda: seeds(tmp_path, config=other), "another `learning_rate`", "never")
    trainer.fails = None
    trainer.calls.clear()
    result = seeds(tmp_path)
    assert [config.seed for config in trainer.calls] == [9]
    assert list(result.scores["runs"]["per_run"]) == ["seed-7", "seed-8", "seed-9"]


def test_a_grid(
    trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Trainer, "key", lambda self, c: (c.batch_size, c.learning_rate, c.epochs)
    )
    points = [
        (size, rate, epochs)
        for size in (16, 32)
        for rate in (5e-5, 3e-5, 2e-5)
        for epochs in (2, 3, 4)
    ]
    trainer.accuracy = {point: 0.01 * n for n, point in enumerate(points)}
    trainer.accuracy[32, 5e-5, 3] = 0.9
    trainer.fails = points[11]
    given = {"encoder": "e", "train": COLUMNS, "dev": COLUMNS}
    with pytest.raises(KeyError):
        search_settings(Classification, output=tmp_path / "model", **given)
    done, trainer.fails = len(trainer.calls), None
    trainer.left.clear()
    result = search_settings(Classification, output=tmp_path / "model", **given)
    found = {trainer.key(config) for config in trainer.calls}
    assert found == set(points) and len(trainer.calls) == 18 > done
    assert trainer.left[0] == pytest.approx(sum(n for _, _, n in points[11:]) / 4)
    assert result.report["settings"]["best_run"] == (
        "batch_size-32_learning_rate-5e-05_epochs-3"
    )
    assert len(result.scores["runs"]["per_run"]) == 18
    assert set(GRIDS["paper"]) == {"batch_size", "learning_rate", "epochs"}


def test_the_values_of_one_setting_are_searched(
    trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "key", lambda self, config: config.epochs)
    trainer.accuracy = {2: 0.5, 4: 0.75}
    result = search(tmp_path, grid="epochs=2,4", config={}, dev=COLUMNS)
    assert result.report["settings"]["best_run"] == "epochs-4"
    for grid in ("epochs=2", "epochs=2,x", "seed=1,2", "epochs=2,2"):
        refused(
            lambda grid=grid: search(tmp_path, grid=grid, config={}),
            "`search` must be paper, or values of method, batch_size",
            grid,
        )


@pytest.mark.parametrize("has_dev", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_methods_are_compared_on_the_same_rows(
    has_dev: bool,
    trainer: Trainer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Trainer, "key", lambda self, config: config.method)
    trainer.accuracy = {"linear": 0.75, "contrastive": 0.625, "finetune": 0.5}
    seen: dict[str, list[Any]] = {}
    tables: list[Any] = []

    def run_plan(plan: Any, devices: Any) -> TrainResult:
        held = plan.rows.get("dev", plan.rows.get(HELD_OUT, {"text": []}))["text"]
        seen.setdefault(plan.config.method, []).append(list(held))
        tables.append(plan.table())
        assert plan.config.method != "finetune" or plan.task.pooling == "mean"
        return trainer(plan, devices)

    monkeypatch.setattr(several_runs, "run_plan", run_plan)
    given = {"encoder": "e", "train": COLUMNS, "dev": COLUMNS if has_dev else None}
    result = try_methods(Classification, output=tmp_path / "m", **given)
    told = capsys.readouterr().err
    assert told.count("strategy single") == 1  # not of each run
    runs = result.scores["runs"]
    assert (runs["kept"], runs["by_default"]) == ("linear", "contrastive")
    found = runs["per_method"]
    assert {name: row["accuracy"] for name, row in found.items()} == trainer.accuracy
    if has_dev:
        assert len(trainer.calls) == 3
        assert "3 runs, in" in told and "final" not in told
        return
    assert "9 runs, then one of the best method, in" in told
    table = told.partition("final:")[0].splitlines()[-3:]
    assert [line.split()[0] for line in table] == list(found)
    assert table[1].split() == ["linear", "0.7500", "0.0000", "6.0"]
    assert found["linear"]["standard_deviation"] == 0
    assert found["linear"]["seconds"] == 6.0
    # Each text is held out once; then the best method learns from all of them.
    assert seen["linear"][:3] == seen["finetune"] == seen["contrastive"]
    assert sorted(sum(seen["finetune"], [])) == sorted(TEXTS)
    assert seen["linear"][3] == [] and len(trainer.calls) == 10
    assert tables[-1][0]["name"] == "method"
    best_of = f"the best of {', '.join(found)}"
    assert tables[-1][0]["reason"] == f"accuracy 0.7500, {best_of}"
    assert "per_method" in (tmp_path / "m" / "scores.json").read_text("utf-8")


@pytest.mark.slow
def test_the_time_left_includes_the_run_of_the_best_method(
    trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "key", lambda self, config: config.method)
    trainer.accuracy = {"linear": 0.75, "contrastive": 0.625, "finetune": 0.5}
    plans: list[Any] = []

    def run_plan(plan: Any, devices: Any) -> TrainResult:
        plans.append(plan)
        return trainer(plan, devices)

    monkeypatch.setattr(several_runs, "run_plan", run_plan)
    given = {"encoder": "e", "train": COLUMNS}
    try_methods(Classification, output=tmp_path / "m", **given)
    *folds, last = plans
    assert {sizes_of(plan) for plan in folds} == {"8 rows, 4 held-out rows"}
    costs = [several_runs._cost(plan) for plan in folds]
    assert costs == sorted(costs, reverse=True)  # the longest ones first
    # Of 12 rows contrastive makes 6 updates of 32 texts: in three folds and on all.
    longest = max(4 * 6 * 32, 20 * len(TEXTS))
    assert trainer.left[0] == pytest.approx((sum(costs) + longest) / costs[0])
    assert trainer.left[-1] == 1.0 and last.config.method == "linear"


def test_methods_that_are_not_possible_are_left_out(
    trainer: Trainer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"encoder": "e", "train": COLUMNS, "dev": COLUMNS}

    def run(**config: Any) -> None:
        changed = TrainConfig(**config)
        try_methods(Classification, output=tmp_path / "m", config=changed, **given)

    refused(lambda: run(epochs=2), "two methods or more must be possible", "finetune")
    told = capsys.readouterr().err
    assert "linear is left out: `epochs` has no effect with `method` linear" in told
    refused(lambda: run(method="linear"), "`method` must be left out")


def test_wrong_numbers_of_runs(tmp_path: Path) -> None:
    refused(lambda: seeds(tmp_path, 1), "`seeds` must be a whole number of at least 2")
    refused(
        lambda: search_settings(Classification, grid="all", output=tmp_path / "m"),
        "`search`",
    )


@pytest.mark.parametrize(
    ("call", "method", "part"),
    [
        (seeds, "linear", "`seeds` needs `method` finetune or contrastive"),
        (search, "linear", "`search` paper needs `method` finetune, whose batch_size"),
        (search, "contrastive", "received contrastive"),
        (sizes, "linear", "`dev` rows, or a `validation_split` above 0, must be given"),
    ],
)
def test_methods_that_do_not_go_with_several_runs(
    call: Any, method: str, part: str, tmp_path: Path, capsys: Any
) -> None:
    refused(lambda: call(tmp_path, config={"method": method}, dev=None), part)
    assert capsys.readouterr().err == ""


def test_diverged_runs_are_reported() -> None:
    scores = {
        "a": {"dev": {"f1": 0.5, "loss": 1.0}},
        "b": {"dev": {"f1": 0.7}, "diverged": {"loss": 1.0}},
    }
    found = summary(scores, "f1")
    assert found["per_run"] == {
        "a": {"dev": 0.5, "diverged": 0},
        "b": {"dev": 0.7, "diverged": 1},
    }
    assert found["mean"] == {"dev": {"f1": pytest.approx(0.6)}}


@pytest.mark.thorough
def test_two_seeds_to_the_end(train_spam: Any, tmp_path: Path, spam_run: Any) -> None:
    # The seed of `spam_run` is the first of the two.
    many = as_columns(text=TEXTS * 10, label=LABELS * 10)
    result = train_seeds(
        Classification,
        seeds=2,
        output=tmp_path / "model",
        encoder=spam_run.report["settings"]["encoder"],
        train=many,
        dev=COLUMNS,
        config=TrainConfig(epochs=2, batch_size=8, learning_rate=1e-2, max_length=24),
    )
    assert set(result.scores["runs"]["per_run"]) == {"seed-42", "seed-43"}
    assert os.listdir(tmp_path) == ["model"]


def test_growing_shares_make_a_learning_curve(
    trainer: Trainer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows: list[list[int]] = []

    def run_plan(plan: Any, devices: Any) -> TrainResult:
        rows.append(plan.rows["train"].lines)
        trainer.accuracy[7] = len(rows) / 4
        return trainer(plan, devices)

    monkeypatch.setattr(several_runs, "run_plan", run_plan)
    given = {"encoder": "e", "train": COLUMNS, "dev": COLUMNS}
    config = TrainConfig(seed=7)
    result = train_sizes(
        Classification, output=tmp_path / "model", config=config, **given
    )
    assert [len(each) for each in rows] == [2, 3, 6, 12]
    assert all(set(a) < set(b) for a, b in zip(rows, rows[1:], strict=False))
    assert {LABELS[line - 1] for line in rows[1]} == {"ham", "promo", "spam"}
    assert result.report["learning_curve"] == [
        {"rows": size, "dev": share, "test": 0.5}
        for size, share in zip((2, 3, 6, 12), (0.25, 0.5, 0.75, 1.0), strict=True)
    ]
    lines = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert ["Learning", "curve", "Dev", "Test"] in lines
    assert ["12", "rows", "1.0000", "0.5000"] in lines
    page = (result.folder / "report.html").read_text("utf-8")
    assert "Accuracy by training rows" in page and os.listdir(tmp_path) == ["model"]
    refused(
        lambda: train_sizes(
            Classification, output=tmp_path / "m", shares=(0.5, 0.9), **given
        ),
        "`shares` must rise", "0.9",
    )  # fmt: skip
    few = {**given, "train": COLUMNS.take([0, 4, 8])}
    refused(
        lambda: train_sizes(Classification, output=tmp_path / "m", **few),
        "too few rows",
    )
