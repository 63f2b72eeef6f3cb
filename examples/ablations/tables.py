"""The rows of the paper's ablations, the paper's figures, and the tasks.

Source: Devlin et al. 2018 (arXiv:1810.04805), tables 5, 6 and 8, and appendix C.1.
"""

from typing import Any, NamedTuple

BASE = "2/128/2"  # layers / hidden size / heads of the tiny model


class Row(NamedTuple):
    """A row: name and figures in the paper, our size, settings of `pretrain`, steps."""

    name: str
    paper: tuple[float, ...]
    size: str = BASE
    settings: dict[str, Any] = {}
    share: float = 1.0  # of the steps


def masks(mask: float, random: float) -> dict[str, Any]:
    return {"mask_share": mask, "random_share": random}


# Name of the table: the paper's columns, our tasks, and the rows.
TABLES: dict[str, tuple[str, tuple[str, ...], list[Row]]] = {
    "1. What is predicted": (
        "MNLI-m, QNLI, MRPC, SST-2, SQuAD F1",
        ("origin", "emails", "names"),
        [
            Row("masked LM and NSP", (84.4, 88.4, 86.7, 92.7, 88.5)),
            Row(
                "no NSP",
                (83.9, 84.9, 86.5, 92.6, 87.9),
                settings={"next_sentence": "none"},
            ),
            Row(
                "left to right, no NSP",
                (82.1, 84.3, 77.5, 92.1, 77.8),
                settings={"objective": "causal", "next_sentence": "none"},
            ),
        ],
    ),
    "2. Size: layers / hidden / heads": (
        "perplexity, MNLI-m",
        ("origin", "emails", "names"),
        [
            Row("3/768/12, here 1/96/3", (5.84, 77.9), "1/96/3"),
            Row("6/768/3, here 2/96/1", (5.24, 80.6), "2/96/1"),
            Row("6/768/12, here 2/96/3", (4.68, 81.9), "2/96/3"),
            Row("12/768/12, here 2/128/2", (3.99, 84.4)),
            Row("12/1024/16, here 2/192/4", (3.54, 85.7), "2/192/4"),
            Row("24/1024/16, here 4/192/4", (3.23, 86.6), "4/192/4"),
        ],
    ),
    "3. Masking: mask / same / random": (
        "MNLI-m, NER fine-tuned, NER features",
        ("origin", "names", "features"),
        [
            Row("80 / 10 / 10", (84.2, 95.4, 94.9)),
            Row("100 / 0 / 0", (84.3, 94.9, 94.0), settings=masks(1.0, 0.0)),
            Row("80 / 0 / 20", (84.1, 95.2, 94.6), settings=masks(0.8, 0.2)),
            Row("80 / 20 / 0", (84.4, 95.2, 94.7), settings=masks(0.8, 0.0)),
            Row("0 / 20 / 80", (83.7, 94.8, 94.6), settings=masks(0.0, 0.8)),
            Row("0 / 0 / 100", (83.6, 94.9, 94.6), settings=masks(0.0, 1.0)),
        ],
    ),
    "4. Steps": (
        "MNLI-m, difference",
        ("origin", "emails", "names"),
        [
            Row("1,000,000, here all", (0.0,)),
            Row("500,000, here half", (-1.0,), share=0.5),
        ],
    ),
}


class Column(NamedTuple):
    """A task: its name, files (`{}` is the part), score, settings, and fine-tuning."""

    task: str
    files: str
    score: str
    settings: dict[str, Any]
    epochs: int
    learning_rate: float


NAMES = "entities/{}.conll"  # data of the examples; the other is built here
COLUMNS = {
    "origin": Column(
        "classification", "origin_{}.csv", "accuracy", {}, epochs=3, learning_rate=1e-3
    ),
    "emails": Column(
        "classification",
        "emails/{}.csv",
        "accuracy",
        {},
        epochs=12,
        learning_rate=1e-3,
    ),
    "names": Column(
        "token-classification", NAMES, "f1", {}, epochs=12, learning_rate=2e-3
    ),
    "features": Column(
        "feature-tagging",
        NAMES,
        "f1",
        {"layers": "last", "units": 64},
        epochs=12,
        learning_rate=4e-3,
    ),
}
