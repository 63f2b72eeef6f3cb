"""The loss and the accuracy of spans by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.model.span_loss import SoftSpanLoss, SpanAccuracy, SpanLoss

# One row of two windows, of three tokens and of two, and one of padding.
WINDOW = [1, 1, 1, 2, 2, 0]
START, END = [0, 1, 0, 1, 0, 0], [0, 0, 1, 1, 0, 0]
TARGETS = np.stack([WINDOW, START, END], axis=-1)[np.newaxis]
LOGITS = np.array([[[1, 0], [2, 1], [0, 3], [5, 4], [6, 4], [99, 99]]], dtype="float32")


def cross_entropy(logits: list[float], place: int) -> float:
    return math.log(sum(map(math.exp, logits))) - logits[place]


def test_loss_by_hand() -> None:
    wanted = [
        cross_entropy([1, 2, 0], 1),
        cross_entropy([0, 1, 3], 2),
        cross_entropy([5, 6], 0),
        cross_entropy([4, 4], 0),
    ]
    found = SpanLoss()(TARGETS, LOGITS)
    assert float(found) == pytest.approx(np.mean(wanted), rel=1e-6)
    # Three of four are highest; the last shares its place.
    accuracy = SpanAccuracy()
    accuracy.update_state(TARGETS, LOGITS)
    assert float(accuracy.result()) == 3 / 4
    # A longer row weighs no less: marks are counted, not places.
    pad = ((0, 0), (0, 6), (0, 0))
    accuracy.update_state(np.pad(TARGETS, pad), np.pad(LOGITS - LOGITS, pad))
    assert float(accuracy.result()) == 7 / 8


def test_divergence_from_a_teacher_by_hand() -> None:
    rng = np.random.default_rng(0)
    teacher = rng.normal(size=(1, 6, 2)).astype("float32")
    wanted = []
    for window in (slice(0, 3), slice(3, 5)):
        p, q = (np.exp(each[0, window] / 3) for each in (teacher, LOGITS))
        p, q = p / p.sum(axis=0), q / q.sum(axis=0)
        wanted.append(9 * (p * np.log(p / q)).sum(axis=0))
    truth = np.concatenate([TARGETS[..., :1], teacher], axis=-1)
    loss = SoftSpanLoss(3.0)
    assert float(loss(truth, LOGITS)) == pytest.approx(np.mean(wanted), rel=1e-5)
    assert float(loss.counted(TARGETS)) == 4
    logits = tf.Variable(LOGITS)
    with tf.GradientTape() as tape:
        value = loss(truth, logits)
    gradient = tape.gradient(value, logits).numpy()  # of the padding, too
    assert np.isfinite(gradient).all() and (gradient[0, 5] == 0).all()


def test_a_window_in_its_own_row_has_the_same_loss() -> None:
    padded = np.zeros((2, 3, 3), "int32")
    logits = np.full((2, 3, 2), 7, "float32")
    padded[0], logits[0] = TARGETS[0, :3], LOGITS[0, :3]
    padded[1, :2], logits[1, :2] = TARGETS[0, 3:5], LOGITS[0, 3:5]
    padded[1, :2, 0] = 1
    assert float(SpanLoss()(padded, logits)) == pytest.approx(
        float(SpanLoss()(TARGETS, LOGITS)), rel=1e-6
    )


def test_windows_without_marks_have_no_loss() -> None:
    targets = TARGETS.copy()
    targets[..., 1:] = 0
    logits = tf.Variable(LOGITS)
    with tf.GradientTape() as tape:
        loss = SpanLoss()(targets, logits)
    assert float(loss) == 0
    assert not tape.gradient(loss, logits).numpy().any()


def test_the_gradient_is_finite_for_large_logits() -> None:
    logits = tf.Variable(LOGITS * 1e4)
    with tf.GradientTape() as tape:
        loss = SpanLoss()(TARGETS, logits)
    assert np.isfinite(tape.gradient(loss, logits).numpy()).all()
