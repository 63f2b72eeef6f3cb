"""Google's TensorFlow 1 checkpoints: own tiny ones, a real one, and broken ones."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import VOCABULARY, refused, write_encoder
from electra_checkpoint import google_variables, write_variables
from safetensors.numpy import load_file

from bert_keras.checkpoints import (
    names,
    read_checkpoint,
    read_google,
    resolve,
    write_google,
)
from bert_keras.checkpoints.tensorflow_checkpoint import read_index
from bert_keras.cli.main import main
from bert_keras.config import BertConfig
from bert_keras.errors import BertKerasError, CheckpointError, ConfigError
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.loading import load_model

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "tf1_ckpt_keras_bert"
CONFIG: dict[str, Any] = {
    "vocab_size": 5,
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 8,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "pooler_type": "first_token_transform",
}
QUERY = "bert/encoder/layer_0/attention/self/query/kernel"
VARIABLES: dict[str, np.ndarray] = {
    QUERY: np.arange(16, dtype=np.float32).reshape(4, 4),
    f"{QUERY}/adam_m": np.zeros((4, 4), np.float32),
    "cls/seq_relationship/output_weights": np.arange(8, dtype=np.float32).reshape(2, 4),
    "cls/seq_relationship/output_bias": np.ones(2, np.float32),
    "output_weights": np.arange(12, dtype=np.float32).reshape(3, 4),
    "output_bias": np.ones(3, np.float32),
    "cls/squad/output_weights": np.full((2, 4), 7, np.float32),
    "bert/pooler/dense/bias": np.ones(4, np.float16),
    "global_step": np.array(3, np.int64),
    "my_variable": np.ones(2, np.float32),
}


def write_checkpoint(
    folder: Path,
    variables: Mapping[str, np.ndarray] = VARIABLES,
    *,
    name: str = "bert_model.ckpt",
    **config: Any,
) -> Path:
    tf = pytest.importorskip("tensorflow")
    folder.mkdir(exist_ok=True)
    (folder / "bert_config.json").write_text(json.dumps(CONFIG | config))
    tf.raw_ops.SaveV2(
        prefix=str(folder / name),
        tensor_names=list(variables),
        shape_and_slices=[""] * len(variables),
        tensors=[tf.constant(value) for value in variables.values()],
    )
    return folder


def test_reads_a_folder(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_checkpoint(tmp_path))
    assert (checkpoint.origin, checkpoint.path) == ("google", tmp_path)
    assert checkpoint.raw_config == CONFIG
    assert checkpoint.unrecognized == ("my_variable",)
    arrays = dict(checkpoint.arrays)
    assert checkpoint.shapes == {name: arrays[name].shape for name in arrays}
    assert {a.dtype.name for a in arrays.values()} == {"float32"}
    assert sorted(arrays) == [
        "bert/encoder/layer_0/attention/self/query/kernel",
        "bert/pooler/dense/bias",
        "classifier/bias",
        "classifier/kernel",
        "cls/seq_relationship/bias",
        "cls/seq_relationship/kernel",
        "qa_outputs/kernel",
    ]
    np.testing.assert_array_equal(arrays[QUERY], VARIABLES[QUERY])
    assert arrays["cls/seq_relationship/kernel"].tolist() == [
        [0, 4],
        [1, 5],
        [2, 6],
        [3, 7],
    ]
    np.testing.assert_array_equal(
        arrays["classifier/kernel"], VARIABLES["output_weights"].T
    )


def test_gelu_is_the_tanh_form(tmp_path: Path) -> None:
    checkpoint = read_checkpoint(write_checkpoint(tmp_path))
    assert checkpoint.config.hidden_act == "gelu_new"
    assert "gelu_new" in checkpoint.notes[0]
    assert "2 optimizer values" in checkpoint.notes[1]
    checkpoint = read_checkpoint(write_checkpoint(tmp_path, hidden_act="relu"))
    assert checkpoint.config.hidden_act == "relu"


def test_prefixes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, name="model.ckpt-20")
    assert read_checkpoint(tmp_path).shapes[QUERY] == (4, 4)
    write_checkpoint(tmp_path, {QUERY: np.ones((1, 1))}, name="model.ckpt-40")
    with pytest.raises(CheckpointError, match="model.ckpt-20, model.ckpt-40"):
        read_checkpoint(tmp_path)
    for given in ("model.ckpt-40", "model.ckpt-40.index"):
        assert read_checkpoint(tmp_path / given).shapes == {QUERY: (1, 1)}
        assert resolve(tmp_path / given) == tmp_path
    write_checkpoint(tmp_path)
    assert "bert/pooler/dense/bias" in read_checkpoint(tmp_path).shapes


def test_missing_files(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "bert_model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(CheckpointError, match="contains no bert_model.ckpt.data"):
        read_checkpoint(tmp_path)
    (tmp_path / "bert_config.json").unlink()
    with pytest.raises(CheckpointError, match="bert_config.json: no such file"):
        read_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="contains no nothing.index"):
        read_google(write_checkpoint(tmp_path) / "nothing")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"output_bias": np.ones(2, np.int32)}, "output_bias must be one of"),
        ({"output_weights": np.ones(2, np.float32)}, "must have 2 axes"),
        ({"_CHECKPOINTABLE_OBJECT_GRAPH": np.ones(2)}, "TensorFlow 2 checkpoint"),
    ],
)
def test_what_is_rejected(tmp_path: Path, variables: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(write_checkpoint(tmp_path, variables))


def test_absurd_config_and_values(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"bert_config.json: `vocab_size` must be"):
        read_checkpoint(write_checkpoint(tmp_path, vocab_size=10**12))
    bad = {"output_bias": np.array([1, np.nan], np.float32)}
    checkpoint = read_checkpoint(write_checkpoint(tmp_path, bad))
    with pytest.raises(CheckpointError, match="`classifier/bias` holds values that"):
        checkpoint.arrays["classifier/bias"]


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "float32"])
def test_types_and_values_of_several_blocks(tmp_path: Path, kind: str) -> None:
    tf = pytest.importorskip("tensorflow")
    draw = np.random.default_rng(1)
    values = draw.normal(size=(1_500, 1_024)).astype(np.float32)
    words = "bert/embeddings/word_embeddings"
    head = draw.normal(size=(2, 4)).astype(np.float32)
    stored = {words: values, "cls/seq_relationship/output_weights": head}
    write_checkpoint(
        tmp_path, {name: tf.cast(value, kind) for name, value in stored.items()}
    )
    reader = tf.train.load_checkpoint(str(tmp_path / "bert_model.ckpt"))
    arrays = read_checkpoint(tmp_path).arrays
    for name, ours in (
        (words, arrays[words]),
        ("cls/seq_relationship/output_weights", arrays["cls/seq_relationship/kernel"]),
    ):
        theirs = reader.get_tensor(name).astype(np.float32)
        theirs = theirs if name == words else theirs.T
        np.testing.assert_array_equal(ours, theirs, strict=True)


def test_a_changed_value_is_seen_by_its_checksum(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, {QUERY: VARIABLES[QUERY]})
    path = tmp_path / "bert_model.ckpt.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    content[17] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"truncated: {QUERY}: .*checksum"):
        read_checkpoint(tmp_path).arrays[QUERY]


def test_mutated_files_are_read_or_rejected(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    draw = random.Random(0)  # noqa: S311 (a test)
    for ending, least in ((".index", 60), (".data-00000-of-00001", 20)):
        path = tmp_path / f"bert_model.ckpt{ending}"
        content = path.read_bytes()
        refused = 0
        for _ in range(80):
            data = bytearray(content)
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            if draw.random() < 0.3:
                del data[draw.randrange(len(data)) :]
            path.write_bytes(bytes(data))
            try:
                dict(read_checkpoint(tmp_path).arrays)
            except BertKerasError as error:
                assert "\n" not in str(error) and len(str(error)) < 1_000
                refused += 1
        path.write_bytes(content)
        assert refused >= least, (ending, refused)


def masked_crc32c(data: bytes) -> bytes:
    """Return the checksum that follows a block of an index."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    value ^= 0xFFFFFFFF
    value = (value >> 15 | value << 17) + 0xA282EAD8
    return (value & 0xFFFFFFFF).to_bytes(4, "little")


