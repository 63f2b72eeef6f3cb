"""How a worker of Apache Beam answers: `PartHandler`, for Beam's `RunInference`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from apache_beam.ml.inference.base import ModelHandler

from bert_keras.errors import BertKerasError
from bert_keras.files import filesystems
from bert_keras.files.json_file import json_text
from bert_keras.inference.answered_rows import Row, answered
from bert_keras.inference.predictor import Predictor
from bert_keras.runs.beam import mistake_of
from bert_keras.text.truncation import Truncation


def rows_name(work: str, number: int) -> str:
    """Return the file of the rows of a part: a JSON list for each, see `packed`."""
    return f"{work}/rows-{number:06d}"


def answers_name(work: str, number: int) -> str:
    """Return the file of the answers of a part, JSON.

    The first line is an object with `truncation` or `mistake`; the others are the rows.
    """
    return f"{work}/answers-{number:06d}"


def packed(row: Row) -> list[Any]:
    """Return a row as JSON values, which do not know tuples."""
    return [*row, isinstance(row.item, tuple)]


class PartHandler(ModelHandler):
    """Answers parts of a file, by their numbers, one after the other.

    Args:
        load: returns the predictor, once in each process of a worker.
        work: the folder of the run.
        batch_size, max_batch_tokens: as in `Predictor.predict`.
        redact: as in `answered`.
    """

    def __init__(
        self,
        load: Callable[[], Predictor],
        work: str,
        batch_size: int,
        max_batch_tokens: int | None,
        redact: Sequence[str] | None = None,
    ) -> None:
        # A part is many batches of texts.
        super().__init__(min_batch_size=1, max_batch_size=1)
        self._load, self._work = load, work
        self._batch_size, self._max_batch_tokens = batch_size, max_batch_tokens
        self._redact = redact

    def load_model(self) -> Predictor:
        return self._load()

    def run_inference(
        self,
        batch: Sequence[int],
        model: Predictor,
        inference_args: dict[str, Any] | None = None,
    ) -> Iterator[int]:
        """Write the answers of parts; yield their numbers."""
        for number in batch:
            lines = [json_text(line) for line in self._answered(number, model)]
            text = "\n".join((*lines, ""))
            filesystems.write(answers_name(self._work, number), text.encode())
            yield number

    def _answered(self, number: int, model: Predictor) -> list[dict[str, Any]]:
        data = filesystems.read(rows_name(self._work, number)) or b""
        rows = []
        for line in data.splitlines():
            *row, is_tuple = json.loads(line)
            found = Row(*row)
            rows.append(found._replace(item=tuple(found.item)) if is_tuple else found)
        truncation = Truncation()
        try:
            answers = answered(
                model,
                rows,
                batch_size=self._batch_size,
                max_batch_tokens=self._max_batch_tokens,
                truncation=truncation,
                redact=self._redact,
            )
        except BertKerasError as error:
            return [{"mistake": mistake_of(error)}]
        return [{"truncation": dataclasses.asdict(truncation)}, *answers]
