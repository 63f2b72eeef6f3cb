"""Rule-based sentence splitting, and choice of sentences, in graph with core ops.

A sentence ends at a line break unless a small letter follows; at . ! ? … (and ؟ । ۔)
with the closing quotes and brackets after it, if white space and no small letter
follow; and at 。！？ everywhere. A sentence does not end at the dot of a title
("Dr. Wu"), an initial ("J. R. Smith"), a number ("3.14", "No. 5") or one of the usual
abbreviations. A text without any capital letter is also split before small letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from bert_keras.text.ragged import keep, segment_ids, starts_of

# Replacements for characters of the text, which keeps its length in bytes: a dot that
# does not end a sentence, and the boundary of two sentences. In the text they become
# spaces.
_DOT, _END = "\x01", "\x1e"
_SPACE = r"[\s\x{0B}\p{Z}]"
_OPENING = r"\"'“‘„«‹(\[{¿¡「『（【《〈"
_CLOSING = r"\"'”’“»›)\]}」』）】》〉"
_STOPS = "[.!?…؟।۔]+"
_ENDS = f"({_STOPS}(?: {_STOPS})*[{_CLOSING}]*)({_SPACE}+"
# Always before a name or in the middle of a sentence.
_ABBREVIATIONS = (
    "Mr|Mrs|Ms|Mx|Messrs|Mme|Mlle|Dr|Drs|Prof|Rev|Hon|St|Mt|Ft|Gen|Col|Capt|Cpt|Cmdr"
    "|Lt|Sgt|Maj|Adm|Gov|Sen|Rep|Pres|Supt|Insp|Det|vs|cf|viz|approx|ca|al|e\\.g"
    "|i\\.e|z\\.B|d\\.h|bzw|ggf"
)
# Before a number only: "No. 5", but "He said no. Then he left."
_NUMBERED = (
    "No|Nos|Nr|Fig|Figs|Eq|Vol|Vols|Ch|Sec|Art|Ed|p|pp|Jan|Feb|Mar|Apr|Jun|Jul|Aug"
    "|Sep|Sept|Oct|Nov|Dec"
)
_WORD_START = r"(^|[^\p{L}\p{N}])"
# Each replacement has as many bytes as the original.
_PROTECTED = (
    (f"{_WORD_START}({_ABBREVIATIONS})\\.", rf"\1\2{_DOT}"),
    (f"{_WORD_START}({_NUMBERED})\\.({_SPACE}*\\p{{N}})", rf"\1\2{_DOT}\3"),
    (f"{_WORD_START}(\\p{{Lu}})\\.", rf"\1\2{_DOT}"),
    (f"{_WORD_START}(\\p{{Lu}})\\.", rf"\1\2{_DOT}"),  # the second of two in a row
    (r"(^|\n)([ \t]*\p{N}{1,3})\.", rf"\1\2{_DOT}"),  # 1. 2. at the start of lines
)
_AT_ONCE = 256  # texts that `list_sentences` splits together
_HASHES = 2**62  # of trigrams: enough to avoid collisions


class Sentences(NamedTuple):
    """The sentences of B texts.

    Args:
        texts: RaggedTensor string [B, None]; none is empty or has white space around.
        starts, ends: RaggedTensor int32 [B, None], the position of each in its text, in
            characters as Python counts them; `ends` is exclusive.
    """

    texts: Any
    starts: Any
    ends: Any


@tf.autograph.experimental.do_not_convert  # has no Python control flow to convert
def split_sentences(texts: Any) -> Sentences:
    """Return the sentences of texts, tf.string [B] or a list of str.

    Bytes that are not UTF-8 count as `bytes.decode("utf-8", "replace")` reads them.

    Example:
        >>> found = split_sentences(["Dr. Wu has 3.5 cats. “Has she?” Yes!"])
        >>> [text.decode() for text in found.texts[0].numpy()]
        ['Dr. Wu has 3.5 cats.', '“Has she?”', 'Yes!']
    """
    with tf.device("CPU:0"):
        texts = tf.convert_to_tensor(texts, tf.string)
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
        pieces = tf.strings.split(_marked(texts), _END)
        flat = pieces.flat_values
        bare = tf.strings.regex_replace(flat, f"^{_SPACE}+", "")
        before = _sizes(flat) - _sizes(bare)
        bare = tf.strings.regex_replace(bare, f"{_SPACE}+$", "")
        starts = _starts(pieces.with_values(_sizes(flat))) + before
        sizes = _sizes(bare)
        sources = tf.gather(texts, segment_ids(pieces.row_splits))
        found = tf.strings.substr(sources, starts[:, 0], sizes[:, 0], unit="BYTE")
        columns = (found, starts[:, 1], starts[:, 1] + sizes[:, 1])
        return Sentences(
            *(keep(pieces.with_values(each), sizes[:, 0] > 0) for each in columns)
        )


def list_sentences(texts: Sequence[str]) -> list[list[str]]:
    """Return the sentences of each text, as `split_sentences` gives them in graph."""
    found: list[list[str]] = []
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        rows = split_sentences([t.encode("utf-8", "surrogatepass") for t in some])
        found += [[s.decode("utf-8") for s in row] for row in rows.texts.to_list()]
    return found


def choose_sentences(
    scores: Any, texts: Any, *, most: int, trigram_blocking: bool = False
) -> Any:
    """Return the best sentences of each text in their order, int32 [B, most].

    Args:
        scores: float32 [B, S], from 0; -1 where there is no sentence.
        texts: the sentences, ragged string [B, None]; empty ones are not chosen.
        most: maximum number of sentences; padded with -1.
        trigram_blocking: whether to skip a sentence that shares three consecutive words
            with a better one that was chosen.
    """
    shape = tf.shape(scores)
    trigrams = _trigrams(texts) if trigram_blocking else None

    def choose(chosen: Any, open_: Any) -> tuple[Any, Any]:
        best = tf.argmax(tf.where(open_, scores, -2.0), axis=1)
        now = tf.one_hot(best, shape[1], on_value=True, off_value=False) & open_
        open_ &= ~now
        if trigrams is not None:
            of_best = tf.gather(trigrams, best, batch_dims=1)
            open_ &= ~_share(trigrams, of_best)
        return chosen | now, open_

    open_ = tf.strings.length(texts.to_tensor("")) > 0
    chosen, _ = tf.while_loop(
        lambda chosen, open_: tf.reduce_any(open_),
        choose,
        (tf.zeros_like(open_), open_),
        maximum_iterations=most,
    )
    last = tf.int32.max
    order = tf.where(chosen, tf.range(shape[1]), last)
    order = tf.pad(order, [[0, 0], [0, most]], constant_values=last)
    order = tf.sort(order, axis=1)[:, :most]
    return tf.where(order == last, -1, order)


def _marked(texts: Any) -> Any:
    """Insert a mark after each sentence of the texts."""
    marked = tf.strings.regex_replace(texts, f"[{_DOT}{_END}]", " ")
    for pattern, replacement in (
        (r"\r\n", " \n"),
        (r"\r", "\n"),
        # A line that continues with a small letter was wrapped.
        (r"([^\s][ \t]*)\n([ \t]*\p{Ll})", r"\1 \2"),
        *_PROTECTED,
    ):
        marked = tf.strings.regex_replace(marked, pattern, replacement)
    follows = f"[{_OPENING}]*[^{_OPENING}\\s\\x{{0B}}\\p{{Z}}"
    cased = tf.strings.regex_replace(
        marked, f"{_ENDS}{follows}\\p{{Ll}}])", rf"\1{_END}\2"
    )
    caseless = tf.strings.regex_replace(marked, f"{_ENDS}{follows}])", rf"\1{_END}\2")
    has_capitals = tf.strings.regex_full_match(marked, r"(?s).*\p{Lu}.*")
    marked = tf.where(has_capitals, cased, caseless)
    for pattern in (f"[。！？｡]+[{_CLOSING}]*", r"\n"):
        marked = tf.strings.regex_replace(marked, f"({pattern})", rf"\1{_END}")
    return marked


def _sizes(texts: Any) -> Any:
    """Return the length of each text in bytes and in characters, int32 [N, 2]."""
    units = ("BYTE", "UTF8_CHAR")
    return tf.stack([tf.strings.length(texts, unit=unit) for unit in units], axis=1)


def _starts(sizes: Any) -> Any:
    """Return where each piece starts in its text, int32 [N, 2], of ragged sizes."""
    flat = sizes.flat_values
    starts = tf.cumsum(flat, exclusive=True)
    # `split` returns at least one piece for each text.
    firsts = tf.gather(starts, starts_of(sizes))
    return starts - tf.gather(firsts, segment_ids(sizes.row_splits))


def _trigrams(texts: Any) -> Any:
    """Return hashes of each sentence's trigrams of words, int64 [B, S, G], or -1."""
    flat = tf.strings.lower(texts.flat_values, encoding="utf-8")
    flat = tf.strings.regex_replace(flat, r"[^\p{L}\p{M}\p{N}]+", " ")
    words = tf.strings.split(flat)
    hashes = tf.ragged.map_flat_values(
        lambda each: tf.strings.to_hash_bucket_fast(each, _HASHES),
        tf.strings.ngrams(words, 3),
    )
    return tf.RaggedTensor.from_row_splits(hashes, texts.row_splits).to_tensor(-1)


def _share(trigrams: Any, of_best: Any) -> Any:
    """Return which sentences have one of these trigrams, bool [B, S].

    `trigrams`, int64 [B, S, G], are padded with -1; `of_best`, int64 [B, G], are the
    trigrams of one sentence of each document.
    """
    shape = tf.shape(trigrams)
    flat = tf.reshape(trigrams, [shape[0], -1])
    known = tf.pad(tf.sort(of_best, axis=1), [[0, 0], [0, 1]], constant_values=-1)
    index = tf.searchsorted(known[:, :-1], flat)
    same = (tf.gather(known, index, batch_dims=1) == flat) & (flat >= 0)
    return tf.reduce_any(tf.reshape(same, shape), axis=2)
