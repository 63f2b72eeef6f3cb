"""Checkpoints and SavedModels of TF Model Garden: BertEncoder, BertPretrainerV2.

Weights are found through the object graph, whatever root they were saved under:
`encoder`, `model`, the checkpoints of its `train.py` with their optimizer, exported
SavedModels. An encoder is recognized by its attributes, or, if it was saved as a
functional Keras model without them, as in older releases, by the order of its layers.
No code of a SavedModel is run.

The writer builds a tree of `tf.train.Checkpoint` objects in place of Model Garden's:
TensorFlow matches a checkpoint with a model by attribute names, so Model Garden is not
needed. The roots are those that its tools and tutorials restore from: `encoder`,
`model` and, with heads, `masked_lm` and `next_sentence.pooler_dense`.

Source: TF Model Garden `bert_encoder.py`, `bert_pretrainer.py` (`checkpoint_items`),
`masked_lm.py`, `cls_head.py`, `base_trainer.py`, `export_tfhub_lib.py`,
`tf1_bert_checkpoint_converter_lib.py`, `configs/encoders.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints import formats, google, names
from bert_keras.checkpoints.checkpoint import (
    Checkpoint,
    LazyArrays,
    as_checkpoint_error,
    bert_config,
    joined_heads,
    listed,
    shapes_of,
    weight_of,
)
from bert_keras.checkpoints.google import CONFIG, PREFIX, config_values, read_config
from bert_keras.checkpoints.model_garden_config import (
    PARAMS,
    PARAMS_KEYS,
    check_plain,
    read_settings,
)
from bert_keras.checkpoints.names import MODEL_GARDEN
from bert_keras.checkpoints.tensorflow_checkpoint import (
    BROKEN,
    ROOT,
    ObjectGraph,
    Variable,
    read_graph,
    read_index,
    refused,
)
from bert_keras.checkpoints.tf_hub import CONFIG as HUB_CONFIG
from bert_keras.checkpoints.tf_hub import GRAPH, VARIABLES
from bert_keras.errors import CheckpointError

_POOLER_SCOPE = "bert/pooler/dense"


def is_object_based(prefix: Path) -> bool:
    """Return whether a checkpoint is a TensorFlow 2 checkpoint, which holds objects."""
    return ROOT in read_index(prefix)


def is_saved_model(folder: Path) -> bool:
    """Return whether a SavedModel's objects include an encoder of Model Garden.

    Our own exports, with a config in `assets.extra`, are read as TF-Hub SavedModels by
    variable names (`tf_hub`), as are SavedModels with other objects.
    """
    prefix = folder / VARIABLES
    variables = read_index(prefix)
    if (folder / HUB_CONFIG).is_file():
        return False
    try:
        graph = read_graph(variables)
    except BROKEN:
        return False
    objects = graph.reachable(without=ASIDE)
    return any(_encoder(graph, number) is not None for number in objects)


def read_model_garden(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint of Model Garden; weights are read on demand.

    Args:
        path: the path before `.index`, or the folder of a SavedModel. Its "gelu" is
            the tanh form, `gelu_new` in our config. If a next-sentence head has a
            pooler, it replaces the encoder's own, which pretraining does not train. A
            pooler of zeros counts as missing.

    Raises errors as `read_checkpoint` does.
    """
    folder = Path(path)
    saved_model = (folder / GRAPH).is_file()
    prefix = folder / VARIABLES if saved_model else folder
    folder = folder if saved_model else folder.parent
    with refused(f"{prefix}: broken or not a TensorFlow 2 checkpoint"):
        graph = read_graph(read_index(prefix))
    chosen, unrecognized, notes = _sort_out(graph, prefix)
    tokenizer = {}
    if (lower_case := graph.variable(0, "do_lower_case")) is not None:
        with refused(str(prefix)):
            tokenizer["lowercase"] = lowercase = lower_case.read_boolean()
        notes.append(f"lowercase={lowercase}, read from the variable do_lower_case")
    heads = _heads(chosen, prefix)
    shapes = {name: joined_heads(name, each, heads) for name, each in chosen.items()}
    masked_lm = "cls/predictions/output_bias" in chosen
    if (folder / CONFIG).exists():
        raw, config, config_notes = read_config(folder / CONFIG)
        check_plain(raw, width=config.hidden_size, path=folder / CONFIG)
    else:
        raw, config, config_notes = read_settings(
            folder, shapes, heads=heads, masked_lm=masked_lm
        )
    if config.num_attention_heads != heads:
        raise CheckpointError(
            f"{prefix}: `num_attention_heads` must be {heads:,}, as in the "
            f"weights; received {config.num_attention_heads:,}"
        )
    return Checkpoint(
        path=folder,
        origin="model-garden",
        config=config,
        raw_config=raw,
        arrays=LazyArrays.of(chosen, shapes=shapes, place=str(prefix)),
        notes=(*config_notes, *notes),
        unrecognized=tuple(unrecognized),
        tokenizer=tokenizer,
    )


