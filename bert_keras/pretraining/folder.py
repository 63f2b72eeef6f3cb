"""A `BertPretrainer` from a checkpoint and as a model folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from bert_keras.checkpoints import Checkpoint, assign, check_encoder, write_huggingface
from bert_keras.config import BertConfig
from bert_keras.inference.model_folder import assign_scope
from bert_keras.model.encoder import BertEncoder, seed_behind
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.pretraining.pretrainer import BertPretrainer
from bert_keras.text.tokenizer import WordPieceTokenizer

_POOLER, _HEADS = "bert/pooler/", ("cls/predictions/", "cls/seq_relationship/")


def new_pretrainer(
    sizes: BertConfig, config: PretrainConfig, *, next_sentence: bool
) -> BertPretrainer:
    """Return a model with weights at random from the seed."""
    encoder = BertEncoder(
        sizes,
        pooler=next_sentence,
        rematerialize=config.rematerialize,
        seed=config.seed,
        dtype=config.precision,
    )
    seed = seed_behind(sizes, config.seed) + 1  # the pooler has the one before
    return BertPretrainer(encoder, next_sentence=next_sentence, seed=seed)


def assign_pretrainer(
    model: BertPretrainer, checkpoint: Checkpoint, say: Callable[[str], object]
) -> None:
    """Set the weights from a checkpoint; a head that it lacks stays, and is said.

    Raises:
        CheckpointError: something else is missing or does not fit.
    """
    check_encoder(checkpoint)
    scopes = {f"{name.split('/')[0]}/" for name in checkpoint.shapes}
    has_pooler = any(name.startswith(_POOLER) for name in checkpoint.shapes)
    optional = tuple(scopes - {"bert/"})
    if not has_pooler or not model.has_next_sentence:
        optional += (_POOLER,)
    assign(model.encoder, checkpoint, optional=optional)
    wanted = [scope for scope in _HEADS if _has(model, scope)]
    missing = [scope for scope in wanted if not assign_scope(model, checkpoint, scope)]
    if model.has_next_sentence and not has_pooler:
        missing.insert(0, _POOLER)
    for scope in missing:
        say(f"the checkpoint has no {scope.rstrip('/')}: it starts at random")


def write_pretrainer(
    folder: Path,
    model: BertPretrainer,
    tokenizer: WordPieceTokenizer,
    arrays: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a model folder that is there: config, weights and vocabulary.

    Args:
        folder: where to.
        model: the model.
        tokenizer: its vocabulary.
        arrays: weights by name, in place of those that the model has by now.
    """
    config = {
        "model_type": "bert",
        "architectures": [model.architecture],
        **model.encoder.config.to_dict(),
        "pad_token_id": tokenizer.pad_id,
    }
    write_huggingface(folder, weights_of(model) if arrays is None else arrays, config)
    tokenizer.save(folder)


def weights_of(model: BertPretrainer) -> dict[str, np.ndarray]:
    """Return a copy of the weights, by name."""
    return {weight.path: np.array(weight.numpy()) for weight in model.weights}


def _has(model: BertPretrainer, scope: str) -> bool:
    return any(weight.path.startswith(scope) for weight in model.weights)
