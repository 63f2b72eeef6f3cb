"""Variants of the training rows for a teacher to answer: `word_variants`.

Source: Jiao et al. 2020 (arXiv:1909.10351), section 3.3: words are replaced by similar
ones, there those of a language model or of GloVe. Here they are near each other in the
table of the teacher's token embeddings, or are words of another text; some are left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_keras.data.columns import Columns
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.scoring.similarity import unit_rows

_SHARES = (0.1, 0.2, 0.4)  # of the words, of which each variant changes one
_SAME_TEXT = 0.15  # of the variants of pairs, made of one of their texts alone
_NEAREST = 10
_AT_ONCE = 256  # words


def word_variants(
    columns: Columns,
    roles: Sequence[str],
    count: int,
    *,
    similar: Callable[[set[str]], Mapping[str, list[str]]],
    seed: int,
) -> Columns:
    """Return variants of rows, without labels: `count` of each row, round by round.

    A tenth, a fifth or two fifths of the words are left out, replaced by a similar
    word, or by a word of the pair's other text, or of another row if there are no
    pairs. In a pair, one text or both change, the order is random, and some variants
    are made of one text alone, beside a changed copy.

    Args:
        columns: the rows; their cells of these roles are strings. Words are found at
            white space, and a text of one word stays as it is.
        roles: one role, or the two of a pair.
        similar: returns the similar words of each of these words that has some.
        seed: equal seeds give equal variants.
    """
    rng = np.random.default_rng(seed)
    words = [[text.split() for text in columns[role]] for role in roles]
    near = similar({word.lower() for each in words for text in each for word in text})

    def changed(text: list[str], other: list[str]) -> str:
        if len(text) < 2:
            return " ".join(text)
        is_changed = rng.random(len(text)) < rng.choice(_SHARES)
        kinds = np.where(is_changed, rng.integers(3, size=len(text)), -1).tolist()
        places = rng.integers(1 << 32, size=len(text)).tolist()
        found = []
        for word, kind, place in zip(text, kinds, places, strict=True):
            if kind == 0:
                continue
            choices = other if kind == 1 else near.get(word.lower(), ())
            is_kept = kind < 0 or not choices
            found.append(word if is_kept else choices[place % len(choices)])
        return " ".join(found or text)

    made: list[list[str]] = [[] for _ in roles]
    for _ in range(count):
        others = rng.permutation(len(columns)).tolist()
        for row, other in enumerate(others):
            if len(roles) == 1:
                made[0].append(changed(words[0][row], words[0][other]))
                continue
            first, second = (texts[row] for texts in words)
            if rng.random() < _SAME_TEXT:
                second = first
            which = rng.integers(3)  # the first, the second, both
            pair = [
                " ".join(first) if which == 1 else changed(first, second),
                " ".join(second) if which == 0 else changed(second, first),
            ]
            for texts, text in zip(made, rng.permutation(pair).tolist(), strict=True):
                texts.append(text)
    lines = np.tile(np.asarray(columns.lines), count)
    cells = dict(zip(roles, made, strict=True))
    return Columns(columns.path, cells, lines.tolist())


def similar_words(
    words: set[str], *, tokens: Sequence[str], embeddings: Any
) -> dict[str, list[str]]:
    """Return the ten nearest whole words of each word that is a token.

    Near are words of the vocabulary by the cosines of their embeddings.

    Args:
        words: lower-cased.
        tokens: the vocabulary.
        embeddings: of the tokens, float [V, H].
    """
    numbers = [
        n for n, token in enumerate(tokens) if token.isalpha() and len(token) > 1
    ]
    whole = [tokens[number] for number in numbers]
    place_of = {word: place for place, word in enumerate(whole)}
    asked = sorted(words & place_of.keys())
    if len(whole) <= _NEAREST:
        return {}
    table = unit_rows(np.asarray(embeddings, "float32")[numbers])
    packed, found = PackedVectors.of(table), {}
    for start in range(0, len(asked), _AT_ONCE):
        places = [place_of[word] for word in asked[start : start + _AT_ONCE]]
        near, _ = packed.nearest(table[places], _NEAREST + 1)  # the word, too
        for place, those in zip(places, near.tolist(), strict=True):
            others = sorted([each for each in those if each != place][:_NEAREST])
            found[whole[place]] = [whole[each] for each in others]
    return found
