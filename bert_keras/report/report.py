"""The report of a run: one HTML file by `write_report`.

This module prepares the contents; `templates/report.html` lays them out.
"""

from __future__ import annotations

import csv
import io
import numbers
import os
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_keras.report.confusions import confused_pairs, confusions, is_square
from bert_keras.report.curves import (
    compared_curves,
    decision_charts,
    is_loss,
    learning_curve_chart,
    reliability_chart,
    training_curves,
)
from bert_keras.report.page import MOST_LETTERS, render, script_values, write_file
from bert_keras.report.tables import (
    Part,
    Table,
    class_tables,
    interval_bar,
    interval_of,
    nested_table,
    union,
)
from bert_keras.report.values import cut, is_number, plain_scores, words

_OF_CHOICE = ("value", "option", "reason")
_PARTS = {
    "per_run": "score that chose the best run",
    "per_method": "methods, on the same held-out rows",
}
_MOST_ROWS = 30  # of mistakes and of doubtful labels
_MOST_CARDS = 3
HELD_OUT = "held-out data"  # of pretraining, as pages name it
_MOST_CSV = 1000  # doubtful labels that the page holds to be saved
DOUBTFUL = "doubtful_labels.csv"
_NO_SPLITS = ("runs", "diverged")  # scores of something else than a data set


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
    curves: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
    slices: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]] | None = None,
    doubtful_labels: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    explanations: Sequence[Mapping[str, Any]] = (),
    learning_curve: Sequence[Mapping[str, Any]] = (),
    students: Sequence[Mapping[str, Any]] = (),
    usage: Mapping[str, str] | None = None,
    runs: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    choices: Sequence[Mapping[str, str]] = (),
    notes: Sequence[str] = (),
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
            descending `probability` if all have it. The first 30 are shown.
        best_score: the score that is shown first and large.
        environment: versions and hardware.
        command: the command that repeats the run.
        curves: split to decision to `decision_curves`.
        slices: split to what slices have in common, to `slice_scores`. A slice that
            holds all rows gives the interval of the best score.
        doubtful_labels: split to rows whose label is worth a look; an empty list if
            there are none, no entry if they were not sought.
        explanations: values for the template `words.html`.
        learning_curve: `rows`, and the best score of each split by its name.
        students: a row for the teacher and for the student: `model`, the best score,
            `milliseconds` for 1,000 rows, `megabytes`.
        usage: heading to code that uses the model.
        runs: name of each of several runs to its history.
        choices: what the run decided: `name`, `value`, `reason` and `option` of each.
        notes: lines on what the run guessed, truncated or did not use.

    Raises:
        DataError: the file cannot be written.
    """
    slices = slices or {}
    # The last data set is the one with the mistakes.
    last = data_sets(scores)[-1:]
    scores = {split: scores[split] for split in sorted(scores, key=importance)}
    plain = {split: plain_scores(values) for split, values in scores.items()}
    plain = {split: found for split, found in plain.items() if found}
    splits = {
        split: [
            *_slices(slices.get(split, {}), best_score),
            *_curves((curves or {}).get(split, {})),
            *_parts(scores.get(split, {}), mistakes if split in last else ()),
        ]
        for split in sorted(union([scores, curves or {}, slices]), key=importance)
    }
    content = render(
        "report.html",
        title=title,
        cards=_cards(scores, best_score, slices),
        scores=nested_table(plain, corner="Split"),
        charts=training_curves(
            history, dev="held_out" if HELD_OUT in scores else "dev"
        ),
        runs=compared_curves(runs or {}, keys=("loss", f"dev_{best_score}")),
        learning_curve=_learning_curve(learning_curve, best_score),
        students=_students(students),
        splits=splits,
        is_alone=not any(
            parts for split, parts in splits.items() if importance(split) == 1
        ),
        mistakes=_mistakes(mistakes, *last),
        explanations=explanations,
        model=title.rpartition(": ")[2],
        baseline="",
        doubtful=_doubtful(doubtful_labels) if doubtful_labels else {},
        usage=usage or {},
        data=_data(data),
        choices=nested_table(
            {row["name"]: {key: row[key] for key in _OF_CHOICE} for row in choices},
            corner="Choice",
        ),
        notes=notes,
        tail={"Settings": settings, "Versions and hardware": environment or {}},
        command=command,
        **script_values("report.js"),
    )
    return write_file(path, content)


def data_sets(scores: Mapping[str, Any]) -> list[str]:
    """Return the names among the scores of a run that are data sets."""
    return [split for split in scores if split not in _NO_SPLITS]


def importance(split: str) -> int:
    """Return the place of a split: several runs, then the tests, then dev."""
    return 0 if split == "runs" else 2 if split in ("dev", "diverged") else 1


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV with a header; empty without rows."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, union(rows))
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def rows_with_set(
    doubtful_labels: Mapping[str, Sequence[Mapping[str, Any]]],
) -> list[dict[str, Any]]:
    """Return the rows of all splits, each with its split as `set`."""
    return [
        {"set": split, **row} for split, rows in doubtful_labels.items() for row in rows
    ]


def _cards(
    scores: Mapping[str, Mapping[str, Any]],
    best_score: str,
    slices: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]],
) -> list[dict[str, Any]]:
    """Return up to three large numbers for each split: the best score, then others.

    The best score has its interval, if known. Losses and counts are only used if there
    is nothing else.
    """
    cards = []
    for split, values in scores.items():
        plain = {key: value for key, value in values.items() if is_number(value)}
        count = plain.pop("num_examples", None)
        keys = [
            key
            for key, value in plain.items()
            if not (is_loss(key) or isinstance(value, numbers.Integral))
        ]
        keys = sorted(keys or plain, key=lambda key: key != best_score)[:_MOST_CARDS]
        interval = interval_of(slices.get(split, {}), plain.get(best_score))
        shown = [
            (key, plain[key], interval if key == best_score else None) for key in keys
        ]
        if shown:
            cards.append({"split": split, "count": count, "scores": shown})
    return cards


def _slices(
    slices: Mapping[str, Sequence[Mapping[str, Any]]], best_score: str
) -> list[tuple[str, Part]]:
    """Return a table of the slices of each kind, with all rows as the first one."""
    every = [row for rows in slices.values() for row in rows]
    whole = [row for rows in slices.values() for row in rows if len(rows) == 1][:1]
    ends = [row[key] for row in every for key in ("low", "high") if is_number(row[key])]
    least, most = (min(ends), max(ends)) if ends else (0.0, 1.0)

    def bar(row: Mapping[str, Any]) -> object:
        if row["low"] is None:
            return None
        return interval_bar(row["low"], row["high"], row[best_score], least, most)

    found: list[tuple[str, Part]] = []
    for title, rows in slices.items():
        if len(rows) < 2:
            continue
        heads = ["Rows", words(best_score), "95% interval"]
        shown = [
            (str(row["slice"]), [row["rows"], row.get(best_score), bar(row)])
            for row in [*whole, *rows]
        ]
        if any("truncated" in row for row in rows):
            heads.append("truncated")
            for row, (_, cells) in zip([*whole, *rows], shown, strict=True):
                cells.append(f"{row['truncated']:.0%}" if "truncated" in row else None)
        table = Table("", heads, shown)
        note = "" if found else "The bars of all slices have the same axis."
        found.append((f"{words(best_score)} by {title}", Part("table", table, note)))
    return found


def _curves(curves: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Part]]:
    """Return the curves of the decisions of a split, and their thresholds."""
    if not curves:
        return []
    rows, scores = [], ("precision", "recall", "f1")
    places = {curve.get("threshold_from", "dev") for curve in curves.values()}
    for name, curve in curves.items():
        half, best = curve["at"]
        cells = [curve["roc_auc"], curve["average_precision"]]
        cells += [half[key] for key in scores]
        cells += [best[key] for key in ("threshold", *scores)]
        rows.append((name, cells))
    columns = ["ROC AUC", "Average precision"]
    columns += [f"{words(key)} at 0.5" for key in scores]
    columns += [f"Threshold with the best F1 on {' or '.join(sorted(places))}"]
    columns += [f"{words(key)} there" for key in scores]
    found = [("thresholds", Part("table", Table("Class", columns, rows)))]
    charts = decision_charts(curves)
    return [*found, ("curves", Part("charts", charts))] if charts else found


def _learning_curve(
    rows: Sequence[Mapping[str, Any]], best_score: str
) -> dict[str, Any] | None:
    """Return the table and the chart of a learning curve."""
    if not rows:
        return None
    columns = [key for key in union(rows) if key != "rows"]
    cells = [(f"{row['rows']:,}", [row.get(key) for key in columns]) for row in rows]
    table = Table("Training rows", [words(key) for key in columns], cells)
    return {"table": table, "chart": learning_curve_chart(rows, best_score)}


def _students(rows: Sequence[Mapping[str, Any]]) -> Table | None:
    """Return the table of teacher and student."""
    if not rows:
        return None
    columns = [key for key in union(rows) if key != "model"]
    names = {"milliseconds": "Milliseconds for 1,000 rows"}
    names["width"] = "Numbers in a vector"
    cells = [(str(row["model"]), [row[key] for key in columns]) for row in rows]
    return Table("Model", [names.get(key, words(key)) for key in columns], cells)


def _doubtful(
    doubtful_labels: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, Any]:
    """Return the first rows and a link that saves more of them.

    The texts behind the link are cut like the texts of the table.
    """
    rows = rows_with_set(doubtful_labels)
    kept = [
        {
            key: cut(v, MOST_LETTERS) if isinstance(v, str) else v
            for key, v in row.items()
        }
        for row in rows[:_MOST_CSV]
    ]
    text = csv_text(kept).encode("utf-8", "replace").decode("utf-8")
    return {
        **_first(list(map(_doubt, rows))),
        "file": DOUBTFUL,
        "link": f"data:text/csv;charset=utf-8,{urllib.parse.quote(text)}",
    }


def _doubt(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a doubtful label as a row of the page, with percentages."""
    found = {key: row[key] for key in ("text", "label") if key in row}
    if "probable_label" in row:
        found["label"] = f"{row['label']} ({row['probability_of_label']:.1%})"
        other = row["probability_of_other"]
        found["the_model_says"] = f"{row['probable_label']} ({other:.1%})"
    return {**found, **{key: row[key] for key in ("set", "line") if key in row}}


