"""Pretraining: whole runs, resuming, accumulation, phases, heads, errors."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, is_noise, refused
from safetensors.numpy import load_file, save

from bert_keras.checkpoints import read_checkpoint
from bert_keras.cli.main import main
from bert_keras.config import BertConfig
from bert_keras.distribution.strategy import Devices, find_strategy
from bert_keras.errors import CheckpointError, TrainingError
from bert_keras.files.records import compression_of
from bert_keras.models.loading import load_model
from bert_keras.models.objective import TaskObjective
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.pretraining.input import pretraining_dataset
from bert_keras.pretraining.loop import PretrainingLoop
from bert_keras.pretraining.manifest import MANIFEST, as_text, read_manifest
from bert_keras.pretraining.plan import make_pretraining_plan
from bert_keras.pretraining.pretrain import (
    PretrainResult,
    plan_pretraining,
    pretrain,
)
from bert_keras.pretraining.pretrainer import new_pretrainer
from bert_keras.pretraining.progress import PretrainingProgress
from bert_keras.pretraining.source import PretrainingBatches
from bert_keras.runs import progress
from bert_keras.runs.run_folder import RunFolder
from bert_keras.runs.stop_signal import RunStopped, StopSignal
from bert_keras.training.checkpoint import FILE
from bert_keras.training.choices import GIVEN
from bert_keras.training.loop import RunContext
from bert_keras.training.train_step import TrainStep
from pretraining.test_data import TOKENIZER, write

SIZES = BertConfig(
    vocab_size=TOKENIZER.vocab_size,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
)
STILL = dataclasses.replace(
    SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
)
CONFIG = PretrainConfig(
    steps=12,
    batch_size=8,
    learning_rate=3e-3,
    checkpoint_every=4,
    keep=9,
    evaluate_every=6,
    held_out_examples=32,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a vocabulary and data of two kinds."""
    folder = tmp_path_factory.mktemp("pretraining")
    (folder / "vocab").mkdir()
    TOKENIZER.save(folder / "vocab")
    write(folder / "static", masking="static", dupe_factor=2)
    write(folder / "dynamic", masking="dynamic")
    write(folder / "long", masking="dynamic", max_length=48)
    write(folder / "single", masking="dynamic", next_sentence="none")
    return folder


def run(
    place: Path, output: Path, data: Any = "dynamic", sizes: Any = SIZES, **changes: Any
) -> PretrainResult:
    names = [data] if isinstance(data, str) else data
    held_out = changes.pop("held_out", None)
    vocab = changes.pop("vocab", place)
    return pretrain(
        sizes,
        [place / name for name in names],
        output,
        vocab=vocab / "vocab" if isinstance(sizes, BertConfig) else None,
        held_out=place / held_out if held_out else None,
        config=dataclasses.replace(CONFIG, **changes),
    )


def weights(folder: Path) -> dict[str, np.ndarray]:
    arrays = read_checkpoint(folder).arrays
    return {name: arrays[name] for name in arrays}


def assert_close(first: Path, second: Path, atol: float = 1e-5) -> None:
    found, wanted = weights(first), weights(second)
    assert set(found) == set(wanted)
    for name, values in wanted.items():
        if not is_noise(name):
            np.testing.assert_allclose(found[name], values, atol=atol, err_msg=name)


@pytest.fixture(scope="module")
def whole(place: Path) -> PretrainResult:
    """Return a run with dropout, to its end."""
    return run(place, place / "whole", held_out="static")


