"""Long documents: accuracy, speed and memory of the ways to read them.

    python benchmarks/long_documents.py [--only linear-128 linear-windows-128]
        [--folds 5] [--rows 400] [--test-rows 400] [--epochs N] [--work FOLDER]
    python benchmarks/long_documents.py --speed [--size base] [--documents 64]
        [--batch 8]
    python benchmarks/long_documents.py --memory [--words 100000]

Accuracy is measured on movie reviews of 746 words (Pang and Lee 2004) with
all-MiniLM-L6-v2. Each fold takes other random reviews to train, and others to test:
the same for all ways. `tf-idf` is scikit-learn's logistic regression on words and pairs
of words of the whole texts; `linear-…` fits a head on vectors of the encoder as it is,
`finetune-…` trains all weights, `probed-…` does so with the settings that `train` takes
for long texts, after it has fitted the head, and `defaults` is `train` without any
option. The number is the tokens of a row. `train` sets a tenth of the rows aside for
dev when it fine-tunes. Fine-tuning takes minutes to half an hour for a fold; with
`--work`, the same command continues an interrupted run. Needs scikit-learn.

`--speed` trains and predicts on windows of reviews, random weights, beside the same
network in transformers with all windows padded to their length and to the same number;
real tokens are counted. At the size of BERT-base, a batch of 8 takes transformers more
than 20 GB. Needs torch and transformers. `--memory` prints the peak of
updates on documents of so many words, by `train_windows`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from alternating import result_of
from inputs import DATA, encoder_path, write_random

LENGTHS = (128, 256, 512)
READINGS: dict[str, dict[str, Any]] = {
    **{f"{length}": {"max_length": length} for length in LENGTHS},
    "head-tail-512": {"max_length": 512, "long": "head-tail"},
    **{
        f"windows-{length}": {"max_length": length, "long": "windows"}
        for length in LENGTHS
    },
}
METHODS = ("linear", "finetune", "probed")
WAYS = (
    "tf-idf",
    *(f"{method}-{reading}" for method in METHODS for reading in READINGS),
    "defaults",
)
SIDES = ("bert_keras", "transformers")
WINDOW, RATE = 256, 5e-5
CLASSES = ("neg", "pos")
HIDDEN_SIZE = 384  # of all-MiniLM-L6-v2


def reviews() -> Any:
    """Return the reviews, `text` and `label`."""
    from bert_keras import Classification

    return Classification.read(DATA / "movie_reviews/reviews.csv")


def fold_of(count: int, number: int, options: argparse.Namespace) -> list[list[int]]:
    """Return the rows to train on and to test on."""
    order = np.random.default_rng(number).permutation(count).tolist()
    end = options.rows + options.test_rows
    return [order[: options.rows], order[options.rows : end]]


# Accuracy.


def accuracy_of_tf_idf(rows: Any, test: Any) -> float:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        LogisticRegression(C=10.0, max_iter=1000),
    )
    model.fit(rows["text"], rows["label"])
    return float(model.score(test["text"], test["label"]))


def trained(
    way: str, rows: Any, test: Any, seed: int, options: argparse.Namespace
) -> float:
    """Return the accuracy of `train`; `way` begins with its method."""
    from bert_keras import Classification, TrainConfig, train
    from bert_keras.models.folder import Folder
    from bert_keras.training.lengths import probed
    from bert_keras.training.methods import head_settings

    method, _, reading = way.partition("-")
    given = dict(READINGS.get(reading, {}))
    length = given.pop("max_length", None)
    if options.train_windows is not None and given.get("long") == "windows":
        given["train_windows"] = options.train_windows
    config = TrainConfig(
        method="linear" if method == "linear" else "finetune",
        seed=seed,
        max_length=length,
        epochs=options.epochs if method != "linear" else None,
        precision=options.precision,
        explain_mistakes=0,
    )
    if method == "probed":
        given = head_settings(Folder.open(encoder_path()), given)
        config = probed(config, Classification(CLASSES), HIDDEN_SIZE)
    result = train(
        Classification,
        encoder=encoder_path(),
        train=rows,
        test=test,
        output=options.work / f"{way}-{seed}",
        config=config,
        task_settings=given,
    )
    return float(result.scores["test"]["accuracy"])


def vectors_of(reading: str, texts: Any, work: Path) -> np.ndarray:
    """Return what a linear head reads of all reviews, float32 [N, H], kept in `work`.

    The encoder is not trained, so that the vectors are the same in all folds.
    """
    from bert_keras import Classification, TaskModel
    from bert_keras.inference.predictor import Predictor
    from bert_keras.models.folder import Folder
    from bert_keras.training.head_fit import HeadInputs
    from bert_keras.training.methods import head_settings

    path = work / f"vectors-{reading}-{len(texts)}.npy"
    if not path.is_file():
        given = dict(READINGS[reading])
        length = given.pop("max_length")
        task = Classification.from_columns(
            texts, **head_settings(Folder.open(encoder_path()), given)
        )
        model = TaskModel.from_pretrained(
            encoder_path(), task, max_length=length, layout="packed"
        )
        found = Predictor(HeadInputs(model), freeze=False).answers(texts, batch_size=8)
        np.save(path, found["vector"])
    return np.load(path)


def fitted(
    x: np.ndarray, texts: Any, rows: list[int], test: list[int], seed: int
) -> float:
    """Return the accuracy of the head that `train` fits with `method` linear."""
    from bert_keras.training.linear_head import (
        cross_validate,
        fit_head,
        stratified_folds,
    )

    labels = np.array(texts["label"])
    classes = np.unique(labels)
    targets = (labels[:, None] == classes).astype("float64")
    strata = [(label,) for label in labels[rows].tolist()]
    found = cross_validate(
        x[rows],
        targets[rows],
        stratified_folds(strata, seed=seed),
        loss="softmax",
    )
    (head,) = fit_head(x[rows], targets[rows], loss="softmax", l2=found.l2)
    answers = classes[head(x[test]).argmax(axis=1)]
    return float((answers == labels[test]).mean())


def accuracy(way: str, number: int, options: argparse.Namespace) -> float:
    """Return the accuracy of a way on the test rows of a fold."""
    texts = reviews()
    if options.reviews:
        texts = texts.take(range(options.reviews))
    rows, test = fold_of(len(texts), number, options)
    if way.startswith("linear-"):
        x = vectors_of(way.removeprefix("linear-"), texts, options.work)
        return fitted(x, texts, rows, test, number)
    parts = texts.take(rows), texts.take(test)
    if way == "tf-idf":
        return accuracy_of_tf_idf(*parts)
    return trained(way, *parts, number, options)


def accuracies(options: argparse.Namespace) -> None:
    """Print the accuracy of each fold, then mean and standard deviation by way."""
    options.work.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[float]] = {}
    for number in range(1, options.folds + 1):
        for way in options.only:
            done = options.work / f"{way}-{number}.json"
            if not done.is_file():
                command = [sys.executable, *sys.argv, "--work", str(options.work)]
                command += ["--one", way, str(number)]
                start = time.perf_counter()
                result = result_of(command)
                result["seconds"] = time.perf_counter() - start
                done.write_text(json.dumps(result))
            result = json.loads(done.read_text())
            found.setdefault(way, []).append(result["accuracy"])
            print(
                f"fold {number}  {way:<24} {result['accuracy']:.4f}  "
                f"({result['seconds']:.0f} s)",
                flush=True,
            )
    for way, values in found.items():
        spread = np.std(values, ddof=1) if len(values) > 1 else float("nan")
        print(f"{way:<24} {np.mean(values):.4f} ± {spread:.4f}  {len(values)} folds")


# Speed and memory.


def ours(
    folder: Path, texts: list[str], labels: list[str], batch: int
) -> dict[str, float]:
    """Return the seconds of training and of predicting, without the first batch."""
    from bert_keras import TrainConfig, as_columns, load_model, load_predictor
    from bert_keras.training.updates import fit

    ends: list[float] = []
    config = TrainConfig(epochs=1, batch_size=batch, learning_rate=RATE)
    columns = as_columns(text=texts, label=labels)
    model = load_model(folder)
    fit(model, columns, config, after_update=lambda _: ends.append(time.perf_counter()))
    predictor = load_predictor(folder)
    predictor.predict(texts, batch_size=batch)
    start = time.perf_counter()
    predictor.predict(texts, batch_size=batch)
    done = time.perf_counter() - start
    return {"train": ends[-1] - ends[0], "updates": len(ends), "predict": done}


def theirs(
    folder: Path, texts: list[str], labels: list[str], batch: int
) -> dict[str, float]:
    """Return `ours` of transformers: all windows of a batch in one padded tensor."""
    import torch
    from peer import PeerUpdates
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder)

    def logits_of(start: int) -> torch.Tensor:
        found = tokenizer(
            texts[start : start + batch],
            truncation=True,
            max_length=WINDOW,
            padding="max_length",
            return_overflowing_tokens=True,
            return_tensors="pt",
        )
        owners = found.pop("overflow_to_sample_mapping")
        counts = owners.bincount()
        most = int(counts.max())  # every text has as many windows
        places = torch.cat([torch.arange(int(count)) for count in counts])
        at = owners * most + places
        rows = {
            name: torch.zeros(len(counts) * most, WINDOW, dtype=torch.long)
            for name in ("input_ids", "attention_mask")
        }
        for name, row in rows.items():
            row[at] = found[name]
        rows["attention_mask"][:, 0] = 1
        vectors = model.bert(**rows).pooler_output
        is_window = torch.zeros(len(vectors))
        is_window[at] = 1.0
        sums = (vectors * is_window[:, None]).view(len(counts), most, -1).sum(1)
        return model.classifier(model.dropout(sums / counts[:, None]))

    starts = range(0, len(texts), batch)
    update, ends = PeerUpdates(model, RATE, len(starts)), []
    numbers = torch.tensor([CLASSES.index(label) for label in labels])
    for start in starts:
        targets = numbers[start : start + batch]
        update(torch.nn.functional.cross_entropy(logits_of(start), targets))
        ends.append(time.perf_counter())
    model.eval()
    with torch.inference_mode():
        logits_of(0)
        begun = time.perf_counter()
        for start in starts:
            logits_of(start)
    done = time.perf_counter() - begun
    return {"train": ends[-1] - ends[0], "updates": len(ends), "predict": done}


def speed(options: argparse.Namespace) -> None:
    """Print the real tokens per second of both sides, and their ratios."""
    from bert_keras import Classification, WordPieceTokenizer

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        task = Classification(CLASSES, long="windows", train_windows=1000)
        write_random(folder, options.size, task, max_length=WINDOW)
        texts = reviews()["text"][: options.documents]
        tokenizer = WordPieceTokenizer.from_folder(encoder_path())
        sizes = [len(pieces) for pieces in tokenizer.tokenize(texts)]
        tokens = sum(size + 2 * -(-size // (WINDOW - 2)) for size in sizes)
        found: dict[str, dict[str, float]] = {}
        for side in SIDES:
            command = [sys.executable, *sys.argv, "--side", side, str(folder)]
            result = result_of(command)
            share = (result["updates"] - 1) / result["updates"]
            found[side] = {
                "training": tokens * share / result["train"],
                "prediction": tokens / result["predict"],
            }
    for what in ("training", "prediction"):
        a, b = (found[side][what] for side in SIDES)
        print(
            f"{what:<11}{a:>9,.0f} tokens/s, transformers {b:,.0f}: {a / b:.2f} times"
        )


def one_side(side: str, folder: Path, options: Any) -> dict[str, float]:
    chosen = reviews().take(range(options.documents))
    measure = ours if side == SIDES[0] else theirs
    texts, labels = list(chosen["text"]), list(chosen["label"])
    return measure(folder, texts, labels, options.batch)


def memory(options: argparse.Namespace) -> None:
    """Print the peak memory of updates on long documents, by `train_windows`."""
    for train_windows in (4, 8, 16):
        command = [sys.executable, *sys.argv, "--peak", str(train_windows)]
        result = result_of(command)
        print(
            f"train_windows {train_windows:>3}: {result['mib']:,.0f} MiB above the "
            f"loaded model, {result['seconds']:.1f} s for 3 updates of 2 documents of "
            f"{options.words:,} words",
            flush=True,
        )


def peak(train_windows: int, words: int) -> dict[str, float]:
    from bert_keras import Classification, TaskModel, TrainConfig, as_columns
    from bert_keras.training.updates import fit

    task = Classification(CLASSES, long="windows", train_windows=train_windows)
    model = TaskModel.from_pretrained(
        encoder_path(), task, max_length=WINDOW, layout="packed"
    )
    draw = np.random.default_rng(0)
    found = " ".join(reviews()["text"][:200]).split()
    texts = [" ".join(draw.choice(found, words)) for _ in range(6)]
    columns = as_columns(text=texts, label=[*CLASSES] * 3)
    before, start = _peak(), time.perf_counter()
    fit(model, columns, TrainConfig(epochs=1, batch_size=2, learning_rate=RATE))
    return {"mib": _peak() - before, "seconds": time.perf_counter() - start}


def _peak() -> float:
    """Return the largest resident set of this process so far in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--test-rows", type=int, default=400)
    parser.add_argument("--reviews", type=int, help="only the first so many")
    parser.add_argument("--epochs", type=int, help="of fine-tuning")
    parser.add_argument("--train-windows", type=int)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--work", type=Path, help="folder of the results")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--size", default="base", help="of the encoder, for --speed")
    parser.add_argument(
        "--documents",
        type=int,
        default=64,
        help="for --speed; two batches or more",
    )
    parser.add_argument("--batch", type=int, default=8, help="documents, for --speed")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--words", type=int, default=100_000, help="for --memory")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--peak", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        way, number = options.one
        print(json.dumps({"accuracy": accuracy(way, int(number), options)}))
    elif options.side:
        side, folder = options.side
        print(json.dumps(one_side(side, Path(folder), options)))
    elif options.peak:
        print(json.dumps(peak(options.peak, options.words)))
    elif options.speed:
        speed(options)
    elif options.memory:
        memory(options)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            options.work = options.work or Path(temporary)
            accuracies(options)


if __name__ == "__main__":
    main()
