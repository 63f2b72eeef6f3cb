"""The numbers that are explained: `Target`, computed in graph from a model's outputs.

A number is differentiable and does not saturate: for a class, a choice, an entity, a
start, an end or a masked word it is the log-odds of the answer against all others, or
against another one; for multi-label, the logit of the label; for regression the number
itself; for two embeddings their cosine. Which number it is, a task says in `explained`,
see `explained` of `tasks.base.Task`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

LOG_ODDS = "log-odds"
_FAR = -1e9  # below any logit, finite


class Rows(NamedTuple):
    """The input of the model for an item.

    Attributes:
        batch: inputs of the model by name, int32 [R, …].
        words: int32 [R, T], the word of each token, -1 for none; for choices [C, T].
    """

    batch: dict[str, Any]
    words: np.ndarray

    def take(self, rows: Sequence[int]) -> Rows:
        """Return some of the rows."""
        batch = {key: tf.gather(value, rows) for key, value in self.batch.items()}
        return Rows(batch, self.words[list(rows)])


@dataclasses.dataclass(frozen=True)
class Target:
    """A number computed from the model's outputs, which is explained.

    Args:
        name: name of the answer, such as a class.
        rows: the input of the model.
        number: takes outputs [k, R, …] of k copies of the rows, and `given`; returns
            float [k].
        given: further tensors for `number`.
        against: name of the answer that it is compared with; empty: all others.
        unit: unit of the number.
    """

    name: str
    rows: Rows
    number: Callable[..., Any]
    given: Mapping[str, Any]
    against: str = ""
    unit: str = LOG_ODDS


def log_odds(
    name: str,
    rows: Rows,
    *,
    size: int,
    wanted: Sequence[int],
    others: Sequence[int] | None = None,
    places: Sequence[Sequence[int]] = ((0,),),
    temperature: float = 1.0,
    against: str = "",
    over_tokens: bool = False,
) -> Target:
    """Return the log-odds of some classes against others, the mean over some places.

    Args:
        name, rows, against: as in `Target`.
        size: number of classes C, the last axis of the outputs.
        wanted, others: the classes on both sides; `None`: all that are not `wanted`.
        places: indices of the axes between the copies and the classes, of each place.
        temperature: divides the logits.
        over_tokens: whether the classes are the T tokens of a row, outputs [R, T, n]; a
            place is then a row and one of the n.
    """
    chosen = np.zeros(size, bool)
    chosen[list(wanted)] = True
    rest = ~chosen
    if others is not None:
        rest[:] = False
        rest[list(others)] = True
    given = {
        "places": tf.constant(places, tf.int32),
        "wanted": tf.constant(chosen),
        "others": tf.constant(rest),
        "scale": tf.constant(1 / temperature, tf.float32),
    }
    number = _odds_of_token if over_tokens else _odds
    return Target(name, rows, number, given, against=against)


def weighted_sum(
    name: str,
    rows: Rows,
    weights: Any,
    *,
    bias: float = 0.0,
    place: Sequence[int] = (0,),
    against: str = "",
    unit: str = LOG_ODDS,
) -> Target:
    """Return the weighted sum of the outputs at one place.

    Args:
        name, rows, against, unit: as in `Target`.
        weights: float [C].
        bias: is added.
        place: indices of the axes between the copies and the outputs.
    """
    given = {
        "places": tf.constant([place], tf.int32),
        "weights": tf.constant(weights, tf.float32),
        "bias": tf.constant(bias, tf.float32),
    }
    return Target(name, rows, _sum, given, against=against, unit=unit)


def cosine(name: str, rows: Rows) -> Target:
    """Return the cosine of the outputs of two rows."""
    return Target(name, rows, _cosine, {}, unit="cosine")


# In graph; k copies of the rows are computed at once.


def _odds(outputs: Any, places: Any, wanted: Any, others: Any, scale: Any) -> Any:
    """Return the mean log-odds at M places, float [k].

    Args:
        outputs: logits [k, …, C].
        places: int32 [M, n], indices of the axes between the first and the last.
        wanted, others: bool [C], the classes on both sides of the odds.
        scale: float, 1 / temperature.
    """
    logits = scale * _at(tf.cast(outputs, tf.float32), places)
    odds = [
        tf.reduce_logsumexp(tf.where(chosen, logits, _FAR), axis=-1)
        for chosen in (wanted, others)
    ]
    return tf.reduce_mean(odds[0] - odds[1], axis=1)


def _odds_of_token(outputs: Any, **given: Any) -> Any:
    """Return the log-odds of tokens of a row, outputs [k, R, T, 2]."""
    return _odds(tf.transpose(outputs, [0, 1, 3, 2]), **given)


def _sum(outputs: Any, places: Any, weights: Any, bias: Any) -> Any:
    """Return the weighted sum of the outputs [k, …, C] at one place, float [k]."""
    return tf.linalg.matvec(_at(outputs, places)[:, 0], weights) + bias


def _cosine(outputs: Any) -> Any:
    """Return the cosine of two vectors, outputs [k, 2, D]."""
    unit = tf.math.l2_normalize(outputs, axis=-1, epsilon=1e-24)
    return tf.reduce_sum(unit[:, 0] * unit[:, 1], axis=-1)


def _at(outputs: Any, places: Any) -> Any:
    copies = tf.shape(outputs)[0]
    places = tf.tile(places[tf.newaxis], [copies, 1, 1])
    return tf.gather_nd(outputs, places, batch_dims=1)
