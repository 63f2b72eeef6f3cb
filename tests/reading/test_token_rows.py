"""Rows of ids without TensorFlow: those of the graph, for any text and any reader."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import VOCABULARY

pytest.importorskip("tokenizers")

from bert_keras.reading.text_vector import TextVector
from bert_keras.reading.token_rows import TokenRows
from bert_keras.text.preprocessor import Preprocessor, as_tensors
from bert_keras.text.token_ids import TokenIds
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.text.tokenizer_files import write_tokenizer_json

LENGTH = 12
LETTERS = "abcdé ïÉΣſßﬆ日本 \u00a0\u200b\n,.!-'\"[]#\ud800\u0301\u0327\ufffd\x00İ🙂한½"
PROMPTS = {"query": "see you: ", "document": "win "}
FLAGS = [
    {"lowercase": True},
    {"lowercase": False},
    {"lowercase": True, "strip_accents": False, "tokenize_chinese_chars": False},
    {"lowercase": True, "special_tokens_in_text": "parse"},
    {"lowercase": False, "max_word_characters": 5},
    {
        "lowercase": True,
        "added_tokens": [
            {"content": "a b", "lstrip": True},
            {"content": "[new]", "special": True},
            {"content": "日本", "single_word": True, "normalized": False},
        ],
    },
]


def ids_of(tokenizer: WordPieceTokenizer, folder: Path) -> TokenIds:
    """Return the tokenizer of the file that an export writes."""
    write_tokenizer_json(folder, tokenizer.get_config(), max_length=LENGTH)
    return TokenIds(folder)


def random_texts(count: int, seed: int, *, more: Sequence[str] = ()) -> list[str]:
    """Return texts of letters of all kinds, and of tokens."""
    draw = random.Random(seed)
    parts = [*LETTERS, *LETTERS, *more]
    return ["".join(draw.choices(parts, k=draw.randrange(40))) for _ in range(count)]


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_ids_are_those_of_the_graph(flags: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = WordPieceTokenizer(VOCABULARY, **flags)
    more = ["[SEP]", "[MASK]", "a b", "[new]", " 日本 ", "win", "prize", "[UNK]"]
    texts = random_texts(5000, 1, more=more)
    found = [each.ids for each in ids_of(tokenizer, tmp_path)(texts)]
    assert found == tokenizer(as_tensors([texts])).to_list()


READERS = [
    {},
    {"long": "head-tail"},
    {"long": "windows", "stride": 3},
    {"long": "windows", "max_windows": 2},
    {"long": "windows", "combine": "first"},
]
BEFORE = [
    {},
    {"prompts": PROMPTS, "query_length": 7},
    {"prompts": PROMPTS, "default_prompt": "query", "include_prompt": False},
    {"prompts": PROMPTS, "default_prompt": "document", "default_length": 6},
]
WAYS = ("longest_first", "round_robin", "only_first", "only_second")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, TokenIds]:
    tokenizer = WordPieceTokenizer(VOCABULARY, lowercase=True)
    return tokenizer, ids_of(tokenizer, tmp_path_factory.mktemp("ids"))


@pytest.mark.parametrize("reading", READERS, ids=str)
@pytest.mark.parametrize("before", BEFORE, ids=str)
def test_rows_are_those_of_the_graph(
    reading: dict[str, Any], before: dict[str, Any], tokenizers: tuple[Any, TokenIds]
) -> None:
    reader = TextVector(**reading, **before)
    texts, others = random_texts(20, 2), random_texts(20, 3)
    draw = random.Random(4)
    sides = [draw.randrange(2) for _ in texts]
    forms: list[Any] = [((texts,), None, WAYS[0])]
    if before:
        forms.append(((texts,), sides, WAYS[0]))
    else:
        forms += [((texts, others), None, way) for way in WAYS]
    for parts, of_side, way in forms:
        preprocessor = Preprocessor(tokenizers[0], max_length=LENGTH, truncation=way)
        rows = TokenRows(tokenizers[1], LENGTH, way)
        tokens = rows.tokenize(reader, parts, of_side)
        tensors = as_tensors(parts)
        more = {"sides": None if of_side is None else tf.constant(of_side)}
        wanted = reader.batch(preprocessor, tensors, **more)
        for name, values in rows.batch(reader, tokens).items():
            np.testing.assert_array_equal(values, wanted[name], err_msg=name)
        lengths = rows.lengths(reader, tokens)
        read, lost = reader.lengths(preprocessor, tensors, **more)
        np.testing.assert_array_equal(lengths.read, read)
        np.testing.assert_array_equal(lengths.lost, lost)
        if reader.reads_windows:
            windows = reader.windows_of(preprocessor, tensors, **more)
            np.testing.assert_array_equal(lengths.windows, windows)


def test_no_text_is_an_empty_batch(tokenizers: tuple[Any, TokenIds]) -> None:
    rows = TokenRows(tokenizers[1], LENGTH)
    assert rows.batch(TextVector(), [])["token_ids"].shape == (0, 1)
