"""Weight initialization: the paper's, or none where a checkpoint follows.

Source: google-research/bert `modeling.py` (`create_initializer`).
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

_UNDRAWN = contextvars.ContextVar("undrawn", default=False)


@contextlib.contextmanager
def undrawn() -> Iterator[None]:
    """Create layers with uninitialized weights, to be assigned before use.

    Drawing a hundred million random numbers takes most of the time of loading a model,
    and memory that is never written to is not allocated. Later draws from the same
    seeds do not change. A pooler, which a checkpoint may lack, is still initialized.
    """
    token = _UNDRAWN.set(True)
    try:
        yield
    finally:
        _UNDRAWN.reset(token)


class _Undrawn(keras.initializers.TruncatedNormal):
    """Consumes a seed like the initializer it replaces, and draws nothing."""

    def __call__(self, shape: Any, dtype: Any = None) -> Any:
        if keras.config.backend() != "tensorflow":
            return ops.zeros(shape, dtype)
        import tensorflow as tf

        kind = tf.as_dtype(keras.config.floatx() if dtype is None else dtype)
        return tf.raw_ops.Empty(shape=shape, dtype=kind)


def initializer(
    stddev: float, seed: int | None, offset: int = 0, *, always: bool = False
) -> Any:
    """Return the paper's initializer; `offset` sets weights of one seed apart.

    With `always` it draws inside `undrawn` as well.
    """
    seed = None if seed is None else seed + offset
    draws = always or not _UNDRAWN.get()
    kind = keras.initializers.TruncatedNormal if draws else _Undrawn
    return kind(stddev=stddev, seed=seed)
