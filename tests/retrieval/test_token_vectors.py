"""Vectors of tokens: MaxSim, their index, search, scores, mining and refusals."""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS, refused, write_collection

from bert_keras.cli.info import describe
from bert_keras.data.columns import Columns
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.model.contrastive import TokenRankingLoss
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.embedder import embed, load_embedder
from bert_keras.retrieval.evaluation import evaluate_collection
from bert_keras.retrieval.features import write_features
from bert_keras.retrieval.index import SearchIndex
from bert_keras.retrieval.mining import mine_negatives
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.retrieval.token_vectors import TokenVectors
from bert_keras.scoring.similarity import MAXSIM, kept_vectors, unit_rows
from bert_keras.tasks.embedding import Embedding
from bert_keras.training.config import TrainConfig
from bert_keras.training.distillation import soft_target_loss

TEXTS = [text for text, _ in ROWS]
PROJECTION = {"units": 6, "activation": "linear", "use_bias": False, "on_tokens": True}
SETTINGS: dict[str, Any] = {
    "kind": "tokens",
    "dense": (PROJECTION,),
    "prompts": {"query": "win ", "document": "see "},
    "skip_words": "punctuation",
    "query_expansion": 7,
    "query_length": 7,
    "document_length": 12,
    "scale": 1.0,
}


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Any]) -> Any:
    return make_model(Embedding(**SETTINGS))


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tokens") / "model"
    for _ in range(2):  # a later run replaces the folder
        save_model(model, place)
    return place


def by_hand(query: np.ndarray, text: np.ndarray) -> float:
    """Return the MaxSim of the vectors of two texts, [T, D] each."""
    text = text[np.abs(text).sum(axis=1) > 0]
    return float(sum(max(float(q @ t) for t in text) for q in query))


def random_texts(seed: int, count: int, longest: int = 5) -> np.ndarray:
    """Return unit vectors of texts of different lengths, 0 after their last one."""
    rng = np.random.default_rng(seed)
    found = unit_rows(rng.normal(size=(count, longest, 4)))
    sizes = rng.integers(1, longest + 1, count)
    return found * (np.arange(longest) < sizes[:, None])[..., None]


