"""Tokens per second of `WordPieceTokenizer` and `tokenizers`, each in one thread.

    python benchmarks/tokenizer_speed.py [--data FOLDER] [--repeats 7] [--texts 8192]
        [--json FILE]

`FOLDER` holds `vocab/` and, for the texts, `wiki_en/` and `xcopa/`. Without them the
texts are Python's help topics, and the vocabulary is learned from them. Prints one line
for each kind of text and batch size: both rates and their ratio (ours / theirs), from
the medians of interleaved repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import pydoc_data.topics
import re
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import tensorflow as tf
import tokenizers
from alternating import machine, write_results
from inputs import DATA

from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.text.tokenizer_files import SPECIAL_TOKENS


def english(data: pathlib.Path, count: int) -> tuple[str, list[str], list[str]]:
    """Return the source, sentences and paragraphs of English text."""
    lines: list[str] = []
    for path in sorted((data / "wiki_en").glob("wiki_*")):
        lines += path.read_text(encoding="utf-8").splitlines()
        if len(lines) > 4 * count:
            break
    source = "English Wikipedia"
    if not lines:
        source = "Python help topics"
        topics = pydoc_data.topics.topics.values()
        lines = [p.replace("\n", " ") for text in topics for p in text.split("\n\n")]
    paragraphs = [p for p in lines if len(p) > 40 and not p.startswith("<")]
    sentences = [s for p in paragraphs for s in re.split(r"(?<=[.!?])\s+", p) if s]
    return source, sentences[:count], paragraphs[: count // 2]


def not_english(data: pathlib.Path, count: int) -> dict[str, list[str]]:
    """Return sentences in other languages, if the data exists."""
    texts = {}
    for name, file in (("Italian", "test.it.jsonl"), ("Chinese", "test.zh.jsonl")):
        path = data / "xcopa" / file
        if path.exists():
            rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
            found = [row[key] for row in rows for key in ("premise", "choice1")]
            texts[name] = (found * (count // len(found) + 1))[:count]
    return texts


def rate(run: Callable[[], int]) -> float:
    start = time.perf_counter()
    tokens = run()
    return tokens / (time.perf_counter() - start)


def compare(
    ours: WordPieceTokenizer,
    theirs: tokenizers.Tokenizer,
    texts: list[str],
    batch: int,
    repeats: int,
) -> tuple[float, float]:
    """Return the medians of tokens per second, ours and theirs."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def function(batch_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        ids = ours(batch_)
        return ids.values, ids.row_splits

    batches = [texts[i : i + batch] for i in range(0, len(texts), batch)]
    tensors = [tf.constant(b) for b in batches]

    def run_ours() -> int:
        return sum(int(function(x)[0].shape[0]) for x in tensors)

    def run_theirs() -> int:
        rows = (theirs.encode_batch(b, add_special_tokens=False) for b in batches)
        return sum(len(row.ids) for encoded in rows for row in encoded)

    if run_ours() != run_theirs():
        raise SystemExit("the two tokenizers differ on these texts")
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats):  # interleaved, so that a slow moment affects both
        rates[0].append(rate(run_ours))
        rates[1].append(rate(run_theirs))
    return statistics.median(rates[0]), statistics.median(rates[1])


def pair(
    vocabulary: list[str], *, lowercase: bool
) -> tuple[WordPieceTokenizer, tokenizers.Tokenizer]:
    ours = WordPieceTokenizer(vocabulary, lowercase=lowercase)
    model = tokenizers.models.WordPiece(
        {token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]"
    )
    theirs = tokenizers.Tokenizer(model)
    theirs.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=lowercase)
    theirs.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return ours, theirs


def read_vocabulary(data: pathlib.Path, name: str, texts: list[str]) -> list[str]:
    path = data / "vocab" / f"{name}-vocab.txt"
    if path.exists():
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    words = sorted({w for t in texts for w in re.findall(r"\w+|[^\w\s]", t.lower())})
    letters = sorted({c for word in words for c in word})
    pieces = [f"##{c}" for c in letters]
    return list(dict.fromkeys([*SPECIAL_TOKENS, *letters, *pieces, *words]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=DATA)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--texts", type=int, default=8192)
    parser.add_argument("--json", type=pathlib.Path, help="JSON file for all results")
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    data = pathlib.Path(args.data)
    print(
        "{processor}; Python {python}, TensorFlow {tensorflow}, ".format(**machine())
        + f"tokenizers {tokenizers.__version__}; one thread each, medians of "
        f"{args.repeats} interleaved repeats"
    )
    source, sentences, paragraphs = english(data, args.texts)
    uncased = pair(
        read_vocabulary(data, "bert-base-uncased", sentences), lowercase=True
    )
    cases = [
        (f"{source}, sentences", uncased, sentences),
        (f"{source}, paragraphs", uncased, paragraphs),
    ]
    for name, texts in not_english(data, args.texts).items():
        cased = read_vocabulary(data, "bert-base-multilingual-cased", texts)
        cases.append((f"{name} sentences", pair(cased, lowercase=False), texts))
    results = []
    for name, (ours, theirs), texts in cases:
        plain = sum(map(str.isascii, texts)) / len(texts)
        for batch in (1024, 32):
            mine, other = compare(ours, theirs, texts, batch, args.repeats)
            print(
                f"{name} ({plain:.0%} ASCII), batch {batch}: ours {mine / 1e6:.2f}M "
                f"tokens/s, tokenizers {other / 1e6:.2f}M, ratio {mine / other:.1f}",
                flush=True,
            )
            results.append(
                {"texts": name, "batch": batch, "ours": mine, "tokenizers": other}
            )
    write_results(args.json, results)


if __name__ == "__main__":
    main()
