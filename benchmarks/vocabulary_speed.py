"""Whole processes that learn a vocabulary: `vocab` beside the trainer of `tokenizers`.

    python benchmarks/vocabulary_speed.py [--size 30522] [--rounds 3]

The corpus is 15 MB of Wikipedia as plain text. Both read the same file, split words as
BERT does, merge pairs that occur twice or more, and write `vocab.txt`; the sides
alternate. Prints the medians of wall time and of processor time in seconds, the ratio
tokenizers / bert_keras, and whether each side wrote the same bytes in each round.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from inputs import write_wikipedia

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TRAINER = f"""
import sys
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
tokenizer.normalizer = normalizers.BertNormalizer()
tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
trainer = trainers.WordPieceTrainer(
    vocab_size=int(sys.argv[2]), min_frequency=2, special_tokens={SPECIAL},
    show_progress=False,
)
tokenizer.train([sys.argv[1]], trainer)
ids = tokenizer.get_vocab()
with open(f"{{sys.argv[3]}}/vocab.txt", "w", encoding="utf-8") as file:
    file.writelines(f"{{token}}\\n" for token in sorted(ids, key=ids.get))
"""


def command_of(side: str, corpus: Path, size: int, folder: str) -> list[str]:
    """Return the command of a side, which writes `vocab.txt` to a folder."""
    if side == "tokenizers":
        return [sys.executable, "-c", TRAINER, str(corpus), str(size), folder]
    words = ["vocab", str(corpus), "--size", str(size), "--output", folder, "--quiet"]
    return [sys.executable, "-m", "bert_keras", *words]


def run(side: str, corpus: Path, size: int) -> tuple[float, float, str]:
    """Return the wall time and the processor time of a process, and its bytes' hash."""
    with tempfile.TemporaryDirectory() as folder:
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run(
            command_of(side, corpus, size, folder),
            check=True,
            stdout=subprocess.DEVNULL,
        )
        wall = time.monotonic() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        data = Path(folder, "vocab.txt").read_bytes()
    return wall, used, hashlib.sha256(data).hexdigest()[:12]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=30_522)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    sides = ("bert_keras", "tokenizers")
    found: dict[str, list[tuple[float, float, str]]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus.txt")
        write_wikipedia(corpus)
        for _ in range(options.rounds):
            for side in sides:
                found[side].append(run(side, corpus, options.size))
    walls, used = (
        {side: statistics.median(each[i] for each in found[side]) for side in sides}
        for i in (0, 1)
    )
    result = {
        "wall": walls,
        "processor": used,
        "ratio_wall": walls["tokenizers"] / walls["bert_keras"],
        "ratio_processor": used["tokenizers"] / used["bert_keras"],
        "same_bytes": {s: len({each[2] for each in found[s]}) == 1 for s in sides},
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
