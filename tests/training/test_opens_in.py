"""`opens_in`: a head that transformers reads, and what contradicts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.data.table import as_columns
from bert_keras.models.folder import Folder
from bert_keras.models.model_folder import save_model
from bert_keras.tasks import find_task
from bert_keras.tasks.base import Task
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.reranking import Reranking
from bert_keras.training.choices import Facts
from bert_keras.training.config import TrainConfig
from bert_keras.training.methods import choose_method, choose_pooling
from bert_keras.training.opens_in import with_open_head


def opened(task: Any, encoder: Path, *, method: str = "auto", **given: Any) -> Any:
    facts = Facts(
        task=task if isinstance(task, Task) else find_task(task),
        settings=None if isinstance(task, Task) else given,
        rows=as_columns(text=["a"], label=["b"]),
        config=TrainConfig(method=method, opens_in="transformers"),
        encoder=encoder,
        folder=Folder.open(encoder),
    )
    return with_open_head(facts)


def test_the_head_is_on_the_pooler(
    encoder_folder: Path, make_model: Any, tmp_path: Path
) -> None:
    facts, notes = opened("classification", encoder_folder)
    assert (facts.config.method, notes) == ("finetune", [])
    assert facts.settings == {"pooling": "pooler", "long": "truncate"}
    method = choose_method(facts, lower_layers_help=bool)
    _, pooling = choose_pooling(facts, method)
    assert pooling is not None and pooling.value == "pooler"
    assert method.reason == pooling.reason == "as `opens_in` transformers needs"
    vectors = save_model(make_model(Embedding("mean")), tmp_path / "vectors")
    _, notes = opened("reranking", vectors, pooling="pooler")
    assert len(notes) == 1 and "accuracy is lower" in notes[0]
    apart = {"pair_encoder": "bi"}
    refused(lambda: opened("regression", vectors, **apart), "`pair_encoder`", "cross")
    # A task that is kept as it is.
    mean = Classification(("a", "b"), pooling="mean")
    refused(lambda: opened(mean, encoder_folder), "`pooling`", "received 'mean'")
    assert opened(Reranking(), encoder_folder)[0].settings is None
    assert opened("token-classification", encoder_folder)[0].settings == {}


@pytest.mark.parametrize(
    "task, given, parts",
    [
        ("classification", {"method": "linear"}, ("`method`", "received linear")),
        ("multi-label", {"method": "contrastive"}, ("`method`", "contrastive")),
        ("regression", {"pooling": "mean"}, ("`pooling`", "received 'mean'")),
        ("regression", {"layers": "all"}, ("`layers`", "received 'all'")),
        ("classification", {"long": "windows"}, ("`long`", "received 'windows'")),
        ("embedding", {}, ("`opens_in`", "embedding")),
    ],
)
def test_contradictions(
    encoder_folder: Path, task: str, given: dict[str, Any], parts: tuple[str, ...]
) -> None:
    refused(lambda: opened(task, encoder_folder, **given), *parts)
