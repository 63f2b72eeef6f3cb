"""The line about truncated texts, for one and for several."""

from __future__ import annotations

import numpy as np
import pytest

from bert_keras.text.truncation import Truncation


@pytest.mark.parametrize(
    ("read", "lost", "line"),
    [
        ([16], [1], "1 of 3 texts (33%) is truncated to 16 tokens: it has 17 tokens"),
        (
            [16, 24],
            [1, 4],
            "2 of 3 texts (67%) are truncated to 20.0 tokens on average: they have "
            "22.5 tokens on average",
        ),
        (
            [24, 24],
            [1, 4],
            "2 of 3 texts (67%) are truncated to 24 tokens: they have 26.5 tokens on "
            "average",
        ),
    ],
)
def test_the_line_of_truncated_texts(
    read: list[int], lost: list[int], line: str
) -> None:
    found = Truncation(texts=3 - len(read))
    found.add(np.array(read), np.array(lost))
    assert found.line(length=24).startswith(f"{line}, of which ")
