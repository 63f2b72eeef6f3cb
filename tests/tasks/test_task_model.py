"""`TaskModel` as a Keras and KerasHub user takes it: what works, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS, refused

from bert_keras.model.encoder import BertEncoder
from bert_keras.model.lora import add_lora
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.tagging.feature_tagging import FeatureTagging
from bert_keras.tasks.task_model import TaskModel
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training.optimizers import AdamW

TEXTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))
CLASSES = ("ham", "promo", "spam")


def on_the_same(model: TaskModel, task: Any) -> TaskModel:
    """Return the model of another task on the encoder of a first one."""
    return TaskModel(model.backbone, task, model.preprocessor, seed=2)


# What learns.


@pytest.mark.parametrize(
    "task",
    [FeatureTagging(("O", "B-x"), layers="last"), Embedding(layers=(1,))],
    ids=lambda task: task.name,
)
def test_a_task_leaves_the_callers_encoder_as_it_was(
    encoder_folder: Path, task: Any
) -> None:
    encoder = BertEncoder.from_pretrained(
        str(encoder_folder), outputs=("hidden_states",), pooler=False
    )
    tokenizer = WordPieceTokenizer.from_folder(encoder_folder)
    before = [weight.path for weight in encoder.trainable_weights]
    model = TaskModel(encoder, task, Preprocessor(tokenizer, max_length=24))
    assert [weight.path for weight in encoder.trainable_weights] == before
    learned = {weight.path for weight in model.trainable_weights}
    assert not [path for path in learned if "layer_1/" in path]
    both = [*model.trainable_variables, *model.non_trainable_variables]
    assert {id(v) for v in both} == {id(v) for v in model.variables}
    assert len(both) == len(model.variables)
    second = on_the_same(model, Embedding())
    assert {weight.path for weight in second.trainable_weights} >= set(before)


def test_fit_moves_only_what_learns(encoder_folder: Path) -> None:
    encoder = BertEncoder.from_pretrained(
        str(encoder_folder), outputs=("hidden_states",), pooler=False
    )
    tokenizer = WordPieceTokenizer.from_folder(encoder_folder)
    task = FeatureTagging(("O", "B-x"), layers="last", units=3)
    model = TaskModel(encoder, task, Preprocessor(tokenizer, max_length=24), seed=1)
    batch = model.preprocessor.replace(layout="padded")(TEXTS)
    inputs = {name: np.array(value) for name, value in batch.items()}
    before = {weight.path: weight.numpy() for weight in model.weights}
    model.compile(AdamW(1e-2), loss="sparse_categorical_crossentropy")
    model.fit(inputs, inputs["padding_mask"], verbose=0)
    moved = {w.path for w in model.weights if (w.numpy() != before[w.path]).any()}
    assert moved == {weight.path for weight in model.trainable_weights}
    assert not [path for path in moved if path.startswith("bert/")]
    slots = [v.path for v in model.optimizer.variables if "momentum" in v.path]
    assert len(slots) == len(moved)


def test_lora_is_refused_where_no_block_learns(make_model: Callable[..., Any]) -> None:
    model = make_model(FeatureTagging(("O", "B-x"), layers="last", units=3))
    encoder = model.backbone
    refused(
        lambda: add_lora(encoder, 4, seed=1, frozen=model.task.frozen(encoder)),
        "`lora_rank`",
        "frozen",
        "4",
    )
