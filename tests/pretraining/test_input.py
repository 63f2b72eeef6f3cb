"""Shards to batches: the same values, masks of each epoch, Google's own files."""

from __future__ import annotations

import functools
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import VOCABULARY, refused, thorough

from bert_keras.files.records import serialize, write_records
from bert_keras.pretraining.input import pretraining_dataset
from bert_keras.pretraining.records import read_batches
from bert_keras.text.masking import Masking
from bert_keras.text.tokenizer import WordPieceTokenizer
from pretraining.test_data import CLS, MASK, SEP, TOKENIZER, P, T, read, write

ALIKE = {"shuffle": 0, "padding": "full", "redraw": False}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("shards")
    for masking in ("static", "dynamic"):
        write(folder / masking, masking=masking, dupe_factor=2)
    return {path.name: path for path in folder.iterdir()}


def dataset_of(files: Any, **settings: Any) -> tf.data.Dataset:
    given = {"batch_size": 16, **settings}
    return pretraining_dataset(files, given.pop("tokenizer", TOKENIZER), **given)


def batches(files: Any, **settings: Any) -> list[tuple[dict, dict]]:
    return [pair for pair in dataset_of(files, **settings).as_numpy_iterator()]


def whole(files: Any, **settings: Any) -> dict[str, np.ndarray]:
    """Return all rows, batch and labels together, in full length."""
    found = batches(files, **{"padding": "full", **settings})
    rows = [{**batch, **labels} for batch, labels in found]
    return {key: np.concatenate([row[key] for row in rows]) for key in rows[0]}


def unmasked(rows: dict[str, np.ndarray]) -> np.ndarray:
    ids = rows["token_ids"].copy()
    row, column = np.nonzero(rows["masked_positions"] >= 0)
    places = rows["masked_positions"][row, column]
    ids[row, places] = rows["masked_lm"][row, column]
    return ids


def test_static_data_reads_back_unchanged(folders: dict[str, Path]) -> None:
    written = read(folders["static"])
    rows = whole(folders["static"], **ALIKE)
    assert all(values.dtype == np.int32 for values in rows.values())
    for ours, theirs in (
        ("token_ids", "input_ids"),
        ("segment_ids", "segment_ids"),
        ("padding_mask", "input_mask"),
    ):
        np.testing.assert_array_equal(rows[ours], written[theirs])
    chosen = written["masked_lm_weights"] > 0
    for ours, theirs in (
        ("masked_positions", "masked_lm_positions"),
        ("masked_lm", "masked_lm_ids"),
    ):
        wanted = np.where(chosen, written[theirs], -1)
        np.testing.assert_array_equal(rows[ours], wanted)
    labels = written["next_sentence_labels"][:, 0]
    np.testing.assert_array_equal(rows["next_sentence"], labels)


def test_padding_is_trimmed_to_the_longest_row(folders: dict[str, Path]) -> None:
    full = batches(folders["static"], **ALIKE, batch_size=2)
    cut = batches(folders["static"], **{**ALIKE, "padding": "longest"}, batch_size=2)
    lengths = set()
    for (a, a_labels), (b, b_labels) in zip(full, cut, strict=True):
        tokens = b["token_ids"].shape[1]
        lengths.add(tokens)
        assert b["padding_mask"].sum(axis=1).max() == tokens
        for key in ("token_ids", "segment_ids", "padding_mask"):
            assert a[key].shape[1] == T
            np.testing.assert_array_equal(a[key][:, :tokens], b[key])
            assert not a[key][:, tokens:].any()  # the id of [PAD] is 0 here
        most = b["masked_positions"].shape[1]
        assert a["masked_positions"].shape[1] == P
        assert (b["masked_positions"] >= 0).sum(axis=1).max() == most
        for x, y in (
            (a["masked_positions"], b["masked_positions"]),
            (a_labels["masked_lm"], b_labels["masked_lm"]),
        ):
            np.testing.assert_array_equal(x[:, :most], y)
            assert (x[:, most:] == -1).all()
    assert len(lengths) > 3
    spec = dataset_of(folders["static"], padding="full").element_spec
    assert spec[0]["token_ids"].shape == (None, T)
    assert spec[1]["masked_lm"].shape == (None, P)


