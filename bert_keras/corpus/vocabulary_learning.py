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
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.corpus.word_counts import MOST_CHARACTERS, WordCounts, count_words
from bert_keras.errors import CheckpointError, ConfigError, DataError, reason_of
from bert_keras.files.atomic import check_path
from bert_keras.settings import LEARNERS, check_choice, check_whole_number
from bert_keras.text.plain_splitter import PlainSplitter
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
        to_sentences: splits a document into texts (`corpus.sentences_of`); `None`:
            each document is one text.
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
    if isinstance(texts, str):
        raise ConfigError("`texts` must be an iterable of texts; received one string")
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
    characters: Counter[str] = Counter()
    for word, count in words.counts.items():
        for character in word:
            characters[character] += count
    covered = sorted(c for c, count in characters.items() if count >= min_count)
    if not covered:
        raise ConfigError(
            "`min_count` must be at most the count of the most frequent character; "
            f"no character of the corpus occurs {min_count} times"
        )
    inner = _inner(covered, words.splitter)
    tokens = list(dict.fromkeys((*SPECIAL_TOKENS, *reserved, *covered, *inner)))
    if len(tokens) > size:
        raise ConfigError(
            f"`size` must hold the special and reserved tokens and the {len(covered):,}"
            f" characters that occur {min_count:,} times or more, "
            f"{len(tokens):,} tokens in all; received {size:,}"
        )
    known = set(covered)
    whole = {word: n for word, n in words.counts.items() if known.issuperset(word)}
    most = size - len(tokens)
    if learner == "tf-text":
        pieces = _tf_text_pieces(whole, most, min_count, tokens)
    else:
        pieces = merge_pairs(whole, pieces=most, min_count=min_count, known=tokens)
    vocabulary = [*tokens, *pieces]
    for line in _facts(words, sum(whole.values())):
        say(line)
    say(
        f"{len(vocabulary):,} tokens; {len(covered):,} characters occur "
        f"{min_count:,} times or more, {len(characters) - len(covered):,} less often"
    )
    if len(vocabulary) < size:
        why = f"no other pair of pieces occurs {min_count:,} times"
        if learner == "tf-text":
            why = "its search ends there"
        say(f"{size - len(vocabulary):,} tokens fewer than requested: {why}")
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


def _facts(words: WordCounts, whole: int) -> list[str]:
    """Return facts about the words, `whole` of which consist of known characters."""
    kept = sum(words.counts.values())
    unknown = (kept - whole + words.too_long) / (kept + words.too_long)
    facts = [
        f"{words.texts:,} texts, {words.words:,} words, {len(words.counts):,} of them "
        f"different; {unknown:.4%} would be [UNK]"
    ]
    if words.forgotten:
        facts.append(
            f"{words.forgotten:,} rare words were dropped to save memory; counts are "
            f"too small by {words.missed:,} at most"
        )
    return facts


