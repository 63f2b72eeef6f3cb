"""A run that fits a linear head on vectors: `HeadTrainer`, or if frozen `HeadFit`.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 5.3, uses a frozen encoder.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from bert_keras.answering.backend import Backend
from bert_keras.data.class_names import listed
from bert_keras.data.columns import Columns
from bert_keras.data.duplicates import repeated_texts
from bert_keras.data.holdout import Strata, classes_of
from bert_keras.distribution.strategy import Devices
from bert_keras.errors import ConfigError, DataError
from bert_keras.inference.predictor import Predictor
from bert_keras.models.loading import new_model
from bert_keras.models.task_model import TaskModel, with_head
from bert_keras.report.values import words
from bert_keras.runs.notes import collected, say
from bert_keras.runs.stop_signal import StopSignal
from bert_keras.settings import ALL_LAYERS, LAST_LAYER
from bert_keras.tasks.base import Task, replaced
from bert_keras.tasks.protocols import texts_of
from bert_keras.training.choices import ComparedLayers, Facts
from bert_keras.training.data import count_tests
from bert_keras.training.linear_head import (
    DECAYS,
    FOLDS,
    POWERS,
    Head,
    Validation,
    balanced,
    chosen_decay,
    cross_validate,
    fit_head,
    layer_scales,
    of_layers,
    powers_of,
    stratified_folds,
    strengths_of,
)
from bert_keras.training.loop import RunContext
from bert_keras.training.progress import Forecast
from bert_keras.training.self_training import self_trained_head, validate_self_training
from bert_keras.training.trainer import CrossValidated, Fitted, training_notes

HEAD = "classifier"
# What `DECAYS` of layers are called.
_LAYERS = {
    0.8: "all layers, the upper ones with more weight",
    0.0: "the last layer",
    1.0: "all layers",
}
# A share of the loss, see `compared_layers`; with fewer rows, losses are chance.
_MUCH_LESS, _LEAST_TO_COMPARE = 0.65, 32
_AT_ONCE = 1024  # rows whose vectors are kept in one file of the run folder


class HeadInputs(Backend):
    """Answers with the vector that the head of a model reads, `vector` [B, D]."""

    def __init__(self, model: TaskModel) -> None:
        self.task, self.preprocessor = model.task, model.preprocessor
        self._below = model.task.reader.below(model)

    def answer(self, texts: Any, *, preprocessor: Any = None, **_: Any) -> Any:
        batch = self.task.features(preprocessor or self.preprocessor, texts)
        return {"vector": self._below.vectors(batch)}


class HeadTrainer(abc.ABC):
    """Fits the head of a model on vectors; cross-validation scores it without dev rows.

    A subclass says what vectors, and which folds need them.

    Args:
        model: its head is set; the encoder stays as it is.
        data: the rows by name; `dev` is only scored, and `unlabeled` are labelled by
            the head itself.
        context: the run that it belongs to.

    Attributes:
        then: the work that follows the fit, as the number of rows that could be
            answered in the same time; NaN if unknown.
        most_folds: into which the rows are divided.
        enough: the number of held-out rows after which no further fold is needed.
        validation: what cross-validation found.
    """

    most_folds = FOLDS
    enough = math.inf
    job = "vectors"  # what the progress of `vectors` is called

    def __init__(
        self, model: TaskModel, data: Mapping[str, Columns], context: RunContext
    ) -> None:
        self.model = model
        self.train_rows, self.dev = data["train"], data.get("dev")
        self.unlabeled = data.get("unlabeled")
        self.run, self.config = context.folder, context.config
        self.devices, self.stop = context.devices, context.stop
        self.fold = context.fold
        self._scores: dict[str, Any] = {}
        self._answers: dict[str, np.ndarray] = {}
        self.history: list[dict[str, Any]] = []
        self.ending = ""
        self.validation: Validation | None = None
        self._notes: dict[str, str] = {}  # for the report
        self._task = model.task  # before it is finalized
        self._start = time.perf_counter()
        self.then: float = len(self.dev or ()) + count_tests(data)
        self.forecast = Forecast(examples=math.nan)

    def train(self) -> None:
        """Fit the head; a signal ends this at once, without losing vectors.

        Raises:
            DataError: no class has two rows.
            RunStopped: a stop was requested.
        """
        task, columns, folds = self.model.task, self.train_rows, self.folds
        loss, targets = task.linear_targets(columns)
        weights = task.example_weights(columns)
        if self.needs_folds and not folds:
            raise DataError(
                "must have a class with two different texts or more, which "
                "cross-validation needs; each class has one",
                path=columns.path,
            )
        if self.needs_folds:
            self._say_alone()
        folds = folds[: folds_needed(map(len, folds), self.enough)]
        self.forecast = self.planned(folds)
        with self.stop.at_once():
            head, found, self.ending = self.fit(
                targets, folds, loss=loss, weights=weights
            )
        factor = found.factor if found else 1.0
        layer = self.model.get_layer(HEAD)
        layer.kernel.assign(self.as_model_reads(head.kernel * factor))
        layer.bias.assign(head.bias * factor)
        self.validation = found
        if found and loss != "squared":
            self._notes["calibrated"] = (
                f"by cross-validation (logits times {factor:.3g}, in the weights of "
                "the head)"
            )
        say(self.ending)
        if self.dev is not None:
            self._answers = self.answers(Predictor(self.model), "dev", self.dev)
            self._scores = task.score(self.dev, self._answers)

    @functools.cached_property
    def _strata(self) -> Strata:
        task = self._task
        return task.strata(self.train_rows, **task.get_config())

    @functools.cached_property
    def folds(self) -> list[list[int]]:
        """The rows of each fold; none if each row is the only one of its class."""
        return folds_of(
            self._task,
            self.train_rows,
            self._strata,
            seed=self.config.seed,
            most=self.most_folds,
        )

    def _say_alone(self) -> None:
        """Report the rows in no fold, which are the only ones of a class."""
        strata, validated = self._strata, {row for fold in self.folds for row in fold}
        if alone := len(strata) - len(validated):
            names = classes_of(strata) - classes_of(strata, validated)
            say(
                "rows that are the only one of their class are not scored in cross-"
                f"validation: {alone:,} ({listed(sorted(names))})"
            )

    @property
    @abc.abstractmethod
    def needs_folds(self) -> bool:
        """Whether there is cross-validation."""

    @abc.abstractmethod
    def planned(self, folds: Sequence[Sequence[int]]) -> Forecast:
        """Return the forecast of the run."""

    @abc.abstractmethod
    def fit(
        self,
        targets: np.ndarray,
        folds: Sequence[Sequence[int]],
        *,
        loss: str,
        weights: np.ndarray | None,
    ) -> tuple[Head, Validation | None, str]:
        """Return the head of all rows, the cross-validation, and a line about both.

        Args:
            targets, loss: as in `fit_head`, of the training rows.
            folds: the rows of each fold.
            weights: of each row, float32 [N].
        """

    def as_model_reads(self, kernel: np.ndarray) -> np.ndarray:
        """Return the kernel of a head for the vectors of the model."""
        return kernel

    def best_power(self, found: Iterable[Validation]) -> tuple[float, Validation]:
        """Return the best of the validations by `powers_of`, with its power."""
        tried = list(found)
        if len(tried) == 1:
            return POWERS[0], tried[0]
        pairs = zip(POWERS, tried, strict=True)
        return max(pairs, key=lambda pair: self.rank_of(pair[1]))

    def tell_gain(self, plain: Validation, other: Validation) -> bool:
        """Report whether self-training gains in cross-validation, and return it."""
        name = self.model.task.best_score
        before, after = self.rank_of(plain), self.rank_of(other)
        gained = after > before
        count = len(cast(Columns, self.unlabeled))
        note = (
            f"{count:,} unlabeled rows {'are used' if gained else 'are not used'}: "
            f"by cross-validation, self-training on them changes {name} from "
            f"{before[0]:.4f} to {after[0]:.4f}, and the loss from {plain.loss:.4f} to "
            f"{other.loss:.4f}"
        )
        self._notes["unlabeled"] = note
        say(note)
        return gained

    @property
    def rank(self) -> tuple[float, float]:
        """The score and the negative loss on dev, without dev of the held-out rows."""
        if self.dev is None:
            return self.rank_of(cast(Validation, self.validation))
        loss = float(self._scores.get("loss", 0.0))
        return float(self._scores[self.model.task.best_score]), -loss

    def rank_of(self, found: Validation) -> tuple[float, float]:
        """Return the score of the held-out rows, and the negative loss."""
        task, rows = self.model.task, self.train_rows.take(found.rows)
        scores = task.score(rows, _answers_of(task, found.logits))
        return float(scores[task.best_score]), -found.loss

    def cross_validated(self) -> CrossValidated:
        """Return the training rows with the answers of heads that have not seen them.

        Raises:
            ConfigError: nothing was fitted.
        """
        found, task = self.validation, self._task
        if found is None:
            raise ConfigError("`train` must be called first")
        columns = self.train_rows.take(found.rows)
        answers = _answers_of(task, found.logits)
        answers, task = _tuned_answers(task, columns, answers, found)
        count = len(found.folds)
        of = "" if count == len(self.folds) else f"{count} of "
        name = f"cross-validation, {of}{len(self.folds)} folds"
        share = 1 - len(found.rows) / count / len(self.train_rows)
        each = f" in each of {count} folds" if count > 1 else ""
        trained_on = f"{share:.0%} of the rows{each}"
        return CrossValidated(name, found.rows, answers, task, trained_on)

    def fitted(self) -> Fitted:
        """Return the model with its head; without dev rows, also what was validated."""
        return Fitted(
            model=self.model,
            scores=self._scores,
            answers=self._answers,
            validated=self.cross_validated() if self.dev is None else None,
            history=self.history,
            settings={**self._notes, **training_notes(self.ending)},
            seconds=time.perf_counter() - self._start,
        )

    def saved_on_failure(self) -> contextlib.AbstractContextManager[None]:
        """Return a context that saves nothing: the vectors are saved."""
        return contextlib.nullcontext()

    def answers(
        self, predictor: Predictor, name: str, rows: Columns
    ) -> dict[str, np.ndarray]:
        """Return the answers to the rows of a data set, and show the progress."""
        shown = "held-out" if name == self.fold else name
        with self.forecast.examples(f"scoring {shown}", len(rows)) as bar:
            return predictor.answers(rows, seen=bar.add)

    @functools.cached_property
    def _below(self) -> Predictor:
        return Predictor(HeadInputs(self.model), freeze=False)

    def vectors(self, columns: Columns, *, name: str = "vectors") -> np.ndarray:
        """Return the vectors of rows, float32 [N, D], that the head is fitted on.

        `name` begins the names of their files, if the run keeps them.
        """
        parts = []
        with self.forecast.examples(self.job, len(columns)) as bar:
            for start in range(0, len(columns), _AT_ONCE):
                rows = columns.take(range(len(columns))[start : start + _AT_ONCE])
                parts.append(self.vectors_of(rows, f"{name}-{start:09d}.npy", bar))
        return np.concatenate(parts)

    def vectors_of(self, rows: Columns, file: str, bar: Any) -> np.ndarray:
        """Return the vectors of rows that are kept in one file, if the run keeps any.

        `bar` counts the rows.
        """
        return self._below.answers(rows, seen=bar.add)["vector"]


class HeadFit(HeadTrainer):
    """Computes the vectors of the rows once, and fits the head of a model on them.

    L2 is chosen by cross-validation, or for few rows by their number, see
    `strengths_of`; the head is fitted on all training rows. With `tries_layers`,
    cross-validation also chooses whether it reads all layers, embeddings included, as
    the model does at first, the upper ones with more weight or all alike, or the last
    one alone. Vectors are kept in the run folder, so that an interrupted run does not
    compute them again.
    """

    needs_folds = True

    def __init__(
        self, model: TaskModel, data: Mapping[str, Columns], context: RunContext
    ) -> None:
        super().__init__(model, data, context)
        self.tries_layers = context.tries_layers
        self._known = context.vectors if context.tries_layers else None
        self._decay: float | None = None  # see `of_layers`; `None`: vectors as they are
        self._width = model.backbone.config.hidden_size

    def planned(self, folds: Sequence[Sequence[int]]) -> Forecast:
        rows = len(self.train_rows) if self._known is None else 0
        return Forecast(examples=rows + len(self.unlabeled or ()) + self.then)

    def as_model_reads(self, kernel: np.ndarray) -> np.ndarray:
        if not self._decay:
            return kernel
        layers = len(kernel) // self._width  # the fit read scaled vectors
        return kernel * layer_scales(self._decay, layers, self._width)[:, None]

    def compared_layers(self) -> ComparedLayers:
        """Return whether a head on all layers is much better than one on the last.

        By cross-validation, for which there must be some rows. The model's head reads
        all layers.
        """
        max_length = self.model.preprocessor.max_length
        task, columns, folds = self.model.task, self.train_rows, self.folds
        loss, targets = task.linear_targets(columns)
        if not folds or len(columns) < _LEAST_TO_COMPARE:
            return ComparedLayers(False, None, max_length)
        self.job = "comparing layers"
        x = self.vectors(columns)
        weights = task.example_weights(columns)
        tried = self._by_decay(x, targets, folds, loss, weights)
        losses = {decay: found.loss for decay, (_, found) in tried.items()}
        lower_help = min(losses.values()) < _MUCH_LESS * losses[0.0]
        return ComparedLayers(lower_help, x, max_length)

    def fit(
        self,
        targets: np.ndarray,
        folds: Sequence[Sequence[int]],
        *,
        loss: str,
        weights: np.ndarray | None,
    ) -> tuple[Head, Validation | None, str]:
        x, which = self.vectors(self.train_rows), ""
        known = targets, folds, loss, weights
        if self.tries_layers:
            power, found, which = self._choose_layers(x, *known)
            x = self._as_read(x)
        else:
            power, found = self._validated(x, *known)
        rows = balanced(targets, weights, power)
        (head,) = fit_head(x, targets, loss=loss, l2=found.l2, weights=rows)
        note = balance_note(power)
        if self.unlabeled is not None:
            others = self.vectors(self.unlabeled, name="unlabeled")
            given: dict[str, Any] = {"loss": loss, "l2": found.l2, "weights": weights}
            validation = validate_self_training(x, targets, others, folds, **given)
            if self.tell_gain(found, validation):
                head = self_trained_head(x, targets, others, **given)
                found, note = validation, ""
        several = len(strengths_of(targets, loss)) > 1
        line = (
            f"a linear head on the encoder's vectors{which}; L2 {found.l2:.2g}"
            f"{' by cross-validation' if several else ''}; {len(found.folds)} folds"
            f"{note}"
        )
        return head, found, line

    def _validated(
        self,
        x: np.ndarray,
        targets: np.ndarray,
        folds: Sequence[Sequence[int]],
        loss: str,
        weights: np.ndarray | None,
    ) -> tuple[float, Validation]:
        """Return the best power of the classes' weights, and the validation with it."""
        return self.best_power(
            cross_validate(x, targets, folds, loss=loss, weights=weights, power=each)
            for each in powers_of(targets, loss)
        )

    def _choose_layers(
        self, x: np.ndarray, *known: Any
    ) -> tuple[float, Validation, str]:
        """Choose what the head reads of all layers' vectors, and set the model's task.

        Returns what `_validated` does of the choice, and words on it; `known` are its
        other arguments.
        """
        tried = self._by_decay(x, *known)
        losses = {decay: found.losses for decay, (_, found) in tried.items()}
        self._decay = chosen = chosen_decay(losses)
        if not chosen:
            self._task = replaced(self._task, layers=LAST_LAYER)
            task = replaced(self.model.task, layers=LAST_LAYER)
            with self.devices.strategy.scope():
                self.model = with_head(self.model, task, self.model.preprocessor, {})
        other = 0.0 if chosen else DECAYS[0]
        name = self.model.task.best_score
        of_chosen, of_other = (
            self.rank_of(tried[each][1])[0] for each in (chosen, other)
        )
        which = (
            f" of {_LAYERS[chosen]} (cross-validated {words(name).lower()} "
            f"{of_chosen:.4f}; of {_LAYERS[other]} {of_other:.4f})"
        )
        return (*tried[chosen], which)

    def _by_decay(
        self, x: np.ndarray, *known: Any
    ) -> dict[float, tuple[float, Validation]]:
        """Return `_validated` for vectors of all layers by each of `DECAYS`."""
        return {
            decay: self._validated(of_layers(x, decay, self._width), *known)
            for decay in DECAYS
        }

    def _as_read(self, x: np.ndarray) -> np.ndarray:
        """Return what the head reads of vectors of the model, as chosen."""
        return x if self._decay is None else of_layers(x, self._decay, self._width)

    def vectors(self, columns: Columns, *, name: str = "vectors") -> np.ndarray:
        if self._known is not None and columns is self.train_rows:
            return self._as_read(self._known)
        return self._as_read(super().vectors(columns, name=name))

    def vectors_of(self, rows: Columns, file: str, bar: Any) -> np.ndarray:
        found = self.run.array(file) if self.run else None
        if found is not None:
            bar.skip(len(rows))
            return found
        found = super().vectors_of(rows, file, bar)
        if self.run is not None:
            self.run.add_array(file, found)
        return found


