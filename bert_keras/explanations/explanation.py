"""What the words of a text contribute to an answer, as values, JSON and HTML:
`Explanation`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import markupsafe
import numpy as np

from bert_keras.explained.words import Word, whole_words
from bert_keras.files.json_file import json_text
from bert_keras.report.page import render, write_file

_STRONGEST = 0.85  # opacity of the colour behind the strongest word
# Characters after which a long paragraph is cut: behind a sentence, or at any word.
_PASSAGE, _LONGEST_PASSAGE = 800, 1200
_ENDS = (".", "!", "?", "。", "！", "？")
_BARS = 8  # words with the largest attributions, shown as bars next to a text


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The contributions of the words of a text to one or several answers.

    Attributes:
        texts: role to text.
        words: W words with their positions in the texts. Words that are truncated, or
            outside of the answer's window, have attributions of 0.
        targets: names of the K answers that are explained, such as a class.
        against: the answer that each is compared with; empty: all others.
        attributions: float32 [K, W], above 0 if a word supports the answer.
        values, baseline_values: float32 [K], the explained values of the text and of
            its baseline.
        gaps, steps: float32 and int32 [K], see `attribution.Result`; NaN for no gap.
        unit: unit of the values: `log-odds`, `cosine`, `score` or `value`.
        answer: what `predict` returns for the text.
        read_to: for truncated texts, role to the offset in characters where reading
            ended.
        label: the true label, if it is known.
        line: the line in its file at which the row begins, of a mistake.
    """

    texts: Mapping[str, str]
    words: tuple[Word, ...]
    targets: tuple[str, ...]
    against: tuple[str, ...]
    attributions: np.ndarray
    values: np.ndarray
    baseline_values: np.ndarray
    gaps: np.ndarray
    steps: np.ndarray
    unit: str
    answer: Mapping[str, Any]
    read_to: Mapping[str, int] = dataclasses.field(default_factory=dict)
    label: str | None = None
    line: int | None = None

    def top(self, count: int = 5, *, target: int = 0) -> list[tuple[str, float]]:
        """Return words with the largest absolute attributions, and the attributions.

        Words are `whole_words`, which have the sum of their parts.
        """
        found = [
            (name, float(self.attributions[target, parts].sum()))
            for name, parts in whole_words(self.words)
        ]
        return sorted(found, key=lambda word: -abs(word[1]))[:count]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        return {
            "texts": dict(self.texts),
            "line": self.line,
            "label": self.label,
            "answer": dict(self.answer),
            "unit": self.unit,
            "read_to": dict(self.read_to),
            "targets": [
                {
                    "target": self.targets[row],
                    "against": self.against[row] or None,
                    "value": float(self.values[row]),
                    "baseline_value": float(self.baseline_values[row]),
                    "gap": None if np.isnan(gap) else float(gap),
                    "words": [
                        {**word._asdict(), "attribution": float(value)}
                        for word, value in zip(
                            self.words, self.attributions[row], strict=True
                        )
                    ],
                }
                for row, gap in enumerate(self.gaps)
            ],
        }

    def _repr_html_(self) -> str:
        return words_in_colour([self], "words.html")


class Explanations(list[Explanation]):
    """The explanations of several texts; a notebook shows their words in colour.

    Args:
        items: one for each text.
        method, baseline: as given to `explain`.
        model: the model's name, if it is known.
    """

    def __init__(
        self,
        items: Iterable[Explanation],
        *,
        method: str,
        baseline: str,
        model: str = "",
    ) -> None:
        super().__init__(items)
        self.method = method
        self.baseline = baseline
        self.model = model

    def write(
        self, path: str | os.PathLike[str], *, title: str = "Explanations"
    ) -> Path:
        """Write a self-contained HTML page, or JSONL; return its path.

        Args:
            path: the file; `.jsonl` for JSONL, see `Explanation.to_dict`.
            title: heading of the page.

        Raises:
            DataError: it cannot be written.
        """
        if Path(path).suffix.lower() == ".jsonl":
            named = {"model": self.model}
            lines = (json_text({**named, **each.to_dict()}) for each in self)
            return write_file(path, "".join(f"{line}\n" for line in lines))
        return write_file(path, self.page(title=title))

    def page(self, *, title: str = "Explanations") -> str:
        """Return the page."""
        return words_in_colour(
            self,
            "explanations.html",
            title=title,
            method=self.method,
            model=self.model,
            baseline=f"[{self.baseline.upper()}]",
        )

    def _repr_html_(self) -> str:
        baseline = f"[{self.baseline.upper()}]"
        return words_in_colour(self, "words.html", model=self.model, baseline=baseline)


def words_in_colour(
    explanations: Sequence[Explanation], template: str, **values: str
) -> str:
    """Return a template rendered with explanations and further values."""
    shown = list(map(page_values, explanations))
    return render(
        template, explanations=shown, **{"model": "", "baseline": "", **values}
    )


