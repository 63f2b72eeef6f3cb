"""`pytorch_model.bin`: read as data by torch, and nothing in it is ever run."""

import json
import os
import zipfile

import numpy as np
import pytest
from conftest import refused

from bert_keras.checkpoints import read_checkpoint
from bert_keras.config import BertConfig

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 11,
    "hidden_size": 4,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 6,
    "max_position_embeddings": 8,
}
WORDS = "bert/embeddings/word_embeddings"


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(1)
    return transformers.BertForPreTraining(transformers.BertConfig(**SIZES))


def write(folder, tensors, **settings):
    """Write what `save_pretrained` of before safetensors wrote."""
    folder.mkdir(exist_ok=True)
    config = {"model_type": "bert", "architectures": ["BertForPreTraining"], **SIZES}
    (folder / "config.json").write_text(json.dumps(config))
    torch.save(tensors, folder / "pytorch_model.bin", **settings)
    return folder


def assert_same(folder, wanted):
    found = read_checkpoint(folder)
    assert found.unrecognized == ()
    assert sorted(found.arrays) == sorted(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found.arrays[name], array, strict=True)
    return found


@pytest.fixture(scope="module")
def wanted(model, tmp_path_factory):
    """Return the arrays of the same model from safetensors."""
    folder = tmp_path_factory.mktemp("safe")
    model.save_pretrained(folder)
    return dict(read_checkpoint(folder).arrays)


@pytest.mark.parametrize("new_format", [True, False])
def test_the_same_arrays_as_from_safetensors(model, wanted, tmp_path, new_format):
    tensors = model.state_dict()  # with the tied copies and the buffers
    settings = {"_use_new_zipfile_serialization": new_format}
    found = assert_same(write(tmp_path / "a", tensors, **settings), wanted)
    assert found.config == BertConfig(**SIZES)
    assert found.notes == ()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats(model, wanted, tmp_path, dtype):
    kind = getattr(torch, dtype)
    tensors = {
        k: v.to(kind) if v.is_floating_point() else v
        for k, v in model.state_dict().items()
    }
    rounded = {
        name: torch.from_numpy(array).to(kind).float().numpy()
        for name, array in wanted.items()
    }
    found = assert_same(write(tmp_path / "a", tensors), rounded)
    assert "read as float32" in found.notes[0]


def test_shards(model, wanted, tmp_path):
    tensors = model.state_dict()
    write(tmp_path / "a", {})
    (tmp_path / "a" / "pytorch_model.bin").unlink()
    index = {}
    for number in (1, 2):
        file = f"pytorch_model-0000{number}-of-00002.bin"
        part = dict(list(tensors.items())[number - 1 :: 2])
        torch.save(part, tmp_path / "a" / file)
        index |= dict.fromkeys(part, file)
    text = json.dumps({"weight_map": index})
    (tmp_path / "a" / "pytorch_model.bin.index.json").write_text(text)
    assert_same(tmp_path / "a", wanted)
    text = text.replace("pytorch_model-00002", "../pytorch_model-00002")
    (tmp_path / "a" / "pytorch_model.bin.index.json").write_text(text)
    refused(lambda: read_checkpoint(tmp_path / "a"), "a shard must be a file of the")


def test_the_state_of_a_training_run(model, wanted, tmp_path):
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    folder = write(tmp_path / "a", {"epoch": 1, "state_dict": weights})
    assert sorted(read_checkpoint(folder).arrays) == sorted(wanted)


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, place):
        self.place = place

    def __reduce__(self):
        return os.mkdir, (self.place,)


def test_no_code_is_run(tmp_path):
    place = str(tmp_path / "was_here")
    folder = write(tmp_path / "a", {"x": torch.ones(2), "y": Evil(place)})
    parts = ("pytorch_model.bin", "not opened", "save the state_dict()")
    refused(lambda: read_checkpoint(folder), *parts)
    assert not os.path.exists(place)


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ([torch.ones(2)], "must hold tensors by name; holds a list"),
        ({"x": 3}, "holds x, a int"),
        ({3: torch.ones(2)}, "holds 3, a Tensor"),
        ({"pooler.dense.bias": torch.ones(4, dtype=torch.int64)}, "must be one of F32"),
        ({"pooler.dense.bias": torch.ones(0)}, "is empty"),
        ({"pooler.dense.weight": torch.ones(1).expand(1 << 20, 1 << 12)}, "a Tensor"),
        ({"pooler.dense.weight": torch.eye(4).to_sparse()}, "a Tensor"),
    ],
)
def test_objects_other_than_weights_are_rejected(tmp_path, values, part):
    folder = write(tmp_path / "a", values)
    refused(lambda: read_checkpoint(folder), part)


def test_broken_files(model, tmp_path):
    folder = write(tmp_path / "a", model.state_dict())
    path = folder / "pytorch_model.bin"
    content = path.read_bytes()
    for wrong in (b"", b"\x80", content[: len(content) // 2], b"PK\3\4" + b"x" * 99):
        path.write_bytes(wrong)
        refused(lambda: read_checkpoint(folder), "pytorch_model.bin: broken")


def test_a_compressed_file_is_not_unpacked(model, tmp_path):
    folder = write(tmp_path / "a", model.state_dict())
    path = folder / "pytorch_model.bin"
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    refused(lambda: read_checkpoint(folder), "holds compressed parts")
