"""Texts longer than a row: `LongTexts`, their windows, and the graph under a head.

With `long="windows"` a text is read in several rows, and the vectors of its windows are
combined to one before the head, so that all is trained together. To answer, windows are
computed some at a time, so that memory does not depend on the length of a text.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bert_keras.config import WINDOW_STARTS
from bert_keras.errors import ConfigError
from bert_keras.lazy_names import deferred
from bert_keras.text.packing import both_ends, join, text_starts
from bert_keras.text.ragged import sizes_of, starts_of
from bert_keras.text.windows import Cut, Windows, cut_windows

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bert_keras.model import encoder as model_encoder
    from bert_keras.model import windows as model_windows
    from bert_keras.text.preprocessor import Preprocessor
else:
    keras, tf = deferred("keras", "tensorflow")
    model_encoder, model_windows = deferred(
        "bert_keras.model.encoder", "bert_keras.model.windows"
    )

Batch = dict[str, Any]  # inputs of a model by name, each [R, …]
_ROUNDING = 1e-5  # of a window's score, relative to it
_AT_ONCE = 32  # windows computed together, however long the texts are
WINDOW_PLACES = "window_places"  # int32 [S, 2], first character and end of each window
_CLS = "cls_positions"
PREFIX_LENGTHS = "prefix_lengths"  # int32 [S], tokens before the text, 0 without any
WINDOW_LOGITS = "window_logits"  # their name in the file of an engine
SHARES = "shares"  # outputs of the head for the share of each window, float32 [S, C]
_HEAD = "classifier"  # the layer on the vectors, if there is one
# The graph under the head, by the model of a task.
_BELOW: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class Drawn(NamedTuple):
    """Training texts whose windows are drawn, in graph.

    Args:
        texts: tf.string [B], or a tuple of those.
        draws: random numbers, int64 [B], that draw `train_windows` of each text.
    """

    texts: Any
    draws: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongTexts:
    """How texts that are longer than a row are read; by default they are truncated.

    Args:
        long: `truncate`, `head-tail` or `windows`.
        stride, max_windows: of windows, see `Cut`.
        combine: how the vectors of windows become one, see `WindowCombination`.
        train_windows: the most windows of a text in an epoch of training.
    """

    long: str = "truncate"
    stride: int | None = None
    max_windows: int | None = None
    combine: str = "mean"
    train_windows: int = 8

    @property
    def reads_windows(self) -> bool:
        """Whether a long text is read in several rows."""
        return self.long == "windows"

    @property
    def takes_lists(self) -> bool:
        """Whether `TokenRows` reads lists of texts, too."""
        return False

    # Texts to rows, in graph.

    def long_batch(
        self,
        preprocessor: Preprocessor,
        texts: Any,
        *,
        prefixes: Any = None,
        draws: Any = None,
        limits: Any = None,
    ) -> Batch:
        """Return the batch dict of texts, tf.string [B], or of pairs, in graph.

        It also holds `pieces` int32 [R, T], the number of each token in its text, from
        0, and -1 at other tokens; with windows, `window_starts` and the place of each
        window in its text, or in the second text. With `draws`, int64 [B] random
        numbers that draw `train_windows` of each text, only `window_starts`.

        `prefixes`, tf.string [B], are read before the text, with windows in each of
        them. They have no pieces; `prefix_lengths` counts their tokens. `limits`, as in
        `Preprocessor.truncated`, are of texts without their middle.
        """
        if not self.reads_windows:
            return _head_and_tail(preprocessor, prompted(prefixes, texts), limits)
        first, text = _first_and_text(texts, prefixes)
        tokenizer = preprocessor.tokenizer
        if draws is None:
            pieces, starts, ends = tokenizer.tokenize_with_offsets(
                text, unit="characters"
            )
        else:
            pieces = tokenizer(text)
        windows = self.cut_texts(
            preprocessor,
            pieces,
            None if first is None else tokenizer(first),
            is_prefix=prefixes is not None,
            draws=draws,
        )
        rows, more = (windows.ids, windows.segments), {}
        if prefixes is not None:
            more[PREFIX_LENGTHS] = tf.where(windows.place > 1, windows.place, 0)
        more[WINDOW_STARTS] = _starts(windows.text)
        if draws is not None:
            return {**preprocessor.lay(*rows), **more}
        more[WINDOW_PLACES] = _places(windows, starts, ends)
        pieces = {} if prefixes is not None else {"pieces": windows.pieces()}
        return {**preprocessor.lay(*rows, **pieces), **more}

    def cut_texts(
        self,
        preprocessor: Preprocessor,
        pieces: Any,
        first: Any = None,
        *,
        is_prefix: bool = False,
        draws: Any = None,
    ) -> Windows:
        """Return the windows of tokenized texts, ragged int32 [B, None], in graph.

        `first` are the tokens of first texts, or with `is_prefix` of prefixes, and
        `draws` as in `long_batch`.
        """
        return cut_windows(
            first,
            pieces,
            self.cut(preprocessor.max_length, is_prefix=is_prefix),
            cls_id=preprocessor.tokenizer.cls_id,
            sep_id=preprocessor.tokenizer.sep_id,
            draws=None if draws is None else (draws, self.train_windows),
        )

    def before_each(self, preprocessor: Preprocessor, texts: Any, sides: Any) -> Any:
        """Return prefixes and limits of texts with sides, see `long_batch`."""
        return None, None

    def lengths(
        self, preprocessor: Preprocessor, texts: Any, *, sides: Any = None
    ) -> tuple[Any, Any]:
        """Return how many tokens of each text are read, and how many are truncated.

        int32 [B] each, special tokens and prompts included; `sides` as in `TextVector`.
        """
        prefixes, limits = self.before_each(preprocessor, texts, sides)
        if not self.reads_windows:
            return preprocessor.lengths(prompted(prefixes, texts), limits)
        first, size, plan = self._plan(preprocessor, texts, prefixes)
        read = plan.read(size)
        lost = size - read
        if first is not None:
            read, lost = read + plan.kept, lost + first - plan.kept
        return read + _special(first, prefixes), lost

    def windows_of(
        self, preprocessor: Preprocessor, texts: Any, *, sides: Any = None
    ) -> Any:
        """Return the windows of each text and their tokens, int32 [B, 2]."""
        prefixes, _ = self.before_each(preprocessor, texts, sides)
        first, size, plan = self._plan(preprocessor, texts, prefixes)
        tokens = plan.computed(size, _special(first, prefixes))
        return tf.stack([plan.count, tokens], axis=1)

    def _plan(
        self, preprocessor: Preprocessor, texts: Any, prefixes: Any
    ) -> tuple[Any, Any, Any]:
        """Return the tokens of first texts, or `None`, of texts, and their windows."""
        first, size = (
            None if part is None else sizes_of(preprocessor.tokenizer(part))
            for part in _first_and_text(texts, prefixes)
        )
        cut = self.cut(preprocessor.max_length, is_prefix=prefixes is not None)
        return first, size, cut.plan(size, first)

    def cut(self, max_length: int, *, is_prefix: bool) -> Cut:
        """Return how texts are cut into windows; `is_prefix` is of a prompt before."""
        most = 1 if self.combine == "first" else self.max_windows
        cut = Cut(max_length, stride=self.stride, is_prefix=is_prefix)
        return cut if most is None else dataclasses.replace(cut, max_windows=most)

    def most_tokens(self, max_length: int, *, texts: int) -> int | None:
        """Return how many tokens of `texts` texts in a row are read; `None`: all.

        `max_length` is of a row, special tokens included. Of pairs in windows, it is
        the number for a first text without tokens.
        """
        if not self.reads_windows:
            return max_length
        windows = 1 if self.combine == "first" else self.max_windows
        room = max_length - 1 - texts
        step = min(self.stride or room, room)
        return None if windows is None else max_length + (windows - 1) * step

    def answer_specs(self) -> dict[str, Any]:
        """Return what the answers read of a batch without a graph, by name.

        Beside the outputs of the model: the entries that `TokenRows.batch` has for it.
        """
        if not self.reads_windows:
            return {}
        return {
            WINDOW_STARTS: tf.TensorSpec([None], tf.int32, WINDOW_STARTS),
            WINDOW_PLACES: tf.TensorSpec([None, 2], tf.int32, WINDOW_PLACES),
        }

    def window_recipe(self, max_length: int) -> dict[str, Any]:
        """Return how texts are cut, as values of JSON, for programs that give ids."""
        return {
            "meaning": "a row is [CLS], tokens of the text and [SEP]; of a pair [CLS], "
            "the first text, in at most half of the row, [SEP], tokens of the second "
            "text and [SEP]. The next row starts `stride` tokens later, or where this "
            "one ends if that is earlier",
            "max_length": max_length,
            "stride": self.stride or max_length - 2,
            "max_windows": self.max_windows,
            "combine": self.combine,
        }

    # The model.

    def window_inputs(self) -> Batch:
        """Return the Keras input that combines windows, if the task has them."""
        if not self.reads_windows:
            return {}
        check_windows_run()
        found = keras.Input((), dtype="int32", name=WINDOW_STARTS, optional=True)
        return {WINDOW_STARTS: found}

    def combined(self, vectors: Any, inputs: Batch) -> Any:
        """Return the vector of each text, from the vectors of its windows."""
        return model_windows.WindowCombination(self.combine)(
            vectors, inputs[WINDOW_STARTS]
        )

    def below(self, model: keras.Model) -> Below:
        """Return the graph under the head of a model, of a task that reads so."""
        if model not in _BELOW:
            _BELOW[model] = Below(model)
        return _BELOW[model]


def prompted(prompts: Any, texts: Any) -> Any:
    """Return texts, tf.string [B], with the prompt of each, or `None`, before it."""
    return texts if prompts is None else tf.strings.join([prompts, texts])


def vector_model(model: keras.Model) -> keras.Model:
    """Return the part of a task's model under its head, which trains its layers.

    From a batch dict to the vector of each text that the head reads, [B, D]. With
    windows, it computes all of them at once, unlike `Below`.
    """
    return model_encoder.PartialModel(model._inputs_struct, _head_input(model))


def _head_input(model: keras.Model) -> Any:
    """Return the Keras tensor that the head of a model reads, or its outputs."""
    heads = (each.input for each in model.layers if each.name == _HEAD)
    return next(heads, model.output)


class Below:
    """The graph from a batch dict to the vectors that the head of a model reads.

    With windows it computes some of them at a time, similar lengths together.
    A model of vectors has no head: its outputs are what is read.
    """

    def __init__(self, model: keras.Model) -> None:
        inputs = model._inputs_struct
        kind = model_windows.WindowCombination
        combinations = (x for x in model.layers if isinstance(x, kind))
        self._combination: Any = next(combinations, None)
        self._head: Any = keras.layers.Identity()
        if self._combination is None:
            vectors = _head_input(model)
        else:
            vectors, _ = self._combination.input
            if model.output is not self._combination.output:
                self._head = keras.Model(self._combination.output, model.output)
        self._names = [name for name in inputs if name != WINDOW_STARTS]
        self._model = keras.Model({name: inputs[name] for name in self._names}, vectors)
        self._width = vectors.shape[-1]

    def vectors(self, batch: Batch) -> Any:
        """Return the vector of each text, float32 [B, D], in graph."""
        if self._combination is None:
            return self._rows(batch)
        return self._combination(self._windows(batch), batch[WINDOW_STARTS])

    def outputs(self, batch: Batch) -> Any:
        """Return the outputs of a model with windows, [B, …]."""
        return self._head(self.vectors(batch), training=False)

    def outputs_and_shares(self, batch: Batch) -> tuple[Any, Any]:
        """Return the outputs of a model with windows, [B, C], and the parts of the
        windows in them, float32 [S, C], without the bias of the head.
        """
        vectors = self._windows(batch)
        shares = self._combination.shares(vectors, batch[WINDOW_STARTS])
        whole = self._combination(vectors, batch[WINDOW_STARTS])
        bias = self._head(tf.zeros_like(shares[:1]), training=False)
        found = self._head(shares, training=False) - bias
        return self._head(whole, training=False), found

    def named_shares(self) -> Any:
        """Return the Keras tensor of these parts, [S, C], for a file of an engine."""
        combination = self._combination
        shares = combination(*combination.input, of_windows=True)
        bias = self._head(keras.ops.zeros_like(shares))
        return self._head(shares) - bias

    def _windows(self, batch: Batch) -> Any:
        """Return the vectors of windows, float32 [S, H]."""
        return Parts(batch).vectors(self._rows, self._names, self._width)

    def _rows(self, part: Batch) -> Any:
        given = {name: part.get(name) for name in self._names}
        return self._model(given, training=False)


def check_windows_run() -> None:
    """Raise ConfigError unless Keras runs on TensorFlow, which windows need."""
    if keras.config.backend() != "tensorflow":
        raise ConfigError(
            "`long` must be truncate or head-tail unless Keras runs on TensorFlow; "
            "received windows"
        )


def _special(first: Any, prefixes: Any) -> int:
    """Return the special tokens of a window; none stands behind a prefix."""
    return 2 if first is None or prefixes is not None else 3


def _first_and_text(texts: Any, prefixes: Any) -> tuple[Any, Any]:
    """Return what stands in each window, or `None`, and the texts that are cut."""
    return texts if isinstance(texts, tuple) else (prefixes, texts)


def decided_at(scores: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Return `start` and `end`, int32 [B], of the window with the highest score.

    They are characters of the text, or of the second text. Of equal windows, which
    differ by rounding, it is the first. `scores` is float32 [S].
    """
    # A graph of windows by texts, which converters know; the last column is for none.
    mine = tf.pad(windows_by_text(batch), [[0, 0], [0, 1]])
    by_text = tf.where(mine, tf.pad(scores, [[0, 1]]), tf.float32.min)
    most = tf.reduce_max(by_text, axis=1, keepdims=True)
    is_best = mine & (by_text >= most - _ROUNDING * tf.abs(most))
    best = tf.argmax(tf.cast(is_best, tf.int32), axis=1, output_type=tf.int32)
    found = tf.gather(batch[WINDOW_PLACES], best)
    return {"start": found[:, 0], "end": found[:, 1]}


