"""Encoder-decoders equal those of Hugging Face transformers: logits, updates, files."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.checkpoints import write_huggingface
from bert_keras.checkpoints.huggingface import encoder_decoder_config
from bert_keras.generation.search import write
from bert_keras.generation.settings import Decoding
from bert_keras.model.encoder_decoder import BertEncoderDecoder
from bert_keras.model.optimizers import NOT_DECAYED, BertAdamW

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOLERANCE = 2e-5
SMALL = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.2,
}
SMALLER = {
    "vocab_size": 37,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
}
FORMS = {
    "same": ({}, True),
    "smaller": (SMALLER, True),
    "untied": ({}, False),
}


def their_model(changes, tied, rng):
    """Return an `EncoderDecoderModel` whose weights are random, biases too."""
    torch.manual_seed(int(rng.integers(1 << 31)))
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.BertConfig(**SMALL),
        transformers.BertConfig(**{**SMALL, **changes}, tie_word_embeddings=tied),
        tie_word_embeddings=tied,
    )
    model = transformers.EncoderDecoderModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0.0, 0.2)
    return model


def batch_of(rng, *, vocab_size):
    """Return a batch dict of padded rows."""
    source = rng.integers(5, SMALL["vocab_size"], (3, 8))
    target = rng.integers(5, vocab_size, (3, 6))
    masks = np.ones_like(source), np.ones_like(target)
    masks[0][1, 5:] = 0
    masks[1][2, 4:] = 0
    return {
        "token_ids": source,
        "segment_ids": 0 * source,
        "padding_mask": masks[0],
        "target_token_ids": target,
        "target_padding_mask": masks[1],
    }


def their_logits(model, batch):
    given = {name: torch.tensor(value) for name, value in batch.items()}
    return model(
        input_ids=given["token_ids"],
        attention_mask=given["padding_mask"],
        decoder_input_ids=given["target_token_ids"],
        decoder_attention_mask=given["target_padding_mask"],
    ).logits


def save(model, folder, *, shared=False, tied=True):
    config = encoder_decoder_config(
        model.encoder.config.to_dict(),
        model.decoder.config.to_dict(),
        shared=shared,
        tied=tied,
    )
    arrays = {weight.path: weight.numpy() for weight in model.weights}
    write_huggingface(folder, arrays, config)


@pytest.mark.parametrize("form", FORMS)
def test_folders_go_both_ways(form, rng, tmp_path):
    changes, tied = FORMS[form]
    theirs = their_model(changes, tied, rng)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = BertEncoderDecoder.from_pretrained(tmp_path / "theirs")
    batch = batch_of(rng, vocab_size=ours.decoder.config.vocab_size)
    real = batch["target_padding_mask"] == 1
    with torch.no_grad():
        wanted = their_logits(theirs, batch).numpy()
    found = ours(batch).numpy()
    np.testing.assert_allclose(found[real], wanted[real], atol=TOLERANCE)
    save(ours, tmp_path / "ours", tied=tied)
    back, report = transformers.EncoderDecoderModel.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert all(".pooler." in name for name in report["missing_keys"])
    assert not report["unexpected_keys"]
    with torch.no_grad():
        again = their_logits(back.eval(), batch).numpy()
    np.testing.assert_allclose(again[real], wanted[real], atol=TOLERANCE)


def test_a_shared_model_is_written_with_copies(rng, tmp_path):
    theirs = their_model({}, True, rng)
    theirs.save_pretrained(tmp_path / "theirs")
    encoder = BertEncoderDecoder.from_pretrained(tmp_path / "theirs").encoder
    ours = BertEncoderDecoder(encoder, shared=True, seed=1)
    save(ours, tmp_path / "ours", shared=True)
    back = transformers.EncoderDecoderModel.from_pretrained(tmp_path / "ours").eval()
    batch = batch_of(rng, vocab_size=SMALL["vocab_size"])
    real = batch["target_padding_mask"] == 1
    with torch.no_grad():
        wanted = their_logits(back, batch).numpy()
    found = ours(batch).numpy()
    np.testing.assert_allclose(found[real], wanted[real], atol=TOLERANCE)


@pytest.mark.thorough
def test_losses_of_40_updates_are_equal(rng, tmp_path):
    theirs = their_model({}, True, rng)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = BertEncoderDecoder.from_pretrained(tmp_path / "theirs")
    decayed, plain = [], []
    for name, weight in theirs.named_parameters():
        is_plain = name.endswith(".bias") or ".LayerNorm." in name
        (plain if is_plain else decayed).append(weight)
    groups = [
        {"params": decayed, "weight_decay": 0.01},
        {"params": plain, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, eps=1e-6)
    our_optimizer = BertAdamW(1e-3, weight_decay=0.01)
    our_optimizer.build(ours.trainable_variables)
    assert set(NOT_DECAYED) == {"bias", "gamma", "beta"}
    for _ in range(40):
        batch = batch_of(rng, vocab_size=SMALL["vocab_size"])
        labels = rng.integers(5, SMALL["vocab_size"], (3, 6))
        real = batch["target_padding_mask"] == 1
        logits = their_logits(theirs, batch)
        loss = torch.nn.functional.cross_entropy(
            logits[torch.tensor(real)], torch.tensor(labels[real])
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        with tf.GradientTape() as tape:
            losses = keras.ops.sparse_categorical_crossentropy(
                labels, ours(batch, training=True), from_logits=True
            )
            our_loss = tf.reduce_mean(tf.boolean_mask(losses, real))
        weights = ours.trainable_variables
        gradients = tape.gradient(our_loss, [weight.value for weight in weights])
        our_optimizer.apply(gradients, weights)
        assert abs(float(our_loss) - loss.item()) < 1e-5 * max(1.0, loss.item())


SEARCHES = {
    "greedy": {"beams": 1},
    "beams": {"beams": 4},
    "no-repeats": {"beams": 3, "no_repeat_ngram": 2, "length_penalty": 2.0},
    "short": {"beams": 4, "length_penalty": 0.0},
}


@pytest.mark.parametrize("search", SEARCHES)
def test_hypotheses_are_those_of_generate(search, rng, tmp_path):
    theirs = their_model({}, True, rng)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = BertEncoderDecoder.from_pretrained(tmp_path / "theirs")
    settings = Decoding(**SEARCHES[search])
    batch = batch_of(rng, vocab_size=SMALL["vocab_size"])
    beams, most = settings.beams, 14
    more = {} if beams == 1 else {"length_penalty": settings.length_penalty}
    with torch.no_grad():
        wanted = theirs.generate(
            torch.tensor(batch["token_ids"]),
            attention_mask=torch.tensor(batch["padding_mask"]),
            num_beams=beams,
            num_return_sequences=beams,
            no_repeat_ngram_size=settings.no_repeat_ngram,
            max_length=most + 1,  # with [CLS]
            decoder_start_token_id=2,
            eos_token_id=3,
            pad_token_id=0,
            do_sample=False,
            output_scores=True,
            return_dict_in_generate=True,
            **more,
        )
    sources = {k: v for k, v in batch.items() if not k.startswith("target_")}
    found = write(
        ours.decoder,
        ours.encoder(sources)["sequence_output"],
        batch["padding_mask"],
        settings,
        first_id=2,
        last_id=3,
        limits=tf.fill([3], most),
    )
    theirs_ids = wanted.sequences.numpy()[:, 1:]
    for row, ids in zip(theirs_ids, found.ids.numpy().reshape(-1, most), strict=True):
        assert until_last(ids.tolist()) == until_last(row.tolist())
    if beams > 1:
        np.testing.assert_allclose(
            found.scores.numpy().ravel(), wanted.sequences_scores, atol=1e-4
        )


def until_last(ids):
    """Return the ids before [SEP] or padding."""
    ends = [place for place, token in enumerate(ids) if token in (0, 3)]
    return ids[: ends[0]] if ends else ids


# Logits of whole targets, and of one token after the other, without TensorFlow.
ON_JAX = """
import sys
for name in ("tensorflow", "tensorflow_text", "keras_hub"):
    sys.modules[name] = None
