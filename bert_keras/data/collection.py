"""Collections that search is judged on: documents, queries and graded judgements.

Folders in the form of BEIR: `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl`
(`_id`, `text`) and `qrels/*.tsv` (query-id, corpus-id, score). Judgements and runs are
also read, and runs written, in TREC's form: `query 0 document grade` and
`query Q0 document rank score tag`.

Sources: Thakur et al. 2021 (arXiv:2104.08663); trec_eval's README.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from bert_keras.data.columns import Columns
from bert_keras.data.json_rows import json_rows
from bert_keras.data.rows import read_text, refuse_lines
from bert_keras.data.table import names_of
from bert_keras.errors import DataError, counted, first_of, received
from bert_keras.files.atomic import replaced_file, writing
from bert_keras.runs.notes import say, say_once

CORPUS, QUERIES, QRELS = "corpus.jsonl", "queries.jsonl", "qrels"
_ID = "_id"
_HEADER = ["query-id", "corpus-id", "score"]
_TAG = "bert_keras"
Run = dict[str, dict[str, float]]  # query id to document id to grade or score


@dataclasses.dataclass(frozen=True)
class JudgedCollection:
    """Documents, queries, and which document answers which query.

    Args:
        path: the folder.
        documents: id to text, the title first; without empty ones.
        queries: id to text of the judged queries.
        qrels: query id to document id to grade; above 0 is relevant.
        empty: number of documents without text, which no search finds.
        unjudged: number of queries without judgements, which are left out.
        lost: ids of judged documents that the corpus lacks, which no search finds.
        candidates: a run whose documents a reranker sorts, if there is one.
        candidates_path: its file.
    """

    path: str
    documents: dict[str, str]
    queries: dict[str, str]
    qrels: Run
    empty: int = 0
    unjudged: int = 0
    lost: tuple[str, ...] = ()
    candidates: Run | None = None
    candidates_path: str = ""

    def __str__(self) -> str:
        """Return the sizes."""
        grades = [grade for found in self.qrels.values() for grade in found.values()]
        return (
            f"{counted(len(self.documents), 'documents')}, "
            f"{counted(len(self.queries), 'queries')}, "
            f"{sum(grade > 0 for grade in grades):,} relevant of {len(grades):,} judged"
        )

    @functools.cached_property
    def own(self) -> frozenset[str]:
        """Ids of queries that are documents, too, and not judged to answer themselves.

        As in BEIR, such a document is no hit of its query.
        """
        both = self.queries.keys() & self.documents.keys()
        return frozenset(name for name in both if name not in self.qrels[name])

    @property
    def notes(self) -> list[str]:
        """What is left out."""
        found = []
        if self.empty:
            documents = counted(self.empty, "documents")
            what = "without text, which no search finds"
            found.append(f"{self.path}: {documents} {what}")
        if self.unjudged:
            queries = counted(self.unjudged, "queries")
            found.append(f"{self.path}: {queries} without judgements, left out")
        if self.lost:
            documents = counted(len(self.lost), "judged documents")
            verb, rest = ("is", "counts") if len(self.lost) == 1 else ("are", "count")
            found.append(
                f"{self.path}: {documents} {verb} not in {CORPUS}, and {rest} as never "
                f"found: {first_of(self.lost, most=3)}"
            )
        return found


def is_collection(data: Any) -> bool:
    """Return whether data is a collection, or the folder of one."""
    if isinstance(data, JudgedCollection):
        return True
    return isinstance(data, str | os.PathLike) and os.path.isfile(Path(data) / CORPUS)


def read_collection(
    folder: str | os.PathLike[str],
    *,
    qrels: str | os.PathLike[str] | None = None,
    run: str | os.PathLike[str] | None = None,
) -> JudgedCollection:
    """Return the collection of a folder in the form of BEIR.

    Args:
        folder: has `corpus.jsonl`, `queries.jsonl` and `qrels/`.
        qrels: the file of judgements, BEIR's or TREC's; by default `qrels/test.tsv`,
            or the only file there.
        run: a run in TREC's form, of which a reranker sorts the documents.

    A row that an earlier one repeats is counted in a message.

    Raises:
        DataError: a file is missing or broken, or rows contradict each other, or a
            judged query has no text, or a file names an unknown id, but for judged
            documents, or no document is relevant; bad lines are named.
    """
    place = Path(folder)
    documents, _ = _texts_by_id(place / CORPUS, "title", "text")
    queries, lines = _texts_by_id(place / QUERIES, "text")
    qrels = qrels or _default_qrels(place / QRELS)
    judged = read_qrels(qrels, queries=queries)
    if not any(grade > 0 for grades in judged.values() for grade in grades.values()):
        raise DataError(
            "must have a document with a grade above 0; none of the "
            f"{counted(len(judged), 'queries')} has one",
            path=qrels,
        )
    blank = [(lines[name], name) for name in judged if not queries[name]]
    refuse_lines(
        os.fspath(place / QUERIES),
        [(line, f"the judged query {name} has no text") for line, name in blank],
    )
    named = dict.fromkeys(name for grades in judged.values() for name in grades)
    known = (queries, documents)
    return JudgedCollection(
        os.fspath(folder),
        {name: text for name, text in documents.items() if text},
        {name: text for name, text in queries.items() if name in judged},
        judged,
        empty=sum(not text for text in documents.values()),
        unjudged=len(queries) - len(judged),
        lost=tuple(name for name in named if name not in documents),
        candidates=None if run is None else read_run(run, known=known),
        candidates_path="" if run is None else os.fspath(run),
    )


def document_rules(
    path: str, *, text: str | int = "text", name: str | int | None = None
) -> dict[str, Any]:
    """Return the arguments of `read_columns` for texts that are searched, and `id`.

    Args:
        path: the file. One with the columns `_id` and `text` has the form of BEIR:
            `_id` is the name of a text, and `title` is read, see `with_titles`.
        text: the column of the texts; another than `text` is read alone.
        name: the column of their names; `None`: `id` or BEIR's, if there is one.
    """
    is_plain = text == "text"
    names = names_of(path) if is_plain else []
    is_beir = {_ID, "text"} <= set(names)
    columns = {"text": text, "id": (_ID if is_beir else "id") if name is None else name}
    if is_beir:
        columns["title"] = "title"
    optional = {"id": name is None, "title": "title" not in names}
    return {
        "columns": columns,
        "optional": [role for role, is_optional in optional.items() if is_optional],
        "empty": [*columns],
        "nulls": [*columns],
        "unread": ["text_pair", "title"] if is_plain else [],
    }


def with_titles(columns: Columns) -> Columns:
    """Return rows whose `text` has the `title` before it; a message tells of titles."""
    if "title" not in columns:
        return columns
    say_once(f"{columns.path}: has the form of BEIR: `title` is read before `text`")
    cells = dict(columns.cells)
    pairs = zip(cells.pop("title"), cells["text"], strict=True)
    return dataclasses.replace(columns, cells={**cells, "text": [*map(_joined, pairs)]})


def _default_qrels(folder: Path) -> Path:
    files = sorted(folder.glob("*.tsv"))
    test = [path for path in files if path.name == "test.tsv"] or files
    if len(test) != 1:
        names = first_of([path.name for path in files]) if files else "no .tsv file"
        message = (
            f"must hold test.tsv or one .tsv file, or name the judgements; {names}"
        )
        raise DataError(message, path=folder)
    return test[0]


def _texts_by_id(path: Path, *keys: str) -> tuple[dict[str, str], dict[str, int]]:
    """Return the text of each row by its `_id`, the keys' values joined, and lines."""
    found: dict[str, str] = {}
    lines: dict[str, int] = {}
    problems, repeated = [], []
    for line, row in json_rows(os.fspath(path), read_text(os.fspath(path))):
        name, values = row.get(_ID), [row.get(key, "") for key in keys]
        values = ["" if value is None else value for value in values]
        if not isinstance(name, str) or not name:
            problems.append((line, f"`_id` must be a non-empty text; {received(name)}"))
        elif "text" not in row or not all(isinstance(each, str) for each in values):
            problems.append((line, f"{' and '.join(keys)} must be texts"))
        elif name not in found:
            found[name], lines[name] = _joined(values), line
        elif found[name] == _joined(values):
            repeated.append(line)
        else:
            again = f"received {name} again, with another text than in line"
            problems.append((line, f"`_id` must be unique; {again} {lines[name]}"))
    refuse_lines(os.fspath(path), problems)
    _tell_repeated(os.fspath(path), repeated)
    return found, lines


