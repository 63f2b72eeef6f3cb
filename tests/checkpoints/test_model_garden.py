"""TF Model Garden's checkpoints without Model Garden: own ones, there and back, broken.

`tests/garden` compares with Model Garden itself.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml
from conftest import ROOT, VOCABULARY, files_of, refused
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from bert_keras.checkpoints import (
    check_encoder,
    read_checkpoint,
    tensorflow_checkpoint,
    write_huggingface,
)
from bert_keras.checkpoints.matching import encoder_shapes
from bert_keras.checkpoints.model_garden import write_model_garden
from bert_keras.config import BertConfig
from bert_keras.errors import BertKerasError
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.convert import convert
from bert_keras.text.tokenizer import WordPieceTokenizer

GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
CONFIG = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=6,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=10,
    max_position_embeddings=9,
    type_vocab_size=3,
    hidden_act="gelu_new",
    hidden_dropout_prob=0.25,
)
MASKED_LM = {
    "cls/predictions/transform/dense/kernel": (6, 6),
    "cls/predictions/transform/dense/bias": (6,),
    "cls/predictions/transform/LayerNorm/gamma": (6,),
    "cls/predictions/transform/LayerNorm/beta": (6,),
    "cls/predictions/output_bias": (len(VOCABULARY),),
}
NEXT_SENTENCE = {
    "cls/seq_relationship/kernel": (6, 2),
    "cls/seq_relationship/bias": (2,),
}
# The heads, whether there is a pooler, and Hugging Face's class.
MODELS = {
    "encoder": ({}, True, "BertModel"),
    "no pooler": ({}, False, "BertModel"),
    "masked-lm": (MASKED_LM, False, "BertForMaskedLM"),
    "next-sentence": (NEXT_SENTENCE, True, "BertForNextSentencePrediction"),
    "pretraining": (MASKED_LM | NEXT_SENTENCE, True, "BertForPreTraining"),
}
LAST = "bert/encoder/layer_1/output/dense/kernel"


def arrays_of(kind: str) -> dict[str, np.ndarray]:
    heads, pooler, _ = MODELS[kind]
    draw = np.random.default_rng(0)
    return {
        name: draw.normal(size=shape).astype("float32")
        for name, shape in (encoder_shapes(CONFIG) | heads).items()
        if pooler or not name.startswith("bert/pooler/")
    }


def write(folder: Path, kind: str = "pretraining", **changes: Any) -> Path:
    """Write a checkpoint of Model Garden and a vocabulary."""
    config = {**CONFIG.to_dict(), "architectures": [MODELS[kind][2]], **changes}
    write_model_garden(folder, arrays_of(kind), config)
    WordPieceTokenizer(VOCABULARY).save(folder)
    return folder


def assert_arrays(found: Mapping[str, np.ndarray], wanted: Any) -> None:
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name, strict=True)


# There and back.


@pytest.mark.parametrize("kind", MODELS)
def test_there_and_back(kind: str, tmp_path: Path) -> None:
    arrays = arrays_of(kind)
    config = {**CONFIG.to_dict(), "architectures": [MODELS[kind][2]]}
    write_huggingface(tmp_path / "ours", arrays, config)
    tokenizer = WordPieceTokenizer(VOCABULARY, lowercase=False)
    tokenizer.save(tmp_path / "ours", max_length=CONFIG.max_position_embeddings)
    notes = convert(tmp_path / "ours", tmp_path / "garden", to="model-garden")
    assert any("no pooler" in note for note in notes) is not MODELS[kind][1]
    missing = "cls/predictions/output_bias" not in arrays and len(MODELS[kind][0]) > 0
    assert any("no masked-LM head" in note for note in notes) is missing
    checkpoint = read_checkpoint(tmp_path / "garden")
    assert (checkpoint.origin, checkpoint.config) == ("model-garden", CONFIG)
    assert checkpoint.unrecognized == ()
    assert_arrays(checkpoint.arrays, arrays)
    convert(tmp_path / "garden", tmp_path / "back")
    found, wanted = files_of(tmp_path / "back"), files_of(tmp_path / "ours")
    assert found["model.safetensors"] == wanted["model.safetensors"]
    assert found["vocab.txt"] == wanted["vocab.txt"]
    assert found["tokenizer_config.json"] == wanted["tokenizer_config.json"]
    assert read_checkpoint(tmp_path / "back").config == CONFIG


def test_google_through_model_garden(tmp_path: Path) -> None:
    write(tmp_path / "garden")
    convert(tmp_path / "garden", tmp_path / "google", to="google")
    convert(tmp_path / "google", tmp_path / "again", to="model-garden")
    assert_arrays(read_checkpoint(tmp_path / "again").arrays, arrays_of("pretraining"))
    for name in ("bert_config.json", "params.yaml", "vocab.txt"):
        found = (tmp_path / "again" / name).read_text()
        assert found == (tmp_path / "garden" / name).read_text()


def test_files_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path)
    assert set(files_of(tmp_path)) == {
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "checkpoint",
        "params.yaml",
        "tokenizer_config.json",
        "vocab.txt",
    }
    prefix = str(tmp_path / "bert_model.ckpt")
    assert tf.train.latest_checkpoint(str(tmp_path)) == prefix
    raw = json.loads((tmp_path / "bert_config.json").read_text())
    assert (raw["hidden_act"], raw["num_hidden_layers"]) == ("gelu", 2)
    params = yaml.safe_load((tmp_path / "params.yaml").read_text())["task"]["model"]
    assert params["encoder"]["type"] == "bert"
    assert params["encoder"]["bert"]["hidden_activation"] == "gelu"
    assert params["encoder"]["bert"]["dropout_rate"] == 0.25
    shapes = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    query = "layer_with_weights-4/_attention_layer/_query_dense/kernel"
    (key,) = (key for key in shapes if query in key)
    assert key.startswith("encoder/") and shapes[key] == [6, 2, 3]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_act": "gelu"}, "computes gelu by its tanh form"),
        ({"layer_norm_eps": 1e-5}, "computes LayerNorm with epsilon 1e-12"),
        ({"hidden_act": "silu"}, None),
    ],
)
def test_different_computations_are_reported_and_kept(
    changes: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    config = CONFIG.replace(**changes)
    notes = write_model_garden(tmp_path, arrays_of("encoder"), config.to_dict())
    assert len(notes) == (said is not None)
    assert said is None or f"TF Model Garden {said}" in notes[0]
    assert read_checkpoint(tmp_path).config == config


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "classifier/kernel",
            {"bert_keras": {"task": "classification"}},
            "TF Model Garden has only the heads of masked-lm, next-sentence; received "
            "a model of classification (classifier/kernel)",
        ),
        ("", {"is_decoder": True}, "has no causal attention"),
        ("", {"hidden_size": 8, "num_attention_heads": 3}, "must divide"),
    ],
)
def test_weights_that_model_garden_lacks(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    arrays = arrays_of("encoder") | ({name: np.ones((6, 2), "f")} if name else {})
    config = {**CONFIG.to_dict(), **changes}
    refused(lambda: write_model_garden(tmp_path / "x", arrays, config), message)
    assert not (tmp_path / "x").exists()


def test_a_value_that_is_not_finite_is_not_written(tmp_path: Path) -> None:
    arrays = arrays_of("encoder")
    arrays[LAST][0, 0] = np.nan
    refused(
        lambda: write_model_garden(tmp_path / "x", arrays, CONFIG.to_dict()),
        f"`{LAST}` holds values that are not finite",
    )


def test_formats_do_not_replace_each_other(tmp_path: Path) -> None:
    source = write(tmp_path / "garden")
    target = Path(shutil.copytree(source, tmp_path / "target"))
    convert(source, tmp_path / "google", to="google")
    for there, to in ((target, "google"), (tmp_path / "google", "model-garden")):
        before = files_of(there)
        refused(lambda t=there, f=to: convert(source, t, to=f), "holds other files")
        assert files_of(there) == before
    convert(source, target, to="model-garden")
    assert_arrays(read_checkpoint(target).arrays, arrays_of("pretraining"))


# What others save.


def part(folder: Path, *steps: str) -> Any:
    """Return the objects of a written checkpoint, rebuilt, below some steps."""
    graph = TrackableObjectGraph.FromString(
        tf.train.load_checkpoint(str(folder / "bert_model.ckpt")).get_tensor(GRAPH)
    )
    reader = tf.train.load_checkpoint(str(folder / "bert_model.ckpt"))
    made: dict[int, Any] = {}

    def make(number: int) -> Any:
        if number not in made:
            node = graph.nodes[number]
            if node.attributes:
                attribute = node.attributes[0]
                value = reader.get_tensor(attribute.checkpoint_key)
                made[number] = tf.Variable(value, name=attribute.full_name)
            else:
                parts = {c.local_name: make(c.node_id) for c in node.children}
                parts.pop("save_counter", None)
                made[number] = tf.train.Checkpoint(**parts)
        return made[number]

    number = 0
    for step in steps:
        (number,) = (
            child.node_id
            for child in graph.nodes[number].children
            if child.local_name == step
        )
    return make(number)


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a pretrainer; tests do not change it."""
    return write(tmp_path_factory.mktemp("garden") / "model")


