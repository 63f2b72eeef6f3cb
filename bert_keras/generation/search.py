"""Greedy search, beam search and sampling as one loop of the graph: `write`.

Beam search follows Hugging Face transformers 5 with `early_stopping=False`, token
for token: a hypothesis that ends counts by its log-probability divided by a power of
its length, and the search of a source ends when the best running hypothesis, divided by
the power of the length so far, is worse than all that have ended. Unlike there, each
source has a limit of its own, and sources whose search has ended leave the batch.

Source: Wu et al. 2016 (arXiv:1609.08144), section 7, for the length penalty; Holtzman
et al. 2020 (arXiv:1904.09751) for sampling from the likeliest tokens.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from bert_keras.generation.settings import Decoding
from bert_keras.model.decoder import BertDecoder

_NEVER = -1e9  # log-probability of what must not be chosen; finite in float32
_DRAWS = 1 << 24  # different random numbers, each exact in float32
_BLOCK = 32  # values whose maximum `largest` computes first
_LEAVING = 8  # ended sources leave the batch when they are one eighth of it


class Hypotheses(NamedTuple):
    """The texts written for B sources, best first."""

    ids: Any  # int32 [B, S, L], each up to the first `[SEP]`; the rest has no meaning
    scores: Any  # float32 [B, S], log-probabilities over a power of the length


class _State(NamedTuple):
    """The loop's variables for R rows of k hypotheses: texts, scores and cache."""

    step: Any  # int32 []
    last: Any  # int32 [R * k], the token that each running hypothesis ends with
    running: Any  # int32 [R, k, L]
    running_scores: Any  # float32 [R, k], sums of log-probabilities
    ended: Any  # int32 [R, k, L]
    ended_scores: Any  # float32 [R, k]
    has_ended: Any  # bool [R, k]
    is_open: Any  # bool [R]
    past: Any  # keys and values of each block


class _Sources(NamedTuple):
    """The sources whose search has not ended, at first all B."""

    places: Any  # int32 [B], their places in the batch
    limits: Any  # int32 [R]
    draws: Any  # string [R], on which samples depend
    bias: Any  # float32 [B, 1, 1, T], of cross-attention
    memory: Any  # keys and values of each block


def write(
    decoder: BertDecoder,
    memory: Any,
    padding_mask: Any,
    settings: Decoding,
    *,
    first_id: int,
    last_id: int,
    limits: Any,
    sources: Any = None,
    vocab_size: int | None = None,
) -> Hypotheses:
    """Return the texts that a decoder writes for the encoder's output, in graph.

    Args:
        decoder: the decoder.
        memory: [B, T, E], the encoder's output.
        padding_mask: int32 [B, T], 1 = real.
        settings: how to search.
        first_id, last_id: ids of `[CLS]`, with which a text begins, and `[SEP]`.
        limits: int32 [B], maximum tokens of each text, `[SEP]` included.
        sources: string [B], needed for sampling, whose draws depend on them.
        vocab_size: tokens of the vocabulary, if the embedding table has more rows.
    """
    started = decoder.start(memory, padding_mask)
    count = tf.shape(padding_mask)[0]
    group = settings.beams // _kept(settings)
    limits = tf.maximum(tf.repeat(limits, group), 1)
    limits = tf.minimum(limits, decoder.config.max_position_embeddings)
    longest = tf.reduce_max(tf.concat([limits, [1]], 0))
    draws = tf.fill([count * group], "")
    if settings.sample:
        numbers = tf.as_string(tf.range(count * group) % settings.beams)
        repeated = tf.repeat(sources, settings.beams)
        draws = tf.strings.join([numbers, repeated], separator=" ")
    searched = _Sources(
        places=tf.range(count),
        limits=limits,
        draws=draws,
        bias=started["bias"],
        memory=started["memory"],
    )
    width = vocab_size or decoder.config.vocab_size
    step = _Step(settings, first_id, last_id, longest, width)
    found = _Search(decoder, settings, started["table"], step, longest)(searched)
    if settings.sample:
        scores, order = tf.math.top_k(found.scores, settings.beams)
        found = Hypotheses(tf.gather(found.ids, order, batch_dims=1), scores)
    return found


def _kept(settings: Decoding) -> int:
    """Return the number of running hypotheses of a row; samples do not compete."""
    return 1 if settings.sample else settings.beams


