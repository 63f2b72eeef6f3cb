"""Losses of pairs of texts, each compared with the others of its batch.

Except for the soft losses and `SharedClassLoss`, the rows of `y_pred`, float32
[2B, D], or [2B, T, D] of tokens, are embeddings, the two of a pair next to each other,
and negatives after them.
A loss depends on the batch: the more rows, the more comparisons.

Sources: Henderson et al. 2017 (arXiv:1705.00652), section 4.4 (in-batch negatives);
Reimers and Gurevych 2019 (arXiv:1908.10084); Su 2022, "CoSENT"
(https://kexue.fm/archives/8847); Li and Li 2023, "AnglE" (arXiv:2309.12871), section
3.4; Kusupati et al. 2022 (arXiv:2205.13147) for several widths; Tunstall et al. 2022
(arXiv:2209.11055), section 3.1, for pairs by class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from bert_keras.errors import ConfigError
from bert_keras.model.distillation import SoftLoss, SoftTargetLoss
from bert_keras.model.layers import MASKED, Configured
from bert_keras.model.pooling import unit_vectors


class _PairLoss(Configured, keras.losses.Loss):
    """A loss of cosines times `scale`.

    With `dimensions`, it is the sum of the losses of whole vectors and of vectors that
    are shortened to each of these widths.
    """

    default_name = ""
    # Whether it also shapes the vectors, which no teacher's answers do.
    regularizes = False
    # Whether vectors are compared by cosines, or else by products.
    normalizes = True

    def __init__(
        self,
        scale: float = 20.0,
        dimensions: Sequence[int] = (),
        *,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not scale > 0:
            raise ConfigError(f"`scale` must be above 0; received {scale}")
        super().__init__(name=name or self.default_name, **kwargs)
        self.scale = scale
        self.dimensions = tuple(dimensions)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return _over_widths(
            ops.cast(y_pred, "float32"),
            self.dimensions,
            lambda vectors: self.compare(y_true, unit_vectors(vectors)),
        )

    def softened(self, temperature: float) -> SoftLoss:
        """Return the loss of a teacher's vectors, see `distillation.softened`."""
        given = self.scale, temperature, self.dimensions
        return SoftSimilarityLoss(*given, normalize=self.normalizes)

    def softened_ranking(self, temperature: float) -> SoftLoss:
        """Return the loss of a teacher's scores of pairs, see `SoftRankingLoss`."""
        given = self.scale, temperature, self.dimensions
        return SoftRankingLoss(*given, normalize=self.normalizes)

    def compare(self, y_true: Any, vectors: Any) -> Any:
        """Return the loss of unit vectors, float32 [2B, D] or more rows."""
        raise NotImplementedError


def _over_widths(
    vectors: Any, dimensions: Sequence[int], loss: Callable[[Any], Any]
) -> Any:
    """Return the sum of a loss of whole vectors [..., D] and of each shorter width."""
    widths = sorted({*dimensions, vectors.shape[-1]})
    losses = [loss(vectors[..., :width]) for width in widths]
    return sum(losses[1:], losses[0])


class _InBatchRanking(_PairLoss):
    """Cross-entropy of finding a text's pair among the texts of the batch.

    `both_ways`: also of finding the first text of a second one.
    """

    both_ways = True

    def compare(self, y_true: Any, vectors: Any) -> Any:
        shape = ops.shape(vectors)[1:]
        vectors = ops.reshape(vectors, (-1, ops.shape(y_true)[1], *shape))
        candidates = ops.concatenate(
            [vectors[:, 1], ops.reshape(vectors[:, 2:], (-1, *shape))]
        )
        scores = self.scale * self.scores(vectors[:, 0], candidates)
        scores = ops.where(_no_negatives(y_true), MASKED, scores)
        pairs = scores[:, : ops.shape(y_true)[0]]
        found = ops.diagonal(pairs)
        forth = ops.logsumexp(scores, axis=1) - found
        if not self.both_ways:
            return forth
        back = ops.logsumexp(pairs, axis=0) - found
        return (forth + back) / 2

    def scores(self, first: Any, candidates: Any) -> Any:
        """Return the score of each first text and each candidate, float32 [B, C]."""
        return ops.matmul(first, ops.transpose(candidates))


@keras.saving.register_keras_serializable(package="bert_keras")
class RankingLoss(_InBatchRanking):
    """Cross-entropy of finding a text's pair among the texts of the batch.

    The mean of both directions: each first text against all second ones and all
    negatives, and each second text against all first texts. A text is no negative of
    itself, nor are its pairs in any row of the batch. A negative that equals a second
    text or an earlier negative counts once.

    Args:
        scale: factor of the cosines: the inverse of the temperature.
        dimensions: smaller widths that are trained, too.

    Call: `y_true` [B, 2 + K], numbers that equal texts share, -1 for a missing
    negative; `y_pred` [B * (2 + K), D], first text, second text and negatives of each
    row.

    Example:
        >>> same = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
        >>> round(float(RankingLoss(1.0)(np.array([[0, 1], [2, 3]]), same)), 4)
        0.3133
    """

    default_name = "ranking"


