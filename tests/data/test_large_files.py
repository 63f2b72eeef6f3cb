"""Large files: their work grows no faster than the input, their rows as any others.

Each case of the former takes about a second; if its work were quadratic, it would take
many minutes.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from conftest import ROOT, SHARED, refused
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from bert_keras.data import large_files
from bert_keras.data.columns import Columns
from bert_keras.data.duplicates import contradicting_labels
from bert_keras.data.rows import selection_of
from bert_keras.data.table import as_columns, read_columns, stream_columns
from bert_keras.data.text_column import TextColumn, joined
from bert_keras.errors import DataError
from bert_keras.training.data import digest_of_rows

_CASES = {
    "columns of a file": """
path = folder / "wide.csv"
names = ",".join(f"c{number}" for number in range(200_000))
path.write_text(f"{names}\\n{names.upper()}\\n")
assert len(as_columns(str(path), c0="c0", c1="c199999").cells) == 2
assert as_columns(str(path))["c199999"] == ["C199999"]
""",
    "columns of a table in memory": """
class Table:
    column_names = [f"c{number}" for number in range(200_000)]
    def to_pydict(self):
        return {name: ["x"] for name in self.column_names}
assert as_columns(Table(), text="c199999")["text"] == ["x"]
""",
    "unknown labels": """
rows = as_columns(text=["a"] * 200_000, label=[f"topic {n}" for n in range(200_000)])
try:
    rows.indices("label", [f"class {number}" for number in range(1_000)])
except DataError as error:
    assert "200000 bad lines: line 1: `label` must be one of class 0, " in str(error)
else:
    raise AssertionError
""",
    "classes": """
names = [f"class {number}" for number in range(200_000)]
rows = as_columns(text=["a"] * 200_000, label=names)
assert rows.indices("label", names).tolist() == list(range(200_000))
assert class_names({"id2label": {str(i): n for i, n in enumerate(names)}})[-1]
""",
    "places in a text": """
text = "🎉 win " * 500_000
spans = [{"start": 7 * n + 3, "end": 7 * n + 6, "label": "x", "text": "win"}
         for n in range(500_000)]
labels = read_tagged([{"text": text, "spans": spans}])["label"]
assert labels[0].count("B-x") == 500_000
""",
    "a piped line": """
read, write = os.pipe()
line = b"x" * (192 << 20)
def send():
    with open(write, "wb") as file:
        file.write(line + b"\\nlast")
threading.Thread(target=send).start()
with open(read, "rb", buffering=0) as file:
    assert [len(each) for each in Lines(file)] == [len(line), 4]
""",
}
_START = """
import os, sys, threading
from pathlib import Path
from bert_keras.cli.given_texts import Lines
from bert_keras.data.class_names import class_names
from bert_keras.data.rows import selection_of
from bert_keras.data.table import as_columns
from bert_keras.data.tagged import read_tagged
from bert_keras.errors import DataError
folder = Path(sys.argv[1])
"""


@pytest.mark.parametrize("code", _CASES.values(), ids=_CASES)
@pytest.mark.slow
def test_work_grows_with_the_input(code: str, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", _START + code, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=120,
    )


SMALL = {"LEAST_BYTES": 0, "BLOCK_BYTES": 48}
ROLES = {"text": "text", "label": "label"}


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let files of any size be read in small blocks."""
    for name, value in SMALL.items():
        monkeypatch.setattr(large_files, name, value)
    return monkeypatch


def outcome(path: Path, **rules: Any) -> tuple[Any, ...]:
    """Return cells and lines of a file, or its error."""
    try:
        found = read_columns(path, ROLES, **rules)
    except DataError as error:
        return (str(error),)
    cells = {role: list(found[role]) for role in found.cells}
    return cells, list(found.lines)


def streamed(path: Path, **rules: Any) -> tuple[Any, ...]:
    """Return the same of a file that is read in parts of two rows."""
    cells: dict[str, list[str]] = {role: [] for role in ROLES}
    lines: list[int] = []
    try:
        for part in stream_columns(path, ROLES, rows_at_once=2, **rules):
            lines += part.lines
            for role in part.cells:
                cells[role] += part[role]
    except DataError as error:
        return (str(error),)
    return cells, lines


CELL = st.text(
    alphabet=st.sampled_from("ab0 \"',;\t\n\ufeff\u2028\xa0é漢🎉.") | st.characters(),
    max_size=8,
) | st.sampled_from(["NaN", "NA", "null", "1e5", "007", "true", "text", "label", ""])


