"""Score a model on labelled rows: `evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_keras.data.collection import is_collection
from bert_keras.data.row_source import RowSource
from bert_keras.data.rows import ColumnNames
from bert_keras.errors import ConfigError, received
from bert_keras.inference.predictor import Predictor
from bert_keras.lazy_names import deferred
from bert_keras.runs.notes import say
from bert_keras.runs.progress import Progress
from bert_keras.training.data import labelled_rows
from bert_keras.training.findings import ALL, slices_of
from bert_keras.training.lengths import RowLengths, truncated_targets

if TYPE_CHECKING:
    from bert_keras.retrieval import evaluation as collections
else:
    (collections,) = deferred("bert_keras.retrieval.evaluation")


def evaluate(
    predictor: Predictor,
    data: Any,
    *,
    columns: ColumnNames | None = None,
    header: str = "auto",
    bad_rows: str = "error",
    slices: Sequence[str] = (),
    batch_size: int = 32,
    max_batch_tokens: int | None = None,
) -> dict[str, Any]:
    """Return the scores of a model on labelled rows.

    Args:
        predictor: the predictor of the model.
        data, columns, header, bad_rows: as in `train`. `data` may also be a collection
            that search is judged on, or its folder, see `evaluate_collection`.
        slices: columns of the rows. For each, `by COLUMN` has the best score of the
            rows with each of its values: `rows`, the score, and its 95% interval from
            `low` to `high`. If a text is longer than a row, `by length in tokens` has
            these of ranges of the lengths, and the share of `truncated` texts.
        batch_size, max_batch_tokens: as in `Predictor.predict`.

    Raises:
        ConfigError: `data` is not data.
        DataError: a label is unknown to the model; all invalid lines are counted.
    """
    if not isinstance(predictor, Predictor):
        raise ConfigError(
            f"`predictor` must be what `load_predictor` returns; {received(predictor)}"
        )
    if is_collection(data):
        if columns or slices or header != "auto" or bad_rows != "error":
            raise ConfigError(
                "`columns`, `slices`, `header` and `bad_rows` are for tables; `data` "
                "is the folder of a collection"
            )
        return collections.evaluate_collection(
            predictor, data, batch_size=batch_size, max_batch_tokens=max_batch_tokens
        )
    task = predictor.model.task
    source = RowSource(data, columns or {}, header, bad_rows)
    rows = labelled_rows(task, source, slices=slices)
    task.targets(rows)  # before the model runs
    truncation = RowLengths()
    with Progress("scoring", unit="rows", total=len(rows)) as shown:
        answers = predictor.answers(
            rows,
            batch_size=batch_size,
            max_batch_tokens=max_batch_tokens,
            seen=shown.add,
            truncation=truncation,
        )
    for line in predictor.truncated(truncation):
        say(line)
    preprocessor = predictor.model.preprocessor
    for line in truncated_targets(task, preprocessor, rows, of="targets"):
        say(line)
    more = task.further_scores(predictor.model, rows, batch_size)
    lengths = truncation.lengths(preprocessor.max_length)
    if lengths is not None and not lengths.are_longer:
        lengths = None
    parts = {}
    if slices or lengths is not None:
        parts = slices_of(task, rows, answers, lengths=lengths, names=slices)
    return {**task.score(rows, answers), **more, **_by_slice(parts)}


def _by_slice(parts: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the scores of slices by column and value, without unknown ones."""
    return {
        f"by {name}": {
            row["slice"]: {
                key: value
                for key, value in row.items()
                if key != "slice" and value is not None
            }
            for row in rows
        }
        for name, rows in parts.items()
        if name != ALL
    }
