"""What `TaskModel.fit` reads: rows in memory, checked and split, and datasets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.holdout import Strata, stratified_holdout, uncovered_classes
from bert_keras.data.memory import is_missing, unwrapped
from bert_keras.data.table import as_columns
from bert_keras.errors import ConfigError, DataError, first_of, received, shown
from bert_keras.files.json_file import is_unicode
from bert_keras.runs.notes import say
from bert_keras.settings import check_share, options_of
from bert_keras.tasks.base import Task, roles_with
from bert_keras.tasks.protocols import input_specs
from bert_keras.text.preprocessor import one_or_all


def new_seed() -> int:
    """Return a seed derived from the seed of `keras.utils.set_random_seed`."""
    return int(np.random.randint(2**31))


def row_dataset(*rows: Any) -> tf.data.Dataset:
    """Return a dataset of texts, targets and weights; the last ones may be left out."""
    return tf.data.Dataset.from_tensor_slices(keras.utils.pack_x_y_sample_weight(*rows))


def check_rows(x: Any, y: Any, sample_weight: Any, *, of: str = "") -> None:
    """Raise ConfigError unless texts, targets and weights have the same rows, and some.

    A row without a value, or with a value of another type than the first, is a
    DataError. `of` names what they are part of.
    """
    if y is None and sample_weight is not None:
        raise ConfigError(f"`sample_weight`{of} must be None where `y` is None")
    first = None
    for name, part in (("x", x), ("y", y), ("sample_weight", sample_weight)):
        for leaf in _leaves(part) if part is not None or name == "x" else ():
            if not isinstance(leaf, list) and not getattr(leaf, "shape", ()):
                raise ConfigError(
                    f"`{name}`{of} must be a list, an array or a `tf.data.Dataset`; "
                    f"{received(leaf)}"
                )
            rows = _rows_of(leaf)
            first = rows if first is None else first
            if not rows:
                raise ConfigError(
                    f"`{name}`{of} must have at least one row; received 0"
                )
            if rows != first:
                raise ConfigError(
                    f"`{name}`{of} must have the same number of rows as `x`; "
                    f"received {rows} and {first}"
                )
            for row, cell in enumerate(() if tf.is_tensor(leaf) else leaf):
                if is_missing(cell):
                    raise DataError(
                        f"`{name}`{of} must have a value in each row; row {row} has "
                        f"{cell}"
                    )
                is_text = isinstance(cell, str)
                if name == "x" and is_text != isinstance(leaf[0], str):
                    raise DataError(
                        f"`x`{of} must hold one type of values; row {row} has "
                        f"{shown(cell)}, row 0 {shown(leaf[0])}"
                    )
                if is_text and name == "sample_weight" or not _is_unicode(cell):
                    rule = "numbers" if name == "sample_weight" else "Unicode text"
                    raise DataError(
                        f"`{name}`{of} must hold {rule}; row {row} has {shown(cell)}"
                    )


def _is_unicode(cell: Any) -> bool:
    """Return whether the texts of a cell are without half of a surrogate pair."""
    if isinstance(cell, list | tuple):
        return all(map(_is_unicode, cell))
    return not isinstance(cell, str) or is_unicode(cell)


def check_not_one_hot(loss: Any, x: Any, y: Any, output: Any, *, of: str = "") -> None:
    """Raise ConfigError for one-hot labels where the loss takes the numbers of classes.

    Args:
        loss: what the model is trained with.
        x, y: what `read_rows` returns.
        output: of the model.
        of: what they are part of, for messages.
    """
    if isinstance(x, tf.data.Dataset):
        spec = x.element_spec
        y = spec[1] if isinstance(spec, tuple) and len(spec) > 1 else None
    takes_numbers = keras.losses.SparseCategoricalCrossentropy
    if y is None or not isinstance(loss, takes_numbers):
        return
    shape = tuple(y.shape if hasattr(y, "shape") else np.shape(y))
    if len(shape) > 1 and shape[1:] == output.shape[1:]:
        raise ConfigError(
            f"`y`{of} must be one class for each row, [N], with the loss "
            f"{type(loss).__name__}; received shape {shape}: one-hot labels need "
            "compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True))"
        )


def has_texts(task: Task, x: Any) -> bool:
    """Return whether `x` is a dict of texts by role, not a batch dict."""
    return isinstance(x, dict) and set(task.roles) <= set(x)


def check_columns(task: Task, columns: Any) -> list[str]:
    """Return the columns of a dict of texts by role that are not read.

    Raises:
        ConfigError: without one of them the model would learn or answer otherwise.
    """
    unread = [name for name in columns if name not in task.roles]
    more = {"text_pair", *roles_with(task.columns, "optional")} - {"label", "id"}
    for name in unread:
        if name in more and name in task.columns or name == "sample_weight":
            raise ConfigError(
                f"`x` of this {task.name} model must be {', '.join(task.roles)}; "
                f"received {name}, too, which it does not read"
            )
    return unread


def read_rows(
    task: Task,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    of: str = "",
    is_labelled: bool = True,
) -> tuple[Any, Any, Any]:
    """Return texts, targets and weights as Keras reads them, after checking them.

    Of dicts by role, a dataset's, too, the texts are read and, unless there are other
    targets, `label`; further columns are reported. Series become lists, and lists of
    unequal length are filled with empty strings, or -1. Batch dicts are unchanged.

    Args:
        task: the task that reads the rows.
        x, y, sample_weight: as `fit` takes them.
        of: what they are part of, for messages.
        is_labelled: whether a column `label` of dicts is read.

    Raises:
        ConfigError: see `check_columns` and `check_rows`, or they have another form.
        DataError: see `check_rows`.
    """
    x, y = _read_columns(task, x, y, of=of, is_labelled=is_labelled)
    if isinstance(x, tf.data.Dataset | dict):
        first = tf.nest.flatten(getattr(x, "element_spec", ()))[:1]
        if any(spec.shape.rank == 0 for spec in first):
            raise ConfigError(f"`x`{of} must be a batched dataset: give data.batch(32)")
        return x, y, sample_weight
    if any([spec.shape.rank for spec in s] == [2] for s in input_specs(task).values()):
        _check_targets_of_lists(x, y, of)
    x = _each(lambda leaf: _plain(leaf, f"`x`{of}"), x)
    y = _each(lambda leaf: _plain(leaf, f"`y`{of}"), y)
    name = f"`sample_weight`{of}"
    sample_weight = _each(lambda leaf: _plain(leaf, name), sample_weight)
    check_rows(x, y, sample_weight, of=of)
    return _of_rank(task, x, of), y, sample_weight


def _read_columns(
    task: Task, x: Any, y: Any, *, of: str, is_labelled: bool
) -> tuple[Any, Any]:
    """Return texts and targets; dicts by role are read by column."""
    spec = getattr(x, "element_spec", x)
    texts, *others = spec if isinstance(spec, tuple) and spec else (spec,)
    if not has_texts(task, texts):
        return x, y
    unread = check_columns(task, texts)
    own = "label" in unread and "label" in task.columns
    has_label = is_labelled and own and y is None and not others
    if has_label:
        unread.remove("label")
    if unread:
        say(f"columns of `x`{of} that are not read: {', '.join(unread)}")
    if isinstance(x, dict):
        y = x["label"] if has_label else y
        return one_or_all(tuple(x[role] for role in task.roles)), y
    if has_label:
        x = x.map(lambda row: ({r: row[r] for r in task.roles}, row["label"]))
    return x, y


def unused_settings(task: Task, *, has_trained_head: bool) -> list[str]:
    """Return the settings that only `train` uses, with what `fit` takes instead.

    Targets are not scaled for a head that `train` made: it answers in their units.
    """
    options, found = options_of(type(task)), []
    for name, declared in options.items():
        instead, needs = declared.fit_takes, declared.needs
        if instead is None or getattr(task, name) in ("none", 0):
            continue
        is_off = isinstance(needs, tuple) and getattr(task, needs[0]) != needs[1]
        known = [each for each in instead if each in options]
        given = any(getattr(task, each) != options[each].default for each in known)
        if is_off or given or name == "scaling" and has_trained_head:
            continue
        hint = f" (give {' and '.join(f'`{each}`' for each in instead)})"
        found.append(f"{name} {getattr(task, name)}{hint if instead else ''}")
    return sorted(found)


def validation_rows(data: Any) -> tuple[Any, ...]:
    """Return the parts of `validation_data`: `x`, `y` and weights, or `x` alone."""
    is_tuple = isinstance(data, tuple | list)
    if hasattr(data, "shape") or is_tuple and len(data) not in (1, 2, 3):
        raise ConfigError(
            "`validation_data` must be (x, y), (x, y, sample_weight), a dict of "
            f"columns or a `tf.data.Dataset`; {received(data)}"
        )
    return tuple(data) if is_tuple else (data,)


def drawn(task: Task, data: Any, *, each_epoch: bool = False) -> Any:
    """Return a dataset of texts without targets with those that the task draws.

    In training, a dataset of texts also gets the numbers that draw their windows.
    They are drawn anew in each epoch, or the same each time.

    Raises:
        ConfigError: the task draws none.
    """
    if not isinstance(data, tf.data.Dataset):
        return data
    texts, targets, _ = keras.utils.unpack_x_y_sample_weight(data.element_spec)
    is_batch = isinstance(texts, dict) and not has_texts(task, texts)
    draws_windows = task.reads_windows and each_epoch
    if is_batch or (targets is not None and not draws_windows):
        return data

    def draw(row: Any, number: Any) -> Any:
        texts, *others = keras.utils.unpack_x_y_sample_weight(row)
        if isinstance(texts, dict) and targets is not None:
            texts = one_or_all(tuple(texts[role] for role in task.roles))
        others = [each for each in others if each is not None] or [None]
        count = tf.shape(tf.nest.flatten(texts)[0])[0]
        draws = tf.random.stateless_uniform(
            [count], [number, 0], maxval=tf.int64.max, dtype=tf.int64
        )
        return task.resample((texts, *others), draws)

    numbers = tf.data.Dataset.random(
        new_seed() if each_epoch else 0, rerandomize_each_iteration=each_epoch
    )
    found = tf.data.Dataset.zip((data, numbers)).map(draw)
    if isinstance(found.element_spec[1], tf.TensorSpec):
        return found
    raise ConfigError(f"`y` must be given for the task {task.name}; received None")


def split_rows(
    task: Task, data: tuple[Any, Any, Any], share: float, *, shuffle: bool
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return texts, targets and weights for training, and the held-out ones."""
    check_share("validation_split", share)
    if isinstance(data[0], tf.data.Dataset):
        raise ConfigError(
            "`validation_split` needs lists or arrays: give `validation_data` for "
            "a dataset"
        )
    check_rows(*data)
    total = _rows_of(_leaves(data[0])[0])
    count = total - math.floor(total * (1 - share))
    held_out = list(range(total - count, total))
    if shuffle:
        strata = _strata(task, data[1]) or [()] * total
        held_out = stratified_holdout(
            strata,
            count,
            seed=new_seed(),
            groups=_groups(task, data[0]),
            whole=task.scores_groups,
        )
        option = "`validation_split`"
        if missing := uncovered_classes(strata, held_out, option=option):
            say(f"the validation split of {len(held_out):,} rows has {missing}")
    kept = sorted(set(range(total)) - set(held_out))
    if not held_out or not kept:
        raise ConfigError(
            "`validation_split` must leave rows on both sides, and in training "
            f"one of each class; received {share} of {total} rows"
        )
    held = [tuple(_take(part, rows) for part in data) for rows in (kept, held_out)]
    return held[0], held[1]


