"""The documents of a corpus as a stream, and their sentences.

`raw_documents` reads the documents of all files in order. `sentences_of` does the slow
part and can run in worker processes. The forms are those in which corpora for BERT are
published: Google's own (one sentence per line, blank lines between documents;
google-research/bert `create_pretraining_data.py`), plain text, JSONL, Parquet, the
output of WikiExtractor, and Wikipedia's XML dumps.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import hashlib
import html
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bert_keras.corpus.sentence_rules import paragraphs_of, sentence_splitter
from bert_keras.corpus.wikipedia import pages_of, plain_paragraphs
from bert_keras.errors import DataError, counted, reason_of
from bert_keras.files.filesystems import is_remote, matching
from bert_keras.files.parquet import is_stored, stream_tables
from bert_keras.files.streams import (
    MOST_BYTES,
    Replaced,
    check_errors,
    head_of,
    lines_of,
)
from bert_keras.settings import CORPUS_FORMS as FORMS
from bert_keras.settings import check_choice

_DOC = re.compile(r"<doc id=.*>")  # starts a WikiExtractor document
_TITLE = re.compile(r' title="(.*)">')
# Lines that some versions of WikiExtractor write for headers and list items.
_NO_PARAGRAPH = re.compile(r"(?:Section::::|[A-Z]+::::)")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LINES_SEEN = 1000
_ROWS_AT_ONCE = 256  # of a Parquet file
_SENTENCE_END = re.compile(r"[.!?…。！？؟।۔]+[\"'”’»)\]」』]*\s*$")
_INNER_END = re.compile(r"[.!?…؟।۔]+[\"'”’»)\]]*\s+\S|[。！？]+[」』”]*\s*\w")


@dataclasses.dataclass(frozen=True, slots=True)
class RawDocument:
    """A document as stored in its file, for `sentences_of`; it can be pickled.

    Args:
        text: the text, or the wikitext of a page; a WikiExtractor document without its
            title.
        form: one of `FORMS`.
        source: `path:line`, where the document starts.
        silent: for `wikipedia`, names of the namespaces whose links are not shown as
            text.
    """

    text: str
    form: str
    source: str
    silent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.form not in FORMS:  # documents are many, and the check is slow
            check_choice("form", self.form, FORMS)


@dataclasses.dataclass
class CorpusReport:
    """What `raw_documents` has read so far.

    Attributes:
        forms: the form of each file, in order.
        documents: number of documents with text.
        characters: number of characters of their texts.
        empty: documents without text, which were left out.
        cut: documents of more than 32 Mi characters, split into several.
        replaced: the count and places of lines with invalid bytes.
    """

    forms: dict[str, str] = dataclasses.field(default_factory=dict)
    documents: int = 0
    characters: int = 0
    empty: int = 0
    cut: int = 0
    replaced: Replaced = dataclasses.field(default_factory=Replaced)

    def lines(self) -> list[str]:
        """Return the report in short lines."""
        kinds = Counter(self.forms.values())
        files = ", ".join(f"{form} {count}" for form, count in kinds.items())
        lines = [
            f"{counted(self.documents, 'documents')}, {self.characters:,} characters; "
            f"files by form: {files or 'none'}"
        ]
        if self.documents > len(self.forms) and set(kinds) == {"text"}:
            lines.append("in files of text, blank lines separate documents")
        if self.empty:
            lines.append(f"{counted(self.empty, 'documents')} without text left out")
        if self.cut:
            lines.append(
                f"{counted(self.cut, 'documents')} of more than {MOST_BYTES:,} cut"
            )
        if self.replaced.lines:
            places = ", ".join(self.replaced.places)
            count = counted(self.replaced.lines, "lines")
            lines.append(f"{count} not UTF-8, first: {places}")
        return lines


def raw_documents(
    paths: str | os.PathLike[str] | Iterable[str],
    *,
    form: str = "auto",
    text_field: str = "text",
    errors: str = "strict",
    report: CorpusReport | None = None,
) -> Iterator[RawDocument]:
    """Yield the documents of a corpus, in the order of its files and their lines.

    Files may be compressed (see `files.streams`). One document is in memory at a time;
    a text document of more than 32 Mi characters is split into several.

    Args:
        paths: files, folders and globs, local or of another file system; see
            `corpus_files`.
        form: the form of all files, or `auto`: decided by each file's start
            (`form_of`). `text`: documents separated by blank lines. `file`: one
            document. `lines`: like `text`, with one sentence per line. `jsonl`: a
            document in a field of each line's object. `parquet`: a document in a column
            of each row. `wikiextractor`: `<doc …>` to `</doc>`. `wikipedia`: the
            articles of an XML dump.
        text_field: the field of `jsonl`, and the column of `parquet`.
        errors: `strict` raises at bytes that are not UTF-8 and at NUL characters;
            `replace` replaces them by U+FFFD, which the tokenizer drops.
        report: filled in while documents are read.

    Raises:
        ConfigError: an argument is wrong.
        DataError: a file is missing, binary, corrupt or not of the form, named with the
            line; or the corpus contains no text.

    Example:
        >>> for document in raw_documents("corpus/**/*.txt.gz"):
        ...     sentences = sentences_of(document)
    """
    check_form(form)
    check_errors(errors)
    report = CorpusReport() if report is None else report
    files = corpus_files(paths)
    return _documents(files, form, CorpusReader(text_field, errors, report))


def _documents(
    files: Sequence[str], form: str, reader: CorpusReader
) -> Iterator[RawDocument]:
    report, before = reader.report, reader.report.documents
    for path in files:
        yield from documents_of(path, form, reader)
    if report.documents == before:
        raise no_text(len(files))


def documents_of(path: str, form: str, reader: CorpusReader) -> Iterator[RawDocument]:
    """Yield the documents with text in one file, and count them in the report.

    A file without text is not an error; otherwise as `raw_documents`.
    """
    report = reader.report
    if form == "auto":
        form = form_of(path)
    elif form != "parquet":
        head_of(path)  # rejects binary files
    report.forms[path] = form
    for document in getattr(reader, form)(path):
        if not document.text.strip():
            report.empty += 1
            continue
        report.documents += 1
        report.characters += len(document.text)
        yield document


def no_text(files: int) -> DataError:
    """Return the error of a corpus without text."""
    return DataError(f"the corpus contains no text; files read: {files}")


def sentences_of(document: RawDocument, *, language: str = "en") -> list[str]:
    """Return the non-empty sentences of a document, stripped.

    The sentences of `lines` are its lines. Other forms are split by the rules of the
    language, such as `en` or `zh` (`sentence_rules`): WikiExtractor and Wikipedia by
    paragraph; others after hard-wrapped lines have been joined.
    """
    text = document.text
    if document.form == "lines":
        return [line for raw in text.split("\n") if (line := raw.strip())]
    if document.form in ("wikipedia", "wikiextractor"):
        paragraphs = texts_of(document)
    else:
        paragraphs = paragraphs_of(text)
    split = sentence_splitter(language)
    return [sentence for paragraph in paragraphs for sentence in split(paragraph)]


def texts_of(document: RawDocument) -> list[str]:
    """Return the texts of a document without markup: what is needed to count words.

    Words do not cross sentences, so this is much faster than `sentences_of`.
    """
    if document.form == "wikipedia":
        return plain_paragraphs(document.text, document.silent)
    if document.form == "wikiextractor":
        return _extracted_paragraphs(document.text)
    return [document.text]


def _extracted_paragraphs(text: str) -> list[str]:
    """Return the paragraphs, one per line; some versions escape HTML characters."""
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(entity, character)
    lines = (line.strip() for line in text.split("\n"))
    return [line for line in lines if line and not _NO_PARAGRAPH.match(line)]


def sentences_by(language: str) -> Callable[[RawDocument], list[str]]:
    """Return `sentences_of` for a language; it can be pickled."""
    return functools.partial(sentences_of, language=language)


def add_to_hash(found: hashlib.blake2b, document: Any, text: str) -> None:
    """Add a document by its text and, since the sentences depend on it, its form."""
    parts: list[bytes] = []
    for part in (str(getattr(document, "form", "")), text):
        data = part.encode("utf-8", "surrogatepass")
        parts += len(data).to_bytes(8, "little"), data
    found.update(b"".join(parts))


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name, with the arguments that `functools.partial` binds."""
    if isinstance(function, functools.partial):
        bound = sorted(function.keywords.items())
        given = [*map(repr, function.args), *(f"{k}={value!r}" for k, value in bound)]
        return f"{name_of(function.func)}({', '.join(given)})"
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', 'builtins')}.{named.__qualname__}"


