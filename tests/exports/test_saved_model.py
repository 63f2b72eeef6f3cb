"""Exports: a stock server's ops alone, the answers of `predict`, whole versions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from conftest import ROOT, SHARED, files_of, refused
from tensorflow.core.protobuf import saved_model_pb2

from bert_keras.errors import CheckpointError
from bert_keras.exports import saved_model
from bert_keras.exports.saved_model import (
    TEXT_OPS,
    export_model,
    refuse_unknown_ops,
    write_saved_model,
)
from bert_keras.exports.saved_model_folder import versions
from bert_keras.inference.predictor import Predictor
from bert_keras.models.loading import load_model
from bert_keras.tasks.classification import Classification

TEXTS = ["free cash prize", "", "lunch at six, you", "é 日本 🎉", "Sale " * 40]
PAIRS = [("win cash", "home"), ("", "é"), ("see " * 30, "you " * 30)]


@pytest.fixture(scope="module")
def exported_pairs(pair_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the version folder of the classifier of pairs."""
    return export_model(pair_model, tmp_path_factory.mktemp("served") / "pairs")


@pytest.fixture(scope="module")
def bfloat16_export(
    spam_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return the version folder of the classifier, exported in bfloat16."""
    model = load_model(spam_folder, dtype="mixed_bfloat16")
    return export_model(model, tmp_path_factory.mktemp("served") / "half")


def op_libraries() -> list[str]:
    """Return the shared libraries of tensorflow-text's ops."""
    spec = find_spec("tensorflow_text")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0])
    return sorted(str(path) for path in folder.rglob("python/ops/_*.so"))


