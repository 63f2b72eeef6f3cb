"""What is said where only bert_keras-runtime is installed, in one line each."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from conftest import ROOT

# In the order of MESSAGES.
SCRIPT = """
import importlib.util, json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = {
    *("tensorflow", "tensorflow_text", "keras", "keras_hub", "pyarrow", "markupsafe"),
    *("openvino", "faiss", "httpx", "argcomplete", "rich", "jinja2"),
}
sys.meta_path.insert(0, Blocked())
import bert_keras
from bert_keras.cli.main import main
from bert_keras.corpus.word_counts import _strings
from bert_keras.data.table import read_columns
from bert_keras.files.answer_file import check_answer_file
from bert_keras.inference import engine
from bert_keras.inference.session import check_installed
from bert_keras.retrieval.engines import _faiss
from bert_keras.retrieval.features import feature_writer
from bert_keras.serving.forms import bench
from bert_keras.tasks import find_task
from pathlib import Path

engine.session_of = lambda *given, **settings: None  # needs no onnxruntime
for call in (
    lambda: bert_keras.load_model("none"),
    lambda: bert_keras.train("classification", encoder="e", train="t", output="o"),
    lambda: bert_keras.BertEncoder,
    lambda: find_task("masked-lm"),
    lambda: read_columns("x.parquet", {"text": "text"}),
    lambda: check_answer_file("o.parquet", {}),
    lambda: feature_writer("f.parquet").__enter__(),
    lambda: _strings(b"a"),
    lambda: check_installed("openvino"),
    _faiss,
    lambda: bench("none"),
    lambda: bert_keras.load_predictor("old"),
    lambda: engine._light_parts(Path("old"), "onnx", None, None, {}),
    lambda: main(["predict", "old", "hi"]),
    lambda: main(["completion", "bash"]),
    lambda: main(["compare", "m", "m2", "--output", "page.html"]),
    lambda: read_columns("large.csv", {"text": "text"}),
):
    try:
        print(call())
    except bert_keras.BertKerasError as error:
        print(error)
"""
TENSORFLOW = (
    r"this needs TensorFlow, and \w+ is not installed: "
    "pip install bert_keras, instead of bert_keras-runtime"
)


OLD = (
    "old: TensorFlow computes ids and answers: it was exported by an earlier version: "
    f"export it again; {TENSORFLOW}"
)


def of_extra(what: str, package: str, extra: str) -> str:
    line = f"{what} needs the package {package}: pip install 'bert_keras-runtime"
    return re.escape(f"{line}[{extra}]'")


PARQUET = of_extra("a Parquet or Arrow file", "pyarrow", "parquet")
MESSAGES = (
    *[TENSORFLOW] * 4,
    *[PARQUET] * 3,
    of_extra("`vocab`", "pyarrow", "parquet"),
    of_extra("the engine openvino", "openvino", "openvino"),
    of_extra("the engine faiss", "faiss", "search"),
    of_extra("`bench`", "httpx", "client"),
    OLD,
    "old/onnx/answers.onnx: no such file, which answers.json is about",
    *["2"] * 3,
)


def test_a_missing_package_is_one_line(tmp_path: Path) -> None:
    known = tmp_path / "bert_keras_runtime-1.0.dist-info"
    known.mkdir()
    (known / "METADATA").write_text("Name: bert_keras-runtime\nVersion: 1.0\n")
    (tmp_path / "x.parquet").touch()
    (tmp_path / "large.csv").write_text("text,note\n" + f"win,{'x' * 10**6}\n" * 5)
    for name in ("m", "m2"):
        (tmp_path / name).mkdir()
        entry = {"bert_keras": {"task": "classification"}}
        (tmp_path / name / "config.json").write_text(json.dumps(entry))
    (tmp_path / "old" / "onnx").mkdir(parents=True)
    (tmp_path / "old" / "onnx" / "model.onnx").touch()
    answers = {"task": "regression", "settings": {}, "preprocessing": {}}
    (tmp_path / "old" / "answers.json").write_text(json.dumps(answers))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *lines, large = done.stdout.splitlines()
    for line, message in zip(lines, MESSAGES, strict=True):
        assert re.fullmatch(message, line), line
    assert large.startswith("Columns")
    of_command_line = [
        f"bert-keras: {OLD}",
        of_extra("bert-keras: `completion`", "argcomplete", "completion"),
        "bert-keras: this needs the package markupsafe: "
        "pip install bert_keras, instead of bert_keras-runtime",
    ]
    for line, message in zip(done.stderr.splitlines(), of_command_line, strict=True):
        assert re.fullmatch(message, line), line


def test_named_extras_exist() -> None:
    described = (ROOT / "packaging" / "runtime" / "pyproject.toml").read_text("utf-8")
    section = described.split("[project.optional-dependencies]")[1].split("\n[")[0]
    extras = set(re.findall(r"^([a-z]+) = \[", section, re.MULTILINE))
    named = {
        keyword.value.value
        for path in (ROOT / "bert_keras").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "runtime_extra" and isinstance(keyword.value, ast.Constant)
    }
    assert named == extras