def test_any_root_object_is_accepted(garden: Path, tmp_path: Path) -> None:
    encoder = part(garden, "encoder")
    roots = {
        "deep": tf.train.Checkpoint(a=tf.train.Checkpoint(b=encoder)),
        "root": encoder,
        "list": tf.train.Checkpoint(models=[tf.Variable(1), encoder]),
    }
    wanted = arrays_of("encoder")
    for name, root in roots.items():
        path = root.write(str(tmp_path / name / "ckpt-7"))
        found = read_checkpoint(path)
        assert found.config.num_attention_heads == 2 and found.unrecognized == ()
        assert_arrays(found.arrays, wanted)
        assert_arrays(read_checkpoint(tmp_path / name).arrays, wanted)
        assert "no config found" in found.notes[0]


def test_layers_in_their_order_alone(garden: Path, tmp_path: Path) -> None:
    encoder = part(garden, "encoder")
    layers = {f"layer_with_weights-{i}": None for i in range(7)}
    layers = {name: getattr(encoder, name) for name in layers}
    path = tf.train.Checkpoint(model=tf.train.Checkpoint(**layers)).write(
        str(tmp_path / "ckpt")
    )
    assert_arrays(read_checkpoint(path).arrays, arrays_of("encoder"))


def test_the_state_of_training_is_ignored(garden: Path, tmp_path: Path) -> None:
    model = part(garden, "model")
    moments = [tf.Variable(tf.ones([6, 6]), name="m/kernel") for _ in range(5)]
    root = tf.train.Checkpoint(
        model=model,
        optimizer=tf.train.Checkpoint(_momentums=moments, rate=tf.Variable(0.1)),
        global_step=tf.Variable(3, dtype=tf.int64),
    )
    found = read_checkpoint(root.save(str(tmp_path / "ckpt")))
    assert "6 optimizer values are skipped" in found.notes
    assert found.unrecognized == ()
    assert_arrays(found.arrays, arrays_of("pretraining"))


