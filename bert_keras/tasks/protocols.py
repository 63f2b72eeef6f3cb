"""What only some tasks can do: protocols that callers ask for with `isinstance`.

A task has an ability by defining its methods; there is nothing to inherit or register.
`Columns` are the rows of a data set, `Answers` the outputs of `answer` by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from bert_keras.data.table import Columns

if TYPE_CHECKING:
    from bert_keras.explanations.items import Item
    from bert_keras.explanations.targets import Target

Answers = Mapping[str, np.ndarray]  # outputs of `answer` by name, each [N, …]
# Truth, bool [N], and probability, float [N], of yes-or-no decisions by name.
Decisions = dict[str, tuple[np.ndarray, np.ndarray]]


# For `report/`.


@runtime_checkable
class Reportable(Protocol):
    """The report shows mistakes of the task."""

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        """Return wrong answers, the ones to look at first in front.

        Each has the `line` of its row and, to be explained, `label` and `prediction`.
        """
        ...


@runtime_checkable
class Deciding(Protocol):
    """The report draws curves of yes-or-no decisions, and doubts labels."""

    def decisions(self, columns: Columns, answers: Answers) -> Decisions:
        """Return truth and probability of each decision by name; may be empty."""
        ...

    def doubtful_labels(
        self, columns: Columns, answers: Answers
    ) -> list[dict[str, Any]]:
        """Return the rows whose label is worth a look, least probable label first.

        The rows must be held out: a model repeats labels it has learnt.
        """
        ...

    def rival(self, mistake: Mapping[str, Any]) -> str | None:
        """Return the answer that a mistake is explained against; `None`: all others."""
        ...


# For `explanations/`.


@runtime_checkable
class Explainable(Protocol):
    """The words of a text that led to an answer can be explained."""

    def explained(self, item: Item) -> list[Target]:
        """Return the numbers of the model's outputs that are explained for an item.

        Raises:
            ConfigError: the task has no answer `item.target` or `item.against`.
        """
        ...


@runtime_checkable
class ExplainedInPairs(Protocol):
    """A task of single texts of which two are explained together."""

    def paired(self) -> Any:
        """Return the task that reads pairs.

        Raises:
            ConfigError: the settings do not allow explanations.
        """
        ...

    def pair_answers(
        self, answers: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the answer to each pair, from the answers to all texts in turn."""
        ...