def test_dynamic_masks(folders: dict[str, Path]) -> None:
    written = read(folders["dynamic"], masked=False)
    rows = whole(folders["dynamic"], **ALIKE, epochs=2)
    count = len(written["input_ids"])
    first, second = (
        {key: values[part] for key, values in rows.items()}
        for part in (slice(None, count), slice(count, None))
    )
    for epoch in (first, second):
        np.testing.assert_array_equal(unmasked(epoch), written["input_ids"])
        assert not (epoch["masked_lm"] <= MASK)[epoch["masked_positions"] >= 0].any()
        sizes = written["input_mask"].sum(axis=1) - 3
        counts = (epoch["masked_positions"] >= 0).sum(axis=1)
        wanted = np.clip(np.floor(sizes * np.float32(0.15) + 0.5), 1, P)
        np.testing.assert_array_equal(counts, wanted)
    same = (first["masked_positions"] == second["masked_positions"]).all(axis=1)
    assert same.mean() < 0.2


@pytest.mark.slow
def test_settings_of_masks(folders: dict[str, Path]) -> None:
    masking = Masking(rate=0.5, mask_share=1.0, random_share=0.0, max_predictions=30)
    rows = whole(folders["dynamic"], **ALIKE, masking=masking)
    assert rows["masked_positions"].shape[1] == 30
    hidden = (rows["token_ids"] == MASK).sum()
    tokens = (unmasked(rows) > SEP).sum()
    assert hidden / tokens == pytest.approx(0.5, abs=0.03)
    action = functools.partial(batches, folders["static"], masking=masking)
    refused(action, "`masking`", "stored masks")


def key_of(rows: dict[str, np.ndarray]) -> Counter[bytes]:
    return Counter(row.tobytes() for row in unmasked(rows))


def ids_of(dataset: tf.data.Dataset) -> list[np.ndarray]:
    return [batch["token_ids"] for batch, _ in dataset.as_numpy_iterator()]


@pytest.mark.slow
def test_order_of_epochs(folders: dict[str, Path]) -> None:
    rows = whole(folders["static"], **ALIKE)["token_ids"]
    wanted = Counter(row.tobytes() for row in rows)
    dataset = dataset_of(folders["static"], padding="full", seed=3)
    # A second time through is a new epoch; each has each row once.
    first, second = (np.concatenate(ids_of(dataset)) for _ in range(2))
    for epoch in (first, second):
        assert Counter(row.tobytes() for row in epoch) == wanted
    assert (first != second).any() and (first != rows).any()
    # What a new process would see.
    again = np.concatenate(
        ids_of(dataset_of(folders["static"], padding="full", seed=3))
    )
    np.testing.assert_array_equal(again, first)
    other = np.concatenate(
        ids_of(dataset_of(folders["static"], padding="full", seed=4))
    )
    assert (other != first).any()


@pytest.mark.slow
def test_held_out_data_stays_the_same(folders: dict[str, Path]) -> None:
    for redraw in (False, True):
        dataset = dataset_of(folders["dynamic"], redraw=redraw, padding="full")
        one, two = (np.concatenate(ids_of(dataset)) for _ in range(2))
        assert (one != two).any() == redraw


def test_resuming_where_a_run_stopped(folders: dict[str, Path]) -> None:
    settings: dict[str, Any] = {"epochs": None, "padding": "full", "seed": 5}
    rows = len(read(folders["dynamic"], masked=False)["input_ids"])
    skip = rows // 16 + 3  # into the second epoch
    straight = dataset_of(folders["dynamic"], **settings).skip(skip).take(4)
    later = dataset_of(folders["dynamic"], **settings, skip_batches=skip).take(4)
    for a, b in zip(straight, later, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, a, b)


def test_without_pairs_there_are_no_next_sentence_labels(tmp_path: Path) -> None:
    write(tmp_path, next_sentence="none")
    _, labels = batches(tmp_path)[0]
    assert set(labels) == {"masked_lm"}


