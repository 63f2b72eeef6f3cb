"""Quality of search on Cranfield: whole vectors, narrow ones, int8 and bits.

    python benchmarks/retrieval_quality.py [--train] [--epochs 1] [--rows 1400]
    python benchmarks/retrieval_quality.py --stsb [--epochs 1] [--teacher [--more]]
    python benchmarks/retrieval_quality.py --sparse [--rows 0] [--documents 350]
    python benchmarks/retrieval_quality.py --tokens [--rows 0] [--documents 350]
    python benchmarks/retrieval_quality.py --student 0,2,4 [--epochs 4] [--texts 4000]
    .venv-peers/bin/python benchmarks/retrieval_quality.py --trecqa [--seeds 3]
        [--first 0]
    .venv-peers/bin/python benchmarks/retrieval_quality.py --squad [--rows 256]
    python benchmarks/retrieval_quality.py --squad --tokens [--rows 128]
    python benchmarks/retrieval_quality.py --trecqa --tokens

nDCG@10 (graded, log2 discount) of all-MiniLM-L6-v2 over the 112 queries, untrained, as
`bert-keras evaluate` gives it: of vectors as float32, int8 and bits, of BM25, and of
both fused; of bits without rescoring; and beside sentence-transformers on torch, where
it is installed (`.venv-peers`). With `--train`, the model is also trained on pairs of
title and abstract with the widths 192, 96 and 48 (Matryoshka), and scored at each of
them. Without `--train` it takes about two minutes on two cores, with it about ten.

`--stsb` trains on the labelled pairs of STS-B with the same widths, and prints the
Spearman of dev at each of them, and with int8 and bits, before and after; an epoch
takes two minutes of one core. With `--teacher`, an encoder learns at its whole width
first, and then teaches one of its size its similarities at each width. With `--more`,
this one also learns from 12,147 pairs of SICK, MRPC and Multi30k, whose label is the
teacher's cosine. `--sparse` trains sparse vectors on the pairs of title
and abstract, `--tokens` a vector for each token, and both dense vectors beside them;
they print nDCG@10 on Cranfield of dense vectors, the others, BM25, and
each fused with BM25, before and after; `--rows 0` does not train, and `--documents`
searches the first ones alone. The encoder lacks a
masked-LM head, which starts as the product with the tokens' embeddings.

`--trecqa` ranks the answers of TREC-QA's dev questions instead: by BM25, by vectors,
and by cross-encoders that both sides train on the answers to the training questions,
`--negatives` wrong ones, drawn once, for each right one, with the same weights, updates
and learning rates (AdamW, linear warmup and decay, binary cross-entropy), on the mean
of the tokens' vectors, which only bert_keras reads, and on BERT's pooler; head and
order differ by the seed. `fused` is the order by the cosine and half of the score. MAP
and MRR are of questions with right and wrong answers. A seed takes five minutes of one
core. With `--first`, a cross-encoder is trained before on so many questions of SQuAD,
once for each way to read it: the sentence with the answer is right, and up to three
others of its paragraph, which share the most words with the question, are wrong. Both
sides start from these folders. 5,000 questions take half an hour of one core.

`--student` aligns a student of some layers to the vectors of the encoder, on titles of
Cranfield, sentences of its abstracts and questions of SQuAD, and asks Cranfield's
queries on the index of the encoder.

`--squad` searches the paragraphs of eight articles of SQuAD by two questions on each:
untrained, and after both sides have trained on `--rows` questions of the other
articles, each with its paragraph and a mined negative, by the cross-entropy of finding
the paragraph among those of a batch, and the question among its questions. With
`--tokens`, one question on each paragraph, without negatives: a vector for each token,
and whole vectors, both trained. `--trecqa --tokens` trains both on the right answers
of TREC-QA and ranks the answers of each dev question.
"""

from __future__ import annotations

import argparse
import bisect
import csv
import dataclasses
import functools
import gzip
import importlib.util
import itertools
import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from inputs import DATA, encoder_path

