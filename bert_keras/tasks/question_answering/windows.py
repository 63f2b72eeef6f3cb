"""From questions and contexts to windows, and from windows to spans, in graph.

`bert_keras.text.windows` cuts token ids into windows; this module tokenizes before and
batches after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from bert_keras.tasks.question_answering.spans import Spans
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.windows import Windows, cut_windows, mark_windows

_AT_ONCE = 32  # windows computed together, however long the texts are


class AskedWindows(NamedTuple):
    """The windows of B questions and contexts.

    Args:
        windows: S of them.
        contexts: string [B].
        starts, ends: RaggedTensor int32 [B, None], first character and end of each
            context token.
    """

    windows: Windows
    contexts: Any
    starts: Any
    ends: Any


def asked_windows(
    preprocessor: Preprocessor,
    texts: Any,
    *,
    stride: int,
    max_question_tokens: int,
) -> AskedWindows:
    """Return the windows of questions and contexts, string [B] each.

    Args:
        preprocessor: its tokenizer reads them, its `max_length` is that of a window.
        texts: the questions, and the contexts.
        stride, max_question_tokens: as of `windows.cut_windows`.
    """
    question, context = texts
    tokenizer = preprocessor.tokenizer
    pieces, starts, ends = tokenizer.tokenize_with_offsets(context, unit="characters")
    windows = cut_windows(
        tokenizer(question),
        pieces,
        max_length=preprocessor.max_length,
        stride=stride,
        max_question_tokens=max_question_tokens,
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
    )
    return AskedWindows(windows, context, starts, ends)


def question_lengths(
    preprocessor: Preprocessor, texts: Any, *, max_question_tokens: int
) -> tuple[Any, Any]:
    """Return tokens of question and context, and if the question is truncated.

    Args:
        preprocessor, texts, max_question_tokens: as of `asked_windows`.

    Returns:
        int32 [B], special tokens included, as if one row could hold all; bool [B].
    """
    sizes = [preprocessor.tokenizer(text).row_lengths() for text in texts]
    asked, size = (tf.cast(each, tf.int32) for each in sizes)
    room = (preprocessor.max_length - 3) // 2
    return asked + size + 3, asked > min(max_question_tokens, room)


def marked_batch(
    preprocessor: Preprocessor, asked: AskedWindows, targets: Any
) -> tuple[dict[str, Any], Any]:
    """Return windows as a batch, and the targets of `spans.SpanLoss`, int32 [R, T, 3].

    Args:
        preprocessor: lays the windows.
        asked: the windows.
        targets: int32 [B, 2], where answers stand, as of `windows.mark_windows`.
    """
    windows, _, starts, ends = asked
    start, end = mark_windows(windows, starts, ends, targets)
    batch = preprocessor.lay(windows.ids, windows.segments, start=start, end=end)
    marked = [tf.maximum(batch.pop(key), 0) for key in ("start", "end")]
    own = batch.get("sequence_ids", batch["padding_mask"])
    return batch, tf.stack([own, *marked], axis=-1)


def spans_by_parts(
    windows: Windows, find: Callable[[Windows], Spans], none: Spans
) -> Spans:
    """Return the best spans of windows, in batches of similar length.

    Args:
        windows: S of them.
        find: returns the best spans of some windows.
        none: those of no window.
    """
    order = tf.argsort(windows.ids.row_lengths(), stable=True)

    def more(done: Any, found: Spans) -> tuple[Any, Spans]:
        part = windows.take(order[done : done + _AT_ONCE])
        return done + _AT_ONCE, found.followed_by(find(part))

    _, spans = tf.while_loop(
        lambda done, _: done < tf.size(order),
        more,
        (0, none),
        shape_invariants=(tf.TensorShape([]), none.shapes()),
        parallel_iterations=1,
    )
    return spans.take(tf.math.invert_permutation(order))
