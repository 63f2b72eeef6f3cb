"""Run the speed benchmarks, and write one table of their results: `make bench`.

    python benchmarks/speed_table.py [--parts NAME …] [--rounds 5] [--base-rounds 3]
        [--training-rounds 3] [--answers sms mrpc] [--results build/speed] [--docs docs]

    prediction      MiniLM, SMS messages
    one-text        MiniLM, one text at a time
    bert-base       BERT-base, paragraphs, and one text at a time
    training        fine-tuning of MiniLM
    bert-training   fine-tuning of BERT-base
    answers         scores and logits of each precision and engine
    tokenizing      beside tokenizers
    whole-commands  processes from start to end, see `whole_commands.py`

Each part saves its result in `--results` at once, and `speed-table.md` and
`speed-table.json` in `--docs` are written after each. So an interrupted run resumes: a
part that was measured by the same command on the same processor is not run again.
Results of other parts and of other processors stay in the table.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alternating import machine

PREDICTIONS = ("prediction", "one-text", "bert-base")
TRAININGS = ("training", "bert-training")
PARTS = (*PREDICTIONS, *TRAININGS, "answers", "tokenizing", "whole-commands")
PEERS = ("torch", "transformers", "tokenizers", "openvino", "onnxruntime", "nncf")
TRAINING_GOALS = {
    ("sms", "float32"): 2.6,
    ("sms", "bfloat16"): 1.5,
    ("base", "bfloat16"): 1.3,
}
TOKENIZING_GOAL = 9.6
STORED = ("written", "memory")
NAMES = {
    "prediction": {
        "sms": "MiniLM, 384 SMS, batch 32",
        "paragraphs": "BERT-base, 32 paragraphs, batch 16",
        "one-short": "MiniLM, one text of 16 tokens",
        "one-long": "BERT-base, one text of 128 tokens",
    },
    "fine-tuning": {
        "sms": "MiniLM, SMS, batch 32",
        "base": "BERT-base, 8 to 128 tokens",
    },
}
NOTES = """\
Ratios are medians of the ratios within a round; above 1 means that bert_keras is
faster. The sides run alternately, each in its own process with its threads on all
cores, after warm-up runs. Input is text, output is a label; all sides tokenize. Seeds
are 0 for data and weights, and the number of the round for training.

- transformers: torch, its default attention; texts sorted by length for prediction,
  padded to the longest of the batch. Training in float32 draws batches at random, in
  bfloat16 it uses autocast and batches grouped by length.
- OpenVINO: converted from transformers; texts sorted by length; the hint THROUGHPUT
  with two requests in flight, for one text LATENCY; int8 by NNCF with calibration. In
  int8, what is not quantized is in bfloat16.
- ONNX Runtime: exported by torch, dynamic int8, texts sorted by length, two batches in
  flight.
