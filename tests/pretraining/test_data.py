"""The job from documents to shards: output, counts, errors and resuming."""

from __future__ import annotations

import errno
import functools
import hashlib
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, VOCABULARY, files_of, refused

from bert_keras.errors import DataError
from bert_keras.pretraining import data as data_module
from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.pretraining.data import blocks_of, write_pretraining_data
from bert_keras.pretraining.manifest import read_manifest
from bert_keras.text.tokenizer import WordPieceTokenizer

TOKENIZER = WordPieceTokenizer(VOCABULARY)
WORDS = "win cash prize free now see you at six lunch home sale shoes half off".split()
PAD, UNK, CLS, SEP, MASK = range(5)
T, P = 32, 4  # P by default


def some_documents(count: int = 40, *, seed: int = 0) -> Iterator[str]:
    """Yield documents of a sentence a line, of words of one piece and of several."""
    random = np.random.default_rng(seed)
    words = [*WORDS, "sumer", "abc", "zy"]
    for _ in range(count):
        lines = [
            " ".join(random.choice(words, random.integers(1, 12)))
            for _ in range(random.integers(3, 12))
        ]
        yield "\n".join(lines)


def write(folder: Path, documents: Any = None, **settings: Any) -> dict[str, Any]:
    given = {"max_length": T, "block_characters": 3000, "dupe_factor": 2, **settings}
    options = {
        key: given.pop(key)
        for key in ("workers", "characters", "say", "tokenizer", "to_sentences")
        if key in given
    }
    return write_pretraining_data(
        some_documents() if documents is None else documents,
        folder,
        config=PretrainingDataConfig(**given),
        **{
            "to_sentences": str.splitlines,
            "tokenizer": TOKENIZER,
            "say": lambda line: None,
            **options,
        },
    )


