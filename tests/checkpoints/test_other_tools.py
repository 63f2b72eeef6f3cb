"""Weights as other tools write them: TensorFlow's, wrapped, and files of other kinds.

`tests/goldens/make_tf4_golden.py` makes the folders of transformers 4.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from conftest import ROOT, refused
from safetensors.numpy import load_file, save_file

from bert_keras.checkpoints import formats, names, read_checkpoint, resolve
from bert_keras.cli.info import describe
from bert_keras.errors import DataError
from bert_keras.files.lfs import POINTER
from bert_keras.files.parquet import read_table
from bert_keras.files.streams import text_of
from bert_keras.model.encoder_decoder import BertEncoderDecoder
from bert_keras.models.loading import load_model
from bert_keras.text.tokenizer import WordPieceTokenizer

GOLDEN = ROOT / "tests/goldens/tf4"
TABLE = "bert/embeddings/word_embeddings"


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("ForPreTraining", "masked-lm"),
        ("ForPreTraining", "next-sentence"),
        ("ForSequenceClassification", None),
        ("ForTokenClassification", None),
        ("ForQuestionAnswering", None),
        ("ForMultipleChoice", None),
        ("DistilBertForMaskedLM", "masked-lm"),
        ("DistilBertForSequenceClassification", None),
        ("ElectraForMaskedLM", "masked-lm"),
        ("ElectraForMultipleChoice", None),
        ("ElectraForSequenceClassification", None),
        ("ElectraForTokenClassification", None),
    ],
)
def test_the_tensorflow_classes_of_transformers_4(name: str, task: str | None) -> None:
    checkpoint = read_checkpoint(GOLDEN / name)
    assert (checkpoint.notes, checkpoint.unrecognized) == ((), ())
    model = load_model(checkpoint, task=task)
    golden = np.load(GOLDEN / name / "outputs.npz")
    has_segments = "token_type_ids" in golden  # DistilBERT has none
    batch = {
        "token_ids": golden["input_ids"],
        "segment_ids": golden["token_type_ids" if has_segments else "input_ids"],
        "padding_mask": golden["attention_mask"],
    }
    keys = {
        "masked-lm": "prediction_logits" if name == "ForPreTraining" else "logits",
        "next-sentence": "seq_relationship_logits",
    }
    if task == "masked-lm":
        batch["masked_positions"] = np.array([range(6)] * 2, np.int32)
    if name == "ForQuestionAnswering":
        logits = np.stack([golden["start_logits"], golden["end_logits"]], axis=-1)
    else:
        logits = golden[keys.get(str(task), "logits")]
    np.testing.assert_allclose(model(batch), logits, atol=1e-6, rtol=0)


def test_a_tensorflow_encoder_decoder() -> None:
    checkpoint = read_checkpoint(GOLDEN / "EncoderDecoder")
    assert (checkpoint.notes, checkpoint.unrecognized) == ((), ())
    model = BertEncoderDecoder.from_pretrained(GOLDEN / "EncoderDecoder")
    golden = np.load(GOLDEN / "EncoderDecoder" / "outputs.npz")
    batch = {
        "token_ids": golden["input_ids"],
        "segment_ids": golden["token_type_ids"],
        "padding_mask": golden["attention_mask"],
        "target_token_ids": golden["decoder_input_ids"],
        "target_padding_mask": golden["decoder_attention_mask"].astype("int32"),
    }
    real = golden["decoder_attention_mask"]
    found = np.asarray(model(batch))[real]
    np.testing.assert_allclose(found, golden["logits"][real], atol=2e-6, rtol=0)


def test_variables_of_two_layers_must_agree(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "ForPreTraining", tmp_path / "a"))
    place = "mlm___cls/tf_bert_for_pre_training/bert/embeddings/LayerNorm/beta:0"
    with h5py.File(folder / "tf_model.h5", "a") as file:
        file[place][0] += 1
    refused(lambda: read_checkpoint(folder), "tf_model.h5", place, "has other values")


def test_kernels_that_were_only_renamed(spam_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(spam_folder, tmp_path / "a"))
    known = {"weight": "kernel"}
    tensors = {}
    for name, value in load_file(folder / "model.safetensors").items():
        scope, _, part = name.replace("layer.", "layer_._").rpartition(".")
        norm = scope.endswith("LayerNorm")
        part = {"weight": "gamma", "bias": "beta"}[part] if norm else part
        part = part if scope.endswith("_embeddings") else known.get(part, part)
        scope = scope.replace(".", "/").replace("layer_/_", "layer_._")
        tensors[f"{scope}/{part}:0"] = value
    save_file(tensors, folder / "model.safetensors")
    checkpoint = read_checkpoint(folder)
    same(checkpoint.arrays, read_checkpoint(spam_folder).arrays)
    assert "under names of TensorFlow" in checkpoint.notes[0]


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("ForPreTraining", ""),
        ("ForPreTraining", "tf_bert_for_pre_training_2/"),
        ("DistilBertForMaskedLM", ""),
        ("ElectraForMaskedLM", "tf_electra_for_masked_lm_2/"),
    ],
)
def test_variables_without_the_groups_of_layers(
    tmp_path: Path, name: str, scope: str
) -> None:
    folder = Path(shutil.copytree(GOLDEN / name, tmp_path / "a"))
    wanted = dict(read_checkpoint(folder).arrays)
    with h5py.File(folder / "tf_model.h5") as file:
        found: dict[str, Any] = {}
        file.visititems(lambda name, each: found.update({name: each}))
        values = {
            scope + name.split("/", 2)[2]: each[()]
            for name, each in found.items()
            if isinstance(each, h5py.Dataset)
        }
    with h5py.File(folder / "tf_model.h5", "w") as file:
        for name, value in values.items():
            file.create_dataset(name, data=value)
    checkpoint = read_checkpoint(folder)
    same(checkpoint.arrays, wanted)
    assert (checkpoint.notes, checkpoint.unrecognized) == ((), ())


def test_a_pickle_is_read_before_h5_if_torch_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bert_keras.checkpoints import pickled_file

    folder = Path(shutil.copytree(GOLDEN / "ForPreTraining", tmp_path / "a"))
    (folder / "pytorch_model.bin").write_bytes(b"")
    monkeypatch.setattr(pickled_file, "is_readable", lambda: False)
    notes = read_checkpoint(folder).notes
    assert notes == ("pytorch_model.bin is not read: tf_model.h5 is",)
    monkeypatch.setattr(pickled_file, "is_readable", lambda: True)
    refused(lambda: read_checkpoint(folder), "pytorch_model.bin")


def test_names_of_flax() -> None:
    layer = "bert.encoder.layer.1.attention.output"
    for theirs, ours in {
        "bert.embeddings.word_embeddings.embedding": TABLE,
        f"{layer}.dense.kernel": "bert/encoder/layer_1/attention/output/dense/kernel",
        f"{layer}.LayerNorm.scale": (
            "bert/encoder/layer_1/attention/output/LayerNorm/gamma"
        ),
        "qa_outputs.kernel": "qa_outputs/kernel",
    }.items():
        assert names.from_huggingface(theirs) == (ours, False)


# Wrapped models.


@pytest.fixture(scope="module")
def bert(
    spam_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Return a function that writes a model with its weights renamed, in shards too."""
    place = tmp_path_factory.mktemp("bert")

    def write(
        rename: Callable[[str], str], *, shards: int = 1, **extra: np.ndarray
    ) -> Path:
        folder = place / str(len(list(place.iterdir())))
        shutil.copytree(spam_folder, folder)
        tensors = load_file(folder / "model.safetensors")
        tensors = {rename(name): value for name, value in tensors.items()} | extra
        if shards == 1:
            save_file(tensors, folder / "model.safetensors")
            return folder
        (folder / "model.safetensors").unlink()
        index: dict[str, str] = {}
        for number in range(shards):
            part = dict(list(tensors.items())[number::shards])
            save_file(part, folder / f"model-{number}.safetensors")
            index |= dict.fromkeys(part, f"model-{number}.safetensors")
        text = json.dumps({"weight_map": index})
        (folder / "model.safetensors.index.json").write_text(text)
        return folder

    return write


