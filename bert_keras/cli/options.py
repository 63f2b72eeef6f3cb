"""Options on the command line, from their declarations.

`add_options` adds an argparse argument for each field of a config; `config_of` builds
the config from the parsed arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeVar

from bert_keras.errors import ConfigError, nearest
from bert_keras.settings import INT32, Option, default_of, options_of

_Config = TypeVar("_Config")
_Container = argparse._ActionsContainer  # a parser or a group of one
FLAGS = "FLAGS"  # the metavar of an option whose value is flags of another tool
_MOST_SHOWN = 300  # characters of a message of argparse


class Parser(argparse.ArgumentParser):
    """Raises a ConfigError where argparse would print several lines and exit."""

    def error(self, message: str) -> NoReturn:
        if len(message) > _MOST_SHOWN:  # a number of thousands of digits
            message = f"{message[:_MOST_SHOWN]}…"
        raise ConfigError(f"{message}; see `{self.prog} --help`")

    def check_options(self, words: list[str]) -> None:
        """Raise ConfigError for the first unknown option.

        For a typo in a required option, argparse would only report the option as
        missing.
        """
        known = list(self._option_string_actions)
        for word in words:
            if word == "--":  # ends the options
                return
            name = word.partition("=")[0]
            is_option = name.startswith("--") and " " not in word
            if is_option and not self._knows(name):
                self.error(f"unknown option {name}{nearest(name, known)}")

    def join_flags(self, words: Sequence[str]) -> list[str]:
        """Return the words, an option of FLAGS as one word with its value.

        argparse would take the value for an option if it is a single flag.
        """
        found: list[str] = []
        for word in words:
            option = self._option_string_actions.get(found[-1]) if found else None
            takes_flags = option is not None and option.metavar == FLAGS
            is_flag = word.startswith("--") and not self._knows(word.partition("=")[0])
            if takes_flags and is_flag and "--" not in found:
                found[-1] += f"={word}"
            else:
                found.append(word)
        return found

    def _knows(self, name: str) -> bool:
        """Return whether a name is an option, or the beginning of one."""
        return any(flag.startswith(name) for flag in self._option_string_actions)


def path(text: str) -> str:
    """Return a path unless it is empty, which Python takes as the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("must be a path; received ''")
    return text


def add_options(parser: _Container, config: type) -> None:
    """Add each option of a config; one that is not given is left out of the result.

    The config checks the limits of the values, since some depend on each other.
    """
    for declared in options_of(config).values():
        _add(parser, declared, default=argparse.SUPPRESS, checked=False)


def config_of(options: argparse.Namespace, config: type[_Config]) -> _Config:
    """Build a config from a parsed command line.

    Raises:
        ConfigError: a value is not allowed.
    """
    given = vars(options)
    values: dict[str, Any] = {}
    for name, declared in options_of(config).items():
        if name in given:
            value = given[name]
            if is_file(declared):
                value = lines_of_file(value)
            values[name] = tuple(value) if isinstance(value, list) else value
    return config(**values)


def is_file(declared: Option) -> bool:
    """Return whether an option is a list that is read from a file."""
    return declared.is_list and declared.unit == "file"


def lines_of_file(path: str) -> list[str]:
    """Return the lines of a text file without the white space around them.

    Empty lines are skipped.

    Raises:
        DataError: the file cannot be read, or holds nothing.
    """
    from bert_keras.errors import NoRowsError
    from bert_keras.files.streams import lines_of

    found = [line.strip() for _, line in lines_of(path)]
    if not any(found):
        raise NoRowsError("is empty", path=path)
    return [line for line in found if line]


def add_option(parser: _Container, declared: Option, **changes: Any) -> None:
    """Add an option that is not a field of a config; `changes` adapt it."""
    declared = dataclasses.replace(declared, **changes)
    _add(parser, declared, default=declared.default, checked=True)


def add_path(
    parser: _Container, name: str, metavar: str, help: str, *, required: bool = False
) -> None:
    """Add an option that is a path; `None` if it is not given."""
    given: dict[str, Any] = {"required": True} if required else {}
    parser.add_argument(flag(name), metavar=metavar, type=path, help=help, **given)


