"""Heads on the encoder: `PooledHead`, layers for multiple choice, and `MaskedLMHead`.

Source: Devlin et al. 2018 (arXiv:1810.04805), sections 3.1 and 3.2; google-research's
`run_pretraining.py`, whose variable scopes name the masked-LM weights.
"""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from keras import ops

from bert_keras.model.distillation import SoftLoss, SoftTargetLoss
from bert_keras.model.layers import Configured, activation, initializer, tokens_at

NO_CHOICE = -1e9  # score of padding; finite in float32


@keras.saving.register_keras_serializable(package="bert_keras")
class ChoiceRows(keras.layers.Layer):
    """Reshapes a batch dict of choices to one of texts, for the encoder.

    Call: the dict of `choice_inputs`, with `None` for inputs that a padded batch lacks.
    Returns a dict of the same names, [B*C, T] or [R, T], `cls_positions` [B*C].
    """

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        rows = dict(inputs)
        for name, value in inputs.items():
            if value is not None:
                kept = () if name == "cls_positions" else ops.shape(value)[2:]
                rows[name] = ops.reshape(value, (-1, *kept))
        if rows.get("cls_positions") is not None:
            rows["cls_positions"] = ops.maximum(rows["cls_positions"], 0)
        return rows


@keras.saving.register_keras_serializable(package="bert_keras")
class ChoiceScores(keras.layers.Layer):
    """Reshapes one score per text to one row of scores per context.

    Call: `scores` [B*C, 1] or [S, 1], the `padding_mask` of `choice_inputs` and, if
    packed, its `cls_positions`. Returns float32 [B, C], -1e9 where a row has no such
    choice.
    """

    def call(self, scores: Any, padding_mask: Any, cls_positions: Any = None) -> Any:
        if cls_positions is None:
            there = ops.any(ops.cast(padding_mask, "bool"), axis=-1)
        else:
            there = cls_positions >= 0
        scores = ops.reshape(ops.cast(scores, "float32"), ops.shape(there))
        return ops.where(there, scores, NO_CHOICE)

    def compute_output_spec(
        self, scores: Any, padding_mask: Any, cls_positions: Any = None
    ) -> Any:
        is_padded = cls_positions is None
        shape = padding_mask.shape[:-1] if is_padded else cls_positions.shape
        return keras.KerasTensor(shape, dtype="float32")


