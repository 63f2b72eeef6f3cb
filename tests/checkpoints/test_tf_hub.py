"""TF-Hub's SavedModels: the Model Garden's own open here, ours run without our code."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text
from conftest import VOCABULARY, refused, write_encoder
from models.test_export import op_libraries

from bert_keras.checkpoints import read_checkpoint, write_huggingface
from bert_keras.checkpoints.names import TABLE, from_hub, head_axis, to_hub
from bert_keras.config import BertConfig
from bert_keras.errors import BertKerasError
from bert_keras.files.atomic import check_replaceable
from bert_keras.inference.info import describe
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.heads import MaskedLMHead
from bert_keras.models.convert import convert
from bert_keras.models.tf_hub import FILES, NEEDED, hub_encoder, special_token_ids
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

GOLDEN = Path(__file__).parents[1] / "goldens" / "tf_hub"
TEXTS = ["win cash, Home.", "", "SÉE you [MASK] 日本!", "sale " * 60]
PAIRS = ("lunch at six", "you " * 30, ""), ("home", "see you " * 30, "free")
TOLERANCE = 2e-5

# Imports tensorflow alone, as whoever loads a model of the hub does.
STRANGER = """
import sys
import numpy as np
import tensorflow as tf
folder, output, *libraries = sys.argv[1:]
for library in libraries:
    tf.load_op_library(library)
with np.load(output + ".in.npz") as file:
    texts, first, second = (file[k].tolist() for k in ("texts", "first", "second"))
preprocess = tf.saved_model.load(folder + "/preprocess")
encoder = tf.saved_model.load(folder + "/encoder")
batch = preprocess(tf.constant(texts))
found = dict(batch)
found |= encoder(batch)
found["encoder_outputs"] = tf.stack(found["encoder_outputs"])
pieces = [preprocess.tokenize(tf.constant(part)) for part in (first, second)]
for name, value in preprocess.bert_pack_inputs(pieces, seq_length=16).items():
    found["pair/" + name] = value
found["one/input_word_ids"] = preprocess.bert_pack_inputs(pieces[:1])["input_word_ids"]
for name, value in preprocess.tokenize.get_special_tokens_dict().items():
    found["special/" + name] = value
positions = tf.constant([[0, 1]] * len(texts))
logits = encoder.mlm({**batch, "masked_lm_positions": positions}, training=False)
found["mlm_logits"] = logits["mlm_logits"]
served = encoder.signatures["serving_default"](**batch)
found |= {"served/" + name: value for name, value in served.items()}
served = preprocess.signatures["serving_default"](sentences=tf.constant(texts))
found |= {"served/" + name: value for name, value in served.items()}
for training in (False, True):
    with tf.GradientTape() as tape:
        pooled = encoder(batch, training=training)["pooled_output"]
        loss = tf.reduce_sum(pooled**2)
    gradients = tape.gradient(loss, encoder.trainable_variables)
    for variable, gradient in zip(encoder.trainable_variables, gradients):
        gradient = tf.reshape(tf.convert_to_tensor(gradient), variable.shape)
        found[f"gradient/{training}/{variable.name}"] = gradient
