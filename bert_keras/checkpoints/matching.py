"""Compare a model's weights with a checkpoint's by name, and assign them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_keras.checkpoints.checkpoint import Checkpoint, Shape, listed
from bert_keras.checkpoints.names import DISCRIMINATOR, EMBEDDINGS_PROJECT, TABLE
from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError, ConfigError, shown

if TYPE_CHECKING:
    import keras

_ENCODER = "bert/"
_POOLER = "bert/pooler/"


class MismatchError(CheckpointError):
    """A checkpoint does not fit a model; the message lists only the first few names.

    Attributes:
        missing: wanted names that the checkpoint lacks.
        unexpected: names of the checkpoint that the model lacks.
        misshapen: name to (wanted shape, shape in the checkpoint).
    """

    def __init__(
        self,
        *,
        missing: tuple[str, ...] = (),
        unexpected: tuple[str, ...] = (),
        misshapen: Mapping[str, tuple[Shape, Shape]] | None = None,
        place: Path | None = None,
    ) -> None:
        self.missing = missing
        self.unexpected = unexpected
        self.misshapen = dict(misshapen or {})
        kinds = {
            "missing": list(missing),
            "unexpected": list(unexpected),
            "misshapen": [
                f"{name} must be {list(wanted)}, is {list(found)}"
                for name, (wanted, found) in self.misshapen.items()
            ],
        }
        problems = "; ".join(
            f"{len(found):,} {kind} ({listed(found)})"
            for kind, found in kinds.items()
            if found
        )
        start = "" if place is None else f"{place}: "
        super().__init__(f"{start}the weights do not fit the model: {problems}")


def match(
    wanted: Mapping[str, Shape],
    available: Mapping[str, Shape],
    *,
    optional: Collection[str] = (),
    place: Path | None = None,
) -> tuple[str, ...]:
    """Return the names to assign, which both sides have, in the order of `wanted`.

    Args:
        wanted: the model's names and shapes.
        available: the checkpoint's names and shapes.
        optional: names allowed to be missing or unexpected; a name that ends in `/`
            is a scope and covers every name below it. A different shape is still an
            error.
        place: the checkpoint, for the error.

    Raises:
        MismatchError: names are missing, unexpected or misshapen; reports all at once.
    """
    exact = {name for name in optional if not name.endswith("/")}
    scopes = tuple(name for name in optional if name.endswith("/"))

    def may_lack(name: str) -> bool:
        return name in exact or name.startswith(scopes)

    missing = tuple(n for n in wanted if n not in available and not may_lack(n))
    unexpected = tuple(n for n in available if n not in wanted and not may_lack(n))
    names = tuple(n for n in wanted if n in available)
    misshapen = {
        name: (tuple(wanted[name]), tuple(available[name]))
        for name in names
        if tuple(wanted[name]) != tuple(available[name])
    }
    if missing or unexpected or misshapen:
        raise MismatchError(
            missing=missing, unexpected=unexpected, misshapen=misshapen, place=place
        )
    return names


def has_pooler(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint has any of the pooler's weights."""
    return any(name.startswith(_POOLER) for name in checkpoint.shapes)


def assign(
    model: keras.Model,
    checkpoint: Checkpoint,
    *,
    optional: tuple[str, ...] = (),
    scope: str = "",
    within: str = "",
) -> None:
    """Set the weights of a model by name; sets nothing if any name does not fit.

    Args:
        model: its weights' `path` are canonical names.
        checkpoint: names to arrays, each read when it is assigned.
        optional: names or scopes (`cls/`) allowed to be missing or unexpected.
        scope: the start of the names that are compared and set; by default all.
        within: a scope of the model whose weights have these names behind it.

    Raises errors as `match` does.
    """
    start = within + scope
    own = (weight for weight in model.weights if weight.path.startswith(start))
    weights = {weight.path.removeprefix(within): weight for weight in own}
    shapes = {path: tuple(weight.shape) for path, weight in weights.items()}
    found = {n: s for n, s in checkpoint.shapes.items() if n.startswith(scope)}
    for name in match(shapes, found, optional=optional, place=checkpoint.path):
        weights[name].assign(checkpoint.arrays[name])


def check_encoder(checkpoint: Checkpoint) -> None:
    """Raise unless a checkpoint holds the encoder that its config describes.

    Called before a model is built, so that wrong sizes in a config cost no memory. Only
    a pooler may be missing.

    Raises errors as `match` does, and a `CheckpointError` for another number of layers.
    """
    check_merged(checkpoint)
    layers = checkpoint.config.num_hidden_layers
    found = {name.split("/")[2] for name in checkpoint.shapes if "/layer_" in name}
    if layers > len(found):  # a message needs no list of that many names
        raise CheckpointError(
            f"{checkpoint.path}: `num_hidden_layers` must be the number of layers "
            f"present, {len(found):,}; received {layers:,}"
        )
    shapes = {n: s for n, s in checkpoint.shapes.items() if n.startswith(_ENCODER)}
    wanted = encoder_shapes(checkpoint.config)
    match(wanted, shapes, optional=(_POOLER,), place=checkpoint.path)


_ADAPTERS = ("lora_", ".base_layer.", "adapter", "ia3_")


def check_merged(checkpoint: Checkpoint) -> None:
    """Raise if there are weights of adapters, such as LoRA's, beside the encoder's."""
    found = [
        name
        for name in checkpoint.unrecognized
        if any(part in name for part in _ADAPTERS)
    ]
    if found:
        raise CheckpointError(
            f"{checkpoint.path}: holds adapters that are not merged into the weights: "
            f"{listed(found)}: merge them first, such as by peft's `merge_and_unload`"
        )


