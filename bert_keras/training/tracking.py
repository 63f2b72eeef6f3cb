"""Curves and scores of a run for TensorBoard, MLflow or Weights & Biases.

Each tracker uses the library's own client. A resumed run is a new run of MLflow and of
Weights & Biases, which begins with the curves so far.

A tracker that cannot start is an error. One that fails later, for example because its
server is down, is dropped with a warning: the model is worth more than its curves.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_keras.errors import ConfigError, one_line
from bert_keras.runs.notes import say
from bert_keras.training.config import TrainConfig

Values = Mapping[str, Any]  # settings, scores or a row of the curves by name


class TensorBoardTracker:
    """Writes event files into a folder.

    A tracker adds rows of the curves, each with its `step`, and at the end settings,
    scores and the file of the report.
    """

    has_memory = True  # whether it still holds the curves of an interrupted run

    def __init__(self, folder: str) -> None:
        import tensorflow as tf

        self._summary: Any = tf.summary
        self._writer = tf.summary.create_file_writer(folder)

    def curves(self, row: Values) -> None:
        with self._writer.as_default():
            for name, value in _values(row).items():
                self._summary.scalar(name, value, step=int(row["step"]))
        self._writer.flush()

    def finish(self, settings: Values, scores: Values, report: Path) -> None:
        lines = [f"| {name} | {value} |" for name, value in settings.items()]
        table = "\n".join(["| setting | value |", "|---|---|", *lines])
        with self._writer.as_default():
            self._summary.text("settings", table, step=0)
            for name, value in scores.items():
                self._summary.scalar(name, value, step=0)
        self._writer.flush()

    def close(self, *, is_finished: bool) -> None:
        self._writer.close()


class MLflowTracker:
    """Writes to the server of `MLFLOW_TRACKING_URI`."""

    has_memory = False

    def __init__(self, name: str) -> None:
        self._mlflow = importlib.import_module("mlflow")
        self._mlflow.start_run(run_name=name)

    def curves(self, row: Values) -> None:
        self._mlflow.log_metrics(_values(row), step=int(row["step"]))

    def finish(self, settings: Values, scores: Values, report: Path) -> None:
        self._mlflow.log_params(
            {key: str(each)[:500] for key, each in settings.items()}
        )
        self._mlflow.log_metrics(scores)
        self._mlflow.log_artifact(str(report))

    def close(self, *, is_finished: bool) -> None:
        self._mlflow.end_run("FINISHED" if is_finished else "FAILED")


class WandbTracker:
    """Writes to the project of `WANDB_PROJECT`, or `bert_keras`."""

    has_memory = False

    def __init__(self, name: str) -> None:
        self._wandb = importlib.import_module("wandb")
        project = os.environ.get("WANDB_PROJECT", "bert_keras")
        self._run = self._wandb.init(project=project, name=name)

    def curves(self, row: Values) -> None:
        self._run.log(_values(row), step=int(row["step"]))

    def finish(self, settings: Values, scores: Values, report: Path) -> None:
        self._run.config.update(dict(settings))
        self._run.summary.update(scores)
        self._run.log({"report": self._wandb.Html(report.read_text("utf-8"))})

    def close(self, *, is_finished: bool) -> None:
        self._run.finish(exit_code=0 if is_finished else 1)


Tracker = TensorBoardTracker | MLflowTracker | WandbTracker


class Trackers:
    """The trackers of a run; each call goes to all of them."""

    def __init__(self, trackers: Sequence[Tracker] = ()) -> None:
        self._trackers = list(trackers)
        self.is_finished = False

    def resume(self, history: Sequence[Values]) -> None:
        """Add the curves of an interrupted run where they were lost."""

        def add(tracker: Tracker) -> None:
            for row in [] if tracker.has_memory else history:
                tracker.curves(row)

        self._each(add)

    def curves(self, row: Values) -> None:
        """Add a row of the curves."""
        self._each(lambda to: to.curves(row))

    def finish(self, report: Values, page: Path) -> None:
        """Add settings and scores of `TrainResult.report`, and the report's page."""
        scores = {
            f"scores/{split}/{key}": float(value)
            for split, found in report["scores"].items()
            for key, value in found.items()
            if isinstance(value, int | float)
        }
        self._each(lambda to: to.finish(report["settings"], scores, page))
        self.is_finished = True

    def close(self) -> None:
        """End the run."""
        self._each(lambda to: to.close(is_finished=self.is_finished))

    def _each(self, call: Callable[[Tracker], object]) -> None:
        """Call a function with each tracker; close trackers that fail."""
        for tracker in list(self._trackers):
            try:
                call(tracker)
            except Exception as error:  # of any library
                self._trackers.remove(tracker)
                # Or the next run of this process could not start one.
                with contextlib.suppress(Exception):
                    tracker.close(is_finished=False)
                name = type(tracker).__name__.removesuffix("Tracker")
                reason = one_line(error)
                say(f"{name} failed, and this run is no longer tracked: {reason}")


@contextlib.contextmanager
def tracked(config: TrainConfig, output: Path, *, is_chief: bool) -> Iterator[Trackers]:
    """Yield the trackers that a run asks for, on the chief; close them at its end."""
    found: list[Tracker] = []
    folder = curves_folder(config, output)
    if is_chief and folder is not None:
        try:
            found.append(TensorBoardTracker(folder))
        except Exception as error:  # of TensorFlow
            raise ConfigError(
                f"`tensorboard` must be a folder that can be written; received "
                f"{folder}: {one_line(error)}"
            ) from error
        say(f"curves for TensorBoard: {folder}")
    clients: dict[str | None, Callable[[str], Tracker]] = {
        "mlflow": MLflowTracker,
        "wandb": WandbTracker,
    }
    if is_chief and config.track in clients:
        try:
            found.append(clients[config.track](output.name))
        except Exception as error:  # of any library
            raise ConfigError(
                f"`track` must be a tracker that can be reached; received "
                f"{config.track}: {one_line(error)}"
            ) from error
    trackers = Trackers(found)
    try:
        yield trackers
    finally:
        trackers.close()


def curves_folder(config: TrainConfig, output: Path) -> str | None:
    """Return the folder of TensorBoard's curves, `NAME.tensorboard` by default."""
    if config.tensorboard or config.track != "tensorboard":
        return config.tensorboard
    return str(output.with_name(f"{output.name}.tensorboard"))


def check_tracking(config: TrainConfig, output: Path) -> None:
    """Raise ConfigError unless the trackers are installed and their place is free."""
    curves = curves_folder(config, output)
    wanted = {config.track, "tensorboard" if curves else None} - {None}
    for name in sorted(map(str, wanted)):
        if importlib.util.find_spec(name) is None:
            raise ConfigError(
                f"`{'track' if name == config.track else name}` needs a package: "
                f"pip install 'bert_keras[{name}]'"
            )
    places = () if curves is None else (Path(curves), *Path(curves).parents)
    if os.path.realpath(output) in map(os.path.realpath, places):
        raise ConfigError(
            "`tensorboard` must be a folder outside the model folder; "
            f"received {curves}"
        )


def _values(row: Values) -> dict[str, float]:
    return {key: each for key, each in row.items() if key not in ("epoch", "step")}
