"""Rows as other tools write them: what is read, what is told, what is refused.

The small files that other tools' users met are in `shared/cases/data`; each form is
also here, in own rows.
"""

from __future__ import annotations

import functools
import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import SHARED, refused

from bert_keras.data.class_names import label_names
from bert_keras.data.duplicates import shared_rows
from bert_keras.data.table import as_columns, read_columns, stream_columns
from bert_keras.data.tagged import read_tagged, stream_words
from bert_keras.errors import DataError
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.protocols import texts_of
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.tagging.task import TokenClassification
from bert_keras.tasks.tagging.words import Pieces, find_entities

CASES = SHARED / "cases" / "data"
Told = Callable[[], str]


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str]) -> Told:
    """Return a function that returns the notes since its last call."""
    return lambda: capfd.readouterr().err


def case(name: str) -> Path:
    if not CASES.exists():
        pytest.skip("shared/cases/data is not beside this checkout")
    return CASES / name


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


TABLE = "text{0}label\nso good{0}yes\nso, bad{0}no\n"


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a"])
def test_a_header_decides_on_the_delimiter(
    tmp_path: Path, told: Told, delimiter: str, name: str
) -> None:
    path = write(tmp_path / name, TABLE.format(delimiter))
    wanted = {"text": ["so good", "so, bad"], "label": ["yes", "no"]}
    assert Classification.read(path).cells == wanted
    assert as_columns(path).cells == wanted
    is_told = delimiter != "\t" or name.endswith(".csv")
    assert told().count("cells are separated by") == is_told


def test_the_delimiter_that_excel_declares(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "\ufeffsep=;\r\ntext;label\r\n1,5;yes\r\nb;no")
    read = Classification.read(path)
    assert read.cells == {"text": ["1,5", "b"], "label": ["yes", "no"]}
    assert read.lines == [3, 4]
    assert as_columns(path).cells == read.cells
    words = "sep=;\nSentence #;Word;Tag\nSentence: 1;Anna;B-per\n;sings;O\n"
    found = TokenClassification.read(write(tmp_path / "b.csv", words))
    assert found["text"] == [["Anna", "sings"]]


@pytest.mark.parametrize("form", ["csv", "jsonl", "memory"])
def test_columns_of_other_names(tmp_path: Path, told: Told, form: str) -> None:
    def data(*names: str) -> Any:
        rows = [dict.fromkeys(names, each) for each in "ab"]
        if form == "memory":
            return rows
        text = "\n".join(map(json.dumps, rows))
        if form == "csv":
            text = "\n".join(map(",".join, (names, *(row.values() for row in rows))))
        return write(tmp_path / f"a.{form}", text)

    refused(lambda: Classification.read(data("text", "Target")), ": --label Target (in")
    other = data("Message", "my class", "class")
    refused(lambda: Classification.read(other), ": --text Message --label class (in")
    two = data("text", "target", "class")
    refused(lambda: Classification.read(two), "to read another column: --label NAME")
    assert Classification.read(data("text", "labels"))["label"] == ["a", "b"]
    assert "`labels` as `label`" in told()
    Classification.read(data("text", "labels"), roles=["text"])
    assert not told()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "text,text_pair\na,b\n"),
        ("a.jsonl", '{"text": "a", "text_pair": "b"}\n'),
    ],
)
def test_a_second_text_that_is_not_read_is_told(
    tmp_path: Path, told: Told, name: str, text: str
) -> None:
    path = write(tmp_path / name, text)
    (part,) = stream_columns(path, {"text": "text"}, unread=["text_pair"])
    assert part["text"] == ["a"]
    assert "the column `text_pair` is not read" in told()
    other = write(tmp_path / f"of {name}", text)  # told once of each file
    read_columns(other, {"text": "text"}, unread=["text_pair"])
    assert "the column `text_pair` is not read" in told()
    list(stream_columns(path, {"text": "text_pair"}, unread=["text_pair"]))
    assert not told()


def test_a_header_is_for_tables(tmp_path: Path) -> None:
    rows = write(tmp_path / "a.jsonl", '{"text": "a", "label": "b"}\n')
    for header, task in (("yes", Classification), ("no", MultiLabel)):
        read = functools.partial(task.read, rows, header=header)
        refused(read, f"`header` is for tables of TSV and CSV; received {header}")
    refused(lambda: list(stream_columns(rows, {"text": "text"}, header="no")), "tables")
    refused(lambda: as_columns(rows, header="yes"), "tables")
    table = write(tmp_path / "a.csv", "question,context,answers\na,b,b\n")
    for each in (QuestionAnswering, TokenClassification):
        refused(lambda t=each: t.read(table, header="no"), "`header` must be yes")


def test_a_decimal_comma_is_named() -> None:
    columns = as_columns(text=["a", "b"], label=["1,5", "2"])
    task = Regression()
    refused(lambda: task.targets(columns), "'1,5': write decimals with a point")


