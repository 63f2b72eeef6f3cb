"""`PlainSettings`: the settings of a task, checked and stored as plain values.

Imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, final

from typing_extensions import Self  # in typing since Python 3.11

from bert_keras.errors import ConfigError, shown
from bert_keras.settings import options_of


class PlainSettings:
    """The base of a frozen dataclass whose fields are the settings of a task.

    A setting that is declared with `bert_keras.settings.option` is checked, described
    by `bert-keras tasks`, and may change after training if it is `free`.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        """Raise ConfigError unless each declared setting has an allowed value."""
        for name, declared in options_of(type(self)).items():
            value = getattr(self, name)
            if declared.is_list and isinstance(value, list):  # as JSON has it
                value = tuple(value)
                object.__setattr__(self, name, value)
            declared.check(value)

    def check_effects(self, given: Mapping[str, Any]) -> None:
        """Raise ConfigError if a given setting has no effect beside the others."""
        for name, declared in options_of(type(self)).items():
            if declared.needs is None or name not in given:
                continue
            other, wanted = declared.needs
            held = getattr(self, other)
            if held != wanted:
                raise ConfigError(
                    f"`{name}` has an effect only with `{other}` {shown(wanted)}; "
                    f"received {shown(given[name])} and {shown(held)}"
                )

    def replaced(self, **settings: Any) -> Self:
        """Return the task with other settings, and what follows from them."""
        return dataclasses.replace(self, **settings)  # type: ignore[type-var]

    @final
    def settings(self) -> dict[str, Any]:
        """Return the settings as plain values, without newer ones at their default.

        So they equal the settings in folders and runs of earlier versions.
        """
        values: dict[str, Any] = dataclasses.asdict(self)  # type: ignore[call-overload]
        for name, declared in options_of(type(self)).items():
            if declared.later and values[name] == declared.default:
                del values[name]
        return values

    @final
    def get_config(self) -> dict[str, Any]:
        return self.settings()

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)
