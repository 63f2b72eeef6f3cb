"""What a verb does not use it does not import, and what never changes is made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

# Only presets of KerasHub, other formats and other verbs need them.
UNUSED = {
    *("keras_hub.models", "nltk", "rouge_score", "kagglesdk.kaggle_client"),
    *("pandas", "pyarrow", "matplotlib", "sklearn", "scipy.stats", "tensorboard"),
    *("openvino", "onnx", "onnxruntime", "torch", "transformers", "grpc", "fsspec"),
    "bert_keras.inference.convert",
}
READS = {
    *("jinja2", "rich.progress", "bert_keras.training", "bert_keras.report"),
    *("bert_keras.explanations", "bert_keras.serving", "bert_keras.pretraining"),
}
SCRIPT = """
import json, sys
from bert_keras.cli.main import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "unused"),
    [
        ("predict MODEL hello", UNUSED | READS),
        ("evaluate MODEL ROWS", UNUSED | {"bert_keras.explanations"}),
        ("export MODEL OUTPUT", UNUSED | READS - {"jinja2", "bert_keras.report"}),
        (
            "train classification --encoder MODEL --train ROWS --dev ROWS --output "
            "OUTPUT --epochs 1 --explain-mistakes 0",
            UNUSED | {"bert_keras.explanations", "bert_keras.serving"},
        ),
    ],
    ids=lambda value: value.split()[0] if isinstance(value, str) else "",
)
def test_a_verb_imports_what_it_uses(
    words: str, unused: set[str], spam_folder: Path, spam_file: Path, tmp_path: Path
) -> None:
    places = {"MODEL": spam_folder, "ROWS": spam_file, "OUTPUT": tmp_path / "output"}
    command = [str(places.get(word, word)) for word in words.split()]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, done.stderr
    assert "tensorflow" in modules
    assert sorted(unused.intersection(modules)) == []


def test_the_rest_of_keras_hub_is_imported_at_its_first_use() -> None:
    script = (
        "import sys\n"
        "from bert_keras.tasks.keras_hub_task import Task\n"
        "import keras_hub\n"
        "assert 'keras_hub.models' not in sys.modules\n"
        "from keras_hub import tokenizers\n"
        "assert keras_hub.models.Task is Task and keras_hub.__version__\n"
        "assert keras_hub.src and not hasattr(keras_hub, 'nothing')\n"
        "import kagglehub\n"
        "assert callable(kagglehub.model_download)\n"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