def test_the_pooler_of_the_next_sentence_head(garden: Path, tmp_path: Path) -> None:
    model = part(garden, "model")
    own = model.encoder_network._pooler_layer
    own.kernel.assign(tf.ones_like(own.kernel))
    found = read_checkpoint(model.write(str(tmp_path / "ckpt")))
    assert any("pooler is the next-sentence" in note for note in found.notes)
    assert_arrays(found.arrays, arrays_of("pretraining"))


def test_a_head_of_another_name(garden: Path, tmp_path: Path) -> None:
    head = tf.train.Checkpoint(
        out_proj=tf.train.Checkpoint(kernel=tf.Variable(tf.ones([6, 2]), name="x/k"))
    )
    root = tf.train.Checkpoint(encoder=part(garden, "encoder"), head=head)
    folder = Path(shutil.copytree(garden, tmp_path / "in"))
    root.write(str(folder / "bert_model.ckpt"))
    found = read_checkpoint(folder)
    assert found.unrecognized == ("x/k",)
    assert_arrays(found.arrays, arrays_of("encoder"))
    refused(lambda: convert(folder, tmp_path / "out"), "not part of BERT: x/k")
    BertEncoder.from_pretrained(str(folder))


def test_a_saved_model(garden: Path, tmp_path: Path) -> None:
    model = part(garden, "model")
    model.vocab_file = tf.saved_model.Asset(str(garden / "vocab.txt"))
    tf.saved_model.save(model, str(tmp_path / "saved"))
    found = read_checkpoint(tmp_path / "saved")
    assert found.config == CONFIG.replace(hidden_dropout_prob=0.1)
    assert_arrays(found.arrays, arrays_of("pretraining"))
    convert(tmp_path / "saved", tmp_path / "out")
    tokenizer = WordPieceTokenizer.from_folder(tmp_path / "out")
    assert list(tokenizer.vocabulary) == VOCABULARY


