"""Export a trained model as a SavedModel: strings in, answers out.

The graph may hold core TensorFlow ops and the three ops of tensorflow-text that every
TF Serving since 2.14 includes; any other op is rejected, since a server does not load a
model with an unknown op.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from bert_keras.answering.backend import Backend
from bert_keras.answering.frozen_weights import FrozenWeights, gains_by_freezing
from bert_keras.checkpoints.checkpoint import as_checkpoint_error
from bert_keras.config import BertConfig
from bert_keras.errors import BertKerasError, CheckpointError, reason_of, shown
from bert_keras.exports.answers_file import FORMAT
from bert_keras.exports.saved_model_folder import ANSWERS, EXTRA, GRAPH, versions
from bert_keras.exports.warmup import (
    BATCHING,
    WARMUP,
    warmup_requests,
    whole_words,
    write_batching,
    write_warmup,
)
from bert_keras.files.atomic import check_path, new_folder, replaced_folder
from bert_keras.files.json_file import json_text
from bert_keras.files.lfs import check_no_pointer
from bert_keras.model.encoder import is_of_packed_rows
from bert_keras.tasks import name_of
from bert_keras.tasks.protocols import input_specs
from bert_keras.text.preprocessor import one_or_all

# `tensorflow_model_server` 2.14 to 2.20 all have these (tf-text 2.12.1 on).
TEXT_OPS = frozenset(
    ("NormalizeUTF8", "RegexSplitWithOffsets", "FastWordpieceTokenizeWithOffsets")
)
# Core by name, but they call a Python function, which a server cannot run.
_PYTHON_OPS = frozenset(("EagerPyFunc", "PyFunc", "PyFuncStateless"))
# A folder with one of these files is a model, not a folder of versions.
_OF_A_MODEL = ("config.json", "model.safetensors", GRAPH)
_EXTRAS = ("vocab.txt", "tokenizer_config.json", "tokenizer.json", ANSWERS, WARMUP)
_FILES = frozenset(  # of a SavedModel of ours
    [GRAPH, "fingerprint.pb", "assets", BATCHING]
    + [f"variables/variables.{name}" for name in ("index", "data-00000-of-00001")]
    + [f"{EXTRA}/{name}" for name in _EXTRAS]
)


def export_model(model: keras.Model, output: str | os.PathLike[str]) -> Path:
    """Write the next version of a SavedModel and return its folder, `output/N`.

    Signatures: `serving_default` takes the task's texts, such as `text`, or `text_a`
    and `text_b`, string [B], and gives the task's answers; the task's
    `signatures` take other forms, such as lists of words, or answer with other
    settings, such as a prompt; `ids` takes the model's
    own inputs, such as `token_ids`, `segment_ids`, `padding_mask`, int32 [B, T], and
    gives the same, or `logits` if the answers need the texts. `assets.extra` holds
    `vocab.txt`, the tokenizer's settings and `answers.json`, the task and its settings,
    for people and for `load`; the graph does not read them. A server reads the warm-up
    requests in it, and the batching parameters next to the graph; see `warmup`.

    A float32 model stores its weights as variables. A model loaded in a mixed precision
    stores them as 16-bit constants, half the size, see `FrozenWeights`.

    Args:
        model: a task model with its preprocessor, in the precision of the export.
        output: folder of the versions, created if missing. A new version appears only
            when it is complete.

    Raises:
        BertKerasError: Keras runs on another backend than TensorFlow, or the graph
            would hold an op that a stock server lacks.
        CheckpointError: the folder cannot be written.
    """
    check_backend("export")
    check_path("output", output)
    target = Path(output)
    for name in _OF_A_MODEL:
        if (target / name).exists():
            raise CheckpointError(
                f"{target}: must be a folder of versions 1, 2 …; holds {name}"
            )
    with as_checkpoint_error(
        f"{target}: cannot be written", OSError, tf.errors.OpError
    ):
        target.mkdir(parents=True, exist_ok=True)
        with new_folder(target, ".writing-") as new:
            _write(model, new)
            new.chmod(0o755)
            return _publish(new, target)


def write_saved_model(model: keras.Model, folder: str | os.PathLike[str]) -> None:
    """Write what `export_model` writes into `folder` itself, as Keras's `export` does.

    Raises:
        BertKerasError: as `export_model` does.
        CheckpointError: the folder holds something other than a SavedModel.
    """
    check_backend("export")
    with (
        replaced_folder(folder, files=_FILES, needed=GRAPH) as new,
        as_checkpoint_error(f"{folder}: cannot be written", tf.errors.OpError),
    ):
        _write(model, new)


def check_backend(what: str) -> None:
    """Raise a BertKerasError unless Keras runs on TensorFlow."""
    backend = keras.config.backend()
    if backend != "tensorflow":
        raise BertKerasError(
            f"{what} needs Keras on TensorFlow, KERAS_BACKEND=tensorflow; received "
            f"{backend}: save a model folder and use that"
        )


def _publish(new: Path, target: Path) -> Path:
    """Rename the finished version to the next free number."""
    number = max(versions(target), default=0) + 1
    while True:
        place = target / str(number)
        try:
            new.rename(place)
            return place
        except OSError:
            if not place.exists():
                raise
            number += 1  # another export has taken this number meanwhile


def _write(model: keras.Model, folder: Path) -> None:
    endpoints = signature_functions(model)
    _save_graphs(model, endpoints, folder)
    refuse_unknown_ops(graph.graph_def for graph in meta_graphs(folder))
    extra = folder / EXTRA
    extra.mkdir()
    inputs = input_specs(model.task)["serving_default"]
    others = {
        "precision": model.backbone.dtype_policy.name,
        "inputs": [spec.name for spec in inputs],
    }
    write_description(model, extra, others)
    _write_for_servers(model, endpoints, folder)


def write_description(
    model: keras.Model, folder: Path, others: Mapping[str, Any]
) -> None:
    """Write the tokenizer's files, and `answers.json`, see `read_answers_file`.

    `others` are entries of `answers.json` besides the task and its settings.
    """
    preprocessor = model.preprocessor
    preprocessor.tokenizer.save(folder, max_length=preprocessor.max_length)
    facts = {
        "format": FORMAT,
        "task": name_of(type(model.task)),
        "settings": model.task.get_config(),
        "preprocessing": preprocessor.settings(),
        **others,
    }
    (folder / ANSWERS).write_text(f"{json_text(facts, indent=2)}\n", encoding="utf-8")


def _write_for_servers(
    model: keras.Model, endpoints: Mapping[str, Any], folder: Path
) -> None:
    """Write batching parameters, and warm-up requests after the graph has run them.

    Raises:
        BertKerasError: the graph fails on a request; a server would not load the model.
    """
    signatures = input_specs(model.task)
    words = whole_words(model.preprocessor.tokenizer.vocabulary)
    length = model.preprocessor.max_length
    requests = list(warmup_requests(signatures, words=words, max_length=length))
    for name, inputs in requests:
        try:
            endpoints[name](*inputs.values())
        except (tf.errors.OpError, ValueError) as error:
            first = {key: value.numpy().tolist()[0] for key, value in inputs.items()}
            raise BertKerasError(
                f"the signature `{name}` must accept any texts, since a server sends "
                f"warm-up requests; it rejects {shown(first)}: {reason_of(error)}"
            ) from None
    write_warmup(folder / EXTRA / WARMUP, requests)
    write_batching(folder / BATCHING, signatures)


def _save_graphs(
    model: keras.Model, functions: Mapping[str, Any], folder: Path
) -> None:
    """Write the SavedModel of some tf.functions, and the variables that they use.

    Keras's `ExportArchive` does the same but traces each function twice, which takes
    twice as long. Lookup tables of the model's layers are also written.
    """
    graphs = {name: each.get_concrete_function() for name, each in functions.items()}
    saved = tf.Module()
    held = {id(held): held for graph in graphs.values() for held in graph.variables}
    saved.held = list(held.values())
    saved.tables = [
        part
        for each in (model, *getattr(model.task, "holds", ()))
        for part in tf.train.TrackableView(each).descendants()
        if isinstance(part, tf.saved_model.experimental.TrackableResource)
    ]
    tf.saved_model.save(saved, os.fspath(folder), signatures=graphs)


def signature_functions(model: keras.Model) -> dict[str, Any]:
    """Return the tf.function of each signature, see `export_model`; each is traced with
    its `input_signature`, and returns the answers by name.
    """
    task = model.task
    frozen = FrozenWeights(model) if gains_by_freezing(model) else None
    weights = frozen.scope if frozen else contextlib.nullcontext
    names = [name for name in task.needs.keras_inputs() if not is_of_packed_rows(name)]
    # With one text per row, these inputs have the shapes of the Keras inputs.
    inputs = [tf.TensorSpec(i.shape, i.dtype, name=i.name) for i in model.inputs]
    ids = [spec for spec in inputs if spec.name in names]

    @tf.function(input_signature=ids, autograph=False)
    def from_ids(*batch: Any) -> dict[str, tf.Tensor]:
        given = {spec.name: value for spec, value in zip(ids, batch, strict=True)}
        given = _checked_ids(given, model.backbone.config)
        with weights():
            outputs = model(given, training=False)
        if task.answers_ids:
            return task.answer(outputs, given)
        return outputs if isinstance(outputs, dict) else {"logits": outputs}

    return {**text_functions(model, weights), "ids": from_ids}


def text_functions(
    model: Backend, weights: Callable[[], Any] = contextlib.nullcontext
) -> dict[str, Any]:
    """Return the tf.function of each of the task's signatures, which takes texts.

    Args:
        model: what computes them.
        weights: the context in which each is traced.
    """
    task = model.task

    def from_texts(name: str, signature: tuple[tf.TensorSpec, ...]) -> Any:
        answering = task.of_signature(name)

        @tf.function(input_signature=signature, autograph=False)
        def answer(*texts: Any) -> dict[str, tf.Tensor]:
            with weights():
                given = one_or_all(texts)
                if answering is task:
                    return model.answer(given)
                return answering.respond(given, model.preprocessor, model.infer)

        return answer

    return {name: from_texts(name, each) for name, each in input_specs(task).items()}


_ASSERTION = re.compile(r"assertion failed: \[(.*?)\]")


def rejection(error: Exception) -> str:
    """Return the line with which a graph refused ids, or else that it refused them."""
    found = _ASSERTION.search(str(error))
    return found[1] if found else "the model rejects these ids"


def _checked_ids(batch: dict[str, Any], config: BertConfig) -> dict[str, Any]:
    """Return a batch of ids that the graph refuses if one is out of range.

    Keras takes a negative id as one counted from the end of the table.
    """
    sizes = {"token_ids": config.vocab_size}
    if config.type_vocab_size:
        sizes["segment_ids"] = config.type_vocab_size
    checks = []
    for name in sizes.keys() & batch.keys():
        ids, last = batch[name], sizes[name] - 1
        is_known = tf.logical_and(ids >= 0, ids <= last)
        first = tf.concat([tf.boolean_mask(ids, tf.logical_not(is_known)), [0]], 0)[0]
        rule = f"`{name}` must be from 0 to {last}; received "
        line = tf.strings.join([rule, tf.strings.as_string(first)])
        checks.append(tf.debugging.Assert(tf.reduce_all(is_known), [line]))
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in batch.items()}


def meta_graphs(folder: Path) -> list[Any]:
    """Return the MetaGraphDefs of a SavedModel.

    Raises:
        CheckpointError: it is missing or broken.
    """
    check_no_pointer(folder / GRAPH)
    with as_checkpoint_error(f"{folder}: a broken SavedModel", OSError, DecodeError):
        read = (folder / GRAPH).read_bytes()
        found = list(saved_model_pb2.SavedModel.FromString(read).meta_graphs)
        if not found:
            raise DecodeError("contains no graph")
        return found


def ops_of(graph: Any) -> set[str]:
    """Return the names of the ops of a GraphDef and of the functions in it."""
    parts = [graph.node, *(function.node_def for function in graph.library.function)]
    return {node.op for part in parts for node in part}


def refuse_unknown_ops(graphs: Iterable[Any]) -> None:
    """Raise if a GraphDef, or a function in it, has an op that a server may lack."""
    names: set[str] = set()
    for graph in graphs:
        functions = {function.signature.name for function in graph.library.function}
        names |= ops_of(graph) - functions
    unknown = sorted(
        name
        for name in names - TEXT_OPS - {"_Arg", "_Retval"}
        # Add-on ops have no raw op.
        if name in _PYTHON_OPS or not hasattr(tf.raw_ops, name)
    )
    if unknown:
        raise BertKerasError(
            "the graph must hold core TensorFlow ops and "
            f"{', '.join(sorted(TEXT_OPS))} only, for a stock server to load it; "
            f"it holds {', '.join(unknown)}"
        )
