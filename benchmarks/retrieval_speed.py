"""Speed of search beside sentence-transformers: vectors, ranking, training, a query.

    .venv-peers/bin/python benchmarks/retrieval_speed.py [--part sms …] [--rounds 3]

Both sides run all-MiniLM-L6-v2 with the same texts, in processes of their own that take
turns. The peer is sentence-transformers on torch with all cores, texts sorted by length
as `encode` does, batches of 32 and, for bfloat16, a model loaded in it. Parts:

    sms, sms-bfloat16          vectors of SMS messages
    paragraphs, …-bfloat16     vectors of paragraphs of SQuAD
    rank, rank-bfloat16        100 documents of a query by a cross-encoder
    train                      pairs with a negative each, batches of 32
    tokens, tokens-bfloat16    paragraphs, or texts of --collection, with a vector for
                               each token, beside its MultiVectorEncoder
    tokens-train               the same pairs with a vector for each token
    search                     nearest 10 of 100,000 vectors to one, beside faiss
    query                      the same with the vector of a text, sentence-transformers
                               and faiss
    http-embeddings            /v1/embeddings, one text a request, from 64 clients,
                               in base64, as the client `openai` asks for vectors
    http-rerank                /v1/rerank, a query with ten texts

The peer of the last two is infinity-emb, whose program `--infinity` names; without it,
only our server is measured. It needs an environment of its own: `pip install
"infinity-emb[torch,server]==0.0.77" "transformers<4.49" "sentence-transformers<4"
"optimum<1.25" "click<8.2"`. An answer is wrong if it is none, or if its numbers are not
those that the model gives to the text alone.

Shown are the medians of the seconds, in the last two parts of the requests per second,
and of the ratios within a round. With the default sizes it takes about fifteen minutes
on two otherwise idle cores; `--paragraphs 5000` takes longer.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from alternating import measured, time_on_request, times_as_fast, write_results
from http_load import Load, percentiles, started
from inputs import abstracts, answers, contexts, encoder_path, messages

SIDES = ("bert_keras", "peer")
TEXTS = ("sms", "sms-bfloat16", "paragraphs", "paragraphs-bfloat16")
HTTP = ("http-embeddings", "http-rerank")
TOKENS = ("tokens", "tokens-bfloat16", "tokens-train")
PARTS = (*TEXTS, "rank", "rank-bfloat16", "train", *TOKENS, "search", "query", *HTTP)
COLLECTIONS = {"squad": contexts, "cranfield": abstracts, "trecqa": answers}
QUERY = "How do I reset my password?"
WIDTH, TOP, BATCH, LENGTH = 384, 10, 32, 128


def texts_of(work: str, options: argparse.Namespace) -> list[str]:
    """Return the texts of a work, repeated if there are too few."""
    is_sms = work.startswith("sms")
    if is_sms:
        found = [text for _, text in messages()]
    else:
        found = COLLECTIONS[options.collection if work in TOKENS else "squad"]()
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
    from bert_keras.retrieval import SearchIndex, embed, load_embedder
    from bert_keras.retrieval.packed_vectors import PackedVectors

    precision = "mixed_bfloat16" if work.endswith("bfloat16") else "float32"
    if work in TEXTS:
        predictor = load_embedder(encoder_path(), precision=precision)
        texts = texts_of(work, options)
        return lambda: embed(predictor, texts, batch_size=BATCH)
    if work.startswith("rank"):
        ranker = bert_keras.load_predictor(options.ranker, precision=precision)
        documents = contexts()[:100]
        return lambda: ranker.rank(QUERY, documents, batch_size=BATCH)
    if work in TOKENS and work != "tokens-train":
        predictor = load_embedder(options.tokens, precision=precision)
        texts = texts_of(work, options)
        return lambda: embed(predictor, texts, batch_size=BATCH, prompt="document")
    if work in ("train", "tokens-train"):
        if work == "train":
            model = bert_keras.TaskModel.from_pretrained(
                encoder_path(), task=bert_keras.Embedding(), max_length=LENGTH
            )
        else:
            model = bert_keras.load_model(options.tokens)
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
    if work in TOKENS:
        from sentence_transformers import MultiVectorEncoder

        found = MultiVectorEncoder(options.tokens, **given)
        texts = texts_of(work, options)
        if work == "tokens-train":
            return _peer_training(found, options)
        return lambda: found.encode_document(texts, batch_size=BATCH)
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
    """Return an epoch of its loss of in-batch negatives with fused AdamW."""
    import sentence_transformers
    import torch
    from sentence_transformers.multi_vector_encoder.losses import (
        MultiVectorMultipleNegativesRankingLoss,
    )
    from sentence_transformers.sentence_transformer.losses import (
        MultipleNegativesRankingLoss,
    )

    if isinstance(model, sentence_transformers.MultiVectorEncoder):
        loss_of: Any = MultiVectorMultipleNegativesRankingLoss(model)
    else:
        model.max_seq_length = LENGTH
        loss_of = MultipleNegativesRankingLoss(model)
    tasks = ("query", "document", "document")
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
    parts = pairs_of(options)
    model.train()

    def epoch() -> None:
        for start in range(0, len(parts[0]), BATCH):
            batch = [
                {
                    **model.preprocess(part[start : start + BATCH], task=task),
                    "task": task,
                }
                for part, task in zip(parts, tasks, strict=True)
            ]
            loss_of(batch, None).backward()
            optimizer.step()
            optimizer.zero_grad()

    return epoch


def load_of(part: str, port: int, ranker: str) -> Load:
    """Return the requests of a part, whose answers are compared with the model's."""
    import bert_keras

    queries = [text for _, text in messages()[:100]]
    if part == "http-embeddings":
        vectors = bert_keras.embed(encoder_path(), queries)

        def is_right(place: int, answer: Any) -> bool:
            given = base64.b64decode(answer["data"][0]["embedding"])
            found = np.frombuffer(given, "<f4")
            return bool(np.allclose(found, vectors[place], atol=2e-3))

        return Load(
            port,
            "/v1/embeddings",
            queries,
            to_body=lambda text: {
                "model": "served",
                "input": text,
                "encoding_format": "base64",
            },
            is_right=is_right,
        )
    documents = [text[:200] for text in contexts()[:10]]
    predictor = bert_keras.load_predictor(ranker)
    ranked = [predictor.rank(query, documents) for query in queries]

    def is_ranked(place: int, answer: Any) -> bool:
        found = {row["index"]: row["relevance_score"] for row in answer["results"]}
        wanted = {row["index"]: row["score"] for row in ranked[place]}
        return found.keys() == wanted.keys() and all(
            abs(found[at] - score) < 5e-3 for at, score in wanted.items()
        )

    return Load(
        port,
        "/v1/rerank",
        queries,
        to_body=lambda text: {
            "model": "served",
            "query": text,
            "documents": documents,
        },
        is_right=is_ranked,
    )


