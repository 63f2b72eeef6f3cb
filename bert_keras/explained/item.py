"""What is explained: `Item`, a text with its answer; a task makes targets of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.config import WINDOW_STARTS
from bert_keras.errors import ConfigError, first_of, received
from bert_keras.explained import targets
from bert_keras.explained.targets import LOG_ODDS, Rows, Target
from bert_keras.explained.words import NO_WORD, WordList, words_in_row
from bert_keras.text.preprocessor import as_tensors


class Item:
    """A text, or the texts of several roles, with its answer.

    A task's `explained` receives it, adds the words of the texts, lays them out as
    `Rows` of the model, and returns targets, made by `log_odds`, `answer_odds`,
    `weighted_sum`, `one_output` or `cosine`.

    Args:
        model: the `TaskModel`.
        parts: the texts.
        roles: the role of each text, of a text or a pair.
        answer: what `predict` returns for it.
        target, against: names chosen by the user, or `None`.

    Attributes:
        words: the words of the texts, as far as they are added.
        no_word: the word of a token that belongs to none.
    """

    no_word = NO_WORD
    # Targets, and the words of a row, see there.
    log_odds = staticmethod(targets.log_odds)
    weighted_sum = staticmethod(targets.weighted_sum)
    cosine = staticmethod(targets.cosine)
    words_in_row = staticmethod(words_in_row)

    def __init__(
        self,
        model: Any,
        parts: Sequence[Any],
        answer: Mapping[str, Any],
        *,
        roles: Sequence[str] = (),
        target: str | None = None,
        against: str | None = None,
    ) -> None:
        self.model = model
        self.parts = parts
        self.answer = answer
        self.roles = roles
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
        names = self.model.task.needs.keras_inputs()
        batch = {name: features[name] for name in names if name in features}
        return Rows(batch, words)

    def outputs(self, rows: Rows) -> np.ndarray:
        """Return the model's outputs, float32 [R, …]."""
        return np.asarray(self.model(rows.batch, training=False), "float32")

    def joined(self) -> Rows:
        """Return the row of a text or of a pair, or a row for each text of a pair."""
        features = self.features()
        parts = zip(self.roles, self.parts, strict=True)
        pieces = [self.words.add(role, text) for role, text in parts]
        is_one_row = len(features["token_ids"]) == 1
        return self.joined_rows(
            features, [pieces] if is_one_row else [[each] for each in pieces]
        )

    def joined_rows(
        self, features: Mapping[str, Any], pieces: Sequence[Sequence[np.ndarray]]
    ) -> Rows:
        """Return rows `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`.

        Args:
            features: the batch dict, padded.
            pieces: the words of the pieces of the one or two texts of each row, as
                returned by `words.add`.
        """
        return self.rows(features, joined_words(features, pieces))

    def answer_odds(
        self,
        rows: Rows,
        names: Sequence[str],
        best: int,
        *,
        kind: str = "",
        size: int | None = None,
        **given: Any,
    ) -> Target:
        """Return the log-odds of one of several answers.

        Args:
            rows: the input of the model.
            names: names of the answers.
            best: the answer that is explained if the user names none.
            kind: prefix of the names.
            size: number of logits, if larger than the number of names.
            **given: further arguments of `log_odds`.
        """
        index, against = self.choose(names, best)
        return self.log_odds(
            f"{kind}{names[index]}",
            rows,
            size=size or len(names),
            wanted=[index],
            others=None if against is None else [against],
            against="" if against is None else f"{kind}{names[against]}",
            **given,
        )

    def one_output(
        self,
        rows: Rows,
        names: Sequence[str],
        index: int,
        against: int | None = None,
        *,
        temperature: float = 1.0,
        unit: str = LOG_ODDS,
    ) -> Target:
        """Return one of a text's outputs, or its difference from another one."""
        weights = np.zeros(len(names), "float32")
        weights[index] = 1
        if against is not None:
            weights[against] = -1
        return self.weighted_sum(
            names[index],
            rows,
            weights / temperature,
            against="" if against is None else names[against],
            unit=unit,
        )

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
    if "pieces" in features:  # of long texts
        numbers = np.asarray(features["pieces"])
        if len(pieces) == 1:  # all rows are of one item
            return words_of_pieces(numbers, segments, pieces[0])
        starts = np.asarray(features.get(WINDOW_STARTS, np.ones(len(numbers))))
        numbers_of_texts = np.cumsum(starts).astype(int) - 1
        rows = [
            words_of_pieces(numbers[[row]], segments[[row]], pieces[text])
            for row, text in enumerate(numbers_of_texts)
        ]
        return np.concatenate(rows)
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


def words_of_pieces(
    numbers: np.ndarray, segments: np.ndarray, pieces: Sequence[np.ndarray]
) -> np.ndarray:
    """Return the words of rows by the numbers of their pieces in the texts.

    `numbers`, -1 at other tokens, and `segments` are int32 [R, T]; `pieces` are the
    words of the pieces of the one or two texts.
    """
    found = np.full_like(numbers, NO_WORD)
    for segment, words in enumerate(pieces):
        here = (numbers >= 0) & (segments == segment)
        found[here] = words[numbers[here]]
    return found
