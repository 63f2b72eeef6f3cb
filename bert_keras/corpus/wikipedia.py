"""Wikipedia: the pages of an XML dump, and plain text from wikitext.

A dump is `<wiki>-<date>-pages-articles*.xml`, usually in bzip2, of the schema at
https://www.mediawiki.org/xml/export-0.11.xsd. As in Devlin et al. 2018
(arXiv:1810.04805), section 3.1, only the text passages are kept; lists, tables and
headers are left out. `mwparserfromhell` parses the wikitext. A dump lacks the
output of templates, so it is missing from the text.

The XML may be hostile. It is parsed by expat as a stream, and a document type is an
error (dumps have none), so no entity is expanded except the five of XML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from xml.parsers import expat

from bert_keras.errors import DataError, needs
from bert_keras.files.streams import (
    MOST_BYTES,
    Replaced,
    decoded,
    open_unpacked,
    whole_characters,
)

_AT_ONCE = 1 << 20  # bytes parsed at once
# Numbers of the namespaces whose links are not shown as text: media, files, categories.
_SILENT = ("-2", "6", "14")
SILENT_NAMES = ("media", "file", "image", "category")
# Tags whose content is running text; the content of others is left out.
_TEXT_TAGS = frozenset(
    "abbr b bdi bdo big blockquote center cite code del dfn div em font i ins kbd mark"
    " noinclude nowiki onlyinclude p poem q s samp section small span strike strong sub"
    " sup time tt u var".split()
)
_BREAKS = frozenset(("br", "p", "div", "blockquote", "center", "poem", "hr"))
_LIST = "\0"  # replaces the mark of a list item; wikitext itself has no NUL
_LANGUAGE_LINK = re.compile(r"[a-z]{2,3}(-[a-z-]+)?:\S")
_NO_TEXT = re.compile(r"__[^\W\d_]+__|-\{|\}-")
# Brackets that are empty without their template or reference.
_EMPTY_BRACKETS = re.compile(r"[ \t]*(?:\([\s,;:–—-]*\)|\[[\s,;:–—-]*\])")
_SPACES = re.compile(r"[^\S\n]+")
_SPACE_BEFORE = re.compile(r"(?<=\w) (?=[,;.](?:\s|$))")
_OPENED = re.compile(r"\((?:[,;:]\s*|\s+)+")


class Page(NamedTuple):
    """A page of the dump.

    Args:
        title, text: its name and its wikitext.
        line: the line of the file at which it begins.
        silent: lower-case names of the namespaces whose links are not shown as text.
    """

    title: str
    text: str
    line: int
    silent: tuple[str, ...]


def pages_of(
    path: str, *, errors: str = "strict", replaced: Replaced | None = None
) -> Iterator[Page]:
    """Yield the articles of a dump, compressed or not: namespace 0, no redirects.

    Of several revisions of a page, the last in the file is taken. One page is in memory
    at a time.

    Args:
        path, errors, replaced: as in `files.streams.lines_of`.

    Raises:
        DataError: the file cannot be read, is not XML, is truncated, is not a MediaWiki
            dump or declares a document type; the line is named.
    """
    reader = _DumpReader(path)
    line, rest = 1, b""
    with open_unpacked(path) as stream:
        while data := stream.read(_AT_ONCE):
            data = rest + data
            # Whole lines, so that an invalid byte is found by line, unless one is long.
            end = data.rfind(b"\n") + 1
            if not end and len(data) < MOST_BYTES:
                rest = data
                continue
            end = end or whole_characters(data)
            data, rest = data[:end], data[end:]
            yield from reader.read(_as_text(path, line, data, errors, replaced))
            line += data.count(b"\n")
        yield from reader.read(_as_text(path, line, rest, errors, replaced), last=True)


def _as_text(
    path: str, line: int, data: bytes, errors: str, replaced: Replaced | None
) -> str:
    """Decode whole lines at once, or one by one if a byte is invalid."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        parts = enumerate(data.splitlines(keepends=True), line)
        text = "".join(decoded(path, n, part, errors, replaced) for n, part in parts)
    return text.removeprefix("\ufeff") if line == 1 else text


