"""The verb `tasks`, and the help of one task."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable

from bert_keras.cli.options import markdown_table, offer
from bert_keras.settings import FROM_DATA, REQUIRED, Option, options_of
from bert_keras.tasks import TASKS, check_task_name

_WIDTH = 80


def add_tasks(parser: argparse.ArgumentParser) -> None:
    task = parser.add_argument(
        "task",
        nargs="?",
        metavar="TASK",
        help="describe this one: data, settings, scores, answers and an example",
    )
    offer(task, TASKS)


def run_tasks(options: argparse.Namespace) -> None:
    if options.task is not None:
        print(task_help(options.task))
        return
    width = max(len(name) for name in TASKS)
    for name, entry in TASKS.items():
        print(f"{name:<{width}}  {entry.summary}")


def task_help(name: str) -> str:
    """Return data, settings, scores, answers and an example of a task as text.

    Of a task of the user's own, `module:Class`, only the settings.

    Raises:
        ConfigError: there is no such task.
    """
    check_task_name(name)
    if name not in TASKS:
        return _own_task_help(name)
    entry = TASKS[name]
    rows = textwrap.indent(entry.rows, "  ")
    parts = [
        _filled(f"{name}: {entry.summary}"),
        f"{_filled(f'data: {entry.data}')}; such as {entry.file}:\n{rows}",
        _settings(name, options_of(entry.settings).values()),
        _filled(f"scores: {entry.scores}"),
        _filled(f"answers: {entry.answers}"),
        f"example:\n{example_of(name)}",
    ]
    return "\n\n".join(parts)


def example_of(name: str) -> str:
    """Return a command that trains a task."""
    return (
        f"  bert-keras train {name} --encoder hf://google-bert/bert-base-uncased \\\n"
        f"    --train {TASKS[name].file} --output models/mine"
    )


def settings_table(name: str) -> str:
    """Return the settings of a task as a table of Markdown, for its page."""
    return markdown_table(
        ("setting", "values", "default", "can change later", "meaning"),
        (
            (f"`{s.name}`", values_of(s), _default(s), "yes" if s.free else "", s.help)
            for s in options_of(TASKS[name].settings).values()
        ),
    )


def _own_task_help(name: str) -> str:
    import dataclasses

    from bert_keras.runs.environment import load_tensorflow
    from bert_keras.tasks import find_task

    load_tensorflow()
    task = find_task(name)
    declared = options_of(task)
    settings = []
    for field in dataclasses.fields(task):  # type: ignore[arg-type]
        default = "" if field.default is REQUIRED else repr(field.default)
        form = str(getattr(field.type, "__name__", field.type))
        plain = Option(field.default, form=form, unset=default, name=field.name)
        settings.append(declared.get(field.name, plain))
    return _settings(name, settings)


def values_of(declared: Option) -> str:
    """Return the allowed values of a setting as text."""
    return ", ".join(declared.words) or declared.rule()


def _default(declared: Option) -> str:
    if declared.unset or declared.default is REQUIRED:
        return declared.unset or FROM_DATA
    is_switch = isinstance(declared.default, bool)
    return str(declared.default).lower() if is_switch else str(declared.default)


def _settings(name: str, settings: Iterable[Option]) -> str:
    """Return the settings of a task; a star marks those that can change later."""
    lines = [f"settings of {name} (--set NAME=VALUE; *: can change after training):"]
    for each in settings:
        star = "*" if each.free else ""
        values = f"  {each.name}{star}: {values_of(each)}; default: {_default(each)}"
        lines += textwrap.wrap(values, _WIDTH, subsequent_indent=" " * 4)
        lines += textwrap.wrap(
            each.help, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    return "\n".join(lines)


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ")


VERBS = {"tasks": (add_tasks, run_tasks)}
