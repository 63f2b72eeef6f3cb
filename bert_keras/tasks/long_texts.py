"""Tasks whose settings say how texts longer than a row are read: `LongTextTask`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bert_keras.reading.windows import Drawn, LongTexts
from bert_keras.tasks.base import Task

if TYPE_CHECKING:
    from bert_keras.text.preprocessor import Preprocessor


class LongTextTask(Task):
    """A task with the settings of `LongTexts`.

    These are the values for a task without these settings, which truncates.
    """

    long: str = LongTexts.long
    stride: int | None = LongTexts.stride
    max_windows: int | None = LongTexts.max_windows
    combine: str = LongTexts.combine
    train_windows: int = LongTexts.train_windows

    @property
    def reader(self) -> LongTexts:
        """How texts are read."""
        return LongTexts(**self.long_settings)

    @property
    def long_settings(self) -> dict[str, Any]:
        """The values of the settings of `LongTexts`."""
        return {
            each.name: getattr(self, each.name)
            for each in dataclasses.fields(LongTexts)
        }

    @property
    def reads_windows(self) -> bool:  # type: ignore[override]
        """Whether a long text is read in several rows."""
        return self.long == "windows"

    @property
    def may_read_windows(self) -> bool:  # type: ignore[override]
        """Whether the setting `long`, if there is one, may be windows and is not."""
        task: Any = self
        has_setting = "long" in {each.name for each in dataclasses.fields(task)}
        return has_setting and not self.reads_windows

    def lengths(self, preprocessor: Preprocessor, texts: Any) -> tuple[Any, Any]:
        return self.reader.lengths(preprocessor, texts)

    def windows_of(self, preprocessor: Preprocessor, texts: Any) -> Any:
        """Return the number of windows of each text and of their tokens, int32 [B, 2],
        in graph.
        """
        return self.reader.windows_of(preprocessor, texts)

    def resample(self, rows: tuple[Any, ...], draws: Any) -> tuple[Any, ...]:
        """Return training rows with the numbers that draw the windows of texts."""
        if not self.reads_windows:
            return rows
        texts, *others = rows
        return (Drawn(texts, draws), *others)


def most_tokens(task: Task, max_length: int) -> int | None:
    """Return how many tokens of a row of texts are read; `None`: all of them.

    `max_length` is of a row of the batch, special tokens included.
    """
    if task.needs.rows_per_text is not None:
        return max_length
    if not isinstance(task, LongTextTask):
        return None
    return task.reader.most_tokens(max_length, texts=len(task.roles))