class _Search:
    """The search for the texts of B sources, of at most `longest` tokens each."""

    def __init__(
        self,
        decoder: BertDecoder,
        settings: Decoding,
        table: Any,
        step: _Step,
        longest: Any,
    ) -> None:
        self._decoder = decoder
        self._table = table
        self._step = step
        self._longest = longest
        self._texts = settings.beams  # of a source
        self._kept = _kept(settings)
        self._group = self._texts // self._kept  # rows of a source
        self._state_shapes = _state_shapes(decoder, self._kept)

    def __call__(self, searched: _Sources) -> Hypotheses:
        """Return the hypotheses of the sources."""
        state = self._start(tf.shape(searched.limits)[0])
        found = self._of_sources(state, tf.size(searched.places))
        source_shapes = _Sources(
            places=tf.TensorShape([None]),
            limits=tf.TensorShape([None]),
            draws=tf.TensorShape([None]),
            bias=tf.TensorShape([None, 1, 1, None]),
            memory=self._state_shapes.past,
        )
        found_shapes = Hypotheses(
            tf.TensorShape([None, self._texts, None]),
            tf.TensorShape([None, self._texts]),
        )
        *_, found = tf.while_loop(
            self._is_unfinished,
            self._search,
            (state, searched, found),
            shape_invariants=(self._state_shapes, source_shapes, found_shapes),
            parallel_iterations=1,
        )
        return found

    def _start(self, rows: Any) -> _State:
        """Return the state of rows before their first token."""
        kept = self._kept
        ids = tf.fill([rows, kept, self._longest], self._step.last_id)
        # All but the first are excluded; otherwise they would all write the same.
        scores = tf.constant([[0.0] + [_NEVER] * (kept - 1)])
        return _State(
            step=tf.constant(0),
            last=tf.fill([rows * kept], self._step.first_id),
            running=ids,
            running_scores=tf.tile(scores, [rows, 1]),
            ended=ids,
            ended_scores=tf.fill([rows, kept], _NEVER),
            has_ended=tf.fill([rows, kept], False),
            is_open=tf.fill([rows], True),
            past=self._decoder.no_past(rows * kept),
        )

    def _is_unfinished(self, state: _State, *_: Any) -> Any:
        return (state.step < self._longest) & tf.reduce_any(state.is_open)

    def _search(self, state: _State, searched: _Sources, found: Hypotheses) -> Any:
        """Search until some sources have ended; return the state without them."""
        given = {"bias": searched.bias, "memory": searched.memory, "table": self._table}
        total = tf.size(searched.places)

        def is_full(state: _State) -> Any:
            still = tf.math.count_nonzero(self._is_open(state), dtype=tf.int32)
            is_most = _LEAVING * still > (_LEAVING - 1) * total
            return (state.step < self._longest) & is_most

        def body(state: _State) -> Any:
            now, past = state.step, state.past
            logits, past = self._decoder.step(state.last, now, past, given)
            return (self._step(state, searched, tf.cast(logits, tf.float32), past),)

        (state,) = tf.while_loop(
            is_full,
            body,
            (state,),
            shape_invariants=(self._state_shapes,),
            parallel_iterations=1,
        )
        places = searched.places[:, tf.newaxis]
        ids, scores = self._of_sources(state, total)
        found = Hypotheses(
            tf.tensor_scatter_nd_update(found.ids, places, ids),
            tf.tensor_scatter_nd_update(found.scores, places, scores),
        )
        chosen = tf.where(self._is_open(state))[:, 0]
        kept, group = self._kept, self._group
        return *_chosen(state, searched, chosen, group=group, kept=kept), found

    def _of_sources(self, state: _State, total: Any) -> Hypotheses:
        """Return the hypotheses that have ended, by source."""
        texts = self._texts
        return Hypotheses(
            tf.reshape(state.ended, [total, texts, self._longest]),
            tf.reshape(state.ended_scores, [total, texts]),
        )

    def _is_open(self, state: _State) -> Any:
        """Return whether the search of each source goes on, bool [B]."""
        return tf.reduce_any(tf.reshape(state.is_open, [-1, self._group]), axis=1)


def _state_shapes(decoder: BertDecoder, kept: int) -> _State:
    """Return the shapes that the loop's variables keep."""
    heads, size = decoder.config.num_attention_heads, decoder.config.head_width
    texts = tf.TensorShape([None, kept, None])
    of_row, of_text = tf.TensorShape([None]), tf.TensorShape([None, kept])
    past = (
        tf.TensorShape([None, heads, size, None]),
        tf.TensorShape([None, heads, None, size]),
    )
    return _State(
        step=tf.TensorShape([]),
        last=of_row,
        running=texts,
        running_scores=of_text,
        ended=texts,
        ended_scores=of_text,
        has_ended=of_text,
        is_open=of_row,
        past=[past for _ in decoder.blocks],
    )