import bert_keras
from bert_keras.corpus.sentence_rules import sentence_splitter
from bert_keras.data.collection import read_collection
from bert_keras.data.columns import Columns
from bert_keras.data.table import as_columns
from bert_keras.retrieval import embed, load_embedder
from bert_keras.retrieval.embedder import stored_vectors, with_prompt
from bert_keras.retrieval.evaluation import evaluate_collection
from bert_keras.retrieval.index import SearchIndex
from bert_keras.retrieval.mining import mine_negatives
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.retrieval.vector_store import VectorStore
from bert_keras.scoring.bm25 import BM25
from bert_keras.scoring.correlation import spearman
from bert_keras.scoring.embeddings import cosines
from bert_keras.scoring.ranking import ranking_scores
from bert_keras.scoring.similarity import unit_rows

FOLDER = DATA / "cranfield"
WIDTHS = (192, 96, 48)
TOP, RANKED = 10, 100  # documents that are scored, and that are ranked
BATCH, LENGTH, RATE = 16, 96, 2e-4  # of the cross-encoders
WRONG = 3  # sentences of a paragraph of SQuAD, beside the right one
FIRST_BATCH, FIRST_RATE, SECOND_RATE = 32, 1e-4, 3e-5  # with --first
CAPTIONS = 8000  # of Multi30k, with --more
SHORT = 64  # tokens of a text that --sparse and --tokens train on
PARAGRAPH, PAIR_RATE = 128, 2e-5  # of the encoders trained on SQuAD
READ, SEARCHED = 96, 160  # tokens of a paragraph, with --squad --tokens


def rows_of(name: str) -> list[dict[str, str]]:
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


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
        rows = rows_of("corpus.jsonl")
        self.titles = [row["title"] for row in rows]
        self.abstracts = [row["text"] for row in rows]
        self.collection = read_collection(FOLDER)
        documents, queries = self.collection.documents, self.collection.queries
        self.texts, self.queries = [*documents.values()], [*queries.values()]
        self.grades = np.array(
            [
                [self.collection.qrels[query].get(name, 0) for name in documents]
                for query in queries
            ]
        )

    def score(
        self, queries: np.ndarray, packed: PackedVectors, rescore: int = 0
    ) -> float:
        rows, _ = packed.nearest(unit_rows(queries), RANKED, rescore=rescore)
        return ndcg(self.grades, rows[:, :TOP])


def show(name: str, score: float, whole: float) -> None:
    print(f"{name:<28} nDCG@10 {score:.4f}  {score / whole:6.1%}", flush=True)


def show_types(data: Cranfield, encoder: str) -> float:
    """Print the scores that `bert-keras evaluate` gives, and the score of bits alone.

    Return the score of float32.
    """
    predictor = load_embedder(encoder)
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index.npz"
        search = SearchIndex.of(predictor, data.texts, index=index)
        found = evaluate_collection(predictor, data.collection, index=index)
    whole = float(found["ndcg_at_10"])
    for name, scores in found["rankings"].items():
        show(name, scores["ndcg_at_10"], whole)
    bits = PackedVectors.of(search.vectors, "binary", rescored=False)
    show(
        "binary, not rescored", data.score(embed(predictor, data.queries), bits), whole
    )
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


def other_pairs(known: set[str]) -> Columns:
    """Return pairs of SICK and MRPC and of captions, without labels or known texts."""
    sick = bert_keras.Embedding.read(DATA / "sick/train.tsv")
    names = {"text": "#1 String", "text_pair": "#2 String"}
    news = bert_keras.Embedding.read(DATA / "glue_mrpc/train.tsv", columns=names)
    with gzip.open(DATA / "multi30k/train.en.gz", "rt", encoding="utf-8") as file:
        captions = [line.strip() for line in itertools.islice(file, CAPTIONS)]
    found = [
        *zip(sick["text"], sick["text_pair"], strict=True),
        *zip(news["text"], news["text_pair"], strict=True),
        *zip(captions[::2], captions[1::2], strict=True),
    ]
    found = [pair for pair in found if known.isdisjoint(pair)]
    first, second = (list(part) for part in zip(*found, strict=True))
    return as_columns(text=first, text_pair=second)


def with_labels_of(teacher: Path, train: Columns, dev: Columns) -> Columns:
    """Return the labelled pairs, and others whose label is five times the cosine."""
    added = other_pairs({*dev["text"], *dev["text_pair"]})
    first, second = (embed(teacher, added[part]) for part in ("text", "text_pair"))
    labels = 5 * np.maximum(cosines(first, second), 0)
    return as_columns(
        text=[*train["text"], *added["text"]],
        text_pair=[*train["text_pair"], *added["text_pair"]],
        label=[*map(float, train["label"]), *labels.tolist()],
    )


