"""What is explained: `Item`, its `Rows` in the model's input, and `Target`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_keras.errors import ConfigError, first_of, received
from bert_keras.explanations.words import WordList, words_in_row
from bert_keras.models.task_model import TaskModel
from bert_keras.text.preprocessor import as_tensors

LOG_ODDS = "log-odds"


class Rows(NamedTuple):
    """The input of the model for an item.

    Attributes:
        batch: inputs of the model by name, int32 [R, …].
        words: int32 [R, T], the word of each token, -1 for none; for choices [C, T].
    """

    batch: dict[str, Any]
    words: np.ndarray

    def take(self, rows: Sequence[int]) -> Rows:
        """Return some of the rows."""
        batch = {key: tf.gather(value, rows) for key, value in self.batch.items()}
        return Rows(batch, self.words[list(rows)])


@dataclasses.dataclass(frozen=True)
class Target:
    """A number computed from the model's outputs, which is explained.

    Args:
        name: name of the answer, such as a class.
        rows: the input of the model.
        number: takes outputs [k, R, …] of k copies of the rows, and `given`; returns
            float [k].
        given: further tensors for `number`.
        against: name of the answer that it is compared with; empty: all others.
        unit: unit of the number.
    """

    name: str
    rows: Rows
    number: Callable[..., Any]
    given: Mapping[str, Any]
    against: str = ""
    unit: str = LOG_ODDS


class Item:
    """A text, or the texts of several roles, with its answer.

    Args:
        model: the model.
        parts: the text of each role.
        answer: what `predict` returns for it.
        target, against: names chosen by the user, or `None`.

    Attributes:
        words: the words of the texts, added by `targets_of`.
    """

    def __init__(
        self,
        model: TaskModel,
        parts: Sequence[Any],
        answer: Mapping[str, Any],
        *,
        target: str | None = None,
        against: str | None = None,
    ) -> None:
        self.model = model
        self.parts = parts
        self.answer = answer
        self.target = target
        self.against = against
        self.preprocessor = model.preprocessor.replace(layout="padded")
        self.words = WordList(self.preprocessor.tokenizer)

    def features(self, parts: Sequence[Sequence[Any]] | None = None) -> dict[str, Any]:
        """Return the batch dict of the item, or of other lists of texts by role."""
        parts = [[part] for part in self.parts] if parts is None else parts
        texts = as_tensors(parts)
        features: dict[str, Any] = self.model.task.features(self.preprocessor, texts)
        return features

    def rows(self, features: Mapping[str, Any], words: np.ndarray) -> Rows:
        """Return the model's inputs among the features, with the word of each token."""
        names = self.model.task.inputs()
        batch = {name: features[name] for name in names if name in features}
        return Rows(batch, words)

    def outputs(self, rows: Rows) -> np.ndarray:
        """Return the model's outputs, float32 [R, …]."""
        return np.asarray(self.model(rows.batch, training=False), "float32")

    def joined(self) -> Rows:
        """Return the row of a text or of a pair."""
        features = self.features()
        roles = next(f for f in self.model.task.forms if len(f) == len(self.parts))
        parts = zip(roles, self.parts, strict=True)
        pieces = [self.words.add(role, text) for role, text in parts]
        return self.rows(features, joined_words(features, [pieces]))

    def choose(self, names: Sequence[str], best: int) -> tuple[int, int | None]:
        """Return the numbers of the answers `target` and `against`.

        Args:
            names: names of the possible answers.
            best: number of the model's answer, used if there is no `target`.
        """
        index = best if self.target is None else self._find("target", names)
        if self.against is None:
            return index, None
        against = self._find("against", names)
        if against == index:
            raise ConfigError(
                "`against` must differ from the answer that is explained; "
                f"{received(self.against)}"
            )
        return index, against

    def _find(self, what: str, names: Sequence[str]) -> int:
        value = getattr(self, what)
        if value not in names:
            raise ConfigError(
                f"`{what}` must be one of {first_of(names)}; {received(value)}"
            )
        return list(names).index(value)

    def refuse(self, *options: str) -> None:
        """Raise ConfigError if an option is given that the task does not have."""
        for what in options:
            if getattr(self, what) is not None:
                raise ConfigError(
                    f"`{what}` must be left out for the task {self.model.task.name}; "
                    f"{received(getattr(self, what))}"
                )


def joined_words(
    features: Mapping[str, Any], pieces: Sequence[Sequence[np.ndarray]]
) -> np.ndarray:
    """Return the words of rows `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

    Args:
        features: padded rows [R, T].
        pieces: the words of the pieces of the one or two texts of each row.
    """
    mask = np.asarray(features["padding_mask"]).astype(bool)
    segments = np.asarray(features["segment_ids"])
    mask, segments = (x.reshape(-1, x.shape[-1]) for x in (mask, segments))
    found = []
    for real, segment, texts in zip(mask, segments, pieces, strict=True):
        first = int((real & (segment == 0)).sum()) - 2
        parts = [(1, texts[0][:first])]
        if len(texts) > 1:
            second = int((real & (segment == 1)).sum()) - 1
            parts.append((first + 2, texts[1][:second]))
        found.append(words_in_row(len(real), *parts))
    return np.stack(found)
