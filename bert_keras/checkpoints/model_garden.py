"""Read a checkpoint or SavedModel of TF Model Garden: BertEncoder, BertPretrainerV2.

Found from the objects, whatever root they were saved under: `encoder`, `model`, the
checkpoints of its `train.py` with their optimizer, exported SavedModels. No code of a
SavedModel is run. `model_garden_writer` writes such checkpoints.

Source: TF Model Garden `bert_encoder.py`, `bert_pretrainer.py`, `base_trainer.py`,
`export_tfhub_lib.py`. Imports no TensorFlow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from bert_keras.checkpoints.base import (
    Checkpoint,
    LazyArrays,
    joined_heads,
    one_line,
)
from bert_keras.checkpoints.bert_config_file import CONFIG, read_config
from bert_keras.checkpoints.bundle import read_index
from bert_keras.checkpoints.hub_names import CONFIG as HUB_CONFIG
from bert_keras.checkpoints.model_garden_config import Said, check_plain, read_settings
from bert_keras.checkpoints.model_garden_objects import (
    ASIDE,
    find_parts,
    find_weights,
    holds_encoder,
    pooler_variables,
)
from bert_keras.checkpoints.object_graph import ROOT, ObjectGraph, read_graph
from bert_keras.checkpoints.variable import Variable
from bert_keras.checkpoints.wire import BrokenError
from bert_keras.errors import CheckpointError

SAVED_MODEL = "saved_model.pb"
_VARIABLES = Path("variables", "variables")  # the prefix in a SavedModel
_POOLER = "bert/pooler/dense"


def is_object_based(prefix: Path) -> bool:
    """Return whether a checkpoint is one of TensorFlow 2, which holds objects.

    Raises:
        CheckpointError: its index is absent or broken.
    """
    return ROOT in read_index(prefix)


def is_saved_model(folder: Path) -> bool:
    """Return whether a SavedModel holds an encoder of Model Garden, known by objects.

    One of ours, with its config in `assets.extra`, is of TF-Hub's kind and read by the
    names of its variables (`tf_hub`), as are those that have other objects.

    Raises:
        CheckpointError: the index of its variables is absent or broken.
    """
    prefix = folder / _VARIABLES
    variables = read_index(prefix)
    if (folder / HUB_CONFIG).is_file():
        return False
    try:
        graph = read_graph(variables)
    except (BrokenError, OSError, IndexError, UnicodeDecodeError):
        return False
    return holds_encoder(graph, graph.reachable(without=ASIDE))


def read_model_garden(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a checkpoint of Model Garden; weights are read when asked for.

    Args:
        path: the path before `.index`, or the folder of a SavedModel. Its "gelu" is
            the tanh form, `gelu_new` in our config. Where a next-sentence head has a
            pooler, it is taken in the place of the encoder's own, which pretraining
            does not train. A pooler of zeros is none.

    Raises:
        CheckpointError: a file is missing or broken, or holds no BERT.
        ConfigError: a size in its config is out of its range.
    """
    folder = Path(path)
    saved_model = (folder / SAVED_MODEL).is_file()
    prefix = folder / _VARIABLES if saved_model else folder
    folder = folder if saved_model else folder.parent
    variables = read_index(prefix)
    try:
        graph = read_graph(variables)
    except (BrokenError, OSError, IndexError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{prefix}: broken or no TensorFlow 2 checkpoint: {one_line(error)}"
        ) from None
    stored = _Stored(prefix, graph, variables)
    chosen, unrecognized, notes = stored.sort_out()
    tokenizer = stored.lower_case()
    notes += [
        f"{name}={value}, read from the variable do_lower_case"
        for name, value in tokenizer.items()
    ]
    heads = _heads(chosen, prefix)
    shapes = {
        name: joined_heads(name, e.shape, heads, f"{prefix}: {e.name}")
        for name, e in chosen.items()
    }
    masked_lm = "cls/predictions/output_bias" in chosen
    if (folder / CONFIG).exists():
        raw, config, said = Said(*read_config(folder / CONFIG))
        check_plain(raw, width=config.hidden_size, path=folder / CONFIG)
    else:
        raw, config, said = read_settings(
            folder, shapes, heads=heads, masked_lm=masked_lm
        )
    if config.num_attention_heads != heads:
        raise CheckpointError(
            f"{prefix}: `num_attention_heads` must be {heads:,}, as the weights have "
            f"it; received {config.num_attention_heads:,}"
        )

    def read(name: str) -> np.ndarray:
        return chosen[name].read().reshape(shapes[name])

    return Checkpoint(
        path=folder,
        origin="model-garden",
        config=config,
        raw_config=raw,
        arrays=LazyArrays(shapes, read, place=str(prefix)),
        notes=(*said, *notes),
        unrecognized=tuple(unrecognized),
        tokenizer=tokenizer,
    )


