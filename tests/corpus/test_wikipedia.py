"""Wikipedia's dumps as a stream, and the running text of wikitext."""

from __future__ import annotations

import bz2
from pathlib import Path
from typing import Any

import pytest
from conftest import refused

from bert_keras.corpus import wikipedia
from bert_keras.corpus.documents import CorpusReport, raw_documents, sentences_of
from bert_keras.corpus.wikipedia import pages_of, plain_paragraphs

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">
  <siteinfo><sitename>Wikipedia</sitename><namespaces>
    <namespace key="-2" case="first-letter">Medium</namespace>
    <namespace key="0" case="first-letter" />
    <namespace key="6" case="first-letter">Datei</namespace>
    <namespace key="14" case="first-letter">Kategorie</namespace>
  </namespaces></siteinfo>
"""


def page(title: str, text: str, *, ns: int = 0, more: str = "", model: str = "") -> str:
    model = model and f"<model>{model}</model>"
    return (
        f"  <page>\n    <title>{title}</title><ns>{ns}</ns><id>1</id>{more}\n"
        f"    <revision><id>7</id><comment>odd</comment>{model}"
        f'<text bytes="9" xml:space="preserve">{text}</text></revision>\n  </page>\n'
    )


PAGES = (
    page("Zoë &amp; Co", "'''Zoë''' is one.&lt;ref&gt;No&lt;/ref&gt; Is it?")
    + page("Talk:Zoë", "No article.", ns=1)
    + page("Zoe", "#REDIRECT [[Zoë]]", more='<redirect title="Zoë" />')
    + page("Old redirect", "#redirect [[Zoë]]")
    + page("Zoe.css", "p {}", model="css")
    + page("Two", "First.</text></revision><revision><text>Last.")
    + page("Pic", "[[Datei:A.jpg|mini|Gone]] [[Kategorie:B|C]]\nStays.")
    + page("Empty", "")
)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "pages-articles.xml.bz2"
    half = len(HEAD + PAGES) // 2
    whole = f"{HEAD}{PAGES}</mediawiki>\n".encode()
    # Two streams, as in the multistream dumps.
    path.write_bytes(bz2.compress(whole[:half]) + bz2.compress(whole[half:]))
    return path


def test_articles_of_a_dump(dump: Path) -> None:
    report = CorpusReport()
    documents = list(raw_documents(dump, report=report))
    assert [sentences_of(document) for document in documents] == [
        ["Zoë is one.", "Is it?"],
        ["Last."],
        ["Stays."],
    ]
    assert documents[0].form == "wikipedia"
    lines = (HEAD + PAGES).split("\n")
    for document in documents:
        line = int(document.source.removeprefix(f"{dump}:"))
        assert lines[line - 1] == "  <page>"
    assert report.empty == 1
    pages = list(pages_of(str(dump)))
    assert [p.title for p in pages] == ["Zoë & Co", "Two", "Pic", "Empty"]
    assert pages[0].text == "'''Zoë''' is one.<ref>No</ref> Is it?"
    assert {"datei", "kategorie", "file", "medium"} <= set(pages[0].silent)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_the_parts_in_which_a_dump_is_read_do_not_matter(
    dump: Path, monkeypatch: Any, size: int
) -> None:
    whole = list(pages_of(str(dump)))
    monkeypatch.setattr(wikipedia, "_AT_ONCE", size)
    assert list(pages_of(str(dump))) == whole
    # Lines that are longer than what may be held.
    monkeypatch.setattr(wikipedia, "MOST_BYTES", 50)
    assert list(pages_of(str(dump))) == whole


def test_no_entity_is_expanded(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    laughs = "".join(f'<!ENTITY l{n + 1} "{f"&l{n};" * 10}">' for n in range(9))
    path.write_text(
        f'<?xml version="1.0"?>\n<!DOCTYPE mediawiki [<!ENTITY l0 "ha">{laughs}]>\n'
        f"<mediawiki>{page('A', '&l9;')}</mediawiki>"
    )
    refused(lambda: list(raw_documents(path)), f"{path}:2: ", "DOCTYPE")
    path.write_text(
        '<!DOCTYPE m [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n<mediawiki/>'
    )
    refused(lambda: list(raw_documents(path, form="wikipedia")), "DOCTYPE")
    path.write_text(f"<mediawiki>\n{page('A', '&unknown;')}</mediawiki>")
    refused(lambda: list(raw_documents(path)), f"{path}:4: ", "undefined entity")


def test_a_broken_dump_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    text = f"{HEAD}{PAGES}"
    path.write_text(text)
    line = text.count("\n") + 1
    refused(lambda: list(raw_documents(path)), f"{path}:{line}: ", "truncated")
    path.write_text(f"{HEAD}<page></pages></mediawiki>")
    line = HEAD.count("\n") + 1
    refused(lambda: list(raw_documents(path)), f"{path}:{line}: ", "mismatched tag")
    path.write_text("\n<html/>\n")
    refused(
        lambda: list(raw_documents(path, form="wikipedia")),
        f"{path}:2: ",
        "first element is html",
    )
    path.write_text(f"{HEAD}{PAGES}</mediawiki>")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"Stays", b"St\xffys"))
    line = text[: text.index("Stays")].count("\n") + 1
    refused(lambda: list(raw_documents(path)), f"{path}:{line}: ", "0xff")
    report = CorpusReport()
    documents = list(raw_documents(path, errors="replace", report=report))
    assert sentences_of(documents[2]) == ["St\ufffdys."]
    assert report.replaced.places == [f"{path}:{line}"]
    path.write_bytes(bz2.compress(whole)[:-30])
    refused(lambda: list(raw_documents(path)), str(path), "is truncated")


def test_a_text_that_would_fill_the_memory_is_rejected(
    dump: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(wikipedia, "MOST_BYTES", 20)
    refused(lambda: list(pages_of(str(dump))), "has a text of more than 20 characters")


WIKITEXT = """{{Infobox | name = X | text = {{lang|el|No}} }}
[[File:Foo.jpg|thumb|A caption with a [[link]].]]
'''Anarchism''' is a [[political philosophy|''philosophy'']]<ref name="a">{{cite}}
No [[link]]</ref> of [[state]]s&nbsp;&amp; law (from {{lang|el|No}}, 5). It{{efn|No}}
was (in {{circa|1900}}).<ref name=b/>

