"""Rankings beside pytrec_eval and sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_collection

from bert_keras.data.collection import read_collection
from bert_keras.inference.predictor import Predictor
from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.evaluation import evaluate_collection
from bert_keras.scoring.ranking import ranking_scores, run_rankings
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.reranking import Reranking

QUERY = "free cash"
DOCUMENTS = ["win free cash now", "lunch at six, you", "cash", "sale " * 40, "at six"]


def test_scores_equal_those_of_trec_eval(rng: np.random.Generator) -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    qrels, run = {}, {}
    for query in map(str, range(40)):
        ids = [f"d{n}" for n in range(30)]
        grades = rng.integers(0, 4, 30) * (rng.random(30) < 0.3)
        qrels[query] = {
            name: int(grade) for name, grade in zip(ids, grades, strict=True)
        }
        found = rng.permutation(ids)[: rng.integers(1, 30)]
        scores = rng.permutation(len(found)).astype(float)
        run[query] = dict(zip(found.tolist(), scores.tolist(), strict=True))
    names = {
        "ndcg_at_10": "ndcg_cut_10",
        "map": "map",
        "recall_at_10": "recall_10",
        "recall_at_100": "recall_100",
        "precision_at_1": "P_1",
    }
    theirs = pytrec_eval.RelevanceEvaluator(qrels, set(names.values())).evaluate(run)
    counted = [q for q, grades in qrels.items() if any(grades.values())]
    ours = ranking_scores(*run_rankings(qrels, run))
    assert ours["num_queries"] == len(counted)
    for name, their_name in names.items():
        wanted = np.mean([theirs[query][their_name] for query in counted])
        assert ours[name] == pytest.approx(wanted, abs=1e-9)


def test_search_is_scored_as_by_the_peers(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import (
        InformationRetrievalEvaluator,
    )

    pytrec_eval = pytest.importorskip("pytrec_eval")
    model = make_model(Embedding())
    save_model(model, tmp_path / "model")
    folder, run = write_collection(tmp_path / "beir"), tmp_path / "run.trec"
    data = read_collection(folder)
    ours = evaluate_collection(Predictor(model), data, save_run=run)
    with run.open() as file:
        read = pytrec_eval.parse_run(file)
    qrels = {
        query: {name: int(grade) for name, grade in found.items()}
        for query, found in data.qrels.items()
    }
    names = {"ndcg_at_10": "ndcg_cut_10", "map": "map", "recall_at_10": "recall_10"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, set(names.values())).evaluate(read)
    for name, their_name in names.items():
        wanted = np.mean([theirs[query][their_name] for query in ("q1", "q2")])
        assert ours[name] == pytest.approx(wanted, abs=1e-6)
    evaluator = InformationRetrievalEvaluator(
        {query: data.queries[query] for query in ("q1", "q2")},
        data.documents,
        {
            query: {e for e, g in qrels[query].items() if g > 0}
            for query in ("q1", "q2")
        },
    )
    found = evaluator(SentenceTransformer(str(tmp_path / "model"), device="cpu"))
    assert ours["mrr_at_10"] == pytest.approx(found["cosine_mrr@10"], abs=1e-6)
    assert ours["precision_at_1"] == pytest.approx(found["cosine_precision@1"])


@pytest.mark.parametrize("activation", ["sigmoid", "linear"])
def test_documents_are_ranked_as_by_a_cross_encoder(
    activation: str, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    from sentence_transformers import CrossEncoder

    model = make_model(Reranking(activation=activation))
    save_model(model, tmp_path / "ranker")
    theirs = CrossEncoder(str(tmp_path / "ranker")).rank(QUERY, DOCUMENTS)
    ours = Predictor(model).rank(QUERY, DOCUMENTS)
    assert [each["index"] for each in ours] == [each["corpus_id"] for each in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert one["score"] == pytest.approx(float(other["score"]), abs=1e-5)
