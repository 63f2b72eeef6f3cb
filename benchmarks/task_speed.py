"""Training speed of each task per real token, relative to the classifier.

    python benchmarks/task_speed.py [--tasks NAME…] [--rounds 2] [--steps 16]

Each task trains all-MiniLM-L6-v2 on rows of random words, directly after a classifier
on texts of the same tokens. Measured are real tokens per second in batches of 32 rows,
without the first steps, in which the graph is traced. 1.00 is the speed of the
classifier, whose last block only computes `[CLS]`. Tasks that read every token, or
whose head needs more operations (the product with the vocabulary of masked-lm, the
BiLSTM of feature-tagging), are slower: the ratio expected from the operation count is
printed next to theirs. It takes about twenty minutes on two otherwise idle cores.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from typing import Any

from inputs import encoder_path

BATCH, SKIPPED = 32, 4
HIDDEN, LAYERS, FEED_FORWARD, VOCABULARY = 384, 6, 1536, 30_522
# Encoder weights that each token is multiplied with, without attention's products. In
# the last block the classifier only computes keys and values, except for [CLS]; so does
# summarization, and so does the masked LM except for masked tokens.
ENCODER_WEIGHTS = LAYERS * (4 * HIDDEN**2 + 2 * HIDDEN * FEED_FORWARD)
LEFT_OUT_WEIGHTS = 2 * HIDDEN**2 + 2 * HIDDEN * FEED_FORWARD
CLASSIFIER_WEIGHTS = ENCODER_WEIGHTS - LEFT_OUT_WEIGHTS
MASKED_SHARE = 0.15
UNITS = HIDDEN  # feature-tagging: two layers, both directions, on the last four blocks
LSTM_WEIGHTS = 2 * 4 * UNITS * ((4 * HIDDEN + UNITS) + (2 * UNITS + UNITS))
EVERY_TOKEN = ("embedding", "question-answering", "token-classification")
TASK_FLOORS = {
    **dict.fromkeys(EVERY_TOKEN, CLASSIFIER_WEIGHTS / ENCODER_WEIGHTS),
    "masked-lm": CLASSIFIER_WEIGHTS
    / (
        CLASSIFIER_WEIGHTS
        + MASKED_SHARE * (LEFT_OUT_WEIGHTS + VOCABULARY * HIDDEN + HIDDEN**2)
    ),
    # Trained weights are multiplied three times, frozen weights of the encoder once.
    "feature-tagging": 3 * CLASSIFIER_WEIGHTS / (ENCODER_WEIGHTS + 3 * LSTM_WEIGHTS),
}


class Texts:
    """Rows of random English words of one piece each, for every task."""

    def __init__(self, rows: int, encoder: str) -> None:
        from bert_keras import WordPieceTokenizer

        tokens = WordPieceTokenizer.from_folder(encoder).vocabulary[2000:6000]
        self.words = [token for token in tokens if token.isalpha() and token.isascii()]
        self.random = random.Random(7)
        self.rows = rows

    def some(self, least: int, most: int) -> str:
        count = self.random.randint(least, most)
        return " ".join(self.random.choices(self.words, k=count))

    def texts(self, least: int = 8, most: int = 60, rows: int = 0) -> list[str]:
        return [self.some(least, most) for _ in range(rows or self.rows)]

    def choose(self, values: list[Any]) -> list[Any]:
        return self.random.choices(values, k=self.rows)


def joined(*parts: list[str]) -> list[str]:
    """Return the texts of each row as one text, for the classifier."""
    return [" ".join(row) for row in zip(*parts, strict=True)]


def rows_of(name: str, made: Texts) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the columns of a task, and texts with the same number of tokens."""
    first, second = made.texts(), made.texts()
    if name in ("classification", "masked-lm"):
        label = {"label": made.choose(["a", "b"])} if name != "masked-lm" else {}
        return {"text": first, **label}, first
    if name == "multi-label":
        return {"text": first, "label": made.choose(["a", "b", "a, b"])}, first
    if name == "regression":
        numbers = [str(made.random.random()) for _ in first]
        return {"text": first, "label": numbers}, first
    if name == "next-sentence":
        labels = made.choose(["next", "not_next"])
        columns = {"text": first, "text_pair": second, "label": labels}
        return columns, joined(first, second)
    if name == "embedding":  # each text is its own row of the encoder
        texts = [text for pair in zip(first, second, strict=True) for text in pair]
        return {"text": first, "text_pair": second}, texts
    if name in ("token-classification", "feature-tagging"):
        words = [text.split() for text in first]
        tags = [[made.random.choice(["O", "B-x"]) for _ in row] for row in words]
        return {"text": words, "label": tags}, first
    if name == "multiple-choice":
        choices = [made.texts(4, 16, rows=4) for _ in first]
        texts = [
            f"{context} {choice}"
            for context, row in zip(first, choices, strict=True)
            for choice in row
        ]
        labels = made.choose(list("0123"))
        return {"context": first, "choices": choices, "label": labels}, texts
    if name == "question-answering":
        contexts = made.texts(80, 250)
        answers = [[(text.split()[40], _character(text, 40))] for text in contexts]
        questions = made.texts(6, 14)
        columns = {"question": questions, "context": contexts, "answers": answers}
        return columns, joined(questions, contexts)
    if name != "summarization":
        raise SystemExit(f"task_speed.py has no rows for {name}")
    sentences = [made.texts(8, 24, rows=8) for _ in first]
    documents = [" ".join(f"{each.capitalize()}." for each in row) for row in sentences]
    return {"document": documents, "summary": [row[0] for row in sentences]}, documents


