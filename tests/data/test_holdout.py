"""Stratified holdout: shares of classes, coverage, groups, determinism."""

import collections

import numpy as np
import pytest

from bert_keras.data.holdout import (
    quantiles,
    stratified_holdout,
    uncovered_classes,
)


def test_each_of_77_classes_of_10_rows_has_one_held_out() -> None:
    strata = [(f"class {row % 77}",) for row in range(770)]
    rows = stratified_holdout(strata, 77, seed=0)
    assert collections.Counter(strata[row] for row in rows) == dict.fromkeys(strata, 1)
    assert rows == stratified_holdout(strata, 77, seed=0)
    assert rows != stratified_holdout(strata, 77, seed=1)


@pytest.mark.parametrize("seed", range(3))
def test_classes_are_held_out_in_proportion(seed: int) -> None:
    sizes = {"a": 601, "b": 299, "c": 95, "d": 3, "e": 2, "f": 1}
    strata = [(name,) for name, size in sizes.items() for _ in range(size)]
    rows = stratified_holdout(strata, 100, seed=seed)
    held = collections.Counter(strata[row][0] for row in rows)
    # Of 1,001 rows: 60.0, 29.9, 9.5, 0.3, 0.2 and 0.1; `d` and `e` take theirs from
    # the classes that are furthest above their share.
    assert held["d"] == held["e"] == 1 and held["f"] == 0 and sum(held.values()) == 100
    assert 58 <= held["a"] <= 60 and 29 <= held["b"] <= 30 and 9 <= held["c"] <= 10
    assert uncovered_classes(strata, rows, option="--validation-split") == (
        "no row for 1 of 6 classes (f), which have one row each"
    )


def test_too_few_rows_cover_as_many_classes_as_they_can() -> None:
    strata = [(f"{row % 40}",) for row in range(200)]
    rows = stratified_holdout(strata, 20, seed=4)
    assert len({strata[row] for row in rows}) == len(rows) == 20
    line = uncovered_classes(strata, rows, option="`share`")
    assert line.startswith("no row for 20 of 40 classes (")
    assert line.endswith("): a larger `share` covers more")


def test_several_labels_per_row_keep_their_shares() -> None:
    random = np.random.default_rng(0)
    shares = {"common": 0.6, "some": 0.2, "rare": 0.02, "rarer": 0.01}
    strata = [
        [name for name, share in shares.items() if random.random() < share]
        for _ in range(1000)
    ]
    sizes = collections.Counter(name for row in strata for name in row)
    rows = stratified_holdout(strata, 100, seed=3)
    held = collections.Counter(name for row in rows for name in strata[row])
    assert len(rows) == 100
    for name, size in sizes.items():
        assert abs(held[name] - size / 10) <= max(1, 0.02 * size)


def test_numbers_are_held_out_over_their_whole_range() -> None:
    values = np.random.default_rng(1).lognormal(size=500)
    strata = quantiles(values)
    assert collections.Counter(strata) == {(place,): 50 for place in range(10)}
    held = [strata[row] for row in stratified_holdout(strata, 50, seed=0)]
    assert set(collections.Counter(held).values()) == {5}
    assert quantiles(np.array([1.0, 2.0])) == [(0,), (0,)]
    assert not uncovered_classes(strata, [0], option="")


def test_rows_of_a_group_stay_together_where_they_can() -> None:
    groups = [f"premise {row // 3}" for row in range(300)]
    strata = [("abc"[row % 3],) for row in range(300)]
    rows = stratified_holdout(strata, 30, seed=0, groups=groups)
    assert len(rows) == 30
    assert collections.Counter(groups[row] for row in rows) == {
        groups[row]: 3 for row in rows
    }
    # Two topics cannot be split, and all rows of one class have the same first text.
    for groups in (["x", "y"] * 150, [name for (name,) in strata]):
        rows = stratified_holdout(strata, 30, seed=0, groups=groups)
        held = collections.Counter(strata[row][0] for row in rows)
        assert held == {"a": 10, "b": 10, "c": 10}


def test_whole_groups_are_never_divided() -> None:
    groups = [f"query {row // 4}" for row in range(64)]
    for count, held in ((1, 4), (6, 4), (10, 8), (64, 60)):
        rows = stratified_holdout([()] * 64, count, seed=0, groups=groups, whole=True)
        assert set(collections.Counter(groups[row] for row in rows).values()) == {4}
        assert len(rows) == held
    one = stratified_holdout([()] * 8, 2, seed=0, groups=["query"] * 8, whole=True)
    assert len(one) == 2


def test_rows_without_classes_are_random() -> None:
    assert len(stratified_holdout([()] * 50, 5, seed=0)) == 5
    assert stratified_holdout([("a",), ("b",)], 1, seed=0) == []
