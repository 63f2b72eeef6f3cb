"""The optimizers: AdamW with linear warm-up and decay, and LAMB for large batches.

Source: Devlin et al. 2018 (arXiv:1810.04805), appendix A.2 and A.3; Loshchilov and
Hutter 2019 (arXiv:1711.05101) for the decoupled weight decay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import keras
from keras import ops

from bert_keras.errors import ConfigError

# Weights that do not decay: every bias, and the scale and shift of LayerNorm. These are
# the last parts of names, since Keras compares only these.
NOT_DECAYED = ("bias", "gamma", "beta")


@keras.saving.register_keras_serializable(package="bert_keras")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate from 0 up to a peak, then down to 0, both linear in the step.

    The decay starts at the peak, as in Hugging Face; Google's code multiplies
    `1 - step / total_steps` from the first step on, so its rate drops by the share of
    the warm-up when the warm-up ends.

    Args:
        peak_learning_rate: highest rate.
        total_steps: number of updates; the rate is 0 afterwards.
        warmup_steps: number of updates of the warm-up.

    Example:
        >>> rate = WarmupLinearDecay(1e-3, total_steps=100, warmup_steps=10)(5)
        >>> round(float(rate), 6)
        0.0005
    """

    def __init__(
        self, peak_learning_rate: float, *, total_steps: int, warmup_steps: int = 0
    ) -> None:
        super().__init__()
        if not 0 <= warmup_steps <= total_steps or total_steps < 1:
            raise ConfigError(
                "`warmup_steps` must be from 0 to `total_steps`, which is at least 1; "
                f"received {warmup_steps} and {total_steps}"
            )
        self.peak_learning_rate = peak_learning_rate
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps

    def __call__(self, step: Any) -> Any:
        step = ops.cast(step, "float32")
        rising = step / max(self.warmup_steps, 1)
        falling = (self.total_steps - step) / max(
            self.total_steps - self.warmup_steps, 1
        )
        share = ops.where(step < self.warmup_steps, rising, ops.maximum(falling, 0.0))
        return self.peak_learning_rate * share

    def get_config(self) -> dict[str, Any]:
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
        }


