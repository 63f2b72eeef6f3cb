"""Entities of tagged sentences, and their precision, recall and F1; no TensorFlow.

A tag is `O` or a prefix and a type, such as `B-person` or `B_person`. Entities are
found leniently, as CoNLL's own script and `seqeval` in its default mode do: `I-` begins
an entity if none of its type is open. So BIO, IOB1, BIOES, BILOU and BMES are all read
correctly. Plain tags, such as parts of speech, belong to one word each.

Source: Tjong Kim Sang and De Meulder 2003 (CoNLL-2003 shared task), section 2.3: an
entity is right if its type and its words are.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bert_keras.errors import BertKerasError
from bert_keras.scoring.calibration import (
    FACTORS,
    abstention_scores,
    best_factor,
    confidence_scores,
    scaled,
)
from bert_keras.scoring.classification import rates

# Prefixes of BILOU and BMES and their equivalents in BIOES.
_SAME = {"L": "E", "U": "S", "M": "I"}
PREFIXES = ("B", "I", "E", "S", *_SAME)


class Entity(NamedTuple):
    """Words `start` to `end` (exclusive) of a sentence, which are of one type."""

    type: str
    start: int
    end: int


def parse_tag(tag: str) -> tuple[str, str]:
    """Return prefix and type of a tag: `O` and empty, or one of `BIES` and the type.

    A tag without a prefix, as some models have (`PER`), continues an entity.
    """
    if tag == "O":
        return "O", ""
    prefix, kind = tag[:1], tag[2:]
    if tag[1:2] not in ("-", "_") or not kind or prefix not in PREFIXES:
        return "I", tag
    return _SAME.get(prefix, prefix), kind


def scheme_of(tags: Iterable[str]) -> str:
    """Return the meaning of all tags of some sentences.

    `entities`: they have prefixes; `types`: types without a prefix and `O`; `words`:
    plain tags, each of one word; `numbers`: their names are missing.

    Example:
        >>> scheme_of(["B-x", "O"]), scheme_of(["NOUN"]), scheme_of(["x", "O"])
        ('entities', 'words', 'types')
    """
    found = set(tags)
    if found and all(tag.isdecimal() for tag in found):
        return "numbers"
    if any(parse_tag(tag)[1] != tag for tag in found - {"O"}):
        return "entities"
    return "types" if "O" in found or not found else "words"


def parse_classes(classes: Sequence[str]) -> list[tuple[str, str]]:
    """Return prefix and type of each tag that a model knows; plain ones have `S`."""
    is_plain = scheme_of(classes) == "words"
    return [("S", tag) if is_plain else parse_tag(tag) for tag in classes]


def of_one_word(tags: Iterable[str]) -> list[str]:
    """Return plain tags as entities of one word each."""
    return [f"S-{tag}" for tag in tags]


def entities_of(tags: Iterable[str]) -> list[Entity]:
    """Return the entities of a sentence, in their order.

    Example:
        >>> entities_of(["B-LOC", "I-LOC", "O", "I-PER"])
        [Entity(type='LOC', start=0, end=2), Entity(type='PER', start=3, end=4)]
    """
    found: list[Entity] = []
    before, kind_before = "O", ""
    for place, tag in enumerate(tags):
        prefix, kind = parse_tag(tag)
        if prefix == "O":
            pass
        elif prefix in "BS" or before in "OES" or kind != kind_before:
            found.append(Entity(kind, place, place + 1))
        else:
            found[-1] = found[-1]._replace(end=place + 1)
        before, kind_before = prefix, kind
    return found


def stray_tags(sentences: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return sentence and word of each `I-` that begins an entity and should be `B-`.

    In IOB1 entities begin with `I-`, and `B-` only separates adjacent entities of a
    type. Elsewhere an `I-` without a `B-` before it is an error in the data.

    Example:
        >>> stray_tags([["B-LOC", "O"], ["I-PER", "I-PER"]])
        [(1, 0)]
    """
    strays, is_iob1 = [], True
    for row, tags in enumerate(sentences):
        before = ""  # the type of the open entity
        for place, (prefix, kind) in enumerate(map(parse_tag, tags)):
            if prefix == "I" and kind != before:
                strays.append((row, place))
            is_iob1 = is_iob1 and not (prefix in "BS" and kind != before)
            before = "" if prefix in "OES" else kind
    return [] if is_iob1 else strays


def tags_of(
    entities: Iterable[Entity], size: int, *, prefixes: str = "BI"
) -> list[str]:
    """Return the tags of a sentence of `size` words, whose entities do not overlap.

    `prefixes` are the allowed prefixes, such as `BIES`; `BI` are needed for BIO.

    Example:
        >>> tags_of([Entity("LOC", 0, 2)], 3)
        ['B-LOC', 'I-LOC', 'O']
    """
    tags = ["O"] * size
    for kind, start, end in entities:
        letters = ["I"] * (end - start)
        if "E" in prefixes:
            letters[-1] = "E"
        if "B" in prefixes:
            letters[0] = "B"
        if "S" in prefixes and len(letters) == 1:
            letters[0] = "S"
        tags[start:end] = [f"{letter}-{kind}" for letter in letters]
    return tags


