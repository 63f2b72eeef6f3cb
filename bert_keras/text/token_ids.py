"""Ids of texts by the `tokenizers` library, where there is no graph: `TokenIds`.

An export checks that they are the graph's, see `inference.engine_conversion`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bert_keras.errors import CheckpointError, one_line

TOKENIZER_JSON = "tokenizer.json"
_SURROGATE = re.compile("[\ud800-\udfff]")  # which no UTF-8 holds


class Tokens(NamedTuple):
    """The tokens of a text, without special ones.

    Args:
        ids: N ids.
        places: first character and end of each token in the text.
    """

    ids: list[int]
    places: Sequence[tuple[int, int]] = ()


class TokenIds:
    """The tokenizer of a folder's `tokenizer.json`.

    Args:
        folder: holds the file.

    Attributes:
        cls_id, sep_id, pad_id, unk_id, mask_id: ids of the special tokens; there may
            be no `[MASK]`.
        inside_ids: the tokens that continue a word.
        max_word_characters: a longer word is `[UNK]`.

    Raises:
        CheckpointError: there is no such file, or `tokenizers` cannot read it.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        path = folder / TOKENIZER_JSON
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the only base of its errors
            raise CheckpointError(
                f"{path}: tokenizers cannot read it: {one_line(error)}"
            ) from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        ids: list[int] = []
        for name in ("[CLS]", "[SEP]", "[PAD]", "[UNK]"):
            found = self._tokenizer.token_to_id(name)
            if found is None:
                raise CheckpointError(f"{path}: must hold {name}")
            ids.append(found)
        self.cls_id, self.sep_id, self.pad_id, self.unk_id = ids
        self.mask_id: int | None = self._tokenizer.token_to_id("[MASK]")
        self.max_word_characters: int = self._tokenizer.model.max_input_chars_per_word

    @functools.cached_property
    def inside_ids(self) -> frozenset[int]:
        ids = self._tokenizer.get_vocab(with_added_tokens=True).items()
        return frozenset(id_ for name, id_ in ids if name.startswith("##"))

    def ids_of(self, tokens: Iterable[str]) -> list[int]:
        """Return the ids of tokens, without those that are not in the vocabulary."""
        found = map(self._tokenizer.token_to_id, tokens)
        return [id_ for id_ in found if id_ is not None]

    def __call__(
        self, texts: Sequence[str], *, with_places: bool = False
    ) -> list[Tokens]:
        """Return the tokens of texts, with their places if these are read."""
        given = [as_unicode(text) for text in texts]
        if len(given) == 1 and not with_places:  # a batch starts threads
            found = [self._tokenizer.encode(given[0], add_special_tokens=False)]
        elif with_places:
            found = self._tokenizer.encode_batch(given, add_special_tokens=False)
        else:
            found = self._tokenizer.encode_batch_fast(given, add_special_tokens=False)
        if not with_places:
            return [Tokens(each.ids) for each in found]
        return [Tokens(each.ids, each.offsets) for each in found]


def as_unicode(text: str) -> str:
    """Return a text as the graph reads its bytes; most texts are unchanged."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return as_bytes(text).decode("utf-8", "replace")


def as_bytes(text: str) -> bytes:
    """Return a text in UTF-8; a lone surrogate becomes invalid."""
    return text.encode("utf-8", "surrogatepass")
