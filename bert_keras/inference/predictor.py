"""Predictions of a trained model: `load_predictor(folder).predict(texts)`."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras import checkpoints
from bert_keras.answering.answering import (
    Answering,
    Measured,
    Parts,
    bytes_of,
    rows_together,
)
from bert_keras.answering.backend import Backend
from bert_keras.data.class_names import listed
from bert_keras.data.columns import Columns
from bert_keras.data.holdout import classes_of
from bert_keras.data.items import as_items, query_and_documents
from bert_keras.data.rows import ColumnNames
from bert_keras.errors import (
    BertKerasError,
    CheckpointError,
    ConfigError,
    DataError,
    counted,
    shown,
)
from bert_keras.exports.saved_model_folder import (
    ANSWERS,
    EXTRA,
    find_saved_model,
    is_exported,
)
from bert_keras.files.atomic import check_path
from bert_keras.inference.engine import load_engine_folder
from bert_keras.inference.equal_texts import EqualTexts, joined
from bert_keras.inference.session import check_engine, find_engine
from bert_keras.lazy_names import deferred
from bert_keras.runs.notes import say
from bert_keras.settings import PRECISIONS, check_choice, check_whole_number
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.base import Task, changed, replaced
from bert_keras.tasks.needs import Needs
from bert_keras.tasks.protocols import (
    Writing,
    check_scores_pairs,
    pair_answers,
    redaction_of,
    text_specs,
    texts_of,
    truncation_remedy,
)
from bert_keras.text.truncation import Truncation

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_keras.inference import engine_conversion, served_model
    from bert_keras.models import loading, zero_shot
else:
    tf, engine_conversion, served_model, loading, zero_shot = deferred(
        "tensorflow",
        "bert_keras.inference.engine_conversion",
        "bert_keras.inference.served_model",
        "bert_keras.models.loading",
        "bert_keras.models.zero_shot",
    )

_WINDOW_BATCHES = 32  # batches of texts that are sorted by length together
_FEW_ROWS = 50  # whose scores say little
_AT_ONCE = 2  # batches in flight: the cores stay busy between the large products
# On a processor. The activations of a larger batch leave its cache: 10% slower.
_CACHED_TOKENS = 2048


def load_predictor(
    folder: str | os.PathLike[str],
    *,
    task: str | type[Task] | Task | None = None,
    precision: str = "float32",
    engine: str | None = None,
    classes: str | Sequence[str] | None = None,
    at_once: int = 1,
) -> Predictor:
    """Return the predictor of a model folder, or of what `export` wrote.

    Args:
        folder: a model folder or `hf://owner/name`; a SavedModel, or a folder of
            versions, of which the newest is loaded; a folder for OpenVINO or ONNX.
        task: needed for a custom task, see `load_model`.
        precision: `float32`, `mixed_bfloat16` or `mixed_float16`; a SavedModel keeps
            the precision of its export. OpenVINO computes in the first two, ONNX
            Runtime in the first.
        engine: what runs the model: `tensorflow`, `openvino` or `onnx`; see
            `EngineModel`. `None`: TensorFlow, or the engine of an exported folder.
        classes: as in `load_model`.
        at_once: batches that the engines OpenVINO and ONNX compute at once, each on its
            share of the cores: `serve` has 2, for more texts per second. One text alone
            is answered later then.

    Raises:
        CheckpointError: the model is missing or broken.
        ConfigError: the engine is not installed, or cannot run the task or compute in
            the precision.

    Example:
        >>> load_predictor("models/emails").predict(["You have won!"])[0]["label"]
        'spam'
    """
    check_path("folder", folder)
    check_choice("precision", precision, PRECISIONS)
    check_whole_number("at_once", at_once, least=1)
    if engine is not None:
        check_engine(engine, precision)
    held = find_engine(folder)
    if held is not None:
        if engine not in (None, held):
            raise ConfigError(
                f"`engine` must be {held} for {os.fspath(folder)}; received {engine!r}"
            )
        found = load_engine_folder(
            folder, held, task=task, precision=precision, at_once=at_once
        )
        return Predictor(found)
    exported = find_saved_model(folder)
    if exported is not None and is_exported(exported):
        for name, given in (("precision", precision), ("engine", engine)):
            if given not in ("float32", "tensorflow", None):
                raise ConfigError(
                    f"`{name}` must be left out for a SavedModel: the export has "
                    f"fixed it; received {given!r}"
                )
        return Predictor(served_model.load_saved_model(exported, task=task))
    try:
        # Before TensorFlow is imported: there may be no model.
        checkpoint = checkpoints.read_checkpoint(folder)
        is_keras = engine in (None, "tensorflow")
        dtype = precision if is_keras else "float32"
        model = loading.load_model(checkpoint, task=task, dtype=dtype, classes=classes)
    except CheckpointError as error:
        if exported is None:
            raise
        raise CheckpointError(
            f"{error}; and the SavedModel {exported} does not name its task: "
            f"{EXTRA}/{ANSWERS} is missing: export the model folder again"
        ) from None
    if is_keras:
        return Predictor(model)
    return Predictor(
        engine_conversion.engine_model(
            model, str(engine), precision=precision, at_once=at_once
        )
    )


class Predictor:
    """Predicts on texts, in batches, with the same graph that `export` writes.

    A 16-bit model runs with its weights as constants, see `FrozenWeights`; they are
    updated when the weights have changed.

    Args:
        model: a `TaskModel`, an export or an engine, see `Backend`.
        freeze: `False` keeps weights as variables, which avoids new graphs if they
            change often, such as between the epochs of a training run.
    """

    def __init__(self, model: Backend, *, freeze: bool = True) -> None:
        self.model = model
        self.answering: Answering = model.answering(freeze=freeze)
        self._untraced = False
        self._told = False  # whether a truncated text was mentioned
        self._known = model.task, model.task.needs

    def __reduce__(self) -> Any:
        raise ConfigError(
            "a Predictor cannot be copied or pickled: give the folder of its model to "
            "`load_predictor` where it is needed"
        )

    @property
    def _needs(self) -> Needs:
        """What the current task needs: to ask it anew takes a while for one text."""
        if self._known[0] is not self.model.task:
            self._known = self.model.task, self.model.task.needs
        return self._known[1]

    def answer_once_without_graph(self) -> None:
        """Let the next call compute without a graph if its texts are one batch.

        For a process that answers once: with MiniLM a graph takes 1.1 s to trace and
        optimize, the call without it 0.4 s. Its answers differ from later ones by
        rounding. Models that generate text or compute in 16 bits keep their graphs.
        """
        self._untraced = self.answering.answers_untraced

    def _is_untraced(self) -> bool:
        """Return whether this call for one batch computes without a graph."""
        is_untraced, self._untraced = self._untraced, False
        return is_untraced

    @property
    def outputs(self) -> dict[str, Any]:
        """The dtype and shape of the answers to texts, by name."""
        return dict(self.answering.outputs())

    def with_classes(
        self,
        classes: str | Sequence[str],
        *,
        template: str | Sequence[str] | None = None,
        multi_label: bool = False,
        dev: Any = None,
        columns: ColumnNames | None = None,
        header: str = "auto",
    ) -> Predictor:
        """Return a classifier of other classes, without training, on these weights.

        The model is an entailment model, a classification of pairs with a class whose
        name starts with `entail`, as of SNLI or MultiNLI: probabilities are equal to
        the output of transformers' pipeline `zero-shot-classification`. Or it is an
        embedding model: the class whose vector is nearest to the text's, which is read
        once.

        Args:
            classes: their names, a list or a word with commas.
            template: the sentence about a class, with `{}` in place of its name; by
                default `This example is {}.` for entailment, `{}` for an embedding
                model, which takes several, too, and the mean of their vectors.
            multi_label: whether any number of classes can apply to a text.
            dev: labelled rows, as in `Task.read`, on which the temperature is fitted,
                and with `multi_label` the thresholds; a line tells the result.
            columns, header: of `dev`, as in `Task.read`.

        Raises:
            ConfigError: the model is another one, or an argument is out of range.
            DataError: `dev` is broken, has other labels, or no row of a class whose
                threshold for cosines it gives.

        Example:
            >>> predictor = load_predictor("models/nli")
            >>> helpdesk = predictor.with_classes("billing, delivery")
            >>> helpdesk.predict(["Where is my parcel?"])[0]["label"]
            'delivery'
        """
        if multi_label and dev is None and self.model.task.vector_output:
            raise ConfigError(
                "`multi_label` needs `dev` for an embedding model: labelled rows, to "
                "find the cosine from which a class applies"
            )
        given: Any = self.model
        if not self.answering.runs_keras:  # what an export needs no TensorFlow to say
            raise ConfigError(
                "`model` must be a model folder to get classes (an export with classes "
                "takes others with each text, see docs/no-labels.md); received one "
                f"that {given.platform} computes"
            )
        model = zero_shot.zero_shot_model(
            given, classes, template=template, multi_label=multi_label
        )
        found = Predictor(model)
        if dev is not None:
            task: Any = replaced(model.task, calibration="temperature")
            rows = dev
            if not isinstance(dev, Columns):
                rows = task.read(dev, columns=columns, header=header)
            missing = set(task.classes) - classes_of(task.strata(rows))
            if multi_label and missing and self.model.task.vector_output:
                raise DataError(
                    "must have a row of each class, to find the cosine from which it "
                    f"applies; has none of {listed(sorted(missing))}",
                    path=rows.path,
                )
            answers = found.answers(rows)
            logits = tf.constant(task.soft_targets(answers, task), tf.float32)
            model.task = task = task.tune(rows, answers)
            found = Predictor(model)
            tuned = {name: x.numpy() for name, x in task.answer(logits, {}).items()}
            score = task.score(rows, tuned)[task.best_score]
            line = (
                f"calibrated on {counted(len(rows), 'rows')} of dev: temperature "
                f"{task.temperature:.3g}; {task.best_score} of these rows {score:.4f}"
            )
            if multi_label and missing:
                line += f"; the threshold stays 0.5 for {listed(sorted(missing))}"
            if len(rows) < _FEW_ROWS:
                line += "; so few rows say little about other texts"
            say(line)
        return found

    def predict(
        self,
        texts: Any,
        *,
        batch_size: int = 32,
        max_batch_tokens: int | None = None,
        seen: Callable[[int], object] | None = None,
        truncation: Truncation | None = None,
    ) -> list[dict[str, Any]]:
        """Return one dict per text; see the task's `answer` for its keys.

        Equal texts are computed once, unless the model generates text.

        Args:
            texts: strings; tuples of strings, one per role, if the task reads several,
                such as pairs; or lists of words if it tags words. Any iterable of
                these, or a table with a column for each role, see
                `data.items.as_items`.
            batch_size: maximum texts computed at once.
            max_batch_tokens: maximum tokens computed at once, padding included; a
                longer text is computed alone. On a processor no more than 2,048 are, in
                any case, unless the model generates text. `None`: no other limit.
            seen: called after each batch with the number of texts that it answers.
            truncation: counts all texts and the truncated ones; `None`: the
                first call that truncates a text prints the counts to stderr.

        Raises:
            DataError: a text is missing or not a string.
        """
        return self._rows(
            parts_of(self.model.task, texts),
            lambda _, answers: answers,
            batch_size=batch_size,
            max_batch_tokens=max_batch_tokens,
            seen=seen,
            truncation=truncation,
        )

    def redact(
        self,
        texts: Any,
        *,
        types: str | Sequence[str] | None = None,
        batch_size: int = 32,
        max_batch_tokens: int | None = None,
        seen: Callable[[int], object] | None = None,
        truncation: Truncation | None = None,
    ) -> list[dict[str, Any]]:
        """Return texts whose entities are replaced by their types, as `[PER]`.

        The entities are the same as in `predict`. Each row has the redacted `text`,
        and the answer of `predict` to it: the text of a replaced entity is its
        placeholder, its start and end are characters of the redacted text. In a list of
        words, each word of an entity is replaced.

        Args:
            texts, batch_size, max_batch_tokens, seen, truncation: as in `predict`.
            types: of the entities to replace, a list or a word with commas; others
                stay. `None`: all.

        Raises:
            ConfigError: the model finds no entities, or has no such type.
            UnreadError: a text has a word that is longer than the tokenizer reads.
            DataError: a text is missing or not a string.

        Example:
            >>> tagger = load_predictor("models/names")
            >>> tagger.redact(["Ann lives in Rome."])[0]["text"]
            '[PER] lives in [LOC].'
        """
        redaction = redaction_of(self.model.task, self.model.preprocessor, types)
        parts = parts_of(self.model.task, texts)
        redaction.check(parts[0])
        return self._rows(
            parts,
            lambda part, answers: redaction(part[0], answers),
            batch_size=batch_size,
            max_batch_tokens=max_batch_tokens,
            seen=seen,
            truncation=truncation,
        )

    def _rows(
        self,
        parts: Parts,
        chosen: Callable[[Parts, Mapping[str, Any]], Any],
        *,
        truncation: Truncation | None,
        **limits: Any,
    ) -> list[dict[str, Any]]:
        """Return what is chosen of the texts and their answers, see `predict`."""
        counts = Truncation() if truncation is None else truncation
        rows: list[dict[str, Any]] = []
        for answers in self.stream(parts, truncation=counts, **limits):
            end = len(rows) + len(next(iter(answers.values())))
            some = tuple(part[len(rows) : end] for part in parts)
            rows += rows_of(chosen(some, answers), self.model.task.name)
        if truncation is None:
            self.tell_truncated(counts)
        return rows

    def rank(
        self,
        query: str,
        documents: Any,
        *,
        top: int | None = None,
        positive_class: str | None = None,
        batch_size: int = 32,
        max_batch_tokens: int | None = None,
        truncation: Truncation | None = None,
    ) -> list[dict[str, Any]]:
        """Return documents in the order of their scores for a query, highest first.

        Args:
            query: the query.
            documents: strings, see `data.items.as_strings`.
            top: maximum documents to return; `None`: all.
            positive_class: for a classifier of pairs, the class that means relevant;
                its probability is the score; `None`: the model's own `positive_class`.
            batch_size, max_batch_tokens, truncation: as in `predict`.

        Returns:
            For each document `rank` from 1, `score`, `index` (its place in
            `documents`, from 0) and `text`; with windows also `start` and `end` of the
            one that decided. Among equal scores the first comes first.

        Raises:
            ConfigError: the model does not score pairs of texts.
            DataError: a text is missing, empty or not a string.

        Example:
            >>> ranker = load_predictor("models/reranker")
            >>> ranker.rank("reset password", ["We ship daily.", "Reset it here."])[0]
            {'rank': 1, 'score': 0.93, 'index': 1, 'text': 'Reset it here.'}
        """
        if top is not None:
            check_whole_number("top", top, least=1)
        query, texts = query_and_documents(query, documents)
        answers = self.score_pairs(
            [(query, text) for text in texts],
            positive_class=positive_class,
            batch_size=batch_size,
            max_batch_tokens=max_batch_tokens,
            truncation=truncation,
        )
        scores = [row["score"] for row in answers]
        order = sorted(range(len(texts)), key=lambda place: -scores[place])
        return [
            {"rank": rank, **answers[at], "index": at, "text": texts[at]}
            for rank, at in enumerate(order[:top], 1)
        ]

    def score_pairs(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        positive_class: str | None = None,
        batch_size: int = 32,
        max_batch_tokens: int | None = None,
        seen: Callable[[int], object] | None = None,
        truncation: Truncation | None = None,
    ) -> list[dict[str, Any]]:
        """Return `score` of each pair, by which `rank` sorts; see there and `predict`.

        Raises:
            ConfigError: the model does not score pairs of texts.
            DataError: a text is missing or not a string.
        """
        task = self.model.task
        if positive_class is not None:
            task = changed(task, positive_class=positive_class)
        check_scores_pairs(task)
        return self._rows(
            parts_of(self.model.task, pairs),
            lambda _, answers: pair_answers(task, answers),
            batch_size=batch_size,
            max_batch_tokens=max_batch_tokens,
            seen=seen,
            truncation=truncation,
        )

    def tell_truncated(self, counts: Truncation) -> None:
        """Print the counts of a call to stderr, if no earlier one was printed."""
        lines = self.truncated(counts)
        if lines and not self._told:
            self._told = True
            for line in lines:
                say(line)

    def truncated(self, counts: Truncation) -> list[str]:
        """Return lines about texts that are longer than a row, if any are: how many are
        truncated, or read in windows.
        """
        if not (counts.cut or counts.longer):
            return []
        task = self.model.task
        how = "training with --set long=windows"
        if task.vector_output:
            how += ", or --long windows of search, features, mine and select,"
        return counts.lines(
            length=self.model.preprocessor.max_length,
            in_windows=task.needs.rows_per_text is None,
            remedy=truncation_remedy(task, how),
        )

    def _count(self, counts: Truncation, measured: Measured, times: np.ndarray) -> None:
        """Count measured texts; `times` says how often each is there, int [N]."""
        found = (measured.read, measured.lost, measured.windows)
        read, lost, windows = (np.repeat(each, times, axis=0) for each in found)
        counts.add(read, lost)
        if self.model.task.reads_windows:
            length = self.model.preprocessor.max_length
            counts.add_windows(read, lost, windows, length)

    def answers(
        self,
        columns: Columns,
        *,
        batch_size: int = 32,
        max_batch_tokens: int | None = None,
        seen: Callable[[int], object] | None = None,
        truncation: Truncation | None = None,
    ) -> dict[str, np.ndarray]:
        """Return the inputs of `score` for the rows of a file, as arrays [N, …].

        Args:
            columns: N rows.
            batch_size, max_batch_tokens: as in `predict`.
            seen: called after each batch with the number of rows that it completes.
            truncation: counts all texts and the truncated ones.
        """
        texts = texts_of(self.model.task, columns, use="score")
        done, total = 0, len(texts[0]) if texts else 0

        def add(count: int) -> None:
            nonlocal done
            before, done = done, done + count
            if seen is not None:  # a row may have several texts
                rows = len(columns)
                seen(rows * done // total - rows * before // total)

        found = self.stream(
            texts,
            batch_size=batch_size,
            max_batch_tokens=max_batch_tokens,
            scored=True,
            seen=add,
            truncation=truncation,
        )
        return joined(list(found))

    def stream(
        self,
        texts: Parts,
        *,
        batch_size: int = 32,
        max_batch_tokens: int | None = None,
        scored: bool = False,
        seen: Callable[[int], object] | None = None,
        truncation: Truncation | None = None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield answers as arrays [B, …], in the order of the texts.

        Texts are read in windows of several batches; texts of similar length are
        computed together, and their answers are put back in order. Equal texts are
        computed once, unless the model generates (draws) text. `scored` answers are for
        the task's `score`. `seen` is called after each batch with the number of texts
        that it answers; `truncation` counts all texts and the truncated ones.
        """
        limits = (batch_size, max_batch_tokens)
        count = len(texts[0]) if texts else 0
        equal = None
        if count > 1 and not isinstance(self.model.task, Writing):
            equal = EqualTexts(*texts)
        if not equal:
            times = np.ones(count, np.int64)
            yield from self._computed(texts, limits, times, scored, seen, truncation)
            return
        texts = tuple([part[row] for row in equal.first] for part in texts)
        yield from equal.answered(
            self._computed(texts, limits, equal.counts, scored, seen, truncation)
        )

    def _computed(
        self,
        texts: Parts,
        limits: tuple[int, int | None],
        times: np.ndarray,
        scored: bool,
        seen: Callable[[int], object] | None,
        truncation: Truncation | None,
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield the answers for different texts; each is there so many `times`."""
        batch_size, max_tokens = limits
        check_whole_number("batch_size", batch_size, least=1)
        if max_tokens is not None:
            check_whole_number("max_batch_tokens", max_tokens, least=1)
            max_tokens = max(max_tokens // self._needs.readings, 1)
        batch_size = max(batch_size // self._needs.readings, 1)
        count = len(texts[0]) if texts else 0
        window = _WINDOW_BATCHES * batch_size
        answering, counts = self.answering, truncation or Truncation()
        fits = 0 < count <= batch_size and max_tokens is None
        is_untraced = not scored and fits and self._is_untraced()
        is_one_batch = fits and (
            is_untraced
            or not answering.in_small_batches
            or answering.is_small_batch(texts)
        )
        if answering.in_small_batches:
            cached = max(_CACHED_TOKENS // self._needs.readings, 1)
            max_tokens = min(max_tokens or cached, cached)

        def compute(given: Parts, rows: Sequence[int]) -> dict[str, np.ndarray]:
            """Return the answers to some texts; `rows` are their places in `texts`."""
            answers = answering.answer(given, scored=scored, traced=not is_untraced)
            _check_finite(answers, lambda row: [part[rows[row]] for part in texts])
            return answers

        # A single batch needs neither sorting nor a second thread.
        if is_one_batch:
            given = texts
            if truncation is not None and self._may_be_longer(texts):
                measured = answering.measure(texts, scored=scored)
                self._count(counts, measured, times)
                given = measured.texts
            else:
                counts.texts += int(times.sum())
            answers = compute(given, range(count))
            if seen is not None:
                seen(int(times.sum()))
            yield answers
            return
        with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
            for rows in rows_together(texts, most=window) if count else ():
                # A graph tokenizes texts twice, which costs less than the padding left
                # by an estimate from the characters: 29% of the rows for SMS messages.
                measured = answering.measure(
                    tuple([part[row] for row in rows] for part in texts), scored=scored
                )
                self._count(counts, measured, times[rows.start : rows.stop])
                lengths = measured.read
                order = np.argsort(-lengths, kind="stable")
                batches = [
                    order[first:end].tolist()
                    for first, end in _cuts(lengths[order], batch_size, max_tokens)
                ]
                given_batches = [
                    tuple([part[row] for row in batch] for part in measured.texts)
                    for batch in batches
                ]
                places = [[rows.start + row for row in batch] for batch in batches]
                parts = []
                for batch, part in zip(
                    places, pool.map(compute, given_batches, places), strict=True
                ):
                    parts.append(part)
                    if seen is not None:
                        seen(int(times[batch].sum()))
                answers = joined(parts)
                back = np.argsort(order)
                yield {key: values[back] for key, values in answers.items()}

    def _may_be_longer(self, texts: Parts) -> bool:
        """Return whether a text may be longer than the model reads in a row.

        A token has at least one byte of text, so that short texts need not be
        tokenized to know it.
        """
        task = self.model.task
        if self._needs.rows_per_text is None:  # windows have other limits
            return True
        if len(texts) > len(task.roles) and task.scores_sides:  # sides, too
            return True
        room = self.model.preprocessor.max_length - len(texts) - 1
        return any(sum(map(bytes_of, row)) > room for row in zip(*texts, strict=True))


def parts_of(task: Task, texts: Any) -> tuple[list[Any], ...]:
    """Return the texts of each role from what `predict` accepts.

    Raises:
        DataError: a text is missing or not a string.
    """
    # For one text in an engine, the names of a table's columns would take a while.
    if not (isinstance(texts, list) and all(isinstance(each, str) for each in texts)):
        specs = text_specs(task).values()
        forms = [*task.forms, *([spec.name for spec in each] for each in specs)]
        texts = as_items(texts, forms)
    return task.parts(texts)


def _cuts(
    lengths: np.ndarray, most_texts: int, most_tokens: int | None
) -> list[tuple[int, int]]:
    """Return start and end of each batch of texts, the longest first.

    The last one is halved if their number is odd, since two are in flight.
    """
    cuts, first = [], 0
    while first < len(lengths):
        size = most_texts
        if most_tokens is not None:  # to the longest, the others are padded
            size = min(size, max(most_tokens // max(int(lengths[first]), 1), 1))
        end = min(first + size, len(lengths))
        cuts.append((first, end))
        first = end
    if len(cuts) % _AT_ONCE and cuts[-1][1] - cuts[-1][0] > 1:
        start, end = cuts.pop()
        middle = (start + end) // 2
        cuts += [(start, middle), (middle, end)]
    return cuts


def _check_finite(
    answers: Mapping[str, np.ndarray], text_of: Callable[[int], Any]
) -> None:
    """Raise unless all numbers of a batch of answers, [B, …] each, are finite."""
    for key, values in answers.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            wrong = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
            text = text_of(int(wrong.argmax()))
            raise BertKerasError(
                f"the model answers `{key}` with a number that is not finite, for "
                f"{int(wrong.sum())} of {len(wrong)} texts of a batch, such as "
                f"{shown(text[0] if len(text) == 1 else tuple(text))}: a weight or a "
                "setting of the model is out of range"
            )
