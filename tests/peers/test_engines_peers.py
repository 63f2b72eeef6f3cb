"""Engines from a model folder, in exports, in servers and in int8."""

from __future__ import annotations

import collections
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, ROWS, assert_near, files_of, refused, thorough

from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.exports.engine_files import ANSWER_FILES
from bert_keras.exports.saved_model_folder import ANSWERS
from bert_keras.inference import engine_conversion
from bert_keras.inference.engine_conversion import engine_model
from bert_keras.inference.engine_export import export_to_engine
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.inference.session import answers_alone
from bert_keras.serving import Client, Server
from bert_keras.serving.config import ServeConfig
from bert_keras.training.evaluation import evaluate

pytest.importorskip("openvino", reason="needs bert_keras[engines]")
TEXTS = ["free cash prize", "", "lunch at six, you", "é 日本 🎉", "Sale " * 40]


@pytest.fixture(scope="module")
def spam_columns() -> Any:
    texts, labels = zip(*ROWS, strict=True)
    return as_columns(text=texts, label=labels)


@pytest.fixture(scope="module")
def onnx_folder(spam_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the export of `spam_folder` for ONNX Runtime, by the command line."""
    folder = tmp_path_factory.mktemp("engines") / "onnx"
    assert main(["export", str(spam_folder), str(folder), "--format", "onnx"]) == 0
    return folder


@pytest.fixture(scope="module")
def int8_export(
    spam_model: Any, spam_columns: Any, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Return what `export_to_engine` returned for OpenVINO in int8 alone."""
    folder = tmp_path_factory.mktemp("engines") / "int8"
    return export_to_engine(
        spam_model,
        folder,
        format="openvino",
        int8=True,
        int8_only=True,
        calibration=spam_columns,
        dev=spam_columns,
        max_drop=0.1,
    )


def test_a_model_folder_is_run_by_an_engine(
    spam_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = load_predictor(spam_folder).predict(TEXTS)
    capsys.readouterr()
    argv = ["predict", str(spam_folder), *TEXTS, "--engine", "openvino"]
    assert main(argv) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for row, text, answer in zip(found, TEXTS, wanted, strict=True):
        if text:
            assert_near(row, {"text": text, **answer})
        else:
            assert (row["label"], row["reason"]) == (None, "`text` is empty")


@pytest.mark.parametrize("engine", [None, thorough("openvino")])
def test_a_server_answers_by_an_engine(
    spam_folder: Path, onnx_folder: Path, engine: str | None
) -> None:
    path = onnx_folder if engine is None else spam_folder
    texts = [text for text in TEXTS if text]  # a server refuses an empty one
    wanted = Predictor(load_predictor(path, engine=engine).model).predict(texts)
    config = ServeConfig(port=0, no_grpc=True, engine=engine)
    with Server([f"mail={path}"], config=config, is_quiet=True).running() as server:
        with Client(server.url, model="mail") as client:
            assert_near(client.predict(texts), wanted)
        with urllib.request.urlopen(f"{server.url}/v2/models/mail") as answer:
            assert json.load(answer)["platform"] == (engine or "onnxruntime_onnx")


def test_bfloat16_is_openvinos_own(spam_model: Any) -> None:
    half = Predictor(engine_model(spam_model, "openvino", precision="mixed_bfloat16"))
    wanted = Predictor(spam_model).predict(TEXTS)
    for one, other in zip(half.predict(TEXTS), wanted, strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=0.05)


def test_an_export_holds_what_a_stranger_needs(
    onnx_folder: Path, spam_model: Any
) -> None:
    files = files_of(onnx_folder)
    assert sorted(files) == [
        *("answers.json", "config.json", "onnx/answers.onnx", "onnx/model.onnx"),
        *("tokenizer.json", "tokenizer_config.json", "vocab.txt"),
    ]
    said = json.loads(files[ANSWERS])
    names = [each["name"] for each in said["inputs"]]
    assert names == ["attention_mask", "input_ids", "token_type_ids"]
    assert said["outputs"] == [
        {"name": "logits", "dtype": "float32", "shape": [None, 3]}
    ]
    assert said["answer"]["classes"] == list(spam_model.task.classes)
    assert (said["task"], said["precision"], said["max_length"]) == (
        *("classification", "float32"),
        24,
    )


def test_the_graph_has_the_names_dtypes_and_axes_of_optimum(onnx_folder: Path) -> None:
    import onnx

    graph = onnx.load(str(onnx_folder / "onnx/model.onnx")).graph

    def said(each: Any) -> tuple[Any, ...]:
        kind = each.type.tensor_type
        dims = [dim.dim_param or dim.dim_value for dim in kind.shape.dim]
        return onnx.TensorProto.DataType.Name(kind.elem_type), *dims

    names = ("attention_mask", "input_ids", "token_type_ids")
    assert {each.name: said(each) for each in graph.input} == dict.fromkeys(
        names, ("INT64", "batch", "sequence")
    )
    assert {each.name: said(each) for each in graph.output} == {
        "logits": ("FLOAT", "batch", 3)
    }


def test_onnx_runtime_computes_gelu_and_layer_normalization_in_one_operation(
    onnx_folder: Path, spam_model: Any, tmp_path: Path, capfd: Any
) -> None:
    import onnx
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    capfd.readouterr()
    onnxruntime.InferenceSession(onnx_folder / "onnx/model.onnx")
    assert not capfd.readouterr().err  # such as of constants that nothing reads
    onnxruntime.InferenceSession(onnx_folder / "onnx/model.onnx", settings)
    graph = onnx.load(settings.optimized_model_filepath).graph
    found = collections.Counter(node.op_type for node in graph.node)
    blocks = spam_model.backbone.config.num_hidden_layers
    assert found["Gelu"] + found["BiasGelu"] == blocks
    norms = found["LayerNormalization"] + found["SkipLayerNormalization"]
    assert norms == 1 + 2 * blocks
    assert not found.keys() & {"Erf", "ReduceMean", "GlobalAveragePool"}


def test_an_export_is_loaded_as_it_is(
    onnx_folder: Path, spam_model: Any, spam_columns: Any
) -> None:
    predictor = load_predictor(onnx_folder)
    assert_near(predictor.predict(TEXTS), Predictor(spam_model).predict(TEXTS))
    wanted = evaluate(Predictor(spam_model), spam_columns)
    assert_near(evaluate(predictor, spam_columns), wanted)
    refused(lambda: load_predictor(onnx_folder, engine="openvino"), "`engine`", "onnx")
    refused(lambda: load_predictor(onnx_folder, task="regression"), "classification")


def test_what_tokenizers_would_split_otherwise_is_refused(
    spam_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = engine_conversion.write_tokenizer_json

    def write_other(place: Any, config: dict[str, Any], **settings: Any) -> None:
        write(place, {**config, "lowercase": not config["lowercase"]}, **settings)

    monkeypatch.setattr(engine_conversion, "write_tokenizer_json", write_other)
    folder = tmp_path / "onnx"
    call = lambda: export_to_engine(spam_model, folder, format="onnx")  # noqa: E731
    refused(call, "`format`", "`tokenizers` splits '")
    assert not folder.exists()
    # An engine inside the process takes TensorFlow's ids instead.
    predictor = Predictor(engine_conversion.engine_model(spam_model, "onnx"))
    assert not predictor.answering.is_direct
    assert_near(predictor.predict(TEXTS), Predictor(spam_model).predict(TEXTS))


def test_an_export_of_before_answers_by_tensorflow(
    spam_model: Any,
    onnx_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "onnx"
    shutil.copytree(onnx_folder, folder)
    record = json.loads((folder / ANSWERS).read_text(encoding="utf-8"))
    del record["answers"]
    (folder / ANSWERS).write_text(json.dumps(record), encoding="utf-8")
    (folder / ANSWER_FILES["onnx"]).unlink()
    assert not answers_alone(folder)
    predictor = load_predictor(folder)
    (line,) = capsys.readouterr().err.splitlines()
    assert "TensorFlow computes ids and answers: " in line
    assert "it was exported by an earlier version: export it again" in line
    assert not predictor.answering.is_direct
    assert_near(predictor.predict(TEXTS), Predictor(spam_model).predict(TEXTS))


def test_a_broken_export_is_refused(onnx_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    for name, held in files_of(onnx_folder).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(held)
    said = json.loads((folder / ANSWERS).read_text(encoding="utf-8"))
    said["settings"]["classes"] = ["a", "b"]
    (folder / ANSWERS).write_text(json.dumps(said), encoding="utf-8")
    refused(lambda: load_predictor(folder), "broken", ANSWERS)
    (folder / "onnx/model.onnx").write_bytes(b"no model")
    refused(lambda: load_predictor(folder), "model.onnx", "onnx")


def test_the_example_needs_no_tensorflow(onnx_folder: Path, spam_model: Any) -> None:
    script = ROOT / "examples" / "onnx_classifier.py"
    absent = "import sys; sys.modules.update(tensorflow=None, keras=None); "
    run = f"sys.argv = sys.argv[1:]; exec(open({str(script)!r}).read())"
    done = subprocess.run(
        [sys.executable, "-c", absent + run, str(script), str(onnx_folder), *TEXTS],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = Predictor(spam_model).predict(TEXTS)
    assert [row["label"] for row in found] == [row["label"] for row in wanted]
    for row, answer in zip(found, wanted, strict=True):
        assert_near(row["probabilities"], answer["probabilities"])


def test_batches_at_once_share_the_cores(onnx_folder: Path) -> None:
    one, two = (load_predictor(onnx_folder, at_once=count) for count in (1, 2))
    both: Any = two.model
    options = both.session._session.get_session_options()
    threads = tf.config.threading.get_intra_op_parallelism_threads() or os.cpu_count()
    assert options.intra_op_num_threads == max((threads or 1) // 2, 1)
    texts = ["free cash prize", "lunch at six"]
    for row, other in zip(one.predict(texts), two.predict(texts), strict=True):
        assert row["score"] == pytest.approx(other["score"], abs=1e-5)


def test_int8_of_openvino_is_loaded_and_scored(
    int8_export: Any, spam_model: Any, spam_columns: Any
) -> None:
    pytest.importorskip("nncf")
    said = json.loads((int8_export.folder / ANSWERS).read_text(encoding="utf-8"))
    assert said["precision"] == "int8"
    assert set(int8_export.scores) == {"float32", "int8"}
    assert not [*int8_export.folder.glob("openvino/openvino_model.*")]
    assert (
        'element_type="i8"'
        in (
            int8_export.folder / "openvino/openvino_model_qint8_quantized.xml"
        ).read_text()
    )
    predictor = load_predictor(int8_export.folder)
    assert predictor.model.session.answers is not None  # of the same run
    found = evaluate(predictor, spam_columns)
    assert_near(found, int8_export.scores["int8"])


def test_int8_of_onnx_stores_weights_in_8_bits(
    spam_model: Any, spam_columns: Any, tmp_path: Path, capsys: Any
) -> None:
    found = export_to_engine(
        *(spam_model, tmp_path / "int8"),
        format="onnx",
        int8=True,
        dev=spam_columns,
        max_drop=0.1,
    )
    told = capsys.readouterr().err
    assert "depends on the other texts of its batch" in told
    assert told.count("times the processor time of float32 on this machine") == 1
    import onnx

    model = onnx.load(str(found.folder / "onnx/model_quantized.onnx"))
    assert {node.op_type for node in model.graph.node} & {"MatMulInteger"}
    assert_near(
        evaluate(load_predictor(found.folder), spam_columns), found.scores["int8"]
    )
    assert "missing" not in capsys.readouterr().err
    (found.folder / "onnx/model_quantized.onnx").unlink()
    load_predictor(found.folder)
    told = "onnx/model_quantized.onnx is missing: model.onnx is used"
    assert told in capsys.readouterr().err


def test_int8_that_loses_too_much_leaves_nothing(
    spam_model: Any, spam_columns: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bert_keras.inference import engine_export

    # As after a bad calibration: a model whose weights are those of another.
    def spoil(path: Path, target: Path, kind: str, batches: Any, **_: Any) -> None:
        import onnx
        from onnx import numpy_helper

        model = onnx.load(str(path))
        for tensor in model.graph.initializer:
            values = numpy_helper.to_array(tensor)
            if values.dtype == np.float32 and values.ndim == 2:
                tensor.CopyFrom(numpy_helper.from_array(values * -1, tensor.name))
        onnx.save(model, str(target))

    monkeypatch.setattr(engine_export, "write_int8", spoil)
    refused(
        lambda: export_to_engine(
            *(spam_model, tmp_path / "bad"),
            format="onnx",
            int8=True,
            dev=spam_columns,
        ),
        *("`max_drop`", "accuracy", "nothing is written"),
    )
    assert not list(tmp_path.iterdir())
