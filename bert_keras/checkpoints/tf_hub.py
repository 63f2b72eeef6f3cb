"""Read the encoder of a TF-Hub style SavedModel: its variables, never its graph.

The hub's BERTs (`bert_en_uncased_L-12_H-768_A-12` and the like, versions 1 to 4) are
SavedModels that the Model Garden wrote: a checkpoint in `variables/`, the vocabulary in
`assets/vocab.txt`, and a variable `do_lower_case`. No file holds the activation: the
Model Garden's gelu is the tanh form. `convert` of version 1.0 wrote such SavedModels,
too, with the settings in `encoder/assets.extra`.

Source: tensorflow/models `official/nlp/tools/export_tfhub_lib.py`,
`official/modeling/activations/gelu.py`; tensorflow/hub
`docs/common_saved_model_apis/text.md`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_keras.checkpoints.checkpoint import (
    Checkpoint,
    LazyArrays,
    Shape,
    bert_config,
    choose,
    joined_heads,
    listed,
)
from bert_keras.checkpoints.matching import encoder_sizes
from bert_keras.checkpoints.names import from_hub
from bert_keras.checkpoints.tensorflow_checkpoint import (
    ROOT,
    Variable,
    read_graph,
    read_index,
    refused,
)
from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError, one_line
from bert_keras.files.json_file import read_json

CONFIG = "assets.extra/config.json"  # of version 1.0: what no variable expresses
LOWER_CASE = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"  # the key of a boolean
ENCODER = "encoder"  # beside `preprocess`, in what version 1.0 wrote
GRAPH = "saved_model.pb"
VARIABLES = "variables/variables"
_INDEX = f"{VARIABLES}.index"
_HEAD_WIDTH = 64  # of every released BERT
_QUERY = "bert/encoder/layer_0/attention/self/query/kernel"
_NEEDED = {"bert/embeddings/word_embeddings", _QUERY}


def find_encoder(folder: Path) -> Path | None:
    """Return the SavedModel of a folder: itself, or its `encoder`.

    `None` if there is none, or its variables have other names.
    """
    for place in (folder, folder / ENCODER):
        if os.path.isfile(place / GRAPH) and os.path.isfile(place / _INDEX):
            names = {from_hub(name) for name in _made_as(place / VARIABLES).values()}
            return place if _NEEDED <= names else None
    return None


def read_tf_hub(folder: str | os.PathLike[str]) -> Checkpoint:
    """Open the encoder of a TF-Hub style SavedModel; weights are read on demand.

    Args:
        folder: holds `saved_model.pb`, which is not read, and `variables/`. The
            masked-LM head is read if present (`mlm` of the newer models).

    Raises errors as `read_checkpoint` does.
    """
    folder = Path(folder)
    prefix = folder / VARIABLES
    variables = read_index(prefix)
    chosen, unrecognized, skipped = _sorted_out(variables, prefix)
    notes: list[str] = []
    if os.path.isfile(folder / CONFIG):
        raw = read_json(folder / CONFIG)
        config = bert_config(raw, path=folder / CONFIG)
    else:
        raw = {}
        config = _config(chosen, prefix, notes)
    heads = config.num_attention_heads
    shapes = {name: _shape(name, each, heads) for name, each in chosen.items()}
    settings = {}
    if LOWER_CASE in variables:
        with refused(f"{prefix}: broken"):
            settings["lowercase"] = found = variables[LOWER_CASE].read_boolean()
        notes.append(f"lowercase={found}, read from the variable do_lower_case")
    if skipped:
        notes.append(f"{skipped:,} optimizer values are skipped")
    return Checkpoint(
        path=folder,
        origin="tf-hub",
        config=config,
        raw_config=raw,
        arrays=LazyArrays.of(chosen, shapes=shapes, place=str(prefix)),
        notes=tuple(notes),
        unrecognized=tuple(unrecognized),
        tokenizer=settings,
    )


def _made_as(prefix: Path) -> dict[str, str]:
    """Return the key of each variable, and the name that it was created with."""
    variables = read_index(prefix)
    if ROOT not in variables:  # from TensorFlow 1: the key is the name
        return {key: key for key in variables}
    with refused(f"{prefix}: broken"):
        graph = read_graph(variables)
    return {n.variable.name: n.full_name for n in graph.nodes if n.variable}


def _sorted_out(
    variables: Mapping[str, Variable], prefix: Path
) -> tuple[dict[str, Variable], list[str], int]:
    """Return canonical name to weight; unrecognized names; the number skipped."""
    chosen: dict[str, Variable] = {}
    unrecognized = []
    skipped = 0
    for key, made in _made_as(prefix).items():
        name = from_hub(made)
        if key == LOWER_CASE or made == "save_counter":
            continue
        if key.startswith("optimizer/") or "/.OPTIMIZER_SLOT/" in key:
            skipped += 1
        elif name is None:
            unrecognized.append(one_line(made, longest=120))
        else:
            choose(chosen, name, variables[key])
    if not _NEEDED <= set(chosen):
        raise CheckpointError(
            f"{prefix}: must hold the variables of a BERT of TF-Hub or the Model "
            f"Garden; found {listed(sorted([*chosen, *unrecognized])) or 'none'}"
        )
    return chosen, unrecognized, skipped


def _shape(name: str, variable: Variable, heads: int) -> Shape:
    """Return the canonical shape; older files have no separate axis of heads."""
    if len(variable.shape) < (3 if name.endswith("/kernel") else 2):
        return variable.shape
    return joined_heads(name, variable, heads)


def _config(
    chosen: Mapping[str, Variable], prefix: Path, notes: list[str]
) -> BertConfig:
    """Return the sizes that the shapes give, and Model Garden's values for the rest."""
    shapes = {name: variable.shape for name, variable in chosen.items()}
    sizes: dict[str, Any] = encoder_sizes(shapes, place=prefix)
    query = shapes[_QUERY]
    if len(query) == 3:
        sizes["num_attention_heads"] = query[1]
    else:
        sizes["num_attention_heads"] = max(1, sizes["hidden_size"] // _HEAD_WIDTH)
        notes.append(
            f"num_attention_heads={sizes['num_attention_heads']}, guessed: width "
            f"{_HEAD_WIDTH}, as in every released BERT"
        )
    notes.append(
        "hidden_act is taken as gelu_new, the tanh form that the Model Garden "
        "computes, and dropout as 0.1: a SavedModel does not say"
    )
    return bert_config({**sizes, "hidden_act": "gelu_new"}, path=prefix)
