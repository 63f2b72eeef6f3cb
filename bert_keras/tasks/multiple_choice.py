"""Multiple choice: the continuation or answer that fits a context best.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.4 (SWAG): each choice is packed
with the context, softmax over the scores of a row's choices.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.data.class_names import label_names
from bert_keras.data.columns import Columns
from bert_keras.data.json_rows import json_cell, list_in
from bert_keras.data.memory import is_path
from bert_keras.data.row_source import RowSource
from bert_keras.data.rows import ColumnNames, has_objects
from bert_keras.data.table import names_of
from bert_keras.errors import received
from bert_keras.lazy_names import deferred, serializable
from bert_keras.reading.choices import Choices
from bert_keras.scoring.calibration import (
    abstention_scores,
    confidence_scores,
    log_of,
    uncalibrated_scores,
)
from bert_keras.scoring.classification import accuracy
from bert_keras.settings import with_options_documented
from bert_keras.tasks.base import Answers, Batch, Column, Task, by_reader
from bert_keras.tasks.classifier import Confidence, wrong_rows
from bert_keras.tasks.given_labels import numbers, numbers_below, one_each
from bert_keras.tasks.hugging_face import HeadCodec
from bert_keras.tasks.multiple_choice_settings import LAYOUTS
from bert_keras.tasks.needs import Needs
from bert_keras.tasks.protocols import TextSpec, list_parts

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Target
    from bert_keras.model import encoder, heads
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.preprocessor import Preprocessor
else:
    keras, tf = deferred("keras", "tensorflow")
    encoder, heads = deferred("bert_keras.model.encoder", "bert_keras.model.heads")


def read_choices(source: RowSource) -> Columns:
    """Return the rows of a file: `context`, `choices` (lists) and `label`.

    The layout is the first of `LAYOUTS` whose context column the file has. If a row has
    a question (SWAG's second sentence, COPA's `cause` or `effect`), each of its choices
    starts with it. Bad lists are always an error.

    Args:
        source: TSV, CSV or JSONL, or a table in memory. Its columns override those of
            `LAYOUTS`: `choices` is the name of a list, or the names or numbers of
            several columns, separated by commas; a role of `None` is left out.

    Raises:
        ConfigError: an argument is wrong.
        DataError: the file is broken or lacks a column; bad rows are named by line.
    """
    wanted, rules = _wanted(source)
    found = source.table(wanted, **rules)
    return _with_lists(found, wanted, kept=("label", *source.others))


def _wanted(source: RowSource) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the columns of each role, and the rules by which they are read.

    Choices in columns of their own have the roles `choices 0`, `choices 1` and so on.
    """
    path = source.data
    columns = {**source.columns, **({} if source.labelled else {"label": None})}
    names = names_of(path)
    layout = next((each for each in LAYOUTS if each["context"] in names), LAYOUTS[0])
    wanted: dict[str, Any] = {**layout, **columns}
    rules: dict[str, Any] = {
        "optional": [] if columns.get("question") is not None else ["question"]
    }
    spelled = str(wanted["choices"])
    if "," not in spelled:
        is_table = is_path(path) and not has_objects(os.fspath(path))
        whole = {} if is_table else {"whole": ["choices"]}
        return {**wanted, "choices": spelled}, {**rules, **whole}
    del wanted["choices"]
    parts = enumerate(spelled.split(","))
    return wanted | {f"choices {n}": part.strip() for n, part in parts}, rules


def _with_lists(
    found: Columns, wanted: ColumnNames, kept: Sequence[str] = ()
) -> Columns:
    """Return rows whose choices are lists, after their question if there is one.

    `wanted` are the columns of each role, and `kept` further roles to return.
    """
    if "choices" in found:
        lists = _lists(found, str(wanted["choices"]))
    else:
        roles = [role for role in found.cells if role.startswith("choices ")]
        cells = zip(*(found[role] for role in roles), strict=True)
        lists = [list(row) for row in cells]
    if "question" in found:
        lists = [
            [f"{question} {choice}" for choice in row]
            for question, row in zip(found["question"], lists, strict=True)
        ]
    rows: dict[str, Any] = {"context": found["context"], "choices": lists}
    rows |= {role: found[role] for role in kept if role in found}
    return Columns(found.path, rows, found.lines)


