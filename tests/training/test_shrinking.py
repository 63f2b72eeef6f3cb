"""The smallest model within a drop: what is tried, kept, told and refused."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROWS, Clock, refused

from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.errors import ConfigError
from bert_keras.exports import model_file
from bert_keras.inference.predictor import Predictor
from bert_keras.models.convert import convert
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.training import shrinking
from bert_keras.training.config import TrainConfig
from bert_keras.training.shrinking import shrink

FEW = as_columns(text=[text for text, _ in ROWS], label=[label for _, label in ROWS])
QUICK = TrainConfig(epochs=1, batch_size=4, learning_rate=1e-2)


@pytest.mark.slow
def test_the_smallest_model_within_the_drop(
    spam_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Any] = {"train": FEW, "dev": FEW, "int8": "none", "config": QUICK}
    output = tmp_path / "small"
    found = shrink(spam_folder, output, max_drop=1.0, **given)
    assert [each.name for each in found.candidates] == ["2 layers", "1 layer (0)"]
    assert found.candidates[1].megabytes < found.candidates[0].megabytes
    small = load_model(output)
    assert small.backbone.config.num_hidden_layers == 1
    assert (
        small.preprocessor.max_length == load_model(spam_folder).preprocessor.max_length
    )
    assert capsys.readouterr().err.endswith("kept: 1 layer (0)\n")
    notes = found.notes
    assert any(line.startswith("widths of the head are not tried") for line in notes)
    assert [row["model"] for row in found.rows] == ["2 layers", "1 layer (0): kept"]
    card = (output / "README.md").read_text()
    assert "at most 1.0 lower" in card and "| 1 layer (0): kept |" in card
    page = (output / "report.html").read_text()
    assert "1 layer (0)" in page and ".shrink-" not in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small"]
    refused(lambda: shrink(spam_folder, output, **given), "`output` must not exist")


def test_nothing_is_written_if_all_are_worse(
    spam_folder: Path,
    spam_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    scores = iter([0.9, 0.5])
    monkeypatch.setattr(
        shrinking, "measured", lambda *_: ({"accuracy": next(scores)}, 1.0, 1.0)
    )
    monkeypatch.setattr(shrinking, "train_model", lambda *_, **__: _Trained)
    files = ["--train", str(spam_file), "--dev", str(spam_file), "--int8", "none"]
    files += ["--epochs", "1"]
    command = ["shrink", str(spam_folder), str(tmp_path / "small"), *files]
    monkeypatch.setattr(shrinking, "load_predictor", _predictor_of(spam_folder))
    assert main(command) == 2
    told = capsys.readouterr().err
    assert (
        "accuracy of 1 layer (0): 0.5000, 1 ms for 1,000 rows, 1.0 MB: more than"
        in told
    )
    assert "dense vectors of embedding can be shortened, and this model gives" in told
    assert "no smaller model scores within `max_drop` 0.01 of 0.9000" in told
    assert [path.name for path in tmp_path.iterdir()] == [spam_file.name]


def test_shorter_vectors_without_training(
    make_model: Any, tmp_path: Path, capsys: Any
) -> None:
    """The card says what was tried; vectors are shortened, layers left out."""
    model, small = save_model(make_model(Embedding()), tmp_path / "m"), tmp_path / "s"
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("text\ttext_pair\n" + "\n".join(f"{t}\t{t}" for t, _ in ROWS[:6]))
    command = ["shrink", str(model), str(small), "--dev", str(pairs), "--int8", "none"]
    assert main([*command, "--max-drop", "1", "--epochs", "2"]) == 2
    assert "`--epochs` needs `--train`" in capsys.readouterr().err
    assert main([*command, "--batch-size", "4"]) == 2
    assert "`--batch-size` needs `--train`; received 4" in capsys.readouterr().err
    left = tmp_path / ".s.shrink-killed"  # by an earlier call
    left.mkdir()
    left.with_name(f"{left.name}.writing").touch()
    assert main([*command, "--max-drop", "1"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "pairs.tsv", "s"]
    out, told = capsys.readouterr()
    assert "layers are left out without training" in told
    width = load_model(model).backbone.config.hidden_size
    assert f"1 layer (0), width {width // 2}" in out and "MRR" in out
    task = load_model(small).task
    assert task.truncate_dim == max(each for each in (8, width // 8) if each < width)
    assert "1 layer (0), width 8: kept" in (small / "README.md").read_text()


def test_embeddings_are_scored_by_the_labels_of_their_pairs(
    make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, small = save_model(make_model(Embedding()), tmp_path / "m"), tmp_path / "s"
    texts = [text for text, _ in ROWS]
    pairs: dict[str, Any] = {"text": texts[:6], "text_pair": texts[6:]}
    plain, dev = as_columns(**pairs), as_columns(**pairs, label=[5, 0, 3, 1, 4, 2])
    scored, trained = [], []

    def measured(predictor: Any, *_: Any) -> Any:
        scored.append(predictor.model.task.objective)
        size = predictor.model.backbone.config.num_hidden_layers
        return {"mrr": 1.0, "spearman": score}, 1.0, size

    def train(task: Any, **given: Any) -> Any:
        trained.append(task.objective)
        convert(model, given["output"], keep_layers=(0,), card=False)
        return _Trained

    monkeypatch.setattr(shrinking, "measured", measured)
    monkeypatch.setattr(shrinking, "train_model", train)
    monkeypatch.setattr(shrinking, "_has_widths", lambda _: False)
    monkeypatch.setattr(shrinking._Search, "write_results", lambda *_: None)
    given: dict[str, Any] = {"int8": "none"}
    score = 0.5
    found = shrink(model, small, dev=dev, train=dev, **given)
    assert found.notes[0].startswith("objective similarity, since the rows have labels")
    assert trained == ["similarity"] and found.rows[0]["spearman"] == 0.5
    shrink(model, tmp_path / "cut", dev=dev, **given)
    assert load_model(tmp_path / "cut").task.objective == "similarity"
    assert scored[-2:] == ["similarity"] * 2
    score, place = 0.0, tmp_path / "t"
    for wrong, part in (
        ({"dev": plain, "train": dev}, "received it in train alone"),
        ({"dev": dev, "train": plain}, "received it in dev alone"),
        ({"dev": dev}, "cannot tell models apart: the spearman of the model itself is"),
        ({"dev": dev.take([0])}, "must have two rows or more"),
    ):
        refused(functools.partial(shrink, model, place, **given, **wrong), part)


def test_thresholds_are_fitted_on_dev_for_each_model(
    make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = MultiLabel(("a", "b"), thresholds=(0.999, 0.001))
    model, trained = save_model(make_model(task), tmp_path / "m"), []
    texts = [text for text, _ in ROWS]
    rows = as_columns(text=texts, label=["a", "", "b", "a,b"] * 3)

    def train(task: Any, **given: Any) -> Any:
        trained.append(task)
        raise KeyError

    def measured(predictor: Any, *_: Any) -> Any:
        size = predictor.model.backbone.config.num_hidden_layers
        return {"micro_f1": 0.5}, 1.0, size

    monkeypatch.setattr(shrinking, "measured", measured)
    monkeypatch.setattr(shrinking, "train_model", train)
    given: dict[str, Any] = {"dev": rows, "int8": "none"}
    found = shrink(model, tmp_path / "cut", **given)
    assert found.notes[0].startswith("thresholds are fitted on dev for each model")
    limits = load_model(tmp_path / "cut").task.thresholds
    assert len(limits) == 2 and limits != task.thresholds
    with pytest.raises(KeyError):
        shrink(model, tmp_path / "small", train=rows, **given)
    assert trained[0].thresholds == ()
    fixed = MultiLabel(("a", "b"), thresholds=0.3, threshold_tuning="none")
    assert shrinking.untuned(fixed) == fixed
    asked = QuestionAnswering(no_answer=True, threshold=2.0)
    assert shrinking.untuned(asked).threshold == 0


def test_a_drop_of_percentages(
    make_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.01 is one point of an F1 to 100."""
    model = save_model(make_model(QuestionAnswering()), tmp_path / "m")
    answers = [[("win", 0)], [("six", 11)]]
    dev = as_columns(
        question=["what"] * 2,
        context=["win cash now", "see you at six"],
        answers=answers,
    )
    scores = iter([({"f1": 80.0}, 1.0, 2.0), ({"f1": 79.5}, 1.0, 1.0)])
    monkeypatch.setattr(shrinking, "measured", lambda *_: next(scores))
    monkeypatch.setattr(shrinking, "_fitted", lambda model, *_: Predictor(model))
    found = shrink(model, tmp_path / "s", dev=dev, int8="none")
    assert found.rows[-1]["model"] == "1 layer (0): kept"
    monkeypatch.setattr(model_file, "package", _missing)
    refused(lambda: shrink(model, tmp_path / "t", dev=dev, int8="onnx"), "no tf2onnx")


