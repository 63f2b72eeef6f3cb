"""What TF Model Garden saves, read here, and what is written here, loaded there.

`make test-garden` runs this in an environment of its own: tf-models-official wants
TensorFlow 2.20 and Keras 2 (`tf_keras`), which stands beside Keras 3 in one process.
"""

import json
import warnings

import numpy as np
import pytest
from conftest import VOCABULARY

from bert_keras.checkpoints import read_checkpoint, write_huggingface
from bert_keras.config import BertConfig
from bert_keras.convert import convert
from bert_keras.encoder import BertEncoder
from bert_keras.pretrainer import BertPretrainer
from bert_keras.pretrainer_folder import assign_pretrainer, weights_of
from bert_keras.tokenizer import WordPieceTokenizer

pytest.importorskip("official", reason="needs tf-models-official: `make test-garden`")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import tensorflow as tf
    import tf_keras
    from official.legacy.bert.configs import BertConfig as LegacyConfig
    from official.modeling import tf_utils
    from official.modeling.hyperparams import params_dict
    from official.nlp.configs import encoders
    from official.nlp.configs.bert import PretrainerConfig
    from official.nlp.modeling import layers, models, networks
    from official.nlp.tools import export_tfhub_lib

pytestmark = pytest.mark.filterwarnings("ignore")  # of theirs there are many

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
_DRAW = np.random.default_rng(7)


