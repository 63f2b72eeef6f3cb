"""Files of one word a line, with its tag: CoNLL, CoNLL-U, and tables of words.

* CoNLL: 2 to 4 cells separated by tabs or spaces, the word first and its tag last, a
  blank line between sentences; `-DOCSTART-` lines and comments such as `# id 1` are
  skipped. In Label Studio's files (`word -X- _ tag`) tags may hold spaces.
* CoNLL-U: ten cells between tabs, the word second and its part of speech fourth;
  comments, ranges such as `1-2` and empty nodes such as `1.1` are skipped.
* A table with a header that names a sentence, a word and a tag, as Kaggle's NER data:
  `Sentence #,Word,POS,Tag`.

Sources: Tjong Kim Sang and De Meulder 2003 (CoNLL-2003 shared task), section 2.1;
universaldependencies.org/format.html.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_keras.data.columns import Columns
from bert_keras.data.rows import (
    ColumnNames,
    ending_of,
    good_rows,
    refuse_lines,
    repeated_headers,
)
from bert_keras.errors import ConfigError, DataError, NoRowsError

WORD_LINES = "word_lines"  # a role next to `text` and `label`: the line of each word
ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes", ".bmes")
_DOCUMENT = "-DOCSTART-"
_LABEL_STUDIO = " -X- _ "  # between a word and its tag
_MOST_COLUMNS = 4
_U_COLUMNS = tuple("id form lemma upos xpos feats head deprel deps misc".split())
_COMMENT = re.compile(r"# ?(id |[\w.:-]+ ?=)|# ?(newdoc|newpar)\b")
# Names in the headers of tables of words.
SENTENCE_NAMES = frozenset(
    "sentence# sentence sentence_id sentenceid sentence_idx sent_id sent".split()
)
WORD_NAMES = frozenset("word words token tokens form".split())
TAG_NAMES = frozenset(
    "tag tags label labels ner ner_tag ner_tags entity iob bio pos upos".split()
)

Line = tuple[int, list[str]]  # its number and its cells


class Sentences(NamedTuple):
    """The lines of a file by sentence, and the names of its columns, if it has any."""

    rows: list[list[Line]]
    names: Sequence[str] = ()
    text: int = 0  # the column of the word
    label: int = -1  # the column of the tag

    @property
    def width(self) -> int:
        return len(self.rows[0][0][1])


def read_conll(
    path: str,
    text: str,
    chosen: ColumnNames,
    header: str,
    *,
    bad_rows: str = "error",
) -> Columns:
    """Return the words of each sentence and, unless `label` is None, their tags.

    Args:
        path: the file.
        text: the content of the file.
        chosen: `text` and `label` to the number, from 0, of a column; in CoNLL-U also
            to its name. A label of `None` is not read.
        header: `yes` skips the first line.
        bad_rows: `skip` leaves out sentences with a bad line, and a note counts them.
    """
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if header == "yes":
        lines[0] = ""
    found = _sentences(lines, is_u=_is_conllu(path, lines))
    if not found.rows:
        raise DataError("contains no words", path=path)
    places = _places(path, chosen, found)
    if header == "auto":
        _refuse_header(path, found.rows[0][0], places)
    return columns_of(path, found.rows, places, bad_rows=bad_rows)


def columns_of(
    path: str,
    sentences: list[list[Line]],
    places: dict[str, int],
    *,
    bad_rows: str = "error",
) -> Columns:
    """Return the words and tags at some places of the lines of sentences."""
    width = len(sentences[0][0][1])
    problems: list[tuple[int, str]] = []
    for number, cells in (row for sentence in sentences for row in sentence):
        if len(cells) != width:
            reason = f"has {_counted(len(cells))} where the first row has {width}"
            problems.append((number, reason))
        elif not cells[places["text"]]:
            problems.append((number, "the word is empty"))
        elif "label" in places and not cells[places["label"]]:
            problems.append((number, "the tag is empty"))
    lines = [[number for number, _ in sentence] for sentence in sentences]
    kept = good_sentences(path, lines, problems, bad_rows=bad_rows)
    sentences = [sentences[row] for row in kept]
    found: dict[str, list[Any]] = {
        role: [[cells[place] for _, cells in sentence] for sentence in sentences]
        for role, place in places.items()
    }
    found[WORD_LINES] = [[number for number, _ in sentence] for sentence in sentences]
    return Columns(path, found, [sentence[0][0] for sentence in sentences])


def good_sentences(
    path: str,
    lines: Sequence[Sequence[int]],
    problems: Sequence[tuple[int, str]],
    *,
    bad_rows: str,
) -> list[int]:
    """Return the sentences without a problem, by index from 0; see `good_rows`.

    `lines` are the line numbers of the words of each sentence.
    """
    if bad_rows == "skip":
        first = {line: words[0] for words in lines for line in words}
        problems = [(first[line], reason) for line, reason in problems]
        rows = [(words[0], words) for words in lines]
        return good_rows(path, rows, problems, bad_rows=bad_rows)
    refuse_lines(path, problems)
    return list(range(len(lines)))


def is_word_table(names: Sequence[str]) -> bool:
    """Return whether a header names a sentence, a word and a tag."""
    known = set(map(_plain, names))
    return all(known & each for each in (SENTENCE_NAMES, WORD_NAMES, TAG_NAMES))


def read_word_table(
    path: str,
    header: Sequence[str],
    rows: list[Line],
    chosen: ColumnNames,
    *,
    bad_rows: str = "error",
) -> Columns:
    """Return the sentences of a table with one word a row.

    A sentence begins where its cell differs from the one before and is not empty. Of
    several columns of tags the last is read, unless `chosen` names another.

    Raises:
        DataError: a column is missing, or a word or a tag is empty.
    """
    refuse_lines(path, repeated_headers(header, rows))
    plain = [_plain(name) for name in header]
    places = {}
    for role, known in (("text", WORD_NAMES), ("label", TAG_NAMES)):
        column = chosen.get(role)
        if role == "label" and role in chosen and column is None:  # not requested
            continue
        if column is None:
            places[role] = max(i for i, name in enumerate(plain) if name in known)
        elif str(column) in header:
            places[role] = list(header).index(str(column))
        else:
            message = f"has no column `{column}`; it has {', '.join(header)}"
            raise DataError(message, path=path)
    at = next(i for i, name in enumerate(plain) if name in SENTENCE_NAMES)
    sentences: list[list[Line]] = []
    before = ""
    for number, cells in rows:
        begins = cells[at].strip() if at < len(cells) else ""
        if not sentences or begins and begins != before:
            sentences.append([])
        before = begins or before
        sentences[-1].append((number, [cell.strip() for cell in cells]))
    if not sentences:
        raise NoRowsError("holds a header but no rows", path=path)
    return columns_of(path, sentences, places, bad_rows=bad_rows)


def _plain(name: str) -> str:
    return name.strip().casefold().replace(" ", "")


def _is_conllu(path: str, lines: list[str]) -> bool:
    """Return whether a file is CoNLL-U: by its ending, or its first line of words."""
    if ending_of(path) == ".conllu":
        return True
    first = next((n for n in lines if n.strip() and not n.startswith("#")), "")
    cells = first.split("\t")
    return len(cells) == len(_U_COLUMNS) and cells[0].partition("-")[0] == "1"


def _sentences(lines: list[str], *, is_u: bool) -> Sentences:
    """Return the cells of the lines of each sentence."""
    rows: list[list[Line]] = [[]]
    split = None
    for number, line in enumerate(lines, 1):
        if not line.strip(" \t") or line.startswith(_DOCUMENT):
            rows.append([])
            continue
        if not rows[-1] and _is_comment(line, is_u=is_u):
            continue
        split = split or _splitter(line)
        cells = [cell.strip(" ") for cell in split(line)]
        if is_u and re.fullmatch(r"\d+[-.]\d+", cells[0]):
            continue
        rows[-1].append((number, cells))
    found = [sentence for sentence in rows if sentence]
    if is_u:
        form, upos = _U_COLUMNS.index("form"), _U_COLUMNS.index("upos")
        return Sentences(found, _U_COLUMNS, form, upos)
    return Sentences(found)


def _is_comment(line: str, *, is_u: bool) -> bool:
    """Return whether the line before a sentence's words is a comment."""
    if is_u:
        return line.startswith("#")
    return "\t" not in line and bool(_COMMENT.match(line))


