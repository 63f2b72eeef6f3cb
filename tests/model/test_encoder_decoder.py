"""`BertEncoderDecoder`: packed rows, ways to start, and files."""

import keras
import numpy as np
import pytest

from bert_keras.checkpoints import write_huggingface
from bert_keras.checkpoints.huggingface import encoder_decoder_config
from bert_keras.errors import CheckpointError
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.encoder_decoder import BertEncoderDecoder
from model.test_decoder import CONFIG

SMALLER = CONFIG.replace(vocab_size=15, hidden_size=4, num_hidden_layers=1)


def new(config=None, **settings):
    encoder = BertEncoder(CONFIG, pooler=False, seed=1)
    return BertEncoderDecoder(encoder, config, seed=1, **settings)


def padded(rows):
    length = max(map(len, rows))
    return np.array([[*row, *[0] * (length - len(row))] for row in rows])


def batch(sources, targets):
    """Return the batch dict of one pair a row."""
    source, target = padded(sources), padded(targets)
    return {
        "token_ids": source,
        "segment_ids": 0 * source,
        "padding_mask": (source > 0).astype(int),
        "target_token_ids": target,
        "target_padding_mask": (target > 0).astype(int),
    }


def packed(sources, targets):
    """Return the batch dict of all pairs in one row."""
    found = {}
    for prefix, rows in (("", sources), ("target_", targets)):
        found[f"{prefix}token_ids"] = np.concatenate(rows)[None]
        found[f"{prefix}position_ids"] = np.concatenate(
            [np.arange(len(row)) for row in rows]
        )[None]
        numbers = [np.full(len(row), i) for i, row in enumerate(rows, 1)]
        found[f"{prefix}sequence_ids"] = np.concatenate(numbers)[None]
        found[f"{prefix}padding_mask"] = 0 * found[f"{prefix}token_ids"] + 1
    found["segment_ids"] = 0 * found["token_ids"]
    return found


SOURCES = [[2, 5, 6, 7, 3], [2, 8, 3]]
TARGETS = [[2, 9], [2, 10, 11, 4]]


def test_the_decoder_computes_as_its_encoder_does():
    encoder = BertEncoder(CONFIG, pooler=False, seed=1, dtype="mixed_bfloat16")
    model = BertEncoderDecoder(encoder, SMALLER, seed=1)
    blocks = model.decoder.blocks
    assert {block.compute_dtype for block in blocks} == {"bfloat16"}
    logits = model(batch(SOURCES, TARGETS))
    expected = new(SMALLER)(batch(SOURCES, TARGETS))
    np.testing.assert_allclose(logits, expected, atol=0.05)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"


@pytest.mark.parametrize("config", [None, SMALLER], ids=["same", "smaller"])
def test_a_target_in_packed_rows_attends_to_its_own_source(config):
    model = new(config)
    apart = np.array(model(batch(SOURCES, TARGETS)))
    together = np.array(model(packed(SOURCES, TARGETS)))[0]
    np.testing.assert_allclose(together[:2], apart[0, :2], atol=1e-5)
    np.testing.assert_allclose(together[2:], apart[1], atol=1e-5)


WAYS = {
    "same": {},
    "smaller": {"config": SMALLER},
    "shared": {"shared": True},
    "untied": {"tied": False},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.slow
def test_files_give_the_same_logits(way, tmp_path):
    model = new(**WAYS[way])
    given = batch(SOURCES, TARGETS)
    wanted = np.array(model(given))
    arrays = {weight.path: weight.numpy() for weight in model.weights}
    sizes = model.decoder.config.to_dict()
    settings = {k: way == k for k in ("shared",)} | {"tied": way != "untied"}
    config = encoder_decoder_config(CONFIG.to_dict(), sizes, **settings)
    write_huggingface(tmp_path / "folder", arrays, config)
    read = BertEncoderDecoder.from_pretrained(tmp_path / "folder")
    np.testing.assert_allclose(np.array(read(given)), wanted, atol=1e-6)
    assert len(read.weights) == len(model.weights)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(np.array(loaded(given)), wanted, atol=1e-6)
    # An encoder alone is read from it, too.
    encoder = BertEncoder.from_pretrained(tmp_path / "folder")
    assert {w.path for w in encoder.weights} < set(arrays)


def test_a_folder_without_a_decoder_is_refused(encoder_folder):
    with pytest.raises(CheckpointError, match="must be encoder-decoder; received bert"):
        BertEncoderDecoder.from_pretrained(encoder_folder)
