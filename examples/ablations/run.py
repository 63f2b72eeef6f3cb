"""The paper's three ablation tables at a size for two cores and forty minutes.

    python examples/ablations/run.py WORK [--steps 800]

Pretrains a tiny BERT for each row, on the documentation that comes with Python, and
scores it: perplexity of held-out text, accuracy of predicting the package of a
paragraph, F1 of names in sentences (fine-tuned, and from frozen features). Prints the
scores next to the paper's figures. Finished rows stay in WORK; an interrupted run
resumes there.
"""

import argparse
import time
from pathlib import Path

from measuring import LENGTH, RECIPE, measure, prepare
from tables import TABLES

PAPER_TOKENS = 1_000_000 * 128_000  # steps x tokens of a batch, appendix A.2
NOTES = """
Each row is one setting. The tables show large effects, and how far a model of that size
and kind gets in the same number of steps on the same text.
They do not reproduce the paper. Its models are about a hundred times larger and see
{times:,.0f} times the tokens, and its tasks are different. Each row is one seed. With
a thousand paragraphs, two standard errors are 3 points of accuracy; with 23 sentences,
one name is worth several points of F1, so small differences are within chance.
A row with a perplexity above 500 has only learned word frequencies: training ended
before it left the plateau on which every row starts. This shows how training starts,
not where it would end.
The left-to-right perplexity predicts every token from its past alone, without masks: it
is not comparable with the others. The classifier of paragraphs is left out there, since
the first token, which a classifier reads, does not attend to any other token."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--steps", type=int, default=800)
    options = parser.parse_args()
    started = time.perf_counter()
    prepare(options.work)
    lines = []
    for title, (paper_columns, tasks, rows) in TABLES.items():
        columns = ("perplexity", *tasks)
        lines += ["", title, f"{'':<26}{''.join(f'{c:>12}' for c in columns)}   paper"]
        lines[-1] += f" ({paper_columns})"
        for row in rows:
            scores = measure(options.work, row, options.steps, tasks)
            cells = [
                f"{scores[c]:12.1f}" if c in scores else " " * 11 + "-" for c in columns
            ]
            figures = ", ".join(map(str, row.paper))
            lines.append(f"{row.name:<26}{''.join(cells)}   {figures}")
            print("\n".join(lines), flush=True)  # the results so far
    tokens = options.steps * RECIPE["batch_size"] * LENGTH
    print(NOTES.format(times=PAPER_TOKENS / tokens))
    print(
        f"\ndone in {time.perf_counter() - started:.0f} s; runs and reports are in "
        f"{options.work / 'runs'}"
    )


if __name__ == "__main__":
    main()
