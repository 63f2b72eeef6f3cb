"""Added tokens, which are found in a text before it is split into words: `AddedToken`.

The flags are the same as in the `tokenizers` library 0.23; `TokenMatcher` applies them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from bert_keras.errors import ConfigError, received, shown
from bert_keras.files.json_file import is_unicode

_FLAGS = ("special", "single_word", "lstrip", "rstrip", "normalized")


@dataclasses.dataclass(frozen=True)
class AddedToken:
    """A token that is found in texts as it is written; never split into pieces.

    Args:
        content: its text.
        special: leave it out of decoded text, as `[SEP]` is.
        single_word: only where no letter, digit or `_` is next to it.
        lstrip: it takes the white space before it.
        rstrip: it takes the white space after it.
        normalized: look for it in the normalized (lower-cased, …) text, and normalize
            its content too; `None` means not for special tokens.

    Raises:
        ConfigError: the content is empty or not Unicode text, or a flag is not a bool.
    """

    content: str
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool | None = None

    def __post_init__(self) -> None:
        content = self.content
        if not isinstance(content, str) or not content or not is_unicode(content):
            raise ConfigError(
                f"an added token must be Unicode text; received {shown(content)}"
            )
        if self.normalized is None:
            object.__setattr__(self, "normalized", not self.special)
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(
                    f"`{name}` of the added token {shown(content)} must be true or "
                    f"false; received {shown(getattr(self, name))}"
                )

    @property
    def is_plain(self) -> bool:
        """Whether it is found wherever it is written, in the text as it is."""
        return not (self.single_word or self.lstrip or self.rstrip or self.normalized)

    def to_dict(self) -> dict[str, Any]:
        """Return content and flags, with the names of Hugging Face's files."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, value: AddedToken | str | Mapping[str, Any]) -> AddedToken:
        """Return the token of a text, or of a mapping such as in tokenizer.json."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls(value)
        if not isinstance(value, Mapping) or "content" not in value:
            raise ConfigError(
                f"an added token must be a text or hold `content`; "
                f"received {shown(value)}"
            )
        return cls(value["content"], **{k: value[k] for k in _FLAGS if k in value})


def added_tokens(values: Iterable[Any]) -> tuple[AddedToken, ...]:
    """Return the tokens of texts, mappings and tokens, each content once.

    Raises:
        ConfigError: one is wrong, or there is one text in place of a list of them.
    """
    if isinstance(values, str):  # each of its characters would be a token
        raise ConfigError(
            f"`added_tokens` must be a list of tokens; {received(values)}"
        )
    found: dict[str, AddedToken] = {}
    for token in map(AddedToken.of, values):
        if found.setdefault(token.content, token) != token:
            raise ConfigError(
                f"`added_tokens` must hold each token once; received "
                f"{shown(token.content)} twice with other flags"
            )
    return tuple(found.values())
