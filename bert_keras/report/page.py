"""An HTML page that stands alone, and the tables on it.

No script, no font, no picture from elsewhere: a page opens offline, on light and dark
screens, and prints. Texts come from strangers, so everything that is shown is escaped,
and a content security policy forbids the page to load or run anything.
"""

from __future__ import annotations

import html
import json
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MOST_LETTERS = 300  # of a text that is shown
_MANY_CLASSES = 12  # above it a matrix is set small
_NUMBER = ' class="number"'
_WORDS = {"f1": "F1", "id": "ID", "num": "number of"}
# What HTML cannot hold: control characters, and halves of surrogate pairs.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d5dae0;
  --paper: #fff; --panel: #f5f7f9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #9aa4af;
  --line: #3a424c; --paper: #16191d; --panel: #1f242a; } }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb;
  --paper: #fff; --panel: #f5f7f9; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 72rem; color: var(--ink);
  background: var(--paper); font: 15px/1.5 system-ui, -apple-system, "Segoe UI",
  "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1.25rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; padding-bottom: .25rem;
  border-bottom: 1px solid var(--line); break-after: avoid; }
h3 { font-size: 1rem; margin: 1.25rem 0 .5rem; break-after: avoid; }
.cards, .side { display: flex; flex-wrap: wrap; gap: 1rem; }
.side { gap: 0 2.5rem; align-items: flex-start; }
.side > section { max-width: 100%; }
.card { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: .8rem 1.1rem; break-inside: avoid; }
.card h3 { margin: 0 0 .35rem; }
.card dl { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; margin: 0; }
.card dt { font-size: .8rem; color: var(--soft); }
.card dd { margin: 0; font-size: 1.5rem; font-weight: 600; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
.charts { display: grid; gap: 1rem; break-inside: auto;
  grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); }
