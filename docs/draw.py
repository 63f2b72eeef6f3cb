"""Draw the figures of the pages: `python docs/draw.py` writes `docs/images/NAME.svg`.

The figure of a task shows the tokens that enter the encoder, the vectors that the head
reads, and an answer; `rooms.svg` shows the way of a text through the package.
"""

from __future__ import annotations

import html
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "images"
INK, PAPER, FIRST, SECOND, ENCODER, HEAD = (
    *("#1f2933", "#ffffff", "#dbe9f6", "#fdebc8"),
    *("#e4e0f4", "#d5efdd"),
)
CHARACTER, GAP, MARGIN = 8.6, 6, 20


class Figure(NamedTuple):
    """A figure: pieces of the first and second text, those that the head reads."""

    first: str
    second: str
    read: tuple[int, ...]
    head: str
    answer: str


FIGURES = {
    "classification": Figure(
        "[CLS] claim your prize now [SEP]", "", (0,), "dense + softmax", "spam  0.98"
    ),
    "multi-label": Figure(
        "[CLS] good soup , slow waiter [SEP]",
        "",
        (0,),
        "dense + sigmoid for each class",
        "food 0.97   service 0.91   price 0.04",
    ),
    "regression": Figure(
        "[CLS] a man sleeps [SEP]", "somebody rests [SEP]", (0,), "dense", "3.8"
    ),
    "reranking": Figure(
        "[CLS] reset password [SEP]",
        "reset it here [SEP]",
        (0,),
        "dense + sigmoid",
        "0.93",
    ),
    "next-sentence": Figure(
        "[CLS] it rained [SEP]",
        "we stayed at home [SEP]",
        (0,),
        "pretrained next-sentence head",
        "is_next  0.99",
    ),
    "embedding": Figure(
        "[CLS] reset my password [SEP]",
        "",
        (0, 1, 2, 3, 4),
        "mean, length 1",
        "[0.02, -0.11, … ]",
    ),
    "masked-lm": Figure(
        "[CLS] the cat sat on the [MASK] [SEP]",
        "",
        (6,),
        "pretrained masked-LM head",
        "mat 0.41   floor 0.22   bed 0.09",
    ),
    "multiple-choice": Figure(
        "[CLS] it rained , so [SEP]",
        "i took an umbrella [SEP]",
        (0,),
        "one score for each choice, softmax over the choices",
        "i took an umbrella  0.97",
    ),
    "token-classification": Figure(
        "[CLS] anna weber lives in vienna [SEP]",
        "",
        (1, 2, 3, 4, 5),
        "dense + softmax for each word",
        "anna weber: person   vienna: place",
    ),
    "feature-tagging": Figure(
        "[CLS] anna weber lives in vienna [SEP]",
        "",
        (1, 2, 3, 4, 5),
        "BiLSTM on the last four layers of the frozen encoder",
        "anna weber: person   vienna: place",
    ),
    "question-answering": Figure(
        "[CLS] when was it built ? [SEP]",
        "the tower was built in 1889 [SEP]",
        (7, 8, 9, 10, 11, 12),
        "start and end scores for each token",
        "1889",
    ),
    "summarization": Figure(
        "[CLS] a storm hit the coast . trains stopped . [SEP]",
        "",
        (1, 2, 3, 4, 5, 6, 7, 8, 9),
        "one score for each sentence, from the mean of its tokens",
        "a storm hit the coast .",
    ),
    "translation": Figure(
        "[CLS] the train is late [SEP]",
        "",
        (0, 1, 2, 3, 4, 5),
        "decoder: attends to all tokens, writes one token after the other",
        "der zug hat verspätung",
    ),
    "abstractive-summarization": Figure(
        "[CLS] a storm hit the coast . trains stopped . [SEP]",
        "",
        tuple(range(11)),
        "decoder: attends to all tokens, writes one token after the other",
        "storm stops trains",
    ),
}


def drawn(figure: Figure) -> str:
    """Return a figure as SVG."""
    first, second = figure.first.split(), figure.second.split()
    boxes, x = [], float(MARGIN)
    for number, token in enumerate([*first, *second]):
        width = CHARACTER * len(token) + 14
        boxes.append((x, width, token, FIRST if number < len(first) else SECOND))
        x += width + GAP
    wide = max(x - GAP + MARGIN, CHARACTER * len(figure.head) + 60, 420.0)
    parts = []
    for number, (left, width, token, colour) in enumerate(boxes):
        middle = left + width / 2
        parts += [box(left, 20, width, 30, colour, token), arrow(middle, 50, 68)]
        if number in figure.read:
            parts.append(arrow(middle, 100, 122))
    used = boxes[-1][0] + boxes[-1][1]
    right = max(used, wide - MARGIN)
    middle = (MARGIN + right) / 2
    parts += [
        box(MARGIN, 70, used - MARGIN, 30, ENCODER, "BERT encoder"),
        box(MARGIN, 124, right - MARGIN, 30, HEAD, figure.head),
        arrow(middle, 154, 176),
        label(middle, 196, figure.answer, 700),
    ]
    return picture(wide, 214, parts, figure.answer)


