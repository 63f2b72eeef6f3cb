"""Summarization: windows of whole sentences, targets and scores by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.checkpoints import read_checkpoint
from bert_keras.data.table import as_columns
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.model_folder import save_model
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.base import replaced
from bert_keras.tasks.hugging_face import from_model_config
from bert_keras.tasks.summarization import Summarization, sentence_windows

LONG = " ".join(f"{word} at {word}." for word in ("win", "cash", "lunch", "sale") * 3)
DOCUMENTS = ["you win. free cash now! see you", "", LONG, "half off " * 40 + ". lunch."]


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Any]) -> Any:
    return make_model(Summarization(max_sentences=2))


def test_windows_hold_whole_sentences(model: Any) -> None:
    tokenizer = model.preprocessor.tokenizer
    padded = model.preprocessor.replace(layout="padded", max_length=14)
    sentences = [["you win.", "see you", "lunch"], [""], ["a", "sale " * 30, "b"]]
    batch = sentence_windows(padded, tf.ragged.constant(sentences))
    rows = [
        " ".join(token for token in row if token != "[PAD]")
        for row in tokenizer.ids_to_tokens(batch["token_ids"]).numpy().astype(str)
    ]
    assert rows == [
        "[CLS] you win . [SEP] [CLS] see you [SEP] [CLS] lunch [SEP]",
        "[CLS] [SEP]",
        "[CLS] a [SEP]",
        "[CLS] " + "sale " * 12 + "[SEP]",
        "[CLS] b [SEP]",
    ]
    assert batch["segment_ids"][0].numpy().tolist()[:12] == [0] * 5 + [1] * 4 + [0] * 3
    assert not batch["segment_ids"][1:].numpy().any()
    numbers = batch["numbers"].numpy()
    assert numbers.tolist() == [[0, 1, 2], *([n, -1, -1] for n in (3, 4, 5, 6))]
    positions = batch["sentence_positions"].numpy()
    assert positions.tolist() == [[0, 5, 9], *[[0, -1, -1]] * 4]
    at = np.maximum(positions, 0)
    found = np.take_along_axis(batch["token_ids"].numpy(), at, axis=1)
    assert (found == tokenizer.cls_id).all()


def test_programs_that_give_ids_are_told_what_to_give(model: Any) -> None:
    task = model.task
    meanings = task.needs.meanings
    assert "1 for the second one, 0 for the third" in meanings["token_type_ids"]
    assert "padded with -1" in meanings["sentence_positions"]
    recipe = replaced(task, trigram_blocking=True).recipe()
    assert recipe["trigram_blocking"] is True
    named = ("sentence_positions", "max_sentences", "trigram_blocking")
    assert all(name in recipe["meaning"] for name in named)


def test_a_window_is_filled_to_the_last_token(model: Any) -> None:
    padded = model.preprocessor.replace(layout="padded", max_length=6)
    batch = sentence_windows(padded, tf.ragged.constant([["win", "at", "win at"]]))
    assert batch["padding_mask"].numpy().sum(axis=1).tolist() == [6, 4]


def test_a_long_document_is_scored_window_by_window(model: Any) -> None:
    every = Summarization(max_sentences=20)
    features = every.features(model.preprocessor, [LONG])
    whole = every.answer(model(features), features)
    assert len(rows_of({k: v.numpy() for k, v in whole.items()})[0]["sentences"]) == 12
    # Of 5 tokens each, four sentences make a window of at most 24.
    for start in (0, 4, 8):
        part = whole["sentences"][0, start : start + 4].numpy()
        features = every.features(model.preprocessor, [b" ".join(part)])
        alone = every.answer(model(features), features)
        np.testing.assert_allclose(
            alone["scores"][0, :4], whole["scores"][0, start : start + 4], atol=1e-5
        )


def test_answers_are_parts_of_the_document(model: Any) -> None:
    answers = {k: v.numpy() for k, v in model.answer(DOCUMENTS).items()}
    assert {k: v.shape for k, v in answers.items()} == {
        "summary": (4,),
        **dict.fromkeys(("sentences", "starts", "ends", "scores"), (4, 2)),
    }
    rows = rows_of(answers)
    for document, row in zip(DOCUMENTS, rows, strict=True):
        texts = [part["text"] for part in row["sentences"]]
        assert row["summary"] == " ".join(texts)
        spans = [(part["start"], part["end"]) for part in row["sentences"]]
        assert [document[a:b] for a, b in spans] == texts
        assert spans == sorted(spans)
    assert [len(row["sentences"]) for row in rows] == [2, 0, 2, 2]
    assert answers["starts"][1].tolist() == [-1, -1]


def test_keras_predicts_from_raw_documents(model: Any) -> None:
    documents = tf.constant(DOCUMENTS)
    found = model.predict(documents, batch_size=4, verbose=0)
    batch = model.task.features(model.preprocessor, documents)
    np.testing.assert_allclose(found, model(batch), atol=1e-5)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_targets_and_weights_are_at_the_cls_tokens(model: Any, layout: str) -> None:
    preprocessor = model.preprocessor.replace(layout=layout, max_length=8)
    documents = ["you win. see you. lunch", "sale", "a. b"]
    targets = np.array([[0, 1, 1], [1, -1, -1], [0, 1, -1]], "int32")
    batch, wanted, weights = model.task.examples(
        preprocessor, documents, targets, tf.constant([1.0, 0.5, 2.0])
    )
    numbers = sentence_windows(
        preprocessor,
        tf.ragged.constant([["you win.", "see you.", "lunch"], ["sale"], ["a.", "b"]]),
    )["numbers"].numpy()
    at = np.argsort(numbers[numbers >= 0])
    assert wanted.shape == (*weights.shape, 1)
    assert wanted.numpy()[numbers >= 0][at, 0].tolist() == [0, 1, 1, 1, 0, 1]
    assert weights.numpy()[numbers >= 0][at].tolist() == [1, 1, 1, 0.5, 2, 2]
    assert not weights.numpy()[numbers < 0].any()
    assert set(batch) <= {*model.task.needs.keras_inputs(), "cls_positions"}


def test_targets_and_scores_by_hand() -> None:
    columns = as_columns(
        document=["A cat. Two dogs ran. Nothing else.", "One. Two dogs. Three men."],
        summary=["Two dogs ran.", "Three men. One!"],
    )
    task = Summarization(max_sentences=2, stemmer="none")
    assert task.targets(columns).tolist() == [[0, 1, 0], [1, 0, 1]]
    answers = {
        "sentences": np.array([[b"A cat.", b""], [b"One.", b"Three men."]], object)
    }
    scores = task.score(columns, answers)
    assert scores["num_examples"] == 2
    assert scores["rouge1"] == pytest.approx((0 + 1) / 2)
    assert scores["rougeL"] == pytest.approx((0 + 2 / 3) / 2)
    assert scores["rougeLsum"] == pytest.approx((0 + 1) / 2)
    # Lead: 3 of 5 words are right and all 3 found; then 1 of 3, of 3.
    lead = scores["baselines"]["lead_2"]
    assert lead["rouge1"] == pytest.approx((6 / 8 + 2 / 6) / 2)
    assert scores["baselines"]["oracle"]["rouge1"] == 1
    (mistake,) = task.mistakes(columns, answers)
    assert (mistake["line"], mistake["prediction"]) == (1, "A cat.")
    assert mistake["rougeLsum"] == 0


def test_lengths_are_those_of_all_windows(model: Any) -> None:
    tokens, cut = model.task.lengths(model.preprocessor, tf.constant(DOCUMENTS))
    assert tokens.numpy().tolist() == [5 + 6 + 4, 2, 12 * 6, 24 + 4]
    assert cut.numpy().tolist() == [0, 0, 0, 59]


def test_an_encoder_leaves_a_head_that_it_does_not_know(
    model: Any, tmp_path: Path
) -> None:
    folder = save_model(model, tmp_path / "model")
    assert "summarizer/kernel" in read_checkpoint(folder).shapes
    encoder = BertEncoder.from_pretrained(str(folder))
    for weight, of_model in zip(encoder.weights, model.backbone.weights, strict=True):
        np.testing.assert_array_equal(weight, of_model)


def test_bad_settings_and_rows_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(lambda: Summarization(max_sentences=0), "`max_sentences`", "received 0")
    refused(lambda: Summarization(trigram_blocking="yes"), "true or false", "'yes'")
    refused(lambda: Summarization(stemmer="x"), "`stemmer`", "'x'")
    columns = as_columns(document=["?!", "A."], summary=["B", "..."])
    message = refused(lambda: Summarization().targets(columns), "`document`", "'?!'")
    assert "`summary`" in message or "2 " in message
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)
    refused(lambda: Summarization().targets(columns), "[summarization]")


def test_other_folders_are_not_opened_as_summarizers() -> None:
    config = {"architectures": ["BertModel"]}
    assert not Summarization.head_codec.reads(config)
    line = "has no settings of the task summarization"
    refused(lambda: from_model_config(Summarization, config), line)
