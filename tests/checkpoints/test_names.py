"""Names: hand-written pairs, round trips, and the listings of real checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bert_keras.checkpoints import formats, names
from bert_keras.checkpoints.names import TABLE
from bert_keras.errors import CheckpointError

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
CANONICAL = [name.replace("#", n) for name in TABLE for n in ("0", "7", "23")]


@pytest.mark.parametrize(
    ("theirs", "ours", "transpose"),
    [
        (
            "bert.embeddings.word_embeddings.weight",
            "bert/embeddings/word_embeddings",
            False,
        ),
        (
            "encoder.layer.11.attention.self.query.weight",
            "bert/encoder/layer_11/attention/self/query/kernel",
            True,
        ),
        (
            "bert.encoder.layer.0.attention.output.dense.bias",
            "bert/encoder/layer_0/attention/output/dense/bias",
            False,
        ),
        (
            "bert.encoder.layer.3.output.LayerNorm.gamma",
            "bert/encoder/layer_3/output/LayerNorm/gamma",
            False,
        ),
        ("embeddings.LayerNorm.beta", "bert/embeddings/LayerNorm/beta", False),
        ("pooler.dense.weight", "bert/pooler/dense/kernel", True),
        ("cls.predictions.bias", "cls/predictions/output_bias", False),
        ("cls.seq_relationship.weight", "cls/seq_relationship/kernel", True),
        ("classifier.weight", "classifier/kernel", True),
        ("qa_outputs.bias", "qa_outputs/bias", False),
        ("my_head/kernel", "my_head/kernel", False),
    ],
)
def test_from_huggingface(theirs: str, ours: str, transpose: bool) -> None:
    assert names.from_huggingface(theirs) == (ours, transpose)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "bert",
        "linear.weight",
        "bert.encoder.layer.#.output.dense.bias",
        "bert/encoder/layer_#/output/dense/bias",
        "bert.encoder.layer.01.output.dense.bias",
        "bert.encoder.layer.-1.output.dense.bias",
        "bert.encoder.layer.١.output.dense.bias",
        "bert.bert.pooler.dense.bias",
        "bert/pooler/dense/bias",  # canonical, but no Hugging Face file spells it so
        "classifier/kernel",
        "cls.predictions.decoder.weight",  # a copy, not a separate weight
        "/etc/passwd",
        "a//b",
        "a/b\n",
        "a/" * 50,
    ],
)
def test_a_foreign_name_is_not_guessed(name: str) -> None:
    assert names.from_huggingface(name) is None
    if name not in ("bert/pooler/dense/bias", "classifier/kernel"):
        assert names.from_google(name) is None
        with pytest.raises(CheckpointError):
            names.to_huggingface(name)


@pytest.mark.parametrize("prefix", [True, False])
def test_huggingface_round_trip(prefix: bool) -> None:
    for name in (*CANONICAL, "my_head/dense/kernel"):
        theirs, transpose = names.to_huggingface(name, prefix=prefix)
        assert names.from_huggingface(theirs) == (name, transpose)


def test_google_round_trip() -> None:
    for name in CANONICAL:
        theirs, transpose = names.to_google(name)
        assert names.from_google(theirs) == (name, transpose)


KERAS_HUB = [name for name in CANONICAL if "seq_rel" not in name and "qa_" not in name]


def test_keras_hub_round_trip() -> None:
    for name in KERAS_HUB:
        place = names.to_keras_hub(name)
        assert names.from_keras_hub(place) == name
        assert names.from_keras_hub(place.replace("/_", "/")) == name


GARDEN = [name for name in KERAS_HUB if not name.startswith("classifier")]
GARDEN += [name for name in CANONICAL if "seq_rel" in name]


def test_model_garden_round_trip() -> None:
    for name in GARDEN:
        assert names.from_model_garden(names.to_model_garden(name)) == name


@pytest.mark.parametrize(
    "place",
    [
        "encoder/_transformer_layers/01/_output_dense/kernel",
        "encoder/_transformer_layers/#/_output_dense/kernel",
        "encoder/_transformer_layers/_output_dense/kernel",
        "encoder/_pooler_layer",
        "masked_lm/embedding_table",
        "model/encoder/_pooler_layer/kernel",
    ],
)
def test_a_foreign_place_in_model_garden_is_not_guessed(place: str) -> None:
    assert names.from_model_garden(place) is None


def test_weights_that_model_garden_lacks() -> None:
    for name in ("classifier/bias", "bert/encoder/layer_#/output/dense/bias", "x/y"):
        with pytest.raises(CheckpointError, match="BertPretrainerV2 has no weight"):
            names.to_model_garden(name)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (
            "model:layers/transformer_encoder/_self_attention_layer/output_dense/vars/0",
            "bert/encoder/layer_0/attention/output/dense/kernel",
        ),
        (
            "model:layers/transformer_encoder_11/_feedforward_layer_norm/vars/1",
            "bert/encoder/layer_11/output/LayerNorm/beta",
        ),
        ("model:layers/dense/vars/1", "bert/pooler/dense/bias"),
        ("task:layers/dense/vars/1", "classifier/bias"),
        ("task:layers/masked_lm_head/vars/0", "cls/predictions/output_bias"),
        ("layers/dense/vars/1", None),
        ("model:layers/dense_1/vars/1", None),
        ("model:layers/transformer_encoder_0/_feedforward_layer_norm/vars/1", None),
        ("model:layers/transformer_encoder_01/_feedforward_layer_norm/vars/1", None),
        ("model:layers/transformer_encoder#/_feedforward_layer_norm/vars/1", None),
    ],
)
def test_from_keras_hub(place: str, name: str | None) -> None:
    assert names.from_keras_hub(place) == name


def test_weights_that_keras_hub_lacks() -> None:
    for name in ("qa_outputs/kernel", "bert/encoder/layer_#/output/dense/bias", "x/y"):
        with pytest.raises(CheckpointError, match="KerasHub's BERT has no weight"):
            names.to_keras_hub(name)


@pytest.mark.parametrize(
    ("name", "axis"),
    [
        ("bert/encoder/layer_3/attention/self/key/kernel", 1),
        ("bert/encoder/layer_3/attention/self/key/bias", 0),
        ("bert/encoder/layer_3/attention/output/dense/kernel", 0),
        ("bert/encoder/layer_3/attention/output/dense/bias", None),
        ("bert/encoder/layer_3/output/dense/kernel", None),
        ("bert/pooler/dense/kernel", None),
    ],
)
def test_axes_of_heads(name: str, axis: int | None) -> None:
    assert names.head_axis(name) == axis


def test_different_names_stay_different() -> None:
    assert len(set(KERAS_HUB)) == len({names.to_keras_hub(n) for n in KERAS_HUB})
    assert len(set(GARDEN)) == len({names.to_model_garden(n) for n in GARDEN})
    assert len(set(CANONICAL)) == len({names.to_huggingface(n) for n in CANONICAL})
    assert len(set(CANONICAL)) == len({names.to_google(n) for n in CANONICAL})


def test_google_heads() -> None:
    assert names.from_google("output_weights") == ("classifier/kernel", True)
    assert names.from_google("cls/squad/output_weights") == ("qa_outputs/kernel", True)
    assert names.from_google("cls/seq_relationship/output_bias") == (
        "cls/seq_relationship/bias",
        False,
    )
    assert names.from_google("cls/seq_relationship/bias") is None
    with pytest.raises(CheckpointError, match="my_head/kernel"):
        names.to_google("my_head/kernel")


def test_optimizer_state_and_buffers() -> None:
    for name in (
        "global_step",
        "beta1_power",
        "bert/pooler/dense/bias/adam_m",
        "bert/pooler/dense/bias/Adam_1",
        "output_weights/AdamWeightDecayOptimizer",
        "output_weights/AdamWeightDecayOptimizer_1",
        "cls/squad/output_bias/LAMB",
    ):
        assert names.is_optimizer_state(name)
        assert names.from_google(name) is None
    for name in ("bert/pooler/dense/bias", "my_head/adam", "my_head/Adam_x"):
        assert not names.is_optimizer_state(name)
    assert names.is_buffer("embeddings.position_ids")
    assert names.is_buffer("bert.embeddings.position_ids")


@pytest.mark.parametrize(
    ("folder", "layers", "heads"),
    [
        ("ckpt_index_only/chinese_L-12_H-768_A-12", 12, 7),
        ("ckpt_index_only/uncased_L-8_H-512_A-8", 8, 7),
        ("ckpt_index_only/CoVBERT", 12, 7),
        ("ckpt_index_only/huawei_trained", 12, 2),
        ("tf1_ckpt_keras_bert", 2, 7),
    ],
)
def test_every_name_of_real_checkpoints_maps(
    folder: str, layers: int, heads: int
) -> None:
    listing = DATA / folder / "variables.json"
    if not listing.is_file():
        pytest.skip(f"needs the shared data folder: {listing.parent.name} is absent")
    found = [row["name"] for row in json.loads(listing.read_text())]
    mapped = {names.from_google(name) for name in found}
    mapped.discard(None)
    assert len(mapped) == 5 + 16 * layers + 2 + heads
    rest = [name for name in found if names.from_google(name) is None]
    assert [name for name in rest if not names.is_optimizer_state(name)] == []


@pytest.mark.parametrize(
    ("dialect", "to_theirs", "heads"),
    [
        (formats.GOOGLE, names.to_google, ("cls/", "classifier/", "qa_outputs/")),
        (formats.MODEL_GARDEN, names.to_model_garden, ("cls/",)),
        (
            formats.KERAS_HUB,
            names.to_keras_hub,
            ("cls/predictions/", "classifier/"),
        ),
    ],
    ids=["google", "model-garden", "keras-hub"],
)
def test_heads_of_a_format_have_names(
    dialect: formats.Dialect,
    to_theirs: Callable[[str], object],
    heads: tuple[str, ...],
) -> None:
    for name in TABLE:
        if name.startswith("bert/"):
            continue
        if name.startswith(heads):
            assert to_theirs(name)
            assert dialect.kept([name]) == ([name], [])
            dialect.check_heads([name], {})
        else:
            if not name.startswith(tuple(dialect.left_out)):
                with pytest.raises(CheckpointError, match="has only the heads of"):
                    dialect.check_heads([name], {})
            with pytest.raises(CheckpointError, match="no weight named"):
                to_theirs(name)


def test_a_head_that_is_left_out() -> None:
    found = formats.KERAS_HUB.kept(
        ["bert/pooler/dense/bias", "cls/seq_relationship/bias"]
    )
    assert found == (
        ["bert/pooler/dense/bias"],
        ["left out: the next-sentence head, which KerasHub does not have"],
    )
