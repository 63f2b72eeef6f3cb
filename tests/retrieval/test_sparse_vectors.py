"""Sparse vectors: their index, and search, scores and refusals with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS, refused, write_collection

from bert_keras.cli.info import describe
from bert_keras.cli.main import main
from bert_keras.inference.predictor import Predictor
from bert_keras.model.contrastive import RankingLoss, SparseRankingLoss
from bert_keras.models.loading import new_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.retrieval.embedder import embed, load_embedder, shared_settings
from bert_keras.retrieval.evaluation import evaluate_collection
from bert_keras.retrieval.features import write_features
from bert_keras.retrieval.index import SearchIndex
from bert_keras.retrieval.mining import mine_negatives
from bert_keras.retrieval.sparse_vectors import SparseVectors
from bert_keras.scoring.bm25 import BM25, fused
from bert_keras.tasks.embedding import Embedding
from bert_keras.training.config import TrainConfig

TEXTS = [text for text, _ in ROWS]


@pytest.fixture(scope="module")
def folder(
    make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    place = tmp_path_factory.mktemp("sparse") / "model"
    for _ in range(2):  # the second replaces the first
        save_model(make_model(Embedding(kind="sparse", scale=1.0)), place)
    return place


def test_the_inverted_index_is_exact() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(9, 20)).astype(np.float32)
    queries = np.maximum(rng.normal(size=(3, 20)), 0).astype(np.float32)
    packed = SparseVectors.of_batches([vectors[:4], vectors[4:]], 20)
    np.testing.assert_array_equal(packed.numbers(slice(None)), np.maximum(vectors, 0))
    rows, scores = packed.nearest(queries, 5)
    wanted = queries @ np.maximum(vectors, 0).T
    np.testing.assert_allclose(
        scores, np.take_along_axis(wanted, rows, axis=1), atol=1e-5
    )
    np.testing.assert_allclose(scores, -np.sort(-wanted, axis=1)[:, :5], atol=1e-5)
    few = np.zeros((2, 20), np.float32)
    few[0, 3] = 1.0
    rows, _ = SparseVectors.of_batches([few[1:], few[:1], few[:1]], 20).nearest(few, 3)
    assert rows.tolist() == [[1, 2, -1], [-1, -1, -1]]  # without a common token
    none = SparseVectors.of_batches([], 20).entries()  # as in a broken file
    assert len(SparseVectors.from_entries(none)) == 0


def test_the_loss_by_hand() -> None:
    rng = np.random.default_rng(0)
    numbers = np.array([[0, 1, 4], [2, 3, -1]])  # the second row has no negative
    vectors = np.abs(rng.normal(size=(6, 5))).astype(np.float32)
    rows = vectors.reshape(2, 3, 5)
    plain = RankingLoss(1.0).compare(numbers, vectors)
    queries = np.square(rows[:, 0].mean(axis=0)).sum()
    documents = [rows[0, 1], rows[0, 2], rows[1, 1]]
    penalty = 0.5 * queries + 0.25 * np.square(np.mean(documents, axis=0)).sum()
    found = SparseRankingLoss(1.0, query_flops=0.5, document_flops=0.25)
    assert float(found(numbers, vectors)) == pytest.approx(
        float(np.mean(plain)) + penalty, rel=1e-5
    )


def test_search_by_dot_product(
    folder: Path,
    encoder_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    predictor, index = load_embedder(folder), tmp_path / "index.npz"
    queries = ["free cash", "lunch"]
    wanted = embed(predictor, queries) @ embed(predictor, TEXTS).T
    made = SearchIndex.of(predictor, TEXTS, index=index)
    again = SearchIndex.of(predictor, TEXTS, index=index)
    assert "rebuilt" not in capsys.readouterr().err
    for search in (made, again):
        for row, found in enumerate(search(queries, top=3)):
            scores = [each["score"] for each in found]
            np.testing.assert_allclose(scores, -np.sort(-wanted[row])[:3], rtol=1e-5)
    assert describe(index)["vectors"] == "sparse"
    dense = load_embedder(encoder_folder)
    given: dict[str, Any] = {"hybrid": True, "fuse": predictor}
    (hybrid,) = SearchIndex.of(dense, TEXTS, **given)(["cash"], top=12)
    by_words = BM25(TEXTS).ranked("cash", 12)
    rankings = [
        [TEXTS.index(each["text"]) for each in search(["cash"], top=12)[0]]
        for search in (SearchIndex.of(dense, TEXTS), made)
    ]
    capsys.readouterr()
    given = {"prompt": "query", "long": "head-tail", "dimensions": 8}
    taken = shared_settings(encoder_folder, **given)
    assert taken == {"prompt": "query", "long": "head-tail"}
    line = "dimensions 8 applies to the first model only, not to --fuse"
    assert line in capsys.readouterr().err
    given = {"max_length": 7, "long": "head-tail"}
    found = SearchIndex.of(encoder_folder, TEXTS[:1], fuse=folder, **given)._other
    assert found is not None and found.predictor.model.preprocessor.max_length == 7
    assert found.predictor.model.task.long == "head-tail"
    given |= {"long": "windows", "combine": "first"}
    found = SearchIndex.of(encoder_folder, TEXTS[:1], fuse=folder, **given)._other
    assert found is not None and found.predictor.model.task.combine == "max"
    assert "combine 'first' applies to the first" in capsys.readouterr().err
    wanted_rows = [TEXTS[row] for row, _ in fused([*rankings, by_words], 12)]
    assert [each["text"] for each in hybrid] == wanted_rows
    (answer,) = predictor.predict(["free cash"])
    vector = embed(predictor, ["free cash"])[0]
    assert set(answer) == {"indices", "values"}
    assert answer["values"] == pytest.approx(-np.sort(-vector[vector > 0]), rel=1e-5)
    assert answer["indices"][0] == int(vector.argmax())


def test_texts_without_a_common_token_are_not_found(
    folder: Path,
    make_model: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    predictor = load_embedder(folder)
    (found,) = embed(predictor, ["cash"])
    vectors = np.zeros((3, len(found)), np.float32)
    vectors[2, found.argmax()] = 1.0
    some = SearchIndex(
        predictor, TEXTS[:3], SparseVectors.of_batches([vectors], len(found))
    )
    assert [each["line"] for each in some(["cash"], top=3)[0]] == [3]
    of_vectors = Predictor(make_model(Embedding("mean")))
    dense = SearchIndex(of_vectors, TEXTS[:3], np.eye(3), other=some)
    assert dense.best(["cash"], np.eye(3)[:1], 3)[0][0][0] == 2
    texts = tmp_path / "texts.csv"
    texts.write_text("title,text\nsale,win cash\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            SparseVectors, "of_batches", lambda *_, **__: SparseVectors(*none)
        )
        none = (np.zeros(0), np.zeros(0, np.int32), np.zeros(1, np.int64), len(found))
        assert main(["search", str(folder), str(texts), "cash"]) == 0
    reason = "no text shares a token with its vector"
    wanted = {"query": 1, "rank": None, "score": None, "line": None, "reason": reason}
    shown = capsys.readouterr()
    assert json.loads(shown.out) == wanted
    assert "the column `title` is not read" in shown.err


def test_a_head_that_the_encoder_lacks_starts_with_its_tokens(
    folder: Path,
    encoder_folder: Path,
    make_model: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = (
        "no masked-LM head (cls/predictions): "
        "it starts as the product with the tokens' embeddings"
    )
    dense = save_model(make_model(Embedding()), tmp_path / "dense")
    for encoder in (encoder_folder, dense):
        model = TaskModel.from_pretrained(encoder, "embedding", kind="sparse")
        said = capsys.readouterr().err
        assert line in said and "randomly" not in said
        head = model.get_layer("cls")
        np.testing.assert_array_equal(head.dense.kernel, np.eye(head.hidden_size))
    trained = new_model(model.task, str(encoder_folder), TrainConfig(max_length=24))
    assert line in capsys.readouterr().err and not trained.has_pretrained_head
    np.testing.assert_array_equal(
        trained.get_layer("cls").dense.kernel, head.dense.kernel
    )
    held = new_model(model.task, str(folder), TrainConfig(max_length=24))
    assert line not in capsys.readouterr().err and held.has_pretrained_head


def test_scores_on_a_collection(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collection = write_collection(tmp_path / "beir")
    scores = evaluate_collection(load_embedder(folder), collection, top=1)
    assert [*scores["rankings"]] == ["sparse", "BM25", "hybrid"]
    line = "top 1: the scores at 10 and 100 are of the first 1 document alone"
    assert line in capsys.readouterr().err


def test_negatives_are_mined_by_their_products(folder: Path) -> None:
    pairs = Embedding.read({"text": TEXTS[:3], "text_pair": TEXTS[3:6]})
    predictor = load_embedder(folder)
    mined = mine_negatives(predictor, pairs, TEXTS, ranks=(0, 5), margin=0.0)
    vectors = embed(predictor, TEXTS)
    scores = vectors[:3] @ vectors.T
    products = np.diag(scores[:, 3:6])
    assert mined.positive_score == pytest.approx(products.mean(), rel=1e-5)
    for row, texts in enumerate(mined.columns["negative"]):
        for text in texts:
            assert scores[row, TEXTS.index(text)] <= products[row] + 1e-5
    assert mined.mined and "mean dot product " in str(mined)


def test_what_sparse_vectors_cannot_do(
    folder: Path, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    refused(lambda: Embedding(kind="sparse", dimensions=(8,)), "`dimensions` must be")
    refused(lambda: Embedding(kind="sparse", objective="similarity"), "`objective`")
    refused(lambda: Embedding(query_flops=1.0), "only with `kind` sparse")
    refused(lambda: load_embedder(folder, pooling="cls"), "`pooling` needs vectors")
    refused(lambda: load_embedder(folder, dimensions=8), "`dimensions` needs vectors")
    source = load_embedder(folder)
    index = {"index": tmp_path / "a.parquet"}
    refused(lambda: SearchIndex.of(source, TEXTS, **index), "`index` must be npz")
    refused(lambda: SearchIndex.of(source, TEXTS, dtype="int8"), "`dtype` must be")
    refused(lambda: SearchIndex.of(source, TEXTS, engine="faiss"), "faiss")
    texts = tmp_path / "texts.csv"
    texts.write_text("text\nwin cash\n")
    output = tmp_path / "out.npz"
    refused(lambda: write_features(folder, texts, output), "features needs vectors")
    predictor = Predictor(make_model(Embedding(kind="sparse")))
    refused(lambda: predictor.with_classes("a, b"), "`classes` needs vectors")
