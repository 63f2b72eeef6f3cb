"""A SavedModel that searches answers as `SearchIndex` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROWS, refused
from exports.test_saved_model import run_in_c

from bert_keras.cli.info import describe
from bert_keras.data.table import as_columns
from bert_keras.inference.answered_rows import BlankTexts, answered
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.retrieval.export import export_search
from bert_keras.retrieval.features import write_features
from bert_keras.retrieval.index import SearchIndex, reranked
from bert_keras.scoring.bm25 import BM25
from bert_keras.scoring.similarity import unit_rows
from bert_keras.serving.signatures import signatures_of
from bert_keras.tasks import searching
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.reranking import Reranking
from bert_keras.tasks.searching import Documents
from bert_keras.text.truncation import Truncation
from bert_keras.training.evaluation import evaluate

TEXTS = [text for text, _ in ROWS]
QUERIES = ["win free cash", "see you", "off"]


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Any]) -> Any:
    return make_model(Embedding(prompts={"query": "now ", "document": "at "}))


@pytest.mark.parametrize(
    "dtype",
    [
        "hybrid",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("float32", "int8", "binary", "bits alone", "hybrid binary")
        ),
    ],
)
def test_the_nearest_texts(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr(searching, "_AT_ONCE", 5)
    texts = [*TEXTS, *TEXTS[3:5], TEXTS[3]]  # some are equal, two in one part
    index, names = tmp_path / "index.npz", [f"é{row}" for row in range(len(texts))]
    ranking: dict[str, Any] = {}
    if "hybrid" in dtype:
        ranking = {"hybrid": True, "hybrid_weight": 0.7}
        dtype = dtype.removeprefix("hybrid").strip() or "float32"
    found = SearchIndex.of(
        Predictor(model),
        texts,
        ids=names,
        index=index,
        dtype="binary" if dtype == "bits alone" else dtype,
        rescore=0 if dtype == "bits alone" else None,
        **ranking,
    )
    folder = export_search(model, tmp_path / "out", index=index, top=3, **ranking)
    assert model.task.name == "embedding"
    facts = describe(folder)
    assert facts["task"] == "search"
    assert facts["ranking"] == ("hybrid, weight 0.7" if ranking else "dense")
    loaded = load_predictor(folder)
    rows = loaded.predict(QUERIES)
    for row, wanted in zip(rows, found(QUERIES, top=3), strict=True):
        assert row["ids"] == [each["id"] for each in wanted]
        assert row["texts"] == [each["text"] for each in wanted]
        scores = [each["score"] for each in wanted]
        np.testing.assert_allclose(row["scores"], scores, atol=1e-5)
    refused(lambda: loaded.predict(["see", " "]), "must not be empty", "at index 1")
    blank = BlankTexts(loaded.model.task, "null", "rows.csv").rows([("7", " ", 2)])
    (row,) = answered(loaded, blank, truncation=Truncation())  # as the verb `predict`
    reason = {"id": "7", "text": " ", "reason": "`text` is empty"}
    assert row == {**dict.fromkeys(("ids", "texts", "scores")), **reason}
    served = signatures_of(loaded.model)["serving_default"]
    given = served.rows_of([[query.encode() for query in QUERIES]])
    ids = served.compute(given)[0]["ids"]  # as `serve` does
    assert [[name.decode() for name in row] for row in ids] == [r["ids"] for r in rows]


@pytest.mark.parametrize(
    "dtype",
    ["int8", *(pytest.param(x, marks=pytest.mark.slow) for x in ("float32", "hybrid"))],
)
def test_the_nearest_texts_by_vectors_of_tokens(
    make_model: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
) -> None:
    monkeypatch.setattr(searching, "_AT_ONCE", 24)  # tokens: some texts
    layer = {"units": 6, "activation": "linear", "use_bias": False, "on_tokens": True}
    sides = {"query_expansion": 7, "query_length": 7, "prompts": {"query": "now "}}
    model = make_model(Embedding(kind="tokens", dense=(layer,), **sides))
    texts = [*TEXTS, *TEXTS[3:6]]  # some are equal
    index, names = tmp_path / "index.npz", [f"é{row}" for row in range(len(texts))]
    given: dict[str, Any] = {"index": index, "hybrid": dtype == "hybrid"}
    kept = None if dtype == "hybrid" else dtype
    found = SearchIndex.of(Predictor(model), texts, ids=names, dtype=kept, **given)
    folder = export_search(model, tmp_path / "out", top=len(texts), **given)
    ranking = "hybrid, weight 1" if given["hybrid"] else "tokens"
    assert describe(folder)["ranking"] == ranking
    rows = load_predictor(folder).predict(QUERIES)
    for row, wanted in zip(rows, found(QUERIES, top=len(texts)), strict=True):
        assert row["ids"] == [each["id"] for each in wanted]
        scores = [each["score"] for each in wanted]
        np.testing.assert_allclose(row["scores"], scores, atol=1e-5)
    if dtype == "int8":
        with np.load(index) as stored:
            held = {**stored, "ends": stored["ends"].copy()}
        held["ends"][0] = 0  # the first text has no vectors now
        np.savez(index, **held)
        refused(
            lambda: export_search(model, tmp_path / "out", index=index),
            "index.npz: contains",
        )


def test_equal_texts_have_equal_scores() -> None:
    rng = np.random.default_rng(0)
    vectors = unit_rows(rng.standard_normal((17, 16)))
    same = [*range(0, 17, 2)]
    vectors[same] = vectors[0]
    texts = [f"text {0 if row in same else row}" for row in range(17)]
    settings: dict[str, Any] = dict.fromkeys(("offset", "step", "rescoring"))
    documents = searching.Documents(texts, texts, vectors, **settings, width=16, top=17)
    queries = unit_rows(rng.standard_normal((9, 16)))
    rows, scores = (each.numpy() for each in documents.nearest(queries, 17))
    assert all(row[np.isin(row, same)].tolist() == same for row in rows)
    found = zip(rows, scores, strict=True)
    assert all(len({*score[np.isin(row, same)]}) == 1 for row, score in found)


def test_the_words_of_a_graph_are_those_of_bm25() -> None:
    texts = [
        "İstanbul ΟΔΟΣ,ΣΑΣ",
        "straße_7 straße",
        "a\0b 日本",
        "x² ½ e\u0301 \u0130",
        "",
    ]
    words = BM25(texts)
    of_floats: dict[str, Any] = dict.fromkeys(("offset", "step", "rescoring"))
    made = Documents(
        texts,
        texts,
        np.eye(5, dtype=np.float32),
        **of_floats,
        width=5,
        top=1,
        words=words,
    )
    queries = [*texts, "STRASSE Straße straße", "日本 é?", " ".join(texts)]
    wanted = [words.scores(query) for query in queries]
    np.testing.assert_array_equal(made.words.scores(tf.constant(queries)), wanted)


def test_equal_texts_count_as_one_where_words_and_vectors_are_fused() -> None:
    texts = ["pay a bill", "reset", "pay a bill"]
    vectors = np.array([[1, 0], [0, 1], [1, 0]], np.float32)
    of_floats: dict[str, Any] = dict.fromkeys(("offset", "step", "rescoring"))
    documents = Documents(
        texts, ["a", "b", "c"], vectors, **of_floats, width=2, top=3, words=BM25(texts)
    )
    query = np.array([[0.6, 0.8]] * 2, np.float32)
    found = documents.fused(query, tf.constant(["PAY, pay!", "tax"]), 0.5)
    both = 1 / 62 + 0.5 / 61
    assert found["ids"].numpy().tolist() == [[b"a", b"c", b"b"], [b"b", b"a", b"c"]]
    scores = [[both, both, 1 / 61], [1 / 61, 1 / 62, 1 / 62]]
    np.testing.assert_allclose(found["scores"], scores, rtol=1e-6)


@pytest.mark.slow
def test_a_reranker_in_the_graph(
    model: Any, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    index, output = tmp_path / "index.npz", tmp_path / "out"
    search = SearchIndex.of(Predictor(model), TEXTS, index=index, hybrid=True)
    ranker = make_model(Reranking())
    given: dict[str, Any] = {"index": index, "top": 3, "rerank": ranker}
    given["hybrid"] = True
    folder = export_search(model, output, candidates=6, **given)
    assert describe(folder)["ranking"] == "hybrid, weight 1, reranked"
    loaded = load_predictor(folder)
    rows = loaded.predict(QUERIES)
    for query, row in zip(QUERIES, rows, strict=True):
        near = search([query], top=6)[0]
        wanted = reranked(Predictor(ranker), query, near, top=3)
        assert row["texts"] == [each["text"] for each in wanted]
        for key, name in (("scores", "score"), ("search_scores", "search_score")):
            scores = [each[name] for each in wanted]
            np.testing.assert_allclose(row[key], scores, atol=1e-5)
    pairs = Classification(classes=("no", "yes"), pairs=True, positive_class="yes")
    given["rerank"] = make_model(pairs)
    rows = load_predictor(
        export_search(model, tmp_path / "classes", candidates=6, **given)
    ).predict(QUERIES[:1])
    near = search(QUERIES[:1], top=6)[0]
    wanted = reranked(Predictor(given["rerank"]), QUERIES[0], near, top=3)
    assert rows[0]["texts"] == [each["text"] for each in wanted]
    refused(lambda: export_search(model, output, candidates=2, **given), "candidates")
    sparse = make_model(Embedding(kind="sparse"))
    kind = "`index` needs vectors of `kind` dense or tokens"
    refused(lambda: export_search(sparse, output, **given), kind, "sparse")
    refused(
        lambda: export_search(model, output, **given | {"rerank": model}),
        "must score pairs",
    )


@pytest.mark.thorough
def test_a_c_program_searches(
    model: Any, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    index, output = tmp_path / "index.npz", tmp_path / "out"
    SearchIndex.of(Predictor(model), TEXTS, index=index, dtype="binary")
    given: dict[str, Any] = {"top": 3, "rerank": make_model(Reranking())}
    folder = export_search(model, output, index=index, candidates=6, **given)
    rows = load_predictor(folder).predict(QUERIES)
    found = run_in_c(folder, [f"text={query}" for query in QUERIES], tmp_path)
    assert found["texts"] == [row["texts"] for row in rows]
    np.testing.assert_allclose(found["scores"], [r["scores"] for r in rows], atol=1e-5)


@pytest.mark.slow
def test_an_index_that_cannot_be_exported(
    model: Any,
    make_model: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    index, output = tmp_path / "index.npz", tmp_path / "out"
    SearchIndex.of(Predictor(model), TEXTS, index=index)
    other = make_model(Embedding("max"))
    refused(lambda: export_search(other, output, index=index), "another model")
    assert not output.exists()
    file = tmp_path / "texts.tsv"
    file.write_text("text\n" + "\n".join(TEXTS))
    write_features(Predictor(model), file, tmp_path / "features.npz")
    refused(
        lambda: export_search(model, output, index=tmp_path / "features.npz"),
        "no texts",
        "search --index",
    )
    folder = export_search(model, output, index=index, top=20)
    assert "top 20: the index has 12 texts" in capsys.readouterr().err
    predictor = load_predictor(folder)
    assert len(predictor.predict(["see you"])[0]["ids"]) == 12
    pairs = as_columns(text=TEXTS, text_pair=TEXTS)
    refused(lambda: evaluate(predictor, pairs), "evaluate the model folder")
