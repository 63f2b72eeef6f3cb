"""Scores of the default settings, compared with ways chosen by hand.

    python benchmarks/default_settings.py [--data emails sms100 …] [--seeds 3]
        [--minutes 60] [--rows N …] [--per-class 8] [--plain] [--test-rows 1000]
        [--ways default linear finetune:pooling=mean logistic …] [--output F.json]

Runs `train` on all-MiniLM-L6-v2 with its defaults and in the ways of `HAND`, on the
e-mails of `examples/data`, 100 and 500 rows of the SMS Spam Collection, MRPC and CoLA:
with the first seed all ways, with the other seeds the defaults and the way that was
best with the first. Prints the test score, the choices of `train` and the processor
time of each run, then a table of means and standard deviations, and whether the
defaults are within one standard deviation of the best way. The test rows are the test
e-mails, 1,000 other messages, and GLUE's dev rows (with a tenth of the training rows as
dev). A run that would start after `--minutes` is left out and reported; with
`--output`, scores are kept in a file, and the same command continues.

`--ways` takes the place of `HAND`. A way is a method, or `default`, with options of
`TrainConfig` and settings of the task behind a colon: `finetune:epochs=4,pooling=mean`;
`logistic`, which needs scikit-learn and sentence-transformers, is logistic regression
on vectors of the texts. Each seed then draws the training rows anew: `--rows`, which
may be several numbers, or `--per-class` of each class, and all sets can be named.
`--test-rows` are scored, of the movie reviews a quarter. `--plain` leaves out of the
encoder's folder what says that it was trained for vectors of texts.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import ner_quality
import numpy as np
import squad_quality
from inputs import DATA, encoder_path

from bert_keras import (
    Classification,
    QuestionAnswering,
    Regression,
    Task,
    TokenClassification,
    TrainConfig,
    train,
)
from bert_keras.data.columns import Columns
from bert_keras.data.table import read_columns
from bert_keras.files.atomic import replaced_file
from bert_keras.scoring import spearman
from bert_keras.training import first_score

ROOT = Path(__file__).resolve().parents[1]
TEST_MESSAGES = 1000
BY_DEFAULT, REFERENCE = "default", "logistic"

# For each data set the ways that users would try by hand.
SMALL = (
    "finetune:epochs=6,batch_size=16,learning_rate=2e-4",
    "finetune:epochs=20,batch_size=16,learning_rate=1e-4",
)
LARGE = (
    "finetune:epochs=3,batch_size=32,learning_rate=5e-5",
    "finetune:epochs=4,batch_size=32,learning_rate=1e-4",
)
HAND = {
    "emails": SMALL,
    "sms100": SMALL,
    "sms500": SMALL,
    "mrpc": (*LARGE, "finetune:epochs=3,batch_size=16,learning_rate=5e-5"),
    "cola": (*LARGE, "finetune:epochs=6,batch_size=32,learning_rate=1e-4"),
}


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to train: options and settings of the task, in place of the defaults."""

    config: TrainConfig = TrainConfig(explain_mistakes=0)
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, spec: str) -> Way:
        """Return the way of a text such as `finetune:pooling=mean,epochs=4`."""
        method, _, others = spec.partition(":")
        given: dict[str, Any] = {}
        for name, _, value in (each.partition("=") for each in others.split(",")):
            try:
                given[name] = json.loads(value)
            except json.JSONDecodeError:
                given[name] = value
        given.pop("", None)
        if method != BY_DEFAULT:
            given["method"] = method
        fields = {each.name for each in dataclasses.fields(TrainConfig)}
        options = {name: value for name, value in given.items() if name in fields}
        settings = {name: given[name] for name in given.keys() - fields}
        return cls(dataclasses.replace(cls.config, **options), settings)


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
        some = np.random.default_rng(0).permutation(len(self.test))[:tests].tolist()
        if self.task is Classification:  # a class that was not drawn has no answer
            known = set(train["label"])
            some = [row for row in some if self.test["label"][row] in known]
        if self.task is TokenClassification:
            known = {tag for tags in train["label"] for tag in tags}
            some = [row for row in some if known.issuperset(self.test["label"][row])]
        test = self.test.take(sorted(some))
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


