"""Engines without their packages: one line says what is missing or does not fit.

What they answer is tested in `tests/peers/test_engines_peers.py`.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused
from task_cases import cases_of

from bert_keras.cli.main import main
from bert_keras.inference import engine_export
from bert_keras.inference.engine import (
    EngineModel,
    Session,
    find_engine,
)
from bert_keras.inference.engine_export import _MEANINGS, export_to_engine
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.model.encoder import is_of_packed_rows
from bert_keras.models import model_file
from bert_keras.models.engine_graph import NAMES
from bert_keras.models.saved_model_folder import ANSWERS
from bert_keras.models.zero_shot import zero_shot_model
from bert_keras.serving.signatures import signatures_of
from bert_keras.tasks import TASKS
from bert_keras.tasks.base import replaced
from bert_keras.tasks.protocols import recipe_of

TEXTS = ["free cash prize", "", "lunch at six, you", "sale " * 40]


class TensorFlowSession(Session):
    """Runs the Keras model itself, on the arrays that an engine is given."""

    platform = "a name"

    def __init__(self, model: Any) -> None:
        self.model = model
        self.lengths: list[int] = []

    def specs(self) -> tuple[list[tf.TensorSpec], list[tf.TensorSpec]]:
        names = ("padding_mask", "segment_ids", "token_ids")
        inputs = [tf.TensorSpec([None, None], tf.int32, name) for name in names]
        return inputs, [tf.TensorSpec([None, 3], tf.float32, "logits")]

    def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        assert {each.dtype for each in inputs.values()} == {np.dtype("int32")}
        self.lengths.append(inputs["token_ids"].shape[1])
        return [self.model(inputs).numpy()]


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the imports of engines fail, as where they are not installed."""
    real = importlib.import_module

    def absent(name: str) -> Any:
        if name.split(".")[0] in ("openvino", "onnx", "onnxruntime", "nncf"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name)

    monkeypatch.setattr(model_file.importlib, "import_module", absent)


def test_a_session_gets_padded_ids_of_texts_of_one_length(spam_model: Any) -> None:
    session = TensorFlowSession(spam_model)
    engine = EngineModel(spam_model.task, spam_model.preprocessor, session)
    found = Predictor(engine).predict(TEXTS, batch_size=2)
    wanted = Predictor(spam_model).predict(TEXTS)
    assert (spam_model.platform, engine.platform) == ("tensorflow_savedmodel", "a name")
    assert [row["label"] for row in found] == [row["label"] for row in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-6)
    # Two rows each: the empty text and the next longer one, then the others.
    assert sorted(session.lengths) == [5, 24]


