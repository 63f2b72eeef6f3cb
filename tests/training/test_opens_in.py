"""`opens_in`: a head that transformers reads, and what contradicts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.models.model_folder import save_model
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.reranking import Reranking
from bert_keras.training.config import TrainConfig
from bert_keras.training.opens_in import with_open_head


def opened(task: Any, encoder: Path, *, method: str = "auto", **given: Any) -> Any:
    lines: list[str] = []
    config = TrainConfig(method=method, opens_in="transformers")
    settings = given.pop("settings", given)
    found = with_open_head(task, config, settings, encoder=encoder, tell=lines.append)
    return *found, lines


def test_the_head_is_on_the_pooler(
    encoder_folder: Path, make_model: Any, tmp_path: Path
) -> None:
    task, config, settings, lines = opened("classification", encoder_folder)
    assert (task, config.method) == (Classification, "finetune")
    assert (settings, lines) == ({"pooling": "pooler", "long": "truncate"}, [])
    vectors = save_model(make_model(Embedding("mean")), tmp_path / "vectors")
    *_, lines = opened("reranking", vectors, pooling="pooler")
    assert len(lines) == 1 and "less accurate" in lines[0]
    # A task that was made from rows, and one that is kept as it is.
    mean = Classification(("a", "b"), pooling="mean", normalize=True)
    assert opened(mean, encoder_folder)[0] == Classification(("a", "b"))
    refused(lambda: opened(mean, encoder_folder, settings=None), "`pooling`", "mean")
    assert opened(Reranking(), encoder_folder, settings=None)[2] is None
    assert opened("token-classification", encoder_folder)[2] == {}


@pytest.mark.parametrize(
    "task, given, parts",
    [
        ("classification", {"method": "linear"}, ("`method`", "received linear")),
        ("multi-label", {"method": "contrastive"}, ("`method`", "contrastive")),
        ("regression", {"pooling": "mean"}, ("`pooling`", "received mean")),
        ("regression", {"layers": "all"}, ("`layers`", "received all")),
        ("classification", {"long": "windows"}, ("`long`", "received windows")),
        ("embedding", {}, ("`opens_in`", "embedding")),
    ],
)
def test_contradictions(
    encoder_folder: Path, task: str, given: dict[str, Any], parts: tuple[str, ...]
) -> None:
    refused(lambda: opened(task, encoder_folder, **given), *parts)
