"""Layers on tokens: how a new projection starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import ROWS

from bert_keras.data.table import as_columns
from bert_keras.reading.dense import principal_kernel
from bert_keras.runs.notes import collected
from bert_keras.training.choices import TrainRequest
from bert_keras.training.config import TrainConfig
from bert_keras.training.finetune import plan_of
from bert_keras.training.plan import model_of


def test_the_kernel_by_hand() -> None:
    """Mean squares of 4, 1 and 0: divided by the fourth roots, with the same sum."""
    vectors = np.array([[2.0, 0, 0], [-2, 0, 0], [0, 1, 0], [0, -1, 0]]) * np.sqrt(2)
    kernel = principal_kernel(vectors.astype(np.float32), 2)
    scale = np.sqrt(5 / 3)
    wanted = scale * np.array([[4**-0.25, 0], [0, 1], [0, 0]])
    np.testing.assert_allclose(np.abs(kernel), wanted, atol=1e-5)
    few = principal_kernel(vectors[:1].astype(np.float32), 3)  # one has a variance
    assert np.abs(few).max() < 10


@pytest.mark.parametrize("units", [6, 16])
def test_a_projection_starts_with_the_tokens(
    units: int, encoder_folder: Path, tmp_path: Path
) -> None:
    texts = [text for text, _ in ROWS]
    layer = {"units": units, "activation": "linear", "use_bias": False}
    request = TrainRequest(
        task="embedding",
        encoder=encoder_folder,
        train=as_columns(text=texts, text_pair=texts[::-1]),
        output=tmp_path / "out",
        config=TrainConfig(validation_split=0.0, epochs=1),
        task_settings={"kind": "tokens", "dense": [{**layer, "on_tokens": True}]},
    )
    planned, devices = plan_of(request)
    with collected() as told:
        model = model_of(planned, devices)
    note = "dense_0: starts with the principal components of the tokens of 24 training"
    is_set = units < 16  # the width of the encoder
    (line,) = [line for line in told if line.startswith("dense_0")]
    assert line.startswith(note if is_set else "dense_0: initialized randomly")
    kernel = model.get_layer("dense_0").kernel.numpy()
    products = kernel.T @ kernel  # orthogonal columns of different lengths
    np.testing.assert_allclose(products, np.diag(np.diag(products)), atol=1e-4)
    assert (np.ptp(np.diag(products)) > 0.01) == is_set
