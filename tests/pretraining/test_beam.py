"""Pretraining data on Apache Beam: the files of one machine, byte for byte."""

from __future__ import annotations

import dataclasses
import errno
import gzip
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from conftest import ROOT, files_of, refused

from bert_keras.corpus.documents import CorpusReport, raw_documents, sentences_by
from bert_keras.files import filesystems
from bert_keras.pretraining import beam as beam_pretraining
from bert_keras.pretraining import beam_steps
from bert_keras.pretraining.beam import run_beam_pretraining_data
from bert_keras.pretraining.blocks import blocks_of, shares_of
from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.pretraining.data import write_pretraining_data
from bert_keras.pretraining.input import pretraining_dataset
from bert_keras.pretraining.manifest import read_manifest
from pretraining.test_data import TOKENIZER, some_documents

needs_beam = pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None,
    reason="needs Apache Beam: pip install 'bert_keras[beam]'",
)
CONFIG = PretrainingDataConfig(max_length=32, block_characters=3000, dupe_factor=2)
LOCAL = ["--runner=FnApiRunner"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of files in several formats, with blocks that span files."""
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
        to_sentences=sentences_by("en"),
        tokenizer=TOKENIZER,
        config=CONFIG,
        **{"say": lambda line: None, **changes},
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
    assert manifest == read_manifest(one)
    assert len(manifest["shards"]) > 3
    assert len(list(raw_documents(corpus, errors="replace", report=wanted))) == 60
    assert report.lines() == wanted.lines()
    assert list(report.forms.items()) == list(wanted.forms.items())
    dataset = pretraining_dataset(tmp_path / "data", TOKENIZER, batch_size=8)
    batch, labels = next(iter(dataset))
    assert batch["token_ids"].shape[0] == len(labels["next_sentence"]) == 8


@needs_beam
@pytest.mark.parametrize(
    "mode",
    ["multi_threading", pytest.param("multi_processing", marks=pytest.mark.slow)],
)
def test_the_files_of_several_workers_are_those_of_one_machine(
    corpus: Path, one: Path, tmp_path: Path, mode: str, monkeypatch: Any
) -> None:
    # The other processes import the package from the same place.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    flags = [*LOCAL, f"--direct_running_mode={mode}", "--direct_num_workers=2"]
    on_beam(corpus, tmp_path / "data", flags)
    assert files_of(tmp_path / "data") == files_of(one)


@pytest.mark.parametrize("seed", range(20))
def test_blocks_follow_from_the_lengths_alone(seed: int) -> None:
    random = np.random.default_rng(seed)
    count = random.integers(0, 40)
    lengths = random.choice([1, 30, 60, 500], count).tolist()
    files = np.sort(random.integers(0, 12, count)).tolist()
    blocks = [len(b.documents) for b in blocks_of(["x" * n for n in lengths], 100)]
    found: dict[int, int] = {}
    names = []
    for file, shares in shares_of(zip(lengths, files, strict=True), 100):
        names.append(file)
        assert sum(number for _, number, _ in shares) == files.count(file)
        for block, number, total in shares:
            assert total == blocks[block]
            found[block] = found.get(block, 0) + number
    assert list(found) == list(range(len(blocks)))
    assert list(found.values()) == blocks
    assert names == sorted(set(files))


def test_reading_needs_no_tensorflow() -> None:
    check = (
        "import sys, bert_keras.pretraining.beam_steps\n"
        "print([n for n in ('tensorflow', 'apache_beam') if n in sys.modules])"
    )
    command = [sys.executable, "-c", check]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@needs_beam
def test_a_mistake_is_reported_as_on_one_machine(tmp_path: Path) -> None:
    corpora = {
        "binary": {"a.txt": b"A text.\n\nOne more.", "b.txt": b"\x89PNG\0\0"},
        "utf8": {"a.txt": b"A text.\n\n" + b"x" * 70_000 + b"\n\xe9.", "b.txt": b"\0"},
        "json": {"a.jsonl": b'{"text": "a"}\n{"txt": "b"}'},
        "empty": {"a.txt": b" \n", "b.txt": b""},
        "one": {"a.txt": b"One text. It is alone.\n"},
        "no sentence": {"a.jsonl": b'{"text": "\\u200b"}\n{"text": "\\u200b"}\n'},
        "none": {},
    }
    for name, files in corpora.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, data in files.items():
            (folder / file).write_bytes(data)
        said = [
            refused(lambda r=run, f=folder: r(f, tmp_path / f"{r.__name__} {f.name}"))
            for run in (strictly_on_one, strictly_on_beam)
        ]
        assert said[0] == said[1]
    (tmp_path / "one" / "b.txt").write_text("Another one.")
    given = {"language": "?"}
    refused(lambda: on_beam(tmp_path / "one", tmp_path / "c", **given), "`language`")


def strictly_on_one(corpus: Path, folder: Path) -> Any:
    return write_pretraining_data(
        raw_documents(corpus),
        folder,
        to_sentences=sentences_by("en"),
        tokenizer=TOKENIZER,
        config=CONFIG,
    )


def strictly_on_beam(corpus: Path, folder: Path) -> Any:
    return on_beam(corpus, folder, errors="strict")


@needs_beam
def test_a_stopped_run_resumes(
    corpus: Path, one: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    folder = tmp_path / "data"
    put, made = filesystems.put, []

    def full(source: Any, path: str) -> None:
        """Put two shards into their places, and then the disk is full."""
        if "part-" in path and not path.endswith(".json"):
            if len(made) == 2:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            made.append(path)
        put(source, path)

    monkeypatch.setattr(filesystems, "put", full)
    refused(lambda: on_beam(corpus, folder), "part-0000", "No space left on device")

    def fuller(source: Any, path: str) -> None:
        if "lengths-" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        put(source, path)

    monkeypatch.setattr(filesystems, "put", fuller)
    refused(lambda: on_beam(corpus, folder), "failed", "No space left on device")
    finished = {Path(path).name for path in made}
    assert {path.name for path in folder.glob("part-*")} == finished
    tokens = refused(lambda: pretraining_dataset(folder, TOKENIZER, batch_size=2))
    assert "received unfinished.jsonl" in tokens
    # What other tries left, also of a worker that was killed while it wrote.
    (folder / ".part-00001.tfrecord.gz.123.partial").write_bytes(b"half")
    times = {name: (folder / name).stat().st_mtime_ns for name in finished}
    monkeypatch.setattr(filesystems, "put", put)
    config = dataclasses.replace(CONFIG, seed=1)
    refused(
        lambda: on_beam(corpus, folder, config=config),
        "`seed`: 42; received 1",
    )
    refused(lambda: on_one(corpus, folder), "other files", "unfinished-beam")
    on_beam(corpus, folder)
    assert files_of(folder) == files_of(one)
    assert times == {name: (folder / name).stat().st_mtime_ns for name in finished}


@needs_beam
def test_it_resumes_the_job_of_one_machine(
    corpus: Path, one: Path, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        on_one(corpus, tmp_path / "data", say=stopped)
    on_beam(corpus, tmp_path / "data")
    assert files_of(tmp_path / "data") == files_of(one)


@needs_beam
def test_other_text_is_rejected(corpus: Path, tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "data"
    with monkeypatch.context() as patch:
        patch.setattr(beam_pretraining, "_finish", stopped)
        with pytest.raises(KeyboardInterrupt):
            on_beam(corpus, folder)
    wrong = tmp_path / "other.txt"
    wrong.write_text("\n\n".join(some_documents(30, seed=3)))
    refused(lambda: on_beam(wrong, folder), "part-00000", "written from text other")
    # A shard that was lost meanwhile is made again.
    (folder / "part-00001.tfrecord.gz").unlink()
    on_beam(corpus, folder)
    less = tmp_path / "less"
    less.mkdir()
    (less / "part-00099.tfrecord.gz").write_bytes(b"")
    (less / "unfinished.jsonl").write_bytes(b"")
    refused(lambda: on_beam(corpus, less), "part-00099", "written from more text")


def stopped(*given: Any) -> None:
    raise KeyboardInterrupt


@needs_beam
def test_text_that_changes_during_the_run(
    corpus: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    plan = beam_steps.Plan.__call__
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    later = {
        "One.\n\nTwo.": "was changed while it was read",
        "One.\n\nTwo.\n\nThree.\n\nFour.": "was changed while it was read",
        "\0": "is a binary file",
    }

    def changing(self: Any, groups: Any) -> Iterator[Any]:
        yield from plan(self, groups)
        files[0].write_text(texts.pop())

    monkeypatch.setattr(beam_steps.Plan, "__call__", changing)
    for text, reason in later.items():
        texts = [text]
        for file in files:
            file.write_text("One.\n\nTwo.\n\nThree.")
        refused(lambda: on_beam(files, tmp_path / "data"), str(files[0]), reason)


@needs_beam
def test_a_finished_folder_is_left_alone(
    corpus: Path, one: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    shutil.copytree(one, folder)
    (folder / "unfinished.jsonl").write_text("")  # killed at the very end
    manifest = on_beam(tmp_path / "nothing is read", folder)
    assert manifest == read_manifest(one)
    assert files_of(folder) == files_of(one)
    config = dataclasses.replace(CONFIG, max_length=64)
    refused(
        lambda: on_beam(corpus, folder, config=config), "`max_length`: 32; received 64"
    )
    (folder / "part-00001.tfrecord.gz").write_bytes(b"cut")
    refused(lambda: on_beam(corpus, folder), "part-00001", "delete manifest.json")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("")
    refused(lambda: on_beam(corpus, tmp_path / "mine"), "other files", "notes.txt")
    refused(lambda: on_beam(corpus, folder / "manifest.json"), "cannot be written")


@needs_beam
def test_wrong_arguments(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    refused(lambda: on_beam(corpus, folder, ["--runer=Flink"]), "--runer")
    refused(lambda: on_beam(corpus, folder, ["--direct_num_workers=x"]), "'x'")
    refused(lambda: on_beam(corpus, folder, "--runner=a"), "`pipeline_args`")
    refused(lambda: on_beam(corpus, folder, ["--runner=Nonsense"]), "Nonsense")
    refused(lambda: on_beam(corpus, folder, form="xml"), "`form`", "'xml'")
    refused(lambda: on_beam(corpus, folder, errors="ignore"), "`errors`")
    refused(lambda: on_beam(corpus, tmp_path / "a*"), "`output`", "a*")
    refused(lambda: on_beam(corpus, "nowhere://a/b"), "nowhere://a/b", "nowhere")
    refused(lambda: on_beam("nowhere://a/*", folder), "nowhere://a/*", "nowhere")
    assert not folder.exists()


def test_without_beam(corpus: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    refused(lambda: on_beam(corpus, tmp_path), "pip install 'bert_keras[beam]'")


@needs_beam
def test_files_of_a_bucket(corpus: Path, one: Path) -> None:
    bucket = fsspec.filesystem("memory")
    bucket.put(f"{corpus}/", "/bucket/corpus/", recursive=True)
    bucket.pipe_file("/bucket/data/unfinished.jsonl", b"")
    bucket.pipe_file("/bucket/data/part-00000.tfrecord.gz", b"of a late worker")
    on_beam("memory://bucket/corpus", "memory://bucket/data/")
    names = bucket.find("/bucket/data")
    written = {name.rpartition("/")[2]: bucket.cat_file(name) for name in names}
    assert written == files_of(one)
