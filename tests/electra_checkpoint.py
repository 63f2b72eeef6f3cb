"""Variables of Google's checkpoints of ELECTRA from weights that transformers names.

The names are those that `load_tf_weights_in_electra` of transformers 4 reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from conftest import VOCABULARY


def google_variables(
    tensors: Mapping[str, np.ndarray], *, part: str = "discriminator"
) -> dict[str, np.ndarray]:
    """Return the variables of a part, and slots of the optimizer for each.

    Args:
        tensors: of a folder of transformers, with the prefix `electra.`.
        part: a `generator` has the discriminator's embeddings.
    """
    found: dict[str, np.ndarray] = {"global_step": np.array(3, np.int64)}
    for name, value in tensors.items():
        if name in ("generator_lm_head.weight", "electra.embeddings.position_ids"):
            continue
        scope, _, kind = name.replace(".layer.", ".layer_").rpartition(".")
        scope = scope.replace(".", "/")
        if scope.endswith("_embeddings"):
            spelled = scope
        elif scope.endswith("LayerNorm"):
            spelled = f"{scope}/{'gamma' if kind == 'weight' else 'beta'}"
        else:
            spelled = f"{scope}/{'kernel' if kind == 'weight' else 'bias'}"
            value = value.T
        spelled = spelled.replace("dense_prediction/", "dense_1/")
        spelled = spelled.replace("generator_lm_head/", "generator_predictions/output_")
        if part == "generator" and not spelled.startswith("electra/embeddings/"):
            spelled = spelled.replace("electra/", "generator/")
        elif part == "generator" and spelled.startswith("electra/"):
            continue
        found[spelled] = value
        found |= {f"{spelled}/{slot}": 0 * value for slot in ("adam_m", "adam_v")}
    return found


def write_variables(
    folder: Path, variables: Mapping[str, np.ndarray], config: Any = None
) -> Path:
    """Write a folder as `electra_small.zip` unpacks it, without a config by default."""
    import tensorflow as tf

    folder.mkdir(exist_ok=True)
    tf.raw_ops.SaveV2(
        prefix=str(folder / "electra_small"),
        tensor_names=list(variables),
        shape_and_slices=[""] * len(variables),
        tensors=[tf.constant(value) for value in variables.values()],
    )
    if config is not None:
        (folder / "bert_config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    return folder
