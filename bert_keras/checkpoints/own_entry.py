"""Our entry in a `config.json`, `bert_keras`: the task, its settings, preprocessing.

Checked once, when a checkpoint is opened, so that whoever reads it afterwards finds
what stands there to be of the right types. What a task's settings may be, the task
itself says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bert_keras.errors import CheckpointError, shown

KEY = "bert_keras"
FORMAT = 1
_PREPROCESSING = {
    "max_length": int,
    "truncation": str,
    "layout": str,
    "length_multiple": int,
}


def own_entry(raw: Mapping[str, Any], *, positions: int, place: str) -> dict[str, Any]:
    """Return our entry in a parsed config, empty where there is none.

    Args:
        raw: the config.
        positions: `max_position_embeddings` of the encoder; no row is longer.
        place: the file or folder, for messages.

    Raises:
        CheckpointError: it is of another format, or a value of another type.
    """
    entry = raw.get(KEY)
    if entry is None:
        return {}
    if not isinstance(entry, dict) or entry.get("format") != FORMAT:
        raise CheckpointError(
            f"{place}: `{KEY}` must be of format {FORMAT}; received {shown(entry)}"
        )
    for key, kind, word in (
        ("task", str, "a string"),
        ("settings", dict, "an object"),
        ("preprocessing", dict, "an object"),
    ):
        if key in entry and not isinstance(entry[key], kind):
            raise CheckpointError(
                f"{place}: `{key}` of `{KEY}` must be {word}; "
                f"received {shown(entry[key])}"
            )
    said = entry.get("preprocessing", {})
    for key, value in said.items():
        if type(value) is not _PREPROCESSING.get(key):
            raise CheckpointError(
                f"{place}: `preprocessing` of `{KEY}` must hold whole numbers "
                "`max_length` and `length_multiple`, strings `truncation` and "
                f"`layout`; received {shown({key: value})}"
            )
    for key in ("max_length", "length_multiple"):  # both are lengths of rows
        if said.get(key, 0) > positions:
            raise CheckpointError(
                f"{place}: `{key}` must be at most `max_position_embeddings`, "
                f"{positions:,}; received {said[key]:,}"
            )
    return entry
