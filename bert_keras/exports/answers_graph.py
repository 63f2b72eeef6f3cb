"""The answers of a task as a graph of an engine: `write_answers_graph`.

The task's `answer` is traced in TensorFlow and converted like the model: outputs of the
head in, answers out. Engines have no strings, so a string is its number in a table
there, as long as the graph only moves strings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework.convert_to_constants import (
    convert_variables_to_constants_v2,
)

from bert_keras.errors import ConfigError, one_line
from bert_keras.exports.engine_files import package, quiet
from bert_keras.exports.model_file import OPSET, name_openvino, rename_outputs
from bert_keras.tasks.base import Task
from bert_keras.tasks.protocols import Spelling

# Ops that move strings, or compare them, and do the same to their numbers.
_MOVING = frozenset(
    "BroadcastTo ConcatV2 Const Equal ExpandDims Fill Gather GatherNd GatherV2 Identity"
    " IdentityN NotEqual Pack Pad PadV2 Placeholder Reshape Select SelectV2 Slice"
    " Squeeze StridedSlice Tile Transpose".split()
)
_STRING, _NUMBER = types_pb2.DT_STRING, types_pb2.DT_INT32


class NeedsTensorFlow(ConfigError):
    """A task that an engine does not answer alone; the message is the reason."""


class OtherIds(NeedsTensorFlow):
    """The library `tokenizers` does not give a model's ids; the message shows where."""


def answers_function(task: Task, outputs: Mapping[str, Any]) -> Any:
    """Return the concrete function of a task's answers, or of their numbers.

    It takes what they read by name: the outputs of the model, and what the row reader
    adds to a batch. Numbers are of a task whose answers hold text, see `Spelling`.

    Args:
        task: the task.
        outputs: dtype and shape of the outputs of the model by name.

    Raises:
        NeedsTensorFlow: the answers need more of the batch.
    """
    if not task.reads_by_reader:
        raise NeedsTensorFlow(f"the task {task.name} reads texts in its own way")
    batch = task.row_reader.answer_specs()
    specs = {
        name: tf.TensorSpec(each.shape, each.dtype, name)
        for name, each in outputs.items()
    }

    def answers(**given: tf.Tensor) -> dict[str, tf.Tensor]:
        named = {name: given[name] for name in outputs}
        of_batch = {name: given[name] for name in batch}
        found = task.from_named(named, of_batch)
        if isinstance(task, Spelling):
            return task.numbers(found, of_batch)
        return task.answer_inferred(found, of_batch)

    graph = tf.function(answers, autograph=False)
    try:
        return graph.get_concrete_function(**specs, **batch)
    except (KeyError, AttributeError) as error:
        raise NeedsTensorFlow(
            f"the answers of {task.name} need more than its outputs: {one_line(error)}"
        ) from None


def write_answers_graph(function: Any, path: Path, kind: str) -> dict[str, Any]:
    """Write a function of answers for an engine; return the facts to read them.

    These are `strings`, a table, and `string_outputs`, the names of the answers that
    are numbers of its rows.

    Args:
        function: what `answers_function` returned.
        path: the file to write.
        kind: `openvino` or `onnx`.

    Raises:
        NeedsTensorFlow: the engine cannot compute them.
    """
    outputs = dict(sorted(function.structured_outputs.items()))
    frozen = convert_variables_to_constants_v2(function)
    names = [tensor.name for tensor in frozen.outputs]
    # The outputs of a function are in the order of their sorted names.
    graph, strings = _with_numbers(frozen.graph.as_graph_def())
    inputs = [tensor.name for tensor in frozen.inputs if tensor.dtype != tf.resource]
    try:
        with quiet():
            if kind == "onnx":
                _write_onnx(graph, inputs, names, list(outputs), path)
            else:
                _write_openvino(graph, names, list(outputs), path)
    except Exception as error:  # of any kind in converters
        raise NeedsTensorFlow(
            f"its answers cannot be written as {kind}: {one_line(error)}"
        ) from None
    are_strings = [name for name, each in outputs.items() if each.dtype == tf.string]
    return {
        "inputs": [name.partition(":")[0] for name in inputs],
        "outputs": list(outputs),
        "strings": strings,
        "string_outputs": are_strings,
    }


def _with_numbers(graph: Any) -> tuple[Any, list[str]]:
    """Return a GraphDef with numbers in place of strings, and the strings."""
    strings: dict[bytes, int] = {b"": 0}
    for node in graph.node:
        kinds = [value for value in node.attr.values() if value.type == _STRING]
        if kinds and node.op not in _MOVING:
            raise NeedsTensorFlow(f"its answers compute strings, by {node.op}")
        if kinds and node.op == "Const":
            array = tf.make_ndarray(node.attr["value"].tensor)
            flat = [strings.setdefault(x, len(strings)) for x in array.ravel()]
            numbers = tf.make_tensor_proto(flat, tf.int32, array.shape)
            node.attr["value"].tensor.CopyFrom(numbers)
        for value in kinds:
            value.type = _NUMBER
        for value in node.attr.values():
            if value.HasField("list") and _STRING in value.list.type:
                kept = [_NUMBER if x == _STRING else x for x in value.list.type]
                value.list.type[:] = kept
        node.attr.pop("_output_shapes", None)
    return graph, [text.decode("utf-8", "replace") for text in strings]


def _write_onnx(
    graph: Any, inputs: Sequence[str], outputs: Sequence[str], names: Any, path: Path
) -> None:
    onnx, convert = package("onnx", "onnx"), package("tf2onnx.convert", "onnx")
    found, _ = convert.from_graph_def(
        graph, input_names=list(inputs), output_names=list(outputs), opset=OPSET
    )
    rename_outputs(found.graph, names)
    onnx.save(found, os.fspath(path))


def _write_openvino(
    graph: Any, outputs: Sequence[str], names: Sequence[str], path: Path
) -> None:
    openvino = package("openvino", "openvino")
    whole = tf.Graph()
    with whole.as_default():
        tf.import_graph_def(graph, name="")
    found = openvino.convert_model(whole)
    openvino.save_model(found, os.fspath(path), compress_to_fp16=False)
    name_openvino(path, names, [_source(graph, name) for name in outputs])


def _source(graph: Any, output: str) -> str:
    """Return the tensor of a GraphDef that an output is, behind any Identity."""
    nodes = {node.name: node for node in graph.node}
    name = output.partition(":")[0]
    while nodes[name].op == "Identity":
        name = nodes[name].input[0].partition(":")[0]
    return f"{name}:0"
