"""Batches without TensorFlow: those of `Preprocessor`, for any texts that fit."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from bert_keras.text.plain_tokenizer import PlainTokenizer, are_few
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

from .test_tokenizer import SMALL, TORTURE, fuzz


def preprocessor(max_length: int = 512, **settings: Any) -> Preprocessor:
    return Preprocessor(WordPieceTokenizer(SMALL, **settings), max_length=max_length)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"lowercase": False},
        {"strip_accents": False, "tokenize_chinese_chars": False},
        {"max_word_characters": 7},
    ],
    ids=["uncased", "cased", "accents kept", "short words"],
)
def test_the_batches_are_those_of_the_graph(settings: dict[str, Any]) -> None:
    wanted = preprocessor(**settings)
    plain = PlainTokenizer(wanted)
    texts = [text for text, _ in TORTURE if len(text) < 400] + fuzz(400, seed=21)
    draw = random.Random(0)
    seen = 0
    for _ in range(60):
        some = draw.sample(texts, draw.randint(1, 8))
        others = draw.sample(texts, len(some))
        for parts in ([some], [some, others]):
            found = plain(parts)
            if found is None:
                continue
            seen += 1
            given = tuple(parts) if len(parts) > 1 else parts[0]
            for name, array in wanted(given).items():
                assert array.dtype == found[name].dtype
                assert np.array_equal(array, found[name]), (name, parts)
    assert seen > 90


def test_texts_that_would_be_truncated_are_left_to_the_graph() -> None:
    plain = PlainTokenizer(preprocessor(max_length=6))
    assert plain([["a b c d"]]) is not None
    assert plain([["a b c d", "a b c d e"]]) is None
    assert plain([["a b"], ["c"]]) is not None
    assert plain([["a b"], ["c d"]]) is None


@pytest.mark.parametrize(
    ("settings", "covered"),
    [
        ({}, True),
        ({"added_tokens": ["<id>"]}, False),
        ({"special_tokens_in_text": "parse"}, False),
        ({"normalizer": {"type": "Lowercase"}}, False),
    ],
)
def test_other_tokenizers_are_left_to_the_graph(
    settings: dict[str, Any], covered: bool
) -> None:
    assert PlainTokenizer.covers(preprocessor(**settings)) is covered
    rounded = preprocessor(**settings).replace(length_multiple=8)
    assert not PlainTokenizer.covers(rounded)


def test_few_texts_are_strings_of_few_characters() -> None:
    assert are_few([["abc", "d"], ["", "ef"]], 6)
    assert not are_few([["abc", "d"], ["", "efg"]], 6)
    assert not are_few([[b"abc"]], 6)
    assert not are_few([["abc"], [["a", "b"]]], 6)
    assert not are_few([["a\ud800"]], 6)  # which no UTF-8 holds
