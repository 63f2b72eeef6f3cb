"""A WordPiece vocabulary learned from a corpus: `learn_vocabulary`, `write_vocabulary`.

Devlin et al. 2018 (arXiv:1810.04805), section 3, uses 30,000 pieces (Wu et al. 2016,
arXiv:1609.08144); the code that learned them was not released. CONTRIBUTING.md explains
why no library's trainer is the default.

`merge_pairs` is byte-pair encoding (Sennrich et al. 2016, arXiv:1508.07909, section
3.2) over counted words, with WordPiece's marks: a piece inside a word begins with `##`.
Every word starts as characters; then the most frequent pair of neighbours in the corpus
becomes one piece, again and again. Ties between equally frequent pairs are broken by
their characters; in `tokenizers` the order of a hash table breaks them. All words are
stored one after the other in arrays. A piece is stored at the place of its first
character, with links to its neighbours, so a merge is a few array operations on all
places of a pair, or a loop if there are few.
"""

from __future__ import annotations

import array
import gc
import heapq
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.corpus.word_counts import MOST_CHARACTERS, WordCounts, count_words
from bert_keras.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    counted,
    reason_of,
)
from bert_keras.files.atomic import check_path
from bert_keras.settings import LEARNERS, check_choice, check_whole_number
from bert_keras.text.tokenizer_files import SPECIAL_TOKENS, check_tokens, write_folder

if TYPE_CHECKING:
    from bert_keras.text.tokenizer import WordPieceTokenizer

VOCABULARY_SIZE = 30_522
_CHARACTERS_A_COUNT = 10_000_000
_LEAST_COUNT = 2
# A folder with one of these holds a model, which depends on its vocabulary.
_OF_A_MODEL = ("model.safetensors", "config.json", "tokenizer.json")
_COUNTS = "unfinished-counts"  # kept in the folder until the vocabulary is written


def learn_vocabulary(
    texts: Iterable[Any],
    *,
    to_sentences: Callable[[Any], Iterable[str]] | None = None,
    folder: str | os.PathLike[str] | None = None,
    size: int = VOCABULARY_SIZE,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
    min_count: int | None = None,
    reserved: Sequence[str] = (),
    max_words: int = 2_000_000,
    learner: str = "merges",
    workers: int = 1,
    say: Callable[[str], None] | None = None,
) -> list[str]:
    """Return the tokens of a new vocabulary, in the order of their ids.

    First `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`, `[MASK]`, then `reserved`, then the
    characters (those that start a word, then those inside a word with `##`), each group
    in the order of code points, then the learned pieces, frequent ones first. Equal
    word counts give equal vocabularies.

    Args:
        texts: the corpus, read once: strings, or the documents that `to_sentences`
            takes, objects with a string `text` (`corpus.raw_documents`).
        to_sentences: splits a document into texts (`corpus.texts_of`); `None`: each
            document is one text.
        folder: where the word counts are kept until `write_vocabulary`, called with the
            same folder, removes them. A run that was killed, or whose `size` was wrong,
            then resumes; the texts are read again and compared.
        size: number of tokens. There are fewer only if no other pair of pieces occurs
            `min_count` times in the corpus.
        lowercase, strip_accents, tokenize_chinese_chars: as in `WordPieceTokenizer`.
        min_count: occurrences that a character or a pair of pieces needs for a
            token; words with other characters become `[UNK]`. `None`: 2, or one for
            every ten million characters of the corpus if that is more.
        reserved: further tokens to include, such as words or `[unused0]`.
        max_words: most distinct words to keep; the rarest are dropped, see
            `word_counts`.
        learner: `merges`, or `tf-text` for the pieces of tf-text's trainer: usually a
            few percent fewer than requested, in minutes rather than seconds.
        workers: number of processes that count words; the vocabulary does not depend
            on it. See `count_words`.
        say: called with lines about what was read, skipped and found.

    Raises:
        ConfigError: an argument is wrong, such as a `size` that is too small for the
            characters.
        CheckpointError: `folder` holds a model.
        DataError: the corpus contains no word; `folder` holds counts of other texts or
            settings, or cannot be written.

    Example:
        >>> learn_vocabulary(["low lower lowest"] * 2, size=25)[-2:]
        ['lower', 'lowest']
    """
    check_tokens((*SPECIAL_TOKENS, *_checked(reserved)))
    check_choice("learner", learner, LEARNERS)
    check_whole_number("size", size, least=len(SPECIAL_TOKENS) + len(reserved) + 1)
    if min_count is not None:
        check_whole_number("min_count", min_count, least=1)
    if folder is not None:
        _check_folder(folder)
    words = count_words(
        texts,
        to_sentences=to_sentences,
        keep=None if folder is None else Path(folder) / _COUNTS,
        lowercase=lowercase,
        strip_accents=strip_accents,
        tokenize_chinese_chars=tokenize_chinese_chars,
        max_words=max_words,
        workers=workers,
    )
    say = say or (lambda line: None)
    return _learned(words, size, min_count, tuple(reserved), learner, say)


