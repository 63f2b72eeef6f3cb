"""A WordPiece vocabulary learned from a corpus: `learn_vocabulary`, `write_vocabulary`.

Devlin et al. 2018 (arXiv:1810.04805), section 3, uses 30,000 pieces (Wu et al. 2016,
arXiv:1609.08144); the code that learned them was not released. The pieces come from
`pair_merging`, which trains like `tokenizers`: exactly as many as asked for, learned
from word counts, the same for the same counts. `learner="tf-text"` takes those of
tf-text's trainer. CONTRIBUTING.md says why neither library's trainer is the default.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert_keras.corpus.pair_merging import MARK, merge_pairs
from bert_keras.corpus.word_counts import WordCounts, count_words
from bert_keras.errors import CheckpointError, ConfigError, DataError
from bert_keras.files.atomic import check_path
from bert_keras.settings import check_choice
from bert_keras.text.normalization import WordSplitter
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.text.tokenizer_files import SPECIAL_TOKENS, check_tokens

LEARNERS = ("merges", "tf-text")
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
    size: int = 30_522,
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
        to_sentences: returns the texts of a document (`corpus.sentences_of`); `None`:
            each document is one text.
        folder: where the word counts are kept until `write_vocabulary`, called with the
            same folder, removes them. A run that was killed, or whose `size` was wrong,
            then resumes; the texts are read again and compared.
        size: number of tokens. There are fewer only if no other pair of pieces occurs
            `min_count` times in the corpus.
        lowercase, strip_accents, tokenize_chinese_chars: as in `WordPieceTokenizer`.
        min_count: occurrences that a character or a pair of pieces needs to get a
            token; words with other characters become `[UNK]`. `None`: 2, or one for
            every ten million characters of the corpus if that is more.
        reserved: further tokens to include, such as words or `[unused0]`.
        max_words: most distinct words to keep; the rarest others are forgotten, see
            `word_counts`.
        learner: `merges`, or `tf-text` for the pieces of tf-text's trainer: usually a
            few percent fewer than asked for, in minutes rather than seconds.
        say: is called with lines about what was read, left out and found.

    Raises:
        ConfigError: an argument is wrong, such as a `size` that is too small for the
            characters.
        CheckpointError: `folder` holds a model.
        DataError: the corpus holds no word; `folder` holds the counts of other texts or
            settings, or cannot be written.

    Example:
        >>> learn_vocabulary(["low lower lowest"] * 2, size=25)[-2:]
        ['lower', 'lowest']
    """
    check_tokens((*SPECIAL_TOKENS, *_checked(reserved)))
    check_choice("learner", learner, LEARNERS)
    _check_count("size", size, least=len(SPECIAL_TOKENS) + len(reserved) + 1)
    if min_count is not None:
        _check_count("min_count", min_count, least=1)
    if isinstance(texts, str):
        raise ConfigError("`texts` must be several texts; received one string")
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
    return _learned(words, size, min_count, tuple(reserved), learner, say)


def _learned(
    words: WordCounts,
    size: int,
    min_count: int | None,
    reserved: tuple[str, ...],
    learner: str,
    say: Callable[[str], None] | None,
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
    covered = {c for c, count in characters.items() if count >= min_count}
    if not covered:
        raise ConfigError(
            "`min_count` must be at most that of the most frequent character; no "
            f"character of the corpus occurs {min_count} times"
        )
    tokens = list(dict.fromkeys((*SPECIAL_TOKENS, *reserved, *sorted(covered))))
    tokens = list(dict.fromkeys((*tokens, *_inner(sorted(covered), words.splitter))))
    if len(tokens) > size:
        raise ConfigError(
            f"`size` must hold the special and reserved tokens and the {len(covered):,}"
            f" characters that occur {min_count:,} times or more, "
            f"{len(tokens):,} tokens in all; received {size:,}"
        )
    whole = {word: n for word, n in words.counts.items() if covered.issuperset(word)}
    if learner == "tf-text":
        pieces = _tf_text_pieces(whole, size, min_count, tokens)
    else:
        pieces = merge_pairs(
            list(whole),
            list(whole.values()),
            pieces=size - len(tokens),
            min_count=min_count,
            known=tokens,
        )
    vocabulary = [*tokens, *pieces]
    if say is not None:
        said = _facts(words, sum(whole.values()))
        said.append(
            f"{len(vocabulary):,} tokens; {len(covered):,} characters occur "
            f"{min_count:,} times or more, {len(characters) - len(covered):,} less "
            "often"
        )
        if len(vocabulary) < size:
            why = f"no other pair of pieces occurs {min_count:,} times"
            if learner == "tf-text":
                why = "its search ends there"
            said.append(
                f"{size - len(vocabulary):,} tokens fewer than asked for: {why}"
            )
        for line in said:
            say(line)
    return vocabulary


def _tf_text_pieces(
    words: dict[str, int], size: int, min_count: int, known: list[str]
) -> list[str]:
    """Return the pieces that tf-text's trainer finds besides the known tokens."""
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib

    found = wordpiece_tokenizer_learner_lib.learn(
        sorted(words.items()),
        vocab_size=size,
        reserved_tokens=list(SPECIAL_TOKENS),
        lower_thresh=min_count,
        max_unique_chars=len(known),
        joiner=MARK,
    )
    there = set(known)
    pieces = [p for p in found if p not in there and len(p.removeprefix(MARK)) > 1]
    return pieces[: size - len(known)]


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
            f"{words.forgotten:,} rare words were forgotten to save memory; counts are "
            f"too small by {words.missed:,} at most"
        )
    return facts


def _inner(characters: list[str], splitter: WordSplitter) -> list[str]:
    """Return with `##` the characters that can continue a word: not `,`, not `中`."""
    words = splitter(tf.constant([f"a{character}" for character in characters]))
    counts = words.row_splits[1:] - words.row_splits[:-1]
    joined = counts.numpy().tolist()
    return [MARK + c for c, n in zip(characters, joined, strict=True) if n == 1]


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
    file is written whole or not at all.

    Args:
        folder: is created if necessary. A vocabulary in it is replaced, and the counts
            that `learn_vocabulary` kept there are removed.
        vocabulary: of `learn_vocabulary`, called with the same other arguments.

    Raises:
        ConfigError: the vocabulary is not usable.
        CheckpointError: the folder holds a model, or cannot be written.
    """
    target = Path(folder)
    tokenizer = WordPieceTokenizer(
        vocabulary,
        lowercase=lowercase,
        strip_accents=strip_accents,
        tokenize_chinese_chars=tokenize_chinese_chars,
    )
    _check_folder(folder)
    try:
        tokenizer.save(target)
        (target / _COUNTS).unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"{target}: cannot be written: {reason}") from None
    return tokenizer


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
    """Raise unless the reserved tokens are strings that can be tokens, each once."""
    if isinstance(reserved, str):
        raise ConfigError(f"`reserved` must be several tokens; received {reserved!r}")
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


def _check_count(name: str, value: int, *, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"`{name}` must be at least {least}; received {value!r}")
