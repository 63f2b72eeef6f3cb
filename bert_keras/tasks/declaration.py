"""What a task declares beside its settings: `TaskHelp`; imports nothing heavy."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class TaskHelp:
    """What a user has to know about a task.

    `bert-keras tasks NAME`, `bert-keras train NAME --help`, the model card and the
    tables of the documentation are generated from it and from the settings.

    Args:
        place: module and class of the task.
        settings: dataclass of its settings, each declared with `option`.
        summary: one line.
        data: the files and columns that it reads.
        file: the name of such a file.
        rows: its first lines.
        scores: what `evaluate` returns.
        answers: what `predict` and the SavedModel return.
    """

    place: str
    settings: type
    summary: str
    data: str
    file: str
    rows: str
    scores: str
    answers: str
