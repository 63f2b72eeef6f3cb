"""PyLate opens our folders of vectors of tokens, with the same scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.embedder import embed, load_embedder
from bert_keras.tasks.embedding import Embedding
from bert_keras.text.new_tokens import AddedToken
from bert_keras.text.preprocessor import Preprocessor

models = pytest.importorskip("pylate.models")
scores = pytest.importorskip("pylate.scores")

QUERIES = ["win free cash!", "see you", "sale. at home, at six now"]
TEXTS = ["win free cash!", "see you at six, lunch at home now", "sale", "a. b. " * 9]
LAYER = {"units": 8, "activation": "linear", "use_bias": False, "on_tokens": True}


@pytest.mark.parametrize(
    "settings",
    [
        {"query_expansion": 8, "query_length": 8, "document_length": 12},
        {"query_expansion": 8, "query_length": 8, "attend_expansion": True},
        {"prompts": {"query": "[L] ", "document": "[R] "}, "skip_words": (".", "!")},
        {
            "prompts": {"query": "[L] ", "document": "[R] "},
            "query_expansion": 9,
            "query_length": 9,
        },
    ],
    ids=["expansion", "attended", "marks", "marks and expansion"],
)
def test_pylate_scores_alike(
    make_model: Callable[..., Any], tmp_path: Path, settings: dict[str, Any]
) -> None:
    model = make_model(Embedding(kind="tokens", dense=(LAYER,), **settings))
    tokenizer = model.preprocessor.tokenizer
    config = tokenizer.get_config()
    words = [*config["vocabulary"]]
    words[5:7] = "[L]", "[R]"  # in place of letters
    config |= {"vocabulary": words}
    config["added_tokens"] = [AddedToken(each, special=True) for each in ("[L]", "[R]")]
    tokenizer = type(tokenizer)(**config)
    model.preprocessor = Preprocessor(tokenizer, **model.preprocessor.settings())
    folder = save_model(model, tmp_path / "ours")
    assert load_model(folder).task == model.task
    theirs = models.ColBERT(str(folder), device="cpu")
    queries, texts = (
        theirs.encode(given, is_query=given is QUERIES) for given in (QUERIES, TEXTS)
    )
    ours = [
        embed(folder, QUERIES, prompt="query"),
        embed(folder, TEXTS, prompt="document"),
    ]
    for found, wanted in zip(ours, (queries, texts), strict=True):
        for tokens, peers in zip(found, wanted, strict=True):
            np.testing.assert_allclose(tokens[tokens.any(axis=-1)], peers, atol=1e-5)
    found = load_embedder(folder).model.task.similarity.matrix(*ours)
    peers = [
        [float(scores.colbert_scores(q[None], t[None])[0, 0]) for t in texts]
        for q in queries
    ]
    np.testing.assert_allclose(found, peers, atol=1e-5)
