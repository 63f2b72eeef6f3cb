"""Entity F1 on WNUT-17, compared with transformers, with several seeds each.

    python benchmarks/ner_quality.py [--data FOLDER] [--seeds 3] [--limit N]

Both sides train all-MiniLM-L6-v2 on the same 3,394 sentences, 3 epochs, batches of 32,
rate 2e-4, the first piece of each word labelled, and score the last epoch on the 1,287
test sentences. Prints precision, recall and F1 of each run (of our `entity_metrics`,
which equals seqeval), means and standard deviations. `--limit` takes the first N
sentences of each file, for a quick check.
"""

from __future__ import annotations

import argparse
import os
import random
from pathlib import Path
from typing import Any

import seeded_runs
from inputs import DATA, encoder_path

FILES = {"train": "wnut17train.conll", "test": "emerging.test.annotated"}
# The rate of our examples for this encoder; small encoders need more than BERT-base.
EPOCHS, BATCH, RATE, MAX_LENGTH = 3, 32, 2e-4, 128


def rows(data: Path, split: str, limit: int) -> Any:
    """Return the sentences of a file, as columns of words and tags."""
    from bert_keras.data.tagged import read_tagged

    columns = read_tagged(data / FILES[split])
    return columns.take(range(min(limit or len(columns), len(columns))))


def predict_bert_keras(train: Any, test: Any, seed: int) -> list[list[str]]:
    from bert_keras import Predictor, TokenClassification, TrainConfig
    from bert_keras.models.loading import new_model
    from bert_keras.training.updates import fit

    config = TrainConfig(
        epochs=EPOCHS,
        batch_size=BATCH,
        learning_rate=RATE,
        max_length=MAX_LENGTH,
        seed=seed,
    )
    task = TokenClassification.from_columns(train)
    model = new_model(task, encoder_path(), config)
    fit(model, train, config)
    return [row["tags"] for row in Predictor(model).predict(test["text"])]


def predict_transformers(train: Any, test: Any, seed: int) -> list[list[str]]:
    import torch
    from peer import PeerUpdates
    from transformers import AutoModelForTokenClassification, AutoTokenizer

    torch.manual_seed(seed)
    torch.set_num_threads(os.cpu_count() or 1)
    tags = ["O", *sorted({tag for row in train["label"] for tag in row} - {"O"})]
    tokenizer = AutoTokenizer.from_pretrained(encoder_path())
    model = AutoModelForTokenClassification.from_pretrained(
        encoder_path(), num_labels=len(tags)
    )

    def batch_of(sentences: list[list[str]]) -> Any:
        return tokenizer(
            sentences,
            is_split_into_words=True,
            truncation=True,
            max_length=MAX_LENGTH,
            padding="longest",
            return_tensors="pt",
        )

    def first_pieces(batch: Any, row: int) -> list[tuple[int, int]]:
        """Return the position of the first piece of each word, and the word."""
        words = batch.word_ids(row)
        return [
            (place, word)
            for place, word in enumerate(words)
            if word is not None and word != words[place - 1]
        ]

    steps = -(-len(train) // BATCH) * EPOCHS
    update = PeerUpdates(model, RATE, steps)
    order, shuffle = list(range(len(train))), random.Random(seed)
    for _ in range(EPOCHS):
        shuffle.shuffle(order)
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            batch = batch_of([train["text"][row] for row in chosen])
            labels = torch.full(batch["input_ids"].shape, -100)
            for at, row in enumerate(chosen):
                for place, word in first_pieces(batch, at):
                    labels[at, place] = tags.index(train["label"][row][word])
            update(model(**batch, labels=labels).loss)
    model.eval()
    found: list[list[str]] = []
    with torch.inference_mode():
        for start in range(0, len(test), BATCH):
            sentences = test["text"][start : start + BATCH]
            batch = batch_of(sentences)
            best = model(**batch).logits.argmax(-1).tolist()
            for at, sentence in enumerate(sentences):
                answer = ["O"] * len(sentence)  # also for truncated words
                for place, word in first_pieces(batch, at):
                    answer[word] = tags[best[at][place]]
                found.append(answer)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA / "wnut17")
    parser.add_argument("--limit", type=int, default=0, help="sentences; 0: all")
    seeded_runs.add_arguments(parser)
    options = parser.parse_args()
    if not options.data.is_dir():
        print(f"skipped: {options.data} is absent ({', '.join(FILES.values())})")
        return

    def one(side: str, seed: int) -> dict[str, float]:
        from bert_keras.scoring.entities import entity_scores

        train, test = (rows(options.data, split, options.limit) for split in FILES)
        predicted = globals()[f"predict_{side}"](train, test, seed)
        scores = entity_scores(test["label"], predicted)
        return {name: scores[name] for name in ("precision", "recall", "f1")}

    seeded_runs.run(options, one)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
