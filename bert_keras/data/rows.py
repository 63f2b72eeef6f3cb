"""The numbered rows of a user's TSV or CSV file, its header and its columns.

A file is a local path or a name such as `hf://datasets/owner/name/train.csv`, and may
be compressed; see `files.streams`. Its ending determines the format:

* `.tsv`, `.txt`: cells between tabs, one row a line, quotes are plain characters, as in
  the GLUE files (CoLA and MRPC hold unbalanced quotes).
* `.csv`: RFC 4180; a quoted cell may hold commas, quotes and line breaks.
* `.jsonl`, `.ndjson`, `.json`: JSON, see `json_rows`.
* any other ending: JSONL if the first line begins with `{`, else TSV if it holds a tab,
  else CSV if it holds a comma, else TSV (a file of one column).

A first line `sep=;`, as Excel has it, or a header whose names are found only between
other delimiters, decides over the ending, see `dialect_of`. Every file is UTF-8, with
or without a byte order mark, or Western text in Windows-1252; lines end in LF or CR LF.
Empty lines at the end of a file are skipped. Columns are selected by name or number;
`refuse_hidden_header` detects a header that would be read as a row.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import math
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from bert_keras.errors import (
    ConfigError,
    DataError,
    NoColumnError,
    NoRowsError,
    first_of,
)
from bert_keras.files.parquet import is_stored
from bert_keras.files.streams import COMPRESSED, bytes_of, decoded, lines_of
from bert_keras.runs.notes import say_once
from bert_keras.settings import BAD_ROWS, HEADER, check_choice

FORMATS = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
AnyRow = TypeVar("AnyRow")
ColumnNames = Mapping[str, str | int | None]  # role to the name or number of its column
_MOST_CELL = 64 << 20  # characters of a CSV cell that is read by line
_START = 1 << 20  # characters of a file that tell its format
_MOST_FOREIGN = 0.05  # share of bytes beyond ASCII in Western text
_SEPARATOR = re.compile(r'"?sep=(.)"?\r?(?:\n|\Z)', re.IGNORECASE)
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def read_text(path: str) -> str:
    """Return the text of a UTF-8 file without byte order mark and trailing empty lines.

    Raises:
        DataError: the file is missing, a folder, unreadable, empty, not UTF-8, or holds
            a NUL character.
    """
    data = bytes_of(path)
    try:
        text = decoded(path, 1, data)
    except DataError as error:
        found = _as_western(data)
        if found is None:
            raise
        say_once(f"{error}: read as Windows-1252 (Western European)")
        text = found
    text = text.rstrip("\r\n")
    if not text.strip():
        raise NoRowsError("is empty", path=path)
    return text


def _as_western(data: bytes) -> str | None:
    """Return the text of bytes in Windows-1252; `None` if they may be anything else.

    Almost all of such a text is ASCII, and none of it is UTF-8 by accident.
    """
    foreign = len(data) - len(data.decode("ascii", "ignore"))
    is_partly_utf8 = not data.decode("utf-8", "ignore").isascii()
    if b"\0" in data or is_partly_utf8 or foreign > _MOST_FOREIGN * len(data):
        return None
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return None


def stream_lines(path: str) -> Iterator[str]:
    """Yield the lines of a UTF-8 file one by one, each with its line break.

    Skips and rejects what `read_text` does, but only when it is reached; needs the
    memory of the longest line.
    """
    blank: list[str] = []  # skipped at the end of the file
    found = False
    for line in whole_lines(_strict_or_western(path)):
        blank.append(line)
        if line.strip("\r\n"):
            found = found or bool(line.strip())
            yield from blank
            blank.clear()
    if not found:
        raise NoRowsError("is empty", path=path)


def whole_lines(parts: Iterable[str]) -> Iterator[str]:
    """Yield lines from parts of very long ones, each with a line break."""
    line: list[str] = []
    for part in parts:
        line.append(part)
        if part.endswith("\n"):
            yield "".join(line)
            line.clear()
    if line:
        yield "".join([*line, "\n"])


def without_break(line: str) -> str:
    """Return a line without its line break, LF or CR LF."""
    return line.removesuffix("\n").removesuffix("\r")


def start_of(path: str) -> str:
    """Return the first lines of a file, as `read_text` does; all of a small file.

    JSON is read as a whole unless it has one object a line.
    """
    lines = stream_lines(path)
    found = [next(lines)]
    first, size = found[0].strip(), len(found[0])
    is_row = first.startswith("{") and first.endswith("}")
    most = _START if is_row or format_of(path, first) != "jsonl" else math.inf
    while size < most and (line := next(lines, "")):
        found.append(line)
        size += len(line)
    return "".join(found).rstrip("\r\n")


def _strict_or_western(path: str) -> Iterator[str]:
    """Yield the parts of `lines_of`; the rest of Western text from the whole file."""
    done = 0  # characters, which are bytes: UTF-8 before Western text is an error
    try:
        for _, part in lines_of(path):
            yield part
            done += len(part)
    except DataError:
        yield from io.StringIO(read_text(path)[done:], newline="\n")


def ending_of(path: str) -> str:
    """Return the ending of a file's name in lower case, before `.gz` and the like."""
    stem, ending = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if ending in COMPRESSED else ending