def _tell_repeated(path: str, lines: list[int]) -> None:
    if lines:
        verb = "repeats" if len(lines) == 1 else "repeat"
        say(
            f"{path}: {counted(len(lines), 'rows')} {verb} an earlier one: line "
            f"{first_of(lines, most=3)}"
        )


def _joined(texts: Iterable[str]) -> str:
    """Return title and text of a document as one text."""
    return " ".join(each.strip() for each in texts if each.strip())


def read_qrels(
    path: str | os.PathLike[str], *, queries: Collection[str] | None = None
) -> Run:
    """Return the grades of judged documents by query and document.

    A row that an earlier one repeats is counted in a message.

    Args:
        path: lines of query-id, corpus-id and score (BEIR, with or without a header),
            or of query, 0, document and grade (TREC).
        queries: the known ids of queries; others are refused. Documents may be
            unknown, as for trec_eval.

    Raises:
        DataError: a line has another form or an unknown query, or another grade than
            an earlier one, or a grade is no number.
    """

    def parsed(cells: list[str]) -> tuple[str, str, str] | str:
        if len(cells) == 4:
            return cells[0], cells[2], cells[3]
        if len(cells) == 3:
            return cells[0], cells[1], cells[2]
        return "must be query, document and grade, or query, 0, document and grade"

    return _read_lines(os.fspath(path), parsed, "grade", (queries, None))