def test_wrong_entries_with_valid_checksums_do_not_end_the_process(
    tmp_path: Path,
) -> None:
    """TensorFlow alone aborts here: "Check failed: entry.ParseFromString"."""
    write_checkpoint(tmp_path)
    path = tmp_path / "bert_model.ckpt.index"
    content = path.read_bytes()
    end = content[-48] | (content[-47] & 127) << 7  # the metaindex follows the block
    end -= 5
    assert content[end + 1 : end + 5] == masked_crc32c(content[: end + 1])
    draw = random.Random(0)  # noqa: S311 (a test)
    refused = 0
    for _ in range(150):
        block = bytearray(content[: end + 1])
        block[draw.randrange(end)] = draw.choice((0, 127, 128, 255))
        path.write_bytes(
            bytes(block) + masked_crc32c(bytes(block)) + content[end + 5 :]
        )
        try:
            dict(read_checkpoint(tmp_path).arrays)
        except BertKerasError as error:
            assert "\n" not in str(error) and len(str(error)) < 1_000
            refused += 1
    assert refused > 75


def table(entries: Mapping[bytes, bytes]) -> bytes:
    """Return an index of these entries, each spelled in full; all checksums right."""

    def varint(value: int) -> bytes:
        first = value & 127
        return (
            bytes([first | 128]) + varint(value >> 7) if value > 127 else b"%c" % first
        )

    def block(pairs: Mapping[bytes, bytes]) -> bytes:
        rows = (
            b"\0" + varint(len(k)) + varint(len(v)) + k + v for k, v in pairs.items()
        )
        text = b"".join(rows) + bytes(4) + b"\1\0\0\0" + b"\0"
        return text + masked_crc32c(text)

    data = block(entries)
    end = len(data)
    index = block({b"z": varint(0) + varint(end - 5)})
    footer = varint(0) + varint(0) + varint(end) + varint(len(index) - 5)
    magic = 0xDB4775248B80FB57.to_bytes(8, "little")
    return data + index + footer.ljust(40, b"\0") + magic


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"offset": 1 << 40}, "broken or truncated"),
        ({"offset": (1 << 63) - 1}, "an unknown field"),
        ({"offset": -1}, "an unknown field"),
        ({"offset": 60}, "broken or truncated"),
        ({"size": 1 << 40}, "broken or truncated"),
        ({"size": -1}, "an unknown field"),
        ({"size": 0}, "broken or truncated"),
        ({"shape": [1 << 40, 1 << 40]}, "an absurd shape"),
        ({"shape": [-1]}, "an absurd axis"),
        ({"shape": [1] * 9}, "an absurd shape"),
        ({"shape": [0]}, "is empty"),
        ({"dtype": 3}, "must be one of F32, F16, BF16, F64; is type 3"),
        ({"dtype": 4_000}, "must be one of F32, F16, BF16, F64; is type 4000"),
        ({"dtype": 2}, "broken or truncated"),
        ({"shard_id": 7}, "contains no bert_model.ckpt.data-00007-of-00001"),
    ],
)
def test_wrong_entries(
    tmp_path: Path, changes: dict[str, Any], message: str | None
) -> None:
    from tensorflow.core.protobuf import tensor_bundle_pb2

    write_checkpoint(tmp_path, {"output_bias": np.arange(16, dtype=np.float32)})
    values: dict[str, Any] = {"dtype": 1, "shape": [16], "offset": 0, "size": 64}
    values |= changes
    entry = tensor_bundle_pb2.BundleEntryProto()
    for size in values.pop("shape"):
        entry.shape.dim.add(size=size)
    for field, value in values.items():
        setattr(entry, field, value)
    header = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
    entries = {b"": header.SerializeToString()}
    entries[b"output_bias"] = entry.SerializeToString()
    (tmp_path / "bert_model.ckpt.index").write_bytes(table(entries))
    if message is None:
        bias = read_checkpoint(tmp_path).arrays["classifier/bias"]
        np.testing.assert_array_equal(bias, np.arange(16))
        return
    with pytest.raises(CheckpointError, match=message) as error:
        read_checkpoint(tmp_path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 700


def test_opening_needs_no_tensorflow(tmp_path: Path) -> None:
    write_checkpoint(tmp_path)
    code = (
        "import sys; from bert_keras.checkpoints import read_checkpoint as read;"
        f"read({str(tmp_path)!r}).shapes; sys.exit('tensorflow' in sys.modules)"
    )
    root = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)  # noqa: S603


