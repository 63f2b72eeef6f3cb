"""The masked language model: inputs, answers, scores, training and checkpoints."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROWS, SHARED, VOCABULARY, refused, write_tsv

from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.loading import load_model, new_model
from bert_keras.models.model_folder import save_model
from bert_keras.runs.notes import collected
from bert_keras.tasks.masked_lm import MaskedLM, pseudo_perplexity
from bert_keras.training.config import TrainConfig
from bert_keras.training.evaluation import evaluate
from bert_keras.training.finetune import train
from bert_keras.training.rows import TrainingRows

TEXTS = [text for text, _ in ROWS]
GOOGLE = SHARED / "data" / "tf1_ckpt_keras_bert"


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Any]) -> Any:
    """Return an untrained masked language model."""
    return make_model(MaskedLM(top_k=3))


@pytest.fixture(scope="module")
def predictor(model: Any) -> Predictor:
    return Predictor(model)


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(model, tmp_path_factory.mktemp("masked") / "model")


# Answers.


def test_each_mask_has_its_words(predictor: Predictor) -> None:
    one, none, three = predictor.predict(
        ["see [MASK] at six", "see you at six", "[MASK], lunch[MASK]at [MASK]"]
    )
    assert [len(row["masks"]) for row in (one, none, three)] == [1, 0, 3]
    assert none == {"masks": [], "sequences": []}
    for row in (one, three):
        for mask in row["masks"]:
            numbers = [each["probability"] for each in mask]
            assert numbers == sorted(numbers, reverse=True)
            assert 0 < sum(numbers) < 1
    words = [each["token"].removeprefix("##") for each in one["masks"][0]]
    assert [text.replace(" ", "") for text in one["sequences"]] == [
        f"see{word}atsix" for word in words
    ]


def fill(model: Any, text: str, *tokens: str) -> str:
    """Return the first sequence of an answer whose masks are sure of the tokens."""
    batch = model.task.features(model.preprocessor, tf.constant([text]))
    size = int(tf.size(batch["masked_positions"]))
    logits = np.zeros((size, len(VOCABULARY)), "float32")
    for slot, token in zip(batch["slots"].flat_values.numpy(), tokens, strict=True):
        logits[slot, VOCABULARY.index(token)] = 50
    shape = (*batch["masked_positions"].shape, len(VOCABULARY))
    answers = model.task.answer(tf.reshape(logits, shape), batch)
    return answers["sequences"].numpy()[0, 0].decode()


@pytest.mark.parametrize(
    ("text", "tokens", "filled"),
    [
        ("see [MASK] at six", ["you"], "see you at six"),
        ("[MASK] [MASK]!", ["win", "cash"], "win cash!"),
        ("Half[MASK]off é", ["six"], "Halfsixoff é"),
        ("see [MASK] now", ["##s"], "sees now"),  # a piece joins its word
        ("see ## [MASK]", ["you"], "see ## you"),
        ("[MASK]", ["日"], "日"),
        ("win " * 30 + "[MASK]", [], "win " * 30 + "[MASK]"),  # truncated
        ("[MASK] " + "win " * 30 + "[MASK]", ["you"], "you " + "win " * 30 + "[MASK]"),
    ],
)
def test_texts_are_filled(
    model: Any, text: str, tokens: list[str], filled: str
) -> None:
    assert fill(model, text, *tokens) == filled


def test_a_text_without_a_mask_is_told(predictor: Predictor) -> None:
    with collected(shown=False) as notes:
        predictor.predict(["see [MASK]", "see [mask]", "see"])
    assert notes == ["texts without [MASK] have no word to fill: their `masks` are []"]


def test_only_the_mask_is_parsed(model: Any) -> None:
    texts = tf.constant(["[SEP] [mask] [MASK] [CLS]"])
    batch = model.task.features(model.preprocessor, texts)
    ids = batch["token_ids"].numpy().ravel().tolist()
    count = {token: ids.count(VOCABULARY.index(token)) for token in VOCABULARY[:5]}
    assert (count["[CLS]"], count["[SEP]"], count["[MASK]"]) == (1, 1, 1)


def test_masks_in_training_texts_are_plain_text(model: Any) -> None:
    task = MaskedLM(mask_share=0.0)
    x = tf.constant(["win [MASK] now"])
    for batch in (
        task.examples(model.preprocessor, x, tf.constant([1], tf.int64))[0],
        task.scored_batch(model.preprocessor, x),
    ):
        assert VOCABULARY.index("[MASK]") not in batch["token_ids"].numpy()


@pytest.mark.thorough
def test_more_answers_than_tokens(model: Any, make_model: Callable[..., Any]) -> None:
    many = make_model(MaskedLM(top_k=1000))
    (row,) = Predictor(many).predict(["see [MASK]"])
    (mask,) = row["masks"]
    assert len(mask) == len(VOCABULARY)
    assert sum(each["probability"] for each in mask) == pytest.approx(1, abs=1e-5)


# Scores.


def test_scores_by_hand() -> None:
    answers = {
        "loss": np.array([2.0, 0.0, 4.0], "float32"),
        "predictions": np.array([1, 0, 3], "int32"),
        "correct": np.array([0, 0, 3], "int32"),
    }
    scores = MaskedLM().score(as_columns(text=["a", "b", "c"]), answers)
    assert scores["loss"] == 1.5 == -scores["log_likelihood"]
    assert scores["perplexity"] == pytest.approx(math.exp(1.5))
    assert (scores["accuracy"], scores["num_predictions"]) == (0.75, 4)


def test_scores_are_those_of_the_loss(model: Any, predictor: Predictor) -> None:
    columns = as_columns(text=TEXTS)
    scores = evaluate(predictor, columns, batch_size=5)
    batch = model.task.scored_batch(model.preprocessor, tf.constant(TEXTS))
    loss = model.task.loss()(batch["labels"], model(batch))
    assert scores["loss"] == pytest.approx(float(loss), rel=1e-5)
    assert scores["num_predictions"] == int(
        tf.reduce_sum(tf.cast(batch["labels"] >= 0, tf.int32))
    )
    again = evaluate(predictor, as_columns(text=TEXTS[::-1]), batch_size=3)
    assert again["loss"] == pytest.approx(scores["loss"], rel=1e-5)


def test_pseudo_perplexity(model: Any, predictor: Predictor) -> None:
    found = pseudo_perplexity(predictor, ["win cash now", "", "six"], batch_size=2)
    assert [row["tokens"] for row in found] == [3, 0, 1]
    assert found[1]["pseudo_perplexity"] is None
    whole = Predictor(model).model
    total = 0.0
    for place, word in enumerate(["win", "cash", "now"]):
        words = ["win", "cash", "now"]
        words[place] = "[MASK]"
        batch = whole.task.features(whole.preprocessor, tf.constant([" ".join(words)]))
        logits = whole(batch)[0, 0].numpy().astype("float64")
        total += logits[VOCABULARY.index(word)] - np.log(np.exp(logits).sum())
    assert found[0]["log_likelihood"] == pytest.approx(total, abs=1e-4)
    assert found[0]["pseudo_perplexity"] == pytest.approx(math.exp(-total / 3), 1e-4)


def test_pseudo_perplexity_of_another_task(spam_model: Any) -> None:
    other = Predictor(spam_model)
    refused(lambda: pseudo_perplexity(other, ["a"]), "masked-lm", "classification")
    refused(lambda: pseudo_perplexity(other, "a"), "list of strings")


# Files and the command line.


def test_lines_of_a_text_file(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("one, two\tthree\r\n\n \nvier é\n".encode())
    columns = MaskedLM.read(file)
    assert columns["text"] == ["one, two\tthree", "vier é"]
    assert columns.lines == [1, 4]


def test_a_column_of_a_table(tmp_path: Path) -> None:
    file = write_tsv(tmp_path / "a.tsv", [("text", "label"), ("win now", "x")])
    assert MaskedLM.read(file)["text"] == ["win now"]
    named = MaskedLM.read(file, columns={"text": "label"})
    assert named["text"] == ["x"]


@pytest.mark.slow
def test_settings_of_a_trained_model(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["predict", str(folder), "see [MASK]", "--set", "top_k=1"]
    assert main(command) == 0
    (mask,) = json.loads(capsys.readouterr().out)["masks"]
    assert len(mask) == 1
    file = tmp_path / "texts.txt"
    file.write_text("win cash now\nsee you\n")
    settings = ["--set", "pseudo_perplexity_texts=1", "--json"]
    assert main(["evaluate", str(folder), str(file), *settings]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["pseudo_perplexity_tokens"] == 3
    predictor = load_predictor(folder)
    (expected,) = pseudo_perplexity(predictor, ["win cash now"])
    wanted = expected["pseudo_perplexity"]
    assert scores["pseudo_perplexity"] == pytest.approx(wanted, rel=1e-4)
    assert main([*command[:-1], "top_k=0"]) == 2
    assert "`top_k`" in capsys.readouterr().err


def test_other_settings_are_kept(
    spam_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["predict", str(spam_folder), "win", "--set", "pairs=true"]
    assert main(command) == 2
    expected = "a trained classification model may change"
    error = capsys.readouterr().err
    assert expected in error and "received pairs" in error


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"top_k": 0}, ("`top_k`", "received 0")),
        ({"pseudo_perplexity_texts": -1}, ("`pseudo_perplexity_texts`", "-1")),
        ({"mask_rate": 2}, ("`mask_rate`", "2")),
        ({"mask_unit": "x"}, ("`mask_unit`", "'x'")),
    ],
)
def test_wrong_settings(settings: dict[str, Any], parts: tuple[str, ...]) -> None:
    refused(lambda: MaskedLM(**settings), *parts)


# Training.


@pytest.mark.slow
def test_masks_are_redrawn_and_follow_the_seed(model: Any) -> None:
    draws = tf.range(len(TEXTS), dtype=tf.int64)
    texts, drawn = MaskedLM().resample((TEXTS, np.zeros(len(TEXTS))), draws)
    assert texts is TEXTS and drawn is draws
    columns = as_columns(text=TEXTS)

    def hidden(seed: int) -> list[list[Any]]:
        rows = TrainingRows(model, columns, batch_size=4, epochs=2, seed=seed)
        labels = [each["targets"].numpy().tolist() for _, each in rows.dataset()]
        return [labels[: rows.steps_per_epoch], labels[rows.steps_per_epoch :]]

    first, second = hidden(1)
    assert first != second
    assert hidden(1) == [first, second]
    assert hidden(2)[0] != first


@pytest.mark.thorough
def test_training_on_lines_lowers_the_loss(
    encoder_folder: Path, tmp_path: Path
) -> None:
    texts = as_columns(text=TEXTS * 20)
    dev = as_columns(text=TEXTS)

    result = train(
        MaskedLM,
        encoder=encoder_folder,
        train=texts,
        dev=dev,
        output=tmp_path / "model",
        config=TrainConfig(epochs=3, batch_size=8, learning_rate=1e-2, max_length=24),
        task_settings={"mask_unit": "word"},
    )
    curve = [row["dev_loss"] for row in result.history if "dev_loss" in row]
    assert curve[-1] < 0.7 * math.log(len(VOCABULARY))
    assert result.scores["dev"]["loss"] == min(curve)
    loaded = load_model(result.folder)
    assert loaded.task == result.model.task
    (row,) = Predictor(loaded).predict(["half off at the [MASK]"])
    assert row["masks"][0][0]["token"] == "sale"


@pytest.mark.slow
def test_training_starts_from_the_head_of_the_checkpoint(
    folder: Path,
    model: Any,
    encoder_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = TrainConfig(max_length=24)
    mine = {w.path: w.numpy() for w in model.weights if w.path.startswith("cls/")}
    mine["cls/predictions/output_bias"] += 1
    changed = load_model(folder)
    for weight in changed.weights:
        if weight.path in mine:
            weight.assign(mine[weight.path])
    save_model(changed, folder.parent / "changed")
    loaded = new_model(MaskedLM(), folder.parent / "changed", config)
    assert "randomly" not in capsys.readouterr().err
    for weight in loaded.weights:
        if weight.path in mine:
            np.testing.assert_array_equal(weight.numpy(), mine[weight.path])
    new_model(MaskedLM(), encoder_folder, config)
    said = capsys.readouterr().err
    line = "no masked-LM head (cls/predictions): it is initialized randomly"
    assert f"the checkpoint has {line}" in said


def test_half_a_head_is_rejected(folder: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    half = tmp_path / "half"
    shutil.copytree(folder, half)
    tensors = load_file(half / "model.safetensors")
    del tensors["cls.predictions.bias"]
    save_file(tensors, half / "model.safetensors", metadata={"format": "pt"})
    config = TrainConfig(max_length=24)
    refused(
        lambda: new_model(MaskedLM(), half, config),
        "missing",
        "predictions/output_bias",
    )
    refused(lambda: load_model(half), "missing", "predictions/output_bias")


@pytest.mark.slow
@pytest.mark.skipif(not GOOGLE.is_dir(), reason=f"there is no {GOOGLE}")
def test_the_head_of_googles_checkpoint() -> None:
    model = load_model(GOOGLE, task="masked-lm")
    reader = tf.train.load_checkpoint(str(GOOGLE / "bert_model.ckpt"))
    for weight in model.weights:
        np.testing.assert_array_equal(weight.numpy(), reader.get_tensor(weight.path))
    (row,) = Predictor(model).predict(["all work and no [MASK] makes jack"])
    assert len(row["masks"][0]) == 5
    started = new_model(MaskedLM(), GOOGLE, TrainConfig(max_length=16))
    bias = next(w for w in started.weights if w.path.endswith("output_bias"))
    np.testing.assert_array_equal(bias.numpy(), reader.get_tensor(bias.path))


@pytest.mark.slow
def test_fit_without_targets_draws_new_masks_in_each_epoch(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(MaskedLM())
    model.compile(run_eagerly=True)
    seen, step = [], model.train_step
    model.train_step = lambda data: seen.append(data[1].numpy()) or step(data)
    rows = tf.data.Dataset.from_tensor_slices(TEXTS).batch(len(TEXTS))
    for x in (TEXTS, rows):
        seen.clear()
        keras.utils.set_random_seed(1)
        options = {"batch_size": len(TEXTS)} if x is TEXTS else {}
        model.fit(x, epochs=2, shuffle=False, verbose=0, **options)
        assert len(seen) == 2
        assert seen[0].shape != seen[1].shape or (seen[0] != seen[1]).any()
        first = seen.pop(0)
        keras.utils.set_random_seed(1)
        model.fit(x, shuffle=False, verbose=0, **options)
        np.testing.assert_array_equal(seen[1], first)


@pytest.mark.parametrize("given", [True, False])
def test_weights_of_texts_are_refused(
    make_model: Callable[..., Any], given: bool
) -> None:
    model = make_model(MaskedLM())
    model.compile()
    y, weights = np.arange(len(TEXTS)) if given else None, np.ones(len(TEXTS))
    action = lambda: model.fit(TEXTS, y, sample_weight=weights, verbose=0)  # noqa: E731
    refused(action, "`sample_weight` must be None")
    texts = tf.constant(TEXTS)
    refused(lambda: model.preprocess_samples(texts, texts), "`y` must be left out")


@pytest.mark.slow
def test_scores_without_targets_are_of_the_same_masks_each_time(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(MaskedLM())
    model.compile(keras.optimizers.SGD(0.0))
    first, second = (model.evaluate(TEXTS, verbose=0) for _ in range(2))
    assert first == second
    found = model.fit(TEXTS, validation_data=(TEXTS,), epochs=2, verbose=0).history
    assert found["val_loss"] == [pytest.approx(first[0])] * 2
    found = model.fit(TEXTS, validation_split=0.5, verbose=0).history
    assert set(found) >= {"loss", "val_loss"}