def same(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    assert sorted(found) == sorted(wanted)
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.module.", "model.net.", "x."])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_prefix_is_ignored_with_a_note(
    bert: Callable[..., Path], spam_folder: Path, prefix: str, shards: int
) -> None:
    folder = bert(lambda name: prefix + name, shards=shards)
    checkpoint = read_checkpoint(folder)
    same(checkpoint.arrays, read_checkpoint(spam_folder).arrays)
    assert checkpoint.notes == (
        f"the names of the weights begin with `{prefix}`, which is ignored",
    )
    load_model(folder)


def test_an_encoder_as_an_attribute(bert: Callable[..., Path]) -> None:
    """`self.encoder = BertModel(…)` beside a classifier, and weights of its own."""
    extra = {"loss.weight": np.ones(2, "float32")}
    folder = bert(lambda name: name.replace("bert.", "encoder."), **extra)
    checkpoint = read_checkpoint(folder)
    assert {"classifier/kernel", TABLE} <= set(checkpoint.shapes)
    assert "`encoder.`" in checkpoint.notes[0]
    assert checkpoint.unrecognized == ("loss.weight",)


def test_prefixes_that_are_refused(bert: Callable[..., Path]) -> None:
    two = {"query.bert.pooler.dense.bias": np.ones(16, "float32")}
    folder = bert(lambda name: f"document.{name}", **two)
    refused(lambda: read_checkpoint(folder), "`document.`, `query.`", "one BERT")
    folder = bert(lambda name: name.replace("bert.", "roberta."))
    refused(lambda: read_checkpoint(folder), "`roberta.`, of another model")
    folder = bert(
        lambda name: f"m.{name}", **{"classifier.bias": np.ones(2, "float32")}
    )
    refused(lambda: read_checkpoint(folder), "are one name without `m.`")
    folder = bert(lambda name: f"{name}_")
    refused(lambda: describe(folder), "no weights with the names of a BERT: bert.")