def _sort_out(
    graph: ObjectGraph, place: Path
) -> tuple[dict[str, Variable], list[str], list[str]]:
    """Return canonical name to variable; unrecognized names; notes."""
    objects = graph.reachable(without=ASIDE)
    parts, own_pooler = find_parts(graph, objects, place=place)
    chosen = find_weights(graph, parts, place=place)
    used = [*chosen.values(), *own_pooler]
    for variable in used:
        variable.check()
    names_used = {variable.name for variable in used}
    rest = {
        number: node.full_name or node.variable.name
        for number, node in enumerate(graph.nodes)
        if node.variable is not None
        and node.variable.is_float  # a counter is not
        and node.variable.name not in names_used
    }
    others = [n for n in objects if n in rest and n not in graph.slots]
    notes = _pooler_notes(chosen, own_pooler, place)
    if skipped := len(rest) - len(others):
        notes.append(f"{skipped:,} optimizer values are skipped")
    return chosen, [rest[number] for number in others], notes


def _pooler_notes(
    chosen: dict[str, Variable], own: list[Variable], place: Path
) -> list[str]:
    """Return notes on the pooler; removes a pooler of zeros from `chosen`."""
    taken = {n: v for n, v in chosen.items() if n.startswith(f"{_POOLER_SCOPE}/")}
    with refused(str(place)):
        values = [variable.read_bytes() for variable in taken.values()]
        others = [variable.read_bytes() for variable in own]
    if taken and not any(map(any, values)):
        for name in taken:
            del chosen[name]
        return ["there is no pooler: the file's is all zeros"]
    if own and values != others:
        return [
            "the pooler is the next-sentence head's; the encoder's own, "
            "which pretraining leaves untrained, differs"
        ]
    return []


def _heads(chosen: Mapping[str, Variable], prefix: Path) -> int:
    """Return the number of attention heads of the first layer's query."""
    query = chosen.get("bert/encoder/layer_0/attention/self/query/kernel")
    if query is None or len(query.shape) != 3:
        found = "is absent" if query is None else f"has {list(query.shape)}"
        raise CheckpointError(
            f"{prefix}: the query of the first layer must have 3 axes; {found}"
        )
    return query.shape[1]


# Which objects are the encoder and its heads.

NEXT_SENTENCE = "next_sentence"
NEXT_SENTENCE_POOLER = "next_sentence.pooler_dense"  # its name next to the model
# Attributes that lead to no weights: training state, and Keras's own lists.
ASIDE = {
    "optimizer",
    "keras_api",
    "metrics",
    "compiled_metrics",
    "variables",
    "trainable_variables",
    "non_trainable_variables",
}
LAYERS = "_transformer_layers"
POOLER = "_pooler_layer"
# The layers of an encoder in their order: these, the blocks, the pooler.
EMBEDDINGS = (
    "_embedding_layer",
    "_position_embedding_layer",
    "_type_embedding_layer",
    "_embedding_norm_layer",
)
_MASKED_LM = frozenset(("dense", "layer_norm", "bias", "embedding_table"))


def find_parts(
    graph: ObjectGraph, objects: list[int], *, place: Path
) -> tuple[int, list[Variable]]:
    """Return a new object that holds `encoder` and the heads among `objects`.

    The encoder gets its attributes, however it was saved. If a next-sentence head has a
    pooler, it becomes the encoder's: pretraining trains no other, and Model Garden's
    exports copy it the same way. The variables of the encoder's own pooler, kernel
    first, are returned as well.
    """
    found: dict[str, list[int]] = {"encoder": [], "masked_lm": [], NEXT_SENTENCE: []}
    for number in objects:
        children = graph.nodes[number].children
        if (attributes := _encoder(graph, number)) is not None:
            found["encoder"].append(graph.add(attributes))
        elif children.keys() >= _MASKED_LM:
            found["masked_lm"].append(number)
        elif "out_proj" in children and _is_next_sentence(graph, number):
            found[NEXT_SENTENCE].append(number)
    if not found["encoder"]:
        raise CheckpointError(
            f"{place}: contains no BertEncoder of TF Model Garden; the root holds "
            f"{listed(sorted(graph.nodes[0].children)) or 'nothing'}"
        )
    for name, numbers in found.items():
        if len(numbers) > 1:
            raise CheckpointError(
                f"{place}: must hold one {name}; holds {len(numbers):,}"
            )
    parts = {name: numbers[0] for name, numbers in found.items() if numbers}
    encoder = dict(graph.nodes[parts["encoder"]].children)
    if "_embedding_projection" in encoder:
        raise CheckpointError(
            f"{place}: must have token embeddings of the hidden size; holds an "
            "`_embedding_projection`"
        )
    paths = (f"{POOLER}/kernel", f"{POOLER}/bias")
    own = [graph.variable(parts["encoder"], path) for path in paths]
    pooler = graph.find(parts.get(NEXT_SENTENCE, 0), "dense")
    pooler = graph.nodes[0].children.get(NEXT_SENTENCE_POOLER, pooler)
    if pooler is not None:
        parts["encoder"] = graph.add({**encoder, POOLER: pooler})
    return graph.add(parts), [variable for variable in own if variable is not None]