def test_text_does_not_decide_on_the_delimiter(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "good;bad\nso;so\n")
    assert read_columns(path, {"text": 0})["text"] == ["good;bad", "so;so"]
    refused(lambda: read_columns(path, {"text": 1}), "column 0 alone", "commas")
    path = write(tmp_path / "b.csv", 'text\n"a;b"\n')
    assert Classification.read(path, roles=["text"])["text"] == ["a;b"]
    path = write(tmp_path / "c.csv", "id;text,label\n1;2,3\n")
    refused(lambda: Classification.read(path), "no column `text`", "`id;text`, `label`")


@pytest.mark.parametrize(
    ("name", "data", "part"),
    [
        ("a.csv", b"PAR1\x15\x04", "Parquet file: its name must end in .parquet"),
        ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1", "Excel workbook: save it as CSV"),
        ("a.csv", b"SQLite format 3\0", "SQLite database"),
    ],
)
def test_other_formats_are_named(
    tmp_path: Path, name: str, data: bytes, part: str
) -> None:
    (tmp_path / name).write_bytes(data)
    refused(lambda: Classification.read(tmp_path / name), part)


def test_a_workbook_is_named(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("[Content_Types].xml", "x")
        archive.writestr("xl/workbook.xml", "x")
    refused(lambda: Classification.read(tmp_path / "a.xlsx"), "an Excel workbook")


def test_western_text_is_read_and_told(tmp_path: Path, told: Told) -> None:
    rows = "".join(f"a good café number {n},yes\n" for n in range(3))
    path = write(tmp_path / "a.csv", f"text,label\n{rows}", "cp1252")
    assert Classification.read(path)["text"][0] == "a good café number 0"
    assert "byte 0xe9 is not: read as Windows-1252" in told()
    # Where some of it is UTF-8, or most is not ASCII, it is something else.
    data = path.read_bytes() + "ü,no\n".encode()
    path.write_bytes(data)
    refused(lambda: Classification.read(path), "a.csv:2", "must be UTF-8")
    path = write(tmp_path / "b.csv", "text,label\nсуп,да\nчай,нет\n", "cp1251")
    refused(lambda: Classification.read(path), "b.csv:2", "must be UTF-8")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.csv", "text,label\na,x\ntext,label\nb,y\n", 3),
        ("a.tsv", "text\tlabel\na\tx\nb\ty\nlabel\ttext\ny\tb\n", 4),
    ],
)
def test_a_header_in_the_middle(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    path = write(tmp_path / name, text)
    refused(lambda: Classification.read(path), f"{name}:{line}: is a header again")


def test_a_text_may_be_the_name_of_its_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text\ntext\n")
    assert Classification.read(path, roles=["text"])["text"] == ["text"]


def test_quotes_in_tsv_are_told(tmp_path: Path, told: Told) -> None:
    text = 'text\tlabel\n"He said ""no"""\tx\n"b\tx\n" c"\ty\n'
    path = write(tmp_path / "a.tsv", text)
    assert Classification.read(path)["text"][0] == '"He said ""no"""'
    assert (
        "rows with cells quoted as in CSV: 1" in (line := told()) and "line 2" in line
    )
    path = write(tmp_path / "b.tsv", 'text\tlabel\n"two\nlines"\tx\n')
    refused(lambda: Classification.read(path), "b.tsv:2", "several lines needs .csv")
    assert Classification.read(path.rename(tmp_path / "b.csv"))["text"] == [
        "two\nlines"
    ]


NFD = unicodedata.normalize("NFD", "café")


def test_doubtful_names_are_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "text,label\na,nan\nb,x\nc,y\nd,nan\n")
    columns = Classification.read(path)
    (note,) = Classification.from_columns(columns).notes(columns)
    assert note.endswith("for a missing value by other tools: nan (2)")
    path = write(tmp_path / "a.conll", "Anna b-per\nWeber i-per\nsings o\n")
    refused(lambda: read_tagged(path), "prefixes in upper case", "'b-per' and 'o'")


@pytest.mark.parametrize(
    "cells",
    [
        ["café", " café", "café\u00a0", NFD, "café "],
        ["1", "1.0", "01.0"[1:], " 1", "1.00"],
        ["True", "true", "TRUE", " True", "true"],
        ["café", "['café']", '["café"]', "('café',)", "[ 'café' ]"],
    ],
)
def test_a_class_has_one_name(cells: list[str]) -> None:
    others = {"1": "0", "T": "False"}
    other = others.get(cells[0][0], "tea")
    columns = as_columns(text=["a"] * 6, label=[*cells, other])
    task = Classification.from_columns(columns)
    assert len(task.classes) == 2
    wanted = [task.classes.index(label_names(cells)[0])] * 5
    assert task.targets(columns).tolist()[:5] == wanted
    single = [cell for cell in cells if "[" not in cell and "(" not in cell]
    assert (
        task.encode_targets(tf.constant(single)).numpy().tolist()
        == wanted[: len(single)]
    )