class _Adam(keras.optimizers.Optimizer):
    """Adam's update and sparse embedding gradients, shared by AdamW and LAMB.

    Gradients of rows that occur several times in a batch are summed. `factors` maps
    the paths of some weights to factors of their learning rate. Weight decay outside
    of the update keeps the common rate.
    """

    factors: Mapping[str, float] = MappingProxyType({})

    def _rate_of(self, variable: Any, learning_rate: Any) -> Any:
        """Return the learning rate of a weight, in its dtype."""
        rate = ops.cast(learning_rate, variable.dtype)
        if not self.factors:
            return rate
        # On TensorFlow this is the backend's variable, which has no path.
        known = self._trainable_variables[self._get_variable_index(variable)]
        return rate * self.factors.get(known.path, 1.0)

    def apply(
        self, grads: Any, trainable_variables: Any = None, *, norm: Any = None
    ) -> Any:
        """Update the weights by gradients.

        `norm`, float32 [], is the norm of all `grads` together if it is known already.
        Each row of an embedding table then occurs in them once, see `rows_once`.
        """
        if keras.config.backend() != "tensorflow":
            return super().apply(grads, trainable_variables)
        import tensorflow as tf

        if norm is None:
            grads = [rows_once(gradient) for gradient in grads]
        # Replicas have numbers of their own.
        shares = tf.distribute.get_strategy().num_replicas_in_sync == 1
        object.__setattr__(self, "_numbers", {} if shares else None)  # not tracked
        object.__setattr__(self, "_norm", norm)
        try:
            return super().apply(grads, trainable_variables)
        finally:
            object.__setattr__(self, "_numbers", None)
            object.__setattr__(self, "_norm", None)

    def _once(self, name: str, dtype: str, make: Callable[[], Any]) -> Any:
        """Return numbers of a dtype that all weights of an update share.

        A graph has them once: for each weight, they took a third of its tracing.
        """
        known: dict[tuple[str, str], Any] | None = getattr(self, "_numbers", None)
        if known is None:
            return make()
        if (name, dtype) not in known:
            known[name, dtype] = make()
        return known[name, dtype]

    def _powers(self, dtype: str) -> tuple[Any, Any]:
        """Return the powers of both betas at this update."""

        def make() -> tuple[Any, Any]:
            step = ops.cast(self.iterations + 1, dtype)
            return (
                ops.power(ops.cast(self.beta_1, dtype), step),
                ops.power(ops.cast(self.beta_2, dtype), step),
            )

        powers: tuple[Any, Any] = self._once("powers", dtype, make)
        return powers

    def _clip_gradients(self, grads: Any) -> Any:
        if keras.config.backend() != "tensorflow" or not self.global_clipnorm:
            return super()._clip_gradients(grads)
        import tensorflow as tf

        # Keras would turn the rows of an embedding table into a whole table, twice.
        norm = getattr(self, "_norm", None)
        return tf.clip_by_global_norm(grads, self.global_clipnorm, use_norm=norm)[0]

    def _adam_update(self, gradient: Any, variable: Any, largest: Any = None) -> Any:
        """Return the update for a rate of 1, and update the moments of a weight.

        `largest` are AMSGrad's second moments, each the largest so far, or `None`.
        """
        dtype = variable.dtype
        gradient = ops.cast(gradient, dtype)
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        self.assign_add(m, ops.subtract(gradient, m) * (1 - self.beta_1))
        self.assign_add(v, ops.subtract(ops.square(gradient), v) * (1 - self.beta_2))
        if largest is not None:
            self.assign(largest, ops.maximum(largest, v))
            v = largest
        power_1, power_2 = self._powers(keras.backend.standardize_dtype(dtype))
        mean, square = m / (1 - power_1), v / (1 - power_2)
        return mean / (ops.sqrt(square) + self.epsilon)


# `.keras` files name it so.
@keras.saving.register_keras_serializable(package="bert_keras", name="AdamW")
class BertAdamW(_Adam, keras.optimizers.AdamW):
    """AdamW as BERT is trained: no decay of LayerNorm and biases, and clipping.

    The same numbers as `torch.optim.AdamW`: epsilon is added to the root of the
    corrected second moment. Keras and TensorFlow add it before the correction, which
    makes it 30 times as large in the first step and three times in the hundredth:
    weights of small gradients, such as the embeddings of rare words, then move less.
    Loading a `.keras` file keeps weights that do not decay. On TensorFlow a
    weight is updated in one pass over memory, and embedding rows that occur several
    times in a batch count once in the gradient's norm, as their sum.

    Args:
        learning_rate: rate or schedule.
        weight_decay: share of a weight that each update subtracts, times the rate.
        epsilon: as in Adam.
        global_clipnorm: largest norm of all gradients together, or `None`.
        **kwargs: further arguments of `keras.optimizers.AdamW`, such as `beta_1`.

    Source: Kingma and Ba 2015 (arXiv:1412.6980), algorithm 1; Loshchilov and Hutter
    2019 (arXiv:1711.05101), algorithm 2.
    """

    def __init__(
        self,
        learning_rate: Any = 5e-5,
        weight_decay: float = 0.01,
        *,
        epsilon: float = 1e-6,
        global_clipnorm: float | None = 1.0,
        **kwargs: Any,
    ) -> None:
        kwargs |= {"epsilon": epsilon, "global_clipnorm": global_clipnorm}
        super().__init__(learning_rate, weight_decay, **kwargs)
        self.exclude_from_weight_decay(var_names=list(NOT_DECAYED))

    @property
    def _is_one_pass(self) -> bool:
        return keras.config.backend() == "tensorflow" and not self.amsgrad

    def _apply_weight_decay(self, variables: Any) -> None:
        if not self._is_one_pass:  # else `update_step` does it in fewer passes
            super()._apply_weight_decay(variables)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        dtype = variable.dtype
        index = self._get_variable_index(variable)
        rate = self._rate_of(variable, learning_rate)
        if not self._is_one_pass:
            largest = self._velocity_hats[index] if self.amsgrad else None
            update = self._adam_update(gradient, variable, largest)
            self.assign_sub(variable, rate * update)
            return
        import tensorflow as tf

        def make() -> dict[str, Any]:
            decay = tf.cast(learning_rate, dtype)
            decay *= tf.cast(self.weight_decay or 0.0, dtype)
            power_1, power_2 = self._powers(dtype.name)
            return {
                "kept": 1 - decay,
                "beta1_power": power_1,
                "beta2_power": power_2,
                "beta1": tf.cast(self.beta_1, dtype),
                "beta2": tf.cast(self.beta_2, dtype),
                # Scaled like the uncorrected root, to which the op adds it.
                "epsilon": self.epsilon * tf.sqrt(1 - power_2),
            }

        numbers = dict(self._once("one pass", dtype.name, make))
        kept = numbers.pop("kept")
        if self.weight_decay is not None and self._use_weight_decay(variable):
            variable.assign(variable * kept)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            lr=rate,
            grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
            **numbers,
        )


