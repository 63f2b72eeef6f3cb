"""Models of TF Model Garden, made as its users make them, and compared with ours.

`make test-garden` runs these tests in an environment of their own: tf-models-official
wants TensorFlow 2.20 and Keras 2 (`tf_keras`), which is installed next to Keras 3 here.
"""

import warnings

import numpy as np
import pytest
from conftest import VOCABULARY

from bert_keras.checkpoints import read_checkpoint
from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder
from bert_keras.pretraining.pretrainer import BertPretrainer, assign_pretrainer
from bert_keras.runs.notes import collected

pytest.importorskip("official", reason="needs tf-models-official: `make test-garden`")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf
    import tf_keras
    from official.modeling import tf_utils
    from official.nlp.configs import encoders
    from official.nlp.modeling import layers, models, networks

SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 12,
    "num_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 17,
    "type_vocab_size": 3,
}
OURS = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=12,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=17,
    type_vocab_size=3,
    hidden_act="gelu_new",
    initializer_range=0.3,
)
TOLERANCE = 2e-5
DRAW = np.random.default_rng(7)


def batch():
    """Return token ids, mask, segments and positions to predict, drawn at random."""
    ids = DRAW.integers(5, len(VOCABULARY), size=(4, 15))
    mask = (np.arange(15) < np.array([[15], [9], [3], [12]])).astype("int32")
    return {
        "input_word_ids": np.where(mask, ids, 0).astype("int32"),
        "input_mask": mask,
        "input_type_ids": DRAW.integers(0, 3, size=(4, 15)).astype("int32") * mask,
        "masked_lm_positions": np.array([[0, 2], [8, 1], [1, 2], [5, 11]], "int32"),
    }


def ours_of(given):
    """Return the same batch under our names; each row is one example."""
    return {
        "token_ids": given["input_word_ids"],
        "segment_ids": given["input_type_ids"],
        "padding_mask": given["input_mask"],
    }


def assert_near(found, wanted):
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    assert np.abs(wanted).max() > 0.1
    assert np.abs(found - wanted).max() < TOLERANCE


def at_random(model):
    """Give each of their weights values that differ from the initial ones."""
    for variable in model.weights:
        values = DRAW.normal(scale=0.3, size=variable.shape)
        variable.assign(values + (variable.name.endswith("gamma:0")))
    return model


def encoder_config(**changes):
    """Return the config of `build_encoder`."""
    return encoders.EncoderConfig({"type": "bert", "bert": {**SIZES, **changes}})


def new_encoder(kind="bert", **changes):
    """Return one of their encoders, built in the usual way."""
    if kind == "bert":
        encoder = encoders.build_encoder(encoder_config(**changes))
    else:
        sizes = dict(SIZES, max_sequence_length=SIZES["max_position_embeddings"])
        del sizes["max_position_embeddings"]
        encoder = getattr(networks, kind)(**sizes)
    encoder(encoder.inputs)
    return encoder


def new_pretrainer(encoder=None):
    """Return a BertPretrainerV2 as `MaskedLMTask` builds it."""
    head = layers.ClassificationHead(12, 2, dropout_rate=0.1, name="next_sentence")
    model = models.BertPretrainerV2(
        encoder or new_encoder(),
        mlm_activation=tf_utils.get_activation("gelu"),
        classification_heads=[head],
    )
    model({key: tf.constant(value) for key, value in batch().items()})
    return model


def without_attributes(encoder):
    """Return the encoder as a plain functional model, as older releases stored it."""
    return tf_keras.Model(encoder.inputs, encoder.outputs)


def assert_equal_encoder(path, encoder, *, pooler=None):
    given = batch()
    theirs = encoder({k: given[k] for k in list(given)[:3]})
    if isinstance(theirs, list):
        theirs = dict(zip(("sequence_output", "pooled_output"), theirs, strict=True))
    ours = BertEncoder.from_pretrained(str(path))(ours_of(given))
    assert_near(ours["sequence_output"], theirs["sequence_output"])
    pooled = theirs["pooled_output"]
    if pooler is not None:
        pooled = pooler(theirs["sequence_output"][:, 0])
    assert_near(ours["pooled_output"], pooled)


def pretrainer_from(path):
    """Return our pretrainer with the weights of a checkpoint, which has every head."""
    checkpoint = read_checkpoint(path)
    model = BertPretrainer(BertEncoder(checkpoint.config))
    with collected() as said:
        assign_pretrainer(model, checkpoint)
    assert said == [] and checkpoint.unrecognized == ()
    return model


def assert_equal_pretrainer(model, theirs):
    given = batch()
    wanted = theirs(given)
    found = model(
        {
            **ours_of(given),
            "masked_positions": given["masked_lm_positions"],
            "cls_positions": np.arange(0, 60, 15, dtype="int32"),
        }
    )
    assert_near(found["masked_lm"], wanted["mlm_logits"])
    assert_near(found["next_sentence"], wanted["next_sentence"])
