"""What is known of regression before TensorFlow is imported."""

from __future__ import annotations

import dataclasses

from bert_keras.settings import FROM_DATA, option
from bert_keras.tasks.classifier_settings import PooledSettings
from bert_keras.tasks.declaration import RowForm, TaskHelp

_LARGEST = 3e38  # that float32 can represent and divide by


@dataclasses.dataclass(frozen=True)
class RegressionSettings(PooledSettings):
    """The settings of `Regression`."""

    scaling: str = option(
        "standard",
        "standard scales the targets by their mean and standard deviation; none does "
        "not",
        words=("standard", "none"),
        needs=("activation", "linear"),
        fit_takes=("mean", "std"),
    )
    mean: float = option(
        0.0,
        "subtracted from the targets during training",
        least=-_LARGEST,
        most=_LARGEST,
        unset=FROM_DATA,
    )
    std: float = option(
        1.0,
        "divides the targets during training",
        least=1e-37,
        most=_LARGEST,
        unset=FROM_DATA,
    )
    activation: str = option(
        "linear",
        "sigmoid: the answer is the sigmoid of the output, for targets from 0 to 1, as "
        "of a CrossEncoder of sentence-transformers",
        words=("linear", "sigmoid"),
        later=True,
    )


HELP = TaskHelp(
    place="bert_keras.tasks.regression:Regression",
    settings=RegressionSettings,
    summary="one number for a text or a pair of texts (similarity, rating …)",
    data="the columns of classification; label is a number",
    file="train.csv",
    rows="text,label\nNever again.,1\nWe will be back!,5",
    scores="Spearman and Pearson correlation, errors",
    answers="score",
    row_forms=(RowForm(("score", "start", "end")),),
    columns=({"text": "text", "label": "label"},),
)