found["dropped"] = tf.stack(
    [encoder(batch, training=True)["pooled_output"] for _ in range(3)]
)
found["names"] = np.array([v.name for v in encoder.trainable_variables])
found["others"] = np.array(
    [v.name for v in encoder.variables if not v.trainable]
)
found["lower_case"] = encoder.do_lower_case
found["vocabulary"] = np.array(open(encoder.vocab_file.asset_path.numpy()).read())
assert encoder.regularization_losses == []
loaded = [n for n in ("tensorflow_text", "bert_keras", "keras_hub") if n in sys.modules]
assert not loaded, loaded
np.savez(output, **{name: np.asarray(value) for name, value in found.items()})
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a BERT with dropout, erf gelu and both heads of pretraining."""
    folder = tmp_path_factory.mktemp("source")
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    checkpoint = read_checkpoint(write_encoder(folder, **rates))
    draw = np.random.default_rng(1)
    heads = {
        "cls/predictions/transform/dense/kernel": (16, 16),
        "cls/predictions/transform/dense/bias": (16,),
        "cls/predictions/transform/LayerNorm/gamma": (16,),
        "cls/predictions/transform/LayerNorm/beta": (16,),
        "cls/predictions/output_bias": (len(VOCABULARY),),
        "cls/seq_relationship/kernel": (16, 2),
        "cls/seq_relationship/bias": (2,),
    }
    arrays = {n: draw.normal(size=s).astype("float32") for n, s in heads.items()}
    config = {**checkpoint.raw_config, "architectures": ["BertForPreTraining"]}
    write_huggingface(folder, {**checkpoint.arrays, **arrays}, config)
    return folder


@pytest.fixture(scope="module")
def converted(
    source: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[str]]:
    """Return the pair of SavedModels, and the notes on it."""
    folder = tmp_path_factory.mktemp("hub") / "pair"
    return folder, convert(source, folder, to="tf-hub")


@pytest.fixture(scope="module")
def found(
    converted: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, np.ndarray]:
    """Return what a fresh process gets from the pair."""
    output = tmp_path_factory.mktemp("found") / "found.npz"
    asked = {"texts": TEXTS, "first": PAIRS[0], "second": PAIRS[1]}
    np.savez(f"{output}.in.npz", **{k: np.array(v) for k, v in asked.items()})
    command = [sys.executable, "-c", STRANGER, str(converted[0]), str(output)]
    done = subprocess.run(
        [*command, *op_libraries()],
        capture_output=True,
        text=True,
        cwd=output.parent,  # where our modules cannot be found
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stderr
    with np.load(output) as file:
        return dict(file)


def batch_of(values: Any) -> dict[str, Any]:
    """Return our batch of the hub's inputs."""
    return {
        "token_ids": values["input_word_ids"],
        "segment_ids": values["input_type_ids"],
        "padding_mask": values["input_mask"],
    }


def masked_lm_logits(folder: Path, batch: Any, positions: Any) -> Any:
    """Return the logits of our own head."""
    checkpoint = read_checkpoint(folder)
    encoder = BertEncoder.from_pretrained(str(folder))
    head = MaskedLMHead.on(encoder)
    head.build()
    for weight in head.weights:
        weight.assign(checkpoint.arrays[weight.path])
    tokens = encoder(batch)["sequence_output"]
    return head(tokens, encoder.token_table(batch), positions)


# What the Model Garden exported opens here.


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """Return the Model Garden's export, with a graph that nobody can read."""
    shutil.copytree(GOLDEN, tmp_path / "hub")
    (tmp_path / "hub" / "saved_model.pb").write_bytes(b"no graph")
    return tmp_path / "hub"


def test_an_export_of_the_model_garden(golden: Path) -> None:
    checkpoint = read_checkpoint(golden)
    assert checkpoint.origin == "model-garden"  # by its objects
    assert not checkpoint.unrecognized
    assert checkpoint.config == BertConfig(
        vocab_size=24,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        hidden_act="gelu_new",
        max_position_embeddings=40,
    )
    assert any("tanh form" in note for note in checkpoint.notes)
    assert "lowercase=True, read from the variable do_lower_case" in checkpoint.notes
    with np.load(golden / "outputs.npz") as file:
        wanted = dict(file)
    batch = batch_of(wanted)
    encoder = BertEncoder.from_pretrained(str(golden), outputs=("hidden_states",))
    outputs = encoder(batch)
    states = np.stack(outputs["hidden_states"][1:])
    logits = masked_lm_logits(golden, batch, wanted["masked_lm_positions"])
    for name, value in (
        ("pooled_output", outputs["pooled_output"]),
        ("sequence_output", outputs["sequence_output"]),
        ("encoder_outputs", states),
        ("mlm_logits", logits),
    ):
        np.testing.assert_allclose(value, wanted[name], atol=TOLERANCE, err_msg=name)