- `bert_keras-openvino` and `bert_keras-onnx` are `load_predictor(..., engine=...)`;
  `saved_model` is the exported SavedModel, for one text in TensorFlow alone."""
# {"machines": {processor: {"parts": {part: {"command", "machine", "results"}}}}}
Table = dict[str, Any]


def commands(options: argparse.Namespace) -> dict[str, list[str]]:
    """Return the script of each part, and its arguments."""
    few, base = str(options.rounds), str(options.base_rounds)
    training = ["training_speed.py", "--rounds", str(options.training_rounds)]
    found = {
        "prediction": ["inference_speed.py", "--rounds", few, "--work", "sms"],
        "one-text": ["inference_speed.py", "--rounds", few, "--work", "one-short"],
        "bert-base": [
            *("inference_speed.py", "--rounds", base),
            *("--work", "paragraphs", "one-long"),
        ],
        "training": [*training, "--work", "sms"],
        "bert-training": [*training, "--work", "base"],
        "answers": ["precision_quality.py", "--task", *options.answers],
        "tokenizing": ["tokenizer_speed.py"],
        "whole-commands": ["whole_commands.py", "--rounds", base],
    }
    return {part: found[part] for part in options.parts}


def processor(facts: dict[str, Any]) -> str:
    """Return the name of the processor with its features."""
    features = [name for name, has in facts["features"].items() if has]
    return f"{facts['processor']} ({', '.join(features)})"


def is_measured(path: Path, command: str) -> bool:
    """Return whether a file holds what a command measured."""
    if not path.exists():
        return False
    held: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return held["command"] == command


def measure(command: list[str], path: Path, facts: dict[str, Any]) -> None:
    """Run a benchmark, and save its results with its command and the machine.

    Nothing is saved by a benchmark whose data is absent.
    """
    script, *given = command
    partial = path.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    place = str(Path(__file__).parent / script)
    given = [*given, "--json", str(partial)]
    if script == "inference_speed.py":
        given += ["--models", str(path.parent / "models")]
    subprocess.run([sys.executable, place, *given], check=True)
    if partial.exists():
        results = json.loads(partial.read_text(encoding="utf-8"))["results"]
        held = {"command": " ".join(command), "machine": facts, "results": results}
        partial.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)


def merged(table: Table, part: str, found: dict[str, Any]) -> Table:
    """Return a table with the result of a part in place of an older one."""
    machines = dict(table.get("machines", {}))
    name = processor(found["machine"])
    parts = {**machines.get(name, {}).get("parts", {}), part: found}
    machines[name] = {"parts": {each: parts[each] for each in PARTS if each in parts}}
    return {**table, "machines": machines}


def results_of(parts: dict[str, Any], *names: str) -> Iterator[tuple[str, Any]]:
    """Yield each work of some parts, and what was found."""
    for name in names:
        yield from parts.get(name, {}).get("results", {}).items()


def ratios(parts: dict[str, Any]) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield what is compared, both sides, their ratio, and what was wanted."""
    for work, found in results_of(parts, *PREDICTIONS):
        for line in found["ratios"]:
            name = f"prediction: {NAMES['prediction'][work]}"
            yield name, line["ours"], line["peer"], line["ratio"], line["goal"]
    for work, found in results_of(parts, *TRAININGS):
        for precision, ratio in found["ratios"].items():
            if (goal := TRAINING_GOALS.get((work, precision))) is not None:
                ours, peer = f"bert_keras {precision}", f"transformers {precision}"
                name = f"fine-tuning: {NAMES['fine-tuning'][work]}"
                yield name, ours, peer, ratio, goal
    for line in parts.get("tokenizing", {}).get("results", ()):
        if line["batch"] == 1024 and line["texts"].endswith("Wikipedia, sentences"):
            ratio = line["ours"] / line["tokenizers"]
            name = "tokenizing: English sentences, one thread"
            yield name, "bert_keras", "tokenizers", ratio, TOKENIZING_GOAL
    for work, found in results_of(parts, "whole-commands"):
        yield f"command: {work}", "bert_keras", "peer", found["ratio"], found["goal"]


