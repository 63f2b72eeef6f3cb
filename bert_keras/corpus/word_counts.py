"""The words of a corpus and how often each occurs: `count_words`, in bounded memory.

Words are found as in `WordPieceTokenizer`, by the `tokenizers` library, which splits
texts in the same way and needs no TensorFlow. White space and ASCII punctuation always
separate words, so Arrow splits texts there first and counts the strings: in most
languages a few distinct strings make up most of a text. Only strings of other than
ASCII letters and digits go through `tokenizers`.

When there are too many words, the rarest are dropped, as in lossy counting (Manku &
Motwani 2002, "Approximate frequency counts over data streams", section 4.2): a count is
then too low by at most `WordCounts.missed`.

Documents are counted in blocks, by several processes if requested, and the blocks'
counts are added in their order, so that any number of processes finds the same counts.
After a fixed number of characters the counts so far can be written to a file, so that
an interrupted run resumes there and finds the same counts as an uninterrupted one.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import operator
import os
import string
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.corpus.documents import add_to_hash, name_of
from bert_keras.errors import ConfigError, DataError, needs
from bert_keras.files.atomic import replaced_file, writing
from bert_keras.runs.process_pool import map_in_processes
from bert_keras.settings import check_whole_number
from bert_keras.version import __version__

_STAGE = 1 << 28  # characters after which the counts are saved
_BLOCK = 1 << 25  # characters of a block
_TEXT_BYTES = 1 << 18  # split at once, within the processor's cache
_STRING_BYTES = 8 << 20  # of texts that wait for the splitter
_IS_PUNCTUATION = bytes(chr(code) in string.punctuation for code in range(256))
MOST_CHARACTERS = 100  # of a word, as by default in the tokenizer
_FORMAT = "bert_keras word counts 1"

Splitter = Callable[[str], list[str]]  # a text to its words


@dataclasses.dataclass(frozen=True)
class WordCounts:
    """The words of a corpus.

    Args:
        counts: word to number of occurrences, most frequent first, equal counts in the
            order of code points.
        words: number of words in the corpus.
        characters: number of characters of all words together.
        texts: number of texts read.
        too_long: words of more than 100 characters, which are not in `counts`; the
            tokenizer maps them to `[UNK]`.
        forgotten: rare words dropped to keep at most `max_words`; a word that occurred
            again later may count twice.
        missed: the largest amount by which any count can be too low.
        splitter: the splitter of texts into words.
    """

    counts: Mapping[str, int]
    words: int
    characters: int
    texts: int
    too_long: int
    forgotten: int
    missed: int
    splitter: Splitter = dataclasses.field(compare=False)


def count_words(
    documents: Iterable[Any],
    *,
    to_sentences: Callable[[Any], Iterable[str]] | None = None,
    keep: str | os.PathLike[str] | None = None,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
    max_words: int = 2_000_000,
    workers: int = 1,
) -> WordCounts:
    """Count the words of documents in one pass; equal documents give equal counts.

    Args:
        documents: strings, or objects whose `text` is one.
        to_sentences: splits a document into texts; `None`: each document is a
            string. Documents that an earlier run has counted are not split again.
        keep: a file for the counts so far. If it exists, the documents that it counts
            are only compared, by their text and `form`, and counting resumes there.
        lowercase, strip_accents, tokenize_chinese_chars: as in the tokenizer.
        max_words: most distinct words to keep, at least 1,000; twice as many while
            counting.
        workers: number of processes. With 2 or more, new processes start for more than
            32 million characters, so a script that calls this needs
            `if __name__ == "__main__":`, and documents and `to_sentences` must be
            picklable.

    Raises:
        ConfigError: a document or a text is no string; the documents are one string.
        DataError: `keep` belongs to other documents or settings, or cannot be written.
    """
    if isinstance(documents, str):
        raise ConfigError("`texts` must be an iterable of texts; received one string")
    check_whole_number("max_words", max_words, least=1000)
    check_whole_number("workers", workers, least=1)
    accents = lowercase if strip_accents is None else strip_accents
    splitting = (lowercase, accents, tokenize_chinese_chars)
    settings = {
        "lowercase": lowercase,
        "strip_accents": accents,
        "tokenize_chinese_chars": tokenize_chinese_chars,
        "max_word_characters": MOST_CHARACTERS,
        "max_words": max_words,
        "sentences_by": to_sentences and name_of(to_sentences),
    }
    make = functools.partial(_block_counter, to_sentences, splitting, max_words)
    counts = _count(documents, make, CountsFile(keep, settings), max_words, workers)
    return _most_frequent_first(counts, max_words, _splitter_of(*splitting))


def _count(
    documents: Iterable[Any],
    make: Callable[[], Callable[[_Block], _Counted]],
    file: CountsFile,
    max_words: int,
    workers: int,
) -> Counts:
    """Return the counts of all documents, from a file as far as it has them."""
    total, stage = Counts(), 0
    blocks = _blocks(documents, file, total)
    first = list(itertools.islice(blocks, 2 if workers > 1 else 0))
    blocks = itertools.chain(first, blocks)
    if len(first) > 1:
        counted = map_in_processes(
            make, blocks, workers=workers, tensorflow=False, in_order=True
        )
    else:
        counted = map(make(), blocks)
    for block, counts in counted:
        total.add(counts)
        total.forget(max_words, most=2 * max_words)
        stage += block.characters
        if stage >= _STAGE:
            stage = 0
            file.write(total, block.read, whole=False)
    file.write(total, file.read_so_far(), whole=True)
    return total


@dataclasses.dataclass(frozen=True)
class _Block:
    """Documents that are counted together.

    `read` are the number and the hash of all documents up to its end.
    """

    documents: list[Any]
    characters: int
    read: tuple[int, str]


def _blocks(
    documents: Iterable[Any], file: CountsFile, total: Counts
) -> Iterator[_Block]:
    """Yield the documents that a file does not count; add the others to `total`."""
    kept = file.read()
    block, characters = [], 0
    for document in documents:
        if kept is not None and file.documents == kept.documents:
            total.add(file.fitting(kept, more=True))
            kept = None
        text = file.compare(document)
        if kept is not None:
            continue
        block.append(document)
        characters += len(text)
        if characters >= _BLOCK:
            yield _Block(block, characters, file.read_so_far())
            block, characters = [], 0
    if kept is not None:
        total.add(file.fitting(kept, more=False))
    if block:
        yield _Block(block, characters, file.read_so_far())


def _block_counter(
    to_sentences: Callable[[Any], Iterable[str]] | None,
    splitting: tuple[bool, bool, bool],
    max_words: int,
) -> Callable[[_Block], _Counted]:
    """Return the function that counts a block, in this process or another one."""

    def count(block: _Block) -> _Counted:
        counter = WordCounter(_splitter_of(*splitting), splitting[0], max_words)
        for document in block.documents:
            for text in to_sentences(document) if to_sentences else (document,):
                counter.add(text)
        counter.count()
        return dataclasses.replace(block, documents=[]), counter.counts

    return count


@dataclasses.dataclass
class Counts:
    """What was found so far, as in `WordCounts`; the words in UTF-8, in any order."""

    texts: int = 0
    too_long: int = 0
    forgotten: int = 0
    missed: int = 0
    words: dict[bytes, int] = dataclasses.field(default_factory=dict)

    def add(self, other: Counts) -> None:
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if not self.words:
            self.words = other.words
            return
        words = self.words
        for word, count in other.words.items():
            words[word] = words.get(word, 0) + count

    def forget(self, max_words: int, *, most: int) -> None:
        """Keep at most `max_words` if there are more than `most`; drops the rarest."""
        if len(self.words) <= most:
            return
        counts = np.fromiter(self.words.values(), np.int64, len(self.words))
        # All words of equal count are dropped or kept, so their order does not matter.
        least = int(np.partition(counts, -max_words - 1)[-max_words - 1])
        kept = {word: count for word, count in self.words.items() if count > least}
        self.forgotten += len(self.words) - len(kept)
        self.missed += least
        self.words = kept


_Counted = tuple[_Block, Counts]  # the block without its documents


class WordCounter:
    """Texts that wait for the splitter, and the word counts of the others."""

    def __init__(self, splitter: Splitter, lowercase: bool, max_words: int) -> None:
        self._splitter = splitter
        self._lowercase = lowercase
        self._max_words = max_words
        self._texts: list[bytes] = []
        self._bytes = self._waiting = 0
        self._strings: list[Any] = []  # Arrow arrays
        self.counts = Counts()

    def add(self, text: str) -> None:
        if not isinstance(text, str):
            kind = type(text).__name__
            raise ConfigError(f"`texts` must hold strings; received a {kind}")
        # A lone surrogate cannot be encoded; the tokenizer also drops it.
        data = text.encode("utf-8", "ignore")
        self.counts.texts += 1
        self._texts.append(data)
        self._bytes += len(data)
        if self._bytes >= _TEXT_BYTES:
            self._cut()

    def _cut(self) -> None:
        # Arrow takes these two for space, but the tokenizer drops them.
        data = b" ".join(self._texts).translate(None, b"\x0b\x0c")
        # Lower-cases only ASCII; the splitter does the rest.
        self._strings.append(_strings(data.lower() if self._lowercase else data))
        self._waiting += self._bytes
        self._texts, self._bytes = [], 0
        if self._waiting >= _STRING_BYTES:
            self._count_words()

    def count(self) -> None:
        """Count the words of all waiting texts."""
        self._cut()
        self._count_words()

    def _count_words(self) -> None:
        import pyarrow
        import pyarrow.compute

        words, split = self.counts.words, self._splitter
        known = words.get
        waiting = pyarrow.chunked_array(self._strings, pyarrow.large_string())
        # Arrow's default allocator keeps 70 MB that are no longer used.
        pool = pyarrow.system_memory_pool()
        found = pyarrow.compute.value_counts(waiting, memory_pool=pool)
        self._strings, self._waiting = [], 0
        strings = found.field(0).cast(pyarrow.large_binary()).to_pylist()
        for data, count in zip(strings, found.field(1).to_pylist(), strict=True):
            parts: Iterable[bytes]
            if data.isalnum():  # for bytes: ASCII only
                parts = (data,)
            else:
                parts = map(str.encode, split(data.decode()))
            for word in parts:
                if len(word) > MOST_CHARACTERS and len(word.decode()) > MOST_CHARACTERS:
                    self.counts.too_long += count
                else:
                    words[word] = known(word, 0) + count
        self.counts.forget(self._max_words, most=2 * self._max_words)


def _strings(text: bytes) -> Any:
    """Return what stands between white space and ASCII punctuation, and the latter."""
    with needs("`vocab`", runtime_extra="parquet"):
        import pyarrow
        import pyarrow.compute

    alone = np.flatnonzero(np.frombuffer(text.translate(_IS_PUNCTUATION), bool))
    codes = np.frombuffer(text, np.uint8)
    codes = np.insert(codes, np.concatenate([alone, alone + 1]), ord(" "))
    ends = np.array([0, len(codes)], np.int64)
    buffers = [None, pyarrow.py_buffer(ends), pyarrow.py_buffer(codes)]
    one = pyarrow.Array.from_buffers(pyarrow.large_string(), 1, buffers)
    split = pyarrow.compute.ascii_split_whitespace
    return split(one, memory_pool=pyarrow.system_memory_pool()).flatten()


def _most_frequent_first(
    found: Counts, max_words: int, splitter: Splitter
) -> WordCounts:
    total = sum(found.words.values())
    found.forget(max_words, most=max_words)
    order = sorted(found.words)  # UTF-8 sorts like code points
    order.sort(key=found.words.__getitem__, reverse=True)
    words = b"\n".join(order).decode().split("\n") if order else []
    counts = dict(zip(words, map(found.words.__getitem__, order), strict=True))
    return WordCounts(
        counts=counts,
        words=total + found.too_long,
        characters=sum(map(operator.mul, map(len, counts), counts.values())),
        texts=found.texts,
        too_long=found.too_long,
        forgotten=found.forgotten,
        missed=found.missed,
        splitter=splitter,
    )


def _splitter_of(lowercase: bool, accents: bool, chinese: bool) -> Splitter:
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    normalize = BertNormalizer(
        lowercase=lowercase, strip_accents=accents, handle_chinese_chars=chinese
    ).normalize_str
    split = BertPreTokenizer().pre_tokenize_str
    return lambda text: [word for word, _ in split(normalize(text))]


@dataclasses.dataclass(frozen=True)
class Kept:
    """The counts after some documents, with their number and hash; whether of all."""

    documents: int
    blake2b: str
    whole: bool
    counts: Counts


_READ = ("documents", "blake2b", "whole")
_COUNTED = ("texts", "too_long", "forgotten", "missed")


class CountsFile:
    """The counts of an unfinished run: a JSON object, then `count word` on each line.

    Args:
        path: the file; with `None` nothing is written or compared.
        settings: everything besides the texts that the counts depend on.

    Attributes:
        documents: number of the current run's documents so far.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, settings: Mapping[str, Any]
    ) -> None:
        self._path = None if path is None else Path(path)
        self._settings = {"format": _FORMAT, "bert_keras": __version__, **settings}
        self._hash = hashlib.blake2b(digest_size=16)
        self.documents = 0

    def compare(self, document: Any) -> str:
        """Add a document to the hash that saved counts must match; returns its text."""
        text = getattr(document, "text", document)
        if not isinstance(text, str):
            kind = type(document).__name__
            raise ConfigError(f"`texts` must hold strings; received a {kind}")
        self.documents += 1
        if self._path is not None:
            add_to_hash(self._hash, document, text)
        return text

    def read(self) -> Kept | None:
        """Return the counts of an earlier run; `None` if there was none."""
        if self._path is None:
            return None
        try:
            with open(self._path, "rb") as file:
                head = json.loads(file.readline())
                number = head.pop("words")
                counts = Counts(*(head.pop(key) for key in _COUNTED))
                documents, blake2b, whole = (head.pop(key) for key in _READ)
                for line in file:
                    count, _, word = line.removesuffix(b"\n").partition(b" ")
                    counts.words[word] = int(count)
        except FileNotFoundError:
            return None
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            raise DataError(message, path=self._path) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._error("is not a file of word counts") from None
        for key, value in self._settings.items():
            if head.get(key) != value:
                raise self._error(
                    f"was counted with `{key}` {head.get(key)!r}; received {value!r}"
                )
        if len(counts.words) != number:
            raise self._error("is truncated")
        return Kept(documents, blake2b, whole, counts)

    def read_so_far(self) -> tuple[int, str]:
        """Return the number and the hash of the current run's documents so far."""
        return self.documents, self._hash.hexdigest()

    def write(self, counts: Counts, read: tuple[int, str], *, whole: bool) -> None:
        """Replace the saved counts, of documents with this number and hash.

        If that fails, the old counts are unchanged.
        """
        if self._path is None or not self.documents:
            return
        head = dict(zip(_READ, (*read, whole), strict=True))
        head |= {key: getattr(counts, key) for key in _COUNTED}
        line = json.dumps({**self._settings, **head, "words": len(counts.words)})
        rows = (b"%d %b\n" % (count, word) for word, count in counts.words.items())
        with writing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replaced_file(self._path) as temporary, open(temporary, "wb") as file:
                file.writelines(itertools.chain([f"{line}\n".encode()], rows))

    def fitting(self, kept: Kept, *, more: bool) -> Counts:
        """Return the saved counts if they count the current documents so far.

        `more` says whether there are more documents.
        """
        if self.read_so_far() != (kept.documents, kept.blake2b) or (
            kept.whole and more
        ):
            raise self._error("holds the counts of texts other than the current ones")
        return kept.counts

    def _error(self, reason: str) -> DataError:
        """Return an error that explains how to start over."""
        return DataError(f"{reason}; delete it to start over", path=self._path)
