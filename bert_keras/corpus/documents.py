"""Documents of a corpus as a stream, and their sentences: for learning a new BERT.

`raw_documents` reads; it is quick, and its order is that of the files. `sentences_of`
is the slow part and is made for worker processes: a `RawDocument` can be pickled. The
forms are those in which corpora for BERT come: Google's own (one sentence a line, blank
lines between documents; google-research/bert `create_pretraining_data.py`), plain text,
JSONL, the output of WikiExtractor, and Wikipedia's XML dumps.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from bert_keras.corpus.reader import (
    CorpusReader,
    CorpusReport,
    RawDocument,
    check_form,
    corpus_files,
    form_of,
)
from bert_keras.corpus.sentence_rules import paragraphs_of, sentence_splitter
from bert_keras.corpus.wikipedia import plain_paragraphs
from bert_keras.errors import DataError
from bert_keras.files.streams import check_errors, head_of


def name_of(function: Callable[..., Any]) -> str:
    """Return a function's name, with what `functools.partial` gave it."""
    if isinstance(function, functools.partial):
        given = [*map(repr, function.args)]
        given += [
            f"{key}={value!r}" for key, value in sorted(function.keywords.items())
        ]
        return f"{name_of(function.func)}({', '.join(given)})"
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', 'builtins')}.{named.__qualname__}"


__all__ = ["CorpusReport", "RawDocument", "raw_documents", "sentences_of"]
# Lines that some versions of WikiExtractor write for headers and list items.
_NO_PARAGRAPH = re.compile(r"(?:Section::::|[A-Z]+::::)")


def raw_documents(
    paths: str | os.PathLike[str] | Iterable[str],
    *,
    form: str = "auto",
    text_field: str = "text",
    errors: str = "strict",
    report: CorpusReport | None = None,
) -> Iterator[RawDocument]:
    """Yield the documents of a corpus, in the order of the files and of their lines.

    Files may be packed with gzip, bzip2, xz or zstd. The memory is that of a document;
    a text document of more than 32 Mi characters comes as several.

    Args:
        paths: files, folders and globs, also of a bucket; see `corpus_files`.
        form: what all files hold, or `auto`, each what its start shows (`form_of`).
            `text`: documents with blank lines between them. `file`: one document.
            `lines`: as `text`, and each line is a sentence. `jsonl`: a document in a
            field of each line's object. `wikiextractor`: `<doc …>` to `</doc>`.
            `wikipedia`: the articles of an XML dump.
        text_field: the field of `jsonl`.
        errors: `strict` refuses what is not UTF-8, and NUL; `replace` puts U+FFFD,
            which the tokenizer drops.
        report: is filled while documents are read.

    Raises:
        ConfigError: an argument is wrong.
        DataError: a file is missing, binary, broken or not of the form, named with its
            line; or the corpus holds no text at all.

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
    """Yield the documents of one file that hold text, and count them in the report.

    Args:
        path: the file.
        form: as of `raw_documents`.
        reader: reads it.

    Raises:
        DataError: as of `raw_documents`; a file without any text is none.
    """
    report = reader.report
    if form == "auto":
        form = form_of(path)
    else:
        head_of(path)  # refuses what is binary
    report.forms[path] = form
    for document in getattr(reader, form)(path):
        if not document.text.strip():
            report.empty += 1
            continue
        report.documents += 1
        report.characters += len(document.text)
        yield document


def no_text(files: int) -> DataError:
    """Return what is to be said of so many files without any text."""
    return DataError(f"the corpus holds no text; files read: {files}")


def sentences_of(document: RawDocument, *, language: str = "en") -> list[str]:
    """Return the sentences of a document, stripped, none of them empty.

    Those of `lines` are its lines. All others are split by rule (`sentence_rules`):
    paragraph by paragraph for WikiExtractor and Wikipedia, and for text and JSONL with
    lines that were wrapped by hand put together again.

    Args:
        document: of `raw_documents`.
        language: its code, such as `en` or `zh`.

    Raises:
        ConfigError: the code of the language, or a package is missing.
    """
    text = document.text
    if document.form == "lines":
        return [line for raw in text.split("\n") if (line := raw.strip())]
    if document.form == "wikipedia":
        paragraphs = plain_paragraphs(text, document.silent)
    elif document.form == "wikiextractor":
        paragraphs = _extracted_paragraphs(text)
    else:
        paragraphs = paragraphs_of(text)
    split = sentence_splitter(language)
    return [sentence for paragraph in paragraphs for sentence in split(paragraph)]


def _extracted_paragraphs(text: str) -> list[str]:
    """Return the lines that are paragraphs; some versions write HTML's entities."""
    for entity, character in (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(entity, character)
    lines = (line.strip() for line in text.split("\n"))
    return [line for line in lines if line and not _NO_PARAGRAPH.match(line)]
