"""Which objects of a checkpoint are TF Model Garden's encoder and its heads.

An encoder is known by its attributes; one that was saved as a functional Keras model
without them, as older releases did, by the order of its layers.

Source: TF Model Garden `bert_encoder.py`, `masked_lm.py`, `cls_head.py`,
`bert_pretrainer.py` (`checkpoint_items`), `base_trainer.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bert_keras.checkpoints import names
from bert_keras.checkpoints.base import listed
from bert_keras.checkpoints.name_table import MODEL_GARDEN
from bert_keras.checkpoints.object_graph import ObjectGraph
from bert_keras.errors import CheckpointError

NEXT_SENTENCE = "next_sentence"
NEXT_SENTENCE_POOLER = "next_sentence.pooler_dense"  # its name beside the model
# What leads to no weight of a model: state of the training, and Keras's own lists.
ASIDE = frozenset(
    (
        *("optimizer", "keras_api", "metrics", "compiled_metrics"),
        *("variables", "trainable_variables", "non_trainable_variables"),
    )
)
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


def holds_encoder(graph: ObjectGraph, objects: list[int]) -> bool:
    """Return whether one of the objects is an encoder."""
    return any(_encoder(graph, number) is not None for number in objects)


def find_parts(graph: ObjectGraph, objects: list[int], *, place: Path) -> int:
    """Return a new object that holds `encoder` and the heads that are there.

    The encoder has its attributes, whatever it was saved as. Where a next-sentence head
    has a pooler, that is the encoder's: pretraining trains no other, and Model Garden
    copies it so for its exports.

    Args:
        graph: gets the new objects.
        objects: those to look at.
        place: the checkpoint, for messages.

    Raises:
        CheckpointError: there is no encoder, or more than one of a part.
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
            f"{place}: holds no BertEncoder of TF Model Garden; the root holds "
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
    pooler = graph.find(parts.get(NEXT_SENTENCE, 0), "dense")
    pooler = graph.nodes[0].children.get(NEXT_SENTENCE_POOLER, pooler)
    if pooler is not None:
        parts["encoder"] = graph.add({**encoder, POOLER: pooler})
    return graph.add(parts)


def find_weights(graph: ObjectGraph, parts: int, *, place: Path) -> dict[str, int]:
    """Return canonical name to variable, of what `find_parts` found.

    Raises:
        CheckpointError: one variable is two weights, or the masked-LM head has token
            embeddings of its own.
    """
    chosen = {
        name: number
        for name, path in _places(graph, parts)
        if (number := graph.find(parts, path)) is not None
        and graph.nodes[number].key is not None
    }
    keys = {graph.nodes[number].key for number in chosen.values()}
    words = graph.find(parts, "encoder/_embedding_layer/embeddings")
    table = graph.find(parts, "masked_lm/embedding_table")
    if len(keys) < len(chosen) or table not in (None, words):
        raise CheckpointError(
            f"{place}: each weight must be a variable of its own, and the masked-LM "
            "head must share the token embeddings"
        )
    return chosen


def pooler_variables(graph: ObjectGraph, objects: list[int]) -> list[int]:
    """Return the variables of the encoder's own pooler, kernel first, if it has one."""
    for number in objects:
        if (attributes := _encoder(graph, number)) is not None:
            encoder = graph.add(attributes)
            found = [graph.find(encoder, f"{POOLER}/{n}") for n in ("kernel", "bias")]
            return [
                n for n in found if n is not None and graph.nodes[n].key is not None
            ]
    return []


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
    """Return the attributes of an encoder; `None` if the object is none."""
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
    """Say whether a head is named so: beside the model, or by its weights."""
    beside = graph.nodes[0].children.get(NEXT_SENTENCE_POOLER)
    if beside is not None:
        return graph.nodes[number].children.get("dense") == beside
    kernel = graph.find(number, "out_proj/kernel")
    name = "" if kernel is None else graph.nodes[kernel].full_name
    return NEXT_SENTENCE in name.split("/")
