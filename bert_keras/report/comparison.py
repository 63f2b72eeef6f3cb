"""Runs compared on one page: `compare_runs`; `write_run` notes what it needs of a run.

The note, `comparison.json`, lies beside the report of a run.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_keras.errors import ConfigError, DataError
from bert_keras.files.json_file import json_text, read_json
from bert_keras.report.changed_answers import changed_answers, noted_mistakes
from bert_keras.report.curves import compared_curves
from bert_keras.report.page import render, script_values, write_file
from bert_keras.report.report import data_sets, importance
from bert_keras.report.tables import Part, Table, interval_bar, interval_of, union
from bert_keras.report.values import plain_scores, words

RUN = "comparison.json"
_UNKNOWN = "–"
_NOT_COMPARED = ("best_epoch_dev_loss", "training_seconds")  # differ by chance
_MOST_CLASSES = 15  # whose scores differ most; all follow, folded
_FOLDS = "cross-validation"
_OBJECTS = (
    *("settings", "rows", "digests", "per_class", "mistakes"),
    *("scores", "intervals", "environment"),
)


def write_run(folder: str | os.PathLike[str], report: Mapping[str, Any]) -> None:
    """Write what `compare_runs` needs of a run beside its report.

    Args:
        folder: of the report.
        report: the arguments of `write_report`.
    """
    names = data_sets(report["scores"])
    scores = {split: plain_scores(report["scores"][split]) for split in names}
    mistakes = noted_mistakes(report.get("mistakes", ()))
    best = report.get("best_score", "")
    slices: Mapping[str, Any] = report.get("slices") or {}
    note = {
        "settings": report["settings"],
        "rows": _facts(report, "rows"),
        "digests": _facts(report, "digest"),
        "per_class": {
            split: report["scores"][split]["per_class"]
            for split in names
            if "per_class" in report["scores"][split]
        },
        "mistakes": {} if mistakes is None or not names else {names[-1]: mistakes},
        "history": report["history"],
        "scores": scores,
        "best_score": best,
        "intervals": {
            split: interval_of(slices.get(split, {}), values.get(best))
            for split, values in scores.items()
        },
        "environment": report.get("environment") or {},
        "command": report.get("command", ""),
    }
    text = json_text(_plain(note), ensure_ascii=True)
    (Path(folder) / RUN).write_text(text + "\n", encoding="utf-8")


def _facts(report: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return a fact about each data set of a report that has it."""
    return {
        split: facts[key]
        for split, facts in report["data"].items()
        if isinstance(facts, Mapping) and key in facts
    }


def compare_runs(
    runs: Sequence[str | os.PathLike[str]],
    *,
    output: str | os.PathLike[str],
    title: str = "Runs compared",
) -> Path:
    """Write a page that compares runs and return its path.

    It has the scores with their intervals, the rows whose answer differs from the first
    run's, the F1 of each class, the curves over each other, and the settings that
    differ.

    Args:
        runs: two or more folders that `train` or `pretrain` wrote.
        output: the page.
        title: its heading.

    Raises:
        ConfigError: there are fewer than two runs, or one is named twice.
        DataError: a folder contains no finished run, or the page cannot be written.

    Example:
        >>> compare_runs(["models/a", "models/b"], output="page.html")
        PosixPath('page.html')
    """
    folders = [Path(run) for run in runs]
    if len(set(map(os.path.realpath, folders))) < max(len(folders), 2):
        raise ConfigError(
            "`runs` must be two or more different folders; received "
            f"{', '.join(map(str, folders)) or 'none'}"
        )
    found = dict(zip(_names(folders), map(_read, folders), strict=True))
    content = render(
        "comparison.html",
        title=title,
        scores=_scores(found),
        notes=_other_rows(found),
        classes=_classes(found),
        answers=_answers(found),
        why_not=_why_not_compared(found),
        has_answers=any(
            run["per_class"] or any(run["mistakes"].values()) for run in found.values()
        ),
        charts=compared_curves({name: run["history"] for name, run in found.items()}),
        settings=_differing({name: _settings(run) for name, run in found.items()}),
        versions=_differing({name: run["environment"] for name, run in found.items()}),
        commands={name: run["command"] for name, run in found.items()},
        **script_values("report.js"),
    )
    return write_file(output, content)


def _plain(value: Any) -> Any:
    """Return a value as JSON; numbers that are not finite become `None`."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        if isinstance(value, numbers.Integral):
            return int(value)
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool) else str(value)


def _read(folder: Path) -> dict[str, Any]:
    path = folder / RUN
    if not path.is_file():
        raise DataError(
            f"must be the folder of a finished run; contains no {RUN}", path=folder
        )
    found: dict[str, Any] = read_json(path, error=DataError)
    for key in _OBJECTS:
        if not isinstance(found.get(key), dict):
            raise DataError(f"`{key}` must be an object", path=os.fspath(path))
        for name in [each for each in found[key] if each.startswith(_FOLDS)]:
            found[key][_FOLDS] = found[key].pop(name)  # whatever their number is
    if not isinstance(found.get("history"), list):
        raise DataError("`history` must be a list", path=os.fspath(path))
    return found


def _names(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that are all different."""
    paths = [Path(os.path.realpath(folder)).parts for folder in folders]
    depth = 1
    while len({parts[-depth:] for parts in paths}) < len(paths):
        depth += 1
    return ["/".join(parts[-depth:]) for parts in paths]


