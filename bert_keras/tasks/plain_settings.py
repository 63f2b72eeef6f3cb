"""`PlainSettings`: the settings of a task, checked and stored as plain values.

Imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, final

from bert_keras.errors import ConfigError, shown
from bert_keras.settings import options_of

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing since Python 3.11


def of_graph() -> Any:
    """Return a field for a part of the graph that is traced: it is no setting."""
    return dataclasses.field(default=None, compare=False, repr=False)


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

    @final
    def get_config(self) -> dict[str, Any]:
        """Return the settings as plain values, but no `later` one at its default."""
        task: Any = self
        parts = [each.name for each in dataclasses.fields(task) if not each.compare]
        if parts:
            task = dataclasses.replace(task, **dict.fromkeys(parts))
        values = dataclasses.asdict(task)
        for name in parts:
            del values[name]
        for name, declared in options_of(type(self)).items():
            if declared.later and values[name] == declared.default:
                del values[name]
        return values

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)


def check_effects(task: PlainSettings, given: Mapping[str, Any]) -> None:
    """Raise ConfigError if a given setting has no effect beside the others."""
    for name, declared in options_of(type(task)).items():
        if declared.needs is None or name not in given:
            continue
        needs = declared.needs
        if isinstance(needs, tuple):
            other, wanted = needs
            held, words = getattr(task, other), f"`{other}` {shown(wanted)}"
            holds = held == wanted
        else:
            held, words = getattr(task, needs.setting), needs.words
            holds = needs.holds(task)
        if not holds:
            raise ConfigError(
                f"`{name}` has an effect only with {words}; "
                f"received {shown(given[name])} and {shown(held)}"
            )
