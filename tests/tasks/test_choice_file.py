"""Files of multiple choice: the known layouts, one's own columns, and broken rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED, refused

from bert_keras.data.row_source import RowSource
from bert_keras.tasks.multiple_choice import read_choices

SWAG = """video-id,fold-ind,startphrase,sent1,sent2,gold-source,\
ending0,ending1,ending2,ending3,label
a_1,7,x,"A man sits, waiting.",He,gold,smiles.,"runs, fast.",sings.,sleeps.,2
a_2,8,x,Someone enters.,She,gen,waves.,falls.,leaves.,speaks.,0
"""
LISTS = """{"context": "2 + 2", "choices": ["four", "five", 6], "label": 0}
{"context": "The sky", "choices": ["is blue", "is green"], "label": 1}
"""
XCOPA = SHARED / "data" / "xcopa" / "val.it.jsonl"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_swag(tmp_path: Path) -> None:
    columns = read_choices(RowSource(write(tmp_path, "a.csv", SWAG)))
    assert columns["context"] == ["A man sits, waiting.", "Someone enters."]
    assert columns["choices"][0] == [
        "He smiles.",
        "He runs, fast.",
        "He sings.",
        "He sleeps.",
    ]
    assert (columns["label"], columns.lines) == (["2", "0"], [2, 3])
    without = read_choices(
        RowSource(tmp_path / "a.csv", {"label": None, "question": None})
    )
    assert "label" not in without
    assert without["choices"][1] == ["waves.", "falls.", "leaves.", "speaks."]


def test_lists_of_any_length(tmp_path: Path) -> None:
    columns = read_choices(RowSource(write(tmp_path, "a.jsonl", LISTS)))
    assert columns["choices"] == [["four", "five", "6"], ["is blue", "is green"]]
    assert columns["label"] == ["0", "1"]


def test_lists_in_a_table(tmp_path: Path) -> None:
    text = 'context,choices,label\na,"[""b"", ""c""]",1\nd,"[\'e\', 6]",0\n'
    path = write(tmp_path, "a.csv", text)
    assert read_choices(RowSource(path))["choices"] == [["b", "c"], ["e", "6"]]
    path = write(tmp_path, "b.csv", "context,choices,label\na,b,1\n")
    refused(lambda: read_choices(RowSource(path)), ":2: `choices` must be a list")


def test_a_question_precedes_each_choice(tmp_path: Path) -> None:
    row = '{"context": "c", "question": "q?", "choices": ["a", "b"], "label": 1}'
    columns = read_choices(RowSource(write(tmp_path, "a.jsonl", row)))
    assert columns["choices"] == [["q? a", "q? b"]]


def test_custom_columns(tmp_path: Path) -> None:
    text = "story\tright?\tone\ttwo\nOnce\t1\tupon\ta time\n"
    columns = {"context": "story", "choices": "one, two", "label": "right?"}
    found = read_choices(RowSource(write(tmp_path, "a.tsv", text), columns))
    assert (found["choices"], found["label"]) == ([["upon", "a time"]], ["1"])
    numbers = {"context": 0, "choices": "2,3", "label": 1}
    assert (
        read_choices(RowSource(tmp_path / "a.tsv", numbers, "yes")).cells == found.cells
    )


@pytest.mark.skipif(not XCOPA.is_file(), reason=f"there is no {XCOPA}")
def test_xcopa() -> None:
    columns = read_choices(RowSource(XCOPA))
    assert len(columns) == 100
    assert columns["context"][0] == "L'uomo aprì il rubinetto."
    assert columns["choices"][0][1] == "effect Dell'acqua fluì dal beccuccio."
    assert set(columns["label"]) == {"0", "1"}


@pytest.mark.parametrize(
    ("name", "text", "columns", "parts"),
    [
        ("a.jsonl", '{"context": "c", "label": 0}', {}, (":1:", "`choices`", "none")),
        (
            "a.jsonl",
            LISTS + '{"context": "c", "choices": ["a", " "], "label": 0}',
            {},
            (":3:", "`choices` 1 is empty"),
        ),
        (
            "a.jsonl",
            LISTS + '{"context": "c", "choices": "a", "label": 0}',
            {},
            (":3:", "list of texts; is str"),
        ),
        ("a.csv", SWAG.replace("ending3", "end"), {}, ("ending3",)),
        ("a.csv", "a,b\n1,2\n", {}, ("context",)),
        ("a.jsonl", LISTS, {"question": "why"}, ("`why`",)),
    ],
)
def test_broken_files(
    tmp_path: Path, name: str, text: str, columns: Any, parts: tuple[str, ...]
) -> None:
    path = write(tmp_path, name, text)
    refused(lambda: read_choices(RowSource(path, columns)), *parts)
