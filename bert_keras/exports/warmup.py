"""Files that TF Serving reads with a graph: warm-up requests, batching parameters.

A server answers the warm-up requests before it accepts others, so that no user waits
for the optimization of the graph. If one request fails, it does not load the model.

Source: `apis/prediction_log.proto`, `servables/tensorflow/saved_model_warmup_util.cc`,
`servables/tensorflow/bundle_factory_util.cc` and `batching/batching_util.cc` of
tensorflow/serving.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert_keras.files.records import field_start

WARMUP = "tf_serving_warmup_requests"  # in `assets.extra`
BATCHING = "batching_params.pbtxt"  # next to `saved_model.pb`
MAX_BATCH_SIZE = 128  # maximum texts of a request to a server that batches
# Texts of a request, and the share of the longest text that each has.
_REQUESTS = ((1, 0.0), (1, 1.0), (2, 1.0), (4, 0.5), (8, 0.0), (32, 0.0))
_SHORT = 8  # words
_CHOICES = 4
# Numbers of fields, from the outside in: `PredictionLog.predict_log`,
# `PredictLog.request`, `PredictRequest.model_spec` and `.inputs`, and
# `ModelSpec.signature_name`; and the key and value of a map entry.
_PREDICT_LOG, _REQUEST, _MODEL_SPEC, _INPUTS, _SIGNATURE_NAME = 6, 1, 1, 2, 3
_KEY, _VALUE = 1, 2

Signatures = Mapping[str, Sequence[tf.TensorSpec]]
Request = tuple[str, dict[str, tf.Tensor]]

_BATCHING_TEXT = f"""\
# For tensorflow_model_server with --enable_batching and
# --enable_per_model_batching_parameters: waiting requests are computed together.
# A request with more texts than max_batch_size is rejected.
max_batch_size {{ value: {MAX_BATCH_SIZE} }}
batch_timeout_micros {{ value: 1000 }}
max_enqueued_batches {{ value: 100 }}
# Stays off: the server pads with a tensor's first value, so padding would become
# tokens. Requests to `ids` that are computed together must therefore have one length.
pad_variable_length_inputs: false
"""


def warmup_requests(
    signatures: Signatures, *, words: Sequence[str], max_length: int
) -> Iterator[Request]:
    """Yield the name and the inputs of requests to each signature that takes strings.

    They differ in the number of texts and in their length, up to `max_length` words.

    Args:
        signatures: name to the inputs, string [B], or [B, W] for lists of strings.
        words: whole words of the vocabulary, so that a word is a token.
        max_length: maximum length of a text, in tokens.
    """
    for name, specs in signatures.items():
        if any(s.dtype != tf.string or s.shape.rank not in (1, 2) for s in specs):
            continue
        for count, share in _REQUESTS:
            length = max(int(share * max_length), min(_SHORT, max_length))
            yield name, dict(_inputs(specs, count, length, words))


def _inputs(
    specs: Sequence[tf.TensorSpec], count: int, length: int, words: Sequence[str]
) -> Iterator[tuple[str, tf.Tensor]]:
    """Yield the name and value of each input; the last text is the long one."""
    texts = [spec for spec in specs if spec.shape.rank == 1]
    for spec in specs:
        if spec.shape.rank == 1:
            size = length if spec is texts[-1] else min(length, _SHORT)
            row: Any = _text(words, size)
        elif texts:
            text = _text(words, min(length, _SHORT))
            row = [f"{number} {text}" for number in range(_CHOICES)]  # different
        else:
            row = _listed(words, length)
        yield spec.name, tf.constant([row] * count, tf.string)


def _text(words: Sequence[str], count: int) -> str:
    """Return sentences with `count` words in total.

    Each ends with `[MASK]`, which one task fills and which is plain text to the others.
    """
    listed = _listed(words, count)
    sentences = [listed[start : start + _SHORT] for start in range(0, count, _SHORT)]
    return " ".join(f"{' '.join(words)} [MASK]." for words in sentences)


def _listed(words: Sequence[str], count: int) -> list[str]:
    return [words[number % len(words)] for number in range(count)]


def whole_words(vocabulary: Iterable[str], *, most: int = 64) -> list[str]:
    """Return the first words of a vocabulary that are longer than a letter."""
    found = [word for word in vocabulary if len(word) > 1 and word.isalpha()]
    return found[:most] or ["a"]


def write_warmup(path: Path, requests: Iterable[Request]) -> None:
    """Write a TFRecord file of `PredictionLog`, one for each request."""
    with tf.io.TFRecordWriter(str(path)) as file:
        for name, inputs in requests:
            file.write(prediction_log(name, inputs))


def prediction_log(signature: str, inputs: Mapping[str, Any]) -> bytes:
    """Return the bytes of a `PredictionLog` with a request to a signature.

    It is encoded here, since the classes of tensorflow-serving-api are optional. Every
    field is a message or a string: its tag, its length, its bytes.
    """
    request = _field(_MODEL_SPEC, _field(_SIGNATURE_NAME, signature.encode()))
    for name, value in sorted(inputs.items()):
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(_INPUTS, _field(_KEY, name.encode()) + _field(_VALUE, tensor))
    return _field(_PREDICT_LOG, _field(_REQUEST, request))


def _field(number: int, body: bytes) -> bytes:
    return field_start(number, len(body)) + body


def write_batching(path: Path, signatures: Signatures) -> None:
    """Write the batching parameters of a model, if its requests can be merged.

    A server merges the tensors of several requests only if their shapes agree, except
    for the batch axis. Lists of strings, such as the choices of a context, vary in
    length: no file is written, and the server does not batch.
    """
    ranks = {spec.shape.rank for specs in signatures.values() for spec in specs}
    if ranks == {1}:
        path.write_text(_BATCHING_TEXT, encoding="utf-8")
