"""Fine-tuning on several replicas is that of one device: 2 logical CPUs under Mirrored.

A process a strategy; several workers are in `test_workers.py`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import is_noise, write_encoder
from distribution.test_replicas import run_script
from finetuning_cases import BAD_ROW, results
from task_cases import cases_of

from bert_keras.distribution.strategy import find_strategy
from bert_keras.tasks import TASKS

CASES = {name: list(cases_of(name)) for name in TASKS}
FORMS = [f"{name},{forms[0]},packed" for name, forms in CASES.items()]
FORMS += [f"{name},{CASES[name][-1]},padded" for name in ("embedding", "summarization")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an encoder without dropout, and one with it."""
    folder = tmp_path_factory.mktemp("finetuning")
    write_encoder(folder / "encoder", num_hidden_layers=1)
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    write_encoder(folder / "dropping", num_hidden_layers=1, **rates)
    return folder


def on_two(folder: Path, output: Path, *names: str) -> dict[str, dict]:
    """Return the results of the cases on two replicas, from a separate process."""
    run_script("finetuning_cases.py", folder, output, "mirrored", *names)
    return {name: dict(np.load(output / f"{name}.npz")) for name in names}


def assert_equal(one: dict, two: dict, case: str) -> None:
    assert set(one) == set(two)
    # It adds the same to all choices, so its gradient is rounding alone as well.
    unused = "classifier/bias" if case.startswith("multiple-choice") else None
    for name, wanted in one.items():
        if np.asarray(wanted).dtype.kind in "US":
            assert two[name].tolist() == wanted.tolist()
        elif not is_noise(name) and name != f"weights/{unused}":
            np.testing.assert_allclose(
                two[name], wanted, atol=1e-5, rtol=1e-5, err_msg=f"{case} {name}"
            )


@pytest.mark.slow
def test_two_replicas_are_one_device(folder: Path, tmp_path: Path) -> None:
    # Clipped, with weight decay, batches in parts, a last batch that one replica has
    # no row of, a loss that is NaN in each epoch.
    two = on_two(folder, tmp_path, "classes")
    one = results(folder, tmp_path, find_strategy("single"), "classes")
    assert_equal(one, two["classes"], "classes")
    skipped = two["classes"]["skipped"].tolist()
    assert len(skipped) == 2  # one an epoch
    assert all("the loss is nan" in line and "lines" in line for line in skipped)
    assert all(f" {BAD_ROW + 1}" in line for line in skipped)
    assert np.isfinite(two["classes"]["loss"]).all()


@pytest.mark.thorough
def test_a_run_on_replicas_resumes_with_the_same_bytes(
    folder: Path, tmp_path: Path
) -> None:
    found = on_two(folder, tmp_path, "resumed")["resumed"]
    assert found["stood"].tolist() == ["step-000000003", "step-000000004"]
    for name in [name for name in found if name.startswith("whole ")]:
        again = found[name.replace("whole ", "again ")]
        np.testing.assert_array_equal(again, found[name], err_msg=name)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*You are using a softmax")  # of the one layer
def test_two_replicas_are_one_device_for_each_task(
    folder: Path, tmp_path: Path
) -> None:
    names = [*FORMS, "tags", "classification,single,packed,own"]
    two = on_two(folder, tmp_path, *names)
    for name in names:
        one = results(folder, tmp_path, find_strategy("single"), name)
        assert_equal(one, two[name], name)
