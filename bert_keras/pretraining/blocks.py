"""Documents in blocks of about a fixed number of characters, each of which is a shard.

Without TensorFlow, so that Beam workers that only read do not load it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import operator
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from bert_keras.corpus.documents import add_to_hash
from bert_keras.errors import ConfigError, DataError

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Block:
    """Documents that become one shard."""

    number: int  # from 0
    documents: list[Any]  # in order, as `to_sentences` accepts them
    characters: int
    text_blake2b: str  # a hash of their texts


def blocks_of(documents: Iterable[Any], characters: int) -> Iterator[Block]:
    """Yield documents in blocks of at least this many characters and two documents.

    A remainder of less than half a block, or of one document, joins the last block.

    Raises:
        ConfigError: a document is not a string and has no string `text`.
    """
    sized = ((len(_text_of(document)), document) for document in documents)
    for number, group in enumerate(_groups(sized, characters)):
        yield block_of(number, [document for _, document in group])


def block_of(number: int, documents: list[Any]) -> Block:
    """Return the block of some documents."""
    texts = [_text_of(document) for document in documents]
    found = hashlib.blake2b(digest_size=16)
    for document, text in zip(documents, texts, strict=True):
        add_to_hash(found, document, text)
    return Block(number, documents, sum(map(len, texts)), found.hexdigest())


def shares_of(
    lengths: Iterable[tuple[int, int]], characters: int
) -> Iterator[tuple[int, list[tuple[int, int, int]]]]:
    """Yield how many documents each file contributes to each block, by their lengths.

    `lengths` are, for each document in order, its characters and the number of its
    file. Yields the number of a file, and for each block that has documents of it: the
    block's number, the number of documents from this file, and from all files.
    """
    shares = (
        (file, (number, sum(1 for _ in some), len(group)))
        for number, group in enumerate(_groups(lengths, characters))
        for file, some in itertools.groupby(group, key=operator.itemgetter(1))
    )
    for file, found in itertools.groupby(shares, key=operator.itemgetter(0)):
        yield file, [share for _, share in found]


def check_documents(count: int, next_sentence: str) -> None:
    """Raise DataError if there are too few documents; the first block's suffice."""
    if not count:
        raise DataError("`documents` must hold at least one; the corpus is empty")
    if next_sentence == "next" and count == 1:
        raise DataError(
            "`next_sentence` next needs at least two documents, as half of the texts B "
            "come from another one; received one: give more, or set order or none"
        )


def _groups(
    sized: Iterable[tuple[int, T]], characters: int
) -> Iterator[list[tuple[int, T]]]:
    """Yield items with their sizes in groups; see `blocks_of`."""
    held: list[tuple[int, T]] = []
    some: list[tuple[int, T]] = []
    size = 0
    for item in sized:
        some.append(item)
        size += item[0]
        if size >= characters and len(some) > 1:
            if held:
                yield held
            held, some, size = some, [], 0
    if len(some) < 2 or 2 * size < characters:
        held, some = held + some, []
    yield from filter(None, (held, some))


def _text_of(document: Any) -> str:
    text = document if isinstance(document, str) else getattr(document, "text", None)
    if not isinstance(text, str):
        raise ConfigError(
            "`documents` must be strings or have a `text` that is one; "
            f"received a {type(document).__name__}"
        )
    return text
