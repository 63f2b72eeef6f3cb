"""KerasHub: its presets and models in and out, equal outputs, files of strangers."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from conftest import VOCABULARY, files_of, refused, write_encoder

from bert_keras.checkpoints import read_checkpoint
from bert_keras.checkpoints.keras_hub import FILES, write_keras_hub
from bert_keras.errors import CheckpointError
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.convert import convert, from_keras_hub, to_keras_hub
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.masked_lm import MaskedLM
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.tasks.tagging.task import TokenClassification
from bert_keras.text.tokenizer import WordPieceTokenizer

TEXTS = ["free cash, win now!", "see you at six é 日本", "", "half " * 30]
LAYER = "layers/transformer_encoder/_self_attention_layer"


def their_backbone(**changes: Any) -> Any:
    """Return a backbone with random weights, biases and LayerNorm too."""
    backbone = keras_hub.models.BertBackbone(
        **{
            "vocabulary_size": len(VOCABULARY),
            "num_layers": 3,
            "num_heads": 4,
            "hidden_dim": 16,
            "intermediate_dim": 20,
            "max_sequence_length": 24,
            **changes,
        }
    )
    shake(backbone)
    return backbone


def shake(model: Any) -> None:
    draw = np.random.default_rng(3)
    for weight in model.weights:
        mean = 1.0 if weight.name == "gamma" else 0.0
        weight.assign(draw.normal(mean, 0.2, weight.shape))


def their_model(kind: str, **settings: Any) -> Any:
    """Return a task with its preprocessor, 24 tokens long."""
    tokenizer = keras_hub.models.BertTokenizer(
        VOCABULARY, lowercase=True, strip_accents=True
    )
    preprocessor = getattr(keras_hub.models, f"{kind}Preprocessor")(
        tokenizer, sequence_length=24
    )
    model = getattr(keras_hub.models, kind)(
        backbone=their_backbone(), preprocessor=preprocessor, **settings
    )
    shake(model)
    return model


@pytest.fixture(scope="module")
def classifier() -> Any:
    return their_model("BertTextClassifier", num_classes=3)


@pytest.fixture(scope="module")
def preset(classifier: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the preset folder of `classifier`, as KerasHub writes it."""
    folder = tmp_path_factory.mktemp("preset") / "classifier"
    classifier.save_to_preset(str(folder))
    return folder


@pytest.fixture
def broken(preset: Path, tmp_path: Path) -> Path:
    """Return a copy of the preset, to be broken."""
    return Path(shutil.copytree(preset, tmp_path / "broken"))


def batch(sizes: tuple[int, ...] = (9, 24, 1)) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(7)
    shape = (len(sizes), max(sizes))
    mask = (np.arange(shape[1]) < np.array(sizes)[:, None]).astype("int32")
    return {
        "token_ids": draw.integers(1, len(VOCABULARY), shape).astype("int32") * mask,
        "segment_ids": draw.integers(0, 2, shape).astype("int32") * mask,
        "padding_mask": mask,
    }


def logits(model: Any, texts: Any) -> np.ndarray:
    """Return the outputs of their or our task for texts, as `predict` computes them."""
    parts = tuple(map(tf.constant, texts)) if isinstance(texts, tuple) else texts
    if isinstance(model, TaskModel):
        parts = parts if isinstance(parts, tuple) else tf.constant(parts)
        return np.array(model(model.task.features(model.preprocessor, parts)))
    return np.array(model(model.preprocessor(x=parts)))


def assert_equal_outputs(ours: Any, theirs: Any) -> None:
    inputs = batch()
    found, wanted = ours(inputs), theirs(inputs)
    real = inputs["padding_mask"] == 1
    np.testing.assert_allclose(
        found["pooled_output"], wanted["pooled_output"], atol=2e-5
    )
    np.testing.assert_allclose(
        np.array(found["sequence_output"])[real],
        np.array(wanted["sequence_output"])[real],
        atol=2e-5,
    )


# Theirs, here.


