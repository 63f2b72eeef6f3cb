"""A vocabulary: its special tokens, the rules for its tokens, vocab.txt, and a hash.

`tokenizer_files` reads and writes the other files of a folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence

from bert_keras.errors import CheckpointError, ConfigError, shown

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
REQUIRED_TOKENS = SPECIAL_TOKENS[:4]
_MOST_TOKEN_BYTES = 256  # a limit of tf-text


def check_tokens(vocabulary: Sequence[str]) -> tuple[str, ...]:
    """Return the vocabulary as a tuple; raise ConfigError if it is not valid."""
    tokens = tuple(vocabulary)
    seen: dict[str, int] = {}
    for i, token in enumerate(tokens):
        if not isinstance(token, str):
            raise ConfigError(
                f"`vocabulary` must hold strings; received {shown(token)}"
            )
        if seen.setdefault(token, i) != i:
            raise ConfigError(
                f"`vocabulary` must hold each token once; received {shown(token)} as "
                f"{seen[token]} and {i}"
            )
        try:
            size = len(token.removeprefix("##").encode())
        except UnicodeEncodeError:
            raise ConfigError(
                f"`vocabulary` must be Unicode text; received {shown(token)} as {i}"
            ) from None
        if size > _MOST_TOKEN_BYTES:
            raise ConfigError(
                f"`vocabulary` must have tokens of at most {_MOST_TOKEN_BYTES} bytes; "
                f"received one of {size} as {i}"
            )
    for token in REQUIRED_TOKENS:
        if token not in seen:
            raise ConfigError(
                f"`vocabulary` must hold {token}; received {len(tokens)} tokens "
                "without it"
            )
    return tokens


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """Return the tokens of a vocab.txt, one a line; empty last lines are ignored.

    Raises:
        CheckpointError: it is not UTF-8 text, or has a token twice.
    """
    text = read_text(path).removeprefix("\ufeff")
    # Not `splitlines`: the released Chinese vocabulary has U+2028 as a token.
    tokens = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    lines: dict[str, int] = {}
    for line, token in enumerate(tokens, start=1):
        if lines.setdefault(token, line) != line:
            raise CheckpointError(
                f"{os.fspath(path)}:{line}: the token {shown(token)} stands in line "
                f"{lines[token]} already"
            )
    return tokens


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a file.

    Raises:
        CheckpointError: it cannot be read, or is not UTF-8.
    """
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8")
    except OSError as error:
        raise CheckpointError(f"{os.fspath(path)}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{os.fspath(path)}: must be UTF-8 text; byte {error.start} is not"
        ) from None


def looks_lower_cased(vocabulary: Sequence[str]) -> bool:
    """Return whether no token but `[CLS]`, `<S>` and the like has a capital letter.

    True for the released uncased and Chinese vocabularies, false for cased ones.
    """
    return not any(
        token != token.lower() and not token.startswith(("[", "<"))
        for token in vocabulary
    )


def vocabulary_hash(vocabulary: Iterable[str]) -> str:
    """Return the SHA-256 of a vocab.txt of the tokens with LF line ends."""
    text = "".join(f"{token}\n" for token in vocabulary)
    return hashlib.sha256(text.encode()).hexdigest()
