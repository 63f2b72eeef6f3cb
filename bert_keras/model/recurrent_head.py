"""`RecurrentHead`: a small BiLSTM on hidden layers of the encoder, and its `Lstm`.

Sources: Devlin et al. 2018 (arXiv:1810.04805), section 5.3 and table 7; Hochreiter and
Schmidhuber 1997 (Neural Computation 9), with the forget gate of Gers et al. 2000. The
LSTM's weights, gates and their order follow `keras.layers.LSTM`.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bert_keras.errors import ConfigError
from bert_keras.model.layers import Configured, moved
from bert_keras.settings import FEATURES as FEATURES


@keras.saving.register_keras_serializable(package="bert_keras")
class Lstm(Configured, keras.layers.Layer):
    """An LSTM whose state resets between the sequences of a packed row.

    Its output for a sequence equals `keras.layers.LSTM`'s for this sequence
    alone. The products with the inputs, and the gradients of the weights, are computed
    for all tokens at once; only the product with the state runs token by token.

    Args:
        units: width of state and output U.
        backward: whether it reads each sequence from its end.
        seed: seed of the initializers.

    Call: `x` [T, B, D], time first, and `sequence_ids` int [T, B]: a sequence is a run
    of equal ids. Returns [T, B, U] in the compute dtype; states are float32 under any
    dtype policy.

    Example:
        >>> x, ids = np.ones((5, 2, 8), "float32"), np.ones((5, 2), "int32")
        >>> tuple(Lstm(4)(x, ids).shape)
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


def goes_on(sequence_ids: Any, backward: bool) -> Any:
    """Return float32 [T, B, 1]: 1 if a token continues the sequence read before it."""
    same = ops.cast(ops.equal(sequence_ids[1:], sequence_ids[:-1]), "float32")
    edge = ((0, 1), (0, 0)) if backward else ((1, 0), (0, 0))
    return ops.pad(same, edge)[..., None]


def _outputs(z: Any, keep: Any, kernel: Any, backward: bool) -> Any:
    """Return the outputs h of all tokens, float32 [T, B, U].

    `z`, float32 [T, B, 4U], is the inputs' share of the gates, `keep` is from
    `goes_on`, and `kernel`, [U, 4U], holds the recurrent weights.
    """
    if keras.config.backend() != "tensorflow":
        return _states(z, keep, kernel, backward)[0]

    # TensorFlow's loop would add up the weight gradients token by token.
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
    # One tensor: with several, Keras's scan on TensorFlow must know the length.
    inputs = ops.concatenate([z, keep], axis=-1)
    return ops.scan(step, (nothing, nothing), inputs, reverse=backward)[1]


def _gradients(
    upstream: Any, z: Any, keep: Any, kernel: Any, h: Any, c: Any, backward: bool
) -> tuple[Any, None, Any]:
    """Return the gradients of `z`, of `keep` (`None`) and of `kernel`.

    The gates are recomputed, for all tokens at once.
    """
    # Of the last token.
    h, c = (keep * _shifted(state, not backward) for state in (h, c))
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
        f,  # and how the cell moves the next one
        upstream,
        _shifted(keep, backward),  # of the next token
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


