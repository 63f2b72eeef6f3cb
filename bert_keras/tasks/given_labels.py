"""Labels given to `fit`: strings to numbers, in graph; unknown ones are errors.

In a graph only TensorFlow can raise an error; `label_errors` turns it into a
`DataError`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from bert_keras.data.class_names import listed
from bert_keras.errors import DataError

# Marks around our message inside TensorFlow's.
_BEGIN, _END = "bert_keras: ", " :bert_keras"
_NUMBER = r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*"
_WHOLE_NUMBER = r"\s*\d{1,9}\s*"
_MOST_SHOWN = 80  # characters


def class_numbers(labels: Any, classes: Sequence[str]) -> Any:
    """Return the numbers of classes, in graph.

    Args:
        labels: names, tf.string [B], or numbers, which pass unchanged.
        classes: the names in their order.
    """
    if getattr(labels, "dtype", None) == tf.string:
        same = tf.expand_dims(labels, -1) == tf.constant(classes)
        found = tf.argmax(tf.cast(same, tf.int32), -1, output_type=tf.int32)
        known = tf.reduce_any(same, -1)
        return checked(found, labels, known, f"one of {listed(classes)}")
    if not _is_whole(labels):
        return labels
    known = (labels >= 0) & (labels < len(classes))
    rule = f"from 0 to {len(classes) - 1}, the number of a class, or its name"
    return checked(labels, labels, known, rule)


def numbers(labels: Any, dtype: tf.DType) -> Any:
    """Parse strings as numbers, in graph; numbers pass unchanged."""
    if getattr(labels, "dtype", None) != tf.string:
        return labels
    whole = dtype.is_integer
    known = tf.strings.regex_full_match(labels, _WHOLE_NUMBER if whole else _NUMBER)
    rule = "a whole number from 0" if whole else "a number"
    spelled = checked(labels, labels, known, rule)
    return tf.strings.to_number(tf.strings.strip(spelled), dtype)


def checked(values: Any, labels: Any, known: Any, rule: str) -> Any:
    """Return values after checking that all labels are known, in graph.

    Args:
        values: a tensor computed from the labels.
        labels: strings or whole numbers, of any shape.
        known: bool of that shape.
        rule: what a label must be.

    Raises:
        DataError: a label is unknown; in a graph, inside `label_errors`.
    """
    unknown = tf.boolean_mask(labels, tf.logical_not(known))
    if labels.dtype != tf.string:
        unknown = tf.strings.as_string(unknown)
    first = tf.concat([unknown, [""]], 0)[0]
    first = tf.strings.unicode_transcode(first, "UTF-8", "UTF-8")
    cut = tf.strings.length(first, unit="UTF8_CHAR") > _MOST_SHOWN
    first = tf.strings.substr(first, 0, _MOST_SHOWN, unit="UTF8_CHAR")
    first = tf.strings.join([first, tf.where(cut, "…", "")])
    line = tf.strings.join([f"`label` must be {rule}; received '", first, "'"])
    all_known = tf.reduce_all(known)
    if tf.executing_eagerly():
        if not all_known:
            raise DataError(" ".join(line.numpy().decode().split()))
        return values
    check = tf.debugging.Assert(all_known, [tf.strings.join([_BEGIN, line, _END])])
    with tf.control_dependencies([check]):
        return tf.identity(values)


@contextlib.contextmanager
def label_errors() -> Iterator[None]:
    """Raise a DataError for a label that `checked` rejected in a graph."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        pattern = f"{re.escape(_BEGIN)}(.*?){re.escape(_END)}"
        found = re.search(pattern, str(error), re.DOTALL)
        if found is None:
            raise
        # TensorFlow escapes strings as C does.
        raise DataError(re.sub(r"\\(['\"\\])", r"\1", found[1])) from None


def _is_whole(labels: Any) -> bool:
    dtype = getattr(labels, "dtype", None)
    return isinstance(dtype, tf.DType) and dtype.is_integer
