"""Search by meaning: what is found, and the index that is kept."""

from __future__ import annotations

import functools
import importlib
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from conftest import ROWS, refused

from bert_keras.cli.info import describe
from bert_keras.inference.predictor import Predictor
from bert_keras.retrieval import packed_vectors
from bert_keras.retrieval.embedder import embed, load_embedder
from bert_keras.retrieval.index import SearchIndex, search
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.retrieval.vector_file import read_vectors
from bert_keras.scoring.bm25 import BM25, fused
from bert_keras.scoring.similarity import unit_rows

TEXTS = [text for text, _ in ROWS]


@pytest.fixture(scope="module")
def predictor(encoder_folder: Path) -> Predictor:
    return load_embedder(encoder_folder)


def test_the_nearest_by_cosine(predictor: Predictor) -> None:
    queries = ["win free cash", TEXTS[5]]
    vectors = unit_rows(embed(predictor, TEXTS))
    scores = unit_rows(embed(predictor, queries)) @ vectors.T
    lines = list(range(20, 20 + len(TEXTS)))
    found = SearchIndex(predictor, TEXTS, 3 * vectors, lines=lines)(queries, top=4)
    for rows, wanted in zip(found, scores, strict=True):
        order = np.argsort(-wanted)[:4]
        assert [row["rank"] for row in rows] == [1, 2, 3, 4]
        assert [row["text"] for row in rows] == [TEXTS[i] for i in order]
        assert [row["line"] for row in rows] == [lines[i] for i in order]
        np.testing.assert_allclose([row["score"] for row in rows], wanted[order], 1e-5)
    assert found[1][0]["text"] == TEXTS[5]
    assert found[1][0]["score"] == pytest.approx(1.0)
    assert search(predictor, TEXTS, queries[1], top=1)[0]["text"] == TEXTS[5]


def test_texts_are_compared_in_parts(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_vectors, "_AT_ONCE", 2)
    vectors = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    made = SearchIndex(predictor, list("abcde"), vectors)
    # Ties go to the earlier text.
    rows, scores = made.packed.nearest(
        np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), 3
    )
    assert rows.tolist() == [[0, 3, 1], [1, 4, 0]]
    assert scores.tolist() == [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]


@pytest.mark.parametrize(("queries", "top"), [(1, 3), (1, 200), (9, 3)])
def test_many_vectors_equal_a_full_sort(queries: int, top: int) -> None:
    numbers = np.random.default_rng(3).integers(-4, 5, (20_000, 16))
    # Whole numbers have exact products, many of them equal.
    vectors = numbers.astype(np.float32)
    rows, scores = PackedVectors.of(vectors).nearest(vectors[:queries], top)
    products = vectors[:queries] @ vectors.T
    expected = np.argsort(-products, axis=1, kind="stable")[:, :top]
    assert (rows == expected).all()  # ties go to the earlier row
    assert (scores == np.take_along_axis(products, expected, axis=1)).all()


def test_fewer_texts_than_requested(predictor: Predictor) -> None:
    made = SearchIndex.of(predictor, TEXTS[:2])
    assert len(made(["six"], top=9)[0]) == 2
    assert made([]) == []


