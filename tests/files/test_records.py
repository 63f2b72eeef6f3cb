"""Bytes of examples equal to protobuf's, files that are whole or not there."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused

from bert_keras.files.records import (
    compression_of,
    first_example,
    serialize,
    write_records,
)


@pytest.mark.parametrize("largest", [2, 128, 2**14, 2**21, 2**35, 2**62])
def test_examples_are_those_of_the_library(largest: int) -> None:
    random = np.random.default_rng(largest)
    edges = [0, 1, 127, 128, 2**14 - 1, 2**14, largest - 1]
    numbers = random.integers(0, largest, [7, 130])
    numbers[3, :7] = np.minimum(edges, largest - 1)
    features = {
        "input_ids": numbers,
        "small": random.integers(0, 2, [7, 3]).astype("int32"),
        "weights": random.normal(size=[7, 40]).astype("float32"),
        "a name that is rather long " * 6: numbers[:, :1],
    }
    records = serialize(features)
    assert len(records) == 7
    for row, record in enumerate(records):
        example = tf.train.Example.FromString(record)
        assert set(example.features.feature) == set(features)
        for name, values in features.items():
            kind = "float_list" if values.dtype.kind == "f" else "int64_list"
            found = example.features.feature[name]
            assert found.WhichOneof("kind") == kind
            assert list(getattr(found, kind).value) == values[row].tolist()
        assert len(record) == example.ByteSize()  # nothing besides


def test_bytes_that_are_not_an_example() -> None:
    assert serialize({"input_ids": np.zeros([0, 4], "int64")}) == []


def test_negative_numbers_are_rejected() -> None:
    with pytest.raises(ValueError, match="-3"):
        serialize({"input_ids": np.array([[1, -3]])})


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    records = [b"one", b"", b"three" * 1000]
    assert write_records(path, records) == path.stat().st_size
    assert compression_of(path) == "GZIP"
    found = tf.data.TFRecordDataset(str(path), "GZIP")
    assert [record.numpy() for record in found] == records
    again = tmp_path / "b.gz"
    write_records(again, iter(records))
    assert path.read_bytes() == again.read_bytes()  # neither name nor time in them
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.gz", "b.gz"]


def test_a_full_disk(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    write_records(path, [b"old"])
    old = path.read_bytes()
    random = np.random.default_rng(0)
    records = [random.bytes(10_000) for _ in range(200)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        message = f"{path}: cannot be written: File too large"
        refused(lambda: write_records(path, records), message)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == old
    assert [each.name for each in tmp_path.iterdir()] == ["a.gz"]


def test_work_that_fails_leaves_no_file(tmp_path: Path) -> None:
    def records() -> object:
        yield b"one"
        raise KeyError("stop")

    with pytest.raises(KeyError):
        write_records(tmp_path / "a.gz", records())
    assert not list(tmp_path.iterdir())


def test_first_example(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    write_records(
        path, serialize({"a": np.array([[1, 2]]), "b": np.ones([1, 1], "f4")})
    )
    assert first_example(path) == {"a": [1, 2], "b": [1.0]}
    write_records(path, [])
    assert first_example(path) is None
    refused(lambda: first_example(tmp_path / "none"), "none", "cannot be read")
    text = tmp_path / "a.txt"
    text.write_text("A text that is no file of records at all.")
    refused(lambda: first_example(text), "a.txt", "not a TFRecord file")
    write_records(path, [b"\xff\xff\xff"])
    refused(lambda: first_example(path), "a.gz", "other records")