import keras, numpy as np
from bert_keras.model.encoder_decoder import BertEncoderDecoder

folder, given, results = sys.argv[1:]
model = BertEncoderDecoder.from_pretrained(folder)
batch = dict(np.load(given))
memory = model.encoder({k: v for k, v in batch.items() if k[:6] != "target"})
decoder, mask = model.decoder, batch["padding_mask"]
started = decoder.start(memory["sequence_output"], mask)
past, steps = decoder.no_past(len(mask)), []
for place, ids in enumerate(batch["target_token_ids"].T):
    logits, past = decoder.step(ids, place, past, started)
    steps.append(np.asarray(logits))
whole = np.asarray(model(batch))
np.savez(results, backend=keras.config.backend(), whole=whole, steps=np.stack(steps, 1))
"""


@pytest.mark.thorough
def test_logits_on_jax_equal_those_on_tensorflow(rng, tmp_path):
    pytest.importorskip("jax")
    theirs = their_model({}, True, rng)
    theirs.save_pretrained(tmp_path / "theirs")
    batch = batch_of(rng, vocab_size=SMALL["vocab_size"])
    wanted = BertEncoderDecoder.from_pretrained(tmp_path / "theirs")(batch).numpy()
    np.savez(tmp_path / "batch.npz", **batch)
    words = [tmp_path / "theirs", tmp_path / "batch.npz", tmp_path / "found.npz"]
    subprocess.run(
        [sys.executable, "-c", ON_JAX, *map(str, words)],
        env={**os.environ, "KERAS_BACKEND": "jax"},
        check=True,
    )
    found = np.load(tmp_path / "found.npz")
    assert found["backend"] == "jax"
    real = batch["target_padding_mask"] == 1
    for name in ("whole", "steps"):
        np.testing.assert_allclose(found[name][real], wanted[real], atol=TOLERANCE)
