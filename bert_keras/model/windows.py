"""One vector for each text from the vectors of its windows: `WindowCombination`.

Sources: Sun et al. 2019 (arXiv:1905.05583), section 5.2, hierarchical methods: mean,
max and attention over the parts of a text.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from bert_keras.model.layers import Configured, is_for_engines
from bert_keras.settings import WINDOW_COMBINATIONS, check_choice

_LOWEST = -1e30  # below any number of a vector or score


@keras.saving.register_keras_serializable(package="bert_keras")
class WindowCombination(Configured, keras.layers.Layer):
    """Combines the vectors of the windows of each text.

    Runs on TensorFlow: the number of texts is known only from the values.

    Args:
        combine: `mean`, `max` of each number, or `first`, the first window; or
            `attention`, the sum weighted by the softmax of a learned score of each
            window, all equal at the start.

    Call: vectors [S, H] of S windows in the order of their texts, and `window_starts`
    int32 [S], 1 at the first window of each text and 0 at its others; without it, each
    text has one window. Returns float32 [B, H], or with `of_windows` the part of each
    window in it, float32 [S, H].

    Example:
        >>> vectors = np.array([[1.0], [3.0], [4.0]], "float32")
        >>> starts = np.array([1, 0, 1])
        >>> WindowCombination("mean")(vectors, starts).numpy().tolist()
        [[2.0], [4.0]]
    """

    def __init__(
        self, combine: str = "mean", *, name: str = "windows", **kwargs: Any
    ) -> None:
        check_choice("combine", combine, WINDOW_COMBINATIONS)
        super().__init__(name=name, **kwargs)
        self.combine = combine

    def build(self, vectors: Any, *_: Any) -> None:
        if self.combine == "attention":
            self.query = self.add_weight(
                name="query", shape=(vectors[-1],), initializer="zeros"
            )

    def call(
        self, vectors: Any, window_starts: Any = None, of_windows: bool = False
    ) -> Any:
        if window_starts is None:
            return ops.cast(vectors, "float32")
        shares = self.shares(vectors, window_starts)
        return shares if of_windows else _Texts(window_starts).sums(shares)

    def shares(self, vectors: Any, window_starts: Any) -> Any:
        """Return the part of each window in the vector of its text, float32 [S, H].

        The vector of a text is the sum of the parts of its windows.
        """
        x, texts = ops.cast(vectors, "float32"), _Texts(window_starts)

        def of_text(values: Any) -> Any:
            """Return the sums of the values of each text, at its windows."""
            return texts.at_windows(texts.sums(values))

        if self.combine == "first":
            weights = ops.cast(window_starts, "float32")[:, None]
        elif self.combine == "max":
            most = texts.at_windows(texts.most(x))
            weights = ops.cast(x >= most, "float32")  # equal ones share
            weights = weights / of_text(weights)
        elif self.combine == "attention":
            scores = x @ ops.cast(self.query, "float32")[:, None]
            most = texts.at_windows(texts.most(ops.stop_gradient(scores)))
            weights = ops.exp(scores - most)
            weights = weights / of_text(weights)
        else:
            weights = 1.0 / of_text(ops.ones_like(x[:, :1]))
        return x * weights

    def compute_output_spec(
        self, vectors: Any, window_starts: Any = None, of_windows: bool = False
    ) -> Any:
        return keras.KerasTensor((None, *vectors.shape[1:]), dtype="float32")


class _Texts:
    """Sums and maxima over the windows of each of B texts.

    Engines have no operations on segments: a mask of texts and windows takes their
    place.
    """

    def __init__(self, window_starts: Any) -> None:
        starts = ops.cast(window_starts, "int32")
        self._of_windows = ops.cumsum(starts) - 1  # the text of each window
        self._mask = None
        if is_for_engines():
            texts = ops.arange(ops.sum(starts), dtype="int32")
            self._mask = texts[:, None] == self._of_windows[None]

    def sums(self, values: Any) -> Any:
        """Return the sums of values, float32 [S, H], over each text, [B, H]."""
        if self._mask is None:
            return ops.segment_sum(values, self._of_windows, sorted=True)
        return ops.matmul(ops.cast(self._mask, "float32"), values)

    def most(self, values: Any) -> Any:
        """Return the largest of values, float32 [S, H], in each text, [B, H]."""
        if self._mask is None:
            return ops.segment_max(values, self._of_windows, sorted=True)
        return ops.max(ops.where(self._mask[..., None], values[None], _LOWEST), axis=1)

    def at_windows(self, values: Any) -> Any:
        """Return the values of each text, [B, H], at its windows, [S, H]."""
        return ops.take(values, self._of_windows, axis=0)
