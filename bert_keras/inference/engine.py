"""Engines that run the model of a task in place of TensorFlow: `EngineModel`.

OpenVINO and ONNX Runtime compute the Keras model, ids in, outputs of the head out.
Where an export has proven them equal, ids come from the `tokenizers` library and the
answers from a second graph of the engine, and TensorFlow is not imported. Otherwise
both are computed in TensorFlow's graph, as in `predict`.

Each text has its own row: the graph of an engine has no packed rows. `Predictor` gives
texts of similar length together.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.answering.answering import DEFAULT, Answering, Measured, Parts, Spec
from bert_keras.answering.backend import Backend
from bert_keras.errors import CheckpointError, ConfigError, counted, one_line
from bert_keras.exports.answers_file import check_answers, read_answers_file
from bert_keras.exports.engine_files import ANSWER_FILES, FILES, OUR_NAMES
from bert_keras.exports.saved_model_folder import ANSWERS
from bert_keras.inference.session import Session, check_engine, model_path, session_of
from bert_keras.lazy_names import deferred
from bert_keras.reading.token_rows import Tokenized, TokenRows
from bert_keras.reading.token_windows import TOKEN_PLACES
from bert_keras.runs.notes import say, say_once
from bert_keras.tasks.base import Batch, Task, answers_as
from bert_keras.tasks.protocols import Spelling, text_specs
from bert_keras.text.token_ids import TokenIds

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_keras.answering import answer_graphs
    from bert_keras.inference import served_model
else:
    tf, answer_graphs, served_model = deferred(
        "tensorflow",
        "bert_keras.answering.answer_graphs",
        "bert_keras.inference.served_model",
    )

# Of all texts of a batch that is computed at once, without sorting.
_FEW_CHARACTERS = 4_000
# Settings that are read before the model: what stands before a text, its length, and
# whether it is a query.
_READ = ("default_prompt", "default_length", "default_side")


class AnswerSession:
    """The answers of a task from the outputs of its model, in an engine.

    Args:
        session: the graph that `write_answers_graph` wrote, by itself or after the
            model's own outputs.
        facts: what it returned.
        task: the task, with the settings that are fixed in the graph.
    """

    def __init__(self, session: Session, facts: Mapping[str, Any], task: Task) -> None:
        self.task = task
        self._spells = task.spelled if isinstance(task, Spelling) else None
        # The windows of a long text are many, and each is answered by itself.
        of_windows = TOKEN_PLACES in facts["inputs"]
        self._run = session.run_texts if of_windows else session.run
        inputs, outputs = session.specs()
        if session.answers is not None:
            inputs, outputs = [], session.answers
        names = [spec.name.partition(":")[0] for spec in inputs]
        # OpenVINO names an input that is an output, too, as the output.
        others = [name for name in facts["inputs"] if name not in names]
        names = [x if x in facts["inputs"] else others.pop(0) for x in names]
        self._inputs = [*zip(names, inputs, strict=True)]
        if len(outputs) != len(facts["outputs"]):
            raise ValueError(
                f"it names {counted(len(facts['outputs']), 'outputs')}, and the graph "
                f"of answers has {len(outputs)}"
            )
        self._strings = np.array([x.encode() for x in facts["strings"]], object)
        self._are_strings = frozenset(facts["string_outputs"])
        self._specs = []
        for name, spec in zip(facts["outputs"], outputs, strict=True):
            dtype = np.dtype(object) if name in self._are_strings else spec.dtype
            self._specs.append(Spec(name, spec.shape, dtype))
        self._outputs_by_signature = {
            name: [Spec(x["name"], x["shape"], np.dtype(x["dtype"])) for x in held]
            for name, held in facts.get("spelled", {}).items()
        }

    def outputs(self, signature: str) -> dict[str, Spec]:
        """Return the answers of a signature of the task by name."""
        specs = self._outputs_by_signature.get(signature, self._specs)
        return {spec.name: spec for spec in specs}

    def __call__(
        self, named: Mapping[str, np.ndarray], computed: Sequence[np.ndarray] = ()
    ) -> dict[str, np.ndarray]:
        """Return the answers, [B, …] each, from outputs and inputs by name.

        `computed` is what the session's run has returned after the model's outputs. Of
        a task that is `Spelling`, the result is the numbers of its answers.
        """
        given, strings = {}, self._strings
        for name, spec in self._inputs:
            values = named[name]
            if values.dtype.kind == "O":  # such as the classes of a request
                values, strings = _numbered(values, strings)
            given[spec.name] = values.astype(spec.dtype, copy=False)
        names = [spec.name for spec in self._specs]
        found = dict(zip(names, computed or self._run(given), strict=True))
        for name in self._are_strings:
            found[name] = strings[found[name]]
        return found

    def of_texts(
        self,
        named: Mapping[str, np.ndarray],
        rows: Sequence[Any],
        computed: Sequence[np.ndarray] = (),
        *,
        scored: bool = False,
    ) -> dict[str, np.ndarray]:
        """Return the answers to tokenized texts, see `__call__`."""
        found = self(named, computed)
        if self._spells is None:
            return found
        return self._spells({**named, **found}, rows, scored=scored)

    def covers(self, task: Task) -> bool:
        """Return whether these are the answers of a task."""
        held: Any = self.task
        same = {name: getattr(held, name) for name in _READ if hasattr(held, name)}
        if type(task) is type(held) and same:
            task = dataclasses.replace(task, **same)  # type: ignore[type-var]
        return answers_as(task, held)


def _numbered(values: np.ndarray, strings: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return strings as numbers of a table, and the table with those it lacks."""
    numbers = {text: number for number, text in enumerate(strings)}
    found = [numbers.setdefault(text, len(numbers)) for text in values.ravel()]
    table = np.array([*numbers], object)
    return np.array(found, np.int32).reshape(values.shape), table


