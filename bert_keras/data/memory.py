"""Rows in memory: data frames, Arrow tables, data sets, dicts and lists.

`rows_in_memory` turns each of them into `MemoryRows`, which the file readers accept in
place of a path. Types are recognized by their methods, and tables of other libraries by
Arrow's interface; only then is pyarrow imported.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from bert_keras.errors import ConfigError, DataError, NoRowsError
from bert_keras.files.parquet import is_stored, read_table

Row = tuple[int, dict[str, Any]]  # number, from 1, and cells by column

ACCEPTED = (
    "a path, a DataFrame, an Arrow table, a dict of lists, a list of dicts, a "
    "datasets.Dataset, or a finite tf.data.Dataset of dicts or (text, label) tuples"
)
_MISSING = ("NAType", "NaTType")  # of empty cells in pandas
_NUMBERS = (int, float, Decimal, np.number)


@dataclasses.dataclass(frozen=True)
class MemoryRows:
    """A table in memory, with rows as a JSONL file has them."""

    columns: dict[str, list[Any]]  # name to N cells: text, `None`, lists or dicts
    path: str = "rows in memory"  # or the Parquet file that holds them, for errors

    def rows(self) -> list[Row]:
        """Return number and cells of each row."""
        cells = zip(*self.columns.values(), strict=True)
        return [
            (number, dict(zip(self.columns, row, strict=True)))
            for number, row in enumerate(cells, 1)
        ]


def is_path(data: Any) -> bool:
    """Return whether data is a path."""
    return isinstance(data, str | os.PathLike)


def source_of(data: Any) -> str | MemoryRows:
    """Return the path of a file as a string, or the rows of a table in memory.

    A Parquet file is a table in memory, too. Something else raises a ConfigError.
    """
    if not is_path(data):
        return rows_in_memory(data)
    path = os.fspath(data)
    if not is_stored(path):
        return path
    return rows_of_file(path, read_table(path))


def rows_of_file(path: str, table: Any) -> MemoryRows:
    """Return the rows of a file that was read into a table."""
    try:
        return MemoryRows(rows_in_memory(table).columns, path)
    except DataError as error:
        raise DataError(error.message, path=path, line=error.line) from None


def rows_in_memory(data: Any, *, name: str = "data") -> MemoryRows:
    """Return the rows of a table in memory, of any type in `ACCEPTED` except a path.

    Class columns of `datasets`, also in a Parquet file, become class names. In a
    `tf.data.Dataset` the parts of an element are columns; the parts of a tuple are
    `text`, or `text` and `text_pair`, and `label`; elements whose parts all have a
    first dimension are batches. `name` is the argument, for errors.

    Raises:
        ConfigError: `data` is something else.
        NoRowsError: there are no rows.
        DataError: columns differ in length, or share a name.
    """
    if isinstance(data, MemoryRows):
        return data
    if isinstance(data, list | tuple) and all(isinstance(row, Mapping) for row in data):
        names = dict.fromkeys(str(key) for row in data for key in row)
        named = [{str(key): cell for key, cell in row.items()} for row in data]
        table = {key: [row.get(key) for row in named] for key in names}
    else:
        table = _table(data, name)
    sizes = {key: len(cells) for key, cells in table.items()}
    if not next(iter(sizes.values()), 0):
        raise NoRowsError("contain no rows", path=MemoryRows.path)
    if len(set(sizes.values())) > 1:
        listed = ", ".join(
            f"`{key}` {size:,}" for key, size in list(sizes.items())[:12]
        )
        raise DataError(
            f"columns must have the same number of rows; received {listed}",
            path=MemoryRows.path,
        )
    return MemoryRows(
        {
            key: [_plain(cell, row) for row, cell in enumerate(cells, 1)]
            for key, cells in table.items()
        }
    )


# What other tools write for a missing value.
MISSING_WORDS = ("nan", "NaN", "NULL", "null", "N/A", "NA", "<NA>", "#N/A", "None")


def is_missing(cell: Any) -> bool:
    """Return whether a cell is `None`, or what pandas and the like use in its place."""
    if cell is None or type(cell).__name__ in _MISSING:
        return True
    return isinstance(cell, _NUMBERS) and bool(cell != cell)


def _plain(cell: Any, row: int, *, nested: bool = False) -> Any:
    """Return a cell as if read from JSONL; numbers are strings, unless `nested` in a
    list; a missing cell is `None`.
    """
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, bytes):
        try:
            return cell.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"must be UTF-8; byte 0x{cell[error.start]:02x} is not"
            raise DataError(message, path=MemoryRows.path, line=row) from None
    if is_missing(cell):
        return None
    if isinstance(cell, Mapping):
        return {str(k): _plain(v, row, nested=True) for k, v in cell.items()}
    if isinstance(cell, np.ndarray) and cell.ndim or isinstance(cell, list | tuple):
        return [_plain(each, row, nested=True) for each in cell]
    if isinstance(cell, np.ndarray):  # of no dimension
        return _plain(cell[()], row, nested=nested)
    if isinstance(cell, bool | np.bool_):
        return bool(cell) if nested else json.dumps(bool(cell))
    if isinstance(cell, _NUMBERS):
        if nested:
            return cell.item() if isinstance(cell, np.number) else cell
        try:
            return str(cell)
        except ValueError:  # Python does not format integers of more than 4,300 digits
            message = "holds a number of too many digits"
            raise DataError(message, path=MemoryRows.path, line=row) from None
    return cell  # the reader reports what it must be


def _table(data: Any, name: str) -> dict[str, list[Any]]:
    """Return the cells of each column."""
    if isinstance(data, Mapping):
        if data and all(is_column(cells) for cells in data.values()):
            return {str(key): _cells(cells) for key, cells in data.items()}
        if data and not any(is_column(cells) for cells in data.values()):
            splits = ", ".join(map(str, list(data)[:12]))
            raise ConfigError(
                f"`{name}` must be one data set, or a dict of lists; received a dict "
                f"of {splits}: choose one"
            )
    elif hasattr(data, "element_spec") and hasattr(data, "as_numpy_iterator"):
        return _of_tensorflow(data, name)
    elif isinstance(getattr(data, "column_names", None), list):
        if hasattr(data, "to_pydict"):  # Arrow
            return _named_classes(data, _unique(data.column_names, data.to_pydict()))
        if hasattr(data, "to_dict"):  # datasets
            return _named_classes(data, _unique(data.column_names, data.to_dict()))
    elif hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas, polars
        names = [str(column) for column in data.columns]
        _check_unique(names)
        pairs = zip(names, data.columns, strict=True)
        return {key: _cells(data[column]) for key, column in pairs}
    elif hasattr(data, "__arrow_c_stream__"):  # of any other library
        import pyarrow

        with contextlib.suppress(pyarrow.ArrowException, TypeError):  # a column alone
            return _table(pyarrow.table(data), name)
    raise ConfigError(f"`{name}` must be {ACCEPTED}; received {_kind(data)}")


def is_data(value: Any) -> bool:
    """Return whether a value is a whole data set, not a column of one."""
    if is_path(value) or isinstance(value, Mapping):
        return True
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(row, Mapping) for row in value)
    return any(hasattr(value, a) for a in ("column_names", "columns", "element_spec"))


def is_column(cells: Any) -> bool:
    """Return whether a value is the cells of a column: a list, an array, a series."""
    if isinstance(cells, str | bytes | Mapping) or not isinstance(cells, Iterable):
        return False
    return hasattr(cells, "__len__") and not hasattr(cells, "column_names")


def _cells(column: Any) -> list[Any]:
    """Return the cells of a column; NumPy's numbers keep their precision."""
    return list(column if isinstance(column, np.ndarray) else unwrapped(column))


