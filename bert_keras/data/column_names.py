"""Column selection by name or number, and header detection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bert_keras.errors import ConfigError, DataError

HEADER = ("auto", "yes", "no")
# A first row with one of these in a column selected by number is probably a header.
_HEADER_WORDS = frozenset(
    "text text_a text_b text_pair sentence sentence1 sentence2 question "
    "label labels class category target score".split()
)


def wanted_columns(
    columns: Mapping[str, str | int | None], optional: Sequence[str], header: str
) -> dict[str, str | int]:
    """Return the selected roles, each with the name or number of its column.

    Args:
        columns: role to its column; a role of `None` is left out.
        optional: roles whose column may be missing.
        header: `auto`, `yes` or `no`.

    Raises:
        ConfigError: one of them is wrong.
    """
    if header not in HEADER:
        raise ConfigError(
            f"`header` must be one of {', '.join(HEADER)}; received {header!r}"
        )
    wanted = {role: column for role, column in columns.items() if column is not None}
    if not set(wanted) - set(optional):
        raise ConfigError("`columns` must select a column that is not optional")
    for role, column in wanted.items():
        if isinstance(column, bool) or not isinstance(column, str | int):
            raise ConfigError(
                f"the column of `{role}` must be a name or a number; "
                f"received {column!r}"
            )
        if isinstance(column, int) and column < 0:
            raise ConfigError(
                f"the column of `{role}` must be a number from 0; received {column}"
            )
    return wanted


def names_a_column(
    first: list[str], wanted: dict[str, str | int], optional: Sequence[str]
) -> bool:
    """Return whether the first row holds the name of a selected column.

    Args:
        first: its cells.
        wanted: role to the name or number of its column.
        optional: roles whose column may be missing.
    """
    names = {role: c for role, c in wanted.items() if _number(c) is None}
    return any(role not in optional or name in first for role, name in names.items())


def locate_columns(
    path: str,
    first: list[str],
    wanted: dict[str, str | int],
    optional: Sequence[str],
    named: bool,
    header: str,
) -> dict[str, int]:
    """Return the column index of each role found in the file.

    Args:
        path: the file, for messages.
        first: cells of the first row.
        wanted: role to the name or number of its column.
        optional: roles whose column may be missing.
        named: whether the first row holds the names.
        header: `auto`, `yes` or `no`.

    Raises:
        DataError: a column is missing, or two have its name.
    """
    found, missing = {}, []
    for role, column in wanted.items():
        number = _number(column)
        if named and isinstance(column, str) and column in first:
            if first.count(column) > 1:
                message = f"the header has more than one column {quote(column)}"
                raise DataError(message, path=path, line=1)
            found[role] = first.index(column)
        elif number is not None and number < len(first):
            found[role] = number
        elif role not in optional:
            missing.append(quote(column))
    if not missing:
        return found
    message = f"has no column {', '.join(missing)}; it has {existing(first, named)}"
    if named and header == "auto":
        message += "; if its first line is not a header, select columns by number"
    elif not named and any(_number(c) is None for c in wanted.values()):
        message += "; without a header, select columns by number"
    raise DataError(message, path=path)


def existing(first: list[str], named: bool) -> str:
    """Return the existing columns, for a message."""
    if named:
        more = ", …" if len(first) > 30 else ""
        return ", ".join(quote(name) for name in first[:30]) + more
    return f"columns 0 to {len(first) - 1}" if len(first) > 1 else "column 0 alone"


def quote(name: str | int) -> str:
    """Return a name in backquotes, shortened, for a message."""
    name = str(name)
    return f"`{name if len(name) <= 40 else name[:39] + '…'}`"


def refuse_hidden_header(path: str, cells: dict[str, list[str]]) -> None:
    """Raise if row 0 looks like a header: a known name, or text above numbers only.

    Raises:
        DataError: asks for `header`.
    """
    for role, (first, *rest) in cells.items():
        word = first.strip().casefold()
        above_numbers = (
            bool(rest) and not _is_float(first) and all(map(_is_float, rest))
        )
        if word in _HEADER_WORDS or word == role or above_numbers:
            raise DataError(
                f"the first row looks like a header (its `{role}` is {quote(first)}); "
                "set `header` to yes or no",
                path=path,
                line=1,
            )


def _number(column: str | int) -> int | None:
    """Return the number of a column, or `None` for a name."""
    if isinstance(column, int):
        return column
    return int(column) if column.isascii() and column.isdecimal() else None


def _is_float(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