@keras.saving.register_keras_serializable(package="bert_keras")
class PooledHead(Configured, keras.layers.Dense):
    """Dropout, then one linear layer on the pooled output: W C + b.

    Args:
        units: number of outputs C.
        dropout_rate: rate of the dropout on the pooled output.
        initializer_range: standard deviation of the normal initializer, as in
            transformers. Google's code truncates it at two deviations, which leaves
            0.88 of the range, with which new tasks start to learn more slowly.
        seed: seed of initializer and dropout.
        **kwargs: arguments of `keras.layers.Dense`.

    Call: pooled output [B, H]. Returns logits, float32 [B, C].

    Example:
        >>> tuple(PooledHead(4)(np.ones((2, 8), "float32")).shape)
        (2, 4)
    """

    def __init__(
        self,
        units: int,
        *,
        dropout_rate: float = 0.1,
        initializer_range: float = 0.02,
        seed: int | None = None,
        name: str = "classifier",
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault(
            "kernel_initializer",
            keras.initializers.RandomNormal(stddev=initializer_range, seed=seed),
        )
        super().__init__(units, name=name, **kwargs)
        self.dropout_rate = dropout_rate
        self.initializer_range = initializer_range
        self.seed = seed
        self.dropout = keras.layers.Dropout(
            dropout_rate, seed=seed, dtype=self.dtype_policy
        )

    @classmethod
    def on(
        cls, encoder: Any, units: int, *, seed: int | None, **settings: Any
    ) -> PooledHead:
        """Return a head with the dropout and initializer of a `BertEncoder`.

        Like all heads, it computes in Keras's global dtype policy, whatever the
        encoder's precision.
        """
        return cls.of(encoder.config, units=units, seed=seed, **settings)

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        logits = super().call(self.dropout(inputs, training=training))
        return ops.cast(logits, "float32")

    def compute_output_spec(self, inputs: Any, training: bool | None = None) -> Any:
        return keras.KerasTensor((*inputs.shape[:-1], self.units), dtype="float32")


def new_heads(model: keras.Model, encoder: Any) -> list[str]:
    """Return a line for each randomly initialized head on a pretrained encoder.

    An `encoder` without a `source` is random itself: there are no lines then.
    """
    if encoder.source is None:
        return []
    return [
        f"{encoder.source}: {name} is initialized randomly; "
        f"`{type(model).__name__}.from_pretrained` takes a head that a folder has"
        for name in head_names(model, encoder)
    ]


def head_names(model: keras.Model, encoder: Any) -> list[str]:
    """Return the names of the heads with weights, such as `classifier`."""
    known = {id(weight) for weight in encoder.weights}
    paths = [w.path.split("/") for w in model.weights if id(w) not in known]
    names = ["/".join(path[: 2 if path[0] == "cls" else 1]) for path in paths]
    return list(dict.fromkeys(names))


@keras.saving.register_keras_serializable(package="bert_keras")
class MaskedLMHead(Configured, keras.layers.Layer):
    """Dense, activation, LayerNorm, then the product with the token embeddings.

    The dense layer is H to H, or H to E where the embeddings have a width E of their
    own.

    The embedding table is passed as a tensor (`BertEncoder.token_table`), so it stays
    tied after saving and loading. Logits are computed at the masked positions only:
    with 15% of the tokens masked, a seventh of the work.

    Args:
        hidden_size, vocab_size: H and V.
        hidden_act, layer_norm_eps, initializer_range: as in `BertConfig`.
        seed: seed of the initializer.
        tied: `False` gives the head a table of its own, see `own_table`.
        embedding_size: E; `None`: H.

    Call: `x` [B, T, H], `table` [V, E], and `positions` int32 [B, P], columns of each
    row; columns below 0 are read as 0, and the loss must ignore them. Without
    positions, all tokens get logits. With `is_transposed=True` the table is [E, V].
    Returns float32 [B, P or T, V].

    Example:
        >>> head = MaskedLMHead(hidden_size=8, vocab_size=20)
        >>> x, table = np.ones((2, 5, 8)), np.ones((20, 8))
        >>> tuple(head(x, table, np.array([[1], [4]])).shape)
        (2, 1, 20)
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        vocab_size: int,
        hidden_act: str = "gelu",
        layer_norm_eps: float = 1e-12,
        initializer_range: float = 0.02,
        seed: int | None = None,
        tied: bool = True,
        embedding_size: int | None = None,
        name: str = "cls",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        self.hidden_size = hidden_size
        self.vocab_size = vocab_size
        self.hidden_act = hidden_act
        self.layer_norm_eps = layer_norm_eps
        self.initializer_range = initializer_range
        self.seed = seed
        self.tied = tied
        self.embedding_size = embedding_size
        self.activation = activation(hidden_act)
        self.dense = keras.layers.Dense(
            embedding_size or hidden_size,
            kernel_initializer=initializer(initializer_range, seed),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_eps, dtype=self.dtype_policy, name="LayerNorm"
        )

    @classmethod
    def on(cls, encoder: Any, *, seed: int | None = None) -> MaskedLMHead:
        """Return the head that fits a `BertEncoder`."""
        act = encoder.config.masked_lm_act
        return cls.of(encoder.config, hidden_act=act, seed=seed)

    def build(self, *_: Any) -> None:
        with keras.name_scope("predictions"):
            with keras.name_scope("transform"):
                self.dense.build((None, self.hidden_size))
                self.norm.build((None, self.dense.units))
            # `add_weight` would leave the scope `predictions` out of the name.
            self.output_bias = keras.Variable(
                keras.initializers.Zeros(),
                shape=(self.vocab_size,),
                dtype=self.variable_dtype,
                name="output_bias",
            )
            if not self.tied:
                self.output_embeddings = keras.Variable(
                    initializer(self.initializer_range, self.seed, 1),
                    shape=(self.vocab_size, self.dense.units),
                    dtype=self.variable_dtype,
                    name="output_embeddings",
                )

    def start_with_tokens(self, table: Any, *, rarity: float) -> None:
        """Let a new head find a token's own embedding in the token's vector.

        A block adds to its input, so that the last vector of a token is still near to
        the token's embedding: the layer H to H passes it on. The bias leaves logits
        above 0 only to words that are `rarity` standard deviations nearer to a vector
        than others: LayerNorm gives vectors the variance 1, so that a deviation is the
        length of an embedding, on average over `table` [V, H].
        """
        lengths = np.linalg.norm(ops.convert_to_numpy(table), axis=-1)
        self.dense.kernel.assign(np.eye(self.hidden_size))
        self.output_bias.assign(np.full(self.vocab_size, -rarity * lengths.mean()))

    def own_table(self) -> Any:
        """Return the table of a head that is not tied, [V, E] in the compute dtype."""
        return ops.cast(self.output_embeddings, self.compute_dtype)

    def call(
        self,
        x: Any,
        table: Any = None,
        positions: Any = None,
        is_transposed: bool = False,
    ) -> Any:
        if table is None:
            table = self.own_table()
        if positions is not None:
            rows = ops.shape(positions)
            x = ops.reshape(tokens_at(x, positions), (*rows, self.hidden_size))
        shape = ops.shape(x)
        x = self.norm(self.activation(self.dense(ops.reshape(x, (-1, shape[-1])))))
        columns = table if is_transposed else ops.transpose(table)
        logits = ops.cast(ops.matmul(x, columns), "float32")
        logits = logits + ops.cast(self.output_bias, "float32")
        return ops.reshape(logits, (*shape[:-1], self.vocab_size))


NO_LABEL = -1  # padding where a row has fewer tokens to predict


@keras.saving.register_keras_serializable(package="bert_keras")
class SmoothedCrossentropy(Configured, keras.losses.Loss):
    """Mean cross-entropy of labels, int32 [R, T], with logits [R, T, V].

    Labels below 0 do not count. With smoothing, a part of the probability is spread
    evenly over all tokens (Szegedy et al. 2016, arXiv:1512.00567, section 7), as by
    `label_smoothing` in torch.

    Args:
        label_smoothing: that part, from 0 to 1.

    Example:
        >>> loss = SmoothedCrossentropy(0.1)
        >>> round(float(loss(np.array([[3, -1]]), np.zeros((1, 2, 8)))), 3)
        2.079
    """

    ignore_class = NO_LABEL

    def __init__(self, label_smoothing: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.label_smoothing = label_smoothing

    def softened(self, temperature: float) -> SoftLoss:
        """Return the loss of a teacher's logits, see `distillation.softened`."""
        return SoftTargetLoss(
            "softmax", temperature, reduction="mean_with_sample_weight"
        )

    def call(self, y_true: Any, y_pred: Any) -> Any:
        labels = ops.cast(ops.convert_to_tensor(y_true), "int32")
        logits = ops.cast(y_pred, "float32")
        losses = _smoothed(ops.maximum(labels, 0), logits, self.label_smoothing)
        total = ops.sum(ops.where(labels >= 0, losses, 0.0))
        return total / ops.maximum(self.counted(labels), 1.0)

    def counted(self, y_true: Any) -> Any:
        """Return the number of labels that count, float32 []."""
        return ops.sum(ops.cast(ops.convert_to_tensor(y_true) >= 0, "float32"))


def _smoothed(labels: Any, logits: Any, smoothing: float) -> Any:
    """Return cross-entropies with smoothed labels, float32 [R, T].

    `labels`, int32 [R, T], are from 0; `logits` are float32 [R, T, V].
    """
    if keras.config.backend() == "tensorflow":
        return _smoothed_on_tensorflow(labels, logits, smoothing)
    losses = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    if not smoothing:
        return losses
    of_label = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return losses + smoothing * (of_label - ops.mean(logits, axis=-1))


def _smoothed_on_tensorflow(labels: Any, logits: Any, smoothing: float) -> Any:
    """Return `_smoothed`, with its gradient in few passes over memory."""
    import tensorflow as tf

    count = tf.shape(logits)[-1]
    places = tf.stack([tf.range(tf.size(labels)), tf.reshape(labels, [-1])], axis=1)

    @tf.custom_gradient
    def losses(logits: Any) -> Any:
        rows = tf.reshape(logits, [-1, count])
        # The op computes the gradient, softmax less one-hot labels, with the loss.
        losses, excess = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
            features=rows, labels=places[:, 1]
        )
        if smoothing:
            of_label = tf.gather_nd(rows, places)
            losses += smoothing * (of_label - tf.reduce_mean(rows, axis=1))

        def gradient(upstream: Any) -> Any:
            upstream = tf.reshape(upstream, [-1])
            share = smoothing / tf.cast(count, tf.float32)
            found = (excess - share) * upstream[:, tf.newaxis]
            if smoothing:
                found = tf.tensor_scatter_nd_add(found, places, smoothing * upstream)
            return tf.reshape(found, tf.shape(logits))

        return tf.reshape(losses, tf.shape(labels)), gradient

    return losses(logits)


