"""The verb `tasks`, and the help of one task."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable

from bert_keras.cli.options import markdown_table, offer
from bert_keras.tasks import TASKS, check_task_name
from bert_keras.tasks.catalog import Setting

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
        _settings(name, entry.settings),
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
            (f"`{s.name}`", s.values, s.default, "yes" if s.free else "", s.help)
            for s in TASKS[name].settings
        ),
    )


def _own_task_help(name: str) -> str:
    import dataclasses

    from bert_keras.runs.environment import load_tensorflow
    from bert_keras.tasks import find_task

    load_tensorflow()
    task = find_task(name)
    settings = []
    for field in dataclasses.fields(task):  # type: ignore[arg-type]
        is_given = field.default is not dataclasses.MISSING
        default = repr(field.default) if is_given else "from the data"
        free = field.name in task.free_settings
        settings.append(Setting(field.name, str(field.type), default, "", free=free))
    return _settings(name, settings)


def _settings(name: str, settings: Iterable[Setting]) -> str:
    """Return the settings of a task; a star marks those that can change later."""
    lines = [f"settings of {name} (--set NAME=VALUE; *: can change after training):"]
    for each in settings:
        star = "*" if each.free else ""
        lines.append(f"  {each.name}{star}: {each.values}; default: {each.default}")
        lines += textwrap.wrap(
            each.help, _WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    return "\n".join(lines)


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ")


VERBS = {"tasks": (add_tasks, run_tasks)}
