"""Answers on Apache Beam, for files that one machine does not finish.

`run_beam_predictions` writes the answers of `predict --input`, by the same code, on any
runner and any number of workers:

1. this process reads the rows, and writes them in parts to a folder beside the output,
2. workers answer the parts, each with a model of its own (Beam's `RunInference`),
3. this process joins the answers, in the order of the rows.

A part holds the rows that `predict` answers together, so that the digits are the same.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bert_keras.data.row_source import RowSource
from bert_keras.errors import DataError
from bert_keras.files import filesystems
from bert_keras.files.answer_file import answers_to, check_answer_file
from bert_keras.inference.answered_rows import (
    BATCHES_TOGETHER,
    BlankTexts,
    Given,
    check_redacts,
    read_rows,
)
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.runs.beam import pipeline_of, raise_mistake, run_pipeline
from bert_keras.runs.notes import say
from bert_keras.settings import check_whole_number
from bert_keras.text.truncation import Truncation


def run_beam_predictions(
    model: str | os.PathLike[str] | Callable[[], Predictor],
    source: str,
    output: str,
    *,
    columns: Mapping[str, str] | None = None,
    header: str = "auto",
    on_empty: str = "null",
    batch_size: int = 32,
    max_batch_tokens: int | None = None,
    precision: str = "float32",
    engine: str | None = None,
    redact: Sequence[str] | None = None,
    pipeline_args: Sequence[str] = (),
) -> int:
    """Answer the rows of a file on Apache Beam; return their number.

    The output has the bytes that `predict --input` writes with the same libraries and
    processors.

    Args:
        model: a model folder or what `export` wrote, at a path that all workers can
            read; or a function, which Beam sends to them, that returns a predictor.
        source: a file of rows, see `Task.read`; it may be of a file system of fsspec,
            such as `gs://bucket/rows.parquet`.
        output: a file that ends in `.jsonl`, `.csv` or `.parquet`; all workers must
            see its folder, or it is of a file system of fsspec.
        columns, header: as in `Task.read`.
        on_empty: what a row with an empty text gets: `null`, or an `error` ends the
            run.
        batch_size, max_batch_tokens: as in `Predictor.predict`.
        precision, engine: as in `load_predictor`.
        redact: the types of the entities that are replaced in the texts, see
            `Predictor.redact`; empty: all. `None`: the texts stay as they are.
        pipeline_args: Beam's own flags, such as `--runner=FlinkRunner`. Workers need
            bert_keras: `--requirements_file`, `--sdk_container_image` and the like
            install it there.

    Raises:
        ConfigError: an argument or a flag is wrong; Beam is missing.
        CheckpointError: the model is missing or broken.
        DataError: the file is broken; the pipeline failed, or its runner cannot be
            reached.

    Example:
        >>> run_beam_predictions(
        ...     "models/mine",
        ...     "mail.parquet",
        ...     "answers.parquet",
        ...     pipeline_args=["--direct_num_workers=2"],
        ... )
        120000
    """
    check_answer_file(output, {"model": model, "input": source})
    check_whole_number("batch_size", batch_size, least=1)
    pipeline = pipeline_of(pipeline_args)
    if callable(model):
        load = model
    else:
        place = os.fspath(model)
        place = os.path.abspath(place) if os.path.exists(place) else place
        load = functools.partial(
            load_predictor, place, precision=precision, engine=engine
        )
    predictor = load()
    if redact is not None:
        check_redacts(predictor, redact)
    task = predictor.model.task
    blank = BlankTexts(task, on_empty, source)
    bad_rows = "keep" if on_empty == "null" else "error"
    given = read_rows(task, RowSource(source, columns or {}, header, bad_rows))
    truncation = Truncation()
    limits = (batch_size, max_batch_tokens)
    with _folder_beside(output) as work:
        parts = _write_parts(work, given, blank, BATCHES_TOGETHER * batch_size)
        if parts:
            _answer_parts(pipeline, work, parts, load, limits, redact, output)
        with answers_to(output) as write:
            for row in _joined(work, parts, truncation):
                write(row)
    blank.report()
    for line in predictor.truncated(truncation):
        say(line)
    return blank.seen


@contextlib.contextmanager
def _folder_beside(output: str) -> Iterator[str]:
    """Yield the name of a new folder beside a file; it is removed at the end."""
    path = output if filesystems.is_remote(output) else os.path.realpath(output)
    folder, _, name = path.rpartition("/")
    work = f"{folder}/.{name}-{uuid.uuid4().hex}.unfinished"
    try:
        yield work
    finally:
        filesystems.remove_folder(work)


def _write_parts(
    work: str,
    given: Iterator[Given],
    blank: BlankTexts,
    rows_of_a_part: int,
) -> int:
    """Write the rows in parts; return their number."""
    from bert_keras.inference.beam_handler import packed, rows_name

    for part in itertools.count():
        rows = blank.rows(itertools.islice(given, rows_of_a_part))
        if not rows:
            return part
        lines = [f"{json.dumps(packed(row))}\n" for row in rows]
        filesystems.write(rows_name(work, part), "".join(lines).encode())
    return 0


def _answer_parts(
    pipeline: Any,
    work: str,
    parts: int,
    load: Callable[[], Predictor],
    limits: tuple[int, int | None],
    redact: Sequence[str] | None,
    output: str,
) -> None:
    """Run the pipeline to completion."""
    import apache_beam as beam
    from apache_beam.ml.inference.base import RunInference

    from bert_keras.inference.beam_handler import PartHandler

    _ = (
        pipeline
        | "Parts" >> beam.Create(range(parts))
        | "Spread" >> beam.Reshuffle()
        | "Answer" >> RunInference(PartHandler(load, work, *limits, redact))
    )
    run_pipeline(pipeline, "the pipeline failed", output)


def _joined(work: str, parts: int, truncation: Truncation) -> Iterator[dict[str, Any]]:
    """Yield the answers in order; count the truncated texts.

    Raises:
        BertKerasError: a worker passed on a mistake.
    """
    from bert_keras.inference.beam_handler import answers_name

    for part in range(parts):
        data = filesystems.read(answers_name(work, part))
        if data is None:
            raise DataError("the pipeline ended before its work was done", path=work)
        head, *rows = map(json.loads, data.decode().splitlines())
        if "mistake" in head:
            raise_mistake(head["mistake"])
        truncation.merge(head["truncation"])
        yield from rows
