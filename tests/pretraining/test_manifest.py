"""A manifest of pretraining data is checked when it is read, whoever reads it."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import VOCABULARY, refused

from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.pretraining.data import Journal, write_pretraining_data
from bert_keras.pretraining.files import find_files
from bert_keras.pretraining.manifest import job_of
from bert_keras.text.tokenizer import WordPieceTokenizer

TOKENIZER = WordPieceTokenizer(VOCABULARY)
CONFIG = PretrainingDataConfig(max_length=32, dupe_factor=2, block_characters=300)
JOB = job_of(CONFIG, TOKENIZER, str.splitlines)
TEXTS = ["win cash now\nsee you at six\nfree prize", "half off shoes\nsale now"] * 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of finished data; each test puts its manifest back."""
    place = tmp_path_factory.mktemp("data")
    write_pretraining_data(
        TEXTS,
        place,
        to_sentences=str.splitlines,
        tokenizer=TOKENIZER,
        config=CONFIG,
        say=lambda line: None,
    )
    return place


@pytest.fixture
def manifest(folder: Path) -> Iterator[dict[str, Any]]:
    """Return the manifest; it is written back at the end."""
    path = folder / "manifest.json"
    data = path.read_bytes()
    values = json.loads(data)
    del values["sha256"]  # as version 0.1 wrote it, so that each rule is reached
    yield values
    path.write_bytes(data)


def both(folder: Path) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return how `pretrain` reads a folder, and how `pretraining-data` does."""
    return lambda: find_files(folder, TOKENIZER), lambda: Journal(folder, JOB)


def test_a_complete_manifest_is_accepted(folder: Path, manifest: Any) -> None:
    assert len(manifest["shards"]) > 1
    for read in both(folder):
        read()


def test_a_changed_manifest_is_refused(folder: Path, manifest: dict[str, Any]) -> None:
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"lowercase": true', '"lowercase": false'))
    for read in both(folder):
        refused(read, "manifest.json: was changed after it was written")


@pytest.mark.parametrize("place", ["", "settings", "shards[1]"])
def test_missing_unknown_and_mistyped_keys_are_named(
    folder: Path, manifest: dict[str, Any], place: str
) -> None:
    for name in {"": manifest, **manifest, "shards[1]": manifest["shards"][1]}[place]:
        if name == "format":
            continue
        key = f"{place}.{name}" if place else name
        for changed, wanted in (
            ({}, f"lacks '{key}'"),
            ({name: [["x"]], "colour": 1}, "has the unknown key"),
            ({name: {"a": [1]} if name == "shards" else [["x"]]}, key),
        ):
            broken = copy.deepcopy(manifest)
            values = {"": broken, **broken, "shards[1]": broken["shards"][1]}[place]
            del values[name]
            values.update(changed)
            (folder / "manifest.json").write_text(json.dumps(broken))
            for read in both(folder):
                assert len(refused(read, "manifest.json: ", wanted)) < 400


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instances": 7}, "`instances` must be"),
        ({"shards": [{}]}, "lacks 'shards[0]."),
        ({"shards": [3]}, "`shards[0]` must be an object; received 3"),
        ({"settings": []}, "`settings` must be an object; received []"),
    ],
)
def test_inconsistent_values(
    folder: Path, manifest: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    (folder / "manifest.json").write_text(json.dumps({**manifest, **changes}))
    for read in both(folder):
        refused(read, "manifest.json: ", message)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("number", 0, "`shards[1].number` must be 1; received 0"),
        ("file", "../mine", "`shards[1].file` must be part-00001.tfrecord.gz"),
        ("file", "part-00000.tfrecord.gz", "`shards[1].file` must be part-00001"),
    ],
)
def test_shards_are_those_of_the_folder_in_order(
    folder: Path, manifest: dict[str, Any], name: str, value: Any, rule: str
) -> None:
    manifest["shards"][1][name] = value
    if name == "number":
        manifest["shards"][1]["file"] = "part-00000.tfrecord.gz"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for read in both(folder):
        refused(read, "manifest.json: ", rule)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\xff"])
def test_files_that_are_not_json(folder: Path, manifest: Any, text: str) -> None:
    (folder / "manifest.json").write_bytes(text.encode("latin-1"))
    for read in both(folder):
        refused(read, "manifest.json: is not JSON")


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_length", 10**9), ("max_predictions", 20), ("masking", "dynamic")],
)
def test_settings_are_those_of_the_examples(
    folder: Path, manifest: dict[str, Any], name: str, value: Any
) -> None:
    manifest["settings"][name] = value
    (folder / "manifest.json").write_text(json.dumps(manifest))
    refused(
        both(folder)[0], "manifest.json: ", f"`settings.{name}` must be", str(value)
    )


def test_a_journal_is_checked_by_line(folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    job = {name: manifest[name] for name in JOB}
    shard = manifest["shards"][0]
    place = tmp_path / "data"
    shutil.copytree(folder, place)
    (place / "manifest.json").unlink()
    for rows, message in (
        ([[]], ":1: must be an object"),
        ([{**job, "settings": 3}], ":1: `settings` must be an object"),
        ([job, {"number": 0}], ":2: lacks '"),
        ([job, shard, {**shard, "bytes": "many"}], ":3: `bytes` must be"),
        ([job, {**shard, "file": "/etc/passwd"}], ":2: `file` must be part-00000"),
    ):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (place / "unfinished.jsonl").write_text(lines)
        refused(lambda: Journal(place, JOB), f"unfinished.jsonl{message}")
