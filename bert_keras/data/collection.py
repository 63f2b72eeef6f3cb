"""Collections that search is judged on: documents, queries and graded judgements.

Folders in the form of BEIR: `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl`
(`_id`, `text`) and `qrels/*.tsv` (query-id, corpus-id, score). Judgements and runs are
also read, and runs written, in TREC's form: `query 0 document grade` and
`query Q0 document rank score tag`.

Sources: Thakur et al. 2021 (arXiv:2104.08663); trec_eval's README.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bert_keras.data.columns import Columns
from bert_keras.data.json_rows import json_rows
from bert_keras.data.rows import read_text, refuse_lines
from bert_keras.data.table import names_of
from bert_keras.errors import DataError, counted, first_of, reason_of, received
from bert_keras.files.atomic import replaced_file
from bert_keras.runs.progress import say_once

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
        candidates: a run whose documents a reranker sorts, if there is one.
        candidates_path: its file.
    """

    path: str
    documents: dict[str, str]
    queries: dict[str, str]
    qrels: Run
    empty: int = 0
    unjudged: int = 0
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

    @property
    def notes(self) -> list[str]:
        """What is left out."""
        found = []
        if self.empty:
            documents = counted(self.empty, "documents")
            what = "without text, so that no search finds them"
            found.append(f"{self.path}: {documents} {what}")
        if self.unjudged:
            queries = counted(self.unjudged, "queries")
            found.append(f"{self.path}: {queries} without judgements, left out")
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

    Raises:
        DataError: a file is missing or broken, or names an unknown id; bad lines are
            named.
    """
    place = Path(folder)
    documents = _texts_by_id(place / CORPUS, "title", "text")
    queries = _texts_by_id(place / QUERIES, "text")
    blank = [name for name, text in queries.items() if not text]
    if blank:
        message = f"`text` must not be empty; it is for the query {first_of(blank)}"
        raise DataError(message, path=place / QUERIES)
    known = (queries, documents)
    judged = read_qrels(qrels or _default_qrels(place / QRELS), known=known)
    return JudgedCollection(
        os.fspath(folder),
        {name: text for name, text in documents.items() if text},
        {name: text for name, text in queries.items() if name in judged},
        judged,
        empty=sum(not text for text in documents.values()),
        unjudged=len(queries) - len(judged),
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
        "nulls": [role for role in columns if role != "text"],
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


def _texts_by_id(path: Path, *keys: str) -> dict[str, str]:
    """Return the text of each row by its `_id`: the values of keys, joined."""
    found: dict[str, str] = {}
    problems = []
    for line, row in json_rows(os.fspath(path), read_text(os.fspath(path))):
        name, values = row.get(_ID), [row.get(key, "") for key in keys]
        values = ["" if value is None else value for value in values]
        if not isinstance(name, str) or not name:
            problems.append((line, f"`_id` must be a non-empty text; {received(name)}"))
        elif name in found:
            problems.append((line, f"`_id` must be unique; received {name} again"))
        elif "text" not in row or not all(isinstance(each, str) for each in values):
            problems.append((line, f"{' and '.join(keys)} must be texts"))
        else:
            found[name] = _joined(values)
    refuse_lines(os.fspath(path), problems)
    return found


def _joined(texts: Iterable[str]) -> str:
    """Return title and text of a document as one text."""
    return " ".join(each.strip() for each in texts if each.strip())


def read_qrels(
    path: str | os.PathLike[str],
    *,
    known: tuple[Collection[str], Collection[str]] | None = None,
) -> Run:
    """Return the grades of judged documents by query and document.

    Args:
        path: lines of query-id, corpus-id and score (BEIR, with or without a header),
            or of query, 0, document and grade (TREC).
        known: the ids of queries and documents; others are refused.

    Raises:
        DataError: a line has another form or an unknown id, or a grade is no number.
    """

    def parsed(cells: list[str]) -> tuple[str, str, str] | str:
        if len(cells) == 4:
            return cells[0], cells[2], cells[3]
        if len(cells) == 3:
            return cells[0], cells[1], cells[2]
        return "must be query, document and grade, or query, 0, document and grade"

    return _read_lines(os.fspath(path), parsed, "grade", known)


def read_run(
    path: str | os.PathLike[str],
    *,
    known: tuple[Collection[str], Collection[str]] | None = None,
) -> Run:
    """Return the scores of a run in TREC's form by query and document.

    As in trec_eval, the scores decide, not the ranks. The arguments and errors are as
    in `read_qrels`.
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
    known: tuple[Collection[str], Collection[str]] | None,
) -> Run:
    found: Run = {}
    problems: list[tuple[int, str]] = []
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
        faults = list(_faults(query, document, known))
        if value is None:
            faults.append(f"the {what} must be a finite number; {received(written)}")
        if document in found.get(query, {}):
            faults.append(f"has query {query} and document {document} again")
        problems += [(line, fault) for fault in faults]
        if value is not None:
            found.setdefault(query, {})[document] = value
    refuse_lines(path, problems)
    return found


def _faults(
    query: str, document: str, known: tuple[Collection[str], Collection[str]] | None
) -> Iterator[str]:
    """Yield what is unknown."""
    queries, documents = known or ((query,), (document,))
    if query not in queries:
        yield f"the query {query} is not in {QUERIES}"
    if document not in documents:
        yield f"the document {document} is not in {CORPUS}"


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def write_run(path: str | os.PathLike[str], run: Mapping[str, Any]) -> None:
    """Write a run in TREC's form, the highest score first.

    Args:
        path: the file; it appears when it is complete.
        run: query id to document id to score.

    Raises:
        DataError: an id has white space, or the file cannot be written.
    """
    for name in (*run, *(name for found in run.values() for name in found)):
        if len(name.split()) != 1:
            message = f"an id must have no white space in a run; {received(name)}"
            raise DataError(message, path=path)
    try:
        with replaced_file(Path(path)) as place, place.open("w", encoding="utf-8") as f:
            for query, found in run.items():
                order = sorted(found.items(), key=lambda pair: -pair[1])
                for rank, (name, score) in enumerate(order, 1):
                    print(query, "Q0", name, rank, repr(score), _TAG, file=f)
    except OSError as error:
        raise DataError(f"cannot be written: {reason_of(error)}", path=path) from None