def _groups(task: Task, x: Any) -> list[Any] | None:
    """Return the first text of each pair; `None` unless rows are pairs of texts."""
    if task.roles[0] != "text" or not isinstance(x, tuple) or len(x) != 2:
        return None
    return np.asarray(x[0], dtype=object).tolist()


def _strata(task: Task, y: Any) -> Strata:
    """Return the classes or quantiles of each row; an empty list if unknown."""
    labels: Any = np.asarray(y, dtype=object)
    if labels.ndim > 1:
        return task.target_strata(labels)
    one = (str, bytes, int, float, np.number)
    if labels.ndim != 1 or not all(isinstance(each, one) for each in labels):
        return []
    return task.strata(as_columns(label=labels), **task.get_config())


def _leaves(part: Any) -> list[Any]:
    """Return the lists and arrays of texts, targets or weights."""
    if isinstance(part, tuple):
        return [leaf for each in part for leaf in _leaves(each)]
    if isinstance(part, dict):
        return [leaf for each in part.values() for leaf in _leaves(each)]
    return [part]


def _rows_of(leaf: Any) -> int:
    return len(leaf) if isinstance(leaf, list) else leaf.shape[0]


def _each(function: Callable[[Any], Any], part: Any) -> Any:
    """Return texts, targets or weights with each list or array replaced."""
    if isinstance(part, tuple):
        return tuple(_each(function, each) for each in part)
    if isinstance(part, dict):
        return {key: _each(function, each) for key, each in part.items()}
    return None if part is None else function(part)


