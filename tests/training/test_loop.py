"""Fine-tuning that is stopped, that fails or that learns nothing; fewer weights."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, ROWS, files_of, is_noise, refused, thorough, write_encoder

from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.errors import TrainingError, WorkerLostError
from bert_keras.model.block import Block
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.lora import add_lora, freeze_layers, plain_weights
from bert_keras.model.squared_error import ScaledSquaredError
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.runs.run_folder import open_run, run_path
from bert_keras.runs.stop_signal import RunStopped
from bert_keras.tasks.classification import Classification
from bert_keras.training import checkpoint
from bert_keras.training import config as training_config
from bert_keras.training import finetune as training
from bert_keras.training import loop as training_loop
from bert_keras.training.divergence import Divergence, constant_loss, divergence
from bert_keras.training.finetune import TrainResult
from bert_keras.training.progress import TrainingProgress

TEXTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))
MANY = as_columns(text=TEXTS * 10, label=LABELS * 10)  # 15 steps an epoch
FEW = as_columns(text=TEXTS, label=LABELS)
Run = Callable[..., TrainResult]


@pytest.fixture(scope="module")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an encoder with dropout."""
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    return write_encoder(tmp_path_factory.mktemp("dropping") / "encoder", **rates)


@pytest.fixture(scope="module")
def run(train_spam: Any, dropping: Path) -> Run:
    """Return a function that trains into a folder, with dropout."""

    def run(folder: Path, **changes: Any) -> TrainResult:
        return train_spam(folder, encoder=dropping, **changes)

    return run


@pytest.fixture(scope="module")
def whole(run: Run, tmp_path_factory: pytest.TempPathFactory) -> TrainResult:
    """Return a run that nothing stopped."""
    return run(tmp_path_factory.mktemp("whole") / "model")