@pytest.mark.parametrize("lower_case", [True, False])
def test_a_saved_model_that_lower_cases_or_not(
    lower_case: bool, garden: Path, tmp_path: Path
) -> None:
    model = part(garden, "model")
    model.vocab_file = tf.saved_model.Asset(str(garden / "vocab.txt"))
    model.do_lower_case = tf.Variable(lower_case)
    tf.saved_model.save(model, str(tmp_path / "saved"))
    notes = convert(tmp_path / "saved", tmp_path / "out")
    assert f"lowercase={lower_case}, read from the variable do_lower_case" in notes
    tokenizer = WordPieceTokenizer.from_folder(tmp_path / "out")
    assert tokenizer.lowercase is lower_case


def test_a_saved_model_of_something_else(tmp_path: Path) -> None:
    tf.saved_model.save(tf.train.Checkpoint(x=tf.Variable(1.0)), str(tmp_path))
    refused(lambda: read_checkpoint(tmp_path), "contains no BertEncoder", "holds", "x")
    shutil.rmtree(tmp_path / "variables")
    refused(lambda: read_checkpoint(tmp_path), "contains no variables.index")


def test_several_checkpoints(garden: Path, tmp_path: Path) -> None:
    for ending in ("index", "data-00000-of-00001"):
        for number in (10, 20):
            source = garden / f"bert_model.ckpt.{ending}"
            shutil.copy(source, tmp_path / f"ckpt-{number}.{ending}")
    refused(lambda: read_checkpoint(tmp_path), "give the path of one: ckpt-10, ckpt-20")
    assert len(read_checkpoint(tmp_path / "ckpt-20").shapes) == 46


