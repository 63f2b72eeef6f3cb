"""A manifest of pretraining data is checked when it is read, whoever reads it."""

from __future__ import annotations

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
from bert_keras.pretraining.manifest import SUMMED, as_text, job_of
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
    del values["sha256"]  # `as_text` adds it again, so that each rule is reached
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


def edits(manifest: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each kind of damage to a manifest, its hash aside."""
    second = manifest["shards"][1]
    first_file = manifest["shards"][0]["file"]
    for name in sorted({*JOB, *SUMMED, "shards"} - {"format"}):
        yield f"{name} is missing", {k: v for k, v in manifest.items() if k != name}
        yield f"{name} has another type", {**manifest, name: [[1]]}
    for name in second:
        less = {k: v for k, v in second.items() if k != name}
        yield f"a shard lacks {name}", with_second(manifest, less)
        yield f"a shard's {name} has another type", with_second(manifest, {name: [1]})
    for shard in (
        3,
        {**second, "colour": 1},
        {**second, "number": 0},
        {**second, "number": 0, "file": first_file},
        {**second, "file": first_file},
        {**second, "file": "../mine"},
        {**second, "instances": second["instances"] + 1},
    ):
        yield f"a shard is {shard}", with_second(manifest, shard)


def with_second(manifest: dict[str, Any], shard: Any) -> dict[str, Any]:
    """Return a manifest with another second shard."""
    first, _, *rest = manifest["shards"]
    return {**manifest, "shards": [first, shard, *rest]}


def test_a_manifest_agrees_with_its_shards(
    folder: Path, manifest: dict[str, Any]
) -> None:
    path = folder / "manifest.json"
    path.write_text(as_text(manifest))
    for read in both(folder):
        read()
    for _, broken in edits(manifest):
        path.write_text(as_text(broken))
        for read in both(folder):
            refused(read, "manifest.json: was changed after it was written")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "9" * 5000 + "}", "\xff"])
def test_files_that_are_not_json(folder: Path, manifest: Any, text: str) -> None:
    (folder / "manifest.json").write_bytes(text.encode("latin-1"))
    for read in both(folder):
        refused(read, "manifest.json: is not JSON")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_length", 10**9),
        ("max_predictions", 20),
        ("masking", "dynamic"),
        ("masking", [1]),
        ("colour", 1),
    ],
)
def test_settings_are_those_of_the_examples(
    folder: Path, manifest: dict[str, Any], name: str, value: Any
) -> None:
    manifest["settings"][name] = value
    (folder / "manifest.json").write_text(as_text(manifest))
    refused(both(folder)[0], "manifest.json: `settings", name)


def test_a_setting_of_a_later_version_has_its_default(
    folder: Path, manifest: dict[str, Any]
) -> None:
    del manifest["settings"]["next_sentence"]
    (folder / "manifest.json").write_text(as_text(manifest))
    assert both(folder)[0]().has_pairs
    both(folder)[1]()


def test_a_journal_is_checked_by_line(folder: Path, tmp_path: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    job = {name: manifest[name] for name in JOB}
    shard = manifest["shards"][0]
    place = tmp_path / "data"
    shutil.copytree(folder, place)
    (place / "manifest.json").unlink()
    for rows, message in (
        ([[]], ":1: must be a line that bert_keras wrote; received []"),
        ([{**job, "settings": 3}], ":1: must be a line that"),
        ([job, {"number": 0}], ":2: must be a line that"),
        ([job, shard, {**shard, "bytes": "many"}], ":3: must be a line that"),
        ([job, {**shard, "file": "/etc/passwd"}], ":2: must be a line that"),
    ):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (place / "unfinished.jsonl").write_text(lines)
        refused(lambda: Journal(place, JOB), f"unfinished.jsonl{message}")
