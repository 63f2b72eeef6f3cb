"""Hard negatives that are mined for pairs."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS, refused

from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import Predictor
from bert_keras.retrieval.embedder import embed, load_embedder
from bert_keras.retrieval.mining import mine_negatives
from bert_keras.runs import progress
from bert_keras.scoring.similarity import unit_rows
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.reranking import Reranking

CORPUS = [text for text, _ in ROWS]
PAIRS = {
    "text": ["lunch", "free cash", "lunch"],
    "text_pair": ["lunch at home", "win cash now", "SEE you, lunch at  six"],
}
ALL: dict[str, Any] = {"ranks": (0, 40), "margin": 0.0}


@pytest.fixture(scope="module")
def predictor(encoder_folder: Path) -> Predictor:
    return load_embedder(encoder_folder)


def test_the_nearest_texts_below_the_margin(predictor: Predictor) -> None:
    pairs, ranks, margin = as_columns(**PAIRS), (1, 6), 0.01
    found = mine_negatives(
        predictor, pairs, CORPUS, negatives=3, ranks=ranks, margin=margin
    )
    known = {  # whatever the case and white space
        "lunch": {"lunch at home", "see you, lunch at six"},
        "free cash": {"win cash now"},
    }
    kept = []
    for row, (text, pair) in enumerate(zip(*PAIRS.values(), strict=True)):
        asked, near, *rest = unit_rows(embed(predictor, [text, pair, *CORPUS]))
        cosines = dict(zip(CORPUS, np.array(rest) @ asked, strict=True))
        others = [each for each in CORPUS if each not in known[text]]
        others.sort(key=lambda each, cosines=cosines: -cosines[each])
        wanted = [e for e in others[1:6] if cosines[e] <= asked @ near - margin][:3]
        assert found.columns["negative"][row] == wanted
        kept += [cosines[each] for each in wanted]
    assert found.mined == len(kept) > 0
    assert found.negative_score == pytest.approx(np.mean(kept), abs=1e-5)


def test_second_texts_that_the_corpus_lacks_are_counted(
    predictor: Predictor, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = as_columns(**PAIRS)
    titled = [f"Title. {each}" for each in CORPUS]
    found = mine_negatives(predictor, pairs, [*titled, "WIN  cash now"], **ALL)
    assert found.unknown == 2
    told = capsys.readouterr().err
    assert told.count("2 of 3 pairs have a second text that is not in the corpus") == 1
    assert found.gap >= 0 and "of the pairs that they belong to" in str(found)
    assert mine_negatives(predictor, pairs, **ALL).unknown == 0
    assert "not in the corpus" not in capsys.readouterr().err


def test_negatives_are_new_and_different(predictor: Predictor) -> None:
    pairs = as_columns(**PAIRS)
    found = mine_negatives(predictor, pairs, CORPUS, negatives=2, **ALL)
    first = found.columns["negative"]
    assert found.mined == sum(map(len, first)) > 2 and "kept" not in str(found)
    held = as_columns(**PAIRS, negative=[[first[0][0].upper(), "other"], [], []])
    copies = [each.upper() for each in CORPUS]
    again = mine_negatives(predictor, held, CORPUS + copies, negatives=2, **ALL)
    more = again.columns["negative"]
    assert more[0][:2] == held["negative"][0] and first[0][1] == more[0][2]
    assert not {*more[0][2:]} & {first[0][0], *copies}
    assert more[1:] == first[1:]
    assert again.mined == sum(map(len, more)) - 2
    assert str(again).endswith("kept 2 negatives that the pairs had")


@pytest.mark.slow
def test_the_margin_by_a_reranker(
    predictor: Predictor, make_model: Callable[..., Any]
) -> None:
    ranker = Predictor(make_model(Reranking()))
    pairs, ranks = as_columns(**PAIRS), (0, 8)
    given: dict[str, Any] = {"ranks": ranks, "negatives": 8, "margin": 0.0}
    near = mine_negatives(predictor, pairs, CORPUS, ranks=ranks, margin=0.0)
    found = mine_negatives(predictor, pairs, CORPUS, rerank=ranker, **given)
    for row, (text, pair) in enumerate(zip(*PAIRS.values(), strict=True)):
        scores = {each["text"]: each["score"] for each in ranker.rank(text, [pair])}
        negatives = found.columns["negative"][row]
        others = {e["text"]: e["score"] for e in ranker.rank(text, negatives)}
        assert all(others[each] <= scores[pair] + 1e-6 for each in negatives)
    assert found.mined and re.search(r"mean score [-0-9.]+ of all pairs", str(found))
    assert found.columns["negative"] != near.columns["negative"]
    refused(
        lambda: mine_negatives(predictor, pairs, CORPUS, rerank=predictor, **given),
        "must score pairs",
    )


def test_mined_negatives_train_an_embedding(
    encoder_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = zip(*PAIRS.values(), strict=True)
    (tmp_path / "pairs.csv").write_text(
        "question,page,id\n" + "".join(f'"{a}","{b}",7\n' for a, b in rows)
    )
    (tmp_path / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": text, "text": text}) + "\n" for text in CORPUS)
        + '{"_id": "a", "text": ""}\n{"_id": "b", "title": "sale", "text": "now"}\n'
    )
    output = tmp_path / "mined.jsonl"
    command = [
        *("mine", str(encoder_folder), "--pairs", str(tmp_path / "pairs.csv")),
        *("--corpus", str(tmp_path / "corpus.jsonl"), "--output", str(output)),
        *("--text", "question", "--text-pair", "page"),
    ]
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1)
    assert main([*command, "--range=0:20", "--margin=0", "--negatives=2"]) == 0
    told = capsys.readouterr().err
    assert "vectors of the corpus: " in told and "searching: " in told
    assert (
        re.search(r"mean cosine [-0-9.]+ of all pairs", told)
        and "not written: id\n" in told
    )
    assert f"empty and left out: 1 of {len(CORPUS) + 2} texts" in told
    assert "`title` is read before `text`" in told
    columns = Embedding.read(output)
    assert columns["text"] == PAIRS["text"] and any(columns["negative"])
    for name, columns, option in (
        ("corpus", "content,b", "--corpus-text NAME"),
        ("pairs", "question,body", "--text-pair NAME"),
    ):
        (tmp_path / "other.csv").write_text(f"{columns}\nsix,7\n")
        other = [f"--{name}", str(tmp_path / "other.csv")]
        assert main([*command, *other]) == 2
        quoted = columns.replace(",", "`, `")
        hint = f"it has `{quoted}`; to read another column: {option}"
        assert hint in capsys.readouterr().err
    other = ["--corpus", str(tmp_path / "other.csv"), "--corpus-text", "body"]
    assert main([*command, *other, "--range=0:20", "--margin=0"]) == 0
    refused_without = [*command[:4], *command[6:], "--corpus-text", "body"]
    assert main(refused_without) == 2
    assert "`--corpus-text` needs `--corpus`" in capsys.readouterr().err
    assert main([*command, "--range=9:3"]) == 2
    assert "`--range` must be FROM:TO" in capsys.readouterr().err


def test_pairs_that_need_not_match(predictor: Predictor) -> None:
    labelled = as_columns(**PAIRS, label=["1", "0", "1"])
    refused(lambda: mine_negatives(predictor, labelled, CORPUS), "`label`")
    pairs = as_columns(**PAIRS)
    refused(lambda: mine_negatives(predictor, pairs, []), "`corpus`", "none")
    refused(lambda: mine_negatives(predictor, pairs, ranks=(5, 5)), "`ranks`", "5:5")
    # Of MaxSim, of dot products and of a reranker's scores, it may be above 2.
    far = mine_negatives(predictor, pairs, CORPUS, ranks=(0, 9), margin=3)
    assert (far.mined, far.without) == (0, len(pairs))
    for margin in (-1, float("nan"), float("inf")):
        call = functools.partial(mine_negatives, predictor, pairs, margin=margin)
        refused(call, "`margin` must be a finite number of at least 0", str(margin))