@pytest.fixture
def google(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """Return a plain file as Google's code writes it, and what is in it."""
    random = np.random.default_rng(0)
    sizes = random.integers(5, T, [20, 1])
    places = np.arange(T)
    ids = np.where(places < sizes, random.integers(5, 60, [20, T]), 0)
    ids[:, 0] = CLS
    np.put_along_axis(ids, sizes - 1, SEP, axis=1)
    rows = {
        "input_ids": ids,
        "input_mask": (places < sizes).astype("int64"),
        "segment_ids": ((places > 2) & (places < sizes)).astype("int64"),
        "masked_lm_positions": np.tile([1, 3, 0], [20, 1]),
        "masked_lm_ids": np.tile([7, 8, 0], [20, 1]),
        "masked_lm_weights": np.tile(np.float32([1, 1, 0]), [20, 1]),
        "next_sentence_labels": random.integers(0, 2, [20, 1]),
    }
    path = tmp_path / "google.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as file:
        for i in range(20):
            example = tf.train.Example()
            for name, values in rows.items():
                feature = example.features.feature[name]
                kind = "float_list" if name.endswith("weights") else "int64_list"
                getattr(feature, kind).value.extend(values[i].tolist())
            file.write(example.SerializeToString())
    return path, rows


def test_files_of_google(google: tuple[Path, dict[str, np.ndarray]]) -> None:
    path, written = google
    for files in (path, str(path), [path], path.parent, path.parent / "*.tfrecord"):
        rows = whole(files, **ALIKE)
        np.testing.assert_array_equal(rows["token_ids"], written["input_ids"])
        assert (rows["masked_positions"] == [1, 3, -1]).all()
        assert (rows["masked_lm"] == [7, 8, -1]).all()
    # Plain and gzipped ones together; without masks, too.
    zipped = path.with_suffix(".tfrecord.gz")
    write_records(zipped, serialize(written))
    assert len(whole(path.parent)["token_ids"]) == 40
    some = {k: v for k, v in written.items() if not k.startswith("masked")}
    write_records(zipped, serialize(some))
    assert (whole(zipped)["masked_positions"] >= 0).any()


def test_a_broken_shard_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folders["static"], tmp_path / "copy"))
    shard = sorted(copy.glob("*.gz"))[-1]
    data = shard.read_bytes()
    half = len(data) // 2  # of the size that the manifest tells
    shard.write_bytes(data[:half] + bytes(len(data) - half))
    line = refused(lambda: list(read_batches(dataset_of(copy), copy)), "cannot be read")
    assert line.startswith(f"{shard}: cannot be read: ")
    assert "{{" not in line and "[Op" not in line