def _parts(
    values: Mapping[str, Any], mistakes: Sequence[Mapping[str, Any]]
) -> list[tuple[str, Part]]:
    """Return name and parts of each score with more than one number."""
    plain = plain_scores(values)
    return [
        part
        for key, value in values.items()
        if key not in plain
        for part in _parts_of(key, value, values, mistakes)
    ]


def _parts_of(
    key: str,
    value: Any,
    values: Mapping[str, Any],
    mistakes: Sequence[Mapping[str, Any]],
) -> list[tuple[str, Part]]:
    """Return the parts that suit the shape of a score, by name."""
    value = value.tolist() if hasattr(value, "tolist") else value
    name = _PARTS.get(key, key)
    if key == "confusion_matrix" and is_square(value):
        per_class = values.get("per_class")
        names = list(per_class) if isinstance(per_class, Mapping) else []
        return confusions(value, names, mistakes)
    if key == "confusions" and isinstance(values.get("per_class"), Mapping):
        sizes = {n: row.get("support", 0) for n, row in values["per_class"].items()}
        return confused_pairs(value, sizes, mistakes, count=len(value))
    if key == "reliability" and value:
        return [(name, Part("chart", reliability_chart(value)))]
    if not isinstance(value, Mapping) or not value:
        return [(name, Part("word", value))]
    if not all(isinstance(row, Mapping) for row in value.values()):
        return [(name, Part("pairs", value))]
    if key == "per_class":
        return class_tables(value)
    return [(name, Part("table", nested_table(value, corner="")))]


def _mistakes(mistakes: Sequence[Mapping[str, Any]], split: str = "") -> dict[str, Any]:
    """Return a heading and the first rows.

    The most confident come first if all have a probability; otherwise the order is
    kept.
    """
    rows, heading = list(mistakes), "Mistakes"
    if rows and all(is_number(row.get("probability")) for row in rows):
        rows.sort(key=lambda row: -float(row["probability"]))
        heading = "Most confident mistakes"
    return {"heading": f"{heading} on {split}" if split else heading, **_first(rows)}


def _first(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return columns, the rows to show, and the count of all."""
    return {"columns": union(rows), "rows": rows[:_MOST_ROWS], "count": len(rows)}


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
    table = nested_table(plain, corner="Split")
    tables = [("", table)] if table.columns else []
    for fact, columns in nested.items():
        names = union(columns.values())
        rows = [
            (name, [column.get(name) for column in columns.values()]) for name in names
        ]
        tables.append((fact, Table("", list(columns), rows)))
    return {"tables": tables, "loose": loose} if tables or loose else {}
