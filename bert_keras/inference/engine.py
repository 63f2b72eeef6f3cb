"""Engines that run the model of a task in place of TensorFlow: `EngineModel`.

OpenVINO and ONNX Runtime compute the Keras model alone, ids in, outputs of the head
out. Strings become ids, and outputs become answers, in TensorFlow's graph as in
`predict` and in an export, so that answers do not depend on the engine.

Each text has its own row: the graph of an engine has no packed rows. `Predictor` gives
texts of similar length together. A few short texts are answered outside of TensorFlow,
which would take as long as the engine takes for one of them.
"""

from __future__ import annotations

import os
import queue
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.errors import CheckpointError, ConfigError, one_line
from bert_keras.files.json_file import read_json
from bert_keras.files.lfs import check_no_pointer
from bert_keras.inference.numpy_graph import in_numpy
from bert_keras.inference.served_model import check_answers, described
from bert_keras.model.encoder import WINDOW_STARTS
from bert_keras.models.backend import Backend
from bert_keras.models.engine_graph import OUR_NAMES
from bert_keras.models.model_file import (
    FILES,
    INT8_FILES,
    package,
    write_model_file,
)
from bert_keras.models.saved_model_folder import ANSWERS
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.progress import say
from bert_keras.settings import ENGINES, check_choice
from bert_keras.tasks.base import Batch, Task
from bert_keras.tasks.protocols import answer, from_named
from bert_keras.text.plain_tokenizer import PlainTokenizer, are_few
from bert_keras.text.preprocessor import Preprocessor

_MOST_ROWS = 128  # windows in a run, unless one text has more
# Of all texts of a batch that becomes ids outside of TensorFlow, which takes 0.3 us a
# character; its string ops take some 4 ms for any batch.
_FEW_CHARACTERS = 4_000
_Way = tuple[PlainTokenizer, Callable[..., dict[str, np.ndarray]]] | None
_PRECISIONS = {"openvino": ("float32", "mixed_bfloat16"), "onnx": ("float32",)}


def check_engine(engine: str, precision: str) -> None:
    """Raise a ConfigError unless an engine exists and computes in a precision."""
    check_choice("engine", engine, ENGINES)
    allowed = _PRECISIONS.get(engine)
    if allowed is not None and precision not in allowed:
        raise ConfigError(
            f"`precision` must be {' or '.join(allowed)} with the engine {engine}; "
            f"received {precision!r}"
        )


class EngineModel(Backend):
    """A model file in an engine.

    Args:
        task: turns outputs into answers.
        preprocessor: turns texts into ids, here with one text per row.
        session: the model file in its engine.
    """

    def __init__(
        self, task: Task, preprocessor: Preprocessor, session: Session
    ) -> None:
        self.task = task
        self.preprocessor = preprocessor.replace(layout="padded")
        self.session = session
        self.platform = session.platform
        self._inputs, self._outputs = session.specs()
        self._given = [  # of a batch, by our names
            (OUR_NAMES.get(spec.name, spec.name), spec.dtype.as_numpy_dtype)
            for spec in self._inputs
        ]
        # For few texts: task and preprocessor, which may be replaced, and their way.
        self._few: tuple[Task, Preprocessor, _Way] | None = None

    def answer_few(
        self, texts: Sequence[Sequence[Any]]
    ) -> dict[str, np.ndarray] | None:
        way = self._way() if are_few(texts, _FEW_CHARACTERS) else None
        batch = way and way[0](texts)
        if way is None or batch is None:
            return None
        given = [batch[name].astype(dtype) for name, dtype in self._given]
        return way[1](*self._run(*given))

    def _way(self) -> _Way:
        """Return what makes ids of few texts, and the answers from the outputs."""
        task, preprocessor, few = self.task, self.preprocessor, self._few
        if few is None or few[0] is not task or few[1] is not preprocessor:
            self._few = few = task, preprocessor, self._way_of(task, preprocessor)
        return few[2]

    def _way_of(self, task: Task, preprocessor: Preprocessor) -> _Way:
        if not task.is_plain or not PlainTokenizer.covers(preprocessor):
            return None

        def answers(*outputs: tf.Tensor) -> dict[str, tf.Tensor]:
            return answer(task, self._named(outputs, {}), {})

        specs = [tf.TensorSpec(each.shape, each.dtype) for each in self._outputs]
        graph = tf.function(answers, input_signature=specs, autograph=False)
        try:
            found = graph.get_concrete_function()
        except KeyError:  # the answers need more of the batch
            return None
        return PlainTokenizer(preprocessor), in_numpy(found)

    def infer(self, batch: Batch) -> Any:
        given = [tf.cast(batch[name], dtype) for name, dtype in self._given]
        dtypes = [spec.dtype for spec in self._outputs]
        # Outside of a graph, a single output is not in a list.
        values = tf.nest.flatten(
            tf.numpy_function(self._run, given, dtypes, stateful=False)
        )
        for value, spec in zip(values, self._outputs, strict=True):
            value.set_shape(spec.shape)
        return self._named(values, batch)

    def _named(self, values: Sequence[tf.Tensor], batch: Batch) -> Any:
        """Return the outputs of the engine as those of the model, in graph."""
        names = [spec.name for spec in self._outputs]
        named = dict(zip(names, values, strict=True))
        return from_named(self.task, named, batch)

    def _run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        given = {
            spec.name: array for spec, array in zip(self._inputs, arrays, strict=True)
        }
        if WINDOW_STARTS not in given:
            return self.session.run(given)
        parts = [
            self.session.run({name: array[rows] for name, array in given.items()})
            for rows in _whole_texts(given[WINDOW_STARTS])
        ]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]