def test_a_backbone_of_theirs(tmp_path: Path) -> None:
    backbone = their_backbone(num_segments=3, dropout=0.2)
    encoder = from_keras_hub(backbone)
    assert isinstance(encoder, BertEncoder)
    assert encoder.config.hidden_act == "gelu_new"
    assert encoder.config.hidden_dropout_prob == 0.2
    assert encoder.config.type_vocab_size == 3
    assert_equal_outputs(encoder, backbone)
    backbone.save_to_preset(str(tmp_path / "preset"))
    checkpoint = read_checkpoint(tmp_path / "preset")
    assert checkpoint.origin == "keras-hub"
    assert (checkpoint.notes, checkpoint.unrecognized) == ((), ())
    assert checkpoint.raw_config == {"architectures": ["BertModel"]}
    np.testing.assert_array_equal(
        checkpoint.arrays["bert/encoder/layer_2/attention/self/key/kernel"],
        backbone.get_layer("transformer_layer_2")
        ._self_attention_layer.key_dense.kernel.numpy()
        .reshape(16, 16),
        strict=True,
    )


OTHERS = {
    "DistilBert": {"vocabulary_size": len(VOCABULARY)},
    "Electra": {"vocab_size": len(VOCABULARY), "embedding_dim": 8},
    "Electra-plain": {"vocab_size": len(VOCABULARY), "embedding_dim": 16},
}


def other_backbone(name: str) -> Any:
    """Return a backbone of another model type with random weights."""
    classes = getattr(keras_hub.models, f"{name.partition('-')[0]}Backbone")
    sizes = {"num_layers": 2, "num_heads": 4, "hidden_dim": 16, "intermediate_dim": 20}
    backbone = classes(**sizes, **OTHERS[name], max_sequence_length=24)
    shake(backbone)
    return backbone


def their_states(backbone: Any) -> np.ndarray:
    inputs = batch()
    found = backbone({name: inputs[name] for name in backbone.input})
    found = found["sequence_output"] if isinstance(found, dict) else found
    return np.array(found)[inputs["padding_mask"] == 1]


@pytest.mark.parametrize("name", OTHERS)
def test_a_distilbert_and_an_electra_both_ways(name: str, tmp_path: Path) -> None:
    backbone = other_backbone(name)
    wanted = their_states(backbone)
    encoder = from_keras_hub(backbone)
    kind = name.partition("-")[0].lower()
    assert encoder.config.model_type == kind
    assert encoder.config.hidden_act == ("gelu" if kind == "distilbert" else "gelu_new")
    assert encoder.pooler is None
    inputs = batch()
    found = np.array(encoder(inputs)["sequence_output"])[inputs["padding_mask"] == 1]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    np.testing.assert_array_equal(their_states(to_keras_hub(encoder)), wanted)

    backbone.save_to_preset(str(tmp_path / "preset"))
    notes = read_checkpoint(tmp_path / "preset").notes
    assert [n for n in notes if "`pooled_dense`" in n] == list(notes)
    assert len(notes) == (kind == "electra")
    WordPieceTokenizer(VOCABULARY).save(tmp_path / "words")
    shutil.copy(tmp_path / "words/vocab.txt", tmp_path / "preset")
    convert(tmp_path / "preset", tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "back", to="keras-hub")
    again = type(backbone).from_preset(str(tmp_path / "back"))
    np.testing.assert_array_equal(their_states(again), wanted)
    convert(tmp_path / "back", tmp_path / "ours-again")
    one, two = (tmp_path / f / "model.safetensors" for f in ("ours", "ours-again"))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("task", ["TextClassifier", "MaskedLM"])