def _take(part: Any, rows: list[int]) -> Any:
    """Return some rows of texts, targets or weights."""

    def taken(leaf: Any) -> Any:
        if isinstance(leaf, list):
            return [leaf[row] for row in rows]
        if isinstance(leaf, tf.Tensor):
            return tf.gather(leaf, rows)
        return np.asarray(leaf)[rows]

    return _each(taken, part)


def _plain(leaf: Any, name: str) -> Any:
    """Return a column as a list, an array or a tensor; `name` is for errors."""
    names = getattr(leaf, "column_names", None)  # of Arrow
    if hasattr(leaf, "columns") and hasattr(leaf, "to_dict"):
        names = leaf.columns
    way = "table[NAME]"
    if isinstance(leaf, list) and leaf and isinstance(leaf[0], dict):
        names, way = leaf[0], "[row[NAME] for row in rows]"
    if names is not None:
        raise ConfigError(
            f"{name} must be the column of a table, not a table; received a "
            f"{type(leaf).__name__} of {first_of(list(names))}: give "
            f"{name.partition(' ')[0]} as {way}"
        )
    if any(hasattr(leaf, way) for way in ("to_list", "to_pylist")):
        leaf = unwrapped(leaf)
    is_array = isinstance(leaf, np.ndarray) and leaf.ndim == 1
    if (is_array or isinstance(leaf, list)) and len(leaf) and _is_list(leaf[0]):
        return _rectangular(list(leaf), name)
    return leaf


