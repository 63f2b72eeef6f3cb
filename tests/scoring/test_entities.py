"""Entities of tags: every scheme, broken sequences, scores by hand."""

from __future__ import annotations

import itertools

import pytest
from conftest import refused

from bert_keras.scoring.entities import (
    Entity,
    entities_of,
    entity_scores,
    parse_tag,
    stray_tags,
    tags_of,
)

ENTITIES = [Entity("A", 0, 2), Entity("A", 2, 3), Entity("B", 3, 5), Entity("A", 6, 7)]


@pytest.mark.parametrize(
    "tags",
    [
        "B-A I-A B-A B-B I-B O B-A",  # BIO
        "I-A I-A B-A I-B I-B O I-A",  # IOB1: B- only where one of its type ends
        "B-A E-A S-A B-B E-B O S-A",  # BIOES
        "B-A L-A U-A B-B L-B O U-A",  # BILOU
        "A A B-A B B O A",  # tags without a prefix continue
    ],
)
def test_schemes_mean_the_same_entities(tags: str) -> None:
    assert entities_of(tags.split()) == ENTITIES


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        ("O I-A I-B", [("A", 1, 2), ("B", 2, 3)]),
        ("B-A O I-A", [("A", 0, 1), ("A", 2, 3)]),
        ("S-A I-A", [("A", 0, 1), ("A", 1, 2)]),
        ("B-A E-A E-A", [("A", 0, 2), ("A", 2, 3)]),
        ("B-a-b I-a-b", [("a-b", 0, 2)]),
        ("O O", []),
        ("", []),
    ],
)
def test_broken_sequences_are_read_leniently(
    tags: str, entities: list[tuple[str, int, int]]
) -> None:
    assert entities_of(tags.split()) == [Entity(*each) for each in entities]


def test_tags_of_entities_in_each_scheme() -> None:
    found = {
        prefixes: " ".join(tags_of(ENTITIES, 7, prefixes=prefixes))
        for prefixes in ("BI", "BIES", "I")
    }
    assert found == {
        "BI": "B-A I-A B-A B-B I-B O B-A",
        "BIES": "B-A E-A S-A B-B E-B O S-A",
        "I": "I-A I-A I-A I-B I-B O I-A",
    }


def test_tags_and_entities_are_two_forms_of_one_thing() -> None:
    tags = ["O", "B-A", "I-A", "B-B", "I-B", "E-A", "S-B"]
    for sequence in itertools.product(tags, repeat=4):
        found = entities_of(sequence)
        for prefixes in ("BI", "BIES"):
            assert entities_of(tags_of(found, 4, prefixes=prefixes)) == found


def test_a_string_that_is_not_a_tag_is_a_type() -> None:
    assert [parse_tag(tag) for tag in ("O", "B-", "X-A", "LABEL_1", "B")] == [
        ("O", ""),
        ("I", "B-"),
        ("I", "X-A"),
        ("I", "LABEL_1"),
        ("I", "B"),
    ]


def test_scores_by_hand() -> None:
    labels = [["B-A", "I-A", "O", "B-B"], ["B-A", "O"]]
    predictions = [["B-A", "O", "O", "B-B"], ["I-A", "B-C"]]
    # Real: A 2, B 1; claimed: A 2, B 1, C 1; right: A 1, B 1.
    assert entity_scores(labels, predictions) == {
        "num_examples": 2,
        "precision": 2 / 4,
        "recall": 2 / 3,
        "f1": 4 / 7,
        "macro_f1": pytest.approx((0.5 + 1 + 0) / 3),
        "word_accuracy": 3 / 6,
        "per_class": {
            "A": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2},
            "B": {"precision": 1.0, "recall": 1.0, "f1": 1.0, "support": 1},
            "C": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0},
        },
    }


def test_nothing_to_find_and_nothing_found_is_zero() -> None:
    scores = entity_scores([["O"]], [["O"]])
    assert (scores["f1"], scores["macro_f1"], scores["word_accuracy"]) == (0, 0, 1)


def test_lengths_must_be_equal() -> None:
    refused(lambda: entity_scores([["O"]], [["O", "O"]]), "1 sentences of 1", "of 2")


@pytest.mark.parametrize(
    ("sentences", "strays"),
    [
        (["B-x I-x O B-x"], []),
        (["I-x I-x O I-y"], []),  # IO
        (["I-x B-x O I-y I-x", "I-x"], []),  # IOB1: B- parts two that touch
        (["B-x I-y O I-x", "I-x I-x"], [(0, 1), (0, 3), (1, 0)]),
        (["B-x E-x I-x", "S-y I-y"], [(0, 2), (1, 1)]),
        (["O"], []),
    ],
)
def test_tags_that_continue_nothing(sentences, strays) -> None:
    assert stray_tags([sentence.split() for sentence in sentences]) == strays