def test_its_vocabulary_is_read(golden: Path, tmp_path: Path) -> None:
    notes = convert(golden, tmp_path / "out")
    assert [n for n in notes if n.startswith("lowercase")] == [
        "lowercase=True, read from the variable do_lower_case"
    ]
    tokenizer = WordPieceTokenizer.from_folder(tmp_path / "out")
    assert tokenizer(["Win, abc"]).to_list() == [[18, 22, 5, 16, 17]]
    arrays, source = read_checkpoint(tmp_path / "out"), read_checkpoint(golden)
    assert arrays.shapes == source.shapes
    for name, array in source.arrays.items():
        np.testing.assert_array_equal(arrays.arrays[name], array)


def hub_variables(layout: str) -> dict[str, np.ndarray]:
    """Return a BERT of 1 layer and 2 heads of width 64 as an older file has it."""
    hidden, inner = 128, 24
    sizes = {
        "bert/embeddings/word_embeddings": (len(VOCABULARY), hidden),
        "bert/embeddings/position_embeddings": (20, hidden),
        "bert/embeddings/token_type_embeddings": (2, hidden),
        "bert/encoder/layer_0/intermediate/dense/kernel": (hidden, inner),
        "bert/encoder/layer_0/intermediate/dense/bias": (inner,),
        "bert/encoder/layer_0/output/dense/kernel": (inner, hidden),
    }
    draw = np.random.default_rng(2)
    variables = {}
    for template in TABLE:
        if not template.startswith("bert/"):
            continue
        name = template.replace("#", "0")
        square = (hidden, hidden) if name.endswith("kernel") else (hidden,)
        array = draw.normal(size=sizes.get(name, square)).astype("float32")
        variables[name] = array
    return {
        old_name(name, layout): split(name, a, layout) for name, a in variables.items()
    }


def old_name(name: str, layout: str) -> str:
    """Return the name that hub models of a generation have, by Google's own rules."""
    if layout == "google":
        return f"module/{name}"
    for theirs, ours in (
        ("bert/", "bert_model/"),
        ("embeddings/word_embeddings", "word_embeddings/embeddings"),
        (
            "embeddings/token_type_embeddings",
            "embedding_postprocessor/type_embeddings",
        ),
        (
            "embeddings/position_embeddings",
            "embedding_postprocessor/position_embeddings",
        ),
        ("/embeddings/LayerNorm", "/embedding_postprocessor/layer_norm"),
        ("attention/self", "self_attention"),
        ("attention/output/dense", "self_attention_output"),
        ("attention/output/LayerNorm", "self_attention_layer_norm"),
        ("intermediate/dense", "intermediate"),
        ("output/dense", "output"),
        ("output/LayerNorm", "output_layer_norm"),
        ("pooler/dense", "pooler_transform"),
    ):
        name = name.replace(theirs, ours)
    return name


def split(name: str, array: np.ndarray, layout: str) -> np.ndarray:
    """Return the values with an axis of 2 heads, if the layout has one."""
    axis = head_axis(name)
    if axis is None or layout != "first, heads apart":
        return array
    return array.reshape(*array.shape[:axis], 2, 64, *array.shape[axis + 1 :])


def write_variables(
    folder: Path, variables: dict[str, np.ndarray], *, lower_case: Any = None
) -> Path:
    """Write what our reader reads of a SavedModel of TensorFlow 2."""
    root = tf.train.Checkpoint()
    root.variables = [tf.Variable(a, name=n) for n, a in variables.items()]
    if lower_case is not None:
        root.do_lower_case = tf.Variable(lower_case, trainable=False)
    (folder / "variables").mkdir(parents=True)
    (folder / "assets").mkdir()
    root.write(str(folder / "variables" / "variables"))
    text = "".join(f"{token}\n" for token in VOCABULARY)
    (folder / "assets" / "vocab.txt").write_text(text, encoding="utf-8")
    (folder / "saved_model.pb").write_bytes(b"no graph")
    return folder


