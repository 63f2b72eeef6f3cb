"""Which numbers of a tagging task are explained: the odds of each entity's type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.scoring.entities import parse_tag

if TYPE_CHECKING:
    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Rows, Target

_FAR = -1e9  # below any logit, finite
Found = tuple[str, int, int]  # type, first word and the word after the last


def explained_entities(task: Any, item: Item) -> list[Target]:
    """Return the mean log-odds of the type over the words of each entity.

    `task` is the `TaggingTask`.
    """
    text, features = item.parts[0], item.features()
    if isinstance(text, str):
        pieces = item.words.add("text", text)
        entities = _entities_of_text(item)
    else:
        pieces = item.words.add_words("text", text)
        entities = [
            (e.type, e.start, e.end) for e in task.entities_in(item.answer["tags"])
        ]
    rows = item.rows(features, _window_words(item, features, pieces))
    tags = [parse_tag(tag)[1] for tag in task.classes]
    kinds = [kind for kind in dict.fromkeys(tags) if kind]
    read = np.asarray(features["words"])
    if item.target is not None:
        kind = kinds[item.choose(kinds, 0)[0]]
        entities = [each for each in entities if each[0] == kind]
        if not entities and item.words.words:
            entities = [(kind, *_likeliest(item, rows, read, np.array(tags) == kind))]
    found = []
    for kind, start, end in entities:
        against = None
        if item.against is not None:
            other = kinds[item.choose(kinds, kinds.index(kind))[1] or 0]
            against = [number for number, tag in enumerate(tags) if tag == other]
        at = np.argwhere((read >= start) & (read < end))
        chosen = sorted(set(at[:, 0].tolist()))
        name = " ".join(word.text for word in item.words.words[start:end])
        found.append(
            item.log_odds(
                f"{kind}: {name}",
                rows.take(chosen),
                size=len(tags),
                wanted=[number for number, tag in enumerate(tags) if tag == kind],
                others=against,
                places=[(chosen.index(row), column) for row, column in at.tolist()],
                temperature=task.temperature,
                against=item.against or "",
            )
        )
    return found


def _entities_of_text(item: Item) -> list[Found]:
    starts = [word.start for word in item.words.words]
    return [
        (
            entity["type"],
            int(np.searchsorted(starts, entity["start"])),
            int(np.searchsorted(starts, entity["end"])),
        )
        for entity in item.answer["entities"]
    ]


def _likeliest(
    item: Item, rows: Rows, read: np.ndarray, wanted: np.ndarray
) -> tuple[int, int]:
    """Return the word with the highest odds of some tags, as first and end."""
    logits = item.outputs(rows)
    odds = np.logaddexp.reduce(np.where(wanted, logits, _FAR), axis=-1)
    odds -= np.logaddexp.reduce(np.where(wanted, _FAR, logits), axis=-1)
    best = int(read.reshape(-1)[np.where(read >= 0, odds, _FAR).argmax()])
    return best, best + 1


def _window_words(
    item: Item, features: Mapping[str, Any], pieces: np.ndarray
) -> np.ndarray:
    """Return the word of each token in windows, see `tagging.words.lay_windows`."""
    counts = np.asarray(features["padding_mask"]).sum(axis=1) - 2
    step = counts[0] - counts[0] // 2
    length = features["token_ids"].shape[1]
    found = []
    for number, count in enumerate(counts):
        start = min(number * step, len(pieces) - count)
        found.append(item.words_in_row(length, (1, pieces[start : start + count])))
    return np.stack(found)
