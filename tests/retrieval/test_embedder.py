"""Vectors of any encoder: settings of the folder, of the caller, saved folders."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from conftest import ROWS, files_of, refused

from bert_keras.checkpoints.sentence_files import write_sentence_files
from bert_keras.data.table import as_columns
from bert_keras.files.atomic import check_replaceable
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.retrieval import embedder
from bert_keras.retrieval.embedder import embed, load_embedder
from bert_keras.tasks.base import changed
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training.evaluation import evaluate

TEXTS = [text for text, _ in ROWS[:3]] + ["é 日本 🎉", ""]


def test_an_export_of_another_task_or_with_settings_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answering(*, freeze: bool) -> None: ...

    for task in (Classification(("a", "b")), Embedding()):
        loaded = Predictor(cast(Any, SimpleNamespace(task=task, answering=answering)))
        monkeypatch.setattr(embedder, "find_engine", lambda path: "onnx")
        monkeypatch.setattr(embedder, "load_predictor", lambda *a, _=loaded, **b: _)
        message = refused(lambda: load_embedder("export", layers=[1], max_length=9))
        assert message == (
            "export: settings of an export are fixed; received layers, max_length"
            if task.name == "embedding"
            else "export: must be an export of the task embedding; received one of "
            "classification"
        )


@pytest.fixture(scope="module")
def states(encoder_folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return for each text alone its hidden states [3, T, H] and its tokens [T]."""
    encoder = BertEncoder.from_pretrained(
        str(encoder_folder), outputs=("hidden_states",)
    )
    tokenizer = WordPieceTokenizer.from_folder(encoder_folder)
    preprocessor = Preprocessor(tokenizer, max_length=40, layout="padded")
    found = []
    for text in TEXTS:
        batch = preprocessor([text])
        hidden = encoder(batch)["hidden_states"]
        found.append((np.stack([x[0] for x in hidden]), batch["token_ids"][0].numpy()))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, lambda x: x[2].mean(0)),
        ({"layers": "embeddings", "pooling": "cls"}, lambda x: x[0][0]),
        ({"layers": "second-to-last", "pooling": "max"}, lambda x: x[1].max(0)),
        ({"layers": "all"}, lambda x: (x[1] + x[2]).mean(0)),
        (
            {"layers": [2, 0], "combine_layers": "concat", "pooling": "cls"},
            lambda x: np.concatenate([x[2][0], x[0][0]]),
        ),
        ({"normalize": True}, lambda x: x[2].mean(0) / np.linalg.norm(x[2].mean(0))),
    ],
)
def test_the_choices_of_the_paper(
    states: list[Any],
    encoder_folder: Path,
    settings: dict[str, Any],
    wanted: Callable[[np.ndarray], np.ndarray],
) -> None:
    found = embed(encoder_folder, TEXTS, batch_size=2, **settings)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, [wanted(x) for x, _ in states], atol=1e-5)


def test_a_folder_of_sentence_transformers_has_its_settings(
    states: list[Any], encoder_folder: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(encoder_folder, tmp_path / "sentences"))
    write_sentence_files(
        folder, hidden_size=16, pooling="max", normalize=True, max_length=5
    )
    model = load_model(folder)  # without a given task
    assert model.task == Embedding("max", True)
    assert model.preprocessor.max_length == 5
    predictor = load_embedder(folder, max_length=40)
    wanted = [x[2].max(0) / np.linalg.norm(x[2].max(0)) for x, _ in states]
    np.testing.assert_allclose(embed(predictor, TEXTS), wanted, atol=1e-5)
    assert embed(predictor, []).shape == (0, 16)
    assert embed(folder, ["see you"], pooling="cls", normalize=False).shape == (1, 16)