def test_a_task_of_distilbert_both_ways(task: str) -> None:
    models = keras_hub.models
    tokenizer = models.DistilBertTokenizer(
        VOCABULARY, lowercase=True, strip_accents=True
    )
    settings = {"num_classes": 3} if task == "TextClassifier" else {}
    theirs = getattr(models, f"DistilBert{task}")(
        backbone=other_backbone("DistilBert"),
        preprocessor=getattr(models, f"DistilBert{task}Preprocessor")(
            tokenizer, sequence_length=24
        ),
        **settings,
    )
    shake(theirs)
    ours = from_keras_hub(theirs)
    back = to_keras_hub(ours)
    assert type(back) is type(theirs)
    if settings:
        wanted = logits(theirs, TEXTS)
        np.testing.assert_allclose(logits(ours, TEXTS), wanted, atol=1e-5)
        np.testing.assert_array_equal(logits(back, TEXTS), wanted)
        return
    theirs.masked_lm_head._intermediate_layer_norm.epsilon = 1e-12  # the note tells
    positions = np.array([[1, 5], [0, 23], [0, 0]], "int32")
    inputs = {name: batch()[name] for name in theirs.backbone.input}
    wanted = theirs.masked_lm_head(theirs.backbone(inputs), positions)
    found = ours({**batch(), "masked_positions": positions})
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_what_other_types_leave_out_or_refuse(tmp_path: Path) -> None:
    changes = {"model_type": "electra", "embedding_size": 8}
    folder = write_encoder(tmp_path / "electra", **changes)
    model = TaskModel.from_pretrained(folder, Classification(("a", "b")))
    refused(lambda: to_keras_hub(model), "KerasHub's ELECTRA has no heads")
    encoder = BertEncoder(model.backbone.config, pooler=True)
    assert not np.any(to_keras_hub(encoder).get_layer("pooled_dense").kernel)
    config = {**encoder.config.to_dict(), "architectures": ["ElectraForPreTraining"]}
    arrays = {weight.path: weight.numpy() for weight in encoder.weights}
    arrays["discriminator_predictions/dense/bias"] = np.ones(16, "float32")
    notes = write_keras_hub(tmp_path / "preset", arrays, config)
    assert any("head for replaced tokens" in note for note in notes)
    changes = {"model_type": "distilbert", "type_vocab_size": 0}
    folder = write_encoder(tmp_path / "distilbert", **changes)
    notes = convert(folder, tmp_path / "out", to="keras-hub")
    assert any("layer on [CLS] without a classifier" in note for note in notes)
    refused(lambda: convert(folder, tmp_path / "out-2", to="google"), "keras-hub can")


def test_a_preset_of_a_classifier_opens_as_its_task(
    classifier: Any, preset: Path
) -> None:
    model = load_model(preset)
    assert model.task == Classification(
        ("LABEL_0", "LABEL_1", "LABEL_2"),
        pairs=None,  # a preset does not say
    )
    assert model.preprocessor.max_length == 24
    assert model.preprocessor.settings()["truncation"] == "round_robin"
    wanted = logits(classifier, TEXTS)
    np.testing.assert_allclose(logits(model, TEXTS), wanted, atol=2e-5)
    pairs = (TEXTS, TEXTS[::-1])
    wanted = logits(classifier, pairs)
    np.testing.assert_allclose(logits(model, pairs), wanted, atol=2e-5)


def test_a_masked_lm_of_theirs() -> None:
    """Equal if KerasHub's head computes like BERT's; close to it unchanged."""
    theirs = their_model("BertMaskedLM")
    ours = from_keras_hub(theirs)
    assert isinstance(ours, TaskModel)
    assert isinstance(ours.task, MaskedLM)
    positions = np.array([[1, 5], [0, 23], [0, 0]], "int32")
    found = ours({**batch(), "masked_positions": positions})
    as_it_stands = theirs({**batch(), "mask_positions": positions})
    np.testing.assert_allclose(found, as_it_stands, atol=5e-3)
    assert np.abs(found - as_it_stands).max() > 2e-5  # what the note tells
    head = theirs.masked_lm_head
    head._intermediate_dense.activation = lambda x: keras.ops.gelu(x, approximate=True)
    head._intermediate_layer_norm.epsilon = 1e-12
    wanted = head(theirs.backbone(batch())["sequence_output"], positions)
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_sigmoid_is_multi_label() -> None:
    theirs = their_model("BertTextClassifier", num_classes=2, activation="sigmoid")
    ours = from_keras_hub(theirs)
    assert ours.task.name == "multi-label"
    wanted = logits(theirs, TEXTS)
    found = keras.ops.sigmoid(logits(ours, TEXTS))
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_bfloat16_becomes_float32(tmp_path: Path) -> None:
    backbone = their_backbone(dtype="bfloat16")
    backbone.save_to_preset(str(tmp_path / "preset"))
    name = "bert/encoder/layer_1/intermediate/dense/kernel"
    found = read_checkpoint(tmp_path / "preset").arrays[name]
    kernel = backbone.get_layer("transformer_layer_1")
    wanted = kernel._feedforward_intermediate_dense.kernel.numpy().astype("float32")
    np.testing.assert_array_equal(found, wanted, strict=True)


