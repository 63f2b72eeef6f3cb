"""Export a trained model for an engine: `export_to_engine`.

The folder has the layout of Hugging Face's optimum: `config.json`, the tokenizer's
files and, in a folder of its own, the model file; LiteRT's is beside them.
`answers.json` describes the inputs and the outputs. `load_predictor` opens the folder,
and so do transformers.js and other programs without this package.

A model in int8 is written only if it scores almost as well as the float32 model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_keras.config import WINDOW_STARTS
from bert_keras.data.columns import Columns
from bert_keras.errors import BertKerasError, ConfigError
from bert_keras.exports.answers_graph import NeedsTensorFlow, OtherIds
from bert_keras.exports.engine_files import ANSWER_FILES, FILES, INT8_FILES, all_files
from bert_keras.exports.engine_graph import EngineGraph
from bert_keras.exports.model_card import write_readme
from bert_keras.exports.model_file import (
    check_convertible,
    check_int8,
    write_int8,
    write_model_file,
)
from bert_keras.exports.saved_model import write_description
from bert_keras.exports.saved_model_folder import ANSWERS
from bert_keras.files.atomic import CARD, CONFIG, DESCRIPTION, replaced_folder
from bert_keras.files.json_file import json_text
from bert_keras.inference.engine import EngineModel
from bert_keras.inference.engine_conversion import light_engine
from bert_keras.inference.predictor import Predictor
from bert_keras.inference.session import Session, session_of
from bert_keras.model.lora import plain_weights
from bert_keras.models.model_folder import config_of, write_sentence_files
from bert_keras.models.task_model import TaskModel
from bert_keras.reading.text_vector import PROMPT_LENGTHS
from bert_keras.reading.windows import WINDOW_LOGITS
from bert_keras.runs.notes import collected, notes_so_far, say
from bert_keras.settings import MAX_DROP, check_choice
from bert_keras.tasks.protocols import input_specs, texts_of
from bert_keras.text.token_ids import TOKENIZER_JSON
from bert_keras.text.tokenizer_files import write_tokenizer_json

_MOST_CALIBRATED = 300  # texts; NNCF's own default
# Batches that are timed, their texts, and how often: less often after some seconds.
_TIMED, _TIMED_TEXTS, _ROUNDS, _SECONDS = 3, 8, 3, 10.0
_WORDS = "the meeting is on monday at noon and lunch follows for all".split()
_FILES = all_files() | DESCRIPTION | {ANSWERS, CARD}


class Exported(NamedTuple):
    """What `export_to_engine` returns.

    `scores` maps the precision, `float32` or `int8`, to the scores on the labelled
    rows; empty if nothing was scored. `notes` are the lines on the export, such as the
    time that int8 takes.
    """

    folder: Path
    scores: dict[str, dict[str, Any]]
    notes: tuple[str, ...] = ()


@collected()
def export_to_engine(
    model: TaskModel,
    output: str | os.PathLike[str],
    *,
    format: str,
    int8: bool = False,
    int8_only: bool = False,
    calibration: Columns | None = None,
    dev: Columns | None = None,
    max_drop: float = 0.01,
    seen: Callable[[str, dict[str, Any]], object] | None = None,
) -> Exported:
    """Write a trained model as a folder for an engine.

    Args:
        model: a task model in float32, with its preprocessor.
        output: the folder; an existing one of this kind is replaced once everything is
            written.
        format: `openvino`, `onnx` or `litert`.
        int8: whether weights and products are in int8, for OpenVINO and ONNX. A line
            tells the processor time of both files on this machine.
        int8_only: whether the float32 file is left out of the folder.
        calibration: rows from whose texts OpenVINO determines the ranges of the
            activations; 300 of them are used.
        dev: labelled rows that are scored in float32 and in int8. If the score falls
            too far for ONNX, the second products of the feed-forward networks stay in
            float32.
        max_drop: how much lower the task's `best_score` may be in int8, as a share of
            its scale, which is 100 for question answering and otherwise 1.
        seen: called with `float32` or `int8` and its scores.

    Raises:
        ConfigError: a setting is wrong, a package is missing, engines cannot run the
            task, or their tokenizer does not give the model's ids.
        BertKerasError: the score falls by more than `max_drop`, or the exporter fails;
            nothing is written.
        CheckpointError: the folder holds something else, or cannot be written.
    """
    check_choice("format", format, FILES)
    MAX_DROP.check(max_drop)
    check_convertible(model.task)
    if int8_only and not int8:
        raise ConfigError("`int8_only` needs `int8`; received True without it")
    if int8:
        check_int8(format)
        if format == "openvino" and not (calibration and len(calibration)):
            raise ConfigError(
                "`calibration` must hold texts for int8 with openvino; received none"
            )
    scores: dict[str, dict[str, Any]] = {}
    with replaced_folder(
        output, files=_FILES, needed=ANSWERS, kind="a model for an engine"
    ) as new:
        write_readme(output, new, card=False)  # keeps what a user has written
        path, graph = write_model_file(model, new, format)
        typical = dev if calibration is None else calibration
        answers = None
        if format in ANSWER_FILES:
            answers = _write_answers(model, path, new, format, typical)
        if int8:
            exact = EngineModel(
                model.task, model.preprocessor, session_of(path, format)
            )
            batches: list[dict[str, np.ndarray]] = []
            if format == "openvino" and calibration is not None:
                texts = _some(texts_of(model.task, calibration), _MOST_CALIBRATED)
                # One at a time, without padding.
                batches = _recorded(exact, texts, batch_size=1)[:_MOST_CALIBRATED]
            small_path = new / INT8_FILES[format]
            best = model.task.best_score
            allowed = max_drop * (model.task.most_score or 1.0)
            if dev is not None:
                scores["float32"] = _score(exact, dev)
                if seen is not None:
                    seen("float32", scores["float32"])
            for is_careful in (False, True):
                write_int8(path, small_path, format, batches, is_careful=is_careful)
                session = session_of(small_path, format)
                small = EngineModel(model.task, model.preprocessor, session)
                if dev is None:
                    break
                scores["int8"] = _score(small, dev)
                if format != "onnx" or _drop(best, scores) <= allowed or is_careful:
                    break
                say(
                    f"with all products in int8, {best} would fall by "
                    f"{_drop(best, scores):.4f}: the second ones of the feed-forward "
                    "networks stay in float32"
                )
            _tell_times(exact, small, _typical_texts(model, typical))
            if dev is not None:
                if seen is not None:
                    seen("int8", scores["int8"])
                _check_drop(best, scores, allowed)
            if int8_only:
                for file in (path, path.with_suffix(".bin")):
                    file.unlink(missing_ok=True)
        precision = "int8" if int8 else "float32"
        _describe(model, graph, new, format, precision, answers)
    return Exported(Path(output), scores, notes_so_far())


def _write_answers(
    model: TaskModel, path: Path, folder: Path, kind: str, rows: Columns | None
) -> dict[str, Any]:
    """Write the graph of the answers; return the entry of `answers.json` about it.

    A line tells if the folder needs TensorFlow for its answers.

    Raises:
        ConfigError: the engine's tokenizer does not give the model's ids.
    """
    try:
        session = session_of(path, kind)
        texts = _typical_texts(model, rows) if model.task.reads_by_reader else None
        _, facts = light_engine(model, session, folder, kind, texts)
        return {"model": ANSWER_FILES[kind], **facts}
    except OtherIds as error:
        raise ConfigError(
            f"`format` must be saved_model for this model, not {kind}: {error}"
        ) from None
    except NeedsTensorFlow as error:
        for name in (ANSWER_FILES[kind], ANSWER_FILES[kind].replace(".xml", ".bin")):
            (folder / name).unlink(missing_ok=True)
        say(f"ids and answers of this export need TensorFlow: {error}")
        return {"reason": str(error)}


def _score(model: EngineModel, rows: Columns) -> dict[str, Any]:
    return model.task.score(rows, Predictor(model).answers(rows))


def _drop(name: str, scores: Mapping[str, Mapping[str, Any]]) -> float:
    return float(scores["float32"][name]) - float(scores["int8"][name])


def _check_drop(
    name: str, scores: Mapping[str, Mapping[str, Any]], allowed: float
) -> None:
    if not _drop(name, scores) <= allowed:
        before, after = (float(scores[each][name]) for each in ("float32", "int8"))
        raise BertKerasError(
            f"{name} falls from {before:.4f} to {after:.4f} in int8, by more than "
            f"`max_drop` allows ({allowed:g}): nothing is written"
        )


def _some(texts: Sequence[Sequence[Any]], most: int) -> tuple[list[Any], ...]:
    """Return at most this many texts of each role, evenly spaced."""
    count = len(texts[0])
    return tuple(
        [part[row] for row in range(0, count, -(-count // most))] for part in texts
    )


def _recorded(
    model: EngineModel, texts: tuple[list[Any], ...], *, batch_size: int
) -> list[dict[str, np.ndarray]]:
    """Return what the session of a model is given for texts of each role."""
    recorded = _Recorded(model.session)
    predictor = Predictor(EngineModel(model.task, model.preprocessor, recorded))
    for _ in predictor.stream(texts, batch_size=batch_size):
        pass
    return recorded.inputs


def _typical_texts(model: TaskModel, rows: Columns | None) -> tuple[list[Any], ...]:
    """Return a few texts of each role: of rows, or some of 5 to 60 words."""
    count = _TIMED * _TIMED_TEXTS
    if rows is not None and len(rows):
        return _some(texts_of(model.task, rows), count)
    texts = [" ".join((_WORDS * 5)[: 5 + 55 * row // count]) for row in range(count)]
    specs = next(iter(input_specs(model.task).values()))
    return tuple(
        texts if spec.shape.rank == 1 else [text.split() for text in texts]
        for spec in specs
    )


def _tell_times(
    exact: EngineModel, small: EngineModel, texts: tuple[list[Any], ...]
) -> None:
    """Tell the processor time of both models for some texts, measured in turns."""
    batches = _recorded(exact, texts, batch_size=_TIMED_TEXTS)[:_TIMED]
    spent: dict[int, list[float]] = {0: [], 1: []}
    started = time.perf_counter()
    for number in range(1 + _ROUNDS):  # the first one prepares
        if number > 1 and time.perf_counter() - started > _SECONDS:
            break
        for place, model in enumerate((exact, small)):
            before = time.process_time()
            for batch in batches:
                model.session.run(batch)
            if number:
                spent[place].append(time.process_time() - before)
    float32, int8 = min(spent[0]), min(spent[1])
    rows = max(sum(len(next(iter(batch.values()))) for batch in batches), 1)
    line = (
        f"int8 takes {int8 / max(float32, 1e-9):.2f} times the processor time of "
        f"float32 on this machine: {1000 * int8 / rows:.1f} and "
        f"{1000 * float32 / rows:.1f} ms a text"
    )
    say(line if int8 <= float32 else f"{line}; float32 is faster here")


class _Recorded(Session):
    """A session that keeps what it is given."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.inputs: list[dict[str, np.ndarray]] = []
        self.specs = session.specs  # type: ignore[method-assign]

    def run(self, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        self.inputs.append({name: np.array(each) for name, each in inputs.items()})
        return self._session.run(inputs)


def _describe(
    model: TaskModel,
    graph: EngineGraph,
    folder: Path,
    kind: str,
    precision: str,
    answers: Mapping[str, Any] | None,
) -> None:
    """Write the files of the tokenizer, and `answers.json`."""
    task, preprocessor = model.task, model.preprocessor
    length, meanings = preprocessor.max_length, {**_MEANINGS, **task.needs.meanings}
    others = {
        "engine": kind,
        "model": (INT8_FILES if precision == "int8" else FILES)[kind],
        "precision": precision,
        "max_length": length,
        "vocabulary": "vocab.txt",
        "tokenizer": TOKENIZER_JSON,
        "inputs": [_spec(name, each, meanings) for name, each in graph.specs().items()],
        "outputs": [
            _spec(name, each, meanings)
            for name, each in graph.outputs_by_name().items()
        ],
        "answer": task.recipe(),
    }
    if answers is not None:
        others["answers"] = answers
    if model.task.reads_windows:
        others["windows"] = model.task.reader.window_recipe(length)
    write_description(model, folder, others)  # removes an older tokenizer.json
    config = json_text(config_of(model), indent=2)
    (folder / CONFIG).write_text(f"{config}\n", encoding="utf-8")
    if not task.head_codec.modules(task):  # the graph holds the whole head
        write_sentence_files(model, folder, plain_weights(model, model.backbone))
    write_tokenizer_json(
        folder,
        preprocessor.tokenizer.get_config(),
        max_length=length,
        read_tokens=task.needs.read_tokens,
    )


_MEANINGS = {
    "input_ids": "ids of the tokens, with [CLS] and [SEP], padded with the id of [PAD]",
    "token_type_ids": "0 for the first text, 1 for the second one of a pair",
    "attention_mask": "1 for a token, 0 for padding",
    WINDOW_STARTS: "each row is a window of a text: 1 for the first one of a text, 0 "
    "for its others, which follow it",
    WINDOW_LOGITS: "the part of each window in the logits of its text, without bias",
    PROMPT_LENGTHS: "tokens of the prompt before the text, with [CLS]; 0 without one",
}


def _spec(name: str, tensor: Any, meanings: Mapping[str, str]) -> dict[str, Any]:
    found = {
        "name": name,
        "dtype": str(tensor.dtype),
        "shape": [None, *tensor.shape[1:]],
    }
    if name in meanings:
        found["meaning"] = meanings[name]
    return found
