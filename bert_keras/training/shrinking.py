"""The smallest model that answers almost as well as a larger one: `shrink`.

Students with fewer and fewer layers learn from the model, and the weights of the
smallest that is good enough become int8, if it stays so.

Sources: Sanh et al. 2019 (arXiv:1910.01108); Sajjad et al. 2020 (arXiv:2004.03844).
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bert_keras.data.columns import Columns
from bert_keras.data.rows import ColumnNames
from bert_keras.errors import BertKerasError, ConfigError
from bert_keras.files.atomic import check_output_place
from bert_keras.inference.engine_export import export_to_engine
from bert_keras.inference.predictor import load_predictor
from bert_keras.models.model_file import check_convertible, check_int8
from bert_keras.models.task_model import TaskModel
from bert_keras.runs.progress import say
from bert_keras.settings import SHRINK_INT8, check_choice, check_number
from bert_keras.tasks.base import Task
from bert_keras.training.config import TrainConfig
from bert_keras.training.data import labelled_rows
from bert_keras.training.distillation import measured
from bert_keras.training.finetune import train as train_model
from bert_keras.training.results import usage, write_results

_INT8 = {"openvino": ("openvino", "nncf"), "onnx": ("onnx", "onnxruntime")}


class Candidate(NamedTuple):
    """A model that `shrink` has tried.

    Attributes:
        name: number of layers, and the engine of int8.
        folder: where it is.
        score: the task's `best_score` on dev.
        milliseconds: for 1,000 rows of dev.
        megabytes: of the weights, or of the files for an engine.
        is_kept: whether it scores well enough.
    """

    name: str
    folder: Path
    score: float
    milliseconds: float
    megabytes: float
    is_kept: bool

    def __str__(self) -> str:
        rejected = "" if self.is_kept else ": more than `max_drop` below"
        return (
            f"{self.name}: {self.score:.4f}, {self.milliseconds:,.0f} ms for 1,000 "
            f"rows, {self.megabytes:,.1f} MB{rejected}"
        )

    def row(self, best_score: str) -> dict[str, Any]:
        """Return it as a row of the report, see `Distillation.beside`."""
        return {
            "model": self.name,
            best_score: self.score,
            "milliseconds": self.milliseconds,
            "megabytes": self.megabytes,
        }


class Shrunk(NamedTuple):
    """What `shrink` returns: the folder, and all candidates, the given model first."""

    folder: Path
    candidates: list[Candidate]


def shrink(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    train: Any,
    dev: Any,
    max_drop: float = 0.01,
    int8: str = "auto",
    columns: ColumnNames | None = None,
    header: str = "auto",
    config: TrainConfig | None = None,
    tell: Callable[[str], object] = say,
) -> Shrunk:
    """Write the smallest model whose score is at most `max_drop` below a model's.

    Students keep three quarters of the layers, then half, a quarter, and one. They
    learn the labels and the model's answers, until one scores too low. The smallest
    that is good enough is tried in int8.

    Args:
        model: a model folder.
        output: the folder to write, which must not exist: a model folder, or for int8 a
            folder of the engine, as `export` writes it.
        train: the training rows, as in `train`.
        dev: labelled rows, on which epochs and models are chosen.
        max_drop: how much lower the task's `best_score` may be.
        int8: `auto` (an engine that is installed), `openvino`, `onnx` or `none`.
        columns, header: as in `train`.
        config: the settings of the students; their teacher and layers are set here.
        tell: gets a line for each candidate, and what is not tried.

    Raises:
        ConfigError: an argument is wrong, or int8 is asked for and cannot be computed.
        BertKerasError: no smaller model is good enough; nothing is written.

    Example:
        >>> shrink("models/emails", "models/small", train="train.csv", dev="dev.csv")
    """
    check_choice("int8", int8, SHRINK_INT8)
    check_number("max_drop", max_drop, least=0)
    check_output_place("output", output, {"model": model})
    if os.path.lexists(output):
        raise ConfigError(f"`output` must not exist; received {os.fspath(output)}")
    teacher = load_predictor(model)
    if not isinstance(teacher.model, TaskModel):
        raise ConfigError(
            f"`model` must be a model folder; received the export {os.fspath(model)}"
        )
    task = teacher.model.task
    engine = _engine(int8, task, tell)
    rows, held = (
        labelled_rows(task, data, name=name, columns=columns, header=header)
        for name, data in (("train", train), ("dev", dev))
    )
    layers = teacher.model.backbone.config.num_hidden_layers
    target, reports = Path(output), {}
    target.resolve().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".shrink-", dir=target.parent) as place:
        search = _Search(task.best_score, Path(place), rows, held, max_drop, tell, [])
        search.add(_named(layers), Path(model))
        for count in _depths(layers):
            kept = tuple(number * layers // count for number in range(count))
            made = dataclasses.replace(
                config or TrainConfig(), teacher=os.fspath(model), keep_layers=kept
            )
            folder = Path(place) / f"layers-{count}"
            found = train_model(task, train=rows, dev=held, output=folder, config=made)
            reports[folder] = found.report
            name = f"{_named(count)} ({','.join(map(str, kept))})"
            if not search.add(name, folder):
                break
        search.try_int8(engine)
        best = search.smallest()
        if best is search.candidates[0]:
            raise BertKerasError(
                f"no smaller model scores within `max_drop` {max_drop:g} of "
                f"{best.score:.4f}: nothing is written"
            )
        if best.folder in reports:  # which named the folder of the search
            tried = [each.row(task.best_score) for each in search.candidates]
            own = {"usage": usage(task, target), "students": tried}
            write_results(best.folder, target, {**reports[best.folder], **own})
        shutil.move(best.folder, target)
    tell(f"kept: {best.name}")
    return Shrunk(target, search.candidates)


@dataclasses.dataclass
class _Search:
    """The candidates so far, and what they are scored on."""

    best_score: str
    place: Path
    train: Columns
    dev: Columns
    max_drop: float
    tell: Callable[[str], object]
    candidates: list[Candidate]

    def add(self, name: str, folder: Path) -> bool:
        """Measure a candidate; return whether it scores well enough."""
        scores, milliseconds, megabytes = measured(
            load_predictor(folder), folder, self.dev
        )
        score = float(scores[self.best_score])
        first = self.candidates[0].score if self.candidates else score
        is_kept = score >= first - self.max_drop
        found = Candidate(name, folder, score, milliseconds, megabytes, is_kept)
        self.candidates.append(found)
        self.tell(str(found))
        return is_kept

    def smallest(self) -> Candidate:
        """Return the smallest candidate that scores well enough."""
        good = [each for each in self.candidates if each.is_kept]
        return min(good, key=lambda each: each.megabytes)

    def try_int8(self, engine: str | None) -> None:
        """Add the smallest candidate in int8, if there is an engine."""
        if engine is None:
            return
        small = self.smallest()
        model: Any = load_predictor(small.folder).model
        folder = self.place / "int8"
        calibration = self.train if engine == "openvino" else None
        export_to_engine(
            model, folder, format=engine, int8=True, calibration=calibration
        )
        self.add(f"{small.name}, int8 for {engine}", folder)


def _named(layers: int) -> str:
    return f"{layers} layer{'s' * (layers > 1)}"


def _depths(layers: int) -> list[int]:
    """Return the numbers of layers to try, falling."""
    shares = (3 / 4, 1 / 2, 1 / 4)
    found = {max(int(layers * share), 1) for share in shares} | {1}
    return sorted(found - {layers}, reverse=True)


def _engine(int8: str, task: Task, tell: Callable[[str], object]) -> str | None:
    """Return the engine of int8, if there is to be one.

    Raises:
        ConfigError: the given one is not installed, or cannot run the task.
    """
    if int8 == "none":
        return None
    try:
        check_convertible(task)
    except ConfigError as error:
        if int8 != "auto":
            raise
        tell(f"int8 is not tried: {error}")
        return None
    if int8 != "auto":
        check_int8(int8)
        return int8
    for engine, packages in _INT8.items():
        if all(importlib.util.find_spec(name) for name in packages):
            return engine
    tell("int8 is not tried: pip install 'bert_keras[engines]'")
    return None
