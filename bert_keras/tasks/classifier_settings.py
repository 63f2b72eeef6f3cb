"""Settings that several tasks share: classes, entailment, a pooled head, calibration …

Imports nothing heavy.
"""

from __future__ import annotations

import dataclasses

from bert_keras.settings import (
    ALL_LAYERS,
    BI,
    CROSS,
    FROM_DATA,
    LAST_LAYER,
    POOLER,
    POOLINGS,
    REQUIRED,
    Condition,
    Option,
    option,
)
from bert_keras.tasks.declaration import Row, RowForm
from bert_keras.tasks.long_text_settings import LongTextSettings

CLASSES = Option(
    REQUIRED,
    "the class names, in the order of the outputs; can be renamed after training",
    form="a list of names",
    unset=FROM_DATA,
    free=True,
)
POOLING = Option(
    POOLER,
    "the vector that the head reads: pooler, the output of BERT's pooler, as in "
    "transformers; the others pool the vectors of the tokens, as sentence-transformers "
    "does",
    words=(POOLER, *POOLINGS),
    unset="pooler. The methods linear, contrastive and auto, and long texts that "
    "`train` reads in windows by itself, use the pooling of the encoder's folder "
    "(linear and contrastive: mean if it has none). A model that is trained further "
    "keeps its own",
    later=True,
)
# Logits divided by these temperatures stay finite and distinct in float32.
COLDEST, HOTTEST = 1e-3, 1000


def row_of_class(row: Row) -> Row:
    """Return `label`, `score` and `probabilities`, by class; padding is no class."""
    shown = {key: value for key, value in row.items() if key != "classes"}
    named = zip(row["classes"], row["probabilities"], strict=True)
    return {**shown, "probabilities": {name: value for name, value in named if name}}


ROW_OF_CLASS = RowForm(("label", "score", "probabilities", "classes"), row_of_class)


@dataclasses.dataclass(frozen=True)
class ClassesSettings:
    """The settings of a task with one output for each of its named classes."""

    classes: tuple[str, ...] = CLASSES.field()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PooledSettings(LongTextSettings):
    """The settings of a task with a head on the vector of a text, or of a pair."""

    pairs: bool | None = option(
        False, "whether a row is a pair of texts", unset=FROM_DATA
    )
    pooling: str = POOLING.field()
    normalize: bool = option(
        False,
        "whether the vector is normalized to length 1 before the head",
        unset="false. The methods linear and contrastive follow the encoder's folder. "
        "A model that is trained further keeps its own",
        later=True,
    )
    layers: str = option(
        LAST_LAYER,
        "the layers that the head reads: last, or all, the concatenated vectors of the "
        "embeddings and of each layer",
        words=(LAST_LAYER, ALL_LAYERS),
        unset="last. With the method linear and up to 2,048 rows, what "
        "cross-validation finds better. A model that is trained further keeps its own",
        later=True,
        needs=Condition(
            "pooling", "a `pooling` of the tokens", lambda task: task.pooling != POOLER
        ),
    )
    pair_encoder: str = option(
        CROSS,
        "how a pair is read: cross, both texts in one row, as a cross-encoder does; "
        "bi, each text by itself, as a bi-encoder does, and the head reads the "
        "absolute difference, the product and the cosine similarity of their vectors",
        words=(CROSS, BI),
        unset="cross. The method linear takes bi, and so does auto for numbers and "
        "few pairs if the encoder was trained for vectors of texts. A model that is "
        "trained further keeps its own",
        later=True,
        needs=("pairs", True),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntailmentSettings:
    """The settings of a classifier whose head is an entailment model's."""

    entailment: tuple[str, ...] = option(
        (),
        "the outputs of an entailment model, such as contradiction, entailment and "
        "neutral: a class is scored by whether the text entails `template` with its "
        "name; see `bert-keras classes`",
        form="a list of names",
        unset="none: one output for each class",
        later=True,
    )
    template: str = option(
        "This example is {}.",
        "the sentence about a class, with {} for its name; for `entailment`",
        form="a text with {}",
        free=True,
        later=True,
        needs=Condition(
            "entailment", "an entailment model", lambda task: bool(task.entailment)
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrationSettings:
    """The settings of a task whose logits are divided by a temperature."""

    calibration: str = option(
        "none",
        "temperature: fit the temperature on the dev set; none: keep it",
        words=("none", "temperature"),
        fit_takes=(),
    )
    temperature: float = option(
        1.0,
        "divides the logits; above 1 the model is less confident",
        least=COLDEST,
        most=HOTTEST,
        free=True,
        fitted_by=("calibration", "none"),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfidenceSettings(CalibrationSettings):
    """The settings of a task that may abstain."""

    abstain_below: float = option(
        0.0,
        "answers with a lower score are withheld",
        least=0,
        most=1,
        free=True,
        fitted_by=("answered_accuracy", 0.0),
    )
    answered_accuracy: float = option(
        0.0,
        "above 0, abstain_below becomes the lowest threshold that gives this accuracy "
        "on the dev set",
        least=0,
        most=1,
        fit_takes=(),
    )