class EngineModel(Backend):
    """A model file in an engine.

    Args:
        task: turns outputs into answers.
        preprocessor: turns texts into ids, here with one text per row: a
            `Preprocessor`, or `TokenRows`.
        session: the model file in its engine.
        answers: the answers without TensorFlow; `None`: TensorFlow computes them.
        in_graph: returns the `Preprocessor` in place of `TokenRows`.
    """

    def __init__(
        self,
        task: Task,
        preprocessor: Any,
        session: Session,
        *,
        answers: AnswerSession | None = None,
        in_graph: Callable[[], Any] | None = None,
    ) -> None:
        self.task = task
        self.preprocessor = preprocessor
        self.session = session
        self.answers = answers
        self.platform = session.platform
        self._in_graph = in_graph
        self._inputs, self._outputs = session.specs()
        self._given = [  # of a batch, by our names
            (OUR_NAMES.get(spec.name, spec.name), spec) for spec in self._inputs
        ]

    @property
    def graph_preprocessor(self) -> Any:
        found = self.preprocessor
        if isinstance(found, TokenRows):
            if self._in_graph is None:
                raise ConfigError("the model has no preprocessor in graph")
            found = self._in_graph().replace(max_length=found.max_length)
        return found.replace(layout="padded")

    def with_task(self, task: Task) -> EngineModel:
        """Return the same model with another task."""
        return EngineModel(
            task,
            self.preprocessor,
            self.session,
            answers=self.answers,
            in_graph=self._in_graph,
        )

    def answering(self, *, freeze: bool = True) -> Answering:
        if self.answers is None or not isinstance(self.preprocessor, TokenRows):
            return super().answering(freeze=freeze)
        return _EngineAnswering(self, self.answers)

    def run(
        self, batch: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Return the outputs for a batch dict of arrays by name, and after them
        `Session.answers`, if any.
        """
        arrays = {
            spec.name: batch[name].astype(spec.dtype, copy=False)
            for name, spec in self._given
        }
        found = self.session.run_texts(arrays)
        names = [spec.name for spec in self._outputs]
        return dict(zip(names, found, strict=False)), found[len(names) :]

    def infer(self, batch: Batch) -> Any:
        names = [name for name, _ in self._given]

        def run(*arrays: np.ndarray) -> list[np.ndarray]:
            return [*self.run(dict(zip(names, arrays, strict=True)))[0].values()]

        given = [tf.cast(batch[name], spec.dtype) for name, spec in self._given]
        dtypes = [tf.as_dtype(spec.dtype) for spec in self._outputs]
        # Outside of a graph, a single output is not in a list.
        values = tf.nest.flatten(tf.numpy_function(run, given, dtypes, stateful=False))
        for value, spec in zip(values, self._outputs, strict=True):
            value.set_shape(spec.shape)
        outputs = [spec.name for spec in self._outputs]
        return self.task.from_named(dict(zip(outputs, values, strict=True)), batch)


class _EngineAnswering(Answering):
    """Answers texts without TensorFlow, unless the model has got another task."""

    def __init__(self, model: EngineModel, answers: AnswerSession) -> None:
        self._model, self._answers = model, answers
        self._task: Task = answers.task
        self._reader = self._task.row_reader
        self._graphs: Answering | None = None

    @property
    def is_direct(self) -> bool:  # type: ignore[override]
        return self._others() is None

    def _others(self) -> Answering | None:
        """Return what answers in place of this, for the current task of the model."""
        task = self._model.task
        if task is not self._task:
            self._task, self._reader, self._graphs = task, task.row_reader, None
            if not self._answers.covers(task):
                say_once(
                    "the export was made with other settings, so TensorFlow computes "
                    "the answers: export the model folder with these settings"
                )
                self._graphs = answer_graphs.AnswerGraphs(self._model)
        return self._graphs

    def measure(self, texts: Parts, *, scored: bool = False) -> Measured:
        if (others := self._others()) is not None:
            return others.measure(texts, scored=scored)
        rows = self._tokenized(texts, scored)
        return Measured((rows,), *self._model.preprocessor.lengths(self._reader, rows))

    def answer(
        self, texts: Parts, *, scored: bool = False, traced: bool = True
    ) -> dict[str, np.ndarray]:
        if (others := self._others()) is not None:
            return others.answer(texts, scored=scored, traced=traced)
        rows = self._tokenized(texts, scored)
        batch = self._model.preprocessor.batch(self._reader, rows)
        outputs, computed = self._model.run(batch)
        named = {**batch, **outputs}
        return self._answers.of_texts(named, rows, computed, scored=scored)

    def outputs(self, signature: str = DEFAULT) -> Mapping[str, Any]:
        if (others := self._others()) is not None:
            return others.outputs(signature)
        return self._answers.outputs(signature)

    def is_small_batch(self, texts: Parts) -> bool:
        if (others := self._others()) is not None:
            return others.is_small_batch(texts)
        return sum(_characters_of(part) for part in texts) <= _FEW_CHARACTERS

    def _tokenized(self, texts: Parts, scored: bool) -> list[Any]:
        if texts and texts[0] and isinstance(texts[0][0], Tokenized):
            return list(texts[0])
        sides: Sequence[int] | None = None
        if scored and self._task.scores_sides:
            *texts, sides = texts  # type: ignore[assignment]
        return self._model.preprocessor.tokenize(self._reader, texts, sides)


def _characters_of(texts: Sequence[Any]) -> int:
    """Return the characters of texts, or of lists of texts; 0 of sides."""
    return sum(
        len(each) if isinstance(each, str) else _characters_of(each)
        for each in texts
        if not isinstance(each, int)
    )


def load_engine_folder(
    folder: str | os.PathLike[str],
    engine: str,
    *,
    task: str | type[Task] | Task | None = None,
    precision: str = "float32",
    at_once: int = 1,
) -> EngineModel:
    """Load what `export --format openvino` or `onnx` wrote.

    Args:
        folder: holds the model file and `answers.json`.
        engine: the folder's engine, see `find_engine`.
        task: needed for a custom task, as in `load_model`.
        precision, at_once: as in `engine_model`.

    Raises:
        CheckpointError: a file is missing or broken, or the parts do not match.
    """
    check_engine(engine, precision)
    place = Path(folder)
    path = model_path(place, engine) or place / FILES[engine]
    # The engine reads the weights while Python reads the task and the tokenizer.
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        answering = place / ANSWER_FILES[engine]
        reading = pool.submit(
            session_of,
            path,
            engine,
            precision,
            at_once=at_once,
            answers=answering if answering.is_file() else None,
        )
        found, record = read_answers_file(place, place / ANSWERS, task)
    named = record.get("model")
    if isinstance(named, str) and path.is_file() and not (place / named).is_file():
        say(f"{place}: {one_line(named)} is missing: {path.name} is used")
    session = reading.result()
    facts = record.get("answers")
    if isinstance(facts, dict) and "strings" in facts:
        answers, rows = _light_parts(place, engine, session, found, record)
        model = EngineModel(
            found,
            rows,
            session,
            answers=answers,
            in_graph=lambda: served_model.preprocessor_of(place, record),
        )
    else:
        reason = facts.get("reason") if isinstance(facts, dict) else None
        why = reason or "it was exported by an earlier version: export it again"
        why = f"{place}: TensorFlow computes ids and answers: {one_line(why)}"
        try:
            preprocessor = served_model.preprocessor_of(place, record)
        except ConfigError as error:  # without TensorFlow
            raise ConfigError(f"{why}; {error}") from None
        say(why)
        model = EngineModel(found, preprocessor, session)
    width = session.specs()[1][0].shape[-1]
    classes = getattr(found, "classes", None) or ()
    # By entailment there are as many outputs as a request has classes.
    if classes and width != len(classes) and not getattr(found, "entailment", ()):
        raise CheckpointError(
            f"{place}: `classes` in {ANSWERS} must be as many as the outputs of the "
            f"model; received {len(classes)} and {width}"
        )
    if model.answers is None:
        served_model.check_graph_answers(model, place, ANSWERS)
    else:
        specs = text_specs(found)["serving_default"]
        texts = tuple(["a"] if spec.rank == 1 else [["a", "b"]] for spec in specs)
        check_answers(
            found, place, ANSWERS, lambda: model.answering().answer(texts), RuntimeError
        )
    return model


def _light_parts(
    folder: Path, engine: str, session: Session, task: Task, record: Mapping[str, Any]
) -> tuple[AnswerSession, TokenRows]:
    """Return what makes answers and ids without TensorFlow, from an export."""
    path = folder / ANSWER_FILES[engine]
    if not path.is_file():
        raise CheckpointError(f"{path}: no such file, which {ANSWERS} is about")
    try:
        given, facts = record["preprocessing"], record["answers"]
        if session.answers is None:
            session = session_of(path, engine, threads=1)
        answers = AnswerSession(session, facts, task)
        rows = TokenRows(TokenIds(folder), given["max_length"], given["truncation"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{folder / ANSWERS}: `answers` or `preprocessing` is broken: "
            f"{one_line(error)}"
        ) from None
    return answers, rows
