"""What TF Model Garden saves, by its own means, gives equal outputs here."""

import pytest
from conftest import VOCABULARY
from garden_models import (
    SIZES,
    assert_equal_encoder,
    assert_equal_pretrainer,
    at_random,
    encoder_config,
    encoders,
    networks,
    new_encoder,
    new_pretrainer,
    pretrainer_from,
    tf,
    tf_keras,
    without_attributes,
)
from official.modeling.hyperparams import params_dict
from official.nlp.tools import export_tfhub_lib

from bert_keras.checkpoints import read_checkpoint
from bert_keras.text.tokenizer import WordPieceTokenizer

pytestmark = pytest.mark.filterwarnings("ignore")  # their code has many

_SMALL = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 12,
    "num_attention_heads": 2,
    "num_layers": 1,
}


def trained(model, folder, optimizer):
    """Save what `train.py` saves after a step; returns the path of the checkpoint."""
    step = tf.Variable(0, dtype=tf.int64)
    gradients = [(tf.ones_like(v), v) for v in model.trainable_variables]
    optimizer.learning_rate = 0.0  # its slots are made, the weights stay
    optimizer.apply_gradients(gradients)
    items = getattr(model, "checkpoint_items", {})
    saved = tf.train.Checkpoint(
        global_step=step, model=model, optimizer=optimizer, **items
    )
    return saved.save(str(folder / "ckpt"))


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


def test_an_export_for_tf_hub(tmp_path):
    """One layer: most of the time is tracing, which a second one would double."""
    theirs = at_random(new_pretrainer(new_encoder(num_layers=1)))
    source = tf.train.Checkpoint(**theirs.checkpoint_items)
    WordPieceTokenizer(VOCABULARY).save(tmp_path)
    export_tfhub_lib.export_model(
        str(tmp_path / "export"),
        encoder_config=encoder_config(num_layers=1),
        model_checkpoint_path=source.save(str(tmp_path / "ckpt")),
        with_mlm=True,
        vocab_file=str(tmp_path / "vocab.txt"),
        do_lower_case=True,
    )
    checkpoint = read_checkpoint(tmp_path / "export")
    assert checkpoint.config.hidden_act == "gelu_new"
    assert checkpoint.origin == "model-garden"
    assert checkpoint.tokenizer == {"lowercase": True}
    assert checkpoint.unrecognized == ()
    assert "cls/predictions/output_bias" in checkpoint.shapes
    assert_equal_encoder(tmp_path / "export", theirs.encoder_network)
    tokenizer = WordPieceTokenizer.from_folder(tmp_path / "export")
    assert list(tokenizer.vocabulary) == VOCABULARY


def test_a_saved_model_of_a_pretrainer(tmp_path):
    theirs = at_random(new_pretrainer(new_encoder(num_layers=1)))
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


def test_models_other_than_bert_are_rejected(tmp_path):
    config = {"type": "albert", "albert": {"vocab_size": 30, "hidden_size": 12}}
    config["albert"] |= {"num_attention_heads": 2, "embedding_width": 4}
    albert = encoders.build_encoder(encoders.EncoderConfig(config))
    tf.train.Checkpoint(encoder=albert).write(str(tmp_path / "ckpt"))
    with pytest.raises(ValueError, match="contains no BertEncoder"):
        read_checkpoint(tmp_path / "ckpt")
    factorized = networks.BertEncoder(**{**_SMALL, "embedding_width": 6})
    tf.train.Checkpoint(encoder=factorized).write(str(tmp_path / "other"))
    with pytest.raises(ValueError, match="hidden size"):
        read_checkpoint(tmp_path / "other")
    networks.BertEncoder(**_SMALL, norm_first=True).save(tmp_path / "saved")
    with pytest.raises(ValueError, match="`norm_first` must be false"):
        read_checkpoint(tmp_path / "saved")
