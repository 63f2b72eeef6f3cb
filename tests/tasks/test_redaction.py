"""Redacted texts: no entity is left, and the answers agree with those of `predict`."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import refused
from task_cases.token_classification import CLASSES

from bert_keras.cli.main import main
from bert_keras.files.parquet import write_rows
from bert_keras.inference import predictor as inference
from bert_keras.inference.predictor import Predictor
from bert_keras.models.model_folder import save_model
from bert_keras.tasks.redaction import Redaction
from bert_keras.tasks.tagging.task import TokenClassification
from bert_keras.text.token_ids import TokenIds
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.text.tokenizer_files import write_tokenizer_json

TEXTS = [
    "see you at six!",
    "",
    "win cash, win " * 12,  # four windows
    "\ud800é日本 – 🎉 e\u0301\u0323 six",
    "lunch [deal] lunch",
]
WORDS = [["see", "you", "at six"], [], ["win", "cash"] * 20]
LONG = "see " + "ก" * 101


@pytest.fixture(scope="module")
def predictor(make_model: Callable[..., Any]) -> Predictor:
    """Return a tagger of random weights; at `max_length` 24 texts need windows."""
    return Predictor(make_model(TokenClassification(CLASSES)))


@pytest.fixture(scope="module")
def folder(predictor: Predictor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(predictor.model, tmp_path_factory.mktemp("tagger") / "model")


@pytest.fixture(autouse=True)
def open_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open a model folder once for all commands."""
    monkeypatch.setattr(inference, "load_predictor", opened)


EMPTY = "`text` is empty"

opened = functools.cache(inference.load_predictor)


def replaced(text: str, entities: list[dict[str, Any]], types: set[str]) -> str:
    """Return a text without the entities that `predict` finds, from its end on."""
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    for each in reversed(entities):
        assert each["text"] == text[each["start"] : each["end"]]
        if each["type"] in types:
            text = f"{text[: each['start']]}[{each['type']}]{text[each['end'] :]}"
    return text


@pytest.mark.parametrize("types", [None, "deal", ["time"], "time,deal"])
def test_the_entities_of_predict_are_replaced(predictor: Predictor, types: Any) -> None:
    chosen = {"deal", "time"} if types is None else {*"".join(types).split(",")}
    rows = predictor.predict(TEXTS)
    assert {e["type"] for row in rows for e in row["entities"]} == {"deal", "time"}
    found = predictor.redact(TEXTS, types=types, batch_size=2)
    for text, row, redacted in zip(TEXTS, rows, found, strict=True):
        assert list(redacted) == ["text", "entities"]
        assert redacted["text"] == replaced(text, row["entities"], chosen)
        for before, after in zip(row["entities"], redacted["entities"], strict=True):
            assert before.keys() == after.keys()
            place = slice(after["start"], after["end"])
            assert after["text"] == redacted["text"][place]
            assert after["type"] == before["type"]
            assert after["score"] == pytest.approx(before["score"], abs=1e-5)
            is_kept = before["type"] not in chosen
            assert after["text"] == (
                before["text"] if is_kept else f"[{after['type']}]"
            )


def test_the_words_of_entities_are_replaced(predictor: Predictor) -> None:
    rows = predictor.predict(WORDS)
    found = predictor.redact(WORDS, types=["deal"])
    for words, row, redacted in zip(WORDS, rows, found, strict=True):
        assert redacted["tags"] == row["tags"]
        assert redacted["text"] == [
            "[deal]" if tag[2:] == "deal" else word
            for word, tag in zip(words, row["tags"], strict=True)
        ]
    assert "[deal]" in found[2]["text"]


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "see", "a", "##a"]
    return WordPieceTokenizer(vocabulary, max_word_characters=5)


