"""The report of a run: one HTML file by `write_report`; scores as text for a terminal.

This module prepares the contents; `templates/report.html` lays them out. The page needs
no script, font or image from elsewhere: it opens offline, on light and dark screens,
and prints. Texts are not trusted, so everything shown is escaped, and a content
security policy forbids the page to load or run anything.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import numbers
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import markupsafe

from bert_keras.errors import DataError
from bert_keras.files.atomic import replaced_file
from bert_keras.report.charts import Point, line_chart

_MOST_MISTAKES = 100
_MOST_CLASSES = 100  # above it, the most common confusions replace the matrix
_MANY_CLASSES = 12  # above it, a matrix is set in small type
_MOST_CONFUSIONS = 50
_MOST_CARDS = 3


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    settings: Mapping[str, object],
    data: Mapping[str, object],
    history: Sequence[Mapping[str, object]],
    scores: Mapping[str, Mapping[str, Any]],
    mistakes: Sequence[Mapping[str, object]],
    best_score: str = "",
    environment: Mapping[str, object] | None = None,
    command: str = "",
) -> Path:
    """Write the report of a run as one HTML file and return its path.

    The file is written under a temporary name and renamed when complete.

    Args:
        path: the file; its folder must exist.
        title: the heading of the page.
        settings: the settings of the run, name to value.
        data: name of a split to its facts, such as `rows`, `mean_tokens` and
            `real_token_share`; a fact that is itself a mapping of numbers, such as
            `classes`, becomes a table with a column for each split. A plain value in
            place of the facts is shown unchanged.
        history: rows such as `{"epoch": 1, "step": 40, "loss": 0.5}` and
            `{"epoch": 1, "dev_loss": 0.4, "dev_accuracy": 0.9}`. Numbers are plotted
            against `step` if their row has one, else against `epoch`.
        scores: name of a split to the result of `classification_scores`, or to any
            other mapping: unknown numbers join the table of scores, unknown mappings
            get their own table.
        mistakes: rows such as `text`, `label`, `prediction`, `probability`; sorted by
            descending `probability` if all have it. The first 100 are shown.
        best_score: the score that is shown first and large.
        environment: versions and hardware.
        command: the command that repeats the run.

    Raises:
        DataError: the file cannot be written.
    """
    plain = {split: _plain_scores(values) for split, values in scores.items()}
    content = render(
        "report.html",
        title=title,
        cards=_cards(scores, best_score),
        scores=_nested_table(plain, corner="Split"),
        charts=_charts(history),
        splits={split: _parts(values) for split, values in scores.items()},
        mistakes=_mistakes(mistakes),
        data=_data(data),
        tail={"Settings": settings, "Versions and hardware": environment or {}},
        command=command,
    )
    target = Path(path)
    try:
        with replaced_file(target) as temporary:
            temporary.write_text(content, encoding="utf-8")
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        raise DataError(message, path=target) from None
    return target


@dataclasses.dataclass(frozen=True)
class Table:
    """A table with named rows.

    Args:
        corner: heading of the first column.
        columns: heading of each column after it.
        rows: name of each row, and its values.
    """

    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[object]]]

    @functools.cached_property
    def numeric(self) -> list[bool]:
        """Whether a column holds numbers."""
        places = range(len(self.columns))
        return [any(is_number(row[place]) for _, row in self.rows) for place in places]


class _Part(NamedTuple):
    """How a score is shown: `table`, `matrix`, `pairs`, `chart` or `word`."""

    kind: str
    value: Any


def _nested_table(rows: Mapping[str, Mapping[str, object]], *, corner: str) -> Table:
    """Return a table of a mapping of mappings; a missing value is a dash."""
    keys = _union(rows.values())
    cells = [(name, [row.get(key) for key in keys]) for name, row in rows.items()]
    return Table(corner, [words(key) for key in keys], cells)


def _union(rows: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the keys of all rows, in the order in which they first occur."""
    return list(dict.fromkeys(key for row in rows for key in row))


def _is_loss(key: str) -> bool:
    return key == "loss" or key.endswith("_loss")


def _plain_scores(values: Mapping[str, Any]) -> dict[str, object]:
    """Return the scores that are a single number or word."""
    return {
        key: value
        for key, value in values.items()
        if value is None or isinstance(value, str | bool) or is_number(value)
    }


def _cards(
    scores: Mapping[str, Mapping[str, Any]], best_score: str
) -> list[dict[str, Any]]:
    """Return up to three large numbers for each split: the best score, then others.

    Losses and counts are only used if there is nothing else.
    """
    cards = []
    for split, values in scores.items():
        plain = {key: value for key, value in values.items() if is_number(value)}
        count = plain.pop("num_examples", None)
        keys = [
            key
            for key, value in plain.items()
            if not (_is_loss(key) or isinstance(value, numbers.Integral))
        ]
        keys = sorted(keys or plain, key=lambda key: key != best_score)[:_MOST_CARDS]
        shown = [(key, plain[key]) for key in keys]
        if shown:
            cards.append({"split": split, "count": count, "scores": shown})
    return cards


