"""Model folders: contents, errors, and no partial writes."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import files_of, refused

from bert_keras.errors import CheckpointError
from bert_keras.models import model_folder
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.tasks.classification import Classification

TEXTS = ["free cash", "see you at six", ""]


class OwnTask(Classification):
    """A custom task, which the package does not know."""

    name = "own"


@pytest.fixture
def folder(spam_folder: Path, tmp_path: Path) -> Path:
    """Return a copy of a model folder, to be broken."""
    return Path(shutil.copytree(spam_folder, tmp_path / "model"))


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; `None` deletes one."""
    values = {**json.loads(path.read_text()), **changes}
    kept = {key: value for key, value in values.items() if value is not None}
    path.write_text(json.dumps(kept))


def test_the_config_holds_the_entries_of_hugging_face_and_ours(
    spam_folder: Path,
) -> None:
    config = json.loads((spam_folder / "config.json").read_text())
    assert config["model_type"] == "bert"
    assert config["architectures"] == ["BertForSequenceClassification"]
    assert config["id2label"] == {"0": "ham", "1": "promo", "2": "spam"}
    assert config["label2id"] == {"ham": 0, "promo": 1, "spam": 2}
    assert config["problem_type"] == "single_label_classification"
    assert config["hidden_size"] == 16
    assert config["bert_keras"] == {
        "format": 1,
        "task": "classification",
        "settings": {
            "classes": ["ham", "promo", "spam"],
            "class_weights": "none",
            "positive_class": "",
            "calibration": "none",
            "temperature": 1.0,
            "abstain_below": 0.0,
            "answered_accuracy": 0.0,
            "pairs": False,
        },
        "preprocessing": {
            "max_length": 24,
            "truncation": "longest_first",
            "layout": "packed",
            "length_multiple": 1,
        },
    }


def test_a_folder_of_hugging_face_opens_without_our_entry(folder: Path) -> None:
    wanted = load_model(folder).answer(TEXTS)
    edit(folder / "config.json", bert_keras=None)
    model = load_model(folder)
    assert model.task == Classification(("ham", "promo", "spam"), pairs=None)
    assert model.preprocessor.max_length == 40
    np.testing.assert_allclose(model.answer(TEXTS)["score"], wanted["score"], atol=1e-6)


