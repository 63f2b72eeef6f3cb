"""Completion in bash, zsh and fish: the verb `completion`, by argcomplete.

The script that the verb prints calls `bert-keras` with `_ARGCOMPLETE` set, and
`complete` answers.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from bert_keras.errors import needs


def add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell",
        choices=("bash", "zsh", "fish"),
        metavar="SHELL",
        help='bash, zsh or fish; `eval "$(bert-keras completion bash)"` in ~/.bashrc, '
        "the same for zsh; for fish, write the output to "
        "~/.config/fish/completions/bert-keras.fish",
    )


def run_completion(options: argparse.Namespace) -> None:
    print(_argcomplete().shellcode(["bert-keras"], shell=options.shell))


def complete() -> None:
    """Print what can follow the words of `COMP_LINE`, and end the process."""
    from bert_keras.cli.parser import VERBS, parser

    argcomplete = _argcomplete()
    words = os.environ.get("COMP_LINE", "").split()
    typed = parser([word for word in words if word in VERBS][:1])
    argcomplete.autocomplete(typed, always_complete_options="long")


def _argcomplete() -> Any:
    with needs("`completion`", extra="completion", runtime_extra="completion"):
        import argcomplete

        return argcomplete


VERBS = {"completion": (add_completion, run_completion)}