def _splitter(first: str) -> Any:
    """Return what cuts lines into cells, by the first one."""
    if "\t" in first:
        return lambda line: line.split("\t")
    if _LABEL_STUDIO in first:
        return lambda line: line.strip(" ").split(_LABEL_STUDIO, 1)
    # Not `split()`: it would also break at U+00A0 and other marks in a word.
    return lambda line: re.split(" +", line.strip(" "))


def _refuse_header(path: str, first: Line, places: dict[str, int]) -> None:
    """Raise if the first row names its columns: it would be a word and a tag."""
    line, cells = first
    named = [
        place < len(cells) and _plain(cells[place]) in names
        for place, names in (
            (places["text"], WORD_NAMES),
            (places.get("label", -1), TAG_NAMES),
        )
    ]
    if all(named):
        message = "the first row looks like a header; set `header` to yes or no"
        raise DataError(message, path=path, line=line)


def _places(path: str, chosen: ColumnNames, found: Sentences) -> dict[str, int]:
    """Return the columns of word and, if requested, tag."""
    width = found.width
    places = {"text": found.text, "label": found.label % width}
    for role, column in chosen.items():
        if role not in places:
            raise ConfigError(f"the columns must be text and label; received {role!r}")
        if column is None:  # no label requested, or the default
            if role == "label":
                del places[role]
            continue
        if column in found.names:
            places[role] = found.names.index(str(column))
        elif not str(column).isdecimal() or int(column) >= width:
            names = f"names {', '.join(found.names)}" if found.names else "names"
            raise DataError(
                f"has columns 0 to {width - 1} {'with' if found.names else 'without'} "
                f"{names}; received {column!r} for `{role}`",
                path=path,
            )
        else:
            places[role] = int(column)
    is_plain = not found.names and "label" not in chosen
    if "label" in places and (width < 2 or (width > _MOST_COLUMNS and is_plain)):
        raise DataError(
            f"must hold 2 to {_MOST_COLUMNS} columns, a word first and its tag last, "
            f"or the number of the tag's column be given; holds {_counted(width)}",
            path=path,
        )
    return places


def _counted(columns: int) -> str:
    return f"{columns} column{'s' * (columns != 1)}"