# Labels of JSON that are not texts; `-0` keeps its spelling.
_VALUES = {"0": 7, "007": True, "1e5": 0.5, "": None, "NA": [], "a": "-0", "b": 10**20}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(CELL, CELL), min_size=3, max_size=12),
    st.sampled_from(["csv", "tsv", "jsonl", "raw.csv", "raw.tsv"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(
        [{}, {"header": "yes"}, {"bad_rows": "keep"}, {"empty": list(ROLES)}]
    ),
)
def test_any_file_is_read_like_a_small_one(
    rows: list[tuple[str, str]], kind: str, end: str, rules: dict[str, Any]
) -> None:
    """The readers of small files read it, or refuse it, in the same way."""
    rules = {} if kind == "jsonl" and "header" in rules else rules
    delimiter = "," if kind.endswith("csv") else "\t"
    table = [("text", "label"), *rows]
    if kind == "jsonl":
        typed = [(text, _VALUES.get(label, label)) for text, label in rows]
        lines = [json.dumps(dict(zip(ROLES, row, strict=True))) for row in typed]
        text = end.join(line.replace('"-0"', "-0") for line in lines)
    elif kind == "csv":
        file = io.StringIO(newline="")
        csv.writer(file, lineterminator=end).writerows(table)
        text = file.getvalue()
    else:
        text = end.join(delimiter.join(row) for row in table)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / f"a.{kind}"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        wanted = outcome(path, **rules)
        parts = streamed(path, **rules)
        assert parts == wanted or len(parts) == len(wanted) == 1
        for name, value in SMALL.items():
            patch.setattr(large_files, name, value)
        assert outcome(path, **rules) == wanted


_TEXTS = ["NaN", "007", '1e5, "so"', " x\n\ny ", "a\r\nb", "漢 é\u2028", "", "null"] * 3


@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "jsonl", "parquet"])
def test_a_large_file_is_read_in_blocks(
    blocks: pytest.MonkeyPatch, tmp_path: Path, kind: str, is_mapped: bool
) -> None:
    if is_mapped:
        blocks.setattr(large_files, "MAPPED_BYTES", 64)
    texts = [t.replace("\n", " ").replace("\r", "") for t in _TEXTS]
    texts = texts if kind == "tsv" else _TEXTS
    rows = [(text, f"c{row % 2}") for row, text in enumerate(texts)]
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        names = pyarrow.array([row % 2 for row in range(len(texts))])
        parquet.write_table(pyarrow.table({"text": texts, "label": names}), path)
        blocks.setattr(large_files, "_PARQUET_ROWS", 5)
        rows = [(text, label[1:]) for text, label in rows]
    else:
        file = io.StringIO(newline="")
        if kind == "jsonl":
            lines = [json.dumps(dict(zip(ROLES, row, strict=True))) for row in rows]
            file.write("\n".join(lines))
        else:
            table = [("text", "label"), *rows]
            if kind == "tsv":
                file.write("\n".join(map("\t".join, table)))
            else:
                csv.writer(file).writerows(table)
        data = file.getvalue().encode()
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    held = pyarrow.total_allocated_bytes()
    found = read_columns(path, ROLES, empty=["text"])
    assert isinstance(found["text"], TextColumn)
    assert list(zip(found["text"], found["label"], strict=True)) == rows
    assert (pyarrow.total_allocated_bytes() == held) == is_mapped
    blocks.setattr(large_files, "LEAST_BYTES", 1 << 30)
    assert outcome(path, empty=["text"])[1] == list(found.lines)
    some = found.take([5, 2, 2, -1])
    assert some["text"] == [texts[5], texts[2], texts[2], texts[-1]]
    assert list(some.lines) == [found.lines[row] for row in (5, 2, 2, -1)]
    assert some["text"][1:3] == [texts[2]] * 2 and some.take([3])["text"][0] == "null"
    assert pickle.loads(pickle.dumps(some["text"])) == some["text"]  # noqa: S301
    assert digest_of_rows(some) == digest_of_rows(
        as_columns(text=list(some["text"]), label=list(some["label"]))
    )
    both = joined([["x"], some["text"], found["text"]])
    assert both.take([4, 0, 5]) == [texts[-1], "x", texts[0]]
    assert some.indices("label", sorted(set(found["label"]))).tolist() == [1, 0, 0, 1]