def speeds(parts: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what was done, by which side, and its speed."""
    for work, found in results_of(parts, *PREDICTIONS):
        for side, spent in found["seconds"].items():
            middle = statistics.median(spent)
            speed = f"{found['texts'] / middle:.3g} texts/s"
            if found["texts"] == 1:
                speed = f"{1e3 * middle:.2f} ms"
            yield f"prediction: {NAMES['prediction'][work]}", side, speed
    for work, found in results_of(parts, *TRAININGS):
        for side, rates in found["tokens/s"].items():
            speed = f"{statistics.median(rates):,.0f} tokens/s"
            yield f"fine-tuning: {NAMES['fine-tuning'][work]}", side, speed


def whole_commands(parts: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the medians of each whole command and side."""
    for work, found in results_of(parts, "whole-commands"):
        for side, spent in found["seconds"].items():
            megabytes = [f"{found[key][side] / 1e6:,.0f}" for key in STORED]
            system = f"{found['system'][side]:.1f}"
            seconds = f"{statistics.median(spent):.1f}"
            yield [work, side, seconds, system, *megabytes]


def rows_of(head: str, rows: list[list[str]]) -> list[str]:
    columns = head.split(" | ")
    return [
        f"| {head} |",
        "|" + "---|" * len(columns),
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]


def measurements(parts: dict[str, Any]) -> list[list[str]]:
    """Return the command of each part, and the versions it ran with."""
    found = []
    for part, held in parts.items():
        facts = held["machine"]
        versions = {**{k: facts[k] for k in ("tensorflow", "keras")}, **facts["peers"]}
        shown = ", ".join(f"{name} {version}" for name, version in versions.items())
        found.append([part, f"`python benchmarks/{held['command']}`", shown])
    return found


def section(name: str, parts: dict[str, Any]) -> list[str]:
    """Return the lines of one processor."""
    compared = []
    for work, ours, peer, ratio, goal in ratios(parts):
        verdict = "reached" if round(ratio, 2) >= goal else "**missed**"
        compared.append([work, ours, peer, f"{ratio:.2f}", f"{goal:g}", verdict])
    answers = [
        [
            line["task"],
            line["side"],
            f"{line['score']:.4f}",
            f"{line['largest difference of a logit']:.1e}",
            f"{line['labels that change']:.2%}",
        ]
        for line in parts.get("answers", {}).get("results", ())
    ]
    tables = {
        "Ratios": rows_of("work | side | peer | ratio | goal | ", compared),
        "Speeds": rows_of("work | side | median", [list(row) for row in speeds(parts)]),
        "Answers": [
            "all-MiniLM-L6-v2, fine-tuned on 2,000 SMS (2,000 others are scored) and",
            "on MRPC (dev set). Differences are those to float32 in TensorFlow.",
            "",
            *rows_of(
                "task | side | accuracy | largest difference of a logit | "
                "labels that change",
                answers,
            ),
        ],
        "Commands": rows_of("part | command | versions", measurements(parts)),
    }
    if not answers:
        del tables["Answers"]
    if whole := list(whole_commands(parts)):
        head = "command | side | seconds | of them system time | MB written | MB memory"
        tables["Whole commands"] = rows_of(head, whole)
    lines = [f"## {name}", ""]
    for title, rows in tables.items():
        lines += [f"### {title}", "", *rows]
    return lines


def page(table: Table) -> str:
    """Return the page in Markdown."""
    lines = [
        "# Table of speeds",
        "",
        "`make bench` writes this page and `speed-table.json`.",
        "[reference/speed.md](reference/speed.md) describes what limits the speed.",
        "",
        NOTES,
        "",
    ]
    for name, held in table["machines"].items():
        lines += section(name, held["parts"])
    return "\n".join(lines)


def write(table: Table, folder: Path) -> None:
    """Write page and JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "speed-table.md").write_text(page(table), encoding="utf-8")
    text = json.dumps(table, indent=1) + "\n"
    (folder / "speed-table.json").write_text(text, encoding="utf-8")


def read(folder: Path) -> Table:
    """Return the table in a folder; an empty one where there is none."""
    path = folder / "speed-table.json"
    if not path.exists():
        return {"machines": {}}
    found: Table = json.loads(path.read_text(encoding="utf-8"))
    return found


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    for name, default in (("rounds", 5), ("base-rounds", 3), ("training-rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument(
        "--answers", nargs="+", choices=("sms", "mrpc"), default=["sms", "mrpc"]
    )
    parser.add_argument("--results", type=Path, default=Path("build/speed"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    return parser.parse_args(arguments)


def main() -> None:
    options = parsed()
    facts = machine()
    facts["peers"] = {name: importlib.metadata.version(name) for name in PEERS}
    folder = options.results / re.sub(r"\W+", "-", processor(facts)).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    wanted = commands(options)
    for number, (part, command) in enumerate(wanted.items(), start=1):
        path, place = folder / f"{part}.json", f"part {number} of {len(wanted)}, {part}"
        if is_measured(path, " ".join(command)):
            print(f"{place}: measured before, {path}", flush=True)
        else:
            print(f"{place}: {' '.join(command)}", flush=True)
            measure(command, path, facts)
        if not path.exists():
            print(f"{place}: skipped, without its data", flush=True)
            continue
        found = json.loads(path.read_text(encoding="utf-8"))
        write(merged(read(options.docs), part, found), options.docs)
        minutes = (time.monotonic() - begun) / 60
        print(f"{place}: in {path}, after {minutes:.0f} minutes", flush=True)
    print(f"table: {options.docs / 'speed-table.md'}", flush=True)


if __name__ == "__main__":
    main()
