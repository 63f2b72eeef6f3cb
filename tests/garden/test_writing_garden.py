"""Our checkpoints load into TF Model Garden with equal outputs, and back again."""

import json

import numpy as np
import pytest
from conftest import VOCABULARY
from garden_models import (
    DRAW,
    OURS,
    assert_equal_encoder,
    assert_equal_pretrainer,
    assert_near,
    at_random,
    batch,
    encoders,
    new_encoder,
    new_pretrainer,
    ours_of,
    tf,
    without_attributes,
)
from official.modeling.hyperparams import params_dict
from official.nlp.configs.bert import PretrainerConfig

from bert_keras.checkpoints import read_checkpoint, write_huggingface
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.convert import convert
from bert_keras.pretraining.pretrainer import BertPretrainer, weights_of
from bert_keras.text.tokenizer import WordPieceTokenizer

pytestmark = pytest.mark.filterwarnings("ignore")  # their code has many


def our_pretrainer(folder):
    """Write a pretraining model of ours at random; returns it."""
    model = BertPretrainer(BertEncoder(OURS, seed=3), seed=4)
    for weight in model.weights:
        values = DRAW.normal(scale=0.3, size=weight.shape)
        weight.assign(values + weight.path.endswith("gamma"))
    config = {**OURS.to_dict(), "architectures": ["BertForPreTraining"]}
    write_huggingface(folder, weights_of(model), config)
    WordPieceTokenizer(VOCABULARY).save(folder)
    return model


def assert_same_weights(found, wanted):
    found, wanted = read_checkpoint(found), read_checkpoint(wanted)
    assert set(found.arrays) == set(wanted.arrays)
    for name, array in wanted.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array, err_msg=name)


def test_a_pretrainer_goes_there_and_back(tmp_path):
    ours = our_pretrainer(tmp_path / "ours")
    notes = convert(tmp_path / "ours", tmp_path / "garden", to="model-garden")
    assert not [note for note in notes if "differ" in note or "no pooler" in note]
    prefix = str(tmp_path / "garden" / "bert_model.ckpt")
    assert tf.train.latest_checkpoint(str(tmp_path / "garden")) == prefix

    # An encoder by the params.yaml that was written, as train.py would make it.
    params = params_dict.read_yaml_to_params_dict(
        str(tmp_path / "garden" / "params.yaml")
    )
    config = params_dict.override_params_dict(
        PretrainerConfig(), params.task.model.as_dict(), is_strict=True
    )
    theirs = new_pretrainer(encoders.build_encoder(config.encoder))
    saved = tf.train.Checkpoint(model=theirs, **theirs.checkpoint_items)
    saved.restore(prefix).assert_consumed()
    assert_equal_pretrainer(ours, theirs)
    given = batch()
    found = ours.encoder(ours_of(given))
    assert_near(found["pooled_output"], theirs(given)["pooled_output"])

    # The model alone, and the parts that train.py starts from, which lack the logits.
    again = new_pretrainer(new_encoder("BertEncoderV2"))
    saved = tf.train.Checkpoint(model=again)
    saved.read(prefix).assert_existing_objects_matched()
    assert_equal_pretrainer(ours, again)
    parts = new_pretrainer()
    saved = tf.train.Checkpoint(**parts.checkpoint_items)
    saved.read(prefix).assert_existing_objects_matched()
    parts.classification_heads[0].out_proj.set_weights(
        again.classification_heads[0].out_proj.get_weights()
    )
    assert_equal_pretrainer(ours, parts)

    # As their exporter for TF-Hub restores it.
    restored = tf.train.Checkpoint(**theirs.checkpoint_items).restore(prefix)
    restored.assert_existing_objects_matched()

    # Saved again by their code and converted: equal to the original, config included.
    path = tf.train.Checkpoint(**theirs.checkpoint_items, model=theirs).write(
        str(tmp_path / "theirs" / "bert_model.ckpt")
    )
    for file in ("bert_config.json", "vocab.txt", "tokenizer_config.json"):
        text = (tmp_path / "garden" / file).read_text()
        (tmp_path / "theirs" / file).write_text(text)
    convert(path, tmp_path / "back")
    assert_same_weights(tmp_path / "back", tmp_path / "ours")
    assert read_checkpoint(tmp_path / "back").config == OURS


@pytest.fixture(scope="module")
def encoder_folders(tmp_path_factory):
    """Return the folder of an encoder of ours, and that of Model Garden."""
    folder = tmp_path_factory.mktemp("encoder")
    ours = BertEncoder(OURS, seed=3)
    arrays = {weight.path: weight.numpy() for weight in ours.weights}
    config = {**OURS.to_dict(), "architectures": ["BertModel"]}
    write_huggingface(folder / "ours", arrays, config)
    WordPieceTokenizer(VOCABULARY).save(folder / "ours")
    convert(folder / "ours", folder / "garden", to="model-garden")
    return folder / "ours", folder / "garden"


@pytest.mark.parametrize("kind", ["bert", "BertEncoder", "BertEncoderV2"])
def test_an_encoder_goes_there(kind, encoder_folders):
    ours, written = encoder_folders
    encoder = new_encoder(kind)
    for root in ("encoder", "model"):
        at_random(encoder)
        saved = tf.train.Checkpoint(**{root: encoder})
        saved.read(str(written / "bert_model.ckpt")).assert_existing_objects_matched()
        assert_equal_encoder(ours, encoder)
        saved.restore(str(written / "bert_model.ckpt")).assert_consumed()


def test_an_encoder_without_attributes_is_filled(encoder_folders):
    ours, written = encoder_folders
    encoder = new_encoder()
    saved = tf.train.Checkpoint(model=without_attributes(encoder))
    saved.restore(str(written / "bert_model.ckpt")).assert_consumed()
    assert_equal_encoder(ours, encoder)


def test_an_encoder_round_trips(encoder_folders, tmp_path):
    ours, written = encoder_folders
    raw = json.loads((written / "bert_config.json").read_text())
    assert raw["hidden_act"] == "gelu"
    convert(written, tmp_path / "back")
    assert_same_weights(tmp_path / "back", ours)