def test_the_underscores_of_older_files(broken: Path) -> None:
    wanted = dict(read_checkpoint(broken).arrays)
    with h5py.File(broken / "model.weights.h5", "a") as file:
        file.move(f"{LAYER}/query_dense", f"{LAYER}/_query_dense")
    found = dict(read_checkpoint(broken).arrays)
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_folders_that_are_not_keras_hub_models() -> None:
    refused(lambda: from_keras_hub("bert_base"), "received str")
    model = keras_hub.models.BertTextClassifier(their_backbone(), num_classes=2)
    refused(lambda: from_keras_hub(model), "must have a preprocessor")


# Ours, there.


def test_an_encoder_there(tmp_path: Path, encoder_folder: Path) -> None:
    notes = convert(encoder_folder, tmp_path / "preset", to="keras-hub")
    assert any("by its tanh form" in note for note in notes)
    config = read_checkpoint(encoder_folder).config.replace(hidden_act="gelu_new")
    tanh = BertEncoder(config, seed=5)
    theirs = keras_hub.models.BertBackbone.from_preset(str(tmp_path / "preset"))
    assert_equal_outputs(tanh, theirs)
    assert_equal_outputs(tanh, to_keras_hub(tanh))
    tokenizer = keras_hub.models.BertTokenizer.from_preset(str(tmp_path / "preset"))
    ours = WordPieceTokenizer.from_folder(encoder_folder)
    texts = ["free cash, win é!", "日本 see"]
    assert [list(row) for row in tokenizer(texts)] == ours(texts).to_list()


@pytest.mark.parametrize("several", [False, True])
def test_a_classifier_there(
    make_model: Callable[..., Any], tmp_path: Path, several: bool
) -> None:
    from bert_keras.tasks.multi_label import MultiLabel

    task = (MultiLabel if several else Classification)(("ham", "spam", "eggs"))
    model = make_model(task)
    theirs = to_keras_hub(model)
    assert isinstance(theirs, keras_hub.models.BertTextClassifier)
    assert theirs.preprocessor.sequence_length == 24
    found = logits(theirs, TEXTS)
    wanted = logits(model, TEXTS)  # by erf
    if several:
        wanted = keras.ops.sigmoid(wanted)
    np.testing.assert_allclose(found, wanted, atol=1e-2)
    # And to the last bit where both compute the same.
    again = from_keras_hub(theirs)
    assert again.backbone.config.hidden_act == "gelu_new"
    found = logits(again, TEXTS)
    wanted = logits(theirs, TEXTS)
    if several:
        found = keras.ops.sigmoid(found)
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_a_model_folder_there_and_back(spam_folder: Path, tmp_path: Path) -> None:
    convert(spam_folder, tmp_path / "preset", to="keras-hub")
    assert set(files_of(tmp_path / "preset")) == set(FILES)
    convert(tmp_path / "preset", tmp_path / "back")
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        assert (tmp_path / "back" / name).read_bytes() == (
            spam_folder / name
        ).read_bytes()
    found, wanted = load_model(tmp_path / "preset"), load_model(spam_folder)
    assert found.task == wanted.task
    np.testing.assert_array_equal(logits(found, TEXTS), logits(wanted, TEXTS))
    convert(spam_folder, tmp_path / "preset", to="keras-hub")  # replaced


