"""`BertPretrainer` in Keras's own `fit`, its losses and metrics by hand, its config."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.model.encoder import BertEncoder
from bert_keras.model.heads import MaskedAccuracy, MaskedPerplexity
from bert_keras.model.optimizers import BertAdamW
from bert_keras.models.model_folder import save_model
from bert_keras.models.objective import TaskObjective
from bert_keras.models.task_model import TaskModel
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.pretraining.input import pretraining_dataset
from bert_keras.pretraining.loop import forward_operations
from bert_keras.pretraining.pretrainer import (
    BertPretrainer,
    new_pretrainer,
)
from bert_keras.pretraining.task import pretraining_loss, pretraining_metrics
from pretraining.test_data import TOKENIZER, write
from pretraining.test_pretrain import SIZES, STILL


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "shards"
    write(folder, masking="dynamic")
    return folder


@pytest.mark.slow
def test_fit_shows_the_losses_and_metrics_of_the_objective(data: Path) -> None:
    model = BertPretrainer(BertEncoder(STILL, seed=1), seed=2)
    model.compile(
        BertAdamW(1e-12), loss=pretraining_loss(), metrics=pretraining_metrics()
    )
    dataset = pretraining_dataset(data, TOKENIZER, batch_size=8, layout="packed")
    dataset = dataset.take(1).cache()
    logs = model.fit(dataset, verbose=0).history
    batch, labels = next(iter(dataset))
    objective = TaskObjective(model)
    sums = objective.sums(model(batch, training=False), labels)
    counts = objective.counts(labels)
    means = {
        name: [float(value / counts[name]) for value in pair]
        for name, pair in sums.items()
    }
    for name, (loss, accuracy) in means.items():
        assert logs[f"{name}_loss"][0] == pytest.approx(loss, abs=1e-5)
        assert logs[f"{name}_accuracy"][0] == pytest.approx(accuracy, abs=1e-5)
    loss = means["masked_lm"][0]
    assert logs["masked_lm_perplexity"][0] == pytest.approx(np.exp(loss), rel=1e-4)
    assert logs["loss"][0] == pytest.approx(loss + means["next_sentence"][0], abs=1e-5)


@pytest.mark.slow
def test_a_keras_file_gives_the_same_outputs(data: Path, tmp_path: Path) -> None:
    model = BertPretrainer(BertEncoder(STILL, seed=1), seed=2)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    dataset = pretraining_dataset(data, TOKENIZER, batch_size=8, layout="packed")
    batch, _ = next(iter(dataset))
    found, wanted = again(batch), model(batch)
    for name in wanted:
        np.testing.assert_array_equal(found[name].numpy(), wanted[name].numpy())
    # The table of the tokens is that of the head: a new one changes both.
    again.encoder.embeddings.word_embeddings.assign_add(
        tf.ones_like(again.encoder.embeddings.word_embeddings)
    )
    assert not np.allclose(again(batch)["masked_lm"], wanted["masked_lm"])


def test_a_fitted_pretrainer_is_written_as_a_model_folder(
    data: Path, tmp_path: Path
) -> None:
    model = BertPretrainer(BertEncoder(STILL, seed=1), seed=2)
    model.compile(run_eagerly=True)
    model.fit(
        pretraining_dataset(data, TOKENIZER, batch_size=8), verbose=0, steps_per_epoch=1
    )
    folder = tmp_path / "model"
    for _ in range(2):  # a model folder is replaced
        model.save_to_preset(folder, TOKENIZER)
    again = BertPretrainer.from_pretrained(folder)
    for ours, theirs in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (folder / "README.md").is_file()
    assert TaskModel.from_pretrained(folder).task.name == "masked-lm"


@pytest.mark.slow
def test_lora_is_merged_into_the_folder(data: Path, tmp_path: Path) -> None:
    model = BertPretrainer(BertEncoder(STILL, seed=1), seed=2)
    model.encoder.enable_lora(2, seed=3)
    model.encoder.blocks[0].query.lora_kernel_b.assign_add(np.ones((2, 16)))
    model.save_to_preset(tmp_path / "model", TOKENIZER)
    again = BertPretrainer.from_pretrained(tmp_path / "model")
    batch, _ = next(iter(pretraining_dataset(data, TOKENIZER, batch_size=8)))
    found, wanted = again(batch), model(batch)
    for name in wanted:
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-5)


@pytest.mark.thorough
def test_pretrainers_that_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = BertPretrainer(BertEncoder(STILL, seed=1), seed=2)
    refused(lambda: save_model(model, folder), "`model`", "TaskModel", "BertPretrainer")
    save: Any = model.save_to_preset
    refused(lambda: save(folder, "vocab.txt"), "`tokenizer`", "'vocab.txt'")
    small = dataclasses.replace(STILL, vocab_size=20)
    few = BertPretrainer(BertEncoder(small))
    refused(lambda: few.save_to_preset(folder, TOKENIZER), "`tokenizer`", "20")
    model.quantize("int8")
    refused(lambda: model.save_to_preset(folder, TOKENIZER), "quantized")
    assert not list(tmp_path.iterdir())


def test_the_pooler_exists_only_for_pairs() -> None:
    for pooler in (True, False):
        encoder = BertEncoder(STILL, pooler=pooler)
        assert (
            "next_sentence"
            in BertPretrainer(BertEncoder(STILL), next_sentence=True).output
        )
        refused(
            lambda e=encoder, p=pooler: BertPretrainer(e, next_sentence=not p),
            "`encoder` must have the pooler if and only if `next_sentence`",
        )


def test_causal_heads_do_not_see_later_tokens() -> None:
    config = dataclasses.replace(STILL, is_decoder=True)
    model = BertPretrainer(
        BertEncoder(config, pooler=False, seed=3), next_sentence=False
    )
    ids = np.array([[2, 10, 11, 12, 13, 3]], "int32")
    batch = {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": np.ones_like(ids),
        "masked_positions": np.array([[0, 1, 2]], "int32"),
    }
    changed = {**batch, "token_ids": np.array([[2, 10, 11, 40, 41, 3]], "int32")}
    np.testing.assert_array_equal(
        model(batch)["masked_lm"].numpy(), model(changed)["masked_lm"].numpy()
    )


def test_a_run_sets_the_dropout_of_all_layers_but_not_of_the_config() -> None:
    ids = np.array([[2, 10, 11, 12, 13, 3]], "int32")
    batch = {
        "token_ids": ids,
        "segment_ids": np.zeros_like(ids),
        "padding_mask": np.ones_like(ids),
        "masked_positions": np.array([[1, 2]], "int32"),
    }
    for rate in (0.0, 0.5):
        config = PretrainConfig(dropout=rate)
        model = new_pretrainer(SIZES, config, next_sentence=True)
        assert model.get_layer("seq_relationship").dropout.rate == 0  # as in the paper
        still, trained = (
            model.encoder(batch, training=training)["sequence_output"].numpy()
            for training in (False, True)
        )
        assert np.array_equal(still, trained) is (rate == 0)
        assert model.encoder.config.hidden_dropout_prob == 0.1


def test_masked_metrics_by_hand() -> None:
    logits = np.log(np.array([[[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [0.2, 0.7, 0.1]]]))
    labels = np.array([[0, 1, -1]])
    perplexity, accuracy = MaskedPerplexity(), MaskedAccuracy()
    perplexity.update_state(labels, logits.astype("float32"))
    accuracy.update_state(labels, logits.astype("float32"))
    assert float(perplexity.result()) == pytest.approx((0.5 * 0.1) ** -0.5, rel=1e-5)
    assert float(accuracy.result()) == 0.5


def test_operations_by_hand() -> None:
    # 2 per weight met: a block of H 16 and I 32 has 4 * 256 + 2 * 512; scores and
    # their use meet each pair of tokens 16 times, twice.
    found = forward_operations(STILL, tokens=3, token_pairs=9)
    assert found == 2 * (3 * (4 * 256 + 2 * 512) + 2 * 9 * 16)
    head = forward_operations(STILL, tokens=0, token_pairs=0, predictions=2, pooled=5)
    assert head == 2 * (2 * (256 + 16 * STILL.vocab_size) + 5 * (256 + 32))


def test_no_two_weights_have_the_same_initial_values() -> None:
    config = PretrainConfig(seed=5)
    model = new_pretrainer(STILL, config, next_sentence=True)
    drawn = [w.numpy().ravel() for w in model.weights if w.numpy().std() > 0]
    starts = {values[:4].tobytes() for values in drawn}
    # The kernel of a block, its embeddings, pooler and both heads.
    assert len(starts) == len(drawn) == 3 + 6 * STILL.num_hidden_layers + 3