def _inner(characters: list[str], splitter: PlainSplitter) -> list[str]:
    """Return, with `##`, the characters that can continue a word: not `,`, not `中`."""
    return [MARK + c for c in characters if len(splitter(f"a{c}")) == 1]


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
_FEW = 32  # places of a pair, which are faster one by one than as an array
_SHIFT = 32  # a pair is one number: first piece << 32 | second piece


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
    merger = _Merger(dict(sorted(words.items())), known, min_count)
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
    places of the neighbours; `weight`, the occurrences of its word. Of each pair:
    `counts`, its occurrences, and `places`, arrays of the places where it has ever
    started.
    """

    def __init__(
        self, words: Mapping[str, int], known: Iterable[str], min_count: int
    ) -> None:
        self.known = set(known)
        self.min_count = min_count
        starts = sorted({word[0] for word in words})
        others = sorted({MARK + character for word in words for character in word[1:]})
        self.names = starts + others
        self.numbers = {name: number for number, name in enumerate(self.names)}
        sizes = np.array([len(word) for word in words], np.int64)
        ends = np.cumsum(sizes + 1)  # each word is followed by a separator
        size = int(ends[-1]) + 1
        piece = np.full(size, _NONE, np.int32)
        piece[1:] = self._characters(words, ends, sizes)
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
        self.counts: dict[int, int] = {}
        self.places: dict[int, list[Any]] = {}
        self.queue: list[tuple[int, str, str, int]] = []
        self._add(np.arange(size - 1, dtype=np.int32))

    def _characters(self, words: Iterable[str], ends: Any, sizes: Any) -> Any:
        """Return the pieces of all words as characters, int32 [N - 1]."""
        joined = "\n".join((*words, ""))
        codes = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
        first = np.zeros(len(codes), bool)
        first[ends - sizes - 1] = True
        table = np.full((2, int(codes.max()) + 1), _NONE, np.int32)
        for number, name in enumerate(self.names):
            inside = name.startswith(MARK) and len(name) > len(MARK)
            table[int(inside), ord(name[-1])] = number
        pieces = table[np.where(first, 0, 1), codes]
        pieces[ends - 1] = _NONE
        return pieces

    def merge(self, pieces: int) -> list[str]:
        """Merge until enough new pieces are found or no pair is frequent enough."""
        found: list[str] = []
        while self.queue and len(found) < pieces:
            least, _, _, pair = heapq.heappop(self.queue)
            count = self.counts.get(pair, 0)
            if count < -least:  # it has become rarer since being queued
                if count:
                    self._put(pair, count)
                continue
            if count < self.min_count:
                break
            name = self._name(pair)
            number = self.numbers.setdefault(name, len(self.names))
            if number == len(self.names):
                self.names.append(name)
                if name not in self.known:
                    found.append(name)
            self._merge(pair, number)
        return found

    def _name(self, pair: int) -> str:
        first, second = self.names[pair >> _SHIFT], self.names[pair & 0xFFFFFFFF]
        return first + second.removeprefix(MARK)

    def _merge(self, pair: int, number: int) -> None:
        """Replace all occurrences of a pair by a piece."""
        del self.counts[pair]
        stored = self.places.pop(pair)
        if sum(map(len, stored)) <= _FEW:
            few = sorted(place for some in stored for place in some.tolist())
            self._merge_few(few, pair, number)
            return
        first, second = pair >> _SHIFT, pair & 0xFFFFFFFF
        places = np.concatenate(stored)
        nexts = self.after[places]
        good = (self.piece[places] == first) & (self.piece[nexts] == second)
        places = places[good]
        if first == second:
            places = _apart(np.sort(places), self.after)
        nexts = self.after[places]
        ends, lefts = self.after[nexts], self.before[places]
        weights, before = self.weight[places], self.piece[lefts].astype(np.int64)
        after = self.piece[ends].astype(np.int64)
        # Where two occurrences meet, the pair between them is before the second one.
        meets = after == first
        meets[meets] = self.piece[self.after[ends[meets]]] == second
        self._subtract(before, before << _SHIFT | first, weights, pair)
        self._subtract(
            np.where(meets, _NONE, after), second << _SHIFT | after, weights, pair
        )
        self.piece[places] = number
        self.piece[nexts] = _GONE
        self.after[places] = ends
        self.before[ends] = places
        lefts = self.before[places]
        before, after = (self.piece[each].astype(np.int64) for each in (lefts, ends))
        if meets.any():  # this one is after the first one
            before[np.isin(places, ends[meets])] = _NONE
        self._count(before, before << _SHIFT | number, weights, lefts)
        self._count(after, number << _SHIFT | after, weights, places)

    def _merge_few(self, places: list[int], pair: int, number: int) -> None:
        """Do the same for few places, one by one: most pieces occur in few words."""
        first, second = pair >> _SHIFT, pair & 0xFFFFFFFF
        piece, weight, before, after = self.plain
        counts = self.counts
        seconds, made = second << _SHIFT, number << _SHIFT
        new: dict[int, list[int]] = {}
        for place in places:
            follower = after[place]
            if piece[place] != first or piece[follower] != second:
                continue
            count, left, end = weight[place], before[place], after[follower]
            piece[place], piece[follower] = number, _GONE
            after[place], before[end] = end, place
            if (one := piece[left]) >= 0:
                old = one << _SHIFT | first
                if old != pair and old in counts:
                    counts[old] -= count
                found = one << _SHIFT | number
                counts[found] = counts.get(found, 0) + count
                new.setdefault(found, []).append(left)
            if (one := piece[end]) >= 0:
                old = seconds | one
                if old != pair and old in counts:
                    counts[old] -= count
                found = made | one
                counts[found] = counts.get(found, 0) + count
                new.setdefault(found, []).append(place)
        for found, starts in new.items():
            self.places.setdefault(found, []).append(array.array("i", starts))
            self._put(found, counts[found])

    def _add(self, places: Any) -> None:
        """Count the pairs that begin at these places."""
        first = self.piece[places].astype(np.int64)
        second = self.piece[self.after[places]].astype(np.int64)
        is_pair = np.minimum(first, second)
        self._count(is_pair, first << _SHIFT | second, self.weight[places], places)

    def _subtract(self, other: Any, pairs: Any, weights: Any, merged: int) -> None:
        """Subtract pairs from the counts where there is another piece."""
        _, found, _, counts = _grouped(other, pairs, weights)
        for pair, count in zip(found, counts, strict=True):
            if pair != merged:
                self.counts[pair] -= count

    def _count(self, other: Any, pairs: Any, weights: Any, places: Any) -> None:
        """Add pairs, and their places, where there is another piece."""
        order, found, begins, counts = _grouped(other, pairs, weights)
        places, ends = places[order], [*begins[1:], len(order)]
        for pair, begin, end, count in zip(found, begins, ends, counts, strict=False):
            total = self.counts.get(pair, 0) + count
            self.counts[pair] = total
            self.places.setdefault(pair, []).append(places[begin:end])
            self._put(pair, total)

    def _put(self, pair: int, count: int) -> None:
        """Queue a pair that may be merged: a rarer one is queued when it is found."""
        if count < self.min_count:
            return
        first, second = self.names[pair >> _SHIFT], self.names[pair & 0xFFFFFFFF]
        if len(first) + len(second) <= _MOST_CHARACTERS:
            heapq.heappush(self.queue, (-count, first, second, pair))


def _grouped(
    other: Any, pairs: Any, weights: Any
) -> tuple[Any, list[int], list[int], list[int]]:
    """Return the order by pair where there is another piece; pairs, starts, counts."""
    order = np.flatnonzero(other >= 0)
    order = order[np.argsort(pairs[order], kind="stable")]
    if not len(order):
        return order, [], [], []
    pairs = pairs[order]
    begins = np.flatnonzero(_changes(pairs))
    counts = np.add.reduceat(weights[order], begins)
    return order, pairs[begins].tolist(), begins.tolist(), counts.tolist()


def _changes(values: Any) -> Any:
    """Return bool [N], true where a value differs from the one before; first true."""
    changes = np.empty(len(values), bool)
    changes[:1] = True
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def _apart(places: Any, after: Any) -> Any:
    """Return every second of adjacent places: `aaa` contains `aa` once."""
    follows = np.concatenate([[False], after[places[:-1]] == places[1:]])
    index = np.arange(len(places))
    begin = np.maximum.accumulate(np.where(follows, 0, index))
    return places[(index - begin) % 2 == 0]