def picture(width: float, height: float, parts: list[str], title: str) -> str:
    """Return parts as an SVG on white paper, which both colour schemes can show."""
    view = f"0 0 {width:.0f} {height:.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{view}" '
        f'width="{width:.0f}" font-family="ui-monospace, Menlo, Consolas, monospace" '
        f'font-size="14" role="img">\n<title>{html.escape(title)}</title>\n'
        '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
        f'markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/>'
        f'</marker></defs>\n<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def box(x: float, y: float, width: float, height: float, fill: str, text: str) -> str:
    """Return a box with a text in its middle."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="5" fill="{fill}" stroke="{INK}" stroke-opacity="0.35"/>'
        + label(x + width / 2, y + height / 2 + 5, text)
    )


def label(x: float, y: float, text: str, weight: int = 400) -> str:
    """Return a text around a middle."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{INK}" '
        f'font-weight="{weight}" xml:space="preserve">{html.escape(text)}</text>'
    )


def arrow(x: float, top: float, bottom: float) -> str:
    """Return an arrow down."""
    return (
        f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{INK}" '
        'marker-end="url(#a)" fill="none"/>'
    )


# Column, row, room and contents; arrows lead from a box to others.
ROOMS = {
    "file": (0, 0, "your rows", "TSV, CSV, JSONL, Parquet, frames"),
    "checkpoint": (2, 0, "a pretrained BERT", "a folder, a checkpoint, hf://…"),
    "data": (0, 1, "data/", "labelled columns, by role"),
    "text": (1, 1, "text/, reading/", "WordPiece ids; what a head reads"),
    "checkpoints": (2, 1, "checkpoints/", "weights under canonical names"),
    "tasks": (0, 2, "tasks/", "labels, heads, losses, answers"),
    "model": (1, 2, "model/, generation/", "encoder, decoder, heads; search"),
    "training": (2, 2, "training/, pretraining/", "epochs, checkpoints, resuming"),
    "scoring": (
        *(0, 3, "scoring/, report/, explanations/"),
        "scores, mistakes, words that decide",
    ),
    "inference": (
        *(1, 3, "models/, exports/, inference/"),
        "model folder, export, predict",
    ),
    "distribution": (2, 3, "distribution/", "GPUs, machines, TPUs"),
    "serving": (1, 4, "serving/, retrieval/", "HTTP, gRPC, a page; an index"),
    "answers": (0, 4, "answers", "JSON, CSV, tensors"),
    "saved": (2, 4, "a SavedModel", "strings in, answers out"),
}
ARROWS = (
    *("file data", "data text", "checkpoint checkpoints", "checkpoints model"),
    *("text model", "tasks model", "data tasks", "model training"),
    *("training inference", "model inference", "inference scoring"),
    *("distribution training", "inference serving", "inference saved"),
    *("serving answers", "saved serving"),
)
WIDE, HIGH, ACROSS, DOWN = 290.0, 54.0, 344.0, 92.0


def drawn_rooms() -> str:
    """Return the way of a text through the rooms as SVG."""

    def corner(name: str) -> tuple[float, float]:
        column, row = ROOMS[name][:2]
        return MARGIN + column * ACROSS, MARGIN + row * DOWN

    parts = []
    for each in ARROWS:
        start, end = (corner(name) for name in each.split())
        parts.append(joined(start, end))
    for name, (_, _, title, contents) in ROOMS.items():
        x, y = corner(name)
        outside = name in ("file", "checkpoint", "answers", "saved")
        parts.append(
            f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6" '
            f'fill="{SECOND if outside else FIRST}" stroke="{INK}" '
            'stroke-opacity="0.35"/>'
        )
        parts.append(label(x + WIDE / 2, y + 22, title, 700))
        parts.append(
            label(x + WIDE / 2, y + 42, contents).replace(
                "<text ", '<text font-size="12" font-family="sans-serif" '
            )
        )
    width, height = 2 * ACROSS + WIDE + 2 * MARGIN, 4 * DOWN + HIGH + 2 * MARGIN
    return picture(width, height, parts, "The way of a text through the rooms")


def joined(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return an arrow between two boxes, given by their upper left corners."""
    (x, y), (u, v) = start, end
    if v > y:  # down
        half = (y + HIGH + v) / 2
        if u == x:
            path = f"M{x + WIDE / 2} {y + HIGH}V{v}"
        else:
            side = WIDE * (0.75 if u > x else 0.25)
            into = WIDE * (0.25 if u > x else 0.75)
            path = f"M{x + side} {y + HIGH}V{half}H{u + into}V{v}"
    elif v < y:  # up
        path = f"M{x + WIDE / 2} {y}V{v + HIGH}"
    elif u > x:
        path = f"M{x + WIDE} {y + HIGH / 2}H{u}"
    else:
        path = f"M{x} {y + HIGH / 2}H{u + WIDE}"
    return f'<path d="{path}" stroke="{INK}" marker-end="url(#a)" fill="none"/>'


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "rooms.svg").write_text(drawn_rooms(), encoding="utf-8")
    for name, figure in FIGURES.items():
        (FOLDER / f"{name}.svg").write_text(drawn(figure), encoding="utf-8")


if __name__ == "__main__":
    main()
