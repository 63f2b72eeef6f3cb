"""Pages and notebook views of explanations; the templates are those of `report`."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import markupsafe
import numpy as np

from bert_keras.files.json_file import json_text
from bert_keras.report.page import render, script_values

if TYPE_CHECKING:
    from bert_keras.explanations.explainer import Explanation

_STRONGEST = 0.85  # opacity of the colour behind the strongest word
_BARS = 8  # words with the largest attributions, shown as bars next to a text
_HEIGHT = 640  # pixels of a page in a notebook


def scripted_page(
    name: str, *, title: str, data: Mapping[str, Any], **values: str
) -> str:
    """Return a page from the template `NAME.html` with the script `NAME.js`.

    Its content security policy allows no other script, and no request.

    Args:
        name: the name of both files.
        title: heading of the page.
        data: the data that the script draws.
        **values: further values of the template.
    """
    # `<` could end the element that holds the data.
    text = json_text(data, ensure_ascii=True).replace("<", "\\u003c")
    return render(
        f"{name}.html",
        **values,
        **script_values(f"{name}.js"),
        title=title,
        data=markupsafe.Markup(text),
    )


def framed(page: str) -> str:
    """Return a page in a frame, isolated from the styles of a notebook."""
    # The policy has the hash of the script's characters: the encoding does not matter.
    source = html.escape(page).encode("ascii", "xmlcharrefreplace").decode("ascii")
    return (
        f'<iframe srcdoc="{source}" sandbox="allow-scripts" '
        f'style="width: 100%; height: {_HEIGHT}px; border: 0"></iframe>'
    )


def words_in_colour(
    explanations: Sequence[Explanation], template: str, **values: str
) -> str:
    """Return a template rendered with explanations and further values."""
    return render(template, explanations=list(map(page_values, explanations)), **values)


def page_values(explanation: Explanation) -> dict[str, Any]:
    """Return the values of an explanation that a template reads."""
    return {
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
    bars = [
        {
            "text": text,
            "value": value,
            "share": round(100 * abs(value) / (strongest or 1.0), 1),
        }
        for text, value in explanation.top(_BARS, target=row)
        if value != 0
    ]
    gap = float(explanation.gaps[row])
    return {
        "name": explanation.targets[row],
        "against": explanation.against[row],
        "value": float(explanation.values[row]),
        "baseline": float(explanation.baseline_values[row]),
        "gap": None if np.isnan(gap) else gap,
        "parts": {
            role: list(_pieces(explanation, row, role, text, strongest))
            for role, text in explanation.texts.items()
        },
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
