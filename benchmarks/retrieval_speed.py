"""Speed of search beside sentence-transformers: vectors, ranking, training, a query.

    .venv-peers/bin/python benchmarks/retrieval_speed.py [--works sms …] [--rounds 3]

Both sides run all-MiniLM-L6-v2 with the same texts, in processes of their own that take
turns. The peer is sentence-transformers on torch with all cores, texts sorted by length
as `encode` does, batches of 32 and, for bfloat16, a model loaded in it. Works:

    sms, sms-bfloat16          vectors of SMS messages
    paragraphs, …-bfloat16     vectors of paragraphs of SQuAD
    rank, rank-bfloat16        100 documents of a query by a cross-encoder
    train                      pairs with a negative each, batches of 32
    search                     nearest 10 of 100,000 vectors to one, beside faiss
    query                      the same with the vector of a text, sentence-transformers
                               and faiss

Shown are the medians of the seconds and of the ratios within a round. With the default
sizes it takes less than ten minutes on two otherwise idle cores; `--paragraphs 5000`
takes longer.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from alternating import measured, time_on_request, times_as_fast, write_results
from inputs import contexts, encoder_path, messages

SIDES = ("bert_keras", "peer")
TEXTS = ("sms", "sms-bfloat16", "paragraphs", "paragraphs-bfloat16")
WORKS = (*TEXTS, "rank", "rank-bfloat16", "train", "search", "query")
QUERY = "How do I reset my password?"
WIDTH, TOP, BATCH = 384, 10, 32


def texts_of(work: str, options: argparse.Namespace) -> list[str]:
    """Return the texts of a work, repeated if there are too few."""
    is_sms = work.startswith("sms")
    found = [text for _, text in messages()] if is_sms else contexts()
    count = options.messages if is_sms else options.paragraphs
    return (found * (count // len(found) + 1))[:count]


def vectors_of_index(options: argparse.Namespace) -> np.ndarray:
    """Return random unit vectors, float32 [N, 384]."""
    found = np.random.default_rng(0).normal(size=(options.vectors, WIDTH))
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found.astype(np.float32)


def pairs_of(options: argparse.Namespace) -> tuple[list[str], list[str], list[str]]:
    """Return texts, their pairs and a negative each: halves of paragraphs."""
    paragraphs = contexts()[: options.pairs]
    halves = [(each[: len(each) // 2], each[len(each) // 2 :]) for each in paragraphs]
    first, second = (list(part) for part in zip(*halves, strict=True))
    return first, second, [*second[7:], *second[:7]]


def our_work(work: str, options: argparse.Namespace) -> Callable[[], object]:
    import keras

    import bert_keras
    from bert_keras.inference import SearchIndex, embed, load_embedder
    from bert_keras.inference.packed_vectors import PackedVectors

    precision = "mixed_bfloat16" if work.endswith("bfloat16") else "float32"
    if work in TEXTS:
        predictor = load_embedder(encoder_path(), precision=precision)
        texts = texts_of(work, options)
        return lambda: embed(predictor, texts, batch_size=BATCH)
    if work.startswith("rank"):
        ranker = bert_keras.load_predictor(options.ranker, precision=precision)
        documents = contexts()[:100]
        return lambda: ranker.rank(QUERY, documents, batch_size=BATCH)
    if work == "train":
        model = bert_keras.TaskModel.from_pretrained(
            encoder_path(), task=bert_keras.Embedding(), max_length=128
        )
        model.compile(keras.optimizers.AdamW(2e-5), loss=model.task.loss())
        parts = pairs_of(options)
        columns = bert_keras.as_columns(
            text=parts[0], text_pair=parts[1], negative=parts[2]
        )
        targets = model.task.targets(columns)
        return lambda: model.fit(parts, targets, batch_size=BATCH, verbose=0)
    vectors = vectors_of_index(options)
    if work == "search":
        packed, asked = PackedVectors.of(vectors), vectors[:1]
        return lambda: packed.nearest(asked, TOP)
    predictor = load_embedder(encoder_path())
    search = SearchIndex(predictor, [str(row) for row in range(len(vectors))], vectors)
    return lambda: search([QUERY], top=TOP)


def peer_work(work: str, options: argparse.Namespace) -> Callable[[], object]:
    import torch
    from sentence_transformers import CrossEncoder, SentenceTransformer

    torch.set_num_threads(os.cpu_count() or 1)
    kind = torch.bfloat16 if work.endswith("bfloat16") else torch.float32
    given: dict[str, Any] = {"device": "cpu", "model_kwargs": {"torch_dtype": kind}}
    if work in TEXTS:
        model, texts = SentenceTransformer(encoder_path(), **given), None
        texts = texts_of(work, options)
        return lambda: model.encode(texts, batch_size=BATCH)
    if work.startswith("rank"):
        ranker, documents = CrossEncoder(options.ranker, **given), contexts()[:100]
        return lambda: ranker.rank(QUERY, documents, batch_size=BATCH)
    if work == "train":
        return _peer_training(SentenceTransformer(encoder_path(), **given), options)
    import faiss

    vectors = vectors_of_index(options)
    index = faiss.IndexFlatIP(WIDTH)
    index.add(vectors)
    if work == "search":
        asked = vectors[:1]
        return lambda: index.search(asked, TOP)
    model = SentenceTransformer(encoder_path(), **given)
    return lambda: index.search(model.encode([QUERY]), TOP)


def _peer_training(model: Any, options: argparse.Namespace) -> Callable[[], object]:
    """Return an epoch of MultipleNegativesRankingLoss with fused AdamW."""
    import torch
    from sentence_transformers.sentence_transformer.losses import (
        MultipleNegativesRankingLoss,
    )

    model.max_seq_length = 128
    loss_of = MultipleNegativesRankingLoss(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    parts = pairs_of(options)
    model.train()

    def epoch() -> None:
        for start in range(0, len(parts[0]), BATCH):
            batch = [model.tokenize(part[start : start + BATCH]) for part in parts]
            loss_of(batch, None).backward()
            optimizer.step()
            optimizer.zero_grad()

    return epoch


def write_ranker(folder: Path) -> str:
    """Write a cross-encoder with a random head, which both sides open."""
    import bert_keras

    model = bert_keras.TaskModel.from_pretrained(
        encoder_path(), task=bert_keras.Reranking(), max_length=256
    )
    return str(bert_keras.save_model(model, folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--works", nargs="+", choices=WORKS, default=WORKS, help="default: all")
    add("--rounds", type=int, default=3, help="default: 3")
    add("--messages", type=int, default=1000, help="of sms; default: 1000")
    add("--paragraphs", type=int, default=400, help="default: 400")
    add("--pairs", type=int, default=256, help="of train; default: 256")
    add("--vectors", type=int, default=100_000, help="of an index; default: 100,000")
    add("--json", type=Path, help="file for the results")
    add("--worker", nargs=2, metavar=("SIDE", "WORK"), help=argparse.SUPPRESS)
    add("--ranker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        side, work = options.worker
        run = (our_work if side == SIDES[0] else peer_work)(work, options)
        repeats = 20 if work in ("search", "query") else 1
        time_on_request(run, warmups=2, repeats=repeats)
        return
    results = {}
    sizes = ("messages", "paragraphs", "pairs", "vectors")
    given = [word for n in sizes for word in (f"--{n}", str(getattr(options, n)))]
    with tempfile.TemporaryDirectory() as folder:
        if any(work.startswith("rank") for work in options.works):
            given += ["--ranker", write_ranker(Path(folder) / "ranker")]
        for work in options.works:
            command = [sys.executable, __file__, *given, "--worker"]
            found = measured(
                {side: [*command, side, work] for side in SIDES}, options.rounds
            )
            results[work] = found
            shown = [f"{n} {statistics.median(s):.4f} s" for n, s in found.items()]
            if len(found) == len(SIDES):
                ratio = times_as_fast(*(found[side] for side in SIDES))
                shown.append(f"{ratio:.2f} times as fast")
            print(f"{work:<20} {'  '.join(shown)}", flush=True)
    write_results(options.json, results)


if __name__ == "__main__":
    main()