def test_maxsim_by_hand() -> None:
    query = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], np.float32)
    texts = np.array([[[0.6, 0.8], [0.0, 0.0]], [[1.0, 0.0], [0.0, -1.0]]], np.float32)
    # Of the second text, no vector is 0: the best for the second token has product 0.
    np.testing.assert_allclose(MAXSIM.matrix(query[None], texts), [[1.4, 1.0]])
    pairs = MAXSIM.of_pairs(np.stack([query, query]), texts)
    np.testing.assert_allclose(pairs, [1.4, 1.0], atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_the_index_is_exact(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, queries = random_texts(0, 11), random_texts(1, 3)
    wanted = np.array([[by_hand(q, t) for t in texts] for q in queries])
    packed = TokenVectors.of_batches([texts[:4], texts[4:]], 4, dtype)
    atol = 1e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(packed.numbers(slice(None)), texts, atol=atol)
    rows, scores = packed.nearest(queries, 5)
    found = np.take_along_axis(wanted, rows, axis=1)
    np.testing.assert_allclose(scores, found, atol=atol)
    if dtype == "float32":
        order = np.argsort(-wanted, axis=1, kind="stable")[:, :5]
        np.testing.assert_array_equal(rows, order)
    monkeypatch.setattr("bert_keras.retrieval.token_vectors._AT_ONCE", 8)
    again = packed.nearest(queries, 5)  # in several parts
    np.testing.assert_array_equal(again[0], rows)
    chosen = np.array([3, 0, 3])
    np.testing.assert_allclose(
        packed.take(chosen).numbers([0, 2])[1, 0], texts[3, 0], atol=atol
    )
    near = packed.pair_scores(queries, chosen)
    np.testing.assert_allclose(near, wanted[range(3), chosen], atol=atol)
    stored = TokenVectors.from_entries(packed.entries())
    assert stored.dtype == packed.dtype and stored.is_same(texts[:2], np.array([0, 1]))
    assert not stored.is_same(texts[:2], np.array([1, 2]))


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_centroids_find_nearly_all(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of tokens around 40 directions; a query is a text, with noise."""
    rng = np.random.default_rng(5)
    topics = unit_rows(rng.normal(size=(40, 16)))
    chosen = rng.integers(0, 40, (500, 1)), rng.integers(0, 40, (500, 6))
    noise = 0.3 * rng.normal(size=(500, 6, 16))
    texts = unit_rows(topics[chosen[0]] + topics[chosen[1]] + noise)
    queries = unit_rows(texts[::50] + 0.1 * rng.normal(size=(10, 6, 16)))
    texts[7] = 0
    packed, seen = TokenVectors.of_batches([texts], 16, dtype), []
    made = packed.with_centroids(seen=seen.append)
    assert sum(seen) == 500 and made.with_centroids() is made
    rows, scores = packed.nearest(queries, 5)
    for found in (
        made.near(queries, 5),
        made.nearest(queries, 5),
    ):  # all are candidates
        np.testing.assert_array_equal(found[0], rows)
        np.testing.assert_allclose(found[1], scores, atol=1e-5)
    monkeypatch.setattr("bert_keras.retrieval.token_vectors._LEAST_CANDIDATES", 0)
    monkeypatch.setattr("bert_keras.retrieval.token_vectors._CANDIDATES_EACH", 20)
    found, near = made.near(queries, 5)  # of 100 candidates
    pairs = zip(found.tolist(), rows.tolist(), strict=True)
    shared = [len({*one} & {*other}) for one, other in pairs]
    assert np.mean(shared) >= 4.5 and (found[:, 0] == rows[:, 0]).all()
    np.testing.assert_allclose(near[:, 0], scores[:, 0], atol=1e-5)
    stored = TokenVectors.from_entries(made.entries())
    np.testing.assert_array_equal(stored.near(queries, 5)[0], found)
    entries = {**made.entries(), "centroid_ends": np.array([3])}
    with pytest.raises(ValueError):
        TokenVectors.from_entries(entries)
    assert made.take([1, 2]).centroids is None
    two = TokenVectors.of_batches([texts[:2]], 16, dtype).with_centroids()
    assert sorted(two.near(queries[:1], 2)[0][0]) == [0, 1]
    rows, scores = made.near(queries[:1], 500)
    assert 7 not in rows and rows[0, -1] == -1 and scores[0, -1] == 0


@pytest.mark.slow
def test_an_index_holds_centroids(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    predictor, index = load_embedder(folder), tmp_path / "index.npz"
    (exact,) = SearchIndex.of(predictor, TEXTS, index=index)(["free cash"])
    assert not describe(index)["centroids"]
    capsys.readouterr()
    large = SearchIndex.load(predictor, index, large=len(TEXTS))
    assert large(["free cash"]) == [exact]
    said = capsys.readouterr().err
    assert "12 texts are searched with centroids, which may miss some" in said
    assert "contains no centroids: they are built each time" in said
    made = SearchIndex.of(predictor, TEXTS, index=index, engine="centroids")
    assert made(["free cash"]) == [exact] and describe(index)["centroids"]
    written = index.read_bytes()
    for engine in ("exact", "centroids"):
        again = SearchIndex.of(predictor, TEXTS, index=index, engine=engine)
        assert again(["free cash"]) == [exact] and index.read_bytes() == written
    assert SearchIndex.load(predictor, index)(["free cash"]) == [exact]
    assert "contains no centroids" not in capsys.readouterr().err
    refused(
        lambda: SearchIndex.load(predictor, index, engine="faiss"),
        "`engine` faiss needs",
    )


def test_a_text_without_vectors_is_not_found() -> None:
    texts = random_texts(2, 3)
    texts[1] = 0
    rows, scores = TokenVectors.of_batches([texts], 4).nearest(texts[:1], 3)
    assert sorted(rows[0]) == [-1, 0, 2] and rows[0, 2] == -1 and scores[0, 2] == 0


def test_the_loss_is_of_the_scores(model: Any) -> None:
    rows = random_texts(3, 6)  # two rows of a text, its pair and a negative
    numbers = np.array([[0, 1, 2], [3, 4, -1]])
    scores = np.array([[by_hand(rows[q], rows[c]) for c in (1, 4, 2)] for q in (0, 3)])
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[range(2), range(2)]
    found = float(TokenRankingLoss(2.0)(numbers, rows.astype(np.float32)))
    scores *= 2
    losses = np.log(np.exp(scores).sum(axis=1)) - scores[range(2), range(2)]
    assert found == pytest.approx(losses.mean(), abs=1e-5)
    assert isinstance(model.task.loss(), TokenRankingLoss)


def test_what_counts_in_queries_and_documents(model: Any) -> None:
    task, preprocessor = model.task, model.preprocessor
    batch = task.with_prompt("query").features(preprocessor, ["free cash", "a " * 9])
    mask = preprocessor.tokenizer.mask_id
    ids = batch["token_ids"].numpy()
    assert ids.shape == (2, 7) and (ids[0] == mask).sum() == 2
    np.testing.assert_array_equal(batch["padding_mask"].numpy().sum(axis=1), [5, 7])
    assert (batch["counted_tokens"].numpy() == 1).all()
    batch = task.features(preprocessor, ["free, cash!", "cash"])  # a document
    counted = batch["counted_tokens"].numpy()
    real = batch["padding_mask"].numpy()
    np.testing.assert_array_equal(real.sum(axis=1) - counted.sum(axis=1), [2, 0])


def test_search_scores_and_mining(folder: Path, tmp_path: Path) -> None:
    predictor, index = load_embedder(folder), tmp_path / "index.npz"
    search = SearchIndex.of(predictor, TEXTS, index=index)
    (found,) = search(["free cash"], top=3)
    (query,) = embed(folder, ["free cash"], prompt="query")
    documents = embed(folder, TEXTS, prompt="document")
    wanted = [by_hand(query, each) for each in documents]
    assert [row["line"] - 1 for row in found] == np.argsort(wanted)[::-1][:3].tolist()
    assert found[0]["score"] == pytest.approx(max(wanted), abs=1e-4)
    facts = describe(index)
    assert (facts["vectors"], facts["dtype"]) == ("tokens", "float32")
    assert facts["width"] == 6 and facts["format"] == 5
    assert SearchIndex.load(folder, index)(["free cash"], top=3) == [found]
    small = SearchIndex.of(predictor, TEXTS, index=index, dtype="int8", hybrid=True)
    assert small.packed.dtype == "int8" and small(["free cash"])[0]
    assert describe(index)["dtype"] == "int8"
    scores = evaluate_collection(predictor, write_collection(tmp_path / "judged"))
    assert [*scores["rankings"]] == ["tokens", "tokens int8", "BM25", "hybrid"]
    pairs = Columns("p", {"text": TEXTS[:3], "text_pair": TEXTS[3:6]}, [1, 2, 3])
    mined = mine_negatives(predictor, pairs, TEXTS, ranks=(0, 6), margin=0.0)
    queries = embed(folder, TEXTS[:3], prompt="query")
    positives = [by_hand(q, documents[3 + row]) for row, q in enumerate(queries)]
    assert mined.positive_score == pytest.approx(np.mean(positives), abs=1e-4)
    assert "mean MaxSim " in str(mined)
    answers = predictor.answers(pairs)
    places = [
        1 + sum(by_hand(q, documents[c]) > positives[row] for c in (3, 4, 5))
        for row, q in enumerate(queries)
    ]
    scores = predictor.model.task.score(pairs, answers)
    assert scores["mrr"] == pytest.approx(np.mean(1 / np.array(places)))


@pytest.mark.slow
def test_a_folder_and_an_export_answer_alike(folder: Path, tmp_path: Path) -> None:
    loaded = load_model(folder)
    assert loaded.task == Embedding(**SETTINGS)
    assert loaded.task.skip_words == tuple(string.punctuation)
    (row,) = Predictor(loaded).predict(["free, cash!"])
    wanted = kept_vectors(embed(folder, ["free, cash!"])[0])
    np.testing.assert_allclose(row["token_embeddings"], wanted, atol=1e-5)
    export_model(loaded, tmp_path / "served")
    served = load_predictor(tmp_path / "served")
    for prompt in (None, "query"):
        found = embed(served, TEXTS[:2], prompt=prompt)
        np.testing.assert_allclose(
            found, embed(folder, TEXTS[:2], prompt=prompt), atol=1e-5
        )


def test_what_vectors_of_tokens_cannot_do(
    folder: Path, model: Any, tmp_path: Path
) -> None:
    source = load_embedder(folder)
    refused(lambda: embed(folder, TEXTS, pooling="cls"), "`pooling` needs", "tokens")
    refused(lambda: load_embedder(folder, dimensions=2), "`dimensions` needs vectors")
    for settings, part in (
        ({"index": tmp_path / "a.parquet"}, "`index` must be npz"),
        ({"dtype": "binary"}, "`dtype` must be float32 or int8"),
        ({"engine": "faiss"}, "faiss"),
    ):
        refused(lambda given=settings: SearchIndex.of(source, TEXTS, **given), part)
    texts = tmp_path / "texts.csv"
    texts.write_text("text\nwin cash\n")
    output = tmp_path / "out.npz"
    refused(lambda: write_features(folder, texts, output), "features needs vectors")
    refused(lambda: SearchIndex.of(source, TEXTS)([" "]), "`queries` must not be empty")
    for settings, part in (
        ({"pooling": "cls"}, "`pooling` must be left out with `kind` tokens"),
        ({"long": "windows"}, "`long` must be left out with `kind` tokens"),
        ({"dense": ({**PROJECTION, "on_tokens": False},)}, "`on_tokens` true"),
        ({"query_length": 4, "query_expansion": 9}, "at most `query_length`"),
    ):
        refused(lambda given=settings: Embedding(**{"kind": "tokens", **given}), part)
    refused(
        lambda: soft_target_loss(model.task, TrainConfig(teacher="t")),
        "`teacher` must score pairs of texts",
    )


def test_an_index_of_another_kind_is_never_replaced(
    folder: Path, encoder_folder: Path, tmp_path: Path
) -> None:
    index, dense = tmp_path / "index.npz", load_embedder(encoder_folder)
    SearchIndex.of(dense, TEXTS, index=index)
    refused(lambda: SearchIndex.load(folder, index), "a model of `kind` dense")
    refused(
        lambda: SearchIndex.of(folder, TEXTS, index=index),
        "index.npz",
        "contains vectors of `kind` dense, where the model has tokens",
    )
    index = tmp_path / "tokens.npz"
    tokens = SearchIndex.of(folder, TEXTS, index=index)
    assert isinstance(tokens.packed, TokenVectors)
    before = index.read_bytes()
    refused(
        lambda: SearchIndex.of(dense, TEXTS[1:], index=index),
        "contains vectors of `kind` tokens, where the model has dense",
    )
    assert index.read_bytes() == before
    refused(lambda: SearchIndex.load(dense, index), "a model of `kind` tokens")
    refused(
        lambda: SearchIndex.of(dense, TEXTS, engine="centroids"),
        "`engine` centroids needs vectors of `kind` tokens; received dense",
    )
    packed = SearchIndex.of(dense, TEXTS).packed
    assert isinstance(packed, PackedVectors)
    refused(
        lambda: SearchIndex(load_embedder(folder), TEXTS, packed),
        "`vectors` must be of `kind` tokens",
        "dense",
    )