@contextlib.contextmanager
def servers(model: str, infinity: str | None) -> Iterator[dict[str, int]]:
    """Run both servers, and yield their ports by name."""
    ours = ["-m", "bert_keras", "serve", f"served={model}", "--port", "8611"]
    commands = {
        "bert_keras": ([sys.executable, *ours, "--no-grpc"], 8611, "/v2/health/live")
    }
    if infinity is not None:
        given = ["v2", "--model-id", model, "--served-model-name", "served"]
        given += ["--port", "8612", "--url-prefix", "/v1", "--device", "cpu"]
        given += ["--engine", "torch", "--no-model-warmup"]
        commands["infinity-emb"] = ([infinity, *given], 8612, "/health")
    with contextlib.ExitStack() as stack:
        for command, port, path in commands.values():
            stack.enter_context(started(command, port, path))
        yield {name: port for name, (_, port, _) in commands.items()}


def show_http(part: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Print and return the requests per second of each round, by server."""
    model = encoder_path() if part == "http-embeddings" else options.ranker
    rates: dict[str, list[float]] = {}
    with servers(model, options.infinity) as ports:
        loads = {name: load_of(part, port, model) for name, port in ports.items()}
        for load in loads.values():
            asyncio.run(load.closed(options.clients, 5, 1000))  # traces and warms up
        for _ in range(options.rounds):
            for name, load in loads.items():
                rate = asyncio.run(load.closed(options.clients, options.seconds, 10**6))
                rates.setdefault(name, []).append(rate)
                print(
                    f"  {name:<14} {rate:7.1f} requests/s  "
                    f"{percentiles(load.latencies)}  {load.wrong} wrong",
                    flush=True,
                )
    return rates


def write_ranker(folder: Path) -> str:
    """Write a cross-encoder with a random head, which both sides open."""
    import bert_keras

    model = bert_keras.TaskModel.from_pretrained(
        encoder_path(), task=bert_keras.Reranking(), max_length=256
    )
    return str(bert_keras.save_model(model, folder))


def write_tokens(folder: Path, length: int) -> str:
    """Write an encoder with a random projection of its tokens for both sides."""
    import bert_keras

    projection = {"units": 128, "activation": "linear", "use_bias": False}
    task = bert_keras.Embedding(
        kind="tokens",
        dense=({**projection, "on_tokens": True},),
        skip_words="punctuation",
    )
    model = bert_keras.TaskModel.from_pretrained(
        encoder_path(), task=task, max_length=length
    )
    return str(bert_keras.save_model(model, folder))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--part", nargs="+", choices=PARTS, default=PARTS, help="default: all")
    add("--rounds", type=int, default=3, help="default: 3")
    add("--messages", type=int, default=1000, help="of sms; default: 1000")
    add("--paragraphs", type=int, default=400, help="default: 400")
    add("--pairs", type=int, default=256, help="of train; default: 256")
    add("--vectors", type=int, default=100_000, help="of an index; default: 100,000")
    add("--clients", type=int, default=64, help="of a server; default: 64")
    add("--seconds", type=float, default=10, help="of load in a round; default: 10")
    add("--infinity", help="program infinity_emb; default: our server alone")
    add("--json", type=Path, help="file for the results")
    add("--worker", nargs=2, metavar=("SIDE", "PART"), help=argparse.SUPPRESS)
    add("--ranker", help=argparse.SUPPRESS)
    add("--tokens", help=argparse.SUPPRESS)
    add("--length", type=int, default=256, help="of texts of tokens; default: 256")
    add(
        "--collection",
        choices=COLLECTIONS,
        default="squad",
        help="whose texts tokens and tokens-bfloat16 read; default: squad",
    )
    options = parser.parse_args()
    if options.worker:
        side, work = options.worker
        run = (our_work if side == SIDES[0] else peer_work)(work, options)
        repeats = 20 if work in ("search", "query") else 1
        time_on_request(run, warmups=2, repeats=repeats)
        return
    with tempfile.TemporaryDirectory() as folder:
        if any("rank" in part for part in options.part):
            options.ranker = write_ranker(Path(folder) / "ranker")
        if any(part in TOKENS for part in options.part):
            options.tokens = write_tokens(Path(folder) / "tokens", options.length)
        write_results(options.json, {p: show(p, options) for p in options.part})


def show(part: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Print and return the seconds, or requests per second, of each round by side."""
    if part in HTTP:
        found = show_http(part, options)
        unit, order = "requests/s", reversed([*found])
    else:
        names = ("messages", "paragraphs", "pairs", "vectors", "ranker", "tokens")
        names += ("collection",)
        given = [w for n in names for w in (f"--{n}", str(getattr(options, n)))]
        command = [sys.executable, __file__, *given, "--worker"]
        found = measured(
            {side: [*command, side, part] for side in SIDES}, options.rounds
        )
        unit, order = "s", iter(found)
    shown = [f"{n} {statistics.median(v):.4g} {unit}" for n, v in found.items()]
    if len(found) == len(SIDES):
        ratio = times_as_fast(*(found[side] for side in order))
        shown.append(f"{ratio:.2f} times as fast")
    print(f"{part:<20} {'  '.join(shown)}", flush=True)
    return found


if __name__ == "__main__":
    main()
