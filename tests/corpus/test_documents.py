"""Corpora: every form, packed or not, the sentences, and what is wrong with a file."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import fsspec
import pytest
import sentencex
from conftest import SHARED, refused

from bert_keras.corpus import documents as corpus_documents
from bert_keras.corpus.documents import (
    CorpusReport,
    RawDocument,
    corpus_files,
    form_of,
    raw_documents,
    sentences_of,
)
from bert_keras.corpus.sentence_rules import (
    MOST_SENTENCE,
    paragraphs_of,
    sentence_splitter,
)
from bert_keras.files import streams as text_streams

GOOGLE = SHARED / "data" / "google_bert_sample" / "sample_text.txt"
WIKI = SHARED / "data" / "wiki_en"
TEXT = "One two. Three four!\n\n\nFive six.\nSeven eight? Nine.\n"


def written(path: Path, data: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def texts_of(paths: Any, **settings: Any) -> list[str]:
    return [document.text for document in raw_documents(paths, **settings)]


def test_text_has_blank_lines_between_documents(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "\ufeff" + TEXT.replace("\n\n", "\n \t\r\n"))
    documents = list(raw_documents(path))
    assert [d.text for d in documents] == [
        "One two. Three four!\n",
        "Five six.\nSeven eight? Nine.\n",
    ]
    assert [d.source for d in documents] == [f"{path}:1", f"{path}:4"]
    assert {d.form for d in documents} == {"text"}
    assert sentences_of(documents[1]) == ["Five six.", "Seven eight?", "Nine."]


def test_text_without_blank_lines_is_one_document_and_a_file_always(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "a.txt", "No end\nOf this. Nor that")
    assert texts_of(path) == ["No end\nOf this. Nor that"]
    other = written(tmp_path / "b.txt", TEXT)
    assert texts_of(other, form="file") == [TEXT]


def test_lines_are_sentences_unchanged() -> None:
    document = RawDocument(" Dr. A. b\n\tc? d.\r\n \n", "lines", "x:1")
    assert sentences_of(document) == ["Dr. A. b", "c? d."]


@pytest.mark.skipif(not GOOGLE.exists(), reason="needs shared/data/google_bert_sample")
def test_googles_sample_is_detected_and_read_as_by_their_code() -> None:
    # Their code: an empty line ends a document, every other one is a sentence.
    blocks = GOOGLE.read_text(encoding="utf-8").split("\n\n")
    expected = [[s.strip() for s in b.split("\n") if s.strip()] for b in blocks]
    documents = list(raw_documents(GOOGLE))
    assert {d.form for d in documents} == {"lines"}
    assert [sentences_of(d) for d in documents] == expected


def test_jsonl_takes_a_field_of_each_object(tmp_path: Path) -> None:
    rows = [{"body": "A b. C d.", "n": 1}, {"n": 2, "body": " "}, {"body": "E\n\nF"}]
    path = written(tmp_path / "a", "\n".join(map(json.dumps, rows)) + "\n\n")
    report = CorpusReport()
    documents = list(raw_documents(path, text_field="body", report=report))
    assert [d.text for d in documents] == ["A b. C d.", "E\n\nF"]
    assert documents[1].source == f"{path}:3"
    assert (report.empty, report.documents, report.characters) == (1, 2, 13)
    assert report.forms == {str(path): "jsonl"}
    assert sentences_of(documents[1]) == ["E", "F"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"other": "x", "more": 1}', "'text'; has other, more"),
        ('["text"]', "'text'; has no object"),
        ('{"text": 12}', "'text' must be text; received 12"),
        ('{"text": null}', "must be text; received null"),
        ('{"text": "a', "is not JSON"),
        ('{"text": "a\\ud800"}', "half of a surrogate pair"),
        ('{"text": ' + "[" * 100_000, "is not JSON"),
    ],
)
def test_a_bad_line_of_jsonl_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = written(tmp_path / "a.jsonl", '{"text": "fine"}\n' + line + "\n")
    refused(lambda: texts_of(path), f"{path}:2: ", reason)


def test_wikiextractor_documents_lose_their_title(tmp_path: Path) -> None:
    text = (
        '<doc id="1" url="u" title="Fish &amp; "Chips"">\nFish & "Chips"\n\n'
        "Fish &lt; chips. So it is.\nSection::::History.\nBULLET::::- one\n\n</doc>\n"
        '<doc id="2" url="u" title="B">\nNot the title. B\n</doc>\n'
        '<doc id="3" url="u" title="C">\nC\n\n</doc>\n'
    )
    path = written(tmp_path / "wiki_00", text)
    report = CorpusReport()
    documents = list(raw_documents(path, report=report))
    assert {d.form for d in documents} == {"wikiextractor"}
    assert [d.source for d in documents] == [f"{path}:1", f"{path}:9"]
    assert report.empty == 1
    assert list(map(sentences_of, documents)) == [
        ["Fish < chips.", "So it is."],
        ["Not the title.", "B"],
    ]
    written(path, text.removesuffix("</doc>\n"))
    refused(lambda: texts_of(path), f"{path}:12: ", "no </doc>")
    written(path, text.replace("</doc>\n", "", 1))
    refused(lambda: texts_of(path), f"{path}:1: ", "no </doc>")
    written(path, text + "stray\n")
    refused(lambda: texts_of(path), f"{path}:16: ", "<doc id=")


@pytest.mark.skipif(not WIKI.exists(), reason="needs shared/data/wiki_en")
def test_a_whole_wikipedia_dump_is_read() -> None:
    path = WIKI / "wiki_00"
    raw = path.read_text(encoding="utf-8")
    documents = list(raw_documents(path))
    report = CorpusReport()
    assert texts_of(path, report=report) == [d.text for d in documents]
    assert report.documents + report.empty == raw.count("<doc id=")
    # No letter is lost between the file and its sentences.
    first = documents[0]
    assert first.text.split() == " ".join(sentences_of(first)).split()


def test_auto_detects_the_format_from_the_first_lines(tmp_path: Path) -> None:
    def form(text: str) -> str:
        return form_of(written(tmp_path / "x", text))

    assert form('{"a": 1}\n') == "jsonl"
    assert form('\n<doc id="1" url="" title="">\n') == "wikiextractor"
    assert form('<mediawiki xmlns="x">') == "wikipedia"
    assert form("<?xml version='1.0'?>\n<mediawiki>") == "wikipedia"
    assert form("A b.\nC d!\nE?\n\nMr. X is here.\n") == "lines"
    assert form("我们去。\n你好！\n") == "lines"
    assert form("我们去。你好！好。\n你好！我们去。\n") == "text"
    assert form("A b. C d. E.\nF g. H i.\n") == "text"
    assert form("A long line that was\nwrapped by hand.\n") == "text"
    assert form("{{Infobox}} one\n") == form("[1] one") == "text"
    refused(lambda: form('[{"text": "a"}]'), "one JSON object per line, not an array")
    refused(lambda: form("<?xml version='1.0'?>\n<html>"), "not a MediaWiki dump")
    path = written(tmp_path / "x", "<?xml?>\n<html>")
    assert texts_of(path, form="file") == ["<?xml?>\n<html>"]


def test_folders_and_globs_in_one_order(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/10.txt", "a.txt", "c/d/e.txt", ".hidden", ".git/x"):
        written(tmp_path / name, name)
    files = corpus_files(tmp_path)
    names = [str(Path(file).relative_to(tmp_path)) for file in files]
    assert names == ["a.txt", "b/10.txt", "b/2.txt", "c/d/e.txt"]
    assert texts_of(tmp_path) == names
    both = [str(tmp_path / "b" / "*.txt"), str(tmp_path)]
    assert texts_of(both) == ["b/10.txt", "b/2.txt", "a.txt", "c/d/e.txt"]
    assert texts_of(str(tmp_path / "**" / "*.txt")) == names
    assert texts_of(str(tmp_path / "[bc]")) == names[1:]
    odd = written(tmp_path / "[x].txt", "odd")
    assert texts_of(str(odd)) == ["odd"]


def test_a_corpus_of_another_file_system() -> None:
    bucket = fsspec.filesystem("memory")
    names = ("a.txt", "b/10.txt", "b/2.txt", "c/d/e.txt")
    for name in names:
        bucket.pipe_file(f"/corpus/{name}", gzip.compress(name.encode()))
    bucket.pipe_file("/corpus/.hidden", b"\0")
    for place in ("memory://corpus", "memory://corpus/", "memory://corpus/**/*.txt"):
        assert texts_of(place) == list(names)
    some = ["memory://corpus/b/*", "memory://corpus/b/2.txt", "memory://corpus/a.txt"]
    assert texts_of(some) == ["b/10.txt", "b/2.txt", "a.txt"]
    first = next(iter(raw_documents("memory://corpus/b")))
    assert first.source == "memory:///corpus/b/10.txt:1"
    refused(lambda: texts_of("memory://corpus/x/*"), "memory://corpus/x/*: contains no")
    refused(lambda: texts_of("memory://x.txt"), "memory://x.txt: contains no file")
    refused(lambda: texts_of("nowhere://x/*"), "nowhere://x/*: cannot be read: ")


def test_a_missing_corpus(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(lambda: texts_of(tmp_path / "no.txt"), "no.txt: no such file")
    refused(lambda: texts_of(f"{tmp_path}/*.md"), "*.md: contains no file")
    refused(lambda: texts_of(tmp_path / "empty"), "empty: contains no file")
    refused(lambda: texts_of([]), "received none")
    refused(lambda: texts_of("/dev/null"), "must be a file")
    path = written(tmp_path / "a.txt", " \n\n \n")
    refused(lambda: texts_of(path), "contains no text; files read: 1")
    written(tmp_path / "b.txt", "")
    refused(lambda: texts_of(tmp_path), "contains no text; files read: 2")


def test_arguments_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", TEXT)
    refused(lambda: raw_documents(path, form="xml"), "`form`", "'xml'")
    refused(lambda: raw_documents(path, errors="ignore"), "`errors`", "'ignore'")
    refused(lambda: RawDocument("a", "auto", "x:1"), "`form`", "'auto'")
    document = RawDocument("a", "text", "x:1")
    refused(lambda: sentences_of(document, language="../x"), "`language`", "'../x'")


def test_bytes_that_are_not_utf8_are_named_or_replaced(tmp_path: Path) -> None:
    data = b"good\nbad \xe9 byte\n\nnul \0 here\n\xc3"
    path = written(tmp_path / "a.txt", b"x" * 70_000 + b"\n" + data)
    refused(lambda: texts_of(path), f"{path}:3: ", "0xe9")
    report = CorpusReport()
    texts = texts_of(path, errors="replace", report=report)
    assert texts[1] == "nul \ufffd here\n\ufffd"
    assert texts[0].endswith("bad \ufffd byte\n")
    assert report.replaced.lines == 3
    assert report.replaced.places == [f"{path}:{line}" for line in (3, 5, 6)]
    assert "3 lines not UTF-8" in report.lines()[-1]
    path = written(tmp_path / "b.jsonl", '{"text": "a\\udc00b"}\n')
    report = CorpusReport()
    assert texts_of(path, errors="replace", report=report) == ["a\ufffdb"]
    assert report.lines()[-1] == f"1 line not UTF-8, first: {path}:1"
    path = written(tmp_path / "c.txt", b"x" * 70_000 + b"\nnul \0\n")
    refused(lambda: texts_of(path), f"{path}:2: ", "NUL")


@pytest.mark.parametrize("errors", ["strict", "replace"])
@pytest.mark.parametrize("form", ["auto", "text"])
def test_a_binary_file_among_the_text_is_named(
    tmp_path: Path, errors: str, form: str
) -> None:
    written(tmp_path / "a.txt", TEXT)
    strange = written(tmp_path / "b.txt", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    settings = {"errors": errors, "form": form}
    refused(lambda: texts_of(tmp_path, **settings), f"{strange}: ", "binary")
    written(strange, "Привет, мир.".encode("cp1251"))
    refused(lambda: texts_of(tmp_path, **settings), f"{strange}: ", "UTF-8")
    written(strange, "Hello".encode("utf-16"))
    refused(lambda: texts_of(tmp_path, **settings), f"{strange}:1: ", "UTF-16")
    written(strange, b"\x01\x02\x03\x04 abc")
    refused(lambda: texts_of(tmp_path, **settings), f"{strange}: ", "binary")


def test_lines_of_a_megabyte_are_read(tmp_path: Path) -> None:
    lines = ["word " * 200_000, "x" * 1_000_000, "本。" * 50_000, "Hi. " * 50_000]
    path = written(tmp_path / "a.txt", "\n\n".join(lines))
    documents = list(raw_documents(path, form="text"))
    assert len(documents) == 4
    for document, line in zip(documents, lines, strict=True):
        sentences = sentences_of(document)
        assert max(map(len, sentences)) <= MOST_SENTENCE
        assert "".join(sentences).replace(" ", "") == line.replace(" ", "")
    assert len(sentences_of(documents[2])) == 50_000
    assert sentences_of(documents[3]) == ["Hi."] * 50_000
    assert set(" ".join(sentences_of(documents[0])).split()) == {"word"}


@pytest.mark.parametrize("most", [7, 8, 9, 10])
def test_longer_lines_and_documents_are_cut_between_characters(
    tmp_path: Path, monkeypatch: Any, most: int
) -> None:
    monkeypatch.setattr(text_streams, "MOST_BYTES", most)
    monkeypatch.setattr(corpus_documents, "MOST_BYTES", most)
    line = "aé日本𝒳𝒴é"
    path = written(tmp_path / "a.txt", f"{line}\nb")
    parts = list(text_streams.lines_of(str(path)))
    assert "".join(text for _, text in parts) == f"{line}\nb"
    assert [n for n, _ in parts] == [1] * (len(parts) - 1) + [2]
    assert len(parts) > 2
    report = CorpusReport()
    texts = texts_of(path, form="text", report=report)
    assert "".join(texts) == f"{line}\nb"
    assert report.cut == len(texts) - 1
    assert report.cut or most > 8
    assert max(map(len, texts)) <= most
    path = written(tmp_path / "a.jsonl", json.dumps({"text": "long " * 9}))
    refused(lambda: texts_of(path), f"{path}:1: ", f"more than {most} bytes")


def test_memory_is_that_of_a_document(tmp_path: Path) -> None:
    data = gzip.compress(b"Some words.\n\n" * 50_000)
    path = written(tmp_path / "a.txt.gz", data)
    tracemalloc.start()
    count = sum(1 for _ in raw_documents(path, form="text"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 50_000
    assert peak < 600_000


def test_documents_can_be_sent_to_other_processes() -> None:
    document = RawDocument("a", "wikipedia", "x:1", ("file", "datei"))
    assert pickle.loads(pickle.dumps(document)) == document


def test_sentences_by_rule_in_several_languages() -> None:
    english = 'Dr. Smith paid $3.14 to J. R. Jones. "Why?" he asked. Then he left!'
    assert sentence_splitter("en")(english) == [
        "Dr. Smith paid $3.14 to J. R. Jones.",
        '"Why?" he asked.',
        "Then he left!",
    ]
    german = "Das ist z.B. gut. Am 3. Mai kam er. Ja!"
    assert len(sentence_splitter("de")(german)) == 3
    assert sentence_splitter("zh")("你好！我们去公园。") == ["你好！", "我们去公园。"]
    assert sentence_splitter("en")(" ") == []


@pytest.mark.skipif(not WIKI.exists(), reason="needs shared/data/wiki_en")
def test_windows_change_few_sentences() -> None:
    document = next(iter(raw_documents(WIKI / "wiki_00")))
    paragraphs = [p for p in document.text.split("\n") if p.strip()]
    text = " ".join(paragraphs)
    assert len(text) > 50_000
    windowed = sentence_splitter("en")(text)
    assert " ".join(windowed).split() == text.split()
    one_by_one = []
    for paragraph in paragraphs:
        whole = [sentence.strip() for sentence in sentencex.segment("en", paragraph)]
        assert sentence_splitter("en")(paragraph) == whole
        one_by_one += whole
    # An unmatched quotation mark extends at most to the end of its window.
    assert len(set(windowed) & set(one_by_one)) > 0.9 * len(one_by_one)


def test_hard_wrapped_text_is_joined() -> None:
    wrapped = (
        "A title\n\n"
        "These lines were wrapped by\nsomeone at some.\nSo.\n"
        "And this is another one that\n  goes on.\n"
    )
    assert paragraphs_of(wrapped) == [
        "A title",
        "These lines were wrapped by someone at some.",
        "So.",
        "And this is another one that goes on.",
    ]
    long = "word " * 40
    assert paragraphs_of(f"{long}\n{long}\nHead\n{long}") == [
        long.strip(),
        long.strip(),
        "Head",
        long.strip(),
    ]
    assert paragraphs_of("\n \n") == []


@pytest.mark.parametrize("form", ["text", "wikipedia"])
def test_a_package_that_is_missing_is_named(monkeypatch: Any, form: str) -> None:
    for name in ("sentencex", "mwparserfromhell"):
        monkeypatch.setitem(sys.modules, name, None)
    document = RawDocument("A b.", form, "x:1")
    refused(lambda: sentences_of(document), "pip install 'bert_keras[corpus]'")
    assert sentences_of(RawDocument("A b.", "lines", "x:1")) == ["A b."]


def test_parquet_is_read_like_jsonl(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts = ["One sentence. Another one.", "", "A last\nsentence."] * 200
    path, lines = tmp_path / "a.parquet", tmp_path / "a.jsonl"
    parquet.write_table(pyarrow.table({"id": range(600), "body": texts}), path)
    lines.write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
    report = CorpusReport()
    found = list(raw_documents(str(path), text_field="body", report=report))
    others = list(raw_documents(str(lines), text_field="body"))
    assert [each.text for each in found] == [each.text for each in others]
    assert list(map(sentences_of, found)) == list(map(sentences_of, others))
    assert found[-1].source == f"{path}:600"
    assert (report.forms, report.empty) == ({str(path): "parquet"}, 200)
    refused(lambda: list(raw_documents(str(path))), "column 'text'; has id, body")
    refused(
        lambda: list(raw_documents(str(path), text_field="id")),
        f"{path}:1: 'id' must be text; received 0",
    )
    refused(lambda: list(raw_documents(str(lines), form="parquet")), "cannot be read")
