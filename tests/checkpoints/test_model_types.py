"""DistilBERT and ELECTRA: config keys, names of weights, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import VOCABULARY, refused, write_encoder

from bert_keras.checkpoints import names, read_checkpoint
from bert_keras.checkpoints.model_types import to_ours, to_theirs
from bert_keras.cli.info import describe
from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.convert import convert
from bert_keras.models.task_model import TaskModel
from bert_keras.pretraining.pretrainer import BertPretrainer
from bert_keras.tasks.classification import Classification

CHANGES: dict[str, dict[str, Any]] = {
    "distilbert": {"model_type": "distilbert", "type_vocab_size": 0},
    "electra": {"model_type": "electra", "embedding_size": 8},
}


def change_config(folder: Path, **changes: Any) -> None:
    place = folder / "config.json"
    config = json.loads(place.read_text()) | changes
    place.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("kind", "theirs", "ours"),
    [
        (
            "distilbert",
            "distilbert.transformer.layer.11.attention.q_lin.weight",
            "bert/encoder/layer_11/attention/self/query/kernel",
        ),
        (
            "distilbert",
            "transformer.layer.0.sa_layer_norm.bias",
            "bert/encoder/layer_0/attention/output/LayerNorm/beta",
        ),
        ("distilbert", "pre_classifier.weight", "bert/pooler/dense/kernel"),
        ("distilbert", "vocab_projector.bias", "cls/predictions/output_bias"),
        (
            "electra",
            "embeddings_project.weight",
            "bert/embeddings/embeddings_project/kernel",
        ),
        ("electra", "classifier.dense.bias", "bert/pooler/dense/bias"),
        ("electra", "sequence_summary.summary.bias", "bert/pooler/dense/bias"),
        ("electra", "classifier.weight", "classifier/kernel"),
        ("electra", "classifier.out_proj.weight", "classifier/kernel"),
        (
            "distilbert",
            "distilbert/transformer/layer_._3/ffn/lin1/kernel:0",
            "bert/encoder/layer_3/intermediate/dense/kernel",
        ),
        (
            "electra",
            "electra/embeddings_project/kernel:0",
            "bert/embeddings/embeddings_project/kernel",
        ),
        ("electra", "sequence_summary/summary/bias:0", "bert/pooler/dense/bias"),
        ("electra", "classifier/out_proj/kernel:0", "classifier/kernel"),
        ("electra", "classifier/kernel:0", "classifier/kernel"),
        (
            "electra",
            "discriminator_predictions/dense_prediction/kernel:0",
            "discriminator_predictions/dense_prediction/kernel",
        ),
        ("bert", "pre_classifier.weight", None),
        ("bert", "vocab_projector/bias:0", None),
        ("electra", "bert.pooler.dense.weight", None),
    ],
)
def test_names(kind: str, theirs: str, ours: str | None) -> None:
    found = names.from_huggingface(theirs, kind)
    assert (found and found.name) == ours


@pytest.mark.parametrize("kind", CHANGES)
def test_a_written_folder_is_read_again(kind: str, tmp_path: Path) -> None:
    write_encoder(tmp_path / "one", **CHANGES[kind])
    checkpoint = read_checkpoint(tmp_path / "one")
    config = checkpoint.config
    assert config.model_type == kind
    wanted = BertConfig(**config.to_dict())
    assert config == wanted and to_ours(to_theirs(config.to_dict())) == (
        config.to_dict()
    )
    encoder = BertEncoder.from_pretrained(str(tmp_path / "one"))
    for weight in encoder.weights:
        np.testing.assert_array_equal(weight, checkpoint.arrays[weight.path])
    convert(tmp_path / "one", tmp_path / "two")
    one, two = (tmp_path / x / "model.safetensors" for x in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    facts = describe(tmp_path / "two")
    assert facts["architecture"] in ("DistilBertModel", "ElectraModel")
    assert facts["model_type"] == kind
    card = (tmp_path / "two/README.md").read_text()
    assert f"{config.parameter_count():,} parameters" in card
    title = {"distilbert": "A DistilBERT", "electra": "An ELECTRA"}[kind]
    assert f"{title} encoder without a head." in card and f"- {kind}\n" in card


def test_a_folder_of_bert_says_nothing_of_other_types(tmp_path: Path) -> None:
    write_encoder(tmp_path)
    assert not {"embedding_size"} & set(
        json.loads((tmp_path / "config.json").read_text())
    )
    # In the config of a BERT, these keys have no meaning.
    change_config(tmp_path, embedding_size=8, model_type=None)
    assert (
        read_checkpoint(tmp_path).config.to_dict()
        == BertConfig(
            vocab_size=len(VOCABULARY),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=40,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer_range=0.3,
        ).to_dict()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type_vocab_size": 0}, "model type bert has segments"),
        ({"embedding_size": 8}, "model type bert has segments"),
        ({"model_type": "distilbert"}, "`type_vocab_size` of a distilbert must be 0"),
    ],
)
def test_what_a_type_cannot_say_is_not_written(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    refused(lambda: write_encoder(tmp_path, **changes), message)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", CHANGES)
def test_what_is_refused(kind: str, tmp_path: Path) -> None:
    folder = write_encoder(tmp_path / "one", **CHANGES[kind])
    for form in ("google", "model-garden"):
        refused(lambda f=form: convert(folder, tmp_path / "two", to=f), kind)
    for task in ("next-sentence", "translation"):
        refused(lambda t=task: TaskModel.from_pretrained(folder, t), "type bert", kind)
    refused(lambda: BertPretrainer.from_pretrained(folder, next_sentence=True), kind)
    BertPretrainer.from_pretrained(folder)  # masked words alone
    change_config(folder, is_decoder=True)
    refused(lambda: read_checkpoint(folder), "`is_decoder` is not supported")


def test_other_summaries_of_electra_are_refused(tmp_path: Path) -> None:
    folder = write_encoder(tmp_path, **CHANGES["electra"])
    change_config(folder, summary_type="mean")
    read_checkpoint(folder)  # an encoder has no summary
    change_config(folder, architectures=["ElectraForMultipleChoice"])
    refused(lambda: read_checkpoint(folder), "`summary_type` must be first", "mean")


def test_a_generator_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_encoder(tmp_path, **CHANGES["electra"])
    change_config(folder, architectures=["ElectraForMaskedLM"])
    TaskModel.from_pretrained(folder, "classification", classes=("a", "b"))
    assert "is the generator of an ELECTRA" in capsys.readouterr().err


@pytest.mark.slow
def test_pairs_of_a_model_without_segments_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_encoder(tmp_path, **CHANGES["distilbert"])
    model = TaskModel.from_pretrained(folder, Classification(("a", "b")))
    line = "has no segments: only [SEP] separates the two texts of a pair"
    model.compile(run_eagerly=True)
    model.predict(["win now"], verbose=0)
    assert line not in capsys.readouterr().err
    for _ in range(2):
        model.predict((["win now"], ["see you"]), verbose=0)
    assert capsys.readouterr().err.count(line) == 1
