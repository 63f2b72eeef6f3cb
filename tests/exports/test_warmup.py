"""Files that a server reads with the graph: warm-up requests, batching parameters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from conftest import VOCABULARY, refused
from server_messages import parsed

from bert_keras.exports.saved_model import export_model
from bert_keras.exports.saved_model_folder import EXTRA
from bert_keras.exports.warmup import (
    BATCHING,
    MAX_BATCH_SIZE,
    WARMUP,
    prediction_log,
    warmup_requests,
    whole_words,
    write_batching,
    write_warmup,
)
from bert_keras.tasks.classification import Classification

TEXT = {"serving_default": (tf.TensorSpec([None], tf.string, name="text"),)}
CHOICES = {
    "serving_default": (
        tf.TensorSpec([None], tf.string, name="context"),
        tf.TensorSpec([None, None], tf.string, name="choices"),
    )
}
WORDS = {"words": (tf.TensorSpec([None, None], tf.string, name="words"),)}
IDS = {"ids": (tf.TensorSpec([None, None], tf.int32, name="token_ids"),)}


def requests(signatures: Any, *, max_length: int = 24) -> list[Any]:
    return list(
        warmup_requests(signatures, words=["win", "cash"], max_length=max_length)
    )


def test_requests_differ_in_count_and_length() -> None:
    texts = [inputs["text"].numpy() for _, inputs in requests(TEXT)]
    assert sorted({len(each) for each in texts}) == [1, 2, 4, 8, 32]
    words = sorted({each[0].count(b"win") + each[0].count(b"cash") for each in texts})
    assert words == [8, 12, 24]


def test_a_text_ends_its_sentences_with_a_mask() -> None:
    (_, inputs), *_ = requests(TEXT, max_length=3)
    assert inputs["text"].numpy().tolist() == [b"win cash win [MASK]."]


def test_the_last_text_is_the_long_one() -> None:
    pair = {
        "a": [tf.TensorSpec([None], tf.string, name=n) for n in ("text_a", "text_b")]
    }
    longest = max(requests(pair), key=lambda each: len(each[1]["text_b"].numpy()[0]))[1]
    assert longest["text_a"].numpy()[0].count(b"win") == 4
    assert longest["text_b"].numpy()[0].count(b"win") == 12


def test_choices_are_few_and_short() -> None:
    for _, inputs in requests(CHOICES):
        assert inputs["choices"].shape == (len(inputs["context"]), 4)
        assert inputs["choices"].numpy()[0, 0].count(b"win") == 4


def test_lists_of_words_are_as_long_as_texts() -> None:
    assert {inputs["words"].shape[1] for _, inputs in requests(WORDS)} == {8, 12, 24}


def test_ids_get_no_warm_up_requests() -> None:
    assert requests(IDS) == []


def test_words_are_whole_words_of_the_vocabulary() -> None:
    assert whole_words(VOCABULARY, most=3) == ["win", "cash", "prize"]
    assert whole_words(["[PAD]", "##ab", "日"]) == ["a"]


def test_records_are_those_of_the_servers_classes() -> None:
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    log = logs.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = "serving_default"
    inputs = {
        "text_b": tf.constant(["é", "x" * 300]),
        "text_a": tf.constant(["", "日"]),
    }
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    assert prediction_log("serving_default", inputs) == log.SerializeToString(
        deterministic=True
    )


def test_the_file_holds_each_record(tmp_path: Path) -> None:
    given = requests(TEXT)
    for name in ("first", "second"):
        write_warmup(tmp_path / name, given)
    read = tf.data.TFRecordDataset(str(tmp_path / "first")).as_numpy_iterator()
    assert list(read) == [prediction_log(*each) for each in given]
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_an_export_holds_both_files(spam_export: Path) -> None:
    records = tf.data.TFRecordDataset(str(spam_export / EXTRA / WARMUP))
    assert len(list(records)) == 6
    assert (spam_export / BATCHING).is_file()


def test_batching_parameters_are_those_of_the_server(tmp_path: Path) -> None:
    write_batching(tmp_path / BATCHING, TEXT)
    found = parsed("BatchingParameters", (tmp_path / BATCHING).read_text())
    assert found.max_batch_size.value == MAX_BATCH_SIZE
    assert found.batch_timeout_micros.value == 1000
    assert not found.pad_variable_length_inputs


@pytest.mark.parametrize("signatures", [CHOICES, {**TEXT, **WORDS}])
def test_lists_of_any_length_are_not_batched(tmp_path: Path, signatures: Any) -> None:
    write_batching(tmp_path / BATCHING, signatures)
    assert not (tmp_path / BATCHING).exists()


def test_a_graph_that_fails_on_a_request_is_not_published(
    make_model: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(Classification(("a", "b")))

    def of_one(texts: Any) -> Any:
        return {"text": tf.ensure_shape(texts, [1])}

    monkeypatch.setattr(model, "answer", of_one)
    refused(lambda: export_model(model, tmp_path / "served"), "`serving_default` must")
    assert not list((tmp_path / "served").iterdir())
