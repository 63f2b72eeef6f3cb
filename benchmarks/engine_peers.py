"""The usual scripts of OpenVINO and ONNX Runtime: the other sides of the benchmarks.

The weights come from transformers, int8 is the engine's own (NNCF with calibration, and
dynamic quantization), `tokenizers` makes the batches, and texts are sorted by length.
"""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Inputs = dict[str, np.ndarray]
FILES = ("usual.xml", "usual-int8.xml", "usual.onnx", "usual-int8.onnx")


def write_usual_models(folder: Path, calibrated: Sequence[str], longest: int) -> None:
    """Convert the weights of a model folder, the way the engines' guides do.

    Args:
        folder: in transformers' layout; the files of `FILES` are written into it.
        calibrated: texts that show OpenVINO the ranges of the activations.
        longest: maximum number of tokens.
    """
    import nncf
    import openvino
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenize = tokenizer_of(folder, longest)
    example = {k: torch.tensor(v) for k, v in tokenize(["a text", "b"]).items()}
    names = [*example]
    converted = openvino.convert_model(
        model, example_input=example, input=[(name, [-1, -1]) for name in names]
    )
    openvino.save_model(converted, folder / FILES[0], compress_to_fp16=False)
    quantized = nncf.quantize(
        converted,
        nncf.Dataset([tokenize([text]) for text in calibrated]),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(calibrated),
    )
    openvino.save_model(quantized, folder / FILES[1], compress_to_fp16=False)
    torch.onnx.export(
        model,
        tuple(example.values()),
        str(folder / FILES[2]),
        input_names=names,
        output_names=["logits"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names},
        dynamo=False,
    )
    quantize_dynamic(folder / FILES[2], folder / FILES[3], weight_type=QuantType.QInt8)


def tokenizer_of(folder: Path, longest: int) -> Callable[[Sequence[str]], Inputs]:
    """Return a function from texts to a batch padded to its longest text."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)

    def tokenize(texts: Sequence[str]) -> Inputs:
        found = tokenizer(
            list(texts),
            truncation=True,
            max_length=longest,
            padding="longest",
            return_tensors="np",
        )
        names = ("input_ids", "attention_mask", "token_type_ids")
        return {name: found[name].astype("int64") for name in names}

    return tokenize


class UsualScript:
    """Answers texts with the index of a class.

    Args:
        folder: as in `write_usual_models`.
        engine: `openvino` or `onnxruntime`.
        precision: `float32`, `bfloat16` (OpenVINO) or `int8`.
        batch: texts of a batch.
        longest: maximum number of tokens.
        requests: batches in flight.
    """

    def __init__(
        self,
        folder: Path,
        engine: str,
        precision: str,
        *,
        batch: int,
        longest: int,
        requests: int,
    ) -> None:
        self._batch = batch
        self._tokenize = tokenizer_of(folder, longest)
        run = _openvino if engine == "openvino" else _onnxruntime
        self._compute = run(folder, precision, requests)

    def __call__(self, texts: Sequence[str]) -> list[int]:
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        starts = range(0, len(order), self._batch)
        batches = [order[start : start + self._batch] for start in starts]
        answers = [0] * len(texts)
        given = ((self._tokenize([texts[row] for row in b]), b) for b in batches)
        for logits, rows in self._compute(given):
            for row, values in zip(rows, logits, strict=True):
                answers[row] = int(values.argmax())
        return answers


Given = tuple[Inputs, list[int]]
Compute = Callable[[Iterable[Given]], Iterable[tuple[np.ndarray, list[int]]]]


def _openvino(folder: Path, precision: str, requests: int) -> Compute:
    import openvino

    compiled = openvino.Core().compile_model(
        folder / FILES[precision == "int8"],
        "CPU",
        {
            "INFERENCE_PRECISION_HINT": "f32" if precision == "float32" else "bf16",
            "PERFORMANCE_HINT": "LATENCY" if requests == 1 else "THROUGHPUT",
            "PERFORMANCE_HINT_NUM_REQUESTS": requests,
        },
    )

    def compute(given: Iterable[Given]) -> Any:
        done: list[Any] = []
        queue = openvino.AsyncInferQueue(compiled, requests)
        queue.set_callback(
            lambda each, rows: done.append(
                (each.get_output_tensor(0).data.copy(), rows)
            )
        )
        for batch, rows in given:
            queue.start_async(batch, rows)
        queue.wait_all()
        return done

    request = compiled.create_infer_request()

    def one(given: Iterable[Given]) -> Any:
        return [(request.infer(batch)[0], rows) for batch, rows in given]

    return one if requests == 1 else compute


def _onnxruntime(folder: Path, precision: str, requests: int) -> Compute:
    import onnxruntime

    path = folder / FILES[2 + (precision == "int8")]
    session = onnxruntime.InferenceSession(path)
    inputs = {each.name for each in session.get_inputs()}

    def run(given: Given) -> Any:
        batch, rows = given
        wanted = {name: batch[name] for name in inputs}
        return session.run(None, wanted)[0], rows

    def compute(given: Iterable[Given]) -> Any:
        with concurrent.futures.ThreadPoolExecutor(requests) as pool:
            return [*pool.map(run, given)]

    return compute if requests > 1 else lambda given: map(run, given)
