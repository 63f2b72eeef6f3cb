"""Words and tags of rows: classes, targets, facts and mistakes."""

from __future__ import annotations

import collections
from collections.abc import Collection
from typing import Any

import numpy as np

from bert_keras.data.rows import bad_lines
from bert_keras.data.table import Columns
from bert_keras.data.tagged import WORD_LINES, tag_problem, to_bio
from bert_keras.errors import received
from bert_keras.scoring.entities import entities_of, parse_tag, tags_of


def split_cells(columns: Columns, role: str) -> list[list[str]]:
    """Return lists of words or tags; cells that are strings are split at spaces."""
    cells: list[Any] = columns[role]
    return [
        cell.split() if isinstance(cell, str) else list(map(str, cell))
        for cell in cells
    ]


def types_of(columns: Columns) -> list[Collection[str]]:
    """Return the types of entities in each sentence."""
    return [
        {parse_tag(tag)[1] for tag in tags} - {""}
        for tags in split_cells(columns, "label")
    ]


def classes_of(columns: Columns) -> tuple[str, ...]:
    """Return `O`, and the tags of BIO of each type in the data, sorted.

    Raises:
        DataError: a tag is invalid, or all are `O`.
    """
    labels = split_cells(columns, "label")
    problems = [
        (row, reason)
        for row, sentence in enumerate(labels)
        for reason in map(tag_problem, sentence)
        if reason
    ]
    if problems:
        raise columns.error(problems)
    tags = {tag for sentence in labels for tag in sentence}
    kinds = sorted({parse_tag(tag)[1] for tag in tags} - {""})
    if not kinds:
        message = "`label` must hold a tag that is not O, in some sentence"
        raise columns.error([(0, message)])
    return ("O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI"))


def tag_numbers(columns: Columns, classes: tuple[str, ...]) -> np.ndarray:
    """Return the tag of each word, int32 [N, W], filled with -1.

    Tags are converted to the scheme of the classes; a tag without a class in it, such
    as `I-x` where there is only `B-x`, is ignored in the loss.

    Raises:
        DataError: a tag's type is not among the classes, the numbers of tags and words
            differ, or a word is empty.
    """
    index = {parse_tag(tag): number for number, tag in enumerate(classes)}
    prefixes = "".join(sorted(prefix for prefix, _ in index))
    kinds = {kind for _, kind in index} - {""}
    rows, problems = [], []
    pairs = zip(
        split_cells(columns, "text"), split_cells(columns, "label"), strict=True
    )
    for row, (sentence, tags) in enumerate(pairs):
        named = _problems(columns, row, sentence, tags, kinds)
        problems += named
        if not named:
            found = entities_of(tags)
            rows.append(tags_of(found, len(tags), prefixes=prefixes))
    if problems:
        raise bad_lines(columns.path, problems)
    values = np.full((len(rows), max(map(len, rows), default=0)), -1, "int32")
    for row, tags in enumerate(rows):
        values[row, : len(tags)] = [index.get(parse_tag(tag), -1) for tag in tags]
    return values


def _problems(
    columns: Columns, row: int, sentence: list[str], tags: list[str], kinds: set[str]
) -> list[tuple[int, str]]:
    """Return line and reason of each wrong tag of a sentence."""
    lines = [columns.lines[row]] * len(tags)
    if WORD_LINES in columns:
        lines = columns[WORD_LINES][row]
    problems = []
    for line, tag in zip(lines, tags, strict=True):
        kind = parse_tag(tag)[1]
        if kind and kind not in kinds:
            reason = tag_problem(tag) or (
                f"the type of a tag must be one of {', '.join(sorted(kinds))}; "
                f"{received(tag)}"
            )
            problems.append((line, reason))
    if not problems and len(sentence) != len(tags):
        reason = (
            f"`label` must hold a tag for each of {len(sentence)} words; "
            f"holds {len(tags)}"
        )
        problems.append((columns.lines[row], reason))
    if "" in sentence:
        problems.append((columns.lines[row], "`text` must not hold empty words"))
    return problems


def tag_facts(columns: Columns) -> dict[str, Any]:
    """Return how many words and entities there are, and of which types."""
    labels = split_cells(columns, "label")
    counts = collections.Counter(
        entity.type for tags in labels for entity in entities_of(tags)
    )
    return {
        "rows": len(columns),
        "words": sum(map(len, labels)),
        "entities": sum(counts.values()),
        "classes": dict(sorted(counts.items())),
    }


def wrong_sentences(
    columns: Columns, predictions: list[list[str]], scores: np.ndarray
) -> list[dict[str, Any]]:
    """Return the sentences with wrong entities, most confident first.

    Args:
        columns: N labelled sentences.
        predictions: the tags given to each.
        scores: float [N, W], the probability of each of these.
    """
    found = []
    sentences, labels = split_cells(columns, "text"), split_cells(columns, "label")
    for row, (label, prediction) in enumerate(zip(labels, predictions, strict=True)):
        if entities_of(label) == entities_of(prediction):
            continue
        pairs = zip(to_bio(label), to_bio(prediction), strict=True)
        wrong = [place for place, (a, b) in enumerate(pairs) if a != b]
        found.append(
            {
                "line": columns.lines[row],
                "text": " ".join(sentences[row]),
                "label": entities_told(sentences[row], label),
                "prediction": entities_told(sentences[row], prediction),
                "probability": float(scores[row, wrong].max()),
            }
        )
    return sorted(found, key=lambda mistake: -mistake["probability"])


def entities_told(sentence: list[str], tags: list[str]) -> str:
    """Return the entities of a sentence as readable text."""
    return "; ".join(
        f"{' '.join(sentence[start:end])} ({kind})"
        for kind, start, end in entities_of(tags)
    )