def find_weights(graph: ObjectGraph, parts: int, *, place: Path) -> dict[str, Variable]:
    """Return canonical name to variable, of the parts that `find_parts` found."""
    chosen = {
        name: variable
        for name, path in _places(graph, parts)
        if (variable := graph.variable(parts, path)) is not None
    }
    words = graph.find(parts, "encoder/_embedding_layer/embeddings")
    table = graph.find(parts, "masked_lm/embedding_table")
    keys = {variable.name for variable in chosen.values()}
    if len(keys) < len(chosen) or table not in (None, words):
        raise CheckpointError(
            f"{place}: each weight must be a separate variable, and the masked-LM "
            "head must share the token embeddings"
        )
    return chosen


def _places(graph: ObjectGraph, parts: int) -> Iterator[tuple[str, str]]:
    """Yield each canonical name and where its weight would be."""
    layers = graph.find(parts, f"encoder/{LAYERS}")
    numbers = [] if layers is None else list(graph.nodes[layers].children)
    for theirs in MODEL_GARDEN.values():
        for number in numbers if "#" in theirs else [""]:
            path = theirs.replace("#", number)
            if (name := names.from_model_garden(path)) is not None:
                yield name, path


def _encoder(graph: ObjectGraph, number: int) -> dict[str, int] | None:
    """Return the attributes of an encoder; `None` if the object is not one."""
    children = graph.nodes[number].children
    if children.keys() >= {*EMBEDDINGS, LAYERS}:
        return dict(children)
    ordered: list[int] = []
    while (child := children.get(f"layer_with_weights-{len(ordered)}")) is not None:
        ordered.append(child)
    kinds = [graph.nodes[child].children for child in ordered]
    first, blocks = len(EMBEDDINGS), kinds[len(EMBEDDINGS) : -1]
    if not blocks or not all("_attention_layer" in block for block in blocks):
        return None
    if "kernel" not in kinds[-1] or "gamma" not in kinds[first - 1]:
        return None
    layers = {str(i): child for i, child in enumerate(ordered[first:-1])}
    return {
        **dict(zip(EMBEDDINGS, ordered, strict=False)),
        LAYERS: graph.add(layers),
        POOLER: ordered[-1],
    }


def _is_next_sentence(graph: ObjectGraph, number: int) -> bool:
    """Return whether a head is for next sentences, by its name or its weights."""
    pooler = graph.nodes[0].children.get(NEXT_SENTENCE_POOLER)
    if pooler is not None:
        return graph.nodes[number].children.get("dense") == pooler
    kernel = graph.find(number, "out_proj/kernel")
    name = "" if kernel is None else graph.nodes[kernel].full_name
    return NEXT_SENTENCE in name.split("/")


# Writing.

_STATE = "checkpoint"  # the file that `tf.train.latest_checkpoint` reads
FILES = google.FILES | {PARAMS, _STATE}
_Tree = dict[str, Any]  # attribute to its value: a tree, or a variable