figure { margin: 0; break-inside: avoid; max-width: 46rem; }
svg { display: block; width: 100%; height: auto; }
.scroll { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; margin: .25rem 0 1rem; font-size: .9rem; }
th, td { padding: .3rem .65rem; text-align: start; vertical-align: top;
  border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
thead th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
th { white-space: nowrap; }
td.number, th.number { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; overflow-wrap: normal; }
tr { break-inside: avoid; }
.corner { border: 0 !important; }
td.text { min-width: 16rem; }
.matrix th, .matrix td { border: 1px solid var(--line); }
.matrix tbody th { position: sticky; left: 0; background: var(--paper); }
.matrix td { text-align: center; min-width: 3rem; font-variant-numeric: tabular-nums;
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.matrix .zero { color: var(--soft); }
.dense { font-size: .68rem; }
.dense th, .dense td { padding: .1rem .25rem; min-width: 1.7rem; }
.dense thead th { writing-mode: vertical-rl; transform: rotate(180deg);
  text-align: left; vertical-align: top; }
.note { color: var(--soft); font-size: .85rem; margin: 0 0 .35rem; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: .7rem 1rem; white-space: pre-wrap; overflow-wrap: anywhere;
  font-size: .85rem; }
@media print { body { padding: 0; max-width: none; font-size: 11px; }
  .scroll { overflow: visible; } .matrix tbody th { position: static; }
  .dense { font-size: 5px; }
  .dense th, .dense td { padding: 0 1px; min-width: 0; } }
"""


def page(title: str, body: str) -> str:
    """Return a whole page; the body is HTML already, the title is a text."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def text(value: object, most: int | None = None) -> str:
    """Return a text as HTML can hold it, escaped, of at most so many letters."""
    shown = _UNPRINTABLE.sub("\ufffd", str(value))
    if most is not None and len(shown) > most:
        shown = shown[: most - 1] + "…"
    return html.escape(shown)


def words(key: object) -> str:
    """Return a key such as `macro_f1` as words, not yet escaped: "Macro F1"."""
    shown = " ".join(_WORDS.get(word, word) for word in str(key).split("_"))
    return shown[:1].upper() + shown[1:]


def is_number(value: object) -> bool:
    """Say whether a value is a real number of Python or NumPy; `True` is not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def shown_value(value: object) -> str:
    """Return a result as people read it: 1,234 and 0.9876; no value is a dash."""
    if value is None:
        return "–"
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return f"{int(value):,}"
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        plain = number == 0 or 1e-3 <= abs(number) < 1e6
        return f"{number:,.4f}" if plain else f"{number:.4g}"
    return shown_setting(value)


def shown_setting(value: object) -> str:
    """Return a value as it was set: numbers without commas, lists as JSON."""
    if isinstance(value, Mapping | list | tuple):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return text(value, 4 * MOST_LETTERS)


def section(heading: str, content: str) -> str:
    """Return a part of the page, or nothing if its content is empty."""
    if not content:
        return ""
    return f"<section><h2>{text(heading)}</h2>\n{content}</section>"


def cell(value: object, *, numeric: bool = False) -> str:
    """Return one cell of a table; all of a numeric column stands to the right."""
    if is_number(value) or (numeric and value is None):
        return f'<td class="number">{shown_value(value)}</td>'
    return f'<td dir="auto">{shown_value(value)}</td>'


def table(
    columns: Sequence[str], rows: Iterable[tuple[str, Sequence[object]]], *, corner: str
) -> str:
    """Return a table with named rows.

    Args:
        columns: heading of each column after the first.
        rows: name of each row, and its values.
        corner: heading of the first column.
    """
    rows = list(rows)
    numeric = [any(is_number(row[i]) for _, row in rows) for i in range(len(columns))]
    heads = "".join(
        f'<th scope="col"{_NUMBER * right}>{text(column, 60)}</th>'
        for right, column in zip(numeric, columns, strict=True)
    )
    lines = []
    for name, row in rows:
        values = zip(numeric, row, strict=True)
        cells = "".join(cell(value, numeric=right) for right, value in values)
        lines.append(
            f'<tr><th scope="row" dir="auto">{text(name, 60)}</th>{cells}</tr>'
        )
    return framed([f'<th scope="col">{text(corner)}</th>{heads}'], lines)


def framed(
    heads: Sequence[str], lines: Sequence[str], *, opening: str = "<table>"
) -> str:
    """Return lines of HTML as a table that scrolls where it is too wide."""
    head = "".join(f"<thead><tr>{line}</tr></thead>\n" for line in heads)
    body = "\n".join(lines)
    return f'<div class="scroll">{opening}{head}<tbody>{body}</tbody></table></div>'


def pairs(values: Mapping[str, object]) -> str:
    """Return a table of names and values as they were set; empty without any."""
    lines = [
        f'<tr><th scope="row">{text(name, 60)}</th>'
        f'<td dir="auto">{shown_setting(value)}</td></tr>'
        for name, value in values.items()
    ]
    return framed([], lines) if lines else ""


def nested_table(rows: Mapping[str, Mapping[str, object]], *, corner: str) -> str:
    """Return a table of a mapping of mappings; a missing value is a dash."""
    keys = union(rows.values())
    cells = ((name, [row.get(key) for key in keys]) for name, row in rows.items())
    return table([words(key) for key in keys], cells, corner=corner) if keys else ""


def union(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the keys of all rows, in the order in which they first occur."""
    return list(dict.fromkeys(key for row in rows for key in row))


def matrix_table(matrix: Sequence[Sequence[Any]], names: Sequence[str]) -> str:
    """Return a confusion matrix, each cell shaded by its share of the row.

    Args:
        matrix: counts [C, C]; rows are true classes, columns predicted ones.
        names: C names.
    """
    heads = "".join(
        f'<th scope="col" title="{text(name)}">{text(name, 24)}</th>' for name in names
    )
    lines = []
    for i, row in enumerate(matrix):
        total = sum(row)
        cells = "".join(
            _shaded(count, count / total if total else 0.0, i == j, names[i], names[j])
            for j, count in enumerate(row)
        )
        name = f'title="{text(names[i])}">{text(names[i], 24)}'
        lines.append(f'<tr><th scope="row" {name}</th>{cells}</tr>')
    dense = " dense" if len(matrix) > _MANY_CLASSES else ""
    note = "Rows: true class. Columns: predicted class. Shade: share of the row."
    opening = f'<table class="matrix{dense}">'
    head = f'<td class="corner"></td>{heads}'
    return f'<p class="note">{note}</p>{framed([head], lines, opening=opening)}'


def _shaded(count: Any, share: float, hit: bool, true: str, predicted: str) -> str:
    title = f"true {true}, predicted {predicted}: {100 * share:.1f} % of the row"
    if not count:
        return f'<td class="zero" title="{text(title)}">0</td>'
    colour = "38 132 84" if hit else "208 80 40"
    return (
        f'<td style="background: rgb({colour} / {0.08 + 0.67 * share:.2f})" '
        f'title="{text(title)}">{shown_value(count)}</td>'
    )