def test_opening_needs_no_tensorflow(garden: Path) -> None:
    code = (
        "import sys; from bert_keras.checkpoints import read_checkpoint as read;"
        f"read({str(garden)!r}).shapes; sys.exit('tensorflow' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# Configs.


def with_params(folder: Path, garden: Path, text: str) -> Path:
    """Return a copy of the checkpoint with a `params.yaml` alone."""
    shutil.copytree(garden, folder)
    (folder / "bert_config.json").unlink()
    (folder / "params.yaml").write_text(text, encoding="utf-8")
    return folder


def params(**changes: Any) -> str:
    """Return a `params.yaml` as train.py writes it."""
    bert = {
        **{"vocab_size": CONFIG.vocab_size, "hidden_size": 6, "num_layers": 2},
        **{"num_attention_heads": 2, "intermediate_size": 10, "dropout_rate": 0.25},
        **{"max_position_embeddings": 9, "type_vocab_size": 3, "embedding_size": None},
        **{"norm_first": False, "hidden_activation": "gelu"},
    }
    kind = changes.pop("type", "bert")
    encoder = {"type": kind, "bert": bert | changes, "albert": {"num_layers": 1}}
    model = {"encoder": encoder, "mlm_activation": "gelu"}
    return yaml.safe_dump({"task": {"model": model}, "trainer": {"steps": 5}})


def test_params_of_a_run(garden: Path, tmp_path: Path) -> None:
    found = read_checkpoint(with_params(tmp_path / "run", garden, params()))
    assert found.config == CONFIG and "tanh form" in found.notes[0]
    text = params(hidden_activation="relu")
    found = read_checkpoint(with_params(tmp_path / "relu", garden, text))
    assert found.config.hidden_act == "relu"
    assert "the masked-LM head computes gelu" in found.notes[0]


BOMB = "a: &a [1, 1]\nb: &b [*a, *a, *a, *a]\n" + "".join(
    f"c{i}: &c{i} [{', '.join([f'*c{i - 1}' if i else '*b'] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (params(type="albert"), "the encoder must be bert or bert_v2; found albert"),
        (params(norm_first=True), "`norm_first` must be false"),
        (params(embedding_size=4), "`embedding_size` must be the hidden size, 6"),
        (params(num_attention_heads=3), "`num_attention_heads` must be 2"),
        (params(vocab_size=10**12), "`vocab_size` must be from 1"),
        (params(hidden_activation="mish"), "`hidden_act` must be one of"),
        (params(dropout_rate=[0.1]), "`bert` must hold plain values"),
        ("task: [", "not a YAML file"),
        ("- 1", "must hold a mapping"),
        ("type: bert\nbert: 3", "`bert` must hold plain values"),
        ("x: !!python/object/apply:os.system [ls]", "not a YAML file"),
        (f"{BOMB}type: *c8", "the encoder must be bert or bert_v2; found list"),
        ("a: &a {x: 1}\nb: {<<: [*a, *a]}", "merged mappings"),
        ("[" * 400, "not a YAML file"),
    ],
    ids=range(14),
)
def test_params_that_do_not_fit(
    text: str, message: str, garden: Path, tmp_path: Path
) -> None:
    folder = with_params(tmp_path / "run", garden, text)
    assert len(refused(lambda: read_checkpoint(folder), message)) < 600


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 3}, "the number of layers present, 2"),
        ({"num_hidden_layers": 1}, "unexpected (bert/encoder/layer_1/"),
        ({"intermediate_size": 11}, "6 misshapen"),
        ({"num_attention_heads": 3}, "`num_attention_heads` must be 2"),
        ({"embedding_size": 3}, "`embedding_size` must be the hidden size"),
        ({"max_position_embeddings": 512}, "must be [512, 6], is [9, 6]"),
    ],
)
def test_a_config_that_does_not_fit(
    changes: dict[str, int], message: str, garden: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(garden, tmp_path / "in"))
    raw = json.loads((folder / "bert_config.json").read_text())
    (folder / "bert_config.json").write_text(json.dumps(raw | changes))
    refused(lambda: convert(folder, tmp_path / "out"), message)
    assert not (tmp_path / "out").exists()


# Broken and hostile files.

Change = Callable[[TrackableObjectGraph, dict[str, np.ndarray]], None]


def changed(folder: Path, garden: Path, change: Change) -> Path:
    """Return a copy of the checkpoint, graph and values changed, checksums right."""
    shutil.copytree(garden, folder)
    reader = tf.train.load_checkpoint(str(garden / "bert_model.ckpt"))
    values = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
    graph = TrackableObjectGraph.FromString(values[GRAPH])
    del values[GRAPH]
    change(graph, values)
    values.setdefault(GRAPH, np.array(graph.SerializeToString(), object))
    tf.raw_ops.SaveV2(
        prefix=str(folder / "bert_model.ckpt"),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=[
            tf.constant(v.item() if v.dtype == object else v) for v in values.values()
        ],
    )
    return folder


def child(graph: TrackableObjectGraph, path: str) -> Any:
    """Return the reference to the object at `a/b/c` below the root."""
    node, reference = graph.nodes[0], None
    for step in path.split("/"):
        (reference,) = (c for c in node.children if c.local_name == step)
        node = graph.nodes[reference.node_id]
    return reference