def add_switch(parser: _Container, name: str, help: str) -> None:
    """Add an option without a value, which is off by default."""
    parser.add_argument(flag(name), action="store_true", help=help)


def add_count(
    parser: _Container, name: str, default: int | None, help: str, **more: Any
) -> None:
    """Add an option that is a whole number of at least 1."""
    limits: dict[str, Any] = {
        "kind": int,
        "least": 1,
        "most": INT32,
        "may_be_none": default is None,
    }
    add_option(parser, Option(default, help, name=name, **(limits | more)))


def add_word(
    parser: _Container,
    name: str,
    words: Iterable[str],
    help: str,
    *,
    unset: str | None = None,
) -> None:
    """Add an option whose value is one of `words`, by default the first.

    Args:
        unset: if given, the default is `None`, and this describes it.
    """
    words = tuple(words)
    default = words[0] if unset is None else None
    declared = Option(default, help, name=name, words=words, unset=unset or "")
    add_option(parser, declared)


def _add(parser: _Container, declared: Option, *, default: Any, checked: bool) -> None:
    given: dict[str, Any] = {"default": default, "help": help_line(declared)}
    if declared.kind is bool:
        given["action"] = "store_false" if declared.default else "store_true"
        given["dest"] = declared.name
    else:
        metavar = f"{{{','.join(declared.words)}}}" if declared.words else None
        given["metavar"] = metavar or declared.unit.upper() or "N"
        given["type"] = functools.partial(_value, declared, checked)
        given["nargs"] = "+" if declared.is_list and not is_file(declared) else None
    action = parser.add_argument(flag_of(declared), **given)
    if declared.words:
        offer(action, declared.words)


def offer(action: argparse.Action, words: Iterable[str]) -> None:
    """Let the completion of shells offer the words for an argument."""
    action.completer = lambda **_: list(words)  # type: ignore[attr-defined]


def flag(name: str) -> str:
    """Return the option of a name, such as `--batch-size` of `batch_size`."""
    return f"--{name.replace('_', '-')}"


def flag_of(declared: Option) -> str:
    """Return the name of an option; `--no-…` for a switch that is on by default."""
    no = "no-" if declared.kind is bool and declared.default else ""
    return flag(f"{no}{declared.name}")


def help_line(declared: Option) -> str:
    """Return the help of an option with its default; `%` is escaped for argparse."""
    sentences = [switched(declared)]
    if is_file(declared):
        sentences.append("one per line")
    if declared.kind is not bool and (declared.default is not None or declared.unset):
        is_number = declared.kind is not str and not declared.is_list
        none = "auto (default): " if is_number else "default: "
        sentences.append(default_of(declared, none=none))
    return "; ".join(sentences).replace("%", "%%")


def switched(declared: Option) -> str:
    """Return the help of an option, negated for a switch that is on by default."""
    is_on = declared.kind is bool and declared.default
    return f"do not {declared.help}" if is_on else declared.help


def _value(declared: Option, checked: bool, text: str) -> Any:
    """Return the value of an option; argparse puts its name before the error.

    Args:
        declared: the option.
        checked: whether the limits of numbers are checked here, or by the config.
        text: the value as typed.
    """
    if declared.kind is str and not (declared.words or declared.pattern):
        if not text and declared.form:
            raise argparse.ArgumentTypeError(f"must be {declared.form}; received ''")
        return path(text)
    if text == "auto" and declared.may_be_none and not declared.words:
        return None
    value: Any = None
    with contextlib.suppress(ValueError):
        value = declared.kind(text)
    is_number = value is not None and not declared.words
    if declared.accepts(value) or is_number and not checked:
        return value
    rule = declared.rule(value)
    rule += " or auto" if declared.may_be_none and not declared.words else ""
    near = nearest(text, declared.words)
    raise argparse.ArgumentTypeError(f"must be {rule}; received {text[:60]}{near}")


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of Markdown; `|` in a cell becomes `/`."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    for cells in rows:
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)