def show_similarity(options: argparse.Namespace) -> None:
    """Train on STS-B at several widths, and print the Spearman of dev at each."""
    names = {"text": "sentence1", "text_pair": "sentence2", "label": "score"}
    train, dev = (
        bert_keras.Embedding.read(DATA / f"glue_stsb/{part}.tsv", columns=names)
        for part in ("train", "dev")
    )
    labels = np.array(dev["label"], float)
    config = bert_keras.TrainConfig(
        epochs=options.epochs,
        validation_split=0,
        max_length=64,
        precision=options.precision,
    )
    with tempfile.TemporaryDirectory() as folder:

        def trained(name: str, rows: Columns, **given: Any) -> Path:
            settings = {"objective": "similarity", **given.pop("settings", {})}
            result = bert_keras.train(
                "embedding",
                train=rows,
                output=Path(folder) / name,
                task_settings=settings,
                **{"encoder": options.encoder, "config": config, **given},
            )
            return Path(result.folder)

        given: dict[str, Any] = {"settings": {"dimensions": WIDTHS}}
        if options.teacher:
            teacher = trained("teacher", train)
            layers = range(
                load_embedder(teacher).model.backbone.config.num_hidden_layers
            )
            given["encoder"] = None
            given["config"] = dataclasses.replace(
                config,
                epochs=options.student_epochs or options.epochs,
                teacher=str(teacher),
                keep_layers=",".join(map(str, layers)),
                distill_weight=0.9,
            )
            if options.more:
                train = with_labels_of(teacher, train, dev)
        result = trained("model", train, **given)
        for name, source in (("untrained", options.encoder), ("trained", result)):
            first, second = (embed(source, dev[part]) for part in ("text", "text_pair"))
            found = {
                f"width {width}": cosines(first[:, :width], second[:, :width])
                for width in (first.shape[1], *WIDTHS)
            }
            for dtype in ("int8", "binary"):  # one text of a pair, as an index holds it
                packed = PackedVectors.of(unit_rows(first), dtype, rescored=False)
                found[dtype] = cosines(packed.numbers(slice(None)), second)
            scores = {way: spearman(labels, each) for way, each in found.items()}
            whole = next(iter(scores.values()))
            for way, score in scores.items():
                share = f"{score / whole:6.1%}"
                print(f"{name}, {way:<10} Spearman {score:.4f}  {share}", flush=True)


def write_part(folder: Path, documents: int) -> None:
    """Write the first documents of Cranfield, with the judgements of them."""
    kept = rows_of("corpus.jsonl")[:documents]
    known = {row["_id"] for row in kept}
    (folder / "qrels").mkdir()
    lines = [json.dumps(row) for row in kept]
    (folder / "corpus.jsonl").write_text("\n".join(lines), encoding="utf-8")
    queries = (FOLDER / "queries.jsonl").read_text(encoding="utf-8")
    (folder / "queries.jsonl").write_text(queries, encoding="utf-8")
    asked = {json.loads(line)["_id"] for line in queries.splitlines()}
    first, *judged = (FOLDER / "qrels/test.tsv").read_text().splitlines()
    ids = [line.split("\t") for line in judged]
    judged = ["\t".join(x) for x in ids if x[0] in asked and x[1] in known]
    (folder / "qrels/test.tsv").write_text("\n".join([first, *judged]))


