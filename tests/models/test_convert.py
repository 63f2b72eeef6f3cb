"""Conversion between formats: the same weights, config and vocabulary."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import SHARED, files_of, refused
from huggingface_hub import ModelCard
from safetensors.numpy import load_file, save_file

from bert_keras.checkpoints import read_checkpoint, write_huggingface
from bert_keras.checkpoints.sentence_files import (
    pair_scores,
    read_sentence_files,
    similarity,
    write_sentence_files,
)
from bert_keras.cli.info import describe
from bert_keras.models.convert import convert
from bert_keras.models.folder import Folder
from bert_keras.models.loading import load_model
from bert_keras.text.tokenizer import WordPieceTokenizer

_WORDS = "embeddings.word_embeddings"
GOOGLE = SHARED / "data" / "tf1_ckpt_keras_bert"


def assert_same_weights(found: Path, wanted: Path) -> None:
    """Check that two checkpoints hold bit-equal weights under the same names."""
    found_arrays = dict(read_checkpoint(found).arrays)
    wanted_arrays = dict(read_checkpoint(wanted).arrays)
    assert set(found_arrays) == set(wanted_arrays)
    for name, array in wanted_arrays.items():
        np.testing.assert_array_equal(found_arrays[name], array, err_msg=name)


@pytest.mark.skipif(not GOOGLE.is_dir(), reason=f"needs ../shared/data/{GOOGLE.name}")
def test_a_google_checkpoint(tmp_path: Path) -> None:
    notes = convert(GOOGLE, tmp_path / "out")
    assert any("gelu_new" in note for note in notes)
    assert_same_weights(tmp_path / "out", GOOGLE)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]
    assert config["hidden_act"] == "gelu_new"
    tokenizer = WordPieceTokenizer.from_folder(tmp_path / "out")
    assert tokenizer.vocabulary == WordPieceTokenizer.from_folder(GOOGLE).vocabulary


def test_an_encoder(encoder_folder: Path, tmp_path: Path) -> None:
    convert(encoder_folder, tmp_path / "out")
    assert_same_weights(tmp_path / "out", encoder_folder)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["BertModel"]


def test_a_model_folder_remains_a_model_folder(
    spam_folder: Path, tmp_path: Path
) -> None:
    convert(spam_folder, tmp_path / "out")
    assert_same_weights(tmp_path / "out", spam_folder)
    texts = ["free cash", "lunch at six"]
    found, wanted = load_model(tmp_path / "out"), load_model(spam_folder)
    assert found.task == wanted.task
    np.testing.assert_array_equal(
        found.answer(texts)["score"], wanted.answer(texts)["score"]
    )


@pytest.mark.parametrize(
    ("heads", "architecture"),
    [
        (
            {"classifier/kernel": (16, 3), "classifier/bias": (3,)},
            "SequenceClassification",
        ),
        ({"qa_outputs/kernel": (16, 2), "qa_outputs/bias": (2,)}, "QuestionAnswering"),
    ],
)
def test_heads_imply_the_architecture_if_nothing_names_it(
    encoder_folder: Path, tmp_path: Path, heads: dict, architecture: str
) -> None:
    source = read_checkpoint(encoder_folder)
    arrays = {**source.arrays, **{k: np.ones(v, "float32") for k, v in heads.items()}}
    config = {**source.raw_config, "architectures": [f"BertFor{architecture}"]}
    write_huggingface(tmp_path / "in", arrays, config)
    shutil.copy(encoder_folder / "vocab.txt", tmp_path / "in")
    config = json.loads((tmp_path / "in" / "config.json").read_text())
    del config["architectures"]
    (tmp_path / "in" / "config.json").write_text(json.dumps(config))
    convert(tmp_path / "in", tmp_path / "out")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["architectures"] == [f"BertFor{architecture}"]


def test_a_broken_source_leaves_the_target(
    encoder_folder: Path, spam_folder: Path, tmp_path: Path
) -> None:
    source = Path(shutil.copytree(encoder_folder, tmp_path / "in"))
    with open(source / "vocab.txt", "a") as file:
        file.write("extra\n")
    target = Path(shutil.copytree(spam_folder, tmp_path / "out"))
    before = files_of(target)
    refused(lambda: convert(source, target), "`vocab_size`")
    assert files_of(target) == before


def test_a_source_without_vocabulary(encoder_folder: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(encoder_folder, tmp_path / "in"))
    (source / "vocab.txt").unlink()
    refused(lambda: convert(source, tmp_path / "out"), "vocab.txt")
    assert not (tmp_path / "out").exists()


def test_a_source_that_lacks_a_weight(encoder_folder: Path, tmp_path: Path) -> None:
    source = read_checkpoint(encoder_folder)
    arrays = dict(source.arrays)
    del arrays["bert/encoder/layer_1/output/dense/bias"]
    write_huggingface(tmp_path / "in", arrays, source.raw_config)
    shutil.copy(encoder_folder / "vocab.txt", tmp_path / "in")
    refused(
        lambda: convert(tmp_path / "in", tmp_path / "out"),
        "1 missing (bert/encoder/layer_1/output/dense/bias)",
    )
    assert not (tmp_path / "out").exists()


def test_a_target_of_other_files(encoder_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    refused(lambda: convert(encoder_folder, tmp_path), "holds other files")
    assert files_of(tmp_path) == {"thesis.tex": b"mine"}


def test_onto_itself(encoder_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(encoder_folder, tmp_path / "model"))
    before = files_of(folder)
    refused(lambda: convert(folder, folder), "`target` must be a different place from")
    assert files_of(folder) == before


def test_pooling_is_converted(encoder_folder: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(encoder_folder, tmp_path / "in"))
    settings = {"pooling": "cls", "normalize": True, "max_length": 20}
    write_sentence_files(source, hidden_size=16, **settings)
    assert not [n for n in convert(source, tmp_path / "out") if "left out" in n]
    assert read_sentence_files(tmp_path / "out") == settings
    (source / "modules.json").write_text("[]")
    (note,) = (n for n in convert(source, tmp_path / "out") if "left out" in n)
    assert "modules.json" in note
    assert read_sentence_files(tmp_path / "out") == {}


@pytest.mark.parametrize("measure", ["dot", "euclidean"])
def test_the_measure_of_vectors_is_kept(
    encoder_folder: Path, tmp_path: Path, measure: str
) -> None:
    source = Path(shutil.copytree(encoder_folder, tmp_path / "in"))
    settings = {"pooling": "cls", "normalize": False, "max_length": 20}
    write_sentence_files(source, hidden_size=16, **settings, measure=measure)
    convert(source, tmp_path / "out")
    assert similarity(tmp_path / "out") == measure


@pytest.mark.parametrize(
    ("name", "outputs", "activation"),
    [
        ("linear.Identity", 1, "linear"),
        ("activation.Sigmoid", 1, "sigmoid"),
        ("activation.Sigmoid", 3, "sigmoid"),
        ("activation.Softmax", 3, "softmax"),
    ],
)
def test_a_cross_encoder_keeps_its_activation_and_length(
    encoder_folder: Path, tmp_path: Path, name: str, outputs: int, activation: str
) -> None:
    """Of the files of sentence-transformers 5 and later, without an entry."""
    folder = tmp_path / "in"
    source = read_checkpoint(encoder_folder)
    head = {"classifier/kernel": (16, outputs), "classifier/bias": (outputs,)}
    arrays = {**source.arrays, **{k: np.ones(v, "float32") for k, v in head.items()}}
    config = {
        **source.raw_config,
        "architectures": ["BertForSequenceClassification"],
        "id2label": {str(i): f"LABEL_{i}" for i in range(outputs)},
    }
    write_huggingface(folder, arrays, config)
    shutil.copy(encoder_folder / "vocab.txt", folder)
    kind = "sentence_transformers.base.modules.transformer.Transformer"
    files: dict[str, Any] = {
        "modules.json": [{"idx": 0, "name": "0", "path": "", "type": kind}],
        "tokenizer_config.json": {"do_lower_case": True, "model_max_length": 20},
        "config_sentence_transformers.json": {
            "model_type": "CrossEncoder",
            "activation_fn": f"torch.nn.modules.{name}",
            "prompts": {"query": "rank: "},
        },
    }
    for file, values in files.items():
        (folder / file).write_text(json.dumps(values))
    notes = convert(folder, tmp_path / "out")
    assert notes == ["left out: the prompts of the cross-encoder: query"]
    before, after = Folder.open(folder), Folder.open(tmp_path / "out")
    assert after.task() == before.task()
    assert pair_scores(after.config) == pair_scores(before.config) == activation
    assert after.preprocessing == before.preprocessing == {"max_length": 20}
    task = type(after.task()).name
    assert f"`{task}`" in (tmp_path / "out" / "README.md").read_text()


# The model card.


def test_the_card_names_the_source_and_invents_nothing(
    encoder_folder: Path, tmp_path: Path
) -> None:
    convert(encoder_folder, tmp_path / "google", to="google")
    assert not (tmp_path / "google" / "README.md").exists()
    convert(tmp_path / "google", tmp_path / "tiny")
    card = ModelCard.load(tmp_path / "tiny" / "README.md")
    assert card.data.pipeline_tag == "feature-extraction"
    assert (card.data.base_model, card.data.eval_results) == (None, None)
    assert card.data.tags == ["bert", "keras"]
    for part in (
        "# tiny\n",
        "A BERT encoder without a head. Converted from `google` (format: "
        "google-research/bert, TensorFlow 1); the weights are unchanged.",
        "BertModel.from_pretrained",
        "2 layers, hidden size 16, 2 attention heads",
        "| longest input | 40 tokens |",
        f"float32, {(tmp_path / 'tiny/model.safetensors').stat().st_size / 1e6:.1f} MB",
        "Its training data and scores are not known here: see the source.",
        "no licence: the licence of the source applies",
    ):
        assert part in card.text
    assert str(tmp_path) not in card.text  # a card is published
    for heading in ("## Scores", "## Data", "## Training"):
        assert heading not in card.text
    found: dict[str, Any] = {}
    code = card.text.split("```python\n")[1].split("```")[0]
    exec(code.replace("FOLDER", str(tmp_path / "tiny")), found)
    assert found["vectors"].shape == (1, 16)


def test_the_card_of_a_task_has_its_classes(spam_folder: Path, tmp_path: Path) -> None:
    convert(spam_folder, tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "A BERT model for `classification`: " in text
    assert "Converted from `spam` (format: Hugging Face)" in text
    assert "classes | `ham`, `promo`, `spam` |" in text
    assert "BertForSequenceClassification.from_pretrained" in text
    assert "fine-tuned" not in text and "model-index" not in text


def test_a_head_of_another_tool_is_a_task(encoder_folder: Path, tmp_path: Path) -> None:
    source = read_checkpoint(encoder_folder)
    head = {"classifier/kernel": (16, 3), "classifier/bias": (3,)}
    arrays = {**source.arrays, **{k: np.ones(v, "float32") for k, v in head.items()}}
    name = "BertForTokenClassification"
    config = {**source.config.to_dict(), "architectures": [name]}
    config["id2label"] = {"0": "O", "1": "B-time", "2": "I-time"}
    config["classifier_dropout"] = 0.3  # not used here
    write_huggingface(tmp_path / "in", arrays, config)
    shutil.copy(encoder_folder / "vocab.txt", tmp_path / "in")
    convert(tmp_path / "in", tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "A BERT model for `token-classification`: " in text
    assert f"model = {name}.from_pretrained" in text
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["classifier_dropout"] == 0.3


def test_an_untied_masked_lm_head_is_refused_and_left_out_of_others(
    encoder_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(encoder_folder, tmp_path / "in"))
    tensors = load_file(folder / "model.safetensors")
    copy = {"cls.predictions.decoder.weight": tensors[f"{_WORDS}.weight"] + 1}
    save_file({**tensors, **copy}, folder / "model.safetensors")
    (note,) = (n for n in convert(folder, tmp_path / "out") if "tied" in n)
    assert "decoder.weight is not tied to embeddings.word" in note
    width = tensors[f"{_WORDS}.weight"].shape[1]
    bias = {"cls.predictions.transform.dense.bias": np.zeros(width, "float32")}
    save_file({**tensors, **copy, **bias}, folder / "model.safetensors")
    refused(lambda: convert(folder, tmp_path / "out"), "must equal the weight it is")


def test_invalid_classes_are_rejected_with_their_folder(
    spam_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(spam_folder, tmp_path / "in"))
    config = json.loads((folder / "config.json").read_text())
    del config["bert_keras"]
    config["id2label"] = {"0": "ham", "2": "promo", "3": "spam"}
    (folder / "config.json").write_text(json.dumps(config))
    message = f"{folder}: config.json: `id2label` must map"
    refused(lambda: convert(folder, tmp_path / "out"), message)
    refused(lambda: load_model(folder), message)
    config["id2label"] = {"0": "ham", "1": "spam"}
    (folder / "config.json").write_text(json.dumps(config))
    message = (
        f"{folder}: config.json: `id2label` must name each output of the head, 3; "
        "received 2 names"
    )
    refused(lambda: convert(folder, tmp_path / "out"), message)
    refused(lambda: load_model(folder), message)
    assert not (tmp_path / "out").exists()


def test_a_config_that_names_a_missing_head(
    encoder_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(encoder_folder, tmp_path / "in"))
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["BertForTokenClassification"]
    (folder / "config.json").write_text(json.dumps(config))
    notes = convert(folder, tmp_path / "out")
    assert any("names BertForTokenClassification, without" in note for note in notes)
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["architectures"] == ["BertModel"]


def test_a_card_can_be_left_out(encoder_folder: Path, tmp_path: Path) -> None:
    convert(encoder_folder, tmp_path / "out", card=False)
    assert not (tmp_path / "out" / "README.md").exists()


@pytest.mark.parametrize("card", [True, False])
def test_the_readme_of_somebody_else_stays(
    encoder_folder: Path, spam_folder: Path, tmp_path: Path, card: bool
) -> None:
    out = Path(shutil.copytree(encoder_folder, tmp_path / "out"))
    theirs = b"---\nlibrary_name: transformers\n---\nlibrary_name: bert_keras\n\xff"
    (out / "README.md").write_bytes(theirs)
    assert any(
        "README.md is kept" in note for note in convert(spam_folder, out, card=card)
    )
    assert (out / "README.md").read_bytes() == theirs
    (out / "README.md").unlink()
    convert(spam_folder, out)
    assert not any("README.md" in note for note in convert(encoder_folder, out))
    assert "A BERT encoder" in (out / "README.md").read_text("utf-8")


# To Google's format and back.


def test_a_model_folder_to_google_and_back(spam_folder: Path, tmp_path: Path) -> None:
    notes = convert(spam_folder, tmp_path / "google", to="google")
    assert any("erf" in note for note in notes)
    assert {path.name for path in (tmp_path / "google").iterdir()} == {
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "tokenizer_config.json",
        "vocab.txt",
    }
    assert_same_weights(tmp_path / "google", spam_folder)
    facts = describe(tmp_path / "google")
    assert (facts["kind"], facts["task"]) == ("google checkpoint", "classification")
    convert(tmp_path / "google", tmp_path / "back")
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        assert (tmp_path / "back" / name).read_bytes() == (
            spam_folder / name
        ).read_bytes()
    texts = ["free cash", "lunch at six"]
    wanted = load_model(spam_folder).answer(texts)["score"]
    for folder in ("google", "back"):
        found = load_model(tmp_path / folder).answer(texts)["score"]
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.skipif(not GOOGLE.is_dir(), reason=f"needs ../shared/data/{GOOGLE.name}")
def test_a_google_checkpoint_to_hugging_face_and_back(tmp_path: Path) -> None:
    import tensorflow as tf

    convert(GOOGLE, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "back", to="google")
    real = tf.train.load_checkpoint(str(GOOGLE / "bert_model.ckpt"))
    back = tf.train.load_checkpoint(str(tmp_path / "back" / "bert_model.ckpt"))
    shapes = back.get_variable_to_shape_map()
    assert len(shapes) == 46
    for name in shapes:
        np.testing.assert_array_equal(
            back.get_tensor(name), real.get_tensor(name), strict=True
        )


def test_a_fine_tuned_google_checkpoint_opens_as_its_task(
    encoder_folder: Path, tmp_path: Path
) -> None:
    from bert_keras.checkpoints import write_google

    source = read_checkpoint(encoder_folder)
    head = np.random.default_rng(0).normal(size=(16, 3)).astype("float32")
    arrays = {**source.arrays, "classifier/kernel": head}
    arrays["classifier/bias"] = np.zeros(3, "float32")
    config = source.config.replace(hidden_act="gelu_new").to_dict()
    write_google(tmp_path / "in", arrays, config)
    shutil.copy(encoder_folder / "vocab.txt", tmp_path / "in")
    assert "architectures" not in read_checkpoint(tmp_path / "in").raw_config
    convert(tmp_path / "in", tmp_path / "out")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["architectures"] == ["BertForSequenceClassification"]
    assert written["id2label"] == {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}
    found, wanted = load_model(tmp_path / "in"), load_model(tmp_path / "out")
    assert (
        found.task.classes == wanted.task.classes == ("LABEL_0", "LABEL_1", "LABEL_2")
    )
    np.testing.assert_array_equal(
        found.answer(["a b"])["score"], wanted.answer(["a b"])["score"]
    )


def test_an_old_folder_of_the_same_format_is_replaced(
    encoder_folder: Path, spam_folder: Path, tmp_path: Path
) -> None:
    convert(encoder_folder, tmp_path / "out", to="google")
    refused(lambda: convert(encoder_folder, tmp_path / "out"), "holds other files")
    convert(spam_folder, tmp_path / "out", to="google")
    assert_same_weights(tmp_path / "out", spam_folder)
    folder = Path(shutil.copytree(encoder_folder, tmp_path / "model"))
    refused(lambda: convert(folder, folder, to="google"), "a different place")
    assert_same_weights(folder, encoder_folder)


def test_a_head_without_a_name_in_the_format(
    encoder_folder: Path, tmp_path: Path
) -> None:
    source = read_checkpoint(encoder_folder)
    arrays = {**source.arrays, "my_head/kernel": np.ones((16, 2), "float32")}
    write_huggingface(tmp_path / "in", arrays, source.raw_config)
    shutil.copy(encoder_folder / "vocab.txt", tmp_path / "in")
    refused(
        lambda: convert(tmp_path / "in", tmp_path / "out", to="google"),
        "has only the heads of masked-lm",
        "received a model of BertModel (my_head/kernel)",
    )
    assert not (tmp_path / "out").exists()


def test_pooling_that_a_format_lacks_is_reported(
    encoder_folder: Path, tmp_path: Path
) -> None:
    source = Path(shutil.copytree(encoder_folder, tmp_path / "in"))
    settings = {"pooling": "cls", "normalize": True, "max_length": 20}
    more: dict[str, Any] = {
        "dense": [{"units": 4, "activation": "tanh", "use_bias": False}],
        "prompts": {"query": "q: ", "document": "d: "},
        "default_prompt": "query",
        "include_prompt": False,
        "truncate_dim": 2,
    }
    for given in ({}, more):
        write_sentence_files(source, hidden_size=16, **settings, **given)
        notes = convert(source, tmp_path / "out", to="google")
        first, *others = (note for note in notes if "left out" in note)
        assert "(cls, normalized)" in first
    assert others == [
        "left out with the pooling: 1 Dense layer; the prompts query, document; "
        "default_prompt 'query'; include_prompt False; truncate_dim 2"
    ]
    # Of formats without the file of the length, our entry holds it.
    convert(source, tmp_path / "preset", to="keras-hub")
    assert Folder.open(tmp_path / "preset").preprocessing == {"max_length": 20}


def test_an_unknown_format(encoder_folder: Path, tmp_path: Path) -> None:
    refused(
        lambda: convert(encoder_folder, tmp_path / "out", to="onnx"),
        "`to` must be one of huggingface, google",
        "'onnx'",
    )
