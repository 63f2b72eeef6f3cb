"""Answers on Spark, in its local mode: those of `predict`, row by row."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.inference.predictor import load_predictor

pytest.importorskip("pyspark", reason="needs pip install 'bert_keras[spark]' and Java")

from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from bert_keras.spark import predict_udf

TEXTS = ["free cash prize", "lunch at six", None, "", "sale now", "é 日本"] * 3


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """Return a session of two Python workers, in this environment."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", False)
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", 4)
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Any:
    rows = list(enumerate(TEXTS))
    return spark.createDataFrame(rows, "id int, text string").repartition(2)


def test_answers_are_those_of_predict(spam_folder: Path, frame: Any) -> None:
    found = frame.withColumn("answer", predict_udf(spam_folder)("text")).collect()
    answers = {row["id"]: row["answer"] for row in found}
    wanted = load_predictor(spam_folder).predict([text or "" for text in TEXTS])
    for place, text in enumerate(TEXTS):
        if text is None:
            assert answers[place] is None
        else:
            answer = json.loads(answers[place])
            assert answer["label"] == wanted[place]["label"]
            assert answer["score"] == pytest.approx(wanted[place]["score"], abs=1e-5)


def test_fields_become_columns(spam_folder: Path, frame: Any) -> None:
    answer = predict_udf(spam_folder, schema="label string, score double")
    found = frame.select("text", answer("text").alias("answer")).select("answer.*")
    assert found.columns == ["label", "score"]
    assert {row["label"] for row in found.collect()} <= {"ham", "promo", "spam", None}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("stars int", "label, score.*; received stars"),
        ("probabilities struct<spam:double, eggs:double>", "ham, .*; received eggs"),
    ],
)
def test_a_field_that_no_answer_has(
    schema: str, message: str, spam_folder: Path, frame: Any
) -> None:
    answer = predict_udf(spam_folder, schema=schema)
    with pytest.raises(PythonException, match=message):
        frame.select(answer("text")).collect()


def test_schemas(spam_folder: Path, frame: Any) -> None:
    predict_udf(spam_folder, schema="STRING")
    for wrong in ("", "int", "label strin", "label:string, score:"):
        refused(lambda wrong=wrong: predict_udf(spam_folder, schema=wrong), "`schema`")


def test_no_model(tmp_path: Path) -> None:
    refused(lambda: predict_udf(tmp_path / "none"), "`model` must be a folder")
