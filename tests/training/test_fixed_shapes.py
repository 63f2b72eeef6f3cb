"""Batches of few shapes: the same is learned, and XLA compiles each task's step.

A TPU's compiler is XLA; here it compiles for the CPU.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROWS, refused, thorough, write_encoder
from task_cases import cases_of

from bert_keras.data.table import as_columns
from bert_keras.distribution.replicas import Share
from bert_keras.distribution.strategy import find_strategy
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.objective import TaskObjective
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks import TASKS
from bert_keras.tasks.classification import Classification
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training.config import TrainConfig
from bert_keras.training.finetune import train
from bert_keras.training.updates import new_optimizer, training_rows, updates

T, B = 24, 4
CONFIG = TrainConfig(batch_size=B, epochs=2, learning_rate=3e-3, max_length=T)
FORMS = {name: cases_of(name) for name in TASKS}
EACH = [(name, list(cases)[-1]) for name, cases in FORMS.items()]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny encoder without dropout."""
    return write_encoder(tmp_path_factory.mktemp("fixed") / "encoder")


def made(encoder: Path, name: str, form: str) -> tuple[TaskModel, Any]:
    """Return a new model of a task's form, and rows that fill whole batches."""
    case = FORMS[name][form]
    keras.utils.set_random_seed(3)
    task = case.task
    backbone = BertEncoder.from_pretrained(
        str(encoder), pooler=task.needs.pooler, outputs=task.needs.outputs
    )
    tokenizer = WordPieceTokenizer.from_folder(encoder)
    model = TaskModel(
        backbone, task, Preprocessor(tokenizer, max_length=T, layout="packed"), seed=1
    )
    return model, case.columns.take(range(len(case.columns) // B * B))


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "form"), EACH)
def test_the_learned_weights_are_the_same(encoder: Path, name: str, form: str) -> None:
    found = []
    for fixed in (False, True):
        model, columns = made(encoder, name, form)
        rows = training_rows(model, columns, CONFIG, fixed=fixed)
        optimizer = new_optimizer(CONFIG, steps=rows.steps)
        optimizer.build(model.trainable_variables)
        losses = [each.loss for each in updates(model, rows, optimizer)]
        found.append((losses, [weight.numpy() for weight in model.weights]))
    (losses, weights), (again, learned) = found
    np.testing.assert_allclose(again, losses, atol=1e-5, rtol=1e-5)
    # Adam divides a gradient by its own size, so a bias whose gradient is nearly 0 is
    # moved by its rounding, which differs between processors and shapes. An update
    # moves every other weight by about the learning rate, 3e-3: 100 times as far.
    for one, two in zip(weights, learned, strict=True):
        np.testing.assert_allclose(two, one, atol=3e-5)


@pytest.mark.parametrize(
    ("name", "form"),
    [each if each[0] == "classification" else thorough(*each) for each in EACH],
)
@pytest.mark.slow
def test_xla_compiles_the_step(encoder: Path, name: str, form: str) -> None:
    model, columns = made(encoder, name, form)
    rows = training_rows(model, columns, CONFIG, fixed=True)
    batches = list(rows.dataset())
    shapes = {str(tf.nest.map_structure(lambda v: v.shape, each)) for each in batches}
    if model.task.needs.rows_per_text is not None:
        assert len(shapes) == 1
    for inputs, _ in batches:
        assert inputs["token_ids"].shape[-1] == T
        assert inputs["token_ids"].shape[0] % B == 0
    objective = TaskObjective(model)

    def step(inputs: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss, _ = objective.sums(model(inputs, training=True), labels)["loss"]
        weights = [weight.value for weight in model.trainable_variables]
        gradients = tape.gradient(loss, weights)
        return loss, [tf.convert_to_tensor(each) for each in gradients]

    plain = tf.function(step, autograph=False)(*batches[0])
    compiled = tf.function(step, autograph=False, jit_compile=True)(*batches[0])
    np.testing.assert_allclose(compiled[0], plain[0], rtol=1e-5)
    # For the key's bias it is 0 except for rounding; the others give the scale.
    most = max(np.abs(gradient).max() for gradient in plain[1])
    for one, two in zip(plain[1], compiled[1], strict=True):
        np.testing.assert_allclose(two, one, atol=1e-5 * most)


def test_shapes_are_known_before_the_first_batch(encoder: Path) -> None:
    model, columns = made(encoder, "classification", "single")
    rows = training_rows(model, columns, CONFIG, fixed=True)
    inputs, labels = rows.dataset(share=Share(0, 2, 2)).element_spec
    assert {tuple(spec.shape) for spec in inputs.values()} == {(B // 2, T)}
    assert tuple(labels["targets"].shape) == (B // 2,)


def test_rows_that_fill_no_batch_are_left_out(encoder: Path) -> None:
    model, columns = made(encoder, "classification", "single")
    part = columns.take(range(7))
    config = dataclasses.replace(CONFIG, accumulation=2, epochs=5)
    rows = training_rows(model, part, config, fixed=True)
    assert (rows.steps_per_epoch, rows.steps) == (1, 5)
    assert [len(y["targets"]) for _, y in rows.dataset()] == [2] * 10
    chosen = [rows.rows_of(step) for step in range(5)]
    assert [len(each) for each in chosen] == [B] * 5
    assert set(itertools.chain(*chosen)) == set(range(7))  # others in each epoch
    refused(
        lambda: training_rows(model, columns.take(range(3)), CONFIG, fixed=True),
        "`batch_size` must be at most the number of training rows (3) on a TPU",
    )


@pytest.mark.slow
def test_a_run_as_on_a_tpu(encoder: Path, tmp_path: Path) -> None:
    # As on a TPU except for the device: one shape, dev scored by a copy.
    texts, labels = zip(*ROWS[:10], strict=True)
    rows = as_columns(text=texts, label=labels)
    one = find_strategy("single")
    task = Classification(("ham", "promo", "spam"))
    result = train(
        task,
        encoder=encoder,
        train=rows,
        dev=rows,
        output=tmp_path / "model",
        config=dataclasses.replace(CONFIG, epochs=12),
        devices=dataclasses.replace(one, name="tpu"),
    )
    steps = [row["step"] for row in result.history if "loss" in row]
    assert steps[-1] == 24  # 10 rows are two batches of 4
    assert result.scores["dev"]["accuracy"] > 0.8