@pytest.mark.parametrize(
    "name",
    [
        "chinese_L-12_H-768_A-12",
        "uncased_L-8_H-512_A-8",
        "CoVBERT",
        "huawei_trained",
    ],
)
def test_the_index_of_real_checkpoints(name: str) -> None:
    folder = REAL.parent / "ckpt_index_only" / name
    if not folder.is_dir():
        pytest.skip(f"needs the shared data folder: {name} is absent")
    listing = json.loads((folder / "variables.json").read_text())
    variables = read_index(folder / "bert_model.ckpt")
    assert {v.file.name for v in variables.values()} == {
        "bert_model.ckpt.data-00000-of-00001"
    }
    assert {n: list(variables[n].shape) for n in variables} == {
        row["name"]: row["shape"] for row in listing
    }
    with pytest.raises(CheckpointError, match="contains no bert_model.ckpt.data-00000"):
        read_checkpoint(folder)


def test_a_real_checkpoint(tmp_path: Path) -> None:
    if not REAL.is_dir():
        pytest.skip("needs the shared data folder: tf1_ckpt_keras_bert is absent")
    tf = pytest.importorskip("tensorflow")
    listing = json.loads((REAL / "variables.json").read_text())
    shapes = {row["name"]: tuple(row["shape"]) for row in listing}
    checkpoint = read_checkpoint(REAL)
    assert checkpoint.unrecognized == ()
    assert checkpoint.config.hidden_act == "gelu_new"
    assert checkpoint.config.num_hidden_layers == 2
    weights = [n for n in shapes if not names.is_optimizer_state(n)]
    assert len(checkpoint.arrays) == len(weights) == 46
    reader = tf.train.load_checkpoint(str(REAL / "bert_model.ckpt"))
    for name, array in checkpoint.arrays.items():
        theirs, transpose = names.to_google(name)
        assert array.shape == (shapes[theirs][::-1] if transpose else shapes[theirs])
        stored = reader.get_tensor(theirs)
        np.testing.assert_array_equal(array, stored.T if transpose else stored)
    assert np.ptp(checkpoint.arrays["bert/embeddings/word_embeddings"]) > 0


