"""Several replicas train as one device does: 2 logical CPUs under Mirrored.

A process a strategy; the multi-worker strategy is in `test_workers.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, is_noise, write_encoder
from pretraining.test_data import TOKENIZER, write
from replica_cases import results

from bert_keras.distribution.replicas import distributed
from bert_keras.distribution.strategy import find_strategy

# Weights and sums of losses; the half precisions round what is summed in another order.
TOLERANCES = {"float16": (4e-4, 3e-3), "bfloat16": (6e-3, 3e-2)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a vocabulary and data; its last batch of 14 is one."""
    folder = tmp_path_factory.mktemp("replicas")
    (folder / "vocab").mkdir()
    TOKENIZER.save(folder / "vocab")
    manifest = write(folder / "data", masking="static")
    assert manifest["instances"] % 14 == 1  # one replica of two has none
    return folder


def test_a_dataset_ends_without_waiting_for_the_thread_that_tunes_it() -> None:
    strategy = tf.distribute.get_strategy()
    dataset = distributed(strategy, lambda share: tf.data.Dataset.range(3))
    assert dataset.options().autotune.enabled is False
    assert [int(each) for each in dataset] == [0, 1, 2]


def on_one(folder: Path, *names: str) -> dict[str, dict]:
    """Return weights and results of each case, by name, of one device."""
    devices = find_strategy("single")
    return {name: results(folder, devices, name) for name in names}


def on_two(folder: Path, output: Path, *names: str) -> dict[str, dict]:
    """Return those of two replicas, from a separate process."""
    output.mkdir()
    run_script("replica_cases.py", folder, output, "mirrored", *names)
    return {name: dict(np.load(output / f"{name}.npz")) for name in names}


def run_script(name: str, folder: Path, output: Path, *more: str) -> None:
    """Run a script next to this file in a separate process."""
    words = [str(Path(__file__).parents[1] / name), str(folder), str(output), *more]
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def assert_equal_runs(folder: Path, place: Path, *names: str) -> None:
    one, two = on_one(folder, *names), on_two(folder, place / "two", *names)
    for name in names:
        by_weight, by_sum = TOLERANCES.get(name, (1e-5, 1e-4))
        assert len(one[name]["masked_lm"]) >= 20
        assert set(two[name]) == set(one[name])
        for key, wanted in one[name].items():
            if is_noise(key):
                continue
            found = two[name][key]
            atol = by_weight if key.startswith("weights/") else by_sum
            if name in TOLERANCES and not key.startswith("weights/"):
                # Loss, right answers, count: a rounding may make another one the best.
                np.testing.assert_allclose(found[:, 1], wanted[:, 1], atol=1)
                found, wanted = found[:, ::2], wanted[:, ::2]
            np.testing.assert_allclose(
                found, wanted, atol=atol, rtol=1e-5, err_msg=f"{name} {key}"
            )


@pytest.mark.thorough  # `test_finetuning_replicas.py` runs the same update
def test_two_replicas_are_one_device(folder: Path, tmp_path: Path) -> None:
    # Clipped by the global norm, with weight decay, lengths that differ between the
    # replicas, and a last batch of which one has no example.
    assert_equal_runs(folder, tmp_path, "sgd")


@pytest.mark.thorough
def test_two_replicas_are_one_device_in_all_ways(folder: Path, tmp_path: Path) -> None:
    names = ("adamw", "lamb", "parts", "float16", "bfloat16", "replaced")
    assert_equal_runs(folder, tmp_path, *names)


@pytest.mark.thorough
def test_replicas_drop_other_units(folder: Path, tmp_path: Path) -> None:
    found = on_two(folder, tmp_path / "two", "dropout")["dropout"]
    first, second = found["seeds"]
    assert (first[:, 0] != second[:, 0]).all()
    np.testing.assert_array_equal(first[:, 1], second[:, 1])  # how often they drew
    np.testing.assert_array_equal(found["seeds_again"], found["seeds"])
    assert not np.allclose(*found["dropped"])
    one = on_one(folder, "dropout")["dropout"]
    np.testing.assert_array_equal(one["seeds"][0], first)


@pytest.mark.thorough
def test_fit_on_two_replicas_is_fit_on_one_device(folder: Path, tmp_path: Path) -> None:
    # Epochs end with a batch of one example; weighted, clipped, with masked tokens.
    write_encoder(folder / "encoder")
    for name in ("single", "mirrored"):
        (tmp_path / name).mkdir()
        run_script("fit_cases.py", folder, tmp_path / name, name)
    for name in ("classifier", "own_number", "own_sum", "pretrainer"):
        one, two = (
            np.load(tmp_path / strategy / f"{name}.npz")
            for strategy in ("single", "mirrored")
        )
        assert set(one.files) == set(two.files)
        assert len(one["loss"]) == 2
        for key in one.files:
            if not is_noise(key):
                np.testing.assert_allclose(
                    two[key], one[key], atol=1e-5, rtol=1e-5, err_msg=key
                )


# Pretrains, or resumes, with dropout; one part of the batch at a time.
RUN = """
import sys
from pathlib import Path
import tensorflow as tf
(cpu,) = tf.config.list_physical_devices("CPU")
halves = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, halves)
from pretraining import test_pretrain as t
place, output = map(Path, sys.argv[1:])
t.run(
    place, output, "data", strategy="mirrored", held_out="data", accumulation=2,
    precision="mixed_float16", steps=8,
)
"""


@pytest.mark.thorough
def test_a_run_on_replicas_resumes_with_the_same_bytes(
    folder: Path, tmp_path: Path
) -> None:
    script = tmp_path / "run.py"
    script.write_text(RUN)
    saved = tmp_path / "run" / "checkpoints" / "step-000000008"
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(script), str(folder), str(tmp_path / "run")],
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found.append({path.name: path.read_bytes() for path in saved.iterdir()})
        shutil.rmtree(saved)
    assert "resuming after step 4 of 8" in done.stderr
    assert "strategy mirrored: 2 replicas, 2 CPUs here" in done.stderr
    assert found[0] == found[1]
