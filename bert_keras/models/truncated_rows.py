"""What `fit`, `evaluate` and `predict` of a `TaskModel` report of truncated rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from bert_keras.runs.notes import say
from bert_keras.tasks.base import Task
from bert_keras.tasks.protocols import Writing, truncation_remedy
from bert_keras.text.preprocessor import one_or_all
from bert_keras.text.truncation import Truncation

_AT_ONCE = 1024  # rows in memory


class TruncatedRows(keras.callbacks.Callback):
    """Counts the truncated texts and targets of a data set, and reports them once.

    As a callback of `fit`, it reports the rows of the first epoch.

    Args:
        task: the task that reads the rows.
        max_length: the maximum tokens of a row.
        lengths: returns the lengths of texts and targets, or `None`, in graph: pairs of
            read and lost tokens, int32 [B] each, see `lengths_of`; and behind them the
            windows of texts, if the task reads some, see `windows_of`.
        of: what the rows are for, such as `train`.
    """

    def __init__(
        self,
        task: Task,
        max_length: int,
        lengths: Callable[[Any, Any], list[Any]],
        *,
        of: str = "",
    ) -> None:
        super().__init__()
        self.roles = task.roles
        self.lengths = lengths
        self.counts_targets = isinstance(task, Writing)
        most = task.max_target_length if isinstance(task, Writing) else None
        self.max_length = max_length
        self.in_windows = task.needs.rows_per_text is None
        self.combines = task.reads_windows
        self.remedy = truncation_remedy(task, 'long="windows"')
        self.drawn = getattr(task, "train_windows", 0) if of == "train" else 0
        self.shown = ((f"{of} texts", max_length), (f"{of} targets", most or 0))
        self.counts = Truncation(), Truncation()
        self.is_reported = False

    def add(self, *sizes: Any) -> list[Any]:
        """Count rows by their lengths: read and lost tokens of texts, then targets."""
        if self.is_reported:
            return []
        if self.combines:
            sizes, windows = sizes[:-1], sizes[-1]
            self.counts[0].add_windows(sizes[0], sizes[1], windows, self.max_length)
        for counts, at in zip(self.counts, range(0, len(sizes), 2), strict=False):
            counts.add(*sizes[at : at + 2])
        return []

    def report(self) -> None:
        """Report the counts, if a text or target is truncated."""
        if self.is_reported or not self.counts[0].texts:  # validation may come later
            return
        self.is_reported = True
        for counts, (name, length) in zip(self.counts, self.shown, strict=True):
            is_texts = counts is self.counts[0]
            for line in counts.lines(
                of=name.strip(),
                length=length,
                in_windows=self.in_windows and is_texts,
                drawn=self.drawn,
                remedy=self.remedy if is_texts else "",
            ):
                say(line)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.report()

    def watched(self, data: tf.data.Dataset) -> tf.data.Dataset:
        """Return a data set of batches that counts the rows as they are read.

        One of batch dicts, which were truncated before, is returned unchanged.
        """
        spec = data.element_spec
        if self._rows(*(spec if isinstance(spec, tuple) else (spec,))) is None:
            return data

        @tf.autograph.experimental.do_not_convert
        def count(*element: Any) -> Any:
            found = self.lengths(*self._rows(*element))
            tf.numpy_function(self.add, tf.nest.flatten(found), [])
            return element if isinstance(spec, tuple) else element[0]

        return data.map(count, num_parallel_calls=tf.data.AUTOTUNE)

    def report_rows(self, data: tf.data.Dataset) -> None:
        """Report a data set of rows in memory."""
        spec = data.element_spec
        rows = spec if isinstance(spec, tuple) else (spec,)
        if self._rows(*rows) is not None:
            for batch in data.batch(_AT_ONCE):
                element = batch if isinstance(batch, tuple) else (batch,)
                found = self.lengths(*self._rows(*element))
                self.add(*(each.numpy() for each in tf.nest.flatten(found)))
            self.report()

    def _rows(self, *element: Any) -> Any:
        """Return texts and targets of a batch; `None` unless it has strings."""
        texts, targets, _ = keras.utils.unpack_x_y_sample_weight(element)
        if not all(part.dtype == tf.string for part in tf.nest.flatten(texts)):
            return None
        if isinstance(texts, dict):
            texts = one_or_all(tuple(texts[role] for role in self.roles))
        return texts, targets if self.counts_targets else None
