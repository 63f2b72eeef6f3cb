"""Trackers: TensorBoard for real, the clients of the others by what they are told."""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.training.config import TrainConfig
from bert_keras.training.tracking import check_tracking, curves_folder, tracked

ROWS = [{"epoch": 0.5, "step": 1, "loss": 2.0}, {"epoch": 1, "step": 2, "loss": 1.0}]
REPORT: dict[str, Any] = {
    "settings": {"task": "classification", "learning_rate": 0.1},
    "scores": {"dev": {"accuracy": 0.5, "per_class": {}}, "test": {"accuracy": 0.25}},
}


class Calls(types.ModuleType):
    """A module that notes its calls; so does what `init` returns."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.made: list[tuple[str, Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("config", "summary"):
            return self

        def call(*args: Any, **named: Any) -> Any:
            self.made.append((name, args, named))
            return self if name == "init" else "html"

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Calls]:
    def install(name: str) -> Calls:
        module = Calls(name)
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
        return module

    return install


def follow(config: TrainConfig, folder: Path, *, is_resumed: bool = False) -> None:
    page = folder / "report.html"
    page.write_text("<h1>report</h1>")
    with tracked(config, folder / "spam", is_chief=True) as trackers:
        if is_resumed:
            trackers.resume(ROWS[:1])
        for row in ROWS[is_resumed:]:
            trackers.curves(row)
        trackers.finish(REPORT, page)


def test_mlflow(library: Callable[[str], Calls], tmp_path: Path) -> None:
    mlflow = library("mlflow")
    follow(TrainConfig(track="mlflow"), tmp_path)
    assert mlflow.made == [
        ("start_run", (), {"run_name": "spam"}),
        ("log_metrics", ({"loss": 2.0},), {"step": 1}),
        ("log_metrics", ({"loss": 1.0},), {"step": 2}),
        ("log_params", ({"task": "classification", "learning_rate": "0.1"},), {}),
        (
            "log_metrics",
            ({"scores/dev/accuracy": 0.5, "scores/test/accuracy": 0.25},),
            {},
        ),
        ("log_artifact", (str(tmp_path / "report.html"),), {}),
        ("end_run", ("FINISHED",), {}),
    ]


def test_wandb(
    library: Callable[[str], Calls], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mails")
    wandb = library("wandb")
    follow(TrainConfig(track="wandb"), tmp_path)
    assert wandb.made == [
        ("init", (), {"project": "mails", "name": "spam"}),
        ("log", ({"loss": 2.0},), {"step": 1}),
        ("log", ({"loss": 1.0},), {"step": 2}),
        ("update", (REPORT["settings"],), {}),
        ("update", ({"scores/dev/accuracy": 0.5, "scores/test/accuracy": 0.25},), {}),
        ("Html", ("<h1>report</h1>",), {}),
        ("log", ({"report": "html"},), {}),
        ("finish", (), {"exit_code": 0}),
    ]


def test_a_resumed_run_tells_its_curves_again(
    library: Callable[[str], Calls], tmp_path: Path
) -> None:
    mlflow = library("mlflow")
    follow(TrainConfig(track="mlflow"), tmp_path, is_resumed=True)
    steps = [n["step"] for name, _, n in mlflow.made if "step" in n]
    assert steps == [1, 2]


def test_a_run_that_fails_is_closed_as_such(
    library: Callable[[str], Calls], tmp_path: Path
) -> None:
    mlflow = library("mlflow")
    with pytest.raises(RuntimeError):
        with tracked(TrainConfig(track="mlflow"), tmp_path / "m", is_chief=True):
            raise RuntimeError
    assert mlflow.made[-1] == ("end_run", ("FAILED",), {})


def test_a_tracker_that_fails_ends_no_training(
    library: Callable[[str], Calls],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mlflow = library("mlflow")

    def lost(*args: Any, **named: Any) -> None:
        raise OSError("connection refused\nby the server")

    monkeypatch.setattr(mlflow, "log_metrics", lost, raising=False)
    follow(TrainConfig(track="mlflow"), tmp_path)
    # It is closed, so that the next run of the process can start one.
    assert [name for name, *_ in mlflow.made] == ["start_run", "end_run"]
    assert mlflow.made[1][1] == ("FAILED",)
    assert capsys.readouterr().err.splitlines() == [
        "MLflow failed, and this run is no longer tracked: "
        "connection refused by the server"
    ]
    monkeypatch.setattr(mlflow, "start_run", lost, raising=False)
    refused(
        lambda: follow(TrainConfig(track="mlflow"), tmp_path),
        "`track` must be a tracker that can be reached; received mlflow: connection",
    )


def test_other_workers_track_nothing(
    library: Callable[[str], Calls], tmp_path: Path
) -> None:
    mlflow = library("mlflow")
    with tracked(TrainConfig(track="mlflow"), tmp_path, is_chief=False) as trackers:
        trackers.curves(ROWS[0])
    assert mlflow.made == []


@pytest.mark.slow
def test_tensorboard_reads_the_curves(
    tmp_path: Path, train_spam: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    loader = pytest.importorskip("tensorboard.backend.event_processing")
    from tensorboard.backend.event_processing import event_accumulator

    assert loader
    result = train_spam(tmp_path / "spam", track="tensorboard", epochs=1)
    assert f"TensorBoard: {tmp_path / 'spam.tensorboard'}" in capsys.readouterr().err
    found = event_accumulator.EventAccumulator(
        str(tmp_path / "spam.tensorboard"), size_guidance={"tensors": 0}
    )
    found.Reload()
    values = {
        tag: [float(tf.make_ndarray(e.tensor_proto)) for e in found.Tensors(tag)]
        for tag in ("loss", "scores/dev/accuracy")
    }
    losses = [row["loss"] for row in result.history if "loss" in row]
    assert values["loss"] == pytest.approx(losses, rel=1e-6)
    assert values["scores/dev/accuracy"] == [result.scores["dev"]["accuracy"]]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    place = str(tmp_path / "file" / "curves")
    refused(
        lambda: follow(TrainConfig(tensorboard=place), tmp_path),
        f"`tensorboard` must be a folder that can be written; received {place}: ",
    )


@pytest.mark.parametrize("name", ["tensorboard", "mlflow", "wandb"])
def test_a_tracker_that_is_not_installed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    config = TrainConfig(track=name)
    action = lambda: check_tracking(config, tmp_path / "m")  # noqa: E731
    refused(action, "`track` needs a package", f"pip install 'bert_keras[{name}]'")


def test_where_the_curves_are(tmp_path: Path) -> None:
    model = tmp_path / "m"
    assert curves_folder(TrainConfig(), model) is None
    assert curves_folder(TrainConfig(track="wandb"), model) is None
    assert curves_folder(TrainConfig(tensorboard="c"), model) == "c"
    found = curves_folder(TrainConfig(track="tensorboard"), model)
    assert found == str(tmp_path / "m.tensorboard")
