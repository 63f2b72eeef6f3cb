"""HTML pages that stand alone, from the templates of this room: `render`.

No script, no font, no picture from elsewhere: a page opens offline, on light and dark
screens, and prints. Texts come from strangers, so everything that is shown is escaped,
and a content security policy forbids the page to load or run anything.
"""

from __future__ import annotations

import functools
import json
import numbers
import re
from collections.abc import Mapping
from typing import Any

import jinja2
import markupsafe

MOST_LETTERS = 300  # of a text that is shown
_WORDS = {"f1": "F1", "id": "ID", "num": "number of"}
# What HTML cannot hold: control characters, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def render(template: str, **values: Any) -> str:
    """Return a page of a template with values, each escaped unless it is `Markup`."""
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bert_keras.report"),
        autoescape=True,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "cut": _cut,
        "setting": _setting,
        "shown": _shown,
        "words": words,
    }
    environment.tests["real"] = is_number
    return environment


def _printable(value: Any) -> Any:
    if isinstance(value, markupsafe.Markup):
        return value
    return _UNPRINTABLE.sub("\ufffd", str(value))


def _cut(value: object, most: int) -> str:
    """Return a text of at most so many letters."""
    shown = str(value)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def words(key: object) -> str:
    """Return a key such as `macro_f1` as words: "Macro F1"."""
    shown = " ".join(_WORDS.get(word, word) for word in str(key).split("_"))
    return shown[:1].upper() + shown[1:]


def is_number(value: object) -> bool:
    """Say whether a value is a real number of Python or NumPy; `True` is not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """Return a result as people read it: 1,234 and 0.9876; no value is a dash."""
    if value is None:
        return "–"
    if not is_number(value):
        return _setting(value)
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}"
    number = float(value)
    plain = number == 0 or 1e-3 <= abs(number) < 1e6
    return f"{number:,.4f}" if plain else f"{number:.4g}"


def _setting(value: object) -> str:
    """Return a value as it was set: numbers without commas, lists as JSON."""
    if isinstance(value, Mapping | list | tuple):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return _cut(value, 4 * MOST_LETTERS)
