"""Added tokens found in texts, in the TF graph: `TokenMatcher`.

It finds them as the `tokenizers` library 0.23 does: from left to right, of several at
one place the longest. All ops are core TensorFlow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_keras.text import characters
from bert_keras.text.added_tokens import AddedToken

_CODE_BITS = 21  # of a Unicode code point


class Matches(NamedTuple):
    """M tokens found in N characters, in order and apart from each other.

    Args:
        starts: int32 [M], the first character, white space that it takes included.
        stops: int32 [M], the character after the last.
        tokens: int32 [M], the number of the token.
    """

    starts: Any
    stops: Any
    tokens: Any


class TokenMatcher(tf.Module):
    """Find tokens among the characters of texts.

    Args:
        contents: the code points of each token.
        tokens: the tokens themselves, of which the flags are read.
        numbers: int [tokens], what `Matches.tokens` calls each.
        chinese_is_apart: around CJK characters stand spaces, as the normalized text
            has them, so that none is next to a `single_word` token.
    """

    def __init__(
        self,
        contents: Sequence[Sequence[int]],
        tokens: Sequence[AddedToken],
        numbers: Sequence[int],
        *,
        chinese_is_apart: bool = False,
    ) -> None:
        super().__init__(name="token_matcher")
        keys, targets, accepted = _trie(contents)
        letters = characters.as_set(characters.LETTERS)
        if chinese_is_apart:
            letters -= characters.as_set(characters.CJK)
        self._takes_space = any(token.lstrip or token.rstrip for token in tokens)
        self._has_single_words = any(token.single_word for token in tokens)
        with tf.device("CPU:0"):
            self._keys = _constant(keys, np.int64)
            self._targets = _constant(targets, np.int32)
            self._accepted = _constant(accepted, np.int32)
            self._numbers = _constant(numbers, np.int32)
            self._single = _constant([t.single_word for t in tokens], np.bool_)
            self._left = _constant([t.lstrip for t in tokens], np.bool_)
            self._right = _constant([t.rstrip for t in tokens], np.bool_)
            self._letters = _constant(_bounds(letters), np.int32)
            spaces = characters.as_set(characters.WHITE_SPACE)
            self._spaces = _constant(_bounds(spaces), np.int32)

    def __call__(self, codes: Any, rows: Any) -> Matches:
        """Return the tokens in `codes`, int32 [N]; `rows`, int32 [N], ascend.

        No token reaches from one row into the next.
        """
        found = _apart(self._longest(codes, rows))
        if self._has_single_words:
            found = self._whole_words(found, codes, rows)
        if self._takes_space:
            found = self._with_space(found, codes, rows)
        return found._replace(tokens=tf.gather(self._numbers, found.tokens))

    def _longest(self, codes: Any, rows: Any) -> Matches:
        """Return the longest token that starts at each character, where there is one.

        All characters walk through the trie at once; characters without an edge leave.
        """
        size = tf.size(codes)
        firsts = tf.range(size)
        nothing = tf.fill([size], -1)
        last_key = tf.size(self._keys) - 1

        def step(depth: Any, walking: Any, states: Any, stops: Any, tokens: Any) -> Any:
            places = walking + depth
            inside = places < size
            places = tf.minimum(places, size - 1)
            inside &= tf.equal(tf.gather(rows, places), tf.gather(rows, walking))
            shifted = tf.bitwise.left_shift(tf.cast(states, tf.int64), _CODE_BITS)
            keys = shifted + tf.cast(tf.gather(codes, places), tf.int64)
            edge = tf.minimum(tf.searchsorted(self._keys, keys), last_key)
            goes_on = tf.where(inside & tf.equal(tf.gather(self._keys, edge), keys))
            walking = tf.gather_nd(walking, goes_on)
            states = tf.gather(self._targets, tf.gather_nd(edge, goes_on))
            token = tf.gather(self._accepted, states)
            ends = tf.where(token >= 0)
            where = tf.gather_nd(walking, ends)[:, None]
            stop = tf.fill(tf.shape(where)[:1], depth + 1)
            stops = tf.tensor_scatter_nd_update(stops, where, where[:, 0] + stop)
            tokens = tf.tensor_scatter_nd_update(
                tokens, where, tf.gather_nd(token, ends)
            )
            return depth + 1, walking, states, stops, tokens

        vector = tf.TensorShape([None])
        *_, stops, tokens = tf.while_loop(
            lambda depth, walking, *_: tf.size(walking) > 0,
            step,
            (0, firsts, tf.zeros([size], tf.int32), nothing, nothing),
            shape_invariants=(tf.TensorShape([]), vector, vector, vector, vector),
        )
        starts = tf.where(tokens >= 0)[:, 0]
        return Matches(
            tf.cast(starts, tf.int32),
            tf.gather(stops, starts),
            tf.gather(tokens, starts),
        )

    def _whole_words(self, found: Matches, codes: Any, rows: Any) -> Matches:
        def is_letter(places: Any, neighbors: Any) -> Any:
            places = tf.clip_by_value(places, 0, tf.size(codes) - 1)
            same = tf.equal(tf.gather(rows, places), tf.gather(rows, neighbors))
            return same & _within(self._letters, tf.gather(codes, places))

        joined = (found.starts > 0) & is_letter(found.starts - 1, found.starts)
        follows = found.stops < tf.size(codes)
        joined |= follows & is_letter(found.stops, found.stops - 1)
        kept = tf.where(~(joined & tf.gather(self._single, found.tokens)))
        return Matches(*(tf.gather_nd(each, kept) for each in found))

    def _with_space(self, found: Matches, codes: Any, rows: Any) -> Matches:
        """Return the matches with the white space that `lstrip` and `rstrip` take."""
        other = tf.cast(tf.where(~_within(self._spaces, codes))[:, 0], tf.int32)
        around = tf.concat([[-1], other, [tf.size(codes)]], axis=0)
        row = tf.gather(rows, found.starts)
        before = tf.gather(around, tf.searchsorted(other, found.starts)) + 1
        before = tf.maximum(before, tf.searchsorted(rows, row))
        after = tf.gather(around, tf.searchsorted(other, found.stops) + 1)
        after = tf.minimum(after, tf.searchsorted(rows, row, side="right"))
        stops = tf.where(tf.gather(self._right, found.tokens), after, found.stops)
        starts = tf.where(tf.gather(self._left, found.tokens), before, found.starts)
        free = tf.concat([[0], stops[:-1]], axis=0)[: tf.size(stops)]
        return Matches(tf.maximum(starts, free), stops, found.tokens)


def _apart(found: Matches) -> Matches:
    """Return the matches from left to right which no earlier one overlaps.

    Each match points to the first one after its end; those on the way from the first
    match are found by doubling the length of the steps.
    """
    size = tf.size(found.starts)
    following = tf.concat([tf.searchsorted(found.starts, found.stops), [size]], axis=0)
    reached = tf.one_hot(0, size + 1, dtype=tf.int32)

    def step(length: Any, reached: Any, following: Any) -> Any:
        more = tf.gather_nd(following, tf.where(reached > 0))[:, None]
        ones = tf.ones(tf.shape(more)[:1], tf.int32)
        reached = tf.tensor_scatter_nd_max(reached, more, ones)
        return 2 * length, reached, tf.gather(following, following)

    vector = tf.TensorShape([None])
    _, reached, _ = tf.while_loop(
        lambda length, *_: length <= size,
        step,
        (1, reached, following),
        shape_invariants=(tf.TensorShape([]), vector, vector),
    )
    kept = tf.where(reached[:-1] > 0)
    return Matches(*(tf.gather_nd(each, kept) for each in found))


def _trie(contents: Sequence[Sequence[int]]) -> tuple[list[int], list[int], list[int]]:
    """Return the edges of a trie, sorted, their target states, and each state's token.

    An edge's key is the state and the character. A state without a token has -1. Of
    two equal contents the first counts.
    """
    edges: dict[int, int] = {}
    accepted = [-1]
    for number, content in enumerate(contents):
        state = 0
        for code in content:
            key = (state << _CODE_BITS) + code
            state = edges.setdefault(key, len(accepted))
            if state == len(accepted):
                accepted.append(-1)
        if state and accepted[state] < 0:
            accepted[state] = number
    ordered = sorted(edges)
    return ordered, [edges[key] for key in ordered], accepted


def _bounds(codes: set[int]) -> list[int]:
    """Return where runs of code points start and end, in ascending order."""
    return sorted(
        [c for c in codes if c - 1 not in codes]
        + [c + 1 for c in codes if c + 1 not in codes]
    )


def _within(bounds: Any, codes: Any) -> Any:
    """Return whether each code point is within the runs, bool [N]."""
    place = tf.searchsorted(bounds, codes, side="right")
    return tf.equal(tf.bitwise.bitwise_and(place, 1), 1)


def _constant(values: Any, dtype: Any) -> tf.Variable:
    # Variables, since constants are copied into each exported function.
    return tf.Variable(np.array(values, dtype), trainable=False)
