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

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bert_keras.data.columns import Columns
from bert_keras.data.rows import (
    ColumnNames,
    batched,
    ending_of,
    good_rows,
    refuse_lines,
    repeated_headers,
    without_break,
)
from bert_keras.errors import ConfigError, DataError, NoRowsError, counted
from bert_keras.scoring.entities import parse_tag

WORD_LINES = "word_lines"  # a role next to `text` and `label`: the line of each word
ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes", ".bmes")
_DOCUMENT = "-DOCSTART-"
_LABEL_STUDIO = " -X- _ "  # between a word and its tag
_MOST_COLUMNS = 4
_START = 1000  # lines that tell CoNLL-U
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


def stream_conll(
    path: str,
    lines: Iterable[str],
    chosen: ColumnNames,
    header: str,
    *,
    rows_at_once: int,
    bad_rows: str = "error",
) -> Iterator[Columns]:
    """Yield the words of each sentence and, unless `label` is None, their tags.

    Args:
        path: the file.
        lines: the lines of the file.
        chosen: `text` and `label` to the number, from 0, of a column; in CoNLL-U also
            to its name. A label of `None` is not read.
        header: `yes` skips the first line.
        rows_at_once: sentences of a part.
        bad_rows: `skip` leaves out sentences with a bad line, and a note counts them.
    """
    plain: Iterator[str] = map(without_break, lines)
    if header == "yes":
        plain = itertools.chain([""], itertools.islice(plain, 1, None))
    start = list(itertools.islice(plain, _START))
    is_u = _is_conllu(path, start)
    sentences = _sentences(itertools.chain(start, plain), is_u=is_u)
    first = next(sentences, None)
    if first is None:
        raise DataError("contains no words", path=path)
    places = _places(path, chosen, len(first[0][1]), is_u=is_u)
    if header == "auto":
        _refuse_header(path, first[0], places)
    sentences = itertools.chain([first], sentences)
    yield from _parts(path, sentences, places, rows_at_once, bad_rows)


def _parts(
    path: str,
    sentences: Iterable[list[Line]],
    places: dict[str, int],
    rows_at_once: int,
    bad_rows: str,
) -> Iterator[Columns]:
    width = 0
    for part in batched(sentences, rows_at_once):
        width = width or len(part[0][0][1])
        yield _columns_of(path, part, places, width, bad_rows=bad_rows)


def _columns_of(
    path: str,
    sentences: list[list[Line]],
    places: dict[str, int],
    width: int,
    *,
    bad_rows: str,
) -> Columns:
    """Return the words and tags at some places of the lines of sentences."""
    problems: list[tuple[int, str]] = []
    for number, cells in (row for sentence in sentences for row in sentence):
        if len(cells) != width:
            columns = counted(len(cells), "columns")
            reason = f"has {columns} where the first row has {width}"
            problems.append((number, reason))
        elif not cells[places["text"]]:
            problems.append((number, "the word is empty"))
        elif "label" in places and not cells[places["label"]]:
            problems.append((number, "the tag is empty"))
        elif "label" in places and _is_sentence(*(cells[at] for at in places.values())):
            reason = (
                "has a sentence and its tags, where one word a line is read: give a "
                ".csv or JSON with a row for each sentence"
            )
            problems.append((number, reason))
    lines = [[number for number, _ in sentence] for sentence in sentences]
    kept = good_sentences(path, lines, problems, bad_rows=bad_rows)
    sentences = [sentences[row] for row in kept]
    found: dict[str, list[Any]] = {
        role: [[cells[place] for _, cells in sentence] for sentence in sentences]
        for role, place in places.items()
    }
    found[WORD_LINES] = [[number for number, _ in sentence] for sentence in sentences]
    return Columns(path, found, [sentence[0][0] for sentence in sentences])


def _is_sentence(text: str, tags: str) -> bool:
    """Return whether two cells are several words and a tag of entities for each."""
    found = tags.split()
    return 1 < len(found) == len(text.split()) and all(
        tag == "O" or parse_tag(tag)[1] != tag for tag in found
    )


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


