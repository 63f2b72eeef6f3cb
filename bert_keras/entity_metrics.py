"""Entities of tagged sentences, and their precision, recall and F1; no TensorFlow.

A tag is `O` or a prefix and a type, such as `B-person`. Entities are found leniently,
as CoNLL's own script and `seqeval` in its default mode find them: `I-` begins an entity
where none of its type is open. So BIO, IOB1 and BIOES give the entities that they mean.

Source: Tjong Kim Sang and De Meulder 2003 (CoNLL-2003 shared task), section 2.3: an
entity is right if its type and its words are.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from bert_keras.errors import BertKerasError

# Prefixes of BILOU beside those of BIOES that mean the same.
_SAME = {"L": "E", "U": "S"}
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
    prefix, dash, kind = tag.partition("-")
    if not dash or not kind or prefix not in PREFIXES:
        return "I", tag
    return _SAME.get(prefix, prefix), kind


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

    In IOB1 entities begin so: there `B-` only parts two of one type that touch. Where
    it begins others, too, an `I-` without a `B-` before is a slip of the data.

    Example:
        >>> stray_tags([["B-LOC", "O"], ["I-PER", "I-PER"]])
        [(1, 0)]
    """
    strays, is_iob1 = [], True
    for row, tags in enumerate(sentences):
        before = ""  # the type of an entity that is open
        for place, (prefix, kind) in enumerate(map(parse_tag, tags)):
            if prefix == "I" and kind != before:
                strays.append((row, place))
            is_iob1 = is_iob1 and not (prefix in "BS" and kind != before)
            before = "" if prefix in "OES" else kind
    return [] if is_iob1 else strays


def tags_of(
    entities: Iterable[Entity], size: int, *, prefixes: str = "BI"
) -> list[str]:
    """Return the tags of a sentence of `size` words.

    Args:
        entities: entities that do not overlap.
        size: the number of words.
        prefixes: those that may be used, such as `BIES`; `BI` are needed for BIO.

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
        labels: the tags of each sentence.
        predictions: as many tags.

    Returns:
        `num_examples` (sentences), `precision`, `recall` and `f1` of all entities
        together, `macro_f1` (the mean of those of the types that occur),
        `word_accuracy`, and `per_class`: type to `precision`, `recall`, `f1` and
        `support`. What is undefined is 0.

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
    per_class = {
        kind: {
            **_scores(right[kind], claimed[kind], real[kind]),
            "support": real[kind],
        }
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


def _scores(right: int, claimed: int, real: int) -> dict[str, float]:
    return {
        "precision": right / max(claimed, 1),
        "recall": right / max(real, 1),
        "f1": 2 * right / max(claimed + real, 1),
    }
