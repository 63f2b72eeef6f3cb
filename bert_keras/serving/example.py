"""The example that a model's page offers: the `widget` of its card, as on the hub.

Source: Hugging Face Hub, "Widgets": a list of examples, each with keys such as `text`,
`text_pair`, `question` and `context`, or `source_sentence` and `sentences`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bert_keras.files.atomic import CARD

# Names of the hub's inputs, and of ours where they differ.
_FIELDS = {"source_sentence": "query", "sentences": "texts", "text_pair": "text_b"}


def card_example(folder: str | os.PathLike[str]) -> dict[str, str]:
    """Return the text of each field of the first example of a folder's card.

    Empty without a card, or if the card has no example that can be read. `text` is also
    the first text of a pair; a list has one text a line.
    """
    readme = Path(folder) / CARD
    if not readme.is_file():
        return {}
    from huggingface_hub import ModelCard  # 0.1 s

    try:
        text = readme.read_text(encoding="utf-8", errors="replace")
        widget = ModelCard(text, ignore_metadata_errors=True).data.get("widget")
    except Exception:  # a card is written by hand, and serves without an example
        return {}
    first = widget[0] if isinstance(widget, list) and widget else {}
    if not isinstance(first, dict):
        return {}
    found = {_FIELDS.get(str(key), str(key)): _text(x) for key, x in first.items()}
    if "text_b" in found:
        found["text_a"] = found.pop("text", "")
    return {key: value for key, value in found.items() if value}


def _text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "\n".join(value)
    return value if isinstance(value, str) else ""
