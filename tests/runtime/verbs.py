"""What verbs besides `predict` return for the models of `write_exports.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DOCUMENTS = [
    *("see you at six", "lunch at home", "free cash prize!", "shoes half off"),
    *("win a prize, win now", "half off at the sale", "you at home now?"),
]
_PAIRS = [*zip(DOCUMENTS, DOCUMENTS[1:], strict=False)]
_CLASSES = ("ham", "promo", "spam")
# Labelled rows of the models that are scored.
LABELLED: dict[str, list[dict[str, Any]]] = {
    "classification": [
        {"text": text, "label": _CLASSES[row % 3]} for row, text in enumerate(DOCUMENTS)
    ],
    "pairs": [
        {"text": a, "text_pair": b, "label": _CLASSES[row % 3]}
        for row, (a, b) in enumerate(_PAIRS)
    ],
    "multi-label": [
        {"text": text, "label": [*_CLASSES[: row % 3]]}
        for row, text in enumerate(DOCUMENTS)
    ],
    "regression": [
        {"text": text, "label": row / 2} for row, text in enumerate(DOCUMENTS)
    ],
    "embedding": [{"text": a, "text_pair": b} for a, b in _PAIRS],
    "sparse": [{"text": a, "text_pair": b} for a, b in _PAIRS],
    "reranking": [
        {"query": a, "document": b, "label": row % 2}
        for row, (a, b) in enumerate([*_PAIRS, *_PAIRS[::-1]])
    ],
}
LABELLED["windows"] = LABELLED["classification"]


def write_data(folder: Path) -> None:
    """Write the rows of each model, and a collection in the form of BEIR."""
    place = folder / "collection"
    (place / "qrels").mkdir(parents=True)
    for name, rows in LABELLED.items():
        _write(folder / f"{name}.jsonl", rows)
    documents = [{"_id": f"d{row}", "text": text} for row, text in enumerate(DOCUMENTS)]
    _write(place / "corpus.jsonl", documents)
    _write(place / "queries.jsonl", [{"_id": "q1", "text": "free cash"}, *documents])
    judged = "query-id\tcorpus-id\tscore\nq1\td2\t2\nd0\td1\t1\nd3\td5\t1\n"
    (place / "qrels" / "test.tsv").write_text(judged, encoding="utf-8")


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = [json.dumps(row) + "\n" for row in rows]
    path.write_text("".join(lines), encoding="utf-8")


def answers_of_verbs(
    models: list[str], source: Callable[[str], Any], data: Path, output: Path
) -> dict[str, Any]:
    """Return scores, results of search, negatives and vectors, as plain values.

    Args:
        models: names of the models that there are.
        source: returns a predictor by name.
        data: where `write_data` has written.
        output: folder to write to.
    """
    from bert_keras import SearchIndex, evaluate, search
    from bert_keras.retrieval import (
        evaluate_collection,
        mine_negatives,
        reranked,
        write_features,
    )
    from bert_keras.tasks import find_task

    found: dict[str, Any] = {}
    for name in sorted({*models} & {*LABELLED}):
        found[f"scores of {name}"] = evaluate(source(name), data / f"{name}.jsonl")
    if "embedding" not in models:
        return found
    output.mkdir(exist_ok=True)
    embedder, collection = source("embedding"), data / "collection"
    index = output / "index.npz"
    for _ in range(2):  # the second time from the file
        made = SearchIndex.of(embedder, DOCUMENTS, index=index, hybrid=True)
        found["found"] = made(["free cash", "home"], top=3)
        found["scores of search"] = evaluate_collection(
            embedder, collection, index=index, tune=True
        )
    found["nearest"] = search(embedder, DOCUMENTS, "free cash", dtype="binary")
    pairs = find_task("embedding").read(data / "embedding.jsonl")
    mined = mine_negatives(embedder, pairs, ranks=(0, 4), margin=0.0)
    found["mined"] = [list(each) for each in mined.columns["negative"]]
    write_features(embedder, data / "embedding.jsonl", output / "vectors.npz")
    with np.load(output / "vectors.npz") as stored:
        found["vectors"] = stored["embeddings"].tolist()
    if "reranking" in models:
        ranker = source("reranking")
        found["reranked"] = reranked(ranker, "home", found["nearest"], top=2)
        found["scores of reranking"] = evaluate_collection(ranker, collection, top=3)
    return found