def corpus_files(paths: str | os.PathLike[str] | Iterable[str]) -> list[str]:
    """Return the files of a corpus in the order in which they are read.

    Args:
        paths: a file, a folder or a glob (`**` for any depth), or several of them. A
            folder means all files below it, sorted by name, without hidden files
            and folders. A file that is given twice counts once. A name with a scheme,
            such as `gs://bucket/text/*`, belongs to a file system of fsspec.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    found: dict[str, str] = {}  # the file behind links: the path
    for each in given:
        path = os.fspath(each)
        files = _remote_files(path) if is_remote(path) else _local_files(path)
        if not files:
            raise DataError("contains no file for the corpus", path=path)
        for file in files:
            found.setdefault(file if is_remote(file) else os.path.realpath(file), file)
    if not found:
        raise DataError("`paths` must name a file, a folder or a glob; received none")
    return list(found.values())


def _remote_files(path: str) -> list[str]:
    try:
        return matching(path)
    except OSError as error:
        raise DataError(f"cannot be read: {reason_of(error)}", path=path) from None


def _local_files(path: str) -> list[str]:
    """Return the files that a local path, folder or glob selects."""
    found = [path]
    if glob.has_magic(path) and not os.path.exists(path):
        found = sorted(glob.glob(path, recursive=True))
    files = [
        file
        for each in found
        for file in (_files_below(each) if os.path.isdir(each) else [each])
    ]
    for file in files:
        if not os.path.isfile(file):
            known = "must be a file or a folder"
            reason = known if os.path.exists(file) else "no such file"
            raise DataError(reason, path=file)
    return files


def _files_below(folder: str) -> list[str]:
    files = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        seen = sorted(name for name in names if not name.startswith("."))
        files += [os.path.join(place, name) for name in seen]
    return files


def check_form(form: str) -> None:
    """Raise ConfigError unless a form is `auto` or one of `FORMS`."""
    check_choice("form", form, ("auto", *FORMS))


def form_of(path: str | os.PathLike[str]) -> str:
    """Return the form of a file by its start: one of `FORMS`, never `file`.

    Parquet and Arrow are recognized by their names. Text is taken for `lines` if nearly
    every line ends like a sentence and hardly any contains the end of a sentence. XML
    and JSON that are not a corpus raise a DataError.
    """
    path = os.fspath(path)
    if is_stored(path):
        return "parquet"
    head = head_of(path)
    start = head.lstrip()
    if start.startswith(("<mediawiki", "<?xml")):
        if "<mediawiki" not in start:
            raise DataError("is XML, not a MediaWiki dump; name its form", path=path)
        return "wikipedia"
    first = start.partition("\n")[0].rstrip()
    if _DOC.match(first):
        return "wikiextractor"
    if re.match(r'\{\s*("|\})', start):
        return "jsonl"
    if re.match(r'\[\s*[{"\]]', start):
        raise DataError("must hold one JSON object per line, not an array", path=path)
    lines = [line for line in head.split("\n")[:_LINES_SEEN] if line.strip()]
    ends = sum(1 for line in lines if _SENTENCE_END.search(line))
    inner = sum(1 for line in lines if _INNER_END.search(line))
    one_each = ends >= 0.8 * len(lines) and inner <= 0.3 * len(lines)
    return "lines" if len(lines) > 1 and one_each else "text"


class CorpusReader:
    """Reads the documents of one file; the methods have the names of the forms.

    Arguments as in `raw_documents`.
    """

    def __init__(self, text_field: str, errors: str, report: CorpusReport) -> None:
        self._field = text_field
        self._errors = errors
        self.report = report

    def text(self, path: str, kind: str = "text") -> Iterator[RawDocument]:
        """Yield the texts between blank lines."""
        lines: list[str] = []
        first, size = 1, 0
        for number, line in self._lines(path):
            blank = kind != "file" and line.isspace()
            if lines and (blank or size + len(line) > MOST_BYTES):
                self.report.cut += not blank
                yield RawDocument("".join(lines), kind, f"{path}:{first}")
                lines, size = [], 0
            if blank:
                continue
            if not lines:
                first = number
            lines.append(line)
            size += len(line)
        if lines:
            yield RawDocument("".join(lines), kind, f"{path}:{first}")

    file = functools.partialmethod(text, kind="file")
    lines = functools.partialmethod(text, kind="lines")

    def jsonl(self, path: str) -> Iterator[RawDocument]:
        """Yield the text field of each object."""
        for number, line in self._lines(path):
            if not line.strip():
                continue
            cut = len(line) >= MOST_BYTES // 4 and not line.endswith("\n")
            if cut and len(line.encode()) > MOST_BYTES - 4:
                message = f"is a line of more than {MOST_BYTES:,} bytes"
                raise DataError(message, path=path, line=number)
            text = self._value(path, number, line)
            yield RawDocument(text, "jsonl", f"{path}:{number}")

    def parquet(self, path: str) -> Iterator[RawDocument]:
        """Yield the texts of a column."""
        number = 0
        for table in stream_tables(path, _ROWS_AT_ONCE, column=self._field):
            for text in table.column(0).to_pylist():
                number += 1
                self._check_text(text, path, number)
                if len(text) > MOST_BYTES:
                    message = f"is a text of more than {MOST_BYTES:,} characters"
                    raise DataError(message, path=path, line=number)
                yield RawDocument(text, "parquet", f"{path}:{number}")

    def wikiextractor(self, path: str) -> Iterator[RawDocument]:
        """Yield the texts between `<doc …>` and `</doc>`, without the title."""
        lines: list[str] | None = None
        first, title, size = 0, "", 0
        for number, line in self._lines(path):
            if lines is None:
                if not line.strip():
                    continue
                if not _DOC.match(line):
                    raise DataError(
                        "must begin a document, <doc id=…>", path=path, line=number
                    )
                named = _TITLE.search(line)
                title = html.unescape(named[1]) if named else ""
                lines, first, size = [], number, 0
            elif line.rstrip() == "</doc>":
                heading = "".join(lines[:1]).strip()
                if lines and title in (heading, html.unescape(heading)):
                    del lines[0]
                text = "".join(lines)
                yield RawDocument(text, "wikiextractor", f"{path}:{first}")
                lines = None
            elif _DOC.match(line):
                break
            else:
                lines.append(line)
                size += len(line)
                if size > MOST_BYTES:
                    raise DataError(
                        f"has a <doc> of more than {MOST_BYTES:,} characters",
                        path=path,
                        line=first,
                    )
        if lines is not None:
            raise DataError("this <doc> has no </doc>", path=path, line=first)

    def wikipedia(self, path: str) -> Iterator[RawDocument]:
        """Yield the articles of a dump."""
        pages = pages_of(path, errors=self._errors, replaced=self.report.replaced)
        for page in pages:
            place = f"{path}:{page.line}"
            yield RawDocument(page.text, "wikipedia", place, page.silent)

    def _lines(self, path: str) -> Iterator[tuple[int, str]]:
        return lines_of(path, errors=self._errors, replaced=self.report.replaced)

    def _value(self, path: str, number: int, line: str) -> str:
        fault = functools.partial(DataError, path=path, line=number)
        try:
            row = json.loads(line, parse_int=float)  # `int` rejects very long ones
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "") or error
            raise fault(f"is not JSON: {reason}") from None
        if not isinstance(row, dict) or self._field not in row:
            have = ", ".join(list(row)[:5]) if isinstance(row, dict) else "no object"
            raise fault(f"must have the field {self._field!r}; has {have or 'none'}")
        text = row[self._field]
        self._check_text(text, path, number)
        if _SURROGATE.search(text):
            if self._errors == "strict":
                raise fault(f"{self._field!r} holds half of a surrogate pair")
            self.report.replaced.add(path, number)
            text = _SURROGATE.sub("\ufffd", text)
        return text

    def _check_text(self, value: Any, path: str, number: int) -> None:
        if not isinstance(value, str):
            shown = json.dumps(value, default=str)[:40]
            message = f"{self._field!r} must be text; received {shown}"
            raise DataError(message, path=path, line=number)
