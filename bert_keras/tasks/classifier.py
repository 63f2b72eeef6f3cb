"""Shared parts of classifiers: pooled head, classes, confidence, labels.

`bert_keras.scoring.calibration` fits temperatures and thresholds, and names the
sources.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 4.1: C W^T.
"""

from __future__ import annotations

import abc
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from bert_keras.config import WINDOW_STARTS
from bert_keras.data.class_names import label_names, listed
from bert_keras.data.columns import Columns
from bert_keras.data.duplicates import contradicting_labels, near_names
from bert_keras.data.holdout import Strata
from bert_keras.errors import ConfigError, DataError, received, shown
from bert_keras.lazy_names import deferred
from bert_keras.reading.layers import EMBEDDINGS_AND_ALL, LAST
from bert_keras.reading.text_vector import TextVector
from bert_keras.reading.windows import (
    SHARES,
    WINDOW_LOGITS,
    decided_at,
    windows_by_text,
)
from bert_keras.scoring.calibration import (
    abstention_scores,
    abstention_threshold,
    fit_temperature,
    log_of,
    scaled,
    uncalibrated_scores,
)
from bert_keras.scoring.classification import classification_scores
from bert_keras.scoring.doubtful_labels import labels_to_check
from bert_keras.settings import ALL_LAYERS, BI, CROSS, LAST_LAYER, POOLER
from bert_keras.tasks.base import (
    Answers,
    Batch,
    Column,
    by_reader,
    check_parts,
    overrides,
)
from bert_keras.tasks.classifier_settings import (
    COLDEST,
    HOTTEST,
    CalibrationSettings,
    ClassesSettings,
    ConfidenceSettings,
)
from bert_keras.tasks.given_labels import class_numbers, one_each
from bert_keras.tasks.hugging_face import (
    SINGLE_LABEL,
    ClassesCodec,
    HeadCodec,
    PooledCodec,
)
from bert_keras.tasks.long_text_settings import LongTextSettings
from bert_keras.tasks.long_texts import LongTextTask
from bert_keras.tasks.needs import Needs
from bert_keras.tasks.protocols import (
    Decisions,
    TextSpec,
    string_parts,
    texts_of,
)

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    from typing_extensions import Self  # in typing since Python 3.11

    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Rows, Target
    from bert_keras.model import heads
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.preprocessor import Preprocessor
else:
    keras, tf = deferred("keras", "tensorflow")
    (heads,) = deferred("bert_keras.model.heads")

PAIRS = "pairs"  # the signature of pairs where `serving_default` takes single texts
_OF_TWO_ROWS = "0: a pair is two rows, one for each of its texts, one after the other"


