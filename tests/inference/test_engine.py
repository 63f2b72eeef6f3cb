"""Engines without their packages: one line says what is missing or does not fit.

What they answer is tested in `tests/peers/test_engine_answers_peers.py`.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from conftest import refused
from task_cases import cases_of

from bert_keras.answering.answering import Spec
from bert_keras.cli.main import main
from bert_keras.exports import engine_files
from bert_keras.exports.engine_files import NAMES
from bert_keras.exports.saved_model_folder import ANSWERS
from bert_keras.inference import engine_export
from bert_keras.inference.engine import EngineModel, _light_parts
from bert_keras.inference.engine_export import _MEANINGS, export_to_engine
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.inference.session import Session, find_engine
from bert_keras.model.encoder import is_of_packed_rows
from bert_keras.tasks import TASKS

TEXTS = ["free cash prize", "", "lunch at six, you", "sale " * 40]


class TensorFlowSession(Session):
    """Runs the Keras model itself, on the arrays that an engine is given."""

    platform = "a name"

    def __init__(self, model: Any) -> None:
        self.model = model
        self.lengths: list[int] = []

    def specs(self) -> tuple[list[Spec], list[Spec]]:
        names = ("padding_mask", "segment_ids", "token_ids")
        inputs = [Spec(name, (None, None), np.dtype("int32")) for name in names]
        return inputs, [Spec("logits", (None, 3), np.dtype("float32"))]

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

    monkeypatch.setattr(engine_files.importlib, "import_module", absent)


def test_answers_of_another_graph_are_refused(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "answers.onnx").touch()
    session = Session()
    session.specs = lambda: ([], [])  # type: ignore[method-assign]
    session.answers = [Spec(name, (None,), np.dtype("int32")) for name in ("a", "b")]
    record = {"preprocessing": {}, "answers": {"inputs": [], "outputs": ["label"]}}
    refused(
        lambda: _light_parts(tmp_path, "onnx", session, cast(Any, None), record),
        *("`answers` or `preprocessing` is broken: it names 1 output, and", "has 2"),
    )


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


def test_an_engine_answers_outside_of_a_graph(spam_model: Any) -> None:
    session = TensorFlowSession(spam_model)
    engine = EngineModel(spam_model.task, spam_model.preprocessor, session)
    found, wanted = engine.answer(TEXTS), spam_model.answer(TEXTS)
    assert found["label"].numpy().tolist() == wanted["label"].numpy().tolist()


def test_an_engine_gets_no_classes(spam_model: Any) -> None:
    session = TensorFlowSession(spam_model)
    engine = EngineModel(spam_model.task, spam_model.preprocessor, session)
    predictor = Predictor(engine)
    message = "received one that a name computes"
    refused(lambda: predictor.with_classes("a,b"), message)


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
        (["--format", "litert", "--int8"], ("`--int8`", "openvino or onnx")),
        (["--int8"], ("`--int8`", "saved_model")),
        (["--format", "openvino", "--int8"], ("`--calibrate FILE`",)),
        (["--calibrate", "x.tsv"], ("`--calibrate` needs `--int8`",)),
        (["--format", "onnx", "--int8-only"], ("`--int8-only` needs `--int8`",)),
        (["--dev", "x.tsv"], ("`--dev` needs `--int8`", "x.tsv")),
        (
            ["--format", "onnx", "--precision", "mixed_bfloat16"],
            ("`--precision`", "float32"),
        ),
    ],
    ids=[
        *("int8 of litert", "int8 served", "no texts", "texts only", "int8 alone"),
        *("dev only", "precision"),
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
    told = capsys.readouterr().err
    assert f"{texts} is not used: int8 for onnx is not calibrated" in told
    assert f"int8 is not scored: give a labelled file as --dev ({texts}: " in told


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
        recipe = case.task.recipe()
        assert json.loads(json.dumps(recipe, allow_nan=False)) == recipe
        assert {"meaning", "activation"} <= set(recipe)
        needs = case.task.needs
        inputs = {
            NAMES.get(n, n) for n in needs.keras_inputs() if not is_of_packed_rows(n)
        }
        told = {*_MEANINGS, *needs.meanings, *needs.filled_inputs}
        assert inputs <= told