def _missing(name: str, what: str) -> None:
    if name == "tf2onnx":
        raise ConfigError(f"{what}: no {name}")


class _Trained:
    report: dict[str, Any] = {}


def _predictor_of(folder: Path) -> Any:
    from bert_keras.inference.predictor import load_predictor

    model = load_predictor(folder)
    return lambda _: model


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"int8": "litert"}, "`int8` must be one of"),
        ({"max_drop": 2.0}, "`max_drop` must be"),
        ({"dev": None}, "`dev` must be"),
    ],
)
def test_arguments(changes: Any, part: str, spam_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=part):
        shrink(spam_folder, tmp_path / "out", **{"train": FEW, "dev": FEW, **changes})


def test_an_export_is_refused(spam_export: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"train": FEW, "dev": FEW}
    refused(
        lambda: shrink(spam_export, tmp_path / "out", **given), "must be a model folder"
    )


def test_the_time_left_is_of_all_students_and_scorings(
    clock: Clock, tmp_path: Path
) -> None:
    """Each student showed the time left of its own training alone."""
    teacher: Any = SimpleNamespace(model=SimpleNamespace(task=Embedding()))
    given: Any = (tmp_path, teacher, tmp_path, FEW, FEW, 0.1, "onnx")
    search = shrinking._Search(*given, scoring_seconds=2.0)
    first = shrinking.Candidate("12 layers", tmp_path, 1.0, 1.0, 1.0, True, width=32)
    search.candidates.append(first)
    later = search._later(shrinking._depths(12))
    clock.now += 10.0
    # Of 9 layers, in 30 s; then 6, 3 and 1, and 4 + 2 widths + int8 are scored.
    assert later(20.0) == pytest.approx(30.0 * 10 / 9 + 7 * 2.0)
    assert search._later([(0,)])(20.0) == 4 * 2.0


def test_depths() -> None:
    found = {layers: shrinking._depths(layers) for layers in (1, 2, 6, 12)}
    counts = {layers: [len(each) for each in kept] for layers, kept in found.items()}
    assert counts == {1: [], 2: [1], 6: [4, 3, 1], 12: [9, 6, 3, 1]}
    assert found[6][:2] == [(0, 1, 3, 4), (0, 2, 4)]


def test_widths() -> None:
    assert shrinking._widths(Embedding(), 32) == [16, 8]
    assert shrinking._widths(Embedding(dimensions=(64, 16)), 32) == [16]
