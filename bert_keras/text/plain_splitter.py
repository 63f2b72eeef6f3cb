"""Texts to the words of the reference tokenizer, without TensorFlow: `PlainSplitter`.

It reads the tables of `characters.py` as `WordSplitter` does, and gives the same words,
for one text at a time: what counts words needs no graph.
"""

from __future__ import annotations

import numpy as np

from bert_keras.text.characters import (
    ALONE,
    GONE,
    KIND_BITS,
    MARK,
    PAGE_BITS,
    SEVERAL,
    SPACE,
    CharacterTable,
    MarkTable,
    character_table,
    mark_table,
)

_KIND = (1 << KIND_BITS) - 1


class PlainSplitter:
    """Split a text into normalized words.

    Args:
        lowercase, strip_accents, tokenize_chinese_chars: as in `WordSplitter`.

    Example:
        >>> splitter = PlainSplitter(
        ...     lowercase=True, strip_accents=True, tokenize_chinese_chars=True
        ... )
        >>> splitter("Héllo, 世界")
        ['hello', ',', '世', '界']
    """

    def __init__(
        self, *, lowercase: bool, strip_accents: bool, tokenize_chinese_chars: bool
    ) -> None:
        table = character_table(
            lowercase=lowercase,
            strip_accents=strip_accents,
            tokenize_chinese_chars=tokenize_chinese_chars,
        )
        self._written = _Written(table)
        self._marked: frozenset[str] = frozenset()
        self._decomposed: dict[str, list[tuple[int, int]]] = {}
        if strip_accents:
            self._marked = _with_marks(table)
            self._decomposed = _decomposed(mark_table(lowercase=lowercase))

    def __call__(self, text: str) -> list[str]:
        """Return the words of a text, in order."""
        if not self._marked.isdisjoint(text):
            return _joined(self._in_canonical_order(text)).split()
        # Of white space, only spaces are left.
        return text.translate(self._written).split()

    def _in_canonical_order(self, text: str) -> list[int]:
        """Return the cells of a text, each run of marks in canonical order."""
        ordered: list[int] = []
        run: list[tuple[int, int]] = []  # class and cell
        for character in text:
            cells = self._written.cells(ord(character))
            parts = [(0, cell) for cell in cells if cell & _KIND != GONE]
            for order, cell in self._decomposed.get(character, parts):
                if not order:
                    ordered += [cell for _, cell in sorted(run, key=_class_of)]
                    run = []
                    ordered.append(cell)
                else:
                    run.append((order, cell))
        return ordered + [cell for _, cell in sorted(run, key=_class_of)]


class _Written(dict[int, str]):
    """Maps a code point to its words' characters, with spaces around separate ones."""

    def __init__(self, table: CharacterTable) -> None:
        super().__init__()
        self._table = table

    def __missing__(self, code: int) -> str:
        self[code] = _joined(self.cells(code))
        return self[code]

    def cells(self, code: int) -> list[int]:
        """Return the cells, `code << 4 | kind`, that replace a code point."""
        page = int(self._table.pages[code >> PAGE_BITS]) << PAGE_BITS
        entry = int(self._table.entries[page + (code & (1 << PAGE_BITS) - 1)])
        number, kind = entry >> KIND_BITS, entry & _KIND
        if kind == SEVERAL:
            return [cell for cell in self._table.expansions[number].tolist() if ~cell]
        return [(code + number) << KIND_BITS | kind]


def _joined(cells: list[int]) -> str:
    """Return the characters of cells as text, with spaces between words."""
    text = ""
    for cell in cells:
        kind, character = cell & _KIND, chr(cell >> KIND_BITS)
        if kind == ALONE:
            text += f" {character} "
        elif kind != GONE:
            text += " " if kind == SPACE else character
    return text


def _class_of(part: tuple[int, int]) -> int:
    return part[0]


def _with_marks(table: CharacterTable) -> frozenset[str]:
    """Return the characters whose expansions have a mark that is kept."""
    cells = table.expansions
    marked = ((cells >= 0) & (cells & _KIND == MARK)).any(axis=1)
    entries = table.entries.reshape(-1, 1 << PAGE_BITS)[table.pages].ravel()
    several = np.flatnonzero(entries & _KIND == SEVERAL)
    kept = several[marked[entries[several] >> KIND_BITS]]
    return frozenset(map(chr, kept.tolist()))


def _decomposed(table: MarkTable) -> dict[str, list[tuple[int, int]]]:
    """Return the class and the cell of each part of the characters with marks."""
    rows = zip(
        table.codes.tolist(), table.classes.tolist(), table.cells.tolist(), strict=True
    )
    return {
        chr(code): [pair for pair in zip(classes, cells, strict=True) if ~pair[1]]
        for code, classes, cells in rows
    }
