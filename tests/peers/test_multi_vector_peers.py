"""Folders of sentence-transformers' MultiVectorEncoder and of PyLate, read and written.

The peer reads PyLate's folders, too; it scores them as PyLate does.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import VOCABULARY, refused

from bert_keras.checkpoints.sentence_files import MODEL_SETTINGS
from bert_keras.checkpoints.sentence_modules import MODEL_KEYS, MODULES
from bert_keras.models.convert import convert
from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.embedder import embed, load_embedder
from bert_keras.tasks.embedding import Embedding

sentences = pytest.importorskip("sentence_transformers", minversion="6")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from sentence_transformers.base.modules import (  # noqa: E402
    Dense,
    Normalize,
    Transformer,
)
from sentence_transformers.multi_vector_encoder.modules import (  # noqa: E402
    MultiVectorMask,
)

TEXTS = ["win free cash!", "see you at six, lunch at home now", "sale", "a. b. " * 9]
WORDS = [*VOCABULARY, "[unused0]", "[unused1]"]
TOKENS = "token_embeddings"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a small random encoder whose vocabulary has marks."""
    torch.manual_seed(0)
    place = tmp_path_factory.mktemp("base")
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        initializer_range=0.5,
    )
    transformers.BertModel(config).save_pretrained(place)
    (place / "vocab.txt").write_text("\n".join(WORDS))
    own = transformers.BertTokenizerFast(str(place / "vocab.txt"), model_max_length=24)
    own.save_pretrained(place)
    return place


def write_theirs(base: Path, folder: Path, **settings: Any) -> Path:
    """Write a MultiVectorEncoder with these settings of its encoder."""
    modules = [
        Transformer(str(base), **settings),
        Dense(
            16,
            8,
            bias=False,
            activation_function=torch.nn.Identity(),
            module_input_name=TOKENS,
        ),
        MultiVectorMask(skiplist_words=list(string.punctuation)),
        Normalize(module_input_name=TOKENS),
    ]
    prompts = {"query": "win ", "document": ""}
    made = sentences.MultiVectorEncoder(modules=modules, device="cpu", prompts=prompts)
    made.save_pretrained(str(folder))
    return folder


def check_equal(theirs: Any, folder: Any) -> None:
    """Check that vectors and scores are those of the peer."""
    found = {name: embed(folder, TEXTS, prompt=name) for name in ("query", "document")}
    wanted = {
        name: getattr(theirs, f"encode_{name}")(TEXTS, convert_to_numpy=True)
        for name in found
    }
    for name, rows in found.items():
        for row, tokens in zip(rows, wanted[name], strict=True):
            np.testing.assert_allclose(row[row.any(axis=-1)], tokens, atol=1e-5)
    scores = load_embedder(folder).model.task.similarity.matrix(*found.values())
    peers = theirs.similarity(*wanted.values()).numpy()
    np.testing.assert_allclose(scores, peers, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"query_expansion": {"strategy": "fixed", "length": 8}, "document_length": 10},
        {
            "query_expansion": {"strategy": "min", "length": 6, "attend": True},
            "query_length": 9,
        },
    ],
)
def test_their_folder_gives_the_same_scores(
    base: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    folder = write_theirs(base, tmp_path / "theirs", **settings)
    theirs = sentences.MultiVectorEncoder(str(folder), device="cpu")
    check_equal(theirs, folder)
    held = json.loads((folder / "config_sentence_transformers.json").read_text())
    assert set(held) <= set(MODEL_KEYS)
    assert set(MultiVectorMask.config_keys) <= set(MODULES["MultiVectorMask"].keys)
    convert(folder, tmp_path / "ours", to="huggingface")
    ours = sentences.MultiVectorEncoder(str(tmp_path / "ours"), device="cpu")
    check_equal(ours, folder)


@pytest.mark.parametrize("expands", [True, False])
def test_a_folder_of_pylate(base: Path, tmp_path: Path, expands: bool) -> None:
    folder = write_theirs(base, tmp_path / "pylate")
    steps = json.loads((folder / "modules.json").read_text())[:2]
    steps[1]["type"] = "pylate.models.Dense.Dense"
    (folder / "modules.json").write_text(json.dumps(steps))
    dense = folder / steps[1]["path"] / "config.json"
    held = json.loads(dense.read_text())
    own = ("in_features", "out_features", "bias", "activation_function")
    dense.write_text(json.dumps({key: held[key] for key in own}))
    settings = {
        "model_type": "ColBERT",
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "MaxSim",
        "query_prefix": "[unused0] ",
        "document_prefix": "[unused1] ",
        "query_length": 9,
        "document_length": 12,
        "attend_to_expansion_tokens": False,
        "skiplist_words": [".", "!"],
        "do_query_expansion": expands,
    }
    place = folder / "config_sentence_transformers.json"
    place.write_text(json.dumps(settings))
    theirs = sentences.MultiVectorEncoder(str(folder), device="cpu")
    check_equal(theirs, folder)
    task: Any = load_embedder(folder).model.task
    assert task.query_expansion == (9 if expands else 0)
    assert task.skip_words == (".", "!")


@pytest.mark.parametrize(
    ("form", "settings"),
    [
        (
            "MultiVectorEncoder",
            {
                "prompts": {"query": "see you ", "document": ""},
                "skip_words": "punctuation",
                "query_expansion": 8,
                "query_length": 8,
            },
        ),
        ("ColBERT", {"skip_words": (".", "!"), "document_length": 12}),
        (
            "ColBERT",
            {"query_expansion": 8, "query_length": 8, "attend_expansion": True},
        ),
    ],
    ids=["prompts", "without expansion", "attended"],
)
def test_they_open_our_folder(
    make_model: Callable[..., Any], tmp_path: Path, form: str, settings: dict[str, Any]
) -> None:
    layer = {"units": 8, "activation": "linear", "use_bias": False, "on_tokens": True}
    task = Embedding(kind="tokens", dense=(layer,), **settings)
    save_model(make_model(task), tmp_path / "ours")
    held = json.loads((tmp_path / "ours" / MODEL_SETTINGS).read_text())
    assert held["model_type"] == form
    theirs = sentences.MultiVectorEncoder(str(tmp_path / "ours"), device="cpu")
    assert theirs.similarity_fn_name.lower() == "maxsim"
    check_equal(theirs, tmp_path / "ours")
    convert(tmp_path / "ours", tmp_path / "again", to="huggingface")
    again = sentences.MultiVectorEncoder(str(tmp_path / "again"), device="cpu")
    check_equal(again, tmp_path / "ours")


def test_what_is_not_computed_is_named(base: Path, tmp_path: Path) -> None:
    folder = write_theirs(base, tmp_path / "theirs")
    mask = folder / "2_MultiVectorMask" / "config.json"
    held = json.loads(mask.read_text())
    mask.write_text(json.dumps({**held, "skiplist_tasks": ["query", "document"]}))
    refused(lambda: embed(folder, TEXTS), "skiplist_tasks", "MultiVectorMask")
    mask.write_text(json.dumps(held))
    steps = json.loads((folder / "modules.json").read_text())
    pooling = {
        "idx": 4,
        "name": "4",
        "path": "4_P",
        "type": "x.HierarchicalTokenPooling",
    }
    (folder / "modules.json").write_text(json.dumps([*steps, pooling]))
    message = refused(lambda: embed(folder, TEXTS), "for each group of tokens")
    assert "MultiVectorMask" in message
