"""Scores of the default settings, compared with the best manual settings.

    python benchmarks/default_settings.py [--data emails sms100 …] [--seeds 3]
        [--minutes 60] [--rows N …] [--per-class 8] [--ways linear finetune …]
        [--plain] [--test-rows 1000] [--output F.json]

Runs `train` on all-MiniLM-L6-v2 with its defaults and with the settings of `HAND`, on
the e-mails of `examples/data`, 100 and 500 rows of the SMS Spam Collection, MRPC and
CoLA: with the first seed all settings, with the other seeds the defaults and the
manual settings that were best with the first. Prints the test score, the number of
epochs and the seconds of each run, then a table of means and standard deviations, and
whether the defaults are within one standard deviation of the best manual settings. The
test rows are the test e-mails, 1,000 other messages, and GLUE's dev rows (with a tenth
of the training rows as dev). A run that would start after `--minutes` is left out and
reported; with `--output`, scores are kept in a file, and the same command continues.

With `--ways`, ways of `WAYS` take the place of the settings by hand, and each seed
draws the training rows anew: `--rows`, which may be several numbers, or `--per-class`
of each class. AG News, BANKING77, the movie reviews, STS-B and SICK can then be named,
too. `--test-rows` are scored, of the movie reviews a quarter. `--plain` leaves out of
the encoder's folder what says that it was trained for vectors of texts.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from inputs import DATA, encoder_path

from bert_keras import Classification, Regression, Task, TrainConfig, train
from bert_keras.data.columns import Columns
from bert_keras.data.table import read_columns
from bert_keras.files.atomic import replaced_file

ROOT = Path(__file__).resolve().parents[1]
TEST_MESSAGES = 1000
BY_DEFAULT = "default"

# For each data set the settings that users would try manually.
SMALL = {
    "6 epochs, 2e-4, batch 16": TrainConfig(
        epochs=6, batch_size=16, learning_rate=2e-4
    ),
    "20 epochs, 1e-4, batch 16": TrainConfig(
        epochs=20, batch_size=16, learning_rate=1e-4
    ),
}
LARGE = {
    "3 epochs, 5e-5, batch 32": TrainConfig(
        epochs=3, batch_size=32, learning_rate=5e-5
    ),
    "4 epochs, 1e-4, batch 32": TrainConfig(
        epochs=4, batch_size=32, learning_rate=1e-4
    ),
}
MIDDLE = {
    **LARGE,
    "3 epochs, 5e-5, batch 16": TrainConfig(
        epochs=3, batch_size=16, learning_rate=5e-5
    ),
}
LARGEST = {
    **LARGE,
    "6 epochs, 1e-4, batch 32": TrainConfig(
        epochs=6, batch_size=32, learning_rate=1e-4
    ),
}
HAND = {
    "emails": SMALL,
    "sms100": SMALL,
    "sms500": SMALL,
    "mrpc": MIDDLE,
    "cola": LARGEST,
}


# Ways to train: the method, and settings of the task.
FINETUNE = TrainConfig(method="finetune")
WAYS: dict[str, tuple[TrainConfig, dict[str, Any]]] = {
    BY_DEFAULT: (TrainConfig(), {}),
    "linear": (TrainConfig(method="linear"), {}),
    "contrastive": (TrainConfig(method="contrastive"), {}),
    "finetune": (FINETUNE, {}),
    "finetune-mean": (FINETUNE, {"pooling": "mean"}),
    "probe-mean": (
        TrainConfig(method="finetune", linear_probe=True),
        {"pooling": "mean"},
    ),
}


@dataclasses.dataclass(frozen=True)
class Data:
    """Rows of a task, and the score to report."""

    train: Columns
    dev: Columns | None
    test: Columns
    score: str
    task: type[Task] = Classification

    def drawn(
        self, rows: int | None, per_class: int | None, seed: int, *, tests: int
    ) -> Data:
        """Return the data with random training rows, few test rows, and no dev rows.

        There are so many `rows`, or so many of each class; `None`: all.
        """
        order = np.random.default_rng(seed).permutation(len(self.train)).tolist()
        if per_class:
            of_class: dict[Any, list[int]] = {}
            for row in order:
                of_class.setdefault(self.train["label"][row], []).append(row)
            order = [n for found in of_class.values() for n in found[:per_class]]
        train = self.train.take(sorted(order[:rows]))
        some = np.random.default_rng(0).permutation(len(self.test))
        test = self.test.take(sorted(some[:tests].tolist()))
        return dataclasses.replace(self, train=train, dev=None, test=test)


def emails(seed: int) -> Data:
    folder = ROOT / "examples/data/emails"
    train, dev, test = (
        Classification.read(folder / f"{name}.csv") for name in ("train", "dev", "test")
    )
    return Data(train, dev, test, "accuracy")


def sms() -> Columns:
    return read_columns(
        DATA / "sms_spam/SMSSpamCollection",
        columns={"label": 0, "text": 1},
        header="no",
    )


def messages(count: int, seed: int) -> Data:
    rows = sms()
    order = np.random.default_rng(seed).permutation(len(rows))
    test = rows.take(sorted(order[-TEST_MESSAGES:]))
    return Data(rows.take(sorted(order[:count])), None, test, "accuracy")


def glue(name: str, score: str, columns: dict[str, Any], header: str) -> Data:
    train, test = (
        read_columns(DATA / f"glue_{name}/{part}.tsv", columns=columns, header=header)
        for part in ("train", "dev")
    )
    return Data(train, None, test, score)


def pairs(place: str, score: str, task: type[Task], **columns: Any) -> Data:
    train, test = (
        read_columns(DATA / place / f"{part}.tsv", columns=columns, header="yes")
        for part in ("train", "dev")
    )
    return Data(train, None, test, score, task)


PLAIN = {"text": "text", "label": "label"}


def news() -> Data:
    train, test = (
        read_columns(DATA / f"agnews/{part}.tsv", columns=PLAIN, header="yes")
        for part in ("pool", "val")
    )
    return Data(train, None, test, "accuracy")


def queries() -> Data:
    columns = {"text": "text", "label": "category"}
    train, test = (
        read_columns(DATA / f"banking77/{part}.csv", columns=columns, header="yes")
        for part in ("train", "test")
    )
    return Data(train, None, test, "accuracy")


def split(rows: Columns, score: str) -> Data:
    """Return data whose test rows are a random third of the rows."""
    order = np.random.default_rng(0).permutation(len(rows)).tolist()
    end = len(rows) // 3
    train, test = (rows.take(sorted(part)) for part in (order[end:], order[:end]))
    return Data(train, None, test, score)


STSB = {"text": "sentence1", "text_pair": "sentence2", "label": "score"}
SICK = {each: each for each in ("text", "text_pair", "label")}
MRPC = {"text": "#1 String", "text_pair": "#2 String", "label": "Quality"}
SETS = {
    "emails": emails,
    "sms100": lambda seed: messages(100, seed),
    "sms500": lambda seed: messages(500, seed),
    "mrpc": lambda seed: glue("mrpc", "accuracy", MRPC, "yes"),
    "cola": lambda seed: glue(
        "cola", "matthews_correlation", {"text": 3, "label": 1}, "no"
    ),
    "agnews": lambda seed: news(),
    "banking": lambda seed: queries(),
    "sms": lambda seed: split(sms(), "macro_f1"),
    "reviews": lambda seed: split(
        read_columns(DATA / "movie_reviews/reviews.csv", columns=PLAIN, header="yes"),
        "accuracy",
    ),
    "stsb": lambda seed: pairs("glue_stsb", "spearman", Regression, **STSB),
    "sick": lambda seed: pairs("sick", "accuracy", Classification, **SICK),
}


def without_vectors(folder: Path) -> str:
    """Return a copy of the encoder without the files of sentence-transformers."""
    kept = ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json")
    for name in kept:
        source = Path(encoder_path()) / name
        if source.exists():
            shutil.copy(source, folder / name)
    return str(folder)


def scored(
    data: Data,
    config: TrainConfig,
    seed: int,
    *,
    encoder: str,
    settings: dict[str, Any],
) -> tuple[float, int]:
    """Train with a seed; return the test score and the number of epochs."""
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            data.task,
            encoder=encoder,
            task_settings=settings,
            train=data.train,
            dev=data.dev,
            test=data.test,
            output=Path(folder) / "model",
            config=dataclasses.replace(config, seed=seed),
        )
    keras.backend.clear_session()
    last = max((row["epoch"] for row in result.history), default=0)
    return float(result.scores["test"][data.score]), int(last)


def best_of(scores: dict[str, dict[str, float]]) -> tuple[str, ...]:
    """Return the defaults and the manual settings with the best first score."""
    others = [how for how in scores if how != BY_DEFAULT]
    return (BY_DEFAULT, *sorted(others, key=lambda how: -scores[how]["1"])[:1])


def show(name: str, scores: dict[str, dict[str, float]]) -> None:
    """Print means, deviations and the result of the comparison for one data set."""
    found = {how: list(by_seed.values()) for how, by_seed in scores.items()}
    for how, values in found.items():
        spread = f"± {statistics.stdev(values):.3f}" if len(values) > 1 else "(1 seed)"
        print(f"{name:<24}{how:<28}{statistics.mean(values):.3f} {spread}")
    best = best_of(scores)[-1]
    if best == BY_DEFAULT or BY_DEFAULT not in found:
        return
    if min(len(found[BY_DEFAULT]), len(found[best])) < 2:
        print(f"{name:<24}too few seeds to compare")
        return
    gap = statistics.mean(found[best]) - statistics.mean(found[BY_DEFAULT])
    spread = statistics.stdev(found[best])
    word = "within" if gap <= spread else "not within"
    print(f"{name:<24}defaults are {word} one deviation of the best settings ({best})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=SETS, default=list(HAND))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[])
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--minutes",
        type=float,
        default=60,
        help="do not start runs after this many minutes",
    )
    parser.add_argument("--output", type=Path, help="JSON file of scores")
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[], help="most training rows"
    )
    parser.add_argument("--per-class", type=int, nargs="+", default=[])
    parser.add_argument("--test-rows", type=int, default=TEST_MESSAGES)
    options = parser.parse_args()
    started, left_out = time.perf_counter(), []
    encoder = encoder_path()
    if options.plain:
        encoder = without_vectors(Path(tempfile.mkdtemp()))
    # Scores by data, settings and seed.
    found: dict[str, dict[str, dict[str, float]]] = {}
    if options.output and options.output.exists():
        found = json.loads(options.output.read_text(encoding="utf-8"))
    sizes = [(rows, None) for rows in options.rows]
    sizes += [(None, count) for count in options.per_class]
    cells = list(itertools.product(options.data, sizes or [(None, None)]))
    # Seeds in the outer loop, so that a time limit affects all settings alike.
    for seed, (name, (rows, per_class)) in itertools.product(
        range(1, options.seeds + 1), cells
    ):
        if name != "emails" and not DATA.is_dir():
            print(f"{name}: skipped, there is no {DATA}")
            continue
        data = SETS[name](seed)
        cell = f"{name} {rows or ''}{f'{per_class} a class' if per_class else ''}"
        if options.ways:
            tests = options.test_rows // (4 if name == "reviews" else 1)
            data = data.drawn(rows, per_class, seed, tests=tests)
        elif rows:
            some = range(min(rows, len(data.train)))
            data = dataclasses.replace(data, train=data.train.take(some))
        scores = found.setdefault(cell.strip(), {})
        ways = {how: WAYS[how] for how in options.ways or [BY_DEFAULT]}
        if data.task is Regression:
            ways.pop("contrastive", None)
        if not options.ways:
            ways |= {how: (config, {}) for how, config in HAND[name].items()}
            if seed > 1:
                ways = {how: ways[how] for how in best_of(scores)}
        for how, (config, settings) in ways.items():
            if str(seed) in scores.get(how, {}):
                continue
            start, used = time.perf_counter(), time.process_time()
            if start - started > 60 * options.minutes:
                left_out.append(f"{cell} {how} seed {seed}")
                continue
            score, epochs = scored(
                data, config, seed, encoder=encoder, settings=settings
            )
            scores.setdefault(how, {})[str(seed)] = score
            if options.output:
                with replaced_file(options.output) as temporary:
                    temporary.write_text(json.dumps(found, indent=1))
            print(
                f"{cell:<24}{how:<28}seed {seed}  {data.score} {score:.3f}  "
                f"{epochs} epochs  {time.perf_counter() - start:.0f} s, "
                f"{time.process_time() - used:.0f} s of processors",
                flush=True,
            )
    print()
    for name, scores in found.items():
        show(name, scores)
    if left_out:
        print(f"left out after {options.minutes:g} minutes: {'; '.join(left_out)}")


if __name__ == "__main__":
    main()
