"""The words of sentences in graph: their pieces, windows and entities.

A word is labelled at its first piece. A sentence longer than `max_length` becomes
several windows; each word is read in the window where it is farthest from the edges, so
that none is truncated or read twice.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 5.3 (the first piece of a word).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_keras.lazy_names import deferred
from bert_keras.reading.token_windows import TokenWindows
from bert_keras.scoring.entities import parse_classes
from bert_keras.text import characters
from bert_keras.text.ragged import keep, never_empty, sizes_of
from bert_keras.text.windows import cut_windows, values_of

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_keras.text.preprocessor import Preprocessor
    from bert_keras.text.tokenizer import WordPieceTokenizer
else:
    (tf,) = deferred("tensorflow")

WINDOWS = TokenWindows(of_words=True)


class Pieces(NamedTuple):
    """The pieces of B sentences, and which ones begin a word."""

    ids: Any  # ragged int32 [B, None]
    # ragged int32 [B, None]: the number of a word at its first piece, -1 at others
    words: Any
    mask: Any  # bool [B, W], where words are; they are numbered through it, row by row
    # int32 [B, W], first character and end of each word in its text, -1 where there is
    # no word; `None` for words without a text
    starts: Any = None
    ends: Any = None


def pieces_of_texts(tokenizer: WordPieceTokenizer, texts: Any) -> Pieces:
    """Return the pieces of plain texts, string [B], in the tokenizer's words."""
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts, unit="characters")
    inside = np.array([token.startswith("##") for token in tokenizer.vocabulary])
    first = ~tf.gather(tf.constant(inside), ids.flat_values)
    last = tf.concat([first, [True]], 0)[1:]  # of its word; a text ends with a word
    starts = keep(starts, first).to_tensor(-1)
    ends = keep(ends, last).to_tensor(-1)
    return Pieces(ids, ids.with_values(_numbered(first)), starts >= 0, starts, ends)


def pieces_of_words(tokenizer: WordPieceTokenizer, words: Any) -> Pieces:
    """Return the pieces of words, string [B, W]; empty strings are padding.

    A word that the tokenizer removes, such as a control character, becomes `[UNK]`, so
    that it has a tag.
    """
    mask = words != ""
    pieces = tokenizer(tf.gather_nd(words, tf.where(mask)))
    pieces = never_empty(pieces, tokenizer.unk_id)
    first = tf.equal(tf.ragged.range(sizes_of(pieces)).values, 0)
    counts = tf.reduce_sum(tf.cast(mask, tf.int64), axis=1)
    row_splits = tf.gather(pieces.row_splits, tf.pad(tf.cumsum(counts), [[1, 0]]))
    ids = tf.RaggedTensor.from_row_splits(pieces.values, row_splits, validate=False)
    return Pieces(ids, ids.with_values(_numbered(first)), mask)


def _numbered(first: Any) -> Any:
    """Number each True from 0; -1 at each False; int32."""
    return tf.where(first, tf.cumsum(tf.cast(first, tf.int32)) - 1, -1)


def lay_windows(preprocessor: Preprocessor, pieces: Pieces) -> dict[str, Any]:
    """Return the batch dict of sentences, long ones in several windows.

    Windows overlap by half; words are divided at the middle of the overlap. Besides the
    rows of the preprocessor's layout there is `words` int32 [R, T]: the number of the
    word that is read at a token, -1 at others. Each number is there once.
    """
    tokenizer = preprocessor.tokenizer
    windows = cut_windows(
        None,
        pieces.ids,
        WINDOWS.cut(preprocessor.max_length),
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
    )
    words = windows.own(pieces.words)
    return preprocessor.lay(windows.ids, windows.segments, words=words)


def of_one_width(tags: Any, mask: Any) -> tuple[Any, Any]:
    """Return tags int [B, V] and mask bool [B, W], the narrower one filled."""
    more = tf.shape(mask)[1] - tf.shape(tags)[1]
    tags = tf.pad(tags, [[0, 0], [0, tf.maximum(more, 0)]], constant_values=-1)
    return tags, tf.pad(mask, [[0, 0], [0, tf.maximum(-more, 0)]])


def targets_at(words: Any, mask: Any, targets: Any) -> Any:
    """Return the target of each token, [R, T]: -1 where no word is read.

    `words` int32 [R, T] is as in `lay_windows`, `mask` bool [B, W] as in `Pieces`;
    `targets` [B, W] has one per word, such as a tag or a weight.
    """
    flat = tf.boolean_mask(targets, mask)
    outside = tf.constant([-1], flat.dtype)  # of tokens outside words
    flat = tf.concat([flat, outside], 0)
    return tf.gather(flat, tf.where(words >= 0, words, tf.size(flat) - 1))


def values_of_words(values: Any, words: Any, mask: Any) -> Any:
    """Gather the values, [R, T, …], at the tokens of words, [B, W, …], 0 elsewhere.

    `words` int32 [R, T] is as in `lay_windows`, `mask` bool [B, W] as in `Pieces`.
    """
    places = tf.where(mask)
    shape = tf.concat([tf.shape(mask), tf.shape(values)[2:]], 0)
    found = values_of(values, words, tf.shape(places)[0])
    return tf.scatter_nd(places, found, tf.cast(shape, tf.int64))