def test_adjacent_entities_by_hand(tokenizer: WordPieceTokenizer) -> None:
    answers = {
        "entities": np.array([[b"Ann", b"Bo", b"Rome"], [b"", b"", b""]], object),
        "types": np.array([[b"PER", b"PER", b"LOC"], [b"", b"", b""]], object),
        "starts": np.array([[0, 4, 9], [-1, -1, -1]]),
        "ends": np.array([[3, 6, 13], [-1, -1, -1]]),
        "scores": np.array([[0.9, 0.8, 0.7], [0.0, 0.0, 0.0]]),
    }
    redaction = Redaction(("O", "B-PER", "I-PER", "B-LOC"), tokenizer, ["PER"])
    found = redaction(["Ann Bo – Rome.", b"No one \xff"], answers)
    texts = [text.decode() for text in found["text"]]
    assert texts == ["[PER] [PER] – Rome.", "No one \ufffd"]
    assert found["starts"].tolist() == [[0, 6, 14], [-1, -1, -1]]
    assert found["ends"].tolist() == [[5, 11, 18], [-1, -1, -1]]
    assert found["entities"][0].tolist() == [b"[PER]", b"[PER]", b"Rome"]
    assert answers["starts"][0].tolist() == [0, 4, 9]


def test_plain_tags_are_types(tokenizer: WordPieceTokenizer) -> None:
    redaction = Redaction(("NOUN", "VERB"), tokenizer, None)
    answers = {"tags": np.array([[b"NOUN", b"VERB"], [b"VERB", b""]], object)}
    found = redaction([["see", "see"], ["a"]], answers)["text"]
    assert found.tolist() == [[b"[NOUN]", b"[VERB]"], [b"[VERB]", b""]]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("see aaaaaa", 6),
        ("see x\u0301xxxxx", 7),  # with the accent, which is more than is counted
        ("한국어", 8),  # Hangul in its parts
        (["see", "zzzzzz"], 6),
        (b"seeseesee", 9),
    ],
)
def test_a_word_that_is_not_read_is_refused(
    tokenizer: WordPieceTokenizer, text: Any, size: int, tmp_path: Path
) -> None:
    write_tokenizer_json(tmp_path, tokenizer.get_config(), max_length=9)
    for each in (tokenizer, TokenIds(tmp_path)):  # in graph, and of an engine
        redaction = Redaction(("O", "B-x"), each, None)
        redaction.check(["see aaaaa zzz!-----", ["aaaaa", "🎉"], [], b"a" * 5])
        message = refused(lambda check=redaction.check: check(["see", text]))
        assert message == (
            "texts[1]: to be redacted, a text must have words of at most 5 characters: "
            f"the tokenizer does not read longer ones; received one of {size}"
        )


def test_types_may_be_separated_by_commas(tokenizer: WordPieceTokenizer) -> None:
    given = ("x,y", ["x, y"], ["x", "y"])
    for types in given:
        redaction = Redaction(("O", "B-x", "B-y", "B-z"), tokenizer, types)
        assert redaction._types == {"x", "y"}


def test_misuse_is_refused(predictor: Predictor, spam_model: Any) -> None:
    refused(lambda: predictor.redact(["a"], types="deals"), "deal, time", "'deals'")
    refused(lambda: predictor.redact(["a"], types=[]), "deal, time; received none")
    refused(lambda: predictor.redact(["a", LONG]), "texts[1]: ", "at most 100", "101")
    refused(
        lambda: Predictor(spam_model).redact(["a"]),
        "must find their entities",
        "received one of classification",
    )


def test_what_stays_is_told(
    predictor: Predictor, capsys: pytest.CaptureFixture[str]
) -> None:
    TokenClassification(CLASSES, abstain_below=0.25).redaction(
        predictor.model.preprocessor, None
    )
    told = capsys.readouterr().err
    assert "below `abstain_below`, 0.25, are not redacted" in told
    TokenClassification(CLASSES, answered_accuracy=0.5).redaction(
        predictor.model.preprocessor, None
    )
    assert not capsys.readouterr().err