def batch():
    """Return token ids, mask, segments and positions to predict, drawn anew."""
    ids = _DRAW.integers(5, len(VOCABULARY), size=(4, 15))
    mask = (np.arange(15) < np.array([[15], [9], [3], [12]])).astype("int32")
    return {
        "input_word_ids": np.where(mask, ids, 0).astype("int32"),
        "input_mask": mask,
        "input_type_ids": _DRAW.integers(0, 3, size=(4, 15)).astype("int32") * mask,
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
    """Give every weight of theirs values that differ from the initial ones."""
    for variable in model.weights:
        values = _DRAW.normal(scale=0.3, size=variable.shape)
        variable.assign(values + (variable.name.endswith("gamma:0")))
    return model


def new_encoder(kind="bert"):
    """Return an encoder of theirs, made as its users make it."""
    if kind == "bert":
        config = encoders.EncoderConfig({"type": "bert", "bert": SIZES})
        encoder = encoders.build_encoder(config)
    else:
        sizes = dict(SIZES, max_sequence_length=SIZES["max_position_embeddings"])
        del sizes["max_position_embeddings"]
        encoder = getattr(networks, kind)(**sizes)
    encoder(encoder.inputs)
    return encoder


def new_pretrainer(encoder=None):
    """Return a BertPretrainerV2 as `MaskedLMTask` makes it."""
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


def trained(model, folder, optimizer):
    """Save what `train.py` saves after a step; returns the path of the checkpoint."""
    step = tf.Variable(0, dtype=tf.int64)
    zeros = [(tf.ones_like(v), v) for v in model.trainable_variables]
    optimizer.learning_rate = 0.0  # its slots are made, the weights stay
    optimizer.apply_gradients(zeros)
    items = getattr(model, "checkpoint_items", {})
    saved = tf.train.Checkpoint(
        global_step=step, model=model, optimizer=optimizer, **items
    )
    return saved.save(str(folder / "ckpt"))


def exported(checkpoint, folder, *, with_mlm, vocabulary, **config):
    """Export with their own tool; returns the SavedModel's folder."""
    export_tfhub_lib.export_model(
        str(folder),
        model_checkpoint_path=str(checkpoint),
        with_mlm=with_mlm,
        vocab_file=str(vocabulary),
        do_lower_case=True,
        **config,
    )
    return folder


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    WordPieceTokenizer(VOCABULARY).save(folder)
    return folder / "vocab.txt"


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
    """Return our pretrainer with the weights of a checkpoint; every head is there."""
    checkpoint = read_checkpoint(path)
    model = BertPretrainer(BertEncoder(checkpoint.config))
    said = []
    assign_pretrainer(model, checkpoint, said.append)
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


# In.


@pytest.mark.parametrize(
    ("kind", "root"),
    [("bert", "encoder"), ("BertEncoder", "model"), ("BertEncoderV2", "encoder")],
)
def test_an_encoder(kind, root, tmp_path):
    encoder = at_random(new_encoder(kind))
    path = tf.train.Checkpoint(**{root: encoder}).write(str(tmp_path / "model.ckpt"))
    assert_equal_encoder(path, encoder)


def test_an_encoder_that_is_the_root(tmp_path):
    encoder = at_random(new_encoder())
    encoder.save_weights(str(tmp_path / "ckpt"))
    assert_equal_encoder(tmp_path, encoder)


def test_an_encoder_without_attributes(tmp_path):
    encoder = at_random(new_encoder())
    plain = without_attributes(encoder)
    path = tf.train.Checkpoint(model=plain).write(str(tmp_path / "ckpt"))
    keys = [name for name, _ in tf.train.list_variables(path)]
    assert not any("_pooler_layer" in key for key in keys)
    assert_equal_encoder(path, encoder)


@pytest.mark.parametrize("optimizer", ["experimental", "legacy"])
def test_a_run_of_train_py(optimizer, tmp_path):
    made = tf_keras.optimizers
    made = made.Adam() if optimizer == "experimental" else made.legacy.Adam()
    theirs = at_random(new_pretrainer())
    path = trained(theirs, tmp_path, made)
    model = {
        "encoder": {"type": "bert", "bert": {**SIZES, "dropout_rate": 0.2}},
        "cls_heads": [{"name": "next_sentence", "inner_dim": 12}],
    }
    params = params_dict.ParamsDict({"task": {"model": model}})
    params_dict.save_params_dict_to_yaml(params, str(tmp_path / "params.yaml"))
    checkpoint = read_checkpoint(path)
    assert checkpoint.config.hidden_dropout_prob == 0.2
    assert checkpoint.config.hidden_act == "gelu_new"
    slots = 2 * len(theirs.trainable_variables)
    (note,) = (note for note in checkpoint.notes if "optimizer" in note)
    assert int(note.split()[0]) >= slots
    assert any("encoder's own" in note for note in checkpoint.notes)
    assert_equal_pretrainer(pretrainer_from(path), theirs)
    pooler = theirs.classification_heads[0].dense
    assert_equal_encoder(path, theirs.encoder_network, pooler=pooler)
    assert read_checkpoint(tmp_path).shapes == checkpoint.shapes


def test_a_pretrainer_without_its_items(tmp_path):
    theirs = at_random(new_pretrainer(new_encoder("BertEncoderV2")))
    path = tf.train.Checkpoint(model=theirs).write(str(tmp_path / "ckpt"))
    assert_equal_pretrainer(pretrainer_from(path), theirs)


def test_an_export_for_tf_hub(vocabulary, tmp_path):
    theirs = at_random(new_pretrainer())
    source = tf.train.Checkpoint(**theirs.checkpoint_items)
    config = encoders.EncoderConfig({"type": "bert", "bert": SIZES})
    folder = exported(
        source.save(str(tmp_path / "ckpt")),
        tmp_path / "export",
        with_mlm=True,
        vocabulary=vocabulary,
        encoder_config=config,
    )
    checkpoint = read_checkpoint(folder)
    assert checkpoint.config.hidden_act == "gelu_new"
    assert checkpoint.notes == checkpoint.unrecognized == ()
    assert "cls/predictions/output_bias" in checkpoint.shapes
    assert_equal_encoder(folder, theirs.encoder_network)
    tokenizer = WordPieceTokenizer.from_folder(folder)
    assert list(tokenizer.vocabulary) == VOCABULARY


def test_a_saved_model_of_a_pretrainer(tmp_path):
    theirs = at_random(new_pretrainer())
    tf.saved_model.save(theirs, str(tmp_path))
    assert_equal_pretrainer(pretrainer_from(tmp_path), theirs)


@pytest.mark.parametrize(("given", "meant"), [("gelu", "gelu"), (None, "gelu_new")])
def test_the_activation_of_a_saved_model(given, meant, tmp_path):
    """Keras's own word gelu is the erf form, Model Garden's default the tanh form."""
    changes = {"activation": given} if given else {}
    encoder = at_random(networks.BertEncoder(**_SMALL, **changes))
    encoder.save(tmp_path / "saved")
    assert read_checkpoint(tmp_path / "saved").config.hidden_act == meant
    assert_equal_encoder(tmp_path / "saved", encoder)


def test_what_is_no_bert_is_refused(tmp_path):
    config = {"type": "albert", "albert": {"vocab_size": 30, "hidden_size": 12}}
    config["albert"] |= {"num_attention_heads": 2, "embedding_width": 4}
    albert = encoders.build_encoder(encoders.EncoderConfig(config))
    tf.train.Checkpoint(encoder=albert).write(str(tmp_path / "ckpt"))
    with pytest.raises(ValueError, match="holds no BertEncoder"):
        read_checkpoint(tmp_path / "ckpt")
    factorized = networks.BertEncoder(**{**_SMALL, "embedding_width": 6})
    tf.train.Checkpoint(encoder=factorized).write(str(tmp_path / "other"))
    with pytest.raises(ValueError, match="hidden size"):
        read_checkpoint(tmp_path / "other")
    networks.BertEncoder(**_SMALL, norm_first=True).save(tmp_path / "saved")
    with pytest.raises(ValueError, match="`norm_first` must be false"):
        read_checkpoint(tmp_path / "saved")


_SMALL = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 12,
    "num_attention_heads": 2,
    "num_layers": 1,
}


