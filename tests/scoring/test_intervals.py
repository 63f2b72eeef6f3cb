"""Intervals of shares, against values by hand."""

from __future__ import annotations

import pytest
from conftest import refused

from bert_keras.scoring.intervals import wilson_interval


@pytest.mark.parametrize(
    ("share", "count", "low", "high"),
    [
        # z = 1.959964: (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)
        (0.5, 10, 0.236593, 0.763407),
        (0.9, 100, 0.825634, 0.944771),
        (0.0, 10, 0.0, 0.277533),
        (1.0, 10, 0.722467, 1.0),
    ],
)
def test_interval_of_a_share(share: float, count: int, low: float, high: float) -> None:
    assert wilson_interval(share, count) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(("share", "count"), [(1.1, 5), (float("nan"), 5), (0.5, 0)])
def test_what_is_no_share(share: float, count: int) -> None:
    refused(lambda: wilson_interval(share, count), "from 0 to 1")