def test_a_masked_lm_without_pooler_there_and_back(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    folder = save_model(make_model(MaskedLM()), tmp_path / "model")
    notes = convert(folder, tmp_path / "preset", to="keras-hub")
    assert any("there is no pooler" in note for note in notes)
    assert any("masked-LM head" in note for note in notes)
    theirs = keras_hub.models.BertMaskedLM.from_preset(str(tmp_path / "preset"))
    assert not np.any(theirs.backbone.get_layer("pooled_dense").kernel)
    convert(tmp_path / "preset", tmp_path / "back")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes()


def test_their_preset_here_and_back(preset: Path, tmp_path: Path) -> None:
    convert(preset, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "back", to="keras-hub")
    for file in ("model.weights.h5", "task.weights.h5"):
        wanted, found = h5_arrays(preset / file), h5_arrays(tmp_path / "back" / file)
        assert found.keys() == wanted.keys()
        for name, array in found.items():
            np.testing.assert_array_equal(array, wanted[name], strict=True)


def h5_arrays(path: Path) -> dict[str, np.ndarray]:
    arrays = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: (
                arrays.__setitem__(name.replace("/_", "/"), item[()])
                if isinstance(item, h5py.Dataset)
                else None
            )
        )
    return arrays


def test_settings_saved_later_by_keras_hub_take_precedence(
    spam_folder: Path, tmp_path: Path
) -> None:
    """KerasHub then computes its own gelu, and stores classes only by number."""
    folder = tmp_path / "preset"
    convert(spam_folder, folder, to="keras-hub")
    assert read_checkpoint(folder).config.hidden_act == "gelu"
    theirs = keras_hub.models.TextClassifier.from_preset(str(folder))
    theirs.save_to_preset(str(folder))
    ours = load_model(folder)
    assert ours.backbone.config.hidden_act == "gelu_new"
    assert ours.task.classes == ("LABEL_0", "LABEL_1", "LABEL_2")
    np.testing.assert_allclose(logits(ours, TEXTS), logits(theirs, TEXTS), atol=2e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "relu"}, "no activation relu"),
        ({"is_decoder": True}, "no causal attention"),
        ({"hidden_size": -1}, "`hidden_size`"),
    ],
)
def test_unsupported_computations_are_rejected(
    encoder_folder: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    source = read_checkpoint(encoder_folder)
    config = {**source.config.to_dict(), **changes}
    refused(lambda: write_keras_hub(tmp_path, source.arrays, config), message)


def test_unsupported_heads_are_rejected(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    tagger = save_model(make_model(TokenClassification(("O", "B-X"))), tmp_path / "in")
    refused(
        lambda: convert(tagger, tmp_path / "out", to="keras-hub"),
        "received BertForTokenClassification",
    )
    reader = save_model(make_model(QuestionAnswering()), tmp_path / "reader")
    refused(
        lambda: convert(reader, tmp_path / "out", to="keras-hub"),
        "KerasHub has only the heads of masked-lm, classification",
        "a model of question-answering (qa_outputs/bias, qa_outputs/kernel)",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([t for t in VOCABULARY if t != "[MASK]"], "must have the token [MASK]"),
        ([*VOCABULARY[:-1], "a\u3000"], "differ only in trailing space"),
    ],
)
def test_unsupported_vocabularies_are_rejected(
    encoder_folder: Path, tmp_path: Path, tokens: list[str], message: str
) -> None:
    source = read_checkpoint(encoder_folder)
    settings = WordPieceTokenizer(tokens).get_config()
    refused(
        lambda: write_keras_hub(
            tmp_path, source.arrays, source.config.to_dict(), settings
        ),
        message,
    )


# Files of strangers.


def edit(path: Path, **changes: Any) -> None:
    values = json.loads(path.read_text())
    for key, value in changes.items():
        (values if key in values else values["config"])[key] = value
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("file", "changes", "parts"),
    [
        (
            "config.json",
            {"class_name": "AlbertBackbone"},
            ["must be a BertBackbone or DistilBertBackbone or", "found AlbertBackbone"],
        ),
        ("config.json", {"class_name": 3}, ["class_name"]),
        ("config.json", {"num_layers": 10**9}, ["`num_hidden_layers`"]),
        ("config.json", {"num_heads": 2}, ["2 heads in axis 1; has [16, 4, 4]"]),
        ("config.json", {"hidden_dim": "16"}, ["`hidden_size`"]),
        ("task.json", {"class_name": "BertGenerator"}, ["found BertGenerator"]),
        ("preprocessor.json", {"truncate": "none"}, ["`truncate`", "none"]),
        ("preprocessor.json", {"sequence_length": 1}, ["`max_length`"]),
        ("preprocessor.json", {"sequence_length": 99}, ["`max_length`", "99"]),
        ("tokenizer.json", {"split": False}, ["`split` must be True"]),
        ("tokenizer.json", {"lowercase": "yes"}, ["`lowercase` must be bool"]),
    ],
)
def test_broken_json(
    broken: Path, file: str, changes: dict[str, Any], parts: list[str]
) -> None:
    edit(broken / file, **changes)
    refused(lambda: load_model(broken), str(broken), *parts)