# Imports tensorflow alone, as a server does; prints the answers to what it is given.
SERVER = """
import json, sys
import tensorflow as tf
job = json.load(sys.stdin)
for library in job["libraries"]:
    tf.load_op_library(library)
results = []
models = {folder: tf.saved_model.load(folder) for folder, *_ in job["requests"]}
for folder, name, inputs in job["requests"]:
    serve = models[folder].signatures[name]
    dtype = tf.int32 if name == "ids" else tf.string
    feeds = {key: tf.constant(value, dtype) for key, value in inputs.items()}
    result = {}
    for key, value in serve(**feeds).items():
        value = value.numpy()
        if value.dtype == object:
            value = value.astype("U")
        result[key] = value.tolist()
    results.append(result)
others = ("keras_hub", "tensorflow_text", "bert_keras")
loaded = [name for name in others if name in sys.modules]
assert not loaded, loaded
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def served(
    spam_export: Path, exported_pairs: Path, bfloat16_export: Path, spam_model: Any
) -> list[dict[str, Any]]:
    """Return the answers of a fresh process.

    Those to texts, ids, one text, none and pairs; in bfloat16 to texts and ids.
    """
    preprocessor = spam_model.preprocessor
    padded = type(preprocessor)(
        preprocessor.tokenizer, **{**preprocessor.settings(), "layout": "padded"}
    )
    ids = {key: value.numpy().tolist() for key, value in padded(TEXTS).items()}
    first, second = (list(part) for part in zip(*PAIRS, strict=True))
    single, pairs = str(spam_export), str(exported_pairs)
    requests = [
        (single, "serving_default", {"text": TEXTS}),
        (single, "ids", ids),
        (single, "serving_default", {"text": TEXTS[2:3]}),
        (single, "serving_default", {"text": []}),
        (pairs, "serving_default", {"text_a": first, "text_b": second}),
        (str(bfloat16_export), "serving_default", {"text": TEXTS}),
        (str(bfloat16_export), "ids", ids),
    ]
    job = json.dumps({"libraries": op_libraries(), "requests": requests})
    done = subprocess.run(
        [sys.executable, "-c", SERVER],
        input=job,
        capture_output=True,
        text=True,
        cwd=spam_export,  # where our modules cannot be found
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_answers(
    found: dict[str, Any], model: Any, texts: list[Any], tolerance: float = 1e-5
) -> None:
    """Check that a served answer is what `predict` gives."""
    rows = Predictor(model).predict(texts)
    assert found["label"] == [row["label"] for row in rows]
    np.testing.assert_allclose(
        found["score"], [row["score"] for row in rows], atol=tolerance
    )
    for probabilities, names, row in zip(
        found["probabilities"], found["classes"], rows, strict=True
    ):
        assert names == list(row["probabilities"])
        wanted = list(row["probabilities"].values())
        np.testing.assert_allclose(probabilities, wanted, atol=tolerance)


def test_a_fresh_process_answers_as_predict(served: Any, spam_model: Any) -> None:
    assert_answers(served[0], spam_model, TEXTS)


def test_the_ids_signature_answers_as_predict(served: Any, spam_model: Any) -> None:
    assert_answers(served[1], spam_model, TEXTS)


def test_one_text_is_a_batch(served: Any, spam_model: Any) -> None:
    assert_answers(served[2], spam_model, TEXTS[2:3])


def test_no_text_is_a_batch(served: Any) -> None:
    assert served[3] == {"label": [], "score": [], "probabilities": [], "classes": []}


def test_pairs_have_two_inputs(served: Any, pair_model: Any) -> None:
    assert_answers(served[4], pair_model, PAIRS)


@pytest.mark.parametrize("request_number", [5, 6])
def test_bfloat16_answers_nearly_as_float32(
    served: Any, spam_model: Any, request_number: int
) -> None:
    assert_answers(served[request_number], spam_model, TEXTS, tolerance=0.02)


def test_weights_are_written_once(spam_export: Path, bfloat16_export: Path) -> None:
    kernel = (16, 32)  # of each of the two blocks

    def stored(folder: Path) -> tuple[int, int]:
        """Return how often such kernels are variables and how often constants."""
        variables = tf.train.list_variables(str(folder / "variables/variables"))
        saved = saved_model_pb2.SavedModel.FromString(
            (folder / "saved_model.pb").read_bytes()
        )
        (graph,) = saved.meta_graphs
        nodes = [n for f in graph.graph_def.library.function for n in f.node_def]
        shapes = [
            tuple(dim.size for dim in node.attr["value"].tensor.tensor_shape.dim)
            for node in nodes
            if node.op == "Const"
        ]
        return sum(tuple(s) == kernel for _, s in variables), shapes.count(kernel)

    assert stored(spam_export) == (2, 0)
    assert stored(bfloat16_export) == (0, 2)


def test_the_precision_is_recorded(spam_export: Path, bfloat16_export: Path) -> None:
    def precision(folder: Path) -> str:
        return json.loads((folder / "assets.extra/answers.json").read_text())[
            "precision"
        ]

    assert precision(spam_export) == "float32"
    assert precision(bfloat16_export) == "mixed_bfloat16"


def test_the_batch_is_first_in_every_output(spam_export: Path) -> None:
    signatures = tf.saved_model.load(spam_export).signatures
    for signature in signatures.values():
        shapes = [
            value.shape.as_list() for value in signature.structured_outputs.values()
        ]
        assert shapes and all(shape[0] is None for shape in shapes)
    for count in (1, 3):
        for value in signatures["serving_default"](
            text=tf.constant(TEXTS[:count])
        ).values():
            assert value.shape[0] == count


def test_the_ops_are_those_of_a_stock_server(spam_export: Path) -> None:
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((spam_export / "saved_model.pb").read_bytes())
    (graph,) = saved.meta_graphs
    ops = {node.op for node in graph.graph_def.node}
    for function in graph.graph_def.library.function:
        ops |= {node.op for node in function.node_def}
    theirs = {op for op in ops if not hasattr(tf.raw_ops, op) and op[0] != "_"}
    theirs -= {f.signature.name for f in graph.graph_def.library.function}
    assert "FastWordpieceTokenizeWithOffsets" in theirs
    assert theirs <= TEXT_OPS
    refuse_unknown_ops([graph.graph_def])


def test_the_vocabulary_is_not_a_constant_of_the_graph(spam_export: Path) -> None:
    assert (spam_export / "saved_model.pb").stat().st_size < 1_500_000


def graph_of(function: Callable[..., Any], *specs: tf.TypeSpec) -> Any:
    return tf.function(function).get_concrete_function(*specs).graph.as_graph_def()


def trimmed(texts: tf.Tensor) -> Any:
    """Use an op of tensorflow-text that older servers lack."""
    words = tf.strings.split(texts)
    return tf_text.RoundRobinTrimmer(4).trim([words, words])[0].values


def test_an_unknown_op_is_rejected() -> None:
    graph = graph_of(trimmed, tf.TensorSpec([None], tf.string))
    refused(lambda: refuse_unknown_ops([graph]), "RoundRobin")


def test_an_unknown_op_in_a_branch_is_rejected() -> None:
    def branches(texts: tf.Tensor) -> Any:
        return tf.cond(tf.size(texts) > 1, lambda: trimmed(texts), lambda: texts)

    graph = graph_of(branches, tf.TensorSpec([None], tf.string))
    refused(lambda: refuse_unknown_ops([graph]), "RoundRobin")


def test_a_python_function_is_rejected() -> None:
    def calls_python(values: tf.Tensor) -> Any:
        return tf.py_function(lambda value: value, [values], tf.int32)

    graph = graph_of(calls_python, tf.TensorSpec([None], tf.int32))
    refused(lambda: refuse_unknown_ops([graph]), "EagerPyFunc")


def test_a_model_with_an_unknown_op_is_not_published(
    make_model: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(Classification(("a", "b")))
    monkeypatch.setattr(model, "answer", lambda texts: {"words": trimmed(texts)})
    refused(lambda: export_model(model, tmp_path / "served"), "RoundRobin")
    assert files_of(tmp_path) == {}


def test_core_ops_pass() -> None:
    def core(values: tf.Tensor) -> Any:
        return tf.cond(values[0] > 0, lambda: values + 1, lambda: values)

    refuse_unknown_ops([graph_of(core, tf.TensorSpec([None], tf.int32))])


def test_people_find_the_vocabulary_and_the_labels(
    spam_export: Path, vocabulary: list[str]
) -> None:
    extra = spam_export / "assets.extra"
    assert (extra / "vocab.txt").read_text().splitlines() == vocabulary
    facts = json.loads((extra / "answers.json").read_text())
    assert facts["task"] == "classification"
    assert facts["settings"]["classes"] == ["ham", "promo", "spam"]
    assert facts["preprocessing"]["max_length"] == 24
    assert facts["inputs"] == ["text"]


def test_everybody_may_read_the_version(spam_export: Path) -> None:
    assert spam_export.stat().st_mode & 0o777 == 0o755


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make exports of one file, for tests of the version folders."""

    def write(model: Any, folder: Path) -> None:
        (folder / "saved_model.pb").write_text("graph")

    monkeypatch.setattr(saved_model, "_write", write)


