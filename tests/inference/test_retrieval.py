"""Rankings of judged collections, by embeddings and by rerankers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROWS, refused, write_collection

from bert_keras.cli.main import main
from bert_keras.data.collection import read_collection, read_qrels, read_run
from bert_keras.inference.predictor import Predictor
from bert_keras.inference.retrieval import evaluate_collection
from bert_keras.models.model_folder import save_model
from bert_keras.scoring.ranking import ranking_scores, run_rankings
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.reranking import Reranking
from bert_keras.training.evaluation import evaluate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_collection(tmp_path_factory.mktemp("beir"))


def test_search_reads_documents_as_evaluate_does(
    make_model: Callable[..., Any],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_model(make_model(Embedding()), tmp_path / "model")
    given = [str(tmp_path / "model"), str(folder / "corpus.jsonl"), "--skip-empty"]
    vectors = str(tmp_path / "vectors.parquet")
    assert main(["features", *given, "--output", vectors]) == 0
    command = ["search", *given, "--index", vectors, "--with-text", "--top=99", "cash"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "`title` is read before `text`" in shown.err
    rows = map(json.loads, shown.out.splitlines()[1:])
    documents = read_collection(folder).documents
    assert {row["id"]: row["text"] for row in rows} == documents


@pytest.mark.slow
def test_an_embedding_beside_words(
    make_model: Callable[..., Any],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_model(make_model(Embedding(dimensions=(4,))), tmp_path / "model")
    run, given = tmp_path / "own.trec", tmp_path / "given.trec"
    given.write_text("q1 Q0 d5 1 2.5 x\nq1 Q0 d0 2 1 x\nq2 Q0 d3 1 1 x\n")
    command = ["evaluate", str(tmp_path / "model"), str(folder), "--run", str(given)]
    assert main([*command, "--save-run", str(run), "--top", "6"]) == 0
    shown = capsys.readouterr()
    assert "1 document without text" in shown.err
    assert "1 query without judgements" in shown.err
    assert "BM25" in shown.out and "NDCG@10" in shown.out
    assert main([*command, "--json", "--top", "6"]) == 0
    scores = json.loads(capsys.readouterr().out)
    types = ["float32", "int8", "binary"]
    narrow = [f"{dtype}, width 4" for dtype in types]
    rankings = scores["rankings"]
    assert list(rankings) == [*types, *narrow, "BM25", "hybrid", "given.trec"]
    assert (scores["num_queries"], scores["without_relevant"]) == (2, 1)
    qrels = read_qrels(folder / "qrels" / "test.tsv")
    wanted = ranking_scores(*run_rankings(qrels, read_run(run)))
    assert wanted == {key: scores[key] for key in wanted}
    row = rankings["float32"]
    assert row["ndcg_at_10"] == wanted["ndcg_at_10"]
    assert row["low"] == wanted["intervals"]["ndcg_at_10"]["low"]
    assert rankings["given.trec"]["precision_at_1"] == 0.5
    assert max(map(len, read_run(run).values())) == 6


def test_a_reranker_sorts_candidates(
    make_model: Callable[..., Any],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    predictor = Predictor(make_model(Reranking()))
    run, given = tmp_path / "own.trec", tmp_path / "given.trec"
    lines = ("d5 1 2.5", "d7 5 -2", "d0 2 1", "d9 3 0", "empty 4 -1")
    given.write_text("".join(f"q1 Q0 {each} x\n" for each in lines))
    data = read_collection(folder, run=given)
    scores = evaluate_collection(predictor, data, top=2, save_run=run)
    texts = [data.documents["d5"], data.documents["d0"]]
    wanted = [["d5", "d0"][row["index"]] for row in predictor.rank("free cash", texts)]
    found = read_run(run)
    assert [*found["q1"]] == [*wanted, "d9", "empty", "d7"] and "q2" not in found
    assert len({*found["q1"].values()}) == 5
    assert "the first 2 with text are sorted" in capsys.readouterr().err
    rows = scores["rankings"]
    assert rows["reranked"]["recall_at_100"] == rows["given.trec"]["recall_at_100"]
    assert [*scores["rankings"]] == ["reranked", "given.trec"]
    assert [*evaluate(predictor, folder)["rankings"]] == ["reranked", "BM25"]
    pairs = Classification(classes=("no", "yes"), pairs=True, positive_class="yes")
    predictor = Predictor(make_model(pairs))
    evaluate_collection(predictor, data, top=2, save_run=run)
    wanted = predictor.rank("free cash", texts)
    assert [*read_run(run)["q1"]][:2] == [["d5", "d0"][row["index"]] for row in wanted]


def test_equal_ids_and_judgements_in_both_forms(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "qrels.txt").write_text("q1 0 d0 1\nq1 0 d3 -1\nq2 0 d4 2\n")
    data = read_collection(folder, qrels=tmp_path / "qrels.txt")
    assert data.qrels == {"q1": {"d0": 1.0, "d3": -1.0}, "q2": {"d4": 2.0}}
    assert data.unjudged == 2 and data.documents["d0"] == f"note {ROWS[0][0]}"
    lines = (folder / "corpus.jsonl").read_text().splitlines()
    assert len(data.documents) == len(lines) - 1


@pytest.mark.parametrize(
    ("lines", "parts"),
    [
        ("q1 0 d0 nan", ["qrels.txt:1", "a finite number; received 'nan'"]),
        ("q1 0 d0 1\nq9 0 d0 1", ["qrels.txt:2", "query q9 is not in queries.jsonl"]),
        ("q1\td77\t1", ["qrels.txt:1", "document d77 is not in corpus.jsonl"]),
        ("q1 0 d0 1\nq1 0 d0 2", ["qrels.txt:2", "document d0 again"]),
        ("q1 d0", ["qrels.txt:1", "has 2 columns"]),
    ],
)
def test_bad_judgements(
    folder: Path, tmp_path: Path, lines: str, parts: list[str]
) -> None:
    (tmp_path / "qrels.txt").write_text(lines)
    refused(lambda: read_collection(folder, qrels=tmp_path / "qrels.txt"), *parts)


def test_bad_folders_and_options(
    make_model: Callable[..., Any],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = write_collection(tmp_path / "other")
    with (other / "corpus.jsonl").open("a") as file:
        file.write('\n{"_id": "d0", "text": "again"}\n')
    refused(lambda: read_collection(other), "corpus.jsonl:14", "unique; received d0")
    (other / "corpus.jsonl").write_text('{"_id": "d0", "text": "a"}')
    (other / "qrels" / "test.tsv").rename(other / "qrels" / "dev.tsv")
    (other / "qrels" / "train.tsv").write_text("")
    refused(lambda: read_collection(other), "qrels", "test.tsv or one .tsv")
    run = tmp_path / "run.trec"
    run.write_text("q1 Q0 d0 1 inf x\n")
    refused(lambda: read_collection(folder, run=run), "run.trec:1", "finite number")
    save_model(make_model(Embedding()), tmp_path / "model")
    model = str(tmp_path / "model")
    assert main(["evaluate", model, str(folder), "--label", "x"]) == 2
    assert "has no columns; received label=x" in capsys.readouterr().err
    for width, code, line in ((99, 2, "at most 16"), (4, 0, "for whole vectors")):
        given = ["--set", f"truncate_dim={width}"]
        assert main(["evaluate", model, str(folder), *given]) == code
        assert line in capsys.readouterr().err
    assert main(["evaluate", model, str(folder / "corpus.jsonl"), "--top", "3"]) == 2
    assert "`--top` is for a folder" in capsys.readouterr().err
    assert main(["evaluate", model, str(folder), "--save-run", str(run / "a")]) == 2


@pytest.mark.slow
def test_a_run_is_scored_on_collections(
    encoder_folder: Path, folder: Path, tmp_path: Path
) -> None:
    from bert_keras.training import TrainConfig, train

    texts = [text for text, _ in ROWS]
    pairs = [
        {"text": a, "text_pair": b} for a, b in zip(texts, texts[1:], strict=False)
    ]
    given: dict[str, Any] = {"encoder": encoder_folder, "train": pairs, "dev": pairs}
    config = TrainConfig(epochs=1, batch_size=4, explain_mistakes=0)
    output = tmp_path / "model"
    found = train("embedding", **given, test=folder, output=output, config=config)
    scores = found.scores["test"]
    wanted = evaluate(Predictor(found.model), folder)
    assert scores["ndcg_at_10"] == pytest.approx(wanted["ndcg_at_10"])
    page, card = ((output / name).read_text() for name in ("report.html", "README.md"))
    assert "hybrid" in page and "12 documents, 3 queries" in page
    assert "ndcg_at_10" in card and "12 documents, 3 queries" in card
    refused(lambda: train("embedding", **given | {"dev": folder}, output=output), "dev")
    rows = {"text": texts, "label": ["0", "1"] * 6}
    action: Callable[[], object] = lambda: train(  # noqa: E731
        "classification", encoder=encoder_folder, train=rows, test=folder, output=output
    )
    refused(action, "must score pairs")
