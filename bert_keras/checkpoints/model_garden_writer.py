"""Write a checkpoint that TF Model Garden loads into a BertEncoder or BertPretrainerV2.

A tree of `tf.train.Checkpoint` objects stands for Model Garden's: TensorFlow matches a
checkpoint with a model by the names of attributes, so that nothing of Model Garden is
needed to write one. The roots are those that its tools and tutorials restore from:
`encoder`, `model` and, with heads, `masked_lm` and `next_sentence.pooler_dense`.

Source: as of `model_garden_objects`; `tf1_bert_checkpoint_converter_lib.py`, which
writes the released checkpoints; `configs/encoders.py` for the params.yaml.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.checkpoints import names
from bert_keras.checkpoints.base import (
    Shape,
    bert_config,
    check_finite,
    one_line,
    shapes_of,
)
from bert_keras.checkpoints.bert_config_file import CONFIG, config_values
from bert_keras.checkpoints.bundle import read_index
from bert_keras.checkpoints.model_garden_config import PARAMS, PARAMS_KEYS
from bert_keras.checkpoints.model_garden_objects import (
    EMBEDDINGS,
    LAYERS,
    NEXT_SENTENCE,
    NEXT_SENTENCE_POOLER,
    POOLER,
)
from bert_keras.errors import CheckpointError

_STATE = "checkpoint"  # the file by which `tf.train.latest_checkpoint` finds it
PREFIX = "bert_model.ckpt"
FILES = frozenset(
    (
        CONFIG,
        PARAMS,
        _STATE,
        f"{PREFIX}.data-00000-of-00001",
        f"{PREFIX}.index",
        "tokenizer_config.json",
        "vocab.txt",
    )
)
_CODE = "TF Model Garden"
# Our names of activations that its `tf_utils.get_activation` knows, and its own.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu",
    "relu": "relu",
    "silu": "swish",
    "tanh": "tanh",
}
_POOLER = "bert/pooler/dense/kernel"
_Tree = dict[str, Any]  # attribute to what it holds: a tree, or a variable


def write_model_garden(
    folder: Path, arrays: Mapping[str, np.ndarray], config: Mapping[str, Any]
) -> list[str]:
    """Write `bert_config.json`, `params.yaml` and `bert_model.ckpt.*`.

    `tf.train.Checkpoint(encoder=…)`, `(model=…)` of an encoder, or of a pretrainer with
    its heads, restores them. All weights are in memory at once.

    Args:
        folder: made if absent; `convert` gives one that nobody sees before it is whole.
        arrays: canonical name to array, canonical shape; each is asked for once.
        config: the whole of a `config.json`. Keys that Model Garden has no use for are
            kept in `bert_config.json`, where `read_model_garden` finds them.

    Returns:
        Lines that tell where Model Garden computes something else, and what it lacks.

    Raises:
        CheckpointError: Model Garden has no such weight or computation, a value is not
            finite, or the disk refuses.
        ConfigError: a size in `config` is out of its range.
    """
    values, notes = config_values(config, code=_CODE, activations=_ACTIVATIONS)
    sizes = bert_config(config, path=Path(CONFIG))
    shapes = shapes_of(arrays)
    places = {names.to_model_garden(name): name for name in shapes}
    import tensorflow as tf

    tree: _Tree = {}
    for place, name in places.items():
        array = np.asarray(arrays[name], np.float32)
        check_finite(array, name=name, place=str(folder))
        array = _split(name, array, sizes.num_attention_heads)
        _put(tree, place, tf.Variable(array, name=place))
    _add_pooler(tree, sizes.hidden_size)
    root = _Objects(tree).root()
    prefix = folder / PREFIX
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_texts(folder, values)
        _ = root.save_counter  # made when asked for: `restore` looks for it
        root.write(str(prefix))
    except (OSError, tf.errors.OpError) as error:
        raise CheckpointError(f"{folder}: cannot write: {one_line(error)}") from None
    for variable in read_index(prefix).values():  # what was written must open
        if "/.ATTRIBUTES/VARIABLE_VALUE" in variable.name and variable.shape:
            variable.check()
    return [*notes, *_missing(shapes)]


def _missing(shapes: Mapping[str, Shape]) -> list[str]:
    """Return notes on what Model Garden's models have, and the checkpoint has not."""
    notes = []
    if _POOLER not in shapes:
        notes.append(f"there is no pooler: {_CODE}'s `pooler_transform` is all zeros")
    heads = [name for name in shapes if name.startswith("cls/")]
    if heads and "cls/predictions/output_bias" not in shapes:
        notes.append(f"there is no masked-LM head: {_CODE}'s pretrainer keeps its own")
    return notes


