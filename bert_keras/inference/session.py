"""Model files in the engines OpenVINO and ONNX Runtime: `Session`; no TensorFlow."""

from __future__ import annotations

import importlib
import os
import queue
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.answering.answering import Spec
from bert_keras.config import WINDOW_STARTS
from bert_keras.errors import CheckpointError, ConfigError, needs, one_line
from bert_keras.exports.engine_files import ANSWER_FILES, FILES, INT8_FILES
from bert_keras.exports.saved_model_folder import ANSWERS, find_saved_model
from bert_keras.files.lfs import check_no_pointer
from bert_keras.settings import ENGINES, check_choice

_MOST_ROWS = 128  # windows in a run, unless one text has more
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


class Session:
    """A model file in an engine; a subclass for each engine.

    `run` takes arrays by the names of the inputs and returns the outputs in order. It
    may be called by several threads at once. `platform` is Triton's name of the engine.

    Two batches at once, each on half of the cores, take two thirds of the time of one
    after the other on all cores, which wait for each other. One batch alone takes
    longer.

    Attributes:
        answers: the outputs of a graph of answers that `run` returns after the model's
            own; `None`: there is no such graph, or it runs by itself.
    """

    platform = ""
    answers: list[Spec] | None = None

    def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        raise NotImplementedError

    def specs(self) -> tuple[list[Spec], list[Spec]]:
        """Return the inputs and the outputs of the model."""
        raise NotImplementedError

    def run_texts(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Return the outputs for a batch, of some rows at a time if they are many.

        Of windows whose vectors are combined, for whole texts at a time.
        """
        count = len(next(iter(inputs.values())))
        if WINDOW_STARTS in inputs:
            ranges = _whole_texts(inputs[WINDOW_STARTS])
        elif count > _MOST_ROWS:
            starts = range(0, count, _MOST_ROWS)
            ranges = [slice(start, start + _MOST_ROWS) for start in starts]
        else:
            return self.run(inputs)
        parts = [
            self.run({name: array[rows] for name, array in inputs.items()})
            for rows in ranges
        ]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]


class _OpenVino(Session):
    platform = "openvino"

    def __init__(
        self,
        path: Path,
        precision: str,
        at_once: int,
        threads: int,
        answers: Path | None = None,
    ) -> None:
        openvino = check_installed("openvino")
        settings: dict[str, Any] = {
            # Otherwise OpenVINO computes in bfloat16 where the processor can.
            "INFERENCE_PRECISION_HINT": "f32" if precision == "float32" else "bf16"
        }
        if at_once == 1:
            settings["PERFORMANCE_HINT"] = "LATENCY"
        else:
            settings["NUM_STREAMS"] = at_once
        if threads:
            settings["INFERENCE_NUM_THREADS"] = threads
        self._tensor = openvino.Tensor
        core = openvino.Core()
        model = core.read_model(os.fspath(path))
        self._own = len(model.outputs)
        # Of a short text, a second run takes 7% of the time of both.
        if answers is not None and precision == "float32":
            model = _joined(model, core.read_model(os.fspath(answers)), openvino.Model)
        self._compiled = core.compile_model(model, "CPU", settings)
        if len(model.outputs) > self._own:
            self.answers = [*map(_openvino_spec, self._compiled.outputs[self._own :])]
        self._names = [each.any_name for each in self._compiled.inputs]
        self._idle: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        try:
            request = self._idle.get_nowait()
        except queue.Empty:
            request = self._compiled.create_infer_request()
        # As tensors, in memory of these arrays: OpenVINO's own handling of arrays takes
        # 5% of the time of a short text.
        given = [np.require(inputs[x], requirements=("C", "W")) for x in self._names]
        for place, array in enumerate(given):
            request.set_input_tensor(place, self._tensor(array, shared_memory=True))
        request.infer(share_inputs=True)
        # A copy: the next batch of the request overwrites its outputs.
        count = len(self._compiled.outputs)
        found = [np.array(request.get_output_tensor(i).data) for i in range(count)]
        self._idle.put(request)
        return found

    def specs(self) -> tuple[list[Spec], list[Spec]]:
        inputs, outputs = self._compiled.inputs, self._compiled.outputs[: self._own]
        return [*map(_openvino_spec, inputs)], [*map(_openvino_spec, outputs)]


def _openvino_spec(place: Any) -> Spec:
    """Return the spec of an input or output of OpenVINO."""
    sizes = place.partial_shape
    shape = [None if size.is_dynamic else size.get_length() for size in sizes]
    return Spec(place.any_name, tuple(shape), np.dtype(place.element_type.to_dtype()))


def _joined(model: Any, answers: Any, of: Callable[..., Any]) -> Any:
    """Return a model of OpenVINO that computes a graph of answers from its outputs.

    The model as it is, if the graph reads anything else.
    """
    outputs = {_first_part(name): x for x in model.outputs for name in x.names}
    inputs = {_first_part(x.any_name): x for x in answers.inputs}
    if not inputs.keys() <= outputs.keys():
        return model
    for name, place in inputs.items():
        place.replace(outputs[name].get_node().input_value(0))
    results = [*model.get_results(), *answers.get_results()]
    return of(results, model.get_parameters(), "bert_keras")


def _first_part(name: str) -> str:
    """Return a name without the number of an output, such as `:0`."""
    return name.partition(":")[0]


class _OnnxRuntime(Session):
    platform = "onnxruntime_onnx"

    def __init__(
        self,
        path: Path,
        precision: str,
        at_once: int,
        threads: int,
        answers: Path | None = None,  # noqa: ARG002  # it runs by itself
    ) -> None:
        runtime = check_installed("onnx")
        settings = runtime.SessionOptions()
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

    def specs(self) -> tuple[list[Spec], list[Spec]]:
        def spec(each: Any) -> Spec:
            shape = [size if isinstance(size, int) else None for size in each.shape]
            dtype = np.dtype(_ONNX_DTYPES.get(each.type, "float32"))
            return Spec(each.name, tuple(shape), dtype)

        session = self._session
        return [*map(spec, session.get_inputs())], [*map(spec, session.get_outputs())]


_SESSIONS: dict[str, type[_OpenVino] | type[_OnnxRuntime]] = {
    "openvino": _OpenVino,
    "onnx": _OnnxRuntime,
}
_PACKAGES = {"openvino": "openvino", "onnx": "onnxruntime"}
_ONNX_DTYPES = {"tensor(int32)": "int32", "tensor(int64)": "int64"}


def _threads() -> int:
    """Return TensorFlow's number of threads; 0: the engine's own choice."""
    tf = sys.modules.get("tensorflow")
    return tf.config.threading.get_intra_op_parallelism_threads() if tf else 0


def check_installed(engine: str) -> Any:
    """Return the package of an engine; raise a ConfigError unless it is installed."""
    with needs(f"the engine {engine}", extra="engines", runtime_extra="openvino"):
        return importlib.import_module(_PACKAGES[engine])


def session_of(
    path: Path,
    engine: str,
    precision: str = "float32",
    *,
    at_once: int = 1,
    threads: int | None = None,
    answers: Path | None = None,
) -> Session:
    """Return a model file in its engine, for a number of batches at once.

    `threads` compute them; `None`: as many as TensorFlow's, or the engine's own choice.
    `answers` is a graph of answers to compute in the same run, where this is possible,
    see `Session.answers`.

    Raises:
        CheckpointError: the engine cannot read the file.
        ConfigError: the engine is not installed.
    """
    for each in filter(None, (path, answers)):
        check_no_pointer(each)
    check_installed(engine)
    try:
        count = _threads() if threads is None else threads
        return _SESSIONS[engine](path, precision, at_once, count, answers)
    except Exception as error:  # the only base of ONNX Runtime's errors
        raise CheckpointError(
            f"{path}: {engine} cannot read it: {one_line(error)}"
        ) from None


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


def find_engine(folder: str | os.PathLike[str]) -> str | None:
    """Return the engine of a folder that `export` wrote, or `None` for other folders.

    Raises:
        ConfigError: the folder is for LiteRT, which does not run here.
    """
    if not (Path(folder) / ANSWERS).is_file():
        return None
    kinds = [kind for kind in FILES if model_path(Path(folder), kind) is not None]
    if kinds == ["litert"]:
        raise ConfigError(
            f"{os.fspath(folder)}: holds a model for LiteRT, which bert_keras does not "
            "run: use the model folder"
        )
    return kinds[0] if kinds else None


def is_export(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder is an export for an engine, or has a SavedModel.

    Raises as `find_engine` does.
    """
    return find_engine(folder) is not None or find_saved_model(folder) is not None


def answers_alone(folder: str | os.PathLike[str]) -> bool:
    """Return whether an export for an engine answers without TensorFlow."""
    kind = find_engine(folder)
    return kind in ANSWER_FILES and (Path(folder) / ANSWER_FILES[kind]).is_file()


def model_path(folder: Path, kind: str) -> Path | None:
    """Return the model file of a format: the one in int8, if there are two."""
    places = [each.get(kind) for each in (INT8_FILES, FILES)]
    found = (folder / place for place in places if place)
    return next((each for each in found if each.is_file()), None)
