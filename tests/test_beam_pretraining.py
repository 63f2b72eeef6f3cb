"""Pretraining data on Apache Beam: the files of one machine, byte for byte."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, files_of, refused
from test_pretraining_data import TOKENIZER, some_documents

from bert_keras import beam_pretraining
from bert_keras.beam_pretraining import run_beam_pretraining_data
from bert_keras.corpus import CorpusReport, raw_documents
from bert_keras.pretraining_blocks import blocks_of, shares_of
from bert_keras.pretraining_data import write_pretraining_data
from bert_keras.pretraining_data_config import PretrainingDataConfig
from bert_keras.pretraining_input import pretraining_dataset

try:
    from apache_beam.io.localfilesystem import LocalFileSystem
except ImportError:
    LocalFileSystem = None
needs_beam = pytest.mark.skipif(
    LocalFileSystem is None, reason="needs Apache Beam: pip install 'bert_keras[beam]'"
)
CONFIG = PretrainingDataConfig(max_length=32, block_characters=3000, dupe_factor=2)
LOCAL = ["--runner=FnApiRunner"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of files of several forms, whose blocks lie across them."""
    folder = tmp_path_factory.mktemp("corpus")
    documents = list(some_documents(60))
    (folder / "a.txt").write_text("\n\n".join(documents[:25]) + "\n\n \n\n")
    (folder / "b").mkdir()
    for i, document in enumerate(documents[25:40]):
        (folder / "b" / f"{i:02d}.txt").write_text(document)
    (folder / "b" / "empty.txt").write_text("\n \n")
    rows = [json.dumps({"text": text}) for text in documents[40:50]]
    (folder / "c.jsonl.gz").write_bytes(gzip.compress("\n".join(rows).encode()))
    (folder / "d.txt").write_bytes("\n\n".join(documents[50:]).encode() + b"\n\xff a")
    return folder


def on_one(corpus: Any, folder: Path, **changes: Any) -> dict[str, Any]:
    """Write the data of a corpus on one machine, as the command line does."""
    return write_pretraining_data(
        raw_documents(corpus, errors="replace"),
        folder,
        to_sentences=beam_pretraining.steps.sentences_by("en"),
        say=lambda line: None,
        **{"tokenizer": TOKENIZER, "config": CONFIG, **changes},
    )


def on_beam(corpus: Any, folder: Any, flags: Sequence[str] = LOCAL, **changes: Any):  # type: ignore[no-untyped-def]
    given = {"tokenizer": TOKENIZER, "config": CONFIG, "errors": "replace", **changes}
    return run_beam_pretraining_data(corpus, folder, pipeline_args=flags, **given)


@pytest.fixture(scope="module")
def one(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that one machine writes."""
    folder = tmp_path_factory.mktemp("one") / "data"
    on_one(corpus, folder)
    return folder


@needs_beam
def test_the_files_are_those_of_one_machine(
    corpus: Path, one: Path, tmp_path: Path
) -> None:
    report, wanted = CorpusReport(), CorpusReport()
    manifest = on_beam(corpus, tmp_path / "data", report=report)
    assert files_of(tmp_path / "data") == files_of(one)
    assert manifest == json.loads((one / "manifest.json").read_text())
    assert len(manifest["shards"]) > 3
    assert len(list(raw_documents(corpus, errors="replace", report=wanted))) == 60
    assert report.lines() == wanted.lines()
    assert list(report.forms.items()) == list(wanted.forms.items())
    dataset = pretraining_dataset(tmp_path / "data", TOKENIZER, batch_size=8)
    batch, labels = next(iter(dataset))
    assert batch["token_ids"].shape[0] == len(labels["next_sentence"]) == 8
