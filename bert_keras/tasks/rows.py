"""The data of a task: rows of files or of memory, their texts and what they teach.

`TaskRows` is the first half of the contract `tasks.base.Task`.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_keras.data.table import Columns, read_columns
from bert_keras.errors import DataError

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11


class TaskRows(abc.ABC):
    """Which columns a task reads, and what it takes and learns from a row.

    Attributes:
        name: how the command line calls it.
        roles: roles of the texts that the model reads, in their order; a property of
            the instance where it depends on the settings.
        lists_last: whether the last role holds a list of texts in each row.
        columns: role to the default name of its column.
        optional_roles: roles that a file may lack.
        empty_roles: roles whose cells may be empty, or lists in JSONL.
    """

    name: ClassVar[str]
    roles: tuple[str, ...] = ("text",)
    lists_last: ClassVar[bool] = False
    columns: ClassVar[Mapping[str, str]]
    optional_roles: ClassVar[tuple[str, ...]] = ()
    empty_roles: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def read(
        cls,
        path: Any,
        *,
        columns: Mapping[str, str | int | None] | None = None,
        header: str = "auto",
    ) -> Columns:
        """Return the labelled rows of a file, or of a table in memory.

        `columns` overrides default names. See `read_columns`.
        """
        chosen = dict(columns or {})
        wanted = {**cls.columns, **chosen}
        # A role that the user names must be there; a default one may be missing.
        optional = [r for r in cls.optional_roles if r in wanted and r not in chosen]
        return read_columns(
            path, wanted, optional=optional, empty=cls.empty_roles, header=header
        )

    def read_texts(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Mapping[str, str | int | None] | None = None,
        header: str = "auto",
    ) -> Columns:
        """Return the texts of a file that need not have labels."""
        chosen = dict(columns or {})
        wanted = {role: chosen.get(role, self.columns[role]) for role in self.roles}
        return read_columns(path, wanted, header=header)

    @classmethod
    def kinds(cls, columns: Columns, **settings: Any) -> list[Collection[str]]:
        """Return what each row holds of what training must see: its classes.

        Rows that are set aside leave one of each kind. `settings` are the task's.
        """
        return [()] * len(columns)

    @classmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> Self:
        """Return the task with what the training data settles, such as the classes."""
        return cls(**settings)

    def texts(self, columns: Columns) -> tuple[list[Any], ...]:
        """Return the texts of each role: N strings, or N lists of strings, each."""
        missing = [role for role in self.roles if role not in columns]
        if missing:
            what = "a text" if len(self.roles) == 1 else "pairs of texts"
            raise DataError(
                f"the model reads {what}, the column of `{missing[0]}` is "
                "missing: name it",
                path=columns.path,
            )
        return tuple(columns[role] for role in self.roles)

    def training_texts(self, columns: Columns) -> tuple[list[Any], ...]:
        """Return the texts that `examples` takes, those of `texts` if no others."""
        return self.texts(columns)

    def scored_texts(self, columns: Columns) -> tuple[list[Any], ...]:
        """Return the texts of each role whose answers `score` takes."""
        return self.texts(columns)

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        """Return what `predict` was given, an item a text, as one list a role.

        Raises:
            DataError: an item is no string, or no tuple of as many as there are roles.
        """
        count = len(self.roles)
        for row, item in enumerate(items):
            fits = isinstance(item, str)
            if count > 1:
                fits = isinstance(item, tuple | list) and len(item) == count
                fits = fits and all(isinstance(part, str) for part in item)
            if not fits:
                wanted = "a string" if count == 1 else f"{count} strings"
                wanted = "a pair of strings" if count == 2 else wanted
                raise DataError(
                    f"`texts` must hold {wanted} in each place; received at {row}: "
                    f"{str(item)[:80]!r} ({type(item).__name__})"
                )
        if count == 1 or not items:
            return (list(items),) * count
        return tuple(list(part) for part in zip(*items, strict=True))

    @abc.abstractmethod
    def targets(self, columns: Columns) -> np.ndarray:
        """Return what the model learns, [N, …]; bad values are named by line."""

    def notes(self, columns: Columns) -> list[str]:
        """Return lines that a user should read before training on these rows."""
        return []

    def example_weights(self, columns: Columns) -> np.ndarray | None:
        """Return the weight of each example in the loss, float32 [N], or `None`."""
        return None