def encoder_shapes(config: BertConfig) -> dict[str, Shape]:
    """Return canonical name to canonical shape of an encoder's weights, with pooler."""
    hidden, inner = config.hidden_size, config.intermediate_size
    rows = {
        "word_embeddings": config.vocab_size,
        "position_embeddings": config.max_position_embeddings,
        "token_type_embeddings": config.type_vocab_size,
    }
    width = config.embedding_width
    shapes: dict[str, Shape] = {}
    if width != hidden:
        shapes[f"{EMBEDDINGS_PROJECT}/kernel"] = (width, hidden)
        shapes[f"{EMBEDDINGS_PROJECT}/bias"] = (hidden,)
    for template in TABLE:
        if not template.startswith(_ENCODER):
            continue
        scope, _, kind = template.rpartition("/")
        ins = inner if scope.endswith("#/output/dense") else hidden
        outs = inner if scope.endswith("/intermediate/dense") else hidden
        shape: Shape = (ins, outs) if kind == "kernel" else (outs,)
        if scope == "bert/embeddings/LayerNorm":
            shape = (width,)
        if kind in rows:
            shape = (rows[kind], width)
            if not rows[kind]:
                continue
        for number in range(config.num_hidden_layers if "#" in template else 1):
            shapes[template.replace("#", str(number))] = shape
    return shapes


# Each size is the length of a weight's first axis.
_SIZES = {
    "vocab_size": "bert/embeddings/word_embeddings",
    "hidden_size": "bert/encoder/layer_0/output/LayerNorm/gamma",
    "max_position_embeddings": "bert/embeddings/position_embeddings",
    "type_vocab_size": "bert/embeddings/token_type_embeddings",
    "intermediate_size": "bert/encoder/layer_0/intermediate/dense/bias",
}


def encoder_sizes(shapes: Mapping[str, Shape], *, place: Path) -> dict[str, int]:
    """Return the sizes that the shapes of an encoder's weights give; not the heads."""
    sizes = {}
    for size, name in _SIZES.items():
        if not shapes.get(name):
            raise CheckpointError(
                f"{place}: contains no `{name}`, which gives `{size}`"
            )
        sizes[size] = shapes[name][0]
    layers = {name.split("/")[2] for name in shapes if "/layer_" in name}
    return {**sizes, "num_hidden_layers": len(layers)}


def check_head(wanted: Iterable[str], checkpoint: Checkpoint, task: str) -> None:
    """Raise a CheckpointError if a checkpoint has no weights of a task's head.

    `wanted` are the names of a model's weights, and `task` is the task's name.
    """
    head = {name for name in wanted if not name.startswith(_ENCODER)}
    if head and not head & set(checkpoint.shapes):
        raise CheckpointError(
            f"{checkpoint.path}: contains no head of the task {task}: train a model "
            "from it first"
        )


_LABELLED = ("BertForSequenceClassification", "BertForTokenClassification")


def head_config(raw: Mapping[str, Any], shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return a head's entries of `config.json`: `architectures`, and any classes.

    Entries of `raw` are kept; missing ones follow from the weights: `cls`, `classifier`
    or `qa_outputs`, and one class `LABEL_0` … for each output of the head.

    Args:
        raw: a parsed config.
        shapes: canonical name to canonical shape.

    Raises:
        ConfigError: `num_labels`, or the length of `id2label`, is not the number of
            outputs of the head.
    """
    entries: dict[str, Any] = {"architectures": [_architecture(raw, shapes)]}
    count = named_outputs(raw, shapes)
    if count is None:
        return entries
    names = raw.get("id2label")
    if isinstance(names, dict) and len(names) != count:
        raise ConfigError(
            f"`id2label` must name each output of the head, {count:,}; "
            f"received {len(names):,} names"
        )
    if names is None:
        declared = raw.get("num_labels")
        if declared is not None and (type(declared) is not int or declared != count):
            raise ConfigError(
                "`num_labels` must be the number of outputs of the head, "
                f"{count:,}; received {shown(declared)}"
            )
        names = [f"LABEL_{number}" for number in range(count)]
        entries["id2label"] = {str(i): name for i, name in enumerate(names)}
        entries["label2id"] = {name: i for i, name in enumerate(names)}
    return entries


def named_outputs(raw: Mapping[str, Any], shapes: Mapping[str, Shape]) -> int | None:
    """Return the number of outputs of a head that have names; `None` without them."""
    bias = shapes.get("classifier/bias", ())
    is_labelled = _architecture(raw, shapes) in _LABELLED and len(bias) == 1
    return bias[0] if is_labelled else None


def _architecture(raw: Mapping[str, Any], shapes: Mapping[str, Shape]) -> str:
    """Return Hugging Face's class for weights: from the source, else from the heads."""
    names = raw.get("architectures")
    if isinstance(names, list) and len(names) == 1:
        return str(names[0])
    scopes = {name.split("/")[0] for name in shapes}
    if DISCRIMINATOR in scopes:
        return "ElectraForPreTraining"
    if "classifier" in scopes:
        return "BertForSequenceClassification"
    if "qa_outputs" in scopes:
        return "BertForQuestionAnswering"
    if "cls" not in scopes:
        return "BertModel"
    parts = {name.split("/")[1] for name in shapes if name.startswith("cls/")}
    if parts == {"seq_relationship"}:
        return "BertForNextSentencePrediction"
    return "BertForMaskedLM" if parts == {"predictions"} else "BertForPreTraining"
