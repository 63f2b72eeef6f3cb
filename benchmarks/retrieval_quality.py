"""Quality of search on Cranfield: whole vectors, narrow ones, int8 and bits.

    python benchmarks/retrieval_quality.py [--train] [--epochs 1] [--rows 1400]
    python benchmarks/retrieval_quality.py --stsb [--epochs 1]
    python benchmarks/retrieval_quality.py --sparse [--epochs 1] [--rows 1400]
    .venv-peers/bin/python benchmarks/retrieval_quality.py --trecqa [--seeds 3]

nDCG@10 (graded, log2 discount) of all-MiniLM-L6-v2 over the 112 queries, untrained; of
the same vectors as int8 and as bits with and without rescoring; of BM25, and of both
fused; and beside sentence-transformers on torch, where it is installed
(`.venv-peers`). With `--train`, the model is also trained on pairs of title and
abstract with the widths 192, 96 and 48 (Matryoshka), and scored at each of them.
Without `--train` it takes about two minutes on two cores, with it about ten.

`--stsb` trains on the labelled pairs of STS-B with the same widths, and prints the
Spearman of dev at each of them, before and after; an epoch takes ten minutes of one
core. `--sparse` trains sparse vectors on the pairs of title and abstract, and prints
nDCG@10 on Cranfield of dense vectors, sparse ones, BM25, and each fused with BM25. The
encoder lacks a masked-LM head, which starts randomly.

`--trecqa` ranks the answers of TREC-QA's dev questions instead: by BM25, by vectors,
and by cross-encoders that both sides train on the answers to the training questions,
`--negatives` wrong ones, drawn once, for each right one, with the same weights, updates
and learning rates (AdamW, linear warmup and decay, binary cross-entropy); head and
order differ by the seed. `fused` is the order by the cosine and half of the score. MAP
and MRR are of questions with right and wrong answers. A seed takes ten minutes of one
core.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from inputs import DATA, encoder_path

import bert_keras
from bert_keras.data.table import as_columns
from bert_keras.inference import embed, load_embedder
from bert_keras.inference.packed_vectors import PackedVectors
from bert_keras.scoring.bm25 import BM25, fused
from bert_keras.scoring.correlation import spearman
from bert_keras.scoring.embeddings import cosines, unit_rows
from bert_keras.scoring.ranking import ranking_scores

FOLDER = DATA / "cranfield"
WIDTHS = (192, 96, 48)
TOP, FUSED = 10, 100  # documents that are scored, and that are fused
BATCH, LENGTH, RATE = 16, 96, 2e-4  # of the cross-encoders


def rows_of(name: str) -> list[dict[str, str]]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def grades_of(documents: list[str], queries: list[str]) -> np.ndarray:
    """Return the grade of each document for each query, int [Q, N]."""
    found = np.zeros((len(queries), len(documents)), int)
    with (FOLDER / "qrels/test.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["query-id"] in queries and row["corpus-id"] in documents:
                place = (
                    queries.index(row["query-id"]),
                    documents.index(row["corpus-id"]),
                )
                found[place] = int(row["score"])
    return found


def ndcg(grades: np.ndarray, rows: np.ndarray) -> float:
    """Return the mean nDCG of ranked rows, int [Q, K], over queries with a grade."""
    discounts = 1 / np.log2(np.arange(2, rows.shape[1] + 2))
    found = np.take_along_axis(grades, rows, axis=1) @ discounts
    best = np.sort(grades, axis=1)[:, ::-1][:, : rows.shape[1]] @ discounts
    judged = best > 0
    return float(np.mean(found[judged] / best[judged]))


class Cranfield:
    """The texts and judgements, and the scores of vectors."""

    def __init__(self) -> None:
        documents, queries = rows_of("corpus.jsonl"), rows_of("queries.jsonl")
        self.titles = [row["title"] for row in documents]
        self.abstracts = [row["text"] for row in documents]
        self.texts = [f"{row['title']} {row['text']}".strip() for row in documents]
        self.queries = [row["text"] for row in queries]
        names = [[row["_id"] for row in part] for part in (documents, queries)]
        self.grades = grades_of(*names)

    def score(
        self, queries: np.ndarray, packed: PackedVectors, rescore: int = 0
    ) -> float:
        rows, _ = packed.nearest(unit_rows(queries), TOP, rescore=rescore)
        return ndcg(self.grades, rows)


def show(name: str, score: float, whole: float) -> None:
    print(f"{name:<28} nDCG@10 {score:.4f}  {score / whole:6.1%}", flush=True)


def show_types(data: Cranfield, encoder: str) -> float:
    """Print the scores of each type of vectors; return the score of float32."""
    predictor = load_embedder(encoder)
    documents = unit_rows(embed(predictor, data.texts))
    queries = embed(predictor, data.queries)
    whole = data.score(queries, PackedVectors.of(documents))
    show("float32", whole, whole)
    for name, dtype, rescore in (
        ("int8", "int8", 0),
        ("bits", "binary", 0),
        ("bits, rescored 4 times", "binary", 4),
    ):
        packed = PackedVectors.of(documents, dtype)
        show(name, data.score(queries, packed, rescore), whole)
    bm25 = BM25(data.texts)
    words = [bm25.ranked(query, FUSED) for query in data.queries]
    near, _ = PackedVectors.of(documents).nearest(unit_rows(queries), FUSED)
    both = [fused(each, TOP) for each in zip(near.tolist(), words, strict=True)]
    for name, rows in (
        ("BM25", [each[:TOP] for each in words]),
        ("vectors and BM25 fused", [[row for row, _ in each] for each in both]),
    ):
        show(name, ndcg(data.grades, np.array(rows)), whole)
    return whole


def show_peer(data: Cranfield, encoder: str, whole: float) -> None:
    if importlib.util.find_spec("sentence_transformers") is None:
        print("sentence-transformers is not installed")
        return
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(encoder, device="cpu")
    vectors = [unit_rows(peer.encode(part)) for part in (data.texts, data.queries)]
    score = data.score(vectors[1], PackedVectors.of(vectors[0]))
    show("sentence-transformers", score, whole)
    print(f"difference {abs(score - whole):.1e}")


def show_widths(data: Cranfield, encoder: str, epochs: int, rows: int) -> None:
    """Train at several widths, and print the score of each."""
    pairs = as_columns(text=data.titles[:rows], text_pair=data.abstracts[:rows])
    with tempfile.TemporaryDirectory() as folder:
        result = bert_keras.train(
            bert_keras.Embedding,
            encoder=encoder,
            train=pairs,
            output=Path(folder) / "model",
            config=bert_keras.TrainConfig(
                epochs=epochs, validation_split=0, max_length=128, learning_rate=5e-5
            ),
            task_settings={"dimensions": WIDTHS},
        )
        for name, source in (("untrained", encoder), ("trained", result.folder)):
            vectors = [embed(source, part) for part in (data.texts, data.queries)]
            documents, queries = map(unit_rows, vectors)
            whole = data.score(queries, PackedVectors.of(documents))
            for width in (documents.shape[1], *WIDTHS):
                packed = PackedVectors.of(unit_rows(documents[:, :width]))
                score = data.score(queries[:, :width], packed)
                show(f"{name}, width {width}", score, whole)


def show_similarity(encoder: str, epochs: int) -> None:
    """Train on STS-B at several widths, and print the Spearman of dev at each."""
    names = {"text": "sentence1", "text_pair": "sentence2", "label": "score"}
    train, dev = (
        bert_keras.Embedding.read(DATA / f"glue_stsb/{part}.tsv", columns=names)
        for part in ("train", "dev")
    )
    labels = np.array(dev["label"], float)
    with tempfile.TemporaryDirectory() as folder:
        result = bert_keras.train(
            "embedding",
            encoder=encoder,
            train=train,
            output=Path(folder) / "model",
            config=bert_keras.TrainConfig(
                epochs=epochs, validation_split=0, max_length=64
            ),
            task_settings={"objective": "similarity", "dimensions": WIDTHS},
        )
        for name, source in (("untrained", encoder), ("trained", result.folder)):
            first, second = (embed(source, dev[part]) for part in ("text", "text_pair"))
            widths = (first.shape[1], *WIDTHS)
            found = [
                spearman(labels, cosines(first[:, :width], second[:, :width]))
                for width in widths
            ]
            for width, score in zip(widths, found, strict=True):
                print(
                    f"{name}, width {width:<4} Spearman {score:.4f}  "
                    f"{score / found[0]:6.1%}",
                    flush=True,
                )


def show_sparse(encoder: str, epochs: int, rows: int) -> None:
    """Train sparse vectors, and print their scores, dense ones' and BM25's."""
    data = Cranfield()
    pairs = as_columns(text=data.titles[:rows], text_pair=data.abstracts[:rows])
    with tempfile.TemporaryDirectory() as folder:
        result = bert_keras.train(
            "embedding",
            encoder=encoder,
            train=pairs,
            output=Path(folder) / "model",
            config=bert_keras.TrainConfig(
                epochs=epochs, batch_size=16, validation_split=0, max_length=48
            ),
            task_settings={"kind": "sparse"},
        )
        for source in (result.folder, encoder):
            found = bert_keras.evaluate(load_embedder(source), FOLDER)
            for name, scores in found["rankings"].items():
                print(f"{name:<28} nDCG@10 {scores['ndcg_at_10']:.4f}", flush=True)


Questions = list[tuple[str, list[str], list[int]]]  # text, answers, labels
Scorer = Callable[[list[tuple[str, str]]], Sequence[float]]


def questions_of(name: str) -> Questions:
    """Return the questions that have right and wrong answers, each answer once."""
    found: dict[str, dict[str, int]] = {}
    with (DATA / "trecqa" / name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["qtext"], {})[row["atext"]] = int(row["label"])
    kept = [(q, each) for q, each in found.items() if {*each.values()} == {0, 1}]
    return [(q, [*each], [*each.values()]) for q, each in kept]


def rows_to_train(questions: Questions, negatives: int) -> list[dict[str, str]]:
    """Return the right answers, and some wrong ones to each, as rows with labels."""
    rng = np.random.default_rng(0)
    rows = []
    for text, answers, labels in questions:
        wrong, right = (np.flatnonzero(np.equal(labels, each)) for each in (0, 1))
        kept = rng.permutation(wrong)[: negatives * len(right)]
        rows += [
            {"query": text, "document": answers[at], "label": str(labels[at])}
            for at in [*right, *kept]
        ]
    return rows


def our_ranker(
    encoder: str, rows: list[dict[str, str]], seed: int, epochs: int
) -> Scorer:
    with tempfile.TemporaryDirectory() as folder:
        result = bert_keras.train(
            "reranking",
            encoder=encoder,
            train=rows,
            output=Path(folder) / "model",
            config=bert_keras.TrainConfig(
                epochs=epochs,
                batch_size=BATCH,
                learning_rate=RATE,
                max_length=LENGTH,
                seed=seed,
                validation_split=0,
            ),
        )
        predictor = bert_keras.Predictor(result.model)
    return lambda pairs: [row["score"] for row in predictor.predict(pairs)]


def peer_ranker(
    encoder: str, rows: list[dict[str, str]], seed: int, epochs: int
) -> Scorer:
    import torch
    from sentence_transformers import CrossEncoder
    from transformers import get_linear_schedule_with_warmup

    torch.manual_seed(seed)
    model = CrossEncoder(encoder, num_labels=1, max_length=LENGTH, device="cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    rng = np.random.default_rng(seed)
    steps = epochs * math.ceil(len(rows) / BATCH)
    rates = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    loss_of = torch.nn.BCEWithLogitsLoss()
    model.train()
    orders = [rng.permutation(len(rows)) for _ in range(epochs)]
    starts = range(0, len(rows), BATCH)
    for places in (order[at : at + BATCH] for order in orders for at in starts):
        some = [rows[place] for place in places]
        texts = [[row["query"], row["document"]] for row in some]
        batch = model.tokenizer(
            texts, padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"
        )
        logits = model.model(**batch).logits[:, 0]
        loss_of(logits, torch.tensor([float(row["label"]) for row in some])).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
    model.eval()
    return lambda pairs: model.predict(pairs, show_progress_bar=False)


def show_rankings(name: str, questions: Questions, scores: list[Any]) -> None:
    """Print MAP and MRR of the answers to each question, by their scores."""
    grades = []
    for (_, _, labels), each in zip(questions, scores, strict=True):
        order = np.lexsort((labels, -np.asarray(each, float)))  # ties: wrong first
        grades.append(np.asarray(labels)[order])
    found = ranking_scores(grades)
    print(
        f"{name:<24} MAP {found['map']:.4f}  MRR@10 {found['mrr_at_10']:.4f}",
        flush=True,
    )


def show_trecqa(encoder: str, negatives: int, epochs: int, seeds: int) -> None:
    """Rank the answers of dev, and print the scores of each way."""
    dev, train = questions_of("dev.csv"), questions_of("train.csv")
    rows = rows_to_train(train, negatives)
    print(
        f"{len(dev)} questions of dev; {len(rows)} answers to {len(train)} to train on"
    )
    words = BM25([answer for _, answers, _ in dev for answer in answers])
    ends = np.cumsum([len(answers) for _, answers, _ in dev])
    parts = [slice(end - len(dev[i][1]), end) for i, end in enumerate(ends)]
    by_words = [words.scores(dev[i][0])[part] for i, part in enumerate(parts)]
    show_rankings("BM25", dev, by_words)
    predictor = load_embedder(encoder)
    vectors = [embed(predictor, [text, *answers]) for text, answers, _ in dev]
    units = [unit_rows(each) for each in vectors]
    cosines = [each[1:] @ each[0] for each in units]
    show_rankings("vectors", dev, cosines)
    sides = {"bert_keras": our_ranker, "CrossEncoder": peer_ranker}
    for seed in range(seeds):
        for name, trained in sides.items():
            score = trained(encoder, rows, seed, epochs)
            found = [score([(text, a) for a in answers]) for text, answers, _ in dev]
            show_rankings(f"{name}, seed {seed}", dev, found)
            both = [c + np.asarray(s) / 2 for c, s in zip(cosines, found, strict=True)]
            show_rankings("  fused", dev, both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--encoder", default=encoder_path(), help="folder of the encoder")
    add("--train", action="store_true", help="also train at several widths")
    add("--epochs", type=int, default=1, help="passes over the pairs; default: 1")
    add("--rows", type=int, default=1400, help="pairs to train on; default: 1400")
    add("--stsb", action="store_true", help="train on STS-B at several widths instead")
    add("--sparse", action="store_true", help="train sparse vectors instead")
    add("--trecqa", action="store_true", help="rank the answers of TREC-QA instead")
    add("--negatives", type=int, default=3, help="of a right answer; default: 3")
    add("--seeds", type=int, default=3, help="runs on TREC-QA; default: 3")
    options = parser.parse_args()
    if options.trecqa:
        show_trecqa(options.encoder, options.negatives, options.epochs, options.seeds)
        return
    if options.stsb:
        show_similarity(options.encoder, options.epochs)
        return
    if options.sparse:
        show_sparse(options.encoder, options.epochs, options.rows)
        return
    data = Cranfield()
    whole = show_types(data, options.encoder)
    show_peer(data, options.encoder, whole)
    if options.train:
        show_widths(data, options.encoder, options.epochs, options.rows)


if __name__ == "__main__":
    main()
