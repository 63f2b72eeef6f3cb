"""Embeddings against sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.model.contrastive import RankingLoss
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.convert import convert
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.retrieval.embedder import embed
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.regression import Regression
from bert_keras.text.preprocessor import Preprocessor, one_or_all
from bert_keras.text.tokenizer import WordPieceTokenizer

TEXTS = [
    "",
    "How old are you?",
    "  The weather is lovely today.\n",
    "Élan vital, naïve 日本 🎉 cafés",
    "the quick brown fox jumps over the lazy dog " * 40,
]


@pytest.fixture(scope="module")
def open_peer() -> Callable[[Path], Any]:
    """Return a function that opens a folder with sentence-transformers."""
    sentences = pytest.importorskip("sentence_transformers")
    return lambda folder: sentences.SentenceTransformer(str(folder), device="cpu")


def test_minilm_gives_the_same_vectors(minilm: Path, open_peer: Any) -> None:
    wanted = open_peer(minilm).encode(TEXTS)
    np.testing.assert_allclose(embed(minilm, TEXTS), wanted, atol=1e-5, rtol=0)
    packed = load_model(minilm)  # of itself: mean, normalized, 256 tokens
    assert packed.task == Embedding("mean", True)
    assert packed.preprocessor.layout == "packed"
    found = packed.answer(np.array(TEXTS))["embedding"]
    np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("normalize", [True, False])
def test_a_saved_folder_opens_there(
    encoder_folder: Path, tmp_path: Path, open_peer: Any, pooling: str, normalize: bool
) -> None:
    encoder = BertEncoder.from_pretrained(str(encoder_folder), pooler=False)
    tokenizer = WordPieceTokenizer.from_folder(encoder_folder)
    task = Embedding(pooling, normalize)
    model = TaskModel(
        encoder, task, Preprocessor(tokenizer, max_length=24, layout="packed")
    )
    folder = save_model(model, tmp_path / "model")
    wanted = model.answer(np.array(TEXTS))["embedding"]
    peer = open_peer(folder)
    assert peer.max_seq_length == 24
    np.testing.assert_allclose(peer.encode(TEXTS), wanted, atol=1e-5, rtol=0)
    peer.save(str(tmp_path / "theirs"))  # and what is saved there opens here
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    config.pop("bert_keras", None)  # transformers keeps entries that it does not know
    (tmp_path / "theirs" / "config.json").write_text(json.dumps(config))
    again = load_model(tmp_path / "theirs")
    assert (again.task, again.preprocessor.max_length) == (task, 24)
    np.testing.assert_allclose(
        again.answer(np.array(TEXTS))["embedding"], wanted, atol=1e-5, rtol=0
    )


HEADS = [
    Classification(("a", "b", "c"), pooling="mean", normalize=True),
    Classification(("a", "b"), pooling="cls", pairs=True),
    MultiLabel(("a", "b"), pooling="max"),
    Regression(pooling="weightedmean", normalize=True),
]


@pytest.mark.parametrize("task", HEADS, ids=lambda task: f"{task.name}-{task.pooling}")
def test_a_head_on_the_tokens_opens_there(
    make_model: Any, tmp_path: Path, open_peer: Any, task: Any
) -> None:
    model = make_model(task)
    head = model.get_layer("classifier")
    head.bias.assign(np.linspace(0.5, 1, task.units))
    folder = save_model(model, tmp_path / "model")
    parts = (TEXTS, TEXTS[::-1])[: len(task.roles)]
    batch = task.features(
        model.preprocessor, one_or_all(tuple(map(tf.constant, parts)))
    )
    wanted = model.infer(batch)
    items = list(zip(*parts, strict=True)) if task.pairs else TEXTS
    peer = open_peer(folder)
    np.testing.assert_allclose(peer.encode(items), wanted, atol=1e-5, rtol=0)
    # What is trained and saved there has the head in its `Dense` alone.
    peer[-1].linear.bias.data += 1
    peer.save(str(tmp_path / "theirs"))
    again = load_model(tmp_path / "theirs")
    assert again.task == task
    np.testing.assert_allclose(again.infer(batch), wanted + 1, atol=1e-5, rtol=0)
    assert convert(tmp_path / "theirs", tmp_path / "converted") == []
    found = open_peer(tmp_path / "converted").encode(items)
    np.testing.assert_allclose(found, wanted + 1, atol=1e-5, rtol=0)


def test_vectors_of_few_bits(open_peer: Any) -> None:
    from sentence_transformers.util import quantize_embeddings

    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(300, 30)).astype("float32")
    found = PackedVectors.of(vectors, "int8")
    np.testing.assert_array_equal(found.values, quantize_embeddings(vectors, "int8"))
    bits = PackedVectors.of(vectors, "binary")
    np.testing.assert_array_equal(bits.values, quantize_embeddings(vectors, "ubinary"))


def test_losses_with_negatives_and_widths(open_peer: Any) -> None:
    """The same vectors give the losses of sentence-transformers."""
    import torch
    from sentence_transformers import util
    from sentence_transformers.sentence_transformer import losses

    rows = np.random.default_rng(0).normal(size=(4, 3, 6)).astype("float32")
    parts = [torch.tensor(rows[:, place]) for place in range(3)]
    peer = losses.MultipleNegativesRankingLoss(
        torch.nn.Identity(),
        scale=20.0,
        similarity_fct=util.cos_sim,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )
    wanted = sum(
        float(peer.compute_loss_from_embeddings([part[:, :w] for part in parts], None))
        for w in (6, 2)
    )
    numbers = np.arange(12).reshape(4, 3)
    found = RankingLoss(20.0, (2,))(numbers, rows.reshape(12, 6))
    assert float(found) == pytest.approx(wanted, rel=1e-5)
