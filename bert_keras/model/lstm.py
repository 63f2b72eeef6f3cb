"""`Lstm`: one direction of an LSTM over rows that hold one sequence or several.

Source: Hochreiter and Schmidhuber 1997 (Neural Computation 9), with the forget gate of
Gers et al. 2000; weights, gates and their order are those of `keras.layers.LSTM`.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="bert_keras")
class Lstm(keras.layers.Layer):
    """An LSTM whose state resets between the sequences of a packed row.

    Its output for a sequence equals that of `keras.layers.LSTM` for that sequence
    alone. The products with the inputs, and the gradients of the weights, are computed
    for all tokens at once; only the product with the state runs token by token.

    Args:
        units: width of state and output U.
        backward: whether it reads each sequence from its end.
        seed: seed of the initializers.
        **kwargs: of `keras.layers.Layer`.

    Call: `x` [T, B, D], time first, and `sequence_ids` int [T, B]: a sequence is a run
    of equal ids. Returns [T, B, U] in the compute dtype; states are float32 under any
    dtype policy.

    Example:
        >>> layer = Lstm(4)
        >>> layer(np.ones((5, 2, 8), "float32"), np.ones((5, 2), "int32")).shape
        (5, 2, 4)
    """

    def __init__(
        self,
        units: int,
        *,
        backward: bool = False,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.backward = backward
        self.seed = seed
        self.cell = keras.layers.LSTMCell(
            units,
            kernel_initializer=keras.initializers.GlorotUniform(seed),
            recurrent_initializer=keras.initializers.Orthogonal(seed=seed),
            dtype=self.dtype_policy,
            name="lstm_cell",
        )

    def build(self, x_shape: Any, sequence_ids_shape: Any = None) -> None:
        self.cell.build((None, x_shape[-1]))
        self.built = True

    def call(self, x: Any, sequence_ids: Any) -> Any:
        rows, width = ops.shape(x)[1], x.shape[-1]
        kernel, bias, recurrent = (
            ops.cast(weight, self.compute_dtype)
            for weight in (self.cell.kernel, self.cell.bias, self.cell.recurrent_kernel)
        )
        z = ops.matmul(ops.reshape(x, (-1, width)), kernel) + bias
        z = ops.cast(ops.reshape(z, (-1, rows, 4 * self.units)), "float32")
        h = _outputs(z, goes_on(sequence_ids, self.backward), recurrent, self.backward)
        return ops.cast(h, self.compute_dtype)

    def compute_output_spec(self, x: Any, sequence_ids: Any) -> Any:
        shape = (*x.shape[:-1], self.units)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "backward": self.backward,
            "seed": self.seed,
        }


def goes_on(sequence_ids: Any, backward: bool) -> Any:
    """Return 1 where a token is in the sequence of the one read before it, else 0.

    Args:
        sequence_ids: int [T, B].
        backward: whether tokens are read from the last.

    Returns:
        float32 [T, B, 1].
    """
    same = ops.cast(ops.equal(sequence_ids[1:], sequence_ids[:-1]), "float32")
    edge = ((0, 1), (0, 0)) if backward else ((1, 0), (0, 0))
    return ops.pad(same, edge)[..., None]


def _outputs(z: Any, keep: Any, kernel: Any, backward: bool) -> Any:
    """Return the outputs h of all tokens, float32 [T, B, U].

    Args:
        z: float32 [T, B, 4U], what the inputs give to the gates.
        keep: float32 [T, B, 1], see `goes_on`.
        kernel: [U, 4U], the weights that meet the state.
        backward: as of `Lstm`.
    """
    if keras.config.backend() != "tensorflow":
        return _states(z, keep, kernel, backward)[0]

    # The gradient of TensorFlow's loop adds up those of the weights token by token.
    @ops.custom_gradient
    def outputs(z: Any, keep: Any, kernel: Any) -> Any:
        h, c = _states(z, keep, kernel, backward)

        def gradient(upstream: Any) -> Any:
            return _gradients(upstream, z, keep, kernel, h, c, backward)

        return h, gradient

    return outputs(z, keep, kernel)


def _states(z: Any, keep: Any, kernel: Any, backward: bool) -> tuple[Any, Any]:
    """Return the outputs h and the cells c of all tokens, float32 [T, B, U] each."""

    units = kernel.shape[0]

    def step(state: Any, now: Any) -> Any:
        (h, c), (z, keep) = state, ops.split(now, [4 * units], axis=-1)
        i, f, g, o = _gates(z + _product(keep * h, kernel))
        c = f * (keep * c) + i * g
        h = o * ops.tanh(c)
        return (h, c), (h, c)

    nothing = ops.zeros((ops.shape(z)[1], units), "float32")
    # One tensor: of several Keras's scan on TensorFlow must know the length.
    inputs = ops.concatenate([z, keep], axis=-1)
    return ops.scan(step, (nothing, nothing), inputs, reverse=backward)[1]


def _gradients(
    upstream: Any, z: Any, keep: Any, kernel: Any, h: Any, c: Any, backward: bool
) -> tuple[Any, None, Any]:
    """Return the gradients of `z`, of `keep` (none) and of `kernel`.

    The gates are recomputed, for all tokens at once.
    """
    h, c = (keep * _shifted(state, not backward) for state in (h, c))  # of the last
    units = kernel.shape[0]
    i, f, g, o = _gates(z + _product(h, kernel))
    tanh = ops.tanh(f * c + i * g)
    moved = [
        # How z moves the cell by its first three gates, and the output by the fourth.
        g * i * (1.0 - i),
        c * f * (1.0 - f),
        i * (1.0 - g * g),
        tanh * o * (1.0 - o),
        o * (1.0 - tanh * tanh),  # how the cell moves the output
        f,  # and the next cell
        upstream,
        _shifted(keep, backward),  # that of the next
    ]
    parts = [units * number for number in (4, 5, 6, 7)]
    transposed = ops.transpose(kernel)

    def step(state: Any, now: Any) -> Any:
        (dz, dc), (slopes, to_h, to_c, dh, keep) = state, ops.split(now, parts, axis=-1)
        dh = dh + keep * _product(dz, transposed)
        dc = keep * dc + dh * to_h
        dz = slopes * ops.concatenate([dc, dc, dc, dh], axis=-1)
        dc = dc * to_c
        return (dz, dc), (dz, dc)

    nothing = ops.zeros_like(z[0]), ops.zeros_like(h[0])
    inputs = ops.concatenate(moved, axis=-1)
    dz, _ = ops.scan(step, nothing, inputs, reverse=not backward)[1]
    flat_dz = ops.cast(ops.reshape(dz, (-1, 4 * units)), kernel.dtype)
    flat_h = ops.cast(ops.reshape(h, (-1, units)), kernel.dtype)
    return dz, None, ops.matmul(ops.transpose(flat_h), flat_dz)


def _gates(z: Any) -> tuple[Any, Any, Any, Any]:
    i, f, g, o = ops.split(z, 4, axis=-1)
    return ops.sigmoid(i), ops.sigmoid(f), ops.tanh(g), ops.sigmoid(o)


def _product(x: Any, kernel: Any) -> Any:
    """Return float32 `x` times the kernel, computed in the kernel's dtype."""
    return ops.cast(ops.matmul(ops.cast(x, kernel.dtype), kernel), "float32")


def _shifted(values: Any, later: bool) -> Any:
    """Shift values [T, …] by one place, later or earlier, padding with 0."""
    nothing = ops.zeros_like(values[:1])
    parts = (nothing, values[:-1]) if later else (values[1:], nothing)
    return ops.concatenate(parts, axis=0)
