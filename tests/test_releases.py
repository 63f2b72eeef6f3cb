"""Folders and exports of each release open with the answers they had.

`tests/goldens/make_release_golden.py` made them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_keras.inference.predictor import load_predictor

GOLDENS = Path(__file__).parent / "goldens"
QUICK = {"classification", "embedding", "question-answering", "token-classification"}
THOROUGH = [pytest.mark.thorough]
MADE = [
    pytest.param(
        path,
        id=f"{path.parent.name}-{path.stem}",
        marks=[] if path.stem in QUICK else THOROUGH,
    )
    for path in sorted(GOLDENS.glob("release-*/*.json"))
]
EXPORTS = sorted(GOLDENS.glob("release-*/export"))


@pytest.mark.parametrize("path", MADE)
def test_a_folder_of_a_release_gives_its_answers(path: Path) -> None:
    assert_answers(path.with_suffix(""), path)


@pytest.mark.parametrize("export", EXPORTS, ids=lambda path: path.parent.name)
def test_an_export_of_a_release_gives_its_answers(export: Path) -> None:
    assert_answers(export, export.with_name("classification.json"))


def assert_answers(model: Path, path: Path) -> None:
    """Check a model's answers against those written down in `path`."""
    written = json.loads(path.read_text())
    found = load_predictor(model).predict(written["texts"])
    for wanted, answer in zip(written["answers"], found, strict=True):
        assert_alike(wanted, answer)


def assert_alike(wanted: Any, found: Any) -> None:
    """Check strings exactly and numbers within 1e-5; new keys may have been added."""
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            assert_alike(value, found[key])
    elif isinstance(wanted, list) and not np.isscalar(found):
        assert len(wanted) == len(found)
        for value, other in zip(wanted, found, strict=True):
            assert_alike(value, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=1e-5)
    else:
        assert wanted == found
