"""Pseudo-perplexity of a text under a masked language model.

Each token is masked in turn; the mean log-probability of the masked tokens is the
pseudo-log-likelihood per token.

Source: Salazar et al. 2020 (arXiv:1910.14659).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from bert_keras.errors import ConfigError, DataError
from bert_keras.text.masking import mask_id_of, ordinary

if TYPE_CHECKING:
    from bert_keras.inference.predictor import Predictor


def pseudo_perplexity(
    predictor: Predictor, texts: Sequence[str], *, batch_size: int = 64
) -> list[dict[str, Any]]:
    """Return the pseudo-perplexity of each text under a masked language model.

    Args:
        predictor: of a masked-lm model, as `load` returns it.
        texts: strings; long ones are truncated as in training.
        batch_size: passes computed at once; a text takes one pass a token.

    Returns:
        One dict a text: `log_likelihood`, the sum over its tokens (nats), `tokens`
        without the special ones, and `pseudo_perplexity`, exp(-mean); for a text
        without tokens it is `None`.

    Raises:
        ConfigError: the model is of another task.

    Example:
        >>> pseudo_perplexity(load("models/mine"), ["See you at six."])
        [{'log_likelihood': -9.2, 'tokens': 5, 'pseudo_perplexity': 6.3}]
    """
    if isinstance(texts, str):
        raise DataError(f"`texts` must be a list of strings; received {texts!r}")
    model = predictor.model
    if "masked_positions" not in model.task.inputs():
        raise ConfigError(
            f"`predictor` must be of a masked-lm model; received {model.task.name}"
        )
    found = pseudo_log_likelihoods(model, texts, batch_size=batch_size)
    return [
        {
            "log_likelihood": total,
            "tokens": count,
            "pseudo_perplexity": math.exp(-total / count) if count else None,
        }
        for total, count in found
    ]


def pseudo_log_likelihoods(
    model: Any, texts: Sequence[str], *, batch_size: int
) -> list[tuple[float, int]]:
    """Return the pseudo-log-likelihood (nats) and the token count of each text.

    Args:
        model: a `TaskModel` of a masked-LM task.
        texts: the texts.
        batch_size: passes computed at once, those of about one length together.
    """
    if batch_size < 1:
        raise ConfigError(f"`batch_size` must be at least 1; received {batch_size}")
    if not len(texts):
        return []
    tokenizer = model.preprocessor.tokenizer
    mask_id = mask_id_of(tokenizer)
    ids = model.preprocessor.join(list(texts))[0]
    rows = [np.array(row, "int32") for row in ids.to_list()]
    places = [
        (text, place)
        for text, row in enumerate(rows)
        for place in np.flatnonzero(ordinary(tf.constant(row), tokenizer).numpy())
    ]
    places.sort(key=lambda item: len(rows[item[0]]))
    totals, counts = [0.0] * len(rows), [0] * len(rows)
    score = _scorer(model)
    for start in range(0, len(places), batch_size):
        batch = places[start : start + batch_size]
        length = max(len(rows[text]) for text, _ in batch)
        tokens = np.full((len(batch), length), tokenizer.pad_id, "int32")
        mask = np.zeros_like(tokens)
        for line, (text, _) in enumerate(batch):
            tokens[line, : len(rows[text])] = rows[text]
            mask[line, : len(rows[text])] = 1
        positions = np.array([[place] for _, place in batch], "int32")
        labels = np.take_along_axis(tokens, positions, axis=1)
        np.put_along_axis(tokens, positions, mask_id, axis=1)
        for (text, _), value in zip(
            batch, score(tokens, mask, positions, labels).numpy(), strict=True
        ):
            totals[text] += float(value)
            counts[text] += 1
    return list(zip(totals, counts, strict=True))


def _scorer(model: Any) -> Any:
    """Return the log-probabilities of labels int32 [B, 1] as one function."""
    rows = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[rows] * 4, autograph=False)
    def score(tokens: Any, mask: Any, positions: Any, labels: Any) -> Any:
        batch = {
            "token_ids": tokens,
            "segment_ids": tf.zeros_like(tokens),
            "padding_mask": mask,
            "masked_positions": positions,
        }
        logits = tf.cast(model(batch, training=False), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return -losses[:, 0]

    return score