def _scores(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, Table]:
    """Return a table of the runs' scores for each data set, the best score first."""
    tables = {}
    for split in _by_importance(runs, "scores"):
        scores = {
            name: run["scores"][split]
            for name, run in runs.items()
            if split in run["scores"]
        }
        ends = {name: runs[name]["intervals"].get(split) for name in scores}
        known = [end for pair in ends.values() if pair for end in pair]
        best = runs[next(iter(scores))]["best_score"]
        keys = sorted(union(scores.values()), key=lambda key: key != best)
        rows = []
        for name, values in scores.items():
            cells = [values.get(key) for key in keys]
            pair = ends[name]
            if known:
                axis = (min(known), max(known))
                bar = pair and interval_bar(pair[0], pair[1], values[best], *axis)
                cells.insert(1, bar)
            rows.append((name, cells))
        columns = [words(key) for key in keys]
        if known:
            columns.insert(1, "95% interval")
        tables[split] = Table("Run", columns, rows)
    return tables


def _other_rows(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return a note for each data set whose rows may differ between runs."""
    notes = {}
    for split in union([run["scores"] for run in runs.values()]):
        scored = [run for run in runs.values() if split in run["scores"]]
        counts = {run["rows"].get(split) for run in scored}
        digests = {run["digests"].get(split) for run in scored}
        if len(counts) > 1 or len(digests - {None}) > 1:
            notes[split] = (
                f"The rows of {split} are not the same in all runs, and the scores "
                "differ by the rows, too."
            )
        elif None in digests and len(scored) > 1:
            notes[split] = (
                f"It is not known whether the rows of {split} are the same in all runs."
            )
    return notes


def _classes(runs: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Part]]:
    """Return tables of the F1 of each class in each run, largest difference first."""
    found = {}
    for split in _by_importance(runs, "per_class"):
        tables = {
            name: run["per_class"][split]
            for name, run in runs.items()
            if split in run["per_class"]
        }
        rows = []
        for name in union(tables.values()):
            values = [_f1(table.get(name, {})) for table in tables.values()]
            known = [value for value in values if value is not None]
            spread = max(known) - min(known) if len(known) > 1 else None
            rows.append((name, [*values, spread]))
        rows.sort(key=lambda row: -(row[1][-1] or 0.0))
        columns = [*(f"F1 in {name}" for name in tables), "Difference"]
        if len(tables) > 1 and any(row[-1] is not None for _, row in rows):
            parts = [Part("table", Table("Class", columns, rows[:_MOST_CLASSES]))]
            if len(rows) > _MOST_CLASSES:
                every = Table("Class", columns, rows)
                note = f"All {len(rows):,} classes"
                parts.append(Part("table", every, note, is_folded=True))
            found[split] = parts
    return found


def _f1(row: Mapping[str, Any]) -> float | None:
    """Return the F1 of a class; `None` if it has no rows."""
    value = row.get("f1")
    return value if row.get("support") and isinstance(value, float) else None


def _why_not_compared(runs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return for each run but the first why no answer can be compared with it."""
    (one, first), *others = runs.items()
    found = []
    for two, other in others:
        splits = [split for split in first["mistakes"] if split in other["mistakes"]]
        lacking = [n for n, run in ((one, first), (two, other)) if not run["mistakes"]]
        if lacking:
            verb = "has" if len(lacking) == 1 else "have"
            why = f"{' and '.join(lacking)} {verb} no note of the mistakes, as runs of "
            why += "earlier versions, or with more than 10,000 mistakes"
        elif not splits:
            names = (next(iter(run["mistakes"])) for run in (first, other))
            why = "the mistakes are of {} and of {}".format(*names)
        elif not any(first["mistakes"][n] or other["mistakes"][n] for n in splits):
            why = f"neither made a mistake on {splits[0]}"
        elif all(run["digests"].get(splits[0]) for run in (first, other)):
            why = f"the rows of {splits[0]} are not the same"
        else:
            why = f"it is not known whether the rows of {splits[0]} are the same"
        found.append(f"{one} and {two}: {why}")
    return found


def _answers(runs: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Part]]:
    """Return the rows whose answer differs between the first run and each other.

    Runs without a mistake have nothing to compare.
    """
    (one, first), *others = runs.items()
    found = []
    for two, other in others:
        for split, mistakes in first["mistakes"].items():
            digests = {run["digests"].get(split) for run in (first, other)}
            if (
                split in other["mistakes"]
                and len(digests - {None}) == len(digests) == 1
            ):
                theirs = other["mistakes"][split]
                if mistakes or theirs:
                    found += changed_answers((one, two), mistakes, theirs)
    return found


def _by_importance(runs: Mapping[str, Mapping[str, Any]], key: str) -> list[str]:
    """Return the data sets that a note has, tests before dev."""
    return sorted(union([run[key] for run in runs.values()]), key=importance)


def _settings(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, and the number of rows of its data sets."""
    rows = {
        f"rows of {split}": f"{count:,} ({run['digests'].get(split, 'unknown')})"
        for split, count in run["rows"].items()
    }
    settings = {k: v for k, v in run["settings"].items() if k not in _NOT_COMPARED}
    return {**settings, **rows}


def _differing(values: Mapping[str, Mapping[str, Any]]) -> Table | None:
    """Return a table of the keys whose values differ between the runs."""
    rows = []
    for key in union(values.values()):
        found = [each.get(key) for each in values.values()]
        if any(value != found[0] for value in found):
            rows.append((key, [_UNKNOWN if x is None else str(x) for x in found]))
    return Table("", list(values), rows) if rows else None
