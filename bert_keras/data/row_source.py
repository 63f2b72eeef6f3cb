"""Where rows are read from, and how: `RowSource`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_keras.data.columns import Columns
from bert_keras.data.rows import ColumnNames, check_header, quote
from bert_keras.data.selected import SLICE
from bert_keras.data.table import read_columns, sliced, stream_columns
from bert_keras.errors import ConfigError, DataError


@dataclasses.dataclass(frozen=True)
class RowSource:
    """A file of rows, or a table in memory, and how it is read.

    Args:
        data: as `as_columns` takes it.
        columns: the columns that the user names, by role.
        header, bad_rows: as in `read_columns`.
        labelled: whether labels are read.
        others: further columns by role for rows without labels, which may be missing
            and have any cells.
    """

    data: Any
    columns: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    header: str = "auto"
    bad_rows: str = "error"
    labelled: bool = True
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        check_header(self.data, self.header)

    @property
    def rules(self) -> dict[str, Any]:
        """The arguments `header` and `bad_rows` of a function that reads rows."""
        return {"header": self.header, "bad_rows": self.bad_rows}

    def table(self, columns: ColumnNames, **rules: Any) -> Columns:
        """Return columns of a table, and the others, by rules of `read_columns`."""
        return read_columns(self.data, **self._asked(columns, rules))

    def stream(
        self, columns: ColumnNames, *, rows_at_once: int, **rules: Any
    ) -> Iterator[Columns]:
        """Yield what `table` returns in parts, see `stream_columns`."""
        asked = self._asked(columns, rules)
        return stream_columns(self.data, rows_at_once=rows_at_once, **asked)

    def _asked(self, columns: ColumnNames, rules: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of `read_columns` for columns and the others."""
        for name in ("optional", "empty", "lists", "nulls"):
            rules[name] = [*rules.get(name, ()), *self.others]
        return {"columns": {**columns, **self.others}, **rules, **self.rules}

    def with_slices(self, columns: Columns, names: Sequence[str]) -> Columns:
        """Return rows with further columns, which `sliced` reads; cells may be empty.

        `columns` are some or all rows of this source. `names` are column names or, in
        TSV and CSV, numbers from 0; `Columns` as data have them already.
        """
        if isinstance(names, str):
            raise ConfigError(f"`slices` must be a list of columns; received {names!r}")
        if not names or isinstance(self.data, Columns):
            for name in names:
                sliced(columns, name)
            return columns
        wanted = {f"{SLICE}{name}": name for name in names}
        roles = list(wanted)
        found = self.table(wanted, empty=roles, lists=roles, nulls=roles)
        row_of = {line: row for row, line in enumerate(found.lines)}
        if any(line not in row_of for line in columns.lines):
            raise DataError(
                f"has no header with the column {quote(names[0])}: give its number",
                path=columns.path,
            )
        found = found.take(row_of[line] for line in columns.lines)
        return dataclasses.replace(columns, cells={**columns.cells, **found.cells})