def _charts(history: Sequence[Mapping[str, Any]]) -> list[markupsafe.Markup]:
    """Return the curves, one chart for each kind of number and horizontal axis."""
    curves: dict[tuple[str, str], list[Point]] = {}
    for number, row in enumerate(history, 1):
        axis = next((key for key in ("step", "epoch") if is_number(row.get(key))), "")
        x = float(row[axis] if axis else number)
        for key, y in row.items():
            if key not in ("step", "epoch") and is_number(y):
                curves.setdefault((axis, key), []).append((x, float(y)))
    charts: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for (axis, key), points in curves.items():
        chart = charts.setdefault((_family(key, points), axis), {})
        chart[words(key)] = points
    drawn = [
        line_chart(
            lines,
            title=f"{family} by {axis or 'record'}",
            x_label={"step": "step (updates)", "": "record"}.get(axis, axis),
            y_label=family.lower(),
        )
        for (family, axis), lines in charts.items()
    ]
    return [markupsafe.Markup(svg) for svg in drawn if svg]


def _family(key: str, points: Sequence[Point]) -> str:
    """Return the name of the chart that a curve belongs to."""
    if _is_loss(key):
        return "Loss"
    # A held-out number that stays within 1, such as accuracy or a correlation.
    is_score = key.startswith("dev_") and all(not abs(y) > 1 for _, y in points)
    return "Scores" if is_score else words(key)


def _parts(values: Mapping[str, Any]) -> list[tuple[str, str, _Part]]:
    """Return name, note and part of each score with more than one number."""
    plain = _plain_scores(values)
    return [
        (key, *_part(key, value, values))
        for key, value in values.items()
        if key not in plain
    ]


def _part(key: str, value: Any, values: Mapping[str, Any]) -> tuple[str, _Part]:
    """Return a note and the part that suits the shape of a score."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if key == "confusion_matrix" and _is_square(value):
        per_class = values.get("per_class")
        names = list(per_class) if isinstance(per_class, Mapping) else []
        if len(names) != len(value):
            names = [str(number) for number in range(len(value))]
        shown = _matrix if len(names) <= _MOST_CLASSES else _confusions
        return shown(value, names)
    if key == "reliability" and value:
        return "", _Part("chart", _reliability(value))
    if isinstance(value, Mapping) and value:
        if all(isinstance(row, Mapping) for row in value.values()):
            corner = "Class" if key == "per_class" else ""
            return "", _Part("table", _nested_table(value, corner=corner))
        return "", _Part("pairs", value)
    return "", _Part("word", value)


def _is_square(value: object) -> bool:
    return isinstance(value, Sequence) and all(
        isinstance(row, Sequence)
        and len(row) == len(value)
        and all(is_number(count) for count in row)
        for row in value
    )


def _matrix(matrix: Sequence[Sequence[Any]], names: Sequence[str]) -> tuple[str, _Part]:
    """Return a confusion matrix, each cell shaded by its share of the row.

    Args:
        matrix: counts [C, C]; rows are true classes, columns predicted ones.
        names: C names.
    """
    rows = []
    for i, row in enumerate(matrix):
        total = sum(row)
        cells = []
        for j, count in enumerate(row):
            share = count / total if total else 0.0
            colour = "38 132 84" if i == j else "208 80 40"
            cells.append(
                {
                    "count": count,
                    "colour": f"{colour} / {0.08 + 0.67 * share:.2f}",
                    "title": f"true {names[i]}, predicted {names[j]}: "
                    f"{100 * share:.1f} % of the row",
                }
            )
        rows.append((names[i], cells))
    dense = len(names) > _MANY_CLASSES
    return "", _Part("matrix", {"names": names, "rows": rows, "dense": dense})


def _confusions(
    matrix: Sequence[Sequence[Any]], names: Sequence[str]
) -> tuple[str, _Part]:
    """Return the most common confusions: true class, predicted class, count."""
    cells = [
        (count, i, j)
        for i, row in enumerate(matrix)
        for j, count in enumerate(row)
        if i != j and count
    ]
    cells.sort(key=lambda item: -item[0])
    rows = [(names[i], [names[j], n]) for n, i, j in cells[:_MOST_CONFUSIONS]]
    note = (
        f"{len(names):,} classes are too many for a matrix; these are the most common "
        f"of {len(cells):,} confusions."
    )
    return note, _Part("table", Table("True", ["Predicted", "Count"], rows))


def _reliability(bins: Sequence[Mapping[str, float]]) -> markupsafe.Markup:
    """Return a chart of accuracy by confidence; a calibrated model lies on the line."""
    svg = line_chart(
        {
            "the model": [(b["confidence"], b["accuracy"]) for b in bins],
            "as sure as right": [(0.0, 0.0), (1.0, 1.0)],
        },
        title="Accuracy by confidence",
        x_label="confidence (bins of equal width)",
        y_label="accuracy",
    )
    return markupsafe.Markup(svg)


def _mistakes(mistakes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return heading, columns, the rows to show, and the count of all.

    The most confident come first if all have a probability; otherwise the order is
    kept.
    """
    rows, heading = list(mistakes), "Mistakes"
    if rows and all(is_number(row.get("probability")) for row in rows):
        rows.sort(key=lambda row: -float(row["probability"]))
        heading = "Most confident mistakes"
    return {
        "heading": heading,
        "columns": _union(rows),
        "rows": rows[:_MOST_MISTAKES],
        "count": len(rows),
    }


