"""Readers of tagged sentences: CoNLL in all its forms, JSONL with spans, bad lines."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED, refused

from bert_keras.data.spans import split_words
from bert_keras.data.tagged import read_tagged, stream_words
from bert_keras.text.tokenizer import WordPieceTokenizer

WORDS = [["Ann", "Li", "met", "Bo"], ["In", "Rome"]]
TAGS = [["B-PER", "I-PER", "O", "B-PER"], ["O", "B-LOC"]]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "Ann\tB-PER\nLi\tI-PER\nmet\tO\nBo\tB-PER\n\nIn\tO\nRome\tB-LOC\n",
        "Ann I-PER\r\nLi I-PER\r\nmet O\r\nBo I-PER\r\n\r\nIn O\r\nRome I-LOC\r\n",
        "Ann B-PER\nLi E-PER\nmet O\nBo S-PER\n\n\n\nIn O\nRome S-LOC",
        "-DOCSTART- -X- O O\n\nAnn  NNP I-NP B-PER\nLi NNP I-NP I-PER\nmet VB O O\n"
        "Bo NNP I-NP B-PER\n-DOCSTART- -X- O O\nIn IN O O\nRome NNP I-NP B-LOC\n\n",
        "Ann\t1\tB-PER\nLi\t2\tL-PER\nmet\t3\tO\nBo\t4\tU-PER\n\t\nIn\t1\tO\n"
        "Rome\t2\tU-LOC\n",
    ],
    ids=["tabs", "iob1", "bioes", "conll-2003", "three columns"],
)
@pytest.mark.parametrize("name", ["a.conll", "a.txt", "a.annotated"])
def test_conll(tmp_path: Path, name: str, text: str) -> None:
    columns = read_tagged(write(tmp_path / name, text))
    assert (columns["text"], columns["label"]) == (WORDS, TAGS)
    assert columns["word_lines"][0][0] == columns.lines[0]


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    text = "-DOCSTART- O\n\na O\nb O\n\n\nc O\n"
    columns = read_tagged(write(tmp_path / "a.conll", text))
    assert columns.lines == [3, 7]
    assert columns["word_lines"] == [[3, 4], [7]]
    assert columns.take([1])["word_lines"] == [[7]]


def test_tags_that_continue_nothing_are_reported_by_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.conll", "a O\nb I-PER\nc I-PER\n\nd B-LOC\ne I-PER\n")
    assert read_tagged(path)["label"] == [["O", "B-PER", "I-PER"], ["B-LOC", "B-PER"]]
    assert (
        capfd.readouterr().err
        == f"{path}: 2 tags I-x start entities, like B-x: lines 2, 6\n"
    )
    read_tagged(write(path, "a O\nb I-PER\nc I-PER\n"))  # IOB1
    assert capfd.readouterr().err == ""


def test_odd_words_stay_whole(tmp_path: Path) -> None:
    words = ["New York", "\u00a0", "a\u2028b", "#", "-", "\u200b"]
    text = "".join(f"{word}\tO\n" for word in words)
    assert read_tagged(write(tmp_path / "a.conll", text))["text"] == [words]


def test_columns_are_chosen_by_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "1 Ann x NNP B-PER y\n2 ran x VB O y\n")
    columns = read_tagged(path, columns={"text": 1, "label": "4"})
    assert (columns["text"], columns["label"]) == ([["Ann", "ran"]], [["B-PER", "O"]])


def test_a_header_is_skipped_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "word tag\nAnn B-PER\n")
    assert read_tagged(path, header="yes")["text"] == [["Ann"]]
    refused(lambda: read_tagged(path), f"{path}:1: ", "looks like a header")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a O\nb O x\n", ["a.conll:2: has 3 columns where the first row has 2"]),
        ("a\tO\nb O\n", ["a.conll:2: has 1 column where"]),
        ("a O\nb X-PER\n", ["a.conll:2: the tag must be O", "received 'X-PER'"]),
        ("a B-\n", ["a.conll:1: the tag must be O", "received 'B-'"]),
        ("a B-x\n\nb LOC\nc PER", ["2 bad lines: line 3: the tag", "line 4: the tag"]),
        ("\tO\n", ["a.conll:1: the word is empty"]),
        ("text\tlabel\nAnn ran\tB-x O\n", ["a.conll:2: has a sentence and its tags"]),
        ("a\nb\n", ["a.conll: must hold 2 to 4 columns", "holds 1 column"]),
        ("a 1 2 3 O\n", ["must hold 2 to 4 columns", "holds 5 columns"]),
        ("-DOCSTART- O\n", ["a.conll: contains no words"]),
        ("", ["a.conll: is empty"]),
    ],
)
def test_bad_conll(tmp_path: Path, text: str, parts: list[str]) -> None:
    refused(lambda: read_tagged(write(tmp_path / "a.conll", text)), *parts)


def test_bad_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.conll", "a O\n")
    refused(lambda: read_tagged(path, columns={"label": 2}), "columns 0 to 1", "2")
    refused(lambda: read_tagged(path, columns={"label": "tag"}), "received 'tag'")
    refused(lambda: read_tagged(path, columns={"text_pair": 1}), "'text_pair'")


def test_words_of_a_file_without_tags(tmp_path: Path) -> None:
    parts = stream_words(str(write(tmp_path / "a.conll", "Ann\nmet\n\nBo\n")))
    assert parts is not None
    (found,) = parts
    assert found["text"] == [["Ann", "met"], ["Bo"]]
    assert "label" not in found
    # Blank lines distinguish CoNLL under another name from a table of texts.
    assert stream_words(str(write(tmp_path / "a.txt", "Ann O\n\nBo O\n"))) is not None
    assert stream_words(str(write(tmp_path / "a.tsv", "text\nAnn met Bo\n"))) is None
    assert stream_words(str(write(tmp_path / "a.csv", 'text\n"Ann\n\nBo"\n'))) is None
    assert stream_words(str(write(tmp_path / "a.jsonl", '{"text": "a"}\n'))) is None


def jsonl(path: Path, *rows: dict[str, Any]) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def span(start: int, end: int, label: str = "PER") -> dict[str, Any]:
    return {"start": start, "end": end, "label": label, "id": 7}


@pytest.mark.parametrize("key", ["spans", "entities"])
def test_spans(tmp_path: Path, key: str) -> None:
    text = "Ann Li (Bo's)  met 日本\u200b."
    spans = [span(19, 21, "LOC"), span(0, 6), span(8, 10)]
    columns = read_tagged(
        jsonl(tmp_path / "a.jsonl", {"text": text, key: spans}, {"text": "x", key: []})
    )
    assert columns["text"] == [
        ["Ann", "Li", "(", "Bo", "'", "s", ")", "met", "日", "本", "."],
        ["x"],
    ]
    tags = "B-PER I-PER O B-PER O O O O B-LOC I-LOC O"
    assert columns["label"] == [tags.split(), ["O"]]


def test_keys_are_chosen_by_name(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"body": "Ann ran", "names": [span(0, 3)]})
    columns = read_tagged(path, columns={"text": "body", "label": "names"})
    assert columns["label"] == [["B-PER", "O"]]


@pytest.mark.parametrize(
    ("row", "parts"),
    [
        ({"spans": [span(1, 3)]}, ["the span 1 to 3", "'nn', must begin and end"]),
        ({"spans": [span(0, 2)]}, ["the span 0 to 2", "'An', must begin and end"]),
        ({"spans": [span(0, 3), span(0, 7)]}, ["'Ann ran', must not overlap"]),
        ({"spans": [span(4, 9)]}, ["must lie in the 7 characters"]),
        ({"spans": [span(3, 3)]}, ["must lie in the 7 characters"]),
        ({"spans": [{"start": 0, "end": 3}]}, ["a span of `spans` must be"]),
        ({"spans": [span(-1, 3)]}, ["a span of `spans` must be"]),
        ({"spans": ["Ann"]}, ["a span of `spans` must be", "received Ann"]),
        ({"spans": "Ann"}, ["must be a list of spans", "it is a str"]),
        ({}, ["must be a list of spans, [] for none; it is missing"]),
        ({"text": "\u200b", "spans": []}, ["contains no words"]),
        ({"text": " ", "spans": []}, ["`text` (key `text`) is empty"]),
    ],
)
def test_bad_spans(tmp_path: Path, row: dict[str, Any], parts: list[str]) -> None:
    good = {"text": "Ann ran", "spans": []}
    path = jsonl(tmp_path / "a.jsonl", good, {"text": "Ann ran", **row})
    refused(lambda: read_tagged(path), f"{path}:2: ", *parts)


@pytest.mark.slow
def test_words_are_those_of_the_tokenizer() -> None:
    # Each word by itself, and the whole text, must give the same pieces in the same
    # places, whatever stands between them.
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abé.,日", "##a", "##b", "##é"]
    tokenizer = WordPieceTokenizer(tokens, lowercase=False)
    drawn, letters = random.Random(3), "abé.,日\u200b\u00a0 \t\x01\u3000\u2028"
    texts = ["".join(drawn.choices(letters, k=drawn.randrange(12))) for _ in range(300)]
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts, unit="characters")
    for row, text in enumerate(texts):
        bounds = split_words(text)
        words = [text[start:end] for start, end in bounds]
        pieces = tokenizer(words).to_list() if words else []
        assert sum(pieces, []) == ids[row].numpy().tolist()
        firsts = [sum(map(len, pieces[:number])) for number in range(len(words))]
        lasts = [first + len(pieces[i]) - 1 for i, first in enumerate(firsts)]
        found = [
            (int(starts[row][a]), int(ends[row][b]))
            for a, b in zip(firsts, lasts, strict=True)
        ]
        assert found == bounds


def test_wnut17() -> None:
    path = SHARED / "data/wnut17/emerging.test.annotated"
    if not path.exists():
        pytest.skip(f"{path} is absent")
    columns = read_tagged(path)
    assert len(columns) == 1287
    assert sum(map(len, columns["text"])) == 23394
    assert sum(tag[0] == "B" for tags in columns["label"] for tag in tags) == 1079
