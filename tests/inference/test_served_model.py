"""A SavedModel asked as its model folder is, by `load` and by the example's script."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, refused
from task_cases import Case

from bert_keras.data.table import as_columns
from bert_keras.inference.embedder import embed
from bert_keras.inference.export import export_model
from bert_keras.inference.model_folder import save_model
from bert_keras.inference.predictor import Predictor, load
from bert_keras.inference.served_model import (
    ServedModel,
    _refuse_file_ops,
    find_saved_model,
)
from bert_keras.inference.warmup import WARMUP
from bert_keras.tasks import TASKS
from bert_keras.tasks.classification import Classification
from bert_keras.training.finetune import evaluate

SCRIPT = ROOT / "examples" / "ask_savedmodel.py"
EXTRA = Path("assets.extra") / "answers.json"


def case_of(name: str) -> Case:
    module = importlib.import_module(f"task_cases.{name.replace('-', '_')}")
    return next(iter(module.CASES.values()))


@dataclasses.dataclass(frozen=True)
class Exported:
    """An untrained model of a task and the folder of its versions."""

    case: Case
    model: Any
    folder: Path


@pytest.fixture(scope="module")
def exported(
    make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Exported]:
    """Return a function that exports a task's model, once."""
    folder, made = tmp_path_factory.mktemp("served"), {}

    def export(name: str) -> Exported:
        if name not in made:
            case = case_of(name)
            model = make_model(case.task)
            export_model(model, folder / name)
            made[name] = Exported(case, model, folder / name)
        return made[name]

    return export


def items_of(case: Case) -> list[Any]:
    parts = case.task.texts(case.columns)
    parts = tuple(a[:3] + b for a, b in zip(parts, case.others, strict=True))
    return list(zip(*parts, strict=True)) if len(parts) > 1 else parts[0]


def assert_near(found: Any, wanted: Any) -> None:
    """Check that two values of JSON are equal, numbers within 1e-4."""
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert set(found) == set(wanted)
        for key, value in wanted.items():
            assert_near(found[key], value)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_near(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=1e-4, rel=1e-4)
    else:
        assert found == wanted


@pytest.mark.parametrize("name", TASKS)
def test_answers_and_scores_are_those_of_the_model(
    exported: Callable[[str], Exported], name: str
) -> None:
    given = exported(name)
    ours, served = Predictor(given.model), load(given.folder)
    assert isinstance(served.model, ServedModel)
    items = items_of(given.case)
    assert_near(served.predict(items, batch_size=2), ours.predict(items))
    if len(served.model.task.signatures()) > 1:  # the other form, too
        assert_near(served.predict(["see you"]), ours.predict(["see you"]))
    assert served.predict([]) == []
    columns = given.case.columns
    assert_near(evaluate(served, columns), evaluate(ours, columns))


@pytest.mark.parametrize("name", TASKS)
def test_the_graph_answers_each_warm_up_request(
    exported: Callable[[str], Exported], name: str
) -> None:
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    (version,) = exported(name).folder.iterdir()
    graph = tf.saved_model.load(version)
    asked = set()
    for record in tf.data.TFRecordDataset(str(version / "assets.extra" / WARMUP)):
        request = logs.PredictionLog.FromString(record.numpy()).predict_log.request
        signature = request.model_spec.signature_name
        inputs = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        count = len(next(iter(inputs.values())))
        answers = graph.signatures[signature](
            **{k: tf.constant(v) for k, v in inputs.items()}
        )
        assert {len(value) for value in answers.values()} == {count}
        asked.add(signature)
    assert asked == set(exported(name).case.task.signatures())


def test_vectors_are_those_of_the_model(exported: Callable[[str], Exported]) -> None:
    given = exported("embedding")
    ours, served = Predictor(given.model), load(given.folder)
    for texts in (["see you", "win cash"], []):
        np.testing.assert_allclose(embed(served, texts), embed(ours, texts), atol=1e-5)


