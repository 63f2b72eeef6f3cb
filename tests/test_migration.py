"""The migration page: its code runs unchanged, and its options exist."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, VOCABULARY, write_encoder, write_tsv

from bert_keras.checkpoints import read_checkpoint, write_huggingface
from bert_keras.cli.main import main
from bert_keras.cli.parser import parser
from bert_keras.training.config import TrainConfig

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(python|bash|text)\n(.*?)^```", PAGE, flags=re.M | re.S)
CLASSES = (
    *("Model", "ForPreTraining", "LMHeadModel", "ForMaskedLM"),
    *("ForNextSentencePrediction", "ForSequenceClassification"),
    *("ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice"),
)
HEADS = {
    "cls/predictions/transform/dense/kernel": (16, 16),
    "cls/predictions/transform/dense/bias": (16,),
    "cls/predictions/transform/LayerNorm/gamma": (16,),
    "cls/predictions/transform/LayerNorm/beta": (16,),
    "cls/predictions/output_bias": (len(VOCABULARY),),
    "cls/seq_relationship/kernel": (16, 2),
    "cls/seq_relationship/bias": (2,),
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Return the folder that the page speaks of, as the current one."""
    folder = write_encoder(tmp_path / "encoder")
    checkpoint = read_checkpoint(folder)
    arrays = {name: np.full(shape, 0.1, "float32") for name, shape in HEADS.items()}
    config = {**checkpoint.raw_config, "architectures": ["BertForPreTraining"]}
    write_huggingface(folder, {**checkpoint.arrays, **arrays}, config)
    rows = [("text", "label"), ("win cash now", "spam"), ("lunch at six", "ham")]
    for name in ("train.tsv", "dev.tsv"):
        write_tsv(tmp_path / name, [rows[0], *rows[1:] * 4])
    sentences = "see you at six.\nlunch at home now.\nwin cash now.\nfree prize.\n\n"
    (tmp_path / "corpus.txt").write_text(sentences * 6, encoding="utf-8")
    before = os.getcwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


@pytest.mark.thorough
def test_every_block_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for kind, block in BLOCKS:
        if kind == "python":
            exec(compile(block, "docs/migration.md", "exec"), names)  # noqa: S102
        if kind == "bash":
            for line in block.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "bert-keras"
                assert main(arguments) == 0, capsys.readouterr().err
    assert '"label"' in capsys.readouterr().out
    assert np.shape(names["pooled"]) == (1, 16)
    assert (place / "runs" / "more" / "model" / "config.json").is_file()
    assert names["encoder"].config == read_checkpoint(place / "encoder").config  # type: ignore[attr-defined]


def test_each_class_is_shown_with_its_counterpart() -> None:
    old = "".join(block for kind, block in BLOCKS if kind == "text")
    for name in CLASSES:
        assert f"| `TFBert{name}` |" in PAGE
        assert f"TFBert{name}." in old or f"TFBert{name}(" in old


def test_the_options_exist() -> None:
    """A page of tables goes stale in silence: each option must be one of a verb."""
    verbs = next(a for a in parser()._actions if a.dest == "verb").choices
    known = {o for verb in verbs.values() for o in verb._option_string_actions}
    tables = [line.split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    ours = {o for cells in tables for o in re.findall(r"(--[a-z0-9-]+)", cells[2])}
    assert len(ours) > 25
    assert sorted(ours - known) == []
    fields = {field.name for field in dataclasses.fields(TrainConfig)}
    start = PAGE.index("| `TrainingArguments`")
    table = PAGE[start : PAGE.index("\n\n", start)]
    said = {
        line.split("|")[2].split("`")[1].split("=")[0]
        for line in table.splitlines()[3:]
        if "`" in line.split("|")[2]
    }
    assert said <= {*fields, "epochs"}


def test_the_readme_links_to_it() -> None:
    assert "(docs/migration.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
