"""The paper's three ablation tables at a size that two cores do in forty minutes.

    python examples/ablations/run.py WORK [--steps 800]

Pretrains a tiny BERT for each row, on the documentation that comes with Python, and
scores it: perplexity of held-out text, accuracy of the package that a paragraph comes
from, F1 of names in sentences (fine-tuned, and from frozen features). Prints all beside
the paper's figures. What is done stays in WORK; a run that was stopped goes on there.
"""

import argparse
import time
from pathlib import Path

from measuring import LENGTH, RECIPE, measure, prepare
from tables import TABLES

PAPER_TOKENS = 1_000_000 * 128_000  # steps x tokens of a batch, appendix A.2
NOTES = """
What this can show: that every row of the tables is one setting, how far a model of that
size and kind gets in the same number of steps on the same text, and large effects.
What it cannot: repeat the paper. Its models are about a hundred times larger and see
{times:,.0f} times the tokens, and its tasks are other ones. Each row is one seed. Of a
thousand paragraphs, two standard errors are 3 points of accuracy; of 23 sentences, one
name more is some points of F1, so that small differences there are chance.
A row with a perplexity above 500 knows how frequent words are and nothing else: its
steps were over before it left the plateau that every row begins on. That tells of how
it starts, not of where it would end.
Perplexity left to right predicts every token from its past alone, at no masks: it does
not compare with the others. The classifier of paragraphs is left out there, since the
first token, which is what a classifier reads, sees no other token."""


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
            print("\n".join(lines), flush=True)  # what is known so far
    tokens = options.steps * RECIPE["batch_size"] * LENGTH
    print(NOTES.format(times=PAPER_TOKENS / tokens))
    print(
        f"\ndone in {time.perf_counter() - started:.0f} s; runs and reports lie in "
        f"{options.work / 'runs'}"
    )


if __name__ == "__main__":
    main()
