"""The objects of a user's JSON file, and the texts in their values.

One object a line, or one array of objects, which may be `data` of an object. Numbers
keep their spelling: they are strings.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

from bert_keras.data.rows import refuse_lines
from bert_keras.errors import DataError, NoRowsError
from bert_keras.files.json_file import is_unicode, refuse_constant


def json_rows(
    path: str, text: str, *, first_line: int = 1
) -> list[tuple[int, dict[str, Any]]]:
    """Return the line and the object of each row; numbers are strings, as written.

    The text may be a part of the file that begins at `first_line`. A whole file may
    also be one array of objects.

    Raises:
        DataError: a line is not a JSON object.
    """
    if first_line == 1 and text.lstrip().startswith("["):
        return _array_rows(path, text)
    if first_line == 1 and one_object(text) is not None:
        return _array_rows(path, text, key="data")
    rows, problems = [], []
    decode = _decoder().decode
    for line, source in enumerate(text.split("\n"), first_line):
        try:
            row = decode(source)
        except json.JSONDecodeError as error:
            reason = f"is not JSON: {error.msg} at character {error.colno}"
            problems.append((line, reason if source.strip() else "is blank"))
        except (ValueError, RecursionError) as error:
            problems.append((line, f"is not JSON: {error}"))
        else:
            if isinstance(row, dict):
                rows.append((line, row))
            else:
                problems.append((line, "must be one JSON object, {…}"))
    refuse_lines(path, problems)
    return rows


def _decoder() -> json.JSONDecoder:
    """Return a decoder whose numbers are strings, as written."""
    return json.JSONDecoder(
        parse_int=str, parse_float=str, parse_constant=refuse_constant
    )


def _array_rows(
    path: str, text: str, *, key: str = ""
) -> list[tuple[int, dict[str, Any]]]:
    """Return the line and the object of each item of an array, or of an object's `key`.

    Items that share a line, or are in an object, are numbered from 1 instead.
    """
    decoder, rows = _decoder(), []
    if key:
        whole = decoder.decode(text)
        items = whole.get(key)
        if not isinstance(items, list) or any(
            isinstance(item, dict) and "paragraphs" in item for item in items
        ):
            raise DataError(
                "must hold one JSON object per line, each a row; it is a single "
                "object, as SQuAD's files are",
                path=path,
            )
        found = list(enumerate(items, 1))
    else:
        found = list(_array_items(path, text, decoder))
        if len({line for line, _ in found}) < len(found):  # several on a line
            found = [(number, item) for number, (_, item) in enumerate(found, 1)]
    for line, item in found:
        if not isinstance(item, dict):
            raise DataError("must be one JSON object, {…}", path=path, line=line)
        rows.append((line, item))
    if not rows:
        raise NoRowsError("contains no row", path=path)
    return rows


def _array_items(
    path: str, text: str, decoder: json.JSONDecoder
) -> Iterator[tuple[int, Any]]:
    """Yield the line and the value of each item of an array."""
    line, counted = 1, 0
    place = _after_space(text, text.index("[") + 1)
    while place < len(text) and text[place] != "]":
        line, counted = line + text.count("\n", counted, place), place
        try:
            item, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", error)
            message = f"is not JSON: {reason}"
            raise DataError(message, path=path, line=line) from None
        yield line, item
        place = _after_space(text, end)
        if text[place : place + 1] == ",":
            place = _after_space(text, place + 1)
    if text[place:].strip() != "]":
        message = "is not JSON: the array must end the file"
        raise DataError(message, path=path, line=line)


def _after_space(text: str, place: int) -> int:
    """Return the place of the first character that is not JSON's white space."""
    while text[place : place + 1] in (" ", "\t", "\n", "\r"):
        place += 1
    return place


def one_object(text: str) -> dict[str, Any] | None:
    """Return the whole text as a single JSON object, if it is one.

    It takes several lines, or has a list `data`: otherwise it is a row.
    """
    first, _, more = text.partition("\n")
    if not text.startswith("{") or more and first.rstrip().endswith("}"):
        return None  # rows, or an object that is broken
    try:
        found: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if more or isinstance(found.get("data"), list) else None


def json_cell(
    value: Any, *, empty: bool = False, is_list: bool = False
) -> tuple[str, str]:
    """Return a value as text and its fault, empty if there is none.

    With `empty` it may also be a blank string, and with `is_list` a list of texts,
    which is returned as JSON.
    """
    if empty and isinstance(value, str) and not value.strip():
        return value, ""
    if is_list and _is_list_of_texts(value):
        return json.dumps(value), ""
    if value is None:
        return "", "is missing"
    if isinstance(value, bool):
        return ("true" if value else "false"), ""
    if isinstance(value, int | float):  # in a list in memory
        return str(value), ""
    if not isinstance(value, str):
        return "", f"must be text or a number; received a {type(value).__name__}"
    if not value.strip():
        return "", "is empty"
    if "\0" in value or not is_unicode(value):
        return "", "holds a NUL character or half of a surrogate pair"
    return value, ""


_ITEM = re.compile(r"""'([^']*)'|"([^"]*)"|([-+.\w]+)""")
_NUMPY = re.compile(
    r"""\[\s*('[^']*'|"[^"]*")(\s+('[^']*'|"[^"]*"))+\s*\]|\[\s*\d+(\s+\d+)+\s*\]"""
)

_ARRAY = re.compile(r"\barray\((\[[^\]]*\])(?:,\s*dtype=\w+)?\)")


def list_in(cell: str) -> list[Any] | None:
    """Return the list that a cell spells: JSON, or as Python or NumPy prints it."""
    found = value_in(cell)
    return found if isinstance(found, list) else None


def value_in(cell: str) -> list[Any] | dict[str, Any] | None:
    """Return the list or the dict that a cell spells; other values are `None`.

    Example:
        >>> value_in("['food', 'tea']"), value_in('["food"]'), value_in("('food',)")
        (['food', 'tea'], ['food'], ['food'])
        >>> value_in("['food' 'tea']"), value_in("[0 2]"), value_in("[food]")
        (['food', 'tea'], ['0', '2'], None)
        >>> value_in("{'a': array([1], dtype=int32)}")
        {'a': [1]}
    """
    text = cell.strip()
    if text[:1] not in ("[", "(", "{") or text[-1:] not in ("]", ")", "}"):
        return None
    if _NUMPY.fullmatch(text):  # Python would join the words
        return [first or second or word for first, second, word in _ITEM.findall(text)]
    text = _ARRAY.sub(r"\1", text)
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(found, set):
            return sorted(found, key=str)
        if isinstance(found, list | tuple):
            return list(found)
        if isinstance(found, dict):
            return found
    return None


def whole_number(value: Any) -> int | None:
    """Return the whole number from 0 that a cell holds; other values are `None`.

    Cells of files are strings, and a column with missing cells has `3.0` for 3.
    """
    found = re.fullmatch(r"(\d{1,18})(\.0+)?", str(value), re.ASCII)
    return int(found[1]) if found else None


def _is_list_of_texts(value: Any) -> bool:
    """Return whether a value is a list, perhaps empty, of non-empty texts."""
    return isinstance(value, list) and all(
        not isinstance(item, bool) and not json_cell(item)[1] for item in value
    )