@pytest.mark.parametrize("layout", ["first", "first, heads apart", "google"])
def test_older_generations(tmp_path: Path, layout: str) -> None:
    variables = hub_variables(layout)
    folder = tmp_path / "hub"
    if layout == "google":  # a module of TensorFlow 1 has no object graph
        write_variables(folder, {})
        shutil.rmtree(folder / "variables")
        (folder / "variables").mkdir()
        tf.raw_ops.SaveV2(
            prefix=str(folder / "variables" / "variables"),
            tensor_names=list(variables),
            shape_and_slices=[""] * len(variables),
            tensors=list(variables.values()),
        )
    else:
        write_variables(folder, variables, lower_case=False)
    checkpoint = read_checkpoint(folder)
    guessed = any("num_attention_heads=2, guessed" in n for n in checkpoint.notes)
    assert guessed == (layout != "first, heads apart")
    assert checkpoint.config.num_attention_heads == 2
    wanted = hub_variables("google")
    assert len(checkpoint.arrays) == len(wanted)
    for name, array in checkpoint.arrays.items():
        np.testing.assert_array_equal(array, wanted[f"module/{name}"], strict=True)
    # The lower-casing flag among the weights takes precedence over a guess.
    told = {} if layout == "google" else {"lowercase": False}
    assert checkpoint.tokenizer == told
    tokenizer = WordPieceTokenizer.from_folder(checkpoint.path, **checkpoint.tokenizer)
    assert tokenizer.lowercase == (layout == "google")
    assert bool(tokenizer.notes) == (layout == "google")


def test_every_name_round_trips() -> None:
    ours = [n.replace("#", "11") for n in TABLE if n.startswith(("bert/", "cls/pred"))]
    assert [from_hub(to_hub(name)) for name in ours] == ours
    assert len({to_hub(name) for name in ours}) == len(ours)
    assert from_hub("a/b/transformer/layer_3/output/bias:0") == (
        "bert/encoder/layer_3/output/dense/bias"
    )
    strange = [
        "",
        "/",
        "kernel",
        "layer_3/output/bias",
        "transformer/layer_#/output/bias",
    ]
    strange += ["transformer/layer_03/output/bias", "x/" * 20 + "pooler_transform/bias"]
    assert [from_hub(name) for name in strange] == [None] * len(strange)
    refused(lambda: to_hub("classifier/kernel"), "'classifier/kernel'")


# What we write.


@pytest.mark.slow
def test_notes(converted: tuple[Path, list[str]]) -> None:
    notes = " | ".join(converted[1])
    assert "left out: cls/seq_relationship" in notes
    assert "rows of 40 tokens" in notes


@pytest.mark.slow
def test_back_again(
    converted: tuple[Path, list[str]], source: Path, tmp_path: Path
) -> None:
    pair, _ = converted
    assert describe(pair)["kind"] == "tf-hub checkpoint"
    convert(pair, tmp_path / "back")
    wanted, back = read_checkpoint(source), read_checkpoint(tmp_path / "back")
    assert back.config == wanted.config
    assert back.raw_config["architectures"] == ["BertForMaskedLM"]
    kept = [name for name in wanted.shapes if "seq_relationship" not in name]
    assert set(back.shapes) == set(kept)
    for name in kept:
        np.testing.assert_array_equal(
            back.arrays[name], wanted.arrays[name], strict=True
        )
    for folder in (pair, tmp_path / "back"):
        tokenizer = WordPieceTokenizer.from_folder(folder)
        original = WordPieceTokenizer.from_folder(source)
        assert tokenizer.get_config() == original.get_config()


def test_strings_to_outputs(found: dict[str, np.ndarray], source: Path) -> None:
    tokenizer = WordPieceTokenizer.from_folder(source)
    ours = Preprocessor(tokenizer, max_length=40, layout="padded")(TEXTS)
    for theirs, name in (
        ("input_word_ids", "token_ids"),
        ("input_mask", "padding_mask"),
        ("input_type_ids", "segment_ids"),
    ):
        np.testing.assert_array_equal(found[theirs], ours[name])
        np.testing.assert_array_equal(found[f"served/{theirs}"], ours[name])
        assert found[theirs].dtype == np.int32
    batch = batch_of(found)
    encoder = BertEncoder.from_pretrained(str(source), outputs=("hidden_states",))
    outputs = encoder(batch)
    positions = np.array([[0, 1]] * len(TEXTS), np.int32)
    wanted = {
        "pooled_output": outputs["pooled_output"],
        "default": outputs["pooled_output"],
        "sequence_output": outputs["sequence_output"],
        "encoder_outputs": np.stack(outputs["hidden_states"][1:]),
        "mlm_logits": masked_lm_logits(source, batch, positions),
        "served/pooled_output": outputs["pooled_output"],
        "served/default": outputs["pooled_output"],
        "served/sequence_output": outputs["sequence_output"],
    }
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=TOLERANCE, err_msg=name)


