"""Readers whose work grows no faster than their input.

Each case takes about a second; if its work were quadratic, it would take many minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

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
from bert_keras.data.table import as_columns
from bert_keras.data.tagged import read_tagged
from bert_keras.errors import DataError
folder = Path(sys.argv[1])
"""


@pytest.mark.parametrize("code", _CASES.values(), ids=_CASES)
def test_work_grows_with_the_input(code: str, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", _START + code, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=120,
    )