class _Stored:
    """The variables of a checkpoint: which are weights, which pooler is taken."""

    def __init__(
        self, prefix: Path, graph: ObjectGraph, variables: Mapping[str, Variable]
    ) -> None:
        self._prefix, self._graph, self._variables = prefix, graph, variables

    def sort_out(self) -> tuple[dict[str, Variable], list[str], list[str]]:
        """Return canonical name to variable; names that are unrecognized; notes.

        Raises:
            CheckpointError: there is no encoder, or a weight is not in the file.
        """
        graph, place = self._graph, self._prefix
        objects = graph.reachable(without=ASIDE)
        chosen = find_weights(
            graph, find_parts(graph, objects, place=place), place=place
        )
        own_pooler = pooler_variables(graph, objects)
        for number in (*chosen.values(), *own_pooler):
            self._variable(number).check()
        used = {*chosen.values(), *own_pooler}
        others = [
            n
            for n in objects
            if n not in used and n not in graph.slots and self._is_float(n)
        ]
        notes = self._pooler_notes(chosen, own_pooler)
        used |= set(others)
        state = [n for n in range(len(graph.nodes)) if n not in used]
        if skipped := sum(map(self._is_float, state)):
            notes.append(f"{skipped:,} values of the optimizer are passed over")
        unrecognized = [
            graph.nodes[n].full_name or self._variable(n).name for n in others
        ]
        return {n: self._variable(v) for n, v in chosen.items()}, unrecognized, notes

    def _variable(self, number: int) -> Variable:
        return self._variables[self._graph.nodes[number].key or ""]

    def _is_float(self, number: int) -> bool:
        """Say whether an object is a variable of floats: a counter is none."""
        if self._graph.nodes[number].key is None:
            return False
        return self._variable(number).is_float

    def _pooler_notes(self, chosen: dict[str, int], own: list[int]) -> list[str]:
        """Return what to tell of the pooler; takes one of zeros out of `chosen`."""
        taken = [chosen[n] for n in chosen if n.startswith(f"{_POOLER}/")]
        values, others = self._bytes(taken), self._bytes(own)
        if taken and not any(map(any, values)):
            for part in ("kernel", "bias"):
                chosen.pop(f"{_POOLER}/{part}", None)
            return ["there is no pooler: that of the file is all zeros"]
        if own and set(own) != set(taken) and values != others:
            return [
                "the pooler is that of the next-sentence head; the encoder's own, "
                "which pretraining leaves untrained, is another"
            ]
        return []

    def lower_case(self) -> dict[str, bool]:
        """Return `lowercase` of the tokenizer, where an export keeps it."""
        number = self._graph.nodes[0].children.get("do_lower_case")
        if number is None or self._graph.nodes[number].key is None:
            return {}
        return {"lowercase": self._bytes([number]) != [b"\0"]}

    def _bytes(self, numbers: Iterable[int]) -> list[bytes]:
        try:
            return [self._variable(number).read_bytes() for number in numbers]
        except (BrokenError, OSError) as error:
            raise CheckpointError(f"{self._prefix}: {one_line(error)}") from None


def _heads(chosen: Mapping[str, Variable], prefix: Path) -> int:
    """Return the number of attention heads that the first layer's query has."""
    query = chosen.get("bert/encoder/layer_0/attention/self/query/kernel")
    if query is None or len(query.shape) != 3:
        found = "is absent" if query is None else f"has {list(query.shape)}"
        raise CheckpointError(
            f"{prefix}: the query of the first layer must have 3 axes; {found}"
        )
    return query.shape[1]
