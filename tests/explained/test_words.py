"""Words with their places, and the tokens that they became."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bert_keras.explained.words import Word, WordList, whole_words, words_in_row
from bert_keras.explanations.explanation import Explanation, page_values
from bert_keras.text.tokenizer import WordPieceTokenizer


@pytest.fixture
def made(vocabulary: list[str]) -> WordList:
    return WordList(WordPieceTokenizer(vocabulary))


def test_pieces_of_one_word_share_it(made: WordList) -> None:
    pieces = made.add("text", "WINS cash!")
    assert [word.text for word in made.words] == ["WINS", "cash", "!"]
    assert pieces.tolist() == [0, 0, 1, 2]  # win ##s cash !
    for word in made.words:
        assert made.texts[word.role][word.start : word.end] == word.text


def test_words_are_counted_through_several_texts(made: WordList) -> None:
    made.add("text", "see you")
    second = made.add("text_pair", "at home")
    assert second.tolist() == [2, 3]
    assert [word.role for word in made.words] == ["text"] * 2 + ["text_pair"] * 2
    assert made.words[2].start == 0


def test_accents_that_the_tokenizer_drops_belong_to_their_word(made: WordList) -> None:
    made.add("text", "see\u0301 you")
    assert [word.text for word in made.words] == ["see\u0301", "you"]


def test_parts_of_a_text_keep_its_offsets(made: WordList) -> None:
    text = "see [MASK] you"
    first, second = made.add_spans("text", text, [(0, 4), (10, 14)])
    assert (first.tolist(), second.tolist()) == ([0], [1])
    assert made.words[1].start == 11


def test_listed_words_may_hold_punctuation(made: WordList) -> None:
    pieces = made.add_words("text", ["six,six", "\x00", "you"])
    assert pieces.tolist() == [0, 0, 0, 1, 2]
    assert made.texts["text"] == "six,six \x00 you"
    assert made.words[2].start == 10


def test_an_empty_text_has_no_words(made: WordList) -> None:
    assert made.add("text", "").tolist() == []
    assert made.words == []


def test_tokens_beside_the_parts_of_a_row_have_no_word() -> None:
    assert words_in_row(4, (1, np.array([0, 0]))).tolist() == [-1, 0, 0, -1]
    assert words_in_row(4).tolist() == [-1] * 4


def parts_of(text: str, role: str = "text") -> list[Word]:
    """Split a text as the tokenizer does, at spaces and around punctuation."""
    found = re.finditer(r"[^\W_]+|_|[^\w\s]", text)
    return [Word(each[0], each.start(), each.end(), role) for each in found]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Good, good - GOOD!", ["Good (1st)", "good (2nd)", "GOOD (3rd)"]),
        ("don't e-mail me@x.org", ["don't", "e-mail", "me@x.org"]),
        ("pay $1,000 by 12:30.", ["pay", "$", "1,000", "by", "12:30"]),
        ("now,or never... 'so' it is", ["now", "or", "never", "so", "it", "is"]),
        ("a_b_c - d-", ["a_b_c", "d"]),
        ("-- !? …", []),
    ],
)
def test_words_as_people_read_them(text: str, names: list[str]) -> None:
    words = parts_of(text)
    found = whole_words(words)
    assert [name for name, _ in found] == names
    for name, places in found:
        inside = "".join(words[place].text for place in places)
        assert name.partition(" (")[0] == inside


def test_a_word_of_two_texts_names_its_text() -> None:
    words = [*parts_of("old city city"), *parts_of("new city", "text_pair")]
    assert [name for name, _ in whole_words(words)] == [
        "old", "city (1st, text)", "city (2nd, text)", "new", "city (text pair)"
    ]  # fmt: skip


def test_the_bar_of_a_word_of_several_parts_is_the_longest() -> None:
    """Its bar was 169% of the width, and lay on its number."""
    parts = [("1", 9), (",", 10), ("000", 11), ("win", 0)]
    one = np.ones(1, "float32")
    made = Explanation(
        texts={"text": "win over 1,000"},
        words=tuple(Word(t, at, at + len(t), "text") for t, at in parts),
        targets=("spam",),
        against=("",),
        attributions=np.array([[0.5, 0.1, 0.6, -0.3]], "float32"),
        values=one,
        baseline_values=one,
        gaps=one,
        steps=one,
        unit="log-odds",
        answer={"label": "spam", "score": 0.9},
    )
    bars = page_values(made)["targets"][0]["bars"]
    assert [(b["text"], b["share"]) for b in bars] == [("1,000", 100), ("win", 25)]
