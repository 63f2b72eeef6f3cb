"""The files of a corpus, `corpus_files`, and what form each one has, `form_of`."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable

from bert_keras.beam_files import is_remote, matching
from bert_keras.errors import ConfigError, DataError
from bert_keras.text_streams import head_of

FORMS = ("text", "file", "lines", "jsonl", "wikiextractor", "wikipedia")
DOC = re.compile(r"<doc id=.*>")  # begins a document of WikiExtractor
_LINES_SEEN = 1000
_SENTENCE_END = re.compile(r"[.!?…。！？؟।۔]+[\"'”’»)\]」』]*\s*$")
_INNER_END = re.compile(r"[.!?…؟।۔]+[\"'”’»)\]]*\s+\S|[。！？]+[」』”]*\s*\w")


def corpus_files(paths: str | os.PathLike[str] | Iterable[str]) -> list[str]:
    """Return the files of a corpus in the order in which they are read.

    Args:
        paths: a file, a folder or a glob (`**` for any depth), or several of them. Of a
            folder all files below it, sorted by name, but those whose name, or whose
            folder's, begins with a dot. A file that is met twice counts once. A name
            such as `gs://bucket/text/*` is of a file system of Apache Beam.

    Raises:
        DataError: a path is not there, or a folder or glob holds no file.
    """
    single = isinstance(paths, str | os.PathLike)
    found: dict[str, str] = {}  # the file behind links: the path
    for given in [paths] if single else paths:  # type: ignore[union-attr,list-item]
        path = os.fspath(given)  # type: ignore[arg-type]
        if is_remote(path):
            found |= {file: file for file in _remote_files(path)}
            continue
        if os.path.isdir(path):
            files = _files_below(path)
        elif os.path.exists(path) or not glob.has_magic(path):
            files = [path]
        else:
            files = [
                file
                for match in sorted(glob.glob(path, recursive=True))
                for file in (_files_below(match) if os.path.isdir(match) else [match])
            ]
        if not files:
            raise DataError("holds no file for the corpus", path=path)
        for file in files:
            if not os.path.isfile(file):
                known = "must be a file or a folder"
                reason = known if os.path.exists(file) else "no such file"
                raise DataError(reason, path=file)
            found.setdefault(os.path.realpath(file), file)
    if not found:
        raise DataError("`paths` must name a file, a folder or a glob; received none")
    return list(found.values())


def _files_below(folder: str) -> list[str]:
    files = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [
            os.path.join(place, name)
            for name in sorted(names)
            if not name.startswith(".")
        ]
    return files


def _remote_files(path: str) -> list[str]:
    try:
        files = matching(path)
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"cannot be read: {reason}", path=path) from None
    if not files:
        raise DataError("holds no file for the corpus", path=path)
    return files


def check_form(form: str) -> None:
    """Raise ConfigError unless a form is `auto` or one of `FORMS`."""
    if form != "auto" and form not in FORMS:
        forms = ", ".join(("auto", *FORMS))
        raise ConfigError(f"`form` must be one of {forms}; received {form!r}")


def form_of(path: str | os.PathLike[str]) -> str:
    """Return the form that a file's start shows, one of `FORMS`, never `file`.

    Of text with line breaks, `lines` is what has an end of a sentence at the end of
    nearly every line and hardly one inside.

    Raises:
        DataError: the file cannot be read, is binary, or looks like XML or JSON that is
            no corpus.
    """
    path = os.fspath(path)
    head = head_of(path)
    start = head.lstrip()
    if start.startswith(("<mediawiki", "<?xml")):
        if "<mediawiki" not in start:
            raise DataError("is XML, but no MediaWiki dump; name its form", path=path)
        return "wikipedia"
    first = start.partition("\n")[0].rstrip()
    if DOC.match(first):
        return "wikiextractor"
    if re.match(r'\{\s*("|\})', start):
        return "jsonl"
    if re.match(r'\[\s*[{"\]]', start):
        raise DataError("must hold one JSON object a line, not an array", path=path)
    lines = [line for line in head.split("\n")[:_LINES_SEEN] if line.strip()]
    ends = sum(1 for line in lines if _SENTENCE_END.search(line))
    inner = sum(1 for line in lines if _INNER_END.search(line))
    one_each = ends >= 0.8 * len(lines) and inner <= 0.3 * len(lines)
    return "lines" if len(lines) > 1 and one_each else "text"