def read_run(
    path: str | os.PathLike[str],
    *,
    known: tuple[Collection[str] | None, Collection[str] | None] = (None, None),
) -> Run:
    """Return the scores of a run in TREC's form by query and document.

    As in trec_eval, the scores decide, not the ranks; among equal ones the first line
    does. `known` are the ids of queries and documents; others are refused. The errors
    are as in `read_qrels`.
    """

    def parsed(cells: list[str]) -> tuple[str, str, str] | str:
        if len(cells) == 6:
            return cells[0], cells[2], cells[4]
        return "must be query, Q0, document, rank, score and tag"

    return _read_lines(os.fspath(path), parsed, "score", known)


def _read_lines(
    path: str,
    parsed: Callable[[list[str]], tuple[str, str, str] | str],
    what: str,
    known: tuple[Collection[str] | None, Collection[str] | None],
) -> Run:
    found: Run = {}
    lines: dict[tuple[str, str], int] = {}
    problems: list[tuple[int, str]] = []
    repeated: list[int] = []
    for line, text in enumerate(read_text(path).split("\n"), 1):
        cells = text.split("\t") if "\t" in text else text.split()
        cells = [cell.strip() for cell in cells]
        if line == 1 and cells == _HEADER:
            continue
        row = parsed(cells)
        if isinstance(row, str):
            problems.append((line, f"{row}; has {len(cells)} columns"))
            continue
        query, document, written = row
        value = _number(written)
        faults = [
            f"the {kind} {name} is not in {file}"
            for kind, name, file, ids in (
                ("query", query, QUERIES, known[0]),
                ("document", document, CORPUS, known[1]),
            )
            if ids is not None and name not in ids
        ]
        first = lines.setdefault((query, document), line)
        if value is None:
            faults.append(f"the {what} must be a finite number; {received(written)}")
        elif first == line:
            found.setdefault(query, {})[document] = value
        elif found.get(query, {}).get(document) == value:
            repeated.append(line)
        else:
            faults.append(
                f"has query {query} and document {document} again, with another "
                f"{what} than in line {first}"
            )
        problems += [(line, fault) for fault in faults]
    refuse_lines(path, problems)
    _tell_repeated(path, repeated)
    return found


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def check_run(path: str | os.PathLike[str], ids: Iterable[str]) -> None:
    """Raise DataError unless a run of these queries and documents can be written."""
    if not os.path.isdir(os.path.dirname(os.path.realpath(path))):
        raise DataError("cannot be written: no such folder", path=path)
    for name in ids:
        if len(name.split()) != 1:
            message = f"an id must have no white space in a run; {received(name)}"
            raise DataError(message, path=path)


def write_run(path: str | os.PathLike[str], run: Mapping[str, Any]) -> None:
    """Write a run in TREC's form, the highest score first.

    Args:
        path: the file; it appears when it is complete.
        run: query id to document id to score.

    Raises:
        DataError: an id has white space, or the file cannot be written.
    """
    check_run(path, (*run, *(name for found in run.values() for name in found)))
    with writing(path), replaced_file(Path(path)) as place:
        with place.open("w", encoding="utf-8") as file:
            for query, found in run.items():
                order = sorted(found.items(), key=lambda pair: -pair[1])
                for rank, (name, score) in enumerate(order, 1):
                    print(query, "Q0", name, rank, repr(score), _TAG, file=file)
