"""Ids to text: pieces joined, punctuation spaced, and what a vocabulary loses."""

import pytest
import tensorflow as tf

from bert_keras.text.detokenizer import detokenized, spaced
from bert_keras.text.tokenizer import WordPieceTokenizer

SPELLED = {
    "don ' t go , she said .": "don't go, she said.",
    "it ' s we ' re i ' ll o ' clock": "it's we're i'll o ' clock",
    "l ' homme qu ' il voit": "l'homme qu'il voit",
    "a well - known ( and old ) house : yes !": "a well-known (and old) house: yes!",
    'he said " come in " and left': 'he said "come in" and left',
    "3 . 5 of 1 , 000 at 10 : 30": "3.5 of 1,000 at 10:30",
    "50 % of $ 20 / year": "50% of $20/year",
    "日 本 語 、 東 京 。": "日本語、東京。",
    "wait . . . what ? !": "wait... what?!",
    "": "",
}


@pytest.mark.parametrize("words", SPELLED)
def test_punctuation_is_spaced_as_in_running_text(words):
    assert spaced(tf.constant([words])).numpy()[0].decode() == SPELLED[words]


WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the hou ##se is red , Red é ! ##s".split()


def test_pieces_are_joined_up_to_the_end():
    ids = [[[5, 6, 7, 8, 9, 13, 3, 9], [2, 0, 1, 4, 12, 14, 0, 0]]]
    found = detokenized(ids, tf.constant(WORDS), last_id=3)
    assert found.shape == (1, 2)
    assert [each.decode() for each in found.numpy()[0]] == ["the house is red!", "és"]


def test_an_uncased_vocabulary_loses_case_and_accents_only():
    text = "The house, the Red house is réd!"
    for lowercase, wanted in (
        (True, "the house, the red house is red!"),
        (False, None),
    ):
        tokenizer = WordPieceTokenizer(
            [*WORDS, "The", "r", "##éd"], lowercase=lowercase
        )
        ids = tokenizer([text]).to_tensor(tokenizer.pad_id)
        found = detokenized(ids, tf.constant(tokenizer.vocabulary), last_id=3)
        assert found.numpy()[0].decode() == (wanted or text)