def test_an_index_is_reused(
    predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, asked = tmp_path / "index.npz", []
    stream = Predictor.stream

    def counted(self: Predictor, texts: Any, **options: Any) -> Any:
        asked.append(len(texts[0]))
        return stream(self, texts, **options)

    monkeypatch.setattr(Predictor, "stream", counted)
    (first,) = SearchIndex.of(predictor, TEXTS, index=index)(["six"])
    assert asked == [12, 1]
    asked.clear()
    (again,) = SearchIndex.of(predictor, TEXTS, index=index)(["six"])
    assert [row["text"] for row in again] == [row["text"] for row in first]
    assert asked == [3, 1]  # a probe of three texts, and the query


def test_an_index_of_other_texts_is_rebuilt(
    encoder_folder: Path,
    predictor: Predictor,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    index = tmp_path / "index.npz"
    SearchIndex.of(predictor, TEXTS, index=index)
    assert "rebuilt" not in capsys.readouterr().err
    fewer = SearchIndex.of(predictor, TEXTS[1:], index=index)
    assert "contained vectors of other texts: rebuilt" in capsys.readouterr().err
    wanted = unit_rows(embed(predictor, TEXTS[1:]))
    np.testing.assert_allclose(fewer.vectors, wanted, atol=1e-5)
    other = load_embedder(encoder_folder, pooling="max", max_length=5)
    made = SearchIndex.of(other, TEXTS[1:], index=index)
    told = capsys.readouterr().err
    assert "another model" in told and "of 11 texts" in told
    wanted = unit_rows(embed(other, TEXTS[1:]))
    np.testing.assert_allclose(made.vectors, wanted, atol=1e-5)


@pytest.mark.parametrize("name", ["index.npz", "index.parquet"])
def test_an_index_keeps_the_latest_names(
    predictor: Predictor,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    index, texts, lines = tmp_path / name, TEXTS[:3], [2, 3, 4]
    of = functools.partial(SearchIndex.of, predictor, texts, index=index)
    of(lines=lines, ids=["A1", "", "A3"])
    first = SearchIndex.load(predictor, index)
    assert (first.lines, first.ids) == (lines, ["A1", "", "A3"])
    of()  # without names, the index keeps its own
    assert SearchIndex.load(predictor, index).ids == first.ids
    assert "contains the vectors of these 3 texts" in capsys.readouterr().err
    for given in ({"ids": ["Z1", "Z2", "Z3"]}, {"lines": lines}):
        made = of(**given)
        held, told = SearchIndex.load(predictor, index), capsys.readouterr().err
        if name.endswith(".npz"):
            assert (held.lines, held.ids) == (made.lines, made.ids) and not told
        else:
            assert held.ids == first.ids and "has other line numbers or ids" in told
    of(ids=["", "B", "B"])
    assert "several texts have the same id: B\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["index.npz", "index.parquet"])
def test_an_index_knows_its_model(
    encoder_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    index, predictor = tmp_path / name, load_embedder(encoder_folder)
    made = SearchIndex.of(predictor, TEXTS, index=index)
    held = SearchIndex.load(predictor, index)
    assert held(["win cash"], top=3) == made(["win cash"], top=3)
    told = f"{index}: written, with the vectors of {len(TEXTS)} texts\n"
    assert told in capsys.readouterr().err
    short = load_embedder(encoder_folder, max_length=4)
    assert SearchIndex.load(short, index).texts == TEXTS  # of queries alone
    told = capsys.readouterr().err
    assert "read with max_length=" in told and "model has max_length=4 long=tr" in told
    narrow = load_embedder(encoder_folder, max_length=4, dimensions=4)
    refused(lambda: SearchIndex.load(narrow, index), "another width")
    if name.endswith(".npz"):
        SearchIndex.of(short, TEXTS, index=index)
        assert "max_length=4 long=truncate: rebuilt" in capsys.readouterr().err
        SearchIndex.of(predictor, TEXTS, index=index)
        assert "max_length=4 long=truncate, where" in capsys.readouterr().err
        arrays = dict(np.load(index))
        del arrays["model"]  # as of a model whose weights cannot be read
        np.savez(tmp_path / "old.npz", **arrays)
        assert len(SearchIndex.load(predictor, tmp_path / "old.npz").texts) == 12
        assert "it has no hash of its model" in capsys.readouterr().err
    (weight, *_) = predictor.model.weights
    weight.assign(weight + 1e-6)  # vectors differ by less than any rounding
    refused(lambda: SearchIndex.load(predictor, index), "another model", name)


def test_a_file_that_is_not_an_index_is_kept(
    predictor: Predictor, tmp_path: Path
) -> None:
    for name, data in (("a.npz", b"notes"), ("b.npz", b"")):
        path = tmp_path / name
        path.write_bytes(data)
        refused(lambda path=path: SearchIndex.of(predictor, TEXTS, index=path), name)
        assert path.read_bytes() == data
    np.savez(tmp_path / "c.npz", vectors=np.zeros(3))
    refused(lambda: SearchIndex.of(predictor, TEXTS, index=tmp_path / "c.npz"), "c.npz")
    missing = tmp_path / "none" / "a.npz"
    refused(lambda: SearchIndex.of(predictor, TEXTS, index=missing), "no such folder")


@pytest.mark.parametrize("dtype", ["int8", "binary"])
def test_an_index_of_few_bits(
    predictor: Predictor,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    dtype: str,
) -> None:
    index, queries = tmp_path / "index.npz", ["win free cash", "see you"]
    exact = SearchIndex.of(predictor, TEXTS, index=index)(queries, top=12)
    first = SearchIndex.of(predictor, TEXTS, index=index, dtype=dtype)
    assert "dtype float32: rebuilt" in capsys.readouterr().err
    again = SearchIndex.of(predictor, TEXTS, index=index)  # of the type that it has
    assert again.packed.dtype == dtype and "rebuilt" not in capsys.readouterr().err
    stored = read_vectors(index)
    assert stored.content == TEXTS and describe(index)["dtype"] == dtype
    for made in (first, again):
        for rows, wanted in zip(made(queries, top=12), exact, strict=True):
            scores = {row["text"]: row["score"] for row in rows}
            for row in wanted:
                assert scores[row["text"]] == pytest.approx(row["score"], abs=0.02)
            assert sorted(scores.values(), reverse=True) == list(scores.values())
    refused(
        lambda: SearchIndex.of(predictor, TEXTS, dtype=dtype, engine="faiss"), "faiss"
    )


@pytest.mark.parametrize("dtype", ["int8", "binary"])
def test_equal_numbers_keep_their_value(dtype: str) -> None:
    vectors = unit_rows([[0.5, -0.3, 0.1], [0.2, -0.6, 0.2]])
    vectors[:, 2] = 0.1
    query = unit_rows([[0.1, 0.2, 0.9]])
    for some in (vectors, vectors[:1]):
        packed = PackedVectors.of(some, dtype)
        np.testing.assert_allclose(packed.numbers(slice(None)), some, atol=2e-3)
        rows, cosines = packed.nearest(query, len(some), rescore=1)
        wanted = (query @ unit_rows(some).T)[0, rows[0]]
        np.testing.assert_allclose(cosines[0], wanted, atol=2e-3)


def test_bits_are_compared_by_their_distance(predictor: Predictor) -> None:
    vectors = np.array([[1.0, 2, -1], [1, -1, -1], [-1, -2, 1], [3, 1, -2]])
    bits = PackedVectors.of(vectors, "binary", rescored=False)
    assert bits.values.tolist() == [[0b11000000], [0b10000000], [0b00100000], [192]]
    asked = unit_rows([[1.0, 1, -1]])
    rows, scores = bits.nearest(asked, 3)
    assert rows.tolist() == [[0, 3, 1]]
    np.testing.assert_allclose(scores, [[1, 1, 1 / 3]], atol=1e-6)
    # Of two candidates, the int8 vectors tell which is nearer.
    both = PackedVectors.of(vectors, "binary")
    assert both.nearest(unit_rows([[3.0, 1, -2]]), 1, rescore=2)[0].tolist() == [[3]]
    # Without them there is nothing to compare again.
    _, again = bits.nearest(unit_rows([[0.1, 0.1, -2]]), 3, rescore=2)
    np.testing.assert_allclose(again, scores)


def test_rescoring_is_for_bits(
    predictor: Predictor,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = functools.partial(SearchIndex.of, predictor, TEXTS)
    with monkeypatch.context() as patched:  # before the texts are computed
        patched.setattr("bert_keras.retrieval.index.stored_vectors", pytest.fail)
        refused(lambda: of(rescore=2), "`rescore`", "binary", "float32")
        none = "`prompt` must be query, document or left out", "without prompts"
        refused(lambda: of(prompt="nonsense"), *none, "received 'nonsense'")
    refused(lambda: of(dtype="int4"), "`dtype`", "int4")
    bits = tmp_path / "bits.npz"
    alone = of(dtype="binary", index=bits, rescore=0)
    assert "without int8" not in capsys.readouterr().err
    again = of(index=bits)
    assert "bits.npz: contains bits without int8 vectors" in capsys.readouterr().err
    held = SearchIndex.load(predictor, bits)
    assert alone(["cash"]) == again(["cash"]) == held(["cash"])
    other = "`rescore` must be 0 for", "bits.npz", "received 4: name another index"
    refused(lambda: of(index=bits, rescore=4), *other)
    place = tmp_path / "a.parquet"
    refused(lambda: of(dtype="int8", index=place), "`dtype`", "Parquet")


def test_a_hybrid_search_fuses_words_and_vectors(predictor: Predictor) -> None:
    made = SearchIndex.of(predictor, TEXTS, hybrid=True)
    dense = SearchIndex.of(predictor, TEXTS)(["lunch"], top=12)[0]
    by_vector = [TEXTS.index(row["text"]) for row in dense]
    by_words = BM25(TEXTS).ranked("lunch", 12)
    (found,) = made(["lunch"], top=4)
    wanted = fused([by_vector, by_words], 4)
    assert [TEXTS.index(row["text"]) for row in found] == [row for row, _ in wanted]
    assert [row["score"] for row in found] == [score for _, score in wanted]


def test_faiss_without_its_package(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    refused(
        lambda: SearchIndex.of(predictor, TEXTS, engine="faiss"),
        "pip install 'bert_keras[search]'",
    )


def test_wrong_arguments(predictor: Predictor, tmp_path: Path) -> None:
    made = SearchIndex.of(predictor, TEXTS)
    refused(lambda: made(["six"], top=0), "`top`", "0")
    refused(lambda: made("six"), "`queries`", "six")
    refused(lambda: made(["six", " "]), "`queries`", "empty; received ' ' at index 1")
    refused(
        lambda: SearchIndex.of(predictor, TEXTS, engine="annoy"), "`engine`", "annoy"
    )
    refused(lambda: SearchIndex.of(predictor, []), "`texts`")
    with mock.patch.object(predictor, "stream", pytest.fail):  # before vectors
        call = functools.partial(SearchIndex.of, predictor, index=tmp_path / "a.npz")
        refused(lambda: call(["a"], ids=[7]), "item of `ids` must be a string", "7")
        refused(lambda: call(["a", "\ud800"]), "`texts` must be Unicode", "index 1")
    refused(
        lambda: SearchIndex(predictor, TEXTS, made.vectors[:2]), "12 texts", "2 vectors"
    )