def _character(text: str, word: int) -> int:
    return len(" ".join(text.split()[:word])) + 1


def speed(
    name: str, columns: dict[str, list[Any]], encoder: str, max_length: int
) -> float:
    """Return real tokens per second of training, without the first steps."""
    from bert_keras import TrainConfig, as_columns, find_task
    from bert_keras.models.loading import new_model
    from bert_keras.training.updates import fit

    seen: list[tuple[float, int]] = [(0.0, 0)]

    def clock(batches: Any) -> None:
        tokens = sum(int(inputs["padding_mask"].numpy().sum()) for inputs, _ in batches)
        seen.append((time.perf_counter(), seen[-1][1] + tokens))

    rows = as_columns(**columns)
    config = TrainConfig(epochs=1, batch_size=BATCH, max_length=max_length)
    model = new_model(find_task(name).from_columns(rows), encoder, config)
    fit(model, rows, config, after_update=clock)
    (start, before), (end, after) = seen[SKIPPED], seen[-1]
    return (after - before) / (end - start)


def main() -> None:
    from bert_keras.tasks import TASKS, find_task

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=16, help="timed steps of each run")
    options = parser.parse_args()
    encoder = encoder_path()
    made = Texts((options.steps + SKIPPED) * BATCH, encoder)
    warm = {"text": made.texts(), "label": made.choose(["a", "b"])}
    speed("classification", warm, encoder, 128)  # the first run of a process is slow
    for name in options.tasks:
        ratios = []
        for _ in range(options.rounds):
            columns, texts = rows_of(name, made)
            texts = texts[: made.rows]
            labels = made.choose(["a", "b"])
            plain_columns = {"text": texts, "label": labels}
            length = min(find_task(name).max_length, 512)
            plain = speed("classification", plain_columns, encoder, length)
            own = speed(name, columns, encoder, length)
            ratios.append(own / plain)
            print(
                f"{name:<21} {own:8,.0f} real tokens/s   classifier {plain:8,.0f}   "
                f"ratio {ratios[-1]:.2f}",
                flush=True,
            )
        floor = f"   (expected {TASK_FLOORS[name]:.2f})" if name in TASK_FLOORS else ""
        print(f"{name:<21} median ratio {statistics.median(ratios):.2f}{floor}")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
