"""JSON that every parser reads."""

from __future__ import annotations

import json
import math

import pytest
from conftest import refused

from bert_keras.files.json_file import json_text


def test_it_is_json() -> None:
    value = {"text": "é", "scores": [1, 0.5, None, True], "nested": {"x": "y"}}
    assert json.loads(json_text(value)) == value
    assert "é" in json_text(value)
    assert json_text("é", ensure_ascii=True) == '"\\u00e9"'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_lacks(number: float) -> None:
    value = {"loss": 1.0, "classes": {"ham": [0.5, number]}}
    refused(lambda: json_text(value), "`classes.ham.1` must be finite", str(number))
