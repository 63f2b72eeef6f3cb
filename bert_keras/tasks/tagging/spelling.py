"""The entities of texts, or the tags of words, in Python: `spelled_entities`.

The same answers as those of `words.find_entities` in graph, from the probabilities that
an engine computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_keras.reading.token_rows import TokenizedText
from bert_keras.scoring.entities import entities_of, of_one_word, scheme_of
from bert_keras.text.characters import over_marks_of
from bert_keras.text.token_ids import as_unicode

# What fills an answer, and its dtype.
_ANSWERS: dict[str, tuple[Any, Any]] = {
    "entities": (b"", object),
    "types": (b"", object),
    "starts": (-1, np.int32),
    "ends": (-1, np.int32),
    "scores": (0.0, np.float32),
}


def spelled_entities(
    classes: Sequence[str],
    probabilities: np.ndarray,
    rows: Sequence[TokenizedText],
    *,
    below: float = 0.0,
    scored: bool = False,
) -> dict[str, np.ndarray]:
    """Return the answers to texts, or to lists of words, see `TaggingTask.answer`.

    Args:
        classes: the C tags.
        probabilities: float32 [W, C], of all words of the texts in turn.
        rows: B texts, or lists of words.
        below: entities whose score is lower are omitted.
        scored: whether those of lists of words are returned, too.
    """
    is_plain = scheme_of(classes) == "words"
    tags = of_one_word(classes) if is_plain else list(classes)
    best, scores = probabilities.argmax(axis=1), probabilities.max(axis=1)
    done, found = 0, []
    for row in rows:
        part = slice(done, done + len(row.words))
        done = part.stop
        entities = []
        for kind, start, end in entities_of(tags[each] for each in best[part].tolist()):
            score = scores[part][start:end].mean()
            if score >= below:
                entities.append((kind, start, end, score))
            else:
                best[part][start:end] = tags.index("O")
        found.append(entities)
    if rows and not isinstance(rows[0].given, str):
        return _of_words(classes, probabilities, best, rows, scored)
    given = zip(rows, found, strict=True)
    return _filled([[_spelled(row, *each) for each in some] for row, some in given])


def _spelled(row: TokenizedText, kind: str, first: int, end: int, score: float) -> Any:
    """Return an entity from its `first` to its `end` word as a value of each answer."""
    text, places, words = as_unicode(row.given), row.text.places, row.words
    last = (words[end] if end < len(words) else len(places)) - 1
    start, stop = places[words[first]][0], over_marks_of(text, places[last][1])
    return text[start:stop].encode(), kind.encode(), start, stop, score


def _filled(rows: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
    """Return the entities of B texts as arrays [B, E]."""
    most = max(map(len, rows), default=0)
    found = {}
    for place, (name, (fill, dtype)) in enumerate(_ANSWERS.items()):
        found[name] = np.full((len(rows), most), fill, dtype)
        for number, row in enumerate(rows):
            found[name][number, : len(row)] = [entity[place] for entity in row]
    return found


def _of_words(
    classes: Sequence[str],
    probabilities: np.ndarray,
    best: np.ndarray,
    rows: Sequence[TokenizedText],
    scored: bool,
) -> dict[str, np.ndarray]:
    """Return the tags of lists of words, and their scores, [B, V] each."""
    width = max(len(row.given) for row in rows)
    there = np.zeros((len(rows), width), bool)
    for row, mask in zip(rows, there, strict=True):
        mask[: len(row.given)] = [bool(word) for word in row.given]
    found: dict[str, np.ndarray] = {
        "tags": np.full(there.shape, b"", object),
        "scores": np.zeros(there.shape, np.float32),
    }
    found["tags"][there] = np.array([name.encode() for name in classes], object)[best]
    found["scores"][there] = np.take_along_axis(probabilities, best[:, None], 1)[:, 0]
    if scored:
        whole = np.zeros((*there.shape, len(classes)), np.float32)
        whole[there] = probabilities
        found["probabilities"] = whole
    return found