def find_entities(
    classes: Sequence[str], tags: Any, scores: Any, pieces: Pieces, texts: Any
) -> dict[str, tf.Tensor]:
    """Return the entities of texts; `scoring.entities.entities_of` finds the same.

    Args:
        classes: the tags by their numbers.
        tags: int [B, W], the tag of each word.
        scores: float32 [B, W], its probability.
        pieces: the words of the texts.
        texts: string [B].

    Returns:
        `entities` string [B, E], as in the text, `types` string [B, E], `starts` and
        `ends` int32 [B, E], in characters, and `scores` float32 [B, E], the mean over
        the words; filled with empty strings, -1 and 0.
    """
    found = _runs(classes, tags, pieces.mask)
    begin, end = tf.where(found.first), tf.where(found.last)
    mean = found.means(scores)
    decoded = tf.strings.unicode_decode(texts, "UTF-8")
    starts = tf.gather_nd(pieces.starts, begin)
    ends = tf.gather_nd(pieces.ends, end)
    ends = over_marks(decoded, begin[:, 0], ends)
    names = tf.gather(tf.constant(found.kinds), tf.gather_nd(found.kind, begin))

    def dense(values: Any, fill: Any) -> Any:
        rows = tf.shape(texts, out_type=tf.int64)[0]
        ragged = tf.RaggedTensor.from_value_rowids(values, begin[:, 0], nrows=rows)
        return ragged.to_tensor(fill)

    return {
        "entities": dense(_cut(decoded, begin[:, 0], starts, ends), ""),
        "types": dense(names, ""),
        "starts": dense(starts, -1),
        "ends": dense(ends, -1),
        "scores": dense(mean, 0.0),
    }


def sure_tags(
    classes: Sequence[str], tags: Any, scores: Any, mask: Any, *, below: float
) -> Any:
    """Replace the tags of entities whose mean score is lower than `below` by `O`, int
    [B, W].

    The other arguments are as for `find_entities`; `O` is one of the classes.
    """
    found = _runs(classes, tags, mask)
    means = tf.concat([[0.0], found.means(scores)], 0)  # the first: of no entity
    mean = tf.gather(means, tf.where(found.inside, found.number + 1, 0))
    outside = tf.constant(list(classes).index("O"), tags.dtype)
    return tf.where(found.inside & (mean < below), outside, tags)


class _Runs(NamedTuple):
    """Groups the words of B sentences into entities."""

    kinds: list[str]  # the types of the classes, sorted
    kind: Any  # int32 [B, W], the type of each word's tag
    inside: Any  # bool [B, W], words of an entity
    first: Any  # bool [B, W]
    last: Any  # bool [B, W]
    number: Any  # int32 [B, W], at the words of an entity its number in the batch

    def means(self, scores: Any) -> Any:
        """Return the mean score of each entity, float32 [E]."""
        return tf.math.segment_mean(
            tf.boolean_mask(scores, self.inside),
            tf.boolean_mask(self.number, self.inside),
        )


def _runs(classes: Sequence[str], tags: Any, mask: Any) -> _Runs:
    parsed = parse_classes(classes)
    kinds = sorted({kind for _, kind in parsed})
    prefix = tf.gather(tf.constant([ord(prefix) for prefix, _ in parsed]), tags)
    prefix = tf.where(mask, prefix, ord("O"))
    kind = tf.gather(tf.constant([kinds.index(kind) for _, kind in parsed]), tags)
    before = tf.pad(prefix, [[0, 0], [1, 0]], constant_values=ord("O"))[:, :-1]
    changes = tf.not_equal(kind, tf.pad(kind, [[0, 0], [1, 0]])[:, :-1])
    inside = tf.not_equal(prefix, ord("O"))
    first = inside & (_is_one_of(prefix, "BS") | _is_one_of(before, "OES") | changes)
    goes_on = tf.pad(inside & ~first, [[0, 0], [0, 1]])[:, 1:]
    counts = tf.cumsum(tf.cast(tf.reshape(first, [-1]), tf.int32))
    number = tf.reshape(counts, tf.shape(first)) - 1
    return _Runs(kinds, kind, inside, first, inside & ~goes_on, number)


def _is_one_of(prefix: Any, letters: str) -> Any:
    return tf.reduce_any(prefix[..., tf.newaxis] == [ord(c) for c in letters], axis=-1)


def over_marks(decoded: Any, rows: Any, ends: Any) -> Any:
    """Extend ends over combining accents, which the tokenizer drops.

    `decoded`, ragged int32 [B, None], are the code points of the texts; `rows` int64
    [E] is the text of each end, `ends` int32 [E] in its characters.
    """
    # A code point is a mark if it is in one of the ranges [first, last].
    edges = [edge for first, last in characters.MARKS for edge in (first, last + 1)]
    codes = decoded.flat_values
    marks = tf.searchsorted(tf.constant(edges), codes, side="right") % 2 == 1
    splits = tf.cast(decoded.row_splits, tf.int32)
    others = tf.cast(tf.where(~marks)[:, 0], tf.int32)
    others = tf.concat([others, splits[-1:]], 0)
    base, limit = tf.gather(splits, rows), tf.gather(splits, rows + 1)
    following = tf.gather(others, tf.searchsorted(others, base + ends))
    return tf.minimum(following, limit) - base


def _cut(decoded: Any, rows: Any, starts: Any, ends: Any) -> Any:
    """Return the characters from `starts` to `ends` of the texts `rows`, string [E]."""
    base = tf.gather(tf.cast(decoded.row_splits, tf.int32), rows)
    places = tf.ragged.range(base + starts, base + ends)
    codes = places.with_values(tf.gather(decoded.flat_values, places.flat_values))
    return tf.strings.unicode_encode(codes, "UTF-8")