def test_google_to_huggingface_keeps_every_bit(tmp_path: Path) -> None:
    if not REAL.is_dir():
        pytest.skip("needs the shared data folder: tf1_ckpt_keras_bert is absent")
    from bert_keras.checkpoints import write_huggingface

    shutil.copytree(REAL, tmp_path / "google")
    google = read_checkpoint(tmp_path / "google")
    config = google.config.to_dict() | {"architectures": ["BertForPreTraining"]}
    write_huggingface(tmp_path / "new", google.arrays, config)
    again = read_checkpoint(tmp_path / "new")
    assert again.config == google.config
    assert sorted(again.arrays) == sorted(google.arrays)
    for name, array in google.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array, strict=True)


# Writing


def arrays_of(layers: int) -> dict[str, np.ndarray]:
    """Return canonical arrays of a pretraining model of unequal tiny sizes."""
    hidden, inner, words, places = 2, 6, 7, 5
    dense = {"query": hidden, "key": hidden, "value": hidden}
    shapes = {
        "bert/embeddings/word_embeddings": (words, hidden),
        "bert/embeddings/position_embeddings": (places, hidden),
        "bert/embeddings/token_type_embeddings": (3, hidden),
        "bert/embeddings/LayerNorm/gamma": (hidden,),
        "bert/embeddings/LayerNorm/beta": (hidden,),
        "bert/pooler/dense/kernel": (hidden, hidden),
        "bert/pooler/dense/bias": (hidden,),
        "cls/predictions/transform/dense/kernel": (hidden, hidden),
        "cls/predictions/transform/dense/bias": (hidden,),
        "cls/predictions/transform/LayerNorm/gamma": (hidden,),
        "cls/predictions/transform/LayerNorm/beta": (hidden,),
        "cls/predictions/output_bias": (words,),
        "cls/seq_relationship/kernel": (hidden, 4),
        "cls/seq_relationship/bias": (4,),
    }
    for number in range(layers):
        scope = f"bert/encoder/layer_{number}"
        for name, ins, outs in (
            *((f"attention/self/{part}", hidden, size) for part, size in dense.items()),
            ("attention/output/dense", hidden, hidden),
            ("intermediate/dense", hidden, inner),
            ("output/dense", inner, hidden),
        ):
            shapes[f"{scope}/{name}/kernel"] = (ins, outs)
            shapes[f"{scope}/{name}/bias"] = (outs,)
        for name in ("attention/output/LayerNorm", "output/LayerNorm"):
            shapes[f"{scope}/{name}/gamma"] = (hidden,)
            shapes[f"{scope}/{name}/beta"] = (hidden,)
    draw = np.random.default_rng(0)
    return {n: draw.normal(size=s).astype("float32") for n, s in shapes.items()}


