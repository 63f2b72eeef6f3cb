"""Rows of files: bytes to text, formats and line numbers."""

import csv
import gzip
import lzma

import pytest

from bert_keras.data.json_rows import json_rows
from bert_keras.data.rows import (
    csv_rows,
    format_of,
    read_text,
    refuse_lines,
    stream_lines,
    tsv_rows,
)
from bert_keras.errors import DataError
from bert_keras.files import streams


@pytest.fixture
def write(tmp_path):
    def write(content, name="a.tsv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def test_text_loses_byte_order_mark_and_closing_lines(write):
    assert read_text(write(b"\xef\xbb\xbfa\tb\r\nc\td\r\n\r\n\n")) == "a\tb\r\nc\td"


def test_gzip_is_seen_by_its_bytes(write):
    packed = gzip.compress(b"a\tb\n")
    assert read_text(write(packed)) == "a\tb"
    with pytest.raises(DataError, match="is truncated"):
        read_text(write(packed[:-9]))


def test_rows_of_another_file_system():
    import fsspec

    place = "memory://rows/train.csv.xz"
    with fsspec.open(place, "wb") as file:
        file.write(lzma.compress(b"\xef\xbb\xbftext,label\na,b\n"))
    text = read_text(place)
    assert text == "text,label\na,b"
    assert "".join(stream_lines(place)) == f"{text}\n"
    with pytest.raises(DataError, match="memory://rows/no.csv: no such file"):
        read_text("memory://rows/no.csv")


def test_a_line_longer_than_the_buffer_stays_one(write, monkeypatch):
    monkeypatch.setattr(streams, "MOST_BYTES", 7)
    lines = ["aé日本𝒳𝒴é\n", "b\n"]
    assert list(stream_lines(write("".join(lines)))) == lines


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [
        (b"", "is empty", None),
        (b"\n \n\n", "is empty", None),
        (b"one\ntwo\n\xe9t\xe9\n", "must be UTF-8; byte 0xe9 is not", 3),
        ("one\n".encode("utf-16"), "must be UTF-8; this is UTF-16", 1),
        (b"one\ntw\0o\n", "holds a NUL character", 2),
    ],
)
def test_broken_text_is_named_by_line(write, content, message, line):
    path = write(content)
    with pytest.raises(DataError, match=message) as caught:
        read_text(path)
    assert (caught.value.path, caught.value.line) == (path, line)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_text(str(tmp_path / "missing.tsv"))
    with pytest.raises(DataError, match="is a folder"):
        read_text(str(tmp_path))


@pytest.mark.parametrize(
    ("path", "text", "kind"),
    [
        ("a.tsv", "a,b", "tsv"),
        ("a.TXT", "a", "tsv"),
        ("a.csv.gz", "a\tb", "csv"),
        ("a.csv.ZST", "a\tb", "csv"),
        ("gs://bucket/a.jsonl.xz", "a\tb", "jsonl"),
        ("a.json", "{}", "jsonl"),
        ("a", 'ham\tone, two {"', "tsv"),
        ("a.data", "a,b", "csv"),
        ("a.data", '{"a": 1}', "jsonl"),
        ("folder.csv/a", "one\ntwo, three", "tsv"),
    ],
)
def test_format_by_ending_then_by_first_line(path, text, kind):
    assert format_of(path, text) == kind


def test_tsv_keeps_quotes_and_other_line_marks():
    text = 'a\t"b\r\nc\u2028d\x85e\t""'
    assert list(tsv_rows(text)) == [(1, ["a", '"b']), (2, ["c\u2028d\x85e", '""'])]


def test_csv_counts_lines_inside_quotes():
    text = 'a,b\r\n"one\r\ntwo, ""2""",x\r\nlast,y'
    rows = list(csv_rows("a.csv", text))
    assert rows == [
        (1, ["a", "b"]),
        (2, ["one\r\ntwo, \"2\"", "x"]),
        (4, ["last", "y"]),
    ]  # fmt: skip


@pytest.mark.parametrize("row", ['"open,1\nmore,2', '"shut" again,1'])
def test_broken_quotes_name_where_the_row_begins(row):
    with pytest.raises(DataError, match=r"^a\.csv:3: is not CSV") as caught:
        list(csv_rows("a.csv", f"a,b\nc,d\n{row}"))
    assert caught.value.line == 3


def test_huge_csv_cell_leaves_the_limit_of_the_process_alone():
    before = csv.field_size_limit()
    huge = "x" * 200_000
    assert list(csv_rows("a.csv", f"{huge},1"))[0][1] == [huge, "1"]
    assert csv.field_size_limit() == before


def test_json_numbers_keep_their_spelling():
    assert json_rows("a.jsonl", '{"a": 5.00, "b": -7, "c": 1e400}\r\n{}') == [
        (1, {"a": "5.00", "b": "-7", "c": "1e400"}),
        (2, {}),
    ]


def test_json_names_every_broken_line():
    deep = "[" * 100_000
    text = f'{{"a": 1}}\n{{"a"\n\n3\n{{"a": NaN}}\n{{"a": {deep}'
    with pytest.raises(DataError) as caught:
        json_rows("a.jsonl", text)
    message = str(caught.value)
    assert message.startswith("a.jsonl:2: 5 bad lines: line 2: is not JSON: ")
    assert "line 3: is blank; line 4: must be one JSON object" in message
    assert "line 5: is not JSON: NaN is not a JSON number" in message
    assert "line 6: is not JSON" in message


@pytest.mark.parametrize(
    "text",
    [
        '[\n{"a": 1.50},\n\n{"a": [2]}]',
        '{"version": "1", "data": [{"a": 1.50}, {"a": [2]}]}',
    ],
)
def test_one_array_holds_rows(text):
    rows = json_rows("a.json", text)
    assert [row for _, row in rows] == [{"a": "1.50"}, {"a": ["2"]}]
    if text.startswith("["):
        assert [line for line, _ in rows] == [2, 4]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('[{"a": 1},\n{"a": }]', ":2: is not JSON: Expecting value"),
        ('[{"a": 1}\n', ":1: is not JSON: the array must end the file"),
        ('[{"a": 1}, 2]', ":2: must be one JSON object"),
        ("[]", "contains no row"),
        ('{\n "a": 1,\n "b": [2]\n}', "a single object, as SQuAD's files are"),
        ('{"data": [{"paragraphs": []}]}', "a single object, as SQuAD's files are"),
    ],
)
def test_other_json_is_rejected(text, part):
    with pytest.raises(DataError) as caught:
        json_rows("a.json", text)
    assert part in str(caught.value)
    assert len(json_rows("a.json", '{"a": "1"}')) == 1


def test_bad_lines_are_sorted_joined_and_at_most_ten():
    def message(*problems):
        with pytest.raises(DataError) as caught:
            refuse_lines("a", problems)
        return str(caught.value)

    several = message((3, "x"), (1, "y"), (3, "z"))
    assert several == "a:1: 2 bad lines: line 1: y; line 3: x and z"
    assert message((4, "x")) == "a:4: x"
    many = message(*[(line, "x") for line in range(1, 13)])
    assert many.startswith("a:1: 12 bad lines: ")
    assert many.endswith("line 10: x; and 2 more")