def tagged() -> Data:
    train, test = (
        ner_quality.rows(DATA / "wnut17", part, 0) for part in ner_quality.FILES
    )
    return Data(train, None, test, "f1", TokenClassification)


def questions() -> Data:
    train, test = squad_quality.split(DATA / "squad_v1.1/half.json", None)
    return Data(train, None, test, "f1", QuestionAnswering)


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
    "wnut": lambda seed: tagged(),
    "squad": lambda seed: questions(),
}


def without_vectors(folder: Path) -> str:
    """Return a copy of the encoder without the files of sentence-transformers."""
    kept = ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json")
    for name in kept:
        source = Path(encoder_path()) / name
        if source.exists():
            shutil.copy(source, folder / name)
    return str(folder)


def trained(data: Data, way: Way, seed: int, *, encoder: str) -> dict[str, Any]:
    """Train with a seed; return the test score, the choices and the processor time."""
    used = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            data.task,
            encoder=encoder,
            task_settings=dict(way.settings),
            train=data.train,
            dev=data.dev,
            test=data.test,
            output=Path(folder) / "model",
            config=dataclasses.replace(way.config, seed=seed),
        )
    keras.backend.clear_session()
    return {
        "score": float(result.scores["test"][data.score]),
        "choices": {row["name"]: str(row["value"]) for row in result.report["choices"]},
        "processor": time.process_time() - used,
    }


class Reference:
    """scikit-learn's logistic regression, of numbers ridge, on vectors of the texts.

    Of pairs, on the absolute difference and the product of both vectors. Each text is
    computed once.
    """

    def __init__(self, encoder: str) -> None:
        from sentence_transformers import SentenceTransformer

        self._model = SentenceTransformer(encoder, device="cpu")
        self._vectors: dict[str, np.ndarray] = {}

    def __call__(self, data: Data) -> dict[str, Any]:
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

        used = time.process_time()
        model = Ridge() if data.task is Regression else LogisticRegression(max_iter=999)
        labels, wanted = ([*rows["label"]] for rows in (data.train, data.test))
        if data.task is Regression:
            labels, wanted = ([*map(float, each)] for each in (labels, wanted))
        model.fit(self._inputs(data.train), labels)
        scores = {
            "accuracy": accuracy_score,
            "macro_f1": functools.partial(f1_score, average="macro"),
            "matthews_correlation": matthews_corrcoef,
            "spearman": spearman,
        }
        score = float(
            scores[data.score](wanted, model.predict(self._inputs(data.test)))
        )
        return {"score": score, "processor": time.process_time() - used}

    def _inputs(self, rows: Columns) -> np.ndarray:
        texts = [list(rows[name]) for name in ("text", "text_pair") if name in rows]
        new = sorted(set(itertools.chain(*texts)) - self._vectors.keys())
        found = self._model.encode(new, show_progress_bar=False) if new else ()
        self._vectors |= zip(new, found, strict=True)
        first, *others = (np.stack([self._vectors[t] for t in each]) for each in texts)
        for second in others:
            return np.concatenate([abs(first - second), first * second], axis=1)
        return first


Scores = dict[str, dict[str, dict[str, Any]]]  # by way and seed


def best_of(scores: Scores) -> tuple[str, ...]:
    """Return the defaults and the manual settings with the best mean score."""
    others = [how for how in scores if how not in (BY_DEFAULT, REFERENCE)]
    return (BY_DEFAULT, *sorted(others, key=lambda how: -_mean(scores[how]))[:1])


def _values(by_seed: Mapping[str, Mapping[str, Any]]) -> list[float]:
    return [found["score"] for found in by_seed.values()]