def test_names_that_are_not_one(tmp_path: Path) -> None:
    columns = as_columns(text=["a"] * 4, label=["4.0", "4.5", "1.10", "1.1"])
    assert set(Classification.from_columns(columns).classes) == set(columns["label"])
    columns = as_columns(text=["a", "b"], label=["['a', 'b']", "c"])
    refused(lambda: Classification.from_columns(columns), ":1: `label` must be a name")


def test_a_model_with_names_as_they_were(told: Told) -> None:
    task = Classification((" good", "True"), positive_class="good")
    columns = as_columns(text=["a", "b"], label=["good", "true"])
    assert task.targets(columns).tolist() == [0, 1]
    assert task.positive_class == " good"
    made = Classification.from_columns(columns, classes=["true ", " good"])
    assert made.classes == ("true", "good")
    numbered = as_columns(text=["a", "b"], label=[1, 0])
    assert made.targets(numbered).tolist() == [1, 0]
    assert "`label` holds the numbers of classes: 0 true, 1 good" in told()


def test_doubtful_labels_are_told() -> None:
    columns = as_columns(
        text=["a", "b", "a", "c"], label=["good", "Good", "bad", "bad"]
    )
    near, mixed = Classification.from_columns(columns).notes(columns)
    assert near.endswith("classes differ only in case or spaces: Good (1), good (1)")
    assert mixed.endswith(
        "2 rows have the texts of another row and another label: rows 1, 3"
    )
    other = as_columns(text=["x", "c"], label=["good", "bad"])
    task = Classification.from_columns(columns)
    (note,) = shared_rows(texts_of(task, columns), texts_of(task, other), other)
    assert note.endswith("1 of 2 rows is also a training row: row 2")
    texts = texts_of(task, columns), texts_of(task, other)
    (note,) = shared_rows(*texts, other, held_out=True)
    assert note.endswith(
        "1 of 2 held-out rows has the texts of a row that is trained on: row 2"
    )


@pytest.mark.parametrize(
    "cell",
    [
        "['food', 'tea']",
        '["food","tea"]',
        "('food', 'tea')",
        "{'tea', 'food'}",
        "['food'\n 'tea']",
    ],
)
def test_lists_of_classes_in_cells(cell: str) -> None:
    columns = as_columns(text=["a"] * 3, label=[cell, "[]", "('food',)"])
    task = MultiLabel.from_columns(columns)
    assert task.classes == ("food", "tea")
    assert task.targets(columns).tolist() == [[1, 1], [0, 0], [1, 0]]


@pytest.mark.parametrize("cell", ["['food' 'tea'", "[food, tea]", "['food'", "'tea'"])
def test_parts_of_lists_are_no_names(cell: str) -> None:
    columns = as_columns(text=["a", "b"], label=["food", cell])
    refused(lambda: MultiLabel.from_columns(columns), ":2: `label` must be a name or a")


def test_another_separator_is_told() -> None:
    labels = ["food;tea", "food", "food"]
    columns = as_columns(text=["a", "b", "c"], label=labels)
    (note,) = MultiLabel.from_columns(columns).notes(columns)
    assert "`;` is part of 1 of 2 class names" in note
    assert "such as 'food;tea': if it separates names, set `separator` to ;" in note
    task = MultiLabel.from_columns(columns, separator=";")
    assert task.classes == ("food", "tea") and not task.notes(columns)


FLAGS = [
    {"comment": "a", "toxic": 1, "threat": 0},
    {"comment": "b", "toxic": 1, "threat": 1},
    {"comment": "c", "toxic": 0, "threat": 0},
]


@pytest.mark.parametrize("form", ["memory", "csv", "jsonl", "floats"])
def test_a_column_for_each_class(tmp_path: Path, form: str) -> None:
    chosen = {"text": "comment", "label": "toxic,threat"}
    source: Any = FLAGS
    if form == "csv":
        lines = [",".join(map(str, row.values())) for row in FLAGS]
        text = "\n".join([",".join(FLAGS[0]), *lines])
        source = write(tmp_path / "a.csv", text)
    elif form == "jsonl":
        source = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, FLAGS)))
    elif form == "floats":
        source = {key: [row[key] for row in FLAGS] for key in FLAGS[0]}
        source["toxic"] = np.array(source["toxic"], "float32")
    columns = MultiLabel.read(source, columns=chosen)
    task = MultiLabel.from_columns(columns)
    assert task.classes == ("threat", "toxic")
    assert task.targets(columns).tolist() == [[0, 1], [1, 1], [0, 0]]
    chosen["label"] = "toxic,comment"
    refused(lambda: MultiLabel.read(source, columns=chosen), "`comment` must be 0 or 1")


WORDS = [["Ann", "Li", "ran"], ["Bo"]]
TAGS = [["B-PER", "I-PER", "O"], ["B-PER"]]
OBJECTS = [
    {"tokens": words, "ner_tags": tags} for words, tags in zip(WORDS, TAGS, strict=True)
]