def config_of(layers: int, **changes: Any) -> dict[str, Any]:
    return {
        **{"vocab_size": 7, "hidden_size": 2, "num_hidden_layers": layers},
        **{"num_attention_heads": 1, "intermediate_size": 6, "type_vocab_size": 3},
        **{"max_position_embeddings": 5, "hidden_act": "gelu_new"},
        **changes,
    }


@pytest.mark.parametrize(
    "name",
    [
        "chinese_L-12_H-768_A-12",
        "uncased_L-8_H-512_A-8",
        "CoVBERT",
        "huawei_trained",  # a classifier of run_classifier.py
    ],
)
def test_written_files_have_the_names_shapes_and_types_of_real_ones(
    tmp_path: Path, name: str
) -> None:
    """Shapes are compared with each size put in the place of the real one."""
    folder = REAL.parent / "ckpt_index_only" / name
    if not folder.is_dir():
        pytest.skip(f"needs the shared data folder: {name} is absent")
    tf = pytest.importorskip("tensorflow")
    real = json.loads((folder / "bert_config.json").read_text())
    sizes = {real["vocab_size"]: 7, real["hidden_size"]: 2}
    sizes[real["intermediate_size"]] = 6
    unlike = {"position_embeddings": [5, 2], "token_type_embeddings": [3, 2]}
    unlike |= {"seq_relationship/output_weights": [4, 2]}
    unlike |= {"seq_relationship/output_bias": [4]}
    unlike |= {"output_weights": [4, 2]}

    def shrunk(row: dict[str, Any]) -> list[int]:
        if row["name"] == "output_bias":
            return [4]
        for ending, shape in unlike.items():
            if row["name"].endswith(ending):
                return shape
        return [sizes[size] for size in row["shape"]]

    wanted = {
        row["name"]: (row["dtype"], shrunk(row))
        for row in json.loads((folder / "variables.json").read_text())
        if not names.is_optimizer_state(row["name"])
    }
    layers = real["num_hidden_layers"]
    arrays = arrays_of(layers)
    if "output_weights" in wanted:
        arrays = {n: a for n, a in arrays.items() if not n.startswith("cls/")}
        arrays["classifier/kernel"] = np.ones((2, 4), np.float32)
        arrays["classifier/bias"] = np.ones(4, np.float32)
    assert write_google(tmp_path, arrays, config_of(layers)) == ()
    reader = tf.train.load_checkpoint(str(tmp_path / "bert_model.ckpt"))
    types = reader.get_variable_to_dtype_map()
    shapes = reader.get_variable_to_shape_map()
    assert {n: (types[n].name, shapes[n]) for n in shapes} == wanted
    # And the keys of the real config, with the word of Google's code.
    found = json.loads((tmp_path / "bert_config.json").read_text())
    rest = {"directionality"} | {key for key in real if key.startswith("pooler_")}
    assert set(found) == set(real) - rest
    assert found["hidden_act"] == real["hidden_act"] == "gelu"