def test_versions_go_up(quick: None, tmp_path: Path) -> None:
    folders = [export_model(None, tmp_path / "served") for _ in range(3)]
    assert [folder.name for folder in folders] == ["1", "2", "3"]
    assert versions(tmp_path / "served") == [1, 2, 3]


def test_the_next_version_is_above_the_highest(quick: None, tmp_path: Path) -> None:
    for name in ("2", "10", "012", "-1", "notes"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").write_text("kept")
    assert export_model(None, tmp_path).name == "11"
    assert (tmp_path / "10" / "mine").read_text() == "kept"


def test_a_version_of_another_process_is_not_overwritten(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "mine").write_text("kept")
    monkeypatch.setattr(saved_model, "versions", lambda output: [])
    assert export_model(None, tmp_path).name == "2"
    assert (tmp_path / "1" / "mine").read_text() == "kept"


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "mine").write_text("kept")

    def write(model: Any, folder: Path) -> None:
        (folder / "saved_model.pb").write_text("half")
        raise error

    monkeypatch.setattr(saved_model, "_write", write)
    wanted = CheckpointError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(wanted):
        export_model(None, tmp_path)
    assert files_of(tmp_path) == {"1/mine": b"kept"}
    assert os.listdir(tmp_path) == ["1"]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(model: Any, folder: Path) -> None:
        raise tf.errors.ResourceExhaustedError(
            None,
            None,
            "{{function_node __wrapped__SaveV2_device_/job:localhost/device:CPU:0}} "
            f"{folder}/part-00000; No space left on device [Op:SaveV2]",
        )

    monkeypatch.setattr(saved_model, "_write", write)
    for action in (export_model, write_saved_model):
        message = f"{tmp_path / 'a'}: cannot be written: No space left on device"
        assert refused(lambda a=action: a(None, tmp_path / "a")) == message


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "served").write_text("mine")
    refused(lambda: export_model(None, tmp_path / "served"), "cannot be written")
    assert (tmp_path / "served").read_text() == "mine"


def test_another_backend_raises_a_helpful_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    refused(lambda: export_model(None, tmp_path), "KERAS_BACKEND=tensorflow", "jax")


def run_in_c(folder: Path, feeds: Sequence[str], place: Path) -> dict[str, Any]:
    """Return the answers of a SavedModel to `NAME=VALUE` by a C program, as lists."""
    tools = SHARED / "tools"
    if not (tools / "build_run.sh").exists() or not shutil.which("gcc"):
        pytest.skip("needs gcc and the C program of ../shared/tools")
    program = place / "run_savedmodel"
    if not program.exists():
        packages = Path(tf.__file__).parents[1]
        build = ["sh", tools / "build_run.sh", packages, program]
        subprocess.run(build, check=True, capture_output=True)
    libraries = [part for library in op_libraries() for part in ("-l", library)]
    done = subprocess.run(
        [program, folder, *libraries, *feeds],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {
        key: np.reshape(value["data"], value["shape"]).tolist()
        for key, value in json.loads(done.stdout).items()
    }


@pytest.mark.thorough
def test_a_c_program_answers_as_predict(
    spam_export: Path, bfloat16_export: Path, spam_model: Any, tmp_path: Path
) -> None:
    feeds = [f"text={text}" for text in TEXTS]
    for folder, tolerance in ((spam_export, 1e-5), (bfloat16_export, 0.02)):
        found = run_in_c(folder, feeds, tmp_path)
        assert_answers(found, spam_model, TEXTS, tolerance)
