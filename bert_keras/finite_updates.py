"""Optimizers that leave the weights as they are where a gradient is not finite.

One batch that overflows would make every weight NaN. Loss scaling (float16) looks for
that by itself; `finite_updates` adds the look to any other optimizer.
"""

from __future__ import annotations

from typing import Any, TypeVar

import keras
import tensorflow as tf

_Optimizer = TypeVar("_Optimizer", bound=keras.optimizers.Optimizer)


def finite_updates(kind: type[_Optimizer], **settings: Any) -> _Optimizer:
    """Return an optimizer that passes over updates whose gradients are not finite.

    It has a variable `skipped_updates`, int64 [], that counts them, once it is built;
    the step of its schedule stands still then. For one device; under a strategy it
    updates as `kind` does and counts nothing.

    Args:
        kind: class of the optimizer.
        **settings: its arguments.
    """

    class Finite(kind):  # type: ignore[misc, valid-type]
        def build(self, variables: Any) -> None:
            super().build(variables)
            if not hasattr(self, "skipped_updates"):
                self.skipped_updates = self.add_variable(
                    shape=(), initializer="zeros", dtype="int64", name="skipped_updates"
                )

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            if tf.distribute.has_strategy():
                return super().apply(grads, trainable_variables)

            def update() -> Any:
                # Named, since `super()` finds no class in a function of its own.
                kind.apply(self, grads, trainable_variables)
                return tf.constant(0, tf.int64)

            # Clipping makes NaN of gradients whose norm is above what float32 holds.
            norm = tf.linalg.global_norm([each for each in grads if each is not None])
            skipped = tf.cond(
                tf.math.is_finite(norm),
                update,
                lambda: tf.constant(1, tf.int64),
            )
            self.skipped_updates.assign_add(skipped)
            return self.iterations

    Finite.__name__ = kind.__name__
    return Finite(**settings)