def key_of(graph: TrackableObjectGraph, path: str) -> str:
    node = graph.nodes[child(graph, path).node_id]
    return node.attributes[0].checkpoint_key


QUERY = "encoder/_transformer_layers/1/_attention_layer/_query_dense"
POSITIONS = "encoder/_position_embedding_layer/embeddings"


def beyond(graph: TrackableObjectGraph, values: dict) -> None:
    child(graph, "encoder").node_id = 10**6


def negative(graph: TrackableObjectGraph, values: dict) -> None:
    child(graph, "encoder").node_id = -1


def circle(graph: TrackableObjectGraph, values: dict) -> None:
    child(graph, "encoder").node_id = 0
    child(graph, "model").node_id = 0


def absent_key(graph: TrackableObjectGraph, values: dict) -> None:
    del values[key_of(graph, POSITIONS)]


def renamed_key(graph: TrackableObjectGraph, values: dict) -> None:
    node = graph.nodes[child(graph, POSITIONS).node_id]
    node.attributes[0].checkpoint_key = "elsewhere"


def one_for_two(graph: TrackableObjectGraph, values: dict) -> None:
    other = child(graph, QUERY.replace("query", "key") + "/kernel").node_id
    child(graph, f"{QUERY}/kernel").node_id = other


def other_table(graph: TrackableObjectGraph, values: dict) -> None:
    child(graph, "masked_lm/embedding_table").node_id = child(graph, POSITIONS).node_id


def no_string(graph: TrackableObjectGraph, values: dict) -> None:
    values[GRAPH] = np.ones(2)


def no_message(graph: TrackableObjectGraph, values: dict) -> None:
    values[GRAPH] = np.array(b"\xff" * 40, object)


def empty(graph: TrackableObjectGraph, values: dict) -> None:
    values[GRAPH] = np.array(b"", object)


def many_objects(graph: TrackableObjectGraph, values: dict) -> None:
    values[GRAPH] = np.array(b"\x0a\x00" * 1_001, object)


def one_name_twice(graph: TrackableObjectGraph, values: dict) -> None:
    graph.nodes[0].children.add(node_id=3, local_name="encoder")


def two_encoders(graph: TrackableObjectGraph, values: dict) -> None:
    graph.nodes.add().CopyFrom(graph.nodes[child(graph, "encoder").node_id])
    graph.nodes[0].children.add(node_id=len(graph.nodes) - 1, local_name="student")


def missing_bias(graph: TrackableObjectGraph, values: dict) -> None:
    child(graph, f"{QUERY}/bias").local_name = "offset"


def missing_layer(graph: TrackableObjectGraph, values: dict) -> None:
    child(graph, "encoder/_transformer_layers/1").local_name = "01"


def first_layer(graph: TrackableObjectGraph, values: dict) -> None:
    child(graph, "encoder/_transformer_layers/0").local_name = "5"


def flat_query(graph: TrackableObjectGraph, values: dict) -> None:
    key = key_of(graph, f"{QUERY}/kernel")
    values[key] = values[key].reshape(6, 6)


def other_heads(graph: TrackableObjectGraph, values: dict) -> None:
    key = key_of(graph, f"{QUERY}/kernel")
    values[key] = values[key].reshape(6, 3, 2)


def other_width(graph: TrackableObjectGraph, values: dict) -> None:
    values[key_of(graph, POSITIONS)] = np.ones((9, 5), "float32")


def pooler_without_values(graph: TrackableObjectGraph, values: dict) -> None:
    kernel = child(graph, "encoder/_pooler_layer/kernel").node_id
    del graph.nodes[kernel].attributes[:]


def integers(graph: TrackableObjectGraph, values: dict) -> None:
    values[key_of(graph, POSITIONS)] = np.ones((9, 6), "int32")


def projection(graph: TrackableObjectGraph, values: dict) -> None:
    encoder = graph.nodes[child(graph, "encoder").node_id]
    encoder.children.add(node_id=0, local_name="_embedding_projection")