def assert_same_model(found: TrainResult, wanted: TrainResult) -> None:
    for name in ("config.json", "model.safetensors", "vocab.txt", "scores.json"):
        assert (found.folder / name).read_bytes() == (
            wanted.folder / name
        ).read_bytes(), name
    for one, other in zip(
        found.model.get_weights(), wanted.model.get_weights(), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def signalled(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let SIGTERM come while an update is made."""
    add = TrainingProgress.add

    def watched(self: TrainingProgress, *args: Any) -> Any:
        found = add(self, *args)
        if self.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return found

    monkeypatch.setattr(TrainingProgress, "add", watched)


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, thorough(True)])
def test_a_stopped_run_resumes_and_ends_with_the_same_result(
    run: Run,
    whole: TrainResult,
    tmp_path: Path,
    spam_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    again: bool,
) -> None:
    """A second stop comes while dev is scored; the last checkpoint is then broken."""
    output = tmp_path / "model"
    shutil.copytree(spam_folder, output)  # a model exists there
    stood = files_of(output)
    with monkeypatch.context() as patch:  # in the middle of the second epoch
        signalled(patch, 20)
        with pytest.raises(RunStopped, match="SIGTERM"):
            run(output)
    kept = tmp_path / ".model.run"
    names = sorted(path.name for path in (kept / "checkpoints").iterdir())
    assert names == ["step-000000020"]  # none is due in the first minute
    assert load_model(kept / "best").task == whole.model.task
    assert files_of(output) == stood
    if again:
        stop_at_the_end(run, output, kept, monkeypatch)
        assert files_of(output) == stood
    capsys.readouterr()
    found = run(output)
    step = 24 if again else 20
    assert f"resuming after step {step} of 30" in capsys.readouterr().err
    assert_same_model(found, whole)
    assert os.listdir(tmp_path) == ["model"]
    dev = [row for row in found.history if "dev_loss" in row]
    assert dev == [row for row in whole.history if "dev_loss" in row]
    assert found.report["data"] == whole.report["data"]


def stop_at_the_end(
    run: Run, output: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stop a run while its last epoch is scored; break and delete its checkpoint."""

    def scored(*_: Any, **__: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        raise KeyError("never comes here")

    with monkeypatch.context() as patch:
        patch.setattr(training_loop.Predictor, "answers", scored)
        with pytest.raises(RunStopped):
            run(output, checkpoint_every=12, keep=9)
    names = sorted(path.name for path in (kept / "checkpoints").iterdir())
    assert names == ["step-000000020", "step-000000024", "step-000000030"]
    last = kept / "checkpoints" / names[-1]
    state = last / checkpoint.FILE
    state.write_bytes(state.read_bytes()[:-9])
    remedy = f"delete {last} to resume from step 24"
    refused(lambda: run(output), "broken or truncated", remedy)
    shutil.rmtree(last)


@pytest.mark.thorough
def test_a_short_run_writes_its_result_alone_unless_it_fails(
    run: Run, whole: TrainResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written() -> int:
        return int(Path("/proc/self/io").read_text().split("wchar: ")[1].split()[0])

    def fails(*_: Any, **__: Any) -> Any:
        loop.append(_[0])
        for weight in _[0].model.weights:  # as if another epoch was the best
            if _[0].best.epoch != _[0].epoch:
                weight.assign(weight * 0)
        raise OSError("no space left")

    before, loop = written(), []
    result = run(tmp_path / "model")
    size = sum(len(data) for data in files_of(result.folder).values())
    assert written() - before < 1.5 * size
    with monkeypatch.context() as patch:  # after training
        patch.setattr(training, "finish_run", fails)
        with pytest.raises(OSError, match="no space left"):
            run(tmp_path / "failing")
    kept = tmp_path / ".failing.run"
    assert [path.name for path in (kept / "checkpoints").iterdir()] == [
        "step-000000030"
    ]
    assert_same_model(run(tmp_path / "failing"), whole)
    # The folder of the best model is checked.
    loop[0].best.weights = None
    note = kept / "best" / "epoch.json"
    note.parent.mkdir(parents=True)
    note.write_text('{"epoch": 7}')
    action = functools.partial(loop[0]._assign_best, loop[0].model, kept / "best")
    refused(action, "must hold epoch", "epoch 7")


@pytest.mark.slow
def test_nothing_is_traced_twice(
    train_spam: Any, dropping: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = []
    call = Block.call

    def counted(self: Block, x: Any, *args: Any, **kwargs: Any) -> Any:
        if tf.inside_function():
            traced.append(self.name)
        return call(self, x, *args, **kwargs)

    monkeypatch.setattr(Block, "call", counted)
    monkeypatch.setattr(training_config, "EXPLAIN_SECONDS", 10.0)
    monkeypatch.setattr(training_config, "EXPLAIN_SHARE", 10.0)
    result = train_spam(tmp_path / "model", encoder=dropping, learning_rate=1e-7)
    # The answers to dev, and the update; the report explains mistakes without a graph.
    assert set(map(traced.count, traced)) == {2} and result.report["explanations"]


def test_when_a_checkpoint_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])

    def due(clock: Any) -> list[int]:
        ends = {3, 6}
        return [n for n in range(1, 7) if clock.is_due(n, ends_epoch=n in ends)]

    of_time = ("9s", "300s")
    clocks = [checkpoint.CheckpointClock(n) for n in (2, "4", "epoch", *of_time)]
    now[0] = 8.9
    assert [due(clock) for clock in clocks] == [[2, 4, 6], [4], [3, 6], [], []]
    now[0] = 9.0
    assert due(clocks[3]) == [1, 2, 3, 4, 5, 6]
    clocks[3].saved()
    assert due(clocks[3]) == due(clocks[4]) == []
    # A run that is killed in its first five minutes has lost four at most.
    now[0] = 60.0
    assert [due(clock) for clock in clocks[:3]] == [[2, 4, 6], [4], [3, 6]]
    assert due(clocks[4]) == [1, 2, 3, 4, 5, 6]
    clocks[4].saved()
    now[0] = 359.9
    assert due(clocks[4]) == []
    now[0] = 360.0
    assert due(clocks[4]) == [1, 2, 3, 4, 5, 6]


def test_the_first_minute_begins_when_graphs_are_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A checkpoint after the first update alone would save next to nothing."""
    now, saved = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])

    class Loop(training_loop.TrainingLoop):
        scores_at = score = checkpoint = read = lambda self, *_: False

        def save(self) -> None:
            saved.append(self.step)

    def updates(*_: Any, **__: Any) -> Any:
        for seconds in (100.0, 40.0, 40.0):
            now[0] += seconds
            yield None

    monkeypatch.setattr(training_loop, "updates", updates)
    loop: Any = object.__new__(Loop)
    loop._clock = checkpoint.CheckpointClock("300s")
    loop.step, loop.steps, loop.run, loop.metrics = 0, 3, None, ()
    for name in ("model", "source", "optimizer", "distillation", "devices"):
        setattr(loop, name, mock.MagicMock())
    loop.progress = mock.MagicMock(add=lambda _: None, pause=lambda: None)
    loop.stop = mock.MagicMock(is_due=lambda: False)
    loop.train()
    assert saved == [3]


@pytest.mark.thorough
def test_another_run_is_rejected_or_deleted_on_request(
    run: Run, whole: TrainResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "model"
    with monkeypatch.context() as patch:
        signalled(patch, 1)
        with pytest.raises(RunStopped):
            run(output, learning_rate=3e-3)
    kept = files_of(tmp_path)
    line = refused(
        lambda: run(output),
        "another `learning_rate`: 0.003; received 0.01",
        "`--resume never` to start over",
    )
    assert str(tmp_path / ".model.run") in line
    other = as_columns(text=TEXTS * 10, label=[LABELS[4], *(LABELS * 10)[1:]])
    refused(
        lambda: run(output, learning_rate=3e-3, train=other), "another `train rows`"
    )
    assert files_of(tmp_path) == kept
    assert_same_model(run(output, resume="never"), whole)


def test_a_run_without_a_checkpoint_is_replaced(tmp_path: Path) -> None:
    path = run_path(tmp_path / "model")
    with open_run(path, {"rate": 1}, resume="auto"):
        pass
    with open_run(path, {"rate": 2}, resume="auto") as run:
        run.save(1, lambda folder: None, keep=1)
    refused(lambda: open_run(path, {"rate": 3}, resume="auto"), "another `rate`: 2")
    # Several runs: none is finished, and one has a checkpoint.
    several = run_path(tmp_path / "several", "runs")
    open_run(several, {"rate": 1}, resume="auto").__exit__(None, None, None)
    within = several / ".seed-1.run" / "checkpoints" / "step-000000002"
    within.mkdir(parents=True)
    open_run(several, {"rate": 1}, resume="auto").__exit__(None, None, None)
    assert within.exists()
    refused(lambda: open_run(several, {"rate": 2}, resume="auto"), "another `rate`: 1")
    refused(lambda: open_run(path, {"rate": 2}, resume="perhaps"), "`resume`")
    with open_run(path, {"rate": 2}, resume="auto") as run:
        assert run.steps == [1]
        refused(lambda: open_run(path, {"rate": 2}, resume="never"), "another process")


@pytest.mark.parametrize(
    "name", [".seed-1.run/checkpoints/step-000000001", "seed-1.finished.json"]
)
def test_results_of_several_runs_are_kept(tmp_path: Path, name: str) -> None:
    path = run_path(tmp_path / "model", "runs")
    with open_run(path, {"rate": 1}, resume="auto"):
        (path / name).mkdir(parents=True)
    with open_run(path, {"rate": 1}, resume="auto"):
        assert (path / name).exists()
    refused(lambda: open_run(path, {"rate": 2}, resume="auto"), "another `rate`")
    with open_run(path, {"rate": 2}, resume="never"):
        assert not (path / name).exists()


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (RunStopped("saved"), 75, "saved: the same command resumes it"),
        (WorkerLostError("another worker has ended"), 69, "another worker has ended"),
    ],
    ids=["stopped", "lost"],
)
def test_the_command_line_has_its_own_exit_codes(
    error: Exception,
    code: int,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    encoder_folder: Path,
    spam_file: Path,
    capsys: Any,
) -> None:
    def ended(*args: Any, **given: Any) -> None:
        raise error

    monkeypatch.setattr(training, "train", ended)
    words = ["train", "classification", "--encoder", str(encoder_folder)]
    assert main([*words, "--output", "o", "--train", str(spam_file)]) == code
    assert capsys.readouterr().err.splitlines() == [f"bert-keras: {line}"]


# Losses and gradients that are not finite.


class Weighed(Classification):
    """One of its rows has a weight that is NaN or too large."""

    weight = 1.0

    def example_weights(self, columns: Any) -> np.ndarray:
        weights = np.ones(len(columns), "float32")
        weights[17] = self.weight
        return weights


@pytest.mark.thorough
@pytest.mark.parametrize(
    "weight", [pytest.param(np.nan, id="loss"), pytest.param(1e38, id="gradient")]
)
def test_a_batch_that_is_not_finite(
    train_spam: Any, tmp_path: Path, weight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Weighed, "weight", weight)
    task = Weighed(("ham", "promo", "spam"))

    def go(**changes: Any) -> TrainResult:
        return train_spam(tmp_path / "model", task=task, **changes)

    line = refused(
        lambda: go(checkpoint_every=1), "in epoch 1, step ", "rows in memory, lines"
    )
    assert ("the loss is nan" in line) == np.isnan(weight)
    assert ("gradient is not finite" in line) != np.isnan(weight)
    with pytest.raises(TrainingError):
        go()  # resumes from the checkpoint and is stopped there again
    note = json.loads((tmp_path / ".model.run" / "nonfinite.json").read_text())
    assert 18 in note["lines"] and note["epoch"] == 1 and len(note["lines"]) == 8
    result = go(on_nonfinite="skip")
    skipped = result.report["settings"]["skipped_updates"].split("; ")
    assert len(skipped) == 2  # one an epoch
    assert f"{note['step']} of all" in skipped[0]
    for weights in result.model.get_weights():
        assert np.isfinite(weights).all()
    assert result.scores["dev"]["accuracy"] == 1.0


# Runs that have learned nothing.


def curve(losses: list[float], steps_per_row: int = 50) -> list[dict[str, float]]:
    """Return the curves of a run of two rows an epoch."""
    return [
        {"epoch": (n + 1) / 2, "step": (n + 1) * steps_per_row, "loss": loss}
        for n, loss in enumerate(losses)
    ]


def test_a_diverged_run_is_detected_by_its_last_losses(make_model: Any) -> None:
    model = make_model(Classification(("ham", "promo", "spam")))
    rows = as_columns(text=list("abcd"), label=["ham", "ham", "ham", "spam"])
    entropy = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))  # 0.5623
    # Only the last of the two epochs counts.
    assert divergence(model, rows, curve([0.1, 0.1, 0.55, 0.56])) is None
    failed = divergence(model, rows, curve([0.1, 0.1, 0.56, 0.58]))
    assert failed is not None and failed.is_certain
    assert failed.loss == pytest.approx(0.57)
    assert failed.constant_loss == pytest.approx(entropy, abs=1e-9)
    assert "no better" in str(failed)
    assert divergence(model, rows, []) is not None  # all updates were skipped
    # Of one epoch the second half.
    history = [{"epoch": n / 4, "step": n, "loss": 9.0 / n} for n in (1, 2, 3, 4)]
    one = divergence(model, rows, history)
    assert one is not None and one.loss == pytest.approx((3 + 2.25) / 2)


def test_a_run_of_a_few_updates_has_not_diverged_yet(make_model: Any) -> None:
    model = make_model(Classification(("ham", "promo", "spam")))
    rows = as_columns(text=list("abcd"), label=["ham", "ham", "ham", "spam"])
    early = divergence(model, rows, curve([0.9, 0.9, 0.9, 0.9], steps_per_row=1))
    assert early is not None and not early.is_certain
    line = str(early)
    assert "too few updates to tell" in line and "(4 of at least 100)" in line
    # One that is better has learned, however few updates it made.
    assert divergence(model, rows, curve([0.9, 0.9, 0.4, 0.4], steps_per_row=1)) is None


@pytest.mark.parametrize("classes", [150, 1000])
def test_many_skewed_classes_do_not_hide_a_run_that_diverged(
    make_model: Any, classes: int
) -> None:
    """The loss of one answer was overestimated by 3%."""
    sizes = [max(1, 2 * classes // rank) for rank in range(1, classes + 1)]
    names = [f"c{n:04}" for n in range(classes)]
    labels = [
        name for name, size in zip(names, sizes, strict=True) for _ in range(size)
    ]
    shares = np.array(sizes) / len(labels)
    entropy = float(-(shares * np.log(shares)).sum())
    rows = as_columns(text=["a"] * len(labels), label=labels)
    model = make_model(Classification(tuple(names)))
    collapsed = divergence(model, rows, curve([entropy * 1.001] * 4))
    assert collapsed is not None
    assert collapsed.constant_loss == pytest.approx(entropy, rel=1e-9)
    assert divergence(model, rows, curve([entropy * 0.99] * 4)) is None


def test_the_loss_of_one_answer_is_exact() -> None:
    losses = keras.losses
    sparse = losses.SparseCategoricalCrossentropy(from_logits=True)
    targets = np.array([0, 0, 0, 2], "int32")
    weights = np.array([1.0, 1.0, 2.0, 4.0], "float32")
    # Weighted shares of 1/2 and 1/2; the weights' mean is 2.
    assert constant_loss(sparse, targets, weights) == pytest.approx(2 * np.log(2))
    mean = losses.SparseCategoricalCrossentropy(reduction="mean_with_sample_weight")
    assert constant_loss(mean, targets, weights) == pytest.approx(np.log(2))
    labels = np.array([[1, 0], [0, 0], [0, 0], [1, 0]], "float32")
    binary = losses.BinaryCrossentropy(from_logits=True)
    assert constant_loss(binary, labels, None) == pytest.approx(np.log(2) / 2)
    numbers = np.array([1, 2, 3, 6], "float32")
    scaled = ScaledSquaredError(mean=1.0, std=2.0)
    assert constant_loss(scaled, numbers, None) == pytest.approx(3.5 / 4)


def test_label_smoothing_mixes_the_shares_of_the_classes() -> None:
    rows = np.eye(3, dtype="float32")[[0, 0, 0, 2]]
    smoothed = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=0.1
    )
    mixed = 0.9 * np.array([0.75, 0, 0.25]) + 0.1 / 3
    wanted = float(-(mixed * np.log(mixed)).sum())
    assert constant_loss(smoothed, rows, None) == pytest.approx(wanted, rel=1e-6)
    constant = np.tile(np.log(mixed), (4, 1)).astype("float32")
    assert float(smoothed(rows, constant)) == pytest.approx(wanted, rel=1e-6)
    assert constant_loss(keras.losses.Huber(), np.ones((4, 1)), None) is None


@pytest.mark.parametrize(
    ("fails", "seed"), [(2, 1042), pytest.param(1, 1042, marks=pytest.mark.thorough)]
)
@pytest.mark.slow
def test_a_run_that_learned_nothing_is_restarted(
    train_spam: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fails: int,
    seed: int,
) -> None:
    calls: list[int] = []

    def failed(*args: Any) -> Divergence | None:
        calls.append(1)
        return Divergence(1.2, 1.1) if len(calls) <= fails else None

    monkeypatch.setattr(training, "divergence", failed)
    restarts = 1 if fails == 2 else 2
    result = train_spam(tmp_path / "model", epochs=1, restarts=restarts, train=FEW)
    said = capsys.readouterr().err
    assert "diverged: the final training loss, 1.2000" in said
    assert "restarting with seed 1042" in said
    assert result.report["settings"]["seed"] == seed
    assert len(calls) == 2 and os.listdir(tmp_path) == ["model"]
    scores = json.loads((result.folder / "scores.json").read_text())
    page = (result.folder / "report.html").read_text()
    if fails == 2:
        assert scores["diverged"] == {
            **{"loss": 1.2, "constant_loss": 1.1},
            "updates": 100,
        }
        assert "no better" in page
    else:
        assert set(scores) == {"dev"} and "no better" not in page


@pytest.mark.thorough
def test_too_few_updates_do_not_cause_a_restart(
    train_spam: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    early = Divergence(1.2, 1.1, updates=4)
    monkeypatch.setattr(training, "divergence", lambda *_: early)
    result = train_spam(tmp_path / "model", epochs=1, restarts=2, train=FEW)
    said = capsys.readouterr().err
    assert said.count(str(early)) == 1 and "restarting" not in said
    assert set(json.loads((result.folder / "scores.json").read_text())) == {"dev"}
    assert result.report["settings"]["too_few_updates"] == str(early)


def test_runs_left_by_more_restarts_are_removed(tmp_path: Path) -> None:
    def leave(name: str, **changes: Any) -> None:
        path = run_path(tmp_path / "a [model]", name)
        with open_run(path, {**told, "weights": name, **changes}, resume="auto"):
            pass

    told = {"rate": 1, "seed": 5}
    leave("run")
    for number in (1, 2, 12):
        leave(f"run-{number}", seed=5 + 1000 * number)
    leave("run-3", seed=3005, rate=2)  # another call's
    leave("run-4", seed=4006)
    leave("runs")  # of several seeds
    training._discard_runs(tmp_path / "a [model]", told)
    kept = [f".a [model].{name}" for name in ("run-3", "run-4", "runs")]
    assert sorted(os.listdir(tmp_path)) == kept


@pytest.mark.thorough
def test_a_tiny_learning_rate_is_reported_as_divergence(
    train_spam: Any, tmp_path: Path
) -> None:
    result = train_spam(tmp_path / "model", epochs=7, learning_rate=1e-12)
    wanted = pytest.approx(np.log(3))
    assert result.report["scores"]["diverged"]["constant_loss"] == wanted


# Fewer weights, and parts of batches.


@pytest.mark.thorough
def test_parts_of_a_batch_train_like_the_whole(train_spam: Any, tmp_path: Path) -> None:
    rows = as_columns(text=TEXTS[:11], label=LABELS[:11])  # the last batch is short
    settings = {"train": rows, "epochs": 3, "learning_rate": 1e-3, "batch_size": 4}
    whole = train_spam(tmp_path / "whole", **settings)
    parts = train_spam(tmp_path / "parts", accumulation=2, **settings)
    for one, other in zip(parts.model.weights, whole.model.weights, strict=True):
        if not is_noise(one.path):
            np.testing.assert_allclose(one, other, atol=3e-6, err_msg=one.path)
    losses = [
        [row["loss"] for row in r.history if "loss" in row] for r in (whole, parts)
    ]
    np.testing.assert_allclose(*losses, atol=1e-6)


@pytest.mark.slow
def test_lora_learns_and_becomes_plain_weights(
    train_spam: Any, tmp_path: Path, encoder_folder: Path
) -> None:
    result = train_spam(tmp_path / "model", lora_rank=2, freeze_layers=1)
    before = BertEncoder.from_pretrained(str(encoder_folder))
    start = {weight.path: weight.numpy() for weight in before.weights}
    after = {
        weight.path: weight.numpy() for weight in load_model(result.folder).weights
    }
    changed = {n for n in start if n in after and (start[n] != after[n]).any()}
    assert changed == {
        *(
            f"bert/encoder/layer_1/attention/self/{name}/kernel"
            for name in ("query", "value")
        ),
        *(f"bert/pooler/dense/{name}" for name in ("kernel", "bias")),
    }
    assert "lora" not in " ".join(after)
    assert {w.path for w in result.model.weights} == set(after)
    assert all(w.trainable for w in result.model.weights)


@pytest.mark.parametrize("rank", [16, 100_000])
def test_lora_of_the_whole_width_is_rejected(make_model: Any, rank: int) -> None:
    model = make_model(Classification(("ham", "promo", "spam")))
    told = f"`lora_rank` must be below the encoder's width, 16; received {rank}"
    refused(lambda: add_lora(model.backbone, rank, seed=4), told)


def test_merging_lora_changes_no_output(make_model: Any, tmp_path: Path) -> None:
    model = make_model(Classification(("ham", "promo", "spam")))
    wanted = model.answer(TEXTS)["probabilities"].numpy()
    add_lora(model.backbone, 3, seed=4)
    np.testing.assert_array_equal(model.answer(TEXTS)["probabilities"], wanted)
    rng = np.random.default_rng(5)
    for weight in model.weights:
        if "lora" in weight.path:
            weight.assign(rng.normal(size=weight.shape) * 0.3)
    mixed = model.answer(TEXTS)["probabilities"].numpy()
    assert np.abs(mixed - wanted).max() > 0.01
    plain = load_model(save_model(model, tmp_path / "model"))
    np.testing.assert_allclose(plain.answer(TEXTS)["probabilities"], mixed, atol=1e-6)
    trained = {w.path.split("/")[-1] for w in model.backbone.trainable_weights}
    assert trained == {"lora_kernel_a", "lora_kernel_b", "kernel", "bias"}  # the pooler
    assert not [name for name in plain_weights(model, model.backbone) if "lora" in name]


def test_frozen_layers(make_model: Any) -> None:
    model = make_model(Classification(("ham", "promo", "spam")))
    freeze_layers(model.backbone, 0)
    assert all(weight.trainable for weight in model.weights)
    refused(lambda: freeze_layers(model.backbone, 3), "`freeze_layers`", "2", "3")
    freeze_layers(model.backbone, 1)
    names = {weight.path for weight in model.trainable_weights}
    assert not [n for n in names if "embeddings" in n or "layer_0" in n]
    assert [n for n in names if "layer_1" in n]


# Kills.


def kills(folder: Path, count: int) -> dict[str, Any]:
    """Kill a run `count` times; check that it ends like an uninterrupted one."""
    done = subprocess.run(
        [sys.executable, "killed_runs.py", str(folder), str(count)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = {}
    for line in done.stdout.splitlines():
        said.update(json.loads(line))
    assert said["codes"] == [0, 0] and said["over"] == 0
    for name in ("config.json", "model.safetensors", "vocab.txt", "scores.json"):
        killed, whole = (folder / each / name for each in ("killed", "whole"))
        assert killed.read_bytes() == whole.read_bytes(), name
    assert sorted(os.listdir(folder)) == ["encoder", "killed", "whole"]
    return said


@pytest.mark.thorough
def test_a_run_that_is_killed_ends_with_the_same_bytes(tmp_path: Path) -> None:
    kills(tmp_path, 2)


@pytest.mark.thorough
def test_a_run_that_is_killed_25_times_ends_with_the_same_bytes(tmp_path: Path) -> None:
    assert kills(tmp_path, 25)["saving"] > 0