def jsonl(path: Path, rows: list[Any]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", "\n".join(map(json.dumps, OBJECTS))),
        ("a.json", json.dumps(OBJECTS)),
        ("a.json", json.dumps({"data": OBJECTS})),
        ("a.csv", "text,label\nAnn Li ran,B-PER I-PER O\nBo,B-PER\n"),
        (
            "a.csv",
            "tokens,ner_tags\n"
            "\"['Ann', 'Li', 'ran']\",['B-PER' 'I-PER' 'O']\n['Bo'],['B-PER']\n",
        ),
        (
            "a.csv",
            "Sentence #,Word,POS,Tag\nSentence: 1,Ann,X,B-PER\n,Li,X,I-PER\n"
            ",ran,X,O\nSentence: 2,Bo,X,B-PER\n",
        ),
        (
            "a.csv",
            "sentence_id;words;labels\n0;Ann;B-PER\n0;Li;I-PER\n0;ran;O\n1;Bo;B-PER\n",
        ),
        (
            "a.tsv",
            "sent_id\tword\ttag\n0\tAnn\tB-PER\n0\tLi\tI-PER\n0\tran\tO\n"
            "1\tBo\tB-PER\n",
        ),
        ("a.bmes", "Ann B-PER\nLi E-PER\nran O\n\nBo S-PER\n"),
        ("a.txt", "Ann B_PER\nLi I_PER\nran O\n\nBo B_PER\n"),
        (
            "a.conll",
            "-DOCSTART- -X- O\nAnn -X- _ B-PER\nLi -X- _ I-PER\nran -X- _ O\n"
            "\nBo -X- _ B-PER\n",
        ),
        (
            "a.conll",
            "# id 1\tdomain=en\nAnn _ _ B-PER\nLi _ _ I-PER\nran _ _ O\n\n"
            "# id 2 domain=en\nBo _ _ B-PER\n".replace("\t", " "),
        ),
        ("a.txt", "Ann PER\nLi PER\nran O\n\nBo PER\n"),
    ],
)
def test_sentences_of_files(tmp_path: Path, name: str, text: str) -> None:
    columns = read_tagged(write(tmp_path / name, text))
    assert (columns["text"], columns["label"]) == (WORDS, TAGS)
    words = stream_words(str(tmp_path / name))
    if "text,label" not in text:
        assert words is not None and next(words)["text"] == WORDS


def test_a_broken_table_of_words_names_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "sentence_id,word,tag\n0,Ann,B-PER\n0,,O\n")
    refused(lambda: read_tagged(path), "a.csv:3: the word is empty")
    columns = read_tagged(
        write(tmp_path / "b.csv", "sentence,word,pos,tag\n0,Ann,N,B-PER\n"),
        columns={"label": "pos"},
    )
    assert columns["label"] == [["N"]]


NUMBERS = [{"tokens": r["tokens"], "ner_tags": t} for r, t in zip(
    OBJECTS, [[1, 2, 0], [1]], strict=True)]  # fmt: skip


@pytest.mark.parametrize("form", ["memory", "jsonl"])
def test_numbers_of_tags(tmp_path: Path, told: Told, form: str) -> None:
    source: Any = NUMBERS
    if form == "jsonl":
        source = jsonl(tmp_path / "a.jsonl", NUMBERS)
    columns = TokenClassification.read(source)
    refused(lambda: TokenClassification.from_columns(columns), "set `classes` to their")
    classes = ["O", "B-PER", "I-PER"]
    task = TokenClassification.from_columns(columns, classes=classes)
    assert task.targets(columns).tolist() == [[1, 2, 0], [1, -1, -1]]
    assert "numbers of tags: 0 O, 1 B-PER, 2 I-PER" in told()
    assert task.describe(columns)["classes"] == {"PER": 2}
    few = TokenClassification(["O", "B-PER"])
    refused(lambda: few.targets(columns), "numbers from 0 to 1; received '2'")


def test_a_fault_is_named_once_a_line(tmp_path: Path) -> None:
    rows = [{"tokens": ["a", "b", "c"], "tags": ["X-y", "X-y", "B-x"]}]
    path = jsonl(tmp_path / "a.jsonl", rows)
    with pytest.raises(DataError, match="received 'X-y'") as caught:
        read_tagged(path)
    assert str(caught.value).count("must be") == 1


def test_plain_tags(tmp_path: Path, told: Told) -> None:
    path = write(tmp_path / "a.conll", "The DET\ndog NOUN\ncat NOUN\n\nruns VERB\n")
    columns = TokenClassification.read(path)
    assert "each belongs to one word" in told()
    task = TokenClassification.from_columns(columns)
    assert task.classes == ("DET", "NOUN", "VERB")
    assert task.best_score == "word_accuracy"
    assert task.targets(columns).tolist() == [[0, 1, 1], [2, -1, -1]]
    assert task.describe(columns)["classes"] == {"DET": 1, "NOUN": 2, "VERB": 1}
    p = np.eye(3)[[[0, 1, 2], [2, 0, 0]]]
    tags = np.array([[b"DET", b"NOUN", b"VERB"], [b"VERB", b"", b""]], object)
    answers = {"tags": tags, "scores": p.max(-1), "probabilities": p}
    scores = task.score(columns, answers)
    assert scores["word_accuracy"] == 0.75 and "f1" not in scores
    assert scores["per_class"]["NOUN"]["recall"] == 0.5
    (mistake,) = task.mistakes(columns, answers)
    assert (mistake["label"], mistake["prediction"]) == ("cat (NOUN)", "cat (VERB)")


