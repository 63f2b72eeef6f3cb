"""Parameter-efficient training: frozen lower layers, and LoRA.

A frozen weight has no gradient and no moments, and no activations are kept below the
lowest trainable one. LoRA adds the product of two low-rank matrices to the kernels of
query and value (Hu et al. 2021, arXiv:2106.09685, section 4.2); only these, the pooler
and the head are trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from bert_keras.errors import ConfigError
from bert_keras.model.layers import moved
from bert_keras.model.quantization import check_not_quantized


def freeze_layers(encoder: keras.Model, count: int) -> None:
    """Freeze the embeddings and the lower blocks of an encoder; 0 freezes nothing."""
    blocks = encoder.blocks
    if count > len(blocks):
        raise ConfigError(
            f"`freeze_layers` must be at most the encoder's {len(blocks)}; "
            f"received {count}"
        )
    if count:
        encoder.embeddings.trainable = False
    for block in blocks[:count]:
        block.trainable = False


def add_lora(
    encoder: keras.Model,
    rank: int,
    *,
    seed: int | None = None,
    frozen: Sequence[keras.layers.Layer] = (),
    name: str = "lora_rank",
) -> None:
    """Enable Keras's LoRA in an encoder's blocks and freeze their other weights.

    Blocks that were frozen stay frozen. The product starts at zero, so outputs do not
    change.

    Args:
        encoder: a `BertEncoder`; its embeddings and blocks are frozen.
        rank: width of the matrices, less than the width of the kernels.
        seed: seed of the first matrix of each pair.
        frozen: layers that the model on the encoder does not train; they get no LoRA.
        name: what messages call the rank.
    """
    width = encoder.config.hidden_size
    if rank >= width:
        raise ConfigError(
            f"`{name}` must be below the encoder's width, {width}; received {rank}"
        )
    left_out = {id(layer) for layer in frozen}
    blocks = {
        number: block
        for number, block in enumerate(encoder.blocks)
        if block.trainable and id(block) not in left_out
    }
    if not blocks:
        raise ConfigError(
            f"`{name}` needs an encoder with a trainable block; received {rank} for "
            "one with only frozen blocks"
        )
    encoder.embeddings.trainable = False
    for number, block in blocks.items():
        block.enable_lora(rank, seed=moved(seed, 2 * number))


def plain_weights(model: Any, encoder: keras.Model) -> dict[str, np.ndarray]:
    """Return the weights of a model on an encoder by name, LoRA merged into kernels."""
    check_not_quantized(model, "saved as a model folder")
    merged: dict[int, Any] = {}
    left_out: set[int] = set()
    for layer in _with_lora(encoder):
        left_out |= {id(layer.lora_kernel_a), id(layer.lora_kernel_b)}
        (kernel,) = (w for w in layer.weights if w.path.endswith("/kernel"))
        merged[id(kernel)] = layer.kernel  # the sum of kernel and product
    return {
        weight.path: keras.ops.convert_to_numpy(merged.get(id(weight), weight))
        for weight in model.weights
        if id(weight) not in left_out
    }


def has_lora(encoder: keras.Model) -> bool:
    """Return whether an encoder is trained with LoRA."""
    return any(True for _ in _with_lora(encoder))


def _with_lora(encoder: keras.Model) -> Iterator[keras.layers.Dense]:
    for block in encoder.blocks:
        for layer in (block.query, block.value):
            if layer.lora_enabled:
                yield layer
