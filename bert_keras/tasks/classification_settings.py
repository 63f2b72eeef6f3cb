"""What is known of classification before TensorFlow is imported."""

from __future__ import annotations

import dataclasses

from bert_keras.settings import option
from bert_keras.tasks.classifier_settings import (
    ROW_OF_CLASS,
    ClassesSettings,
    ConfidenceSettings,
    EntailmentSettings,
    PooledSettings,
)
from bert_keras.tasks.declaration import TaskHelp


@dataclasses.dataclass(frozen=True)
class ClassificationSettings(
    ClassesSettings, ConfidenceSettings, EntailmentSettings, PooledSettings
):
    """The settings of `Classification`."""

    class_weights: str = option(
        "none",
        "balanced: rare classes have the same total weight in the training loss as "
        "frequent ones",
        words=("none", "balanced"),
        fit_takes=(),
    )
    positive_class: str = option(
        "",
        "the class whose F1 is reported. A model of pairs ranks documents by its "
        "probability",
        form="a class",
        unset="the second of two",
        free=True,
        read_by=("scores",),
    )


HELP = TaskHelp(
    place="bert_keras.tasks.classification:Classification",
    settings=ClassificationSettings,
    summary="one class for a text or a pair of texts (spam, sentiment, paraphrase …)",
    data="the columns text and label; for pairs also text_pair",
    file="train.csv",
    rows="text,label\nDinner at ours on Friday?,not_spam\nClaim your prize now!!!,spam",
    scores="accuracy, F1 of the positive class and of all classes, Matthews "
    "correlation, calibration error",
    answers="label, score, probabilities, classes; abstained",
    row_forms=(ROW_OF_CLASS,),
    columns=({"text": "text", "label": "label"},),
)
