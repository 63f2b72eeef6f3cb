"""Attention as the encoder computes it, of texts, pairs and packed rows."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import thorough

from bert_keras.config import BertConfig
from bert_keras.errors import ConfigError, DataError
from bert_keras.explanations.attention import (
    Attention,
    AttentionList,
    attentions_of,
    explain_attention,
)
from bert_keras.inference.predictor import Predictor
from bert_keras.inference.served_model import ServedModel
from bert_keras.model.encoder import BertEncoder

TEXTS = ["see you at six", "win </script> cash now!", ""]


def test_probabilities_are_those_of_the_encoder(vocabulary: list[str]) -> None:
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        initializer_range=0.5,
    )
    encoder = BertEncoder(config, outputs=("attentions",), seed=1)
    ids = tf.constant([[2, 60, 61, 62, 3], [2, 60, 3, 0, 0]])
    mask = tf.cast(ids > 0, tf.int32)
    batch = {"token_ids": ids, "padding_mask": mask, "segment_ids": ids * 0}
    wanted = [layer.numpy() for layer in encoder(batch)["attentions"]]
    first, second = attentions_of(encoder, batch, vocabulary)
    assert first.probabilities.shape == (2, 2, 5, 5)
    assert second.tokens == ("[CLS]", vocabulary[60], "[SEP]")
    for layer in range(2):
        np.testing.assert_allclose(first.probabilities[layer], wanted[layer][0])
        np.testing.assert_allclose(
            second.probabilities[layer], wanted[layer][1][:, :3, :3], atol=1e-6
        )


def softmax_of_neurons(found: Attention) -> np.ndarray:
    scores = np.einsum("lnqd,lnkd->lnqk", found.queries, found.keys)
    exp = np.exp(scores / np.sqrt(found.queries.shape[-1]))
    return exp / exp.sum(-1, keepdims=True)


@pytest.mark.parametrize("layout", ["packed", thorough("padded")])
def test_texts_do_not_meet_in_a_row(
    make_model: Callable[..., Any], spam_model: Any, layout: str
) -> None:
    model = make_model(spam_model.task, layout=layout)
    together = explain_attention(model, TEXTS)
    for text, found in zip(TEXTS, together, strict=True):
        alone = explain_attention(model, [text])[0]
        assert found.tokens == alone.tokens
        np.testing.assert_allclose(found.probabilities, alone.probabilities, atol=1e-5)
        np.testing.assert_allclose(found.probabilities.sum(-1), 1, atol=1e-5)
        np.testing.assert_allclose(
            softmax_of_neurons(found), found.probabilities, atol=1e-5
        )


def test_pairs_have_two_segments(spam_model: Any) -> None:
    pair, text = explain_attention(spam_model, [("see you", "now"), "see"])
    assert pair.tokens == ("[CLS]", "see", "you", "[SEP]", "now", "[SEP]")
    assert pair.segments.tolist() == [0, 0, 0, 0, 1, 1]
    assert text.tokens == ("[CLS]", "see", "[SEP]")
    cut = explain_attention(spam_model, ["see " * 30], max_length=5)[0]
    assert len(cut.tokens) == 5


def test_an_encoder_needs_no_head(encoder_folder: Path) -> None:
    found = explain_attention(encoder_folder, ["see you"])[0]
    assert found.probabilities.shape == (2, 2, 4, 4)


def test_what_has_no_attention_is_refused(spam_model: Any) -> None:
    exported = Predictor.__new__(Predictor)
    exported.model = ServedModel.__new__(ServedModel)
    with pytest.raises(ConfigError, match="a SavedModel"):
        explain_attention(exported, ["see you"])
    with pytest.raises(DataError, match="a pair of strings.* at index 0"):
        explain_attention(spam_model, [("a", "b", "c")])


def test_the_page_holds_the_numbers(spam_model: Any, tmp_path: Path) -> None:
    found = explain_attention(spam_model, TEXTS)
    page = found.write(tmp_path / "page.html", title="Look").read_text("utf-8")
    assert page.count("</script>") == 2  # none of a text
    data, code = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    shown = json.loads(data)["texts"][1]
    assert tuple(shown["tokens"]) == found[1].tokens
    shades = np.frombuffer(base64.b64decode(shown["probabilities"]), "uint8")
    wanted = found[1].probabilities
    np.testing.assert_allclose(
        (shades.reshape(wanted.shape) / 255.0) ** 2, wanted, atol=5e-3
    )
    keys = np.frombuffer(base64.b64decode(shown["keys"]["values"]), "int8")
    scaled = keys.reshape(shown["shape"]) * (shown["keys"]["largest"] / 127)
    np.testing.assert_allclose(
        scaled, found[1].keys, atol=shown["keys"]["largest"] / 250
    )
    notebook = AttentionList(found[:1])._repr_html_()
    assert notebook.startswith("<iframe srcdoc=") and "<script" not in notebook
