"""`Preprocessor` as a Keras layer: in functional models, files and on JAX."""

import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.errors import ConfigError
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "day"]
TEXTS = ["good day", "bad", "good bad good day"]


def preprocessor(**settings: Any) -> Preprocessor:
    return Preprocessor(WordPieceTokenizer(WORDS), **settings)


def texts_input(name: str = "text") -> Any:
    return keras.Input((), dtype="string", name=name)


def vectors(batch: dict[str, Any]) -> Any:
    """Return an own model's vectors of a batch, float32 [B, 2]."""
    x = keras.layers.Embedding(len(WORDS), 2)(batch["token_ids"])
    return keras.layers.GlobalAveragePooling1D()(x, mask=batch["padding_mask"])


@pytest.mark.parametrize("kind", ["keras", "saved_model", "export"])
def test_files_of_a_model_of_strings(tmp_path: Path, kind: str) -> None:
    text, texts = texts_input(), tf.constant(TEXTS)
    model = keras.Model(text, vectors(preprocessor(max_length=5)(text)))
    expected = model.predict(texts, verbose=0)
    if kind == "keras":
        model.save(tmp_path / "model.keras")
        found = keras.saving.load_model(tmp_path / "model.keras")(texts)
    elif kind == "export":
        model.export(tmp_path / "model", verbose=False)
        loaded = tf.saved_model.load(tmp_path / "model")
        found = loaded.serve(texts)
    else:
        tf.saved_model.save(model, tmp_path / "model")
        loaded = tf.saved_model.load(tmp_path / "model")
        (found,) = loaded.signatures["serving_default"](texts).values()
    np.testing.assert_array_equal(found, expected)


def test_pairs_in_a_model_are_those_of_a_call() -> None:
    first, second = texts_input("a"), texts_input("b")
    layer, texts = preprocessor(), tf.constant(TEXTS)
    model = keras.Model([first, second], layer((first, second)))
    found, expected = model([texts, texts]), layer((texts, texts))
    assert set(found) == set(expected) == {"token_ids", "segment_ids", "padding_mask"}
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_config_round_trip() -> None:
    layer = preprocessor(max_length=9, length_multiple=2, name="mine")
    again = Preprocessor.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


@pytest.mark.parametrize(
    ("shape", "dtype"), [((3,), "string"), ((), "int32")], ids=["rank", "dtype"]
)
def test_other_inputs_are_refused(shape: tuple[int, ...], dtype: str) -> None:
    with pytest.raises(ConfigError, match="^texts of a model must be .keras.Input"):
        preprocessor()(keras.Input(shape, dtype=dtype))


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([["good", "bad"], ["bad", "day"]], "must be a list or a 1-D"),
        (("good", "bad"), "for pairs a tuple of two lists; received ('good', 'bad')"),
        ((["good"], ["bad"], ["day"]), "for pairs a tuple of two lists"),
        ((["good"], ["bad", "day"]), "a second text for each first one; received 1"),
        (["good", None], "must be strings; received [b'good', None]"),
    ],
)
def test_texts_of_another_form_are_refused(texts: Any, told: str) -> None:
    layer = preprocessor()
    for action in (layer, layer.lengths):
        with pytest.raises(ConfigError, match=f"`texts` .*{re.escape(told)}"):
            action(texts)


def test_a_list_of_two_tensors_is_a_pair() -> None:
    layer, texts = preprocessor(), tf.constant(TEXTS)
    found, expected = layer([texts, texts]), layer((TEXTS, TEXTS))
    np.testing.assert_array_equal(found["token_ids"], expected["token_ids"])


def test_tokens_of_a_symbolic_text_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be strings; received <KerasTensor"):
        WordPieceTokenizer(WORDS)(texts_input())


def test_few_lengths_on_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keras.config.backend", lambda: "jax")
    layer = preprocessor(max_length=100)
    lengths = [
        layer(["good " * count])["token_ids"].shape[1] for count in (1, 14, 15, 40, 200)
    ]
    assert lengths == [16, 16, 32, 64, 100]
    exact = preprocessor(max_length=100, length_multiple=8)(["good " * 15])
    assert exact["token_ids"].shape[1] == 24


@pytest.mark.slow
def test_a_model_of_strings_is_trained_on_what_its_page_says() -> None:
    """Keras itself takes no lists of strings."""
    text, labels = texts_input(), np.array([0, 1, 0])
    model = keras.Model(text, vectors(preprocessor()(text)))
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for given in (np.array(TEXTS, object), tf.constant(TEXTS)):
        model.fit(given, labels, verbose=0)
        assert model.predict(given, verbose=0).shape == (3, 2)
    with pytest.raises(ValueError, match="Unrecognized data type"):
        model.fit(TEXTS, labels, verbose=0)