def write_model_garden(
    folder: Path, arrays: Mapping[str, np.ndarray], config: Mapping[str, Any]
) -> list[str]:
    """Write `bert_config.json`, `params.yaml` and `bert_model.ckpt.*`.

    `tf.train.Checkpoint(encoder=…)`, `(model=…)` of an encoder, or of a pretrainer with
    its heads, restores them. Arguments and errors as in `write_google`.

    Returns:
        Notes on what Model Garden computes differently, and what the checkpoint lacks.
    """
    values, notes = config_values(config, formats.MODEL_GARDEN)
    sizes = bert_config(config, path=Path(CONFIG))
    shapes = shapes_of(arrays)
    formats.MODEL_GARDEN.check_heads(shapes, config)
    places = {names.to_model_garden(name): name for name in shapes}
    import tensorflow as tf

    tree: _Tree = {}
    heads = sizes.num_attention_heads
    for place, name in places.items():
        array = weight_of(arrays, name, place=str(folder), heads=heads)
        _put(tree, place, tf.Variable(array, name=place))
    _add_pooler(tree, sizes.hidden_size)
    root = _root(tree)
    prefix = folder / PREFIX
    with as_checkpoint_error(f"{folder}: cannot write", OSError, tf.errors.OpError):
        folder.mkdir(parents=True, exist_ok=True)
        _write_texts(folder, values)
        _ = root.save_counter  # created on access: `restore` looks for it
        root.write(str(prefix))
    for variable in read_index(prefix).values():  # the written file must open
        if "/.ATTRIBUTES/VARIABLE_VALUE" in variable.name and variable.shape:
            variable.check()
    if f"{_POOLER_SCOPE}/kernel" not in shapes:
        notes.append(
            "there is no pooler: TF Model Garden's `pooler_transform` is all zeros"
        )
    has_head = any(name.startswith("cls/") for name in shapes)
    if has_head and "cls/predictions/output_bias" not in shapes:
        notes.append(
            "there is no masked-LM head: TF Model Garden's pretrainer keeps its own"
        )
    return notes


def _put(tree: _Tree, place: str, value: Any) -> None:
    """Put a value into nested mappings at `a/b/c`."""
    *steps, last = place.split("/")
    for step in steps:
        tree = tree.setdefault(step, {})
    tree[last] = value


def _add_pooler(tree: _Tree, width: int) -> None:
    """Give the encoder a pooler of zeros if it has none, and the head its copy."""
    import tensorflow as tf

    zeros = {"kernel": tf.zeros([width, width]), "bias": tf.zeros([width])}
    for part, value in zeros.items():
        tree["encoder"].setdefault(POOLER, {}).setdefault(part, tf.Variable(value))
        if NEXT_SENTENCE in tree:
            copy = tf.Variable(tree["encoder"][POOLER][part])
            _put(tree, f"{NEXT_SENTENCE}/dense/{part}", copy)


def _root(tree: _Tree) -> Any:
    """Return the object to save: the encoder, the heads, and the whole model.

    Each object is created once, by the names that restoring needs.
    """
    parts = tree["encoder"]
    made = {name: _made(part) for name, part in parts.items() if name != LAYERS}
    numbers = sorted(parts[LAYERS], key=int)
    blocks = {number: _made(parts[LAYERS][number]) for number in numbers}
    # Releases that stored no attributes identify layers by their order.
    ordered = [*(made[name] for name in EMBEDDINGS), *blocks.values(), made[POOLER]]
    counted = {f"layer_with_weights-{i}": layer for i, layer in enumerate(ordered)}
    encoder = _made({**made, **counted, LAYERS: _made(blocks)})
    if len(tree) == 1:
        return _made({"encoder": encoder, "model": encoder})
    root: _Tree = {"encoder": encoder}
    model: _Tree = {"encoder_network": encoder}
    if (masked_lm := tree.get("masked_lm")) is not None:
        table = parts[EMBEDDINGS[0]]["embeddings"]
        head = _made({**masked_lm, "embedding_table": table})
        root["masked_lm"] = model["masked_lm"] = head
    if (next_sentence := tree.get(NEXT_SENTENCE)) is not None:
        dense = root[NEXT_SENTENCE_POOLER] = _made(next_sentence["dense"])
        head = _made({**next_sentence, "dense": dense})
        model["classification_heads"] = _made({"0": head})
    return _made({**root, "model": _made(model)})


def _made(tree: _Tree) -> Any:
    """Return an object with the content of a tree."""
    import tensorflow as tf

    parts = {n: _made(v) if isinstance(v, dict) else v for n, v in tree.items()}
    return tf.train.Checkpoint(**parts)


def _write_texts(folder: Path, values: Mapping[str, Any]) -> None:
    """Write the JSON file, the YAML file and the file that names the checkpoint.

    The YAML file is for `--config_file` of train.py's experiments.
    """
    bert = {theirs: values[ours] for theirs, ours in PARAMS_KEYS.items()}
    params = {"task": {"model": {"encoder": {"type": "bert", "bert": bert}}}}
    texts = {
        CONFIG: json.dumps(values, indent=2, sort_keys=True) + "\n",
        PARAMS: json.dumps(params, indent=2) + "\n",  # JSON is valid YAML
        _STATE: f'model_checkpoint_path: "{PREFIX}"\n'
        f'all_model_checkpoint_paths: "{PREFIX}"\n',
    }
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
