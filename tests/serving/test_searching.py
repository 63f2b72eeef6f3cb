"""A served index finds what `SearchIndex` finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS

from bert_keras.inference.predictor import Predictor
from bert_keras.retrieval.index import SearchIndex
from bert_keras.serving.config import ServeConfig
from bert_keras.serving.searching import search_signature
from bert_keras.serving.signatures import signatures_of
from bert_keras.tasks.embedding import Embedding

TEXTS = [text for text, _ in ROWS]
QUERIES = ["win free cash", "see you", "off"]


@pytest.mark.parametrize(
    ("dtype", "hybrid"),
    [
        ("binary", True),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                *(("int8", False), ("sparse", True), ("sparse", False)),
                ("tokens", False),
            )
        ),
    ],
)
def test_as_many_texts_as_a_request_asks_for(
    make_model: Callable[..., Any], tmp_path: Path, dtype: str, hybrid: bool
) -> None:
    kind = dtype if dtype in ("sparse", "tokens") else "dense"
    settings: dict[str, Any] = {"kind": kind}
    model = make_model(Embedding(prompts={"query": "now "}, **settings))
    index = str(tmp_path / "index.npz")
    ranking: dict[str, Any] = {"hybrid": hybrid, "hybrid_weight": 2.0 if hybrid else 1}
    wanted = SearchIndex.of(
        Predictor(model),
        TEXTS,
        index=index,
        dtype=dtype if kind == "dense" else None,
        **ranking,
    )
    signatures = signatures_of(model)
    config = ServeConfig(index=index, index_top=20, **ranking)  # the index has 12
    found = search_signature(model, signatures, index, config)
    assert found.search and found.search["ranking"] == ("hybrid" if hybrid else kind)
    assert found.with_top(2) is found.with_top(2)  # so that requests are batched
    for top in (2, 12, 20):
        signature = found.with_top(top)
        rows = signature.rows_of([[query.encode() for query in QUERIES]])
        answers, _ = signature.compute(rows)
        for each, *values in zip(
            wanted(QUERIES, top=top), *answers.values(), strict=True
        ):
            row = dict(zip(answers, values, strict=True))
            count = len(each)
            assert [int(n) for n in row["ids"][:count]] == [r["line"] for r in each]
            scores = [r["score"] for r in each]
            np.testing.assert_allclose(row["scores"][:count], scores, atol=1e-5)
            assert not any(row["texts"][count:])  # a sparse vector finds no more