def _chosen(
    state: _State, searched: _Sources, chosen: Any, *, group: int, kept: int
) -> tuple[_State, _Sources]:
    """Return the state and the sources for some of B sources, `chosen` int64 [C]."""

    def repeated(places: Any, count: int) -> Any:
        return tf.reshape(
            places[:, tf.newaxis] * count + tf.range(count, dtype=tf.int64), [-1]
        )

    def gathered(values: Any, places: Any) -> Any:
        return tf.nest.map_structure(lambda each: tf.gather(each, places), values)

    rows = repeated(chosen, group)
    texts = repeated(rows, kept)
    by_row = {
        name: gathered(value, rows)
        for name, value in state._asdict().items()
        if name not in ("step", "last", "past")
    }
    state = state._replace(
        last=tf.gather(state.last, texts), past=gathered(state.past, texts), **by_row
    )
    return state, _Sources(
        places=tf.gather(searched.places, chosen),
        limits=tf.gather(searched.limits, rows),
        draws=tf.gather(searched.draws, rows),
        bias=tf.gather(searched.bias, chosen),
        memory=gathered(searched.memory, chosen),
    )


class _Step:
    """One step of the search: the next token of each hypothesis, from its logits."""

    def __init__(
        self,
        settings: Decoding,
        first_id: int,
        last_id: int,
        longest: Any,
        vocab_size: int,
    ) -> None:
        self._settings = settings
        self._kept = kept = _kept(settings)
        self.first_id, self.last_id = first_id, last_id
        self._places = tf.range(longest)
        # Of 2 k candidates, at least k do not end at this step.
        self._candidates = min(2 * kept, vocab_size) if kept > 1 else 1
        self._vocab_size = vocab_size

    def __call__(
        self, state: _State, searched: _Sources, logits: Any, past: Any
    ) -> _State:
        """Return the state after one more token, from the logits, float32 [R * k, V].

        `past` is the cache, grown by this step.
        """
        kept = self._kept
        logits = logits[:, : self._vocab_size]
        values = tf.nn.log_softmax(logits)
        if self._settings.no_repeat_ngram:
            values = self._without_repeats(values, state)
        totals, beams, tokens = self._best(values, state, searched.draws)
        texts = tf.gather(state.running, beams, batch_dims=1)
        is_here = self._places == state.step
        texts = tf.where(is_here, tokens[:, :, tf.newaxis], texts)
        length = state.step + 1
        is_last = length >= searched.limits
        ends = (tokens == self.last_id) | is_last[:, tf.newaxis]
        # The hypotheses that continue.
        running_scores, chosen = tf.math.top_k(totals + _never(ends), kept)
        running = tf.gather(texts, chosen, batch_dims=1)
        beams = tf.gather(beams, chosen, batch_dims=1)
        # Those that end: only the first k candidates count.
        counts = ends & (tf.range(self._candidates) < kept)
        power = tf.pow(tf.cast(length, tf.float32), self._settings.length_penalty)
        scores = totals / power
        scores += _never(~counts) + _never(~state.is_open)[:, tf.newaxis]
        merged = tf.concat([state.ended_scores, scores], axis=1)
        ended_scores, best = tf.math.top_k(merged, kept)
        ended = tf.gather(tf.concat([state.ended, texts], 1), best, batch_dims=1)
        has_ended = tf.concat([state.has_ended, counts], axis=1)
        has_ended = tf.gather(has_ended, best, batch_dims=1)
        worst = tf.reduce_min(ended_scores, axis=1, keepdims=True)
        worst = tf.where(has_ended, worst, _NEVER)
        improves = tf.reduce_any(running_scores[:, :1] / power > worst, axis=1)
        return _State(
            step=length,
            last=tf.reshape(running[:, :, state.step], [-1]),
            running=running,
            running_scores=running_scores,
            ended=ended,
            ended_scores=ended_scores,
            has_ended=has_ended,
            is_open=state.is_open & improves & ~is_last,
            past=self._reordered(past, beams),
        )

    def _best(self, values: Any, state: _State, draws: Any) -> tuple[Any, Any, Any]:
        """Return the candidates of each row: scores, hypotheses and tokens, [R, C]."""
        if self._settings.sample:
            tokens = self._drawn(values, state.step, draws)
            found = tf.gather(values, tokens, batch_dims=1)[:, tf.newaxis]
            scores = state.running_scores + found
            return scores, tf.zeros_like(tokens)[:, tf.newaxis], tokens[:, tf.newaxis]
        totals = values + tf.reshape(state.running_scores, [-1, 1])
        # First the best of each hypothesis: faster than the best of all at once.
        each, tokens = largest(totals, self._candidates)
        shape = [-1, self._kept * self._candidates]
        scores, places = tf.math.top_k(tf.reshape(each, shape), self._candidates)
        tokens = tf.gather(tf.reshape(tokens, shape), places, batch_dims=1)
        return scores, places // self._candidates, tokens

    def _drawn(self, values: Any, step: Any, draws: Any) -> Any:
        """Return a random token of each row, int32 [R], by log-probabilities [R, V]."""
        settings = self._settings
        count = self._vocab_size
        if settings.sample_top_k:
            count = min(settings.sample_top_k, count)
        best, tokens = largest(values / settings.temperature, count)
        shares = tf.nn.softmax(best)
        before = tf.cumsum(shares, axis=1, exclusive=True)
        # The most probable token is always kept.
        shares = tf.where(before < settings.sample_top_p, shares, 0.0)
        edges = tf.cumsum(shares, axis=1)
        key = tf.strings.join(
            [draws, tf.as_string(step), tf.constant(str(settings.seed))], separator=" "
        )
        draw = tf.cast(tf.strings.to_hash_bucket_fast(key, _DRAWS), tf.float32) / _DRAWS
        place = tf.reduce_sum(
            tf.cast(edges <= draw[:, tf.newaxis] * edges[:, -1:], tf.int32), axis=1
        )
        place = tf.minimum(place, count - 1)
        return tf.gather(tokens, place, batch_dims=1)

    def _without_repeats(self, values: Any, state: _State) -> Any:
        """Return log-probabilities [Q, V] without repeated n-grams."""
        size = self._settings.no_repeat_ngram
        texts = tf.reshape(state.running, [tf.shape(values)[0], -1])
        texts = tf.concat([tf.fill([tf.shape(texts)[0], 1], self.first_id), texts], 1)
        written = state.step + 1  # with [CLS]
        # n-grams by the place of their first token; the last one is being written.
        firsts = tf.range(tf.maximum(written - size + 1, 0))
        same = tf.fill([tf.shape(texts)[0], tf.size(firsts)], True)
        for offset in range(size - 1):
            place = tf.maximum(written - size + 1 + offset, 0)
            now = tf.gather(texts, place, axis=1)[:, tf.newaxis]
            same &= tf.gather(texts, firsts + offset, axis=1) == now
        found = tf.where(same)
        row = found[:, 0]
        place = tf.gather(firsts, found[:, 1]) + size - 1
        token = tf.gather_nd(texts, tf.stack([row, tf.cast(place, tf.int64)], axis=1))
        where = tf.stack([row, tf.cast(token, tf.int64)], axis=1)
        banned = tf.fill([tf.shape(where)[0]], _NEVER)
        return tf.tensor_scatter_nd_update(values, where, banned)

    def _reordered(self, past: Any, beams: Any) -> Any:
        """Return the cache of the hypotheses that continue."""
        if self._kept == 1:
            return past
        rows = tf.range(tf.shape(beams)[0])[:, tf.newaxis] * self._kept
        places = tf.reshape(rows + beams, [-1])
        return [tuple(tf.gather(part, places) for part in pair) for pair in past]