def show_kind(
    kind: str,
    encoder: str,
    epochs: int,
    rows: int,
    max_length: int,
    documents: int,
    seeds: int,
    units: int | None,
    rate: float | None,
) -> None:
    """Print the scores of dense vectors, and of a kind before and after training.

    Each also beside BM25, and fused with it.
    """
    part = tempfile.TemporaryDirectory()
    write_part(Path(part.name), documents)

    def show_fused(name: str, predictor: bert_keras.Predictor) -> float:
        found = bert_keras.evaluate(predictor, part.name)
        for way, scores in found["rankings"].items():
            line = f"{name}, {way}"
            print(f"{line:<28} nDCG@10 {scores['ndcg_at_10']:.4f}", flush=True)
        return float(found["ndcg_at_10"])

    show_fused("dense", load_embedder(encoder, max_length=max_length))
    start = bert_keras.TaskModel.from_pretrained(
        encoder, "embedding", kind=kind, scale=1.0, max_length=max_length
    )
    show_fused("untrained", bert_keras.Predictor(start))
    if not rows:
        return
    data = Cranfield()
    pairs = as_columns(text=data.titles[:rows], text_pair=data.abstracts[:rows])
    found: dict[str, list[float]] = {each: [] for each in (kind, "dense")}
    for seed, each in itertools.product(range(seeds), found):
        with tempfile.TemporaryDirectory() as folder:
            result = bert_keras.train(
                "embedding",
                encoder=encoder,
                train=pairs,
                output=Path(folder) / "model",
                config=bert_keras.TrainConfig(
                    epochs=epochs,
                    batch_size=BATCH,
                    learning_rate=rate,
                    validation_split=0,
                    max_length=SHORT,
                    seed=seed,
                ),
                task_settings=settings_of(each, units),
            )
            trained = load_embedder(result.folder, max_length=max_length)
            found[each].append(show_fused(f"{each}, seed {seed}", trained))
    for each, scores in found.items():
        show_seeds(f"nDCG@10 of {each}, trained", scores)


def settings_of(kind: str, units: int | None) -> dict[str, Any]:
    """Return the settings of a kind of vectors, with tokens of so many numbers."""
    if kind != "tokens" or units is None:
        return {"kind": kind}
    layer = {"activation": "linear", "use_bias": False, "on_tokens": True}
    return {"kind": kind, "dense": [{"units": units, **layer}] * bool(units)}


class Run(NamedTuple):
    """The settings of a training that both sides use."""

    seed: int
    epochs: int
    batch: int
    rate: float

    def config(self, max_length: int) -> bert_keras.TrainConfig:
        return bert_keras.TrainConfig(
            epochs=self.epochs,
            batch_size=self.batch,
            learning_rate=self.rate,
            max_length=max_length,
            seed=self.seed,
            validation_split=0,
        )


def show_seeds(name: str, scores: Sequence[float]) -> None:
    """Print the mean of the scores of several seeds, and their standard deviation."""
    spread = f" ± {np.std(scores, ddof=1):.4f}" if len(scores) > 1 else ""
    print(f"{name}: {np.mean(scores):.4f}{spread}, {len(scores)} seeds", flush=True)


Questions = list[tuple[str, list[str], list[int]]]  # text, answers, labels
Encode = Callable[[list[str]], np.ndarray]
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


def rows_of_squad(most: int) -> list[dict[str, str]]:
    """Return sentences that answer a question, and others of their paragraphs."""
    split = sentence_splitter("en")
    rows: list[dict[str, str]] = []
    for paragraph in itertools.chain.from_iterable(articles_of_squad()):
        text, end, ends = paragraph["context"], 0, []
        sentences = split(text)
        for sentence in sentences:
            end = text.index(sentence, end) + len(sentence)
            ends.append(end)
        words = BM25(sentences)
        for question in paragraph["qas"][: max(most, 0)]:
            answer = question["answers"][0]
            right = bisect.bisect_right(ends, answer["answer_start"])
            order = np.argsort(-words.scores(question["question"]), kind="stable")
            wrong = [at for at in order.tolist() if answer["text"] not in sentences[at]]
            rows += [
                {
                    "query": question["question"],
                    "document": sentences[at],
                    "label": str(int(at == right)),
                }
                for at in [right, *wrong[:WRONG]]
                if wrong
            ]
        most -= len(paragraph["qas"])
    return rows


def first_ranker(
    encoder: str, questions: int, folder: Path, pooling: str
) -> bert_keras.Predictor:
    """Train a cross-encoder on SQuAD, from which both libraries start."""
    rows = rows_of_squad(questions)
    print(f"{len(rows)} sentences of SQuAD to train on first", flush=True)
    result = bert_keras.train(
        "reranking",
        encoder=encoder,
        train=rows,
        output=folder,
        config=Run(0, 1, FIRST_BATCH, FIRST_RATE).config(LENGTH),
        task_settings={"pooling": pooling},
    )
    return bert_keras.Predictor(result.model)


def our_ranker(
    encoder: str, rows: list[dict[str, str]], run: Run, pooling: str = "mean"
) -> Scorer:
    with tempfile.TemporaryDirectory() as folder:
        result = bert_keras.train(
            "reranking",
            encoder=encoder,
            train=rows,
            output=Path(folder) / "model",
            config=run.config(LENGTH),
            task_settings={"pooling": pooling},
        )
        predictor = bert_keras.Predictor(result.model)
    return lambda pairs: scores_of(predictor, pairs)


