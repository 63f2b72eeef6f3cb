"""A tokenizer with further tokens: `with_new_tokens` and `with_words`.

The first adds tokens that are found in texts as they are written, the second entries of
the vocabulary, which are found among words and pieces.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from bert_keras.errors import ConfigError, first_of, received, shown
from bert_keras.text.added_tokens import AddedToken
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.text.tokenizer_files import vocabulary_hash

_SHOWN = 5


def with_new_tokens(
    tokenizer: WordPieceTokenizer, tokens: Sequence[str]
) -> tuple[WordPieceTokenizer, list[str]]:
    """Return the tokenizer with the words that it splits as added tokens, and notes.

    These tell what was added and left out, and for which tokens the vocabulary has no
    pieces. Added tokens get the next ids, in their order. A token that begins and ends
    with a digit or a letter of an alphabet with capitals is found as a whole word only,
    so that `cat` leaves `category` alone; others are found wherever they are written.

    Args:
        tokenizer: stays as it is.
        tokens: texts. Texts that are one token already, or that the tokenizer reads as
            an earlier one, are left out.

    Raises:
        ConfigError: a token has no visible characters, or is not a string.

    Example:
        >>> words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "co", "##vid"]
        >>> tokenizer, notes = with_new_tokens(
        ...     WordPieceTokenizer(words), ["Covid", "co"]
        ... )
        >>> notes[0]
        'added tokens, 1 of 2: Covid'
        >>> tokenizer(["COVID"]).to_list()
        [[6]]
    """
    new: dict[str, str] = {}  # as the tokenizer reads it: as it is given
    known, again, unknown = [], [], []
    for token, pieces in zip(tokens, _pieces(tokenizer, tokens), strict=True):
        lacks, as_read = tokenizer.unk_id in pieces, _as_read(tokenizer, token)
        if tokenizer.token_to_id(token) is not None or len(pieces) == 1 and not lacks:
            known.append(token)
        elif as_read in new:
            again.append(token)
        else:
            new[as_read] = token
            unknown += [token] if lacks else []
    found = list(new.values())
    notes = [
        f"{what}: {first_of(some, most=_SHOWN)}"
        for some, what in (
            (found or ["none"], f"added tokens, {len(found):,} of {len(tokens):,}"),
            (known, "not added, since each is one token already"),
            (again, "not added, since each is read as an earlier one"),
            (unknown, "added from [UNK], since the vocabulary has no pieces for them"),
        )
        if some
    ]
    added = [AddedToken(token, single_word=_is_word(token)) for token in found]
    return tokenizer.add_tokens(added), notes


def with_words(
    tokenizer: WordPieceTokenizer, words: Sequence[str]
) -> WordPieceTokenizer:
    """Return a tokenizer with words as further entries of its vocabulary.

    Added tokens with ids after the vocabulary become entries of it, and so keep them.

    Raises:
        ConfigError: a word is a token already, or given twice.
    """
    known = [word for word in words if tokenizer.token_to_id(word) is not None]
    if known:
        raise ConfigError(
            f"`words` must not be in the vocabulary; received {shown(known[0])}"
        )
    config = {**tokenizer.get_config(), "vocabulary": [*tokenizer.vocabulary, *words]}
    return WordPieceTokenizer.from_config(config)


def described(tokens: Sequence[str]) -> str:
    """Return the number of tokens, the first of them, and a digest of all."""
    first = first_of(tokens, most=_SHOWN)
    return f"{len(tokens):,} ({first}), SHA-256 {vocabulary_hash(tokens)[:12]}"


def _pieces(tokenizer: WordPieceTokenizer, tokens: Sequence[str]) -> list[list[int]]:
    """Return the ids of the pieces of tokens; raise if one has none."""
    if isinstance(tokens, str) or not tokens:
        raise ConfigError(f"`add_tokens` must be a list of texts; {received(tokens)}")
    for token in tokens:
        if not isinstance(token, str) or token != token.strip():
            raise ConfigError(
                "`add_tokens` must hold texts without white space around them; "
                f"{received(token)}"
            )
    found: list[list[int]] = tokenizer(list(tokens)).to_list()
    for token, pieces in zip(tokens, found, strict=True):
        if not pieces:
            raise ConfigError(
                "`add_tokens` must hold tokens with a visible character; received "
                f"{shown(token)}"
            )
    return found


def _as_read(tokenizer: WordPieceTokenizer, token: str) -> str:
    """Return a token in the case, and without the accents, that the tokenizer drops."""
    if tokenizer.strip_accents:
        parts = unicodedata.normalize("NFD", token)
        token = "".join(c for c in parts if unicodedata.category(c) != "Mn")
    return token.lower() if tokenizer.lowercase else token


def _is_word(token: str) -> bool:
    """Return whether a token begins and ends as a word with spaces around it does.

    Scripts without capitals may write words together, or join particles to them.
    """
    return all(c.isdigit() or c.lower() != c.upper() for c in (token[0], token[-1]))


def with_marks(
    tokenizer: WordPieceTokenizer, marks: Sequence[str]
) -> WordPieceTokenizer:
    """Return a tokenizer that reads marks of texts, such as `[unused0]`, as one token.

    As in sentence-transformers, a mark is a text, or its first word, that is a token of
    the vocabulary and would be split; others remain words.
    """
    number = {token: n for n, token in enumerate(tokenizer.vocabulary)}
    texts = [
        next((each for each in (mark, *mark.split()[:1]) if each in number), None)
        for mark in marks
    ]
    found = [each for each in dict.fromkeys(texts) if each is not None]
    pieces = tokenizer(found).to_list() if found else []
    split = [
        each for each, ids in zip(found, pieces, strict=True) if ids != [number[each]]
    ]
    if not split:
        return tokenizer
    held = [each for each in tokenizer.added_tokens if each.content not in split]
    new = [AddedToken(each, special=True) for each in split]
    made = type(tokenizer)(**{**tokenizer.get_config(), "added_tokens": [*held, *new]})
    made.notes = tokenizer.notes
    return made