def largest(values: Any, count: int) -> tuple[Any, Any]:
    """Return the `count` largest values of each row, [Q, V], like `tf.math.top_k`.

    In long rows it computes the maximum of each block first, and then reads only the
    blocks with the largest ones: a quarter of the time for 8 of 8,000. Of equal values,
    the first one comes first.
    """
    width = values.shape[1]
    if count == 1 or count * _BLOCK * 2 > width:
        found = tf.math.top_k(values, count)
        return found.values, found.indices
    missing = -width % _BLOCK
    if missing:
        values = tf.pad(
            values, [[0, 0], [0, missing]], constant_values=values.dtype.min
        )
    blocks = tf.reshape(values, [-1, (width + missing) // _BLOCK, _BLOCK])
    _, chosen = tf.math.top_k(tf.reduce_max(blocks, axis=2), count)
    chosen = tf.sort(chosen)  # in order, for equal values
    some = tf.reshape(tf.gather(blocks, chosen, batch_dims=1), [-1, count * _BLOCK])
    found, places = tf.math.top_k(some, count)
    block = tf.gather(chosen, places // _BLOCK, batch_dims=1)
    return found, block * _BLOCK + places % _BLOCK


def _never(where: Any) -> Any:
    """Return -1e9 where true, else 0."""
    return tf.where(where, _NEVER, 0.0)
