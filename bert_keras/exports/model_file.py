"""The Keras model of a task as a file of an engine: ids in, outputs of the head out.

Keras's exporters write the file; here its inputs and outputs get their names, and
`write_int8` turns it into int8. Text handling is not in it, see `engine`.

Source: NNCF's post-training quantization for OpenVINO, ONNX Runtime's dynamic one.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.errors import BertKerasError, ConfigError, one_line
from bert_keras.exports.engine_files import FILES, package, quiet
from bert_keras.exports.engine_graph import EngineGraph
from bert_keras.exports.saved_model import check_backend
from bert_keras.model.layers import for_engines
from bert_keras.runs.notes import say
from bert_keras.tasks.base import Task

# What Keras's exporters and the engines import, by format.
_PACKAGES = {
    "openvino": ("openvino",),
    "onnx": ("onnx", "tf2onnx", "onnxruntime"),
    "litert": (),  # TensorFlow writes it
}
INT8_PACKAGES = {
    "openvino": (*_PACKAGES["openvino"], "nncf"),
    "onnx": _PACKAGES["onnx"],
}


_IDENTITY = "Identity"  # TensorFlow's name of each output of a function
# In older ones tf2onnx writes some means as poolings, and ONNX Runtime then does not
# find the layer normalization around them.
OPSET = 18
_OPTIONS = {"onnx": {"opset_version": OPSET}}


def check_convertible(task: Task) -> None:
    """Raise a ConfigError unless engines can run the model of a task."""
    if why := task.needs.not_for_engines:
        raise ConfigError(f"the task {task.name} runs in TensorFlow only: {why}")


def write_model_file(
    model: keras.Model, folder: Path, kind: str
) -> tuple[Path, EngineGraph]:
    """Write the Keras model of a task for an engine; return the file and its graph.

    Args:
        model: a task model in float32.
        folder: an existing folder.
        kind: `openvino`, `onnx` or `litert`.

    Raises:
        ConfigError: a package is missing, or the task cannot be converted.
        BertKerasError: the exporter fails.
    """
    check_convertible(model.task)
    for name in _PACKAGES[kind]:
        package(name, f"the format {kind}")
    check_backend(f"the format {kind}")
    path = folder / FILES[kind]
    path.parent.mkdir(exist_ok=True)
    graph = EngineGraph(model, with_weights=kind == "onnx")
    try:
        with quiet(), for_engines(), _mended_openvino(kind):
            keras.Model.export(
                graph,
                os.fspath(path),
                format=kind,
                input_signature=[graph.signature()],
                verbose=False,
                **_OPTIONS.get(kind, {}),
            )
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BertKerasError(
            f"the model of {model.task.name} cannot be written as {kind}: "
            f"{one_line(error)}"
        ) from None
    if kind == "openvino":
        name_openvino(path, list(graph.outputs_by_name()))
    elif kind == "onnx":
        _complete_onnx(path, graph)
    return path, graph


@contextlib.contextmanager
def _mended_openvino(kind: str) -> Iterator[None]:
    """Let OpenVINO convert on Python 3.13, where it fails to ask for versions.

    Its `exec("del tensorflow")` does not find what its `exec("import tensorflow")` has
    imported: since 3.13 (PEP 667), each sees names of its own.
    """
    place, name = "openvino.frontend.tensorflow.utils", "get_environment_setup"
    utils = importlib.import_module(place) if kind == "openvino" else None
    ask = getattr(utils, name, None)
    if ask is None:
        yield
        return

    def answer(framework: str) -> dict[str, str]:
        try:
            return ask(framework)
        except NameError:
            python, system = platform.python_version(), sys.platform
            versions = {"python_version": python, "sys_platform": system}
            return {**versions, "tensorflow": tf.__version__}

    setattr(utils, name, answer)
    try:
        yield
    finally:
        setattr(utils, name, ask)


def name_openvino(
    path: Path, names: Sequence[str], sources: Sequence[str] = ()
) -> None:
    """Name the outputs of a model.xml, and drop the sizes that it also returns.

    `sources` are the names of inputs in place of outputs that only pass them on.
    """
    openvino = package("openvino", "the format openvino")
    read = openvino.Core().read_model(os.fspath(path))
    found = {name: each for each in read.outputs for name in each.names}
    kept = []
    for place, name in enumerate(names):
        suffix = f"_{place}" if place else ""
        names_of_it = [f"{_IDENTITY}{suffix}:0", f"{_IDENTITY}{suffix}", name]
        names_of_it += sources[place : place + 1]
        output = next(found[each] for each in names_of_it if each in found)
        output.tensor.set_names({name})
        kept.append(output.get_node())
    whole = openvino.Model(kept, read.get_parameters(), "bert_keras")
    complete = path.with_name(f"whole-{path.name}")
    # The weights of the file that was read are mapped into memory.
    openvino.save_model(whole, os.fspath(complete), compress_to_fp16=False)
    for written in (complete, complete.with_suffix(".bin")):
        written.replace(path.with_suffix(written.suffix))


def _complete_onnx(path: Path, graph: EngineGraph) -> None:
    """Name outputs and axes of a model.onnx, and store the weights, inputs so far."""
    onnx = package("onnx", "the format onnx")
    read = onnx.load(os.fspath(path))
    _divide_before_erf(read.graph, onnx.numpy_helper)
    outputs, weights = graph.outputs_by_name(), graph.weights_by_input()
    rename_outputs(read.graph, list(outputs))
    used = {name for node in read.graph.node for name in node.input}
    inputs = [each for each in read.graph.input if each.name not in weights]
    del read.graph.input[:]
    read.graph.input.extend(inputs)
    shapes = {name: each.shape for name, each in {**graph.specs(), **outputs}.items()}
    for each in (*read.graph.input, *read.graph.output):
        axes = graph.axes(each.name, shapes[each.name])
        dims = each.type.tensor_type.shape.dim
        for dim, axis in zip(dims, axes, strict=True):
            if axis is not None:
                dim.dim_param = axis
    read.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name)
        for name, value in weights.items()
        if name in used
    )
    onnx.save(read, os.fspath(path))


def rename_outputs(graph: Any, names: Sequence[str]) -> None:
    """Name the outputs of a graph of ONNX, in order."""
    renamed = {}
    for output, name in zip(graph.output, names, strict=True):
        renamed[output.name] = name
        output.name = name
    for node in graph.node:
        for places in (node.input, node.output):
            for place, held in enumerate(places):
                places[place] = renamed.get(held, held)


def _divide_before_erf(graph: Any, numpy_helper: Any) -> None:
    """Replace `erf(x * sqrt(1/2))` by `erf(x / sqrt(2))`.

    ONNX Runtime computes GELU in one operation where it finds the quotient, which
    TensorFlow has turned into a product.
    """
    factor = np.float32(math.sqrt(0.5))
    factors = {
        each.name
        for each in graph.initializer
        if np.array_equal(numpy_helper.to_array(each), factor)
    }
    divisor = numpy_helper.from_array(np.float32(math.sqrt(2.0)), "sqrt_of_2")
    before_erf = {node.input[0] for node in graph.node if node.op_type == "Erf"}
    for node in graph.node:
        if node.op_type == "Mul" and node.output[0] in before_erf:
            others = [name for name in node.input if name not in factors]
            if len(others) == 1:
                node.op_type = "Div"
                node.input[:] = [*others, divisor.name]
    graph.initializer.append(divisor)
    used = {name for node in graph.node for name in node.input}
    for each in [*graph.initializer]:
        if each.name in factors | {divisor.name} and each.name not in used:
            graph.initializer.remove(each)


def check_int8(kind: str) -> None:
    """Raise a ConfigError unless int8 is offered for a format and can be computed."""
    if kind not in INT8_PACKAGES:
        raise ConfigError(f"int8 needs the format openvino or onnx; received {kind}")
    for name in INT8_PACKAGES[kind]:
        package(name, f"int8 for {kind}")


def write_int8(
    path: Path,
    target: Path,
    kind: str,
    batches: Sequence[dict[str, np.ndarray]],
    *,
    is_careful: bool = False,
) -> None:
    """Write a model file with weights and products in int8.

    OpenVINO: weights, and activations with ranges measured on the batches. ONNX:
    weights, with a scale for each column; the ranges of activations are computed at
    each call, over all its texts.

    Args:
        path: as `write_model_file` wrote it.
        target: the file to write.
        kind: `openvino` or `onnx`.
        batches: inputs of the model by name, for OpenVINO.
        is_careful: whether, for ONNX, the second products of the feed-forward networks
            stay in float32; their activations have the widest range.
    """
    if kind == "onnx":
        quantization = package("onnxruntime.quantization", "int8 for onnx")
        with quiet():
            quantization.quantize_dynamic(
                os.fspath(path),
                os.fspath(target),
                weight_type=quantization.QuantType.QInt8,
                op_types_to_quantize=["MatMul", "Gather"],
                per_channel=True,
                nodes_to_exclude=_narrowing_products(path) if is_careful else None,
            )
        say(
            "int8 for onnx takes the ranges of activations from each batch: an answer "
            "depends on the other texts of its batch"
        )
        return
    openvino = package("openvino", "int8 for openvino")
    nncf = package("nncf", "int8 for openvino")
    with quiet():
        quantized = nncf.quantize(
            openvino.Core().read_model(os.fspath(path)),
            nncf.Dataset(list(batches)),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(batches),
        )
        openvino.save_model(quantized, os.fspath(target), compress_to_fp16=False)


def _narrowing_products(path: Path) -> list[str]:
    """Return the products of an ONNX file by weights of fewer columns than rows."""
    graph = package("onnx", "int8 for onnx").load(os.fspath(path)).graph
    sizes = {each.name: tuple(each.dims) for each in graph.initializer}
    return [
        node.name
        for node in graph.node
        if node.op_type == "MatMul"
        and len(size := sizes.get(node.input[1], ())) == 2
        and size[0] > size[1] > 1
    ]