def test_a_run_leaves_models_curves_and_a_report(
    place: Path, whole: PretrainResult
) -> None:
    folder = place / "whole"
    assert whole.folder == folder / "model"
    names = sorted(entry.name for entry in (folder / "checkpoints").iterdir())
    assert names == [f"step-{step:09d}" for step in (4, 8, 12)]
    lines = (folder / "curves.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert rows == whole.history
    assert [row["step"] for row in rows if "loss" in row] == list(range(1, 13))
    assert [row["step"] for row in rows if "dev_perplexity" in row] == [6, 12]
    assert rows[-1]["dev_perplexity"] == pytest.approx(whole.scores["perplexity"])
    row = rows[0]
    total = row["masked_lm_loss"] + row["next_sentence_loss"]
    assert row["loss"] == pytest.approx(total)
    assert row["masked_lm_perplexity"] == pytest.approx(np.exp(row["masked_lm_loss"]))
    # A new model knows nothing: each token is about as likely as any other.
    assert row["masked_lm_loss"] == pytest.approx(np.log(SIZES.vocab_size), abs=0.3)
    assert 0.5 < row["real_token_share"] <= 1
    page = (folder / "report.html").read_text()
    assert "masked lm perplexity" in page.lower()
    assert "<h2>held-out data" in page and "held_out<" not in page
    assert "of the steps" in page  # of the table of choices


@pytest.mark.slow
def test_a_plan_has_the_reason_and_the_option_of_each_choice(
    place: Path, whole: PretrainResult, tmp_path: Path, capsys: Any
) -> None:
    def choices(output: Path, **changes: Any) -> tuple[Any, dict[str, tuple[str, ...]]]:
        plan = plan_pretraining(
            SIZES,
            [place / name for name in changes.pop("data", ["dynamic"])],
            output,
            vocab=place / "vocab",
            held_out=changes.pop("held_out", None),
            config=dataclasses.replace(CONFIG, **changes),
        )
        rows = {row.pop("name"): tuple(row.values()) for row in plan.table()}
        return plan, rows

    plan, found = choices(
        tmp_path / "run",
        batch_size=256,
        data=["dynamic", "single"],
        next_sentence="none",
    )
    assert capsys.readouterr().out == "" and os.listdir(tmp_path) == []
    assert found["model"][:2] == ("1/16/2", "a new model, with random weights")
    assert found["steps"] == ("12", GIVEN, "--steps")
    first, second = (found[f"steps of {place / n}"] for n in ("dynamic", "single"))
    assert (first[0], second[0]) == ("11", "1")
    assert first[1].startswith("92% of the steps; ") and "passes over" in first[1]
    assert found["batch size"] == ("256", "the paper's", "--batch-size")
    assert found["learning rate"] == ("0.003", GIVEN, "--learning-rate")
    assert found["rows"] == ("32 tokens", "as in the data", "")
    assert found["masks"] == ("15% by piece", "as in the data", "--mask-rate")
    assert found["next sentence"] == ("not trained", GIVEN, "--next-sentence")
    assert "resumed" not in found
    assert 0 < plan.estimate.seconds < 1000
    weights = 4 * whole.model.count_params()
    assert plan.estimate.written_bytes > 9 * weights  # with moments, as many as kept
    plan, found = choices(place / "whole", held_out=place / "static")
    assert found["resumed"][0] == "after step 12"
    assert plan.estimate.seconds == 0
    assert found["next sentence"][:2] == ("trained", "the data has pairs")
    assert found["held out"][0] == "up to 32 examples, every 6 steps and at the end"
    assert not plan.notes
    told = choices(tmp_path / "run", held_out=place / "dynamic")[0].notes
    assert [note for note in told if note.startswith("the held-out data is also")]
    refused(
        lambda: choices(place / "whole", learning_rate=1e-4),
        "holds a run with another `learning_rate`: 0.003",
    )


@pytest.mark.slow
def test_the_command_shows_the_plan_alone(
    place: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = ["--data", str(place / "dynamic"), "--vocab", str(place / "vocab")]
    command = ["pretrain", *data, "--size", "1/16/2", "--steps", "2"]
    assert main(command) == 2
    assert "`--output` must be given unless `--plan` is" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--batch-size", "4", "--plan"]) == 0
    out = capsys.readouterr().out
    assert re.search("^batch size +4 +--batch-size +as given$", out, re.MULTILINE)
    assert out.splitlines()[-1].startswith("about ")
    assert os.listdir(tmp_path) == []


def test_a_model_without_segments_reads_data_with_pairs_and_without(
    place: Path,
) -> None:
    sizes = dataclasses.replace(SIZES, type_vocab_size=0, model_type="distilbert")
    for data in ("dynamic", "single"):
        plan = make_pretraining_plan(
            sizes, place / data, vocab=place / "vocab", config=CONFIG
        )
        assert plan.sizes == sizes and not plan.next_sentence


def test_a_pretrained_model_opens_as_its_tasks(whole: PretrainResult) -> None:
    found = weights(whole.folder)
    for task in ("masked-lm", "next-sentence"):
        model = load_model(whole.folder, task=task)
        for weight in model.weights:
            np.testing.assert_array_equal(weight.numpy(), found[weight.path])
    config = json.loads((whole.folder / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]


# The step after it saves, or does not.
@pytest.mark.parametrize("at", [5, pytest.param(7, marks=pytest.mark.thorough)])
@pytest.mark.slow
def test_a_signal_saves_a_run_that_then_ends_with_the_same_bytes(
    place: Path,
    whole: PretrainResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
) -> None:
    add = PretrainingProgress.add

    def watched(self: PretrainingProgress, *args: Any) -> Any:
        if self.step == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return add(self, *args)

    saved = tmp_path / "run" / "checkpoints" / f"step-{at + 1:09d}"
    save, met = RunFolder._save, []

    def slow_save(self: RunFolder, *args: Any) -> None:
        time.sleep(0.2)
        save(self, *args)

    def meet(self: Devices, number: int) -> int:
        met.append(saved.exists())
        return number

    with monkeypatch.context() as patch:
        patch.setattr(PretrainingProgress, "add", watched)
        patch.setattr(RunFolder, "_save", slow_save)
        patch.setattr(Devices, "agree", meet)
        with pytest.raises(RunStopped, match="SIGTERM"):
            run(place, tmp_path / "run", held_out="static")
    assert met[-1]  # no worker leaves before that
    names = [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()]
    assert sorted(names)[-1] == f"step-{at + 1:09d}"
    # Partial writes are ignored.
    folder = tmp_path / "run"
    (folder / "checkpoints" / ".new-half").mkdir()
    with open(folder / "curves.jsonl", "a") as file:
        file.write('{"step": 13, "lo')
    again = run(place, folder, held_out="static")
    for name in ("model/model.safetensors", f"checkpoints/step-000000012/{FILE}"):
        assert (folder / name).read_bytes() == (place / "whole" / name).read_bytes()
    assert again.scores == whole.scores
    assert not (folder / "checkpoints" / ".new-half").exists()
    speeds = {"tokens_per_second", "operations_per_second", "input_wait_share"}
    for new, old in zip(again.history, whole.history, strict=True):
        assert {k: new[k] for k in set(new) - speeds} == {
            k: old[k] for k in set(old) - speeds
        }


@pytest.mark.slow
def test_a_finished_run_is_not_repeated(
    place: Path, whole: PretrainResult, tmp_path: Path
) -> None:
    folder = tmp_path / "done"
    shutil.copytree(place / "whole", folder)
    again = run(place, folder, held_out="static")
    assert again.history == whole.history
    assert again.scores == whole.scores


def test_accumulation_layouts_and_one_batch_give_the_same_weights(
    place: Path, tmp_path: Path
) -> None:
    # All gradients are clipped, and batches differ in their numbers of masked tokens.
    settings: dict[str, Any] = {"global_clipnorm": 0.1, "batch_size": 12, "steps": 6}
    one = run(place, tmp_path / "one", "static", STILL, **settings)
    settings |= {"accumulation": 4, "layout": "padded"}
    parts = run(place, tmp_path / "4", "static", STILL, **settings)
    assert_close(parts.folder, one.folder)
    for key in ("loss", "masked_lm_accuracy", "next_sentence_accuracy"):
        wanted = [row[key] for row in one.history]
        found = [row[key] for row in parts.history]
        assert found == pytest.approx(wanted, abs=1e-4)


@pytest.mark.slow
def test_a_model_learns_its_data(place: Path, tmp_path: Path) -> None:
    result = run(
        place, tmp_path / "run", "static", steps=120, learning_rate=1e-2, batch_size=16
    )
    losses = [row["masked_lm_loss"] for row in result.history if "loss" in row]
    assert np.mean(losses[-10:]) < 0.75 * losses[0]


@pytest.mark.thorough
def test_phases_get_their_share_of_the_steps(place: Path, tmp_path: Path) -> None:
    result = run(
        place, tmp_path / "run", ["dynamic", "long"], phase_shares=(0.75, 0.25)
    )
    tokens = [row["tokens"] for row in result.history]
    assert len(tokens) == 12
    assert min(tokens[9:]) > max(tokens[:9])
    rates = [row["learning_rate"] for row in result.history]
    assert rates == sorted(rates, reverse=True)  # one schedule over both


@pytest.mark.thorough
def test_continuing_from_a_checkpoint_starts_with_its_loss(
    place: Path, whole: PretrainResult, tmp_path: Path
) -> None:
    shutil.copytree(whole.folder, tmp_path / "origin")
    again = run(
        place,
        tmp_path / "more",
        sizes=tmp_path / "origin",
        held_out="static",
        steps=1,
        learning_rate=1e-12,
    )
    assert again.scores == pytest.approx(whole.scores, abs=1e-5)
    starts = [
        json.loads((run_folder / "comparison.json").read_text())["settings"]["encoder"]
        for run_folder in (whole.folder.parent, tmp_path / "more")
    ]
    assert starts == ["new, with random weights", str(tmp_path / "origin")]


@pytest.mark.thorough
def test_a_missing_head_is_initialized_randomly(
    place: Path, tmp_path: Path, capfd: pytest.CaptureFixture
) -> None:
    one = run(place, tmp_path / "single", "single", steps=2)
    assert not any("seq_relationship" in name for name in weights(one.folder))
    capfd.readouterr()
    pairs = run(place, tmp_path / "pairs", sizes=one.folder, steps=2)
    said = capfd.readouterr().err
    for part in ("bert/pooler", "next-sentence head (cls/seq_relationship)"):
        assert f"the checkpoint has no {part}: it is initialized randomly" in said
    assert "cls/predictions" not in said
    assert "cls/seq_relationship/kernel" in weights(pairs.folder)


def test_a_checkpoint_that_does_not_fit_leaves_no_run(
    place: Path, whole: PretrainResult, tmp_path: Path
) -> None:
    origin = shutil.copytree(whole.folder, tmp_path / "origin")
    untied = load_file(origin / "model.safetensors")
    table = untied["bert.embeddings.word_embeddings.weight"]
    untied["cls.predictions.decoder.weight"] = table + 1
    (origin / "model.safetensors").write_bytes(save(untied))
    refused(lambda: run(place, tmp_path / "run", sizes=origin), "is tied to")
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_left_to_right(place: Path, tmp_path: Path) -> None:
    result = run(place, tmp_path / "run", objective="causal", steps=4)
    config = json.loads((result.folder / "config.json").read_text())
    assert config["is_decoder"] is True
    assert "next_sentence_loss" not in result.history[0]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "lamb"},
        {"precision": "mixed_float16", "accumulation": 2},
        {"precision": "mixed_bfloat16", "rematerialize": True},
    ],
    ids=str,
)
def test_other_ways_of_training(
    place: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    stopped = run(place, tmp_path / "run", "static", steps=6, **changes)
    losses = [row["loss"] for row in stopped.history]
    assert np.isfinite(losses).all()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-000000006")
    wanted = (stopped.folder / "model.safetensors").read_bytes()
    again = run(place, tmp_path / "run", "static", steps=6, **changes)
    assert (again.folder / "model.safetensors").read_bytes() == wanted


@pytest.fixture(scope="module")
def teacher(place: Path) -> PretrainResult:
    """Return a run without dropout."""
    return run(place, place / "teacher", "static", STILL, steps=4)


@pytest.mark.slow
def test_a_student_learns_from_a_teacher(
    place: Path,
    teacher: PretrainResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The teacher itself has nothing to learn."""
    given: dict[str, Any] = {"teacher": str(teacher.folder), "steps": 4}
    monkeypatch.setattr(progress, "_is_quiet", True)
    same = run(
        *(place, tmp_path / "same", "static", None),
        **{"keep_layers": (0,), "distill": "hidden", "learning_rate": 1e-12, **given},
    )
    after_table = capsys.readouterr().err.partition("\nstrategy ")[2].splitlines()
    *notes, last = after_table[1:]
    assert same.notes == tuple(notes) and last.startswith("pretraining ")
    assert notes[-1].startswith("learning from the teacher")
    row = same.history[0]
    assert row["distillation_loss"] == pytest.approx(0, abs=1e-5)
    assert row["states_loss"] == pytest.approx(0, abs=1e-5)
    assert row["masked_lm_perplexity"] == pytest.approx(np.exp(row["masked_lm_loss"]))
    labels = row["masked_lm_loss"] + row["next_sentence_loss"]
    assert row["loss"] == pytest.approx(labels / 2, abs=1e-5)
    assert "distillation_accuracy" not in row


@pytest.mark.slow
def test_a_small_student_learns_and_an_interrupted_run_ends_the_same(
    place: Path, teacher: PretrainResult, tmp_path: Path
) -> None:
    small = dataclasses.replace(STILL, hidden_size=8, intermediate_size=16)
    given: dict[str, Any] = {"teacher": str(teacher.folder), "distill": "relations"}
    given |= {"distill_weight": 1.0, "next_sentence": "none"}
    given |= {"learning_rate": 1e-2, "steps": 12, "checkpoint_every": 6}
    arguments = (place, tmp_path / "small", "static", small)
    found = run(*arguments, **given)
    losses = [row["distillation_loss"] for row in found.history]
    assert losses[-1] < losses[0]
    assert "masked_lm_perplexity" not in found.history[0]
    wanted = (found.folder / "model.safetensors").read_bytes()
    shutil.rmtree(tmp_path / "small" / "checkpoints" / "step-000000012")
    again = run(*arguments, **given)
    assert (again.folder / "model.safetensors").read_bytes() == wanted
    given["temperature"] = 3.0
    refused(lambda: run(*arguments, **given), "another `temperature`")


def test_teachers_that_cannot_teach(
    place: Path, teacher: PretrainResult, tmp_path: Path
) -> None:
    def refuse(
        part: str, sizes: Any = STILL, data: str = "static", **given: Any
    ) -> None:
        given = {"teacher": str(teacher.folder), "steps": 2, **given}
        refused(lambda: run(place, tmp_path / "run", data, sizes, **given), part)

    arrays = load_file(teacher.folder / "model.safetensors")
    bare = Path(shutil.copytree(teacher.folder, tmp_path / "bare"))
    headless = {k: v for k, v in arrays.items() if not k.startswith("cls.")}
    (bare / "model.safetensors").write_bytes(save(headless))
    refuse("`teacher` must have a masked-LM head; received", teacher=str(bare))
    other = Path(shutil.copytree(teacher.folder, tmp_path / "other"))
    vocabulary = (other / "vocab.txt").read_text().splitlines()
    (other / "vocab.txt").write_text("\n".join([*vocabulary[:-1], "zebra"]) + "\n")
    refuse("`teacher` must have the vocabulary of the student", teacher=str(other))
    refuse("`distill_weight` must be below 1", distill_weight=1.0)
    refuse("`keep_layers` is for a checkpoint", keep_layers="0")
    refuse("`encoder` must be given: the sizes of a new model (--size)", sizes=None)
    refuse("must read from left to right", data="dynamic", objective="causal")
    refuse("`distill` needs `teacher`", teacher=None, distill="hidden")
    assert not (tmp_path / "run").exists()


def test_a_run_of_other_settings_is_rejected(
    place: Path, whole: PretrainResult, tmp_path: Path
) -> None:
    folder = place / "whole"
    refused(
        lambda: run(place, folder, learning_rate=1e-4),
        "holds a run with another `learning_rate`: 0.003",
    )
    refused(
        lambda: run(place, folder, "static"),
        "holds a run with another `data[0]",
    )
    refused(
        lambda: run(place, folder, held_out="dynamic"),
        "holds a run with another `held-out data.bytes`: ",
        "`held-out data.masks`",
    )
    data = Path(shutil.copytree(place / "dynamic", tmp_path / "data"))
    manifest = read_manifest(data)
    assert manifest is not None
    manifest["settings"]["mask_unit"] = "word"  # the shards are as before
    (data / MANIFEST).write_text(as_text(manifest))
    refused(
        lambda: run(place, folder, [data]),
        "holds a run with another `masking[0].unit`: 'piece'; received 'word'",
    )
    shutil.rmtree(data)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="must be a new folder or a run"):
        run(place, tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.thorough
def test_a_loss_that_is_not_finite_stops_the_run(place: Path, tmp_path: Path) -> None:
    refused(
        lambda: run(place, tmp_path / "run", learning_rate=1e36, checkpoint_every=1),
        "the loss is nan in step ",
        ", phase 1 (",
        "--on-nonfinite skip",
    )
    for entry in (tmp_path / "run" / "checkpoints").iterdir():
        assert all(np.isfinite(each).all() for each in weights(entry).values())


@pytest.mark.thorough  # `test_finetuning_replicas.py` skips such a batch
@pytest.mark.parametrize(
    ("value", "accumulation"),
    [pytest.param(np.nan, 1, id="loss"), pytest.param(1e30, 2, id="gradient")],
)
def test_a_batch_that_is_not_finite(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: float,
    accumulation: int,
) -> None:
    sums = TaskObjective.sums

    def is_bad(labels: Any) -> Any:
        tokens = labels["masked_lm"]
        return tf.reduce_sum(tf.where(tokens < 0, 0, tokens)) % 5 == 0

    def with_bad(self: Any, outputs: Any, labels: Any) -> Any:
        found = sums(self, outputs, labels)
        loss, correct = found["masked_lm"]
        # A gradient of 1e30 is finite, and its square is not.
        factor = tf.where(is_bad(labels), tf.constant(value, tf.float32), 1.0)
        return {**found, "masked_lm": (loss * factor, correct)}

    monkeypatch.setattr(TaskObjective, "sums", with_bad)

    def go(**changes: Any) -> PretrainResult:
        return run(place, tmp_path / "run", accumulation=accumulation, **changes)

    line = refused(go, "in step ", f"phase 1 ({place / 'dynamic'}), examples ")
    assert ("the loss is nan" in line) == np.isnan(value)
    assert ("a gradient is not finite" in line) != np.isnan(value)
    note = json.loads((tmp_path / "run" / "nonfinite.json").read_text())
    assert note["phase"] == 1 and len(note["records"]) == CONFIG.batch_size
    # The note leads to the batch, and to its records.
    dataset = pretraining_dataset(
        note["data"],
        TOKENIZER,
        batch_size=note["batch_size"] // accumulation,
        seed=note["seed"],
        skip_batches=note["skip_batches"] * accumulation,
        epochs=None,
    )
    batches = [labels for _, labels in dataset.take(accumulation)]
    assert any(is_bad(labels) for labels in batches)
    wanted = np.concatenate([labels["next_sentence"] for labels in batches])
    found = []
    for entry in note["records"]:
        file = entry["file"]
        records = list(tf.data.TFRecordDataset(file, compression_of(file)))
        example = tf.train.Example.FromString(records[entry["record"]].numpy())
        feature = example.features.feature["next_sentence_labels"]
        found.append(feature.int64_list.value[0])
    assert found == wanted.tolist()
    if accumulation > 1:
        with pytest.raises(TrainingError):
            go()  # resumes from the checkpoint and is stopped there again
        again = json.loads((tmp_path / "run" / "nonfinite.json").read_text())
        assert again == note
    result = go(on_nonfinite="skip")
    skipped = [row["step"] for row in result.history if "skipped_updates" in row]
    losses = [row["step"] for row in result.history if "loss" in row]
    assert note["step"] in skipped
    assert sorted(skipped + losses) == list(range(1, 13))
    assert "skipped" in (tmp_path / "run" / "report.html").read_text()
    for each in weights(result.folder).values():
        assert np.isfinite(each).all()


def test_bad_input(place: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    refused(
        lambda: pretrain(SIZES, place / "dynamic", output, config=CONFIG),
        "`vocab` must be given for a new model",
    )
    refused(lambda: run(place, output, []), "`data` must name at least one folder")
    refused(
        lambda: run(place, output, held_out="single"),
        "must hold pairs, as the training data does",
    )
    refused(
        lambda: run(place, output, ["dynamic"] * 3),
        "`phase_shares` must hold a share for each",
    )
    refused(
        lambda: run(place, output, ["dynamic", "single"]),
        "`next_sentence` must be none if only some of the data has pairs",
    )
    causal = {"objective": "causal", "mask_rate": 0.2}
    refused(
        lambda: run(place, output, **causal), "only with `objective` masked", "0.2 and"
    )
    for changes, data, held_out, told in (
        ({"vocab_size": 20}, "dynamic", None, "`vocab_size` must be at least 78"),
        ({"max_position_embeddings": 40}, "long", None, "must be at least 48"),
        ({"max_position_embeddings": 40}, "dynamic", "long", "must be at least 48"),
        ({"type_vocab_size": 1}, "dynamic", None, "`type_vocab_size` must be at least"),
        ({"is_decoder": True}, "dynamic", None, "`objective` must be causal"),
        ({"type_vocab_size": 0}, "single", None, "has segments (`type_vocab_size`)"),
        ({"embedding_size": 8}, "dynamic", None, "as wide as its hidden states"),
    ):
        sizes = dataclasses.replace(SIZES, **changes)
        refused(
            lambda s=sizes, d=data, h=held_out: run(place, output, d, s, held_out=h),
            told,
        )
    assert not output.exists()


def test_a_missing_shard_is_reported(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "dynamic", tmp_path / "data")
    shard = sorted((tmp_path / "data").glob("*.tfrecord*"))[0]
    shard.unlink()
    refused(
        lambda: run(tmp_path, tmp_path / "run", [tmp_path / "data"], vocab=place),
        "of the files that its manifest names, such as",
        shard.name,
    )


@pytest.mark.thorough
def test_a_run_in_its_second_phase_resumes(place: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"phase_shares": (0.5, 0.5), "accumulation": 2}
    data = ["dynamic", "long"]
    whole = run(place, tmp_path / "run", data, **settings).folder
    wanted = (whole / "model.safetensors").read_bytes()
    saved = tmp_path / "run" / "checkpoints"
    for name in ("step-000000012", "step-000000008"):  # in phase 2, then in phase 1
        shutil.rmtree(saved / name)
        again = run(place, tmp_path / "run", data, **settings).folder
        assert (again / "model.safetensors").read_bytes() == wanted
        if name.endswith("12"):
            shutil.rmtree(saved / name)


@pytest.mark.thorough
def test_the_loss_scale_is_part_of_a_checkpoint(place: Path, tmp_path: Path) -> None:
    run(place, tmp_path / "run", steps=4, precision="mixed_float16")
    path = tmp_path / "run" / "checkpoints" / "step-000000004" / FILE
    state = load_file(path)
    scales = [name for name, values in state.items() if values.size == 1]
    config = dataclasses.replace(CONFIG, steps=4, precision="mixed_float16")
    plan = make_pretraining_plan(
        SIZES, place / "dynamic", vocab=place / "vocab", config=config
    )
    model = new_pretrainer(SIZES, config, next_sentence=True)
    with RunFolder(tmp_path / "run", plan.settings()) as folder:
        name = next(n for n in scales if state[n] == 2.0**15)  # Keras's first scale
        path.write_bytes(save({**state, name: np.array(64.0, "float32")}))
        devices = find_strategy("single")
        context = RunContext(folder, config, devices, StopSignal())
        source = PretrainingBatches(plan, devices)
        loop = PretrainingLoop(model, source, None, context)
        assert float(loop.optimizer.dynamic_scale) == 64.0
        dataset = pretraining_dataset(place / "dynamic", TOKENIZER, batch_size=4)
        step = TrainStep(
            model, loop.optimizer, TaskObjective(model), dataset.element_spec
        )
        step([next(iter(dataset))])
        assert float(loop.optimizer.dynamic_scale) == 64.0


@pytest.mark.thorough
def test_another_checkpoint_of_the_same_name_is_another_run(
    place: Path, whole: PretrainResult, tmp_path: Path
) -> None:
    other = place / "whole" / "checkpoints" / "step-000000004"
    for name, folder in (("a", whole.folder), ("b", other)):
        shutil.copytree(folder, tmp_path / name / "model")
    run(place, tmp_path / "run", sizes=tmp_path / "a" / "model", steps=1)
    refused(
        lambda: run(place, tmp_path / "run", sizes=tmp_path / "b" / "model", steps=1),
        "holds a run with another `start`",
    )


def test_mask_settings_of_the_config_override_those_of_the_data(
    place: Path, tmp_path: Path
) -> None:
    def masking(**changes: Any) -> Any:
        config = dataclasses.replace(CONFIG, **changes)
        plan = make_pretraining_plan(
            SIZES, place / "dynamic", vocab=place / "vocab", config=config
        )
        return plan.phases[0].masking

    found = masking(mask_rate=0.5, random_share=0.2)
    assert (found.rate, found.mask_share, found.random_share) == (0.5, 0.8, 0.2)
    assert found.max_predictions == 16  # of 29 tokens half, in fours
    assert masking() is None
    for data in (["static"], ["dynamic", "static"]):
        for change in ({"mask_share": 0.7}, {"objective": "causal"}):
            refused(
                lambda d=data, c=change: run(place, tmp_path / "run", d, **c),
                f"`{next(iter(change))}` must be",
                "for data with stored masks",
            )
    refused(lambda: masking(mask_share=0.7, random_share=0.7), "1 at most together")
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_a_run_that_was_killed_ends_with_the_same_bytes(
    place: Path, tmp_path: Path
) -> None:
    settings = {"steps": 40, "checkpoint_every": 2, "keep": 1}
    script = (
        "from pretraining import test_pretrain as t; from pathlib import Path; "
        f"t.run(Path({str(place)!r}), Path({str(tmp_path / 'killed')!r}), **{settings})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stderr=subprocess.DEVNULL,
    )
    saved = tmp_path / "killed" / "checkpoints"
    while process.poll() is None and not list(saved.glob("step-*4")):
        time.sleep(0.01)
    process.kill()  # SIGKILL, perhaps while a checkpoint is written
    process.wait()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "model").exists()
    killed = run(place, tmp_path / "killed", **settings).folder
    whole = run(place, tmp_path / "whole", **settings).folder
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