def _whole_texts(window_starts: np.ndarray) -> list[slice]:
    """Return ranges of windows, int32 [S], of whole texts: at most `_MOST_ROWS` each,
    or one text.
    """
    starts = np.flatnonzero(window_starts).tolist()
    found, first, before = [], 0, 0
    for end in [*starts[1:], len(window_starts)]:
        if end - first > _MOST_ROWS and before > first:
            found.append(slice(first, before))
            first = before
        before = end
    return [*found, slice(first, before)]


class Session:
    """A model file in an engine; a subclass for each engine.

    `run` takes arrays by the names of the inputs and returns the outputs in order. It
    may be called by several threads at once. `platform` is Triton's name of the engine.

    Two batches at once, each on half of the cores, take two thirds of the time of one
    after the other on all cores, which wait for each other. One batch alone takes
    longer.
    """

    platform = ""

    def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        raise NotImplementedError

    def specs(self) -> tuple[list[tf.TensorSpec], list[tf.TensorSpec]]:
        """Return the inputs and the outputs."""
        raise NotImplementedError


class _OpenVino(Session):
    platform = "openvino"

    def __init__(self, path: Path, precision: str, at_once: int) -> None:
        openvino = package("openvino", "the engine openvino")
        settings: dict[str, Any] = {
            # Otherwise OpenVINO computes in bfloat16 where the processor can.
            "INFERENCE_PRECISION_HINT": "f32" if precision == "float32" else "bf16",
        }
        if at_once == 1:
            settings["PERFORMANCE_HINT"] = "LATENCY"
        else:
            settings["NUM_STREAMS"] = at_once
        if threads := _threads():
            settings["INFERENCE_NUM_THREADS"] = threads
        self._compiled = openvino.Core().compile_model(os.fspath(path), "CPU", settings)
        self._names = [each.any_name for each in self._compiled.inputs]
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        try:
            request = self._idle.get_nowait()
        except queue.Empty:
            request = self._compiled.create_infer_request()
        # In order: finding inputs by name takes 5% of the time of a short text.
        given = [inputs[name] for name in self._names]
        outputs = request.infer(given, share_inputs=True, share_outputs=True)
        # A copy: the next batch of the request overwrites its outputs.
        found = [np.array(values) for values in outputs.values()]
        self._idle.put(request)
        return found

    def specs(self) -> tuple[list[tf.TensorSpec], list[tf.TensorSpec]]:
        def spec(each: Any) -> tf.TensorSpec:
            sizes = each.partial_shape
            return tf.TensorSpec(
                [None if size.is_dynamic else size.get_length() for size in sizes],
                each.element_type.to_dtype(),
                each.any_name,
            )

        model = self._compiled
        return [*map(spec, model.inputs)], [*map(spec, model.outputs)]


