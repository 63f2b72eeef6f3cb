"""Reranking: rows, batches of whole queries, ranks, and a search that is reranked."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROWS, refused, write_tsv
from task_cases.reranking import CASES

from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import Predictor
from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.index import SearchIndex, reranked
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.reranking import Reranking
from bert_keras.training.rows import TrainingRows

DOCUMENTS = ["lunch at six", "win cash now", "half off", "see you at home"]


@pytest.fixture(scope="module")
def model(make_model: Any) -> Any:
    return make_model(Reranking())


def test_positives_and_negatives_become_rows(tmp_path: Path) -> None:
    rows = [
        {"query": "a", "positive": "b", "negatives": ["c", "d"]},
        {"query": "e", "positive": ["f", "g"], "negatives": ["h"]},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    for source in (file, rows):
        found = Reranking.read(source)
        assert found["text"] == list("aaaeee")
        assert found["text_pair"] == list("bcdfgh")
        assert found["label"] == list("100110")
        assert found.lines == [1, 1, 1, 2, 2, 2]
    for first in (("query", "positive"), ("text", "text_pair")):  # `mine` writes these
        table = [(*first, "negative"), ("a", "b", '["c", "d"]'), ("e", "f", "[]")]
        found = Reranking.read(write_tsv(tmp_path / "rows.tsv", table))
        assert (found["text"], found["label"]) == ([*"aaae"], [*"1001"])
        assert found["text_pair"] == [*"bcdf"]


@pytest.mark.parametrize("names", [("query", "document"), ("text", "text_pair")])
def test_pairs_are_read_under_either_name(tmp_path: Path, names: Any) -> None:
    rows = [(*names, "label"), ("a", "b", "1"), ("a", "c", "0")]
    found = Reranking.read(write_tsv(tmp_path / "rows.tsv", rows))
    assert (found["text"], found["text_pair"]) == (["a", "a"], ["b", "c"])


def test_roles_have_the_names_of_their_columns(tmp_path: Path) -> None:
    rows = [("q", "d", "label"), ("a", "b", "0"), ("a", "c", "1")]
    path = write_tsv(tmp_path / "rows.tsv", rows)
    found = Reranking.read(path, columns={"query": "q", "document": "d"})
    assert (found["text"], found["text_pair"]) == (["a", "a"], ["b", "c"])
    texts = Reranking.read(
        path, columns={"query": "q", "document": "d"}, roles=["text"]
    )
    assert texts["text"] == ["a", "a"]
    refused(
        lambda: Reranking.read(path, columns={"q": "q"}),
        "must be one of text (or query), text_pair (or document), label; received q",
    )
    refused(
        lambda: Reranking.read(path, columns={"query": "q", "text": "d"}),
        "the column of text once; received q and d",
    )


def test_bad_labels_are_named() -> None:
    def columns(*labels: str) -> Any:
        texts = [*"abcdefgh"[: len(labels)]]
        return as_columns(text=texts, text_pair=texts, label=[*labels])

    refused(lambda: Reranking().targets(columns("1", "nan")), ":2", "`label` must")
    refused(lambda: Reranking().targets(columns("1", "-1")), "a grade of 0 or more")
    refused(lambda: Reranking.from_columns(columns("1", "1")), "two values or more")
    zeros = columns("0", "0")
    refused(
        lambda: Reranking().texts(zeros, use="score"), "no row with a `label` above"
    )
    assert Reranking.from_columns(columns("0", "4")).largest_grade == 4
    graded = Reranking(largest_grade=4.0)
    for labels in (["0", "3"], [0, 3], [0.0, 3.0], graded.targets(columns("0", "3"))):
        found = graded.encode_targets(tf.constant(labels))
        assert found.numpy().tolist() == [0, 0.75]
    for label in (5, -0.5, "7"):
        action = lambda y=label: graded.encode_targets(tf.constant([y]))  # noqa: E731
        refused(action, "a grade from 0 to 4, `largest_grade`", f"'{label}")
    (note,) = Reranking("listwise").notes(columns("0", "4"))
    assert "2 of 2 queries have equal labels" in note


def test_scores_stand_beside_those_of_the_words() -> None:
    columns = as_columns(
        text=["win cash", "see you", "win cash", "see you"],
        text_pair=["lunch at six", "see you at home", "win cash now", "half off"],
        label=["0", "0", "1", "1"],
    )
    scores = Reranking().score(columns, {"score": np.array([0.9, 0.1, 0.2, 0.8])})
    rankings = {name: row["map"] for name, row in scores["rankings"].items()}
    assert rankings == {"reranked": 0.75, "BM25": 0.75}
    better = Reranking().score(columns, {"score": np.array([0.1, 0.1, 0.2, 0.8])})
    assert better["map"] == better["rankings"]["reranked"]["map"] == 1.0
    assert better["rankings"]["BM25"]["map"] == 0.75


def test_a_batch_holds_whole_queries(make_model: Any) -> None:
    case = CASES["listwise"]
    rows = TrainingRows(
        make_model(case.task), case.columns, batch_size=2, epochs=2, seed=1
    )
    assert (rows.steps_per_epoch, rows.steps) == (3, 6)
    seen = []
    for step, (inputs, labels) in enumerate(rows.dataset()):
        queries = labels["targets"][:, 1].numpy().tolist()
        wanted = case.task.targets(case.columns)[rows.rows_of(step)]
        np.testing.assert_array_equal(labels["targets"], wanted)
        assert int((inputs["cls_positions"] >= 0).numpy().sum()) == len(queries)
        seen.append(set(queries))
    assert seen[0] | seen[1] | seen[2] == {0, 1, 2, 3, 4}
    assert not seen[0] & seen[1]


def test_documents_are_ranked(model: Any) -> None:
    predictor = Predictor(model)
    scores = [
        row["score"] for row in predictor.predict([("see", d) for d in DOCUMENTS])
    ]
    order = np.argsort(-np.array(scores), kind="stable")[:3]
    found = predictor.rank("see", DOCUMENTS, top=3)
    assert [row["index"] for row in found] == order.tolist()
    assert [row["rank"] for row in found] == [1, 2, 3]
    assert [row["text"] for row in found] == [DOCUMENTS[at] for at in order]
    assert predictor.rank("see", []) == []
    (signature,) = predictor.predict([("see", DOCUMENTS)])
    assert signature["places"][:3] == order.tolist()
    np.testing.assert_allclose(
        signature["scores"], sorted(scores, reverse=True), atol=1e-6
    )
    refused(lambda: predictor.rank("see", DOCUMENTS, top=0), "`top` must be")
    refused(lambda: predictor.rank(" ", DOCUMENTS), "`query` must not be empty")
    refused(lambda: predictor.rank("see", [None]), "`documents`")
    blank = [*DOCUMENTS, " "]
    refused(lambda: predictor.rank("see", blank), "`documents` must not be", "' ' at")
    refused(lambda: predictor.predict([("see", DOCUMENTS), ("see", "a")]), "at index 1")
    empty = [("see", DOCUMENTS), (" ", DOCUMENTS)]
    refused(lambda: predictor.predict(empty), "query must not be empty", "at index 1")


def test_an_empty_document_is_none(model: Any) -> None:
    texts = tf.constant(["see"]), tf.constant([["", "lunch", "win"]])
    found = model.answer(texts)
    assert sorted(found["places"].numpy()[0][:2]) == [1, 2]
    assert (found["places"].numpy()[0][2], found["scores"].numpy()[0][2]) == (-1, 0)


def test_other_tasks_do_not_rank(spam_model: Any, make_model: Any) -> None:
    refused(lambda: Predictor(spam_model).rank("a", ["b"]), "received one of class")
    single = Predictor(make_model(Regression()))
    refused(lambda: single.rank("a", ["b"]), "score pairs")


def test_a_classifier_of_pairs_sorts_a_search(
    make_model: Any, encoder_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    model = make_model(Classification(classes=("0", "1"), pairs=True))
    folder = str(save_model(model, tmp_path / "model"))
    texts = [text for text, _ in ROWS]
    file = write_tsv(tmp_path / "texts.tsv", [("text",), *((text,) for text in texts)])
    given = ["search", str(encoder_folder), str(file), "--with-text", "win cash"]
    assert main([*given, "--rerank", folder]) == 2
    assert "whose `positive_class` names the class" in capsys.readouterr().err
    assert main([*given, "--positive-class", "1"]) == 2
    assert "`--positive-class` needs `--rerank`; received 1" in capsys.readouterr().err
    assert main([*given, "--rerank", folder, "--positive-class", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    pairs = [("win cash", text) for text in texts]
    rows = Predictor(model).predict(pairs)
    scores = sorted((row["probabilities"]["1"] for row in rows), reverse=True)
    assert [line["score"] for line in lines] == pytest.approx(scores[:5], abs=1e-5)


def test_a_search_is_reranked(
    model: Any, encoder_folder: Path, tmp_path: Path, capsys: Any
) -> None:
    texts = [text for text, _ in ROWS]
    found = SearchIndex.of(encoder_folder, texts)(["win cash"], top=6)[0]
    wanted = reranked(Predictor(model), "win cash", found, top=2)
    nan = float("nan")
    call = functools.partial(reranked, Predictor(model), "win cash", found, top=2)
    refused(lambda: call(weight=nan), "`rerank_weight`", "nan")
    cosines = {row["text"]: row["score"] for row in found}
    assert [row["rank"] for row in wanted] == [1, 2]
    assert wanted[0]["score"] >= wanted[1]["score"]
    assert all(row["search_score"] == cosines[row["text"]] for row in wanted)
    file = write_tsv(tmp_path / "texts.tsv", [("text",), *((text,) for text in texts)])
    given = ["search", str(encoder_folder), str(file), "--top", "2", "win cash"]
    folder = str(save_model(model, tmp_path / "model"))
    reranking = ["--rerank", folder, "--candidates", "6"]
    assert main([*given, *reranking, "--max-length", "32"]) == 0
    shown = capsys.readouterr()
    assert "--max-length 32 applies to the vectors only" in shown.err
    lines = [json.loads(line) for line in shown.out.splitlines()]
    assert [line["line"] - 1 for line in lines] == [row["line"] for row in wanted]
    assert main([*given, *reranking, "--positive-class", "1"]) == 2
    assert "received 1 for a model of the task reranking" in capsys.readouterr().err
    assert main([*given, *reranking, "--rerank-weight", "0.5"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    sums = {
        row["text"]: row["search_score"] + row["score"] / 2
        for row in reranked(Predictor(model), "win cash", found, top=6)
    }
    best = sorted(sums, key=lambda text: -sums[text])[:2]
    assert [texts[line["line"] - 2] for line in lines] == best
    assert [line["rank"] for line in lines] == [1, 2]
    assert [line["score"] for line in lines] == pytest.approx([sums[t] for t in best])
    for more, told in (
        (["--candidates", "6"], "`--candidates` needs `--rerank`"),
        (["--rerank-weight", "2"], "`--rerank-weight` needs `--rerank`"),
        (["--rerank", folder, "--candidates", "1"], "at least --top, 2"),
        (["--rerank", str(encoder_folder)], "contains no task head"),
    ):
        assert main([*given, *more]) == 2
        assert told in capsys.readouterr().err