def test_wrong_files(
    folders: dict[str, Path],
    tmp_path: Path,
    google: tuple[Path, dict[str, np.ndarray]],
) -> None:
    path, written = google
    refused(lambda: batches([]), "`files`", "none")
    refused(lambda: batches(tmp_path / "no"), "no such file or folder")
    (tmp_path / "empty").mkdir()
    refused(lambda: batches(tmp_path / "empty"), "contains no file", ".tfrecord.gz")
    few = WordPieceTokenizer(VOCABULARY[:40])
    found = refused(lambda: batches(folders["static"], tokenizer=few), "vocabulary")
    assert "manifest.json" in found and "40" in found
    refused(lambda: batches(path, tokenizer=few), "vocabulary", "40 tokens")
    moved = WordPieceTokenizer([*VOCABULARY[5:], *VOCABULARY[:5]])
    refused(
        lambda: batches(path, tokenizer=moved),
        "begins with the id 2 and ends with 3; received [CLS] ",
    )
    turned = WordPieceTokenizer([*VOCABULARY[:5], *reversed(VOCABULARY[5:])])
    refused(lambda: batches(folders["static"], tokenizer=turned), "vocabulary")
    cased = WordPieceTokenizer(VOCABULARY, lowercase=False)
    refused(
        lambda: batches(folders["static"], tokenizer=cased),
        "manifest.json: was made with other text rules than the tokenizer's: "
        "`lowercase`: True; received False",
    )
    part = tmp_path / "part.tfrecord.gz"
    write_records(part, [])
    refused(lambda: batches(part), "no example")
    write_records(part, serialize({"input_ids": written["input_ids"]}))
    refused(lambda: batches(part), "lack input_mask, segment_ids")
    short = {**written, "segment_ids": written["segment_ids"][:, :3]}
    write_records(part, serialize(short))
    refused(lambda: batches(part), "differ in length")
    refused(lambda: batches([folders["static"] / "manifest.json"]), "not a TFRecord")
    copy = tmp_path / "copy"
    shutil.copytree(folders["static"], copy)
    cut = copy / "part-00001.tfrecord.gz"
    cut.write_bytes(cut.read_bytes()[:-100])
    refused(lambda: batches(copy), "part-00001", "manifest")
    both = [*folders["static"].glob("*.gz"), *folders["dynamic"].glob("*.gz")]
    refused(lambda: batches(both), "one kind", "dynamic and static")
    (copy / "unfinished.jsonl").write_text("{}\n")
    refused(lambda: batches(copy), "unfinished.jsonl", "`bert-keras pretraining-data`")


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"batch_size": 0}, ("`batch_size`", "received 0")),
        ({"shuffle": True}, ("`shuffle`", "True")),
        ({"epochs": 0}, ("`epochs`", "received 0")),
        ({"skip_batches": -1}, ("`skip_batches`", "-1")),
        ({"padding": "some"}, ("`padding`", "longest, full", "'some'")),
    ],
)
def test_wrong_arguments(settings: dict[str, Any], parts: tuple[str, ...]) -> None:
    refused(lambda: batches("data", **settings), *parts)


@pytest.mark.parametrize(
    "settings", [{"epochs": None}, thorough({"redraw": False})], ids=str
)
@pytest.mark.slow
def test_a_global_seed_changes_nothing(
    folders: dict[str, Path], settings: dict[str, Any]
) -> None:
    def first() -> list[tuple[dict, dict]]:
        dataset = dataset_of(folders["dynamic"], seed=0, **settings)
        return list(dataset.take(3).as_numpy_iterator())

    wanted = first()
    try:
        for global_seed in (0, 7):
            tf.random.set_seed(global_seed)
            for found, expected in zip(first(), wanted, strict=True):
                tf.nest.map_structure(np.testing.assert_array_equal, found, expected)
    finally:
        tf.random.set_seed(None)


@pytest.mark.slow
def test_packed_rows_hold_the_examples_and_little_else(
    folders: dict[str, Path],
) -> None:
    settings = {**ALIKE, "padding": "longest", "batch_size": 64}
    ((padded, labels), *_) = batches(folders["static"], **settings)
    ((packed, same), *_) = batches(folders["static"], **settings, layout="packed")
    np.testing.assert_array_equal(same["next_sentence"], labels["next_sentence"])
    assert packed["token_ids"].shape[1] == padded["token_ids"].shape[1]
    assert packed["padding_mask"].sum() == padded["padding_mask"].sum()
    assert packed["padding_mask"].mean() > 0.95 > padded["padding_mask"].mean()
    flat = packed["token_ids"].ravel()
    found, wanted = [], []
    for row, start in enumerate(packed["cls_positions"]):
        size = padded["padding_mask"][row].sum()
        wanted_ids = padded["token_ids"][row, :size]
        np.testing.assert_array_equal(flat[start : start + size], wanted_ids)
        count = (padded["masked_positions"][row] >= 0).sum()
        places = padded["masked_positions"][row, :count] + start
        wanted += zip(places, labels["masked_lm"][row, :count], strict=True)
    length = packed["token_ids"].shape[1]
    for row, column in zip(*np.nonzero(same["masked_lm"] >= 0), strict=True):
        place = row * length + packed["masked_positions"][row, column]
        found.append((place, same["masked_lm"][row, column]))
    assert sorted(found) == sorted(wanted)
