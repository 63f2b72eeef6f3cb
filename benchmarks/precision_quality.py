"""Answers of every precision and engine, compared with those in float32.

    python benchmarks/precision_quality.py [--task sms mrpc] [--json FILE]

MiniLM is fine-tuned on SMS messages and on MRPC, and answers held-out rows in
TensorFlow in float32 and bfloat16, as a SavedModel in bfloat16, in each engine, and as
a file for LiteRT, which the interpreter of TensorFlow runs as one on a phone would.
Printed are the score, the largest difference of a logit, and the share of labels that
change. int8 of OpenVINO is calibrated on 300 training rows. Needs
`pip install -e '.[peers]'`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from alternating import write_results
from inputs import DATA, encoder_path, messages

CALIBRATED = 300


class Rows(NamedTuple):
    """Columns of training and held-out rows, and how to train on them."""

    train: dict[str, list[str]]
    dev: dict[str, list[str]]
    score: str
    settings: dict[str, Any]


def sms() -> Rows:
    pairs = messages()
    random.Random(0).shuffle(pairs)
    parts = pairs[:2000], pairs[2000:4000]
    train, dev = (
        {"text": [text for _, text in part], "label": [label for label, _ in part]}
        for part in parts
    )
    return Rows(train, dev, "accuracy", {"epochs": 1, "max_length": 128})


def mrpc() -> Rows:
    def columns(name: str) -> dict[str, list[str]]:
        path = DATA / "glue_mrpc" / name
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
        names = {"label": 0, "text": 3, "text_pair": 4}
        return {key: [row[place] for row in rows] for key, place in names.items()}

    settings = {"epochs": 3, "max_length": 128}
    return Rows(columns("train.tsv"), columns("dev.tsv"), "accuracy", settings)


TASKS = {"sms": sms, "mrpc": mrpc}


def litert_session(path: Path) -> Any:
    """Return a session that runs a model.tflite, for `EngineModel`."""
    import tensorflow as tf

    from bert_keras.inference.engine import Session

    class LiteRt(Session):
        def __init__(self) -> None:
            self._run = tf.lite.Interpreter(os.fspath(path)).get_signature_runner()
            self._lock = threading.Lock()  # an interpreter computes one batch at a time

        def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            with self._lock:
                return [*self._run(**inputs).values()]

        def specs(self) -> tuple[list[str], list[tf.TensorSpec]]:
            outputs = [
                tf.TensorSpec([None, *found["shape"][1:]], found["dtype"], name)
                for name, found in self._run.get_output_details().items()
            ]
            return [*self._run.get_input_details()], outputs

    return LiteRt()


def measured(task: str, folder: Path) -> list[dict[str, Any]]:
    """Train a model, and return a line for each precision and engine."""
    from bert_keras import Classification, TrainConfig, load_predictor, train
    from bert_keras.data.table import as_columns
    from bert_keras.exports.saved_model import export_model
    from bert_keras.inference.engine import EngineModel
    from bert_keras.inference.engine_export import export_to_engine
    from bert_keras.inference.predictor import Predictor
    from bert_keras.models.loading import load_model

    rows = TASKS[task]()
    dev = as_columns(**rows.dev)
    train(
        Classification,
        encoder=encoder_path(),
        train=as_columns(**rows.train),
        dev=dev,
        output=folder / "model",
        config=TrainConfig(batch_size=32, learning_rate=5e-5, seed=0, **rows.settings),
    )
    model = load_model(folder / "model")
    some = {name: values[:CALIBRATED] for name, values in rows.train.items()}
    for engine in ("openvino", "onnx"):
        export_to_engine(
            model,
            folder / engine,
            format=engine,
            int8=True,
            calibration=as_columns(**some),
            dev=dev,
            max_drop=1.0,
        )
    export_to_engine(model, folder / "litert", format="litert")
    low = load_model(folder / "model", dtype="mixed_bfloat16")
    export_model(low, folder / "saved")
    sides = {
        "TensorFlow float32": lambda: load_predictor(folder / "model"),
        "TensorFlow bfloat16": lambda: load_predictor(
            folder / "model", precision="mixed_bfloat16"
        ),
        "SavedModel bfloat16": lambda: load_predictor(folder / "saved"),
        "OpenVINO float32": lambda: load_predictor(folder / "model", engine="openvino"),
        "OpenVINO bfloat16": lambda: load_predictor(
            folder / "model", engine="openvino", precision="mixed_bfloat16"
        ),
        "OpenVINO int8": lambda: load_predictor(folder / "openvino"),
        "ONNX Runtime float32": lambda: load_predictor(folder / "model", engine="onnx"),
        "ONNX Runtime int8": lambda: load_predictor(folder / "onnx"),
        "LiteRT float32": lambda: Predictor(
            EngineModel(
                model.task,
                model.preprocessor,
                litert_session(folder / "litert" / "model.tflite"),
            )
        ),
    }
    found: list[dict[str, Any]] = []
    exact: dict[str, np.ndarray] = {}
    for name, side in sides.items():
        answers = side().answers(dev)
        scores = model.task.score(dev, answers)
        logits = np.log(np.asarray(answers["probabilities"], "float64"))
        logits -= logits.mean(axis=-1, keepdims=True)
        labels = logits.argmax(axis=-1)
        exact = exact or {"logits": logits, "labels": labels}
        line = {
            "task": task,
            "side": name,
            "score": float(scores[rows.score]),
            "largest difference of a logit": float(abs(logits - exact["logits"]).max()),
            "labels that change": float((labels != exact["labels"]).mean()),
        }
        found.append(line)
        print(json.dumps(line), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    parser.add_argument("--json", type=Path, help="JSON file for all results")
    options = parser.parse_args()
    if not (DATA / "sms_spam").is_dir():
        print(f"skipped: {DATA} is absent")
        return
    results = []
    for task in options.task:
        with tempfile.TemporaryDirectory() as folder:
            results += measured(task, Path(folder))
    write_results(options.json, results)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
