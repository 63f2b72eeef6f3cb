"""How `train` adapts an encoder to a task: the option `method`.

`finetune` trains all weights. `linear` fits a linear head on vectors that the encoder
computes once, and leaves the encoder as it is. `contrastive` first trains the encoder
on pairs of rows within and across classes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, cast

from bert_keras.errors import ConfigError, shown
from bert_keras.models.folder import Folder
from bert_keras.settings import options_of
from bert_keras.tasks.base import Task
from bert_keras.tasks.classifier_settings import POOLING
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.protocols import Linear
from bert_keras.training.config import DISTILLATION, TrainConfig

# Options without an effect.
_OF_EPOCHS = (
    "epochs",
    "patience",
    "batch_size",
    "accumulation",
    "new_learning_rate",
    "restarts",
    *DISTILLATION,
)
UNUSED = {
    "finetune": (),
    "contrastive": _OF_EPOCHS,
    "linear": (
        *_OF_EPOCHS,
        "optimizer",
        "learning_rate",
        "warmup_ratio",
        "weight_decay",
        "global_clipnorm",
        "rematerialize",
        "freeze_layers",
        "lora_rank",
    ),
}
_WHY = {
    "linear": "which makes no updates",
    "contrastive": "which trains on batches of pairs and then fits the head",
}


def check_method(task: type[Task] | Task, config: TrainConfig) -> None:
    """Raise ConfigError if a task or an option does not go with the method."""
    method = config.method
    if method != "finetune" and not isinstance(task, Linear):
        raise ConfigError(
            f"`method` must be finetune for {task.name}, whose head is not linear on "
            f"one vector of a text; received {method}"
        )
    if method == "contrastive" and not getattr(task, "problem_type", "").endswith(
        "label_classification"
    ):
        raise ConfigError(
            f"`method` must be finetune or linear for {task.name}, which has no "
            "classes to pair rows by; received contrastive"
        )
    if method != "finetune" and getattr(task, "combine", "") == "attention":
        raise ConfigError(
            f"`combine` must be mean, max or first with `method` {method}, which "
            "trains no weights between encoder and head; received attention"
        )
    declared = options_of(TrainConfig)
    for name in UNUSED[method]:
        value = getattr(config, name)
        if value != declared[name].default:
            raise ConfigError(
                f"`{name}` has no effect with `method` {method}, {_WHY[method]}; "
                f"received {shown(value)}"
            )


def head_settings(
    encoder: str | os.PathLike[str],
    given: Mapping[str, Any],
    *,
    tell: Callable[[str], object],
) -> dict[str, Any]:
    """Return `pooling` and `normalize` of a head on vectors of an encoder as it is.

    They are as the folder of the encoder says, by default the mean of the tokens,
    unless `given` names a pooling.
    """
    if "pooling" in given:
        return {}
    plain = Embedding.from_model_config({})
    held = cast(Embedding, Folder.open(encoder).held(Embedding) or plain)
    pooling, normalize = held.pooling, held.normalize
    left_out = [
        name
        for name in ("dense", "default_prompt", "layers")
        if getattr(held, name) != getattr(plain, name)
    ]
    if pooling not in POOLING.words:
        left_out, pooling = [*left_out, f"pooling {pooling}"], "mean"
    if left_out:
        tell(
            f"{os.fspath(encoder)}: not used for the vectors of the head: "
            f"{', '.join(left_out)}"
        )
    length = ", of length 1" if normalize else ""
    tell(f"the head reads the {pooling} of the tokens' vectors{length}")
    return {"pooling": pooling, "normalize": normalize, **given}
