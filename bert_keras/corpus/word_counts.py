"""How often each word of a corpus stands in it: `count_words`, in one pass.

From time to time, after a fixed number of characters, all that waits is counted. What
was counted until then can be kept in a file, so that a run that was killed goes on
there and finds the same counts as one that was not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from bert_keras.corpus.counts_file import CountsFile, Seen
from bert_keras.corpus.documents import name_of
from bert_keras.corpus.word_counter import WordCounter, WordCounts, splitter_of
from bert_keras.errors import ConfigError

_STAGE = 1 << 28  # characters, after which all is counted, and kept


def count_words(
    documents: Iterable[Any],
    *,
    to_sentences: Callable[[Any], Iterable[str]] | None = None,
    keep: str | os.PathLike[str] | None = None,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
    max_word_characters: int = 100,
    max_words: int = 2_000_000,
) -> WordCounts:
    """Count the words of documents in one pass; the same ones give the same counts.

    Args:
        documents: strings, or objects whose `text` is one.
        to_sentences: the texts of a document; `None`: it is one, a string. Those that
            an earlier run has counted are not split again.
        keep: a file for what was counted so far. If it is there, those documents are
            only compared, by their text and `form`, and the count goes on.
        lowercase, strip_accents, tokenize_chinese_chars, max_word_characters: as of
            the tokenizer.
        max_words: distinct words that are kept at most. While counting there may be
            twice as many.

    Raises:
        ConfigError: `max_words` is less than 1,000, or a text is no string.
        DataError: `keep` was counted of other documents or with other settings, or
            cannot be written.
    """
    if max_words < 1000:
        raise ConfigError(f"`max_words` must be at least 1,000; received {max_words}")
    accents = lowercase if strip_accents is None else strip_accents
    counter = WordCounter(
        splitter_of(lowercase, accents, tokenize_chinese_chars, max_word_characters),
        lowercase,
        max_word_characters,
        max_words,
    )
    settings = {
        "lowercase": lowercase,
        "strip_accents": accents,
        "tokenize_chinese_chars": tokenize_chinese_chars,
        "max_word_characters": max_word_characters,
        "max_words": max_words,
        "sentences_by": to_sentences and name_of(to_sentences),
    }
    file = None if keep is None else CountsFile(keep, settings)
    _count(documents, counter, to_sentences or _itself, file)
    return counter.result()


def _itself(text: str) -> tuple[str]:
    return (text,)


def _count(
    documents: Iterable[Any],
    counter: WordCounter,
    to_sentences: Callable[[Any], Iterable[str]],
    file: CountsFile | None,
) -> None:
    """Count the words of documents, but for those that a file has."""
    kept = None if file is None else file.read()
    seen, stage = Seen(), 0
    for document in documents:
        if file is not None and kept is not None and seen.documents == kept.documents:
            counter.restore(file.fitting(kept, seen, more=True))
            kept = None
        text = seen.add(document, compared=file is not None)
        if kept is not None:
            continue
        for sentence in to_sentences(document):
            counter.add(sentence)
        stage += len(text)
        if stage >= _STAGE:
            stage = 0
            counter.count()
            if file is not None:
                file.write(counter.kept(seen, whole=False))
    if file is not None and kept is not None:
        counter.restore(file.fitting(kept, seen, more=False))
        if kept.whole:
            return
    counter.count()
    if file is not None and seen.documents:
        file.write(counter.kept(seen, whole=True))
