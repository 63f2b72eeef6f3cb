"""The loss on a teacher's outputs, against numbers worked out with NumPy."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest

from bert_keras.model.contrastive import (
    SimilarityOrderLoss,
    SoftSimilarityLoss,
    SparseRankingLoss,
)
from bert_keras.model.distillation import (
    SoftTargetLoss,
    hidden_state_errors,
    relation_divergences,
    softened,
)
from bert_keras.model.heads import SmoothedCrossentropy
from bert_keras.model.ranking import ListwiseLoss, MarginLoss

TEACHER = np.array([[2.0, -1.0, 0.5], [0.0, 0.0, 3.0]])
STUDENT = np.array([[0.5, 0.5, -2.0], [1.0, -1.0, 2.0]])


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_softmax_and_sigmoid(temperature: float) -> None:
    p, q = softmax(TEACHER / temperature), softmax(STUDENT / temperature)
    wanted = temperature**2 * (p * np.log(p / q)).sum(axis=1).mean()
    found = SoftTargetLoss("softmax", temperature)(TEACHER, STUDENT)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    p, q = sigmoid(TEACHER / temperature), sigmoid(STUDENT / temperature)
    each = p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))
    found = SoftTargetLoss("sigmoid", temperature)(TEACHER, STUDENT)
    np.testing.assert_allclose(found, temperature**2 * each.mean(), rtol=1e-5)


def test_numbers_and_equal_outputs() -> None:
    found = SoftTargetLoss("linear")(TEACHER, STUDENT)
    np.testing.assert_allclose(found, ((TEACHER - STUDENT) ** 2).mean(), rtol=1e-6)
    for activation in ("linear", "softmax", "sigmoid"):
        assert abs(float(SoftTargetLoss(activation)(TEACHER, TEACHER))) < 1e-6


@pytest.mark.parametrize(
    ("loss", "activation", "reduction"),
    [
        (keras.losses.SparseCategoricalCrossentropy(True), "softmax", None),
        (keras.losses.SparseCategoricalCrossentropy(), "", None),
        (
            keras.losses.SparseCategoricalCrossentropy(True, ignore_class=-1),
            "softmax",
            "mean_with_sample_weight",
        ),
        (keras.losses.CategoricalCrossentropy(True, reduction="sum"), "softmax", "sum"),
        (keras.losses.BinaryCrossentropy(True), "sigmoid", None),
        (keras.losses.MeanSquaredError(), "linear", None),
        (SmoothedCrossentropy(0.1), "softmax", "mean_with_sample_weight"),
        (keras.losses.Hinge(), "", None),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_a_loss_of_labels_says_what_a_teacher_gives_in_their_place(
    loss: Any, activation: str, reduction: str | None
) -> None:
    found: Any = softened(loss, 3.0)
    if not activation:
        assert found is None
        return
    assert found.activation == activation
    assert found.reduction == (reduction or "sum_over_batch_size")
    assert found.has_temperature == (activation != "linear")
    assert not found.has_temperature or found.temperature == 3.0


def test_losses_that_compare_rows_take_the_labels_that_say_which() -> None:
    scores = np.array([[3.0], [1.0]], "float32")
    labels = np.array([[1.0, 7], [0.0, 7]], "float32")
    for loss in (ListwiseLoss(), MarginLoss()):
        found: Any = softened(loss, 3.0)
        assert found.compares and not found.has_temperature
        wanted = [[3.0, 7], [1.0, 7]]
        np.testing.assert_array_equal(found.targets(scores, labels), wanted)
    found = softened(SimilarityOrderLoss(5.0, (2,)), 3.0)
    assert found.compares and found.normalize
    assert (found.scale, found.temperature, found.dimensions) == (5.0, 3.0, (2,))
    vectors = np.zeros((4, 3), "float32")
    assert found.targets(vectors, np.zeros(2)).shape == (2, 6)
    assert not softened(SparseRankingLoss(), 3.0).normalize  # type: ignore[union-attr]


def test_similarities_of_the_texts_of_a_batch() -> None:
    rng = np.random.default_rng(0)
    teacher, student = rng.normal(size=(4, 5)), rng.normal(size=(4, 3))

    def others(x: np.ndarray) -> np.ndarray:
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        return (10 * x @ x.T)[~np.eye(4, dtype=bool)].reshape(4, 3)

    def wanted(student: np.ndarray) -> np.ndarray:
        p, q = softmax(others(teacher) / 4), softmax(others(student) / 4)
        return 16 * (p * np.log(p / q)).sum(axis=1).reshape(2, 2).mean(axis=1)

    targets = teacher.reshape(2, 10)
    for widths in [(), (2,)]:
        loss = SoftSimilarityLoss(10.0, 4.0, widths, reduction=None)
        every = sum(wanted(student[:, :width]) for width in (3, *widths))
        np.testing.assert_allclose(loss(targets, student), every, rtol=1e-4)


def test_hidden_states_of_equal_and_of_other_widths() -> None:
    rng = np.random.default_rng(0)
    teacher = rng.normal(size=(6, 2, 5, 4)).astype("float32")
    student = rng.normal(size=(3, 2, 5, 4)).astype("float32")
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    errors = np.square(teacher[::2] - student).mean(axis=(0, 3)) * mask
    found = hidden_state_errors(list(teacher), list(student), mask)
    np.testing.assert_allclose(found, errors, rtol=1e-5)
    narrow, wanted = student[..., :2], np.zeros((2, 5))
    for one, other in zip(teacher[::2], narrow, strict=True):
        x, y = other[mask == 1], one[mask == 1]
        w = np.linalg.lstsq(x, y, rcond=None)[0]
        wanted += np.square(one - other @ w).mean(axis=-1) / 3
    found = hidden_state_errors(list(teacher), list(narrow), mask)
    np.testing.assert_allclose(found, wanted * mask, atol=2e-2)


def test_relations_of_tokens_whatever_the_widths() -> None:
    rng = np.random.default_rng(0)
    teacher = rng.normal(size=(3, 1, 4, 24)).astype("float32")
    student = rng.normal(size=(3, 1, 4, 12)).astype("float32")
    mask = np.array([[1, 1, 1, 0]])
    bias = np.where(mask == 1, 0.0, -1e9)[:, None, None].astype("float32")

    def relations(x: np.ndarray) -> np.ndarray:
        parts = np.stack(np.split(x[0], 12, axis=-1))  # a head of each
        scores = parts @ parts.transpose(0, 2, 1) / np.sqrt(parts.shape[-1])
        return softmax(scores[:, :3, :3])

    wanted = np.zeros(4)
    for one, other in zip(teacher, student, strict=True):
        p, q = relations(one), relations(other)
        wanted[:3] += (p * np.log(p / q)).sum(axis=-1).mean(axis=0) / 3
    found = relation_divergences(list(teacher), list(student), bias, mask)
    np.testing.assert_allclose(found, wanted[None], rtol=1e-4, atol=1e-7)


def test_extreme_outputs_are_finite() -> None:
    far = np.array([[1e9, -1e9]])
    for activation in ("softmax", "sigmoid"):
        assert np.isfinite(float(SoftTargetLoss(activation)(far, far)))


def test_its_config_restores_it() -> None:
    loss = SoftTargetLoss("sigmoid", 3.0)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    np.testing.assert_allclose(again(TEACHER, STUDENT), loss(TEACHER, STUDENT))