def folds_needed(sizes: Iterable[int], enough: float) -> int:
    """Return how many folds of these sizes hold out enough rows, or all."""
    held_out, count = 0, 0
    for size in sizes:
        if held_out >= enough:
            break
        held_out, count = held_out + size, count + 1
    return count


def folds_of(
    task: Task, rows: Columns, strata: Strata, *, seed: int, most: int
) -> list[list[int]]:
    """Return the rows of each fold of a cross-validation, see `stratified_folds`.

    `strata` are the classes of the rows. Groups and equal texts stay together.
    """
    return stratified_folds(
        strata,
        seed=seed,
        groups=task.groups(rows),
        equal=repeated_texts(texts_of(task, rows)),
        most=most,
    )


def compare_layers(task: Task, facts: Facts, *, devices: Devices) -> ComparedLayers:
    """Return `HeadFit.compared_layers` for the rows of a run of method linear.

    Contrastive training makes vectors of the last layer alone; where the lower ones
    tell much more, a head on all of them is better.
    """
    with collected(shown=False):
        whole = replaced(task, layers=ALL_LAYERS)
        return _new_head(whole, facts, devices).compared_layers()


def score_vectors(task: Task, facts: Facts, *, devices: Devices) -> float:
    """Return the cross-validated score of a linear head on vectors of the encoder."""
    with collected(shown=False):
        fit = _new_head(task, facts, devices)
        fit.job = "comparing ways to read pairs"
        fit.train()
    _, rows, answers, task, _ = fit.cross_validated()
    return float(task.score(facts.rows.take(rows), answers)[task.best_score])


