"""`BertConfig`: counts of the released models, ranges, files and errors."""

import dataclasses
import json
import subprocess
import sys

import pytest

from bert_keras.config import PRESETS, BertConfig
from bert_keras.errors import BertKerasError, ConfigError

# Of Google's releases: the uncased vocabulary, with the pooler.
RELEASED_COUNTS = {
    "tiny": 4_385_920,
    "mini": 11_170_560,
    "small": 28_763_648,
    "medium": 41_373_184,
    "base": 109_482_240,
    "large": 335_141_888,
}


def test_defaults_are_those_of_base():
    base = BertConfig.from_preset("base", hidden_act="gelu")
    assert BertConfig() == base


@pytest.mark.parametrize("name", PRESETS)
def test_parameter_count_of_released_models(name):
    assert BertConfig.from_preset(name).parameter_count() == RELEASED_COUNTS[name]


def test_parameter_count_by_hand():
    config = BertConfig(
        vocab_size=7,
        hidden_size=4,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=3,
        max_position_embeddings=5,
        type_vocab_size=2,
    )
    embeddings = (7 + 5 + 2) * 4 + 2 * 4
    attention = 4 * (4 * 4 + 4) + 2 * 4
    feed_forward = (4 * 3 + 3) + (3 * 4 + 4) + 2 * 4
    pooler = 4 * 4 + 4
    without = embeddings + 2 * (attention + feed_forward)
    assert config.parameter_count(pooler=False) == without
    assert config.parameter_count() == without + pooler


@pytest.mark.parametrize(
    ("vocabulary", "size"),
    [
        ("uncased", 30_522),
        ("cased", 28_996),
        ("multilingual", 119_547),
        ("chinese", 21_128),
    ],
)
def test_vocabularies_of_the_releases(vocabulary, size):
    config = BertConfig.from_preset("base", vocabulary=vocabulary)
    assert config.vocab_size == size


def test_presets_mean_the_tanh_form_of_gelu():
    assert {BertConfig.from_preset(name).hidden_act for name in PRESETS} == {"gelu_new"}


def test_preset_with_changes():
    config = BertConfig.from_preset("tiny", num_hidden_layers=3, is_decoder=True)
    assert (config.num_hidden_layers, config.hidden_size) == (3, 128)
    assert config.is_decoder


def test_head_width():
    assert BertConfig(hidden_size=12, num_attention_heads=3).head_width == 4


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("gelu_pytorch_tanh", "gelu_new"),
        ("gelu_fast", "gelu_new"),
        ("gelu_python", "gelu"),
        ("swish", "silu"),
    ],
)
def test_aliases_of_activations(alias, name):
    assert BertConfig(hidden_act=alias).hidden_act == name


def test_a_config_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        BertConfig().hidden_size = 4


def test_dict_round_trip():
    config = BertConfig(hidden_size=8, num_attention_heads=2, layer_norm_eps=1e-5)
    assert BertConfig.from_dict(config.to_dict(), ignore=()) == config


def test_json_round_trip(tmp_path):
    config = BertConfig(hidden_size=8, num_attention_heads=2, is_decoder=True)
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(config.to_dict()))
    assert BertConfig.from_json(path, ignore=()) == config


def test_replace_checks_again():
    config = BertConfig(hidden_size=8, num_attention_heads=2)
    assert config.replace(hidden_size=10).hidden_size == 10
    with pytest.raises(ConfigError, match="received 2 and 9"):
        config.replace(hidden_size=9)
    with pytest.raises(ConfigError, match="unknown key hiden_size"):
        config.replace(hiden_size=8)


def test_unknown_keys_raise_or_are_on_a_list():
    values = {"hidden_size": 768, "model_type": "bert", "hiden": 1}
    with pytest.raises(ConfigError, match="unknown keys hiden, model_type"):
        BertConfig.from_dict(values, ignore=())
    with pytest.raises(ConfigError, match="unknown key hiden;"):
        BertConfig.from_dict(values, ignore=("model_type",))
    assert BertConfig.from_dict(values) == BertConfig()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 770}, "received 12 and 770"),
        ({"hidden_size": 0}, "`hidden_size` must be from 1"),
        ({"num_hidden_layers": -1}, "received -1"),
        ({"vocab_size": 1 << 40}, "`vocab_size` must be from 1 to 16,777,216"),
        ({"vocab_size": 30_522.0}, "`vocab_size` must be an integer"),
        ({"num_attention_heads": True}, "must be an integer; received True"),
        ({"hidden_size": "768"}, "must be an integer; received '768'"),
        ({"hidden_size": None}, "must be an integer; received None"),
        ({"hidden_act": "mish"}, "must be one of gelu, gelu_new.*received 'mish'"),
        ({"hidden_act": 3}, "`hidden_act` must be a string; received 3"),
        ({"hidden_dropout_prob": 1.0}, r"must be in \[0, 1\); received 1.0"),
        ({"attention_probs_dropout_prob": -0.1}, "`attention_probs_dropout_prob`"),
        ({"hidden_dropout_prob": float("nan")}, "received nan"),
        ({"layer_norm_eps": 0.0}, r"`layer_norm_eps` must be in \(0, 1\)"),
        ({"layer_norm_eps": "1e-12"}, "must be a number; received '1e-12'"),
        ({"initializer_range": float("inf")}, "received inf"),
        ({"is_decoder": 1}, "`is_decoder` must be true or false; received 1"),
        ({"num_hidden_layers": 1 << 20}, "parameters is refused"),
    ],
)
def test_errors_name_argument_rule_and_value(changes, message):
    with pytest.raises(ConfigError, match=message):
        BertConfig(**changes)


def test_unknown_preset_and_vocabulary():
    with pytest.raises(ConfigError, match="tiny, mini.*received 'huge'"):
        BertConfig.from_preset("huge")
    with pytest.raises(ConfigError, match="uncased, cased.*received 'klingon'"):
        BertConfig.from_preset("base", vocabulary="klingon")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON file"),
        ("[1]", "must hold a JSON object; received list"),
        ('{"hidden_size": 770}', "received 12 and 770"),
        ("[" * 100_000, "not a JSON file"),
    ],
)
def test_errors_of_a_file_name_it(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        BertConfig.from_json(path)
    assert str(path) in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(BertKerasError, match="none.json"):
        BertConfig.from_json(tmp_path / "none.json")


def test_config_imports_neither_tensorflow_nor_keras():
    code = (
        "import sys, bert_keras.config;"
        "sys.exit(any(n in sys.modules for n in ('tensorflow', 'keras', 'numpy')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_options_of_other_encoders():
    config = BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1)
    assert not {"embedding_size", "model_type"} & set(config.to_dict())
    narrow = config.replace(embedding_size=4, type_vocab_size=0)
    rows = config.vocab_size + config.max_position_embeddings
    lost = 8 * (rows + 2) + 16 - (4 * rows + 8 + 4 * 8 + 8)
    assert narrow.parameter_count() == config.parameter_count() - lost
    assert BertConfig.from_dict(narrow.to_dict(), ignore=()).to_dict() == (
        narrow.to_dict()
    )
    assert config.replace(embedding_size=8) == config
    with pytest.raises(ConfigError, match="`model_type` must be one of bert"):
        BertConfig(model_type="roberta")