# Imports the script as it is, in a process that has nothing of ours.
ASK_ALL = """
import importlib.util, json, sys
jobs = json.load(sys.stdin)
spec = importlib.util.spec_from_file_location("ask", sys.argv[1])
ask = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ask)
tf = ask.load_tensorflow()
ask.load_tensorflow = lambda: tf
for folder, texts in jobs:
    ask.main(folder, texts)
    print()
loaded = {"keras_hub", "tensorflow_text", "bert_keras"} & set(sys.modules)
assert not loaded, loaded
"""


def test_the_script_asks_every_task(exported: Callable[[str], Exported]) -> None:
    jobs, wanted = [], []
    for name in TASKS:
        given = exported(name)
        specs = given.case.task.signatures()["serving_default"]
        (version,) = given.folder.iterdir()
        texts = ["see [MASK] at six", "cash\udcff win", "lunch. home"]
        given_bytes = [text.encode("utf-8", "surrogateescape") for text in texts]
        parts: list[Any] = [given_bytes]
        if specs[-1].shape.rank == 2:
            parts = [given_bytes[:1], [given_bytes[1:]]]
        elif len(specs) == 2:
            texts, parts = texts[:2], [given_bytes[:1], given_bytes[1:2]]
        jobs.append((str(version), texts))
        served = tf.saved_model.load(version).signatures["serving_default"]
        pairs = zip(specs, parts, strict=True)
        wanted.append(served(**{spec.name: tf.constant(part) for spec, part in pairs}))
    done = subprocess.run(
        [sys.executable, "-c", ASK_ALL, str(SCRIPT)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        cwd=exported(next(iter(TASKS))).folder,  # where no module of ours is found
        env={**os.environ, "PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "0"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    blocks = done.stdout.removesuffix("\n\n").split("\n\n")
    for block, answers in zip(blocks, wanted, strict=True):
        rows = [json.loads(line) for line in block.splitlines()]
        for key, value in answers.items():
            plain = value.numpy().tolist()
            assert len(rows) == len(plain)
            for row, each in zip(rows, plain, strict=True):
                assert_near(row[key], decoded(each))


def decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [decoded(each) for each in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def test_the_script_is_short_and_says_what_it_takes(spam_export: Path) -> None:
    assert SCRIPT.read_text(encoding="utf-8").count("\n") < 80
    done = subprocess.run(
        [sys.executable, SCRIPT, spam_export.parent, "text"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "one version of a SavedModel" in line


# What cannot be asked.


@pytest.fixture
def copied(spam_export: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(spam_export, tmp_path / "served" / "1"))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (None, "is no JSON"),
        ([], "`task` must be a string"),
        ({"format": 2}, "`format` must be 1; received 2"),
        ({"task": 3}, "`task` must be a string; received 3"),
        ({"task": "my.own:Task"}, "'my.own:Task', which is none of ours: pass it"),
        ({"settings": []}, "`settings` must be an object; received []"),
        ({"settings": {"classes": [*"ab"], "temperature": 1e-300}}, "`temperature`"),
        ({"settings": {"classes": [*"ab"], "more": 1}}, "more"),
        ({"settings": {"classes": [*"ab"]}}, "are not those of classification"),
        ({"task": "next-sentence", "settings": {}}, "must take text_a, text_b"),
        ({"preprocessing": {"max_length": -1}}, "`max_length`"),
    ],
)
def test_a_record_that_does_not_fit(copied: Path, changes: Any, part: str) -> None:
    path = copied / EXTRA
    facts = json.loads(path.read_text())
    if isinstance(changes, dict):
        path.write_text(json.dumps(facts | changes))
    else:
        path.write_text("{" if changes is None else json.dumps(changes))
    refused(lambda: load(copied), str(copied), part)


def test_an_export_without_its_record(copied: Path) -> None:
    (copied / EXTRA).unlink()
    for folder in (copied, copied.parent):
        refused(lambda folder=folder: load(folder), "answers.json is missing", "again")


def test_a_broken_graph(copied: Path) -> None:
    (copied / "saved_model.pb").write_bytes(b"graph")
    refused(lambda: load(copied), "a broken SavedModel")


def test_an_op_that_writes_files_is_refused(copied: Path, tmp_path: Path) -> None:
    class Writes(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def serve(self, text: Any) -> Any:
            tf.io.write_file(str(tmp_path / "written"), "x")
            return {"label": text}

    module = Writes()
    tf.saved_model.save(module, tmp_path / "other", signatures=module.serve)
    shutil.copy(tmp_path / "other" / "saved_model.pb", copied)
    refused(lambda: load(copied), "must not reach files; it holds WriteFile")
    assert not (tmp_path / "written").exists()
    _refuse_file_ops([])


def test_the_newest_version_is_taken(copied: Path) -> None:
    for number in ("9", "10"):
        shutil.copytree(copied, copied.parent / number)
    (copied.parent / "11").mkdir()
    assert find_saved_model(copied.parent) == copied.parent / "10"
    assert find_saved_model(copied) == copied
    assert find_saved_model("hf://owner/name") is None


def test_what_lies_in_the_graph_cannot_change(
    spam_export: Path, spam_model: Any
) -> None:
    refused(
        lambda: load(spam_export, precision="mixed_bfloat16"), "`precision`", "export"
    )
    other = dataclasses.replace(spam_model.task, temperature=2.0)
    refused(lambda: load(spam_export, task=other), "`task` must be that of")
    refused(
        lambda: load(spam_export, task="regression"), "classification", "regression"
    )
    predictor = load(spam_export, task=spam_model.task)
    with pytest.raises(ValueError, match="lie in its graph"):
        predictor.model.task = other


# A task of a user's own.


@dataclasses.dataclass(frozen=True)
class Probed(Classification):
    """Is scored on other texts than it answers."""

    name = "probed"

    def respond(self, texts: Any, *args: Any, scored: bool = False) -> dict[str, Any]:
        if scored:
            texts = tf.strings.join([texts, " win cash"])
        return super().respond(texts, *args)


class Measured(Classification):
    """Is scored by more than its answers."""

    name = "measured"

    def respond(
        self, texts: Any, preprocessor: Any, run: Any, *, scored: bool = False
    ) -> dict[str, tf.Tensor]:
        batch = self.features(preprocessor, texts)
        outputs = run(batch)
        answers = self.answer(outputs, batch)
        return (
            {**answers, "sure": tf.reduce_max(outputs, axis=1)} if scored else answers
        )


def test_a_users_own_task(make_model: Callable[..., Any], tmp_path: Path) -> None:
    columns = as_columns(text=["see you", "lunch at home"], label=["ham", "spam"])
    model = make_model(Probed(("ham", "spam")))
    folder = export_model(model, tmp_path / "served")
    refused(lambda: load(folder), "Probed', which is none of ours")
    served = load(folder, task=Probed)
    ours = Predictor(model)
    assert_near(served.predict(["see you"]), ours.predict(["see you"]))
    assert_near(evaluate(served, columns), evaluate(ours, columns))
    measured = make_model(Measured(("ham", "spam")))
    served = load(export_model(measured, tmp_path / "other"), task=Measured)
    refused(lambda: evaluate(served, columns), "measured", "evaluate the model folder")


def test_the_command_line_asks_it(
    exported: Callable[[str], Exported],
    spam_export: Path,
    spam_folder: Path,
    spam_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bert_keras.cli.main import main

    def rows(*words: object) -> list[Any]:
        assert main([str(word) for word in words]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    for words in (
        ("predict", "win cash now", "é"),
        ("predict", "--input", spam_file),
        ("evaluate", spam_file, "--json"),
    ):
        verb, *rest = words
        assert_near(
            rows(verb, spam_export.parent, *rest), rows(verb, spam_folder, *rest)
        )
    model = save_model(exported("question-answering").model, tmp_path / "qa")
    for folder in (model, exported("question-answering").folder):
        read, write = os.pipe()
        os.write(write, b"when?\tsee you at six\n")
        os.close(write)
        with os.fdopen(read) as pipe:
            monkeypatch.setattr(sys, "stdin", pipe)
            (row,) = rows("predict", folder)
        assert row["answer"] == row["n_best"][0]["answer"] != ""
    setting = ["predict", str(spam_export), "a", "--set", "temperature=2"]
    assert main(setting) == 2
    assert "lie in its graph" in capsys.readouterr().err
