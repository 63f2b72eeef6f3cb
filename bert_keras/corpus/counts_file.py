"""The words that an unfinished count has found so far, in a file: `CountsFile`.

The first line is a JSON object; each further one has a count, a space and a word.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_keras import __version__
from bert_keras.errors import ConfigError, DataError
from bert_keras.files.atomic import written_beside

_FORMAT = "bert_keras word counts 1"


@dataclasses.dataclass(frozen=True)
class Kept:
    """How far a count has come.

    Args:
        documents: that were read.
        blake2b: a hash of them.
        whole: whether there were no more.
        texts, too_long, forgotten, missed: as of `word_counter.WordCounts`.
        words: UTF-8 word to how often it was met.
    """

    documents: int
    blake2b: str
    whole: bool
    texts: int
    too_long: int
    forgotten: int
    missed: int
    words: Mapping[bytes, int]


class Seen:
    """Documents by their number and a hash.

    Attributes:
        documents: how many.
    """

    def __init__(self) -> None:
        self.documents = 0
        self._hash = hashlib.blake2b(digest_size=16)

    def add(self, document: Any, *, compared: bool = True) -> str:
        """Add a document, to the hash only if it is `compared`; returns its text.

        Raises:
            ConfigError: it is no string and has no `text` that is one.
        """
        text = document
        if not isinstance(document, str):
            text = getattr(document, "text", None)
        if not isinstance(text, str):
            kind = type(document).__name__
            raise ConfigError(f"`texts` must hold strings; received a {kind}")
        self.documents += 1
        if compared:
            # One text of another form has other sentences.
            for part in (str(getattr(document, "form", "")), text):
                data = part.encode("utf-8", "surrogatepass")
                self._hash.update(len(data).to_bytes(8, "little"))
                self._hash.update(data)
        return text

    @property
    def blake2b(self) -> str:
        """The hash so far."""
        return self._hash.hexdigest()


class CountsFile:
    """Keeps the counts of one job; each time the file is written whole or not at all.

    Args:
        path: the file; its folder is made.
        settings: all that the counts follow from, but for the texts.
    """

    def __init__(
        self, path: str | os.PathLike[str], settings: Mapping[str, Any]
    ) -> None:
        self.path = Path(path)
        self.settings = {
            "format": _FORMAT,
            "bert_keras": __version__,
            **settings,
        }

    def read(self) -> Kept | None:
        """Return what an earlier run has counted, `None` where there was none.

        Raises:
            DataError: it counted with other settings; the file is broken.
        """
        try:
            with open(self.path, "rb") as file:
                head = json.loads(file.readline())
                found = {key: head.pop(key) for key in _FIELDS}
                number = head.pop("words")
                words = {}
                for line in file:
                    count, _, word = line.removesuffix(b"\n").partition(b" ")
                    words[word] = int(count)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataError(
                f"cannot be read: {error.strerror}", path=self.path
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self.error("is no file of counted words") from None
        for key, value in self.settings.items():
            if head.get(key) != value:
                raise self.error(
                    f"was counted with `{key}` {head.get(key)!r}; received {value!r}"
                )
        if len(words) != number:
            raise self.error("is cut off")
        return Kept(**found, words=words)

    def write(self, kept: Kept) -> None:
        """Put what was counted so far in the place of what was kept before.

        Raises:
            DataError: the disk refuses; what was kept before stands as it did.
        """
        head = {key: getattr(kept, key) for key in _FIELDS}
        line = json.dumps({**self.settings, **head, "words": len(kept.words)})
        rows = (b"%d %b\n" % (count, word) for word, count in kept.words.items())
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with written_beside(self.path) as beside, open(beside, "wb") as file:
                file.writelines(itertools.chain([f"{line}\n".encode()], rows))
        except OSError as error:
            reason = error.strerror or error
            raise DataError(f"cannot be written: {reason}", path=self.path) from None

    def fitting(self, kept: Kept, seen: Seen, *, more: bool) -> Kept:
        """Return what was kept, if it was counted of the documents that are given now.

        Args:
            kept: of this file.
            seen: as many of the documents, if there are so many.
            more: whether there are more.

        Raises:
            DataError: it was counted of others.
        """
        same = (seen.documents, seen.blake2b) == (kept.documents, kept.blake2b)
        if not same or (kept.whole and more):
            raise self.error("was counted of other texts than are given now")
        return kept

    def error(self, reason: str) -> DataError:
        """Return what is to be said of a file that does not fit."""
        return DataError(f"{reason}; delete it to count anew", path=self.path)


_FIELDS = tuple(f.name for f in dataclasses.fields(Kept) if f.name != "words")
