"""Settings that several tasks share: classes, pairs, calibration, abstention.

Imports nothing heavy.
"""

from __future__ import annotations

import dataclasses

from bert_keras.settings import REQUIRED, Option, option

CLASSES = Option(
    REQUIRED,
    "the class names, in the order of the outputs; after training it renames them",
    form="a list of names",
    unset="from the data",
    free=True,
)
PAIRS = Option(False, "whether a row is a pair of texts", unset="from the data")
# Logits divided by these temperatures stay finite and distinct in float32.
COLDEST, HOTTEST = 1e-3, 1000


@dataclasses.dataclass(frozen=True)
class ClassesSettings:
    """The settings of a task with one output for each of its named classes."""

    classes: tuple[str, ...] = CLASSES.field()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrationSettings:
    """The settings of a task whose logits are divided by a temperature."""

    calibration: str = option(
        "none",
        "temperature fits the temperature on the dev set; none keeps it",
        words=("none", "temperature"),
    )
    temperature: float = option(
        1.0,
        "divides the logits; above 1 the model is less confident",
        least=COLDEST,
        most=HOTTEST,
        free=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConfidenceSettings(CalibrationSettings):
    """The settings of a task that may abstain."""

    abstain_below: float = option(
        0.0, "answers with a lower score are withheld", least=0, most=1, free=True
    )
    answered_accuracy: float = option(
        0.0,
        "above 0, abstain_below becomes the lowest threshold that gives this accuracy "
        "on the dev set",
        least=0,
        most=1,
    )
