"""Predict with a SavedModel that `export` wrote: `load_saved_model`.

Only its graph is run; none of its other files is code. The graph holds text handling,
model and answers; `assets.extra` names the task, so that answers become rows, and files
of labelled rows can be read and scored.
"""

from __future__ import annotations

import copy
import os
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert_keras.answering.backend import Backend
from bert_keras.errors import BertKerasError, CheckpointError, ConfigError
from bert_keras.exports.answers_file import check_answers, read_answers_file
from bert_keras.exports.saved_model import (
    meta_graphs,
    ops_of,
    refuse_unknown_ops,
    rejection,
)
from bert_keras.exports.saved_model_folder import ANSWERS, EXTRA
from bert_keras.files.lfs import check_no_pointer
from bert_keras.tasks.base import Batch, Task, answers_as
from bert_keras.tasks.protocols import Writing, input_specs
from bert_keras.text.preprocessor import Preprocessor, one_or_all
from bert_keras.text.tokenizer import WordPieceTokenizer

# Ops that access the machine's files; no export has them. (Ops that save and restore
# variables are in every SavedModel.)
_FILE_OPS = frozenset(
    ("ReadFile", "WriteFile", "MatchingFiles", "PrintV2", "SaveDataset", "LoadDataset")
)


def load_saved_model(
    folder: Path, *, task: str | type[Task] | Task | None = None
) -> ServedModel:
    """Load the model of a SavedModel that `export` wrote.

    Args:
        folder: the SavedModel, for which `is_exported` is true.
        task: needed for a custom task, as in `load_model`; a task instance must equal
            the exported task.

    Raises:
        CheckpointError: it is broken, holds an op that a stock server lacks or one that
            reads or writes files, or its parts do not match.
        ConfigError: a task instance has other settings than the export.
    """
    extra = folder / EXTRA
    found, record = read_answers_file(folder, extra / ANSWERS, task)
    preprocessor = preprocessor_of(extra, record)
    model = ServedModel(folder, _loaded(folder), found, preprocessor)
    model.check()
    return model


class ServedModel(Backend):
    """A SavedModel, whose graph answers texts; only `scored` answers may need `infer`.

    Args:
        folder: the SavedModel, for errors.
        served: what `tf.saved_model.load` returned.
        task: its task, with the settings that are fixed in the graph.
        preprocessor: as in the graph; computes the lengths of texts, and scores.
    """

    def __init__(
        self, folder: Path, served: Any, task: Task, preprocessor: Preprocessor
    ) -> None:
        self.preprocessor = preprocessor
        self._folder = folder
        self._served = served  # keeps the variables alive
        self._task = task
        self._first = ""  # the signature that answers texts if it takes them

    has_fixed_task = True

    def prompted(self, task: Task, name: str) -> ServedModel:
        """Return a model that answers texts by the signature of this name.

        Raises:
            ConfigError: the SavedModel has none of this name.
        """
        if name not in self._served.signatures:
            raise ConfigError(
                f"{self._folder}: has no signature `{name}`, which answers with that "
                "prompt: export the model folder again, or use it"
            )
        found = copy.copy(self)
        found._task, found._first = self._task.of_signature(name), name
        return found

    @property
    def task(self) -> Task:
        """The task; its settings are fixed in the graph."""
        return self._task

    @task.setter
    def task(self, task: Task) -> None:
        if not answers_as(task, self._task):
            raise ConfigError(
                f"{self._folder}: the settings of a SavedModel are fixed in its "
                "graph: export the model folder with others"
            )
        self._task = task

    def infer(self, batch: Batch) -> Any:
        """Return the model's outputs for the padded layout, or the answers in their
        place for a task with `answers_ids`.
        """
        signature = self._served.signatures["ids"]
        names = signature.structured_input_signature[1]
        try:
            outputs = signature(**{name: batch[name] for name in names})
        except tf.errors.InvalidArgumentError as error:
            raise BertKerasError(f"{self._folder}: {rejection(error)}") from None
        if self._task.answers_ids:
            return types.SimpleNamespace(answers=outputs)  # for `_scored`
        return outputs["logits"] if set(outputs) == {"logits"} else outputs

    def answer(
        self,
        texts: Any,
        *,
        preprocessor: Preprocessor | None = None,
        scored: bool = False,
    ) -> dict[str, tf.Tensor]:
        # The others score answers.
        task = self._task
        if scored and not isinstance(task, Writing) and not task.reads_windows:
            return self._scored(texts, preprocessor or self.preprocessor)
        parts = texts if isinstance(texts, tuple) else (texts,)
        ranks = [part.shape.rank for part in parts]
        names = input_specs(self._task)
        for name, specs in sorted(names.items(), key=lambda k: k[0] != self._first):
            if [spec.shape.rank for spec in specs] == ranks:
                given = {s.name: part for s, part in zip(specs, parts, strict=True)}
                # A SavedModel lists its outputs in any order.
                return dict(sorted(self._served.signatures[name](**given).items()))
        raise CheckpointError(f"{self._folder}: no signature takes ranks {ranks}")

    def functions(self) -> dict[str, Any]:
        """Return the function of each signature; it takes its inputs by name."""
        return dict(self._served.signatures)

    def _scored(self, texts: Any, preprocessor: Preprocessor) -> dict[str, Any]:
        """Return the inputs of the task's `score` for texts, in graph."""
        if not self._task.answers_ids:
            return super().answer(texts, preprocessor=preprocessor, scored=True)
        task = copy.copy(self._task)
        # The graph has already answered; a frozen dataclass can only be set this way.
        object.__setattr__(task, "answer", lambda outputs, batch: outputs.answers)
        try:
            return task.respond(texts, preprocessor, self.infer, scored=True)
        except (AttributeError, TypeError, ValueError, KeyError, IndexError):
            raise BertKerasError(
                f"{self._folder}: the scores of {task.name} need outputs of the "
                "model that the SavedModel does not return: evaluate the model folder"
            ) from None

    def check(self) -> None:
        """Raise a CheckpointError unless signatures and answers match the task."""
        for name, specs in {**input_specs(self._task), "ids": ()}.items():
            if name not in self._served.signatures:
                raise CheckpointError(f"{self._folder}: has no signature `{name}`")
            inputs = self._served.signatures[name].structured_input_signature[1]
            wanted = {spec.name: spec for spec in specs}
            if wanted and (
                set(inputs) != set(wanted)
                or any(inputs[k].dtype != tf.string for k in inputs)
                or any(inputs[k].shape.rank != wanted[k].shape.rank for k in inputs)
            ):
                raise CheckpointError(
                    f"{self._folder}: `{name}` must take {', '.join(wanted)}, strings, "
                    f"for {self._task.name}; it takes {', '.join(inputs)}"
                )
        check_graph_answers(self, self._folder, f"{EXTRA}/{ANSWERS}")