class _OnnxRuntime(Session):
    platform = "onnxruntime_onnx"

    def __init__(self, path: Path, precision: str, at_once: int) -> None:
        runtime = package("onnxruntime", "the engine onnx")
        settings = runtime.SessionOptions()
        threads = _threads()
        if at_once > 1:
            threads = max((threads or os.cpu_count() or 1) // at_once, 1)
        settings.intra_op_num_threads = threads
        # Its threads wait for work in a loop, as by default: one text takes half of the
        # time, and several batches 13% more. Between the runs they leave the cores to
        # TensorFlow, which saves another quarter for one text.
        settings.add_session_config_entry("session.force_spinning_stop", "1")
        self._session = runtime.InferenceSession(
            os.fspath(path), settings, providers=["CPUExecutionProvider"]
        )

    def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        found: list[np.ndarray] = self._session.run(None, inputs)
        return found

    def specs(self) -> tuple[list[tf.TensorSpec], list[tf.TensorSpec]]:
        def spec(each: Any) -> tf.TensorSpec:
            return tf.TensorSpec(
                [size if isinstance(size, int) else None for size in each.shape],
                _ONNX_DTYPES.get(each.type, tf.float32),
                each.name,
            )

        session = self._session
        return [*map(spec, session.get_inputs())], [*map(spec, session.get_outputs())]


_SESSIONS: dict[str, type[_OpenVino] | type[_OnnxRuntime]] = {
    "openvino": _OpenVino,
    "onnx": _OnnxRuntime,
}
_ONNX_DTYPES = {"tensor(int32)": tf.int32, "tensor(int64)": tf.int64}


def _threads() -> int:
    """Return TensorFlow's number of threads; 0: the engine's own choice."""
    count: int = tf.config.threading.get_intra_op_parallelism_threads()
    return count


def check_installed(engine: str) -> None:
    """Raise a ConfigError unless the runtime of an engine is installed."""
    package({"onnx": "onnxruntime"}.get(engine, engine), f"the engine {engine}")


def session_of(
    path: Path, engine: str, precision: str = "float32", *, at_once: int = 1
) -> Session:
    """Return a model file in its engine, for a number of batches at once.

    Raises:
        CheckpointError: the engine cannot read the file.
        ConfigError: the engine is not installed.
    """
    check_no_pointer(path)
    check_installed(engine)
    try:
        return _SESSIONS[engine](path, precision, at_once)
    except Exception as error:  # the only base of ONNX Runtime's errors
        raise CheckpointError(
            f"{path}: {engine} cannot read it: {one_line(error)}"
        ) from None


def engine_model(
    model: TaskModel, engine: str, *, precision: str = "float32", at_once: int = 1
) -> EngineModel:
    """Return a task model in an engine, converted in a temporary folder.

    Args:
        model: a task model in float32, with its preprocessor.
        engine: `openvino` or `onnx`.
        precision: of the engine: `float32`, or OpenVINO's `mixed_bfloat16`.
        at_once: batches that share the cores, see `Session`.

    Raises:
        BertKerasError: the model cannot be converted, or a package is missing.
    """
    check_engine(engine, precision)
    check_installed(engine)
    with tempfile.TemporaryDirectory(prefix="bert-keras-") as folder:
        path, _ = write_model_file(model, Path(folder), engine)
        session = session_of(path, engine, precision, at_once=at_once)
    return EngineModel(model.task, model.preprocessor, session)


def find_engine(folder: str | os.PathLike[str]) -> str | None:
    """Return the engine of a folder that `export` wrote, or `None` for other folders.

    Raises:
        ConfigError: the folder is for LiteRT, which does not run here.
    """
    if not (Path(folder) / ANSWERS).is_file():
        return None
    kinds = [kind for kind in FILES if _file(Path(folder), kind) is not None]
    if kinds == ["litert"]:
        raise ConfigError(
            f"{os.fspath(folder)}: holds a model for LiteRT, which bert_keras does not "
            "run: use the model folder"
        )
    return kinds[0] if kinds else None


def _file(folder: Path, kind: str) -> Path | None:
    """Return the model file of a format: the one in int8, if there are two."""
    places = [each.get(kind) for each in (INT8_FILES, FILES)]
    found = (folder / place for place in places if place)
    return next((each for each in found if each.is_file()), None)


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
    found, preprocessor = described(place, place, task)
    path = _file(place, engine) or place / FILES[engine]
    named = read_json(place / ANSWERS).get("model")
    if isinstance(named, str) and path.is_file() and not (place / named).is_file():
        say(f"{place}: {one_line(named)} is missing: {path.name} answers")
    session = session_of(path, engine, precision, at_once=at_once)
    model = EngineModel(found, preprocessor, session)
    width = session.specs()[1][0].shape[-1]
    classes = getattr(found, "classes", None) or ()
    # By entailment there are as many outputs as a request has classes.
    if classes and width != len(classes) and not getattr(found, "entailment", ()):
        raise CheckpointError(
            f"{place}: `classes` in {ANSWERS} must be as many as the outputs of the "
            f"model; received {len(classes)} and {width}"
        )
    check_answers(model, place, ANSWERS)
    return model
