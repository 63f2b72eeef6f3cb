"""`TaskObjective`: a task's loss as sums and counts is the loss that `fit` takes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import is_noise, refused, thorough
from task_cases import Case, cases_of, first_case

from bert_keras.config import BertConfig
from bert_keras.distribution.strategy import Devices
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.optimizers import BertAdamW
from bert_keras.models.objective import TaskObjective
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks import TASKS
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.protocols import texts_of
from bert_keras.tasks.summarization import Summarization
from bert_keras.text.preprocessor import as_tensors
from bert_keras.training.config import TrainConfig
from bert_keras.training.plan import _check_devices
from bert_keras.training.rows import TrainingRows
from bert_keras.training.train_step import TrainStep
from bert_keras.training.updates import updates

CASES = {name: cases_of(name) for name in TASKS}
FORMS = [(name, next(iter(forms))) for name, forms in CASES.items()]
FORMS.append(("embedding", list(CASES["embedding"])[-1]))


def labelled(model: Any, case: Case, rows: slice) -> tuple[Any, dict[str, Any]]:
    """Return outputs and labels of some rows."""
    task = case.task
    texts = as_tensors(
        [part[rows] for part in texts_of(task, case.columns, use="train")]
    )
    weights = task.example_weights(case.columns)
    batch, targets, weights = task.examples(
        model.preprocessor,
        texts,
        task.targets(case.columns)[rows],
        None if weights is None else weights[rows],
    )
    labels = {"targets": targets, "weights": weights}
    return model(batch), {k: v for k, v in labels.items() if v is not None}


# Of these the loss is that of another task.
ALIKE = ("abstractive-summarization", "feature-tagging", "next-sentence")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form"),
    [thorough(*each) if each[0] in ALIKE else each for each in FORMS],
    ids=str,
)
def test_sums_over_counts_are_the_loss(make_model: Any, name: str, form: str) -> None:
    case = CASES[name][form]
    model = make_model(case.task)
    objective = TaskObjective(model)
    whole = outputs, labels = labelled(model, case, slice(None))
    loss = case.task.loss()
    wanted = loss(labels["targets"], outputs, labels.get("weights"))

    def mean(*parts: Any) -> float:
        sums = [float(objective.sums(*each)["loss"][0]) for each in parts]
        counts = [float(objective.counts(each[1])["loss"]) for each in parts]
        return sum(sums) / max(sum(counts), 1.0)

    assert mean(whole) == pytest.approx(float(wanted), rel=1e-6)
    if not case.task.compares:
        parts = (labelled(model, case, rows) for rows in (slice(3), slice(3, None)))
        assert mean(*parts) == pytest.approx(float(wanted), rel=1e-5)


class Mean(keras.losses.Loss):
    """A custom loss that is a mean over something other than rows."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.ops.sum(y_pred[:, 0]) / self.counted(y_true)

    def counted(self, y_true: Any) -> Any:
        return keras.ops.sum(keras.ops.cast(y_true, "float32"))


