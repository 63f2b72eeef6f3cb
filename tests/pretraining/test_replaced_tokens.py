"""Pretraining on replaced tokens: targets by hand, whole runs, folders, errors."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.replaced_tokens import (
    ReplacedTokenLoss,
    ReplacedTokens,
    judgements,
    put_at,
)
from bert_keras.models.convert import convert
from bert_keras.models.loading import load_model
from bert_keras.pretraining.input import pretraining_dataset
from bert_keras.pretraining.plan import make_pretraining_plan
from bert_keras.pretraining.pretrain import PretrainResult
from bert_keras.pretraining.pretrainer import BertPretrainer, generator_config
from bert_keras.training.checkpoint import FILE
from pretraining.test_data import TOKENIZER
from pretraining.test_pretrain import CONFIG, STILL, place, run, weights

__all__ = ["place"]  # a fixture
# As wide embeddings as the model, whose generator projects them; and narrower ones.
SIZES = STILL.replace(hidden_size=32, num_attention_heads=4)
NARROW = SIZES.replace(model_type="electra", embedding_size=8)
DETECTS = dataclasses.replace(CONFIG, objective="replaced-token")


def test_targets_and_scores_by_hand() -> None:
    original = np.array([[5, 6, 7, -1], [8, -1, -1, -1]])
    read = put_at(
        np.array([[5, 4, 7, 0], [4, 0, 0, 0]]),
        np.array([[1, 2, -1], [-1, 0, -1]]),
        np.array([[9, 7, 3], [3, 8, 3]]),
    )
    np.testing.assert_array_equal(read, [[5, 9, 7, 0], [8, 0, 0, 0]])
    logits = np.array([[2.0, 1.0, -1.0, 9.0], [-2.0, 9.0, 9.0, 9.0]], "float32")
    outputs = np.stack([logits, np.asarray(read, "float32")], axis=-1)
    # One of four tokens was replaced: the sample 7 is the original.
    p = 1 / (1 + np.exp(-logits.astype("float64")))
    wanted = -np.log([1 - p[0, 0], p[0, 1], 1 - p[0, 2], 1 - p[1, 0]]).mean()
    assert float(ReplacedTokenLoss()(original, outputs)) == pytest.approx(wanted)
    found = [float(each) for each in judgements(original, outputs)]
    assert found == [3, 1, 2, 1]  # correct, found, called, replaced


def test_samples_follow_the_generator_and_have_no_gradient() -> None:
    shares = np.array([0.5, 0.3, 0.2])
    logits = tf.constant(np.log(shares)[None, None].repeat(9000, 1), tf.float32)
    ids = tf.zeros([1, 9000], tf.int32)
    positions = tf.range(9000)[None]
    sampler = ReplacedTokens(seed=3)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        drawn = [sampler(ids, logits, positions, training=True) for _ in range(2)]
        total = tf.reduce_sum(tf.cast(drawn[0], tf.float32))
    assert tape.gradient(total, logits) is None
    for each in drawn:
        found = np.bincount(np.ravel(each), minlength=3) / 9000
        np.testing.assert_allclose(found, shares, atol=0.02)
    assert np.any(drawn[0] != drawn[1])
    fixed = [sampler(ids, logits, positions, training=False) for _ in range(2)]
    np.testing.assert_array_equal(*fixed)


@pytest.fixture(scope="module")
def whole(place: Path) -> PretrainResult:
    """Return a run with dropout, to its end."""
    sizes = SIZES.replace(hidden_dropout_prob=0.1)
    return run(place, place / "detects", sizes=sizes, held_out="dynamic", **CHANGES)


CHANGES: dict[str, Any] = {"objective": "replaced-token"}


def test_a_run_has_the_scores_of_both_and_writes_both_folders(
    place: Path, whole: PretrainResult
) -> None:
    row = whole.history[0]
    assert row["masked_lm_loss"] == pytest.approx(np.log(SIZES.vocab_size), abs=0.3)
    assert row["loss"] == pytest.approx(
        row["masked_lm_loss"] + 50 * row["replaced_token_loss"], rel=1e-5
    )
    names = {f"replaced_token_{n}" for n in ("loss", "accuracy", "precision", "recall")}
    assert names | {"masked_lm_accuracy", "masked_lm_perplexity"} <= set(row)
    assert names | {"perplexity", "masked_lm_accuracy"} <= set(whole.scores)
    assert "recall" in (place / "detects" / "report.html").read_text()
    config = json.loads((whole.folder / "config.json").read_text())
    assert config["architectures"] == ["ElectraForPreTraining"]
    generator = json.loads((whole.folder / "generator" / "config.json").read_text())
    assert generator["architectures"] == ["ElectraForMaskedLM"]
    assert (generator["hidden_size"], generator["embedding_size"]) == (8, 32)
    assert (whole.folder / "generator" / "vocab.txt").is_file()
    found, own = weights(whole.folder), weights(whole.folder / "generator")
    shared = [name for name in found if name.startswith("bert/embeddings/")]
    assert len(shared) == 5
    for name in shared:
        np.testing.assert_array_equal(own[name], found[name])
    fills = load_model(whole.folder / "generator", task="masked-lm")
    assert fills.backbone.config.hidden_size == 8
    copy = place / "copy of detects"
    for _ in range(2):  # which replaces it
        whole.model.save_to_preset(copy, TOKENIZER)
    model = BertPretrainer.from_pretrained(copy)
    for weight, wanted in zip(model.weights, whole.model.weights, strict=True):
        np.testing.assert_array_equal(weight, wanted, err_msg=weight.path)
    notes = convert(copy, place / "converted")
    assert f"left out: the generator, which {copy / 'generator'} holds" in notes
    assert not (place / "converted" / "generator").exists()


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_same_bytes(
    place: Path, whole: PretrainResult, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(place / "detects", folder)
    for step in (8, 12):
        shutil.rmtree(folder / "checkpoints" / f"step-{step:09d}")
    shutil.rmtree(folder / "model")
    sizes = SIZES.replace(hidden_dropout_prob=0.1)
    again = run(place, folder, sizes=sizes, held_out="dynamic", **CHANGES)
    for name in (
        "model/model.safetensors",
        "model/generator/model.safetensors",
        f"checkpoints/step-000000012/{FILE}",
    ):
        wanted = (place / "detects" / name).read_bytes()
        assert (folder / name).read_bytes() == wanted, name
    assert again.scores == whole.scores


@pytest.mark.slow
def test_keras_trains_saves_and_loads_it(place: Path, tmp_path: Path) -> None:
    model = BertPretrainer(
        BertEncoder(NARROW, pooler=False, seed=1),
        next_sentence=False,
        generator=generator_config(NARROW, 0.5),
        seed=2,
    )
    dataset = pretraining_dataset(
        place / "dynamic",
        TOKENIZER,
        batch_size=8,
        layout="packed",
        objective="replaced-token",
    ).take(1)
    logs = model.fit(dataset.cache(), verbose=0).history
    assert logs["loss"][0] == pytest.approx(
        logs["masked_lm_loss"][0] + 50 * logs["replaced_token_loss"][0], rel=1e-4
    )
    assert {f"replaced_token_{n}" for n in ("accuracy", "precision", "recall")} <= set(
        logs
    )
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    batch, _ = next(iter(dataset))
    found, wanted = again(batch), model(batch)
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name])
    # One table serves both.
    table = again.generator.embeddings.word_embeddings
    assert table is again.encoder.embeddings.word_embeddings
    paths = [weight.path for weight in again.weights]
    assert len(paths) == len(set(paths))


@pytest.mark.slow
def test_where_it_starts_is_told(
    place: Path, whole: PretrainResult, tmp_path: Path, capsys: Any
) -> None:
    bert = run(place, tmp_path / "bert", sizes=SIZES, steps=1).folder
    plain = tmp_path / "plain"
    shutil.copytree(whole.folder, plain)
    shutil.rmtree(plain / "generator")
    for folder, lines in (
        (bert, ["continues as the discriminator of an ELECTRA", "no generator"]),
        (plain, ["the checkpoint has no generator: it is initialized randomly"]),
        (whole.folder, []),
    ):
        capsys.readouterr()
        output = tmp_path / f"on-{folder.name}-{len(lines)}"
        found = run(place, output, sizes=folder, steps=1, **CHANGES)
        said = capsys.readouterr().err
        assert all(line in said for line in lines)
        assert ("initialized randomly" in said) == bool(lines)
        assert found.model.generator.config.hidden_size == 8
    # And back: the head and the generator are left out, with a note.
    notes = make_pretraining_plan(
        whole.folder, place / "single", vocab=None, config=CONFIG
    ).notes
    assert any("head for replaced tokens" in note for note in notes)


def test_the_generator_has_the_precision_of_the_encoder() -> None:
    encoder = BertEncoder(NARROW, pooler=False, dtype="mixed_bfloat16")
    sizes = generator_config(NARROW, 0.5)
    model = BertPretrainer(encoder, next_sentence=False, generator=sizes)
    assert model.generator.blocks[0].compute_dtype == "bfloat16"


def test_bad_input(place: Path, whole: PretrainResult, tmp_path: Path) -> None:
    def plan(sizes: Any = SIZES, **changes: Any) -> Any:
        vocab = place / "vocab" if isinstance(sizes, BertConfig) else None
        config = dataclasses.replace(DETECTS, **changes)
        return make_pretraining_plan(
            sizes, place / "dynamic", vocab=vocab, config=config
        )

    rows = {row["name"]: row for row in plan().table()}
    assert rows["model"]["value"] == "1/32/4 (ELECTRA)"
    assert rows["generator"]["value"] == "1/8/1"
    assert (
        rows["next sentence"]["reason"]
        == "the model type electra has no head for pairs"
    )
    refused(
        lambda: plan(whole.folder, generator_share=0.5),
        "`generator_share` is for a new generator; the checkpoint has one of the width",
    )
    refused(lambda: plan(teacher="x"), "`teacher` must be left out with `objective`")
    refused(
        lambda: plan(objective="masked", discriminator_weight=3.0),
        "`discriminator_weight` has an effect only with `objective` replaced-token",
    )
    refused(
        lambda: plan(SIZES.replace(model_type="distilbert", type_vocab_size=0)),
        "`objective` must be masked for a model without segments",
    )
    refused(
        lambda: BertPretrainer(
            BertEncoder(SIZES, pooler=False),
            next_sentence=False,
            generator=SIZES.replace(vocab_size=3),
        ),
        "`generator` must have the encoder's `vocab_size`",
    )
    encoder = BertEncoder(SIZES)
    refused(
        lambda: BertPretrainer(encoder, generator=SIZES),
        "`next_sentence` must be False with a `generator`",
    )
