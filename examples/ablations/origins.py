"""A corpus for the ablations, and paragraphs of it with the package they come from.

    python examples/ablations/origins.py FOLDER

Writes the files of `examples/python_corpus.py`, and `origin_train.csv`,
`origin_dev.csv` and `origin_test.csv` with paragraphs of the four packages with the
most text. No document is in two of them.
"""

import csv
import sys
import zlib
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from python_corpus import write_corpus

ORIGINS = 4  # packages to distinguish
ROWS = {"train": 2000, "dev": 400, "test": 1000}


def write_origins(folder: Path, found: dict[int, list[str]]) -> None:
    """Write rows with a text and its package."""
    count = Counter(origin for origin, text in found.values() for _ in text.split("\n"))
    names = [name for name, _ in count.most_common(ORIGINS)]
    rows: dict[str, list[tuple[int, str, str]]] = {part: [] for part in ROWS}
    for n, (origin, text) in found.items():
        part = {1: "dev", 2: "test", 3: "test"}.get(n % 10, "train")
        for line in text.splitlines() if origin in names else ():
            rows[part].append((zlib.crc32(line.encode()), line, origin))
    for part, most in ROWS.items():
        with open(
            folder / f"origin_{part}.csv", "w", newline="", encoding="utf-8"
        ) as f:
            writer = csv.writer(f)
            writer.writerow(["text", "label"])
            writer.writerows(row[1:] for row in sorted(set(rows[part]))[:most])


if __name__ == "__main__":
    write_origins(Path(sys.argv[1]), write_corpus(Path(sys.argv[1])))
