"""Columns of files by role: selection, headers, and errors that name their lines."""

import csv
import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from conftest import refused
from hypothesis import strategies as st

from bert_keras.data.columns import Columns
from bert_keras.data.table import as_columns, read_columns, stream_columns
from bert_keras.errors import BertKerasError, ConfigError, DataError

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


@pytest.fixture
def write(tmp_path):
    def write(content, name="a.tsv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


def test_names_select_below_a_header(write):
    path = write("\ufefflabel \ttext\r\n1\tso good\r\n0\tso \"bad\r\n\r\n")  # fmt: skip
    columns = read_columns(path, {"text": "text", "label": "label"})
    assert columns["text"] == ["so good", 'so "bad']
    assert columns["label"] == ["1", "0"]
    assert columns.lines == [2, 3] and len(columns) == 2


@pytest.mark.parametrize("numbers", [(1, 0), ("1", "0")])
def test_numbers_select_from_0_without_a_header(write, numbers):
    text, label = numbers
    columns = read_columns(write("1\tgood\n0\tbad"), {"text": text, "label": label})
    assert columns.cells == {"text": ["good", "bad"], "label": ["1", "0"]}
    assert columns.lines == [1, 2]


def test_a_digit_name_of_a_header_wins_over_the_number(write):
    path = write("1\t0\tname\na\tb\tc\n")
    columns = read_columns(path, {"x": "1", "y": "2", "z": "name"})
    assert columns.cells == {"x": ["a"], "y": ["c"], "z": ["c"]}
    assert read_columns(path, {"x": 1}, header="yes")["x"] == ["b"]
    assert read_columns(path, {"x": "1"}, header="yes")["x"] == ["a"]
    assert read_columns(path, {"x": "1"}, header="no")["x"] == ["0", "b"]
    assert read_columns(path, {"x": "1"})["x"] == ["0", "b"]


@pytest.mark.parametrize(
    "content",
    ["Quality\tString\n1\ta b\n0\tc d\n", "klass\ttext\nham\ta b\nspam\tc d\n"],
)
def test_a_first_row_like_a_header_is_never_guessed(write, content):
    path = write(content)
    with pytest.raises(DataError, match=r":1: the first row looks like a header"):
        read_columns(path, {"label": 0, "text": 1})
    assert len(read_columns(path, {"label": 0, "text": 1}, header="yes")) == 2
    assert len(read_columns(path, {"label": 0, "text": 1}, header="no")) == 3


def test_optional_columns_may_be_missing(write):
    roles = {"text": "text", "text_pair": "pair", "label": "label", "weight": None}
    columns = read_columns(
        write("text\tx\na\tb\n"), roles, optional=["text_pair", "label"]
    )
    assert columns.cells == {"text": ["a"]} and "label" not in columns
    path = write('{"text": "a", "label": null}\n{"text": "b"}', "a.jsonl")
    assert read_columns(path, roles, optional=["text_pair", "label"]).cells == {
        "text": ["a", "b"]
    }


def test_an_optional_name_tells_a_header_only_if_it_is_there(write):
    roles = {"text": 1, "label": "label"}
    path = write("label\tb\n1\tgood\n")
    assert read_columns(path, roles, optional=["label"]).cells == {
        "text": ["good"],
        "label": ["1"],
    }
    path = write("1\tgood\n0\tbad\n")
    columns = read_columns(path, roles, optional=["label"])
    assert columns.cells == {"text": ["good", "bad"]} and columns.lines == [1, 2]


def test_csv_rows_have_the_line_where_they_begin(write):
    path = write('text,label\n"a\nb",1\n"c, ""d""",0\n', "a.csv")
    columns = read_columns(path, {"text": "text", "label": "label"})
    assert columns["text"] == ["a\nb", 'c, "d"'] and columns.lines == [2, 4]


def test_jsonl_values_become_text(write):
    rows = [{"t": "a", "l": 1}, {"l": 2.5, "t": "b"}, {"t": 7, "l": True, "m": []}]
    path = write("\n".join(map(json.dumps, rows)), "a.jsonl")
    columns = read_columns(path, {"text": "t", "label": "l"})
    assert columns.cells == {"text": ["a", "b", "7"], "label": ["1", "2.5", "true"]}


def test_a_huge_cell_is_read(write):
    huge = "word " * 40_000
    for name, content in [
        ("a.tsv", f"1\t{huge}"),
        ("a.csv", f'1,"{huge}"'),
        ("a.jsonl", json.dumps({"1": huge, "0": 1})),
    ]:
        assert read_columns(write(content, name), {"text": "1"})["text"] == [huge]


def check_error(path, roles, message, line=None, **options):
    with pytest.raises(DataError) as caught:
        read_columns(path, roles, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith(path) and caught.value.line == line


def test_missing_columns_list_the_existing_ones(write):
    path = write("id\tsentence\n1\ta\n")
    message = (
        "has no column `text`, `label`; it has `id`, `sentence`; to read other "
        "columns: --text sentence --label NAME (in Python `columns`); if its first"
    )
    check_error(path, {"text": "text", "label": "label"}, message)
    check_error(path, {"text": 2}, "has no column `2`; it has columns 0 to 1")
    check_error(
        path,
        {"text": "id"},
        "without a header, select columns by number, such as --text 0",
        header="no",
    )
    path = write('{"a": 1, "b": 2}', "a.jsonl")
    check_error(
        path, {"text": "text"}, "has no key `text`; its first line has `a`, `b`"
    )
    path = write('{"a": null}', "null.jsonl")
    check_error(path, {"text": "a"}, "`text` (key `a`) is missing", line=1)
    check_error(path, {"text": 0}, "columns of a JSONL file have names; received 0")


def test_all_rows_of_another_width_are_named(write):
    path = write("a\tb\n1\t2\t3\n1\t2\n\n4\n")
    message = (
        "3 bad lines: line 2: has 3 columns where the first row has 2 (read as TSV); "
        "line 4: is blank; line 5: has 1 column where"
    )
    check_error(path, {"text": "a"}, message, line=2)


def test_empty_cells_are_named(write):
    path = write("l\tt\tx\n1\ta\t\n\tb\t\n0\t \t\n")
    message = "2 bad lines: line 3: `label` (column 0) is empty; line 4: `text` (column"
    check_error(path, {"label": "l", "text": "t"}, message, line=3)
    path = write('{"t": "", "l": 1}\n{"t": "\\ud800"}\n{"t": [1], "l": 2}', "a.jsonl")
    with pytest.raises(DataError) as caught:
        read_columns(path, {"text": "t", "label": "l"}, optional=["label"])
    message = str(caught.value)
    assert "line 1: `text` (key `t`) is empty; line 2: `label` (key `l`)" in message
    assert "half of a surrogate pair" in message
    assert "line 3: `text` (key `t`) must be text or a number; received a" in message


@pytest.mark.parametrize("content", ["t,l\nNaN,a\nwin,NaN\nnan,a\n", None])
def test_words_for_a_missing_value_are_told(write, capsys, content):
    rows = [{"t": "NaN", "l": "a"}, {"t": "win", "l": "NaN"}, {"t": "nan", "l": "a"}]
    source = write(content) if content else rows
    columns = read_columns(source, {"text": "t", "label": "l"})
    assert columns["text"] == ["NaN", "win", "nan"]
    err = capsys.readouterr().err.splitlines()
    (told,) = (line for line in err if "missing value" in line)
    place = "lines 2, 4" if content else "rows 1, 3"
    assert told.endswith(
        "cells of `text` with NaN, nan, as other tools write a missing value, are read "
        f"as text: 2: {place}"
    )


def test_rows_are_spread_evenly() -> None:
    rows = as_columns(text=list("abcdefg"))
    found = {most: "".join(rows.spread(most)["text"]) for most in (1, 3, 6, 7, 100)}
    assert found == {1: "a", 3: "adg", 6: "aceg", 7: "abcdefg", 100: "abcdefg"}


def test_empty_cells_are_refused_or_skipped():
    columns = as_columns(text=["win", " ", "see you", ""])
    assert columns.filled("text", skip_empty=True)["text"] == ["win", "see you"]
    refused(
        lambda: columns.filled("text", skip_empty=False),
        "rows in memory:2: `text` is empty in 2 of 4 rows, rows 2, 4: --skip-empty",
    )


def test_files_without_rows(write):
    check_error(write("text\tlabel\n"), {"text": "text"}, "holds a header but no rows")
    check_error(write(""), {"text": "text"}, "is empty")
    check_error(write("\na\tb"), {"text": 0}, "first line must not be blank", line=1)
    check_error(write("a\ta\n1\t2"), {"text": "a"}, "more than one column `a`", line=1)


@pytest.mark.parametrize(
    ("roles", "options", "message"),
    [
        ({}, {}, "must select a column"),
        ({"text": None}, {}, "must select a column"),
        ({"text": -1}, {}, "must be a number from 0; received -1"),
        ({"text": True}, {}, "must be a name or a number; received True"),
        ({"text": 0}, {"header": "maybe"}, "`header` must be one of auto, yes, no"),
    ],
)
def test_arguments_are_checked_before_the_file(roles, options, message):
    with pytest.raises(ConfigError, match=message):
        read_columns("missing.tsv", roles, **options)


def test_errors_of_a_task_name_lines(write):
    columns = read_columns(write("t\na\nb\nc\n", "a.txt"), {"text": "t"})
    with pytest.raises(DataError) as caught:
        columns.refuse([(2, "bad"), (0, "worse")])
    message = str(caught.value)
    assert message.endswith("a.txt:2: 2 bad lines: line 2: worse; line 4: bad")


@pytest.mark.parametrize(
    ("name", "roles", "rows", "first", "last"),
    [
        (
            "sms_spam/SMSSpamCollection",
            {"label": 0, "text": "1"},
            5574,
            ("ham", "Go until jurong"),
            ("ham", "Rofl. Its true to"),
        ),
        (
            "glue_mrpc/dev.tsv",
            {"label": "Quality", "text": "#1 String", "text_pair": "#2 String"},
            408,
            ("1", "He said the", '" The foodservice'),
            ("1", "Ex-KGB agent", "In Soviet"),
        ),
        ("glue_cola/dev.tsv", {"text": 3}, 1043, ("The sailors",), ("John talked",)),
        (
            "glue_stsb/dev.tsv",
            {"label": "score", "text": "sentence1"},
            1500,
            ("5.000", "A man with a hard hat"),
            ("0", ""),
        ),
    ],
)
def test_real_files(name, roles, rows, first, last):
    if not (DATA / name).exists():
        pytest.skip(f"shared/data/{name} is not beside this checkout")
    columns = read_columns(DATA / name, roles)
    assert len(columns) == rows
    for place, starts in ((0, first), (-1, last)):
        cells = [columns[role][place] for role in roles]
        assert all(c.startswith(s) for c, s in zip(cells, starts, strict=True)), cells


def streamed(path: Path, columns: dict[str, str | int], **settings: Any) -> Columns:
    """Return what `stream_columns` gives in small parts, joined."""
    parts = list(stream_columns(path, columns, rows_at_once=2, **settings))
    assert len(parts) > 1
    cells = {role: sum((part[role] for part in parts), []) for role in columns}
    return Columns(str(path), cells, sum((part.lines for part in parts), []))


@pytest.mark.parametrize(
    ("name", "text", "columns", "header"),
    [
        ("a.tsv", "id\ttext\n1\ta\n2\tb \n3\tc\n4\td\n\n\n", {"text": "text"}, "auto"),
        ("a.tsv", "x y\t1\nz\t2\nu\t3\nv\t4\nw\t5", {"text": 0, "label": 1}, "auto"),
        ("a.tsv", "text\na\nb\nc\nd\ne\n", {"text": 0}, "yes"),
        ("a.txt", "one\r\ntwo\r\nthree\r\nfour\u2028\r\n", {"text": "0"}, "no"),
        ("a.csv", 'n,text\n1,"a\nb, ""c"""\n2,d\n3,e\n4,"f"\n', {"text": 1}, "yes"),
        ("a.csv", 'text\n"a\rb"\nc\nd\n', {"text": "text"}, "auto"),
        ("a.csv", "text,n\ra,1\rb,2\rc,3", {"text": "text"}, "auto"),
        ("a.csv", "sep=;\r\ntext;n\r\na;1\r\nb;2\r\nc;3", {"text": "text"}, "auto"),
        ("a.csv", '"SEP=;"\na,b;1\nb;2\nc;3\nd;4\n', {"text": "0"}, "no"),
        (
            "a.jsonl",
            '{"text": "a", "n": 1}\n{"text": "b"}\n{"text": "ü"}\n',
            {"text": "text"},
            "auto",
        ),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_stream_yields_the_rows_of_the_whole_file(
    tmp_path: Path,
    name: str,
    text: str,
    columns: dict[str, str | int],
    header: str,
    packed: bool,
) -> None:
    path, data = tmp_path / name, b"\xef\xbb\xbf" + text.encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    wanted = read_columns(path, columns, header=header)
    assert streamed(path, columns, header=header) == wanted


@pytest.mark.parametrize(
    ("name", "data", "parts"),
    [
        ("a.tsv", b"text\na\nb\nc\td\n", ["a.tsv:4:", "2 columns"]),
        ("a.tsv", b"text\tn\na\t1\nb\t2\nc\t3\n\t4\n", ["a.tsv:5:", "`text`", "empty"]),
        ("a.tsv", b"text\na\nb\n\nc\n", ["a.tsv:4:", "empty"]),
        ("a.csv", b'n,text\n1,a\n2,b\n3,"c\n', ["a.csv:4:", "not CSV"]),
        ("a.jsonl", b'{"text": "a"}\n{"text": "b"}\n[1]\n', ["a.jsonl:3:", "object"]),
        ("a.jsonl", b'{"text": "a"}\n{"text": "b"}\n{"t": 1}\n', ["`text`"]),
        ("a.tsv", b"text\na\nb\n\xff\n", ["a.tsv:4:", "UTF-8", "0xff"]),
        ("a.tsv", b"text\na\nb\nc\0\n", ["a.tsv:4:", "NUL"]),
        ("a.tsv", b"\n\n", ["a.tsv", "empty"]),
        ("a.tsv", b"", ["a.tsv", "empty"]),
        ("a.tsv", b"text\n", ["a.tsv", "no rows"]),
        ("a.csv", b"sep=;\n", ["a.csv", "no rows"]),
        ("a.tsv", b"\xff\xfea\0", ["a.tsv:1:", "UTF-16"]),
        ("a.tsv", b"\x1f\x8b\x08broken", ["a.tsv", "is truncated"]),
    ],
)
def test_a_stream_rejects_the_same_files(
    tmp_path: Path, name: str, data: bytes, parts: list[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    refused(lambda: streamed(path, {"text": "text"}), *parts)
    refused(lambda: read_columns(path, {"text": "text"}), *parts)


def test_a_stream_of_a_missing_file_is_rejected(tmp_path: Path) -> None:
    for path, part in ((tmp_path, "folder"), (tmp_path / "none.tsv", "no such file")):
        refused(lambda path=path: streamed(path, {"text": "text"}), part)


def test_later_parts_have_the_width_of_the_first_row(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a\t1\nb\t2\nc\t3\nd\ne\n")
    refused(lambda: streamed(path, {"text": 0}, header="no"), "a.tsv:4:", "1 column")


def test_a_stream_holds_a_part_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "large.tsv"
    line = "x" * 999 + "\n"
    with open(path, "w") as file:
        for _ in range(200):
            file.write(line * 100)  # 20 MB together
    tracemalloc.start()
    count = sum(len(part) for part in stream_columns(path, {"text": 0}, header="no"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 8e6


def test_cells_by_their_index() -> None:
    columns = as_columns(text=["x", "y", "z"], label=["b", "a", "c"])
    assert columns.indices("label", ["c", "b", "a"]).tolist() == [1, 2, 0]
    with pytest.raises(
        DataError, match=":3: `label` must be one of a, b; received 'c'"
    ):
        columns.indices("label", ["a", "b"])


# Any text, as people and programs write it.

FEW = hypothesis.settings(max_examples=40, derandomize=True, deadline=None)
ROLES = {"text": "text", "label": "label"}
# Without a lone carriage return, which may count as the end of a line.
CELLS = st.characters(exclude_categories=["Cs"], exclude_characters="\0\r")
CELL = st.text(CELLS, min_size=1, max_size=12).filter(str.strip)
TABLE = st.lists(st.tuples(CELL, st.sampled_from(["ham", "spam"])), min_size=1)


def written(path: Path, rows: list[tuple[str, str]]) -> Path:
    """Return a file of labelled texts, written by Python's own libraries."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            for text, label in rows:
                json.dump({"text": text, "label": label}, file, ensure_ascii=False)
                file.write("\n")
        elif path.suffix == ".csv":
            csv.writer(file).writerows([("text", "label"), *rows])
        else:
            file.writelines("\t".join(row) + "\n" for row in [("text", "label"), *rows])
    return path


@FEW
@hypothesis.given(rows=TABLE)
def test_any_text_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    plain = [("".join(c for c in t if c not in "\t\n"), label) for t, label in rows]
    plain = [row for row in plain if row[0].strip()]
    for name, given in (("a.csv", rows), ("a.jsonl", rows), ("a.tsv", plain)):
        if not given:
            continue
        path = written(folder / name, given)
        whole = read_columns(path, ROLES)
        assert list(zip(whole["text"], whole["label"], strict=True)) == given
        parts = list(stream_columns(path, ROLES, rows_at_once=2))
        assert [text for part in parts for text in part["text"]] == whole["text"]
        assert [line for part in parts for line in part.lines] == whole.lines


@FEW
@hypothesis.given(
    rows=TABLE,
    at=st.integers(0, 200),
    junk=st.binary(max_size=6),
    cut=st.integers(0, 9),
)
def test_a_damaged_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str]],
    at: int,
    junk: bytes,
    cut: int,
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    for name in ("a.csv", "a.jsonl", "a.tsv", "a.data"):
        path = written(folder / name, rows)
        data = path.read_bytes()
        path.write_bytes(data[:at] + junk + data[at + cut :])
        for read in (read_columns, stream_columns):
            try:
                found = read(path, ROLES)
                for part in [found] if isinstance(found, Columns) else found:
                    assert len(part["text"]) == len(part["label"]) == len(part.lines)
            except BertKerasError as error:
                assert "\n" not in str(error)
