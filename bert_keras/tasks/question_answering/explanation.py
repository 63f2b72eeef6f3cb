"""Which numbers of question answering are explained: the odds of start and end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.errors import ConfigError, received

if TYPE_CHECKING:
    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Target


def explained_span(item: Item, *, temperature: float) -> list[Target]:
    """Return the log-odds of start and end of the answer among a window's tokens."""
    item.refuse("against")
    features = item.features()
    length = features["token_ids"].shape[1]
    rows = item.rows(features, _words_of_windows(item, features["questions"], length))
    span = _asked_span(item)
    logits = item.outputs(rows)
    if span is None:
        window, columns, name = int(logits[:, 0].sum(-1).argmin()), (0, 0), "no answer"
    else:
        window, columns = _place_of_span(item, features["questions"], span, logits)
        name = repr(item.parts[1][span[0] : span[1]])
    chosen = rows.take([window])
    real = np.flatnonzero(np.asarray(chosen.batch["padding_mask"])[0])
    return [
        item.log_odds(
            f"{side} of {name}" if span else f"{name}, {side}",
            chosen,
            size=length,
            wanted=[columns[number]],
            others=[int(place) for place in real if place != columns[number]],
            places=[(0, number)],
            temperature=temperature,
            over_tokens=True,
        )
        for number, side in enumerate(("start", "end"))
    ]


def _words_of_windows(item: Item, questions: Any, length: int) -> np.ndarray:
    """Return the word of each token in windows of a question and its context."""
    question = item.words.add("question", item.parts[0])
    context = item.words.add("context", item.parts[1])
    firsts, counts, places = _windows(questions)
    rows = [
        item.words_in_row(
            length, (1, question[: place - 2]), (place, context[first : first + count])
        )
        for first, count, place in zip(firsts, counts, places, strict=True)
    ]
    return np.stack(rows)


def _windows(questions: Any) -> tuple[np.ndarray, ...]:
    """Return first token, number of tokens and first column of each window."""
    found = questions.windows
    return tuple(np.asarray(part) for part in (found.first, found.count, found.place))


def _place_of_span(
    item: Item, questions: Any, span: tuple[int, int], logits: np.ndarray
) -> tuple[int, tuple[int, int]]:
    """Return the best window that holds a span, and its first and last column there."""
    firsts, counts, places = _windows(questions)
    first = int((np.asarray(questions.ends.values) <= span[0]).sum())
    last = int((np.asarray(questions.starts.values) < span[1]).sum()) - 1
    holding = np.flatnonzero((first >= firsts) & (last < firsts + counts))
    if not len(holding):
        raise ConfigError(
            "`target` must be a span of at most half a window; "
            f"{received(item.parts[1][span[0] : span[1]])}"
        )
    shift = places - firsts
    scores = [
        logits[w, first + shift[w], 0] + logits[w, last + shift[w], 1] for w in holding
    ]
    window = int(holding[int(np.argmax(scores))])
    return window, (int(first + shift[window]), int(last + shift[window]))


def _asked_span(item: Item) -> tuple[int, int] | None:
    """Return start and end of the answer in characters; `None` for no answer."""
    if item.target is None:
        start, end = item.answer["start"], item.answer["end"]
        return None if start < 0 else (start, end)
    if item.target == "":
        return None
    start = item.parts[1].find(item.target)
    if start < 0:
        raise ConfigError(
            f"`target` must be a part of the context; {received(item.target)}"
        )
    return start, start + len(item.target)