def test_words_with_plain_tags_are_answers_of_their_own() -> None:
    pieces = Pieces(None, None, tf.constant([[True] * 3]), [[0, 2, 4]], [[1, 3, 5]])
    found = find_entities(
        ("N", "V"), [[0, 0, 1]], tf.ones([1, 3]), pieces, tf.constant(["a b c"])
    )
    assert found["entities"].numpy().tolist() == [[b"a", b"b", b"c"]]


CONLLU = """# sent_id = 1
# text = Let's go .
1-2\tLet's\t_\t_\t_\t_\t_\t_\t_\t_
1\tLet\tlet\tVERB\tVB\t_\t0\troot\t_\t_
2\t's\twe\tPRON\tPRP\t_\t1\tobj\t_\t_
2.1\tto\tto\tPART\tTO\t_\t_\t_\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t1\txcomp\t_\t_
4\t.\t.\tPUNCT\t.\t_\t1\tpunct\t_\t_
"""


@pytest.mark.parametrize("name", ["a.conllu", "a.conll", "a.txt"])
def test_conllu(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, CONLLU)
    columns = read_tagged(path)
    assert columns["text"] == [["Let", "'s", "go", "."]]
    assert columns["label"] == [["VERB", "PRON", "VERB", "PUNCT"]]
    assert columns["word_lines"] == [[4, 5, 7, 8]]
    for label in (4, "xpos"):
        found = read_tagged(path, columns={"label": label})
        assert found["label"] == [["VB", "PRP", "VB", "."]]
    refused(lambda: read_tagged(path, columns={"label": "tag"}), "id, form, lemma")


SENTENCE = "Ann Li lives in Rome"
WANTED = ["B-PER", "I-PER", "O", "O", "B-LOC"]


def spans_of(start: str, end: str, label: str, **more: Any) -> list[dict[str, Any]]:
    found = ((0, 6, "PER", "Ann Li"), (16, 20, "LOC", "Rome"))
    keys = (start, end, label, "text")
    return [{**dict(zip(keys, each, strict=True)), **more} for each in found]


@pytest.mark.parametrize(
    "row",
    [
        {"text": SENTENCE, "label": [[0, 6, "PER"], [16, 20, "LOC"]]},
        {"data": SENTENCE, "labels": [[0, 6, "PER"], [16, 20, "LOC"]]},
        {
            "text": SENTENCE,
            "entities": spans_of("start_offset", "end_offset", "label", id=3),
            "relations": [],
            "Comments": [],
        },
        {
            "text": SENTENCE,
            "tokens": [{"text": "Ann", "id": 0}],
            "spans": spans_of("start", "end", "label", token_start=0, token_end=1),
            "answer": "accept",
        },
        {
            "text": SENTENCE,
            "annotator": 1,
            "label": [
                {**each, "labels": [each["label"]], "label": each["label"]}
                for each in spans_of("start", "end", "label")
            ],
        },
        {
            "id": 1,
            "data": {"title": SENTENCE},
            "annotations": [
                {"was_cancelled": True, "result": []},
                {
                    "result": [
                        {
                            "type": "labels",
                            "value": {**each, "labels": [each.pop("label")]},
                        }
                        for each in spans_of("start", "end", "label")
                    ]
                },
            ],
        },
    ],
    ids=["doccano", "doccano data", "entities", "prodigy", "min", "label studio"],
)
@pytest.mark.parametrize("form", ["memory", "jsonl", "json"])
def test_spans_of_tools(tmp_path: Path, row: Any, form: str) -> None:
    source: Any = [row]
    if form != "memory":
        source = tmp_path / f"a.{form}"
        write(source, json.dumps(row if form == "jsonl" else [row], indent=None))
    columns = TokenClassification.read(source)
    assert (columns["text"], columns["label"]) == ([SENTENCE.split()], [WANTED])


@pytest.mark.parametrize(
    "rows",
    [
        [{"text": "a", "label": ["x"]}, {"text": "b", "label": ["y"]}],
        [{"data": "a", "label": ["x"]}, {"data": "b", "label": ["y"]}],
        [{"text": "a", "labels": ["x"]}, {"text": "b", "labels": ["y"]}],
        [
            {"text": text, "accept": [name], "answer": "accept", "options": []}
            for text, name in ("ax", "by")
        ],
        [
            {
                "data": {"text": text},
                "annotations": [{"result": [{"value": {"choices": [name]}}]}],
            }
            for text, name in ("ax", "by")
        ],
    ],
)
@pytest.mark.parametrize("task", [Classification, MultiLabel])
def test_classes_of_tools(tmp_path: Path, rows: list[Any], task: Any) -> None:
    for source in (rows, jsonl(tmp_path / "a.jsonl", rows)):
        columns = task.read(source)
        assert columns["text"] == ["a", "b"]
        assert task.from_columns(columns).classes == ("x", "y")