def test_pairs_as_tensorflow_text_packs_them(found: dict[str, np.ndarray]) -> None:
    tokenizer = tf_text.BertTokenizer(
        tf.lookup.StaticVocabularyTable(
            tf.lookup.KeyValueTensorInitializer(VOCABULARY, np.arange(len(VOCABULARY))),
            1,
        ),
        lower_case=True,
        token_out_type=tf.int32,
    )
    pieces = [tokenizer.tokenize(list(p)).merge_dims(1, -1) for p in PAIRS]
    trimmed = tf_text.RoundRobinTrimmer(16 - 3).trim(pieces)
    ids, segments = tf_text.combine_segments(trimmed, 2, 3)
    ids, mask = tf_text.pad_model_inputs(ids, 16)
    segments, _ = tf_text.pad_model_inputs(segments, 16)
    np.testing.assert_array_equal(found["pair/input_word_ids"], ids)
    np.testing.assert_array_equal(found["pair/input_mask"], mask)
    np.testing.assert_array_equal(found["pair/input_type_ids"], segments)
    assert found["one/input_word_ids"].shape == (3, 40)
    fast = tf_text.FastBertTokenizer(VOCABULARY, lower_case_nfd_strip_accents=True)
    rows = fast.tokenize(TEXTS).to_list()
    for row, wanted in zip(found["input_word_ids"], rows, strict=True):
        assert [i for i in row if i not in (0, 2, 3)] == wanted[:38]


def test_special_tokens(found: dict[str, np.ndarray], source: Path) -> None:
    wanted = special_token_ids(WordPieceTokenizer.from_folder(source))
    assert wanted["mask_id"] == 4
    assert {f"special/{name}" for name in wanted} == {
        name for name in found if name.startswith("special/")
    }
    for name, value in wanted.items():
        assert found[f"special/{name}"] == value


def test_it_is_laid_out_as_the_hub_s_own(found: dict[str, np.ndarray]) -> None:
    with np.load(GOLDEN / "outputs.npz") as file:
        theirs = list(file["names"])
    assert list(found["names"]) == theirs  # both have two layers
    assert found[
        "gradient/True/transformer/layer_0/self_attention/key/kernel:0"
    ].shape == (16, 2, 8)
    assert list(found["others"]) == ["do_lower_case:0"]
    assert bool(found["lower_case"])
    assert str(found["vocabulary"]).split("\n")[:-1] == VOCABULARY


def test_it_can_be_fine_tuned(found: dict[str, np.ndarray], source: Path) -> None:
    encoder = BertEncoder.from_pretrained(str(source))
    with tf.GradientTape() as tape:
        pooled = encoder(batch_of(found), training=False)["pooled_output"]
        loss = tf.reduce_sum(pooled**2)
    weights = {weight.path: weight for weight in encoder.trainable_weights}
    gradients = tape.gradient(loss, [weight.value for weight in weights.values()])
    for (name, weight), gradient in zip(weights.items(), gradients, strict=True):
        wanted = np.asarray(tf.convert_to_tensor(gradient))
        for training in (False, True):
            theirs = found[f"gradient/{training}/{to_hub(name)}:0"]
            assert np.isfinite(theirs).all()
            if not training:
                theirs = theirs.reshape(weight.shape)
                np.testing.assert_allclose(theirs, wanted, atol=1e-4, err_msg=name)
    assert np.ptp(found["dropped"], axis=0).max() > 1e-3  # each time others drop


