"""Texts that are read once with each of several others: `Choices`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bert_keras.lazy_names import deferred
from bert_keras.reading.windows import LongTexts

if TYPE_CHECKING:
    import tensorflow as tf
else:
    (tf,) = deferred("tensorflow")

PLACE = "{}"  # of a choice in a template
LIMITS = "limits"  # float32 [B, C], the probability from which on a choice applies
GIVEN_LIMIT = 0.5  # of choices that are given with a text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choices(LongTexts):
    """A text in a row with each of its choices, such as sentences about classes.

    Args:
        entry: the choices in a batch, string [B, C], "" where a text has fewer.
        template: what is read of a choice, with `{}` in its place.
        usual: the choices of texts that are given alone.
        limits: of the usual choices, see `LIMITS`; empty: the answers need none.
        least: the least number of choices, which then have to be different.
    """

    entry: str
    template: str = PLACE
    usual: tuple[str, ...] = ()
    limits: tuple[float, ...] = ()
    least: int = 0

    @property
    def takes_lists(self) -> bool:
        return True

    def rule(self) -> str:
        """Return what choices must be, for an error."""
        return f"`{self.entry}` of a text must be {self.least} or more different names"

    def answer_specs(self) -> dict[str, Any]:
        found = {self.entry: tf.TensorSpec([None, None], tf.string, self.entry)}
        if self.limits:
            found[LIMITS] = tf.TensorSpec([None, None], tf.float32, LIMITS)
        return found
