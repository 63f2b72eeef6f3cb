"""Describe a model folder, a checkpoint or an export: `describe`."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_keras.checkpoints import has_pooler, read_checkpoint
from bert_keras.checkpoints.model_types import their_architecture
from bert_keras.errors import CheckpointError, one_line
from bert_keras.exports.saved_model_folder import (
    ANSWERS,
    EXTRA,
    find_saved_model,
    is_exported,
    saved_versions,
)
from bert_keras.files.json_file import read_json
from bert_keras.models.folder import Folder
from bert_keras.retrieval.vector_file import describe_vectors, is_vector_file
from bert_keras.runs.environment import load_tensorflow
from bert_keras.settings import HYBRID, HYBRID_WEIGHT
from bert_keras.tasks.catalog import RERANKED, VARIANTS


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return facts about a model folder, checkpoint, export or index of vectors.

    They are plain values. An index is an npz or Parquet file that `search` or
    `features` wrote.

    Reads names, shapes and settings, but no weights; a SavedModel is not run.

    Raises:
        CheckpointError: the path contains none of these, or it is broken.
    """
    folder = Path(path)
    if is_vector_file(path):
        return describe_vectors(path)
    exported = find_saved_model(folder)
    if exported is None and (folder / ANSWERS).is_file():
        return _engine(folder)
    if exported is None:
        return _checkpoint(path)
    facts = _saved_model(exported)
    if exported != folder:
        facts["versions"] = ", ".join(map(str, saved_versions(folder)))
    return facts


# The heads of pretraining by the tasks that they answer.
_HEADS = {"cls/predictions": "masked-lm", "cls/seq_relationship": "next-sentence"}


def _head(name: str) -> str:
    """Return what the head of a weight is called."""
    return _HEADS.get("/".join(name.split("/")[:2]), name.split("/")[0])


def _checkpoint(path: str | os.PathLike[str]) -> dict[str, Any]:
    checkpoint = read_checkpoint(path)
    raw, shapes = checkpoint.raw_config, checkpoint.shapes
    heads = sorted({_head(name) for name in shapes if not name.startswith("bert/")})
    named = raw.get("architectures") or "not specified"  # of any type
    named = named if isinstance(named, list) else [named]
    facts: dict[str, Any] = {
        "kind": f"{checkpoint.origin} checkpoint",
        "path": str(checkpoint.home or checkpoint.path),
        "architecture": ", ".join(
            their_architecture(checkpoint.config, str(name)) for name in named
        ),
        **checkpoint.config.to_dict(),
        "parameters": sum(math.prod(shape) for shape in shapes.values()),
        "tensors": len(shapes),
        "pooler": has_pooler(checkpoint),
        "task heads": ", ".join(heads) or "none",
    }
    if checkpoint.own_entry and checkpoint.origin == "huggingface":
        facts["kind"] = "model folder"
    for key, value in Folder.open(checkpoint).facts().items():
        if isinstance(value, dict):  # such as a vocabulary
            value = one_line(value, longest=80)
        if isinstance(value, list | tuple):
            value = ", ".join(map(str, value))
        name = one_line(key)
        facts[f"setting {name}" if name in facts else name] = value
    if checkpoint.unrecognized:
        facts["unrecognized"] = ", ".join(checkpoint.unrecognized)
    return facts


def _engine(folder: Path) -> dict[str, Any]:
    """Return the facts in `answers.json` of a model for an engine, and its size."""
    place = folder / ANSWERS
    record = read_json(place)
    try:
        facts = {
            "kind": f"model for {record['engine']}",
            "path": str(folder),
            "engine": record["engine"],
            "model": record["model"],
            "precision": record["precision"],
            **_recorded_task(record),
            "inputs": ", ".join(map(_stored_spec, record["inputs"])),
            "outputs": ", ".join(map(_stored_spec, record["outputs"])),
            "max_length": record["max_length"],
        }
    except (KeyError, TypeError, AttributeError):
        raise CheckpointError(
            f"{place}: must be one that `export` wrote for an engine"
        ) from None
    if not (folder / str(facts["model"])).is_file():
        facts["model"] = f"{facts['model']} (missing)"
    size = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())
    facts["size"] = f"{size / 1e6:,.1f} MB"
    return facts


def _recorded_task(record: Mapping[str, Any]) -> dict[str, str]:
    """Return `task`, perhaps `classes`, and how an export with an index ranks.

    Args:
        record: what `answers.json` of an export holds.
    """
    task, settings = record["task"], record["settings"]
    facts = {"task": VARIANTS.get(task, task)}
    if "classes" in settings:
        facts["classes"] = ", ".join(settings["classes"])
    if task in VARIANTS:
        weight = settings.get("hybrid_weight", HYBRID_WEIGHT.default)
        is_hybrid = settings.get("hybrid", HYBRID.default)
        kind = settings.get("kind", "dense")
        facts["ranking"] = f"hybrid, weight {weight:g}" if is_hybrid else kind
        facts["ranking"] += ", reranked" if task == RERANKED else ""
    return facts


def _stored_spec(spec: Mapping[str, Any]) -> str:
    """Return the description of a tensor in `answers.json`, as `_tensor` does."""
    sizes = ("?" if size is None else str(size) for size in spec["shape"])
    return f"{spec['name']} {spec['dtype']} [{', '.join(sizes)}]"


def _saved_model(folder: Path) -> dict[str, Any]:
    """Return the signatures of a SavedModel and the facts in `assets.extra`."""
    load_tensorflow()
    from bert_keras.exports.saved_model import meta_graphs

    graph = meta_graphs(folder)[0]
    facts: dict[str, Any] = {
        "kind": "SavedModel",
        "path": str(folder),
        "tensorflow": graph.meta_info_def.tensorflow_version,
    }
    for name in sorted(graph.signature_def):
        signature = graph.signature_def[name]
        if not name.startswith("__"):
            sides = (
                ", ".join(_tensor(k, v) for k, v in sorted(side.items()))
                for side in (signature.inputs, signature.outputs)
            )
            facts[f"signature {name}"] = " -> ".join(sides)
    if is_exported(folder):
        extra = folder / EXTRA / ANSWERS
        try:
            facts |= _recorded_task(read_json(extra))
        except (KeyError, TypeError, AttributeError):
            raise CheckpointError(
                f"{extra}: must hold `task` and `settings`, whose `classes` are strings"
            ) from None
    return facts


def _tensor(name: str, info: Any) -> str:
    """Return the description of a tensor, such as `text string [B]`."""
    from tensorflow.core.framework import types_pb2

    dtype = types_pb2.DataType.Name(info.dtype).removeprefix("DT_").lower()
    sizes = (str(dim.size) if dim.size >= 0 else "?" for dim in info.tensor_shape.dim)
    return f"{name} {dtype} [{', '.join(sizes)}]"