def google_features(max_predictions: int) -> dict[str, tf.io.FixedLenFeature]:
    """Return the features that Google's run_pretraining.py reads from each example."""
    masked = [max_predictions]
    return {
        "input_ids": tf.io.FixedLenFeature([T], tf.int64),
        "input_mask": tf.io.FixedLenFeature([T], tf.int64),
        "segment_ids": tf.io.FixedLenFeature([T], tf.int64),
        "masked_lm_positions": tf.io.FixedLenFeature(masked, tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature(masked, tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature(masked, tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }


def read(folder: Path, *, masked: bool = True) -> dict[str, np.ndarray]:
    """Return all examples of a folder, read as Google's code does."""
    features = google_features(P)
    if not masked:
        features = {k: v for k, v in features.items() if not k.startswith("masked")}
    files = tf.data.TFRecordDataset(sorted(map(str, folder.glob("part-*"))), "GZIP")
    rows = files.map(lambda record: tf.io.parse_single_example(record, features))
    (batch,) = rows.batch(10**6)
    return {key: values.numpy() for key, values in batch.items()}


def restored(rows: dict[str, np.ndarray]) -> np.ndarray:
    """Return the tokens as they were before some were hidden."""
    ids = rows["input_ids"].copy()
    row, column = np.nonzero(rows["masked_lm_weights"])
    ids[row, rows["masked_lm_positions"][row, column]] = rows["masked_lm_ids"][
        row, column
    ]
    return ids


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("data") / "static"
    return folder, write(folder, some_documents(300), dupe_factor=4)


def test_rows_are_as_google_reads_them(static: tuple[Path, dict[str, Any]]) -> None:
    rows = read(static[0])
    ids, mask, segments = (
        rows[key] for key in ("input_ids", "input_mask", "segment_ids")
    )
    tokens = restored(rows)
    sizes = mask.sum(axis=1)
    assert (mask == (np.arange(T) < sizes[:, None])).all()
    assert (tokens[:, 0] == CLS).all()
    assert ((tokens == CLS).sum(axis=1) == 1).all()
    assert ((tokens == SEP).sum(axis=1) == 2).all()
    assert (tokens[np.arange(len(tokens)), sizes - 1] == SEP).all()
    assert ((tokens == PAD) == (mask == 0)).all()
    middle = (tokens == SEP).argmax(axis=1)
    wanted = (np.arange(T) > middle[:, None]) & (mask == 1)
    assert (segments == wanted).all()
    assert (middle > 1).all() and (sizes - middle > 2).all()  # neither text is empty
    # What is hidden is the text's own; places are in order, and filled up with 0.
    weights = rows["masked_lm_weights"]
    positions, labels = rows["masked_lm_positions"], rows["masked_lm_ids"]
    assert (positions[weights == 0] == 0).all() and (labels[weights == 0] == 0).all()
    assert (labels[weights == 1] > MASK).all()
    assert (np.diff(weights, axis=1) <= 0).all()
    assert (np.diff(positions)[weights[:, 1:] == 1] > 0).all()
    assert (ids[tokens <= SEP] == tokens[tokens <= SEP]).all()


def test_counts_and_shares(static: tuple[Path, dict[str, Any]]) -> None:
    folder, manifest = static
    rows = read(folder)
    sizes = rows["input_mask"].sum(axis=1)
    counts = rows["masked_lm_weights"].sum(axis=1)
    wanted = np.clip(np.floor((sizes - 3) * np.float32(0.15) + 0.5), 1, P)
    assert (counts == wanted).all()
    hidden = rows["input_ids"] != restored(rows)
    is_mask = rows["input_ids"] == MASK
    total = counts.sum()
    assert is_mask.sum() / total == pytest.approx(0.8, abs=0.02)
    changed = (hidden & ~is_mask).sum() / total
    assert changed == pytest.approx(0.1 * (1 - 1 / len(VOCABULARY)), abs=0.015)
    assert rows["next_sentence_labels"].mean() == pytest.approx(0.55, abs=0.08)
    # The manifest describes the contents.
    assert manifest == read_manifest(folder)
    texts = list(some_documents(300))
    lines = [line for text in texts for line in text.splitlines()]
    ids = TOKENIZER(lines).values.numpy()
    found = {
        "documents": 300,
        "characters": sum(map(len, texts)),
        "sentences": len(lines),
        "tokens": len(ids),
        "instances": len(sizes),
        "real_tokens": sizes.sum(),
        "masked_tokens": total,
        "real_token_share": sizes.sum() / (len(sizes) * T),
        "unknown_token_share": np.mean(ids == UNK),
        "not_next_share": rows["next_sentence_labels"].mean(),
    }
    assert {key: manifest[key] for key in found} == pytest.approx(found)
    vocabulary = "".join(f"{token}\n" for token in VOCABULARY).encode()
    assert manifest["vocabulary_sha256"] == hashlib.sha256(vocabulary).hexdigest()
    assert manifest["settings"]["max_predictions"] == P
    shards = manifest["shards"]
    assert [shard["file"] for shard in shards] == sorted(
        path.name for path in folder.glob("part-*")
    )
    assert len(shards) > 10
    for shard in shards:
        assert (folder / shard["file"]).stat().st_size == shard["bytes"]
        assert shard["documents"] >= 2
    others = {path.name for path in folder.iterdir()} - {s["file"] for s in shards}
    assert others == {"manifest.json"}


def test_duplicates_differ(tmp_path: Path) -> None:
    manifest = write(tmp_path, dupe_factor=3, block_characters=10**6)
    rows = restored(read(tmp_path))
    assert len(rows) == manifest["instances"]
    assert len(np.unique(rows, axis=0)) > 0.95 * len(rows)


def test_whole_words_and_runs(tmp_path: Path) -> None:
    inside = np.array([token.startswith("##") for token in VOCABULARY])
    for unit in ("word", "ngram"):
        write(tmp_path / unit, mask_unit=unit)
        rows = read(tmp_path / unit)
        tokens = restored(rows)
        chosen = np.zeros_like(tokens, bool)
        row, column = np.nonzero(rows["masked_lm_weights"])
        chosen[row, rows["masked_lm_positions"][row, column]] = True
        goes_on = inside[tokens[:, 1:]] & (tokens[:, :-1] > MASK)
        assert (chosen[:, 1:] == chosen[:, :-1])[goes_on].all()
        assert chosen[:, 1:][goes_on].any() and not chosen[tokens <= SEP].any()


def test_dynamic_data_holds_the_tokens_alone(tmp_path: Path) -> None:
    manifest = write(tmp_path, masking="dynamic", dupe_factor=None)
    rows = read(tmp_path, masked=False)
    assert not (rows["input_ids"] == MASK).any()
    assert manifest["masked_tokens"] == 0
    assert manifest["settings"]["dupe_factor"] == 1
    record = next(
        iter(tf.data.TFRecordDataset(tmp_path / "part-00000.tfrecord.gz", "GZIP"))
    )
    names = set(tf.train.Example.FromString(record.numpy()).features.feature)
    assert names == set(rows)


def test_without_pairs_each_token_occurs_once(tmp_path: Path) -> None:
    documents = list(some_documents())
    settings = {"masking": "dynamic", "dupe_factor": 1, "next_sentence": "none"}
    manifest = write(tmp_path, documents, **settings)
    rows = read(tmp_path, masked=False)
    found = np.bincount(rows["input_ids"][rows["input_ids"] > MASK])
    lines = [line for text in documents for line in text.splitlines()]
    np.testing.assert_array_equal(found, np.bincount(TOKENIZER(lines).values.numpy()))
    assert not rows["segment_ids"].any() and not rows["next_sentence_labels"].any()
    assert manifest["instances"] == len(rows["input_ids"])


def test_the_seed_decides(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        write(tmp_path / name, seed=seed)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "same")
    one, other = (restored(read(tmp_path / name))[:50] for name in ("one", "other"))
    assert (one != other).any()


class Text:
    """A document that is more than its text."""

    def __init__(self, text: str) -> None:
        self.text = text


def lines_of(document: Text, *, mark: str) -> list[str]:
    return document.text.split(mark)


def test_documents_of_a_custom_type(tmp_path: Path) -> None:
    documents = [Text(text.replace("\n", "|")) for text in some_documents()]
    manifest = write(
        tmp_path / "own", documents, to_sentences=functools.partial(lines_of, mark="|")
    )
    assert manifest["sentences_by"].endswith("lines_of(mark='|')")
    assert manifest["instances"] == write(tmp_path / "plain")["instances"]


def test_blocks() -> None:
    def sizes(lengths: list[int]) -> list[list[int]]:
        blocks = list(blocks_of(["x" * n for n in lengths], 100))
        assert [block.number for block in blocks] == list(range(len(blocks)))
        assert [block.characters for block in blocks] == [
            sum(map(len, block.documents)) for block in blocks
        ]
        return [list(map(len, block.documents)) for block in blocks]

    assert sizes([]) == []
    assert sizes([5]) == [[5]]
    assert sizes([60, 60, 60, 60, 60]) == [[60, 60], [60, 60, 60]]
    assert sizes([60, 60, 20, 20, 20]) == [[60, 60], [20, 20, 20]]
    assert sizes([60, 60, 20, 20]) == [[60, 60, 20, 20]]
    assert sizes([500, 1, 500, 1]) == [[500, 1], [500, 1]]
    assert sizes([500, 500, 500]) == [[500, 500, 500]]
    one, other = (
        next(blocks_of(texts, 9)).text_blake2b for texts in (["ab", "c"], ["a", "bc"])
    )
    assert one != other


def test_progress(tmp_path: Path) -> None:
    said: list[str] = []
    total = sum(map(len, some_documents()))
    manifest = write(tmp_path, say=said.append, characters=total)
    assert len(said) == len(manifest["shards"]) > 2
    assert f"{total:,} characters  " in said[-1] and "left" not in said[-1]
    assert "characters/s" in said[0]


class Stopped(Exception):
    pass


def stop_after(count: int) -> Any:
    """Return a `say` that fails at the shard of this number."""
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == count:
            raise Stopped

    return say


def test_a_stopped_run_resumes(tmp_path: Path) -> None:
    write(tmp_path / "whole")
    folder = tmp_path / "stopped"
    with pytest.raises(Stopped):
        write(folder, say=stop_after(2))
    assert not (folder / "manifest.json").exists()
    assert len(list(folder.glob("part-*"))) == 2
    # A file half written, a line half written, and a shard that was lost.
    (folder / ".part-00007.tfrecord.gz.123.partial").write_bytes(b"half")
    with open(folder / "unfinished.jsonl", "a") as file:
        file.write('{"number": 7, "fi')
    (folder / "part-00000.tfrecord.gz").unlink()
    times = (folder / "part-00001.tfrecord.gz").stat().st_mtime_ns
    said: list[str] = []
    write(folder, say=said.append)
    assert files_of(folder) == files_of(tmp_path / "whole")
    assert (folder / "part-00001.tfrecord.gz").stat().st_mtime_ns == times
    assert len(said) == len(list(folder.glob("part-*"))) - 1
    # Once more, when everything exists: nothing is written.
    write(folder, say=stop_after(1))
    assert files_of(folder) == files_of(tmp_path / "whole")


def test_a_finished_folder_may_be_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"
    manifest = write(folder)

    def fail(*_: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(data_module, "locked_file", fail)
    monkeypatch.setattr(data_module, "replaced_file", fail)
    assert write(folder) == manifest
    refused(lambda: write(tmp_path / "b"), "Read-only file system")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    def again(_: str) -> None:
        refused(lambda: write(tmp_path / "a"), str(tmp_path / "a"), "another process")

    write(tmp_path / "a", say=again)
    write(tmp_path / "b")
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_another_job_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        write(tmp_path / "begun", say=stop_after(1))
    write(tmp_path / "done")
    before = {name: files_of(tmp_path / name) for name in ("begun", "done")}
    cased = WordPieceTokenizer(VOCABULARY, lowercase=False)
    fewer = WordPieceTokenizer(VOCABULARY[:-1])
    changed = list(some_documents())
    changed[0] += "!"
    more = [*some_documents(), *some_documents(seed=1)]
    for name in ("begun", "done"):
        folder = tmp_path / name
        for settings, part in (
            ({"seed": 43}, "`seed`: 42; received 43"),
            ({"tokenizer": cased}, "`tokenizer.lowercase`: True; received False"),
            ({"tokenizer": fewer}, "`vocabulary_sha256`"),
            ({"to_sentences": str.split}, "`sentences_by`: "),
        ):
            action = functools.partial(write, folder, **settings)
            refused(action, str(folder), "another job", part)
        refused(lambda f=folder: write(f, changed), "part-00000", "text other than")
        assert files_of(folder) == before[name]
    done = tmp_path / "done"
    refused(lambda: write(done, list(some_documents())[:10]), "part-", "text")
    refused(lambda: write(done, more), "part-", "text other")


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    refused(lambda: write(tmp_path), "other files", "notes.txt")
    (tmp_path / "notes.txt").rename(tmp_path / "part-00000.tfrecord.gz")
    refused(lambda: write(tmp_path), "other files", "part-00000")
    assert len(list(tmp_path.iterdir())) == 1
    refused(lambda: write(tmp_path / "part-00000.tfrecord.gz"), "cannot be written")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "manifest.json").write_text("[1]")
    refused(lambda: write(tmp_path / "odd"), "manifest.json", "must be the manifest")


def test_wrong_documents(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    refused(lambda: write(folder, []), "`documents`", "empty")
    refused(lambda: write(folder, ["a\nb"]), "two documents", "received one")
    refused(lambda: write(folder, [3, 4]), "`documents`", "a int")
    assert not folder.exists()
    refused(lambda: write(folder, ["", " \n", "\t"]), "a sentence", "received 3")
    one_text = ["", "a\nb", " "]
    refused(lambda: write(tmp_path / "b", one_text), "two documents with text")
    refused(
        lambda: write(tmp_path / "c", ["a", "b c"], next_sentence="order"),
        *("two sentences, for `next_sentence` order", "received 2 with 2 sentences"),
    )
    given: dict[str, Any] = {"to_sentences": lambda text: [text, 3]}
    refused(lambda: write(tmp_path / "d", **given), "`to_sentences`", "a int")
    assert write(tmp_path / "e", ["a\nb"], next_sentence="order")["documents"] == 1
    assert write(tmp_path / "f", ["a"], next_sentence="none")["instances"] == 2


def test_wrong_arguments(tmp_path: Path) -> None:
    for workers in (0, 1.5, True):
        refused(lambda w=workers: write(tmp_path, workers=w), "`workers`", str(workers))
    without = WordPieceTokenizer([t for t in VOCABULARY if t != "[MASK]"])
    refused(lambda: write(tmp_path, tokenizer=without), "[MASK]")
    here = {"to_sentences": lambda text: [text], "workers": 2}
    refused(lambda: write(tmp_path / "g", **here), "top of a module")


def test_a_full_disk(tmp_path: Path) -> None:
    small, large = some_documents(30), some_documents(400, seed=1)
    documents = [*small, "\n".join(large), "now\nfree"]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limits[1]))
    try:
        refused(
            lambda: write(tmp_path / "a", documents), "part-0000", "cannot be written"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    finished = set(files_of(tmp_path / "a"))
    assert "part-00000.tfrecord.gz" in finished and "manifest.json" not in finished
    write(tmp_path / "a", documents)
    write(tmp_path / "b", documents)
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_errors_of_other_processes_keep_their_attributes() -> None:
    error = DataError("must be so", path="a.txt", line=3)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.path, again.line) == ("a.txt:3: must be so", "a.txt", 3)


@pytest.mark.thorough  # so do two that are killed, see below
def test_two_workers_write_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "two", workers=2)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "kills"),  # a kill: shards that exist before it, besides older ones
    [
        pytest.param(1, (1, 4), marks=pytest.mark.thorough),
        pytest.param(2, (1, 4), marks=pytest.mark.thorough),
        (2, (3,)),
    ],
)
def test_a_killed_run_resumes(
    tmp_path: Path, workers: int, kills: tuple[int, ...]
) -> None:
    folder = tmp_path / "killed"
    # Each process imports the script, and thus makes a tokenizer before it is set up.
    script = (
        "from pretraining.test_data import *\n"
        "if __name__ == '__main__':\n"
        f"    write(Path({str(folder)!r}), some_documents(400), workers={workers})\n"
    )
    (tmp_path / "run.py").write_text(script)
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    env = {**os.environ, "PYTHONPATH": paths}
    random = np.random.default_rng()
    for more in kills:
        wanted = len(list(folder.glob("part-*"))) + more
        with subprocess.Popen([sys.executable, tmp_path / "run.py"], env=env) as run:
            while len(list(folder.glob("part-*"))) < wanted and run.poll() is None:
                time.sleep(0.001)
            time.sleep(random.uniform(0, 0.05))
            run.kill()
        assert run.returncode == -signal.SIGKILL
        assert "manifest.json" not in files_of(folder)
    times = {path: path.stat().st_mtime_ns for path in folder.glob("part-*")}
    journal = (folder / "unfinished.jsonl").read_text()
    write(folder, some_documents(400))
    write(tmp_path / "whole", some_documents(400))
    assert files_of(folder) == files_of(tmp_path / "whole")
    kept = [path for path in times if path.name in journal]
    assert len(kept) >= 2
    assert all(path.stat().st_mtime_ns == times[path] for path in kept)


def test_a_sentence_of_a_megabyte(tmp_path: Path) -> None:
    documents = ["now see you " * 90_000, "x" * 1_000_000 + "\n日本 " + "é" * 300_000]
    manifest = write(tmp_path, documents, dupe_factor=1, block_characters=10**7)
    assert manifest["tokens"] == 270_000 + 1 + 3
    assert manifest["unknown_token_share"] == 2 / manifest["tokens"]
    sizes = read(tmp_path)["input_mask"].sum(axis=1)
    assert sizes.max() <= T
