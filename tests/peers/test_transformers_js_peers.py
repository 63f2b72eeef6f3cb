"""Exported folders in transformers.js, under Node: `make test-javascript`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from task_cases import first_case

from bert_keras.inference.engine_export import export_to_engine
from bert_keras.inference.predictor import Predictor

pytest.importorskip("onnx", reason="needs bert_keras[engines]")
FOLDER = os.environ.get("TRANSFORMERS_JS", "")
if not FOLDER or shutil.which("node") is None:
    pytest.skip("needs Node and TRANSFORMERS_JS", allow_module_level=True)
SCRIPT = """
import { pipeline, env } from '@huggingface/transformers';
env.allowRemoteModels = false;
env.localModelPath = './';
const [kind, given, options] = JSON.parse(process.argv[2]);
const pipe = await pipeline(kind, 'model', { dtype: 'fp32' });
const found = await pipe(...given, options);
console.log(JSON.stringify(found.tolist ? found.tolist() : found));
"""


@pytest.fixture
def pipeline(make_model: Callable[..., Any], tmp_path: Path) -> Any:
    """Return a function that exports a task's model and asks a pipeline and us."""

    def ask(task: str, kind: str, given: list[Any], **options: Any) -> Any:
        model = make_model(first_case(task).task)
        export_to_engine(model, tmp_path / "model", format="onnx")
        (tmp_path / "node_modules").symlink_to(Path(FOLDER) / "node_modules")
        (tmp_path / "ask.mjs").write_text(SCRIPT)
        done = subprocess.run(
            ["node", "ask.mjs", json.dumps([kind, given, options])],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        texts = given[0] if isinstance(given[0], list) else [tuple(given)]
        if len(given) == 1 and isinstance(given[0], str):
            texts = given
        return json.loads(done.stdout), Predictor(model).predict(texts)

    return ask


def test_text_classification(pipeline: Any) -> None:
    texts = ["free cash prize", "lunch at six"]
    found, wanted = pipeline("classification", "text-classification", [texts], top_k=9)
    for theirs, ours in zip(found, wanted, strict=True):
        scores = {each["label"]: each["score"] for each in theirs}
        assert scores == pytest.approx(ours["probabilities"], abs=1e-5)


def test_feature_extraction(pipeline: Any) -> None:
    texts = ["free cash prize", "lunch at six"]
    found, wanted = pipeline(
        *("embedding", "feature-extraction", [texts]), pooling="mean", normalize=True
    )
    vectors = [each["embedding"] for each in wanted]
    np.testing.assert_allclose(found, vectors, atol=1e-5)


def test_token_classification(pipeline: Any) -> None:
    found, wanted = pipeline(
        "token-classification", "token-classification", ["lunch at six"]
    )
    words = [word for each in wanted[0]["entities"] for word in each["text"].split()]
    first = [e["word"] for e in found if e["word"][0] not in "[#"]  # no pieces
    assert len(first) == len(words)
    assert all(w.startswith(f) for w, f in zip(words, first, strict=True))


def test_question_answering(pipeline: Any) -> None:
    found, wanted = pipeline(
        *("question-answering", "question-answering"),
        ["when is lunch", "lunch at six, you"],
    )
    assert found["answer"].strip() == wanted[0]["answer"].lower()


def test_fill_mask(pipeline: Any) -> None:
    found, wanted = pipeline("masked-lm", "fill-mask", ["free [MASK] prize"], top_k=2)
    ours = [each["probability"] for each in wanted[0]["masks"][0][:2]]
    assert [each["score"] for each in found] == pytest.approx(ours, abs=1e-5)
