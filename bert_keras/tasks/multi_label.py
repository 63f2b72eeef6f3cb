"""Multi-label classification: any number of C classes for a text or a pair.

One sigmoid per class on the pooled output, trained with binary cross-entropy. A class
is predicted if its probability reaches its threshold.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.data.class_names import (
    are_positions,
    check_names,
    comparable,
    listed,
    say_numbers,
    sorted_names,
    unfit_names,
    with_clean_names,
)
from bert_keras.data.columns import Columns
from bert_keras.data.duplicates import contradicting_labels, near_names
from bert_keras.data.json_rows import list_in
from bert_keras.data.row_source import RowSource
from bert_keras.data.text_column import TextColumn
from bert_keras.errors import ConfigError, received
from bert_keras.lazy_names import deferred, serializable
from bert_keras.reading.choices import GIVEN_LIMIT, LIMITS
from bert_keras.scoring.calibration import (
    confidence_scores,
    fit_temperature,
    logit_of,
    scaled,
    uncalibrated_scores,
    yes_or_no,
)
from bert_keras.scoring.doubtful_labels import labels_to_check
from bert_keras.scoring.multi_label import best_thresholds, multi_label_scores
from bert_keras.settings import check_share, with_options_documented
from bert_keras.tasks.base import Answers, Column, roles_with
from bert_keras.tasks.classifier import Calibrated, PooledTask
from bert_keras.tasks.entailment import EntailedClasses, EntailedCodec
from bert_keras.tasks.given_labels import checked, named_alike
from bert_keras.tasks.hugging_face import MULTI_LABEL
from bert_keras.tasks.multi_label_settings import MultiLabelSettings
from bert_keras.tasks.protocols import Decisions, texts_of

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Target
else:
    keras, tf = deferred("keras", "tensorflow")

_FLAGS = {"0": False, "1": True, "false": False, "true": True}


@serializable
@with_options_documented
@dataclasses.dataclass(frozen=True)
class MultiLabel(MultiLabelSettings, EntailedClasses, Calibrated):
    """Any number of classes, or none, for each text or pair.

    A cell of the file holds class names separated by `separator`, a list of names as
    JSON or Python writes it, or nothing; in JSONL it may be a list. Or there is a
    column of 0 and 1 for each class: `label` then names them, separated by commas.
    """

    name = "multi-label"
    head_codec = EntailedCodec(problem_type=MULTI_LABEL)
    pair_activation = "sigmoid"
    against_contradiction = True
    columns = {**PooledTask.columns, "label": Column("label", empty=True, lists=True)}

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "classes", check_names(self.classes, least=1))
        given = self.thresholds
        if isinstance(given, str):
            raise ConfigError(
                f"`thresholds` must be a number or a list of numbers; {received(given)}"
            )
        if not isinstance(given, Sequence):
            given = (given,) * len(self.classes)
        object.__setattr__(self, "thresholds", tuple(given))
        if len(self.thresholds) not in (0, len(self.classes)):
            raise ConfigError(
                f"`thresholds` must be one number, or one for each of the "
                f"{len(self.classes)} classes; received {len(self.thresholds)}"
            )
        for value in self.thresholds:
            check_share("thresholds", value)

    @property
    def best_score(self) -> str:  # type: ignore[override]
        # Thresholds are tuned after training, so F1 at 0.5 would mislead.
        finds = self.threshold_tuning == "f1" and not self.thresholds
        return "mean_average_precision" if finds else "micro_f1"

    @classmethod
    def strata(cls, columns: Columns, **settings: Any) -> list[list[str]]:
        blank = cls(**{**settings, "classes": ("any",), "thresholds": ()})
        cells = columns["label"]
        if not isinstance(cells, TextColumn):
            return blank.label_rows(cells)
        distinct, codes = cells.coded()
        names = blank.label_rows(distinct)
        return [names[code] for code in codes]

    def target_strata(self, targets: np.ndarray) -> list[list[str]]:
        if isinstance(targets.flat[0], str | bytes):
            return [[name for name in row if name] for row in targets.tolist()]
        names = np.array(self.classes, object)
        return [names[row.astype(bool)].tolist() for row in targets]

    @classmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> MultiLabel:
        """Return the task with the classes of the data, sorted; numbers by value."""
        names = cls.strata(columns, **settings)
        columns.refuse(unfit_names(names))
        found = {name for each in names for name in each}
        if not found:
            columns.refuse([(0, "`label` must have a class in some row")])
        learned = {"classes": sorted_names(found), "pairs": "text_pair" in columns}
        return cls(**{**learned, **with_clean_names(settings)})

    @classmethod
    def read_own(cls, source: RowSource) -> Columns | None:
        """Return rows whose labels are in one column of 0 and 1 each."""
        chosen = source.columns
        flags = str(chosen.get("label") or "").split(",")
        if not source.labelled or len(flags) < 2:
            return None
        texts = {**cls.columns, **chosen, "label": None}
        found = source.table(
            {**texts, **{f"label {name}": name.strip() for name in flags}},
            optional=[
                role
                for role in roles_with(cls.columns, "optional")
                if role not in chosen
            ],
        )
        return _with_flags(found, [name.strip() for name in flags])

    def notes(self, columns: Columns) -> list[str]:
        """Return warnings about separators, names almost equal, and contradictions."""
        rows = self.label_rows(columns["label"])
        names = [name for row in rows for name in row]
        sets = [frozenset(row) for row in rows]
        return [
            *_other_separators(names, columns.path),
            *near_names(names, columns.path),
            *contradicting_labels(texts_of(self, columns), sets, columns),
        ]

    def names(self, cell: Any) -> list[str]:
        """Return the names in a cell: text with separators, or a list."""
        items = list_in(cell) if isinstance(cell, str) else cell
        if items is None:
            items = cell.split(self.separator)
        return [name for name in map(comparable, map(str, items)) if name]

    def label_rows(self, cells: Iterable[Any]) -> list[list[str]]:
        """Return the names in each cell; of 0 and 1 for each class, its numbers."""
        rows = [self.names(cell) for cell in cells]
        if not _are_flags(rows, len(self.classes)):
            return rows
        return [[str(i) for i, flag in enumerate(row) if _FLAGS[flag]] for row in rows]

    def targets(self, columns: Columns) -> np.ndarray:
        """Return 0 or 1 for each class, float32 [N, C]; unknown ones named by line."""
        index = {comparable(name): i for i, name in enumerate(self.classes)}
        rows = self.label_rows(columns["label"])
        if are_positions((name for names in rows for name in names), self.classes):
            index = {str(i): i for i in range(len(self.classes))}
            say_numbers(columns.path, "label", self.classes)
        targets = np.zeros((len(columns), len(self.classes)), "float32")
        unknown, rule = [], f"`label` must be of {listed(self.classes)}"
        for row, names in enumerate(rows):
            for name in names:
                if name in index:
                    targets[row, index[name]] = 1
                else:
                    unknown.append((row, f"{rule}; {received(name)}"))
        columns.refuse(unknown)
        return targets

    def encode_targets(self, targets: Any) -> Any:
        """Return 0 or 1 for each class, in graph.

        Of cells with separators, string [B]; of names, string [B, N], with empty
        strings; or of numbers from 0 to 1, [B, C].
        """
        if not isinstance(getattr(targets, "dtype", None), tf.DType):
            return targets
        if targets.dtype != tf.string:
            return self._shares(targets)
        if targets.shape.rank == 2:
            names = tf.strings.strip(tf.RaggedTensor.from_tensor(targets))
        else:
            names = tf.strings.strip(tf.strings.split(targets, self.separator))
        flat = names.flat_values
        same = named_alike(flat, self.classes) > 0
        known = tf.reduce_any(same, -1) | (flat == "")
        rule = f"of {listed(self.classes)}"
        same = checked(tf.cast(same, tf.float32), flat, known, rule)
        return tf.reduce_max(names.with_values(same), axis=1)

    def _shares(self, targets: Any) -> Any:
        count = len(self.classes)
        if len(targets.shape) != 2 or targets.shape[1] not in (count, None):
            raise ConfigError(
                f"`y` must be names of classes, or 0 or 1 for each of {count} classes, "
                f"[N, {count}]; received shape {targets.shape}"
            )
        if targets.dtype == tf.bool:
            return targets
        known = (targets >= 0) & (targets <= 1)
        return checked(targets, targets, known, "0 or 1 for each class")

    def loss(self) -> keras.losses.Loss:
        return keras.losses.BinaryCrossentropy(from_logits=True)

    def linear_targets(self, columns: Columns) -> tuple[str, np.ndarray]:
        return "sigmoid", self.targets(columns)

    def soft_targets(self, answers: Answers, teacher: MultiLabel) -> np.ndarray:
        return teacher.temperature * logit_of(answers["probabilities"])

    @property
    def limits(self) -> tuple[float, ...]:
        """The threshold of each class."""
        return self.thresholds or (GIVEN_LIMIT,) * len(self.classes)

    class_limits = limits

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `labels` string [B, C], "" for a class that does not apply;
        `probabilities` float32 [B, C] and `classes` string [B, C].
        """
        probabilities = tf.sigmoid(self.scaled_logits(outputs))
        names = self.class_tensor(outputs, batch)
        limits = batch.get(LIMITS, tf.constant(self.limits, tf.float32))
        applies = probabilities >= limits
        return {
            "labels": tf.where(applies, names, ""),
            "probabilities": probabilities,
            "classes": names,
        }

    def recipe(self) -> dict[str, Any]:
        return {
            "meaning": "probability of each class: sigmoid of the output divided by "
            "temperature; a class applies from its threshold on",
            "activation": "sigmoid",
            "temperature": self.temperature,
            "classes": list(self.classes),
            "thresholds": list(self.limits),
        }

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        """Return `multi_label_scores`, and the calibration of all binary decisions."""
        targets, p = self.targets(columns), answers["probabilities"]
        flat, pairs = targets.ravel().astype("int64"), yes_or_no(p.ravel())
        return {
            **multi_label_scores(
                targets,
                p,
                thresholds=np.array(self.limits, "float32"),
                class_names=self.classes,
            ),
            **confidence_scores(pairs.max(axis=1), pairs.argmax(axis=1) == flat),
            **uncalibrated_scores(flat, pairs, self.temperature),
        }

    def tune(self, columns: Columns, answers: Answers) -> MultiLabel:
        """Return the task with temperature and thresholds fitted on dev rows."""
        targets, p = self.targets(columns), answers["probabilities"]
        task = self
        if self.calibration == "temperature":
            flat, pairs = targets.ravel().astype("int64"), yes_or_no(p.ravel())
            factor = fit_temperature(flat, pairs)
            p = scaled(pairs, factor)[:, 1].reshape(p.shape)
            task = task.with_temperature(factor)
        if self.threshold_tuning == "f1" and not self.thresholds:
            limits = tuple(best_thresholds(targets, p))
            task = dataclasses.replace(task, thresholds=limits)
        return task

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        """Return the rows with a wrong class, most wrong classes first."""
        targets = self.targets(columns) > 0
        found = answers["labels"] != b""
        wrong = (found != targets).sum(axis=1)
        order = np.argsort(-wrong, kind="stable")[: int((wrong > 0).sum())]
        classes = np.array(self.classes)
        return [
            self.mistake(
                columns,
                row,
                label=", ".join(classes[targets[row]]) or "none",
                prediction=", ".join(classes[found[row]]) or "none",
                wrong_classes=int(wrong[row]),
            )
            for row in order
        ]

    def rival(self, mistake: Mapping[str, Any]) -> None:
        return None

    def decisions(self, columns: Columns, answers: Answers) -> Decisions:
        targets, p = self.targets(columns) > 0, answers["probabilities"]
        return {name: (targets[:, i], p[:, i]) for i, name in enumerate(self.classes)}

    def doubtful_labels(
        self, columns: Columns, answers: Answers
    ) -> list[dict[str, Any]]:
        """Return a row for each label that may be missing or too many."""
        rows = []
        for name, (true, p) in self.decisions(columns, answers).items():
            both, words = yes_or_no(p), (f"not {name}", name)
            for row in labels_to_check(true.astype("int64"), both).tolist():
                label = int(true[row])
                names = words[label], words[1 - label]
                pair = both[row, [label, 1 - label]]
                rows.append(self.doubt(columns, row, *names, pair))
        return sorted(rows, key=lambda row: row["probability_of_label"])

    def explained(self, item: Item) -> list[Target]:
        """Return the logit of each predicted label, or of the most probable one."""
        rows, names = self.explained_rows(item), self.classes
        logits = item.outputs(rows)[0] / self.temperature
        index, against = item.choose(names, int(logits.argmax()))
        applying = np.flatnonzero(1 / (1 + np.exp(-logits)) >= np.array(self.limits))
        wanted = [index]
        if item.target is None and len(applying):
            wanted = [number for number in applying.tolist() if number != against]
        return [
            item.one_output(rows, names, number, against, temperature=self.temperature)
            for number in wanted
        ]

    def describe(self, columns: Columns) -> dict[str, Any]:
        counts = self.targets(columns).sum(axis=0).astype(int).tolist()
        classes = dict(zip(self.classes, counts, strict=True))
        return {"rows": len(columns), "classes": classes}


