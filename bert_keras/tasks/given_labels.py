"""Labels given to `fit`, checked and turned into numbers in the graph.

Only TensorFlow can raise errors there; `label_errors` turns them into a `DataError`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.data.class_names import comparable, listed
from bert_keras.errors import DataError
from bert_keras.lazy_names import deferred

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_text as tf_text
else:
    tf, tf_text = deferred("tensorflow", "tensorflow_text")

# Markers around our message inside TensorFlow's.
_BEGIN, _END = "bert_keras: ", " :bert_keras"
_NUMBER = r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*"
_WHOLE_NUMBER = r"\s*\d{1,9}\s*"
_MOST_SHOWN = 80  # characters


def class_numbers(labels: Any, classes: Sequence[str]) -> Any:
    """Return the numbers of class names, tf.string [B], or of whole numbers."""
    if getattr(labels, "dtype", None) == tf.string:
        same = tf.cast(named_alike(labels, classes), tf.int32)
        found = tf.argmax(same, -1, output_type=tf.int32)
        known = tf.reduce_max(same, -1) > 0
        return checked(found, labels, known, f"one of {listed(classes)}")
    rule = f"from 0 to {len(classes) - 1}, the number of a class, or its name"
    return numbers_below(labels, len(classes), rule)


def one_each(targets: Any) -> Any:
    """Return targets [B, 1] as [B], others unchanged."""
    shape: Any = getattr(targets, "shape", ())
    return targets[:, 0] if len(shape) == 2 and shape[1] == 1 else targets


def numbers_below(labels: Any, count: Any, rule: str) -> Any:
    """Return whole numbers from 0, below `count`: an int, or int32 [B], one each.

    What is neither whole numbers nor one float a row, such as probabilities for a loss
    of the user's own, passes unchanged.
    """
    is_one_each = _is_float(labels) and labels.shape.rank == 1
    dtype = getattr(labels, "dtype", None)
    is_whole = isinstance(dtype, tf.DType) and dtype.is_integer
    if not is_one_each and not is_whole:
        return labels
    known = (labels >= 0) & (labels < tf.cast(count, labels.dtype))
    if is_one_each:
        known &= labels == tf.round(labels)
    found = checked(labels, labels, known, rule)
    return tf.cast(found, tf.int32) if is_one_each else found


def named_alike(labels: Any, classes: Sequence[str]) -> Any:
    """Return how labels, tf.string [B], and class names agree, int32 [B, C], in graph.

    2: they are equal; 1: they are equal after `class_names.comparable`; 0: not.
    """
    form = tf.strings.regex_replace(labels, r"^[\pZ\s]+|[\pZ\s]+$", "")
    form = tf_text.normalize_utf8(form, "NFC")
    for word in ("true", "false"):
        form = tf.strings.regex_replace(
            form, f"^({word.upper()}|{word.capitalize()})$", word
        )
    form = tf.strings.regex_replace(form, r"^([+-]?\d+)\.0+$", r"\1")
    equal = tf.expand_dims(labels, -1) == tf.constant(classes)
    alike = tf.expand_dims(form, -1) == tf.constant(list(map(comparable, classes)))
    return 2 * tf.cast(equal, tf.int32) + tf.cast(alike & ~equal, tf.int32)


def numbers(labels: Any, dtype: tf.DType) -> Any:
    """Parse strings as numbers, in graph; numbers, if finite, pass unchanged."""
    if _is_float(labels):
        return checked(labels, labels, tf.math.is_finite(labels), "a finite number")
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
        rule: what a label must be, for the DataError; in a graph see `label_errors`.
    """
    unknown = tf.boolean_mask(labels, tf.logical_not(known))
    if labels.dtype != tf.string:
        unknown = tf.strings.as_string(unknown, shortest=unknown.dtype.is_floating)
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


def _is_float(labels: Any) -> bool:
    dtype = getattr(labels, "dtype", None)
    return isinstance(dtype, tf.DType) and dtype.is_floating
