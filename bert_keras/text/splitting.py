"""Normalizers and pre-tokenizers other than BERT's own: `Splitting`.

Source: the `tokenizers` library 0.23. Each step maps characters one by one, so that one
table of characters holds them all; what depends on more than one character is refused.
"""

from __future__ import annotations

import dataclasses
import functools
import unicodedata
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_keras.errors import ConfigError, shown
from bert_keras.text import characters
from bert_keras.text.characters import KIND_BITS, CharacterTable, MarkTable

Cells = list[tuple[int, bool]]  # code points, and whether each is a word of its own


@dataclasses.dataclass(frozen=True)
class Splitting:
    """How texts become words.

    Args:
        steps: of the normalizer, such as `("NFD",)` or `("replace", "a", "b")`.
        breaks: what separates words besides white space: `letters` (`\\w` from
            others), `digits` (from others), `each_digit`, `punctuation` (each).
    """

    steps: tuple[tuple[str, ...], ...]
    breaks: frozenset[str]

    @classmethod
    def of(cls, normalizer: Any, pre_tokenizer: Any) -> Splitting:
        """Return the splitting that the objects of a tokenizer.json describe.

        Raises:
            ConfigError: a step is unknown, or needs more than one character.
        """
        steps = [s for each in flat(normalizer) for s in _steps(each)]
        _check_forms([step[0] for step in steps])
        found = [_breaks(each) for each in flat(pre_tokenizer)]
        breaks = frozenset().union(*found)
        if "space" not in breaks:
            raise ConfigError("`pre_tokenizer` must split at white space; it does not")
        apart = {"NFC": "NFD", "NFKC": "NFKD"}  # the same, since marks are dropped
        chosen = [(apart.get(s[0], s[0]), *s[1:]) for s in steps if s[0] != "strip"]
        return cls(tuple(chosen), breaks - {"space"})

    @property
    def names(self) -> set[str]:
        """The names of the steps."""
        return {step[0] for step in self.steps}

    @property
    def splits_plain_text_as_bert(self) -> bool:
        """Whether ASCII text gives BERT's words."""
        return self.breaks == {"punctuation"} and "replace" not in self.names

    @property
    def orders_marks(self) -> bool:
        """Whether marks are kept, in canonical order."""
        return "accents" in self.names and "marks" not in self.names

    @property
    def marks(self) -> MarkTable:
        """The table that canonical order needs."""
        kinds = _kinds(self)
        kinds[sorted(characters.as_set(characters.MARKS))] = characters.GONE
        return characters.marks_of(kinds, lowercase="lower" in self.names)

    @functools.cached_property
    def table(self) -> CharacterTable:
        """The table of characters; built in about 0.3 s."""
        kinds = _kinds(self)
        if self.orders_marks:
            kinds[sorted(characters.as_set(characters.KEPT_MARKS))] = characters.MARK
        replaced = {ord(step[1]) for step in self.steps if step[0] == "replace"}
        changed = replaced | {
            code
            for code in characters.as_set(characters.CASED_OR_COMPOSED)
            if _may_change(chr(code))
        }

        def cells_of(code: int) -> list[int]:
            cells: Cells = [(code, False)]
            for step in self.steps:
                cells = [new for cell in cells for new in _apply(step, *cell)]
            apart = (characters.WORD, characters.OTHER)
            return [
                c << KIND_BITS
                | (characters.ALONE if a and kinds[c] in apart else kinds[c])
                for c, a in cells
            ]

        entries, expansions = characters.filled(kinds, sorted(changed), cells_of)
        if "chinese" in self.names:
            for code in characters.as_set(characters.CJK) - changed:
                entries[code] = characters.ALONE
        if "clean" not in self.names:
            # Some represent something else; NUL ends words in tf-text. No token has
            # them.
            codes = np.array([0, *range(characters.FIRST_TOKEN, len(entries))])
            entries[codes] = (characters.TOO_LONG - codes) << KIND_BITS | kinds[codes]
        return characters.paged(entries, expansions)


def flat(value: Any) -> list[dict[str, Any]]:
    """Return the steps of a normalizer or pre-tokenizer, also of a Sequence."""
    if not isinstance(value, Mapping):
        return []
    if value.get("type") != "Sequence":
        return [dict(value)]
    inside = value.get("normalizers") or value.get("pretokenizers") or ()
    return [step for each in inside for step in flat(each)]