def test_a_few_short_texts_become_ids_outside_of_tensorflow(
    spam_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = TensorFlowSession(spam_model)
    engine = EngineModel(spam_model.task, spam_model.preprocessor, session)
    wanted = Predictor(spam_model)
    few = [TEXTS[:1], TEXTS[:3]]
    expected = [wanted.predict(texts) for texts in few]

    def used(*_: Any) -> Any:
        raise AssertionError("the string ops ran")

    predictor = Predictor(engine)
    with monkeypatch.context() as patch:
        patch.setattr(type(engine.preprocessor), "join", used)
        found = [predictor.predict(texts) for texts in few]
        # A longer text is truncated in graph, as are more characters at once.
        for texts in (
            ["sale " * 400],
            ["lunch at six " * (40 + more) for more in range(9)],
        ):
            with pytest.raises(AssertionError, match="string ops"):
                predictor.predict(texts)
    assert session.lengths == [5, 7]
    for some, others in zip(found, expected, strict=True):
        for one, other in zip(some, others, strict=True):
            assert one["label"] == other["label"] and set(one) == set(other)
            assert one["score"] == pytest.approx(other["score"], abs=1e-6)


def test_few_texts_get_the_answers_of_another_task_of_the_engine(
    spam_model: Any,
) -> None:
    session = TensorFlowSession(spam_model)
    engine = EngineModel(spam_model.task, spam_model.preprocessor, session)
    (before,) = Predictor(engine).predict(TEXTS[:1])
    names = [f"new {name}" for name in spam_model.task.classes]
    engine.task = replaced(spam_model.task, classes=names)
    (after,) = Predictor(engine).predict(TEXTS[:1])
    assert after["label"] == f"new {before['label']}"
    engine.preprocessor = engine.preprocessor.replace(max_length=3)
    Predictor(engine).predict(TEXTS[:1])
    assert session.lengths == [5, 5, 3]


def test_an_engine_answers_outside_of_a_graph(spam_model: Any) -> None:
    session = TensorFlowSession(spam_model)
    engine = EngineModel(spam_model.task, spam_model.preprocessor, session)
    found, wanted = engine.answer(TEXTS), spam_model.answer(TEXTS)
    assert found["label"].numpy().tolist() == wanted["label"].numpy().tolist()


def test_an_engine_gets_no_classes(spam_model: Any) -> None:
    session = TensorFlowSession(spam_model)
    engine = EngineModel(spam_model.task, spam_model.preprocessor, session)
    refused(lambda: zero_shot_model(engine, "a,b"), "received one that a name computes")


@pytest.mark.parametrize("engine", ["openvino", "onnx"])
def test_a_missing_package_is_one_line(
    engine: str, spam_folder: Path, no_packages: None
) -> None:
    refused(
        lambda: load_predictor(spam_folder, engine=engine),
        *(f"needs the package {engine}", "pip install 'bert_keras[engines]'"),
    )


def test_a_missing_package_leaves_no_export(
    spam_folder: Path,
    tmp_path: Path,
    no_packages: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["export", str(spam_folder), str(tmp_path / "out"), "--format", "openvino"]
    assert main(argv) == 2
    assert "bert_keras[engines]" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": "torch"}, ("`engine`", "tensorflow, openvino, onnx", "'torch'")),
        ({"engine": "onnx", "precision": "mixed_bfloat16"}, ("`precision`", "float32")),
        ({"engine": "openvino", "precision": "mixed_float16"}, ("mixed_bfloat16",)),
        ({"engine": "onnx", "at_once": 0}, ("`at_once`", "0")),
    ],
    ids=["unknown", "onnx in bfloat16", "openvino in float16", "no batch at once"],
)
def test_what_an_engine_cannot_do_is_refused(
    settings: dict[str, Any], words: tuple[str, ...], spam_folder: Path
) -> None:
    refused(lambda: load_predictor(spam_folder, **settings), *words)


