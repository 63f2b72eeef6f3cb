"""The smallest model that answers almost as well as a larger one: `shrink`.

Fewer and fewer layers learn from the model, the vectors of an embedding model become
shorter, and the weights of the smallest that is good enough become int8. The smallest
that stays good enough is kept.

Sources: Sanh et al. 2019 (arXiv:1910.01108); Sajjad et al. 2020 (arXiv:2004.03844);
Kusupati et al. 2022 (arXiv:2205.13147) for the first numbers of a vector.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from bert_keras.data.columns import Columns
from bert_keras.data.row_source import RowSource
from bert_keras.data.rows import ColumnNames
from bert_keras.errors import BertKerasError, ConfigError, DataError, counted
from bert_keras.exports.model_card import write_readme
from bert_keras.exports.model_file import INT8_PACKAGES, check_convertible, check_int8
from bert_keras.files.atomic import check_output_place, new_folder
from bert_keras.inference.engine_export import export_to_engine
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.convert import convert
from bert_keras.models.folder import Folder
from bert_keras.models.kept_layers import with_layers
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.report.values import words
from bert_keras.runs.notes import collected, notes_so_far, say, show
from bert_keras.runs.progress import followed_by, in_proportion
from bert_keras.runs.stop_signal import RunStopped
from bert_keras.settings import MAX_DROP, SHRINK_INT8, check_choice
from bert_keras.tasks.base import Task, overrides, replaced
from bert_keras.training.config import TrainConfig
from bert_keras.training.data import labelled_rows, untuned
from bert_keras.training.distillation import measured, soft_target_loss
from bert_keras.training.finetune import train as train_model
from bert_keras.training.results import usage, write_results

_LEAST_WIDTH = 8


class Candidate(NamedTuple):
    """A model that `shrink` has tried.

    Attributes:
        name: number of layers, width of a shortened vector, and the engine of int8.
        folder: where it is.
        score: the task's `best_score` on dev.
        milliseconds: for 1,000 rows of dev.
        megabytes: of the weights, or of the files for an engine.
        is_kept: whether it scores well enough.
        width: numbers in a vector of an embedding model; 0 for other tasks.
    """

    name: str
    folder: Path
    score: float
    milliseconds: float
    megabytes: float
    is_kept: bool
    width: int = 0

    def __str__(self) -> str:
        rejected = "" if self.is_kept else ": more than `max_drop` below"
        vectors = f", {self.width} numbers in a vector" if self.width else ""
        return (
            f"{self.name}: {self.score:.4f}, {self.milliseconds:,.0f} ms for 1,000 "
            f"rows, {self.megabytes:,.1f} MB{vectors}{rejected}"
        )


class Shrunk(NamedTuple):
    """What `shrink` returns.

    Attributes:
        folder: the smallest model that is good enough.
        candidates: all models that were tried, the given one first.
        rows: of the table of the candidates, as the card and the report have it.
        notes: the lines on what was chosen, guessed or not tried.
    """

    folder: Path
    candidates: list[Candidate]
    rows: list[dict[str, Any]]
    notes: tuple[str, ...]


@collected()
def shrink(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    dev: Any,
    train: Any = None,
    max_drop: float = 0.01,
    int8: str = "auto",
    columns: ColumnNames | None = None,
    header: str = "auto",
    config: TrainConfig | None = None,
) -> Shrunk:
    """Write the smallest model whose score is at most `max_drop` below a model's.

    Students keep three quarters of the layers, then half, a quarter, and one. They
    learn the labels and the model's answers, until one scores too low. The vectors of
    the smallest embedding model that is good enough are then shortened, to the widths
    that it was trained for, or to a half, a quarter and an eighth. Heads of other tasks
    have no width of their own. At last the smallest that is good enough is tried in
    int8; if it is not, the next smallest.

    Args:
        model: a model folder.
        output: the folder to write, which must not exist: a model folder, or for int8 a
            folder of the engine, as `export` writes it.
        dev: labelled rows, on which epochs and models are chosen. Thresholds of all
            models, the given one included, are fitted on them, and an embedding model
            is scored by its similarities if they have labels.
        train: the training rows of the students, as in `train`; without them, layers
            are left out and nothing is trained.
        max_drop: how much lower the task's `best_score` may be, as a share of its
            scale, which is 100 for F1 of question answering and BLEU, otherwise 1.
        int8: `auto` (an engine that is installed), `openvino`, `onnx` or `none`.
        columns, header: as in `train`.
        config: the settings of the students; their teacher and layers are set here.

    Raises:
        ConfigError: an argument is wrong, or int8 is asked for and cannot be computed.
        DataError: the rows cannot be read, or dev cannot tell models apart.
        BertKerasError: no smaller model is good enough; nothing is written.

    Example:
        >>> shrink("models/emails", "models/small", train="train.csv", dev="dev.csv")
    """
    check_choice("int8", int8, SHRINK_INT8)
    MAX_DROP.check(max_drop)
    check_output_place("output", output, {"model": model})
    if os.path.lexists(output):
        raise ConfigError(f"`output` must not exist; received {os.fspath(output)}")
    whole = load_predictor(model).model
    if not isinstance(whole, TaskModel):
        raise ConfigError(
            f"`model` must be a model folder; received the export {os.fspath(model)}"
        )
    task = whole.task
    engine = _engine(int8, task)

    def read(name: str, data: Any) -> Columns:
        return labelled_rows(task, RowSource(data, columns or {}, header), name=name)

    rows = None if train is None else read("train", train)
    dev = read("dev", dev)
    if len(dev) < 2:
        raise DataError(
            "must have two rows or more, to tell models apart; has one", path=dev.path
        )
    task = _with_objective(task, rows, dev)
    if untuned(task) != task:
        say("thresholds are fitted on dev for each model, and for the given one, too")
    teacher = _fitted(whole, task, dev)
    layers = whole.backbone.config.num_hidden_layers
    allowed = max_drop * (task.most_score or 1.0)
    target = Path(output)
    target.resolve().parent.mkdir(parents=True, exist_ok=True)
    with new_folder(target.parent, f".{target.name}.shrink-") as place:
        search = _Search(Path(model), teacher, place, rows, dev, allowed, engine)
        search.add(counted(layers, "layers"), Path(model))
        own = search.candidates[0].score
        if own == 0 or math.isnan(own):
            raise DataError(
                f"cannot tell models apart: the {search.task.best_score} of the model "
                "itself is 0 or undefined, as where all labels are equal",
                path=dev.path,
            )
        search.try_layers(layers, config or TrainConfig())
        search.try_widths()
        search.try_int8()
        best = search.smallest()
        if best is search.candidates[0]:
            raise BertKerasError(
                f"no smaller model scores within `max_drop` {allowed:g} of "
                f"{best.score:.4f}: nothing is written"
            )
        search.write_results(best, target)
        shutil.move(best.folder, target)
    show(f"kept: {best.name}")
    return Shrunk(target, search.candidates, search.rows(), notes_so_far())


@dataclasses.dataclass
class _Search:
    """The candidates so far, and what they are made of and scored on."""

    model: Path
    teacher: Predictor  # of the model, with settings fitted on dev
    place: Path
    train: Columns | None
    dev: Columns
    max_drop: float
    engine: str | None  # of int8
    candidates: list[Candidate] = dataclasses.field(default_factory=list)
    reports: dict[Path, dict[str, Any]] = dataclasses.field(default_factory=dict)
    scoring_seconds: float = 0.0  # of the last candidate

    @property
    def task(self) -> Task:
        return self.teacher.model.task

    def load(self, folder: Path) -> Predictor:
        """Return the predictor of a candidate."""
        return self.teacher if folder == self.model else load_predictor(folder)

    def add(self, name: str, folder: Path) -> bool:
        """Measure a candidate; return whether it scores well enough."""
        predictor = self.load(folder)
        begun = time.perf_counter()
        scores, milliseconds, megabytes = measured(predictor, folder, self.dev)
        self.scoring_seconds = time.perf_counter() - begun
        score, width = float(scores[self.task.best_score]), 0
        if _has_widths(self.task):
            width = predictor.answers(self.dev.take([0]))["embedding"].shape[-1]
        first = self.candidates[0].score if self.candidates else score
        found = Candidate(
            name,
            folder,
            score,
            milliseconds,
            megabytes,
            is_kept=score >= first - self.max_drop,
            width=width,
        )
        self.candidates.append(found)
        show(f"{words(self.task.best_score).lower()} of {found}")
        return found.is_kept

    def good(self) -> list[Candidate]:
        """Return the candidates that score well enough, the smallest first."""
        good = [each for each in self.candidates if each.is_kept]
        return sorted(good, key=lambda each: (each.megabytes, each.width))

    def smallest(self) -> Candidate:
        """Return the smallest candidate that scores well enough."""
        return self.good()[0]

    def try_layers(self, layers: int, config: TrainConfig) -> None:
        """Add models with fewer and fewer layers, until one scores too low."""
        depths = _depths(layers)
        try:
            for kept in depths[:1]:
                with_layers(Folder.open(self.model), kept)
            if self.train is not None:
                taught = dataclasses.replace(config, teacher=os.fspath(self.model))
                soft_target_loss(self.task, taught)
        except ConfigError as error:
            say(f"fewer layers are not tried: {error}")
            return
        if self.train is None:
            say("no training rows are given: layers are left out without training")
        for number, kept in enumerate(depths):
            folder = self.place / f"layers-{len(kept)}"
            with followed_by(self._later(depths[number:]), may_be_less=True):
                self._keep_layers(kept, folder, config)
            name = f"{counted(len(kept), 'layers')} ({','.join(map(str, kept))})"
            if not self.add(name, folder):
                break

    def _later(self, depths: Sequence[tuple[int, ...]]) -> Callable[[float], float]:
        """Return the seconds of what follows the training of the first of the depths.

        Those are the others, which take as long as they have layers, and the scoring of
        all candidates to come.
        """
        first, *others = map(len, depths)
        training = in_proportion(sum(others) / first)
        count = len(depths) + (self.engine is not None)
        if _has_widths(self.task):
            count += len(_widths(self.task, self.candidates[0].width))
        scoring = count * self.scoring_seconds
        return lambda left: training(left) + scoring

    def _keep_layers(
        self, kept: tuple[int, ...], folder: Path, config: TrainConfig
    ) -> None:
        """Write a student with some layers, trained if there are training rows.

        It reads texts of its teacher's length, unless another one is given.
        """
        if self.train is None:
            for note in convert(self.model, folder, keep_layers=kept, card=False):
                say(note)
            model = load_model(folder)
            held = model.task
            if _fitted(model, self.task, self.dev).model.task != held:
                save_model(model, folder, card=False)
            return
        teacher = os.fspath(self.model)
        length = Folder.open(teacher).preprocessing.get("max_length")
        made = dataclasses.replace(
            config,
            teacher=teacher,
            keep_layers=kept,
            max_length=config.max_length or length,
        )
        try:
            found = train_model(
                untuned(self.task),
                train=self.train,
                dev=self.dev,
                output=folder,
                config=made,
            )
        except RunStopped:
            raise KeyboardInterrupt from None  # the folder of the search goes
        self.reports[folder] = found.report

    def try_widths(self) -> None:
        """Add the smallest candidate with shorter and shorter vectors."""
        if not _has_widths(self.task):
            say(
                "widths of the head are not tried: only dense vectors of embedding can "
                "be shortened, and this model gives none"
            )
            return
        small = self.smallest()
        for width in _widths(self.task, small.width):
            model = load_model(small.folder)
            model.task = replaced(self.task, truncate_dim=width)
            folder = self.place / f"width-{width}"
            save_model(model, folder, card=False)
            if not self.add(f"{small.name}, width {width}", folder):
                break

    def try_int8(self) -> None:
        """Add the smallest candidate in int8; the next, if it scores too low."""
        engine = self.engine
        if engine is None:
            return
        calibration = self.train if engine == "openvino" else None
        if engine == "openvino" and calibration is None:
            say("no training rows are given: texts of dev calibrate int8")
            calibration = self.dev
        for number, each in enumerate(self.good()):
            model: Any = self.load(each.folder).model
            folder = self.place / f"int8-{number}"
            export_to_engine(
                model,
                folder,
                format=engine,
                int8=True,
                int8_only=True,
                calibration=calibration,
            )
            if self.add(f"{each.name}, int8 for {engine}", folder):
                break

    def rows(self) -> list[dict[str, Any]]:
        """Return the table of the candidates, as `Distillation.beside` has it."""
        first, best = self.candidates[0], self.smallest()
        found = []
        for each in self.candidates:
            mark = "" if each.is_kept else ": too low"
            row: dict[str, Any] = {
                "model": f"{each.name}{': kept' if each is best else mark}",
                self.task.best_score: each.score,
                "drop": first.score - each.score,
                "milliseconds": each.milliseconds,
                "megabytes": each.megabytes,
            }
            found.append(row | ({"width": each.width} if each.width else {}))
        return found

    def write_results(self, best: Candidate, target: Path) -> None:
        """Write the table of the candidates into the card and report of the best."""
        report = self.reports.get(best.folder)
        shown: dict[str, Any] = {
            "best_score": self.task.best_score,
            "students": self.rows(),
            "usage": usage(self.task, target),  # which named the folder of the search
        }
        if report is not None:
            settings = {**report["settings"], "max_drop": self.max_drop}
            write_results(
                best.folder, target, {**report, **shown, "settings": settings}
            )
            return
        trained = [each.name for each in self.candidates if each.folder in self.reports]
        taught = any(best.name.startswith(name) for name in trained)
        teacher = {"teacher": os.fspath(self.model)} if taught else {}
        shown["settings"] = {"max_drop": self.max_drop, **teacher}
        write_readme(target, best.folder, name=target.name, report=shown)


def _with_objective(task: Task, train: Columns | None, dev: Columns) -> Task:
    """Return a task whose objective is of the rows, as in `train`."""
    found: Any = task.with_objective_of(dev)
    if train is not None and task.with_objective_of(train) != found:
        raise ConfigError(
            "`train` and `dev` must both have the column of `label`, or neither; "
            f"received it in {'train' if 'label' in train else 'dev'} alone"
        )
    if found != task:
        say(
            f"objective {found.objective}, since the rows have "
            f"{'labels' if 'label' in dev else 'no labels'}; the model's is "
            f"{cast(Any, task).objective}"
        )
    return found


def _fitted(model: TaskModel, task: Task, dev: Columns) -> Predictor:
    """Return the predictor of a model with a task whose settings are fitted on dev."""
    model.task = untuned(task)
    if overrides(model.task, "tune"):
        model.task = model.task.tune(dev, Predictor(model).answers(dev))
    return Predictor(model)


def _has_widths(task: Task) -> bool:
    """Return whether a task has vectors that can be shortened."""
    return bool(task.vector_output) and getattr(task, "kind", "dense") == "dense"


def _depths(layers: int) -> list[tuple[int, ...]]:
    """Return the layers to keep in each try, fewer and fewer."""
    shares = (3 / 4, 1 / 2, 1 / 4)
    found = {max(int(layers * share), 1) for share in shares} | {1}
    counts = sorted(found - {layers}, reverse=True)
    return [tuple(n * layers // count for n in range(count)) for count in counts]


def _widths(task: Task, width: int) -> list[int]:
    """Return the shorter widths of a vector to try, falling: the trained ones, if any.

    Args:
        task: its `dimensions`, if it has them, were trained.
        width: the width of its vectors now.
    """
    halves = [width >> times for times in (1, 2, 3)]
    found = getattr(task, "dimensions", ()) or [
        each for each in halves if each >= _LEAST_WIDTH
    ]
    return sorted((each for each in found if each < width), reverse=True)


def _engine(int8: str, task: Task) -> str | None:
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
        say(f"int8 is not tried: {error}")
        return None
    if int8 != "auto":
        check_int8(int8)
        return int8
    for engine, packages in INT8_PACKAGES.items():
        if all(importlib.util.find_spec(name) for name in packages):
            return engine
    say("int8 is not tried: pip install 'bert_keras[engines]'")
    return None
