"""What is known of multi-label classification before TensorFlow is imported."""

from __future__ import annotations

import dataclasses

from bert_keras.settings import option
from bert_keras.tasks.classifier_settings import (
    CalibrationSettings,
    ClassesSettings,
    EntailmentSettings,
    PooledSettings,
    row_of_class,
)
from bert_keras.tasks.declaration import Row, RowForm, TaskHelp


@dataclasses.dataclass(frozen=True)
class MultiLabelSettings(
    ClassesSettings, CalibrationSettings, EntailmentSettings, PooledSettings
):
    """The settings of `MultiLabel`."""

    separator: str = option(
        ",", "what separates the names in a cell; spaces around names are dropped"
    )
    thresholds: tuple[float, ...] = option(
        (),
        "the probability from which a class is predicted: a list with one for each "
        "class, or one for all",
        form="a number or a list of numbers from 0 to 1",
        unset="tuned on dev, else 0.5",
        free=True,
        fitted_by=("threshold_tuning", "none"),
    )
    threshold_tuning: str = option(
        "f1",
        "f1 tunes the thresholds for the highest F1 of each class on the dev set; none "
        "keeps 0.5",
        words=("f1", "none"),
        fit_takes=("thresholds",),
    )


def _row(row: Row) -> Row:
    """Return `labels`, a list, and `probabilities`, by class."""
    return {**row_of_class(row), "labels": [name for name in row["labels"] if name]}


HELP = TaskHelp(
    place="bert_keras.tasks.multi_label:MultiLabel",
    settings=MultiLabelSettings,
    summary="any number of classes for a text or a pair of texts (topics, emotions …)",
    data="the columns of classification; label holds class names separated by commas, "
    "a list, or nothing; or, with --label food,service, there is a column of 0 and 1 "
    "for each class",
    file="train.jsonl",
    rows='{"text": "Good soup, slow waiter", "label": ["food", "service"]}',
    scores="micro and macro F1, exact match, ranking and average precision (which "
    "selects the epoch), calibration error",
    answers="labels, probabilities, classes, [B, C] each",
    row_forms=(RowForm(("labels", "probabilities", "classes"), _row),),
    columns=({"text": "text", "label": "label"},),
)