def _no_negatives(numbers: Any) -> Any:
    """Return which candidates are no negative of a first text, bool [B, B + B * K].

    Its own pair is False, too. `numbers` are int [B, 2 + K]; candidates are the second
    texts, and then the negatives.
    """
    first, second = numbers[:, 0], numbers[:, 1]
    negatives = ops.reshape(numbers[:, 2:], (-1,))
    candidates = ops.concatenate([second, negatives])
    same_first = ops.cast(first[:, None] == first[None, :], "float32")
    is_pair = ops.cast(second[:, None] == candidates[None, :], "float32")
    known = ops.matmul(same_first, is_pair) > 0  # a pair of the text in any row
    known = ops.logical_or(known, first[:, None] == candidates[None, :])
    place = ops.arange(ops.shape(candidates)[0])
    rows = ops.shape(second)[0]
    before = ops.logical_and(
        candidates[:, None] == candidates[None, :], place[:, None] < place[None, :]
    )
    again = ops.logical_or(ops.any(before, axis=0), candidates < 0)
    again = ops.logical_and(again, place >= rows)
    own = place[:rows, None] == place[None, :]
    return ops.logical_and(ops.logical_or(known, again[None, :]), ops.logical_not(own))


@keras.saving.register_keras_serializable(package="bert_keras")
class SparseRankingLoss(RankingLoss):
    """`RankingLoss` of dot products, and what makes the vectors sparse.

    That is, for queries and for documents, the sum over the places of a vector of the
    squared mean over the batch (FLOPS). Source: Formal et al. 2021 (arXiv:2109.10086),
    section 3; Paria et al. 2020 (arXiv:2004.05665).

    Args:
        scale: factor of the dot products.
        query_flops, document_flops: factors of these sums.
    """

    default_name = "sparse_ranking"
    regularizes = True
    normalizes = False

    def __init__(
        self,
        scale: float = 1.0,
        *,
        query_flops: float = 5e-5,
        document_flops: float = 3e-5,
        **kwargs: Any,
    ) -> None:
        super().__init__(scale, **kwargs)
        self.query_flops = query_flops
        self.document_flops = document_flops

    def call(self, y_true: Any, y_pred: Any) -> Any:
        vectors = ops.cast(y_pred, "float32")
        loss = self.compare(y_true, vectors)
        width = vectors.shape[-1]
        rows = ops.reshape(vectors, (-1, ops.shape(y_true)[1], width))
        real = ops.cast(y_true[:, 1:] >= 0, "float32")[..., None]
        documents = ops.sum(rows[:, 1:] * real, axis=(0, 1)) / ops.sum(real)
        queries = ops.mean(rows[:, 0], axis=0)
        return (
            loss
            + self.query_flops * ops.sum(ops.square(queries))
            + self.document_flops * ops.sum(ops.square(documents))
        )


@keras.saving.register_keras_serializable(package="bert_keras")
class TokenRankingLoss(_InBatchRanking):
    """Cross-entropy of finding a text's pair by MaxSim of the vectors of tokens.

    The score of a first text and a candidate is the sum over the first text's tokens of
    the largest product with a token of the candidate. It grows with the first text, so
    that first texts are not compared with each other. Source: Khattab and Zaharia 2020
    (arXiv:2004.12832), equation 3.

    Args:
        scale: factor of the scores.

    Call: `y_true` as for `RankingLoss`; `y_pred` [B * (2 + K), T, D], 0 for tokens that
    do not count.

    Example:
        >>> first, second = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 0.0]]
        >>> pairs = np.array([first, first, second, second])
        >>> round(float(TokenRankingLoss()(np.array([[0, 1], [2, 3]]), pairs)), 4)
        0.5032
    """

    default_name = "token_ranking"
    both_ways = False
    normalizes = False

    def __init__(self, scale: float = 1.0, **kwargs: Any) -> None:
        super().__init__(scale, **kwargs)

    def softened(self, temperature: float) -> SoftLoss:
        raise ConfigError(
            "`teacher` must score pairs of texts, as a model of reranking does, for "
            "vectors of `kind` tokens; received one that does not"
        )

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return self.compare(y_true, ops.cast(y_pred, "float32"))

    def scores(self, first: Any, candidates: Any) -> Any:
        width = first.shape[-1]
        flat = ops.reshape(candidates, (-1, width))
        products = ops.matmul(ops.reshape(first, (-1, width)), ops.transpose(flat))
        texts, tokens = ops.shape(first)[:2], ops.shape(candidates)[:2]
        products = ops.reshape(products, (*texts, *tokens))
        return _summed_maxima(products, ops.any(candidates != 0, axis=-1))


