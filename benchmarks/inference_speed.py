"""Prediction speed and latency, compared with transformers and usual engine scripts.

    python benchmarks/inference_speed.py [--work sms …] [--rounds 5] [--json FILE]

Needs `pip install -e '.[peers]'`; a side that fails is left out, with its error. Each
side keeps its model in its own process. They run alternately, so that a drift of the
machine's speed affects all of them; a ratio is the median of those within a round.
Input is text and output is a label, tokenization included. transformers and the usual
scripts of OpenVINO and ONNX Runtime (`engine_peers.py`) sort texts by length and pad to
the longest of a batch; the engines have two batches in flight. The head is untrained,
and the BERT-base model has random weights. bfloat16 is left out on a processor that
emulates it.

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
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from alternating import (
    Seconds,
    machine,
    measured,
    precisions,
    time_on_request,
    times_as_fast,
    write_results,
)
from inputs import DATA, contexts, encoder_path, messages

CLASSES = ("no", "yes")
SHORT = "see you at six tomorrow then, call me when you are free"
BOTH = ("float32", "bfloat16")
Answer = Callable[[list[str]], Any]


class Work(NamedTuple):
    """What is computed: the model, the number of texts, and their batches."""

    model: str
    texts: int
    batch: int
    longest: int


WORKS = {
    "sms": Work("minilm", 384, 32, 128),
    "paragraphs": Work("base", 32, 16, 384),
    "one-short": Work("minilm", 1, 1, 128),
    "one-long": Work("base", 1, 1, 128),
}
# Texts for the ranges of int8, and calls of one text in a round: fewer for BERT-base,
# since each takes long.
CALIBRATED = {"minilm": 300, "base": 24}
CALLS = {"minilm": 100, "base": 25}
SIDES = (
    *(("bert_keras", precision) for precision in BOTH),
    *(("saved_model", precision) for precision in BOTH),
    ("bert_keras-openvino", "bfloat16"),
    ("bert_keras-openvino", "int8"),
    ("bert_keras-onnx", "int8"),
    *(("transformers", precision) for precision in BOTH),
    ("openvino", "bfloat16"),
    ("openvino", "int8"),
    ("onnxruntime", "int8"),
)
# Work, our side, the peer, and how many times as fast we want to be at least.
GOALS = (
    ("sms", "bert_keras float32", "transformers float32", 1.5),
    ("sms", "bert_keras bfloat16", "transformers bfloat16", 1.4),
    ("sms", "bert_keras bfloat16", "openvino bfloat16", 1.0),
    ("sms", "bert_keras-openvino bfloat16", "openvino bfloat16", 1.15),
    ("sms", "bert_keras-openvino int8", "openvino int8", 1.1),
    ("sms", "bert_keras-onnx int8", "onnxruntime int8", 1.1),
    ("sms", "saved_model float32", "bert_keras float32", 0.95),
    ("sms", "saved_model bfloat16", "bert_keras bfloat16", 0.95),
    ("paragraphs", "bert_keras bfloat16", "transformers bfloat16", 1.1),
    ("paragraphs", "bert_keras bfloat16", "openvino bfloat16", 0.9),
    ("paragraphs", "bert_keras-openvino bfloat16", "openvino bfloat16", 1.05),
    ("paragraphs", "bert_keras-openvino int8", "openvino int8", 1.1),
    ("paragraphs", "bert_keras-onnx int8", "onnxruntime int8", 1.1),
    ("one-short", "saved_model bfloat16", "transformers bfloat16", 1.0),
    ("one-short", "saved_model bfloat16", "transformers float32", 1.0),
    ("one-short", "bert_keras-openvino bfloat16", "openvino bfloat16", 1.0),
    ("one-short", "bert_keras-openvino int8", "openvino int8", 1.0),
    ("one-short", "bert_keras-openvino int8", "onnxruntime int8", 1.0),
    ("one-short", "bert_keras-onnx int8", "onnxruntime int8", 1.0),
    ("one-long", "saved_model bfloat16", "transformers bfloat16", 1.0),
    ("one-long", "bert_keras-openvino bfloat16", "openvino bfloat16", 1.0),
)


def texts_of(work: str, count: int | None = None) -> list[str]:
    """Return the texts of a workload, the same in each process."""
    if work == "one-short":
        return [SHORT]
    found = [text for _, text in messages()] if work == "sms" else contexts()
    random.Random(0).shuffle(found)
    if work == "one-long":
        # All sides cut it to exactly 128 tokens.
        return [" ".join(max(found[:100], key=len).split()[:95])]
    return found[: count or WORKS[work].texts]


def calibration_of(model: str) -> list[str]:
    work = "sms" if model == "minilm" else "paragraphs"
    texts = texts_of(work, WORKS[work].texts + CALIBRATED[model])
    return texts[WORKS[work].texts :]


def write_model(name: str, folder: Path) -> None:
    """Write a model folder, and its SavedModels in both precisions."""
    from bert_keras import BertConfig, BertEncoder, Classification, TrainConfig
    from bert_keras.exports.saved_model import export_model
    from bert_keras.models.loading import load_model, new_model
    from bert_keras.models.model_folder import save_model
    from bert_keras.models.task_model import TaskModel
    from bert_keras.text.preprocessor import Preprocessor

    task, config = Classification(CLASSES), TrainConfig(max_length=128, seed=0)
    model = new_model(task, encoder_path(), config)
    if name == "base":
        encoder = BertEncoder(BertConfig.from_preset("base"), seed=0)
        preprocessor = Preprocessor(
            model.preprocessor.tokenizer, max_length=384, layout="packed"
        )
        model = TaskModel(encoder, task, preprocessor, seed=0)
    save_model(model, folder / name)
    for precision in BOTH:
        loaded = load_model(folder / name, dtype=_policy(precision))
        export_model(loaded, folder / f"{name}-{precision}")


def write_engine(name: str, folder: Path, engine: str) -> None:
    """Write a model for an engine, in float32 and int8."""
    from bert_keras.data.table import as_columns
    from bert_keras.inference.engine_export import export_to_engine
    from bert_keras.models.loading import load_model

    model, texts = load_model(folder / name), calibration_of(name)
    columns = as_columns(text=texts, label=[CLASSES[0]] * len(texts))
    for kind in ("float32", "int8"):
        output = folder / f"{name}-{engine}-{kind}"
        export_to_engine(
            model, output, format=engine, int8=kind == "int8", calibration=columns
        )


def write(name: str, part: str, folder: Path) -> None:
    """Write a part of the files of a model."""
    if part == "model":
        write_model(name, folder)
    elif part == "usual":
        from engine_peers import write_usual_models

        longest = max(work.longest for work in WORKS.values() if work.model == name)
        write_usual_models(folder / name, calibration_of(name), longest)
    else:
        write_engine(name, folder, part)


def write_missing(folder: Path, works: list[str]) -> None:
    """Write what is not there yet; each part in its own process frees its memory."""
    for name in dict.fromkeys(WORKS[work].model for work in works):
        for part in ("model", "openvino", "onnx", "usual"):
            written = folder / f"{name}-{part}.written"
            if not written.exists():
                print(f"writing {name} for {part}", flush=True)
                command = [sys.executable, __file__, "--write", name, part, str(folder)]
                subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
                written.touch()


def _policy(precision: str) -> str:
    return precision if precision == "float32" else "mixed_bfloat16"


def bert_keras_side(
    folder: Path, precision: str, work: Work, engine: str = "tensorflow"
) -> Answer:
    """Return a function that predicts in TensorFlow or in an engine."""
    from bert_keras import load_predictor

    place = folder / work.model
    if engine != "tensorflow":
        kind = "int8" if precision == "int8" else "float32"
        place = folder / f"{work.model}-{engine}-{kind}"
    # ONNX Runtime computes the rest of an int8 model in float32, as OpenVINO does where
    # bfloat16 is emulated.
    emulated = precision == "int8" and "bfloat16" not in precisions()
    policy = "float32" if engine == "onnx" or emulated else _policy(precision)
    predictor = load_predictor(place, precision=policy)
    return lambda texts: predictor.predict(texts, batch_size=work.batch)


def saved_model_side(folder: Path, precision: str, work: Work) -> Answer:
    """Return a function that runs a SavedModel in TensorFlow with its op libraries.

    Several texts go through `predict`, which sorts them; one goes to the graph.
    """
    path = folder / f"{work.model}-{precision}"
    if work.batch > 1:
        from bert_keras import load_predictor

        predictor = load_predictor(path)
        return lambda texts: predictor.predict(texts, batch_size=work.batch)
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


def transformers_side(folder: Path, precision: str, work: Work) -> Answer:
    import torch
    from peer import TransformersPeer

    peer = TransformersPeer(str(folder / work.model), CLASSES, seed=0)
    if precision == "bfloat16":
        peer.model.to(torch.bfloat16)
    return lambda texts: peer.predict(
        texts, batch_size=work.batch, max_length=work.longest, by_length=True
    )


def engine_side(folder: Path, precision: str, work: Work, engine: str) -> Answer:
    from engine_peers import UsualScript

    return UsualScript(
        folder / work.model,
        engine,
        precision,
        batch=work.batch,
        longest=work.longest,
        requests=1 if work.batch == 1 else 2,
    )


def side_of(side: str, precision: str, work: Work, folder: Path) -> Answer:
    name, _, engine = side.partition("-")
    if name == "bert_keras":
        return bert_keras_side(folder, precision, work, engine or "tensorflow")
    if name == "saved_model":
        return saved_model_side(folder, precision, work)
    if name == "transformers":
        return transformers_side(folder, precision, work)
    return engine_side(folder, precision, work, name)


def run_side(side: str, precision: str, work: str, folder: Path) -> None:
    """Load a side, then time it once for each line of standard input."""
    texts = texts_of(work)
    answer = side_of(side, precision, WORKS[work], folder)
    repeats = 1 if len(texts) > 1 else CALLS[WORKS[work].model]
    warmups = 2 if len(texts) > 1 else repeats // 5
    time_on_request(lambda: answer(texts), warmups=warmups, repeats=repeats)


def commands(work: str, folder: Path, wanted: list[str]) -> dict[str, list[str]]:
    found = {}
    here = (*precisions(), "int8")
    for side, precision in SIDES:
        name = f"{side} {precision}"
        is_wanted = not wanted or any(part in name for part in wanted)
        if is_wanted and precision in here:
            command = [sys.executable, __file__, "--side", side, precision, work]
            found[name] = [*command, str(folder)]
    return found


def table(work: str, seconds: Seconds) -> dict[str, Any]:
    """Print the speed of each side and the ratios of the goals; return both."""
    count = WORKS[work].texts
    for name, spent in seconds.items():
        middle = statistics.median(spent)
        speed = f"{count / middle:.1f} texts/s" if count > 1 else f"{middle:.2e} s"
        print(f"{work:<12}{name:<31}{speed:>16}", flush=True)
    ratios = []
    for _, ours, peer, goal in (each for each in GOALS if each[0] == work):
        if ours in seconds and peer in seconds:
            ratio = times_as_fast(seconds[ours], seconds[peer])
            ratios.append({"ours": ours, "peer": peer, "ratio": ratio, "goal": goal})
            print(f"{work:<12}{ours} / {peer}: {ratio:.2f}, wanted {goal}", flush=True)
    return {"texts": count, "seconds": seconds, "ratios": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", nargs="+", choices=tuple(WORKS), default=list(WORKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sides", nargs="+", default=[], help="parts of their names")
    parser.add_argument("--json", type=Path, help="JSON file for all results")
    parser.add_argument(
        "--models", type=Path, help="folder in which the models are kept"
    )
    parser.add_argument("--side", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        name, part, place = options.write
        write(name, part, Path(place))
        return
    if options.side:
        side, precision, work, folder = options.side
        run_side(side, precision, work, Path(folder))
        return
    if not (DATA / "sms_spam").is_dir():
        print(f"skipped: {DATA} is absent")
        return
    print(json.dumps(machine()), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.models or Path(temporary)
        folder.mkdir(exist_ok=True, parents=True)
        write_missing(folder, options.work)
        results = {}
        for work in options.work:
            workers = commands(work, folder, options.sides)
            results[work] = table(work, measured(workers, options.rounds))
    write_results(options.json, results)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
