"""TF-Hub's SavedModels: the Model Garden's own, and those of version 1.0."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import VOCABULARY, refused

from bert_keras.checkpoints import read_checkpoint
from bert_keras.checkpoints.names import TABLE, from_hub, head_axis
from bert_keras.cli.info import describe
from bert_keras.config import BertConfig
from bert_keras.errors import BertKerasError
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.heads import MaskedLMHead
from bert_keras.models.convert import convert
from bert_keras.text.tokenizer import WordPieceTokenizer

GOLDEN = Path(__file__).parents[1] / "goldens" / "tf_hub"
TOLERANCE = 2e-5


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


def test_names() -> None:
    with np.load(GOLDEN / "outputs.npz") as file:
        ours = [from_hub(str(name)) for name in file["names"]]
    assert None not in ours and len({*ours}) == len(ours)
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


def write_pair(folder: Path, **changes: Any) -> Path:
    """Write what our reader reads of the two SavedModels that version 1.0 wrote."""
    variables = hub_variables("first, heads apart")
    extra = write_variables(folder / "encoder", variables) / "assets.extra"
    WordPieceTokenizer(VOCABULARY).save(extra)
    sizes = {"vocab_size": len(VOCABULARY), "hidden_size": 128, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 24}
    config = BertConfig(**sizes, max_position_embeddings=20, **changes)
    (extra / "config.json").write_text(json.dumps(config.to_dict()))
    return folder


def test_what_version_1_0_wrote(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "pair", hidden_act="relu")
    assert describe(pair)["kind"] == "tf-hub checkpoint"
    convert(pair, tmp_path / "back")
    found, back = read_checkpoint(pair), read_checkpoint(tmp_path / "back")
    assert back.config == found.config and back.config.hidden_act == "relu"
    wanted = hub_variables("google")
    for name, array in back.arrays.items():
        np.testing.assert_array_equal(array, wanted[f"module/{name}"], strict=True)
    for folder in (pair, tmp_path / "back"):
        tokenizer = WordPieceTokenizer.from_folder(folder)
        assert tokenizer.vocabulary == tuple(VOCABULARY) and not tokenizer.notes


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