def bert_steps(values: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the steps of a BertNormalizer."""
    lowercase = values.get("lowercase", True)
    strips = values.get("strip_accents")
    chosen = {
        "clean": values.get("clean_text", True),
        "chinese": values.get("handle_chinese_chars", True),
        "accents": lowercase if strips is None else strips,
        "lower": lowercase,
    }
    return [(name,) for name, is_on in chosen.items() if is_on]


def _steps(values: Mapping[str, Any]) -> list[tuple[str, ...]]:
    kind = values.get("type")
    if kind == "BertNormalizer":
        return bert_steps(values)
    names = {"Lowercase": "lower", "StripAccents": "marks", "Strip": "strip"}
    names |= {form: form for form in ("NFC", "NFD", "NFKC", "NFKD")}
    if kind in names:
        return [(names[kind],)]
    pattern, content = values.get("pattern"), values.get("content")
    if kind == "Replace" and isinstance(pattern, Mapping) and isinstance(content, str):
        old = pattern.get("String")
        if isinstance(old, str) and len(old) == 1 and len(content) < 4:
            return [("replace", old, content)]
    raise ConfigError(
        "`normalizer` must have steps that map characters one by one, such as "
        f"BertNormalizer, Lowercase or StripAccents; received {shown(dict(values))}"
    )


def _check_forms(names: list[str]) -> None:
    """Raise unless accents which a normal form sets apart or joins are then dropped."""
    for i, name in enumerate(names):
        later = names[i + 1 :]
        if name in ("NFC", "NFKC") and not {"NFD", "NFKD", "accents"} & set(later):
            raise ConfigError(
                f"`normalizer` must not join characters; received {name} without a "
                "later NFD"
            )
        if name in ("NFD", "NFKD", "NFC", "NFKC") and "marks" not in later:
            raise ConfigError(
                f"`normalizer` must have StripAccents after {name}, which reorders them"
            )
        if name == "accents" and set(names) - {"clean", "chinese", "accents", "lower"}:
            if "marks" not in later:
                raise ConfigError(
                    "`normalizer` must have no steps other than BertNormalizer with "
                    "`strip_accents`, except a later StripAccents"
                )


def _breaks(values: Mapping[str, Any]) -> set[str]:
    kind, behavior = values.get("type"), values.get("behavior", "Isolated")
    known = {
        "BertPreTokenizer": {"space", "punctuation"},
        "WhitespaceSplit": {"space"},
        "Whitespace": {"space", "letters"},
        "Punctuation": {"punctuation"},
        "Digits": {"each_digit" if values.get("individual_digits") else "digits"},
    }
    if kind not in known or behavior != "Isolated":
        raise ConfigError(
            f"`pre_tokenizer` must be one of {', '.join(known)}, or several; "
            f"received {shown(dict(values))}"
        )
    return known[str(kind)]


def _kinds(splitting: Splitting) -> np.ndarray:
    """Return the kind of each normalized character, int32 [0x110000]."""
    kinds = np.full(0x110000, characters.WORD, np.int32)
    digits = sorted(characters.as_set(characters.NUMBERS))
    if "letters" in splitting.breaks:
        kinds[:] = characters.OTHER
        kinds[sorted(characters.as_set(characters.LETTERS))] = characters.WORD
    if "digits" in splitting.breaks:
        others = kinds[digits] == characters.OTHER
        kinds[digits] = np.where(others, characters.OTHER_DIGIT, characters.DIGIT)
    if "each_digit" in splitting.breaks:
        kinds[digits] = characters.ALONE
    if "punctuation" in splitting.breaks:
        kinds[sorted(characters.as_set(characters.PUNCTUATION))] = characters.ALONE
    kinds[sorted(characters.as_set(characters.WHITE_SPACE))] = characters.SPACE
    if "clean" in splitting.names:
        kinds[sorted(characters.as_set(characters.DELETED))] = characters.GONE
    return kinds


def _may_change(text: str) -> bool:
    return (
        unicodedata.normalize("NFKD", text) != text
        or characters.lowered(text) != text
        or ord(text) in _COMBINING
    )


def _apply(step: tuple[str, ...], code: int, alone: bool) -> Cells:
    """Return the characters that a step makes of one."""
    name, text = step[0], chr(code)
    if name == "clean":
        if code in _code_points(characters.DELETED):
            return []
    elif name == "chinese":
        return [(code, alone or code in _code_points(characters.CJK))]
    elif name == "replace" and text == step[1]:
        text = step[2]
    elif name in ("NFD", "NFKD"):
        text = _decomposed(text, name)
    elif name == "accents":
        text = "".join(c for c in _decomposed(text, "NFD") if ord(c) not in _MARKS)
    elif name == "marks":
        text = "" if code in _COMBINING else text
    elif name == "lower":
        text = characters.lowered(text)
    return [(ord(c), alone) for c in text]


def _decomposed(text: str, form: str) -> str:
    if form == "NFKD" and ord(text) not in _NOT_NFKD:
        return unicodedata.normalize("NFKD", text)
    if ord(text) in _NOT_DECOMPOSED:
        return text
    return unicodedata.normalize("NFD", text)


_code_points = functools.cache(characters.as_set)  # sets of 23 ms, which few runs need
_MARKS = characters.as_set(characters.MARKS)
_COMBINING = _MARKS | characters.as_set(characters.COMBINING)
_NOT_DECOMPOSED = characters.as_set(characters.NOT_DECOMPOSED)
_NOT_NFKD = characters.as_set(characters.NOT_NFKD) | _NOT_DECOMPOSED