def unwrapped(value: Any) -> Any:
    """Return the values of a tensor, array, series or dataset; others unchanged.

    Zero-dimensional ones give a scalar.
    """
    # RaggedTensor, pandas and polars; Arrow; tf.data; tensors; NumPy.
    for way in ("to_list", "to_pylist", "as_numpy_iterator", "numpy", "tolist"):
        method = getattr(value, way, None)
        if callable(method):
            inside = method()
            return unwrapped(inside) if way == "numpy" else inside
    return value


def _unique(names: list[str], table: Mapping[str, Any]) -> dict[str, list[Any]]:
    _check_unique(names)
    return {key: list(table[key]) for key in names}


def _check_unique(names: list[str]) -> None:
    for key, count in collections.Counter(names).items():
        if count > 1:
            message = f"must have one column `{key[:40]}`; have {count}"
            raise DataError(message, path=MemoryRows.path)


def _named_classes(data: Any, table: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return columns of `datasets` with class numbers replaced by names."""

    def named(cell: Any, classes: list[str]) -> Any:
        if isinstance(cell, list):
            return [named(each, classes) for each in cell]
        known = isinstance(cell, int) and 0 <= cell < len(classes)
        return classes[cell] if known else cell

    features = getattr(data, "features", None) or _features_of_arrow(data)
    for key, cells in table.items():
        names = _class_names_of(features.get(key))
        if names is not None:
            table[key] = [named(cell, names) for cell in cells]
    return table


def _class_names_of(feature: Any) -> list[str] | None:
    """Return the class names of a column of `datasets`, or of its items."""
    if isinstance(feature, Mapping):  # as written into Arrow's schema
        inside, names = feature.get("feature"), feature.get("names")
    else:
        inside, names = getattr(feature, "feature", None), getattr(feature, "names", 0)
    if inside is not None:
        return _class_names_of(inside)
    return names if isinstance(names, list) else None


def _features_of_arrow(data: Any) -> dict[str, Any]:
    """Return the features that `datasets` writes into the schema of Arrow and Parquet
    files, by column.
    """
    metadata = getattr(getattr(data, "schema", None), "metadata", None) or {}
    try:
        found = json.loads(metadata.get(b"huggingface") or b"{}")["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _of_tensorflow(data: Any, name: str) -> dict[str, list[Any]]:
    """Return the columns of a `tf.data.Dataset`."""
    if int(data.cardinality()) == -1:
        raise ConfigError(f"`{name}` must be a finite tf.data.Dataset; it is infinite")
    parts = _named_parts(data.element_spec, name)
    ranks = [getattr(spec, "shape", None) for spec in parts.values()]
    if any(shape is None or shape.rank is None for shape in ranks):
        raise ConfigError(f"`{name}` must have elements of a known rank")
    batched = all(shape.rank for shape in ranks)  # type: ignore[union-attr]
    table: dict[str, list[Any]] = {key: [] for key in parts}
    for element in data:
        for key, part in _named_parts(element, name).items():
            cells = part.to_list() if hasattr(part, "to_list") else part.numpy()
            table[key].extend(cells if batched else [cells])
    return table


def _named_parts(element: Any, name: str) -> dict[str, Any]:
    """Return the parts of a data set's element, or of its spec, by column."""
    if isinstance(element, Mapping):
        return {str(key): part for key, part in element.items()}
    if isinstance(element, tuple) and len(element) == 2:
        texts, label = element
        if isinstance(texts, Mapping):
            return {**_named_parts(texts, name), "label": label}
        if not isinstance(texts, tuple):
            return {"text": texts, "label": label}
        if len(texts) == 2:
            return {"text": texts[0], "text_pair": texts[1], "label": label}
    elif not isinstance(element, tuple):
        return {"text": element}
    raise ConfigError(
        f"`{name}` must be a tf.data.Dataset of dicts, of (text, label), or of "
        f"((text, text_pair), label); received tuples of {len(element)}"
    )


def _kind(data: Any) -> str:
    kind = type(data)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"