# Files of other kinds.


@pytest.mark.parametrize(
    ("file", "part"),
    [
        ("flax_model.msgpack", "from_flax=True"),
        ("rust_model.ot", "rust-bert"),
        ("onnx/model.onnx", "an export: use the model folder"),
        ("openvino/openvino_model.xml", "an export: use the model folder"),
        ("model.gguf", "llama.cpp"),
        ("best.ckpt", "state_dict"),
        ("model.pt", "state_dict"),
        ("weights.safetensors", "rename it"),
        ("adapter_config.json", "merge_and_unload"),
    ],
)
def test_weights_that_are_not_read_are_named(
    spam_folder: Path, tmp_path: Path, file: str, part: str
) -> None:
    folder = Path(shutil.copytree(spam_folder, tmp_path / "a"))
    (folder / "model.safetensors").unlink()
    (folder / "optimizer.pt").touch()
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_bytes(b"{}")
    refused(lambda: read_checkpoint(folder), file, part)
    (folder / "config.json").unlink()
    refused(lambda: read_checkpoint(folder), file, part)
    refused(lambda: resolve(folder / "vocab.txt"), "is a file")
    if file.endswith("safetensors"):
        refused(lambda: resolve(folder / file), "is a file: give its folder")
    elif "/" not in file and not file.endswith(".json"):
        refused(lambda: resolve(folder / file), "is a file", part)


def test_an_export_is_not_a_checkpoint(tmp_path: Path) -> None:
    version = tmp_path / "1"
    (version / "assets.extra").mkdir(parents=True)
    (version / "saved_model.pb").touch()
    (version / "assets.extra" / "answers.json").write_text("{}")
    for folder in (version, tmp_path):
        refused(
            lambda folder=folder: read_checkpoint(folder),
            "answers.json is the task of an export: use the model folder",
        )


def test_an_adapter_beside_its_model_is_refused(
    spam_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(spam_folder, tmp_path / "a"))
    (folder / "adapter_config.json").write_text("{}")
    refused(lambda: read_checkpoint(folder), "adapter of PEFT", "merge_and_unload")
    assert "adapter_config.json" in formats.HUB_FILES


@pytest.mark.parametrize(
    "file",
    [
        *("config.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5"),
        *("vocab.txt", "tokenizer_config.json"),
    ],
)
def test_pointers_of_git_lfs(spam_folder: Path, tmp_path: Path, file: str) -> None:
    folder = Path(shutil.copytree(spam_folder, tmp_path / "a"))
    if file in ("pytorch_model.bin", "tf_model.h5"):
        (folder / "model.safetensors").unlink()
    (folder / file).write_bytes(POINTER + b"v1\noid sha256:00\nsize 9\n")

    def opened() -> None:
        read_checkpoint(folder)
        WordPieceTokenizer.from_folder(folder)

    refused(opened, file, "Git LFS", "git lfs pull")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_pointer_of_git_lfs_in_place_of_data(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"rows.{ending}"
    path.write_bytes(POINTER + b"v1\n")
    with pytest.raises(DataError, match="git lfs pull"):
        (read_table if ending == "parquet" else text_of)(str(path))


def test_first_names_of_models_lead_to_the_hub() -> None:
    hint = "hf://google-bert/bert-base-uncased"
    refused(lambda: resolve("bert-base-uncased"), hint)
    page = "https://huggingface.co/google-bert/bert-base-uncased"
    refused(lambda: resolve(page), hint)
    refused(lambda: resolve("hf://bert-base-uncased@main"), f"{hint}@main")
    refused(lambda: resolve("all-MiniLM-L6-v2"), "hf://sentence-transformers/all-")


def test_the_class_of_another_framework(spam_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(spam_folder, tmp_path / "a"))
    config = json.loads((folder / "config.json").read_text())
    for kind in ("TF", "Flax"):
        config["architectures"] = [f"{kind}BertForSequenceClassification"]
        (folder / "config.json").write_text(json.dumps(config))
        assert describe(folder)["architecture"] == "BertForSequenceClassification"
    config["model_type"] = "electra"
    (folder / "config.json").write_text(json.dumps(config))
    refused(lambda: read_checkpoint(folder), "must be a BERT", "electra")