def _learned(
    words: WordCounts,
    size: int,
    min_count: int | None,
    reserved: tuple[str, ...],
    learner: str,
    say: Callable[[str], None],
) -> list[str]:
    """Return the vocabulary of counted words; see `learn_vocabulary`."""
    if not words.counts:
        raise DataError(f"the corpus must hold words; read {words.texts} texts")
    if min_count is None:
        min_count = max(_LEAST_COUNT, words.characters // _CHARACTERS_A_COUNT)
    sizes = np.fromiter(map(len, words.counts), np.int64, len(words.counts))
    counts = np.fromiter(words.counts.values(), np.int64, len(words.counts))
    codes = _codes("".join(words.counts))
    found = np.bincount(codes, np.repeat(counts, sizes))  # by code point
    characters = np.count_nonzero(found)
    covered = [chr(code) for code in np.flatnonzero(found >= min_count).tolist()]
    if not covered:
        raise ConfigError(
            "`min_count` must be at most the count of the most frequent character; "
            f"no character of the corpus occurs {min_count} times"
        )
    # Characters that can continue a word: not `,`, not `中`.
    inner = [MARK + c for c in covered if len(words.splitter(f"a{c}")) == 1]
    tokens = list(dict.fromkeys((*SPECIAL_TOKENS, *reserved, *covered, *inner)))
    if len(tokens) > size:
        raise ConfigError(
            f"`size` must hold the special and reserved tokens and the {len(covered):,}"
            f" characters that occur {min_count:,} times or more, "
            f"{len(tokens):,} tokens in all; received {size:,}"
        )
    rarest = np.minimum.reduceat(found[codes], np.cumsum(sizes) - sizes)
    is_whole = (rarest >= min_count).tolist()
    whole = dict(itertools.compress(words.counts.items(), is_whole))
    most = size - len(tokens)
    if learner == "tf-text":
        pieces = _tf_text_pieces(whole, most, min_count, tokens)
    else:
        pieces = merge_pairs(whole, pieces=most, min_count=min_count, known=tokens)
    vocabulary = [*tokens, *pieces]
    _say_facts(words, sum(whole.values()), say)
    say(
        f"{len(vocabulary):,} tokens; {len(covered):,} characters occur "
        f"{min_count:,} times or more, {characters - len(covered):,} less often"
    )
    if len(vocabulary) < size:
        why = f"no other pair of pieces occurs {min_count:,} times"
        if learner == "tf-text":
            why = "its search ends there"
        say(f"{counted(size - len(vocabulary), 'tokens')} fewer than requested: {why}")
    return vocabulary


def _tf_text_pieces(
    words: dict[str, int], most: int, min_count: int, known: list[str]
) -> list[str]:
    """Return the pieces that tf-text's trainer finds besides the known tokens."""
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib

    found = wordpiece_tokenizer_learner_lib.learn(
        sorted(words.items()),
        vocab_size=most + len(known),
        reserved_tokens=list(SPECIAL_TOKENS),
        lower_thresh=min_count,
        max_unique_chars=len(known),
        joiner=MARK,
    )
    there = set(known)
    pieces = [p for p in found if p not in there and len(p.removeprefix(MARK)) > 1]
    return pieces[:most]


def _say_facts(words: WordCounts, whole: int, say: Callable[[str], None]) -> None:
    """Say facts about the words, `whole` of which consist of known characters."""
    kept = sum(words.counts.values())
    unknown = (kept - whole + words.too_long) / (kept + words.too_long)
    texts = counted(words.texts, "texts")
    say(
        f"{texts}, {words.words:,} words, {len(words.counts):,} of them "
        f"different; {unknown:.4%} would be [UNK]"
    )
    if words.forgotten:
        say(
            f"{words.forgotten:,} rare words were dropped to save memory; counts are "
            f"too small by {words.missed:,} at most"
        )


def _codes(text: str) -> Any:
    """Return the code points of a text, uint32 [characters]."""
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def write_vocabulary(
    folder: str | os.PathLike[str],
    vocabulary: Sequence[str],
    *,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
) -> WordPieceTokenizer:
    """Write vocab.txt and tokenizer_config.json and return the tokenizer of the folder.

    `WordPieceTokenizer.from_folder` and Hugging Face's `BertTokenizer` open it. Each
    file is written atomically.

    Args:
        folder: is created if necessary. A vocabulary in it is replaced, and the counts
            that `learn_vocabulary` kept there are removed; a model is an error.
        vocabulary: from `learn_vocabulary`, called with the same other arguments.
    """
    settings: dict[str, Any] = {
        "lowercase": lowercase,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": tokenize_chinese_chars,
    }
    write_vocabulary_files(folder, vocabulary, **settings)
    from bert_keras.text.tokenizer import WordPieceTokenizer

    return WordPieceTokenizer(vocabulary, **settings)


def write_vocabulary_files(
    folder: str | os.PathLike[str],
    vocabulary: Sequence[str],
    *,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
) -> None:
    """Write the files of `write_vocabulary`, without TensorFlow."""
    settings = {
        "vocabulary": check_tokens(vocabulary),
        "lowercase": lowercase,
        "strip_accents": strip_accents,
        "tokenize_chinese_chars": tokenize_chinese_chars,
        "special_tokens_in_text": "literal",
        "max_word_characters": MOST_CHARACTERS,
    }
    _check_folder(folder)
    try:
        write_folder(folder, settings)
        (Path(folder) / _COUNTS).unlink(missing_ok=True)
    except OSError as error:
        message = f"{os.fspath(folder)}: cannot be written: {reason_of(error)}"
        raise CheckpointError(message) from None


def _check_folder(folder: str | os.PathLike[str]) -> None:
    check_path("folder", folder)
    target = Path(folder)
    for name in _OF_A_MODEL:
        if (target / name).exists():
            raise CheckpointError(
                f"{target}: must not hold a model, whose vocabulary this would "
                f"replace; holds {name}"
            )


def _checked(reserved: Sequence[str]) -> Sequence[str]:
    """Raise unless the reserved tokens are valid, distinct tokens."""
    if isinstance(reserved, str):
        raise ConfigError(f"`reserved` must be a list of tokens; received {reserved!r}")
    seen = set(SPECIAL_TOKENS)
    for token in reserved:
        if not isinstance(token, str) or not token or token.split() != [token]:
            raise ConfigError(
                f"`reserved` must hold tokens without white space; received {token!r}"
            )
        if token in seen:
            kind = "one of ours" if token in SPECIAL_TOKENS else "twice"
            raise ConfigError(f"`reserved` must hold new tokens; {token!r} is {kind}")
        seen.add(token)
    return reserved


MARK = "##"
_MOST_CHARACTERS = 64  # of a piece; tf-text takes 256 bytes
_NONE = -1  # between words
_GONE = -2  # inside a piece
_FEW = 64  # places of a pair, which are faster one by one than as an array
_SHIFT = 32  # a pair is one number: first piece << 32 | second piece
_LAST = (1 << _SHIFT) - 1


def merge_pairs(
    words: Mapping[str, int],
    *,
    pieces: int,
    min_count: int = 1,
    known: Iterable[str] = (),
) -> list[str]:
    """Return new pieces, all different, in the order in which they were merged.

    Args:
        words: words, in any order, with their occurrences in the corpus.
        pieces: most pieces to find.
        min_count: occurrences that a pair needs.
        known: pieces, besides the characters of the words, that are not new.

    Example:
        >>> merge_pairs({"low": 5, "lower": 2, "new": 6}, pieces=3)
        ['##ow', 'low', '##ew']
    """
    if not words:
        return []
    merger = _Merger(words, known, min_count)
    # Millions of objects, none of them in a cycle, would be searched for cycles.
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        return merger.merge(pieces)
    finally:
        if is_enabled:
            gc.enable()


class _Merger:
    """The words as pieces, and the places of each pair of pieces.

    A piece's number is its index in `names`. Of each place, int [N]: `piece`, the
    number of the piece that begins there, or _NONE, _GONE; `before` and `after`, the
    places of the neighbours; `weight`, the occurrences of its word. `pairs` has a list
    of each pair: its occurrences, then the places where it has ever started, single
    ones and arrays of several. `waiting` has the pairs that had a count; `order` is a
    heap of these counts, negative.
    """

    def __init__(
        self, words: Mapping[str, int], known: Iterable[str], min_count: int
    ) -> None:
        self.known = set(known)
        self.min_count = min_count
        sizes = np.array([len(word) for word in words], np.int64)
        ends = np.cumsum(sizes + 1)  # each word is followed by a separator
        size = int(ends[-1]) + 1
        codes = _codes("\n".join((*words, "")))
        inside = np.ones(len(codes), bool)
        inside[ends - sizes - 1] = inside[ends - 1] = False
        begins, inner = np.unique(codes[ends - sizes - 1]), np.unique(codes[inside])
        self.names = [*map(chr, begins.tolist())]
        self.names += [MARK + chr(code) for code in inner.tolist()]
        self.numbers = {name: number for number, name in enumerate(self.names)}
        piece = np.full(size, _NONE, np.int32)
        piece[ends - sizes] = np.searchsorted(begins, codes[ends - sizes - 1])
        piece[1:][inside] = len(begins) + np.searchsorted(inner, codes[inside])
        weight = np.zeros(size, np.int64)
        counts = np.array(list(words.values()), np.int64)
        weight[1:] = np.repeat(counts, sizes + 1)
        before = np.arange(-1, size - 1, dtype=np.int32)
        after = np.arange(1, size + 1, dtype=np.int32)
        # Python reads single numbers faster from these than from NumPy's arrays, which
        # share their memory.
        arrays: tuple[Any, ...] = (piece, weight, before, after)
        self.plain = [
            array.array(kind, each.tobytes())
            for kind, each in zip("iqii", arrays, strict=True)
        ]
        self.piece, self.weight, self.before, self.after = (
            np.frombuffer(each, each.typecode) for each in self.plain
        )
        self.pairs: dict[int, list[Any]] = {}
        self.waiting: dict[int, list[int]] = {}
        self.order: list[int] = []
        starts = np.flatnonzero((piece[:-1] >= 0) & (piece[1:] >= 0)).astype(np.int32)
        pairs = piece[starts].astype(np.int64) << _SHIFT | piece[starts + 1]
        for pair, count, found in _grouped(pairs, weight[starts], starts):
            self.pairs[pair] = [count, found]
            self._wait(pair, count)

    def merge(self, pieces: int) -> list[str]:
        """Merge until enough new pieces are found or no pair is frequent enough."""
        found: list[str] = []
        while self.order and len(found) < pieces:
            count = -heapq.heappop(self.order)
            ready: list[tuple[str, str, int]] = []  # pairs of this count, by characters
            while len(found) < pieces:
                for pair in self.waiting.pop(count, ()):  # also of the merge before
                    first, second = self.names[pair >> _SHIFT], self.names[pair & _LAST]
                    if len(first) + len(second) <= _MOST_CHARACTERS:
                        heapq.heappush(ready, (first, second, pair))
                if not ready:
                    break
                first, second, pair = heapq.heappop(ready)
                now = self.pairs[pair][0] if pair in self.pairs else 0
                if now != count:  # it has become rarer since waiting
                    self._wait(pair, now)
                    continue
                name = first + second.removeprefix(MARK)
                number = self.numbers.setdefault(name, len(self.names))
                if number == len(self.names):
                    self.names.append(name)
                    if name not in self.known:
                        found.append(name)
                self._merge(pair, number)
        return found

    def _merge(self, pair: int, number: int) -> None:
        """Replace all occurrences of a pair by a piece."""
        _, *parts = self.pairs.pop(pair)
        arrays = [part for part in parts if not isinstance(part, int)]
        few = [part for part in parts if isinstance(part, int)]
        first, second = pair >> _SHIFT, pair & _LAST
        if first == second or len(few) + sum(map(len, arrays)) <= _FEW:
            few += [place for some in arrays for place in some.tolist()]
            self._merge_few(sorted(few), pair, number)
            return
        places = np.concatenate([*arrays, np.array(few, np.int32)])
        nexts = self.after[places]
        good = (self.piece[places] == first) & (self.piece[nexts] == second)
        places, nexts = places[good], nexts[good]
        ends, lefts = self.after[nexts], self.before[places]
        # Where two occurrences may meet, the pair between them belongs to both.
        meets = (self.piece[ends] == first) | (self.piece[lefts] == second)
        if meets.any():
            self._merge_few(np.sort(places[meets]).tolist(), pair, number)
            apart = np.flatnonzero(~meets)
            places, nexts, ends = places[apart], nexts[apart], ends[apart]
            lefts = lefts[apart]
        weights = self.weight[places]
        self.piece[places] = number
        self.piece[nexts] = _GONE
        self.after[places] = ends
        self.before[ends] = places
        for one, count, found in _grouped(self.piece[lefts], weights, lefts):
            self._recount(one << _SHIFT | first, one << _SHIFT | number, count, found)
        for one, count, found in _grouped(self.piece[ends], weights, places):
            self._recount(second << _SHIFT | one, number << _SHIFT | one, count, found)

    def _recount(self, old: int, new: int, count: int, places: Any) -> None:
        """Subtract occurrences of a pair and add another one, with its places."""
        if old in self.pairs:
            self.pairs[old][0] -= count
        entry = self.pairs.setdefault(new, [0])
        entry[0] += count
        entry.append(places)
        self._wait(new, entry[0])

    def _merge_few(self, places: list[int], pair: int, number: int) -> None:
        """Do the same for few places, one by one: most pieces occur in few words."""
        first, second = pair >> _SHIFT, pair & _LAST
        piece, weight, before, after = self.plain
        pairs = self.pairs
        seconds, made = second << _SHIFT, number << _SHIFT
        changed: dict[int, list[Any]] = {}
        for place in places:
            follower = after[place]
            if piece[place] != first or piece[follower] != second:
                continue
            count, left, end = weight[place], before[place], after[follower]
            piece[place], piece[follower] = number, _GONE
            after[place], before[end] = end, place
            if (one := piece[left]) >= 0:
                old, new = one << _SHIFT | first, one << _SHIFT | number
                if old in pairs:
                    pairs[old][0] -= count
                entry = changed[new] = pairs.setdefault(new, [0])
                entry[0] += count
                entry.append(left)
            if (one := piece[end]) >= 0:
                old, new = seconds | one, made | one
                if old in pairs:
                    pairs[old][0] -= count
                entry = changed[new] = pairs.setdefault(new, [0])
                entry[0] += count
                entry.append(place)
        for new, entry in changed.items():
            self._wait(new, entry[0])

    def _wait(self, pair: int, count: int) -> None:
        """Let a pair wait for its count; one that becomes rarer then waits again."""
        if count < self.min_count:
            return
        if (same := self.waiting.get(count)) is None:
            self.waiting[count] = same = []
            heapq.heappush(self.order, -count)
        same.append(pair)


def _grouped(pieces: Any, weights: Any, places: Any) -> Iterator[tuple[int, int, Any]]:
    """Yield each piece with the sum of its weights and its places, int [N]."""
    there = np.flatnonzero(pieces >= 0)
    if not len(there):
        return
    order = there[pieces[there].argsort(kind="stable")]
    pieces, places = pieces[order], places[order]
    begins = np.flatnonzero(pieces[1:] != pieces[:-1]) + 1
    ends, begins = [*begins.tolist(), len(order)], np.append(0, begins)
    counts = np.add.reduceat(weights[order], begins).tolist()
    for one, count, begin, end in zip(
        pieces[begins].tolist(), counts, begins.tolist(), ends, strict=True
    ):
        yield one, count, places[begin:end]
