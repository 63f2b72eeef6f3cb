"""Sentences are those that a reader would see, at the given offsets."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.text.sentences import choose_sentences, list_sentences, split_sentences

# Each line is a text; | marks the expected splits.
TEXTS = """
Dr. Wu has 3.5 cats.| “Has she?”| Yes!
The U.S. Senate met J. R. R. Tolkien at 5.30 p.m. yesterday... and left.| He smiled.
See No. 5, Fig. 3 and pp. 4.| He said no.| On Jan. 5, e.g. the cat, etc. went.
He said "Stop."| "Go," she said.| (It rained.)| [Then] ‘more’ came.
no capital here.| none at all!| right?| ok
iPhone sales fell in 2009.| Nobody knew why.| What?!| Really!!| Yes… maybe.| Yes
He left .| She stayed . . .| So what ?
It was 日本語です。|本当ですか？|「はい。」|終わり
यह है।| वह था।| अंत
Café au lait.| Été is summer.| Next.| See https://a.b/c.D?e=F. Also v2.0 now.
Smith et al. (2019) vs. Jones et al. Neither won.| Gen. Lee and Lt. Oh met Prof. Ng.
one
""".strip().splitlines()
ODD = [
    "",
    " \n\t ",
    "Head line\nThe text that is\nwrapped here.\r\nNext\rLast\n\nsmall one",
    "1. First of it\n2. Second. More\n 13. Third",
    "\ufeffMark. Here\x00 and\x01 there\x1e. End.\u00a0Fine.\u3000Wide",
]


@pytest.mark.parametrize("text", TEXTS)
def test_sentences_of_many_kinds(text: str) -> None:
    wanted = [part.strip() for part in text.split("|")]
    assert list_sentences([text.replace("|", "")]) == [wanted]


def test_lines_end_sentences_unless_they_are_wrapped() -> None:
    assert list_sentences(ODD)[2] == [
        "Head line",
        "The text that is\nwrapped here.",
        "Next",
        "Last",
        "small one",
    ]
    assert list_sentences(ODD)[3] == [
        "1. First of it",
        "2. Second.",
        "More",
        "13. Third",
    ]


def test_texts_without_a_sentence_have_none() -> None:
    assert list_sentences(["", " \n\t ", "a"]) == [[], [], ["a"]]
    assert list_sentences([]) == []


def test_offsets_are_those_of_python() -> None:
    texts = [text.replace("|", "") for text in TEXTS] + ODD
    found = split_sentences(texts)
    rows = zip(*(part.to_list() for part in found), strict=True)
    for text, (sentences, starts, ends) in zip(texts, rows, strict=True):
        spans = zip(starts, ends, strict=True)
        assert [text[a:b] for a, b in spans] == [s.decode() for s in sentences]


def test_bytes_that_are_not_utf8_are_counted_as_python_reads_them() -> None:
    text = b"bad \xff bytes. \xed\xa0\x80 More\xe2\x82. \xf0\x9f\x8e\x89 Yes\xc3"
    found = split_sentences([text])
    read = text.decode("utf-8", "replace")
    spans = zip(found.starts.to_list()[0], found.ends.to_list()[0], strict=True)
    assert [read[a:b] for a, b in spans] == [s.decode() for s in found.texts[0].numpy()]
    assert len(found.texts[0]) == 3


@pytest.mark.slow
def test_a_batch_is_split_like_its_texts_alone() -> None:
    texts = [text.replace("|", "") for text in TEXTS] * 30
    assert list_sentences(texts) == [list_sentences([text])[0] for text in texts]


def choose(scores: list[list[float]], texts: list[list[str]], **how) -> list[list[int]]:
    rows = tf.ragged.constant(scores, ragged_rank=1, dtype=tf.float32).to_tensor(-1.0)
    return choose_sentences(rows, tf.ragged.constant(texts), **how).numpy().tolist()


def test_the_best_sentences_are_in_document_order() -> None:
    texts = [["a", "b", "c", "d"], ["e"], [""]]
    scores = [[0.1, 0.9, 0.3, 0.95], [0.0], [0.7]]
    assert choose(scores, texts, most=2) == [[1, 3], [0, -1], [-1, -1]]
    assert choose(scores, texts, most=5)[0] == [0, 1, 2, 3, -1]
    assert choose([[0.5, 0.5, 0.5]], [["a", "b", "c"]], most=2) == [[0, 1]]


def test_trigram_blocking_skips_repetitions() -> None:
    texts = [
        ["The cat sat down.", "See: the CAT sat!", "A cat sat.", "The cat", ""],
        ["a b c", "b c d", "c d e a b c", "x y z", "no, b-c d"],
    ]
    scores = [[0.9, 0.8, 0.7, 0.6, 0.99], [0.9, 0.8, 0.7, 0.2, 0.3]]
    assert choose(scores, texts, most=3) == [[0, 1, 2], [0, 1, 2]]
    blocked = choose(scores, texts, most=3, trigram_blocking=True)
    assert blocked == [[0, 2, 3], [0, 1, 3]]


def test_trigram_blocking_is_the_plain_rule() -> None:
    rng = np.random.default_rng(0)
    texts = [
        [" ".join(rng.choice(list("abc"), rng.integers(0, 7))) for _ in range(9)]
        for _ in range(40)
    ]
    scores = rng.random((40, 9))
    wanted = []
    for row, sentences in zip(scores, texts, strict=True):
        chosen, seen = [], set()
        for index in np.argsort(-row):
            words = sentences[index].split()
            trigrams = set(zip(words, words[1:], words[2:], strict=False))
            if words and len(chosen) < 4 and not trigrams & seen:
                chosen.append(int(index))
                seen |= trigrams
        wanted.append(sorted(chosen) + [-1] * (4 - len(chosen)))
    found = choose(scores.tolist(), texts, most=4, trigram_blocking=True)
    assert found == wanted