def _mean(by_seed: Mapping[str, Mapping[str, Any]]) -> float:
    return statistics.mean(_values(by_seed))


def show(name: str, scores: Scores) -> None:
    """Print means, deviations and the result of the comparison for one data set."""
    for how, by_seed in scores.items():
        values = _values(by_seed)
        spread = f"± {statistics.stdev(values):.3f}" if len(values) > 1 else "(1 seed)"
        print(f"{name:<24}{how:<28}{statistics.mean(values):.3f} {spread}")
    best = best_of(scores)[-1]
    if best == BY_DEFAULT or BY_DEFAULT not in scores:
        return
    if min(len(scores[BY_DEFAULT]), len(scores[best])) < 2:
        print(f"{name:<24}too few seeds to compare")
        return
    gap = _mean(scores[best]) - _mean(scores[BY_DEFAULT])
    word = "within" if gap <= statistics.stdev(_values(scores[best])) else "not within"
    print(f"{name:<24}defaults are {word} one deviation of the best settings ({best})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=SETS, default=list(HAND))
    parser.add_argument("--ways", nargs="+", default=[])
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
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
    first_score.LEAST_WORK = math.inf  # it takes time and changes no weight
    started, left_out = time.perf_counter(), []
    encoder = encoder_path()
    if options.plain:
        encoder = without_vectors(Path(tempfile.mkdtemp()))
    found: dict[str, Scores] = {}  # by data
    if options.output and options.output.exists():
        found = json.loads(options.output.read_text(encoding="utf-8"))
    reference = Reference(encoder) if REFERENCE in options.ways else None
    sizes = [(rows, None) for rows in options.rows]
    sizes += [(None, count) for count in options.per_class]
    cells = list(itertools.product(options.data, sizes or [(None, None)]))
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    # Seeds in the outer loop, so that a time limit affects all settings alike.
    for seed, (name, (rows, per_class)) in itertools.product(seeds, cells):
        if name != "emails" and not DATA.is_dir():
            print(f"{name}: skipped, there is no {DATA}")
            continue
        data = SETS[name](seed)
        cell = f"{name} {rows or ''}{f'{per_class} a class' if per_class else ''}"
        cell = f"{cell.strip()}{', plain' if options.plain else ''}"
        if options.ways:
            tests = options.test_rows // (4 if name == "reviews" else 1)
            data = data.drawn(rows, per_class, seed, tests=tests)
        elif rows:
            some = range(min(rows, len(data.train)))
            data = dataclasses.replace(data, train=data.train.take(some))
        scores = found.setdefault(cell, {})
        ways = options.ways or [BY_DEFAULT, *HAND[name]]
        if not options.ways and seed > options.first_seed:
            ways = best_of(scores)
        runs: dict[str, Callable[[], dict[str, Any]]] = {
            how: functools.partial(trained, data, Way.of(how), seed, encoder=encoder)
            for how in ways
            if how != REFERENCE
        }
        if reference is not None:
            runs[REFERENCE] = functools.partial(reference, data)
        for how, run in runs.items():
            if str(seed) in scores.get(how, {}):
                continue
            if time.perf_counter() - started > 60 * options.minutes:
                left_out.append(f"{cell} {how} seed {seed}")
                continue
            result = run()
            scores.setdefault(how, {})[str(seed)] = result
            if options.output:
                with replaced_file(options.output) as temporary:
                    temporary.write_text(json.dumps(found, indent=1))
            shown = ", ".join(
                f"{key} {value}" for key, value in result.get("choices", {}).items()
            )
            print(
                f"{cell:<24}{how:<28}seed {seed}  {data.score} {result['score']:.3f}  "
                f"{result['processor']:.0f} s of processors  {shown}",
                flush=True,
            )
    print()
    for name, scores in found.items():
        show(name, scores)
    if left_out:
        print(f"left out after {options.minutes:g} minutes: {'; '.join(left_out)}")


if __name__ == "__main__":
    main()