def _split(name: str, array: np.ndarray, heads: int) -> np.ndarray:
    """Return the values with the axes that Model Garden has."""
    axis = names.head_axis(name)
    if axis is None:
        return array
    shape = array.shape
    return array.reshape(*shape[:axis], heads, -1, *shape[axis + 1 :])


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


class _Objects:
    """The objects of a tree, each made once, by the names that restoring asks for."""

    def __init__(self, tree: _Tree) -> None:
        encoder = tree["encoder"]
        made = {name: _made(part) for name, part in encoder.items() if name != LAYERS}
        layers = encoder[LAYERS]
        blocks = {number: _made(layers[number]) for number in sorted(layers, key=int)}
        # Releases before attributes were stored know layers by their order alone.
        ordered = [*(made[name] for name in EMBEDDINGS), *blocks.values(), made[POOLER]]
        counted = {f"layer_with_weights-{i}": layer for i, layer in enumerate(ordered)}
        self._encoder = _made({**made, **counted, LAYERS: _made(blocks)})
        self._heads = {n: part for n, part in tree.items() if n != "encoder"}
        self._words = encoder[EMBEDDINGS[0]]["embeddings"]

    def root(self) -> Any:
        """Return what is saved: the encoder, the heads, and the model of all."""
        if not self._heads:
            return _made({"encoder": self._encoder, "model": self._encoder})
        beside: _Tree = {"encoder": self._encoder}
        model: _Tree = {"encoder_network": self._encoder}
        if (masked_lm := self._heads.get("masked_lm")) is not None:
            head = _made({**masked_lm, "embedding_table": self._words})
            beside["masked_lm"] = model["masked_lm"] = head
        if (next_sentence := self._heads.get(NEXT_SENTENCE)) is not None:
            dense = beside[NEXT_SENTENCE_POOLER] = _made(next_sentence["dense"])
            head = _made({**next_sentence, "dense": dense})
            model["classification_heads"] = _made({"0": head})
        return _made({**beside, "model": _made(model)})


def _made(tree: _Tree) -> Any:
    """Return an object that holds what a tree does."""
    import tensorflow as tf

    parts = {n: _made(v) if isinstance(v, dict) else v for n, v in tree.items()}
    return tf.train.Checkpoint(**parts)


def _write_texts(folder: Path, values: Mapping[str, Any]) -> None:
    """Write the JSON file, the YAML file and the one that names the checkpoint."""
    texts = {
        CONFIG: json.dumps(values, indent=2, sort_keys=True) + "\n",
        PARAMS: _params(values),
        _STATE: f'model_checkpoint_path: "{PREFIX}"\n'
        f'all_model_checkpoint_paths: "{PREFIX}"\n',
    }
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")


def _params(values: Mapping[str, Any]) -> str:
    """Return the encoder as every experiment of train.py takes it: `--config_file`."""
    bert = {theirs: values[ours] for theirs, ours in PARAMS_KEYS.items()}
    encoder = {"type": "bert", "bert": bert}
    model = {"task": {"model": {"encoder": encoder}}}
    return json.dumps(model, indent=2) + "\n"  # JSON is YAML