_ODD = {
    "a row of another width": b"text,label\na,b\nc\n",
    "a blank row": b"text,label\na,b\n\nc,d\n",
    "a quote within a cell": b'text,label\na"b,c\nd,e\n',
    "a cell that goes on after its quote": b'text,label\n"a"b,c\nd,e\n',
    "an open quote": b'text,label\na,b\n"c,d\n',
    "a line break of CR": b"text,label\ra,b\nc,d\n",
    "a NUL": b"text,label\na,b\nc,\0\n",
    "Western text": b"text,label\n" + b"a,b\n" * 9 + b"caf\xe9,b\n",
    "a header again": b"text,label\na,b\ntext , label\n",
    "a delimiter": b"sep=,\ntext,label\na,b\n",
    "a mark within the file": b"text,label\n\xef\xbb\xbfa,b\n",
}


@pytest.mark.parametrize("data", _ODD.values(), ids=_ODD)
def test_an_odd_file_is_left_to_the_other_readers(
    blocks: pytest.MonkeyPatch, tmp_path: Path, data: bytes
) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(data)
    for empty in ([], list(ROLES)):
        found = outcome(path, empty=empty)
        chosen = selection_of(ROLES, empty=empty)
        assert large_files.read_large(str(path), chosen) is None
        with blocks.context() as patch:
            patch.setattr(large_files, "LEAST_BYTES", 1 << 30)
            assert outcome(path, empty=empty) == found


_WHOLE = {
    "a.csv": b"text,label\n" + b"plain ascii,b\n" * 9 + b"caf\xe9,b\n",
    "a.json": b'[{"text": "a", "label": "b"},\n{"text": "c", "label": "d"},\n'
    b'{"text": "e", "label": "f"}]',
    "a.jsonl": b'{"data": "a", "label": ["b"]}\n' * 5,  # of doccano
}


@pytest.mark.parametrize("name", _WHOLE)
def test_a_file_that_is_read_as_a_whole_in_a_stream(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(_WHOLE[name])
    rules = {"lists": ["label"]}
    assert streamed(path, **rules) == outcome(path, **rules)


def test_a_column_of_some_parts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"text": "a", "label": "b"}] * 2 + [{"text": "c"}] * 2
    for order, which in ((rows, "each"), (rows[::-1], "no")):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in order))
        (found,) = streamed(path, optional=["label"])
        assert found == (
            f"{path}:3: `label` must be in each row or in none; {which} row before "
            "has it"
        )


def test_a_full_disk_is_told(blocks: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "a,b\n" * 100)
    blocks.setattr(large_files, "MAPPED_BYTES", 1)
    blocks.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    refused(
        lambda: read_columns(tmp_path / "a.csv", ROLES),
        "none, the folder of temporary files, cannot take the rows of ",
        "a.csv: No such file or directory; TMPDIR names another",
    )


def test_the_files_of_other_tools(blocks: pytest.MonkeyPatch) -> None:
    """Large or in a stream, all rows of `shared/cases` are read, or refused, alike."""
    cases = SHARED / "cases" / "data"
    files = [path for path in cases.rglob("*.*sv") if path.is_file()]
    files += cases.rglob("*.jsonl")
    if not files:
        pytest.skip("shared/cases/data is not beside this checkout")
    for path in files:
        with blocks.context() as patch:
            patch.setattr(large_files, "LEAST_BYTES", 1 << 40)
            wanted = outcome(path, bad_rows="keep")
        assert outcome(path, bad_rows="keep") == wanted, path
        parts = streamed(path, bad_rows="keep")
        assert parts == wanted or len(parts) == len(wanted) == 1, path


def test_the_spaces_are_those_of_python() -> None:
    every = map(chr, range(0x110000))
    assert sorted(large_files.SPACES) == [c for c in every if c.isspace()]


def test_contradicting_labels_of_many_rows_take_little_memory() -> None:
    count = 100_000
    texts = [str(row % (count - 9)) for row in range(count)]
    labels = [str(row // (count - 5)) for row in range(count)]
    columns = Columns("a", {"text": texts}, range(1, count + 1))
    tracemalloc.start()
    (note,) = contradicting_labels([texts], labels, columns)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert note.startswith("a: 10 rows have the texts of another")
    assert "lines 5, 6, 7, 8, 9" in note
    assert peak < 40 * count
