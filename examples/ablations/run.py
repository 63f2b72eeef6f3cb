"""The paper's ablations at a size for two cores.

    python examples/ablations/run.py WORK [--steps 800] [--seeds 1] [--tables 1 2 3 4]

Pretrains a tiny BERT for each row, on the documentation that comes with Python, and
scores it: perplexity of held-out text, accuracy of predicting the package of a
paragraph and the class of an e-mail, F1 of names in sentences (fine-tuned, and from
frozen features). Prints the scores next to the paper's figures; with several seeds,
means and standard deviations. Finished rows stay in WORK; an interrupted run
resumes there.
"""

import argparse
import statistics
import time
from pathlib import Path

from measuring import LENGTH, RECIPE, measure, prepare
from tables import TABLES

PAPER_TOKENS = 1_000_000 * 128_000  # steps x tokens of a batch, appendix A.2
NOTES = """
Each row is one setting. The tables show large effects, and how far a model of that size
and kind gets in the same number of steps on the same text.
They do not reproduce the paper. Its models are about a hundred times larger and see
{times:,.0f} times the tokens, and its tasks are different. With a thousand paragraphs,
two standard errors are 3 points of accuracy; with 23 sentences, one name is worth
several points of F1, so small differences are within chance.
A row with a perplexity above 500 has only learned word frequencies: training ended
before it left the plateau on which every row starts. This shows how training starts,
not where it would end.
The left-to-right perplexity predicts every token from its past alone, without masks: it
is not comparable with the others. The classifier of paragraphs is left out there, since
the first token, which a classifier reads, does not attend to any other token."""


def cell(values: list[float]) -> str:
    """Return a mean, with the standard deviation of several seeds."""
    if not values:
        return "-"
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seeds", type=int, default=1)
    numbers = [title[0] for title in TABLES]
    parser.add_argument("--tables", nargs="+", default=numbers, choices=numbers)
    options = parser.parse_args()
    started = time.perf_counter()
    prepare(options.work)
    lines = []
    for title, (paper_columns, tasks, rows) in TABLES.items():
        if title[0] not in options.tables:
            continue
        columns = ("perplexity", *tasks)
        lines += ["", title, f"{'':<26}{''.join(f'{c:>15}' for c in columns)}   paper"]
        lines[-1] += f" ({paper_columns})"
        for row in rows:
            found = [
                measure(options.work, row, options.steps, tasks, seed)
                for seed in range(options.seeds)
            ]
            cells = [
                cell([scores[c] for scores in found if c in scores]) for c in columns
            ]
            shown = "".join(f"{each:>15}" for each in cells)
            lines.append(f"{row.name:<26}{shown}   {', '.join(map(str, row.paper))}")
            print("\n".join(lines), flush=True)  # the results so far
    tokens = options.steps * RECIPE["batch_size"] * LENGTH
    print(NOTES.format(times=PAPER_TOKENS / tokens))
    print(
        f"\ndone in {time.perf_counter() - started:.0f} s; runs and reports are in "
        f"{options.work / 'runs'}"
    )


if __name__ == "__main__":
    main()
