"""The paper's three ablation tables at a size that two cores do in forty minutes.

    python examples/ablations/run.py WORK [--steps 900]

Pretrains a tiny BERT for each row, on the documentation that comes with Python, and
scores it: perplexity of held-out text, accuracy of e-mails' classes, F1 of names in
sentences (fine-tuned, and from frozen features). Prints all beside the paper's figures.
What is done stays in WORK, and a run that was stopped goes on there.
"""

import argparse
import time
from pathlib import Path

from measuring import measure, prepare
from tables import TABLES, TASKS

NOTES = """
What this can show: that every row of the tables is one setting, how far a model of that
size and kind gets in the same number of steps on the same text, and large effects.
What it cannot: repeat the paper. Its models are 50 to 200 times larger and see about
{times:,} times the text, and its tasks are other ones, thousands of times larger. Each
row here is one seed; the test sets hold 84 e-mails and 23 sentences, so that one answer
more is 1.2 points of accuracy and some points of F1: differences of a few points are
chance. Perplexity left to right predicts every token from its past alone, at no masks:
it does not compare with the others. Its classifier of e-mails is left out, since the
first token, which is what a classifier reads, sees no other token."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--steps", type=int, default=900)
    options = parser.parse_args()
    started = time.perf_counter()
    prepare(options.work)
    columns = ["perplexity", *TASKS]
    lines = []
    for title, (paper_columns, rows) in TABLES.items():
        lines += ["", title, f"{'':<26}{''.join(f'{c:>12}' for c in columns)}   paper"]
        lines[-1] += f" ({paper_columns})"
        for row in rows:
            scores = measure(options.work, row, options.steps)
            cells = [
                f"{scores[c]:12.1f}" if c in scores else " " * 11 + "-" for c in columns
            ]
            figures = ", ".join(map(str, row.paper))
            lines.append(f"{row.name:<26}{''.join(cells)}   {figures}")
            print("\n".join(lines), flush=True)  # what is known so far
    print(NOTES)
    print(
        f"\ndone in {time.perf_counter() - started:.0f} s; runs and reports lie in "
        f"{options.work / 'runs'}"
    )


if __name__ == "__main__":
    main()