def _summed_maxima(products: Any, counts: Any) -> Any:
    """Return the MaxSim of first texts and candidates, float32 [B, C].

    Args:
        products: of their tokens, [B, T, C, S].
        counts: whether a token of a candidate counts, broadcast to the products.
    """
    found = ops.max(ops.where(counts, products, MASKED), axis=-1)
    return ops.sum(found, axis=1)


@keras.saving.register_keras_serializable(package="bert_keras")
class SimilarityOrderLoss(_PairLoss):
    """CoSENT: pairs of higher gold similarity must have the higher cosine.

    log(1 + sum of exp(scale * (cosine of j - cosine of i))) over all i, j of the batch
    where i has the higher gold similarity. Only the order of the gold scores counts,
    as in Spearman's correlation; their range does not matter.

    Args:
        scale: factor of the differences of cosines.
        dimensions: smaller widths that are trained, too.

    Call: `y_true` [B], gold similarities; `y_pred` [2B, D].

    Example:
        >>> pairs = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> round(float(SimilarityOrderLoss(1.0)(np.array([0.0, 5.0]), pairs)), 4)
        1.3133
    """

    default_name = "similarity_order"

    def compare(self, y_true: Any, vectors: Any) -> Any:
        found = self.scale * self.similarities(vectors[0::2], vectors[1::2])
        gold = ops.reshape(y_true, (-1,))
        wrong = ops.where(
            gold[:, None] > gold[None, :], found[None, :] - found[:, None], MASKED
        )
        zero = ops.zeros((1,), dtype=wrong.dtype)
        return ops.logsumexp(ops.concatenate([zero, ops.reshape(wrong, (-1,))]))

    def similarities(self, first: Any, second: Any) -> Any:
        """Return the similarity of the two unit vectors of each pair, float32 [B]."""
        return ops.sum(first * second, axis=-1)


@keras.saving.register_keras_serializable(package="bert_keras")
class AngleOrderLoss(SimilarityOrderLoss):
    """AnglE: `SimilarityOrderLoss` of angles between complex vectors, not of cosines.

    The first half of a vector are the real parts, the second half the imaginary ones.
    The similarity of two vectors is the magnitude of the summed real and imaginary
    parts of their quotient: unlike a cosine, it has a slope where they are alike.

    Raises:
        ConfigError: vectors, or shortened ones, have an odd number of numbers.

    Example:
        >>> pairs = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 1.0]])
        >>> round(float(AngleOrderLoss(1.0)(np.array([0.0, 5.0]), pairs)), 4)
        1.3133
    """

    default_name = "angle_order"

    def similarities(self, first: Any, second: Any) -> Any:
        if first.shape[-1] % 2:
            raise ConfigError(
                "vectors must have an even number of numbers, half of them real parts, "
                f"with `similarity_loss` angle; received {first.shape[-1]}"
            )
        (a, b), (c, d) = (ops.split(each, 2, axis=-1) for each in (first, second))
        # Of unit vectors, the quotient is the product with the conjugate.
        return ops.abs(ops.sum(a * c + b * d + b * c - a * d, axis=-1))


class _SoftLossOfVectors(Configured, SoftLoss):
    """What the losses of a student's vectors have in common: how these are compared.

    Args: as of `SoftSimilarityLoss`.
    """

    compares = True
    _usual_name: str

    def __init__(
        self,
        scale: float = 20.0,
        temperature: float = 2.0,
        dimensions: Sequence[int] = (),
        *,
        normalize: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name or self._usual_name, **kwargs)
        self.scale = scale
        self.temperature = temperature
        self.dimensions = tuple(dimensions)
        self.normalize = normalize