def _data(data: Mapping[str, object]) -> dict[str, Any]:
    """Return a table of splits by facts, and one for each fact that is a mapping."""
    plain: dict[str, Mapping[str, object]] = {}
    nested: dict[str, dict[str, Mapping[str, object]]] = {}
    loose: dict[str, object] = {}
    for split, facts in data.items():
        if not isinstance(facts, Mapping):
            loose[split] = facts
            continue
        plain[split] = {k: v for k, v in facts.items() if not isinstance(v, Mapping)}
        for fact, values in facts.items():
            if isinstance(values, Mapping):
                nested.setdefault(fact, {})[split] = values
    table = _nested_table(plain, corner="Split")
    tables = [("", table)] if table.columns else []
    for fact, columns in nested.items():
        names = _union(columns.values())
        rows = [
            (name, [column.get(name) for column in columns.values()]) for name in names
        ]
        tables.append((fact, Table("", list(columns), rows)))
    return {"tables": tables, "loose": loose} if tables or loose else {}


MOST_LETTERS = 300  # of a shown text
_WORDS = {"f1": "F1", "id": "ID", "num": "number of"}
# Not allowed in HTML: control characters and lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def render(template: str, **values: Any) -> str:
    """Render a template with values, each escaped unless it is `Markup`."""
    return _environment().get_template(template).render(**values)


def template_text(name: str) -> str:
    """Return a file of the templates as it is, such as a script."""
    loader = _environment().loader
    source: str = loader.get_source(_environment(), name)[0] if loader else ""
    return source


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
    """Return a text, truncated to a maximum number of characters."""
    shown = str(value)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def words(key: object) -> str:
    """Return a key such as `macro_f1` as words: "Macro F1"."""
    shown = " ".join(_WORDS.get(word, word) for word in str(key).split("_"))
    return shown[:1].upper() + shown[1:]


def is_number(value: object) -> bool:
    """Return whether a value is a real number of Python or NumPy; `True` is not."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    """Return a result for people, such as 1,234 or 0.9876; a dash for no value."""
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
    """Return a setting as it was given: numbers without commas, lists as JSON."""
    if isinstance(value, Mapping | list | tuple):
        value = json.dumps(value, ensure_ascii=False, default=str)
    return _cut(value, 4 * MOST_LETTERS)


def score_table(scores: dict[str, Any]) -> str:
    """Return scores as aligned text: plain numbers, then the tables, such as classes.

    Other scores are only in the JSON and in the report.
    """
    lines = [
        f"  {key:<28}{_number(value):>10}"
        for key, value in scores.items()
        if _is_number(value)
    ]
    for key, table in scores.items():
        if _is_row(table):  # one number per name: a table with one column
            table = {name: {"": value} for name, value in table.items()}
        if not (
            isinstance(table, dict) and table and all(map(_is_row, table.values()))
        ):
            continue
        columns = list(dict.fromkeys(name for row in table.values() for name in row))
        widths = {name: max(11, len(name) + 2) for name in columns}
        width = max(28, *(len(name) + 2 for name in (key, *table)))
        heads = (f"{name:>{widths[name]}}" for name in columns)
        lines.append((f"  {key:<{width}}" + "".join(heads)).rstrip())
        for name, row in table.items():
            cells = (
                f"{_number(row[column]) if column in row else '-':>{widths[column]}}"
                for column in columns
            )
            lines.append(f"  {name:<{width}}" + "".join(cells))
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_row(value: Any) -> bool:
    """Return whether a score maps names to numbers."""
    return (
        isinstance(value, dict) and bool(value) and all(map(_is_number, value.values()))
    )
