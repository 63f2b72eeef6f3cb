"""Rankings of judged collections, by embeddings and by rerankers."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from conftest import ROWS, refused, write_collection

from bert_keras.cli.main import main
from bert_keras.data.collection import read_collection, read_qrels, read_run
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.evaluation import (
    evaluate_collection,
    search_runs,
    tuned_weight,
)
from bert_keras.retrieval.index import SearchIndex
from bert_keras.runs import progress
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1)
    save_model(make_model(Embedding()), tmp_path / "model")
    given = [str(tmp_path / "model"), str(folder / "corpus.jsonl"), "--skip-empty"]
    vectors = str(tmp_path / "vectors.parquet")
    assert main(["features", *given, "--output", vectors]) == 0
    command = ["search", *given, "--with-text", "--top=99", "cash"]
    assert main([*command, "--output", str(tmp_path / "found.jsonl")]) == 0
    told = capsys.readouterr().err
    assert "vectors: 12 of 12 texts" in told and "answers: 1 of 1 query" in told
    assert "`title` is read before `text`" in told
    assert main([*command, "--index", vectors]) == 0
    rows = map(json.loads, capsys.readouterr().out.splitlines())
    assert main([*command, "--id", "name"]) == 2
    assert "to read another column: --id NAME" in capsys.readouterr().err
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
    assert (
        "the first 2 documents with text of each query are sorted"
        in capsys.readouterr().err
    )
    rows = scores["rankings"]
    assert rows["reranked"]["recall_at_100"] == rows["given.trec"]["recall_at_100"]
    assert [*scores["rankings"]] == ["reranked", "given.trec"]
    assert [*evaluate(predictor, folder)["rankings"]] == ["reranked", "BM25"]
    evaluate_collection(predictor, data, top=2, save_run=run, rerank_weight=0.5)
    sums = {
        name: given + predictor.score_pairs([("free cash", text)])[0]["score"] / 2
        for name, given, text in zip(("d5", "d0"), (2.5, 1.0), texts, strict=True)
    }
    found = read_run(run)["q1"]
    assert {name: found[name] for name in sums} == pytest.approx(sums, abs=1e-4)
    embedder = Predictor(make_model(Embedding()))
    refused(
        lambda: evaluate_collection(embedder, data, rerank_weight=1.0),
        "`rerank_weight` is for models that sort pairs; received 1.0 for embedding",
    )
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
        (
            "q1 0 d0 1\nq1 0 d3 1\nq1 0 d0 2",
            ["qrels.txt:3", "document d0 again, with another grade than in line 1"],
        ),
        ("q1 d0", ["qrels.txt:1", "has 2 columns"]),
        ("q1 d0 0\nq2 d0 -1", ["qrels.txt", "a grade above 0; none of the 2 queries"]),
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
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = write_collection(tmp_path / "other")
    with (other / "corpus.jsonl").open("a") as file:
        file.write('\n{"_id": "d0", "text": "again"}\n')
    message = "unique; received d0 again, with another text than in line 1"
    refused(lambda: read_collection(other), "corpus.jsonl:14", message)
    (other / "corpus.jsonl").write_text('{"_id": "d0", "text": "a"}')
    (other / "qrels" / "test.tsv").rename(other / "qrels" / "dev.tsv")
    (other / "qrels" / "train.tsv").write_text("")
    refused(lambda: read_collection(other), "qrels", "test.tsv or one .tsv")
    run = tmp_path / "run.trec"
    run.write_text("q1 Q0 d0 1 inf x\n")
    refused(lambda: read_collection(folder, run=run), "run.trec:1", "finite number")
    run.write_text("q1 Q0 d0 1 2 x\nq1 Q0 d0 2 1 x\nq1 Q0 d99 2 1 x\n")
    lines = ("run.trec:2", "another score than in line 1", "d99 is not in corpus.jsonl")
    refused(lambda: read_collection(folder, run=run), *lines)
    judged = write_collection(tmp_path / "judged")
    queries = (judged / "queries.jsonl").read_text()
    (judged / "queries.jsonl").write_text(queries.replace("free cash", " "))
    refused(lambda: read_collection(judged), "queries.jsonl:1", "query q1 has no text")
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
    spaced = collection(tmp_path / "spaced", {"d 0": "free cash"}, "q1\td 0\t1", "cash")
    command = ["evaluate", model, str(spaced), "--save-run", str(tmp_path / "a.trec")]
    monkeypatch.setattr("bert_keras.retrieval.evaluation.search_runs", pytest.fail)
    assert main(command) == 2
    assert "no white space in a run; received 'd 0'" in capsys.readouterr().err
    none = str(tmp_path / "none" / "a.trec")
    assert main(["evaluate", model, str(folder), "--save-run", none]) == 2
    assert f"{none}: cannot be written: no such folder" in capsys.readouterr().err


def collection(folder: Path, texts: dict[str, str], qrels: str, query: str) -> Path:
    """Write a collection of one query, `q1`."""
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": name, "text": text} for name, text in texts.items()]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    row = {"_id": "q1", "text": query}
    (folder / "queries.jsonl").write_text(json.dumps(row))
    (folder / "qrels" / "test.tsv").write_text(qrels)
    return folder


@pytest.mark.parametrize("task", [Embedding(), Reranking()])
def test_a_query_does_not_find_itself(
    make_model: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    task: Any,
) -> None:
    texts = {"q1": "free cash", "d2": "win free cash now"}
    place = collection(tmp_path / "beir", texts, "q1\td2\t1", "free cash")
    qrels, run = place / "qrels" / "test.tsv", tmp_path / "given.trec"
    run.write_text("q1 Q0 q1 1 2 x\nq1 Q0 d2 2 1 x\nq1 Q0 q1 1 2.0 x\n")
    predictor, own = Predictor(make_model(task)), tmp_path / "own.trec"
    for given, wanted in ((run, 1.0), (None, 0.6131)):
        data = read_collection(place, run=given)
        found = evaluate_collection(predictor, data, top=1, save_run=own)
        assert len(found["rankings"]) >= 2
        for scores in found["rankings"].values():
            assert scores["ndcg_at_10"] == pytest.approx(wanted, abs=5e-5)
        assert read_run(own)["q1"].keys() == {"d2"}
        told = capsys.readouterr().err
        assert "1 hit is dropped: as in BEIR, a document with the id of the" in told
        repeated = "given.trec: 1 row repeats an earlier one: line 3"
        assert (repeated in told) == (given is not None)
        lost = "1 judged document is not in corpus.jsonl, and counts as never found: d9"
        assert (lost in told) == (wanted < 1)
        qrels.write_text("q1\td2\t1\nq1\td9\t1")
    # A judgement of the query's own document says that it is meant.
    qrels.write_text("q1\tq1\t1")
    found = evaluate_collection(predictor, place)
    assert found["recall_at_10"] == 1
    assert "dropped" not in capsys.readouterr().err


def test_rows_that_repeat_are_counted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write_collection(tmp_path / "other")
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        *_, last = lines = (other / name).read_text().splitlines()
        (other / name).write_text("\n".join([*lines, last, last]))
    found, wanted = read_collection(other), read_collection(folder)
    told = capsys.readouterr().err
    assert "corpus.jsonl: 2 rows repeat an earlier one: line 14, 15" in told
    assert "queries.jsonl: 2 rows repeat an earlier one: line 5, 6" in told
    assert "test.tsv: 2 rows repeat an earlier one: line 6, 7" in told
    assert (found.documents, found.qrels) == (wanted.documents, wanted.qrels)


@pytest.mark.slow
@pytest.mark.parametrize("task", [Embedding(), Reranking()])
def test_equal_documents_do_not_depend_on_the_batch_size(
    make_model: Callable[..., Any], tmp_path: Path, task: Any
) -> None:
    texts = {f"d{row}": ROWS[row % 5][0] for row in range(15)}
    place = collection(tmp_path / "beir", texts, "q1\td5\t2\nq1\td12\t1", ROWS[0][0])
    predictor = Predictor(make_model(task))
    found = []
    for size in (1, 4, 32):
        run = tmp_path / f"{size}.trec"
        scores = evaluate_collection(predictor, place, batch_size=size, save_run=run)
        found.append(
            {name: row["ndcg_at_10"] for name, row in scores["rankings"].items()}
        )
        ranked = read_run(run)["q1"]
        same = [name for name in ranked if name in ("d0", "d5", "d10")]
        assert same == ["d0", "d5", "d10"] and len({ranked[name] for name in same}) == 1
    assert found[0] == found[1] == found[2]


def test_a_hybrid_run_is_a_hybrid_search(
    make_model: Callable[..., Any], folder: Path
) -> None:
    predictor, data = Predictor(make_model(Embedding())), read_collection(folder)
    runs, weighted = search_runs(predictor, data, top=5, batch_size=32)
    texts = [*data.documents.values()]
    search = SearchIndex.of(predictor, texts, ids=[*data.documents], hybrid=True)
    for query, found in zip(
        data.queries, search([*data.queries.values()], top=5), strict=True
    ):
        wanted = {row["id"]: row["score"] for row in found}
        assert [*runs["hybrid"][query].items()] == [*wanted.items()]
    light = weighted(1e-6)["q1"]  # words only break the ties of vectors
    assert [*light] == [*runs["float32"]["q1"]]


def test_the_weight_of_a_hybrid_is_tuned(capsys: pytest.CaptureFixture[str]) -> None:
    qrels: dict[str, dict[str, float]] = {f"q{row}": {"a": 1.0} for row in range(4)}
    qrels["none"] = {"a": 0.0}

    def tuned(right: int, of_a: float) -> tuple[dict[str, Any], str]:
        """Return scores and message if 0.3 and 0.5 are right for the first queries."""

        def hybrid(weight: float) -> dict[str, dict[str, float]]:
            return {
                query: {"b": 1.0, "a": 2.0 * ((weight in (0.3, 0.5)) == (row < right))}
                for row, query in enumerate(qrels)
            }

        vectors = {query: {"b": 1.0, "a": of_a} for query in qrels}
        found = tuned_weight(qrels, hybrid, vectors=vectors)
        return found, capsys.readouterr().err

    found, told = tuned(right=4, of_a=0.0)
    assert found["hybrid_weight"] == 0.5  # nearer to 1 than 0.3
    assert told.startswith("use --hybrid --hybrid-weight 0.5, or `hybrid_weight=0.5`: ")
    assert (
        "is 0.6309 with vectors alone, 0.6309 with weight 1, 1.0000 with weight 0.5 "
        "(the best on the tuned half)\n" in told
    )
    found, told = tuned(right=3, of_a=0.0)
    assert found["hybrid_weight"] == 1.0  # as good on the other half, without a choice
    assert found["hybrid_weights"]["0.5"] == pytest.approx(
        {"ndcg_at_10_on_tuned_half": 1.0, "ndcg_at_10_on_other_half": (1 + 0.6309) / 2},
        abs=1e-4,
    )
    assert told.startswith(
        "use --hybrid as it is, with weight 1: on 2 of the judged queries, nDCG@10 is "
    )
    found, told = tuned(right=3, of_a=2.0)
    assert found["hybrid_weight"] is None  # where one was shown as the best
    assert told.startswith(
        "leave out --hybrid: on 2 of the judged queries, nDCG@10 is 1.0000 with "
        "vectors alone, 0.8155 with weight 1, "
    )
    assert " with weight 0.5 (the best on the tuned half)" in told
    one = {"q": {"a": 1.0}}
    refused(lambda: tuned_weight(one, lambda _: one, vectors=one), "needs two queries")


def test_vectors_of_an_index_are_not_computed_again(
    make_model: Callable[..., Any],
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_model(make_model(Embedding()), tmp_path / "model")
    predictor = load_predictor(tmp_path / "model")
    index, texts = tmp_path / "index.npz", [*read_collection(folder).documents.values()]
    SearchIndex.of(predictor, [*texts[::-1], "one more"], index=index)
    with mock.patch.object(predictor, "stream", wraps=predictor.stream) as streamed:
        wanted = evaluate_collection(
            predictor, folder, hybrid_weight=0.5, max_batch_tokens=64
        )
    given = [call.kwargs["max_batch_tokens"] for call in streamed.call_args_list]
    assert given == [64, 64]
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1)
    command = ["evaluate", str(tmp_path / "model"), str(folder), "--json", "--tune"]
    capsys.readouterr()
    assert main([*command, "--hybrid-weight", "0.5", "--index", str(index)]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["rankings"] == wanted["rankings"]
    assert found["hybrid_weights"]["0.5"].keys() == {
        "ndcg_at_10_on_tuned_half",
        "ndcg_at_10_on_other_half",
    }
    assert "vectors of queries: 3 of 3 texts" in shown.err
    assert "vectors of documents" not in shown.err
    SearchIndex.of(predictor, texts, index=index, dtype="int8")
    rankings = evaluate_collection(predictor, folder, index=index)["rankings"]
    assert [*rankings] == ["int8", "BM25", "hybrid"]
    assert rankings["int8"] == wanted["rankings"]["int8"]
    SearchIndex.of(predictor, texts[1:], index=index)
    action = functools.partial(evaluate_collection, predictor, folder)
    refused(lambda: action(index=index), "index.npz: lacks 1 of 12 texts, such as")
    other = Predictor(make_model(Embedding(pooling="max")))
    SearchIndex.of(other, texts, index=tmp_path / "other.npz")
    reason = "contains vectors of another model"
    refused(lambda: action(index=tmp_path / "other.npz"), reason)
    ranker = Predictor(make_model(Reranking()))
    for name, value in (("index", index), ("tune", True), ("hybrid_weight", 2.0)):
        given: dict[str, Any] = {name: value}
        refused(
            lambda given=given: evaluate_collection(ranker, folder, **given),
            f"`{name}` is for models of embedding",
        )
    rows = str(folder / "corpus.jsonl")
    assert main(["evaluate", str(tmp_path / "model"), rows, "--tune"]) == 2
    assert "`--tune` is for a folder" in capsys.readouterr().err


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