@keras.saving.register_keras_serializable(package="bert_keras")
class RecurrentHead(Configured, keras.layers.Layer):
    """Hidden layers, a BiLSTM of two layers, dropout, one linear layer per token.

    Weighted sums have learned weights that sum to 1, and a learned scale (Peters et al.
    2018, arXiv:1802.05365, equation 1); `weighted_sum_all` sums the blocks without
    the embeddings.

    Args:
        classes: number of outputs C.
        features: a key of `FEATURES`.
        units: width of each direction of each LSTM.
        dropout_rate: rate of the dropout on the features and before the linear layer.
        initializer_range: standard deviation of the linear layer's initializer.
        seed: seed of initializers and dropout.

    Call: hidden states, L + 1 of [B, T, H], embeddings first; `padding_mask` int [B, T]
    (1 = real) and, for packed rows, `sequence_ids` int [B, T] (0 = padding). No state
    crosses from one text of a row into the next. Returns logits, float32 [B, T, C].

    Example:
        >>> head = RecurrentHead(3, features="last", units=4)
        >>> states = [np.ones((2, 5, 8), "float32")] * 3
        >>> tuple(head(states, np.ones((2, 5), "int32")).shape)
        (2, 5, 3)
    """

    def __init__(
        self,
        classes: int,
        *,
        features: str = "concat_last_four",
        units: int = 768,
        dropout_rate: float = 0.1,
        initializer_range: float = 0.02,
        seed: int | None = None,
        name: str = "classifier",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.classes = classes
        self.features = features
        self.units = units
        self.dropout_rate = dropout_rate
        self.initializer_range = initializer_range
        self.seed = seed
        self.sums = features.startswith("weighted_sum")
        dtype = self.dtype_policy
        self.dropout = keras.layers.Dropout(dropout_rate, seed=seed, dtype=dtype)
        self.recurrent = [
            (self._lstm("forward_lstm", number), self._lstm("backward_lstm", number))
            for number in range(2)
        ]
        self.output_layer = keras.layers.Dense(
            classes,
            kernel_initializer=keras.initializers.RandomNormal(
                stddev=initializer_range, seed=seed
            ),
            dtype=dtype,
            name="output",
        )

    def _lstm(self, name: str, number: int) -> Lstm:
        return Lstm(
            self.units,
            backward=name.startswith("backward"),
            seed=moved(self.seed, number),
            dtype=self.dtype_policy,
            name=name,
        )

    def _chosen(self, states: list[Any]) -> list[Any]:
        """Return the hidden states that are read."""
        if len(states) - 1 < FEATURES[self.features]:
            raise ConfigError(
                f"the layers `{self.features}` need an encoder of at least "
                f"{FEATURES[self.features]} layers; received {len(states) - 1}"
            )
        if self.features == "weighted_sum_all":
            return states[1:]
        if self.features.endswith("last_four"):
            return states[-4:]
        place = {"embeddings": 0, "second_to_last": -2, "last": -1}
        return [states[place[self.features]]]

    def build(
        self,
        states_shape: list[Any],
        padding_mask_shape: Any = None,
        sequence_ids_shape: Any = None,
    ) -> None:
        chosen = self._chosen(states_shape)
        width = chosen[0][-1]
        if self.sums:
            self.mix = self.add_weight(
                shape=(len(chosen),), initializer="zeros", name="mix", dtype="float32"
            )
            self.scale = self.add_weight(
                shape=(1,), initializer="ones", name="scale", dtype="float32"
            )
        elif self.features.startswith("concat"):
            width *= len(chosen)
        for number, both in enumerate(self.recurrent):
            with keras.name_scope(f"bidirectional_{number}"):
                for layer in both:
                    layer.build((None, None, width))
            width = 2 * self.units
        self.output_layer.build((None, None, width))
        self.built = True

    def call(
        self,
        states: list[Any],
        padding_mask: Any,
        sequence_ids: Any = None,
        training: bool | None = None,
    ) -> Any:
        chosen = self._chosen(states)
        if self.sums:
            shares = ops.softmax(self.mix) * self.scale
            x = sum(
                ops.cast(shares[number], state.dtype) * state
                for number, state in enumerate(chosen)
            )
        else:
            x = ops.concatenate(chosen, axis=-1)
        x = ops.transpose(self.dropout(x, training=training), (1, 0, 2))
        ids = ops.transpose(padding_mask if sequence_ids is None else sequence_ids)
        for both in self.recurrent:
            x = ops.concatenate([layer(x, ids) for layer in both], axis=-1)
        logits = self.output_layer(self.dropout(x, training=training))
        return ops.cast(ops.transpose(logits, (1, 0, 2)), "float32")

    def compute_output_spec(self, states: list[Any], *_: Any, **__: Any) -> Any:
        shape = (*states[0].shape[:-1], self.classes)
        return keras.KerasTensor(shape, dtype="float32")
