"""The names of BERT's weights in TF-Hub's SavedModels, of all their generations.

The newer ones (bert_en_* 3 and 4) are those of the Model Garden's Keras layers, the
older (1 and 2) those of its first BERT, the oldest and some others Google's own. What
stands before a name, such as the name of the model, does not count. One axis of
attention is stored as two, heads and the width of a head; the first BERT's files may
have it whole.

Source: tensorflow/models `official/legacy/bert/tf1_checkpoint_converter_lib.py`, which
turns Google's names into both others; `official/nlp/tools/export_tfhub_lib.py`.
"""

from __future__ import annotations

import re

from bert_keras.checkpoints import names
from bert_keras.checkpoints.name_table import TABLE
from bert_keras.errors import CheckpointError

CONFIG = "assets.extra/config.json"  # ours: what a hub's other files cannot say
LOWER_CASE = "do_lower_case/.ATTRIBUTES/VARIABLE_VALUE"  # the key of a truth value
# canonical scope: its newer name, its older one (`#` stands for the layer's number)
_LAYER_SCOPES = {
    "attention/self/query": ("self_attention/query",) * 2,
    "attention/self/key": ("self_attention/key",) * 2,
    "attention/self/value": ("self_attention/value",) * 2,
    "attention/output/dense": (
        "self_attention/attention_output",
        "self_attention_output",
    ),
    "attention/output/LayerNorm": ("self_attention_layer_norm",) * 2,
    "intermediate/dense": ("intermediate",) * 2,
    "output/dense": ("output",) * 2,
    "output/LayerNorm": ("output_layer_norm",) * 2,
}
_SCOPES = {
    "bert/embeddings/LayerNorm": (
        "embeddings/layer_norm",
        "embedding_postprocessor/layer_norm",
    ),
    "bert/pooler/dense": ("pooler_transform",) * 2,
    **{
        f"bert/encoder/layer_#/{ours}": (
            f"transformer/layer_#/{new}",
            f"encoder/layer_#/{old}",
        )
        for ours, (new, old) in _LAYER_SCOPES.items()
    },
}
_WEIGHTS = {
    "bert/embeddings/word_embeddings": ("word_embeddings/embeddings",) * 2,
    "bert/embeddings/position_embeddings": (
        "position_embedding/embeddings",
        "embedding_postprocessor/position_embeddings",
    ),
    "bert/embeddings/token_type_embeddings": (
        "type_embeddings/embeddings",
        "embedding_postprocessor/type_embeddings",
    ),
    "cls/predictions/output_bias": ("cls/predictions/output_bias/bias",) * 2,
    **{
        f"{ours}/{part}": (f"{new}/{part}", f"{old}/{part}")
        for ours, (new, old) in _SCOPES.items()
        for part in ("kernel", "bias", "gamma", "beta")
        if f"{ours}/{part}" in TABLE
    },
}
# The masked-LM head has Google's names but for its bias.
_OURS = ("bert/", "cls/predictions/")
_TO_HUB = {name: name for name in TABLE if name.startswith(_OURS)}
_TO_HUB |= {ours: new for ours, (new, _) in _WEIGHTS.items()}
_FROM_HUB = {name: name for name in TABLE if name.startswith(_OURS)}
_FROM_HUB |= {theirs: ours for ours, both in _WEIGHTS.items() for theirs in both}
_LAYER = re.compile(r"(?<=/layer_)(?:0|[1-9][0-9]{0,3})(?=/)")
_MOST_STEPS = 12  # of a name; more than any has


def from_hub(name: str) -> str | None:
    """Return the canonical name of a variable of a hub's SavedModel, or `None`.

    Args:
        name: as the variable was made with, perhaps with `:0` behind.
    """
    steps = f"/{name.removesuffix(':0')}".split("/")[1:]
    if len(steps) > _MOST_STEPS or "#" in name:
        return None
    for first in range(len(steps)):
        spelled = "/".join(steps[first:])
        number = _LAYER.search(f"/{spelled}")
        ours = _FROM_HUB.get(_LAYER.sub("#", f"/{spelled}")[1:])
        if ours is not None:
            return ours.replace("#", number.group()) if number else ours
    return None


def to_hub(name: str) -> str:
    """Return the newer name of a canonical one.

    Raises:
        CheckpointError: the hub's BERTs have no such weight.
    """
    number = _LAYER.search(name)
    theirs = None if "#" in name else _TO_HUB.get(_LAYER.sub("#", name))
    if theirs is None:
        raise CheckpointError(f"TF-Hub's BERT has no weight named {name!r}")
    return theirs.replace("#", number.group()) if number else theirs


def head_axis(name: str) -> tuple[int, int] | None:
    """Return the canonical axis that is stored as two, and the number of axes then.

    `None` for a weight that is stored as it is.
    """
    axis = names.head_axis(name)
    return None if axis is None else (axis, 3 if name.endswith("/kernel") else 2)
