"""The words of a domain as new tokens of all-MiniLM-L6-v2: pieces and masked-LM loss.

    python benchmarks/domain_vocabulary.py [--words 1000] [--updates 60] [--seeds 2]

Learns the words that the vocabulary splits from 1,200 of Cranfield's 1,400 abstracts on
aerodynamics, and trains `masked-lm` on parts of 60 of their words: with these words as
added tokens and without, for the same number of updates on the same texts. The encoder
has no masked-LM head, so that both begin with a random one. Prints the pieces per word
of the other 200 abstracts, and the held-out loss in nats per word: every seventh word
is masked with all of its pieces, whose losses are added up, so that both sides predict
the same words.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from alternating import machine, result_of
from inputs import DATA, encoder_path

CORPUS = DATA / "cranfield/corpus.jsonl"
PART, BATCH, RATE, EVERY, HELD_OUT = 60, 16, 5e-4, 7, 200
SIDES = ("as it is", "with words")


def parts_of(texts: list[str]) -> list[str]:
    """Return the texts in parts of at most `PART` words."""
    words = [text.split() for text in texts]
    return [
        " ".join(each[start : start + PART])
        for each in words
        for start in range(0, len(each), PART)
    ]


def data() -> tuple[list[str], list[str]]:
    """Return the parts to train on, and those held out."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    return parts_of(texts[:-HELD_OUT]), parts_of(texts[-HELD_OUT:])


def run(side: str, options: argparse.Namespace) -> dict[str, float]:
    """Train a side with a seed; return pieces and loss per word."""
    import bert_keras
    from bert_keras.corpus.domain_words import learn_words

    trained, held_out = data()
    tokenizer = bert_keras.WordPieceTokenizer.from_folder(encoder_path())
    words = None
    if side == SIDES[1]:
        size = len(tokenizer) + options.words
        words = tuple(learn_words(trained, tokenizer, size=size, say=print))
    chosen = np.random.default_rng(options.seed).permutation(len(trained))
    with tempfile.TemporaryDirectory() as folder:
        result = bert_keras.train(
            "masked-lm",
            encoder=encoder_path(),
            train={"text": [trained[i] for i in chosen[: options.updates * BATCH]]},
            output=Path(folder) / "model",
            config=bert_keras.TrainConfig(
                epochs=1,
                batch_size=BATCH,
                learning_rate=RATE,
                max_length=128,
                validation_split=0.0,
                seed=options.seed,
                add_tokens=words,
            ),
            task_settings={"mask_unit": "word"},
        )
    return scores(result.model, held_out)


def scores(model: Any, parts: list[str]) -> dict[str, float]:
    """Return pieces per word, and nats per masked word, of held-out parts."""
    tokenizer = model.preprocessor.tokenizer
    total = words = pieces = hidden = 0
    for start in range(0, len(parts), BATCH):
        rows = [
            tokenizer(part.split()).to_list() for part in parts[start : start + BATCH]
        ]
        pieces += sum(len(word) for row in rows for word in row)
        words += sum(map(len, rows))
        hidden += sum(len(row[EVERY // 2 :: EVERY]) for row in rows)
        total += loss_of(model, rows)
    return {"pieces per word": pieces / words, "nats per word": total / hidden}


def loss_of(model: Any, rows: list[list[list[int]]]) -> float:
    """Return the sum of the losses of every seventh word of rows, all pieces masked."""
    import tensorflow as tf

    tokenizer = model.preprocessor.tokenizer
    lines, places, labels = [], [], []
    for row in rows:
        line, positions = [tokenizer.cls_id], []
        for number, word in enumerate(row):
            if number % EVERY == EVERY // 2:
                positions += range(len(line), len(line) + len(word))
                labels += word
                line += [tokenizer.mask_id] * len(word)
            else:
                line += word
        lines.append([*line, tokenizer.sep_id])
        places.append(positions)
    ids = tf.ragged.constant(lines, dtype=tf.int32)
    positions = tf.ragged.constant(places, dtype=tf.int32).to_tensor(-1)
    batch = {
        "token_ids": ids.to_tensor(tokenizer.pad_id),
        "segment_ids": tf.zeros_like(ids).to_tensor(),
        "padding_mask": tf.ones_like(ids).to_tensor(),
        "masked_positions": positions,
    }
    logits = tf.boolean_mask(model(batch, training=False), positions >= 0)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return float(tf.reduce_sum(losses))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, default=1000)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not CORPUS.is_file():
        print(f"skipped: {CORPUS} is absent (Cranfield in the layout of BEIR)")
        return
    if options.side:
        print(json.dumps(run(options.side, options)))
        return
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    given = ["--words", str(options.words), "--updates", str(options.updates)]
    for seed in range(options.seeds):
        for side in SIDES:
            command = [sys.executable, __file__, *given, "--side", side]
            scored = result_of([*command, "--seed", str(seed)], stderr=None)
            found[side].append(scored)
            shown = "  ".join(f"{name} {value:.3f}" for name, value in scored.items())
            print(f"seed {seed} {side:<11} {shown}", flush=True)
    for side, runs in found.items():
        means = {name: statistics.mean(r[name] for r in runs) for name in runs[0]}
        shown = "  ".join(f"{name} {value:.3f}" for name, value in means.items())
        print(f"mean   {side:<11} {shown}")
    print(json.dumps(machine()))


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