def windows_by_text(batch: Mapping[str, Any]) -> Any:
    """Return whether a window is of a text, bool [B, S], in graph."""
    starts = batch[WINDOW_STARTS]
    texts = tf.range(tf.reduce_sum(starts))
    return tf.equal(tf.cumsum(starts) - 1, texts[:, tf.newaxis])


def _head_and_tail(preprocessor: Preprocessor, texts: Any, limits: Any) -> Batch:
    """Return the batch dict of texts without their middle, with `pieces`."""
    a, b = preprocessor.pieces(texts)
    kept, numbers = (
        preprocessor.truncated(*pair, keep=both_ends, limits=limits)
        for pair in ((a, b), (_numbered(a), None if b is None else _numbered(b)))
    )
    cls_id, sep_id = preprocessor.tokenizer.cls_id, preprocessor.tokenizer.sep_id
    ids, segments = join(*kept, cls_id=cls_id, sep_id=sep_id)
    pieces, _ = join(*numbers, cls_id=-1, sep_id=-1)
    batch: Batch = preprocessor.lay(ids, segments, pieces=pieces)
    return batch


def _numbered(pieces: Any) -> Any:
    """Return the pieces of texts as numbers from 0, ragged int32 [B, None]."""
    return tf.ragged.range(sizes_of(pieces))