@keras.saving.register_keras_serializable(package="bert_keras")
class SoftSimilarityLoss(_SoftLossOfVectors):
    """A student finds the texts of a batch as similar to each other as its teacher.

    `SoftTargetLoss` of the cosines of each text with the other texts, times `scale`:
    the vectors of both may differ in width. With `dimensions`, it is the sum of the
    losses of whole vectors and of the student's vectors that are shortened to each of
    these widths, all beside the teacher's whole vectors.

    Args:
        scale: factor of the cosines, as in `RankingLoss`.
        temperature: divides them; its square is a factor of the loss.
        dimensions: smaller widths of the student that are trained, too.
        normalize: whether vectors are compared by cosines, or else by dot products.

    Call: `y_true` [B, K * D], the teacher's vectors of each row's K texts; `y_pred`
    [B * K, E], the student's. Returns float32 [B] before the reduction.
    """

    _usual_name = "soft_similarity"

    def targets(self, teacher: Any, labels: Any) -> Any:
        return ops.reshape(teacher, (ops.shape(labels)[0], -1))

    def call(self, y_true: Any, y_pred: Any) -> Any:
        texts, rows = ops.shape(y_pred)[0], ops.shape(y_true)[0]
        loss = SoftTargetLoss(temperature=self.temperature, reduction=None)
        wanted = self._others(ops.reshape(y_true, (texts, -1)))
        each = _over_widths(
            y_pred, self.dimensions, lambda vectors: loss(wanted, self._others(vectors))
        )
        return ops.mean(ops.reshape(each, (rows, -1)), axis=1)

    def _others(self, vectors: Any) -> Any:
        """Return the similarities of each text with the others, float32 [N, N]."""
        vectors = ops.cast(vectors, "float32")
        if self.normalize:
            vectors = unit_vectors(vectors)
        found = self.scale * ops.matmul(vectors, ops.transpose(vectors))
        place = ops.arange(ops.shape(vectors)[0])
        return ops.where(place[:, None] == place[None, :], MASKED, found)


@keras.saving.register_keras_serializable(package="bert_keras")
class SoftRankingLoss(_SoftLossOfVectors):
    """A student ranks the candidates of each first text as its teacher's scores do.

    `SoftTargetLoss` of the similarities of a first text and its own candidates, times
    `scale`: cosines or dot products of vectors, MaxSim of the vectors of tokens.

    Args:
        scale, temperature, dimensions, normalize: as in `SoftSimilarityLoss`.

    Call: `y_true` [B, C], the teacher's scores of the candidates, the second text and
    the negatives, a large negative number for a missing one; `y_pred` [B * (1 + C), D],
    or [B * (1 + C), T, D]. Returns float32 [B] before the reduction.

    Example:
        >>> row = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])  # text, pair, negative
        >>> loss = SoftRankingLoss(1.0, 1.0)
        >>> round(float(loss(np.array([[0.0, 0.0]]), row)), 4)
        0.1201
    """

    _usual_name = "soft_ranking"

    def call(self, y_true: Any, y_pred: Any) -> Any:
        loss = SoftTargetLoss(temperature=self.temperature, reduction=None)
        teacher = ops.cast(y_true, "float32")
        is_missing = teacher <= MASKED / 2

        def of(vectors: Any) -> Any:
            found = self.scale * self._similarities(vectors, ops.shape(teacher)[1])
            return loss(teacher, ops.where(is_missing, MASKED, found))

        vectors = ops.cast(y_pred, "float32")
        return _over_widths(vectors, self.dimensions, of)

    def _similarities(self, vectors: Any, candidates: Any) -> Any:
        """Return the similarities of first texts and candidates, float32 [B, C]."""
        if self.normalize:
            vectors = unit_vectors(vectors)
        rows = ops.reshape(vectors, (-1, 1 + candidates, *ops.shape(vectors)[1:]))
        first, others = rows[:, 0], rows[:, 1:]
        if len(vectors.shape) == 2:
            return ops.einsum("bd,bcd->bc", first, others)
        products = ops.einsum("btd,bcsd->btcs", first, others)
        return _summed_maxima(products, ops.any(others != 0, axis=-1)[:, None])


@keras.saving.register_keras_serializable(package="bert_keras")
class SharedClassLoss(Configured, keras.losses.Loss):
    """Cosines of texts with a class in common become 1, and all others 0.

    Half of the mean squared distance over the pairs of different rows with a class in
    common, and half of it over all other pairs, so that both count the same.

    Call: `y_true` [B, C], 0 or 1 for each class, or [B], the number of a text's only
    class; `y_pred` [B, D]. Returns float32 [].

    Example:
        >>> texts = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 3.0]])
        >>> classes = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> round(float(SharedClassLoss()(classes, texts)), 4)
        0.75
    """

    def __init__(self, *, name: str | None = "shared_class", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def call(self, y_true: Any, y_pred: Any) -> Any:
        vectors = unit_vectors(ops.cast(y_pred, "float32"))
        classes = ops.cast(y_true, "float32")
        cosines = ops.matmul(vectors, ops.transpose(vectors))
        if len(classes.shape) == 1:
            shared = ops.cast(classes[:, None] == classes[None, :], "float32")
        else:
            shared = ops.minimum(ops.matmul(classes, ops.transpose(classes)), 1.0)
        others = 1.0 - ops.eye(ops.shape(shared)[0])  # a text is no pair of itself
        alike, unlike = shared * others, (1.0 - shared) * others
        near = ops.sum(alike * (cosines - 1.0) ** 2) / ops.maximum(ops.sum(alike), 1.0)
        far = ops.sum(unlike * cosines**2) / ops.maximum(ops.sum(unlike), 1.0)
        return (near + far) / 2
