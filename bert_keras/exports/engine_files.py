"""The files of an export to an engine, and the packages that read and write them.

Needs no TensorFlow: a folder answers without it. The names of files, inputs and outputs
are those of Hugging Face's optimum, which transformers.js, sentence-transformers and
text-embeddings-inference read, but for LiteRT and the graph of the answers.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from collections.abc import Iterator
from typing import Any

from bert_keras.errors import needs

FILES = {
    "openvino": "openvino/openvino_model.xml",
    "onnx": "onnx/model.onnx",
    "litert": "model.tflite",
}
INT8_FILES = {
    "openvino": "openvino/openvino_model_qint8_quantized.xml",
    "onnx": "onnx/model_quantized.onnx",
}
_XML = ".xml"  # OpenVINO's weights are in a .bin next to it
# The answers from the outputs of the model, see `answers_graph`.
ANSWER_FILES = {"openvino": "openvino/answers.xml", "onnx": "onnx/answers.onnx"}
NAMES = {
    "token_ids": "input_ids",
    "segment_ids": "token_type_ids",
    "padding_mask": "attention_mask",
}
OUR_NAMES = {theirs: ours for ours, theirs in NAMES.items()}


def all_files() -> frozenset[str]:
    """Return the names of all model files, OpenVINO's weights included."""
    kinds = (FILES, INT8_FILES, ANSWER_FILES)
    names = [name for each in kinds for name in each.values()]
    weights = [n.removesuffix(_XML) + ".bin" for n in names if n.endswith(_XML)]
    return frozenset((*names, *weights))


def package(name: str, what: str) -> Any:
    """Import a package of the extra `engines`.

    Raises:
        ConfigError: it is not installed.
    """
    with needs(what, extra="engines"), quiet():
        return importlib.import_module(name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep exporters and quantizers from printing and logging; errors are raised."""
    import logging  # takes 7 ms, which an answer does not need

    disabled = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