def test_missing_files(broken: Path) -> None:
    (broken / "assets" / "tokenizer" / "vocabulary.txt").unlink()
    (broken / "tokenizer.json").unlink()
    refused(lambda: load_model(broken), "contains no vocabulary")
    (broken / "task.weights.h5").unlink()
    assert not [n for n in read_checkpoint(broken).shapes if n.startswith("cls")]
    (broken / "model.weights.h5").unlink()
    (broken / "model.weights.json").write_text("{}")
    refused(lambda: read_checkpoint(broken), "in shards")


def replace(file: h5py.File, path: str, **settings: Any) -> None:
    del file[path]
    file.create_dataset(path, **settings)


BIAS = f"{LAYER}/query_dense/vars/1"
POOLER = "layers/dense/vars/0"


@pytest.mark.parametrize(
    ("change", "part"),
    {
        "soft link": (
            lambda f: f.__setitem__("layers/x", h5py.SoftLink("/layers")),
            "is a link",
        ),
        "external link": (
            lambda f: f.__setitem__("y", h5py.ExternalLink("/etc/passwd", "/")),
            "is a link",
        ),
        "a group in itself": (
            lambda f: f["layers"].__setitem__("again", f["layers"]),
            "too many or too deep groups",
        ),
        "other file": (
            lambda f: replace(
                f, POOLER, shape=(16, 16), dtype="f4", external="/etc/passwd"
            ),
            "one piece in the file itself",
        ),
        "bomb": (
            lambda f: replace(
                f,
                "layers/reversible_embedding/vars/0",
                shape=(1 << 30, 1 << 10),
                dtype="f4",
                chunks=(1024, 1024),
                compression="gzip",
            ),
            "one piece in the file itself",
        ),
        "never written": (
            lambda f: replace(f, POOLER, shape=(1 << 20, 1 << 20), dtype="f4"),
            "one piece in the file itself",
        ),
        "empty": (
            lambda f: replace(f, POOLER, shape=(0, 16), dtype="f4"),
            "is empty: [0, 16]",
        ),
        "whole numbers": (
            lambda f: replace(f, POOLER, data=np.ones((16, 16), "int32")),
            "must be one of F32, F16, BF16, F64; is int32",
        ),
        "text": (
            lambda f: replace(f, POOLER, data=["a"]),
            "must be one of F32, F16, BF16, F64",
        ),
        "too few axes": (
            lambda f: replace(f, BIAS, data=np.ones(16, "float32")),
            "must have 2 axes",
        ),
        "twice": (
            lambda f: f.copy(f[f"{LAYER}/query_dense"], f"{LAYER}/_query_dense"),
            "are both `bert/encoder/layer_0/attention/self/query/",
        ),
        "misshapen": (
            lambda f: replace(f, POOLER, data=np.ones((16, 8), "float32")),
            "bert/pooler/dense/kernel must be [16, 16], is [16, 8]",
        ),
        "missing": (
            lambda f: f.__delitem__("layers/transformer_encoder_2"),
            "`num_hidden_layers` must be the number of layers present, 2",
        ),
        "not finite": (
            lambda f: f[POOLER].__setitem__((3, 3), np.nan),
            "`bert/pooler/dense/kernel` holds values that are not finite",
        ),
    }.values(),
)
def test_broken_weights(
    broken: Path, change: Callable[[h5py.File], None], part: str
) -> None:
    with h5py.File(broken / "model.weights.h5", "a") as file:
        change(file)
    refused(lambda: load_model(broken), str(broken), part)