def stream_word_table(
    path: str,
    header: Sequence[str],
    rows: Iterable[Line],
    chosen: ColumnNames,
    *,
    rows_at_once: int,
    bad_rows: str = "error",
) -> Iterator[Columns]:
    """Yield the sentences of a table with one word a row.

    A sentence begins where its cell differs from the one before and is not empty. Of
    several columns of tags the last is read, unless `chosen` names another.

    Raises:
        DataError: a column is missing, or a word or a tag is empty.
    """
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
    sentences = _sentences_of_table(path, header, rows, at)
    yield from _parts(path, sentences, places, rows_at_once, bad_rows)


def _sentences_of_table(
    path: str, header: Sequence[str], rows: Iterable[Line], at: int
) -> Iterator[list[Line]]:
    """Yield the rows of each sentence, whose name is in the column `at`."""
    sentence: list[Line] = []
    before = ""
    for number, cells in rows:
        refuse_lines(path, repeated_headers(header, [(number, cells)]))
        begins = cells[at].strip() if at < len(cells) else ""
        if sentence and begins and begins != before:
            yield sentence
            sentence = []
        before = begins or before
        sentence.append((number, [cell.strip() for cell in cells]))
    if not sentence:
        raise NoRowsError("holds a header but no rows", path=path)
    yield sentence


def _plain(name: str) -> str:
    return name.strip().casefold().replace(" ", "")


def _is_conllu(path: str, lines: list[str]) -> bool:
    """Return whether a file is CoNLL-U: by its ending, or its first line of words."""
    if ending_of(path) == ".conllu":
        return True
    first = next((n for n in lines if n.strip() and not n.startswith("#")), "")
    cells = first.split("\t")
    return len(cells) == len(_U_COLUMNS) and cells[0].partition("-")[0] == "1"


def _sentences(lines: Iterable[str], *, is_u: bool) -> Iterator[list[Line]]:
    """Yield the cells of the lines of each sentence."""
    sentence: list[Line] = []
    split = None
    for number, line in enumerate(itertools.chain(lines, [""]), 1):
        if not line.strip(" \t") or line.startswith(_DOCUMENT):
            if sentence:
                yield sentence
                sentence = []
            continue
        if not sentence and _is_comment(line, is_u=is_u):
            continue
        split = split or _splitter(line)
        cells = [cell.strip(" ") for cell in split(line)]
        if is_u and re.fullmatch(r"\d+[-.]\d+", cells[0]):
            continue
        sentence.append((number, cells))


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


def _places(
    path: str, chosen: ColumnNames, width: int, *, is_u: bool
) -> dict[str, int]:
    """Return the columns of word and, if requested, tag."""
    known = _U_COLUMNS if is_u else ()
    form, upos = (known.index("form"), known.index("upos")) if is_u else (0, -1)
    places = {"text": form, "label": upos % width}
    for role, column in chosen.items():
        if role not in places:
            raise ConfigError(f"the columns must be text and label; received {role!r}")
        if column is None:  # no label requested, or the default
            if role == "label":
                del places[role]
            continue
        if column in known:
            places[role] = known.index(str(column))
        elif not str(column).isdecimal() or int(column) >= width:
            names = f"names {', '.join(known)}" if is_u else "names"
            raise DataError(
                f"has columns 0 to {width - 1} {'with' if is_u else 'without'} "
                f"{names}; received {column!r} for `{role}`",
                path=path,
            )
        else:
            places[role] = int(column)
    is_plain = not is_u and "label" not in chosen
    if "label" in places and (width < 2 or (width > _MOST_COLUMNS and is_plain)):
        raise DataError(
            f"must hold 2 to {_MOST_COLUMNS} columns, a word first and its tag last, "
            "or the number of the tag's column be given; holds "
            f"{counted(width, 'columns')}",
            path=path,
        )
    return places
