"""Folders of sentence-transformers' SparseEncoder, read and written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from conftest import VOCABULARY

from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.embedder import embed, load_embedder
from bert_keras.tasks.embedding import Embedding

TEXTS = ["win free cash", "see you for lunch at six", "sale"]


def _their_folder(place: Path) -> Path:
    """Write a small random SparseEncoder."""
    import torch
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sentence_transformer.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        initializer_range=0.5,
    )
    base = place / "base"
    BertForMaskedLM(config).eval().save_pretrained(base)
    (base / "vocab.txt").write_text("\n".join(VOCABULARY))
    BertTokenizerFast(str(base / "vocab.txt")).save_pretrained(base)
    first = Transformer(str(base), transformer_task="fill-mask")
    modules = [first, SpladePooling("max")]
    prompts = {"query": "see you ", "document": ""}
    made = SparseEncoder(modules=modules, device="cpu", prompts=prompts)
    made.save_pretrained(str(place / "theirs"))
    return place / "theirs"


def test_their_folder_gives_the_same_vectors(tmp_path: Path) -> None:
    from sentence_transformers import SparseEncoder

    folder = _their_folder(tmp_path)
    theirs, ours = SparseEncoder(str(folder), device="cpu"), load_embedder(folder)
    task: Any = ours.model.task
    assert task.is_sparse and task.prompts == {"query": "see you ", "document": ""}
    for name in ("query", "document"):
        encode = getattr(theirs, f"encode_{name}")
        wanted = encode(TEXTS).to_dense().numpy()
        found = embed(ours, TEXTS, prompt=name)
        np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_they_open_our_folder(make_model: Callable[..., Any], tmp_path: Path) -> None:
    from sentence_transformers import SparseEncoder

    model = make_model(Embedding(kind="sparse", prompts={"query": "see you "}))
    save_model(model, tmp_path / "ours")
    theirs = SparseEncoder(str(tmp_path / "ours"), device="cpu")
    assert theirs.similarity_fn_name == "dot"
    wanted = theirs.encode_query(TEXTS).to_dense().numpy()
    found = embed(tmp_path / "ours", TEXTS, prompt="query")
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert (found > 0).any()
