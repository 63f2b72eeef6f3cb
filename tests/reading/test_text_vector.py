from __future__ import annotations

import pytest
import tensorflow as tf

from bert_keras.reading.text_vector import (
    DOCUMENT,
    PROMPT_LENGTHS,
    QUERY,
    TextVector,
)
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

WORDS = "win cash now see you at six"


@pytest.fixture(scope="module")
def preprocessor() -> Preprocessor:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", *WORDS.split()]
    return Preprocessor(WordPieceTokenizer(words), max_length=6)


def rows_of(reader: TextVector, preprocessor: Preprocessor, **given: object) -> list:
    batch = reader.batch(preprocessor, tf.constant([WORDS, WORDS]), **given)
    words = preprocessor.tokenizer.vocabulary
    return [" ".join(words[i] for i in row if i) for row in batch["token_ids"].numpy()]


def test_sides_have_prompts_and_lengths_of_their_own(
    preprocessor: Preprocessor,
) -> None:
    prompts = {"query": "see ", "passage": "you "}
    reader = TextVector(prompts=prompts, query_length=4, default_prompt="passage")
    sides = tf.constant([QUERY, DOCUMENT])
    assert reader.reads_sides
    assert rows_of(reader, preprocessor, sides=sides) == [
        "[CLS] see win [SEP]",
        "[CLS] you win cash now [SEP]",
    ]
    assert rows_of(reader, preprocessor) == ["[CLS] you win cash now [SEP]"] * 2
    texts = tf.constant([WORDS, WORDS])
    read, lost = reader.lengths(preprocessor, texts, sides=sides)
    assert (read.numpy().tolist(), lost.numpy().tolist()) == ([4, 6], [6, 4])


def test_windows_without_a_prompt_pool_all_of_their_tokens(
    preprocessor: Preprocessor,
) -> None:
    reader = TextVector(long="windows", include_prompt=False)
    batch = reader.batch(preprocessor, tf.constant([WORDS, "a"]))
    assert batch["window_starts"].numpy().tolist() == [1, 0, 1]
    assert batch[PROMPT_LENGTHS].numpy().tolist() == [0, 0, 0]
