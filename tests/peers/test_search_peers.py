"""Search with faiss, if it is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS

from bert_keras.models.model_folder import save_model
from bert_keras.retrieval.embedder import load_embedder
from bert_keras.retrieval.index import SearchIndex
from bert_keras.serving.client import Client
from bert_keras.serving.config import ServeConfig
from bert_keras.serving.server import Server
from bert_keras.tasks.embedding import Embedding

TEXTS = [text for text, _ in ROWS]


@pytest.mark.parametrize("ending", ["npz", "parquet"])
def test_faiss_finds_the_same(
    encoder_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    ending: str,
) -> None:
    pytest.importorskip("faiss")
    predictor, index = load_embedder(encoder_folder), tmp_path / f"index.{ending}"
    exact = SearchIndex.of(predictor, TEXTS, index=index)(TEXTS[:3], top=3)
    written = index.read_bytes()
    for _ in range(2):  # .npz: the graph is made, then read
        made = SearchIndex.of(predictor, TEXTS, index=index, engine="faiss")
        found = made(TEXTS[:3], top=3)
        for rows, wanted in zip(found, exact, strict=True):
            assert [row["text"] for row in rows] == [row["text"] for row in wanted]
            assert rows[1]["score"] == pytest.approx(wanted[1]["score"], abs=1e-5)
        said = capsys.readouterr().err
        if ending == "parquet":
            assert index.read_bytes() == written
            assert "a Parquet file contains no graph of faiss" in said
        else:
            assert "graph" in np.load(index) and "graph of faiss" not in said


def test_faiss_serves_the_same(
    make_model: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("faiss")
    index, folder = tmp_path / "index.npz", tmp_path / "model"
    save_model(make_model(Embedding()), folder)
    SearchIndex.of(folder, TEXTS, index=index)
    exact = SearchIndex.load(folder, index)  # too few texts for faiss
    assert exact.graph is None
    for is_stored in (False, True):
        large = SearchIndex.load(folder, index, large=len(TEXTS))
        assert large.graph.ntotal == len(TEXTS)
        said = capsys.readouterr().err
        assert "12 texts are searched with faiss" in said
        assert ("built each time" in said) == (not is_stored)
        SearchIndex.of(folder, TEXTS, index=index, engine="faiss")  # stores the graph
    config = ServeConfig(
        port=0, no_grpc=True, index=str(index), index_engine="faiss", index_top=20
    )
    with Server([str(folder)], config=config, is_quiet=True).running() as server:
        with Client(server.url, model="model") as client:
            found = client.search(TEXTS[:3], top=12)
    for rows, wanted in zip(found, exact(TEXTS[:3], top=12), strict=True):
        assert [row["text"] for row in rows] == [row["text"] for row in wanted]
        assert [int(row["id"]) for row in rows] == [row["line"] for row in wanted]
