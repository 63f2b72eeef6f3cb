"""Make `squad_scores.json`: scores of SQuAD's official scripts for invented answers.

    python tests/goldens/make_squad_golden.py evaluate-v1.1.py evaluate-v2.0.py

The two scripts are those that the data set's page offers. Each case holds golds,
predictions, null scores and a threshold, and the dict that the script prints.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import random
import sys
from typing import Any

HAND = [  # gold answers, prediction
    (["Denver Broncos", "The Denver Broncos"], "the  denver broncos!"),
    (["a"], "the"),
    (["the"], ""),
    (["An apple a day", "apples"], "apple per day"),
    (["U.S.", "United States"], "US"),
    (["twenty-five", "25"], "twenty five"),
    (["Café", "cafe"], "CAFÉ"),
    (["cafe\u0301"], "café"),
    (["«Le Monde»"], "Le Monde"),
    (["東京 都"], "東京"),
    (["İstanbul"], "istanbul"),
    (["theatre, the a an"], "theatre"),
    (["one one two"], "one two two"),
    (["$1,000"], "1000"),
    (["a\u00a0b\tc"], "a b c"),
    (["🎉 party"], "party 🎉"),
]
WORDS = "the a an Denver denver broncos cat, dog. U.S. 1895 — é 東京 win".split()


def load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem[:8], path)
    if spec is None or spec.loader is None:
        sys.exit(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dataset(golds: list[list[str]]) -> list[dict[str, Any]]:
    questions = [
        {"id": str(i), "answers": [{"text": gold} for gold in answers]}
        for i, answers in enumerate(golds)
    ]
    return [{"paragraphs": [{"qas": questions}]}]


def first_version(script: Any, golds: Any, predictions: list[str]) -> dict[str, Any]:
    given = {str(i): text for i, text in enumerate(predictions)}
    return script.evaluate(dataset(golds), given)


def second_version(
    script: Any, golds: Any, predictions: list[str], nulls: Any, threshold: float
) -> dict[str, Any]:
    """Return what the script's `main` computes."""
    data = dataset(golds)
    given = {str(i): text for i, text in enumerate(predictions)}
    na = {str(i): value for i, value in enumerate(nulls)}
    has = script.make_qid_to_has_ans(data)
    raw = script.get_raw_scores(data, given)
    final = [script.apply_no_ans_threshold(each, na, has, threshold) for each in raw]
    found = script.make_eval_dict(*final)
    for prefix, wanted in (("HasAns", True), ("NoAns", False)):
        names = [name for name, value in has.items() if value == wanted]
        if names:
            script.merge_eval(found, script.make_eval_dict(*final, names), prefix)
    script.find_all_best_thresh(found, given, *raw, na, has)
    return dict(found)


def random_case(rng: random.Random, *, size: int, unanswerable: float) -> Any:
    def text() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))

    golds, predictions, nulls = [], [], []
    for _ in range(size):
        gold = [text() for _ in range(rng.randint(1, 3))]
        golds.append([] if rng.random() < unanswerable else gold)
        near = rng.choice(gold) if rng.random() < 0.5 else text()
        predictions.append("" if rng.random() < 0.1 else near)
        # Ties, too.
        nulls.append(round(rng.gauss(1 if not golds[-1] else -1, 2), rng.randint(0, 3)))
    return golds, predictions, nulls


def main() -> None:
    first, second = load(sys.argv[1]), load(sys.argv[2])
    golds, predictions = [list(part) for part in zip(*HAND, strict=True)]
    cases = [(golds, predictions, [0.5 * (i % 5) for i in range(len(HAND))])]
    rng = random.Random(0)
    shares = (0, 0, 0.3, 0.5, 0.9, 1)
    cases += [random_case(rng, size=40, unanswerable=share) for share in shares]
    made = []
    for golds, predictions, nulls in cases:
        case: dict[str, Any] = {"golds": golds, "predictions": predictions}
        if all(golds):
            case["squad1"] = first_version(first, golds, predictions)
        case |= {"null_scores": nulls, "threshold": 0.25}
        case["squad2"] = second_version(second, golds, predictions, nulls, 0.25)
        made.append(case)
    path = pathlib.Path(__file__).with_name("squad_scores.json")
    path.write_text(json.dumps(made, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
