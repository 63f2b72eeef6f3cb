"""The words of a corpus that a vocabulary splits into pieces: `learn_words`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bert_keras.corpus.word_counts import count_words
from bert_keras.errors import ConfigError, DataError, counted, first_of
from bert_keras.settings import check_whole_number
from bert_keras.text.new_tokens import with_words
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.text.tokenizer_files import MOST_TOKEN_BYTES

NEW_WORDS = 1_000
MIN_COUNT = 5  # of a new word: a rarer one would hardly be trained
_BATCH = 1 << 16  # words tokenized at once


def learn_words(
    texts: Iterable[Any],
    tokenizer: WordPieceTokenizer,
    *,
    to_sentences: Callable[[Any], Iterable[str]] | None = None,
    size: int | None = None,
    min_count: int = MIN_COUNT,
    max_words: int = 2_000_000,
    workers: int = 1,
    say: Callable[[str], object] = lambda line: None,
) -> list[str]:
    """Return the words whose splitting costs a corpus the most pieces, costliest first.

    A word of n pieces costs n - 1 of them at each occurrence, and one that the
    vocabulary lacks, an `[UNK]`, costs 1.

    Args:
        texts, to_sentences, max_words, workers: as in `learn_vocabulary`.
        tokenizer: the tokenizer of the encoder.
        size: number of tokens of the vocabulary together with the new words; `None`:
            1,000 more than the tokenizer has.
        min_count: occurrences in the corpus that a new word needs.
        say: called with lines about what was read and found.

    Raises:
        ConfigError: an argument is wrong, or the tokenizer splits texts into words in
            another way than BERT.
        DataError: the corpus contains no such word.

    Example:
        >>> tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "wing", "##s", "a", "##ero"]
        >>> learn_words(["aero wings"] * 5, WordPieceTokenizer(tokens))
        ['aero', 'wings']
    """
    check_whole_number("min_count", min_count, least=1)
    known = tokenizer.vocab_size
    size = known + NEW_WORDS if size is None else size
    check_whole_number("size", size, least=known + 1)
    if not tokenizer.splits_as_bert:
        raise ConfigError(
            "the encoder's tokenizer must split texts into words as BERT does; has a "
            "normalizer or pre_tokenizer of its own: give words by `--add-tokens`"
        )
    words = count_words(
        texts,
        to_sentences=to_sentences,
        lowercase=tokenizer.lowercase,
        strip_accents=tokenizer.strip_accents,
        tokenize_chinese_chars=tokenizer.tokenize_chinese_chars,
        max_words=max_words,
        workers=workers,
    )
    if not words.counts:
        raise DataError(f"the corpus must hold words; read {words.texts} texts")
    names = list(words.counts)
    counts = np.fromiter(words.counts.values(), np.int64, len(names))
    before = pieces_of_words(tokenizer, names)
    cost = counts * np.where(before > 0, before - 1, 1)
    can_be_found = [
        len(name) <= tokenizer.max_word_characters
        and len(name.encode()) <= MOST_TOKEN_BYTES
        for name in names
    ]
    chosen = np.flatnonzero((cost > 0) & (counts >= min_count) & np.array(can_be_found))
    chosen = chosen[np.argsort(-cost[chosen], kind="stable")]
    found = [names[i] for i in chosen[: size - known]]
    if not found:
        raise DataError(
            "the corpus must hold words that the vocabulary splits into pieces and "
            f"that occur {min_count:,} times; none of its {len(names):,} words do"
        )
    after = pieces_of_words(with_words(tokenizer, found), names)
    texts = counted(words.texts, "texts")
    say(f"{texts}, {words.words:,} words, {len(names):,} of them different")
    say(f"{len(found):,} new tokens: {first_of(found)}")
    if fewer := size - known - len(found):
        say(
            f"{fewer:,} fewer than requested: no other word that is split occurs "
            f"{min_count:,} times"
        )
    say(
        f"pieces per word: {_mean(before, counts)} with the old vocabulary, "
        f"{_mean(after, counts)} with the new one"
    )
    return found


def pieces_of_words(tokenizer: WordPieceTokenizer, words: Sequence[str]) -> np.ndarray:
    """Return the number of pieces of each word, int64 [W]; 0 of one that is `[UNK]`."""
    found = []
    for start in range(0, len(words), _BATCH):
        pieces = tokenizer(list(words[start : start + _BATCH]))
        sizes = pieces.row_lengths().numpy()
        first = pieces.row_splits.numpy()[:-1]
        ids = np.append(pieces.values.numpy(), -1)  # for words without pieces
        found.append(np.where(ids[first] == tokenizer.unk_id, 0, sizes))
    return np.concatenate(found)


def _mean(pieces: np.ndarray, counts: np.ndarray) -> str:
    """Return the mean number of pieces, and the share of words that are `[UNK]`."""
    total = counts.sum()
    mean = float((np.maximum(pieces, 1) * counts).sum() / total)
    unknown = float(counts[pieces == 0].sum() / total)
    return f"{mean:.3f} ({unknown:.2%} of the words are [UNK])"