def check_graph_answers(model: Backend, folder: Path, record: str) -> None:
    """Raise a CheckpointError unless a graph answers as its task, see `check_answers`.

    `model` is a `ServedModel` or an `EngineModel`.
    """
    specs = next(iter(input_specs(model.task).values()))
    texts = tuple(tf.fill([1] * spec.shape.rank, "a") for spec in specs)

    def answer() -> dict[str, Any]:
        found = model.answer(one_or_all(texts))
        return {key: value.numpy() for key, value in found.items()}

    check_answers(model.task, folder, record, answer, tf.errors.OpError)


def preprocessor_of(extra: Path, record: Mapping[str, Any]) -> Preprocessor:
    """Return the preprocessor of an export, in graph.

    Args:
        extra: the folder of the tokenizer's files.
        record: what `answers.json` holds.
    """
    try:
        tokenizer = WordPieceTokenizer.from_folder(extra)
        return Preprocessor(tokenizer, **record["preprocessing"])
    except (TypeError, ValueError) as error:  # wrong names or values
        raise CheckpointError(
            f"{extra / ANSWERS}: {' '.join(str(error).split())}"
        ) from None


def _loaded(folder: Path) -> Any:
    """Load a SavedModel after checking its ops."""
    graphs = [graph.graph_def for graph in meta_graphs(folder)]
    for path in (folder / "variables").glob("*"):
        check_no_pointer(path)
    try:
        refuse_unknown_ops(graphs)
        _refuse_file_ops(graphs)
        return tf.saved_model.load(os.fspath(folder))
    except BertKerasError as error:
        raise CheckpointError(f"{folder}: {error}") from None
    except (
        OSError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RuntimeError,
        AssertionError,
        tf.errors.OpError,
    ) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{folder}: a broken SavedModel: {reason}") from None


def _refuse_file_ops(graphs: list[Any]) -> None:
    names = {name for graph in graphs for name in ops_of(graph)} & _FILE_OPS
    if names:
        raise CheckpointError(
            f"the graph must not access files; it holds {', '.join(sorted(names))}"
        )
