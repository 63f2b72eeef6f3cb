"""Masked-LM corruption in the graph: which tokens are masked, and their replacements.

Every choice is a pure function of the text's draw, a whole number, and the position of
the token; it does not depend on batch, layout or order. Equal draws give equal masks,
and a new draw each epoch is dynamic masking.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.1; google-research/bert
`create_pretraining_data.py` (exact counts).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_keras.errors import ConfigError
from bert_keras.lazy_names import deferred
from bert_keras.settings import (
    UNITS,
    check_choice,
    check_mask_shares,
    check_share,
    check_whole_number,
)
from bert_keras.text.ragged import count_true, keep, put, segment_ids

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_keras.text.tokenizer import WordPieceTokenizer
else:
    (tf,) = deferred("tensorflow")

NEVER = 2**63 - 1  # the order of a token that is never chosen
# For runs of 1, 2 and 3 words: a uniform number below these shares means at least
# 2 and 3. A run of n words has a probability in proportion to 1/n.
_LONGER = (5 / 11, 2 / 11)
_LONGEST = 1 + len(_LONGER)


def first_in_order(order: Any, wanted: Any) -> Any:
    """Return which of int64 [B, T] are among the `wanted` [B] lowest of their row."""
    rows, length = tf.unstack(tf.shape(order))
    most = tf.minimum(tf.reduce_max(tf.concat([wanted, [0]], 0)), length)
    # `top_k` takes the first of equal values; a sort would order all T of them.
    lowest = tf.math.top_k(-order, most).indices
    lowest += tf.range(rows)[:, tf.newaxis] * length
    places = tf.boolean_mask(lowest, tf.sequence_mask(wanted, most))
    none = tf.fill([rows * length], False)
    chosen = put(none, places, tf.fill(tf.shape(places), True))
    return tf.reshape(chosen, [rows, length])


def whole_words(order: Any, continues: Any, wanted: Any, lengths: Any = None) -> Any:
    """Return which pieces are chosen, bool [B, T], in whole words.

    Args:
        order: int64 [B, T]; a word has the order of its first piece.
        continues: bool [B, T], whether a piece belongs to the word before it.
        wanted: int32 [B], most pieces of each text.
        lengths: int32 [B, T], most words of the run that begins with this piece's
            word; `None` is 1.
    """
    rows, length = tf.unstack(tf.shape(order))
    word = tf.cumsum(tf.cast(~continues, tf.int32), axis=1) - 1
    word = tf.maximum(word, 0)
    # After the last word come some that are never chosen, where runs end.
    width = length + _LONGEST
    base = tf.range(rows) * width
    flat = tf.reshape(base[:, tf.newaxis] + word, [-1])

    def by_word(values: Any) -> Any:
        return tf.math.unsorted_segment_sum(
            tf.reshape(values, [-1]), flat, rows * width
        )

    is_first = ~continues & (order < NEVER)
    known = by_word(tf.cast(is_first, tf.int32)) > 0
    sizes = by_word(tf.cast(order < NEVER, tf.int32))
    sizes = tf.where(known, sizes, length + 1)  # too long to fit
    word_order = tf.where(known, by_word(tf.where(is_first, order, 0)), NEVER)
    word_order = tf.reshape(word_order, [rows, width])
    ranked = tf.transpose(tf.argsort(word_order, stable=True))
    counts = tf.reduce_sum(tf.reshape(tf.cast(known, tf.int32), [rows, width]), axis=1)
    most = tf.reduce_max(tf.concat([counts, [0]], 0))
    runs = None if lengths is None else by_word(tf.where(is_first, lengths, 0))

    def step(rank: Any, used: Any, taken: Any) -> Any:
        begin = base + ranked[rank]
        goes_on = tf.fill([rows], True)
        for i in range(1 if runs is None else _LONGEST):
            here = begin + i
            size = tf.gather(sizes, here)
            goes_on &= used + size <= wanted
            if runs is not None:
                goes_on &= ~tf.gather(taken, here) & (i < tf.gather(runs, begin))
            used += tf.where(goes_on, size, 0)
            taken = put(taken, here, tf.gather(taken, here) | goes_on)
        return rank + 1, used, taken

    _, _, taken = tf.while_loop(
        lambda rank, used, _: (rank < most) & tf.reduce_any(used < wanted),
        step,
        (0, tf.zeros_like(wanted), tf.fill([rows * width], False)),
        parallel_iterations=1,
    )
    return tf.reshape(tf.gather(taken, flat), [rows, length])


def run_lengths(uniform: Any) -> Any:
    """Return 1, 2 or 3 for float32 numbers in [0, 1), int32."""
    longer = [tf.cast(uniform < share, tf.int32) for share in _LONGER]
    return 1 + tf.add_n(longer)


# Numbers drawn for a token: the order in which it is chosen, what it is replaced by,
# the replacement token, and how many words are chosen from this one on. (There is room
# for three numbers at each place; the fourth ones follow after all places.)
_ORDER, _FATE, _TOKEN, _LENGTH = 0, 1, 2, 2**32


class Masked(NamedTuple):
    """B masked texts, RaggedTensors int32 [B, None].

    Args:
        ids: the tokens with some of them hidden.
        offsets: the chosen positions in each text, in order.
        labels: the original tokens there.
    """

    ids: Any
    offsets: Any
    labels: Any


@dataclasses.dataclass(frozen=True)
class Masking:
    """The rates and the unit of masked-LM corruption.

    Args:
        rate: share of a text's tokens that are chosen, not counting `[CLS]`, `[SEP]`
            and `[PAD]`; at least one if the text has any.
        mask_share: share of the chosen that become `[MASK]`.
        random_share: share that become a random token; the rest is unchanged.
        max_predictions: maximum number of tokens chosen in one text.
        unit: `piece` chooses single pieces; `word` chooses whole words, in random order
            and as many as fit into the same number of pieces, like Google's code: a
            text whose words are all longer gets none. `ngram` chooses runs of 1,
            2 or 3 whole words (in shares of 6, 3 and 2 of 11): each begins at a word in
            random order and ends early before a word that is already chosen, before a
            special token, or if the next word no longer fits.

    Example:
        >>> masking = Masking(rate=0.5, mask_share=1.0, random_share=0.0)
        >>> ids = tf.ragged.constant([[2, 7, 8, 9, 10, 3]], dtype=tf.int32)
        >>> masked = masking(ids, tf.constant([1]), tokenizer)
        >>> masked.labels.row_lengths().numpy().tolist()
        [2]
    """

    rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    max_predictions: int = 80
    unit: str = "piece"

    def __post_init__(self) -> None:
        check_share("rate", self.rate, above_zero=True)
        check_mask_shares(self.mask_share, self.random_share)
        check_whole_number("max_predictions", self.max_predictions, least=1)
        check_choice("unit", self.unit, UNITS)

    def __call__(self, ids: Any, draws: Any, tokenizer: WordPieceTokenizer) -> Masked:
        """Return texts with some tokens hidden, in graph.

        `ids`, RaggedTensor int32 [B, None], are joined texts with their special tokens,
        and `draws`, integers [B], determine each text's choices.
        """
        mask_id = mask_id_of(tokenizer)
        places = tf.ragged.range(ids.row_lengths()).flat_values
        text_draws = tf.gather(tf.cast(draws, tf.int64), segment_ids(ids.row_splits))
        numbers = _Numbers(text_draws, places)
        candidates = ordinary(ids.flat_values, tokenizer)
        order = tf.where(candidates, numbers.order(_ORDER), NEVER)
        dense = ids.with_flat_values(order).to_tensor(NEVER)
        ones = tf.cast(count_true(candidates, ids.row_splits), tf.float32)
        exact = tf.math.floor(ones * self.rate + 0.5)
        wanted = tf.clip_by_value(tf.cast(exact, tf.int32), 1, self.max_predictions)
        if self.unit == "piece":
            chosen = first_in_order(dense, wanted)
        else:
            inner = tf.constant([t.startswith("##") for t in tokenizer.vocabulary])
            continues = ids.with_flat_values(tf.gather(inner, ids.flat_values))
            lengths = None
            if self.unit == "ngram":
                drawn = run_lengths(numbers.uniform(_LENGTH))
                lengths = ids.with_flat_values(drawn).to_tensor(0)
            chosen = whole_words(dense, continues.to_tensor(False), wanted, lengths)
        inside = tf.sequence_mask(ids.row_lengths(), tf.shape(dense)[1])
        flat = tf.boolean_mask(chosen, inside) & candidates
        at = tf.where(flat)[:, 0]
        old = tf.gather(ids.flat_values, at)
        # Only for the chosen tokens: a seventh of the work.
        numbers = _Numbers(tf.gather(text_draws, at), tf.gather(places, at))
        fate = numbers.uniform(_FATE)
        new = tf.where(fate < self.mask_share, mask_id, old)
        drawn = _random_tokens(numbers.uniform(_TOKEN), tokenizer)
        is_random = fate < self.mask_share + self.random_share
        new = tf.where((fate >= self.mask_share) & is_random, drawn, new)
        offsets = ids.with_flat_values(tf.cast(places, tf.int32))
        return Masked(
            ids.with_flat_values(put(ids.flat_values, at, new)),
            keep(offsets, flat),
            keep(ids, flat),
        )


def mask_id_of(tokenizer: WordPieceTokenizer) -> int:
    """Return the id of `[MASK]`; raise a ConfigError if the vocabulary lacks it."""
    if tokenizer.mask_id is None:
        raise ConfigError(
            f"the vocabulary must hold [MASK]; received {tokenizer.vocab_size:,} "
            "tokens without it"
        )
    return tokenizer.mask_id


def ordinary(ids: Any, tokenizer: WordPieceTokenizer) -> Any:
    """Return which ids are text to predict: not `[CLS]`, `[SEP]` or `[PAD]`."""
    never = (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id)
    return tf.reduce_all([ids != special for special in never], axis=0)


class _Numbers:
    """Random numbers of tokens, each a function of draw, place and purpose.

    The mixing function is SplitMix64's (Steele et al. 2014). TensorFlow's
    stateless generators take one seed for a whole tensor, so a text's numbers would
    depend on its batch.
    """

    def __init__(self, draws: Any, places: Any) -> None:
        steps = tf.cast(tf.cast(places, tf.int64) * 3 + 1, tf.uint64)
        self._draws = mixed(tf.cast(draws, tf.uint64))
        self._steps = steps * tf.constant(0x9E3779B97F4A7C15, tf.uint64)

    def _bits(self, purpose: int) -> Any:
        step = (0x9E3779B97F4A7C15 * purpose) % 2**64
        return mixed(self._draws + self._steps + tf.constant(step, tf.uint64))

    def order(self, purpose: int) -> Any:
        """Return int64 numbers from 0 to 2^62."""
        return tf.cast(_shifted(self._bits(purpose), 2), tf.int64)

    def uniform(self, purpose: int) -> Any:
        """Return float32 numbers in [0, 1)."""
        top = tf.cast(_shifted(self._bits(purpose), 40), tf.float32)
        return top * 2.0**-24


def mixed(x: Any) -> Any:
    """Return the bits of uint64 numbers, mixed."""
    x = (x ^ _shifted(x, 30)) * tf.constant(0xBF58476D1CE4E5B9, tf.uint64)
    x = (x ^ _shifted(x, 27)) * tf.constant(0x94D049BB133111EB, tf.uint64)
    return x ^ _shifted(x, 31)


def _shifted(x: Any, bits: int) -> Any:
    return tf.bitwise.right_shift(x, tf.constant(bits, tf.uint64))


def _random_tokens(uniform: Any, tokenizer: WordPieceTokenizer) -> Any:
    """Return the token ids for numbers in [0, 1), all but special ones, int32."""
    specials = [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id]
    specials = sorted([*specials, mask_id_of(tokenizer)])
    count = tokenizer.vocab_size - len(specials)
    drawn = tf.cast(tf.math.floor(uniform * float(count)), tf.int32)
    drawn = tf.minimum(drawn, max(count - 1, 0))
    for special in specials:  # in ascending order: each shifts the ids above it
        drawn += tf.cast(drawn >= special, tf.int32)
    return drawn