def rows_of(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of answers."""
    if path.suffix == ".parquet":
        from pyarrow import parquet

        return parquet.read_table(path).to_pylist()
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in file]
        rows = list(csv.DictReader(file))
    for row in rows:
        row["entities"] = json.loads(row["entities"])
    return rows


@pytest.mark.parametrize("ending", ["tsv", "jsonl", "parquet"])
def test_a_file(
    predictor: Predictor,
    folder: Path,
    tmp_path: Path,
    ending: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts = [TEXTS[0], "", TEXTS[2]]
    source = tmp_path / f"rows.{ending}"
    given = [
        {"id": f"r{n}", "note": text, "body": text} for n, text in enumerate(texts)
    ]
    if ending == "jsonl":
        source.write_text("\n".join(map(json.dumps, given)), "utf-8")
    elif ending == "parquet":
        with source.open("wb") as table:
            write_rows(table, lambda: iter(given), path=str(source))
    else:
        with source.open("w", encoding="utf-8", newline="") as table:
            writer = csv.DictWriter(table, list(given[0]), delimiter="\t")
            writer.writeheader()
            writer.writerows(given)
    target = tmp_path / f"out.{ending.replace('tsv', 'csv')}"
    words = ["predict", str(folder), "--input", str(source), "--text", "body"]
    assert main([*words, "--output", str(target), "--redact", "deal"]) == 0
    found = rows_of(target)
    wanted = predictor.redact(texts, types=["deal"])
    assert [row["id"] for row in found] == ["r0", "r1", "r2"]
    assert found[1]["text"] == "" and found[1]["reason"] == EMPTY
    assert not found[1]["entities"]
    for row, right in zip(found[::2], wanted[::2], strict=True):
        assert set(row) - {"reason"} == {"id", "text", "entities"}
        assert row["text"] == right["text"]
        kinds = [each["text"] for each in row["entities"]]
        assert kinds == [each["text"] for each in right["entities"]]


def test_the_command_line(
    predictor: Predictor,
    folder: Path,
    spam_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def errors(*words: object) -> list[str]:
        assert main(["predict", *map(str, words)]) == 2
        return capsys.readouterr().err.splitlines()

    (wanted,) = predictor.redact(["win cash now"])
    capsys.readouterr()
    assert main(["predict", str(folder), "win cash now", "--redact"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["text"] == wanted["text"]
    (line,) = errors(folder, "--redact", "win cash now")
    assert "must be of deal, time; received 'win cash now'" in line
    (line,) = errors(spam_folder, "a", "--redact")
    assert "received one of classification" in line
    (line,) = errors(folder, "a", "--top", 2)
    assert "`--top` has no effect: answers of token-classification" in line
    source, target = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    lines = [json.dumps({"text": text}) for text in ("see", "six", LONG, "win")]
    source.write_text("\n".join(lines), "utf-8")
    (line,) = errors(folder, "--input", source, "--output", target, "--redact")
    assert line.startswith(f"bert-keras: {source}:3: ") and "of 101" in line
    assert not target.exists()
    letters = tmp_path / "letters.csv"  # a paragraph in quotes, so it is no CoNLL file
    letters.write_text(f'id,text\n1,"win\n\ncash now"\n2,{LONG}\n', "utf-8")
    (line,) = errors(folder, "--input", letters, "--redact")
    assert line.startswith(f"bert-keras: {letters}:5: ") and "of 101" in line
    lists = [json.dumps({"tokens": words}) for words in (["win"], [])]
    source.write_text("\n".join(lists), "utf-8")
    assert main(["predict", str(folder), "--input", str(source), "--redact"]) == 0
    rows = [*map(json.loads, capsys.readouterr().out.splitlines())]
    assert rows[1] == {"text": [], "tags": None, "scores": None, "reason": EMPTY}
    (line,) = errors(folder, "--input", source, "--on-empty", "error")
    assert line.startswith(f"bert-keras: {source}:2: ") and "received []" in line