def rows_once(gradient: Any) -> Any:
    """Return the gradient of an embedding table with each row once.

    TensorFlow keeps one slice per token; their norm is not the norm of the gradient.
    """
    import tensorflow as tf

    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(tf.reshape(gradient.indices, [-1]))
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


@keras.saving.register_keras_serializable(package="bert_keras")
class Lamb(_Adam, keras.optimizers.Lamb):
    """LAMB: Adam's update with weight decay, scaled to the norm of each weight.

    Each weight w moves by `rate * |w| / |u| * u`, where u is Adam's update plus
    `weight_decay * w`. LayerNorm and biases do not decay and are not scaled, as in
    Google's code. (`keras.optimizers.Lamb` applies the decay apart from the ratio,
    and scales every weight.)

    Args:
        learning_rate: rate or schedule.
        weight_decay: added to the update, times the weight.
        epsilon, global_clipnorm: as in `BertAdamW`.
        **kwargs: further arguments of `keras.optimizers.Lamb`, such as `beta_1`.

    Source: You et al. 2019 (arXiv:1904.00962), algorithm 2.
    """

    def __init__(
        self,
        learning_rate: Any = 1e-3,
        weight_decay: float = 0.01,
        *,
        epsilon: float = 1e-6,
        global_clipnorm: float | None = 1.0,
        **kwargs: Any,
    ) -> None:
        kwargs |= {"epsilon": epsilon, "global_clipnorm": global_clipnorm}
        super().__init__(learning_rate, **kwargs)
        self.decay_in_update = weight_decay

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        update = self._adam_update(gradient, variable)
        rate = self._rate_of(variable, learning_rate)
        if not any(part in variable.name for part in NOT_DECAYED):
            update = update + self.decay_in_update * variable
            size, length = ops.norm(variable), ops.norm(update)
            both = ops.logical_and(size > 0, length > 0)
            rate = rate * ops.where(both, size / ops.where(both, length, 1.0), 1.0)
        self.assign_sub(variable, rate * update)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "weight_decay": self.decay_in_update}


def optimizer_of(
    config: Any,
    schedule: WarmupLinearDecay,
    *,
    factors: Mapping[str, float] | None = None,
) -> keras.optimizers.Optimizer:
    """Return the optimizer of a run.

    Args:
        config: a `TrainConfig` or `PretrainConfig`; with float16 the loss is scaled.
        schedule: the learning rate of each update.
        factors: paths of weights to factors of their learning rate.
    """
    kind: Any = {"adamw": BertAdamW, "lamb": Lamb}[config.optimizer]
    optimizer = kind(
        schedule,
        weight_decay=config.weight_decay,
        global_clipnorm=config.global_clipnorm,
    )
    optimizer.factors = dict(factors or {})
    if config.precision == "mixed_float16":
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return optimizer