@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        keras.losses.SparseCategoricalCrossentropy(True, reduction="sum"),
        keras.losses.SparseCategoricalCrossentropy(True, reduction="none"),
        keras.losses.SparseCategoricalCrossentropy(True, ignore_class=1),
        keras.losses.SparseCategoricalCrossentropy(
            True, reduction="mean_with_sample_weight"
        ),
        keras.losses.SparseCategoricalCrossentropy(
            True, ignore_class=1, reduction="mean_with_sample_weight"
        ),
        Mean(),
    ],
    ids=["mean", "sum", "none", "ignores", "weights", "weights-ignores", "own"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_reduction_adds_up(
    make_model: Any, monkeypatch: pytest.MonkeyPatch, loss: Any, weighted: bool
) -> None:
    if weighted and isinstance(loss, Mean):
        pytest.skip("one number has no weights")
    task = Classification(("a", "b", "c"))
    monkeypatch.setattr(Classification, "loss", lambda self: loss)
    objective = TaskObjective(shared_model(make_model, task))
    rng = np.random.default_rng(3)
    outputs = tf.constant(rng.normal(size=(6, 3)), tf.float32)
    labels = {"targets": tf.constant([1, 0, 2, 2, 1, 0])}
    if weighted:  # small ones: together below 1
        labels["weights"] = tf.constant([0.1, 0.2, 0.05, 0.0, 0.3, 0.1])
    wanted = tf.reduce_sum(loss(labels["targets"], outputs, labels.get("weights")))

    def share(rows: slice) -> tuple[float, float]:
        some = {name: each[rows] for name, each in labels.items()}
        total = objective.sums(outputs[rows], some)["loss"][0]
        return float(total), float(objective.counts(some)["loss"])

    for slices in ([slice(None)], [slice(2), slice(2, 6)], [slice(1), slice(1, 6)]):
        sums, counts = zip(*map(share, slices), strict=True)
        found = sum(sums) / max(sum(counts), 1.0)
        assert found == pytest.approx(float(wanted), rel=1e-5)


_MODELS: list[Any] = []


def shared_model(make_model: Any, task: Any) -> Any:
    if not _MODELS:
        _MODELS.append(make_model(task))
    return _MODELS[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        thorough("classification"),
        "token-classification",
    ],
)
def test_updates_are_those_of_fit(make_model: Any, name: str) -> None:
    case = first_case(name)
    task = case.task
    if name == "classification":
        task = Classification(task.classes, class_weights="balanced")
    ours, theirs = make_model(task), make_model(task)
    rows = TrainingRows(ours, case.columns, batch_size=5, epochs=4, seed=3)
    dataset = rows.dataset()
    optimizers = [BertAdamW(1e-2) for _ in range(2)]
    optimizers[0].build(ours.trainable_variables)
    update = TrainStep(ours, optimizers[0], TaskObjective(ours), dataset.element_spec)
    losses = []
    for batch in dataset:
        made = update([batch])
        assert made.is_made
        losses.append(made.loss)
    graph = update._update.get_concrete_function().graph.as_graph_def()
    nodes = [*graph.node, *(n for f in graph.library.function for n in f.node_def)]
    norms = [node for node in nodes if node.op == "L2Loss"]
    assert len(norms) == len(ours.trainable_variables)  # to check and to clip: once
    theirs.compile(optimizers[1], loss=task.loss())
    seen: list[float] = []
    theirs.fit(
        dataset.map(
            lambda inputs, labels: (
                (inputs, labels["targets"], labels["weights"])
                if "weights" in labels
                else (inputs, labels["targets"])
            )
        ),
        verbose=0,
        callbacks=[
            keras.callbacks.LambdaCallback(
                on_train_batch_begin=lambda *_, **__: theirs.reset_metrics(),
                on_train_batch_end=lambda _, logs: seen.append(logs["loss"]),
            )
        ],
    )
    np.testing.assert_allclose(losses, seen, atol=1e-6)
    for mine, other in zip(ours.weights, theirs.weights, strict=True):
        # No answer depends on a key's bias: its gradients are rounding errors.
        if not mine.path.endswith("key/bias"):
            np.testing.assert_allclose(mine, other, atol=1e-6)


@pytest.mark.parametrize("name", ["negatives", "tokens", thorough("similarity")])
@pytest.mark.slow
def test_parts_of_rows_that_are_compared(make_model: Any, name: str) -> None:
    """Three parts of a batch give the loss and the update of the whole batch."""
    case = CASES["embedding"][name]
    found = []
    for parts in (1, 3):
        model = make_model(case.task)
        sizes = {"batch_size": 12, "accumulation": parts}
        rows = TrainingRows(model, case.columns, epochs=2, seed=3, **sizes)
        optimizer = BertAdamW(1e-3)
        optimizer.build(model.trainable_variables)
        losses = [each.loss for each in updates(model, rows, optimizer)]
        weights = {w.path: w.numpy() for w in model.weights if not is_noise(w.path)}
        found.append((losses, weights))
    (losses, weights), (theirs, others) = found
    np.testing.assert_allclose(losses, theirs, atol=1e-6)
    for path, value in weights.items():
        np.testing.assert_allclose(value, others[path], atol=1e-6, err_msg=path)


