"""Scores and speed of students with half of the layers, beside their teachers.

    python benchmarks/distillation.py [--sets sms news mrpc] [--rows 2000] \
[--keep-layers 0,2,4] [--epochs 3] [--student-epochs 6] [--seed 42] [--int8]

Fine-tunes all-MiniLM-L6-v2 (6 layers) as the teacher, and then, on the same rows, the
same layers of it with and without the teacher's answers. Prints a line of JSON for each
set: accuracy on the test rows, seconds for 1,000 of them, the median of five alternate
passes, and the ratios to the teacher. `--int8` adds the student in int8 for OpenVINO
(needs `openvino` and `nncf`). Needs scikit-learn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from inputs import encoder_path, news, sms
from precision_quality import mrpc

PASSES, TIMED = 5, 1000


def data_of(name: str, count: int, seed: int) -> tuple[Any, Any]:
    """Return the training and the test rows of a set, as columns."""
    from bert_keras.data.table import as_columns

    if name == "mrpc":
        rows = mrpc()
        return as_columns(**rows.train), as_columns(**rows.dev)
    draw = news(count // 4) if name == "news" else sms(count)
    train, test = (
        as_columns(text=[text for text, _ in each], label=[label for _, label in each])
        for each in draw(np.random.default_rng(seed))
    )
    return train, test


def trained(train: Any, output: Path, **given: Any) -> Any:
    """Return the predictor of a model trained on rows, without dev rows."""
    from bert_keras.inference.predictor import load_predictor
    from bert_keras.training.config import TrainConfig
    from bert_keras.training.finetune import train as train_model

    encoder = given.pop("encoder", None)
    train_model(
        "classification",
        encoder=encoder,
        train=train,
        output=output,
        config=TrainConfig(validation_split=0.0, **given),
    )
    return load_predictor(output)


def int8(model: Any, output: Path, train: Any) -> Any:
    """Return the predictor of a model in int8, for OpenVINO."""
    from bert_keras.inference.engine_export import export_to_engine
    from bert_keras.inference.predictor import load_predictor

    rows = train.take(range(min(len(train), 300)))
    export_to_engine(model, output, format="openvino", int8=True, calibration=rows)
    return load_predictor(output)


def measured(predictors: dict[str, Any], test: Any) -> dict[str, dict[str, float]]:
    """Return accuracy and seconds for 1,000 rows of each model, and its ratios."""
    some = test.take(range(min(len(test), TIMED)))
    scores, seconds = {}, {name: [] for name in predictors}
    for name, each in predictors.items():
        answers = each.answers(test)  # the graphs are traced here
        scores[name] = each.model.task.score(test, answers)["accuracy"]
    for _ in range(PASSES):
        for name, each in predictors.items():
            start = time.perf_counter()
            each.answers(some)
            seconds[name].append((time.perf_counter() - start) * 1000 / len(some))
    middle = {name: statistics.median(found) for name, found in seconds.items()}
    return {
        name: {
            "accuracy": round(scores[name], 4),
            "share_of_teacher": round(scores[name] / scores["teacher"], 4),
            "seconds": round(middle[name], 3),
            "times_as_fast": round(middle["teacher"] / middle[name], 2),
        }
        for name in predictors
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="+", default=["sms", "news", "mrpc"])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--keep-layers", default="0,2,4")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--student-epochs", type=int, default=6)
    parser.add_argument("--temperature", type=float, default=2.0)
    parser.add_argument("--distill-weight", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--int8", action="store_true")
    options = parser.parse_args()
    for name in options.sets:
        train, test = data_of(name, options.rows, options.seed)
        kept: dict[str, Any] = {
            "keep_layers": options.keep_layers,
            "epochs": options.student_epochs,
            "seed": options.seed,
        }
        soft = {key: getattr(options, key) for key in ("temperature", "distill_weight")}
        with tempfile.TemporaryDirectory() as folder:
            place, given = Path(folder), {"epochs": options.epochs}
            teacher = place / "teacher"
            given |= {"encoder": encoder_path(), "seed": options.seed}
            found = {"teacher": trained(train, teacher, **given)}
            taught = {"teacher": str(teacher), **soft, **kept}
            found["student"] = trained(train, place / "student", **taught)
            alone = {"encoder": encoder_path(), **kept}
            found["without teacher"] = trained(train, place / "alone", **alone)
            if options.int8:
                small = int8(found["student"].model, place / "int8", train)
                found["student in int8"] = small
            print(json.dumps({"set": name, **measured(found, test)}), flush=True)


if __name__ == "__main__":
    main()
