"""A hub name is resolved once: tokenizer and weights are of one revision."""

from __future__ import annotations

import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import VOCABULARY

from bert_keras.checkpoints import one_revision, read_checkpoint, resolve
from bert_keras.cli.info import describe
from bert_keras.inference.predictor import load_predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.convert import convert
from bert_keras.models.loading import new_model
from bert_keras.retrieval.embedder import load_embedder
from bert_keras.tasks.classification import Classification
from bert_keras.training.config import TrainConfig

NAME = "hf://owner/name"


@pytest.fixture
def moving_hub(
    encoder_folder: Path,
    spam_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[], int]:
    """Put a hub in the place of the real one whose revision changes at each call.

    Each revision has its tokens in another order; returns the number of queries.
    """
    calls = 0

    def download(name: str, *, revision: Any, allow_patterns: list[str]) -> str:
        nonlocal calls
        calls += 1
        source = spam_folder if name == "owner/spam" else encoder_folder
        folder = tmp_path / "snapshots" / f"{calls:040x}"
        shutil.copytree(source, folder)
        words = VOCABULARY[5:]
        turned = [*VOCABULARY[:5], *words[calls:], *words[:calls]]
        (folder / "vocab.txt").write_text("\n".join(turned) + "\n", encoding="utf-8")
        return str(folder)

    hub = types.ModuleType("huggingface_hub")
    hub.snapshot_download = download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    return lambda: calls


def test_each_call_queries_the_hub_once(
    moving_hub: Callable[[], int], tmp_path: Path
) -> None:
    def new() -> object:
        task = Classification(("a", "b"))
        return new_model(task, NAME, TrainConfig(max_length=16))

    calls: list[Callable[[], object]] = [
        new,
        lambda: load_embedder(NAME),
        lambda: load_predictor("hf://owner/spam"),
        lambda: describe(NAME),
        lambda: convert(NAME, tmp_path / "google", to="google"),
        lambda: BertEncoder.from_pretrained(NAME),
    ]
    for number, call in enumerate(calls, 1):
        call()
        assert moving_hub() == number, number


def test_an_open_checkpoint_is_not_reopened(moving_hub: Callable[[], int]) -> None:
    checkpoint = read_checkpoint(NAME)
    assert read_checkpoint(checkpoint) is checkpoint
    BertEncoder.from_pretrained(checkpoint)
    assert moving_hub() == 1


def test_several_runs_start_from_one_revision(moving_hub: Callable[[], int]) -> None:
    with one_revision():
        first, second = resolve(NAME), resolve(NAME)
        other = resolve(f"{NAME}@v1")
    assert first == second != other
    assert resolve(NAME) != first
    assert moving_hub() == 3