LIES: list[tuple[Change, str]] = [
    (beyond, "names objects that it does not hold"),
    (negative, "names objects that it does not hold"),
    (circle, "contains no BertEncoder"),
    (absent_key, "the object graph names encoder/_position_embedding_layer"),
    (renamed_key, "the object graph names elsewhere, absent"),
    (one_for_two, "each weight must be a separate variable"),
    (other_table, "must share the token embeddings"),
    (no_string, "must be one string"),
    (no_message, "broken or not a TensorFlow 2 checkpoint"),
    (empty, "broken or not a TensorFlow 2 checkpoint"),
    (many_objects, "more than 1,000 objects"),
    (one_name_twice, "two objects are both `encoder`"),
    (two_encoders, "must hold one encoder; holds 2"),
    (missing_bias, "1 missing (bert/encoder/layer_1/attention/self/query/bias)"),
    (missing_layer, "the number of layers present, 1; received 2"),
    (first_layer, "the query of the first layer must have 3 axes; is absent"),
    (flat_query, "must have 3 axes, 2 heads in axis 1; has [6, 6]"),
    (other_heads, "must have 3 axes, 2 heads in axis 1; has [6, 3, 2]"),
    (other_width, "must be [9, 6], is [9, 5]"),
    (integers, "must be one of F32, F16, BF16, F64"),
    (projection, "must have token embeddings of the hidden size"),
]


@pytest.mark.parametrize(
    ("change", "message"), LIES, ids=[change.__name__ for change, _ in LIES]
)
def test_a_wrong_object_graph(
    change: Change,
    message: str,
    garden: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tensorflow_checkpoint, "_MOST_NODES", 1_000)
    folder = changed(tmp_path / "in", garden, change)
    refused(lambda: check_encoder(read_checkpoint(folder)), message)


def test_a_separate_pooler_without_values(garden: Path, tmp_path: Path) -> None:
    folder = changed(tmp_path / "in", garden, pooler_without_values)
    assert_arrays(read_checkpoint(folder).arrays, arrays_of("pretraining"))


def test_unknown_objects_are_ignored(garden: Path, tmp_path: Path) -> None:
    def more(graph: TrackableObjectGraph, values: dict) -> None:
        graph.nodes[0].children.add(node_id=0, local_name="itself")
        graph.nodes.add()

    folder = changed(tmp_path / "in", garden, more)
    assert_arrays(read_checkpoint(folder).arrays, arrays_of("pretraining"))


def test_values_that_are_not_finite(garden: Path, tmp_path: Path) -> None:
    def infinite(graph: TrackableObjectGraph, values: dict) -> None:
        values[key_of(graph, POSITIONS)][0, 0] = np.inf

    arrays = read_checkpoint(changed(tmp_path / "in", garden, infinite)).arrays
    refused(lambda: dict(arrays), "position_embeddings` holds values that are not")


def mutations(folder: Path, rounds: int, seed: int) -> Iterator[str]:
    """Change a byte of each file, or truncate it; yield the result or the error."""
    draw = random.Random(seed)
    for path in sorted(folder.glob("bert_*")):
        content = path.read_bytes()
        for _ in range(rounds):
            data = bytearray(content)
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            if draw.random() < 0.3:
                del data[draw.randrange(len(data)) :]
            path.write_bytes(bytes(data))
            try:
                checkpoint = read_checkpoint(folder)
                check_encoder(checkpoint)
                dict(checkpoint.arrays)
                yield "read"
            except BertKerasError as error:
                assert "\n" not in str(error) and len(str(error)) < 3_000
                yield "refused"
        path.write_bytes(content)


def test_mutated_files_are_read_or_rejected(garden: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(garden, tmp_path / "in"))
    seen = list(mutations(folder, 40, seed=1))
    assert len(seen) == 120 and seen.count("refused") > 60


@pytest.mark.thorough
def test_many_mutated_files_are_read_or_rejected(garden: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(garden, tmp_path / "in"))
    seen = list(mutations(folder, 1_000, seed=2))
    assert seen.count("refused") > 1_000