class _DumpReader:
    """Parses the XML of a dump and returns its articles."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._silent: tuple[str, ...] = SILENT_NAMES
        self._open: list[str] = []  # names of the open elements
        self._text: list[str] = []  # of the open element, if it is needed
        self._size = 0
        self._namespace: str | None = None
        self._page: dict[str, str] = {}
        self._line = 0
        self._pages: list[Page] = []
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse

    def read(self, text: str, *, last: bool = False) -> list[Page]:
        """Parse the next part of the file; returns the articles that end in it."""
        try:
            self._parser.Parse(text, last)
        except expat.ExpatError as error:
            reason = expat.errors.messages[error.code]
            if last:
                reason = f"is truncated, or {reason}"
            raise DataError(
                f"is not XML: {reason}", path=self._path, line=error.lineno
            ) from None
        pages, self._pages = self._pages, []
        return pages

    def _refuse(self, *_: Any) -> None:
        raise self._error("must have no document type (DOCTYPE); dumps have none")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != "mediawiki":
            raise self._error(f"must be a MediaWiki dump; its first element is {name}")
        self._open.append(name)
        if name == "page":
            self._page, self._line = {}, self._parser.CurrentLineNumber
        elif name == "redirect":
            self._page["redirect"] = "yes"
        elif name == "namespace":
            self._namespace = attributes.get("key")
        if name in ("title", "ns", "model", "text", "namespace"):
            self._text, self._size = [], 0
            self._parser.CharacterDataHandler = self._characters

    def _characters(self, text: str) -> None:
        self._text.append(text)
        self._size += len(text)
        if self._size > MOST_BYTES:
            name = self._open[-1]
            raise self._error(f"has a {name} of more than {MOST_BYTES:,} characters")

    def _end(self, name: str) -> None:
        self._open.pop()
        self._parser.CharacterDataHandler = None
        if name in ("title", "ns", "model", "text"):
            self._page[name] = "".join(self._text)
        elif name == "namespace" and self._namespace in _SILENT:
            found = "".join(self._text).lower()
            self._silent = tuple(dict.fromkeys((*self._silent, found)))
        elif name == "page":
            self._finish(self._page)
        self._text = []

    def _finish(self, page: dict[str, str]) -> None:
        text = page.get("text", "")
        # Dumps before 2009 have no element for redirects.
        redirect = "redirect" in page or text[:9].lower() == "#redirect"
        article = page.get("ns", "0").strip() == "0" and not redirect
        if article and page.get("model", "wikitext") == "wikitext":
            title = page.get("title", "")
            self._pages.append(Page(title, text, self._line, self._silent))

    def _error(self, message: str) -> DataError:
        return DataError(message, path=self._path, line=self._parser.CurrentLineNumber)


def plain_paragraphs(wikitext: str, silent: tuple[str, ...] = ()) -> list[str]:
    """Return the paragraphs of running text of a page, without line breaks.

    Left out are templates, tables, lists and indented lines, headers, references,
    images, categories, formulas, galleries, code, comments and bare URLs. Links and
    emphasis become the text that a reader sees. Each paragraph has a letter or digit;
    there are none if the parser fails on the page.

    Args:
        wikitext: the wikitext of a page.
        silent: names of the namespaces whose links are not shown as text, in lower
            case, in addition to the English ones.
    """
    with needs("wikitext", extra="corpus"):
        import mwparserfromhell
        from mwparserfromhell.parser import ParserError
    # NUL has a special meaning below.
    wikitext = wikitext.replace(_LIST, " ")
    names = frozenset((*SILENT_NAMES, *silent))
    try:
        code = mwparserfromhell.parse(wikitext)
    except (ParserError, RecursionError):
        return []
    parts: list[str] = []
    _add_text(code, names, parts)
    paragraphs = [""]
    for line in _NO_TEXT.sub("", "".join(parts)).split("\n"):
        if _LIST in line or not line.strip():
            paragraphs.append("")
        else:
            paragraphs[-1] += f"{line} "
    return [text for paragraph in paragraphs if (text := _tidy(paragraph))]


def _tidy(line: str) -> str:
    """Return a line without the traces of removed parts; empty if no text is left."""
    line = _EMPTY_BRACKETS.sub("", line)
    line = _OPENED.sub("(", _SPACES.sub(" ", line))
    line = _SPACE_BEFORE.sub("", line).strip()
    return line if any(map(str.isalnum, line)) else ""


def _add_text(code: Any, silent: frozenset[str], parts: list[str]) -> None:
    """Append the visible text of parsed wikitext."""
    for node in code.nodes:
        kind = type(node).__name__
        if kind == "Text":
            parts.append(node.value)
        elif kind == "Wikilink":
            _add_link(node, silent, parts)
        elif kind == "Tag":
            _add_tag(node, silent, parts)
        elif kind == "ExternalLink":
            if node.brackets and node.title is not None:
                _add_text(node.title, silent, parts)
        elif kind == "HTMLEntity":
            parts.append(_character(node))
        elif kind == "Heading":
            parts.append("\n\n")


def _add_link(node: Any, silent: frozenset[str], parts: list[str]) -> None:
    title = str(node.title).strip()
    space = title.partition(":")[0].strip().lower() if ":" in title else ""
    if space in silent:
        return
    if node.text is not None:
        _add_text(node.text, silent, parts)
    elif title.startswith(":"):
        parts.append(title[1:])
    elif not _LANGUAGE_LINK.match(title):
        _add_text(node.title, silent, parts)


def _add_tag(node: Any, silent: frozenset[str], parts: list[str]) -> None:
    name = str(node.tag).strip().lower()
    if name in ("li", "dd", "dt") and node.wiki_markup:
        # `; term : meaning` has its second mark inside the line.
        parts.append(_LIST)
        return
    if name in _BREAKS:
        parts.append("\n\n")
    if name in _TEXT_TAGS and node.contents is not None:
        _add_text(node.contents, silent, parts)
        if name in _BREAKS:
            parts.append("\n\n")


def _character(node: Any) -> str:
    """Return the character of an HTML entity."""
    try:
        character = node.normalize()
    except (ValueError, OverflowError):
        return "\ufffd"
    # Neither half of a surrogate pair nor NUL is text.
    strange = any(c == _LIST or "\ud800" <= c <= "\udfff" for c in character)
    return "\ufffd" if strange else character