== History ==
* No list
** [[No]] {{nested|
list}}
# No number
; term : meaning
: indented
{| class="wikitable"
! a !! b
|-
| No || {{No}}
|}
H<sub>2</sub>O is [http://x.y wet] http://x.z .<!-- No --> <math>No^2</math>
<gallery>
File:A.jpg|No
</gallery>
<ul><li>No</li></ul><syntaxhighlight lang="c">No();</syntaxhighlight>
One<br/>two. [[Category:Foo|No]] [[de:No]] __NOTOC__
[[:Category:Foo]] and [[Star Trek: The Film]] <nowiki>''</nowiki>&#x41;&#xD800;
----
"""


def test_running_text_of_wikitext() -> None:
    assert plain_paragraphs(WIKITEXT) == [
        "Anarchism is a philosophy of states & law (from, 5). It was (in ).",
        "H2O is wet.",
        "One",
        "two. Category:Foo and Star Trek: The Film ''A\ufffd",
    ]


@pytest.mark.parametrize(
    "wikitext",
    ["{{" * 2000, "[[" * 2000 + "a", "<b>" * 2000, "''" * 3001, "{|\n" * 900, "\0a\0"],
    ids=["templates", "links", "tags", "quotes", "tables", "nul"],
)
def test_broken_wikitext_is_tolerated(wikitext: str) -> None:
    assert isinstance(plain_paragraphs(f"Before.\n\n{wikitext}\n\nAfter."), list)