def test_a_custom_task_is_opened_only_if_it_is_given(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    save_model(make_model(OwnTask(("a", "b"))), tmp_path / "own")
    config = json.loads((tmp_path / "own" / "config.json").read_text())
    place = f"{OwnTask.__module__}:OwnTask"
    assert config["bert_keras"]["task"] == place
    refused(lambda: load_model(tmp_path / "own"), place, "pass it as `task`")
    assert type(load_model(tmp_path / "own", task=OwnTask).task) is OwnTask
    assert type(load_model(tmp_path / "own", task=place).task) is OwnTask


def test_another_task_than_that_of_the_folder_is_rejected(spam_folder: Path) -> None:
    refused(
        lambda: load_model(spam_folder, task="regression"),
        "holds a model of the task classification",
        "received `task` regression",
    )


def test_no_code_is_imported_because_a_folder_names_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    edit(
        folder / "config.json",
        bert_keras={**config["bert_keras"], "task": "evil:Task"},
        auto_map={"AutoModel": "evil.Model"},
    )
    refused(lambda: load_model(folder), "evil:Task")
    assert "evil" not in sys.modules


def test_an_encoder_without_a_head_is_rejected(encoder_folder: Path) -> None:
    refused(lambda: load_model(encoder_folder), "no task head", "BertModel")
    refused(
        lambda: load_model(encoder_folder, task="masked-lm"),
        "contains no head of the task masked-lm: train a model",
    )


@pytest.mark.parametrize(
    ("ours", "part"),
    [
        ({"settings": {"classes": ["one"]}}, "`classes`"),
        ({"settings": {"colour": "red"}}, "colour"),
        ({"settings": 3}, "settings"),
        ({"preprocessing": {"max_length": 1}}, "`max_length`"),
        ({"preprocessing": {"max_length": "long"}}, "max_length"),
        ({"preprocessing": [1]}, "preprocessing"),
        ({"format": 99}, "format"),
    ],
)
def test_a_broken_entry_is_reported_in_one_line(
    folder: Path, ours: dict[str, Any], part: str
) -> None:
    config = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", bert_keras={**config["bert_keras"], **ours})
    message = refused(lambda: load_model(folder), part)
    assert "config.json" in message


@pytest.mark.parametrize("ours", [7, "classification", ["classification"]])
def test_an_entry_of_another_type_is_reported_in_one_line(
    folder: Path, ours: Any
) -> None:
    edit(folder / "config.json", bert_keras=ours)
    refused(lambda: load_model(folder), "config.json", "bert_keras")


def test_classes_that_the_weights_lack(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    settings = {**config["bert_keras"]["settings"], "classes": ["ham", "spam"]}
    ours = {**config["bert_keras"], "settings": settings}
    edit(folder / "config.json", bert_keras=ours, id2label=None)
    refused(lambda: load_model(folder), "classifier/kernel", "[16, 2]", "[16, 3]")


def test_a_vocabulary_larger_than_the_table(folder: Path) -> None:
    with open(folder / "vocab.txt", "a") as file:
        file.write("extra\n")
    refused(lambda: load_model(folder), "`vocab_size`")


def test_a_smaller_vocabulary_is_fine(folder: Path) -> None:
    tokens = (folder / "vocab.txt").read_text().splitlines()
    (folder / "vocab.txt").write_text("\n".join(tokens[:-1]) + "\n")
    assert load_model(folder).preprocessor.tokenizer.vocab_size == len(tokens) - 1


def test_a_length_above_the_encoder_s_is_rejected(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    preprocessing = {**config["bert_keras"]["preprocessing"], "max_length": 41}
    ours = {**config["bert_keras"], "preprocessing": preprocessing}
    edit(folder / "config.json", bert_keras=ours)
    refused(lambda: load_model(folder), "`max_length`", "40", "41")


def test_a_config_with_a_wrong_size_is_rejected_at_once(folder: Path) -> None:
    edit(folder / "config.json", num_hidden_layers=20)
    refused(lambda: load_model(folder), "`num_hidden_layers`", "2; received 20")
    edit(folder / "config.json", hidden_size=16_384, num_hidden_layers=2)
    refused(lambda: load_model(folder), "37 misshapen", "[16384], is [16]")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "vocab.txt"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    refused(lambda: load_model(folder), name)


def test_a_full_disk_leaves_the_old_model(
    spam_model: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(folder)

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    message = refused(lambda: save_model(spam_model, folder), "No space left on device")
    assert message.startswith(str(folder))
    assert files_of(folder) == before
    assert os.listdir(folder.parent) == [folder.name]


STEPS = ["write_huggingface", "tokenizer.save"]


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupt_in_any_step_leaves_the_old_model(
    spam_model: Any, folder: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(folder)

    def interrupted(*args: Any, **given: Any) -> None:
        raise KeyboardInterrupt

    if step == "tokenizer.save":
        tokenizer = type(spam_model.preprocessor.tokenizer)
        monkeypatch.setattr(tokenizer, "save", interrupted)
    else:
        monkeypatch.setattr(model_folder, step, interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_model(spam_model, folder)
    assert files_of(folder) == before
    assert os.listdir(folder.parent) == [folder.name]


def test_a_model_replaces_another(pair_model: Any, folder: Path) -> None:
    save_model(pair_model, folder)
    assert load_model(folder).task.classes == ("different", "same")
    assert not (folder / "report.html").exists()  # it was that of the other model


def test_other_files_are_never_replaced(spam_model: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(CheckpointError, match="thesis.tex"):
        save_model(spam_model, tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "mine"


def test_a_task_that_a_folder_does_not_name(spam_folder: Path) -> None:
    task = Classification(("ham", "promo", "spam"), pairs=True, temperature=2)
    model = load_model(spam_folder, task=task)
    assert model.task == task
    answers = model.answer((tf.constant(["win"]), tf.constant(["now"])))
    assert answers["label"].shape == (1,)