def test_a_class_is_one_name(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", [{"text": "a", "label": ["x", "y"]}])
    refused(lambda: Classification.read(path), ":1: `label`", "must be one text")


def test_answers_of_prodigy(tmp_path: Path, told: Told) -> None:
    rows = [
        {"text": each, "label": "x", "answer": each}
        for each in ("accept", "reject", "ignore", "reject")
    ]
    path = jsonl(tmp_path / "a.jsonl", rows)
    assert Classification.read(path)["text"] == ["accept"]
    line = "left out 3 of 4 rows: `answer` is not accept: 2 reject, 1 ignore"
    assert line in told()
    chosen = Classification.read(path, columns={"label": "answer"})
    assert len(chosen) == 4 and not told()
    refused(
        lambda: Classification.read(jsonl(path, rows[1:])), "contains no row to read"
    )


PARTY = "🎉 win with Anna 🎉 in Rome"


@pytest.mark.parametrize(
    ("count", "unit"),
    [
        (lambda text: len(text), ""),
        (lambda text: len(text.encode("utf-16-le")) // 2, "UTF-16 units"),
        (lambda text: len(text.encode()), "UTF-8 bytes"),
    ],
)
def test_offsets_in_other_units(
    tmp_path: Path, told: Told, count: Callable[[str], int], unit: str
) -> None:
    spans = []
    for name, label in (("Anna", "PER"), ("Rome", "LOC"), ("🎉", "X")):
        place = PARTY.rindex(name)
        start, end = count(PARTY[:place]), count(PARTY[: place + len(name)])
        spans.append({"start": start, "end": end, "label": label, "text": name})
    rows = [{"text": PARTY, "spans": spans}, {"text": "🎉a🎉 b", "spans": []}]
    path = jsonl(tmp_path / "a.jsonl", rows)
    tags = "O O O B-PER B-X O B-LOC".split()
    assert read_tagged(path)["label"][0] == tags
    assert told().count(unit or "converted") == bool(unit)
    for span in spans:
        span["text"] = span["text"].lower()
    jsonl(path, rows)
    refused(lambda: read_tagged(path), "a.jsonl:1:", "must be 'anna', its own text")


@pytest.mark.parametrize("key", ["type", "entity_group"])
def test_spans_as_models_answer_them(tmp_path: Path, key: str) -> None:
    found = {key: "PER", "start": 0, "end": 3.0, "score": 0.9}
    path = jsonl(tmp_path / "a.jsonl", [{"text": "Ann ran", "entities": [found]}])
    assert read_tagged(path)["label"] == [["B-PER", "O"]]


def test_spaces_at_the_ends_of_spans(tmp_path: Path, told: Told) -> None:
    spans = [{"start": 0, "end": 4, "label": "PER"}]
    path = jsonl(tmp_path / "a.jsonl", [{"text": "Ann ran", "spans": spans}])
    assert read_tagged(path)["label"] == [["B-PER", "O"]]
    assert "end with spaces, which are dropped: 1: 1" in told()


CONTEXT = "🎉 Ann lived in Rome."
ASKED = [
    {"question": "Where?", "context": CONTEXT, "answers": [("Rome", 15)]},
    {"question": "When?", "context": CONTEXT, "answers": []},
]


def flat(start: Any = 15) -> list[dict[str, Any]]:
    answers = [
        {"text": ["Rome"], "answer_start": [start]},
        {"text": [], "answer_start": []},
    ]
    return [{**row, "answers": a} for row, a in zip(ASKED, answers, strict=True)]


PARAGRAPH = {
    "context": CONTEXT,
    "qas": [
        {
            "id": str(number),
            "question": row["question"],
            "answers": [{"text": t, "answer_start": n} for t, n in row["answers"]],
            "is_impossible": not row["answers"],
        }
        for number, row in enumerate(ASKED, 1)
    ],
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", "\n".join(map(json.dumps, flat()))),
        ("a.json", json.dumps(flat())),
        ("a.json", json.dumps({"version": "1", "data": flat()})),
        ("a.json", json.dumps([PARAGRAPH])),
        ("a.json", json.dumps({"data": [PARAGRAPH]})),
        ("a.jsonl", json.dumps({"title": "t", "paragraphs": [PARAGRAPH]})),
        ("a.json", json.dumps([{"paragraphs": [PARAGRAPH]}])),
        (
            "a.csv",
            f"question,context,answers\nWhere?,{CONTEXT},"
            "\"{'text': ['Rome'], 'answer_start': [15]}\"\n"
            f"When?,{CONTEXT},\"{{'text': [], 'answer_start': []}}\"\n",
        ),
        (
            "a.csv",  # as pandas writes what `datasets` holds
            f"question,context,answers\nWhere?,{CONTEXT},"
            "\"{'text': array(['Rome'], dtype=object), 'answer_start': array([15])}\"\n"
            f"When?,{CONTEXT},"
            "\"{'text': array([], dtype=object), 'answer_start': array([])}\"\n",
        ),
        (
            "a.csv",
            f"question,context,answer,answer_start\nWhere?,{CONTEXT},Rome,15.0\n"
            f"When?,{CONTEXT},,\n",
        ),
        ("a.jsonl", "\n".join(map(json.dumps, flat(16)))),  # in UTF-16 units
    ],
)
def test_questions_of_files(tmp_path: Path, told: Told, name: str, text: str) -> None:
    path = write(tmp_path / name, text)
    columns = QuestionAnswering.read(path)
    for role in ("question", "context", "answers"):
        assert columns[role] == [row[role] for row in ASKED]
    assert columns["id"] == ["1", "2"]
    assert told().count("`answer_start` counts UTF-16 units") == ("16" in text)
    asked = QuestionAnswering.read(path, roles=["question", "context"])
    assert asked["question"] == ["Where?", "When?"]


@pytest.mark.parametrize(
    ("text", "start", "fault"),
    [("", "-1", ""), ("", "", ""), ("", "4", "a whole number"), ("Rome", "", "whole")],
)
def test_an_empty_answer_without_a_start_is_none(
    tmp_path: Path, text: str, start: str, fault: str
) -> None:
    rows = f"{CONTEXT},Where?,Rome,15\n{CONTEXT},When?,{text},{start}\n"
    path = write(tmp_path / "a.csv", f"context,question,answer,answer_start\n{rows}")
    if fault:
        refused(lambda: QuestionAnswering.read(path), "'2' must have `text`", fault)
    else:
        assert QuestionAnswering.read(path)["answers"] == [[("Rome", 15)], []]


def test_columns_of_questions(tmp_path: Path) -> None:
    rows = [
        {"q": "Where?", "context": CONTEXT, "answer_text": "Rome", "answer_start": 15}
    ]
    columns = QuestionAnswering.read(
        jsonl(tmp_path / "a.jsonl", rows), columns={"question": "q"}
    )
    assert columns["answers"] == [[("Rome", 15)]]
    named = QuestionAnswering.read(
        tmp_path / "a.jsonl", columns={"question": "q", "answers": "answer_text"}
    )
    assert named["answers"] == columns["answers"]
    path = write(tmp_path / "b.json", json.dumps([PARAGRAPH]))
    refused(
        lambda: QuestionAnswering.read(path, columns={"question": "q"}),
        "`columns` must be left out",
    )
    path = jsonl(tmp_path / "c.jsonl", [{"question": "a", "context": "b"}])
    refused(lambda: QuestionAnswering.read(path), "'1' has no list `answers`")


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        (
            "a.jsonl",
            '{"text": "Ann ran", "spans": [[0, 3, "x"]]}\n'
            '{"text": "Ann ran", "spans": [[1, 3, "x"]]}\n{"text": "", "spans": []}\n',
            [1],
        ),
        ("a.conll", "a B-x\nb O\n\nc X-x\n\nd O e\n\nf O\n", [1, 8]),
        ("a.csv", "sentence,word,tag\n1,a,B-x\n2,,O\n3,b,O\n", [2, 4]),
    ],
)
def test_sentences_with_a_problem_are_left_out_on_request(
    tmp_path: Path, told: Told, name: str, text: str, kept: list[int]
) -> None:
    path = write(tmp_path / name, text)
    refused(lambda: TokenClassification.read(path), name)
    assert TokenClassification.read(path, bad_rows="skip").lines == kept
    assert "left out" in told()


