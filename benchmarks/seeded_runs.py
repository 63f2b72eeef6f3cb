"""Runs of both sides with several seeds, each in its own process."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

from alternating import result_of

SIDES = ("bert_keras", "transformers")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `run`."""
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help="run only this side")
    parser.add_argument("--seed", type=int, help="run only this seed, of --side")


def run(
    options: argparse.Namespace, one: Callable[[str, int], dict[str, float]]
) -> None:
    """Print the scores of each run, means and standard deviations.

    Args:
        options: the options of `add_arguments`; others are passed to each run.
        one: trains and scores a side with a seed.
    """
    if options.seed is not None:
        print(json.dumps(one(options.side or SIDES[0], options.seed)))
        return
    found: dict[str, list[dict[str, float]]] = {}
    for seed in range(options.seeds):
        for side in [options.side] if options.side else SIDES:
            command = [sys.executable, *sys.argv, "--side", side, "--seed", str(seed)]
            started = time.perf_counter()
            scores = result_of(command)
            seconds = time.perf_counter() - started
            found.setdefault(side, []).append(scores)
            shown = "  ".join(f"{name} {value:.4f}" for name, value in scores.items())
            print(f"seed {seed} {side:<13} {shown}  ({seconds:.0f} s)", flush=True)
    for side, runs in found.items():
        for name in runs[0]:
            values = [scores[name] for scores in runs]
            spread = statistics.stdev(values) if len(values) > 1 else float("nan")
            print(f"{side:<13} {name:<9} {statistics.mean(values):.4f} ± {spread:.4f}")
