"""Checkpoints: Hugging Face folders read and written, hostile files, the hub, match."""

from __future__ import annotations

import json
import os
import random
import struct
import subprocess
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import ROOT
from safetensors import safe_open
from safetensors.numpy import load_file, save, save_file

from bert_keras.checkpoints import (
    MismatchError,
    check_encoder,
    formats,
    match,
    names,
    read_checkpoint,
    resolve,
    write_huggingface,
)
from bert_keras.checkpoints.keras_hub import write_keras_hub
from bert_keras.checkpoints.safetensors_file import stored_tensors, write_tensors
from bert_keras.errors import BertKerasError, CheckpointError, ConfigError

CONFIG: dict[str, Any] = {
    "architectures": ["BertForPreTraining"],
    "model_type": "bert",
    "vocab_size": 11,
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 8,
    "type_vocab_size": 3,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-7,
    "id2label": {"0": "no", "1": "yes"},
}
WORDS = "bert/embeddings/word_embeddings"
QUERY = "bert/encoder/layer_0/attention/self/query/kernel"


def tiny_arrays() -> dict[str, np.ndarray]:
    """Return every weight of a tiny pretraining model, canonical."""
    hidden, inner, vocabulary = 4, 6, 11
    widths = {"intermediate": (hidden, inner), "output": (inner, hidden)}
    draw = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {}
    for template in names.TABLE:
        if template.startswith(("classifier", "qa_outputs")):
            continue
        for n in "01" if "#" in template else "0":
            parts = template.split("/")
            ins, outs = hidden, hidden
            if "#" in template and parts[3] in widths:
                ins, outs = widths[parts[3]]
            if "seq_relationship" in template:
                outs = 2
            shape = (ins, outs) if parts[-1] == "kernel" else (outs,)
            shapes[template.replace("#", n)] = shape
    shapes |= {
        WORDS: (vocabulary, hidden),
        "bert/embeddings/position_embeddings": (8, hidden),
        "bert/embeddings/token_type_embeddings": (3, hidden),
        "cls/predictions/output_bias": (vocabulary,),
    }
    return {n: draw.normal(size=s).astype(np.float32) for n, s in shapes.items()}


def theirs(arrays: Mapping[str, np.ndarray], **options: Any) -> dict[str, np.ndarray]:
    """Return arrays under Hugging Face's names, by hand rather than by the writer."""
    result = {}
    for name, array in arrays.items():
        new, transpose = names.to_huggingface(name, **options)
        result[new] = np.ascontiguousarray(array.T if transpose else array)
    return result


def write_folder(
    folder: Path, tensors: Mapping[str, np.ndarray], **config: Any
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    save_file(dict(tensors), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def assert_same(found: Mapping[str, np.ndarray], wanted: Mapping[str, Any]) -> None:
    assert sorted(found) == sorted(wanted)
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name], strict=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "model", theirs(tiny_arrays()))


# Reading


def test_files_have_the_mode_of_the_user(tmp_path: Path) -> None:
    other, path = tmp_path / "other", tmp_path / "model.safetensors"
    other.touch()
    write_tensors(path, {"a": np.zeros(2, "float32")})
    assert path.stat().st_mode == other.stat().st_mode


