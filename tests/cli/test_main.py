"""The command line: every verb, and one line for every mistake of a user's."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, ROWS, SHARED, files_of, refused, thorough, write_tsv

from bert_keras.cli import prediction
from bert_keras.cli import tasks as tasks_verb
from bert_keras.cli.given_texts import Lines, batches
from bert_keras.cli.main import main
from bert_keras.cli.options import config_of
from bert_keras.cli.parser import parser
from bert_keras.cli.training import named_tests
from bert_keras.errors import ConfigError
from bert_keras.inference import answered_rows
from bert_keras.inference import predictor as inference
from bert_keras.models.model_folder import save_model
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.retrieval.vector_file import read_vectors
from bert_keras.tasks import TASKS
from bert_keras.tasks.classification import Classification
from bert_keras.training import finetune as training
from bert_keras.training.config import TrainConfig

Run = Callable[..., str]
Fail = Callable[..., str]


@pytest.fixture(autouse=True)
def open_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open a model folder once for all tests: each time takes seconds."""
    monkeypatch.setattr(inference, "load_predictor", opened)


opened = functools.cache(inference.load_predictor)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command that must succeed; gives its output."""

    def run(*words: object) -> str:
        capfd.readouterr()
        code = main([str(word) for word in words])
        output, errors = capfd.readouterr()
        assert code == 0, errors
        return output

    return run


@pytest.fixture
def fail(capfd: pytest.CaptureFixture[str]) -> Fail:
    """Return a function that runs a command that must be refused in one line."""

    def fail(*words: object, after: bool = False) -> str:
        """Return the line; with `after`, notes on the run may stand above it."""
        capfd.readouterr()
        code = main([str(word) for word in words])
        output, errors = capfd.readouterr()
        lines = errors.splitlines()
        assert code == 2
        assert output == ""
        assert after or len(lines) == 1, errors
        assert lines[-1].startswith("bert-keras: ")
        assert errors.count("bert-keras: ") == 1
        return lines[-1]

    return fail


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Return a function that sets standard input."""

    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give


