"""Equal texts are computed once, and have equal scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import ROWS

from bert_keras.inference.equal_texts import EqualTexts
from bert_keras.inference.predictor import Predictor
from bert_keras.retrieval.embedder import stored_vectors, vectors_of
from bert_keras.retrieval.index import SearchIndex
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.retrieval.sparse_vectors import SparseVectors
from bert_keras.scoring.similarity import unit_rows
from bert_keras.settings import DTYPES
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.reranking import Reranking
from bert_keras.text.truncation import Truncation

TEXTS = [text for text, _ in ROWS]
# Each copy has other texts beside it.
COPIES = [*TEXTS[:7], TEXTS[0], *TEXTS[7:], TEXTS[0], TEXTS[4], TEXTS[0]]
SAME = [row for row, text in enumerate(COPIES) if text == TEXTS[0]]


def test_answers_to_different_texts_in_parts() -> None:
    rng = np.random.default_rng(5)
    names = rng.integers(0, 9, 40)
    texts = [[str(name), "b"] for name in names]
    equal = EqualTexts(texts, names.astype(str).tolist())
    assert equal and not EqualTexts(["a", "b"], ["a", "a"])
    sides = EqualTexts(["a", "a", "a"], [0, 1, 0])
    assert sides.places.tolist() == [0, 1, 0]
    given = names[equal.first]
    ends = [0, 1, 4, 9]
    parts = [given[start:end] for start, end in zip(ends, ends[1:], strict=False)]
    # Lists of names differ in length from part to part.
    answers = [
        {"n": x, "list": np.tile(x[:, None], n + 1)} for n, x in enumerate(parts)
    ]
    found = [*equal.answered(answers)]
    assert np.concatenate([part["n"] for part in found]).tolist() == names.tolist()
    assert all((part["list"][:, 0] == part["n"]).all() for part in found)


def test_rankings_by_hand() -> None:
    equal = EqualTexts(["a", "b", "a", "c", "b"])
    rows, scores = np.array([[1, 2, -1], [3, 4, 0]]), np.array([[2.0, 1, 0], [3, 3, 1]])
    found, values = equal.ranked(rows, scores, 4)
    assert found.tolist() == [[1, 4, 0, 2], [1, 3, 4, 0]]
    assert values.tolist() == [[2, 2, 1, 1], [3, 3, 3, 1]]
    rows, scores = equal.fused([[0, 2, 1], [3, 4]], 5)
    assert rows.tolist() == [1, 4, 0, 2, 3]
    wanted = [2 / 62, 2 / 62, 1 / 61, 1 / 61, 1 / 61]
    assert scores == pytest.approx(wanted, abs=1e-12)
    assert equal.fused([[], [3]], 2)[0].tolist() == [3, -1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_vectors_do_not_depend_on_the_row(
    make_model: Callable[..., Any], kind: str
) -> None:
    predictor = Predictor(make_model(Embedding(kind=kind)))
    for size in (1, 2, 5):
        found = vectors_of(predictor, COPIES, size)
        assert all((found[row] == found[0]).all() for row in SAME)
    counts = Truncation()
    seen: list[int] = []
    for _ in predictor.stream(
        (COPIES,), batch_size=2, seen=seen.append, truncation=counts
    ):
        pass
    assert counts.texts == sum(seen) == len(COPIES) and len(seen) > 1
    if kind == "sparse":
        sparse = stored_vectors(predictor, COPIES, 5)
        rows = np.array([4, 0, 4])
        assert (sparse.take(rows).numbers(slice(None)) == found[rows]).all()
        assert isinstance(sparse.take(rows[:0]), SparseVectors)


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_search_finds_equal_texts_in_order(
    make_model: Callable[..., Any], hybrid: bool
) -> None:
    predictor = Predictor(make_model(Embedding()))
    vectors = vectors_of(predictor, COPIES, 4)
    # As in an index of parts that were computed apart.
    noise = np.random.default_rng(3).normal(0, 1e-7, (len(COPIES), 1))
    for dtype in DTYPES:
        packed = PackedVectors.of(unit_rows(vectors * (1 + noise)), dtype)
        search = SearchIndex(predictor, COPIES, packed, hybrid=hybrid)
        (found,) = search([TEXTS[0]], top=len(COPIES))
        rows = [row["line"] - 1 for row in found]
        assert sorted(rows) == [*range(len(COPIES))]
        assert [row for row in rows if row in SAME] == SAME
        assert len({row["score"] for row in found if row["line"] - 1 in SAME}) == 1


@pytest.mark.slow
def test_ranked_documents_do_not_depend_on_the_batch_size(
    make_model: Callable[..., Any],
) -> None:
    predictor = Predictor(make_model(Reranking()))
    for size in (1, 3, 32):
        found = predictor.rank("cash", COPIES, batch_size=size)
        assert [row["index"] for row in found if row["index"] in SAME] == SAME
        assert len({row["score"] for row in found if row["index"] in SAME}) == 1


def test_numbers_are_parts_of_texts() -> None:
    """As the sides of queries and documents are."""
    assert EqualTexts(["a", "a", "a"], [0, 1, 0]).places.tolist() == [0, 1, 0]