@keras.saving.register_keras_serializable(package="bert_keras")
class MaskedAccuracy(keras.metrics.SparseCategoricalAccuracy):
    """Accuracy: the share of labels, int [R, P], with the highest logit [R, P, V]."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        # Flat, or Keras averages each row first, and rows differ in length.
        logits = ops.reshape(y_pred, (-1, ops.shape(y_pred)[-1]))
        weights = ops.ravel(_weights(y_true, sample_weight))
        return super().update_state(ops.ravel(y_true), logits, weights)


@keras.saving.register_keras_serializable(package="bert_keras")
class MaskedPerplexity(keras.metrics.Mean):
    """Perplexity: exp of the mean cross-entropy of labels [R, P], logits [R, P, V].

    Example:
        >>> metric = MaskedPerplexity()
        >>> metric.update_state([[3, -1]], np.zeros((1, 2, 8)))
        >>> round(float(metric.result()), 3)
        8.0
    """

    def __init__(self, name: str = "perplexity", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        labels = ops.maximum(ops.convert_to_tensor(y_true), 0)
        losses = ops.sparse_categorical_crossentropy(
            labels, ops.cast(y_pred, "float32"), from_logits=True
        )
        weights = ops.ravel(_weights(y_true, sample_weight))
        return super().update_state(ops.ravel(losses), weights)

    def result(self) -> Any:
        return ops.exp(super().result())


def _weights(labels: Any, sample_weight: Any) -> Any:
    """Return 0 for a label that does not count, else its weight or 1."""
    counted = ops.cast(ops.convert_to_tensor(labels) >= 0, "float32")
    return counted if sample_weight is None else counted * sample_weight