def test_questions_with_a_problem_are_left_out_on_request(
    tmp_path: Path, told: Told
) -> None:
    rows = [*flat(), {"question": None, "context": "a", "answers": []}]
    path = jsonl(tmp_path / "a.jsonl", rows)
    refused(lambda: QuestionAnswering.read(path), "'3' must have a text `question`")
    assert len(QuestionAnswering.read(path, bad_rows="skip")) == 2
    assert "left out 1 bad questions: question '3' must have" in told()


def test_a_header_in_the_middle_of_words(tmp_path: Path) -> None:
    rows = "sentence,word,pos\n1,a,N\n"
    path = write(tmp_path / "a.csv", rows * 2)
    refused(lambda: TokenClassification.read(path), "a.csv:3: is a header again")
    path = write(tmp_path / "b.csv", "text,label\na,N\ntext,label\n")
    refused(lambda: TokenClassification.read(path), "b.csv:3: is a header again")


# The files of the cases.


@pytest.mark.parametrize(
    ("name", "columns", "classes"),
    [
        ("18-delimiter/semicolon.csv", {}, ("bad", "good")),
        ("19-label-spaces/train.csv", {}, ("bad", "good")),
        ("23-label-types/true.csv", {}, ("false", "true")),
        ("23-label-types/float.csv", {}, ("0", "1")),
        ("23-label-types/int.csv", {}, ("0", "1")),
        ("23-label-types/case.csv", {}, ("Bad", "Good", "bad", "good")),
        ("17-tsv-quotes/quotes_only.tsv", {}, ("bad", "good")),
    ],
)
def test_classes_of_cases(name: str, columns: Any, classes: tuple[str, ...]) -> None:
    rows = Classification.read(case(name), columns=columns)
    assert Classification.from_columns(rows).classes == classes