# Out, and back.


def our_pretrainer(folder):
    """Write a pretraining model of ours at random; returns it."""
    model = BertPretrainer(BertEncoder(OURS, seed=3), seed=4)
    for weight in model.weights:
        values = _DRAW.normal(scale=0.3, size=weight.shape)
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


def test_a_pretrainer_goes_there_and_back(vocabulary, tmp_path):
    ours = our_pretrainer(tmp_path / "ours")
    notes = convert(tmp_path / "ours", tmp_path / "garden", to="model-garden")
    assert not [note for note in notes if "differ" in note or "no pooler" in note]
    prefix = str(tmp_path / "garden" / "bert_model.ckpt")
    assert tf.train.latest_checkpoint(str(tmp_path / "garden")) == prefix

    # A model by the params.yaml that was written, as train.py would make it.
    params = params_dict.read_yaml_to_params_dict(
        str(tmp_path / "garden" / "params.yaml")
    )
    config = params_dict.override_params_dict(
        PretrainerConfig(), params.task.model.as_dict(), is_strict=True
    )
    (head,) = config.cls_heads
    theirs = models.BertPretrainerV2(
        encoders.build_encoder(config.encoder),
        mlm_activation=tf_utils.get_activation(config.mlm_activation),
        classification_heads=[layers.ClassificationHead(**head.as_dict())],
    )
    theirs(batch())
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

    # Their own tool exports it; what it writes comes back, bit by bit.
    exported(
        prefix,
        tmp_path / "export",
        with_mlm=False,
        vocabulary=vocabulary,
        bert_config=LegacyConfig.from_json_file(
            str(tmp_path / "garden" / "bert_config.json")
        ),
    )
    back = read_checkpoint(tmp_path / "export")
    wanted = read_checkpoint(tmp_path / "ours")
    assert back.config == wanted.config.replace(initializer_range=0.02)
    for name, array in back.arrays.items():
        np.testing.assert_array_equal(array, wanted.arrays[name], err_msg=name)

    # Saved again by theirs, and converted: equal to what it was, config and all.
    path = tf.train.Checkpoint(**theirs.checkpoint_items, model=theirs).write(
        str(tmp_path / "theirs" / "bert_model.ckpt")
    )
    for file in ("bert_config.json", "vocab.txt", "tokenizer_config.json"):
        text = (tmp_path / "garden" / file).read_text()
        (tmp_path / "theirs" / file).write_text(text)
    convert(path, tmp_path / "back")
    assert_same_weights(tmp_path / "back", tmp_path / "ours")
    assert read_checkpoint(tmp_path / "back").config == OURS


@pytest.mark.parametrize("kind", ["bert", "BertEncoder", "BertEncoderV2"])
def test_an_encoder_goes_there(kind, tmp_path):
    ours = BertEncoder(OURS, seed=3)
    arrays = {weight.path: weight.numpy() for weight in ours.weights}
    config = {**OURS.to_dict(), "architectures": ["BertModel"]}
    write_huggingface(tmp_path / "ours", arrays, config)
    WordPieceTokenizer(VOCABULARY).save(tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "garden", to="model-garden")
    prefix = str(tmp_path / "garden" / "bert_model.ckpt")
    for root in ("encoder", "model"):
        encoder = new_encoder(kind)
        saved = tf.train.Checkpoint(**{root: encoder})
        saved.read(prefix).assert_existing_objects_matched()
        assert_equal_encoder(tmp_path / "ours", encoder)
        encoder = new_encoder(kind)
        tf.train.Checkpoint(**{root: encoder}).restore(prefix).assert_consumed()
    if kind == "bert":
        plain = without_attributes(at_random(encoder))
        tf.train.Checkpoint(model=plain).restore(prefix).assert_consumed()
        assert_equal_encoder(tmp_path / "ours", encoder)
    raw = json.loads((tmp_path / "garden" / "bert_config.json").read_text())
    assert raw["hidden_act"] == "gelu"
    convert(tmp_path / "garden", tmp_path / "back")
    assert_same_weights(tmp_path / "back", tmp_path / "ours")