def entity_scores(
    labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Return the scores of predicted tags as one dict that `json.dump` takes.

    Args:
        labels, predictions: the tags of each sentence.

    Returns:
        `num_examples` (sentences), `precision`, `recall` and `f1` of all entities
        together, `macro_f1` (the mean over the types that occur),
        `word_accuracy`, and `per_class`: type to `precision`, `recall`, `f1` and
        `support`. Undefined scores are 0.

    Raises:
        BertKerasError: the lengths differ.

    Example:
        >>> entity_scores([["B-LOC", "O"]], [["B-LOC", "B-PER"]])["precision"]
        0.5
    """
    sizes, found = [len(tags) for tags in labels], [len(tags) for tags in predictions]
    if sizes != found:
        raise BertKerasError(
            "`labels` and `predictions` must hold one tag for each word; received "
            f"{len(sizes)} sentences of {sum(sizes)} and {len(found)} of {sum(found)}"
        )
    real, claimed, right = (collections.Counter[str]() for _ in range(3))
    hits = 0
    for label, prediction in zip(labels, predictions, strict=True):
        wanted, given = set(entities_of(label)), set(entities_of(prediction))
        real.update(entity.type for entity in wanted)
        claimed.update(entity.type for entity in given)
        right.update(entity.type for entity in wanted & given)
        pairs = zip(label, prediction, strict=True)
        hits += sum(parse_tag(tag) == parse_tag(guess) for tag, guess in pairs)
    per_class: dict[str, dict[str, float]] = {
        kind: _scores(right[kind], claimed[kind], real[kind]) | {"support": real[kind]}
        for kind in sorted(real.keys() | claimed.keys())
    }
    f1s = [scores["f1"] for scores in per_class.values()]
    return {
        "num_examples": len(sizes),
        **_scores(right.total(), claimed.total(), real.total()),
        "macro_f1": sum(f1s) / len(f1s) if f1s else 0.0,
        "word_accuracy": hits / max(sum(sizes), 1),
        "per_class": per_class,
    }


def word_scores(
    labels: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Return the scores of plain tags: `entity_scores` of entities of one word.

    Their precision, recall and F1 of all words together are the accuracy.

    Example:
        >>> word_scores([["DET", "NOUN"]], [["DET", "VERB"]])["word_accuracy"]
        0.5
    """
    found = entity_scores(
        [of_one_word(tags) for tags in labels],
        [of_one_word(tags) for tags in predictions],
    )
    return {k: v for k, v in found.items() if k not in ("precision", "recall", "f1")}


def _scores(right: int, claimed: int, real: int) -> dict[str, float]:
    return {name: float(each) for name, each in rates(right, claimed, real).items()}


class FoundEntities:
    """The entities that a model finds in labelled sentences, given or not.

    Args:
        labels: the tags of each of N sentences.
        classes: the C tags in the order of their numbers.
        probabilities: float [N, W, C], of the tags of each word; values at
            padding are ignored.

    Example:
        >>> p = [[[0.1, 0.9], [0.8, 0.2]]]
        >>> found = FoundEntities([["B-x", "O"]], ("O", "B-x"), p)
        >>> found.confidence(), found.right
        (array([0.9]), array([ True]))
    """

    def __init__(
        self,
        labels: Sequence[Sequence[str]],
        classes: Sequence[str],
        probabilities: npt.ArrayLike,
    ) -> None:
        p = np.asarray(probabilities)
        rows = [p[row, : len(label)] for row, label in enumerate(labels)]
        self._of_words = np.concatenate(rows).astype(np.float64)  # [words, C]
        best = self._of_words.argmax(axis=-1)
        self._places: list[slice] = []  # of each entity among all words
        right, first = [], 0
        for label in labels:
            tags = [classes[number] for number in best[first : first + len(label)]]
            real = set(entities_of(label))
            for entity in entities_of(tags):
                self._places.append(slice(first + entity.start, first + entity.end))
                right.append(entity in real)
            first += len(label)
        self.right = np.array(right, bool)  # [E], at any temperature

    def confidence(self, factor: float = 1.0) -> npt.NDArray[np.float64]:
        """Return the score of each entity, float64 [E].

        The factor divides the logits first; the tags do not change.
        """
        p = self._of_words if factor == 1 else scaled(self._of_words, factor)
        scores = p.max(axis=-1)
        return np.array([scores[place].mean() for place in self._places], np.float64)

    def best_factor(self) -> float:
        """Return the temperature factor of `FACTORS` that calibrates entities best."""
        sure = np.stack([self.confidence(factor) for factor in FACTORS], axis=1)
        return FACTORS[best_factor(sure, self.right)]

    def scores(self, *, temperature: float, abstain_below: float) -> dict[str, Any]:
        """Return calibration scores, and the effect of temperature and threshold.

        The temperature has already divided the logits.
        """
        sure = self.confidence()
        found = {
            **confidence_scores(sure, self.right),
            **abstention_scores(sure, self.right, abstain_below),
        }
        if temperature != 1 and sure.size:
            before = confidence_scores(self.confidence(1 / temperature), self.right)
            error = before["expected_calibration_error"]
            found["uncalibrated_calibration_error"] = error
        return found
