"""Names and values of scores as people read them."""

from __future__ import annotations

import numbers
import re
from collections.abc import Mapping
from typing import Any

_WORDS = {
    **{word: word.upper() for word in "auc bleu f1 id lm map mlm mrr".split()},
    **{word: word.title() for word in "matthews pearson spearman".split()},
    **{"ndcg": "NDCG", "roc": "ROC", "chrf": "chrF", "num": "number of"},
    **{f"rouge{kind}": f"ROUGE-{kind}" for kind in ("1", "2", "L", "Lsum")},
}


def cut(value: object, most: int) -> str:
    """Return a text, truncated to a maximum number of characters."""
    shown = str(value)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def cut_middle(value: object, most: int) -> str:
    """Return a name, truncated in its middle: names often differ at their ends."""
    shown = str(value)
    if len(shown) <= most:
        return shown
    return f"{shown[: most // 2]}…{shown[most // 2 + 1 - most :]}"


def signed(value: float, digits: int) -> str:
    """Return a number with its sign, which a number that is shown as 0 has not."""
    shown = f"{value:+.{digits}f}"
    return shown if float(shown) else shown[1:]


def words(key: object) -> str:
    """Return a key such as `macro_f1` as words: "Macro F1"; "MRR", "Accuracy@1".

    The words of a key with spaces are kept: it may contain a name the user chose.
    """
    shown, at, rest = re.sub(r"_at_(?=\d+(_|$))", "@", str(key)).partition("@")
    if " " not in shown:
        shown = " ".join(_WORDS.get(word, word) for word in shown.split("_"))
        rest = rest.replace("_", " ")
    shown += at + rest
    return shown if shown.startswith("chrF") else shown[:1].upper() + shown[1:]


def is_number(value: object) -> bool:
    """Return whether a value is a real number of Python or NumPy; `True` is not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def plain_scores(values: Mapping[str, Any]) -> dict[str, object]:
    """Return the scores that are a single number or word."""
    return {
        key: value
        for key, value in values.items()
        if value is None or isinstance(value, str | bool) or is_number(value)
    }
