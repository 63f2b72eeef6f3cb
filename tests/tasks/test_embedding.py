"""The layers that an embedding is computed from, and the negatives of its rows."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.data.table import as_columns
from bert_keras.reading.text_vector import DOCUMENT, QUERY
from bert_keras.tasks.base import default_learning_rate
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.protocols import TAUGHT, lengths_of, texts_of
from bert_keras.text.preprocessor import Preprocessor, as_tensors
from bert_keras.text.tokenizer import WordPieceTokenizer


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


@pytest.mark.parametrize("pairs", [{}, {"text_pair": ["c", "d"]}])
def test_a_teacher_with_widths_is_scored_by_its_whole_vectors(pairs: Any) -> None:
    vectors = np.eye(4, dtype=np.float32)
    columns = as_columns(text=["a", "b"], **pairs)
    cells = {**columns.cells, TAUGHT: [*vectors[:2]]}
    columns = dataclasses.replace(columns, cells=cells)
    scores = Embedding(dimensions=(2,)).score(columns, {"embedding": vectors})
    assert scores["cosine"] == 1 and ("mrr" in scores) == bool(pairs)
    assert not [name for name in scores if "width" in name]


@pytest.fixture(scope="module")
def preprocessor(encoder_folder: Path) -> Preprocessor:
    return Preprocessor(WordPieceTokenizer.from_folder(encoder_folder), max_length=9)


def read_texts(batch: Any, preprocessor: Preprocessor) -> list[str]:
    """Return what stands between [CLS] and [SEP] in the rows of a batch."""
    words = preprocessor.tokenizer.vocabulary
    rows = np.where(batch["padding_mask"], batch["token_ids"], 0)
    return [" ".join(words[i] for i in row if i)[6:-6] for row in rows]


WORDS = "win cash now see you at six lunch home"


@pytest.mark.parametrize("long", ["truncate", "head-tail"])
def test_queries_and_documents_have_their_lengths(
    preprocessor: Preprocessor, long: str
) -> None:
    """As `encode`, `encode_query` and `encode_document` of sentence-transformers."""
    lengths = {"query_length": 5, "document_length": 11, "long": long}
    task = Embedding(prompts={"passage": "a "}, **lengths)
    prompted = [task.with_prompt(name) for name in ("query", "document", "passage")]
    found = [
        read_texts(each.features(preprocessor, [WORDS]), preprocessor)[0]
        for each in (task, *prompted)
    ]
    sizes = [each.lengths(preprocessor, [WORDS]) for each in (task, *prompted)]
    read = [(int(kept[0]), int(lost[0])) for kept, lost in sizes]
    assert read == [(9, 2), (5, 6), (11, 1), (11, 1)]
    cuts = ["win cash now see you at six", "win cash now"]
    if long == "truncate":
        assert found == [*cuts, *["a win cash now see you at six lunch"] * 2]
    assert [len(each.split()) for each in found] == [7, 3, 9, 9]


def test_pairs_have_the_lengths_of_queries_and_documents(
    preprocessor: Preprocessor,
) -> None:
    task = Embedding(query_length=5, document_length=7, prompts={"query": "you "})
    rows = as_columns(text=[WORDS], text_pair=["see you"], negative=[[f"at {WORDS}"]])
    wanted = ["you win cash", "see you", "at win cash now see"]
    texts = tuple(map(tf.constant, texts_of(task, rows, use="train")))
    batch, *_ = task.examples(preprocessor, texts, np.zeros((1, 3), "int32"))
    assert read_texts(batch, preprocessor) == wanted
    sizes = task.lengths(preprocessor, texts)
    assert [each.numpy().tolist() for each in sizes] == [[5, 4, 7], [7, 0, 5]]
    scored: list[Any] = []

    def run(batch: Any) -> Any:
        scored.append(batch)
        return tf.zeros([3, 16])

    parts = as_tensors(texts_of(task, rows, use="score"))
    assert parts[1].numpy().tolist() == [QUERY, DOCUMENT, DOCUMENT]
    task.respond(parts, preprocessor, run, scored=True)
    assert read_texts(scored[0], preprocessor) == wanted
    sizes = lengths_of(task, preprocessor, parts, scored=True)
    assert [each.numpy().tolist() for each in sizes] == [[5, 4, 7], [7, 0, 5]]


def test_a_length_without_room_is_refused() -> None:
    refused(lambda: Embedding(query_length=2), "`query_length`", "at least 3", "2")


def test_tokens_have_a_projection_by_default() -> None:
    pairs = as_columns(text=["a"], text_pair=["b"])
    (layer,) = Embedding.from_columns(pairs, kind="tokens").dense
    assert layer["on_tokens"] and not layer["use_bias"]
    declared = Embedding.__dataclass_fields__["dense"].metadata["option"]
    assert f"a linear layer of {layer['units']} units" in declared.unset
    assert Embedding.from_columns(pairs, kind="tokens", dense=[]).dense == ()


def test_tokens_learn_at_a_lower_rate() -> None:
    rates = {
        kind: default_learning_rate(Embedding(kind=kind), 384)
        for kind in ("dense", "sparse", "tokens")
    }
    np.testing.assert_allclose([*rates.values()], [1e-4, 1e-4, 3e-5])


def test_layers_on_tokens_come_first() -> None:
    layer = {"units": 4, "activation": "tanh", "use_bias": True}
    dense = [layer, {**layer, "on_tokens": True}]
    refused(lambda: Embedding(dense=dense), "`on_tokens`", "first", "[False, True]")
    assert Embedding(dense=[{**layer, "use_residual": False}]).dense == (layer,)
