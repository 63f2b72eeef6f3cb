"""Scores and speed of students with half of the layers, beside their teachers.

    python benchmarks/distillation.py [--sets sms news mrpc] [--rows 1500] \
[--test-rows 1000] [--keep-layers 0,2,4] [--epochs 3] [--student-epochs 6] \
[--max-length 64] [--pooling pooler] [--distill soft] [--distill-weight 0.5] \
[--temperature 2] [--seed 42] [--alone] [--unlabeled 0] [--augment 0] [--general] \
[--int8] [--precision float32] [--passes 5] [--folder DIR]

Fine-tunes all-MiniLM-L6-v2 (6 layers) as the teacher, and then, on the same rows, some
layers of the teacher with its answers. Prints a line of JSON for each set: accuracy on
the test rows, of two classes also F1 and the mean of both, which is GLUE's score of
MRPC; seconds for 1,000 rows, the median of alternate passes; the ratios to the teacher;
and the mean Kullback-Leibler divergence from its probabilities, which depends less on
chance than the ratios. `--unlabeled` gives the student up to so many further rows
without their labels: of the set, but neither of training nor of the test, or for MRPC
pairs of STS-B with other sentences; `--augment` so many variants of each training row.
With `--general` the student starts from such layers of all-MiniLM-L6-v2 that have
learned the vectors and hidden states of all six on 44,481 pairs of sentences, in half
an hour of one core. `--alone` adds a student without a teacher, `--int8` the student in
int8 for OpenVINO (needs `openvino` and `nncf`); `--passes 0` leaves out the times;
`--folder` keeps the models, and a model that is there is not trained again. Needs
scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from inputs import encoder_path, news, other_pairs, sms, table, write_wikipedia
from precision_quality import mrpc

TIMED = 1000  # rows
GENERAL = {
    "epochs": 1,
    "batch_size": 64,
    "max_length": 64,
    "learning_rate": 3e-4,
    "distill_weight": 0.95,
    "precision": "mixed_bfloat16",
}


def data_of(name: str, options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """Return training, test and unlabeled rows of a set, as columns."""
    from bert_keras.data.table import as_columns

    rng, count = np.random.default_rng(options.seed), options.rows
    if name == "mrpc":
        rows = mrpc()  # dev has too few rows to compare scores by
        both = as_columns(**{k: [*v, *rows.dev[k]] for k, v in rows.train.items()})
        order = rng.permutation(len(both))
        train, test = both.take(order[:count]), both.take(order[count:])
    else:
        draw = news(count // 4) if name == "news" else sms(count)
        train, test = (
            as_columns(
                text=[text for text, _ in each], label=[label for _, label in each]
            )
            for each in draw(rng)
        )
    chosen, others = np.split(rng.permutation(len(test)), [options.test_rows])
    tested, unlabeled = test.take(np.sort(chosen)), None
    if options.unlabeled and name == "mrpc":
        seen = {text for each in both.cells.values() for text in each}
        first, second = other_pairs(seen, options.unlabeled)
        unlabeled = as_columns(text=first, text_pair=second)
    elif options.unlabeled:
        rest = test.take(np.sort(others[: options.unlabeled]))
        unlabeled = as_columns(text=list(rest["text"]))
    return train, tested, unlabeled


def sentence_pairs() -> Any:
    """Return neighbouring sentences of Wikipedia, halves of news, and pairs of SICK."""
    from bert_keras.corpus.documents import raw_documents, sentences_of
    from bert_keras.data.table import as_columns

    draws, pairs = random.Random(0), []  # noqa: S311
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.txt")
        write_wikipedia(corpus)
        for document in raw_documents(str(corpus)):
            of_text = sentences_of(document)
            some = [each for each in of_text if 6 <= len(each.split()) <= 45]
            pairs += [*zip(some[::2], some[1::2], strict=False)]
    draws.shuffle(pairs)
    pairs = pairs[:34_000]
    for text, *_ in table("agnews/pool.tsv")[1:]:
        words = text.split()
        if (half := len(words) // 2) > 4:
            pairs.append((" ".join(words[:half]), " ".join(words[half:])))
    pairs += [(row[0], row[1]) for row in table("sick/train.tsv")[1:]]
    draws.shuffle(pairs)
    first, second = zip(*pairs, strict=True)
    return as_columns(text=first, text_pair=second)


def trained(
    train: Any, output: Path, *, task: str = "classification", **given: Any
) -> Any:
    """Return the predictor of a model trained on rows, without dev rows."""
    from bert_keras.inference.predictor import load_predictor
    from bert_keras.training.config import TrainConfig
    from bert_keras.training.finetune import train as train_model

    encoder, unlabeled = given.pop("encoder", None), given.pop("unlabeled", None)
    settings = given.pop("settings", None)
    if not output.exists():
        train_model(
            task,
            encoder=encoder,
            train=train,
            unlabeled=unlabeled,
            output=output,
            task_settings=settings,
            config=TrainConfig(validation_split=0.0, **given),
        )
    return load_predictor(output)


def int8(model: Any, output: Path, train: Any) -> Any:
    """Return the predictor of a model in int8, for OpenVINO."""
    from bert_keras.inference.engine_export import export_to_engine
    from bert_keras.inference.predictor import load_predictor

    if not output.exists():
        rows = train.take(range(min(len(train), 300)))
        export_to_engine(model, output, format="openvino", int8=True, calibration=rows)
    return load_predictor(output)


def measured(
    predictors: dict[str, Any], test: Any, passes: int
) -> dict[str, dict[str, float]]:
    """Return accuracy and seconds for 1,000 rows of each model, and its ratios."""
    some = test.take(range(min(len(test), TIMED)))
    scores: dict[str, dict[str, float]] = {}
    logs: dict[str, np.ndarray] = {}  # of the probabilities
    seconds: dict[str, list[float]] = {name: [] for name in predictors}
    for name, each in predictors.items():
        answers = each.answers(test)  # the graphs are traced here
        task = each.model.task
        score = task.score(test, answers)
        scores[name] = {key: score[key] for key in ("accuracy", "f1") if key in score}
        if "f1" in score:
            scores[name]["glue"] = statistics.fmean(scores[name].values())
        logits = np.asarray(task.soft_targets(answers, task), np.float64)
        logs[name] = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    for _ in range(passes):
        for name, each in predictors.items():
            start = time.perf_counter()
            each.answers(some)
            seconds[name].append((time.perf_counter() - start) * 1000 / len(some))
    found: dict[str, dict[str, float]] = {}
    for name, score in scores.items():
        found[name] = {}
        for key, value in score.items():
            found[name][key] = round(value, 4)
            found[name][f"{key}_share"] = round(value / scores["teacher"][key], 4)
        if name != "teacher":
            of = logs["teacher"]
            divergence = (np.exp(of) * (of - logs[name])).sum(axis=1).mean()
            found[name]["divergence"] = round(float(divergence), 4)
        if passes:
            middle = statistics.median(seconds[name])
            whole = statistics.median(seconds["teacher"])
            found[name]["seconds"] = round(middle, 3)
            found[name]["times_as_fast"] = round(whole / middle, 2)
    return found


def models(
    place: Path, train: Any, unlabeled: Any, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the predictors of the teacher and its students, by name."""
    given = {"max_length": options.max_length, "seed": options.seed}
    given["settings"] = {"pooling": options.pooling}
    teacher = place / "teacher"
    found = {
        "teacher": trained(
            train, teacher, encoder=encoder_path(), epochs=options.epochs, **given
        )
    }
    given |= {"epochs": options.student_epochs, "precision": options.precision}
    start: dict[str, Any] = {"keep_layers": options.keep_layers}
    if options.general:
        general = place.parent / "general"
        if not general.exists():
            like = {
                "teacher": str(encoder_path()),
                "distill": "hidden",
                **start,
                **GENERAL,
            }
            trained(sentence_pairs(), general, task="embedding", **like)
        start = {"encoder": general}
    names = ("distill", "temperature", "distill_weight", "augment")
    soft = {name: getattr(options, name) for name in names}
    student = place / "student"
    soft |= {"unlabeled": unlabeled, "teacher": str(teacher)}
    found["student"] = trained(train, student, **soft, **start, **given)
    if options.alone:
        start.setdefault("encoder", encoder_path())
        found["without teacher"] = trained(train, place / "alone", **start, **given)
    if options.int8:
        model = found["student"].model
        found["student in int8"] = int8(model, place / "int8", train)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["sms", "news", "mrpc"])
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--test-rows", type=int, default=1000)
    parser.add_argument("--keep-layers", default="0,2,4")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--student-epochs", type=int, default=6)
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--pooling", default="pooler", help="what the heads read")
    parser.add_argument("--distill", default="soft")
    parser.add_argument("--temperature", type=float, default=2.0)
    parser.add_argument("--distill-weight", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--precision", default="float32", help="of the students")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--general", action="store_true")
    parser.add_argument("--unlabeled", type=int, default=0)
    parser.add_argument("--augment", type=int, default=0)
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="keeps the models of each set")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sets:
            train, test, unlabeled = data_of(name, options)
            place = (options.folder or Path(folder)) / name
            found = measured(
                models(place, train, unlabeled, options), test, options.passes
            )
            print(json.dumps({"set": name, **found}), flush=True)


if __name__ == "__main__":
    main()
