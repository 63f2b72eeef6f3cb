"""Answers on Apache Spark: `predict_udf`. Needs `pip install 'bert_keras[spark]'`."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from typing import Any

from bert_keras.errors import ConfigError, needs, shown


def predict_udf(
    model: str | os.PathLike[str],
    *,
    schema: str = "string",
    batch_size: int = 32,
    precision: str = "float32",
    engine: str | None = None,
) -> Any:
    """Return a pandas UDF that answers the rows of a Spark DataFrame.

    It takes a string column for each text of a row: one, or two for pairs. An answer is
    as `Predictor.predict` returns it; a row with a null has the answer null. Each
    Python worker loads the model once.

    Args:
        model: a model folder, a SavedModel or an export for an engine, at a path that
            all workers can read; a worker's threads all read texts and compute, so give
            a Python worker several cores (`spark.task.cpus`).
        schema: the type of an answer: `string`, a JSON object; or fields of the
            answer as Spark's DDL, such as `label string, score double`.
        batch_size, precision, engine: as in `predict` and `load_predictor`.

    Raises:
        ConfigError: pyspark is missing, the model is missing here, or the schema is
            wrong or names a field that the model's answers lack (when the answers are
            computed).

    Example:
        >>> answered = frame.withColumn("answer", predict_udf("models/mine")("text"))
    """
    with needs("`predict_udf`", extra="spark"):
        import pandas
        from pyspark.sql.functions import pandas_udf
    place = os.fspath(model)
    if not os.path.isdir(place):
        raise ConfigError(f"`model` must be a folder; received {place!r}")
    fields = _fields(schema)

    # Without annotations, whose names a worker would look up; Spark takes the types.
    def predict(batches):  # type: ignore[no-untyped-def]
        predictor = _predictor(os.path.abspath(place), precision, engine)
        for batch in batches:
            # Spark passes a single column without a tuple.
            batch = batch if isinstance(batch, tuple) else (batch,)
            yield _answered(pandas, predictor, batch, fields, batch_size)

    returned = Iterator[pandas.Series] if fields is None else Iterator[pandas.DataFrame]
    predict.__annotations__ = {
        "batches": Iterator[tuple[pandas.Series, ...]],
        "return": returned,
    }
    return pandas_udf(predict, returnType=schema)


def _fields(schema: str) -> Any:
    """Return the fields of a schema, a `StructType`; `None` for a string."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StringType, StructType

    try:
        found = StructType.fromDDL(schema)
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"`schema`: {reason}; received {shown(schema)}") from None
    if isinstance(found, StringType):
        return None
    if isinstance(found, StructType) and found.names:
        return found
    raise ConfigError(
        "`schema` must be string, or fields such as label string, score double; "
        f"received {shown(schema)}"
    )


def _check_fields(fields: Any, answer: dict[str, Any], place: str) -> None:
    """Raise a ConfigError if an answer lacks a field; it may have fields of its own."""
    for field in fields:
        if field.name not in answer:
            raise ConfigError(
                f"`schema` must name fields of {place}, {', '.join(answer)}; "
                f"received {field.name}"
            )
        inner = answer[field.name]
        if hasattr(field.dataType, "fields") and isinstance(inner, dict):
            _check_fields(field.dataType, inner, f"`{field.name}`")


@functools.cache
def _predictor(place: str, precision: str, engine: str | None) -> Any:
    """Return a predictor, which stays in the worker for its later partitions."""
    from bert_keras.inference.predictor import load_predictor

    return load_predictor(place, precision=precision, engine=engine)


def _answered(
    pandas: Any, predictor: Any, batch: tuple[Any, ...], fields: Any, batch_size: int
) -> Any:
    """Return the answers to a batch, one Series of texts for each role."""
    rows = list(zip(*batch, strict=True))
    whole = [i for i, row in enumerate(rows) if all(text is not None for text in row)]
    texts = [rows[i] if len(batch) > 1 else rows[i][0] for i in whole]
    answers: list[Any] = [None] * len(rows)
    found = predictor.predict(texts, batch_size=batch_size) if texts else []
    for place, answer in zip(whole, found, strict=True):
        answers[place] = answer
    if fields is None:
        lines = [
            None if each is None else json.dumps(each, ensure_ascii=False)
            for each in answers
        ]
        return pandas.Series(lines, dtype=object)
    if found:  # the answers of a model all have the same fields
        _check_fields(fields, found[0], "the answers")
    empty = dict.fromkeys(fields.names)
    kept = [{f: (each or empty)[f] for f in fields.names} for each in answers]
    return pandas.DataFrame(kept, columns=fields.names)