def format_of(path: str, text: str) -> str:
    """Return `tsv`, `csv` or `jsonl`: by the file's ending, else by its first line."""
    ending = ending_of(path)
    if ending in FORMATS:
        return FORMATS[ending]
    first = text.partition("\n")[0]
    if first.lstrip().startswith(("{", "[{")) or first.strip() == "[":
        return "jsonl"
    return "csv" if "," in first and "\t" not in first else "tsv"


def has_objects(path: str) -> bool:
    """Return whether the rows of a file are objects, with names and typed values."""
    return is_stored(path) or format_of(path, next(stream_lines(path))) == "jsonl"


def batched(rows: Iterable[AnyRow], size: int) -> Iterator[list[AnyRow]]:
    """Yield lists of a size; the last may be shorter."""
    rows = iter(rows)
    while some := list(itertools.islice(rows, size)):
        yield some


def dialect_of(
    path: str, text: str, *, names: Sequence[str] = (), has_header: bool = True
) -> tuple[str, str]:
    """Return the format of a table, `tsv` or `csv`, and its delimiter.

    A first line such as `sep=;` determines them, as in Excel; else the file's name,
    unless only another delimiter splits the header so that it contains all `names` or,
    without names, has several cells. Only a header is examined; text may hold any
    character.
    """
    if declared := _SEPARATOR.match(text):
        return "csv", declared[1]
    kind = format_of(path, text)
    usual = "\t" if kind == "tsv" else ","
    header = text.partition("\n")[0].removesuffix("\r")
    first = _header_cells(header, usual)
    if not has_header or (set(names) <= set(first) if names else len(first) > 1):
        return kind, usual
    for delimiter, plural in _DELIMITERS.items():
        cells = _header_cells(header, delimiter)
        is_header = len(cells) == len(set(cells)) > 1 and all(cells)
        if not is_header or any(map(_is_float, cells)) or not set(names) <= set(cells):
            continue
        if delimiter != usual:
            say_once(f"{path}: cells are separated by {plural}, as in its header")
            return "csv", delimiter
    return kind, usual


def declares_delimiter(first: str) -> bool:
    """Return whether the first line of a table only names its delimiter."""
    return _SEPARATOR.match(first) is not None


def check_header(source: Any, header: str) -> None:
    """Raise ConfigError if `header` is given for a file whose rows have names.

    Data that is not a path is no file.
    """
    if header == HEADER[0] or not isinstance(source, str | os.PathLike):
        return
    check_choice("header", header, HEADER)
    path = os.fspath(source)
    if has_objects(path):
        raise ConfigError(
            f"`header` is for tables of TSV and CSV; received {header} for {path}, "
            "whose rows have names"
        )


def _header_cells(header: str, delimiter: str) -> list[str]:
    """Return the names in a line; none if it is not a row of its own."""
    try:
        rows = list(csv.reader([header], delimiter=delimiter, strict=True))
    except csv.Error:
        return []
    return [cell.strip() for cell in rows[0]] if rows else []


