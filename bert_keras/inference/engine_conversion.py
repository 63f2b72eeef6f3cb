"""A task model in an engine, and the graph of its answers: `engine_model`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bert_keras.answering.answering import Parts
from bert_keras.exports.answers_graph import (
    NeedsTensorFlow,
    answers_function,
    write_answers_graph,
)
from bert_keras.exports.engine_files import ANSWER_FILES
from bert_keras.exports.model_file import write_model_file
from bert_keras.inference.engine import AnswerSession, EngineModel
from bert_keras.inference.equality import check_equal
from bert_keras.inference.session import (
    Session,
    check_engine,
    check_installed,
    session_of,
)
from bert_keras.models.task_model import TaskModel
from bert_keras.reading.token_rows import TokenRows
from bert_keras.text.token_ids import TokenIds
from bert_keras.text.tokenizer_files import write_tokenizer_json


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
        try:
            found, _ = light_engine(model, session, Path(folder), engine)
        except NeedsTensorFlow:
            return EngineModel(model.task, model.preprocessor, session)
    return found


def light_engine(
    model: TaskModel,
    session: Session,
    folder: Path,
    engine: str,
    texts: Parts | None = None,
) -> tuple[EngineModel, dict[str, Any]]:
    """Return a task model in an engine that answers without TensorFlow.

    Writes the graph of the answers into the folder. Returns also what
    `write_answers_graph` returns.

    Args:
        model: the task model.
        session: its model file in the engine.
        folder: an export that is written.
        engine: `openvino` or `onnx`.
        texts: texts of each role whose ids and answers must be equal to those of
            TensorFlow, besides some of all kinds of characters.

    Raises:
        NeedsTensorFlow: they are not, or the answers cannot be computed so.
    """
    outputs = {spec.name: spec for spec in session.specs()[1]}
    function = answers_function(model.task, outputs)
    path = folder / ANSWER_FILES[engine]
    facts = write_answers_graph(function, path, engine)
    preprocessor = model.preprocessor
    with tempfile.TemporaryDirectory(prefix="bert-keras-") as place:
        # In the folder it would be taken for a tokenizer of another program's.
        write_tokenizer_json(
            place,
            preprocessor.tokenizer.get_config(),
            max_length=preprocessor.max_length,
            read_tokens=model.task.needs.read_tokens,
        )
        tokenizer = TokenIds(Path(place))
    rows = TokenRows(tokenizer, preprocessor.max_length, preprocessor.truncation)
    answers = AnswerSession(session_of(path, engine, threads=1), facts, model.task)
    found = EngineModel(
        model.task, rows, session, answers=answers, in_graph=lambda: model.preprocessor
    )
    facts |= check_equal(found, model, function, texts)
    return found, facts
