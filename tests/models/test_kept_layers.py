"""Encoders with some of their layers: weights, heads, answers, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refused, write_encoder
from safetensors.numpy import load_file

from bert_keras.cli.main import main
from bert_keras.errors import ConfigError
from bert_keras.models.convert import convert
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.generation import Translation


@pytest.mark.parametrize("layers", [(1,), "1", [1]])
def test_a_head_stays_on_the_layers_that_are_kept(
    layers: Any, spam_folder: Path, spam_model: Any, tmp_path: Path
) -> None:
    convert(spam_folder, tmp_path / "small", keep_layers=layers)
    small = load_model(tmp_path / "small")
    assert small.backbone.config.num_hidden_layers == 1
    assert small.task == spam_model.task
    whole = {weight.path: weight.numpy() for weight in spam_model.weights}
    for weight in small.weights:
        place = weight.path.replace("layer_0", "layer_1")
        np.testing.assert_array_equal(weight.numpy(), whole[place])
    card = (tmp_path / "small" / "README.md").read_text()
    assert "with its layers 1 (numbered from 0) alone" in card


def test_a_head_on_all_layers_keeps_what_it_reads_of_those_that_stay(
    make_model: Any, tmp_path: Path
) -> None:
    model = make_model(Classification(("a", "b"), pooling="mean", layers="all"))
    convert(save_model(model, tmp_path / "whole"), tmp_path / "small", keep_layers="1")
    small = load_model(tmp_path / "small")
    of_embeddings, _, of_last = np.split(model.get_layer("classifier").kernel, 3)
    np.testing.assert_array_equal(
        small.get_layer("classifier").kernel, np.concatenate([of_embeddings, of_last])
    )


def test_the_command_keeps_layers(tmp_path: Path) -> None:
    encoder = write_encoder(tmp_path / "encoder", num_hidden_layers=3)
    small = tmp_path / "small"
    assert main(["convert", str(encoder), str(small), "--keep-layers", "0,2"]) == 0
    names = load_file(small / "model.safetensors")
    assert sum(name.endswith("query.weight") for name in names) == 2
    assert main(["convert", str(encoder), str(small), "--keep-layers", "2,0"]) == 2


@pytest.mark.parametrize(
    ("layers", "parts"),
    [
        ("0,2", ("from 0 to 1", "has 2 layers", "received 0,2")),
        ("1,1", ("ascending order", "'1,1'")),
        ("1,0", ("ascending order", "'1,0'")),
        ((1, 0), ("ascending order", "'1,0'")),
        ("-1", ("from 0",)),
        ("0,x", ("such as 0,2,4", "'0,x'")),
        ("", ("such as 0,2,4",)),
        ((), ("such as 0,2,4",)),
        ((0, True), ("such as 0,2,4",)),
        (3.5, ("such as 0,2,4", "3.5")),
    ],
)
def test_layers_that_cannot_be_kept(
    layers: Any, parts: tuple[str, ...], encoder_folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="`keep_layers` must be"):
        convert(encoder_folder, tmp_path / "out", keep_layers=layers)
    refused(
        lambda: convert(encoder_folder, tmp_path / "out", keep_layers=layers), *parts
    )
    assert not (tmp_path / "out").exists()


def test_other_layers_of_an_embedding_model_are_not_kept(
    make_model: Any, tmp_path: Path
) -> None:
    folder = save_model(make_model(Embedding(layers="0,1")), tmp_path / "model")
    refused(
        lambda: convert(folder, tmp_path / "out", keep_layers="0"),
        "a model that reads the last layer",
    )


@pytest.mark.parametrize("decoder", ["encoder", "shared", "2/8/2"])
def test_a_decoder_keeps_the_layers_unless_it_has_a_number_of_its_own(
    decoder: str, make_model: Any, tmp_path: Path
) -> None:
    model = make_model(Translation(decoder=decoder))
    folder = save_model(model, tmp_path / "model")
    notes = convert(folder, tmp_path / "small", keep_layers="1")
    small = load_model(tmp_path / "small")
    assert small.backbone.config.num_hidden_layers == 1
    is_whole = decoder == "2/8/2"
    assert len(small.get_layer("decoder").blocks) == (2 if is_whole else 1)
    left = "leaves the decoder as it is, 2 layers"
    assert any(left in note for note in notes) == is_whole
    whole = {weight.path: weight.numpy() for weight in model.weights}
    for weight in small.weights:
        place = weight.path
        if not is_whole or place.startswith("bert/"):
            place = place.replace("layer_0", "layer_1")
        np.testing.assert_array_equal(weight.numpy(), whole[place])
