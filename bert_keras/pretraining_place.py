"""Where an update of pretraining stands in the data: `PretrainingPlace`."""

from __future__ import annotations

import dataclasses
from typing import Any

from bert_keras.pretraining_plan import Phase, PretrainingPlan
from bert_keras.pretraining_records import record_places


@dataclasses.dataclass(frozen=True)
class PretrainingPlace:
    """The examples of an update.

    Args:
        plan: the run.
        step: number of the update, from 1, of the whole run.

    Example:
        >>> str(PretrainingPlace(plan, 1000))
        'step 1,000, phase 2 (data/512), examples 25,345 to 25,600 of it'
    """

    plan: PretrainingPlan
    step: int

    @property
    def phase(self) -> Phase:
        """The phase that the update belongs to."""
        return next(each for each in self.plan.phases if self.step <= each.last)

    @property
    def first(self) -> int:
        """How many examples the phase has trained on before."""
        return (self.step - 1 - self.phase.first) * self.plan.config.batch_size

    def facts(self) -> dict[str, Any]:
        """Return what `pretraining_dataset` needs to give the examples, fit for JSON.

        Its `skip_batches` is that for batches of `batch_size` examples.
        """
        size = self.plan.config.batch_size
        return {
            "step": self.step,
            "phase": self._number,
            "data": str(self.phase.data),
            "batch_size": size,
            "skip_batches": self.first // size,
            "seed": self._seed,
        }

    def records(self) -> list[dict[str, Any]]:
        """Return file and number of each example's record, from 0.

        Raises:
            DataError: a file cannot be read.
        """
        places = record_places(
            self.phase.data,
            self.plan.tokenizer,
            first=self.first,
            count=self.plan.config.batch_size,
            seed=self._seed,
        )
        return [{"file": file, "record": number} for file, number in places]

    def __str__(self) -> str:
        last = self.first + self.plan.config.batch_size
        return (
            f"step {self.step:,}, phase {self._number} ({self.phase.data}), examples "
            f"{self.first + 1:,} to {last:,} of it"
        )

    @property
    def _number(self) -> int:
        """Number of the phase, from 1."""
        return self.plan.phases.index(self.phase) + 1

    @property
    def _seed(self) -> int:
        """Seed of the order of the phase."""
        return self.phase.seed(self.plan.config)