def test_a_saved_model_is_a_folder_of_sentence_transformers(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    task = Embedding("cls", False, objective="similarity", scale=5.0)
    folder = save_model(make_model(task), tmp_path / "model")
    assert {"modules.json", "1_Pooling/config.json"} < set(files_of(folder))
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertModel"]
    wanted = embed(folder, TEXTS)
    del config["bert_keras"]
    (folder / "config.json").write_text(json.dumps(config))
    np.testing.assert_array_equal(embed(folder, TEXTS), wanted)
    assert load_model(folder).preprocessor.max_length == 24


def test_a_saved_folder_is_replaced_except_for_other_files(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model, folder = make_model(Embedding()), tmp_path / "model"
    save_model(model, folder)
    save_model(model, folder)
    (folder / "1_Pooling" / "notes.txt").write_text("mine")
    refused(lambda: check_replaceable(folder), "1_Pooling/notes.txt")


@pytest.mark.slow
def test_learned_weights_of_layers_round_trip(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = make_model(Embedding(layers="all", combine_layers="weighted"))
    model.get_layer("layer_mix").set_weights([np.array([2.0, -1.0])])
    folder = save_model(model, tmp_path / "model")
    assert "modules.json" not in files_of(folder)  # it has no words for this
    wanted = model.answer(np.array(TEXTS))["embedding"]
    np.testing.assert_allclose(embed(folder, TEXTS), wanted, atol=1e-5)
    # Other choices ignore the weights; other tasks train on the encoder.
    assert embed(folder, TEXTS, layers="last", combine_layers="sum").shape == (5, 16)
    assert BertEncoder.from_pretrained(str(folder)).config.hidden_size == 16


def test_unlearned_weights_of_layers_are_rejected(encoder_folder: Path) -> None:
    settings = {"layers": "all", "combine_layers": "weighted"}
    refused(
        lambda: embed(encoder_folder, TEXTS, **settings), "`combine_layers`", "learned"
    )


def test_a_model_of_another_task_provides_its_encoder(spam_folder: Path) -> None:
    vectors = embed(spam_folder, TEXTS)
    assert vectors.shape == (5, 16)
    encoder = BertEncoder.from_pretrained(str(spam_folder))
    tokenizer = WordPieceTokenizer.from_folder(spam_folder)
    batch = Preprocessor(tokenizer, max_length=24, layout="packed")([TEXTS[0]])
    wanted = encoder(batch)["sequence_output"][0].numpy().mean(0)
    np.testing.assert_allclose(vectors[0], wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"max_length": 41}, ["`max_length`", "40", "41"]),
        ({"layers": 3}, ["`layers`", "3"]),
        ({"pooling": "sum"}, ["`pooling`", "sum"]),
        ({"precision": "int8"}, ["`precision`", "int8"]),
        ({"pool": "max"}, ["'pool'"]),
    ],
)
def test_wrong_settings(
    encoder_folder: Path, settings: dict[str, Any], parts: list[str]
) -> None:
    refused(lambda: embed(encoder_folder, TEXTS, **settings), *parts)


def test_wrong_sources_and_texts(spam_folder: Path, encoder_folder: Path) -> None:
    refused(
        lambda: embed(load_predictor(spam_folder), TEXTS), "`source`", "classification"
    )
    refused(lambda: embed(encoder_folder, "see you"), "`texts`", "see you")


def test_evaluation_of_an_encoder_without_training(encoder_folder: Path) -> None:
    predictor = load_embedder(encoder_folder)
    pairs = as_columns(text=TEXTS[:3], text_pair=TEXTS[:3])
    assert evaluate(predictor, pairs)["mrr"] == 1.0
    labelled = as_columns(text=TEXTS[:2], text_pair=TEXTS[1:3], label=["0", "x"])
    refused(lambda: evaluate(predictor, labelled), ":2:", "`label`", "'x'")


@pytest.mark.slow
def test_shortened_vectors(
    make_model: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = make_model(Embedding(dimensions="8,4"))
    folder = save_model(model, tmp_path / "model")
    whole = embed(folder, TEXTS)
    wanted = whole[:, :4] / np.linalg.norm(whole[:, :4], axis=1, keepdims=True)
    for source in (folder, load_embedder(folder)):
        found = embed(source, TEXTS, dimensions=4)
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert "was trained for" not in capsys.readouterr().err
    assert embed(folder, TEXTS, dimensions=5).shape == (5, 5)
    assert "dimensions 5: the model was trained for" in capsys.readouterr().err
    for source in (folder, load_embedder(folder, dimensions=8)):
        action = functools.partial(embed, source, TEXTS, dimensions=17)
        refused(action, "`dimensions` must be at most 16", "received 17")
    refused(lambda: make_model(Embedding(dimensions=(17,))), "`dimensions`", "16", "17")
    model.task = changed(model.task, truncate_dim=4)
    again = load_model(save_model(model, tmp_path / "short"))
    np.testing.assert_allclose(again.answer(np.array(TEXTS))["embedding"], wanted, 1e-5)
    rows = as_columns(text=TEXTS[:3], text_pair=TEXTS[:3])
    scores = evaluate(load_embedder(folder), rows)
    assert {"mrr", "mrr_of_width_8", "mrr_of_width_4"} < set(scores)


def test_the_former_place_of_public_names_still_works() -> None:
    with pytest.warns(DeprecationWarning, match=r"bert_keras\.retrieval\.embed"):
        from bert_keras.inference import embed as former
    assert former is embed
