"""Labelled rows by role: `Columns`, which every reader returns."""

from __future__ import annotations

import array
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.data.class_names import (
    are_positions,
    listed,
    numbers_of,
    say_numbers,
)
from bert_keras.data.memory import MemoryRows
from bert_keras.data.rows import existing, refuse_lines
from bert_keras.data.text_column import TextColumn, coded, row_dtype
from bert_keras.errors import MOST_NAMED, DataError, first_of, nearest, received


@dataclasses.dataclass(frozen=True)
class Columns:
    """The selected columns of a file: `columns[role]` is a list of N strings.

    Of a large file it is a `TextColumn`, and `lines` a range or an array.

    Args:
        path: the file.
        cells: role to its N cells, none of them empty unless a task allows it;
            strings, or lists of strings if a task reads lists. A missing optional
            role has no entry.
        lines: line in the file at which each row begins, counted from 1; N numbers.

    Example:
        >>> columns = Columns("a.tsv", {"text": ["so good"], "label": ["1"]}, [2])
        >>> columns["text"], len(columns), "text_pair" in columns
        (['so good'], 1, False)
        >>> columns.refuse([(0, "`label` must be 0; received 1")])
        Traceback (most recent call last):
        bert_keras.errors.DataError: a.tsv:2: `label` must be 0; received 1
    """

    path: str
    cells: dict[str, Any]
    lines: Sequence[int]

    def __getitem__(self, role: str) -> Any:
        if role not in self.cells:
            names = existing(list(self.cells), named=True)
            message = f"the column of `{role}` is missing; it has {names}: name it"
            raise DataError(message, path=self.path)
        return self.cells[role]

    def __contains__(self, role: object) -> bool:
        return role in self.cells

    def __len__(self) -> int:
        return len(self.lines)

    def require(self, role: str, *, reason: str) -> None:
        """Raise a DataError with the reason if the column of a role is missing."""
        if role not in self.cells:
            message = f"{reason}; the column of `{role}` is missing: name it"
            raise DataError(message, path=self.path)

    def take(self, rows: Iterable[int]) -> Columns:
        """Return some of the rows, by index from 0."""
        chosen: Any = rows if isinstance(rows, np.ndarray) else list(rows)
        if any(isinstance(values, TextColumn) for values in self.cells.values()):
            # Shared by all columns, if they have all rows of the file.
            chosen = np.asarray(chosen, row_dtype(len(self)))
        cells = {role: _taken(values, chosen) for role, values in self.cells.items()}
        return Columns(self.path, cells, _taken(self.lines, chosen))

    def spread(self, most: int) -> Columns:
        """Return the rows, or at most `most` of them, evenly spread."""
        return self.take(range(0, len(self), max(1, -(-len(self) // most))))

    def followed_by(self, others: Columns) -> Columns:
        """Return these rows and then others, with the columns that both have."""
        cells = {
            role: [*values, *others.cells[role]]
            for role, values in self.cells.items()
            if role in others.cells
        }
        path = self.path if self.path == others.path else f"{self.path}, {others.path}"
        return Columns(path, cells, [*self.lines, *others.lines])

    def filled(self, role: str, *, skip_empty: bool) -> Columns:
        """Return the rows whose cell of a role is not blank.

        Raises:
            DataError: a cell is blank, and such rows are not skipped.
        """
        blank = [row for row, cell in enumerate(self[role]) if not cell.strip()]
        if not blank:
            return self
        if not skip_empty:
            raise DataError(
                f"`{role}` is empty in {len(blank):,} of {len(self):,} rows, "
                f"{self.places(blank)}: --skip-empty leaves such rows out",
                path=self.path,
                line=self.lines[blank[0]],
            )
        return self.take(sorted(set(range(len(self))) - set(blank)))

    def select(self, roles: Mapping[str, str | int]) -> Columns:
        """Return some of the columns under new roles."""
        cells = {role: self[str(column)] for role, column in roles.items()}
        return Columns(self.path, cells, self.lines)

    def indices(self, role: str, values: Sequence[str]) -> np.ndarray:
        """Return the index of each cell among the values, int32 [N].

        Cells are compared like class names, see `class_names`. Cells that are all
        numbers, where no value is one, are the indices themselves; a note says so.

        Raises:
            DataError: a cell is not among the values; named by line.

        Example:
            >>> as_columns(text=["a", "b"], label=["ham", "spam"]).indices(
            ...     "label", ["ham", "spam"]
            ... )
            array([0, 1], dtype=int32)
        """
        cells = self[role]
        names, codes = coded(cells)
        index = numbers_of(names, values)
        if not index and are_positions(names, values):
            index = {cell: int(float(cell)) for cell in names}
            say_numbers(self.path, role, values)
        rule = f"`{role}` must be one of {listed(values)}"
        found = np.array([index.get(name, -1) for name in names], "int32")[codes]
        unknown = np.flatnonzero(found < 0).tolist()
        # `nearest` compares with all values, so only for cells that the error names.
        near = {row: nearest(cells[row], values) for row in unknown[:MOST_NAMED]}
        self.refuse(
            [
                (row, f"{rule}; {received(cells[row])}{near.get(row, '')}")
                for row in unknown
            ]
        )
        return found

    def places(self, rows: Sequence[int] | None = None) -> str:
        """Return the first places of rows, by default of all: `lines 2, 5`."""
        what = "row" if self.path == MemoryRows.path else "line"
        lines = self.lines if rows is None else [self.lines[row] for row in rows]
        return f"{what}{'s' * (len(lines) > 1)} {first_of(lines)}"

    def refuse_labels(self, rows: str) -> None:
        """Raise a DataError, by line, if a cell of `label`, or `label NAME`, is given.

        `rows` are what they are for, for the message.
        """
        problems = [
            (row, f"`label` must be empty in {rows}; {received(cell)}")
            for role, cells in self.cells.items()
            if role.partition(" ")[0] == "label"
            for row, cell in enumerate(cells)
            if cell
        ]
        self.refuse(sorted(problems))

    def refuse(self, problems: Sequence[tuple[int, str]]) -> None:
        """Raise one DataError with the line of each problem, a (row, message)."""
        named = [(self.lines[row], message) for row, message in problems]
        refuse_lines(self.path, named)


def numbers(values: np.ndarray) -> array.array[int]:
    """Return integers as an array of plain numbers, which takes less than a list."""
    dtype = row_dtype(int(values.max()) + 1 if len(values) else 0)
    return array.array("iq"[dtype == "int64"], values.astype(dtype).tobytes())


def _taken(values: Any, rows: Any) -> Any:
    """Return some of the values, by index from 0."""
    if isinstance(values, TextColumn):
        return values.take(rows)
    if isinstance(values, range | array.array):
        return numbers(np.asarray(values)[np.asarray(rows)])
    return [values[row] for row in (rows if isinstance(rows, list) else rows.tolist())]