def test_heads_of_the_fine_tuning_scripts(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    draw = np.random.default_rng(1)
    arrays = arrays_of(1) | {
        "classifier/kernel": draw.normal(size=(2, 3)).astype("float32"),
        "classifier/bias": np.arange(3, dtype="float32"),
        "qa_outputs/kernel": draw.normal(size=(2, 2)).astype("float32"),
        "qa_outputs/bias": np.arange(2, dtype="float32"),
    }
    write_google(tmp_path, arrays, config_of(1))
    reader = tf.train.load_checkpoint(str(tmp_path / "bert_model.ckpt"))
    for theirs, ours in (
        ("output_weights", arrays["classifier/kernel"].T),
        ("output_bias", arrays["classifier/bias"]),
        ("cls/squad/output_weights", arrays["qa_outputs/kernel"].T),
        ("cls/squad/output_bias", arrays["qa_outputs/bias"]),
        (
            "cls/seq_relationship/output_weights",
            arrays["cls/seq_relationship/kernel"].T,
        ),
        ("cls/predictions/output_bias", arrays["cls/predictions/output_bias"]),
    ):
        np.testing.assert_array_equal(reader.get_tensor(theirs), ours, strict=True)
    again = dict(read_checkpoint(tmp_path).arrays)
    assert sorted(again) == sorted(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array, strict=True)


def test_a_real_checkpoint_round_trips_bit_for_bit(tmp_path: Path) -> None:
    if not REAL.is_dir():
        pytest.skip("needs the shared data folder: tf1_ckpt_keras_bert is absent")
    tf = pytest.importorskip("tensorflow")
    source = read_checkpoint(REAL)
    write_google(tmp_path, source.arrays, source.config.to_dict())
    real = tf.train.load_checkpoint(str(REAL / "bert_model.ckpt"))
    ours = tf.train.load_checkpoint(str(tmp_path / "bert_model.ckpt"))
    listing = json.loads((REAL / "variables.json").read_text())
    weights = [r["name"] for r in listing if not names.is_optimizer_state(r["name"])]
    assert sorted(ours.get_variable_to_shape_map()) == sorted(weights)
    for name in weights:
        np.testing.assert_array_equal(
            ours.get_tensor(name), real.get_tensor(name), strict=True
        )


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"hidden_act": "gelu"}, "by its tanh form, this model by erf"),
        ({"layer_norm_eps": 1e-5}, "epsilon 1e-12, this model with 1e-05"),
        ({"hidden_act": "relu"}, ""),
    ],
)
def test_settings_that_google_s_config_lacks_are_reported_and_kept(
    tmp_path: Path, changes: dict[str, Any], note: str
) -> None:
    config = config_of(1, **changes, id2label={"0": "no"}, architectures=["BertModel"])
    notes = write_google(tmp_path, arrays_of(1), config)
    assert len(notes) == bool(note) and note in " ".join(notes)
    again = read_checkpoint(tmp_path)
    assert again.config == BertConfig.from_dict(config)
    assert again.raw_config["id2label"] == {"0": "no"}
    assert again.raw_config["architectures"] == ["BertModel"]


