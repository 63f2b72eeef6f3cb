"""Convert what callers pass as texts to a list of plain Python values: `as_items`.

Lists, arrays, tensors, series, generators and tables are recognized by their methods
and attributes, so their libraries are not imported.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bert_keras.data.columns import Columns
from bert_keras.data.memory import unwrapped
from bert_keras.errors import DataError, received, shown

Forms = Sequence[Sequence[str]]
_UNREAD = ("Cc", "Cf", "Co")  # categories of characters that are no tokens


def as_items(
    texts: Any,
    forms: Forms = (("text",),),
    *,
    name: str = "texts",
    is_ordered: bool = True,
) -> list[Any]:
    """Return texts as a list with one item a row.

    Args:
        texts: an iterable of strings, or of tuples, lists or dicts of them: a list, an
            array or tensor, ragged or not, a series, a generator, a `tf.data.Dataset`
            of single rows; or a table with named columns, such as a dict of lists or
            a DataFrame, whose other columns are ignored. Bytes must be UTF-8.
        forms: alternative tuples of column names.
        name: name of the argument, for errors.
        is_ordered: whether the columns have an order, so that a row may be a tuple.

    Returns:
        Strings, tuples and lists of strings; other values unchanged. A row of a table
        is a tuple, or a single value if there is one column.

    Raises:
        DataError: the argument is not iterable, or has no order.
    """
    table = _as_table(texts)
    if table is not None:
        return _rows_of(table, forms, name)
    count = len(forms[0])
    if count > 1 and isinstance(texts, tuple) and len(texts) == count:
        if all(_is_column(each) for each in texts):
            raise DataError(
                f"each item of `{name}` must be one row; received a tuple of {count} "
                f"columns: give list(zip(*{name}))"
            )
    items = []
    for row, value in _numbered(texts, name):
        item = _item(value, forms, name, row)
        if not (is_ordered or isinstance(value, Mapping) or isinstance(item, str)):
            raise DataError(
                f"each item of `{name}` must be a dict with {' and '.join(forms[0])}, "
                f"which have no known order; received {shown(value)} at index {row}"
            )
        items.append(item)
    return items


def as_strings(texts: Any, *, name: str = "texts") -> list[str]:
    """Return texts as a list of strings, see `as_items`.

    Raises:
        DataError: an item is not a string.
    """
    items = as_items(texts, name=name)
    for row, item in enumerate(items):
        if not isinstance(item, str):
            raise DataError(
                f"each item of `{name}` must be a string; received "
                f"{shown(item)} at index {row}"
            )
    return items


def is_blank(text: str) -> bool:
    """Return whether a text has no tokens: it is empty, or all of its characters are
    spaces, or control characters and others that BERT's tokenizer leaves out.
    """
    return all(
        each.isspace() or unicodedata.category(each) in _UNREAD or each == "\ufffd"
        for each in text
    )


def query_and_documents(
    query: Any, documents: Any, *, name: str = "documents"
) -> tuple[str, list[str]]:
    """Return a query and the documents that are ranked for it, none of them empty.

    Args:
        query: a string.
        documents: as in `as_strings`.
        name: name of the documents, for errors.

    Raises:
        DataError: a text is empty or not a string.
    """
    (query,) = as_strings([query], name="query")
    if is_blank(query):
        raise DataError(f"`query` must not be empty; received {query!r}")
    texts = as_strings(documents, name=name)
    blank = next((at for at, text in enumerate(texts) if is_blank(text)), None)
    if blank is not None:
        raise DataError(
            f"`{name}` must not be empty; {received(texts[blank])} at index {blank}"
        )
    return query, texts


def _numbered(texts: Any, name: str) -> Iterable[tuple[int, Any]]:
    """Return the rows of a sequence or of an iterator with their numbers."""
    values = texts if isinstance(texts, str | bytes) else unwrapped(texts)
    known = isinstance(values, Iterable) or hasattr(values, "__len__")
    if not known or isinstance(values, str | bytes | set | frozenset):
        raise _not_a_list(texts, name)
    return enumerate(iter(values))


def _not_a_list(texts: Any, name: str) -> DataError:
    return DataError(f"`{name}` must be a list of strings; received {shown(texts)}")


def _item(value: Any, forms: Forms, name: str, row: int) -> Any:
    """Return one row; from a dict, the values of its columns."""
    if isinstance(value, Mapping):
        columns = _chosen(value, forms)
        if columns is None:
            raise DataError(
                f"each item of `{name}` must have {' and '.join(forms[0])}; "
                f"received {shown(dict(value))} at index {row}"
            )
        parts = tuple(value[column] for column in columns)
        value = parts if len(parts) > 1 else parts[0]
    try:
        return _plain(value)
    except UnicodeDecodeError as error:
        raise DataError(
            f"`{name}` must be UTF-8; received {shown(value)} at index {row}: "
            f"{error.reason} at byte {error.start}"
        ) from None


def _plain(value: Any) -> Any:
    """Return strings for bytes, and lists for arrays and tensors."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, tuple | list):
        parts = [_plain(part) for part in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    inside = unwrapped(value)
    return value if inside is value else _plain(inside)


def _is_column(value: Any) -> bool:
    return not isinstance(value, str | bytes | tuple | Mapping) and (
        isinstance(value, list) or unwrapped(value) is not value
    )


def _as_table(texts: Any) -> Mapping[str, Any] | None:
    """Return the columns of a table by name; `None` if it is not a table."""
    if isinstance(texts, Mapping):
        return texts
    if isinstance(texts, Columns):
        return texts.cells
    # Arrow, whose `columns` are not names, and `datasets`; else DataFrames.
    names = getattr(texts, "column_names", None)
    if not isinstance(names, list):
        names = getattr(texts, "columns", None)
    if names is None or callable(names) or not hasattr(texts, "__len__"):
        return None
    return {str(column): texts[column] for column in names}


def _rows_of(table: Mapping[str, Any], forms: Forms, name: str) -> list[Any]:
    columns = _chosen(table, forms)
    if columns is None:
        raise DataError(
            f"`{name}` must have the columns {' and '.join(forms[0])}; received "
            f"{', '.join(map(str, table))[:80] or 'none'}"
        )
    parts = []
    for column in columns:
        of_column = f"{name}[{column!r}]"
        if _as_table(table[column]) is not None:  # as if two have this name
            raise _not_a_list(table[column], of_column)
        parts.append(as_items(table[column], name=of_column))
    sizes = [len(part) for part in parts]
    if len(set(sizes)) > 1:
        raise DataError(
            f"`{name}` must have columns of one length; received "
            + ", ".join(f"{c} {n}" for c, n in zip(columns, sizes, strict=True))
        )
    return list(zip(*parts, strict=True)) if len(parts) > 1 else parts[0]


def _chosen(table: Mapping[str, Any], forms: Forms) -> Sequence[str] | None:
    return next((form for form in forms if all(c in table for c in form)), None)