def _starts(text: Any) -> Any:
    """Return 1 at the first window of each text, else 0, int32 [S]."""
    before = tf.concat([[-1], text[:-1]], 0)
    return tf.cast(text != before, tf.int32)


def _places(windows: Windows, starts: Any, ends: Any) -> Any:
    """Return first character and end of each window, int32 [S, 2]; 0 if it is empty.

    `starts` and `ends`, ragged int32 [B, None], are the characters of the tokens.
    """
    first = tf.gather(starts_of(starts), windows.text) + windows.first
    last = first + windows.count - 1
    found = [
        tf.gather(tf.pad(of.values, [[0, 1]]), tf.maximum(place, 0))
        for of, place in ((starts, first), (ends, last))
    ]
    there = (windows.count > 0)[:, tf.newaxis]
    return tf.where(there, tf.cast(tf.stack(found, axis=1), tf.int32), 0)


class Parts:
    """The rows of a batch dict in the order of their lengths, `_AT_ONCE` at a time.

    Memory holds one part and what is kept, however many rows there are.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._sizes = tf.reduce_sum(batch["padding_mask"], axis=1)
        self._order = tf.argsort(self._sizes, stable=True)
        self._rank = tf.math.invert_permutation(self._order)
        # The texts in the order in which they are computed, by row and column.
        length = tf.shape(batch["padding_mask"])[1]
        starts = text_starts(batch)
        keys = tf.gather(self._rank, starts // length) * length + starts % length
        self._texts = tf.argsort(keys)
        self._keys, self._length = tf.gather(keys, self._texts), length

    def vectors(self, compute: Any, names: Sequence[str], width: int) -> Any:
        """Return the vectors of texts, [S, width], which `compute` returns of a part,
        in the order of the texts.
        """
        found = self._computed(compute, names, width)
        return tf.gather(found, tf.math.invert_permutation(self._texts))

    def tokens(self, compute: Any, names: Sequence[str], width: int) -> tuple[Any, Any]:
        """Return the vectors of all real tokens, [N, width], and where each row starts
        among them, int32 [R]. `compute` returns vectors [R, T, width] of a part.
        """

        def real(part: Batch) -> Any:
            return tf.boolean_mask(compute(part), part["padding_mask"] > 0)

        found = self._computed(real, names, width)
        starts = tf.cumsum(tf.gather(self._sizes, self._order), exclusive=True)
        return found, tf.gather(starts, self._rank)

    def _computed(self, compute: Any, names: Sequence[str], width: int) -> Any:
        """Return vectors of all parts one after the other, [N, width]."""
        rows = tf.size(self._order)
        count = tf.maximum((rows + _AT_ONCE - 1) // _AT_ONCE, 1)

        def more(index: Any, found: Any) -> tuple[Any, Any]:
            part = self._part(names, index * _AT_ONCE)
            vectors = tf.cast(compute(part), tf.float32)
            return index + 1, found.write(index, vectors)

        found = tf.TensorArray(
            tf.float32, count, element_shape=[None, width], infer_shape=False
        )
        _, found = tf.while_loop(
            lambda index, _: index < count, more, (0, found), parallel_iterations=1
        )
        return tf.ensure_shape(found.concat(), [None, width])

    def _part(self, names: Sequence[str], first: Any) -> Batch:
        """Return the batch dict of the rows from `first` on in their order."""
        rows = self._order[first : first + _AT_ONCE]
        longest = tf.reduce_max(tf.pad(tf.gather(self._sizes, rows), [[0, 1]]))
        ends = [first * self._length, (first + _AT_ONCE) * self._length]
        start, end = tf.unstack(tf.searchsorted(self._keys, ends))
        part = {}
        for name in names:
            given = self._batch.get(name)
            if given is not None and given.shape.rank == 2:
                part[name] = tf.gather(given, rows)[:, :longest]
            elif given is not None:
                part[name] = tf.gather(given, self._texts[start:end])
        if _CLS in part:
            keys = self._keys[start:end] - first * self._length
            part[_CLS] = keys // self._length * longest + keys % self._length
        return part
