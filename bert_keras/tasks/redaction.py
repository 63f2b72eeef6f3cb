"""Texts whose entities are replaced by their types: `Redaction`.

`Ann lives in Rome.` becomes `[PER] lives in [LOC].`: an entity of a text becomes one
placeholder, its type in brackets. Of words, each word of an entity does, so that the
tags still belong to the words.

The answers then describe the redacted text: the text of an entity is its placeholder,
and its start and end are characters of the redacted text. They tell a placeholder from
brackets that the text had before.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.errors import ConfigError, UnreadError, shown
from bert_keras.scoring.entities import parse_classes
from bert_keras.text.token_ids import TokenIds

if TYPE_CHECKING:
    from bert_keras.text.tokenizer import WordPieceTokenizer

_AT_ONCE = 1024  # texts that are tokenized together


class Redaction:
    """Replaces the entities that a model finds in texts.

    Args:
        classes: the tags of the model.
        tokenizer: of the model.
        types: of the entities to replace, a list or a word with commas; `None`: all.

    Raises:
        ConfigError: the model has no such type.
    """

    def __init__(
        self,
        classes: Sequence[str],
        tokenizer: WordPieceTokenizer | TokenIds,
        types: str | Sequence[str] | None,
    ) -> None:
        self._tokenizer = tokenizer
        kinds = [kind for _, kind in parse_classes(classes)]
        known = sorted({*kinds} - {""})
        given = [types] if isinstance(types, str) else types
        chosen = known
        if given is not None:
            chosen = [x.strip() for each in given for x in str(each).split(",")]
        wrong = next((each for each in chosen if each not in known), None)
        if wrong is not None or not chosen:
            raise ConfigError(
                f"the types to redact must be of {', '.join(known)}; received "
                f"{'none' if wrong is None else shown(wrong)}"
            )
        self._types = frozenset(chosen)
        self._kind_of_tag = dict(zip(classes, kinds, strict=True))

    def check(self, texts: Iterable[Any]) -> None:
        """Raise UnreadError if a text has a word of which the model reads nothing.

        The tokenizer reads a word above `max_word_characters`, such as a line of Thai
        without a space, as `[UNK]`: names in it would stay.

        Args:
            texts: strings or bytes, or lists of them for words.
        """
        rows = enumerate(texts)
        while part := list(itertools.islice(rows, _AT_ONCE)):
            words = [
                (row, _decoded(word))
                for row, text in part
                for word in (text if isinstance(text, list | tuple) else [text])
            ]
            self._check_words(words)

    def _check_words(self, texts: Sequence[tuple[int, str]]) -> None:
        if not texts:
            return
        most = self._tokenizer.max_word_characters
        for place, start, end in self._unknown([text for _, text in texts]):
            row, text = texts[place]
            # Accents, and the parts of a Hangul syllable, count as the tokenizer's.
            size = len(unicodedata.normalize("NFKD", text[start:end]))
            if size > most:
                raise UnreadError(
                    f"to be redacted, a text must have words of at most {most} "
                    "characters: the tokenizer does not read longer ones; received "
                    f"one of {size}",
                    row=row,
                )

    def _unknown(self, texts: Sequence[str]) -> Iterator[tuple[int, int, int]]:
        """Yield the text of each `[UNK]`, and its first character and end there."""
        unk_id = self._tokenizer.unk_id
        if isinstance(self._tokenizer, TokenIds):
            for place, tokens in enumerate(self._tokenizer(texts, with_places=True)):
                for token, span in zip(tokens.ids, tokens.places, strict=True):
                    if token == unk_id:
                        yield place, *span
            return
        ids, starts, ends = self._tokenizer.tokenize_with_offsets(
            texts, unit="characters"
        )
        found = np.flatnonzero(ids.values.numpy() == unk_id)
        columns = (ids.value_rowids(), starts.values, ends.values)
        yield from zip(*(x.numpy()[found].tolist() for x in columns), strict=True)

    def __call__(
        self, texts: Sequence[Any], answers: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """Return `text` and the answers to the redacted texts, see the module.

        Args:
            texts: B strings or bytes, or lists of them for words.
            answers: as the task answers them, [B, …] each.

        Returns:
            the answers, and `text`: string [B], or [B, W] for words.
        """
        found = {"text": np.empty(len(texts), object), **answers}
        if "tags" in answers:
            found["text"] = np.full(answers["tags"].shape, b"", object)
            for row, words in enumerate(texts):
                for place, (word, tag) in enumerate(
                    zip(words, answers["tags"][row], strict=False)
                ):
                    kind = self._kind_of_tag.get(tag.decode(), "")
                    shown = self._placeholder(kind) or _decoded(word)
                    found["text"][row, place] = shown.encode()
            return found
        for name in ("entities", "starts", "ends"):
            found[name] = answers[name].copy()
        for row, text in enumerate(texts):
            found["text"][row] = self._of_text(_decoded(text), found, row).encode()
        return found

    def _of_text(self, text: str, found: Mapping[str, np.ndarray], row: int) -> str:
        """Return a redacted text; change its entities in the answers."""
        made, end, size = [], 0, 0  # characters of the text, and of what is made of it
        for place, kind in enumerate(found["types"][row]):
            if not kind:  # what fills the rows
                break
            start, stop = (int(found[name][row, place]) for name in ("starts", "ends"))
            entity = self._placeholder(kind.decode()) or text[start:stop]
            made += [text[end:start], entity]
            size += start - end
            found["starts"][row, place] = size
            size += len(entity)
            found["ends"][row, place] = size
            found["entities"][row, place] = entity.encode()
            end = stop
        return "".join([*made, text[end:]])

    def _placeholder(self, kind: str) -> str:
        """Return what replaces an entity of a type; empty if it stays."""
        return f"[{kind}]" if kind in self._types else ""


def _decoded(text: str | bytes) -> str:
    """Return a text whose characters are those that the offsets count."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    return text.decode("utf-8", "replace")
