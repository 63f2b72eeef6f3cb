"""The order of training rows: a function of seed and epoch, wherever a run starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import ROWS

from bert_keras.data.columns import Columns
from bert_keras.data.table import as_columns
from bert_keras.data.text_column import joined
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.masked_lm import MaskedLM
from bert_keras.training.rows import TrainingRows

TEXTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))
COLUMNS = as_columns(text=TEXTS[:11], label=LABELS[:11])  # the last batch is short
# The same rows as of a large file: of two blocks, and in another order there.
BLOCKS = {
    role: joined([cells[5:], cells[:5]]).take([*range(6, 11), *range(6)])
    for role, cells in COLUMNS.cells.items()
}
LARGE = Columns(COLUMNS.path, BLOCKS, range(1, 12))


def flat(dataset: Any) -> list[list[np.ndarray]]:
    """Return the arrays of each batch."""
    return [
        [np.asarray(each) for part in batch for _, each in sorted(part.items())]
        for batch in dataset
    ]


@pytest.fixture(scope="module")
def rows(make_model: Any) -> Any:
    """Return a function that makes the rows of a task, on one model each."""
    tasks = {
        "classes": Classification(("ham", "promo", "spam"), class_weights="balanced"),
        "masks": MaskedLM(),
    }
    models = {name: make_model(task) for name, task in tasks.items()}

    def rows(name: str = "classes", **changes: Any) -> TrainingRows:
        settings = {"batch_size": 4, "epochs": 3, "seed": 7, **changes}
        columns = settings.pop("columns", COLUMNS)
        return TrainingRows(models[name], columns, **settings)

    return rows


def test_an_epoch_reads_each_row_once_in_its_own_order(rows: Any) -> None:
    made = rows()
    assert (made.steps_per_epoch, made.steps) == (3, 9)
    assert [made.size(step) for step in range(4)] == [4, 4, 3, 4]
    epochs = [sum((made.rows_of(3 * e + b) for b in range(3)), []) for e in range(3)]
    assert all(sorted(order) == list(range(11)) for order in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert rows(seed=8).rows_of(0) != made.rows_of(0)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [COLUMNS, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("name", ["classes", "masks"])
def test_rows_resume_anywhere(rows: Any, name: str, columns: Columns) -> None:
    whole = flat(rows(name).dataset())
    assert len(whole) == 9
    # In the middle of an epoch.
    found = flat(rows(name, columns=columns).dataset(4))
    assert len(found) == 5
    for one, other in zip(found, whole[4:], strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)


def test_batches_hold_the_reported_rows(rows: Any) -> None:
    made = rows(accumulation=2)
    assert [made.parts(step) for step in range(4)] == [2, 2, 2, 2]
    assert rows(accumulation=4).parts(2) == 3
    classes = ("ham", "promo", "spam")
    targets = [labels["targets"].numpy().tolist() for _, labels in made.dataset()]
    for step in range(made.steps):
        wanted = [classes.index(LABELS[row]) for row in made.rows_of(step)]
        assert sum(targets[2 * step : 2 * step + 2], []) == wanted


def test_labels_hold_weights_if_rows_have_them(rows: Any) -> None:
    _, labels = rows().dataset().element_spec
    assert set(labels) == {"targets", "weights"}
    inputs, labels = rows("masks").dataset().element_spec
    assert set(labels) == {"targets"} and "slots" not in inputs


def test_positions_of_rows(rows: Any) -> None:
    lines = "rows in memory, lines 1, 2, 3, 4, 5, 6, 7, 8 and 3 more"
    place = rows(batch_size=11).place(2)
    assert str(place) == f"epoch 2, step 1 of it, 2 of all ({lines})"