class PooledTask(LongTextTask):
    """A task with one linear layer on the pooled output of a text, or of a pair.

    A subclass defines its number of outputs in `units`; one that also reads pairs has a
    setting `pairs`, which is `None` for a folder that does not say what its model
    reads: single texts and pairs are both accepted then. With a `pooling` other than
    `pooler`, the head reads a vector pooled from the tokens, or with the `pair_encoder`
    bi two of them. `problem_type` is Hugging
    Face's name of the meaning of the outputs, which distinguishes the tasks of one
    architecture; empty if there is one.
    """

    columns: ClassVar[Mapping[str, str]] = {
        "text": "text",
        "text_pair": Column("text_pair", optional=True),
        "label": "label",
    }
    head_codec: ClassVar[HeadCodec] = PooledCodec()
    pairs: bool | None = False
    pooling: str = POOLER
    normalize: bool = False
    layers: str = LAST_LAYER
    pair_encoder: str = CROSS
    pair_activation: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, given in (("normalize", self.normalize), ("layers", self.layers)):
            if self.pooling == POOLER and given not in (False, LAST_LAYER):
                raise ConfigError(
                    f"`{name}` has an effect only with a `pooling` of the tokens; "
                    f"received {str(given).lower()} and {self.pooling}"
                )
        if self.pair_encoder == BI:
            self._check_separate_texts()

    def _check_separate_texts(self) -> None:
        """Raise ConfigError if a setting does not go with a row for each text."""
        rules = {
            "pairs": ("true", bool(self.pairs)),
            "pooling": ("of the tokens", self.pooling != POOLER),
            "layers": (LAST_LAYER, self.layers == LAST_LAYER),
            "long": ("truncate or head-tail", not self.reads_windows),
            "entailment": ("left out", not getattr(self, "entailment", ())),
        }
        for name, (rule, holds) in rules.items():
            if not holds:
                raise ConfigError(
                    f"`{name}` must be {rule} with `pair_encoder` bi; received "
                    f"{shown(getattr(self, name))}"
                )

    @classmethod
    def inherited(cls, held: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return how the head of the encoder's folder reads its vectors, of windows,
        too.
        """
        found: dict[str, Any] = {}
        if held is None:
            return found
        is_same = given.get("pooling", held.pooling) == held.pooling
        if held.pooling != POOLER and is_same:
            found |= {
                name: getattr(held, name) for name in ("pooling", "normalize", "layers")
            }
            if held.pair_encoder != CROSS:
                found["pair_encoder"] = held.pair_encoder
        if held.reads_windows and given.get("long", held.long) == held.long:
            names = (each.name for each in dataclasses.fields(LongTextSettings))
            found |= {name: getattr(held, name) for name in names}
        own = {each.name for each in dataclasses.fields(cls)}  # type: ignore[arg-type]
        return {name: value for name, value in found.items() if name in own}

    @property
    def roles(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("text", "text_pair") if self.pairs else ("text",)

    def signatures(self) -> dict[str, tuple[TextSpec, ...]]:
        """Return the signature of texts or pairs; of both if `pairs` is `None`."""
        single, pair = (
            tuple(TextSpec(name) for name in names)
            for names in (("text",), ("text_a", "text_b"))
        )
        found = {"serving_default": pair if self.pairs else single}
        return found if self.pairs is not None else {**found, PAIRS: pair}

    @property
    def forms(self) -> list[tuple[str, ...]]:
        either = [("text", "text_pair"), ("text_a", "text_b")]
        return [*(either if self.pairs is None else []), self.roles]

    def texts(self, columns: Columns, *, use: str) -> tuple[list[Any], ...]:
        if self.pairs is None and "text_pair" in columns:
            return columns["text"], columns["text_pair"]
        if self.pairs is False and "text_pair" in columns:
            raise DataError(
                "has a second text, `text_pair`, which this model of single texts "
                "does not read: leave the column out",
                path=columns.path,
            )
        return super().texts(columns, use=use)

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        are_pairs = any(isinstance(item, tuple | list) for item in items)
        either = self.pairs is None and are_pairs
        return string_parts(items, 2 if either else len(self.roles))

    # Text to batch.

    @property
    def reader(self) -> TextVector:
        """How a text, or a pair, becomes the vector that the head reads."""
        reads_all = self.layers == ALL_LAYERS
        return TextVector(
            pooling=self.pooling,
            normalize=self.normalize,
            layers=EMBEDDINGS_AND_ALL if reads_all else LAST,
            pools_each_layer=reads_all,
            pair_encoder=self.pair_encoder,
            **self.long_settings,
        )

    @by_reader
    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        check_parts(self, texts)
        return self.reader.batch(preprocessor, texts)

    def examples(
        self,
        preprocessor: Preprocessor,
        texts: Any,
        targets: Any,
        weights: Any = None,
        *,
        draws: Any = None,
    ) -> tuple[Batch, Any, Any]:
        """Return the batch; `draws`, int64 [B], draw the windows of the texts."""
        if draws is None:
            batch = self.features(preprocessor, texts)
        else:
            batch = self.reader.batch(preprocessor, texts, draws=draws)
        return batch, self.encode_targets(targets), weights

    @property
    def answers_ids(self) -> bool:
        return self.reads_by_reader and not self.reads_windows

    @property
    def is_plain(self) -> bool:
        is_short = self.long == "truncate" and not overrides(self, "respond")
        return self.answers_ids and is_short

    # The model.

    @property
    @abc.abstractmethod
    def units(self) -> int:
        """Return the number of outputs."""

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        reader, is_bi = self.reader, self.pair_encoder == BI
        return Needs(
            pooler=reader.needs_pooler,
            outputs=reader.encoder_outputs,
            inputs=reader.inputs,
            meanings={"token_type_ids": _OF_TWO_ROWS} if is_bi else {},
            rows_per_text=None if self.reads_windows else 1 + is_bi,
        )

    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        head = heads.PooledHead.on(encoder, self.units, seed=seed)
        return head(self.reader.vector(encoder, inputs, seed))

    def named_outputs(self, outputs: Any, model: Any) -> dict[str, Any]:
        named = super().named_outputs(outputs, model)
        if not self.reads_windows:
            return named
        return {**named, WINDOW_LOGITS: self.reader.below(model).named_shares()}

    def from_named(self, named: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        if self.reads_windows:
            return {"outputs": named["logits"], SHARES: named[WINDOW_LOGITS]}
        return super().from_named(named, batch)

    def infer(self, model: Any, batch: Batch) -> Any:
        """Return the outputs, [B, C]; of windows `outputs`, and `shares` [S, C], too.

        See `Below`.
        """
        if not self.reads_windows:
            return super().infer(model, batch)
        whole, shares = self.reader.below(model).outputs_and_shares(batch)
        return {"outputs": whole, SHARES: shares}

    def answer_inferred(
        self, outputs: Any, batch: Mapping[str, Any]
    ) -> dict[str, tf.Tensor]:
        """Return the answers; of texts in windows also `start` and `end`, int32 [B], of
        the window that gives most to the answer, see `decided_at`.

        The head is linear: its output is the sum of the parts of the windows, and the
        bias. A classifier's answer is its likeliest class, to which a window gives its
        part less the mean of its parts in all classes.
        """
        if not self.reads_windows:
            return self.answer(outputs, batch)
        whole, shares = outputs["outputs"], outputs[SHARES]
        answers = self.answer(whole, batch)
        if self.head_codec.problem_type == SINGLE_LABEL:
            shares -= tf.reduce_mean(shares, axis=1, keepdims=True)
        text = tf.cumsum(batch[WINDOW_STARTS]) - 1
        best = tf.gather(tf.argmax(whole, axis=1, output_type=tf.int32), text)
        scores = tf.gather(shares, best, batch_dims=1)
        if self.units == 1:  # towards the answer, whatever its sign is
            sums = tf.where(windows_by_text(batch), scores, 0.0)
            scores *= tf.sign(tf.gather(tf.reduce_sum(sums, axis=1), text))
        return {**answers, **decided_at(scores, batch)}

    def explained_rows(self, item: Item) -> Rows:
        """Return the input of the model for an item that is explained."""
        return item.joined()

    def mistake(self, columns: Columns, row: int, **facts: Any) -> dict[str, Any]:
        """Return a wrong answer for the report: line, text and further facts."""
        text = "  |  ".join(part[row] for part in texts_of(self, columns))
        return {"line": columns.lines[row], "text": text, **facts}

    def doubt(
        self, columns: Columns, row: int, label: str, other: str, p: npt.ArrayLike
    ) -> dict[str, Any]:
        """Return a row whose label is doubted in favour of another, for the report.

        `p` are the probabilities of the label and of the other one.
        """
        shown = self.mistake(columns, row)
        of_label, of_other = np.asarray(p)
        return {
            "line": shown["line"],
            "label": label,
            "probable_label": other,
            "probability_of_label": float(of_label),
            "probability_of_other": float(of_other),
            "text": shown["text"],
        }


class NamedClasses(ClassesSettings, PooledTask):
    """A pooled task with one output for each of its named classes."""

    head_codec = ClassesCodec()

    @property
    def units(self) -> int:
        return len(self.classes)


class Calibrated(CalibrationSettings):
    """A temperature that divides the logits, in the graph of the answers."""

    def scaled_logits(self, outputs: Any) -> Any:
        """Return the outputs of a model divided by the temperature, float32."""
        return tf.cast(outputs, tf.float32) / self.temperature

    def with_temperature(self, factor: float) -> Self:
        """Return the task with its temperature multiplied by a factor, in its range."""
        temperature = min(max(self.temperature * factor, COLDEST), HOTTEST)
        return dataclasses.replace(self, temperature=temperature)


class Confidence(Calibrated, ConfidenceSettings):
    """A calibrated task that may abstain; its `answer` describes the output then."""

    @property
    def may_abstain(self) -> bool:
        """Whether the task may abstain."""
        return bool(self.abstain_below or self.answered_accuracy)

    def with_threshold(self, confidence: npt.ArrayLike, correct: npt.ArrayLike) -> Self:
        """Return the task with the threshold fitted on dev answers, if requested.

        `confidence` float [N] holds the scores, `correct` bool [N] which answers are
        right.
        """
        if not self.answered_accuracy:
            return self
        below = abstention_threshold(
            confidence, correct, accuracy=self.answered_accuracy
        )
        return dataclasses.replace(self, abstain_below=below)

    def unreached(self, rows: str) -> list[str]:
        """Return a note if no threshold gives `answered_accuracy` on the named rows."""
        if not self.answered_accuracy or self.abstain_below < 1:
            return []
        return [
            f"no threshold gives `answered_accuracy` {self.answered_accuracy:g} on "
            f"{rows}: abstain_below is 1, so that almost all answers are withheld"
        ]

    def fitted(
        self,
        labels: npt.ArrayLike,
        probabilities: npt.ArrayLike,
        *,
        absent: npt.ArrayLike | None = None,
    ) -> Self:
        """Return the task with temperature and threshold fitted on dev rows.

        Args:
            labels: integer [N], from 0 to C - 1.
            probabilities: float [N, C] that the task gave.
            absent: bool [N, C], see `fit_temperature`.
        """
        task, p = self, np.asarray(probabilities)
        if self.calibration == "temperature":
            factor = fit_temperature(labels, p, absent=absent)
            task, p = task.with_temperature(factor), scaled(p, factor, absent=absent)
        return task.with_threshold(p.max(axis=1), p.argmax(axis=1) == labels)


class SingleLabel(Confidence, PooledTask):
    """A task whose answer is one of C classes, with its probability.

    `positive_class` is the class whose F1 is among the scores; empty: the second of
    two.
    """

    best_score = "accuracy"
    columns = {**PooledTask.columns, "label": Column("label", single=True)}
    positive_class: str = ""

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Return the names of the classes, in the order of the outputs."""

    def distributions(self, answers: Answers) -> np.ndarray:
        """Return the probabilities of the classes in answers, float [N, C]."""
        return answers["probabilities"]

    def soft_targets(self, answers: Answers, teacher: Self) -> np.ndarray:
        return teacher.temperature * log_of(teacher.distributions(answers))

    @classmethod
    def strata(cls, columns: Columns, **settings: Any) -> Strata:
        names = label_names(columns["label"])
        alone = {name: (name,) for name in set(names)}
        return [alone[name] for name in names]

    def notes(self, columns: Columns) -> list[str]:
        """Return warnings about names that are almost equal, and contradictions."""
        names = label_names(columns["label"])
        texts = texts_of(self, columns)
        return [
            *near_names(names, columns.path),
            *contradicting_labels(texts, names, columns),
        ]

    def targets(self, columns: Columns) -> np.ndarray:
        """Return the class of each row, int32 [N]; errors name unknown ones by line."""
        return columns.indices("label", self.names)

    def weights_by_class(self, given: Any) -> dict[int, Any]:
        """Return the weight of each class by number, 1 for classes that are not given.

        Raises:
            ConfigError: `given` is not a dict of classes, by name or number, and
                weights.
        """
        names = self.names
        if not isinstance(given, dict):
            raise ConfigError(
                f"`class_weight` must be a dict of classes and weights; "
                f"{received(given)}"
            )
        numbers = [names.index(key) if key in names else key for key in given]
        for key, number in zip(given, numbers, strict=True):
            if number not in range(len(names)) or numbers.count(number) > 1:
                raise ConfigError(
                    f"a class of `class_weight` must be one of {listed(names)}, or its "
                    f"number, once; {received(key)}"
                )
        weights = dict(zip(numbers, given.values(), strict=True))
        # Keras takes 1 for others too, but not for those above the last one named.
        return dict.fromkeys(range(len(names)), 1.0) | weights

    def encode_targets(self, targets: Any) -> Any:
        """Return the indices of class names, or of whole numbers, [B] or [B, 1]."""
        targets = one_each(targets)
        shape: Any = getattr(targets, "shape", ())
        if len(shape) > 1 and targets.dtype == tf.string:
            raise ConfigError(
                f"`y` must be one class for each row, [N]; received shape {shape}"
            )
        return class_numbers(targets, self.names)

    @property
    def units(self) -> int:
        return len(self.names)

    def loss(self) -> keras.losses.Loss:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def metrics(self) -> list[Any]:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        labels, p = self.targets(columns), self.distributions(answers)
        correct = p.argmax(axis=1) == labels
        return {
            **classification_scores(
                labels,
                p,
                class_names=self.names,
                positive_class=self.positive_class or None,
            ),
            **uncalibrated_scores(labels, p, self.temperature),
            **abstention_scores(p.max(axis=1), correct, self.abstain_below),
        }

    def tune(self, columns: Columns, answers: Answers) -> Self:
        """Return the task with temperature and threshold fitted on dev rows."""
        return self.fitted(self.targets(columns), self.distributions(answers))

    def recipe(self) -> dict[str, Any]:
        return {
            "meaning": "probabilities of the classes: softmax of the output divided by "
            "temperature; the answer is the likeliest class, and none if its "
            "probability is below abstain_below",
            "activation": "softmax",
            "temperature": self.temperature,
            "classes": list(self.names),
            "abstain_below": self.abstain_below,
        }

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        targets, p = self.targets(columns), self.distributions(answers)
        return [
            self.mistake(
                columns,
                row,
                label=self.names[targets[row]],
                prediction=self.names[p[row].argmax()],
                probability=float(p[row].max()),
            )
            for row in wrong_rows(targets, p)
        ]

    def rival(self, mistake: Mapping[str, Any]) -> str | None:
        return str(mistake["label"])

    def decisions(self, columns: Columns, answers: Answers) -> Decisions:
        """Return whether rows are of the positive class, or of the second of two."""
        positive = self.positive_class
        if not positive and len(self.names) == 2:
            positive = self.names[1]
        if not positive:
            return {}
        index = self.names.index(positive)
        p = self.distributions(answers)[:, index]
        return {positive: (self.targets(columns) == index, p)}

    def doubtful_labels(
        self, columns: Columns, answers: Answers
    ) -> list[dict[str, Any]]:
        labels, p = self.targets(columns), self.distributions(answers)
        found = []
        for row in labels_to_check(labels, p).tolist():
            label, best = labels[row], p[row].argmax()
            names = self.names[label], self.names[best]
            found.append(self.doubt(columns, row, *names, p[row, [label, best]]))
        return found

    def explained(self, item: Item) -> list[Target]:
        """Return the log-odds of the predicted class."""
        rows = self.explained_rows(item)
        best = int(item.outputs(rows)[0].argmax())
        return [item.answer_odds(rows, self.names, best, temperature=self.temperature)]

    def describe(self, columns: Columns) -> dict[str, Any]:
        counts = np.bincount(self.targets(columns), minlength=len(self.names))
        classes = dict(zip(self.names, counts.tolist(), strict=True))
        return {"rows": len(columns), "classes": classes}


def wrong_rows(targets: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the rows whose most probable class is wrong, most confident first.

    `targets` int [N], `probabilities` float [N, C].
    """
    wrong = np.flatnonzero(probabilities.argmax(axis=1) != targets)
    return wrong[np.argsort(-probabilities.max(axis=1)[wrong], kind="stable")]


def label_numbers(columns: Columns) -> np.ndarray:
    """Return the labels of a file as numbers, float32 [N]; bad ones named by line."""
    values = [_number(cell) for cell in columns["label"]]
    wrong = [
        (row, f"`label` must be a number; {received(cell)}{_comma(cell)}")
        for row, (cell, value) in enumerate(zip(columns["label"], values, strict=True))
        if not math.isfinite(value)
    ]
    columns.refuse(wrong)
    return np.array(values, "float32")


def _comma(cell: Any) -> str:
    """Return a hint at a decimal comma, or an empty string."""
    is_decimal = re.fullmatch(r"[+-]?\d+,\d+", str(cell).strip())
    return ": write decimals with a point" if is_decimal else ""


def _number(cell: Any) -> float:
    """Parse a cell as a number; NaN if it is not one or too large for float32."""
    try:
        value = math.nan if "_" in str(cell) else float(cell)
    except (TypeError, ValueError):
        return math.nan
    return value if abs(value) < 3e38 else math.nan