def test_without_a_pooler(tmp_path: Path) -> None:
    config = BertConfig.from_preset("tiny").replace(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, intermediate_size=8
    )
    encoder = BertEncoder(config, pooler=False, seed=1)
    arrays = {weight.path: weight.numpy() for weight in encoder.weights}
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    model, _ = hub_encoder(
        config, arrays, lowercase=True, vocabulary=tmp_path / "vocab.txt"
    )
    ids = tf.constant([[2, 5, 0]])
    batch = {"input_word_ids": ids, "input_type_ids": ids * 0, "input_mask": ids}
    outputs = model.__call__(batch)
    wanted = encoder(batch_of(batch))["sequence_output"]
    np.testing.assert_allclose(outputs["default"], wanted[:, 0], atol=TOLERANCE)
    assert not hasattr(model, "mlm")


def test_a_pair_is_replaced_by_a_pair_alone(
    converted: tuple[Path, list[str]], tmp_path: Path
) -> None:
    pair = Path(shutil.copytree(converted[0], tmp_path / "pair"))
    check_replaceable(pair, files=FILES, needed=NEEDED)
    refused(lambda: check_replaceable(pair), "holds other files")
    (pair / "encoder" / "thesis.tex").write_text("mine")
    refused(
        lambda: check_replaceable(pair, files=FILES, needed=NEEDED),
        "encoder/thesis.tex",
    )


def test_another_backend_raises_a_helpful_error(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras.config, "backend", lambda: "jax")
    refused(
        lambda: convert(source, tmp_path / "out", to="tf-hub"),
        "KERAS_BACKEND=tensorflow",
    )
    assert not (tmp_path / "out").exists()


# Broken and hostile files.


LAYER = "bert_model/encoder/layer_0"
QUERY = f"{LAYER}/self_attention/query/kernel"


@pytest.mark.parametrize(
    ("name", "array", "parts"),
    [
        (f"{LAYER}/output/bias", None, ("1 missing", "output/dense/bias")),
        (QUERY, None, ("contains no BertEncoder of TF Model Garden",)),
        (f"again/{QUERY}", np.zeros((128, 128), "float32"), ("are both",)),
        (QUERY, np.zeros((128, 4, 32), "float32"), ("4 heads in axis 0",)),
        (QUERY, np.zeros((128, 100), "float32"), ("misshapen",)),
        (QUERY, np.zeros((128, 128), "int32"), ("must be one of F32",)),
        (
            "albert/embedding_projection/kernel",
            np.zeros((2, 2), "float32"),
            ("not part of BERT",),
        ),
    ],
    ids=["missing", "no BERT", "twice", "heads", "shape", "type", "another"],
)
def test_other_variables(
    tmp_path: Path, name: str, array: Any, parts: tuple[str, ...]
) -> None:
    variables = hub_variables("first, heads apart")
    if array is None:
        del variables[name]
    else:
        variables[name] = array
    folder = write_variables(tmp_path / "hub", variables)
    refused(lambda: convert(folder, tmp_path / "out"), *parts)


def test_lower_casing_must_be_a_boolean(tmp_path: Path) -> None:
    variables = hub_variables("first")
    folder = write_variables(tmp_path / "hub", variables, lower_case=1.0)
    refused(lambda: read_checkpoint(folder), "one boolean")


def test_a_value_that_is_not_finite(tmp_path: Path) -> None:
    variables = hub_variables("first")
    variables[QUERY][3, 3] = np.nan
    folder = write_variables(tmp_path / "hub", variables)
    refused(lambda: convert(folder, tmp_path / "out"), "not finite", "query/kernel")


def test_mutations_give_one_line(golden: Path) -> None:
    draw = random.Random(0)
    data = golden / "variables" / "variables.data-00000-of-00001"
    index = golden / "variables" / "variables.index"
    graph = data.read_bytes().index(b"transformer/layer_0")
    for number in range(100):
        path = (data, index)[number % 2]
        whole = path.read_bytes()
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            first = graph - 500 if path == data else 0
            changed[draw.randrange(first, len(changed))] = draw.randrange(256)
        if number % 7 == 0:
            del changed[draw.randrange(len(changed)) :]
        path.write_bytes(changed)
        with pytest.raises(BertKerasError) as caught:
            read_checkpoint(golden)  # checksums see every change of index and graph
        assert "\n" not in str(caught.value)
        path.write_bytes(whole)
    read_checkpoint(golden)