def _lists(columns: Columns, key: str) -> list[list[str]]:
    """Return the list of choices of each row, of which a table has the text."""
    lists, problems = [], []
    for row, cell in enumerate(columns["choices"]):
        value = list_in(cell) if isinstance(cell, str) else cell
        if not isinstance(value, list) or not value:
            shown = "none" if cell is None else type(cell).__name__
            problems.append((row, f"`{key}` must be a list of texts; is {shown}"))
            continue
        cells = [json_cell(choice) for choice in value]
        problems += [
            (row, f"`{key}` {number} {reason}")
            for number, (_, reason) in enumerate(cells)
            if reason
        ]
        lists.append([cell for cell, _ in cells])
    columns.refuse(problems)
    return lists


_LEAST = 1e-37  # probability of a choice; 0 means padding


@serializable
@with_options_documented
@dataclasses.dataclass(frozen=True)
class MultipleChoice(Confidence, Task):
    """One of the choices of each row; rows may have different numbers of them.

    Files: see `read_choices`. In memory: `context`, `choices` (a list of strings per
    row) and `label`, the number of the right choice from 0, as a string. If the score
    is below `abstain_below`, the choice is "", the index -1 and `abstained` true.
    """

    name = "multiple-choice"
    head_codec = HeadCodec("BertForMultipleChoice")
    roles = ("context", "choices")
    needs = Needs(inputs=lambda: encoder.choice_inputs())
    columns = {**LAYOUTS[0], "question": Column("question", optional=True)}
    best_score = "accuracy"

    # Data.

    @classmethod
    def read_own(cls, source: RowSource) -> Columns:
        return read_choices(source)

    @classmethod
    def stream_own(cls, source: RowSource, rows_at_once: int) -> Iterator[Columns]:
        wanted, rules = _wanted(source)
        parts = source.stream(wanted, rows_at_once=rows_at_once, **rules)
        return (_with_lists(part, wanted, kept=[*source.others]) for part in parts)

    @classmethod
    def groups(cls, columns: Columns) -> list[str] | None:
        return columns["context"]

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        """Return contexts and lists of choices from `(context, [choice, …])` items."""
        return list_parts(items, "(context, [choice, choice …]), no choice empty")

    def targets(self, columns: Columns) -> np.ndarray:
        """Return the number of the right choice, int32 [N]; bad ones by line."""
        wrong, targets = [], []
        pairs = zip(label_names(columns["label"]), columns["choices"], strict=True)
        for row, (label, choices) in enumerate(pairs):
            last = len(choices) - 1
            rule = f"`label` must be from 0 to {last}, the number of the right choice"
            if last < 1:
                wrong.append((row, "`choices` must be two or more; received 1"))
            elif label not in map(str, range(last + 1)):
                wrong.append((row, f"{rule}; {received(label)}"))
            else:
                targets.append(int(label))
        columns.refuse(wrong)
        return np.array(targets, "int32")

    def encode_targets(self, targets: Any) -> Any:
        """Parse strings as numbers; numbers pass unchanged."""
        return numbers(one_each(targets), tf.int32)

    # Text to batch.

    def signatures(self) -> dict[str, tuple[TextSpec, ...]]:
        return {"serving_default": (TextSpec("context"), TextSpec("choices", rank=2))}

    @property
    def row_reader(self) -> Choices:
        return Choices(entry="choices")

    @by_reader
    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        """Return the batch dict of `choice_inputs`, and `choices` for the answers."""
        contexts, choices = (tf.convert_to_tensor(part, tf.string) for part in texts)
        batch = preprocessor.pair_choices(contexts, choices)
        return {**batch, "choices": choices}

    def examples(
        self, preprocessor: Preprocessor, texts: Any, targets: Any, weights: Any = None
    ) -> tuple[Batch, Any, Any]:
        """Check that each number names a choice of its row."""
        batch = self.features(preprocessor, texts)
        count = tf.reduce_sum(tf.cast(batch["choices"] != "", tf.int32), -1)
        rule = "the number, from 0, of a choice of its row"
        labels = numbers_below(self.encode_targets(targets), count, rule)
        return batch, labels, weights

    def lengths(self, preprocessor: Preprocessor, texts: Any) -> tuple[Any, Any]:
        """Return the lengths of each context with its longest choice."""
        return preprocessor.choice_lengths(*texts)

    # The model.

    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the scores of the choices, float32 [B, C]."""
        head = heads.PooledHead.on(encoder, 1, seed=seed)
        scores = head(encoder.pool(heads.ChoiceRows(name="choice_rows")(inputs)))
        rows = heads.ChoiceScores(name="choice_scores", dtype="float32")
        return rows(scores, inputs["padding_mask"], inputs["cls_positions"])

    def loss(self) -> keras.losses.Loss:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def metrics(self) -> list[Any]:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    # Answers and scores.

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `choice` string [B], its `index` int32 [B] and its `score`, and
        `probabilities` float32 [B, C], 0 if a row has no such choice; if the task may
        abstain, also `abstained` bool [B].
        """
        choices = batch["choices"]
        probabilities = tf.nn.softmax(self.scaled_logits(outputs))
        best = tf.argmax(probabilities, axis=-1, output_type=tf.int32)
        there = tf.maximum(probabilities, _LEAST)
        answers = {
            "choice": tf.gather(choices, best, batch_dims=1),
            "index": best,
            "score": tf.reduce_max(probabilities, axis=-1),
            "probabilities": tf.where(choices != "", there, 0.0),
        }
        if self.may_abstain:
            abstained = answers["score"] < self.abstain_below
            answers["choice"] = tf.where(abstained, "", answers["choice"])
            answers["index"] = tf.where(abstained, -1, best)
            answers["abstained"] = abstained
        return answers

    def soft_targets(self, answers: Answers, teacher: MultipleChoice) -> np.ndarray:
        p = answers["probabilities"]
        return np.where(p > 0, teacher.temperature * log_of(p), heads.NO_CHOICE)

    def recipe(self) -> dict[str, Any]:
        return {
            "meaning": "probabilities of the choices of a row: softmax of the output "
            "divided by temperature; a choice without tokens is none",
            "activation": "softmax",
            "temperature": self.temperature,
            "abstain_below": self.abstain_below,
        }

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        targets, p = self.targets(columns), answers["probabilities"]
        best, right = p.argmax(axis=1), p[np.arange(len(targets)), targets]
        return {
            "accuracy": accuracy(targets, best),
            "loss": float(-np.log(right.astype("float64")).mean()),
            **confidence_scores(answers["score"], best == targets),
            **uncalibrated_scores(targets, p, self.temperature, absent=p == 0),
            **abstention_scores(answers["score"], best == targets, self.abstain_below),
            "num_examples": len(columns),
        }

    def tune(self, columns: Columns, answers: Answers) -> MultipleChoice:
        """Return the task with temperature and threshold fitted on dev rows."""
        p = answers["probabilities"]
        return self.fitted(self.targets(columns), p, absent=p == 0)

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        targets, best = self.targets(columns), answers["probabilities"].argmax(axis=1)
        return [
            {
                "line": columns.lines[row],
                "text": columns["context"][row],
                "label": columns["choices"][row][targets[row]],
                "prediction": columns["choices"][row][best[row]],
                "probability": float(answers["score"][row]),
            }
            for row in wrong_rows(targets, answers["probabilities"])
        ]

    def explained(self, item: Item) -> list[Target]:
        """Return the log-odds of the best choice."""
        context, choices = item.parts
        features = item.features()
        first = item.words.add("context", context)
        seconds = [
            item.words.add(f"choice {number}", choice)
            for number, choice in enumerate(choices)
        ]
        rows = item.joined_rows(features, [[first, second] for second in seconds])
        best = int(item.outputs(rows)[0].argmax())
        numbers = [str(number) for number in range(len(choices))]
        return [
            item.answer_odds(
                rows, numbers, best, kind="choice ", temperature=self.temperature
            )
        ]

    def describe(self, columns: Columns) -> dict[str, Any]:
        counts = collections.Counter(len(choices) for choices in columns["choices"])
        sizes = {str(size): counts[size] for size in sorted(counts)}
        return {"rows": len(columns), "choices": sizes}
