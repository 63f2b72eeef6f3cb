"""Run the speed benchmarks, and write one table of their results: `make bench`.

    python benchmarks/speed_table.py [--results build/speed] [--docs docs]

A benchmark whose result is in `--results` already is not run again. Writes
`speed-table.md` and `speed-table.json` into `--docs`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PARTS = {
    "inference": ["inference_speed.py", "--rounds", "5"],
    "training": ["training_speed.py", "--rounds", "3"],
    "tokenizer": ["tokenizer_speed.py"],
    "answers": ["precision_quality.py"],
}
PEERS = ("torch", "transformers", "tokenizers", "openvino", "onnxruntime", "nncf")
TRAINING_GOALS = {
    ("sms", "float32"): 2.6,
    ("sms", "bfloat16"): 1.5,
    ("base", "bfloat16"): 1.3,
}
TOKENIZER_GOAL = 9.6
WORKS = {
    "sms": "MiniLM, 384 SMS, batch 32",
    "paragraphs": "BERT-base, 32 paragraphs, batch 16",
    "one-short": "MiniLM, one text of 16 tokens",
    "one-long": "BERT-base, one text of 128 tokens",
}
TRAININGS = {"sms": "MiniLM, SMS, batch 32", "base": "BERT-base, 8 to 128 tokens"}
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
- `bert_keras-openvino` and `bert_keras-onnx` are `load(..., engine=...)`; `saved_model`
  is the exported SavedModel, for one text in TensorFlow alone."""


def ratios(results: dict[str, Any]) -> Iterator[tuple[str, str, str, float, float]]:
    """Yield what is compared, both sides, their ratio, and what was wanted."""
    for work, found in results.get("inference", {}).get("results", {}).items():
        for line in found["ratios"]:
            name = f"prediction: {WORKS[work]}"
            yield name, line["ours"], line["peer"], line["ratio"], line["goal"]
    for work, found in results.get("training", {}).get("results", {}).items():
        for precision, ratio in found["ratios"].items():
            if (goal := TRAINING_GOALS.get((work, precision))) is not None:
                ours, peer = f"bert_keras {precision}", f"transformers {precision}"
                yield f"fine-tuning: {TRAININGS[work]}", ours, peer, ratio, goal
    for line in results.get("tokenizer", {}).get("results", ()):
        if line["batch"] == 1024 and line["texts"].endswith("Wikipedia, sentences"):
            ratio = line["ours"] / line["tokenizers"]
            name = "tokenizing: English sentences, one thread"
            yield name, "bert_keras", "tokenizers", ratio, TOKENIZER_GOAL


def speeds(results: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what was done, by which side, and its speed."""
    for work, found in results.get("inference", {}).get("results", {}).items():
        for side, spent in found["seconds"].items():
            middle = statistics.median(spent)
            speed = f"{found['texts'] / middle:.3g} texts/s"
            if found["texts"] == 1:
                speed = f"{1e3 * middle:.2f} ms"
            yield f"prediction: {WORKS[work]}", side, speed
    for work, found in results.get("training", {}).get("results", {}).items():
        for side, rates in found["tokens/s"].items():
            speed = f"{statistics.median(rates):,.0f} tokens/s"
            yield f"fine-tuning: {TRAININGS[work]}", side, speed


def rows_of(head: str, rows: list[list[str]]) -> list[str]:
    columns = head.split(" | ")
    return [
        f"| {head} |",
        "|" + "---|" * len(columns),
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
    ]


def page(results: dict[str, Any], facts: dict[str, Any]) -> str:
    """Return the page in Markdown."""
    features = [name for name, has in facts["features"].items() if has]
    versions = {**{k: facts[k] for k in ("tensorflow", "keras")}, **facts["peers"]}
    compared = []
    for name, ours, peer, ratio, goal in ratios(results):
        verdict = "reached" if round(ratio, 2) >= goal else "**missed**"
        compared.append([name, ours, peer, f"{ratio:.2f}", f"{goal:g}", verdict])
    answers = [
        [
            line["task"],
            line["side"],
            f"{line['score']:.4f}",
            f"{line['largest difference of a logit']:.1e}",
            f"{line['labels that change']:.2%}",
        ]
        for line in results.get("answers", {}).get("results", ())
    ]
    return "\n".join(
        [
            "# Table of speeds",
            "",
            "`make bench` writes this page and `speed-table.json`.",
            "[speed.md](speed.md) describes what limits the speed.",
            "",
            f"{facts['processor']} ({', '.join(features)}); "
            + ", ".join(f"{name} {version}" for name, version in versions.items())
            + ".",
            "",
            NOTES,
            "",
            "## Ratios",
            "",
            *rows_of("work | side | peer | ratio | goal | ", compared),
            "## Speeds",
            "",
            *rows_of("work | side | median", [list(row) for row in speeds(results)]),
            "## Answers",
            "",
            "all-MiniLM-L6-v2, fine-tuned on 2,000 SMS (2,000 others are scored) and",
            "on MRPC (dev set). Differences are those to float32 in TensorFlow.",
            "",
            *rows_of(
                "task | side | accuracy | largest difference of a logit | "
                "labels that change",
                answers,
            ),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("build/speed"))
    parser.add_argument("--docs", type=Path, default=Path("docs"))
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    here = Path(__file__).parent
    results = {}
    for part, (script, *given) in PARTS.items():
        path = options.results / f"{part}.json"
        if not path.exists():
            command = [sys.executable, str(here / script), *given, "--json", str(path)]
            print(" ".join(command), flush=True)
            subprocess.run(command, check=True)
        if path.exists():  # a benchmark without its data is skipped
            results[part] = json.loads(path.read_text(encoding="utf-8"))
    if "inference" not in results:
        sys.exit("no results: the data of the benchmarks is absent")
    facts = results["inference"]["machine"]
    facts["peers"] = {name: importlib.metadata.version(name) for name in PEERS}
    markdown = options.docs / "speed-table.md"
    markdown.write_text(page(results, facts), encoding="utf-8")
    text = json.dumps({"machine": facts, **results}, indent=1)
    (options.docs / "speed-table.json").write_text(text + "\n", encoding="utf-8")
    print(f"written: {markdown}")


if __name__ == "__main__":
    main()
