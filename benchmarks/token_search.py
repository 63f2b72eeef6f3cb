"""A query among many passages with a vector for each token: exactly, and by centroids.

    python benchmarks/token_search.py [--passages 20000] [--tokens 64] [--queries 30]

The vectors are those of the tokens of SQuAD's paragraphs by all-MiniLM-L6-v2, projected
to 128 numbers. A passage is a window of them, moved in a direction of its own, with
noise on each vector; queries are questions on the paragraphs. The index is int8.

Shown are the seconds of the processor to make the centroids and for a query, the
seconds to open the file and find the first answer, and how many of the exact nearest
ten the centroids find.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from inputs import contexts, encoder_path, questions

import bert_keras
from bert_keras.files.npz import open_arrays
from bert_keras.retrieval.embedder import stored_vectors, with_prompt
from bert_keras.retrieval.token_vectors import TokenVectors
from bert_keras.scoring.similarity import unit_rows

WIDTH, TOP = 128, 10
MOVED, NOISE = 0.35, 0.25  # lengths of what is added to unit vectors


def real_vectors(paragraphs: int, queries: int) -> tuple[TokenVectors, TokenVectors]:
    """Return the vectors of the tokens of paragraphs and of questions on them."""
    model = bert_keras.TaskModel.from_pretrained(
        encoder_path(),
        "embedding",
        kind="tokens",
        dense=(
            {
                "units": WIDTH,
                "activation": "linear",
                "use_bias": False,
                "on_tokens": True,
            },
        ),
        skip_words="punctuation",
        max_length=128,
    )
    predictor = bert_keras.Predictor(model)
    documents = stored_vectors(
        with_prompt(predictor, "document"), contexts()[:paragraphs], 32
    )
    asked = questions()[:queries]
    return documents, stored_vectors(with_prompt(predictor, "query"), asked, 32)


def passages(real: TokenVectors, count: int, tokens: int) -> TokenVectors:
    """Return int8 vectors of passages made of windows of real ones."""
    rng = np.random.default_rng(0)
    found = np.empty((count * tokens, WIDTH), np.int8)
    for row, start in enumerate(rng.integers(0, len(real.values) - tokens, count)):
        added = MOVED * unit_rows(rng.normal(size=(1, WIDTH)))
        added = added + NOISE * unit_rows(rng.normal(size=(tokens, WIDTH)))
        made = unit_rows(real.values[start : start + tokens] + added)
        found[row * tokens : (row + 1) * tokens] = np.rint(127 * made)
    return TokenVectors(found, np.arange(1, count + 1) * tokens)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return a result, and the seconds of the processor that it took."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--passages", type=int, default=20_000, help="default: 20,000")
    add("--tokens", type=int, default=64, help="of a passage; default: 64")
    add("--queries", type=int, default=30, help="default: 30")
    add("--paragraphs", type=int, default=300, help="of SQuAD; default: 300")
    options = parser.parse_args()
    real, asked = real_vectors(options.paragraphs, options.queries)
    made = passages(real, options.passages, options.tokens)
    made, seconds = timed(made.with_centroids)
    print(
        f"{len(made):,} passages, {len(made.values):,} tokens: "
        f"{len(made.centroids.values):,} centroids in {seconds:.0f} s",  # type: ignore[union-attr]
        flush=True,
    )
    queries = [asked.of_text(row)[None] for row in range(len(asked))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.npz"
        np.savez(path, **made.entries())
        del made
        start = time.perf_counter()
        with open_arrays(path) as stored:
            opened = TokenVectors.from_entries(stored)
        seconds = time.perf_counter() - start
        opened.near(queries[0], TOP)
        first = time.perf_counter() - start
        size = path.stat().st_size / 1e6
        print(
            f"{size:,.0f} MB opened in {seconds:.3f} s, first answer at {first:.3f} s"
        )
        shares, spent = [], {"exact": 0.0, "centroids": 0.0}
        for query in queries:
            (exact, _), seconds = timed(lambda q=query: opened.nearest(q, TOP))
            spent["exact"] += seconds
            (near, _), seconds = timed(lambda q=query: opened.near(q, TOP))
            spent["centroids"] += seconds
            shares.append(len({*exact[0]} & {*near[0]}) / TOP)
        for name, seconds in spent.items():
            print(f"{name}: {1000 * seconds / len(queries):.1f} ms of the processor")
        print(f"found of the exact nearest {TOP}: {np.mean(shares):.1%}")


if __name__ == "__main__":
    main()