def test_tables_of_cases(told: Told) -> None:
    test = Classification.read(case("19-label-spaces/test.csv"))
    train = Classification.read(case("19-label-spaces/train.csv"))
    task = Classification.from_columns(train)
    assert task.targets(test).tolist() == [1, 1, 1, 0, 0, 0]
    assert shared_rows(texts_of(task, train), texts_of(task, test), test)[0].count(
        "6 of 6"
    )
    refused(lambda: Classification.read(case("21-two-headers/train.csv")), "csv:10: ")
    refused(lambda: Classification.read(case("24-empty/train.csv")), "line 18", "19")
    refused(lambda: Classification.read(case("17-tsv-quotes/train.tsv")), ":19", ".csv")
    at = case("18-delimiter/at.txt")
    columns = {"text": "0", "label": "1"}
    refused(lambda: Classification.read(at, columns=columns), "between tabs")
    lists = MultiLabel.read(case("16-multilabel-lists/repr.csv"))
    assert MultiLabel.from_columns(lists).classes == ("food", "service")
    flags = MultiLabel.read(
        case("16-multilabel-lists/columns.csv"),
        columns={"text": "comment", "label": "toxic,insult,threat"},
    )
    task = MultiLabel.from_columns(flags)
    assert task.targets(flags).sum(0).tolist() == [2, 1, 3]


PERSONS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("26-bmes/train.char.bmes", ("O", "B-LOC", "I-LOC", "B-NAME", "I-NAME")),
        ("26-bmes/train.txt", ("O", "B-LOC", "I-LOC", "B-NAME", "I-NAME")),
        ("26-bmes/underscore.txt", ("O", "B-LOC", "I-LOC", "B-NAME", "I-NAME")),
        ("27-pos/train.conll", ("DET", "NOUN", "PRON", "PUNCT", "VERB")),
        ("27-pos/ud.conllu", ("DET", "NOUN", "PUNCT", "VERB")),
        (
            "28-label-studio-conll/plain.conll",
            ("O", "B-Job", "I-Job", "B-Person", "I-Person"),
        ),
        (
            "28-label-studio-conll/spaces.conll",
            ("O", "B-Job Title", "I-Job Title", "B-Person", "I-Person"),
        ),
        ("29-doccano/entities.jsonl", PERSONS),
        ("29-doccano/labels.jsonl", PERSONS),
        ("30-tokens-jsonl/train.jsonl", PERSONS),
        ("31-span-edges/spaces.jsonl", PERSONS),
        ("32-utf16-offsets/en.jsonl", PERSONS),
        ("32-utf16-offsets/zh.jsonl", PERSONS),
        ("35-prodigy/ner.jsonl", ("O", "B-PER", "I-PER")),
        ("52-kaggle-ner/ner_dataset.csv", ("O", "B-geo", "I-geo", "B-per", "I-per")),
    ],
)
def test_tags_of_cases(name: str, classes: tuple[str, ...]) -> None:
    columns = TokenClassification.read(case(name))
    assert TokenClassification.from_columns(columns).classes == classes


def test_words_of_cases() -> None:
    columns = TokenClassification.read(case("32-utf16-offsets/zh.jsonl"))
    assert columns["label"][0][1:4] == ["B-PER", "I-PER", "I-PER"]
    assert len(TokenClassification.read(case("35-prodigy/ner.jsonl"))) == 1
    columns = TokenClassification.read(case("52-kaggle-ner/ner_dataset.csv"))
    assert [len(words) for words in columns["text"]] == [7, 4] * 3
    rows = Classification.read(case("29-doccano/doccano_classes.jsonl"))
    assert Classification.from_columns(rows).classes == ("bad", "good")
    columns = TokenClassification.read(case("30-tokens-jsonl/ids.jsonl"))
    task = TokenClassification.from_columns(
        columns, classes=["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    )
    assert task.targets(columns)[0].tolist() == [1, 2, 0, 0, 3, 0]


@pytest.mark.parametrize("name", ["flat.json", "flat.jsonl", "good.json", "list.json"])
def test_questions_of_cases(name: str) -> None:
    columns = QuestionAnswering.read(case(f"36-qa-shapes/{name}"))
    assert columns["answers"] == [[("1889", 23)], [("330 metres", 56)]]
    asked = QuestionAnswering.read(
        case(f"36-qa-shapes/{name}"), roles=["question", "context"]
    )
    assert asked["question"] == ["When was it built?", "How high is it?"]
