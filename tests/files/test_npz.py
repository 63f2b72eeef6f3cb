"""Large arrays of an npz file are mapped, and equal what NumPy reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bert_keras.files import npz
from bert_keras.files.npz import open_arrays


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_large_arrays_are_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: object
) -> None:
    monkeypatch.setattr(npz, "_LARGE", 1000)
    arrays = {
        "embeddings": np.arange(600, dtype=np.int8).reshape(60, 10),
        "floats": np.arange(400, dtype=np.float32).reshape(4, 100).T,
        "ends": np.arange(300),
        "format": np.array(5),
    }
    save(tmp_path / "a.npz", **arrays)  # type: ignore[operator]
    with open_arrays(tmp_path / "a.npz") as stored:
        assert set(stored) == set(arrays) and len(stored) == 4
        assert "graph" not in stored
        found = {name: stored[name] for name in stored}
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        is_mapped = isinstance(found[name].base, np.memmap)
        assert is_mapped == (save is np.savez and name in ("floats", "ends"))


def test_a_file_that_was_cut_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "_LARGE", 1000)
    objects = np.array([{}] * 500, object)
    np.savez(tmp_path / "a.npz", objects=objects)
    with open_arrays(tmp_path / "a.npz") as stored, pytest.raises(ValueError):
        stored["objects"]
