"""The rows of a file with their answers, as `predict --input` writes them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bert_keras.data.items import is_blank
from bert_keras.data.row_source import RowSource
from bert_keras.errors import DataError, NoRowsError, UnreadError
from bert_keras.inference.predictor import Predictor
from bert_keras.runs.notes import say
from bert_keras.settings import check_choice
from bert_keras.tasks.base import Task, roles_with, stream_rows
from bert_keras.tasks.protocols import redaction_of, text_specs, texts_of
from bert_keras.text.truncation import Truncation

ON_EMPTY = ("null", "error")
BATCHES_TOGETHER = 32  # whose rows are sorted by length and answered together
_ROWS_AT_ONCE = 1 << 14  # read and checked before they are answered
# The name and the texts of a row, see `Row`, and its line; `None`: as it is counted.
Given = tuple[str | None, Any, int | None]


class Row(NamedTuple):
    """A row to answer.

    Args:
        name: the file's `id` of the row, if it has any.
        item: the row as `Predictor.predict` takes it.
        reason: why it has no answer, or an empty string.
        place: its file and line, for errors.
    """

    name: str | None
    item: Any
    reason: str = ""
    place: str = ""


def read_rows(task: Task, source: RowSource) -> Iterator[Given]:
    """Yield the name, the texts and the line of each row of a file; see `Row`.

    The file is read in parts, in bounded memory; a bad row raises when it is reached.
    """
    try:
        for rows in stream_rows(task, source, rows_at_once=_ROWS_AT_ONCE):
            parts = texts_of(task, rows)
            items = zip(*parts, strict=True) if len(parts) > 1 else parts[0]
            names = rows["id"] if "id" in rows else [None] * len(rows)
            yield from zip(names, items, rows.lines, strict=True)
    except NoRowsError as error:
        say(f"{error}: nothing to answer")


def check_redacts(predictor: Predictor, types: Sequence[str]) -> None:
    """Raise ConfigError unless a model finds entities of these types; empty: any."""
    task, preprocessor = predictor.model.task, predictor.model.preprocessor
    redaction_of(task, preprocessor, types or None)


def answered(
    predictor: Predictor,
    rows: Sequence[Row],
    *,
    batch_size: int = 32,
    max_batch_tokens: int | None = None,
    truncation: Truncation,
    redact: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """Return each row's name and texts with its answer.

    The names of a task whose rows have names are in place of the texts. A row with a
    reason has the answer null, and the `reason`.

    Args:
        predictor, batch_size, max_batch_tokens, truncation: as in `Predictor.predict`.
        rows: the answers are the same, to the last digit, for the same rows together.
        redact: the types of the entities that are replaced in the texts, see
            `Predictor.redact`; empty: all. `None`: the texts stay as they are.

    Raises:
        DataError: a text cannot be redacted.
    """
    task = predictor.model.task
    names = [spec.name for spec in text_specs(task)["serving_default"]]
    predict: Callable[..., list[dict[str, Any]]] = predictor.predict
    if redact is not None:
        predict = functools.partial(predictor.redact, types=redact or None)
    try:
        answers = predict(
            [_filled(task, row.item) for row in rows],
            batch_size=batch_size,
            max_batch_tokens=max_batch_tokens,
            truncation=truncation,
        )
    except UnreadError as error:
        raise DataError(error.message, path=rows[error.row].place) from None
    found = []
    for row, answer in zip(rows, answers, strict=True):
        start = {"id": row.name} if row.name is not None else {}
        if not start or "id" not in task.columns:
            start |= _texts(task, names, row.item, answer)
        if row.reason:
            answer = {name: None for name in answer if name not in start}
            answer["reason"] = row.reason
        found.append({**start, **answer})
    return found


def _texts(
    task: Task, names: Sequence[str], item: Any, answer: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the texts of a row by name."""
    is_single = isinstance(item, str) or len(names) == len(task.roles) == 1
    is_pair = isinstance(item, tuple) and len(names) == 1
    texts = (item,) if is_single and not is_pair else item
    # A text that is answered by a `text` has the name of its role.
    shown = task.roles if set(names) & set(answer) else names
    shown = ("text_a", "text_b") if is_pair else shown
    return dict(zip(shown, texts, strict=True))


class BlankTexts:
    """The rows that have no text to answer.

    Args:
        task: defines the roles of a row, and which may be empty.
        on_empty: `null`, or `error` to refuse such a row.
        place: where the rows come from, for errors.

    Attributes:
        seen, count: the rows so far, and how many of them have no text to answer.
    """

    def __init__(self, task: Task, on_empty: str, place: str) -> None:
        check_choice("on_empty", on_empty, ON_EMPTY)
        self._task, self._on_empty, self._place = task, on_empty, place
        self.seen = self.count = 0

    def rows(self, given: Iterable[Given]) -> list[Row]:
        """Return the next rows, each with the reason why it has no answer, if any.

        Raises:
            DataError: there is such a row, and it must be an error.
        """
        found = []
        for name, item, line in given:
            self.seen += 1
            line = line or self.seen
            roles = [f"`{role}`" for role in empty_roles(self._task, item)]
            verb = "is" if len(roles) == 1 else "are"
            reason = f"{' and '.join(roles)} {verb} empty" if roles else ""
            if roles and self._on_empty == "error":
                raise DataError(reason, path=self._place, line=line)
            self.count += bool(roles)
            found.append(Row(name, item, reason, f"{self._place}:{line}"))
        return found

    def report(self) -> None:
        """Print the number of rows without a text."""
        if self.count:
            say(
                f"rows with an empty text, answered with null: {self.count:,} of "
                f"{self.seen:,} (--on-empty error refuses them)"
            )


def empty_roles(task: Task, item: Any) -> list[str]:
    """Return the roles of a row whose text is empty and must not be."""
    may_be_empty = roles_with(task.columns, "empty")
    parts = item if isinstance(item, tuple) else (item,)
    return [
        role
        for role, part in zip(task.roles, parts, strict=False)
        if role not in may_be_empty
        and (is_blank(part) if isinstance(part, str) else not part)
    ]


def _filled(task: Task, item: Any) -> Any:
    """Return a row with any text in empty places: it is answered with null."""
    empty = empty_roles(task, item)
    if not empty:
        return item
    parts = item if isinstance(item, tuple) else (item,)
    made = [
        part if role not in empty else "." if isinstance(part, str) else ["."]
        for role, part in zip(task.roles, parts, strict=False)
    ]
    return tuple(made) if isinstance(item, tuple) else made[0]
