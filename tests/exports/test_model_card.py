"""Model cards: metadata that the hub's library reads, and text that is true."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard

import bert_keras
from bert_keras.cli.info import describe
from bert_keras.exports.model_card import _PIPELINES, model_card, usage_of
from bert_keras.files.json_file import json_text
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks import TASKS, find_task
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.reranking import Reranking


def code_blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.S)


def test_usage_has_the_request_of_the_task() -> None:
    found = usage_of("my models/it", task="regression", settings={"pairs": True},
                     inputs=["text_a", "text_b"])  # fmt: skip
    ast.parse(found["In Python"])
    words = shlex.split(found["As a server"])
    assert words[:3] == ["bert-keras", "serve", "my models/it"]
    request = json.loads(words[words.index("-d") + 1])
    assert set(request["instances"][0]) == {"text_a", "text_b"}
    assert words[-1] == "localhost:8501/v1/models/it:predict"
    own = usage_of("it", task="my.tasks:Stars", settings={}, inputs=["text"])
    assert "load_predictor('it', task='my.tasks:Stars')" in own["In Python"]
    # The server imports no code of users.
    assert own["As a server"].startswith("bert-keras serve saved_models/it\n")


@pytest.mark.parametrize(("long", "is_truncated"), [("truncate", 1), ("windows", 0)])
def test_the_card_says_that_texts_are_truncated_only_if_they_are(
    long: str, is_truncated: int, encoder_folder: Path, tmp_path: Path
) -> None:
    task = Classification(("a", "b"), long=long)
    save_model(TaskModel.from_pretrained(encoder_folder, task), tmp_path / "m")
    text = model_card(tmp_path / "m", name="m")
    assert text.count("Longer inputs are truncated to") == is_truncated


def test_the_card_of_a_run_is_in_the_form_of_the_hub(
    spam_run: Any, encoder_folder: Path
) -> None:
    card = ModelCard.load(spam_run.folder / "README.md")
    assert card.data.library_name == "bert_keras"
    assert card.data.pipeline_tag == "text-classification"
    assert card.data.tags == ["bert", "keras", "classification"]
    assert card.data.base_model is None  # a folder is not on the hub
    results = {each.metric_type: each for each in card.data.eval_results}
    scores = json.loads((spam_run.folder / "scores.json").read_text())["dev"]
    assert results["accuracy"].metric_value == scores["accuracy"]
    assert results["accuracy"].dataset_name == "dev"
    assert "| **macro_f1** |" in card.text or "| **accuracy** |" in card.text
    assert "classes | `ham`, `promo`, `spam` |" in card.text
    assert "Training rows of each class: `ham` 40, `promo` 40, `spam` 40." in card.text
    assert "fine-tuned from `encoder`:" in card.text
    assert str(encoder_folder) not in card.text  # a card is published
    assert "truncated to 24 tokens" in card.text
    assert "Its probabilities are not calibrated: " in card.text
    counts = re.search(r"([\d,]+) parameters; ([\d,]+) in the whole model", card.text)
    facts = describe(spam_run.folder)
    assert counts and counts[2] == f"{facts['parameters']:,}"
    head = 3 * (facts["hidden_size"] + 1)
    assert counts[1] == f"{facts['parameters'] - head:,}"


def test_an_accuracy_has_the_interval_of_its_rows(spam_run: Any) -> None:
    report = {**spam_run.report, "scores": {"dev": {"accuracy": 0.75, "loss": 0.5}}}
    text = model_card(spam_run.folder, name="spam", report=report)
    assert "| 0.75 (0.468 to 0.911) |" in text  # 9 of 12, by Wilson's formula
    assert "| loss | 0.5 |" in text


def test_the_base_model_has_no_revision(spam_run: Any) -> None:
    settings = {**spam_run.report["settings"], "encoder": "hf://owner/name@v1"}
    text = model_card(
        spam_run.folder, name="spam", report={**spam_run.report, "settings": settings}
    )
    assert "base_model: owner/name\n" in text and "from `owner/name@v1`:" in text


def test_several_runs_are_told_with_their_deviation(spam_run: Any) -> None:
    runs = {
        "per_run": {"seed-1": {}, "seed-2": {}},
        "mean": {"dev": {"accuracy": 0.8}},
        "standard_deviation": {"dev": {"accuracy": 0.05}},
    }
    scores = {"dev": {"accuracy": 0.85}, "runs": runs}
    report = {**spam_run.report, "scores": scores}
    text = model_card(spam_run.folder, name="spam", report=report)
    assert "0.85; of all runs 0.8 ± 0.05" in text
    assert "deviation of 2 runs" in text


def test_the_milliseconds_of_a_student_are_whole_numbers(spam_run: Any) -> None:
    row = {"model": "teacher", "accuracy": 0.5, "milliseconds": 88204.1}
    report = {**spam_run.report, "students": [{**row, "megabytes": 90.856}]}
    text = model_card(spam_run.folder, name="spam", report=report)
    assert "| teacher | 0.5 | 88,204 | 90.86 |" in text


def test_the_code_of_a_card_runs(spam_folder: Path) -> None:
    text = (spam_folder / "README.md").read_text("utf-8")
    ours, theirs = code_blocks(text)
    found: dict[str, Any] = {}
    exec(ours.replace("FOLDER", str(spam_folder)), found)
    assert found["predictor"].model.task.name == "classification"
    assert "BertForSequenceClassification.from_pretrained" in theirs


def test_hostile_names_cannot_break_a_card(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    classes = ("a`|\n# b", "---\nlicense: x")
    save_model(make_model(Classification(classes)), tmp_path / "x: [y]\n---")
    card = ModelCard.load(tmp_path / "x: [y]\n---" / "README.md")
    assert card.data.to_dict().get("license") is None
    assert "# x: \\[y\\] ---\n" in card.text
    assert "`a´¦ # b`, `--- license: x` |" in card.text


def test_a_folder_has_no_card_if_none_is_wanted(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model(Classification(("a", "b")))
    save_model(model, tmp_path / "m", card=False)
    assert not (tmp_path / "m" / "README.md").exists()
    save_model(model, tmp_path / "m")
    assert "Its scores are not known" in (tmp_path / "m/README.md").read_text("utf-8")
    (tmp_path / "m" / "README.md").write_text("My notes.")
    save_model(model, tmp_path / "m")
    assert (tmp_path / "m" / "README.md").read_text() == "My notes."


def test_a_head_on_the_tokens_is_wrong_in_other_tools(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    for pooling in ("mean", "pooler"):
        save_model(make_model(Reranking(pooling=pooling)), tmp_path / pooling)
        text = (tmp_path / pooling / "README.md").read_text()
        assert ("with a random pooler" in text) is (pooling == "mean")
        assert ("model.encode(" in text) is (pooling == "mean")


def test_a_card_makes_answers_of_the_logits_of_encode(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    task = Classification(("a", "b"), pooling="mean", temperature=2.0)
    folder = save_model(make_model(task), tmp_path / "m")
    text = (folder / "README.md").read_text()
    code = text[text.index("logits /= 2.0") :].partition("```")[0]
    found = {"np": np, "logits": np.array([[2.0, 0.0], [0.0, 2 * np.log(3)]])}
    exec(code, found)  # noqa: S102  # of the card
    np.testing.assert_allclose(found["p"][1], [0.25, 0.75])


@pytest.mark.parametrize("name", TASKS)
def test_each_task_has_the_hub_s_name(name: str, tmp_path: Path) -> None:
    task = find_task(name)
    settings = {"hidden_size": 16, "num_attention_heads": 2, "vocab_size": 99}
    config = {
        "architectures": [task.head_codec.architecture],
        **bert_keras.BertConfig(**settings).to_dict(),
        "bert_keras": {"task": name, "settings": {}, "preprocessing": {}},
    }
    (tmp_path / "config.json").write_text(json_text(config))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    text = model_card(tmp_path, name="m")
    assert f"pipeline_tag: {_PIPELINES[name]}\n" in text
    assert f"for `{name}`: {TASKS[name].summary}." in text
    for block in code_blocks(text):
        compile(block, name, "exec")
    needs_ours = task.head_codec.architecture == "BertModel"
    assert ("transformers reads the encoder only" in text) is needs_ours