def test_a_savedmodel_is_run_by_tensorflow(spam_export: Path) -> None:
    refused(
        lambda: load_predictor(spam_export, engine="openvino"), "`engine`", "SavedModel"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--format", "litert", "--int8"], ("`--int8`", "openvino and onnx")),
        (["--int8"], ("`--int8`", "saved_model")),
        (["--format", "openvino", "--int8"], ("`--calibrate FILE`",)),
        (["--calibrate", "x.tsv"], ("`--calibrate` needs `--int8`",)),
        (["--format", "onnx", "--int8-only"], ("`--int8-only` needs `--int8`",)),
        (["--dev", "x.tsv"], ("`--dev` needs `--int8`", "x.tsv")),
        (
            ["--format", "onnx", "--int8", "--calibrate", "x.tsv", "--dev", "y.tsv"],
            ("`--calibrate`", "not calibrated"),
        ),
        (
            ["--format", "onnx", "--precision", "mixed_bfloat16"],
            ("`--precision`", "float32"),
        ),
    ],
    ids=[
        *("int8 of litert", "int8 served", "no texts", "texts only", "int8 alone"),
        *("dev only", "texts for onnx", "precision"),
    ],
)
def test_options_of_export_that_do_not_fit(
    options: list[str],
    words: tuple[str, ...],
    spam_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["export", str(spam_folder), str(tmp_path / "out"), *options]
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    for word in words:
        assert word in line
    assert not list(tmp_path.iterdir())


def test_texts_that_calibrate_nothing_are_told(
    spam_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    no_packages: None,
) -> None:
    texts = tmp_path / "texts.csv"
    texts.write_text("text\nwin cash\n", encoding="utf-8")
    argv = ["export", str(spam_folder), str(tmp_path / "out"), "--format", "onnx"]
    assert main([*argv, "--int8", "--calibrate", str(texts)]) == 2  # no packages
    told = f"{texts} is not used: it has no labels, and int8 for onnx is not calibrated"
    assert told in capsys.readouterr().err


def test_calibration_must_hold_texts(
    spam_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_export, "check_int8", lambda kind: None)
    refused(
        lambda: export_to_engine(
            spam_model, tmp_path / "out", format="onnx", int8_only=True
        ),
        "`int8_only` needs `int8`",
    )
    refused(
        lambda: export_to_engine(
            spam_model, tmp_path / "out", format="openvino", int8=True
        ),
        "`calibration`",
    )


@pytest.mark.parametrize("slow", ["int8", "float32"])
def test_int8_that_is_slower_is_told(
    slow: str,
    spam_model: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]  # processor seconds
    monkeypatch.setattr(engine_export.time, "process_time", lambda: now[0])

    class Slow(TensorFlowSession):
        def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            now[0] += 0.008
            return [np.zeros((len(inputs["token_ids"]), 3), np.float32)]

    class Fast(Slow):
        def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            now[0] -= 0.004
            return super().run(inputs)

    kinds = (Fast, Slow) if slow == "int8" else (Slow, Fast)
    task, preprocessor = spam_model.task, spam_model.preprocessor
    models = [EngineModel(task, preprocessor, each(spam_model)) for each in kinds]
    texts = engine_export._typical_texts(spam_model, None)
    engine_export._tell_times(*models, texts)
    (line,) = capsys.readouterr().err.splitlines()
    ratio, ended = (
        ("2.00", "float32 is faster here") if slow == "int8" else ("0.50", "ms a text")
    )
    assert f"int8 takes {ratio} times the processor time of float32" in line
    assert line.endswith(ended)


def test_serve_answers_few_texts_outside_of_tensorflow(
    spam_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = EngineModel(
        spam_model.task, spam_model.preprocessor, TensorFlowSession(spam_model)
    )
    signature = signatures_of(engine)["serving_default"]
    texts = [text.encode() for text in TEXTS[:3]]
    rows = signature.rows_of([texts])
    graph = signature._call([tf.constant(texts)])
    broken = signature.rows_of([[b"\xff free", b"free"]])
    with monkeypatch.context() as patch:
        patch.setattr(signature, "_call", lambda tensors: "the graph")
        answers, tokens = signature.compute(rows)
        assert signature.compute(broken)[0] == "the graph"
    assert tokens == len(texts) * max(row.length for row in rows)
    assert set(answers) == set(graph)
    for name, values in graph.items():
        if values.dtype == np.float32:
            np.testing.assert_allclose(answers[name], values, atol=1e-6)
        else:
            np.testing.assert_array_equal(answers[name], values)


def test_only_an_export_has_an_engine(spam_folder: Path, tmp_path: Path) -> None:
    assert find_engine(spam_folder) is None
    assert find_engine("hf://owner/name") is None
    (tmp_path / ANSWERS).write_text("{}", encoding="utf-8")
    assert find_engine(tmp_path) is None
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx/model.onnx").touch()
    assert find_engine(tmp_path) == "onnx"


@pytest.mark.parametrize("name", TASKS)
def test_each_recipe_is_json_with_a_meaning(name: str) -> None:
    for case in cases_of(name).values():
        if case.task.needs.not_for_engines:
            continue
        recipe = recipe_of(case.task)
        assert json.loads(json.dumps(recipe, allow_nan=False)) == recipe
        assert {"meaning", "activation"} <= set(recipe)
        needs = case.task.needs
        inputs = {
            NAMES.get(n, n) for n in needs.keras_inputs() if not is_of_packed_rows(n)
        }
        told = {*_MEANINGS, *needs.meanings, *needs.filled_inputs}
        assert inputs <= told
