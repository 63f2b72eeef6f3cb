"""The score of a linear head before a long run, and the model that Ctrl-C keeps."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import ROWS

from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import load_predictor
from bert_keras.runs.stop_signal import RunStopped
from bert_keras.training import first_score
from bert_keras.training.config import TrainConfig
from bert_keras.training.finetune import TRAINERS, train

TEXTS, LABELS = (list(column) for column in zip(*ROWS, strict=True))
COLUMNS = as_columns(text=TEXTS, label=LABELS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "settings", "dev"),
    [
        ("finetune", {"epochs": 1}, COLUMNS),
        ("contrastive", {}, None),
        ("finetune", {"epochs": 1, "linear_probe": True}, COLUMNS),
    ],
)
def test_a_long_run_has_a_first_score_that_ctrl_c_keeps(
    method: str,
    settings: dict[str, Any],
    dev: Any,
    encoder_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = functools.partial(
        train,
        "classification",
        encoder=encoder_folder,
        train=COLUMNS,
        dev=dev,
        config=TrainConfig(
            method=method, max_length=24, explain_mistakes=0, **settings
        ),
    )
    without = run(output=tmp_path / "without")
    assert "first_score" not in without.report["settings"]
    assert (
        " by a linear head on vectors of the encoder; " not in capsys.readouterr().err
    )
    monkeypatch.setattr(first_score, "LEAST_WORK", 0)

    def stopped(*_: Any) -> None:
        raise RunStopped("stopped", by_hand=True)

    output = tmp_path / "m"
    with monkeypatch.context() as patch:
        patch.setattr(TRAINERS[method], "train", stopped)
        # The first score is by `HeadFit`, whose `train` a subclass inherits.
        with pytest.raises(RunStopped, match=f"{output} is the model of the first"):
            run(output=output)
    told = capsys.readouterr().err
    assert "by a linear head on vectors of the encoder; Ctrl-C keeps it" in told
    assert load_predictor(output).predict(TEXTS[:2])
    (name,) = json.loads((output / "scores.json").read_text("utf-8"))
    of_dev = dev is not None and "linear_probe" not in settings
    assert (name == "dev") == of_dev
    found = run(output=output)
    assert "Ctrl-C keeps it" not in capsys.readouterr().err
    line = found.report["settings"]["first_score"]
    assert ("training changed it by" in line) == (of_dev or dev is None)
    for one, other in zip(without.model.weights, found.model.weights, strict=True):
        assert (one.numpy() == other.numpy()).all()
    # A model that was there before stays.
    monkeypatch.setattr(TRAINERS[method], "train", stopped)
    with pytest.raises(RunStopped, match=r"\.m\.run/first is the model of the first"):
        run(output=output)
