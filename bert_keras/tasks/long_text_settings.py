"""Settings for texts that are longer than the encoder reads; imports nothing heavy."""

from __future__ import annotations

import dataclasses

from bert_keras.settings import LONG, WINDOW_COMBINATIONS, option

IN_WINDOWS = ("long", "windows")  # without it the other settings have no effect


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowSettings:
    """The settings for texts longer than the maximum length."""

    long: str = option(
        "truncate",
        "what is read of a text longer than the maximum length: truncate, its start; "
        "head-tail, a quarter of the length from its start and the rest from its end; "
        "windows, all of it, in several rows",
        words=LONG,
        later=True,
    )
    stride: int | None = option(
        None,
        "distance in tokens from the start of a window to the start of the next",
        unit="tokens",
        least=1,
        unset="the length of a window: no overlap",
        free=True,
        later=True,
        needs=IN_WINDOWS,
    )
    max_windows: int | None = option(
        None,
        "maximum number of windows of a text; the text after them is not read",
        unit="windows",
        least=1,
        unset="no limit",
        free=True,
        later=True,
        needs=IN_WINDOWS,
    )
    train_windows: int = option(
        8,
        "maximum number of windows of a text in one epoch of training, which limits "
        "the memory; each epoch draws others",
        unit="windows",
        least=1,
        later=True,
        needs=IN_WINDOWS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongTextSettings(WindowSettings):
    """The settings of a task of one vector per text for texts longer than that."""

    combine: str = option(
        "mean",
        "how the vectors of a text's windows are combined: mean; max, of each number; "
        "attention, a sum with learned weights; or first, the first window alone",
        words=WINDOW_COMBINATIONS,
        later=True,
        needs=IN_WINDOWS,
    )
