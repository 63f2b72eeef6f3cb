from __future__ import annotations

from typing import Any

import pytest
from conftest import refused

from bert_keras.reading.layers import (
    EMBEDDINGS_AND_ALL,
    parse_layers,
    resolve_layers,
)


@pytest.mark.parametrize(
    ("value", "places"),
    [
        ("embeddings", (0,)),
        ("last", (12,)),
        ("second-to-last", (11,)),
        ("last-four", (9, 10, 11, 12)),
        ("all", tuple(range(1, 13))),
        ("3, -1", (3, 12)),
        ([2, 1], (2, 1)),
        (-13, (0,)),
    ],
)
def test_choices_of_twelve_layers(value: Any, places: tuple[int, ...]) -> None:
    chosen = parse_layers(value)
    assert parse_layers(chosen) == chosen
    assert resolve_layers(chosen, 12) == places


@pytest.mark.parametrize("value", ["first", "", "1,,2", "1,1", [], [1.0], [True], 2.5])
def test_no_choice(value: Any) -> None:
    refused(lambda: parse_layers(value), "`layers`", "last-four", repr(value))


@pytest.mark.parametrize("layers", [(13,), (-14,), (12, -1)])
def test_layers_that_the_encoder_lacks(layers: tuple[int, ...]) -> None:
    refused(lambda: resolve_layers(layers, 12), "`layers`", "12", str(layers[0]))


def test_all_layers_with_the_embeddings() -> None:
    assert resolve_layers(EMBEDDINGS_AND_ALL, 2) == (0, 1, 2)
