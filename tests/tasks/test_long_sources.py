"""Sources longer than a row, of the tasks that write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from task_cases.translation import CASES

from bert_keras.data.table import as_columns
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.reading import windows
from bert_keras.tasks.generation import Translation
from bert_keras.training.rows import TrainingRows

PAIRS = next(iter(CASES.values())).columns
SHORT = ["see you at six", "", "win cash now"]
LONG = " ".join(np.random.default_rng(0).choice(" ".join(PAIRS["source"]).split(), 90))
SETTINGS = {"beams": 2, "max_target_length": 6}


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Any]) -> Any:
    """Return an untrained model that reads windows; tests do not change it."""
    found = make_model(Translation(long="windows", stride=15, **SETTINGS))
    return with_large_weights(found)


def with_large_weights(model: Any) -> Any:
    """Return a model whose answers depend on its sources."""
    rng = np.random.default_rng(1)
    for weight in model.trainable_weights:
        if "/crossattention/" in weight.path and weight.path.endswith("kernel"):
            weight.assign(rng.normal(0, 0.3, weight.shape))
    return model


@pytest.fixture(scope="module")
def predictor(model: Any) -> Predictor:
    """Return the model's predictor, whose graph is traced once."""
    return Predictor(model)


def test_a_source_of_one_window_is_read_as_without(
    predictor: Predictor, make_model: Callable[..., Any]
) -> None:
    plain = Predictor(with_large_weights(make_model(Translation(**SETTINGS))))
    found, wanted = (each.predict(SHORT) for each in (predictor, plain))
    assert [row["texts"] for row in found] == [row["texts"] for row in wanted]
    scores = [[row["scores"] for row in rows] for rows in (found, wanted)]
    np.testing.assert_allclose(*scores, rtol=1e-6)


def memory_by_hand(model: Any, text: str) -> np.ndarray:
    """Return the encoder's output for the windows of a source, one after the other."""
    tokenizer, parts = model.preprocessor.tokenizer, []
    pieces = tokenizer([text])[0].numpy()
    for first in range(0, max(len(pieces) - 22, 0) + 15, 15):
        ids = np.array([[tokenizer.cls_id, *pieces[first : first + 22]]])
        ids = np.pad(ids, [[0, 0], [0, 1]], constant_values=tokenizer.sep_id)
        batch = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1}
        parts.append(model.backbone(batch)["sequence_output"][0].numpy())
    return np.concatenate(parts)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_the_decoder_attends_to_all_windows(model: Any, layout: str) -> None:
    sources, targets = [LONG, "see you"], ["win", "see you at"]
    preprocessor = model.preprocessor.replace(layout=layout)
    decoder, task = model.get_layer("decoder"), model.task
    batch, labels, _ = task.examples(
        preprocessor, tf.constant(sources), tf.constant(targets)
    )
    logits, starts = model(batch).numpy(), batch["target_token_ids"].numpy() == 2
    for source, target in zip(sources, targets, strict=True):
        memory = memory_by_hand(model, source)[np.newaxis]
        ids = np.array([[2, *model.preprocessor.tokenizer([target])[0].numpy()]])
        ones = np.ones(memory.shape[:2], "int32")
        wanted = decoder(
            {
                "target_token_ids": ids,
                "target_padding_mask": 0 * ids + 1,
                "memory": memory,
                "padding_mask": ones,
            }
        )
        places = zip(*np.nonzero(starts), strict=True)
        found = [logits[row, at : at + ids.shape[1]] for row, at in places]
        errors = [
            np.abs(each - wanted[0]).max() if each.shape == wanted[0].shape else 1
            for each in found
        ]
        assert min(errors) < 1e-5
        own = task.features(preprocessor, tf.constant(["now", source]))
        states, mask = task._window_memory(model, own)
        assert mask[1].numpy().sum() == memory.shape[1]
        np.testing.assert_allclose(states[1], memory[0], atol=1e-5)


@pytest.mark.slow
def test_folder_and_export_write_the_same_texts(
    model: Any, predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [LONG, *SHORT, f"win {LONG}"]
    wanted = predictor.predict(sources)
    monkeypatch.setattr(windows, "_AT_ONCE", 3)  # several parts of packed rows
    served = load_predictor(export_model(model, tmp_path / "served"))
    assert [row["texts"] for row in served.predict(sources)] == [
        row["texts"] for row in wanted
    ]
    folder = save_model(model, tmp_path / "folder")
    assert "Other tools truncate" in (folder / "README.md").read_text()
    loaded = load_model(folder)
    assert loaded.task == model.task
    columns = as_columns(
        source=[LONG, *PAIRS["source"]], target=["win", *PAIRS["target"]]
    )
    losses = [
        each.task.further_scores(each, columns, 5)["perplexity"]
        for each in (model, loaded)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.slow
def test_training_draws_windows_of_sources(
    make_model: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**SETTINGS, "max_target_length": 3}
    model = make_model(Translation(long="windows", train_windows=2, **settings))
    sources = [f"{source} {LONG}" for source in PAIRS["source"]]
    columns = as_columns(source=sources, target=PAIRS["target"])
    rows = TrainingRows(model, columns, batch_size=8, epochs=3, seed=1)
    drawn = [inputs["token_ids"].numpy() for inputs, _ in rows.dataset()]
    assert len({each.tobytes() for each in drawn}) == 3
    assert all(each.size < 8 * 2 * 24 * 1.5 for each in drawn)
    model.compile(run_eagerly=True)
    model.fit(sources, PAIRS["target"], epochs=1, batch_size=8, verbose=0)
    said = capsys.readouterr().err
    line = "8 of 8 train texts (100%) are longer than 24 tokens: read in 5.0 windows"
    assert f"{line} on average, of which 2 are drawn" in said
    assert "train targets" in said and "truncated to 3 tokens" in said