def scores_of(
    predictor: bert_keras.Predictor, pairs: list[tuple[str, str]]
) -> list[float]:
    return [row["score"] for row in predictor.predict(pairs)]


def train_peer(
    model: Any, loss_of: Callable[[np.ndarray], Any], rows: int, run: Run
) -> None:
    """Make the updates of a run with torch: AdamW, linear warmup and decay, clipping.

    `loss_of` returns the loss of some of the rows.
    """
    import torch
    from transformers import get_linear_schedule_with_warmup

    groups: list[dict[str, Any]] = [
        {"params": [], "weight_decay": 0.01},
        {"params": [], "weight_decay": 0.0},
    ]
    for name, weight in model.named_parameters():
        groups["bias" in name or "LayerNorm" in name]["params"].append(weight)
    optimizer = torch.optim.AdamW(groups, lr=run.rate, eps=1e-6)
    rng = np.random.default_rng(run.seed)
    steps = run.epochs * math.ceil(rows / run.batch)
    rates = get_linear_schedule_with_warmup(optimizer, steps // 10, steps)
    model.train()
    orders = [rng.permutation(rows) for _ in range(run.epochs)]
    starts = range(0, rows, run.batch)
    for places in (order[at : at + run.batch] for order in orders for at in starts):
        loss_of(places).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rates.step()
        optimizer.zero_grad()
    model.eval()


def peer_ranker(encoder: str, rows: list[dict[str, str]], run: Run) -> Scorer:
    import torch
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    torch.manual_seed(run.seed)
    model = CrossEncoder(encoder, num_labels=1, max_length=LENGTH, device="cpu")
    loss = BinaryCrossEntropyLoss(model)
    labels = torch.tensor([float(row["label"]) for row in rows])

    def loss_of(places: np.ndarray) -> Any:
        texts = [[rows[at][role] for at in places] for role in ("query", "document")]
        return loss(texts, labels[places])

    train_peer(model, loss_of, len(rows), run)
    return lambda pairs: model.predict(pairs, show_progress_bar=False)


def show_rankings(name: str, questions: Questions, scores: list[Any]) -> float:
    """Print MAP and MRR of the answers to each question by their scores; return MAP."""
    grades = []
    for (_, _, labels), each in zip(questions, scores, strict=True):
        order = np.lexsort((labels, -np.asarray(each, float)))  # ties: wrong first
        grades.append(np.asarray(labels)[order])
    found = ranking_scores(grades)
    print(
        f"{name:<24} MAP {found['map']:.4f}  MRR@10 {found['mrr_at_10']:.4f}",
        flush=True,
    )
    return float(found["map"])


def show_trecqa(
    encoder: str, negatives: int, epochs: int, seeds: int, first: int
) -> None:
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
    maps: dict[str, list[float]] = {}

    def show_ranker(name: str, run: str, score: Scorer) -> None:
        found = [score([(text, a) for a in answers]) for text, answers, _ in dev]
        both = [c + np.asarray(s) / 2 for c, s in zip(cosines, found, strict=True)]
        alone = show_rankings(f"{name}, {run}", dev, found)
        maps.setdefault(name, []).append(alone)
        maps.setdefault(f"{name}, fused", []).append(
            show_rankings("  fused", dev, both)
        )

    with tempfile.TemporaryDirectory() as folder:
        sides: dict[str, tuple[str, Any]] = {
            "bert_keras": ("mean", our_ranker),
            "bert_keras, pooler": (
                "pooler",
                functools.partial(our_ranker, pooling="pooler"),
            ),
            "CrossEncoder": ("pooler", peer_ranker),
        }
        starts, rate = dict.fromkeys(("mean", "pooler"), encoder), RATE
        if first:
            rate = SECOND_RATE
            for pooling in starts:
                starts[pooling] = str(Path(folder) / pooling)
                ranker = first_ranker(encoder, first, Path(starts[pooling]), pooling)
                score = functools.partial(scores_of, ranker)
                show_ranker(f"SQuAD, {pooling}", "first", score)
        for seed in range(seeds):
            for name, (pooling, trained) in sides.items():
                run = Run(seed, epochs, BATCH, rate)
                show_ranker(name, f"seed {seed}", trained(starts[pooling], rows, run))
    for name, scores in maps.items():
        show_seeds(f"MAP of {name}", scores)


def articles_of_squad() -> list[list[dict[str, Any]]]:
    """Return the paragraphs of each article of SQuAD."""
    text = (DATA / "squad_v1.1/half.json").read_text(encoding="utf-8")
    return [each["paragraphs"] for each in json.loads(text)["data"]]


class Squad:
    """Questions of SQuAD, and the paragraphs of the same articles.

    Every third article is held out: its paragraphs are the documents, and some
    questions on each of them the queries.
    """

    def __init__(self, rows: int, questions: int = 2) -> None:
        articles = articles_of_squad()
        held = [each for article in articles[::3] for each in article]
        asked = [
            (question["question"], place)
            for place, paragraph in enumerate(held)
            for question in paragraph["qas"][:questions]
        ]
        self.documents = [paragraph["context"] for paragraph in held]
        self.queries = [question for question, _ in asked]
        self.grades = np.zeros((len(asked), len(held)), int)
        self.grades[range(len(asked)), [place for _, place in asked]] = 1
        others = [each for n, a in enumerate(articles) if n % 3 for each in a]
        places = np.random.default_rng(0).permutation(len(others))[:rows]
        chosen = [others[place] for place in places]
        self.pairs = as_columns(
            text=[paragraph["qas"][0]["question"] for paragraph in chosen],
            text_pair=[paragraph["context"] for paragraph in chosen],
        )
        self.others = [paragraph["context"] for paragraph in others]

    def score(self, encode: Encode) -> float:
        documents, queries = (
            unit_rows(encode(x)) for x in (self.documents, self.queries)
        )
        rows, _ = PackedVectors.of(documents).nearest(queries, TOP)
        return ndcg(self.grades, rows)


def our_encoder(encoder: str, pairs: Columns, run: Run) -> Encode:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        bert_keras.train(
            "embedding",
            encoder=encoder,
            train=pairs,
            output=place,
            config=run.config(PARAGRAPH),
        )
        predictor = load_embedder(place)
    return lambda texts: embed(predictor, texts)


def peer_encoder(encoder: str, pairs: Columns, run: Run) -> Encode:
    import torch
    from sentence_transformers import SentenceTransformer, util
    from sentence_transformers.sentence_transformer.losses import (
        MultipleNegativesRankingLoss,
    )

    torch.manual_seed(run.seed)
    model = SentenceTransformer(encoder, device="cpu")
    model.max_seq_length = PARAGRAPH
    loss = MultipleNegativesRankingLoss(
        model,
        scale=20.0,
        similarity_fct=util.cos_sim,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )
    negatives = [each[0] for each in pairs["negative"]]
    parts = (pairs["text"], pairs["text_pair"], negatives)

    def loss_of(places: np.ndarray) -> Any:
        texts = [[part[at] for at in places] for part in parts]
        return loss([model.preprocess(each) for each in texts], None)

    train_peer(model, loss_of, len(pairs), run)
    return lambda texts: model.encode(texts, show_progress_bar=False)


def show_squad(encoder: str, rows: int, epochs: int, seeds: int) -> None:
    """Search paragraphs by questions, before and after training with negatives."""
    from sentence_transformers import SentenceTransformer

    data = Squad(rows)
    print(f"{len(data.queries)} questions, {len(data.documents)} paragraphs")
    predictor, peer = load_embedder(encoder), SentenceTransformer(encoder, device="cpu")
    untrained = {
        "bert_keras": data.score(lambda texts: embed(predictor, texts)),
        "sentence-transformers": data.score(
            lambda texts: peer.encode(texts, show_progress_bar=False)
        ),
    }
    for name, score in untrained.items():
        print(f"{name}, untrained: nDCG@10 {score:.5f}", flush=True)
    if not seeds:
        return
    mined = mine_negatives(
        predictor, data.pairs, data.others, negatives=1, ranks=(1, 20), margin=0.0
    )
    print(mined, flush=True)
    has_one = [row for row, found in enumerate(mined.columns["negative"]) if found]
    pairs = mined.columns.take(has_one)
    sides = {"bert_keras": our_encoder, "sentence-transformers": peer_encoder}
    scores: dict[str, list[float]] = {name: [] for name in sides}
    for seed in range(seeds):
        for name, trained in sides.items():
            encode = trained(encoder, pairs, Run(seed, epochs, BATCH, PAIR_RATE))
            scores[name].append(data.score(encode))
            print(f"{name}, seed {seed}: nDCG@10 {scores[name][-1]:.5f}", flush=True)
    for name, found in scores.items():
        show_seeds(f"nDCG@10 of {name}, trained", found)


def show_kinds(options: argparse.Namespace) -> None:
    """Train vectors of tokens and whole ones on SQuAD, and print nDCG@10 of both."""
    data = Squad(options.rows, questions=1)
    print(f"{len(data.queries)} questions, {len(data.documents)} paragraphs")

    def score(queries: VectorStore, documents: VectorStore) -> float:
        asked = documents.asked(queries.numbers(slice(None)))
        found, _ = documents.compared().nearest(asked, TOP)
        return ndcg(data.grades, found)

    texts = {"query": data.queries, "document": data.documents}
    compare_kinds("nDCG@10", data.pairs, texts, score, options)


def show_answers(options: argparse.Namespace) -> None:
    """Train both on the right answers of TREC-QA, and print MAP of dev's answers."""
    dev, train = questions_of("dev.csv"), questions_of("train.csv")
    rows = rows_to_train(train, 0)
    print(f"{len(dev)} questions of dev; {len(rows)} right answers to train on")
    ends = np.cumsum([len(answers) for _, answers, _ in dev])

    def score(queries: VectorStore, documents: VectorStore) -> float:
        asked = documents.asked(queries.numbers(slice(None)))
        scores = []
        for place, (_, answers, _) in enumerate(dev):
            own = documents.take(slice(ends[place] - len(answers), ends[place]))
            found, values = own.compared().nearest(asked[[place]], len(answers))
            scores.append(values[0][np.argsort(found[0])])
        return show_rankings("  dev", dev, scores)

    texts = {
        "query": [text for text, _, _ in dev],
        "document": [answer for _, answers, _ in dev for answer in answers],
    }
    pairs = as_columns(
        text=[row["query"] for row in rows],
        text_pair=[row["document"] for row in rows],
    )
    compare_kinds("MAP", pairs, texts, score, options)


def compare_kinds(
    name: str,
    pairs: Columns,
    texts: Mapping[str, list[str]],
    score: Callable[[VectorStore, VectorStore], float],
    options: argparse.Namespace,
) -> None:
    """Train vectors of tokens and whole ones, and print the score of both.

    `texts` are those of the sides query and document, and `score` takes their vectors.
    """
    scores: dict[str, list[float]] = {"tokens": [], "dense": []}
    for seed, kind in itertools.product(range(options.seeds), scores):
        with tempfile.TemporaryDirectory() as folder:
            result = bert_keras.train(
                "embedding",
                encoder=options.encoder,
                train=pairs,
                output=Path(folder) / "model",
                config=bert_keras.TrainConfig(
                    epochs=options.epochs,
                    batch_size=BATCH,
                    learning_rate=options.learning_rate,
                    max_length=READ,
                    seed=seed,
                    validation_split=0,
                ),
                task_settings=settings_of(kind, options.units),
            )
            trained = load_embedder(result.folder, max_length=SEARCHED)
        queries, documents = (
            stored_vectors(with_prompt(trained, side), texts[side], BATCH)
            for side in ("query", "document")
        )
        scores[kind].append(score(queries, documents))
        print(f"{kind}, seed {seed}: {name} {scores[kind][-1]:.4f}", flush=True)
    for kind, found in scores.items():
        show_seeds(f"{name} of {kind}, trained", found)


def texts_to_align(data: Cranfield, more: int) -> list[str]:
    """Return titles and sentences of abstracts, and as many questions of SQuAD."""
    split = sentence_splitter("en")
    sentences = [each for text in data.abstracts for each in split(text)]
    paragraphs = itertools.chain.from_iterable(articles_of_squad())
    questions = [each["question"] for part in paragraphs for each in part["qas"]]
    rng = np.random.default_rng(0)
    drawn = [
        [texts[place] for place in rng.permutation(len(texts))[:more]]
        for texts in (sentences, questions)
    ]
    found = [*data.titles, *itertools.chain.from_iterable(drawn)]
    return [each for each in dict.fromkeys(found) if each.strip()]


def show_student(encoder: str, layers: str, epochs: int, more: int, seeds: int) -> None:
    """Print nDCG@10 of the queries of students on the index of their teacher."""
    data, teacher = Cranfield(), load_embedder(encoder)
    texts = as_columns(text=texts_to_align(data, more))
    print(f"{len(texts)} texts to learn from", flush=True)
    folder = tempfile.TemporaryDirectory()
    index = Path(folder.name) / "index.npz"
    SearchIndex.of(teacher, data.texts, index=index)

    def score(source: Any) -> float:
        found = evaluate_collection(teacher, data.collection, index=index, **source)
        return float(found["rankings"]["float32"]["ndcg_at_10"])

    whole, scores = score({}), []
    show("teacher", whole, whole)
    for seed in range(seeds):
        result = bert_keras.train(
            "embedding",
            train=texts,
            output=Path(folder.name) / f"student-{seed}",
            config=bert_keras.TrainConfig(
                teacher=encoder,
                keep_layers=layers,
                epochs=epochs,
                batch_size=2 * BATCH,
                max_length=SHORT,
                validation_split=0.02,
                seed=seed,
            ),
        )
        scores.append(score({"query_encoder": result.folder}))
        show(f"student of layers {layers}, seed {seed}", scores[-1], whole)
    show_seeds("nDCG@10 of students", scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--encoder", default=encoder_path(), help="folder of the encoder")
    add("--train", action="store_true", help="also train at several widths")
    add("--epochs", type=int, default=1, help="passes over the pairs; default: 1")
    add("--rows", type=int, default=1400, help="pairs to train on; default: 1400")
    add("--stsb", action="store_true", help="train on STS-B at several widths instead")
    add("--teacher", action="store_true", help="for --stsb: with whole vectors first")
    add("--more", action="store_true", help="for --teacher: pairs that it labels, too")
    add("--student-epochs", type=int, help="for --teacher; default: --epochs")
    add("--precision", default="float32", help="for --stsb; default: float32")
    add("--sparse", action="store_true", help="train sparse vectors instead")
    add("--tokens", action="store_true", help="train vectors of tokens instead")
    of_kinds = "for --sparse and --tokens"
    add("--max-length", type=int, default=256, help=f"tokens of a text; {of_kinds}")
    add("--documents", type=int, default=1400, help=f"of Cranfield; {of_kinds}")
    add("--learning-rate", type=float, help="for --tokens; default: by the task")
    add("--units", type=int, help="numbers of a token; 0: no projection; for --tokens")
    add("--trecqa", action="store_true", help="rank the answers of TREC-QA instead")
    add("--squad", action="store_true", help="questions to SQuAD's paragraphs instead")
    add("--student", help="layers of a student of the vectors instead, such as 0,2,4")
    add("--texts", type=int, default=4000, help="of each kind, for --student")
    add("--negatives", type=int, default=3, help="of a right answer; default: 3")
    add("--first", type=int, default=0, help="questions of SQuAD, for --trecqa")
    add(
        "--seeds",
        type=int,
        default=3,
        help="runs of --sparse, --tokens, --student, --trecqa or --squad, where 0 does "
        "not train; default: 3",
    )
    options = parser.parse_args()
    if options.trecqa and options.tokens:
        show_answers(options)
        return
    if options.trecqa:
        show_trecqa(
            options.encoder,
            options.negatives,
            options.epochs,
            options.seeds,
            options.first,
        )
        return
    if options.student:
        show_student(
            options.encoder,
            options.student,
            options.epochs,
            options.texts,
            options.seeds,
        )
        return
    if options.squad and options.tokens:
        show_kinds(options)
        return
    if options.squad:
        show_squad(options.encoder, options.rows, options.epochs, options.seeds)
        return
    if options.stsb:
        show_similarity(options)
        return
    if options.sparse or options.tokens:
        show_kind(
            "sparse" if options.sparse else "tokens",
            options.encoder,
            options.epochs,
            options.rows,
            options.max_length,
            options.documents,
            options.seeds,
            options.units,
            options.learning_rate,
        )
        return
    data = Cranfield()
    whole = show_types(data, options.encoder)
    show_peer(data, options.encoder, whole)
    if options.train:
        show_widths(data, options.encoder, options.epochs, options.rows)


if __name__ == "__main__":
    main()
