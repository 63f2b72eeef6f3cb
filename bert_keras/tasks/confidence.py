"""`Confidence`: settings of tasks whose answers say how sure they are.

Source: see `calibration`, which fits them.
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
class Confidence:
    """What a task with scores has besides: a temperature, and when it abstains.

    Both lie in the graph of its answers, and so in the SavedModel. A task that inherits
    them says in its `answer` what it does when it abstains.

    Args:
        calibration: `temperature` fits `temperature` on dev rows; `none` keeps it.
        temperature: divides the logits, 0.001 to 1000; above 1 the model is less sure.
        abstain_below: an answer whose score is below it is not given.
        answered_accuracy: above 0, `abstain_below` is the lowest threshold with which
            the answers to dev rows are right so often; 0 keeps it as it is.

    Raises:
        ConfigError: a setting is out of its range.
    """

    free_settings: ClassVar[tuple[str, ...]] = ("temperature", "abstain_below")

    calibration: str = "none"
    temperature: float = 1.0
    abstain_below: float = 0.0
    answered_accuracy: float = 0.0

    def __post_init__(self) -> None:
        check_calibration(self.calibration, self.temperature)
        check_share("abstain_below", self.abstain_below)
        check_share("answered_accuracy", self.answered_accuracy)

    @property
    def may_abstain(self) -> bool:
        """Whether some answers may not be given."""
        return bool(self.abstain_below or self.answered_accuracy)

    def scaled_logits(self, outputs: Any) -> Any:
        """Return the outputs of a model divided by the temperature, float32."""
        return tf.cast(outputs, tf.float32) / self.temperature

    def with_temperature(self, factor: float) -> Self:
        """Return the task with a temperature so many times as high."""
        return dataclasses.replace(
            self, temperature=in_range(self.temperature * factor)
        )

    def with_threshold(self, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """Return the task with the threshold that dev answers tell, if it wants one.

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
        """Return the task with temperature and threshold that dev rows tell.

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