def objects(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_train(run: Run, spam_file: Path, encoder_folder: Path, tmp_path: Path) -> None:
    output = run(
        *("train", "classification", "--encoder", encoder_folder),
        *("--train", spam_file, "--dev", spam_file, "--test", spam_file),
        *("--output", tmp_path / "model", "--epochs", 1, "--batch-size", 6),
        *("--learning-rate", "2e-3", "--max-length", 20, "--seed", 3),
        *("--set", "class_weights=balanced", "--layout", "padded"),
        *("--slice", "label"),
    )
    assert "dev:" in output and "test:" in output and "Macro F1" in output
    assert str(tmp_path / "model" / "report.html") in output
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["bert_keras"]["preprocessing"]["max_length"] == 20
    assert config["bert_keras"]["preprocessing"]["layout"] == "padded"
    assert config["bert_keras"]["settings"]["class_weights"] == "balanced"
    page = (tmp_path / "model" / "report.html").read_text()
    assert "bert-keras train classification --encoder" in page
    assert "Accuracy by label" in page and "Accuracy by length in tokens" in page


@pytest.mark.parametrize(("method", "is_told"), [("finetune", True), ("linear", False)])
def test_bfloat16_is_suggested_where_weights_are_updated(
    spam_file: Path,
    encoder_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    method: str,
    is_told: bool,
) -> None:
    report = {"settings": {"method": method}}
    found = types.SimpleNamespace(scores={}, folder=tmp_path, report=report)
    monkeypatch.setattr(training, "train", lambda *_, **__: found)
    monkeypatch.setattr("bert_keras.runs.environment.computes_bfloat16", lambda: True)
    command = ["train", "classification", "--train", str(spam_file)]
    command += ["--encoder", str(encoder_folder), "--output", str(tmp_path / "new")]
    main(command)
    assert ("can compute in bfloat16" in capfd.readouterr().err) == is_told


def test_train_by_column_numbers_without_header(
    encoder_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def train(task: object, **given: Any) -> None:
        seen.update(given)
        raise ConfigError("seen")

    monkeypatch.setattr(training, "train", train)
    path = write_tsv(tmp_path / "rows.tsv", [(label, text) for text, label in ROWS])
    words = [
        *("train", "classification", "--encoder", encoder_folder, "--train", path),
        *("--label", 0, "--text", 1, "--header", "no", "--output", tmp_path / "model"),
    ]
    assert main([str(word) for word in words]) == 2
    assert seen["train"] == str(path)
    assert seen["columns"] == {"text": "1", "label": "0"}
    assert (seen["header"], seen["dev"]) == ("no", None)


def test_every_setting_of_training_has_an_option() -> None:
    words = ["train", "t", "--encoder", "e", "--train", "f", "--output", "o"]
    given = {
        "epochs": 5,
        "patience": 2,
        "batch_size": 7,
        "learning_rate": 0.5,
        "dropout": 0.25,
        "warmup_ratio": 0.25,
        "weight_decay": 0.125,
        "global_clipnorm": 0.75,
        "max_length": 9,
        "truncation": "only_first",
        "layout": "padded",
        "method": "linear",
        "validation_split": 0.75,
        "seed": 1,
        "precision": "mixed_bfloat16",
        "strategy": "single",
        "accumulation": 7,
        "optimizer": "lamb",
        "freeze_layers": 2,
        "lora_rank": 3,
        "checkpoint_every": "epoch",
        "keep": 4,
        "on_nonfinite": "skip",
        "restarts": 6,
        "tensorboard": "d",
        "track": "mlflow",
        "new_learning_rate": 0.5,
        "explain_mistakes": 8,
        "keep_layers": "0,2",
        "teacher": "m",
        "student": "1/8/2",
        "distill": "hidden",
        "temperature": 4,
        "distill_weight": 0.25,
        "augment": 5,
        "opens_in": "transformers",
    }
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    words += ["--rematerialize", "--no-card", "--linear-probe"]
    options = vars(parser().parse_args(words))
    assert {name: options[name] for name in given} == given
    flags = {"rematerialize": True, "card": False, "linear_probe": True}
    assert {name: options[name] for name in flags} == flags
    names = set(TrainConfig.__dataclass_fields__)
    assert names == {*given, *flags, "add_tokens"}


def test_evaluate(run: Run, spam_folder: Path, spam_file: Path) -> None:
    table = run("evaluate", spam_folder, spam_file)
    assert "Accuracy" in table and "promo" in table
    scores = json.loads(run("evaluate", spam_folder, spam_file, "--json"))
    assert scores["accuracy"] == 1.0
    assert set(scores["per_class"]) == {"ham", "promo", "spam"}


def test_evaluate_by_slice(
    run: Run, fail: Fail, spam_folder: Path, spam_file: Path
) -> None:
    words = ("evaluate", spam_folder, spam_file, "--slice")
    scores = json.loads(run(*words, "label", "--json"))["by label"]
    assert list(scores) == ["ham", "spam", "promo"]
    assert set(scores["ham"]) == {"rows", "accuracy", "low", "high"}
    assert scores["ham"]["rows"] == 4
    assert "By label" in run(*words, "label")
    assert "channel" in fail(*words, "channel")


def test_compare_runs(run: Run, fail: Fail, spam_folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(spam_folder, tmp_path / "other")
    page = tmp_path / "page.html"
    assert str(page) in run("compare", spam_folder, other, "--output", page)
    assert "Scores on dev" in page.read_text("utf-8")
    assert "two or more" in fail("compare", other, "--output", page)


def test_predict_texts_of_the_command(run: Run, spam_folder: Path) -> None:
    rows = objects(run("predict", spam_folder, "free cash prize!", "日本 é", ""))
    assert [row["text"] for row in rows] == ["free cash prize!", "日本 é", ""]
    assert rows[0]["label"] == "spam"
    assert sum(rows[1]["probabilities"].values()) == pytest.approx(1)


@pytest.mark.parametrize("data", [b"", b"text\tlabel\n"])
def test_predict_a_file_without_rows(
    capfd: pytest.CaptureFixture[str], spam_folder: Path, tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "none.tsv").write_bytes(data)
    assert (
        main(["predict", str(spam_folder), "--input", str(tmp_path / "none.tsv")]) == 0
    )
    output, errors = capfd.readouterr()
    assert output == ""
    assert "none.tsv: " in errors and "nothing to answer" in errors


def test_predict_writes_letters_as_they_are(run: Run, spam_folder: Path) -> None:
    assert '"日本 é"' in run("predict", spam_folder, "日本 é")


def test_predict_bytes_that_are_not_utf8(run: Run, spam_folder: Path) -> None:
    (row,) = objects(run("predict", spam_folder, "free \udcff cash"))
    assert row["text"] == "free \ufffd cash"


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_predict_a_file(run: Run, spam_folder: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    lines = {
        "rows.csv": 'id,mail\n1,free cash\n2,"see you"\n',
        "rows.jsonl": '{"id": 1, "mail": "free cash"}\n{"mail": "see you"}\n',
    }
    path.write_text(lines[name])
    rows = objects(run("predict", spam_folder, "--input", path, "--text", "mail"))
    assert [row["text"] for row in rows] == ["free cash", "see you"]


@pytest.mark.parametrize(("batch_size", "is_told"), [(2, True), (3, False)])
def test_predict_lines_of_standard_input(
    spam_folder: Path,
    stdin: Callable[[bytes], None],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    batch_size: int,
    is_told: bool,
) -> None:
    monkeypatch.setattr("bert_keras.runs.environment.computes_bfloat16", lambda: True)
    stdin("free cash\r\n\né 日本".encode())
    assert main(["predict", str(spam_folder), f"--batch-size={batch_size}"]) == 0
    output, notes = capfd.readouterr()
    assert [row["text"] for row in objects(output)] == ["free cash", "", "é 日本"]
    # Graphs in 16 bits are worth making for several batches.
    assert ("can compute in bfloat16" in notes) == is_told


EMPTY = {
    "a.csv": 'text\nfree cash\n""\n\nsee you\n',
    "a.tsv": "text\tn\nfree cash\t1\n\t2\n \t3\nsee you\t4\n",
    "a.txt": "text\nfree cash\n\n \nsee you\n",
    "a.jsonl": '{"text": "free cash"}\n{"text": ""}\n{"text": null}\n'
    '{"text": "see you"}\n',
    "stdin": "free cash\n\n \nsee you\n",
}


@pytest.mark.parametrize("name", EMPTY)
def test_predict_rows_without_a_text(
    run: Run, fail: Fail, spam_folder: Path, tmp_path: Path, stdin, name: str
) -> None:
    path = tmp_path / name
    path.write_text(EMPTY[name])
    stdin(EMPTY[name].encode())
    words = ["predict", spam_folder]
    words += [] if name == "stdin" else ["--input", path]
    rows = objects(run(*words))
    assert [bool(row["label"]) for row in rows] == [True, False, False, True]
    assert [row.get("reason") for row in rows] == [
        None,
        *["`text` is empty"] * 2,
        None,
    ]
    assert rows[1]["score"] is None and set(rows[1]) == {*rows[0], "reason"}
    stdin(EMPTY[name].encode())
    run(*words, "--output", tmp_path / "b.csv")
    with open(tmp_path / "b.csv", encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["reason"] for row in table] == ["", *["`text` is empty"] * 2, ""]
    stdin(EMPTY[name].encode())
    line = 2 if name in ("stdin", "a.jsonl") else 3
    error = fail(*words, "--on-empty", "error")
    assert f"{name}:{line}: " in error and "`text`" in error


def test_a_text_that_names_a_file_is_told(
    spam_folder: Path, tmp_path: Path, capfd: Any
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(EMPTY["a.csv"])
    assert main(["predict", str(spam_folder), str(path)]) == 0
    output, errors = capfd.readouterr()
    assert objects(output)[0]["text"] == str(path)
    assert "is read as a text; --input reads a file" in errors


def test_a_terminal_gets_the_best_classes_and_four_digits(
    run: Run, spam_folder: Path, capfd: Any, monkeypatch: Any
) -> None:
    words = ("predict", spam_folder, "win cash now")
    (whole,) = objects(run(*words))  # of a pipe
    ranked = sorted(whole["probabilities"].items(), key=lambda each: -each[1])
    assert len(ranked) == 3
    (one,) = objects(run(*words, "--top", 1))
    assert one == {**whole, "probabilities": dict(ranked[:1])}
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(prediction, "_TOP", 2)
    assert main(list(map(str, words))) == 0
    output, errors = capfd.readouterr()
    (shown,) = objects(output)
    best = {name: float(f"{value:.4g}") for name, value in ranked[:2]}
    assert list(shown["probabilities"].items()) == list(best.items())
    assert shown["score"] == float(f"{whole['score']:.4g}") != whole["score"]
    assert (
        "only the 2 best alternatives of each answer are shown (--top 0: all)" in errors
    )
    assert len(objects(run(*words, "--top", 0))[0]["probabilities"]) == 3


def test_a_bad_row_after_answers(
    spam_folder: Path, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    """Rows are answered while the file is read; a file of answers is whole or none."""
    monkeypatch.setattr(answered_rows, "_ROWS_AT_ONCE", 2)
    monkeypatch.setattr(answered_rows, "BATCHES_TOGETHER", 1)
    path, output = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("text,n\nfree cash,1\nsee you,2\nlunch,3\nsale,4\nbad\n")
    words = ["predict", spam_folder, "--input", path, "--batch-size", "2"]
    assert main([str(word) for word in words]) == 2
    found = capfd.readouterr()
    texts = [json.loads(line)["text"] for line in found.out.splitlines()]
    assert texts == ["free cash", "see you", "lunch", "sale"]
    assert found.err.splitlines()[-1].endswith(
        "a.csv:6: has 1 column where the first row has 2 (read as CSV); the 4 rows "
        "before it are answered"
    )
    assert main([str(word) for word in [*words, "--output", output]]) == 2
    assert "are answered" not in capfd.readouterr().err and not output.exists()


def test_rows_with_a_problem_are_left_out_on_request(
    capfd: pytest.CaptureFixture[str], fail: Fail, spam_folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text,label\nfree cash,spam\n,ham\nsee you,ham\nx\n")
    words = ["evaluate", str(spam_folder), str(path), "--json"]
    assert "2 bad lines: line 3: `text` (column 0) is empty" in fail(*words)
    assert main([*words, "--bad-rows", "skip", "--slice", "label"]) == 0
    output, errors = capfd.readouterr()
    assert json.loads(output)["num_examples"] == 2
    assert "left out 2 of 4 rows, which are wrong: line 3 `text`" in errors


def test_predict_nothing(run: Run, spam_folder: Path, stdin) -> None:
    stdin(b"")
    assert run("predict", spam_folder) == ""


def test_predict_pairs(run: Run, pair_folder: Path, stdin) -> None:
    stdin(b"free cash\twin\nsee you\t\n")
    from_input = objects(run("predict", pair_folder))
    assert [(row["text_a"], row["text_b"]) for row in from_input] == [
        ("free cash", "win"),
        ("see you", ""),
    ]
    words = ("free cash", "win", "see you", "")
    # A few texts are answered without a graph, so that numbers differ by rounding.
    for row, wanted in zip(
        objects(run("predict", pair_folder, *words)), from_input, strict=True
    ):
        assert row["score"] == pytest.approx(wanted["score"], abs=1e-5)
        kept = ("text_a", "text_b", "label")
        assert [row[key] for key in kept] == [wanted[key] for key in kept]


def test_predict_pairs_with_a_tab_on_the_command_line(
    run: Run, pair_folder: Path
) -> None:
    one = objects(run("predict", pair_folder, "free cash\twin"))
    assert one == objects(run("predict", pair_folder, "free cash", "win"))
    rows = objects(run("predict", pair_folder, "free cash\twin", "see you\t"))
    assert [(row["text_a"], row["text_b"]) for row in rows] == [
        ("free cash", "win"),
        ("see you", ""),
    ]
    # One of two texts may hold a tab.
    (row,) = objects(run("predict", pair_folder, "free cash", "win\tnow"))
    assert (row["text_a"], row["text_b"]) == ("free cash", "win\tnow")


def test_predict_a_tab_too_many(fail: Fail, pair_folder: Path) -> None:
    line = fail("predict", pair_folder, "a\tb", "a\tb\tc")
    assert "TEXT:2: must hold two texts separated by a tab; holds 3" in line


def test_columns_without_a_file_are_an_error(fail: Fail, spam_folder: Path) -> None:
    for option in (("--text", "body"), ("--header", "no"), ("--text-pair", 1)):
        line = fail("predict", spam_folder, "free cash", *option)
        assert "columns need `--input`" in line


def test_what_is_piped_is_taken_as_it_comes() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as file:
        piped = Lines(file)
        found = batches(piped, 3, piped.wait)
        os.write(writing, b"one\ntwo\nthr")
        assert next(found) == ["one", "two"]
        os.write(writing, b"ee\r\nfour\nfive\nsix\n\n")
        assert next(found) == ["three", "four", "five"]
        assert next(found) == ["six", ""]
        os.write(writing, b"last")
        os.close(writing)
        assert list(found) == [["last"]]


def test_a_large_file_is_taken_in_whole_batches(tmp_path: Path) -> None:
    lines = [f"line {number} é" for number in range(50_000)]
    (tmp_path / "texts").write_text("\n".join(lines), encoding="utf-8")
    with open(tmp_path / "texts", "rb") as file:
        piped = Lines(file)
        found = list(batches(piped, 1024, piped.wait))
    assert [len(batch) for batch in found[:-1]] == [1024] * (len(found) - 1)
    assert [text for batch in found for text in batch] == lines


def test_predict_pairs_of_a_file(run: Run, pair_folder: Path, tmp_path: Path) -> None:
    path = write_tsv(tmp_path / "p.tsv", [("text", "text_pair"), ("free", "win")])
    (row,) = objects(run("predict", pair_folder, "--input", path))
    assert (row["text_a"], row["text_b"]) == ("free", "win")


def test_export_and_info(run: Run, spam_folder: Path, tmp_path: Path) -> None:
    served = tmp_path / "served"
    assert run("export", spam_folder, served) == f"{served / '1'}\n"
    assert "serving_default" in run("info", served)
    facts = json.loads(run("info", served / "1", "--json"))
    assert facts["classes"] == "ham, promo, spam"


@pytest.mark.thorough
def test_export_in_bfloat16_tells_size_and_scores(
    spam_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [("text", "label"), *ROWS, ("win cash " * 99, "spam")]
    dev = write_tsv(tmp_path / "dev.tsv", rows)
    words = ["export", spam_folder, tmp_path / "half", "--dev", dev]
    assert main([*map(str, words), "--precision", "mixed_bfloat16"]) == 0
    output, notes = capfd.readouterr()
    assert output == f"{tmp_path / 'half' / '1'}\n"
    assert "mixed_bfloat16: " in notes and " MB in float32" in notes
    assert notes.count("\n  Accuracy ") == 2 and notes.count("is truncated to") == 1


def test_info_of_the_machine(run: Run, fail: Fail, spam_folder: Path) -> None:
    facts = json.loads(run("info", "--machine", "--json"))
    assert {"processor", "tensorflow", "avx2", "amx_bf16"} <= set(facts)
    assert "--machine" in fail("info", spam_folder, "--machine")
    assert "--machine" in fail("info")


def test_info_of_a_model_folder(run: Run, spam_folder: Path) -> None:
    assert "model folder" in run("info", spam_folder)
    assert json.loads(run("info", spam_folder, "--json"))["hidden_size"] == 16


def test_tasks(run: Run) -> None:
    lines = run("tasks").splitlines()
    assert [line.split()[0] for line in lines] == list(TASKS)


def test_convert(run: Run, spam_folder: Path, tmp_path: Path) -> None:
    assert run("convert", spam_folder, tmp_path / "out") == f"{tmp_path / 'out'}\n"
    assert (tmp_path / "out" / "model.safetensors").is_file()
    assert "Converted from `spam`" in (tmp_path / "out" / "README.md").read_text()
    run("convert", spam_folder, tmp_path / "bare", "--no-card")
    assert not (tmp_path / "bare" / "README.md").exists()


def test_convert_to_another_format(run: Run, spam_folder: Path, tmp_path: Path) -> None:
    run("convert", spam_folder, tmp_path / "out", "--to", "google")
    assert (tmp_path / "out" / "bert_model.ckpt.index").is_file()


def test_convert_a_google_checkpoint(run: Run, tmp_path: Path) -> None:
    source = SHARED / "data" / "tf1_ckpt_keras_bert"
    if not source.is_dir():
        pytest.skip("needs ../shared/data/tf1_ckpt_keras_bert")
    run("convert", source, tmp_path / "out")
    facts = json.loads(run("info", tmp_path / "out", "--json"))
    assert facts["architecture"] == "BertForPreTraining"


BAD_FILES = {
    "absent": (None, "no such file"),
    "empty": (b"", "is empty"),
    "header only": (b"text\tlabel\n", "no rows"),
    "column missing": (
        b"text\tclass\na\tham\n",
        "has no column `label`; it has `text`, `class`; "
        "to read another column: --label class (in Python `columns`)",
    ),
    "columns missing": (
        b"message\tclass\na\tham\n",
        "to read other columns: --text message --label class (in Python `columns`)",
    ),
    "not UTF-8": (b"text\tlabel\ns\xc3\xa9\tham\n\xff\tham\n", ":3: must be UTF-8"),
    "other width": (b"text\tlabel\na\tham\nb\tham\tmore\n", ":3: has 3 columns"),
    "empty cell": (b"text\tlabel\na\tham\n\tham\n", ":3: `text`"),
    "unknown label": (b"text\tlabel\na\tham\nb\teggs\n", ":3: `label` must be one of"),
}


@pytest.fixture(params=BAD_FILES)
def bad_file(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    """Return a file of labelled rows that is broken, and what is wrong with it."""
    data, part = BAD_FILES[request.param]
    path = tmp_path / "bad.tsv"
    if data is not None:
        path.write_bytes(data)
    return path, part


def test_evaluate_a_bad_file(
    fail: Fail, spam_folder: Path, bad_file: tuple[Path, str]
) -> None:
    path, part = bad_file
    line = fail("evaluate", spam_folder, path)
    assert str(path) in line and part in line


def test_train_with_a_bad_dev_file(
    fail: Fail,
    spam_file: Path,
    encoder_folder: Path,
    tmp_path: Path,
    bad_file: tuple[Path, str],
) -> None:
    path, part = bad_file
    line = fail(
        *("train", "classification", "--encoder", encoder_folder),
        *("--train", spam_file, "--dev", path, "--output", tmp_path / "model"),
    )
    assert str(path) in line and part in line
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ([], {}),
        (["a/b.tsv"], {"test": "a/b.tsv"}),
        (["near=a.tsv"], {"near": "a.tsv"}),
        (["a/m.tsv.gz", "mm=b.tsv"], {"m": "a/m.tsv.gz", "mm": "b.tsv"}),
    ],
)
def test_names_of_test_files(given: list[str], wanted: dict[str, str]) -> None:
    assert dict(named_tests(given)) == wanted


def test_a_file_with_an_equals_sign(tmp_path: Path) -> None:
    (tmp_path / "lr=1.tsv").touch()
    path = str(tmp_path / "lr=1.tsv")
    assert named_tests([path]) == [("test", path)]


@pytest.mark.parametrize("given", [["a.tsv", "b/a.tsv"], ["=a.tsv"], ["a="]])
def test_names_of_test_files_that_are_none(given: list[str]) -> None:
    refused(lambda: named_tests(given), "`--test`", given[-1])


@pytest.fixture
def right(spam_file: Path, encoder_folder: Path, tmp_path: Path) -> list[object]:
    """Return the words of a training command that is right."""
    return [
        *("train", "classification", "--encoder", encoder_folder, "--train", spam_file),
        *("--dev", spam_file, "--output", tmp_path / "model"),
    ]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--epochs", "0"), "`epochs`"),
        (("--epochs", "many"), "--epochs"),
        (("--epochs", "99999999999999999999"), "`epochs` must be a whole number of at"),
        (("--checkpoint-every", "0s"), "seconds such as 300s, a number of updates"),
        (("--seeds", "99999999999"), "of at most 2147483647"),
        (("--learning-rate", "1e400"), "`learning_rate`"),
        (("--warmup-ratio", "nan"), "`warmup_ratio`"),
        (("--max-length", "0", "--encoder", "nowhere"), "`max_length`"),
        (("--batch-size", "-3"), "`batch_size`"),
        (("--learning-rate", "nan"), "`learning_rate`"),
        (("--learning-rate", "fast"), "--learning-rate"),
        (("--seed", "-1"), "`seed`"),
        (("--precision", "float8"), "--precision"),
        (("--truncation", "middle"), "--truncation"),
        (("--set", "class_weights=some"), "`class_weights`"),
        (("--max-length", "2"), "`max_length`"),
        (("--text", "body"), "`body`"),
        (("--text-pair", "other"), "`other`"),
        (
            ("--column", "txt=label"),
            "a role of `columns` must be one of text, text_pair, label; received txt",
        ),
        (("--colour", "red"), "unknown option --colour"),
        (("--learning-rat", "1", "--epoch=2", "--optimiser", "x"), "--optimizer?"),
        (("--precision", "bfloat16"), "did you mean mixed_bfloat16?"),
    ],
)
def test_bad_options(
    fail: Fail, right: list[object], words: tuple[str, str], part: str
) -> None:
    assert part in fail(*right, *words)
    assert not Path(str(right[-1])).exists()


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("fly",), "VERB must be one of train, evaluate, "),
        (("tain",), "received tain; did you mean train?"),
        (("train", "t", "--encodr", "e"), "--encodr; did you mean --encoder?"),
        (("train", "classification"), "required: --train"),
        (("evaluate", "nowhere"), "FILE"),
        (("evaluate", "nowhere", "rows.tsv"), "nowhere: no such folder"),
        (("predict", "nowhere", "text"), "nowhere: no such folder"),
        (("predict", "m", "text", "--batch-size", "0"), "at least 1; received 0"),
        (("predict", "m", "text", "--batch-size", "x"), "at least 1; received x"),
        (("export", "nowhere", "served"), "nowhere: no such folder"),
        (("convert", "nowhere", "out"), "nowhere: no such folder"),
        (("info", "nowhere"), "nowhere: no such folder"),
        (("info", "hf://not a name"), "hf://"),
    ],
)
def test_bad_commands(
    fail: Fail, words: tuple[str, ...], part: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert part in fail(*words)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "name", ["nothing", "no.such.module:Task", ":Task", "json:JSONDecoder", ".a:B"]
)
def test_a_task_that_is_none(fail: Fail, right: list[object], name: str) -> None:
    assert "`task`" in fail("train", name, *right[2:])


def test_an_encoder_that_misses_weights(
    fail: Fail, right: list[object], tmp_path: Path, encoder_folder: Path
) -> None:
    from safetensors.numpy import load_file, save_file

    broken = Path(shutil.copytree(encoder_folder, tmp_path / "broken"))
    arrays = load_file(broken / "model.safetensors")
    lost = next(name for name in arrays if "layer.1.attention.self.key.weight" in name)
    del arrays[lost]
    save_file(arrays, broken / "model.safetensors", {"format": "pt"})
    right[3] = broken
    line = fail(*right, "--max-length", 20, after=True)
    assert "1 missing (bert/encoder/layer_1/attention/self/key/kernel)" in line


def test_a_vocabulary_of_another_size(
    fail: Fail, right: list[object], tmp_path: Path, encoder_folder: Path
) -> None:
    broken = Path(shutil.copytree(encoder_folder, tmp_path / "broken"))
    with open(broken / "vocab.txt", "a") as file:
        file.write("extra\n")
    right[3] = broken
    assert "`vocab_size`" in fail(*right, "--max-length", 20, after=True)


def test_an_odd_number_of_texts_for_pairs(fail: Fail, pair_folder: Path) -> None:
    assert "an even number" in fail("predict", pair_folder, "a", "b", "c")


def test_a_line_of_standard_input_without_tab(
    fail: Fail, pair_folder: Path, stdin
) -> None:
    stdin(b"only one\n")
    assert "stdin:1: must hold two texts" in fail("predict", pair_folder)


def test_standard_input_that_is_not_utf8(fail: Fail, spam_folder: Path, stdin) -> None:
    stdin(b"fine\n\xff\n")
    assert fail("predict", spam_folder).endswith(
        "stdin:2: must be UTF-8; byte 0xff is not"
    )


def test_texts_and_a_file(fail: Fail, spam_folder: Path, spam_file: Path) -> None:
    line = fail("predict", spam_folder, "text", "--input", spam_file)
    assert "cannot both be given" in line


def test_an_export_onto_a_file(fail: Fail, spam_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "served").write_text("mine")
    line = fail("export", spam_folder, tmp_path / "served")
    assert line.endswith("served: cannot be written: File exists")
    assert files_of(tmp_path) == {"served": b"mine"}


def test_a_model_whose_answers_are_not_finite(
    fail: Fail, make_model: Callable[..., Any], spam_file: Path, tmp_path: Path
) -> None:
    model = make_model(Classification(("ham", "promo", "spam")))
    kernel = model.get_layer("classifier").kernel
    kernel.assign(np.full(kernel.shape, 3e38, "float32"))
    folder = save_model(model, tmp_path / "huge")
    assert "not finite" in fail("predict", folder, "win cash")
    assert "not finite" in fail("evaluate", folder, spam_file, "--json")


@pytest.mark.parametrize("name", ["ResourceExhaustedError", "MemoryError"])
def test_too_little_memory(
    fail: Fail, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = type(name, (Exception,), {})

    def exhausted(options: object) -> None:
        raise error("OOM when allocating\na tensor")

    monkeypatch.setitem(tasks_verb.VERBS, "tasks", (tasks_verb.add_tasks, exhausted))
    assert "not enough memory" in fail("tasks")


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(options: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setitem(tasks_verb.VERBS, "tasks", (tasks_verb.add_tasks, broken))
    with pytest.raises(RuntimeError):
        main(["tasks"])


def command(*words: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "bert_keras", *map(str, words)],
        cwd=ROOT,
        text=True,
        **settings,
    )


def test_a_mistake_is_one_line_and_code_2(tmp_path: Path) -> None:
    done = command("evaluate", tmp_path / "nowhere", "rows.tsv", capture_output=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"bert-keras: {tmp_path / 'nowhere'}: no such folder\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_answers_that_cannot_be_written(unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = command("tasks", stdout=full, stderr=subprocess.PIPE, env=environment)
    assert done.returncode == 2
    assert done.stderr == "bert-keras: No space left on device\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough(unbuffered: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = command("tasks", stdout=writing, stderr=subprocess.PIPE, env=environment)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_caller_keeps_its_standard_output() -> None:
    script = """
import sys
from bert_keras.cli import main as cli, tasks

def full(options):
    raise OSError(28, "No space left on device", "a/file")

def pipe(options):
    raise BrokenPipeError(32, "Broken pipe")  # of something else than our output

for verb in (full, pipe):
    tasks.VERBS["tasks"] = (tasks.add_tasks, verb)
    assert cli.main(["tasks"]) == 2
    print("here still")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, text=True, capture_output=True
    )
    assert done.stdout == "here still\n" * 2, done.stderr
    assert done.stderr.splitlines() == [
        "bert-keras: a/file: No space left on device",
        "bert-keras: Broken pipe",
    ]
    assert done.returncode == 0


def test_scores_of_any_task_are_aligned() -> None:
    from bert_keras.report.terminal import score_table

    scores = {
        "num_examples": 1234,
        "rouge1": 0.5,
        "exact": True,
        "note": "a word",
        "baselines": {
            "lead_3": {"rouge1": 0.25, "mean_absolute_error": 2},
            "oracle": {"rouge1": 1.0},
        },
        "by_length": {"short": 0.5, "long": 7},
        "confusion_matrix": [[1, 2], [3, 4]],
        "empty": {},
        "ndcg_at_10": 0.25,
        "intervals": {"ndcg_at_10": {"low": 0.0, "high": 0.5}},
        "weights": {"0.5": {"ndcg_at_10": 1.0, "ndcg_at_10_on_other_half": 0.5}},
    }
    assert score_table(scores).splitlines() == [
        "  Number of examples               1,234",
        "  ROUGE-1                         0.5000",
        "  NDCG@10                         0.2500",
        "  Note                          a word",
        "  Baselines                       ROUGE-1  Mean absolute error",
        "  lead_3                           0.2500                    2",
        "  oracle                           1.0000                    -",
        "  By length",
        "  short                            0.5000",
        "  long                                  7",
        "  Intervals                           Low       High",
        "  NDCG@10                          0.0000     0.5000",
        "  Weights                         NDCG@10  NDCG@10 on other half",
        "  0.5                              1.0000                 0.5000",
    ]
    many = {f"class {i}": {"f1": 0.5} for i in range(43)}
    lines = score_table({"classes": many}).splitlines()
    assert lines[-2:] == [f"  {'class 39':<28}     0.5000", "  and 3 more rows"]
    assert len(lines) == 42


def test_the_worst_classes_are_shown_first() -> None:
    """Of 77 classes, the first letters of the alphabet were shown, and 37 not."""
    from bert_keras.report.terminal import score_table

    columns = ("precision", "recall", "f1", "support")
    rows = [(f"class {i:02}", (0.5, 0.5, (i * 37 % 77) / 77, 9)) for i in range(76)]
    rows.append(("absent", (0.0, 0.0, 0.0, 0)))
    table = {name: dict(zip(columns, row, strict=True)) for name, row in rows}
    lines = score_table({"per_class": table}).splitlines()
    assert lines[0].split() == [
        "Per",
        "class,",
        "worst",
        "first",
        "Precision",
        "Recall",
        "F1",
        "Support",
    ]
    assert [line.split()[1] for line in lines[1:4]] == ["00", "25", "50"]
    assert lines[1].split()[2:] == ["0.5000", "0.5000", "0.0000", "9"]
    assert lines[-1] == "  and 57 classes that are better or have no rows"
    assert len(lines) == 22
    few = {"a": table["class 01"], "absent": table["absent"], "b": table["class 00"]}
    names = [line.split()[0] for line in score_table({"per_class": few}).splitlines()]
    assert names == ["Per", "b", "a", "absent"]
    assert score_table({"per_class": few}).endswith(
        "-          -          -          0"
    )


@pytest.fixture(scope="module")
def help_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [("id", "what"), *((str(i), text) for i, (text, _) in enumerate(ROWS))]
    return write_tsv(tmp_path_factory.mktemp("help") / "help.tsv", rows)


def test_explain_writes_a_page_and_numbers(
    run: Run, spam_folder: Path, spam_file: Path, tmp_path: Path
) -> None:
    page, numbers = tmp_path / "page.html", tmp_path / "numbers.jsonl"
    options = ("--method", "occlusion", "--target", "spam", "--against", "ham")
    printed = run("explain", spam_folder, "free cash", "--output", page, *options)
    assert printed == f"{page}\n"
    told = page.read_text("utf-8")
    assert "spam" in told and "True label" not in told
    assert f"Answers of the model {spam_folder}." in told
    assert "is the number for the same text with [PAD] in place of each word" in told
    given = ("explain", spam_folder, "--input", spam_file, *options)
    run(*given, "--output", numbers)
    rows = objects(numbers.read_text("utf-8"))
    assert [row["label"] for row in rows] == [label for _, label in ROWS]
    assert {row["model"] for row in rows} == {str(spam_folder)}
    assert rows[0]["targets"][0]["against"] == "ham"
    run(*given, "--output", page, "--baseline", "mask", "--label", "text")
    told = page.read_text("utf-8")
    assert f"True label</span> {ROWS[0][0]} " in told and "with [MASK] in place" in told


def test_explain_shows_the_mistakes_of_a_file(
    run: Run, fail: Fail, spam_folder: Path, tmp_path: Path
) -> None:
    told = run("predict", spam_folder, "win cash now", "see you at six")
    right = [row["label"] for row in objects(told)]
    wrong = next(name for name in ("ham", "spam") if name != right[1])
    page, file = tmp_path / "page.html", tmp_path / "rows.tsv"
    given = ("explain", spam_folder, "--method=occlusion", "--output", page)

    def write(*labels: str) -> tuple[object, ...]:
        texts = ("win cash now", "see you at six")
        write_tsv(file, [("text", "is"), *zip(texts, labels, strict=True)])
        return (*given, "--input", file, "--mistakes=5")

    wanted = write(*right)
    printed = run(*wanted, "--label=is")
    assert printed == f"no mistake in {file}: nothing is written\n"
    assert not page.exists()
    assert run(*write(right[0], wrong), "--label=is") == f"{page}\n"
    told = page.read_text("utf-8")
    assert told.count("<article>") == 1 and "Line 3</span>" in told
    assert f"True label</span> {wrong} " in told
    for options, part in (
        (wanted, "`label`"),
        ((*given, "hi", "--mistakes=5"), "`--mistakes` needs `--input`"),
        ((*wanted, "hi"), "`--mistakes` needs `--input`, a file with labels, and no"),
        ((*wanted, "--view=map"), "`--mistakes` is for --view words"),
    ):
        assert part in fail(*options)


@pytest.mark.slow
def test_explain_shows_attention_and_a_map(
    run: Run, spam_folder: Path, spam_file: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    run("explain", spam_folder, "free\tcash", "--view", "attention", "--output", page)
    assert '["[CLS]", "free", "[SEP]", "cash", "[SEP]"]' in page.read_text("utf-8")
    wanted = ("--view", "map", "--input", spam_file, "--output", page)
    run("explain", spam_folder, *wanted, "--label", "label")
    assert '"names": ["ham", "promo", "spam"]' in page.read_text("utf-8")
    run("explain", spam_folder, *wanted)
    assert "see you at six" in page.read_text("utf-8")


def test_explain_names_what_is_wrong(
    fail: Fail, spam_folder: Path, spam_file: Path, tmp_path: Path
) -> None:
    told = fail("explain", spam_folder, "hi", "--output=p.html", "--target=x")
    assert "`target` must be one of ham, promo, spam" in told
    told = fail("explain", spam_folder, "--input", spam_file, "--output", spam_file)
    assert "`output`" in told
    told = fail(
        "explain", spam_folder, "hi", "--view=map", "--target=x", "--output=p.html"
    )
    assert "`--target` is for --view words" in told
    tsv = write_tsv(tmp_path / "p.tsv", [("text", "text_pair"), ("a", "b"), ("c", "d")])
    for options, part in (
        (["--view=map", "--input", tsv], "has a second text, `text_pair`"),
        (["--view=map", "--input", tsv, "--text-pair=text_pair"], "`--text-pair` is"),
        (["--view=map", "hi", "--set", "top_k=1"], "`--set` is for --view words"),
        (["--view=attention", "hi", "--projection=tsne"], "is for --view map"),
        (["hi", "--label=label"], "columns need `--input`, which is not given"),
        (
            ["hi", "--set", "positive_class=spam"],
            "on answers: it is for scores",
        ),
        (["hi", "", "--method=occlusion"], "TEXT:2: `text` is empty"),
    ):
        assert part in fail("explain", spam_folder, *options, "--output", "p.html")
    for view, output in (("words", "p.csv"), ("attention", "p.jsonl"), ("map", "p")):
        told = fail("explain", spam_folder, "hi", "--view", view, "--output", output)
        assert told.endswith(f" for --view {view}; received {output}")


def test_features_are_a_file(
    run: Run, encoder_folder: Path, help_file: Path, tmp_path: Path
) -> None:
    output = tmp_path / "features.npz"
    options = ("--text", "what", "--layers=-1,0", "--combine-layers", "concat")
    options += ("--pooling", "cls", "--normalize", "yes", "--output", str(output))
    line = run("features", encoder_folder, help_file, *options)
    assert line == f"{output}: 12 texts\n"
    with np.load(output) as stored:
        vectors = stored["embeddings"]
    assert vectors.shape == (12, 32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_features_of_layers_that_are_not_there(
    fail: Fail, encoder_folder: Path, help_file: Path, tmp_path: Path
) -> None:
    output = ("--output", tmp_path / "features.npz", "--text", "what")
    command = ("features", encoder_folder, help_file, *output, "--layers", "last-four")
    assert "`layers` must be different numbers from 0" in fail(*command, after=True)


def test_search_answers_one_object_a_line(
    run: Run, encoder_folder: Path, help_file: Path
) -> None:
    # A query stands before the options, another one behind them.
    command = ("search", encoder_folder, help_file, ROWS[3][0], "--text", "what")
    rows = objects(run(*command, "--top", 2, ROWS[8][0]))
    assert [list(row) for row in rows] == 4 * [["query", "rank", "score", "line", "id"]]
    assert [(row["query"], row["rank"]) for row in rows] == [
        *((1, 1), (1, 2), (2, 1), (2, 2))
    ]
    assert [row["line"] for row in rows[::2]] == [5, 10]
    (row,) = objects(run(*command, "--top", 1, "--with-text"))
    assert row["query_text"] == ROWS[3][0] and row["text"] == ROWS[3][0]


def test_search_reads_queries_from_standard_input(
    run: Run,
    encoder_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """225 queries gave 27.8 MB of texts, without names."""
    stdin = io.TextIOWrapper(io.BytesIO(b"lunch\n\nsale\n"))
    monkeypatch.setattr(sys, "stdin", stdin)
    file, found = tmp_path / "docs.csv", tmp_path / "found.csv"
    file.write_text("id,text\nA,lunch\nB,\nC,sale\nD, \n", "utf-8")
    command = ("search", encoder_folder, file, "--top", 1, "--skip-empty")
    assert run(*command, "--output", found) == ""
    lines = [line.split(",") for line in found.read_text("utf-8").splitlines()]
    assert lines[0] == ["query", "rank", "score", "line", "id", "reason"]
    wanted = [("1", "A", ""), ("2", "null", "`text` is empty"), ("3", "C", "")]
    assert [(line[0], *line[-2:]) for line in lines[1:]] == wanted


def test_search_without_a_query(
    fail: Fail, encoder_folder: Path, help_file: Path, stdin
) -> None:
    command = ("search", encoder_folder, help_file, "--text", "what")
    stdin(b"lunch\n \n")
    said = fail(*command, "--on-empty", "error", after=True)
    assert "stdin:2: `text` is empty" in said
    assert "`QUERY` must not be empty; received" in fail("search", "none", "f", "a", "")


@pytest.mark.parametrize("ending", [thorough("npz"), "parquet"])
@pytest.mark.slow
def test_features_are_an_index(
    encoder_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ending: str,
) -> None:
    """A Parquet file of `features` was refused, and `info` called it no checkpoint."""
    pytest.importorskip("pyarrow" if ending == "parquet" else "numpy")
    file, index = tmp_path / "docs.csv", tmp_path / f"index.{ending}"
    tokens = tmp_path / f"tokens.{ending}"

    def run(*command: object, status: int = 0) -> Any:
        assert main(list(map(str, command))) == status
        return capsys.readouterr()

    file.write_text('text\nlunch\n""\nsale\n', "utf-8")
    features = ("features", encoder_folder, file, "--skip-empty", "--output")
    assert "empty and left out: 1 of 3 texts" in run(*features, index).err
    written = index.read_bytes()
    search = ("search", encoder_folder, file, "lunch", "--skip-empty", "--index")
    said = run(*search, index, "--top", 1)
    assert "rebuilt" not in said.err and index.read_bytes() == written
    assert json.loads(said.out)["line"] == 2
    facts = json.loads(run("info", index, "--json").out)
    assert facts["kind"].startswith("index of vectors")
    assert (facts["texts"], facts["width"]) == (2, 16)
    assert facts["format"] == {"npz": 2, "parquet": "Parquet"}[ending]
    run(*features, tokens, "--level", "token")
    facts = json.loads(run("info", tokens, "--json").out)
    assert facts["kind"].startswith("vectors of tokens") and facts["tokens"] == 6
    assert "contains the vectors of tokens" in run(*search, tokens, status=2).err
    # `search` writes what `features` writes, and never replaces a Parquet file.
    first = read_vectors(index)
    index.unlink()
    run(*search, index)
    again = read_vectors(index)
    assert again.texts == first.texts
    stored = (each.packed.numbers(slice(None)) for each in (first, again))
    assert np.allclose(*stored, atol=1e-5)
    file.write_text("text\nlunch\n", "utf-8")
    if ending == "parquet":
        line = run(*search, index, status=2).err
        assert "vectors of other texts" in line and "another index" in line


def test_a_vocabulary_and_examples_of_a_corpus(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bert_keras.runs.progress._SECONDS_BETWEEN_LINES", -1.0)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("Low, lower, lowest.\n\nA new low, a newer one.\n\n" * 3)
    folder = tmp_path / "vocabulary"
    command = ["vocab", str(corpus), "--output", str(folder)]
    given = ["--reserved", "[unused0]", "--language", "de", "--workers", "2"]
    assert main([*command, "--size", "44", *given]) == 0
    printed = capsys.readouterr()
    assert printed.out.strip() == str(folder)
    assert "`--language` is not used" in printed.err
    assert "6 documents" in printed.err
    tokens = (folder / "vocab.txt").read_text(encoding="utf-8").split()
    assert tokens[:6] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]"]
    assert "low" in tokens and len(tokens) <= 44
    assert main([*command, "--size", "9"]) == 2
    assert "`size`" in capsys.readouterr().err

    data = tmp_path / "data"
    command = ["pretraining-data", str(corpus), "--vocab", str(folder)]
    command += ["--output", str(data), "--max-length", "16", "--dupe-factor", "2"]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == str(data)
    assert "Documents" in printed.out and "shards: " in printed.err
    assert "  Share of random second texts " in printed.out
    assert main([*command, "--output", str(tmp_path / "quiet"), "--quiet"]) == 0
    assert "shards: " not in capsys.readouterr().err
    manifest = json.loads((data / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["documents"] == 6
    assert manifest["settings"]["max_length"] == 16
    assert main([*command, "--seed", "7"]) == 2
    assert "`seed`: 42; received 7" in capsys.readouterr().err
    assert main([*command, "--mask-rate", "0"]) == 2
    assert "`mask_rate`" in capsys.readouterr().err


def test_pretraining_from_a_corpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, vocab, data, run = (tmp_path / n for n in ("c.txt", "vocab", "data", "run"))
    corpus.write_text("Low, lower, lowest.\n\nA new low, a newer one.\n\n" * 8)
    learn = ["vocab", str(corpus), "--output", str(vocab), "--size", "44"]
    write = ["pretraining-data", str(corpus), "--vocab", str(vocab), "--max-length"]
    assert main(learn) == main([*write, "16", "--output", str(data)]) == 0
    command = ["pretrain", "--data", str(data), "--output", str(run), "--steps", "3"]
    command += ["--batch-size", "4", "--held-out", str(data)]
    new = ["--size", "1/16/2", "--vocab", str(vocab)]
    capsys.readouterr()
    assert main([*command, *new, "--set", "hidden_dropout_prob=0"]) == 0
    printed = capsys.readouterr()
    assert f"model folder: {run / 'model'}" in printed.out
    assert "Perplexity" in printed.out
    assert "3 of 3 steps" in printed.err and "tokens/s" in printed.err
    config = json.loads((run / "model" / "config.json").read_text(encoding="utf-8"))
    assert config["hidden_size"] == 16 and config["hidden_dropout_prob"] == 0
    assert config["vocab_size"] == len((vocab / "vocab.txt").read_text().split())
    for words, told in (
        ([*new, "--size", "1/x/2"], "1/x/2"),
        (["--size", "tiny"], "`--vocab` must be given for a new model"),
        ([*new, "--set", "dropout=0"], "unknown key dropout"),
        ([*new, "--set", "a=1", "--set", "a=2"], "`--set` must give a once"),
        (["--encoder", str(run / "model"), "--set", "a=1"], "`--set` is for a new"),
        ([*new, "--accumulation", "3"], "`accumulation` must divide `batch_size`"),
        ([*new, "--encoder", "x"], "not allowed with argument"),
    ):
        assert main([*command, *words]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert told in lines[-1], lines


def test_every_setting_of_pretraining_has_an_option(
    tmp_path: Path,
) -> None:
    whole = parser(["pretrain"])
    words = ["pretrain", "--data", "d", "--output", "o", "--size", "tiny"]
    assert config_of(whole.parse_args(words), PretrainConfig) == PretrainConfig()
    given = {
        "steps": 10,
        "batch_size": 8,
        "accumulation": 2,
        "optimizer": "lamb",
        "learning_rate": 0.5,
        "warmup_ratio": 0.25,
        "dropout": 0.125,
        "weight_decay": 0.125,
        "global_clipnorm": 0.75,
        "objective": "causal",
        "next_sentence": "none",
        "mask_rate": 0.2,
        "mask_share": 0.5,
        "random_share": 0.25,
        "mask_unit": "word",
        "layout": "padded",
        "seed": 1,
        "precision": "mixed_bfloat16",
        "strategy": "single",
        "checkpoint_every": "9s",
        "keep": 4,
        "evaluate_every": 5,
        "held_out_examples": 6,
        "on_nonfinite": "skip",
        "keep_layers": "0,2",
        "teacher": "t",
        "distill": "hidden",
        "temperature": 3.0,
        "distill_weight": 0.25,
    }
    for name, value in given.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    words += ["--rematerialize", "--phase-shares", "0.5", "0.5"]
    lines = tmp_path / "words.txt"
    lines.write_text("covid\nlift\n")
    words += ["--add-tokens", str(lines)]
    config = config_of(whole.parse_args(words), PretrainConfig)
    others = {"rematerialize": True, "phase_shares": (0.5, 0.5)}
    others["add_tokens"] = ("covid", "lift")
    # A budget, and replaced tokens, take no steps and no teacher.
    others |= {"generator_share": 0.25, "discriminator_weight": 50.0}
    others |= {"hours": None, "minutes": None}
    assert dataclasses.asdict(config) == {**given, **others}
    for option, name, value in (
        ("--minutes", "minutes", 2),
        ("--hours", "minutes", 120),
        ("--generator-share", "generator_share", 0.5),
        ("--discriminator-weight", "discriminator_weight", 2.0),
    ):
        given = "0.5" if value == 0.5 else "2"
        words = [*words[:7], "--objective", "replaced-token", option, given]
        config = config_of(whole.parse_args(words), PretrainConfig)
        assert getattr(config, name) == value