def test_reads_every_weight(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    assert checkpoint.origin == "huggingface"
    assert checkpoint.path == folder
    assert checkpoint.raw_config == CONFIG
    assert checkpoint.config.type_vocab_size == 3
    assert checkpoint.config.layer_norm_eps == 1e-7
    assert checkpoint.config.hidden_act == "gelu"
    assert (checkpoint.notes, checkpoint.unrecognized) == ((), ())
    assert_same(checkpoint.arrays, tiny_arrays())
    assert checkpoint.shapes == {n: a.shape for n, a in tiny_arrays().items()}
    assert all(checkpoint.arrays[name].flags.c_contiguous for name in checkpoint.arrays)


def test_a_kernel_by_hand(tmp_path: Path) -> None:
    weight = np.array([[1, 2, 3], [4, 5, 6]], np.float32)  # [out 2, in 3]
    checkpoint = read_checkpoint(write_folder(tmp_path, {"classifier.weight": weight}))
    assert checkpoint.arrays["classifier/kernel"].tolist() == [[1, 4], [2, 5], [3, 6]]


def test_arrays_are_lazy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = read_checkpoint(folder)

    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("read")

    monkeypatch.setattr("bert_keras.checkpoints.checkpoint.StoredTensor.read", fail)
    assert WORDS in checkpoint.arrays and "nothing" not in checkpoint.arrays
    assert len(checkpoint.arrays) == len(checkpoint.shapes) == 46
    with pytest.raises(RuntimeError, match="read"):
        checkpoint.arrays[WORDS]
    with pytest.raises(KeyError):
        checkpoint.arrays["nothing"]


def test_blocks_give_the_same_values(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bert_keras.checkpoints.checkpoint._BLOCK_BYTES", 1)
    monkeypatch.setattr("bert_keras.checkpoints.checkpoint._BLOCK", 3)
    assert_same(read_checkpoint(folder).arrays, tiny_arrays())


def test_old_names_no_prefix_and_buffers(tmp_path: Path) -> None:
    tensors = {}
    for name, array in theirs(tiny_arrays(), prefix=False).items():
        for new, old in (("weight", "gamma"), ("bias", "beta")):
            if name.endswith(f"LayerNorm.{new}"):
                name = name.removesuffix(new) + old
        tensors[name] = array
    tensors["embeddings.position_ids"] = np.arange(8)[None]
    checkpoint = read_checkpoint(write_folder(tmp_path, tensors))
    assert checkpoint.unrecognized == ()
    assert_same(checkpoint.arrays, tiny_arrays())


def test_tied_copies_are_dropped(tmp_path: Path) -> None:
    arrays = tiny_arrays()
    copies = {
        "cls.predictions.decoder.weight": arrays[WORDS],
        "cls.predictions.decoder.bias": arrays["cls/predictions/output_bias"],
    }
    checkpoint = read_checkpoint(write_folder(tmp_path, theirs(arrays) | copies))
    assert (checkpoint.notes, checkpoint.unrecognized) == ((), ())
    assert_same(checkpoint.arrays, arrays)
    # Where the copy alone was saved, it is the weight.
    tensors = theirs(arrays) | copies
    del tensors["bert.embeddings.word_embeddings.weight"]
    del tensors["cls.predictions.bias"]
    assert_same(read_checkpoint(write_folder(tmp_path, tensors)).arrays, arrays)


def test_untied_copies_are_reported(tmp_path: Path) -> None:
    name = "cls.predictions.decoder.weight"
    tensors = theirs(tiny_arrays()) | {name: np.ones((11, 4), np.float32)}
    checkpoint = read_checkpoint(write_folder(tmp_path, tensors))
    assert checkpoint.unrecognized == (name,)
    assert name in checkpoint.notes[0]
    tensors[name] = np.ones((12, 4), np.float32)
    with pytest.raises(CheckpointError, match=r"decoder.weight must have the shape"):
        read_checkpoint(write_folder(tmp_path, tensors))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floats_become_float32(tmp_path: Path, dtype: Any) -> None:
    arrays = {name: array.astype(dtype) for name, array in tiny_arrays().items()}
    checkpoint = read_checkpoint(write_folder(tmp_path, theirs(arrays)))
    assert_same(checkpoint.arrays, {n: a.astype(np.float32) for n, a in arrays.items()})
    assert "read as float32" in checkpoint.notes[0]


def test_integer_weights_are_rejected(tmp_path: Path) -> None:
    tensors = {"classifier.weight": np.ones((2, 4), np.int8)}
    with pytest.raises(CheckpointError, match=r"classifier.weight must be one of.*I8"):
        read_checkpoint(write_folder(tmp_path, tensors))


def test_names_without_a_place_are_listed(tmp_path: Path) -> None:
    odd = {"linear.weight": np.ones((2, 4), np.int8)}
    checkpoint = read_checkpoint(write_folder(tmp_path, theirs(tiny_arrays()) | odd))
    assert checkpoint.unrecognized == ("linear.weight",)


def test_one_weight_twice_is_rejected(tmp_path: Path) -> None:
    tensors = {
        "embeddings.LayerNorm.weight": np.ones(4, np.float32),
        "bert.embeddings.LayerNorm.gamma": np.ones(4, np.float32),
    }
    with pytest.raises(CheckpointError, match="are both `bert/embeddings/LayerNorm"):
        read_checkpoint(write_folder(tmp_path, tensors))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_named(tmp_path: Path, value: float) -> None:
    arrays = tiny_arrays()
    arrays[QUERY][3, 1] = value
    checkpoint = read_checkpoint(write_folder(tmp_path, theirs(arrays)))
    assert checkpoint.arrays[WORDS].shape == (11, 4)
    with pytest.raises(CheckpointError, match=f"`{QUERY}` holds values that are not"):
        checkpoint.arrays[QUERY]


def test_float64_beyond_float32_is_named(tmp_path: Path) -> None:
    tensors = {"classifier.bias": np.array([1e300])}
    checkpoint = read_checkpoint(write_folder(tmp_path, tensors))
    with pytest.raises(CheckpointError, match="`classifier/bias` holds values"):
        checkpoint.arrays["classifier/bias"]


# Shards


def write_shards(folder: Path, tensors: Mapping[str, np.ndarray]) -> dict[str, str]:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    shards = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    index = {name: shards[i % 3] for i, name in enumerate(sorted(tensors))}
    for shard in shards:
        part = {name: tensors[name] for name in tensors if index[name] == shard}
        save_file(part, folder / shard)
    write_index(folder, index)
    return index


def write_index(folder: Path, index: object) -> None:
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": index}))


def test_reads_shards(tmp_path: Path) -> None:
    write_shards(tmp_path, theirs(tiny_arrays()))
    assert_same(read_checkpoint(tmp_path).arrays, tiny_arrays())


def test_reads_shards_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--a--b" / "snapshots" / "0123"
    blobs = tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    write_shards(snapshot, theirs(tiny_arrays()))
    for number, path in enumerate(sorted(snapshot.iterdir())):
        path.rename(blobs / str(number))
        path.symlink_to(Path("..", "..", "blobs", str(number)))
    assert_same(read_checkpoint(snapshot).arrays, tiny_arrays())


@pytest.mark.parametrize(
    "shard",
    ["../out.safetensors", "/tmp/out.safetensors", "sub/../../out.safetensors", ".."]
    + ["", ".", "sub/x.safetensors", "a\\b", "a\0b", "link.safetensors"],
)
def test_shards_must_stay_in_the_folder(tmp_path: Path, shard: str) -> None:
    folder = tmp_path / "model"
    index = write_shards(folder, theirs(tiny_arrays()))
    os.rename(folder / min(index.values()), tmp_path / "out.safetensors")
    (folder / "link.safetensors").symlink_to(tmp_path / "out.safetensors")
    index = {n: shard if s == min(index.values()) else s for n, s in index.items()}
    write_index(folder, index)
    with pytest.raises(CheckpointError, match="a shard must be a file of the same"):
        read_checkpoint(folder)


def test_broken_indexes(tmp_path: Path) -> None:
    index = write_shards(tmp_path, theirs(tiny_arrays()))
    first, *_ = index
    for wrong, message in (
        (None, "must map names to"),
        ([], "must map names to"),
        ({first: 3}, "must map names to"),
        ({**index, "nothing": index[first]}, "not in the file .* names: nothing"),
        ({n: s for n, s in index.items() if n != first}, "does not place there"),
        ({**index, first: "absent.safetensors"}, "contains no absent.safetensors"),
        ({**index, first: "a" * 5000}, "contains no aaa"),
    ):
        write_index(tmp_path, wrong)
        with pytest.raises(CheckpointError, match=message):
            read_checkpoint(tmp_path)


# Accepted and rejected folders


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"model_type": "distilbert", "architectures": ["DistilBertForMaskedLM"]},
            "must be a distilbert; the names of the weights begin with `bert.`",
        ),
        (
            {"model_type": "roberta", "architectures": ["RobertaModel"]},
            "found model_type roberta with RobertaModel",
        ),
        ({"architectures": ["JinaBertModel"]}, "with JinaBertModel"),
        ({"architectures": "BertModel"}, "`architectures` must be a list"),
        ({"position_embedding_type": "relative_key"}, "must be absolute"),
        ({"add_cross_attention": True}, "`add_cross_attention` is not supported"),
        ({"pruned_heads": {"0": [1]}}, "`pruned_heads` is not supported"),
        ({"model_type": ["bert"]}, "found model_type"),
    ],
)
def test_other_models_are_rejected(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write_folder(tmp_path, theirs(tiny_arrays()), **change)
    with pytest.raises(CheckpointError, match=message):
        read_checkpoint(tmp_path)


def test_model_type_may_be_absent_with_the_keys_of_bert(folder: Path) -> None:
    path = folder / "config.json"
    config = {k: v for k, v in CONFIG.items() if k not in ("model_type",)}
    path.write_text(json.dumps(config))
    assert read_checkpoint(folder).config.hidden_size == 4
    path.write_text("{}")
    with pytest.raises(CheckpointError, match="must hold model_type bert"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"vocab_size": 10**15},
        {"hidden_size": 10**5000},
        {"num_hidden_layers": -1},
        {"layer_norm_eps": float("nan")},
        {"hidden_act": "quick"},
        {"hidden_act": ["gelu"]},
        {"hidden_size": None},
    ],
)
def test_absurd_sizes_are_rejected(folder: Path, change: dict[str, Any]) -> None:
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    text = json.dumps(CONFIG | change)
    sys.set_int_max_str_digits(limit)
    (folder / "config.json").write_text(text)
    with pytest.raises((ConfigError, CheckpointError), match=r"config.json: ") as error:
        read_checkpoint(folder)
    assert len(str(error.value)) < 1000


