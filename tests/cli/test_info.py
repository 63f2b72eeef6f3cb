"""The facts that `describe` returns for model folders, checkpoints and SavedModels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED, refused

from bert_keras.cli.info import describe
from bert_keras.exports.saved_model_folder import ANSWERS, EXTRA
from bert_keras.inference.engine_export import export_to_engine
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.embedding import Embedding


@pytest.fixture(scope="module")
def served(spam_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two versions of a SavedModel."""
    folder = tmp_path_factory.mktemp("info") / "served"
    for version in ("1", "2"):
        shutil.copytree(spam_export, folder / version)
    return folder


def test_a_model_folder(spam_folder: Path) -> None:
    facts = describe(spam_folder)
    assert facts["kind"] == "model folder"
    assert facts["task"] == "classification"
    assert facts["classes"] == "ham, promo, spam"
    assert facts["max_length"] == 24
    assert facts["task heads"] == "classifier"
    assert facts["pooler"] is True


def test_settings_that_are_lists_of_numbers_or_named_as_other_facts(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    save_model(make_model(Embedding(layers=(1, 2))), tmp_path / "model")
    assert describe(tmp_path / "model")["layers"] == "1, 2"
    save_model(make_model(Embedding(kind="sparse")), tmp_path / "sparse")
    facts = describe(tmp_path / "sparse")
    assert (facts["kind"], facts["setting kind"]) == ("model folder", "sparse")


def test_an_encoder(encoder_folder: Path, vocabulary: list[str]) -> None:
    facts = describe(encoder_folder)
    assert facts["kind"] == "huggingface checkpoint"
    assert facts["task heads"] == "none"
    assert "train a model from it first" in facts["answers"]
    hidden, inner, layers, positions = 16, 32, 2, 40
    embeddings = (len(vocabulary) + positions + 2) * hidden + 2 * hidden
    attention = 4 * (hidden * hidden + hidden)
    feed_forward = 2 * hidden * inner + inner + hidden
    block = attention + feed_forward + 4 * hidden
    pooler = hidden * hidden + hidden
    assert facts["parameters"] == embeddings + layers * block + pooler


def test_a_saved_model(served: Path) -> None:
    facts = describe(served / "1")
    assert facts["kind"] == "SavedModel"
    assert facts["task"] == "classification"
    assert facts["classes"] == "ham, promo, spam"
    inputs, outputs = facts["signature serving_default"].split(" -> ")
    assert inputs == "text string [?]"
    assert "probabilities float [?, 3]" in outputs
    assert "token_ids int32 [?, ?]" in facts["signature ids"]


def test_a_folder_of_versions(served: Path) -> None:
    facts = describe(served)
    assert facts["versions"] == "1, 2"
    assert facts["path"] == str(served / "2")


def test_facts_are_fit_for_json(spam_folder: Path, served: Path) -> None:
    for path in (spam_folder, served):
        assert json.loads(json.dumps(describe(path)))


def test_a_broken_saved_model(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\xff\xff nonsense")
    refused(lambda: describe(tmp_path), "a broken SavedModel")


def test_broken_facts_next_to_a_saved_model(served: Path, tmp_path: Path) -> None:
    graph = (served / "1" / "saved_model.pb").read_bytes()
    (tmp_path / "saved_model.pb").write_bytes(graph)
    (tmp_path / EXTRA).mkdir()
    (tmp_path / EXTRA / ANSWERS).write_text("[")
    refused(lambda: describe(tmp_path), "answers.json: not a JSON file")
    (tmp_path / EXTRA / ANSWERS).write_text('{"task": "x"}')
    refused(lambda: describe(tmp_path), "answers.json: must hold `task`")


@pytest.mark.parametrize("path", ["nowhere", "folder", "file"])
def test_nothing_to_describe(path: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text")
    refused(lambda: describe(tmp_path / path), str(tmp_path / path))


def test_a_google_checkpoint() -> None:
    folder = SHARED / "data" / "tf1_ckpt_keras_bert"
    if not folder.is_dir():
        pytest.skip("needs ../shared/data/tf1_ckpt_keras_bert")
    facts = describe(folder)
    assert facts["kind"] == "google checkpoint"
    assert facts["task heads"] == "masked-lm, next-sentence"
    assert "gelu_new" in facts["note 1"]


def test_a_tokenizer_of_another_kind_is_named(
    encoder_folder: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "japanese"
    shutil.copytree(encoder_folder, folder)
    config = {"tokenizer_class": "BertJapaneseTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    facts = describe(folder)
    assert "BertJapaneseTokenizer" in facts["no tokenizer"]
    assert facts["hidden_size"] == 16


@pytest.mark.slow
def test_a_model_for_an_engine(spam_model: TaskModel, tmp_path: Path) -> None:
    folder = export_to_engine(spam_model, tmp_path / "out", format="litert").folder
    facts = describe(folder)
    assert facts["kind"] == "model for litert" and facts["model"] == "model.tflite"
    assert (facts["task"], facts["precision"]) == ("classification", "float32")
    assert "input_ids int64 [?, ?]" in facts["inputs"]
    assert facts["outputs"] == "logits float32 [?, 3]"
    assert facts["classes"] == ", ".join(spam_model.task.classes)
    held = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert facts["size"] == f"{held / 1e6:,.1f} MB"
    (folder / "model.tflite").unlink()
    assert describe(folder)["model"] == "model.tflite (missing)"
    (folder / "answers.json").write_text('{"engine": "litert"}')
    refused(lambda: describe(folder), "answers.json", "for an engine")
