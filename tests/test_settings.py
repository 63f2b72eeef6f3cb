"""Options: allowed values, and errors for others."""

from __future__ import annotations

import dataclasses

import pytest
from conftest import refused

from bert_keras.settings import Option


@pytest.mark.parametrize(
    ("limits", "right", "wrong", "rule"),
    [
        ({"kind": int}, [0, -5, 2**31 - 1], [True, 1.0, "1", 2**31], "whole number"),
        ({"kind": int, "least": 1}, [1], [0, None], "of at least 1"),
        ({"kind": int, "least": 1, "most": 4}, [4], [5], "from 1 to 4"),
        ({"kind": float}, [1, -2.5], [True, "1", None], "a number"),
        ({"kind": float, "above": 0}, [1e-9], [0, float("inf"), 10**400], "above 0"),
        (
            {"kind": float, "above": 0, "most": 1},
            [1],
            [0, 1.5, float("nan")],
            "above 0 and at most 1",
        ),
        (
            {"kind": float, "least": 0, "below": 1},
            [0],
            [1, -0.1],
            "of at least 0 and below 1",
        ),
        ({"kind": float, "most": 2}, [2], [3], "of at most 2"),
        ({"kind": bool}, [True], [1, "yes"], "true or false"),
        ({"words": ("a", "b")}, ["b"], ["c", 3, [], ""], "one of a, b"),
        ({}, ["x"], ["", 3], "a non-empty string"),
        ({"kind": float, "is_list": True}, [(1.0, 2)], [[1.0], ("x",)], ""),
    ],
)
def test_values_that_are_allowed(
    limits: dict[str, object], right: list[object], wrong: list[object], rule: str
) -> None:
    declared = Option(name="it", **limits)  # type: ignore[arg-type]
    for value in right:
        declared.check(value)
    for value in wrong:
        refused(lambda v=value: declared.check(v), "`it` must be ", rule, "received")
    dataclasses.replace(declared, may_be_none=True).check(None)