def test_missing_files(tmp_path: Path) -> None:
    def refused(message: str) -> None:
        with pytest.raises(CheckpointError, match=message) as error:
            read_checkpoint(tmp_path)
        assert "\n" not in str(error.value)

    refused("contains no checkpoint")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    refused("contains no model.safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    refused("pytorch_model.bin: ")
    save_file(theirs(tiny_arrays()), tmp_path / "model.safetensors")
    (tmp_path / "config.json").unlink()
    refused("config.json: no such file")
    (tmp_path / "config.json").mkdir()
    refused("config.json: no such file")


def test_an_encoder_in_a_subfolder_is_named(tmp_path: Path) -> None:
    (tmp_path / "0_Transformer").mkdir()
    write_folder(tmp_path / "0_Transformer", theirs(tiny_arrays()))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="; a folder in it may: 0_Transformer$"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("torch", "part"),
    [
        (
            None,
            r"pip install 'bert_keras\[torch\]', or convert it to model.safetensors",
        ),
        (
            types.SimpleNamespace(__version__="2.5.1+cpu"),
            r"as data only; found 2\.5\.1\+cpu",
        ),
        (types.SimpleNamespace(__version__="unknown"), "as data only; found unknown"),
    ],
    ids=["absent", "old", "odd"],
)
def test_a_pickle_is_rejected_with_the_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch, torch: Any, part: str
) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(CheckpointError, match=f"can run code when it is.*{part}$"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    "text",
    [b"", b"[1]", b"{", b"\xff\xfe", b'{"a":' * 200_000, b"[" * 200_000, b"nul"],
)
def test_broken_json(folder: Path, text: bytes) -> None:
    (folder / "config.json").write_bytes(text)
    with pytest.raises(CheckpointError, match="config.json: "):
        read_checkpoint(folder)