def _new_head(task: Task, facts: Facts, devices: Devices) -> HeadFit:
    """Return what fits a head on all rows of a run that is not begun."""
    config = dataclasses.replace(facts.config, method="linear")
    model = new_model(task, facts.encoder, config, devices=devices)
    context = RunContext(None, config, devices, StopSignal())
    return HeadFit(model, {"train": facts.rows}, context)


def probe(
    model: TaskModel, data: Mapping[str, Columns], context: RunContext, *, then: float
) -> HeadFit:
    """Set the head of a model to one that is fitted on the encoder's vectors.

    Fine-tuning from there changes the encoder less than from a random head, whose first
    gradients say nothing (Kumar et al. 2022, arXiv:2202.10054). `then` is as in
    `HeadTrainer`.

    Raises as `HeadFit.train` does.
    """
    fit = HeadFit(model, {"train": data["train"]}, context)
    fit.then = then
    fit.train()
    return fit


def _answers_of(task: Task, logits: np.ndarray) -> dict[str, np.ndarray]:
    answers = task.answer(tf.constant(logits, tf.float32), {})
    return {name: value.numpy() for name, value in answers.items()}


def _tuned_answers(
    task: Any, columns: Columns, answers: dict[str, np.ndarray], found: Validation
) -> tuple[dict[str, np.ndarray], Task]:
    """Return answers with settings that are fitted on other folds, and the task.

    The task's own are fitted on all folds. `answers` are those before, to `columns`.
    """
    tuned = task.tune(columns, answers)
    if tuned == task:
        return answers, task
    place = {row: at for at, row in enumerate(found.rows)}
    kept: dict[str, np.ndarray] = {}
    for fold in found.folds:
        own = [place[row] for row in fold]
        others = np.delete(np.arange(len(place)), own)
        some = {name: value[others] for name, value in answers.items()}
        fitted = task.tune(columns.take(others.tolist()), some)
        for name, value in _answers_of(fitted, found.logits[own]).items():
            shape = (len(place), *value.shape[1:])
            kept.setdefault(name, np.empty(shape, value.dtype))[own] = value
    return kept, tuned


def balance_note(power: float) -> str:
    """Return what the line about a head says of the weights of classes."""
    how = {0.0: "", 1.0: "; every class has the same total weight"}
    return how.get(power, "; rows of rarer classes have more weight")
