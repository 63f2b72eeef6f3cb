"""The documents of one file of each form, `CorpusReader`, as `RawDocument`."""

from __future__ import annotations

import dataclasses
import glob
import html
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from bert_keras.corpus.wikipedia import pages_of
from bert_keras.errors import ConfigError, DataError
from bert_keras.files.beam_files import is_remote, matching
from bert_keras.files.streams import MOST_BYTES, Replaced, head_of, lines_of

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


_TITLE = re.compile(r' title="(.*)">')
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclasses.dataclass(frozen=True, slots=True)
class RawDocument:
    """A document as its file has it, for `sentences_of`; it can be pickled.

    Args:
        text: the text, or the wikitext of a page; of a WikiExtractor document without
            its title.
        form: one of `FORMS`.
        source: `path:line`, where the document begins.
        silent: for `wikipedia`, names of the namespaces whose links show no text.
    """

    text: str
    form: str
    source: str
    silent: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ConfigError(
                f"`form` must be one of {', '.join(FORMS)}; received {self.form!r}"
            )


@dataclasses.dataclass
class CorpusReport:
    """What `raw_documents` has read so far, for whoever wants to say it.

    Attributes:
        forms: the form that each file was taken to have, in order.
        documents: how many came out.
        characters: of their texts.
        empty: documents without text, which were left out.
        cut: documents of more than 32 Mi characters, cut into several.
        replaced: lines with broken bytes, counted and named.
    """

    forms: dict[str, str] = dataclasses.field(default_factory=dict)
    documents: int = 0
    characters: int = 0
    empty: int = 0
    cut: int = 0
    replaced: Replaced = dataclasses.field(default_factory=Replaced)

    def lines(self) -> list[str]:
        """Return what there is to say, in short lines."""
        kinds = Counter(self.forms.values())
        files = ", ".join(f"{count} {form}" for form, count in kinds.items())
        said = [
            f"{self.documents:,} documents, {self.characters:,} characters; "
            f"files: {files or 'none'}"
        ]
        if self.empty:
            said.append(f"{self.empty:,} documents without text left out")
        if self.cut:
            said.append(f"{self.cut:,} documents of more than {MOST_BYTES:,} cut")
        if self.replaced.lines:
            places = ", ".join(self.replaced.places)
            said.append(f"{self.replaced.lines:,} lines not UTF-8, first: {places}")
        return said


class CorpusReader:
    """Reads a file of each form; the methods have the forms' names."""

    def __init__(self, text_field: str, errors: str, report: CorpusReport) -> None:
        self._field = text_field
        self._errors = errors
        self.report = report

    def text(self, path: str, kind: str = "text") -> Iterator[RawDocument]:
        """Yield what stands between blank lines."""
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

    def file(self, path: str) -> Iterator[RawDocument]:
        """Yield the whole file."""
        return self.text(path, "file")

    def lines(self, path: str) -> Iterator[RawDocument]:
        """Yield what stands between blank lines; each line is a sentence."""
        return self.text(path, "lines")

    def jsonl(self, path: str) -> Iterator[RawDocument]:
        """Yield the field of each object."""
        for number, line in self._lines(path):
            if not line.strip():
                continue
            cut = len(line) >= MOST_BYTES // 4 and not line.endswith("\n")
            if cut and len(line.encode()) > MOST_BYTES - 4:
                message = f"is a line of more than {MOST_BYTES:,} bytes"
                raise DataError(message, path=path, line=number)
            text = self._value(path, number, line)
            yield RawDocument(text, "jsonl", f"{path}:{number}")

    def wikiextractor(self, path: str) -> Iterator[RawDocument]:
        """Yield what stands between `<doc …>` and `</doc>`, without the title."""
        lines: list[str] | None = None
        first, title, size = 0, "", 0
        for number, line in self._lines(path):
            if lines is None:
                if not line.strip():
                    continue
                if not DOC.match(line):
                    raise DataError(
                        "must begin a document, <doc id=…>", path=path, line=number
                    )
                named = _TITLE.search(line)
                title = html.unescape(named[1]) if named else ""
                lines, first, size = [], number, 0
            elif line.rstrip() == "</doc>":
                yield self._extracted(path, first, title, lines)
                lines = None
            elif DOC.match(line):
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
        replaced = self.report.replaced
        return lines_of(path, errors=self._errors, replaced=replaced)

    def _value(self, path: str, number: int, line: str) -> str:
        try:
            row = json.loads(line, parse_int=float)  # `int` refuses very long ones
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "") or error
            raise DataError(f"is not JSON: {reason}", path=path, line=number) from None
        if not isinstance(row, dict) or self._field not in row:
            have = ", ".join(list(row)[:5]) if isinstance(row, dict) else "no object"
            raise DataError(
                f"must have the field {self._field!r}; has {have or 'none'}",
                path=path,
                line=number,
            )
        text = row[self._field]
        if not isinstance(text, str):
            message = f"{self._field!r} must be text; received {json.dumps(text)[:40]}"
            raise DataError(message, path=path, line=number)
        if _SURROGATE.search(text):
            if self._errors == "strict":
                raise DataError(
                    f"{self._field!r} holds half of a surrogate pair",
                    path=path,
                    line=number,
                )
            self.report.replaced.add(path, number)
            text = _SURROGATE.sub("\ufffd", text)
        return text

    @staticmethod
    def _extracted(path: str, first: int, title: str, lines: list[str]) -> RawDocument:
        if lines and title in (lines[0].strip(), html.unescape(lines[0].strip())):
            lines = lines[1:]
        return RawDocument("".join(lines), "wikiextractor", f"{path}:{first}")
