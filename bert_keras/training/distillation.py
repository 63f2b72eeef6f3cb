"""What a student learns from its teacher, beside the labels: `Distillation`.

A student of `objective` vectors learns no labels, but its teacher's vectors of texts.
One of vectors that rank also learns the scores of pairs of a teacher of another task.
A teacher answers the training texts once, before training: it may have another
vocabulary, or be an export. Where outputs belong to tokens, and not to whole texts, a
teacher with the student's vocabulary reads each batch of the student instead.

Sources: Hinton et al. 2015 (arXiv:1503.02531); Sanh et al. 2019 (arXiv:1910.01108);
Hofstätter et al. 2020 (arXiv:2010.02666) for the margins of a reranker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.class_names import comparable, listed
from bert_keras.data.columns import Columns
from bert_keras.data.holdout import stratified_holdout
from bert_keras.errors import ConfigError, DataError, counted, received
from bert_keras.inference.equal_texts import joined
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.inference.session import is_export
from bert_keras.model.distillation import SoftLoss, softened
from bert_keras.model.layers import MASKED
from bert_keras.models.objective import SOFT, SOFT_WEIGHTS, STATES, LossSum
from bert_keras.models.task_model import TaskModel
from bert_keras.retrieval.embedder import with_prompt
from bert_keras.retrieval.index_model import model_hash
from bert_keras.runs.notes import say, show
from bert_keras.runs.progress import Progress
from bert_keras.runs.run_folder import digest_of
from bert_keras.scoring.calibration import logit_of
from bert_keras.settings import OWN_LENGTHS
from bert_keras.tasks import TASKS, name_of
from bert_keras.tasks.base import Task
from bert_keras.tasks.protocols import TAUGHT, Writing, check_dense, texts_of
from bert_keras.text.truncation import Truncation
from bert_keras.training.config import TrainConfig
from bert_keras.training.taught_states import TaughtStates
from bert_keras.training.word_variants import similar_words, word_variants

_OF_SCORES = {"distill": "soft", "accumulation": 1}  # options with scores of pairs
_MOST_TIMED = 1000  # rows
_MOST_TRAINING_ROWS = 1000  # that teacher and student answer after training


def student_encoder(
    encoder: str | os.PathLike[str] | None, config: TrainConfig
) -> str | os.PathLike[str]:
    """Return the encoder of a run: the given one, or else the teacher's.

    Raises:
        ConfigError: there is neither, or the teacher has no weights to start from.
    """
    if encoder is not None:
        if config.student is not None and os.fspath(encoder) != config.teacher:
            raise ConfigError(
                "`student` is a new encoder with the teacher's vocabulary: leave out "
                f"`encoder`; received {config.student} and {os.fspath(encoder)}"
            )
        return encoder
    if config.teacher is None:
        raise ConfigError("`encoder` must be given, by --encoder; received none")
    if config.keep_layers is None and config.student is None:
        raise ConfigError(
            "`encoder` must be given; or `keep_layers`, for layers of the teacher, or "
            "`student`, for a new encoder"
        )
    if is_export(config.teacher):
        raise ConfigError(
            "`teacher` must be a model folder, whose encoder the student gets, without "
            f"`encoder`; received the export {config.teacher}"
        )
    return config.teacher


@dataclasses.dataclass(frozen=True, eq=False)
class Distillation:
    """What a student learns from its teacher.

    Args:
        task: the student's task.
        predictor: the teacher.
        folder: where it is.
        loss: of the student's outputs, with the teacher's as targets.
        weight: share of this loss; the labels' loss has the rest.
        order: for each class of the student, its number among the teacher's; `None`:
            they are in the same order.
        outputs: the teacher's outputs for each training row and then each unlabeled
            row, float32 [N, C]; `None`: the teacher reads the batches.
        unlabeled: rows of which only the teacher's outputs are learned.
        weights: of all these rows in this loss, float32 [N], if some are unlabeled.
        states: what is learned from inside the teacher, if anything.
        scores_pairs: whether the teacher, of another task, scores the pairs of a row.
    """

    task: Task
    predictor: Predictor
    folder: Path
    loss: SoftLoss
    weight: float
    order: Sequence[int] | None = None
    outputs: np.ndarray | None = None
    unlabeled: Columns | None = None
    weights: np.ndarray | None = None
    states: TaughtStates | None = None
    scores_pairs: bool = False

    @classmethod
    def of(
        cls,
        task: Task,
        config: TrainConfig,
        train: Columns,
        unlabeled: Columns | None = None,
        *,
        hidden_size: int = 0,
    ) -> Distillation | None:
        """Return what a run's teacher teaches; `None` without a teacher.

        Args:
            task: the student's.
            config: names the teacher.
            train: the training rows, which it answers.
            unlabeled: rows without labels, which it answers, too.
            hidden_size: of the student's encoder, for a student of vectors.

        Raises:
            ConfigError: the teacher has another task, other classes or other inputs, or
                the task has no outputs that can be taught.
        """
        if config.teacher is None:
            return None
        own = None if task.name in TASKS else type(task)
        predictor = load_predictor(config.teacher, task=own)
        teacher = predictor.model.task
        theirs, ours = (name_of(type(each)) for each in (teacher, task))
        if theirs != ours and teacher.scores_pairs:
            rows = task.candidates(train)
            if rows is not None:
                return cls._of_scores(task, predictor, config, train, rows, unlabeled)
        loss = soft_target_loss(task, config)
        if theirs != ours:
            raise ConfigError(
                f"`teacher` must be a model of the task {ours}; received one of "
                f"{theirs}"
            )
        weight = config.distill_weight
        if task.learns_from == "vectors":
            predictor, task = _aligned(predictor, task, hidden_size)
            weight = 1.0  # there are no labels
        order = _class_order(predictor.model.task, task)
        found = cls(task, predictor, Path(config.teacher), loss, weight, order)
        if config.distill != "soft":
            found._check_is_folder(f"with `distill` {config.distill}")
            states = TaughtStates(config.distill, predictor.model)
            found = dataclasses.replace(found, states=states)
        is_answered = task.learns_from != "batches"
        used = {"unlabeled": unlabeled is not None, "augment": config.augment > 0}
        for name, is_used in used.items():
            if is_used and (not is_answered or task.gathered(train)):
                raise ConfigError(
                    f"`{name}` needs a teacher's answers to whole texts, one by one; "
                    f"received it for {task.name}"
                )
        reads = not is_answered or found.states is not None
        if reads and task.compares and config.accumulation > 1:
            raise ConfigError(
                f"`accumulation` must be 1 with `teacher` for {task.name}; received "
                f"{config.accumulation}"
            )
        if not is_answered:
            found._check_is_folder(f"for {task.name}, whose outputs belong to tokens")
            say("the teacher computes each batch, too")
            return found
        if config.augment:
            made = found._variants(train, config)
            unlabeled = made if unlabeled is None else unlabeled.followed_by(made)
        if unlabeled is None:
            answered = found._answered({"training": train})
            return dataclasses.replace(found, outputs=answered)
        weights, more = task.example_weights(train), np.ones(len(unlabeled), "float32")
        known = np.ones(len(train), "float32") if weights is None else weights
        return dataclasses.replace(
            found,
            outputs=found._answered({"training": train, "unlabeled": unlabeled}),
            unlabeled=unlabeled,
            weights=np.concatenate([known, more]),
        )

    @classmethod
    def _of_scores(
        cls,
        task: Any,
        predictor: Predictor,
        config: TrainConfig,
        train: Columns,
        rows: list[list[str]],
        unlabeled: Columns | None,
    ) -> Distillation:
        """Return what a teacher's scores of the pairs of a row teach.

        `rows` are the texts that the first text of a row is paired with.
        """
        given = {"unlabeled": 0 if unlabeled is None else len(unlabeled)}
        given |= {n: getattr(config, n) for n in ("distill", "augment", "accumulation")}
        for name, usual in {**dict.fromkeys(given, 0), **_OF_SCORES}.items():
            if given[name] != usual:
                raise ConfigError(
                    f"`{name}` must be {usual or 'left out'} with a `teacher` that "
                    f"scores pairs; {received(given[name])}"
                )
        _check_weight(own := task.loss(), config)
        loss = own.softened_ranking(config.temperature)
        place, weight = Path(config.teacher or ""), config.distill_weight
        found = cls(task, predictor, place, loss, weight, scores_pairs=True)
        at = [
            (row, c) for row, each in enumerate(rows) for c, t in enumerate(each) if t
        ]
        parts = [train["text"][row] for row, _ in at], [rows[row][c] for row, c in at]
        answers = found._answers({"pairs of the training rows": parts})
        scores = np.full((len(rows), len(rows[0])), MASKED, np.float32)
        scores[tuple(np.array(at).T)] = _logits_of_pairs(predictor.model.task, answers)
        return dataclasses.replace(found, outputs=scores)

    def _answers(
        self, sets: Mapping[str, tuple[Sequence[Any], ...]]
    ) -> dict[str, np.ndarray]:
        """Return the teacher's answers to texts, by what they are, and report them."""
        counts, parts = Truncation(), []
        for what, texts in sets.items():
            rows = len(texts[0])
            show(f"the teacher answers {counted(rows, what)}")
            # How long the training takes that follows is not known yet.
            with Progress(
                "teacher", unit="rows", total=rows, later=lambda: math.nan
            ) as bar:
                for part in self.predictor.stream(texts, truncation=counts):
                    parts.append(part)
                    bar.add(len(next(iter(part.values()))))
        for line in self.predictor.truncated(counts):
            say(f"teacher: {line}")
        return joined(parts)

    def _variants(self, train: Columns, config: TrainConfig) -> Columns:
        """Return the variants of the training rows that `config.augment` asks for."""
        task, model = self.task, self.predictor.model
        texts = texts_of(task, train)
        are_texts = len(texts) == len(task.roles) and all(
            isinstance(text, str) for each in texts for text in each
        )
        if not are_texts or not isinstance(model, TaskModel):
            wanted = "a task of one text or a pair of texts"
            given = task.name
            if are_texts:
                wanted, given = "a teacher that is a model folder", "an export"
            raise ConfigError(f"`augment` needs {wanted}; received {given}")
        table = model.backbone.token_embedding.embeddings
        similar = functools.partial(
            similar_words,
            tokens=model.preprocessor.tokenizer.vocabulary,
            embeddings=keras.ops.convert_to_numpy(table),
        )
        found = word_variants(
            train, task.roles, config.augment, similar=similar, seed=config.seed
        )
        rows = {*zip(*texts, strict=True)}
        equal = sum(each in rows for each in zip(*texts_of(task, found), strict=True))
        line = f"{counted(len(found), 'variants')} of the training rows"
        say(f"{line}, {equal:,} of them equal to a row" if equal else line)
        return found

    def _answered(self, sets: Mapping[str, Columns]) -> np.ndarray:
        """Return the teacher's outputs for all rows of sets by name, float32 [N, C]."""
        teacher, texts = self.predictor.model.task, {}
        for name, columns in sets.items():
            try:
                texts[f"{name} rows"] = texts_of(teacher, columns)
            except DataError as error:
                raise ConfigError(
                    f"`teacher` cannot read the {name} rows: {error}"
                ) from None
        answers = self._answers(texts)
        found = self.task.soft_targets(answers, teacher)
        return np.asarray(self._ordered(found), "float32")

    def _ordered(self, outputs: Any) -> Any:
        """Return outputs with the classes in the student's order."""
        if self.order is None:
            return outputs
        if isinstance(outputs, np.ndarray):
            return outputs[..., list(self.order)]
        return tf.gather(outputs, self.order, axis=-1)

    def _check_is_folder(self, where: str) -> None:
        """Raise unless the teacher is a Keras model that can read any ids.

        `where` tells which runs need one.
        """
        if not isinstance(self.predictor.model, TaskModel):
            raise ConfigError(
                f"`teacher` must be a model folder {where}; received an export"
            )

    def check_student(self, student: TaskModel) -> None:
        """Raise ConfigError if the teacher cannot read the student's batches."""
        if self.outputs is not None and self.states is None:
            return
        teacher: Any = self.predictor.model
        one, other = (_vocabularies(each) for each in (teacher, student))
        if one != other:
            reason = f"for {self.task.name}, whose outputs belong to tokens"
            if self.states is not None:
                reason = "with `distill` hidden or relations"
            raise ConfigError(
                f"`teacher` must have the vocabulary of the student {reason}; received "
                "another"
            )
        trained = {id(weight) for weight in student.trainable_weights}
        last = student.backbone.blocks[-1].weights
        if self.states is not None and not trained & {id(each) for each in last}:
            raise ConfigError(
                "`distill` must be soft where the encoder's last block is not trained; "
                "received hidden or relations"
            )
        task = student.task
        compared: tuple[str, ...] = ()
        if task.vector_output or isinstance(task, Writing):
            # What the batches hold, and what a vector means.
            compared = ("long", "prompts", "default_prompt", *OWN_LENGTHS, "kind")
        for name in compared:
            theirs, ours = (
                getattr(each.task, name, None) for each in (teacher, student)
            )
            if theirs != ours:
                raise ConfigError(
                    f"`{name}` must be the teacher's {theirs!r}; {received(ours)}"
                )
        lengths = {"max_length": (student.preprocessor.max_length, teacher.backbone)}
        if isinstance(task, Writing):
            decoder = teacher.get_layer("decoder")
            lengths["max_target_length"] = task.max_target_length, decoder
        for name, (length, reader) in lengths.items():
            longest = reader.config.max_position_embeddings
            if length > longest:
                raise ConfigError(
                    f"`{name}` must be at most the teacher's {longest}; received "
                    f"{length}"
                )

    def digest(self) -> str:
        """Return a digest of the teacher, by which a run is resumed."""
        model = self.predictor.model
        if isinstance(model, TaskModel):
            weights = ((w.path, keras.ops.convert_to_numpy(w)) for w in model.weights)
            return digest_of(weights)
        files = (each for each in sorted(self.folder.rglob("*")) if each.is_file())
        return digest_of((each.name, np.fromfile(each, np.uint8)) for each in files)

    def compared_with(self, student: Predictor, rows: Columns) -> list[dict[str, Any]]:
        """Return score, time and size of teacher and student, in this order.

        Args:
            student: after training.
            rows: labelled; both answer them in the same way, up to 1,000 for the time.

        Returns:
            For each `model`, the task's `best_score`, `milliseconds` for 1,000 rows and
            `megabytes`, of the weights in float32 or of an export's files.
        """
        found = []
        both = {"teacher": self.predictor, "student": student}
        if self.scores_pairs:  # the teacher has other scores
            del both["teacher"]
        for name, each in both.items():
            scores, milliseconds, size = measured(each, self.folder, rows)
            found.append(
                {
                    "model": name,
                    self.task.best_score: scores.get(self.task.best_score),
                    "milliseconds": milliseconds,
                    "megabytes": size,
                }
            )
        return found

    def taught(self, rows: Mapping[str, Columns]) -> dict[str, Columns]:
        """Return rows by name; those that are scored with the teacher's vectors, if
        these are learned.
        """
        found = {**rows}
        if self.task.learns_from != "vectors":
            return found
        for name, columns in rows.items():
            if name == "unlabeled":
                continue
            vectors = self.outputs
            if name != "train" or vectors is None:
                vectors = self._answered({name: columns})
            cells = {**columns.cells, TAUGHT: [*vectors[: len(columns)]]}
            found[name] = dataclasses.replace(columns, cells=cells)
        return found

    # The loss, in graph.

    def labels(self, rows: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return what a batch's labels hold for `targets`.

        Args:
            rows: the batch's training rows, int64 [B].
            inputs: the student's inputs.
        """
        found: dict[str, Any] = {}
        if self.outputs is None or self.states is not None:
            found["inputs"] = inputs
        if self.outputs is not None:
            found["teacher"] = tf.gather(tf.constant(self.outputs), rows)
        if self.weights is not None:
            found[SOFT_WEIGHTS] = tf.gather(tf.constant(self.weights), rows)
        return found

    @functools.cached_property
    def _sum(self) -> LossSum:
        rank = 1
        if self.outputs is None:
            rank = len(self.predictor.model.output.shape) - 1  # type: ignore[attr-defined]
        return LossSum(self.loss, rank=rank, compares=self.loss.compares)

    def recording(self, student: Any) -> contextlib.AbstractContextManager[None]:
        """Keep what `sums` reads of an update of the student in this block."""
        if self.states is None:
            return contextlib.nullcontext()
        return self.states.recording(student)

    def sums(self, outputs: Any, labels: dict[str, Any]) -> dict[str, Any]:
        """Return the mean of each loss of a batch times its count, float32 []."""
        targets = self._targets(outputs, labels)
        found = {SOFT: self._sum.sum(targets, outputs, self._weights(labels))}
        if self.states is not None:
            found[STATES] = self.states.sum(labels["inputs"])
        return found

    def counts(self, labels: dict[str, Any]) -> dict[str, Any]:
        """Return the number of items in the mean of each loss, float32 []."""
        found = {SOFT: self._sum.count(labels["targets"], self._weights(labels))}
        if self.states is not None:
            found[STATES] = self.states.count(labels["inputs"])
        return found

    def _targets(self, outputs: Any, labels: dict[str, Any]) -> Any:
        """Return the targets of the loss, from the teacher's outputs."""
        model: Any = self.predictor.model
        if self.states is not None:
            read = self.states.read(labels["inputs"])
        elif self.outputs is None:
            read = model(labels["inputs"], training=False)
        if self.outputs is None:
            theirs = self._ordered(tf.stop_gradient(read))
        else:
            theirs = labels["teacher"]
            if not self.scores_pairs:
                # Rows have as many choices as the longest of their batch.
                theirs = theirs[:, : tf.shape(outputs)[-1]]
        return self.loss.targets(theirs, labels["targets"])

    def _weights(self, labels: dict[str, Any]) -> Any:
        """Return the weights of the items: 0 where the task's loss ignores them."""
        ignored = getattr(self.task.loss(), "ignore_class", None)
        if ignored is None:
            return labels.get(SOFT_WEIGHTS, labels.get("weights"))
        return tf.cast(labels["targets"] != ignored, tf.float32)


def check_vectors(task: Task, config: TrainConfig, rows: Columns) -> None:
    """Raise unless options go with a student of vectors, if a task is one.

    Raises:
        DataError: there is no teacher.
        ConfigError: an option has no effect.
    """
    if task.learns_from != "vectors":
        return
    if config.teacher is None:
        rows.require("text_pair", reason="training without `teacher` reads pairs")
        raise ConfigError("`objective` vectors needs `teacher`; received none")
    if config.distill_weight != TrainConfig().distill_weight:
        raise ConfigError(
            "`distill_weight` has no effect with `objective` vectors, which learns no "
            f"labels; received {config.distill_weight:g}"
        )


def _aligned(
    predictor: Predictor, task: Any, hidden_size: int
) -> tuple[Predictor, Task]:
    """Return a teacher that reads queries, and the task of a student of its vectors."""
    teacher: Any = predictor.model.task
    check_dense(teacher, "a teacher of `objective` vectors")
    if task.truncate_dim:
        raise ConfigError(
            "`truncate_dim` must be 0 with `objective` vectors, which learns whole "
            f"ones; received {task.truncate_dim}"
        )
    model = model_hash(with_prompt(predictor, "document")).partition(" ")[0]
    if not model:
        say(
            "the weights of the teacher cannot be read, so the student does not say "
            "whose vectors it has: searches of the teacher's indexes refuse it"
        )
    width = predictor.outputs[teacher.vector_output].shape[-1]
    found = task.aligned(model, width=int(width), hidden_size=hidden_size)
    if found.dense != task.dense:
        say(f"a new linear layer makes the student's vectors {width} numbers wide")
    return with_prompt(predictor, "query"), found


def some_training_rows(task: Task, rows: Columns) -> Columns:
    """Return up to 1,000 training rows, with each class in proportion."""
    if len(rows) <= _MOST_TRAINING_ROWS:
        return rows
    chosen = stratified_holdout(
        task.strata(rows, **task.get_config()),
        _MOST_TRAINING_ROWS,
        seed=0,
        groups=task.groups(rows),
        whole=task.scores_groups,
    )
    return rows.take(chosen or range(_MOST_TRAINING_ROWS))


def measured(
    predictor: Predictor, folder: Path, rows: Columns
) -> tuple[dict[str, Any], float, float]:
    """Return scores, milliseconds for 1,000 rows, and megabytes of a model.

    The size is of the weights in float32, or of the files in the `folder` of an export.
    Up to 1,000 of the labelled rows are timed.
    """
    model, some = predictor.model, rows.take(range(min(len(rows), _MOST_TIMED)))
    answers = predictor.answers(rows)  # traces the graphs, which is not timed
    start = time.perf_counter()
    predictor.answers(some)
    seconds = time.perf_counter() - start
    files = (each for each in folder.rglob("*") if each.is_file())
    if isinstance(model, TaskModel):
        size = 4 * model.count_params()
    else:
        size = sum(each.stat().st_size for each in files)
    scores = model.task.score(rows, answers)
    return scores, round(1e6 * seconds / len(some), 1), round(size / 1e6, 3)


def soft_target_loss(task: Task, config: TrainConfig) -> SoftLoss:
    """Return the loss of a task on a teacher's outputs, see `softened`.

    Raises:
        ConfigError: there is none, or an option does not go with it.
    """
    own = task.loss()
    found = softened(own, config.temperature)
    if found is None:
        raise ConfigError(
            f"`teacher` cannot teach {task.name}, whose outputs are neither "
            f"logits nor numbers; received {config.teacher}"
        )
    _check_weight(own, config)
    if not found.has_temperature and config.temperature != TrainConfig().temperature:
        raise ConfigError(
            f"`temperature` has no effect for {task.name}, whose outputs are compared "
            f"as numbers; received {config.temperature:g}"
        )
    return found


def _check_weight(own: Any, config: TrainConfig) -> None:
    """Raise ConfigError if a student needs its own loss, which has no weight."""
    if config.distill_weight == 1 and getattr(own, "regularizes", False):
        raise ConfigError(
            "`distill_weight` must be below 1 with vectors of `kind` sparse: only the "
            "loss of the pairs makes them sparse; received 1"
        )


def _logits_of_pairs(teacher: Any, answers: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return a teacher's scores of pairs, float32 [N]; of probabilities the logits."""
    found = teacher.soft_targets(answers, teacher)
    if found.shape[1] > 1:  # of classes
        found = logit_of(np.clip(teacher.pair_scores(answers), 0, 1))
    return np.asarray(found, np.float32).reshape(-1)


def _vocabularies(model: TaskModel) -> list[dict[str, Any]]:
    """Return the vocabularies of a model, of texts and of targets that are texts."""
    tokenizers = [model.preprocessor.tokenizer]
    if isinstance(model.task, Writing):
        tokenizers.append(model.task.target_tokenizer(model.preprocessor))
    return [each.get_config() for each in tokenizers]


def _class_order(teacher: Task, student: Task) -> list[int] | None:
    """Return the teacher's number of each class of the student; `None` if the same."""
    theirs, ours = (getattr(each, "classes", ()) for each in (teacher, student))
    numbers = {comparable(name): number for number, name in enumerate(theirs)}
    own = [comparable(name) for name in ours]
    if set(own) != set(numbers):
        raise ConfigError(
            f"`teacher` must have the classes of the training rows, {listed(ours)}; "
            f"received one with {listed(theirs)}"
        )
    order = [numbers[name] for name in own]
    if order == list(range(len(order))):
        return None
    say("the teacher has the classes in another order: they are matched by name")
    return order