def page_values(explanation: Explanation) -> dict[str, Any]:
    """Return the values of an explanation that a template reads."""
    return {
        "line": explanation.line,
        "label": explanation.label,
        "answer": answer_line(explanation.answer),
        "unit": explanation.unit,
        "targets": [
            _target(explanation, row) for row in range(len(explanation.targets))
        ],
        "texts": dict(explanation.texts),
    }


def _target(explanation: Explanation, row: int) -> dict[str, Any]:
    values = explanation.attributions[row]
    strongest = float(np.abs(values).max()) if values.size else 0.0
    top = [(text, x) for text, x in explanation.top(_BARS, target=row) if x != 0]
    longest = max((abs(value) for _, value in top), default=1.0)  # "1,000" is a sum
    bars = [
        {"text": text, "value": value, "share": round(100 * abs(value) / longest, 1)}
        for text, value in top
    ]
    gap = float(explanation.gaps[row])
    parts = {
        role: list(_pieces(explanation, row, role, text, strongest))
        for role, text in explanation.texts.items()
    }
    return {
        "name": explanation.targets[row],
        "against": explanation.against[row],
        "value": float(explanation.values[row]),
        "baseline": float(explanation.baseline_values[row]),
        "gap": None if np.isnan(gap) else gap,
        "parts": parts,
        "passages": _passages(explanation.answer, parts),
        "bars": bars,
    }


def _pieces(
    explanation: Explanation, row: int, role: str, text: str, strongest: float
) -> list[dict[str, Any]]:
    """Return a text split into its words and the text between them."""
    found: list[dict[str, Any]] = []
    last = 0
    for place, word in enumerate(explanation.words):
        if word.role != role:
            continue
        if word.start > last:
            found.append({"text": text[last : word.start]})
        if word.start == explanation.read_to.get(role):
            found.append({"text": "", "ends": True})
        value = float(explanation.attributions[row, place])
        share = abs(value) / strongest if strongest else 0.0
        found.append(
            {
                "text": text[word.start : word.end],
                "value": value,
                "sign": "for" if value > 0 else "against",
                "share": f"{_STRONGEST * share:.3f}",
            }
        )
        last = max(last, word.end)
    if last < len(text):
        found.append({"text": text[last:]})
    return found


def _passages(
    answer: Mapping[str, Any], parts: Mapping[str, list[dict[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    """Return the paragraphs of a text in windows by its role, long ones in parts.

    Each has its `parts`, the `value` that its words add up to, and `open` if it is in
    the window that decided. Empty if the answer names no window, or all is in it.
    """
    if not {"start", "end"} <= answer.keys():
        return {}
    role, pieces = list(parts.items())[-1]  # windows are of the last text
    found: list[dict[str, Any]] = []
    place, is_new, before = 0, True, ""
    for piece in pieces:
        is_gap = "value" not in piece and not piece["text"].strip()
        if is_new and not is_gap:
            found.append({"parts": [], "value": 0.0, "start": place})
            is_new = False
        if found:
            found[-1]["parts"].append(piece)
            found[-1]["value"] += piece.get("value", 0.0)
        place += len(piece["text"])
        longest = _PASSAGE if before.rstrip('")').endswith(_ENDS) else _LONGEST_PASSAGE
        is_long = bool(found) and place - found[-1]["start"] > longest
        is_new = is_new or "\n\n" in piece["text"] or (is_gap and is_long)
        before = before if is_gap else piece["text"]
    if len(found) < 2:
        return {}
    most = max(abs(each["value"]) for each in found) or 1.0
    ends = [*(each["start"] for each in found[1:]), place]
    for each, end in zip(found, ends, strict=True):
        each["open"] = each["start"] < answer["end"] and end > answer["start"]
        each["sign"] = "for" if each["value"] > 0 else "against"
        each["share"] = f"{_STRONGEST * abs(each['value']) / most:.3f}"
        each["head"] = "".join(part["text"] for part in each["parts"]).strip()
        if each["parts"][-1]["text"].isspace():  # blank lines between paragraphs
            each["parts"].pop()
    return {role: found}


def answer_line(answer: Mapping[str, Any]) -> str:
    """Return a model's answer in one line."""
    for key in ("label", "choice", "answer", "summary"):
        if key in answer:
            score = answer.get("score")
            shown = str(answer[key]) or "none"
            return shown if score is None else f"{shown} ({score:.1%})"
    if "labels" in answer:
        return ", ".join(answer["labels"]) or "none"
    if "is_next" in answer:
        word = "follows" if answer["is_next"] else "does not follow"
        return f"{word} (probability of following {answer['probability']:.1%})"
    if "entities" in answer:
        names = [f"{each['text']} ({each['type']})" for each in answer["entities"]]
        return ", ".join(names) or "none"
    if "tags" in answer:
        return " ".join(answer["tags"])
    if "masks" in answer:
        words = [each[0]["token"] for each in answer["masks"] if each]
        return ", ".join(words)
    for key in ("similarity", "score"):
        if key in answer:
            return f"{answer[key]:.4f}"
    return str(markupsafe.Markup.striptags(markupsafe.escape(str(dict(answer)))))[:200]
