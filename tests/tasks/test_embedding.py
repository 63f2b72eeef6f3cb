"""The layers that an embedding is computed from, and the negatives of its rows."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refused

from bert_keras.data.table import as_columns
from bert_keras.tasks.embedding import Embedding, parse_layers, resolve_layers
from bert_keras.tasks.protocols import texts_of


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


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "a.jsonl",
            '{"text": "a", "text_pair": "b", "negative": ["c", "d"]}\n'
            '{"text": "e", "text_pair": "f", "negative": "b"}\n'
            '{"text": "e", "text_pair": "b", "negative": null}\n',
        ),
        (
            "a.csv",
            'text,text_pair,negative_2,negative_1\na,b,d,c\ne,f,,"[""b""]"\ne,b,,\n',
        ),
    ],
)
def test_negatives_of_rows(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    columns = Embedding.read(tmp_path / name)
    assert columns["negative"] == [["c", "d"], ["b"], []]
    task = Embedding.from_columns(columns)
    first, second, *negatives = texts_of(task, columns, use="train")
    assert negatives == [["c", "", ""], ["d", "", ""]]
    assert task.targets(columns).tolist() == [
        [0, 1, 2, 3],
        [4, 5, -1, -1],
        [4, 1, -1, -1],
    ]
    (note,) = task.notes(columns)
    assert "left out 1 negative equal to" in note
    vectors = np.eye(5)[[0, 1, 1, 0, 2, 3, 4, 0, 3]]  # of c, d, b last
    assert task.score(columns, {"embedding": vectors})["accuracy_at_1"] == 0.0
    read = functools.partial(Embedding.read, columns={"negative": "text"})
    refused(lambda: read(tmp_path / name, roles=("text",)), "`columns`", "negative")
    labelled = as_columns(text=["a"], text_pair=["b"], label=["1"], negative=[["c"]])
    task = Embedding.from_columns(labelled)
    refused(lambda: task.targets(labelled), "`negative`", "similarity")