def _check_targets_of_lists(x: Any, y: Any, of: str) -> None:
    """Raise DataError if a row, such as a list of words, has fewer targets than texts.

    The numbers that are missing would be filled with -1, which has no loss.
    """
    x, y = unwrapped(x), unwrapped(y)
    if not (isinstance(x, list) and isinstance(y, list) and len(x) == len(y)):
        return
    for row, (texts, targets) in enumerate(zip(x, y, strict=True)):
        if not (_is_list(texts) and _is_list(targets)):
            continue
        count = sum(text not in ("", b"") for text in texts)
        if len(targets) < count:
            raise DataError(
                f"`y`{of} must have a value for each text of a row of `x`; row {row} "
                f"has {len(targets)} for {count}"
            )


def _is_list(cell: Any) -> bool:
    return isinstance(cell, list | tuple) or bool(getattr(cell, "shape", ()))


def _rectangular(rows: list[Any], name: str) -> list[Any]:
    """Return rows that are lists, unequal ones filled with empty strings, or -1."""
    for row, cells in enumerate(rows):
        if not _is_list(cells):
            raise DataError(
                f"{name} must hold one type of values; row {row} has {shown(cells)}, "
                f"row 0 {shown(rows[0])}"
            )
    width = max(1, *map(len, rows))
    if all(len(cells) == width for cells in rows):
        return rows
    cells = [cell for row in rows for cell in row]
    for kind, fill in ((str | bytes, ""), (int | np.integer, -1)):
        if all(isinstance(cell, kind) for cell in cells):
            return [[*row, *[fill] * (width - len(row))] for row in rows]
    raise DataError(
        f"{name} must hold lists of strings, of whole numbers, or of one length; row 0 "
        f"has {shown(rows[0])}"
    )


def _of_rank(task: Task, x: Any, of: str) -> Any:
    """Return texts with one string in each row, or a list where the task takes one."""
    parts = x if isinstance(x, tuple) else (x,)
    specs = [each for each in input_specs(task).values() if len(each) == len(parts)]

    def one(place: int, leaf: Any) -> Any:
        rank = 1 + np.ndim(leaf[0]) if isinstance(leaf, list) else len(leaf.shape)
        if rank < 2 or any(each[place].shape.rank == rank for each in specs):
            return leaf
        if rank == 2 and np.shape(leaf[0]) == (1,):
            return leaf[:, 0] if hasattr(leaf, "shape") else [row[0] for row in leaf]
        raise ConfigError(
            f"`x`{of} must hold one string in each row, pairs as a tuple of two lists; "
            f"row 0 has {shown(leaf[0])}"
        )

    found = tuple(one(place, leaf) for place, leaf in enumerate(parts))
    return found if isinstance(x, tuple) else found[0]