def _with_flags(columns: Columns, names: Sequence[str]) -> Columns:
    """Return columns of 0 and 1, `label NAME` each, as the lists of `label`."""
    cells = dict(columns.cells)
    flags = {name: cells.pop(f"label {name}") for name in names}
    problems = [
        (row, f"`{name}` must be 0 or 1; {received(cell)}")
        for name, column in flags.items()
        for row, cell in enumerate(column)
        if comparable(cell) not in _FLAGS
    ]
    columns.refuse(problems)
    cells["label"] = [
        json.dumps([name for name in names if _FLAGS[comparable(flags[name][row])]])
        for row in range(len(columns))
    ]
    return dataclasses.replace(columns, cells=cells)


def _are_flags(rows: Sequence[Sequence[str]], classes: int) -> bool:
    """Return whether the cells hold 0 or 1 for each class, in place of names.

    With two numbers in each cell, they may be all of 2 `classes`; below 2, these are
    not known.
    """
    sizes = {len(row) for row in rows}
    if len(sizes) != 1 or not {name for row in rows for name in row} <= _FLAGS.keys():
        return False
    is_of_two = sizes == {2} and classes <= 2
    return is_of_two or any(len(set(row)) < len(row) for row in rows)


def _other_separators(names: Sequence[str], path: str) -> list[str]:
    """Return a note about names that seem to be several, with another separator."""
    for mark in ";|":
        joined = sorted({name for name in names if mark in name.strip(mark)})
        if joined:
            return [
                f"{path}: `{mark}` is part of {len(joined):,} of {len(set(names)):,} "
                f"class names, such as {joined[0]!r}: if it separates names, set "
                f"`separator` to {mark}"
            ]
    return []