@pytest.mark.parametrize(
    ("arrays", "changes", "message"),
    [
        ({"my_head/kernel": np.ones(2)}, {}, "received my_head/kernel"),
        ({"classifier/bias": np.full(2, np.nan)}, {}, "not finite"),
        ({}, {"is_decoder": True}, "no causal attention"),
        ({}, {"hidden_act": "silu"}, "no activation silu; it has gelu, relu, tanh"),
        ({}, {"hidden_size": 0}, "`hidden_size`"),
    ],
)
def test_models_that_google_s_format_cannot_hold_are_rejected(
    tmp_path: Path, arrays: Any, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(BertKerasError, match=message):
        write_google(tmp_path / "new", arrays_of(1) | arrays, config_of(1, **changes))
    assert not (tmp_path / "new").exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        write_google(tmp_path / "file", arrays_of(1), config_of(1))


# ELECTRA: a discriminator and a generator in one checkpoint.

DRAW = np.random.default_rng(2)
WORDS = "bert/embeddings/word_embeddings"


def draws(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {
        name.replace("__", "."): DRAW.normal(size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, np.ndarray]]:
    """Return the weights of a discriminator and a generator as transformers has them.

    Google's code builds them with heads of width 64, so here with one head.
    """
    place, found = tmp_path_factory.mktemp("electra"), {}
    settings: dict[str, Any] = {"model_type": "electra", "embedding_size": 8}
    small = {"hidden_size": 4, "num_hidden_layers": 1, "intermediate_size": 16}
    for part, sizes in (("discriminator", {}), ("generator", small)):
        folder = write_encoder(place / part, num_attention_heads=1, **settings, **sizes)
        found[part] = {
            f"electra.{name}": value
            for name, value in load_file(folder / "model.safetensors").items()
            if not name.startswith("classifier.")  # the pooler, which Google's lacks
        }
    words = {n: v for n, v in found["discriminator"].items() if "_embeddings." in n}
    norm = {n: v for n, v in found["discriminator"].items() if "embeddings.L" in n}
    found["generator"] |= words | norm
    found["discriminator"] |= draws(
        discriminator_predictions__dense__weight=(16, 16),
        discriminator_predictions__dense__bias=(16,),
        discriminator_predictions__dense_prediction__weight=(1, 16),
        discriminator_predictions__dense_prediction__bias=(1,),
    )
    found["generator"] |= draws(
        generator_predictions__dense__weight=(8, 4),
        generator_predictions__dense__bias=(8,),
        generator_predictions__LayerNorm__weight=(8,),
        generator_predictions__LayerNorm__bias=(8,),
        generator_lm_head__bias=(len(VOCABULARY),),
    )
    return found


@pytest.fixture(scope="module")
def both(parts: dict[str, dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Return the variables of the two."""
    named = (google_variables(parts[part], part=part) for part in parts)
    return dict(pair for variables in named for pair in variables.items())


@pytest.mark.parametrize("part", ["discriminator", "generator"])
def test_an_electra_becomes_a_folder(
    part: str, parts: Any, both: dict[str, np.ndarray], tmp_path: Path
) -> None:
    folder = write_variables(tmp_path / "google", both)
    checkpoint = read_checkpoint(folder, part=part)
    assert (checkpoint.origin, checkpoint.unrecognized) == ("google", ())
    config = checkpoint.config
    assert (config.model_type, config.embedding_size) == ("electra", 8)
    assert config.hidden_act == "gelu"  # the erf form, unlike Google's BERT
    told = "\n".join(checkpoint.notes)
    other = {"discriminator": "generator", "generator": "discriminator"}[part]
    for line in ("no bert_config.json", "heads=1, guessed", f"of the {other}", "skip"):
        assert line in told
    out = tmp_path / "out"
    command = [
        str(folder),
        str(out),
        *(["--part", part] if part == "generator" else []),
    ]
    assert main(["convert", *command]) == 0
    written = load_file(out / "model.safetensors")
    wanted = parts[part]
    assert written.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(written[name], value)
    heads = {"discriminator": "ForPreTraining", "generator": "ForMaskedLM"}
    stated = json.loads((out / "config.json").read_text())
    assert stated["architectures"] == [f"Electra{heads[part]}"]
    assert "google-research/electra, TensorFlow 1" in (out / "README.md").read_text()


def test_which_part_an_electra_is_read_as(
    both: dict[str, np.ndarray], tmp_path: Path
) -> None:
    def width(name: str, variables: dict[str, np.ndarray], **asked: Any) -> int:
        folder = write_variables(tmp_path / name, variables)
        return read_checkpoint(folder, **asked).config.hidden_size

    assert width("both", both) == 16
    encoders = {n: v for n, v in both.items() if "_predictions/" not in n}
    assert width("encoders", encoders) == 16
    alone = {n: v for n, v in both.items() if not n.startswith(("electra/enc", "dis"))}
    assert width("generator", alone) == 4
    # Its own embeddings, and an encoder that both share.
    own = {n.replace("electra/emb", "generator/emb"): -v for n, v in both.items()}
    folder = write_variables(tmp_path / "own", both | own)
    for part, sign in (("discriminator", 1), ("generator", -1)):
        found = read_checkpoint(folder, part=part).arrays[WORDS]
        np.testing.assert_array_equal(
            found, sign * both["electra/embeddings/word_embeddings"]
        )
    shared = {n: v for n, v in both.items() if not n.startswith("generator/")}
    heads = {"generator_predictions/dense/kernel": np.ones((16, 8), np.float32)}
    assert width("shared", shared | heads, part="generator") == 16
    masks = {n: v for n, v in (shared | heads).items() if not n.startswith("discr")}
    folder = write_variables(tmp_path / "masks", masks)
    assert read_checkpoint(folder).raw_config["architectures"] == ["BertForMaskedLM"]


def test_the_config_beside_an_electra(
    both: dict[str, np.ndarray], tmp_path: Path
) -> None:
    config = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 32}
    config |= {"num_hidden_layers": 2, "vocab_size": len(VOCABULARY)}
    config |= {"max_position_embeddings": 40, "hidden_act": "relu"}
    folder = write_variables(tmp_path, both, config)
    found = read_checkpoint(folder)
    assert found.config.num_attention_heads == 4 and len(found.notes) == 2
    found = read_checkpoint(folder, part="generator")  # derived from it
    assert (found.config.num_attention_heads, found.config.hidden_size) == (1, 4)
    assert found.config.hidden_act == "relu" and "guessed" in found.notes[0]
    write_variables(tmp_path, both, config | {"hidden_size": 32})
    refused(
        lambda: BertEncoder.from_pretrained(folder), "do not fit", "must be [8, 32]"
    )


@pytest.mark.parametrize(
    ("gone", "asked", "told"),
    [
        ("electra/embeddings_project", {}, ("2 missing", "embeddings_project/bias")),
        ("electra/embeddings/word", {}, ("contains no", "which gives `vocab_size`")),
        ("generator/", {"part": "generator"}, ("misshapen", "transform/dense/kernel")),
        ("nothing", {"part": "both"}, ("`part` must be", "received 'both'")),
    ],
)
def test_what_is_wrong_with_an_electra(
    gone: str,
    asked: dict[str, str],
    told: tuple[str, ...],
    both: dict[str, np.ndarray],
    tmp_path: Path,
) -> None:
    left = {name: v for name, v in both.items() if not name.startswith(gone)}
    folder = write_variables(tmp_path, left)
    refused(
        lambda: (
            load_model(read_checkpoint(folder, **asked), task="masked-lm")
            if gone == "generator/"
            else BertEncoder.from_checkpoint(read_checkpoint(folder, **asked))
        ),
        *told,
    )


def test_only_an_electra_has_parts(tmp_path: Path, encoder_folder: Path) -> None:
    write_checkpoint(tmp_path)
    for place in (tmp_path, encoder_folder, read_checkpoint(encoder_folder)):
        refused(
            lambda p=place: read_checkpoint(p, part="generator"),
            "`part` is for Google's TensorFlow 1 checkpoints of ELECTRA",
        )