@pytest.mark.slow
def test_compared_parts_are_computed_again_with_the_same_dropout(
    encoder_folder: Path, make_model: Any
) -> None:
    case = CASES["embedding"]["ranking"]
    config = BertConfig.from_json(encoder_folder / "config.json")
    encoder = BertEncoder(dataclasses.replace(config, hidden_dropout_prob=0.5))
    model = TaskModel(encoder, case.task, make_model(case.task).preprocessor, seed=1)
    sizes = {"batch_size": 12, "accumulation": 2}
    rows = TrainingRows(model, case.columns, epochs=1, seed=3, **sizes)
    optimizer = BertAdamW(1e-3)
    optimizer.build(model.trainable_variables)
    spec = rows.dataset().element_spec
    update = TrainStep(model, optimizer, TaskObjective(model), spec)
    compute, seen, kept = update._outputs, [], []

    def outputs_of(inputs: Any) -> Any:
        seen.append(compute(inputs).numpy())
        return tf.constant(seen[-1])

    def pass_on(inputs: Any, gradients: Any) -> None:
        kept.append((seen.pop(0), compute(inputs).numpy()))

    update._outputs, update._pass_on = outputs_of, pass_on
    update(list(rows.dataset()))
    assert len(kept) == 2
    for first, second in kept:
        np.testing.assert_array_equal(first, second)
    (inputs, _) = next(iter(rows.dataset()))
    assert np.abs(compute(inputs) - compute(inputs)).max() > 0.01
    config = TrainConfig(accumulation=2, batch_size=4)
    two: Any = Devices("mirrored", mock.Mock(num_replicas_in_sync=2), "two")
    refused(lambda: _check_devices(case.task, config, two), "several replicas", "2")


def test_a_document_that_weighs_more_counts_more(make_model: Any) -> None:
    case = first_case("summarization")
    assert isinstance(case.task, Summarization)
    model = make_model(case.task)
    targets = case.task.targets(case.columns)
    weights = np.linspace(0.001, 0.002, len(targets), dtype="float32")
    texts = as_tensors(texts_of(case.task, case.columns, use="train"))
    batch, marks, weight = case.task.examples(
        model.preprocessor, texts, targets, weights
    )
    objective, outputs = TaskObjective(model), model(batch)
    labels = {"targets": marks, "weights": weight}
    total = float(objective.sums(outputs, labels)["loss"][0])
    wanted = float(case.task.loss()(marks, outputs, weight))
    count = float(objective.counts(labels)["loss"])
    assert total / count == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("loss", [None, [Mean(), Mean()]], ids=["none", "several"])
def test_a_compiled_loss_must_be_one_or_named(make_model: Any, loss: Any) -> None:
    model = make_model(Classification(("a", "b", "c")))
    model.compile(BertAdamW(1e-3), loss)
    refused(lambda: TaskObjective(model), "`loss` of `compile` must be a loss or a")
    model.compile(BertAdamW(1e-3), {"classification": Mean()})
    assert isinstance(TaskObjective(model).losses["loss"].loss, Mean)


def test_losses_are_weighted_by_name(make_model: Any) -> None:
    objective = TaskObjective(make_model(Classification(("a", "b", "c"))))
    objective.loss_weights = {"one": 0.5}
    sums = {name: (tf.constant(6.0), tf.constant(0.0)) for name in ("one", "other")}
    totals = {"one": tf.constant(3.0), "other": tf.constant(0.0)}  # 6 / 3 and 6 / 1
    assert float(objective.loss(sums, totals)) == 0.5 * 2 + 6


def test_an_own_compute_loss_is_refused_on_replicas(make_model: Any) -> None:
    class Own(TaskModel):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            return super().compute_loss(*args, **kwargs)

    model = make_model(Classification(("a", "b", "c")))
    own = Own(model.backbone, model.task, model.preprocessor)
    refused(lambda: own._step_together(None, training=True), "`compute_loss` must be")