def test_json_that_is_too_long(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bert_keras.files.json_file._MOST_BYTES", 10)
    with pytest.raises(CheckpointError, match="at most 10 bytes"):
        read_checkpoint(folder)


# Broken tensor files


def crafted(header: object, values: bytes = b"\0" * 16) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + values


def entry(shape: list[Any], start: Any, end: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


@pytest.mark.parametrize(
    "content",
    {
        "empty": b"",
        "short": b"\0\0\0",
        "pickle": b"\x80\x02" + b"x" * 100,
        "zip": b"PK\x03\x04" + b"x" * 100,
        "no header": struct.pack("<Q", 0),
        "huge header": struct.pack("<Q", 2**63) + b"{}",
        "header past the end": struct.pack("<Q", 100) + b"{}",
        "no json": crafted(b"nonsense"),
        "no utf-8": crafted(b'{"\xff\xfe": 1}'),
        "deep": crafted(b'{"a":' * 50_000),
        "list": crafted([1]),
        "end past the file": crafted({"classifier.bias": entry([8], 0, 32)}),
        "shape above offsets": crafted({"classifier.bias": entry([8], 0, 16)}),
        "shape that overflows": crafted(
            {"classifier.bias": entry([2**62, 2**62, 4], 0, 16)}
        ),
        "shape of 5,000 digits": crafted(
            b'{"classifier.bias":{"dtype":"F32","shape":[1%s],"data_offsets":[0,16]}}'
            % (b"0" * 5_000)
        ),
        "offset of 5,000 digits": crafted(
            b'{"classifier.bias":{"dtype":"F32","shape":[4],"data_offsets":[0,1%s]}}'
            % (b"0" * 5_000)
        ),
        "negative shape": crafted({"classifier.bias": entry([-4], 0, 16)}),
        "end before start": crafted({"classifier.bias": entry([4], 16, 0)}),
        "overlap": crafted(
            {"classifier.bias": entry([4], 0, 16), "qa_outputs.bias": entry([4], 0, 16)}
        ),
        "hole": crafted({"classifier.bias": entry([2], 8, 16)}),
        "unused values": crafted({"classifier.bias": entry([2], 0, 8)}),
        "no type": crafted({"classifier.bias": entry([4], 0, 16, "F31")}),
        "text for a number": crafted({"classifier.bias": entry(["4"], 0, 16)}),
        "empty tensor": crafted({"classifier.bias": entry([0], 0, 0)}, b""),
        "empty huge tensor": crafted(
            {"classifier.weight": entry([0, 2**62], 0, 0)}, b""
        ),
        "scalar kernel": crafted({"classifier.weight": entry([], 0, 4)}, b"\0" * 4),
        "kernel of 3 axes": crafted({"classifier.weight": entry([1, 2, 2], 0, 16)}),
        "8-bit float": crafted({"classifier.bias": entry([16], 0, 16, "F8_E4M3")}),
        "8-bit copy": crafted(
            {"cls.predictions.decoder.bias": entry([16], 0, 16, "F8_E5M2")}
        ),
    }.items(),
    ids=lambda item: item[0],
)
def test_broken_tensor_files(folder: Path, content: tuple[str, bytes]) -> None:
    (folder / "model.safetensors").write_bytes(content[1])
    with pytest.raises(CheckpointError) as error:
        read_checkpoint(folder)
    assert "\n" not in str(error.value) and len(str(error.value)) < 700


def test_scalars_in_place_of_a_table(folder: Path) -> None:
    header = {
        "bert.embeddings.word_embeddings.weight": entry([], 0, 4),
        "cls.predictions.decoder.weight": entry([], 4, 8),
    }
    path = folder / "model.safetensors"
    path.write_bytes(crafted(header, b"\0" * 8))
    checkpoint = read_checkpoint(folder)
    assert checkpoint.shapes == {WORDS: ()}
    assert checkpoint.arrays[WORDS].shape == ()


def test_a_header_that_is_too_long(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(crafted(b"{}" + b" " * (17 << 20)))
    with pytest.raises(CheckpointError, match="the header must have at most"):
        read_checkpoint(folder)


def test_a_file_that_changes_while_it_is_read(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    save_file({"x": np.ones(3)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="broken or truncated"):
        checkpoint.arrays[WORDS]
    other = tiny_arrays() | {WORDS: np.ones((12, 4), np.float32)}
    save_file(theirs(other), folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="changed while it was read"):
        checkpoint.arrays[WORDS]


def mutated(content: bytes, draw: random.Random) -> bytes:
    """Return a copy with bytes changed, cut out, doubled or a number replaced."""
    data = bytearray(content)
    head = len(data) if draw.random() < 0.2 else min(len(data), 9_000)
    for _ in range(draw.choice((1, 1, 2, 8))):
        at = draw.randrange(head)
        match draw.randrange(6):
            case 0:
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                data[at] = draw.randrange(256)
            case 2:
                del data[at : at + draw.randrange(1, 64)]
            case 3:
                data[at:at] = data[at : at + draw.randrange(1, 64)]
            case 4:
                digits = [i for i in range(8, head) if 48 <= data[i] <= 57]
                if digits:
                    spot = draw.choice(digits)
                    data[spot : spot + 1] = str(draw.choice((0, 9, 2**31, 2**63)))[
                        : draw.choice((1, 3, 30))
                    ].encode()
            case _:
                del data[draw.randrange(len(data)) :]
        head = min(head, len(data))
        if not head:
            break
    return bytes(data)


def survive(folder: Path, file: str, rounds: int, seed: int) -> dict[str, int]:
    """Open mutated copies of one file; anything but a clean error is a failure."""
    draw = random.Random(seed)  # noqa: S311 (a test)
    content = (folder / file).read_bytes()
    seen = {"read": 0, "refused": 0}
    for _ in range(rounds):
        (folder / file).write_bytes(mutated(content, draw))
        try:
            checkpoint = read_checkpoint(folder)
            arrays = dict(checkpoint.arrays)
            assert all(a.nbytes <= 2 * len(content) for a in arrays.values())
            check_encoder(checkpoint)
            seen["read"] += 1
        except BertKerasError as error:
            assert "\n" not in str(error) and len(str(error)) < 3_000
            seen["refused"] += 1
    (folder / file).write_bytes(content)
    return seen


def test_a_weights_file_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"truncated: No such file or directory$"):
        stored_tensors(tmp_path / "model.safetensors")


def fuzz_folders(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    single = write_folder(tmp_path / "single", theirs(tiny_arrays()))
    yield single, "model.safetensors"
    yield single, "config.json"
    write_shards(tmp_path / "shards", theirs(tiny_arrays()))
    yield tmp_path / "shards", "model.safetensors.index.json"
    preset = tmp_path / "preset"
    arrays = {n: a for n, a in tiny_arrays().items() if not n.startswith("cls/")}
    write_keras_hub(preset, arrays, {**CONFIG, "architectures": ["BertModel"]})
    for file in ("config.json", "bert_keras.json", "model.weights.h5"):
        yield preset, file


def test_mutated_files_are_read_or_rejected(tmp_path: Path) -> None:
    for (folder, file), rounds in zip(
        fuzz_folders(tmp_path), (200, 50, 50, 30, 30, 30), strict=True
    ):
        seen = survive(folder, file, rounds, seed=1)
        assert seen["refused"] > rounds // 4, (file, seen)


@pytest.mark.thorough
def test_many_mutated_files_are_read_or_rejected(tmp_path: Path) -> None:
    for (folder, file), rounds in zip(
        fuzz_folders(tmp_path), (5_000, 2_000, 1_500, 500, 500, 500), strict=True
    ):
        survive(folder, file, rounds, seed=2)


# Writing


@pytest.mark.parametrize(
    ("architecture", "first"),
    [
        ("BertModel", "embeddings.word_embeddings.weight"),
        ("BertForMaskedLM", "bert.embeddings.word_embeddings.weight"),
    ],
)
def test_write_round_trip(tmp_path: Path, architecture: str, first: str) -> None:
    arrays: dict[str, np.ndarray] = tiny_arrays() | {
        "my_head/dense/kernel": np.ones((4, 9), np.float32),
        "my_head/scale": np.array(2, np.float32),
        "classifier/kernel": np.arange(8, dtype=np.float32).reshape(4, 2),
    }
    config = CONFIG | {"architectures": [architecture], "my_task": {"x": [1, None]}}
    write_huggingface(tmp_path / "new" / "model", arrays, config)
    folder = tmp_path / "new" / "model"
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    checkpoint = read_checkpoint(folder)
    assert checkpoint.raw_config == config
    assert_same(checkpoint.arrays, arrays)
    stored = load_file(folder / "model.safetensors")
    assert first in stored
    np.testing.assert_array_equal(
        stored["classifier.weight"], arrays["classifier/kernel"].T
    )
    with safe_open(folder / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
    before = (folder / "model.safetensors").read_bytes()
    write_huggingface(folder, checkpoint.arrays, checkpoint.raw_config)
    assert (folder / "model.safetensors").read_bytes() == before


def test_written_bytes_are_those_of_the_library(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {
        "classifier/bias": np.ones(3, np.float16),
        "classifier/kernel": np.ones((4, 3), np.float32),
        "qa_outputs/bias": np.ones(2, np.dtype(">f4")),
    }
    write_huggingface(tmp_path, arrays, CONFIG)
    wanted = save(
        {
            "classifier.bias": arrays["classifier/bias"],
            "classifier.weight": np.ones((3, 4), np.float32),
            "qa_outputs.bias": np.ones(2, np.float32),
        },
        metadata={"format": "pt"},
    )
    assert (tmp_path / "model.safetensors").read_bytes() == wanted


@pytest.mark.parametrize(
    ("arrays", "config", "message"),
    [
        ({"odd": np.ones(2, np.float32)}, {}, "is named 'odd'"),
        ({"bert/odd": np.ones(2, np.float32)}, {}, "is named 'bert/odd'"),
        ({"classifier/bias": np.ones(2, np.int32)}, {}, "must be float32 or float16"),
        ({"classifier/kernel": np.ones(2, np.float32)}, {}, "must have 2 axes"),
        ({"classifier/bias": np.ones(0, np.float32)}, {}, "is empty"),
        ({"classifier/bias": np.full(2, np.nan, np.float32)}, {}, "not finite"),
        ({}, {"architectures": []}, "must hold `architectures`"),
        ({}, {"architectures": None}, "must hold `architectures`"),
        ({}, {"model_type": "roberta"}, "must be a BERT; found model_type roberta"),
        ({}, {"x": float("nan")}, "`config` must be JSON"),
        ({}, {"x": object()}, "`config` must be JSON"),
    ],
)
def test_a_failed_write_leaves_the_old_model(
    folder: Path, arrays: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(CheckpointError, match=message):
        write_huggingface(folder, arrays, CONFIG | config)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_full_disk_leaves_the_old_model(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="cannot write: .*No space left"):
        write_huggingface(folder, tiny_arrays(), CONFIG)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_transformers_opens_our_folders(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    ids = torch.arange(8)[None]
    sizes = {key: value for key, value in CONFIG.items() if key != "id2label"}
    for name in (
        "BertModel",
        "BertForPreTraining",
        "BertForMaskedLM",
        "BertForNextSentencePrediction",
        "BertForSequenceClassification",
        "BertForTokenClassification",
        "BertForMultipleChoice",
        "BertForQuestionAnswering",
    ):
        labels = 2 if name == "BertForQuestionAnswering" else 3
        config = transformers.BertConfig(**sizes, num_labels=labels)
        model = getattr(transformers, name)(config).eval()
        model.save_pretrained(tmp_path / "theirs")
        checkpoint = read_checkpoint(tmp_path / "theirs")
        assert checkpoint.unrecognized == ()
        write_huggingface(tmp_path / "ours", checkpoint.arrays, checkpoint.raw_config)
        again, report = getattr(transformers, name).from_pretrained(
            tmp_path / "ours", output_loading_info=True
        )
        assert not any(report.values()), (name, report)
        inputs = ids[None] if name == "BertForMultipleChoice" else ids
        with torch.no_grad():
            for one, two in zip(
                model(inputs).to_tuple(), again.eval()(inputs).to_tuple(), strict=True
            ):
                assert torch.equal(one, two), name


# Paths and the hub


def test_resolve(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve(folder) == folder
    assert resolve(str(folder)) == folder
    monkeypatch.chdir(folder.parent)
    assert read_checkpoint("model/").path == Path("model")
    with pytest.raises(CheckpointError, match="would be hf://owner/name$"):
        resolve("owner/name")
    with pytest.raises(CheckpointError, match="no such folder$"):
        resolve("/a/b/c")
    with pytest.raises(CheckpointError, match="is a file"):
        resolve(folder / "model.safetensors")
    for odd in ("", "a\0b", "x" * 5000, "\n"):
        with pytest.raises(CheckpointError, match="no such folder$"):
            resolve(odd)


def fake_hub(monkeypatch: pytest.MonkeyPatch, download: Callable[..., str]) -> None:
    hub = types.ModuleType("huggingface_hub")
    hub.snapshot_download = download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)


def test_hub_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Any]] = []

    def download(name: str, *, revision: Any, allow_patterns: list[str]) -> str:
        assert allow_patterns == list(formats.HUB_FILES)
        asked.append((name, revision))
        return str(folder)

    fake_hub(monkeypatch, download)
    assert read_checkpoint("hf://owner/na.me").path == folder
    assert resolve("hf://owner/name@refs/pr/1") == folder
    assert asked == [("owner/na.me", None), ("owner/name", "refs/pr/1")]
    for odd in (
        "hf://",
        "hf://a",
        "hf://a/b/c",
        "hf://../b",
        "hf://a/b@",
        "hf://a/b\n",
    ):
        with pytest.raises(CheckpointError, match="a hub name must be"):
            resolve(odd)
    assert len(asked) == 2


@pytest.mark.parametrize("torch_is_there", [True, False])
def test_pickles_are_fetched_if_there_is_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch_is_there: bool
) -> None:
    asked: list[list[str]] = []

    def download(name: str, *, revision: Any, allow_patterns: list[str]) -> str:
        asked.append(allow_patterns)
        if "pytorch_model*.bin" in allow_patterns:
            (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
        return str(tmp_path)

    fake_hub(monkeypatch, download)
    torch = types.ModuleType("torch")
    torch.__version__ = "2.6.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch if torch_is_there else None)
    (tmp_path / "config.json").write_text("{}")
    if not torch_is_there:
        with pytest.raises(
            CheckpointError, match="^hf://o/n@main: has no weights except"
        ):
            resolve("hf://o/n@main")
        wanted = [*formats.HUB_FILES, *formats.HUB_H5]
        assert asked == [list(formats.HUB_FILES), wanted]
        return
    assert resolve("hf://o/n@main") == tmp_path
    assert (tmp_path / "pytorch_model.bin").is_file()
    wanted = [*formats.HUB_FILES, *formats.HUB_PICKLES]
    assert asked == [list(formats.HUB_FILES), wanted]
    # Where there are other weights, they are all that is fetched.
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert resolve("hf://o/n") == tmp_path
    assert asked[2:] == [list(formats.HUB_FILES)]


def test_a_pickle_is_of_the_revision_of_the_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    snapshot = tmp_path / ("0123456789" * 4)
    snapshot.mkdir()

    def download(name: str, *, revision: Any, allow_patterns: list[str]) -> str:
        asked.append(revision)
        if "pytorch_model*.bin" in allow_patterns:
            (snapshot / "pytorch_model.bin").write_bytes(b"a pickle")
        return str(snapshot)

    fake_hub(monkeypatch, download)
    torch = types.ModuleType("torch")
    torch.__version__ = "2.6.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert resolve("hf://o/n@main") == snapshot
    assert asked == ["main", snapshot.name]


def test_a_hub_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*args: Any, **options: Any) -> str:
        raise ConnectionError("no\nnetwork")

    fake_hub(monkeypatch, download)
    with pytest.raises(CheckpointError, match="hub: ConnectionError: no network$"):
        read_checkpoint("hf://owner/name")


# match


def test_match_returns_the_names_to_assign() -> None:
    assert match({"a": (1,), "b": (2,)}, {"b": (2,), "a": (1,)}) == ("a", "b")
    assert match(
        {"a": (1,), "new/kernel": (2,)},
        {"a": (1,), "cls/x": (3,), "cls/y": (3,)},
        optional=("new/kernel", "cls/"),
    ) == ("a",)


def test_match_reports_everything_at_once() -> None:
    wanted = {"a": (1,), "b": (2, 3), **{f"layer_{n}": (1,) for n in range(9)}}
    with pytest.raises(MismatchError) as caught:
        match(wanted, {"b": (3, 2), "c": (1,)}, optional=("b",))
    error = caught.value
    assert error.missing == ("a", *(f"layer_{n}" for n in range(9)))
    assert error.unexpected == ("c",)
    assert error.misshapen == {"b": ((2, 3), (3, 2))}
    assert str(error) == (
        "the weights do not fit the model: "
        "10 missing (a, layer_0, layer_1, layer_2 and 6 more); 1 unexpected (c); "
        "1 misshapen (b must be [2, 3], is [3, 2])"
    )


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        (
            {"num_hidden_layers": 10_000_000, "hidden_size": 1},
            "2; received 10,000",
        ),
        ({"num_hidden_layers": 3}, "present, 2; received 3"),
        ({"num_hidden_layers": 1}, "16 unexpected (bert/encoder/layer_1/attention/"),
        ({"vocab_size": 16_000_000}, "misshapen (bert/embeddings/word_embeddings must"),
        ({"intermediate_size": 1_000_000}, "6 misshapen (bert/encoder/layer_0/inter"),
    ],
)
def test_a_config_with_wrong_sizes(
    folder: Path, changes: dict[str, Any], part: str
) -> None:
    config = {**CONFIG, "num_attention_heads": 1, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError) as error:
        check_encoder(read_checkpoint(folder))
    assert str(error.value).startswith(str(folder)) and part in str(error.value)


def test_an_encoder_that_lacks_a_weight(tmp_path: Path) -> None:
    arrays = tiny_arrays()
    check_encoder(read_checkpoint(write_folder(tmp_path / "a", theirs(arrays))))
    del arrays["bert/pooler/dense/kernel"], arrays["bert/pooler/dense/bias"]
    check_encoder(read_checkpoint(write_folder(tmp_path / "a", theirs(arrays))))
    del arrays[QUERY]
    checkpoint = read_checkpoint(write_folder(tmp_path / "a", theirs(arrays)))
    with pytest.raises(MismatchError, match=rf"1 missing \({QUERY}\)$") as error:
        check_encoder(checkpoint)
    assert error.value.missing == (QUERY,)


def test_sizes_that_disagree_with_the_arrays_are_found(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    wanted = {n: s for n, s in checkpoint.shapes.items()} | {WORDS: (12, 4)}
    with pytest.raises(MismatchError, match=r"must be \[12, 4\], is \[11, 4\]"):
        match(wanted, checkpoint.shapes)


def test_safetensors_do_not_import_other_readers(folder: Path) -> None:
    code = (
        "import sys; from bert_keras.checkpoints import read_checkpoint as read;"
        f"dict(read({str(folder)!r}).arrays);"
        "found = {name.rpartition('.')[2] for name in sys.modules};"
        "print(sorted(found & {'h5py', 'h5_file', 'pickled_file', 'tensorflow',"
        "'keras', 'tensorflow_checkpoint', 'keras_hub', 'google', 'tf_hub'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