def test_other_bytes(broken: Path) -> None:
    path = broken / "model.weights.h5"
    content = path.read_bytes()
    for wrong in (b"", b"\x89HDF", content[: len(content) // 2], b"x" * 3000):
        path.write_bytes(wrong)
        refused(lambda: read_checkpoint(broken), "broken or truncated")


def test_mutated_weights_are_read_or_rejected(broken: Path) -> None:
    path = broken / "model.weights.h5"
    content = path.read_bytes()
    draw = random.Random(0)  # noqa: S311 (a test)
    refusals = 0
    for _ in range(60):
        data = bytearray(content)
        for _ in range(draw.choice((1, 2, 8))):
            at = draw.randrange(len(data))
            data[at : at + 8] = draw.choice((b"\xff" * 8, b"\0" * 8, b"\x7f"))
        if draw.random() < 0.2:
            del data[draw.randrange(len(data)) :]
        path.write_bytes(data)
        try:
            dict(read_checkpoint(broken).arrays)
        except CheckpointError as error:
            assert "\n" not in str(error) and len(str(error)) < 1_000
            refusals += 1
    assert refusals > 20


def test_names_without_a_place_are_listed(broken: Path) -> None:
    with h5py.File(broken / "model.weights.h5", "a") as file:
        file["layers/lora/vars/0"] = np.ones(3)
    found = read_checkpoint(broken).unrecognized
    assert found == ("model:layers/lora/vars/0",)
    refused(lambda: convert(broken, broken.parent / "out"), "not part of BERT")


@pytest.mark.skipif(
    not hasattr(keras_hub.models, "BertTextEmbedder"), reason="needs KerasHub 0.32"
)
@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_an_embedder_of_theirs_and_back(
    tmp_path: Path, pooling: str, normalize: bool
) -> None:
    settings = {"pooling_mode": pooling, "normalize": normalize}
    theirs = their_model("BertTextEmbedder", **settings)
    texts = [*TEXTS, "win " * 40]
    wanted = np.array(theirs(theirs.preprocessor(texts)))
    theirs.save_to_preset(str(tmp_path / "preset"))
    ours = load_model(tmp_path / "preset")
    assert ours.task == Embedding(pooling=pooling, normalize=normalize)
    assert ours.preprocessor.max_length == 24
    found = ours.answer(np.array(texts))["embedding"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    convert(tmp_path / "preset", tmp_path / "folder")
    notes = convert(tmp_path / "folder", tmp_path / "again", to="keras-hub")
    assert not any("left out" in note for note in notes)
    for again in (
        keras_hub.models.TextEmbedder.from_preset(str(tmp_path / "again")),
        to_keras_hub(ours),
    ):
        found = again(again.preprocessor(texts))
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    path = tmp_path / "preset" / "task.json"
    path.write_text(path.read_text().replace(f'"{pooling}"', '"sum"'))
    refused(lambda: load_model(path.parent), "`pooling_mode`", "mean, cls, max", "sum")
