"""The options in the documentation: `python -m bert_keras.cli.options_page` prints
`docs/options.md`.
"""

from __future__ import annotations

import argparse

from bert_keras.cli.options import flag_of, is_file, markdown_table, switched
from bert_keras.cli.parser import VERBS, parsers
from bert_keras.pretraining.config import PretrainConfig, PretrainingDataConfig
from bert_keras.serving.config import ServeConfig
from bert_keras.settings import default_of, options_of
from bert_keras.training.config import TrainConfig


def options_table(config: type) -> str:
    """Return the options of a config as a table of Markdown."""
    rows = []
    for declared in options_of(config).values():
        words = ", ".join(f"`{word}`" for word in declared.words)
        value = words or declared.rule()
        if declared.kind is bool:
            value = "a switch"
        elif is_file(declared):
            value = "a file with one per line"
        elif declared.kind is str and not words:
            value = "a path" if declared.unit == "dir" else value
        elif declared.is_list:
            value = f"several, each {value}"
        elif declared.unit not in ("", "n") and not words:
            value += f" ({declared.unit})"
        default = default_of(declared, none="").removeprefix("default: ")
        if declared.kind is bool:
            default = "no"
        rows.append((f"`{flag_of(declared)}`", value, default, switched(declared)))
    return markdown_table(("option", "value", "default", "meaning"), rows)


def options_page() -> str:
    """Return the page of the documentation that lists all arguments of all verbs."""
    configs = {
        "train": TrainConfig,
        "pretraining-data": PretrainingDataConfig,
        "pretrain": PretrainConfig,
        "serve": ServeConfig,
    }
    verbs = parsers(VERBS)[1]
    parts = [
        "# Options",
        "All arguments of each command, written by "
        "`python -m bert_keras.cli.options_page`. Each also takes `--help`, "
        "`--version`, `--quiet` and `--verbose`.",
    ]
    for verb, (_, summary) in VERBS.items():
        intro = f"{summary[:1].upper()}{summary[1:]}."
        config = configs.get(verb)
        names = set(options_of(config)) if config else set()
        table = _arguments_table(verbs[verb], names)
        parts += [f"## `bert-keras {verb}`", intro, table]
        if config:
            parts += [f"Settings, the fields of `{config.__name__}`:"]
            parts += [options_table(config)]
    return "\n\n".join(parts)


_EVERYWHERE = ("help", "version", "quiet", "verbose")


def _arguments_table(parser: argparse.ArgumentParser, without: set[str]) -> str:
    """Return the arguments of a verb as a table of Markdown, but for some."""
    rows = []
    for action in parser._actions:
        if action.dest in without or action.dest in _EVERYWHERE:
            continue
        value = action.metavar if isinstance(action.metavar, str) else ""
        name = f"{action.option_strings[0]} {value}" if action.option_strings else value
        meaning = str(action.help or "").replace("%%", "%")
        if action.option_strings and action.required:
            meaning += " (required)"
        rows.append((f"`{name.strip()}`", meaning))
    return markdown_table(("argument", "meaning"), rows)


if __name__ == "__main__":
    print(options_page())
