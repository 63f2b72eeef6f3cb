"""Pages from templates: `render`.

A page needs no script, font or image from elsewhere: it opens offline, on light and
dark screens, and prints. Texts are not trusted, so everything shown is escaped, and a
content security policy forbids the page to load anything, or to run a script other
than its own.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import numbers
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from bert_keras.files.atomic import replaced_file, writing
from bert_keras.report.values import cut, cut_middle, is_number, signed, words

MOST_LETTERS = 300  # of a shown text
_TEMPLATES = Path(__file__).parent / "templates"
_SECTION = re.compile(r'<section id="([^"]*)">.*?<h2>(.*?)</h2>', re.DOTALL)
# Not allowed in HTML: control characters and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def render(template: str, **values: Any) -> str:
    """Render a template with values, each escaped unless it is `Markup`."""
    return _environment().get_template(template).render(**values)


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "cut": cut,
        "cut_middle": cut_middle,
        "breakable": _breakable,
        "contents": contents,
        "px": "{:.1f}".format,
        "setting": _setting,
        "shown": _shown,
        "signed": signed,
        "slug": _slug,
        "words": words,
    }
    environment.tests["real"] = is_number
    return environment


def _printable(value: Any) -> Any:
    if isinstance(value, markupsafe.Markup):
        return value
    return _UNPRINTABLE.sub("\ufffd", str(value))


def _breakable(value: object) -> markupsafe.Markup:
    """Return a name, such as of a class, that may break after an underscore."""
    if isinstance(value, markupsafe.Markup):
        return value
    text = markupsafe.escape(_printable(value))
    return markupsafe.Markup(text.replace("_", markupsafe.Markup("_<wbr>")))


def contents(sections: str) -> list[tuple[str, markupsafe.Markup]]:
    """Return the ID and the heading of each `<section>` of a page that has an ID."""
    return [(name, markupsafe.Markup(h)) for name, h in _SECTION.findall(sections)]


def _slug(heading: object) -> str:
    return re.sub(r"\W+", "-", str(heading).lower())


def _shown(value: Any) -> str:
    """Return a result for people, such as 1,234 or 0.9876; a dash for no value."""
    if isinstance(value, markupsafe.Markup):
        return value
    if not is_number(value):
        return _setting(value)
    if isinstance(value, numbers.Integral):
        return f"{int(value):,}"
    number = float(value)
    if number != 0 and not 1e-3 <= abs(number) < 1e6:
        return f"{number:.4g}"
    decimals = 4 if abs(number) < 100 else 1 if abs(number) < 1000 else 0
    return f"{number:,.{decimals}f}"


def _setting(value: object) -> str:
    """Return a setting as it was given: numbers without commas, lists as JSON.

    A dash stands for `None`.
    """
    if value is None:
        return "–"
    if isinstance(value, Mapping | list | tuple):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return cut(value, 4 * MOST_LETTERS)


def script_values(name: str) -> dict[str, str]:
    """Return a script of the templates and its digest, which the policy names."""
    code = (_TEMPLATES / name).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode("ascii")
    return {"script": markupsafe.Markup(code), "digest": digest}


def write_file(path: str | os.PathLike[str], content: str) -> Path:
    """Write a file atomically and return its path.

    Raises:
        DataError: it cannot be written.
    """
    target = Path(path)
    with writing(target), replaced_file(target) as temporary:
        temporary.write_text(content, encoding="utf-8", errors="replace")
    return target
