"""Question answering on half of SQuAD 1.1's dev set, compared with transformers.

    python benchmarks/squad_quality.py [--data FILE] [--seeds 3] [--epochs 1]

Both sides train all-MiniLM-L6-v2 on four of five articles, with batches of 8, learning
rate 1e-4 and windows of 384 tokens, and answer the questions of the others after the
last epoch. The reference is a plain torch loop with the windows and the n-best search
of transformers' `run_qa` example. Prints EM and F1 of each run, means and standard
deviations.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path
from typing import Any

import seeded_runs
from inputs import DATA, encoder_path

from bert_keras.data.columns import Columns
from bert_keras.data.squad import place_of, read_squad
from bert_keras.scoring.answers import squad1_scores

# A learning rate and batch size with which a small encoder learns in one epoch.
BATCH, RATE, MAX_LENGTH, STRIDE, MAX_ANSWER, N_BEST = 8, 1e-4, 384, 128, 30, 20


def split(path: Path, limit: int | None) -> tuple[Columns, Columns]:
    """Return training and dev questions; every fifth article is for dev."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    ids = [
        {q["id"] for p in article["paragraphs"] for q in p["qas"]}
        for article in articles
    ]
    held_out = set().union(*ids[::5])
    columns = read_squad(path)
    rows = range(len(columns))
    dev = [row for row in rows if columns["id"][row] in held_out]
    train = [row for row in rows if columns["id"][row] not in held_out]
    return columns.take(train[:limit]), columns.take(dev[:limit])


def answer_bert_keras(train: Columns, dev: Columns, seed: int, epochs: int) -> Any:
    from bert_keras import Predictor, TrainConfig
    from bert_keras.models.loading import new_model
    from bert_keras.tasks.question_answering.task import QuestionAnswering
    from bert_keras.training.updates import fit

    config = TrainConfig(
        epochs=epochs,
        batch_size=BATCH,
        learning_rate=RATE,
        max_length=MAX_LENGTH,
        seed=seed,
    )
    model = new_model(QuestionAnswering(), encoder_path(), config)
    fit(model, train, config)
    items = list(zip(dev["question"], dev["context"], strict=True))
    return [row["answer"] for row in Predictor(model).predict(items)]


class SpanPeer:
    """`BertForQuestionAnswering` of transformers, trained and used in its usual way."""

    def __init__(self, seed: int) -> None:
        import torch
        from transformers import AutoModelForQuestionAnswering, AutoTokenizer

        torch.manual_seed(seed)
        torch.set_num_threads(os.cpu_count() or 1)
        self.seed = seed
        self.tokenizer = AutoTokenizer.from_pretrained(encoder_path())
        self.model = AutoModelForQuestionAnswering.from_pretrained(encoder_path())

    def windows(self, columns: Columns) -> list[dict[str, Any]]:
        """Return the windows of all questions, each with its row."""
        found = self.tokenizer(
            [text.lstrip() for text in columns["question"]],
            columns["context"],
            truncation="only_second",
            max_length=MAX_LENGTH,
            stride=STRIDE,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        made = []
        for i, row in enumerate(found["overflow_to_sample_mapping"]):
            parts = found.sequence_ids(i)
            offsets = [
                pair if part == 1 else None
                for pair, part in zip(found["offset_mapping"][i], parts, strict=True)
            ]
            fields = ("input_ids", "token_type_ids", "attention_mask")
            inputs = {key: found[key][i] for key in fields}
            made.append({"row": row, "offsets": offsets, "inputs": inputs})
        return made

    def batch(self, windows: list[dict[str, Any]]) -> Any:
        inputs = [window["inputs"] for window in windows]
        return self.tokenizer.pad(inputs, padding="longest", return_tensors="pt")

    def fine_tune(self, train: Columns, epochs: int) -> None:
        import torch
        from peer import PeerUpdates

        windows = self.windows(train)
        for window in windows:
            row = window["row"]
            place = place_of(train["context"][row], train["answers"][row])
            window["target"] = target(window["offsets"], place)
        steps = -(-len(windows) // BATCH) * epochs
        update = PeerUpdates(self.model, RATE, steps)
        shuffle = random.Random(self.seed)
        for _ in range(epochs):
            shuffle.shuffle(windows)
            for start in range(0, len(windows), BATCH):
                part = windows[start : start + BATCH]
                places = torch.tensor([window["target"] for window in part])
                found = self.model(
                    **self.batch(part),
                    start_positions=places[:, 0],
                    end_positions=places[:, 1],
                )
                update(found.loss)

    def answer(self, columns: Columns) -> list[str]:
        import torch

        windows = self.windows(columns)
        windows.sort(key=lambda window: len(window["offsets"]))
        best: list[tuple[float, str]] = [(-1e9, "")] * len(columns)
        self.model.eval()
        with torch.inference_mode():
            for first in range(0, len(windows), BATCH):
                part = windows[first : first + BATCH]
                found = self.model(**self.batch(part))
                for i, window in enumerate(part):
                    logits = found.start_logits[i], found.end_logits[i]
                    score, (start, end) = best_span(*logits, window["offsets"])
                    text = columns["context"][window["row"]][start:end]
                    best[window["row"]] = max(best[window["row"]], (score, text))
        return [text for _, text in best]


def target(offsets: list[Any], place: tuple[int, int]) -> tuple[int, int]:
    """Return the tokens of an answer, or of `[CLS]` if the window lacks it."""
    inside = [i for i, pair in enumerate(offsets) if pair is not None]
    start, end = place
    if offsets[inside[0]][0] > start or offsets[inside[-1]][1] < end:
        return 0, 0
    first = max(i for i in inside if offsets[i][0] <= start)
    return first, min(i for i in inside if offsets[i][1] >= end)


def best_span(starts: Any, ends: Any, offsets: list[Any]) -> Any:
    """Return score and characters of the best span among the highest logits."""
    size = len(offsets)
    best: Any = (-1e9, (0, 0))
    for start in starts[:size].topk(min(N_BEST, size)).indices.tolist():
        for end in ends[:size].topk(min(N_BEST, size)).indices.tolist():
            if offsets[start] is None or offsets[end] is None:
                continue
            if start <= end < start + MAX_ANSWER:
                score = float(starts[start] + ends[end])
                best = max(best, (score, (offsets[start][0], offsets[end][1])))
    return best


def answer_transformers(train: Columns, dev: Columns, seed: int, epochs: int) -> Any:
    peer = SpanPeer(seed)
    peer.fine_tune(train, epochs)
    return peer.answer(dev)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    half = DATA / "squad_v1.1/half.json"
    parser.add_argument("--data", type=Path, default=half)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--limit", type=int, help="maximum questions of each split")
    seeded_runs.add_arguments(parser)
    options = parser.parse_args()
    if not options.data.is_file():
        print(f"skipped: {options.data} is absent (SQuAD 1.1's JSON)")
        return

    def one(side: str, seed: int) -> dict[str, float]:
        train, dev = split(options.data, options.limit)
        answers = globals()[f"answer_{side}"](train, dev, seed, options.epochs)
        golds = [[text for text, _ in given] for given in dev["answers"]]
        scores = squad1_scores(golds, answers)
        return {"EM": scores["exact_match"], "F1": scores["f1"]}

    seeded_runs.run(options, one)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