def table_rows(
    path: str, text: str | Iterable[str], dialect: tuple[str, str]
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the cells of each row of a table, see `dialect_of`.

    A line that only names the delimiter is no row.
    """
    kind, delimiter = dialect
    rows = tsv_rows(text) if kind == "tsv" else csv_rows(path, text, delimiter)
    first = next(rows)
    if _SEPARATOR.fullmatch(delimiter.join(first[1])):
        first = next(rows, (0, []))
    if not first[0]:
        raise NoRowsError("contains no rows", path=path)
    yield first
    yield from rows


def tsv_rows(text: str | Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the line and the cells of each row; the text may come in lines."""
    # Not `splitlines`: it would also break at U+2028 and other marks inside a text.
    lines = text.split("\n") if isinstance(text, str) else text
    for number, line in enumerate(lines, 1):
        yield number, without_break(line).split("\t")


def csv_rows(
    path: str, text: str | Iterable[str], delimiter: str = ","
) -> Iterator[tuple[int, list[str]]]:
    """Yield the line at which each row begins, and its cells.

    The text may come in lines, one by one; a cell then has at most 64 MiB.

    Raises:
        DataError: a quote is not closed, or is not followed by a comma.
    """
    limit, longest = csv.field_size_limit(), _MOST_CELL
    if isinstance(text, str):
        longest = len(text) + 1
        text = io.StringIO(text, newline="")
    else:
        text = itertools.chain.from_iterable(map(_at_returns, text))
    csv.field_size_limit(max(limit, longest))
    # Strict, because an unclosed quote would otherwise swallow the rest of the file.
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    line = 1
    try:
        for row in reader:
            yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        message = f"is not CSV: in the row that begins here, {error}"
        raise DataError(message, path=path, line=line) from None
    finally:
        csv.field_size_limit(limit)


def _at_returns(line: str) -> Iterable[str]:
    """Return the parts of a line up to each CR, as the `csv` module counts lines."""
    return io.StringIO(line, newline="") if "\r" in line[:-2] else (line,)


def good_rows(
    path: str,
    rows: Sequence[tuple[int, Any]],
    problems: Sequence[tuple[int, str]],
    *,
    bad_rows: str,
) -> list[int]:
    """Return the rows without a problem, by index from 0; a note counts the others.

    Args:
        path: the file.
        rows: lines and what they hold.
        problems: lines and messages.
        bad_rows: `skip`; otherwise a problem is an error, see `refuse_lines`.
    """
    wrong = {line for line, _ in problems}
    kept = [row for row, (line, _) in enumerate(rows) if line not in wrong]
    if bad_rows != "skip" or not kept:
        refuse_lines(path, problems)
    if len(kept) < len(rows):
        line, reason = min(problems)
        say_once(
            f"{path}: left out {len(rows) - len(kept):,} of {len(rows):,} rows, which "
            f"are wrong: line {line} {reason}{' …' if len(wrong) > 1 else ''}"
        )
    return kept


def refuse_lines(path: str, problems: Sequence[tuple[int, str]]) -> None:
    """Raise one DataError for all bad lines, with their count and the first ten."""
    if not problems:
        return
    by_line: dict[int, list[str]] = {}
    for line, message in sorted(problems):
        by_line.setdefault(line, []).append(message)
    reasons = [
        (line, " and ".join(dict.fromkeys(messages)))
        for line, messages in by_line.items()
    ]
    first_line, first_reason = reasons[0]
    if len(reasons) == 1:
        raise DataError(first_reason, path=path, line=first_line)
    named = [f"line {line}: {reason}" for line, reason in reasons]
    message = f"{len(reasons)} bad lines: {first_of(named, between='; ')}"
    raise DataError(message, path=path, line=first_line)


# A first row with one of these in a column selected by number is probably a header.
_HEADER_WORDS = frozenset(
    "text text_a text_b text_pair sentence sentence1 sentence2 question "
    "label labels class category target score".split()
)
# Names that other tools give to the columns of the roles with an option of their own.
_OTHER_NAMES = {
    "label": frozenset(
        "labels label_text target category class sentiment topic intent score rating "
        "similarity y".split()
    ),
    "text": frozenset(
        "texts text_a sentence sentence1 content body message review comment tweet "
        "premise x".split()
    ),
    "text_pair": frozenset("text_b text2 sentence2 hypothesis".split()),
}


@dataclasses.dataclass(frozen=True)
class Selection:
    """The columns to read of a file, each a name or a number, by role."""

    columns: dict[str, str | int]
    optional: Sequence[str] = ()  # roles whose column may be missing
    empty: Sequence[str] = ()  # roles whose cells may be empty
    lists: Sequence[str] = ()  # roles whose cells may be lists in JSONL
    singles: Sequence[str] = ()  # roles whose cells may be a list of one text in JSONL
    nulls: Sequence[str] = ()  # roles whose cells may be null in JSONL
    whole: Sequence[str] = ()  # roles whose values in JSONL are not read as text
    header: str = "auto"  # or `yes`, `no`
    bad_rows: str = "error"  # or `skip`, or `keep` those with empty cells
    unread: Sequence[str] = ()  # columns of which a note tells that they are not read
    fixed: bool = False  # whether the user cannot select other columns

    @property
    def names(self) -> list[str]:
        """The names of the columns that must exist."""
        return [
            str(column)
            for role, column in self.columns.items()
            if role not in self.optional and _number(column) is None
        ]

    def tell_unread(self, path: str, names: Sequence[str]) -> None:
        """Report columns that the user may expect to be read."""
        for name in self.unread:
            if name in names and name not in self.columns.values():
                say_once(f"{path}: the column {quote(name)} is not read")

    def names_a_column(self, first: list[str]) -> bool:
        """Return whether the first row holds the name of a selected column."""
        known = set(first)
        return bool(self.names) or any(
            _number(column) is None and column in known
            for column in self.columns.values()
        )

    def locate(
        self, path: str, first: list[str], *, named: bool, delimiter: str = "\t"
    ) -> dict[str, int]:
        """Return the column index of each role found in the file.

        `first` are the cells of the first row, `named` is whether they are names, and
        `delimiter` is what separates them.

        Raises:
            DataError: a column is missing, or two have its name.
        """
        found, missing = {}, []
        places: dict[str, list[int]] = {}
        for place, name in enumerate(first if named else ()):
            places.setdefault(name, []).append(place)
        for role, column in self.columns.items():
            number = _number(column)
            if isinstance(column, str) and column in places:
                if len(places[column]) > 1:
                    message = f"the header has more than one column {quote(column)}"
                    raise DataError(message, path=path, line=1)
                found[role] = places[column][0]
            elif number is not None and number < len(first):
                found[role] = number
            elif role not in self.optional:
                missing.append(quote(column))
        if not missing:
            return found
        message = f"has no column {', '.join(missing)}; it has {existing(first, named)}"
        if len(first) == 1:
            message += f", as read between {_DELIMITERS[delimiter]}"
        if self.fixed:
            raise NoColumnError(message, path=path)
        if named and len(first) > 1:
            message += self.other_columns(first, missing)
        role = next(r for r, name in self.columns.items() if quote(name) in missing)
        by_number = f"select columns by number, such as {_option_of(role, '0')}"
        if named and self.header == "auto":
            message += f"; if its first line is not a header, {by_number}"
        elif not named and any(_number(c) is None for c in self.columns.values()):
            message += f"; without a header, {by_number}"
        raise NoColumnError(message, path=path)

    def other_columns(self, names: Sequence[str], missing: Sequence[str]) -> str:
        """Return how to select a column in place of a missing one, for a message.

        `names` are the columns of the data, `missing` the quoted names it lacks.
        """
        roles = [role for role, name in self.columns.items() if quote(name) in missing]
        chosen = []
        for role in roles:
            known = {role, *_OTHER_NAMES.get(role, ())}
            alike = [name for name in names if name.strip().casefold() in known]
            chosen.append(_option_of(role, alike[0] if len(alike) == 1 else "NAME"))
        if not chosen:
            return ""
        what = "another column" if len(chosen) == 1 else "other columns"
        return f"; to read {what}: {' '.join(chosen)} (in Python `columns`)"


def _option_of(role: str, column: str) -> str:
    """Return the option of the command line that selects the column of a role."""
    if role in _OTHER_NAMES or role == "id":
        return f"--{role.replace('_', '-')} {shlex.quote(column)}"
    return f"--column {shlex.quote(f'{role}={column}')}"


def selection_of(columns: ColumnNames, **options: Any) -> Selection:
    """Return the selected columns; a role of `None` is left out.

    Raises:
        ConfigError: a column or `header` is wrong.
    """
    wanted = {role: column for role, column in columns.items() if column is not None}
    found = Selection(wanted, **options)
    check_choice("header", found.header, HEADER)
    check_choice("bad_rows", found.bad_rows, BAD_ROWS)
    if found.bad_rows == "keep":
        found = dataclasses.replace(found, empty=list(wanted), nulls=list(wanted))
    if not set(wanted) - set(found.optional):
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
    return found


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


def repeated_headers(
    header: Sequence[str], data: Iterable[tuple[int, list[str]]]
) -> list[tuple[int, str]]:
    """Return the rows that repeat the header, as in concatenated files."""
    names = set(header)
    reason = "is a header again, as where two files were put together: remove it"
    return [
        (line, reason)
        for line, row in data
        if row and row[0].strip() in names and {cell.strip() for cell in row} == names
    ]


def refuse_hidden_header(path: str, cells: Mapping[str, Sequence[str]]) -> None:
    """Raise if row 0 looks like a header: a known name, or text above numbers only."""
    for role, column in cells.items():
        rest = iter(column)
        first = next(rest)
        word = first.strip().casefold()
        above_numbers = (
            len(column) > 1 and not _is_float(first) and all(map(_is_float, rest))
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
