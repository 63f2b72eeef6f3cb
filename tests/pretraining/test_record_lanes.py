"""Lanes of records: one order for any number of replicas, separate files."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import thorough

from bert_keras.distribution.replicas import Share
from bert_keras.files.records import write_records
from bert_keras.pretraining.files import find_files
from bert_keras.pretraining.input import pretraining_dataset
from bert_keras.pretraining.records import RecordLanes, record_places
from pretraining.test_data import TOKENIZER, some_documents, write

BATCH = 8


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return pretraining data in several shards."""
    folder = tmp_path_factory.mktemp("lanes") / "data"
    write(folder, some_documents(240), masking="dynamic", block_characters=4000)
    return folder


@pytest.mark.parametrize("counts", [[5, 0, 7, 1, 3], thorough([40])])
@pytest.mark.slow
def test_each_record_is_taken_once(tmp_path: Path, counts: list[int]) -> None:
    paths = [str(tmp_path / f"{n}.tfrecord") for n in range(len(counts))]
    wanted = []
    for n, (path, count) in enumerate(zip(paths, counts, strict=True)):
        names = [f"{n}/{i}".encode() for i in range(count)]
        write_records(path, names)
        wanted += names
    lanes = RecordLanes(paths, counts, 32, lambda _, records: records)
    assert lanes.count <= len(counts) < 2 * lanes.count
    orders = []
    for epoch in range(2):
        seed = tf.constant(epoch + 5, tf.int64)
        found = list(lanes.epoch(seed).as_numpy_iterator())
        assert [place for _, place in found] == list(range(len(wanted)))
        orders.append([record for record, _ in found])
        assert sorted(orders[-1]) == sorted(wanted)
        for replicas in (1, 2, 4):
            if not lanes.parts_evenly(replicas, 4):
                continue
            for replica in range(replicas):
                own = lanes.epoch(seed, epoch, replica, replicas).as_numpy_iterator()
                places = {place: record for record, place in own}
                begun = epoch * len(wanted)
                assert list(places) == [
                    place
                    for place in range(len(wanted))
                    if (begun + place) % replicas == replica
                ]
                assert all(orders[-1][p] == record for p, record in places.items())
    assert len(wanted) < 10 or orders[0] != orders[1]


def some(data: Path, count: int = 24, **settings: Any) -> list[Any]:
    given = {"batch_size": BATCH, "epochs": None, "padding": "full", **settings}
    dataset = pretraining_dataset(data, TOKENIZER, **given)
    return list(dataset.take(count).as_numpy_iterator())


@pytest.mark.parametrize(
    ("replicas", "skip_batches"),  # from 175 on into the next epoch
    [
        thorough(2, 0),
        (4, 175),
        thorough(3, 3),  # each worker reads all
    ],
)
@pytest.mark.slow
def test_batches_are_those_of_one_device(
    data: Path, replicas: int, skip_batches: int
) -> None:
    batch_size = 9 if replicas == 3 else BATCH
    given = {"batch_size": batch_size, "skip_batches": skip_batches}
    batches = some(data, **given)
    for first in range(replicas):
        share = Share(first, 1, replicas)
        for whole, part in zip(batches, some(data, share=share, **given), strict=True):
            for wanted, found in zip(whole, part, strict=True):
                for name, values in wanted.items():
                    np.testing.assert_array_equal(found[name], values[first::replicas])


@pytest.mark.thorough
def test_a_worker_of_several_replicas_gets_them_in_turn(data: Path) -> None:
    both = some(data, count=12, share=Share(2, 2, 4))
    each = [some(data, count=6, share=Share(r, 1, 4)) for r in (2, 3)]
    turns = list(itertools.chain(*zip(*each, strict=True)))
    for (found, _), (wanted, _) in zip(both, turns, strict=True):
        np.testing.assert_array_equal(found["token_ids"], wanted["token_ids"])


@pytest.mark.thorough
def test_a_worker_opens_only_its_own_files(data: Path, tmp_path: Path) -> None:
    found = find_files(data, TOKENIZER)
    assert len(found.paths) >= 8
    epoch = found.examples or 0
    places = record_places(data, TOKENIZER, first=0, count=epoch, seed=0)
    assert len(set(places)) == epoch
    files: list[set[str]] = [
        {Path(path).name for path, _ in places[worker::2]} for worker in range(2)
    ]
    others = files[1] - files[0]
    assert len(others) >= len(found.paths) // 2 - 2  # one or two files are in both
    shutil.copytree(data, tmp_path / "data")
    for name in others:  # of the size that the manifest tells
        path = tmp_path / "data" / name
        path.write_bytes(bytes(path.stat().st_size))
    batches = epoch // BATCH
    wanted = some(data, batches, share=Share(0, 1, 2))
    got = some(tmp_path / "data", batches, share=Share(0, 1, 2))
    for (one, _), (two, _) in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(one["token_ids"], two["token_ids"])
    with pytest.raises(tf.errors.DataLossError):
        some(tmp_path / "data", batches, share=Share(1, 1, 2))
