"""Prediction with a SavedModel; `test_task_contract` covers each task."""

from __future__ import annotations

import dataclasses
import functools
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
from conftest import ROOT, assert_near, refused

from bert_keras.cli.info import describe
from bert_keras.data.table import as_columns
from bert_keras.exports.saved_model import export_model
from bert_keras.exports.saved_model_folder import find_saved_model
from bert_keras.files.lfs import POINTER
from bert_keras.inference.engine import session_of
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.inference.served_model import ServedModel, _refuse_file_ops
from bert_keras.retrieval.embedder import embed
from bert_keras.serving.signatures import signatures_of
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.training.evaluation import evaluate

SCRIPT = ROOT / "examples" / "ask_savedmodel.py"
EXTRA = Path("assets.extra") / "answers.json"


def test_vectors_are_those_of_the_model(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model(Embedding())
    ours, served = (
        Predictor(model),
        load_predictor(export_model(model, tmp_path / "served")),
    )
    assert isinstance(served.model, ServedModel)
    for texts in (["see you", "win cash"], []):
        np.testing.assert_allclose(embed(served, texts), embed(ours, texts), atol=1e-5)


def test_the_script_is_short_and_names_its_inputs(spam_export: Path) -> None:
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


# SavedModels that cannot be loaded.


@pytest.fixture
def copied(spam_export: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(spam_export, tmp_path / "served" / "1"))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (None, "not a JSON file"),
        ([], "must hold a JSON object; received list"),
        ({"format": 2}, "`format` must be 1; received 2"),
        ({"task": 3}, "`task` must be a string; received 3"),
        ({"task": "my.own:Task"}, "'my.own:Task', which is not one of ours: pass it"),
        ({"settings": []}, "`settings` must be an object; received []"),
        ({"settings": {"classes": [*"ab"], "temperature": 1e-300}}, "`temperature`"),
        ({"settings": {"classes": [*"ab"], "more": 1}}, "more"),
        ({"settings": {"classes": [*"ab"]}}, "does not answer as classification"),
        (
            {"settings": {"classes": ["spam", "ham", "promo"]}},
            "its classes are ham, promo",
        ),
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
    refused(lambda: load_predictor(copied), str(copied), part)


def test_an_export_without_its_record(copied: Path) -> None:
    (copied / EXTRA).unlink()
    for folder in (copied, copied.parent):
        refused(
            lambda folder=folder: load_predictor(folder),
            "answers.json is missing",
            "again",
        )


def test_a_broken_graph(copied: Path) -> None:
    (copied / "saved_model.pb").write_bytes(b"graph")
    refused(lambda: load_predictor(copied), "a broken SavedModel")


def test_pointers_of_git_lfs_in_an_export(copied: Path, tmp_path: Path) -> None:
    for part in (
        "variables/variables.index",
        "variables/variables.data-00000-of-00001",
    ):
        content = (copied / part).read_bytes()
        (copied / part).write_bytes(POINTER)
        refused(lambda: load_predictor(copied), part, "git lfs pull")
        (copied / part).write_bytes(content)
    (copied / "saved_model.pb").write_bytes(POINTER)
    refused(lambda: load_predictor(copied), "saved_model.pb", "git lfs pull")
    (tmp_path / "model.onnx").write_bytes(POINTER)
    refused(lambda: session_of(tmp_path / "model.onnx", "onnx"), "git lfs pull")


def test_an_op_that_writes_files_is_rejected(copied: Path, tmp_path: Path) -> None:
    class Writes(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
        def serve(self, text: Any) -> Any:
            tf.io.write_file(str(tmp_path / "written"), "x")
            return {"label": text}

    module = Writes()
    tf.saved_model.save(module, tmp_path / "other", signatures=module.serve)
    shutil.copy(tmp_path / "other" / "saved_model.pb", copied)
    refused(lambda: load_predictor(copied), "must not access files; it holds WriteFile")
    assert not (tmp_path / "written").exists()
    _refuse_file_ops([])


def test_the_newest_version_is_used(copied: Path) -> None:
    for number in ("9", "10"):
        shutil.copytree(copied, copied.parent / number)
    (copied.parent / "11").mkdir()
    assert find_saved_model(copied.parent) == copied.parent / "10"
    assert find_saved_model(copied) == copied
    assert find_saved_model("hf://owner/name") is None


def test_the_order_of_the_outputs(spam_export: Path) -> None:
    answer = load_predictor(spam_export).predict(["win cash"])[0]
    assert list(answer) == ["label", "score", "probabilities"]  # as of a folder


@pytest.mark.slow
def test_settings_in_the_graph_cannot_change(
    spam_export: Path, spam_model: Any
) -> None:
    refused(
        lambda: load_predictor(spam_export, precision="mixed_bfloat16"),
        "`precision`",
        "export",
    )
    other = dataclasses.replace(spam_model.task, temperature=2.0)
    refused(
        lambda: load_predictor(spam_export, task=other), "`task` must be the task of"
    )
    refused(
        lambda: load_predictor(spam_export, task="regression"),
        "classification",
        "regression",
    )
    predictor = load_predictor(spam_export, task=spam_model.task)
    with pytest.raises(ValueError, match="are fixed in its graph"):
        predictor.model.task = other
    named = dataclasses.replace(spam_model.task, positive_class="ham")
    predictor.model.task = named  # only scores read it
    assert predictor.model.task == named


# A custom task.


@dataclasses.dataclass(frozen=True)
class Probed(Classification):
    """Is scored on other texts than it answers."""

    name = "probed"

    def respond(
        self, texts: Any, preprocessor: Any, run: Any, *, scored: bool = False
    ) -> dict[str, Any]:
        if scored:
            texts = tf.strings.join([texts, " win cash"])
        batch = self.features(preprocessor, texts)
        return self.answer(run(batch), batch)


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


@pytest.mark.slow
def test_an_export_has_a_signature_for_each_prompt(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    prompts = {"query": "win cash ", "passage": "see you "}
    lengths = {"query_length": 5, "document_length": 6}
    model = make_model(Embedding(prompts=prompts, **lengths))
    folder = export_model(model, tmp_path / "served")
    here, served = Predictor(model), load_predictor(folder)
    texts, prompted = ["at six lunch home", "free!"], []
    signatures = signatures_of(model)
    read = {"query": ["win cash at", "win cash free"]}
    read["document"] = ["see you at six", "see you free!"]
    for name, whole in read.items():
        prompted.append(embed(here, whole))
        close = functools.partial(np.testing.assert_allclose, desired=prompted[-1])
        for predictor in (here, served):
            close(embed(predictor, texts, prompt=name), atol=1e-5)
        rows = signatures[name].rows_of([[text.encode() for text in texts]])
        close(signatures[name].compute(rows)[0]["embedding"], atol=1e-5)
    assert np.abs(prompted[0] - prompted[1]).max() > 0.01
    assert "text string" in describe(folder)["signature query"]


@pytest.mark.slow
def test_a_custom_task(make_model: Callable[..., Any], tmp_path: Path) -> None:
    columns = as_columns(text=["see you", "lunch at home"], label=["ham", "spam"])
    model = make_model(Probed(("ham", "spam")))
    folder = export_model(model, tmp_path / "served")
    refused(lambda: load_predictor(folder), "Probed', which is not one of ours")
    served = load_predictor(folder, task=Probed)
    ours = Predictor(model)
    assert_near(served.predict(["see you"]), ours.predict(["see you"]))
    assert_near(evaluate(served, columns), evaluate(ours, columns))
    measured = make_model(Measured(("ham", "spam")))
    served = load_predictor(export_model(measured, tmp_path / "other"), task=Measured)
    refused(lambda: evaluate(served, columns), "measured", "evaluate the model folder")


@pytest.mark.slow
def test_the_command_line_queries_it(
    spam_export: Path,
    spam_folder: Path,
    pair_folder: Path,
    pair_model: Any,
    spam_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    load_once: None,
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
    pairs = export_model(pair_model, tmp_path / "pairs")
    found = []
    for folder in (pair_folder, pairs.parent):
        read, write = os.pipe()
        os.write(write, b"when?\tsee you at six\n")
        os.close(write)
        with os.fdopen(read) as pipe:
            monkeypatch.setattr(sys, "stdin", pipe)
            found += rows("predict", folder)
    assert_near(found[1], found[0])
    setting = ["predict", str(spam_export), "a", "--set", "temperature=2"]
    assert main(setting) == 2
    assert "are fixed in its graph" in capsys.readouterr().err
