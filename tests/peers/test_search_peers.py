"""Search with faiss, if it is installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import ROWS

from bert_keras.inference.embedder import load_embedder
from bert_keras.inference.search import SearchIndex

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
            assert "Parquet contains no graph of faiss: it is built each time" in said
        else:
            assert "graph" in np.load(index) and "faiss" not in said
