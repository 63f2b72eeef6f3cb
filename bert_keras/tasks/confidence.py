"""Settings of tasks whose answers have a probability: `Calibrated`, `Confidence`.

`bert_keras.scoring.calibration` fits them and names the sources.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from bert_keras.scoring.calibration import (
    abstention_threshold,
    check_calibration,
    fit_temperature,
    in_range,
    scaled,
)
from bert_keras.settings import check_share

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A temperature that divides the logits, in the graph of the answers.

    Args:
        calibration: `temperature` fits `temperature` on dev rows; `none` keeps it.
        temperature: divides the logits, 0.001 to 1000; above 1 the model is less sure.

    Raises:
        ConfigError: a setting is out of its range.
    """

    calibration: str = "none"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        check_calibration(self.calibration, self.temperature)

    def scaled_logits(self, outputs: Any) -> Any:
        """Return the outputs of a model divided by the temperature, float32."""
        return tf.cast(outputs, tf.float32) / self.temperature

    def with_temperature(self, factor: float) -> Self:
        """Return the task with its temperature multiplied by a factor."""
        return dataclasses.replace(
            self, temperature=in_range(self.temperature * factor)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confidence(Calibrated):
    """A calibrated task that may abstain; its `answer` says what it then returns.

    Args:
        calibration: see `Calibrated`.
        temperature: see `Calibrated`.
        abstain_below: answers with a lower score are not given.
        answered_accuracy: above 0, `abstain_below` becomes the lowest threshold at
            which the answers to dev rows reach this accuracy; 0 keeps it.

    Raises:
        ConfigError: a setting is out of its range.
    """

    free_settings: ClassVar[tuple[str, ...]] = ("temperature", "abstain_below")

    abstain_below: float = 0.0
    answered_accuracy: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("abstain_below", self.abstain_below)
        check_share("answered_accuracy", self.answered_accuracy)

    @property
    def may_abstain(self) -> bool:
        """Whether the task may abstain."""
        return bool(self.abstain_below or self.answered_accuracy)

    def with_threshold(self, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """Return the task with the threshold fitted on dev answers, if asked for.

        Args:
            confidence: float [N], the scores of the answers.
            correct: bool [N], which are right.
        """
        if not self.answered_accuracy:
            return self
        below = abstention_threshold(
            confidence, correct, accuracy=self.answered_accuracy
        )
        return dataclasses.replace(self, abstain_below=below)

    def fitted(
        self,
        labels: npt.ArrayLike,
        probabilities: npt.ArrayLike,
        *,
        absent: npt.ArrayLike | None = None,
    ) -> Self:
        """Return the task with temperature and threshold fitted on dev rows.

        Args:
            labels: integer [N], from 0 to C - 1.
            probabilities: float [N, C] that the task gave.
            absent: bool [N, C], see `fit_temperature`.
        """
        task, p = self, np.asarray(probabilities)
        if self.calibration == "temperature":
            factor = fit_temperature(labels, p, absent=absent)
            task, p = task.with_temperature(factor), scaled(p, factor, absent=absent)
        return task.with_threshold(p.max(axis=1), p.argmax(axis=1) == labels)
