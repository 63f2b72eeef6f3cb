"""Features of a file: the contents of npz and Parquet, by part and by token."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROWS, files_of, refused, write_tsv

from bert_keras.cli.main import main
from bert_keras.model.encoder import BertEncoder
from bert_keras.retrieval import features
from bert_keras.retrieval.embedder import embed
from bert_keras.retrieval.features import write_features
from bert_keras.retrieval.packed_vectors import PackedVectors
from bert_keras.retrieval.vector_file import read_vectors
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

TEXTS = [text for text, _ in ROWS] + ["É, 日本 🎉 sée", "!"]
SETTINGS = {"batch_size": 1, "max_length": 9}  # many parts of few texts


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [("id", "text"), *((str(i), text) for i, text in enumerate(TEXTS))]
    return write_tsv(tmp_path_factory.mktemp("texts") / "texts.tsv", rows)


@pytest.fixture(scope="module")
def tokens(encoder_folder: Path) -> tuple[list[np.ndarray], list[list[str]]]:
    """Return the last layer's vectors and the tokens of each text alone."""
    encoder = BertEncoder.from_pretrained(str(encoder_folder))
    tokenizer = WordPieceTokenizer.from_folder(encoder_folder)
    preprocessor = Preprocessor(tokenizer, max_length=9, layout="padded")
    batches = [preprocessor([text]) for text in TEXTS]
    vectors = [encoder(batch)["sequence_output"][0].numpy() for batch in batches]
    ids = [batch["token_ids"][0].numpy() for batch in batches]
    return vectors, [[tokenizer.vocabulary[i] for i in row] for row in ids]


def test_vectors_of_texts(
    encoder_folder: Path, file: Path, tmp_path: Path, capsys: Any
) -> None:
    output = tmp_path / "texts.npz"
    assert write_features(encoder_folder, file, output, **SETTINGS) == len(TEXTS)
    assert "ids are not written: only a .parquet file" in capsys.readouterr().err
    assert list(files_of(tmp_path)) == ["texts.npz"]  # nothing is left next to it
    with np.load(output, allow_pickle=False) as found:
        assert sorted(found) == ["embeddings", "format", "lines", "model", "texts"]
        assert found["lines"].tolist() == list(range(2, len(TEXTS) + 2))
        assert found["embeddings"].dtype == np.float32
        wanted = embed(encoder_folder, TEXTS, max_length=9)
        np.testing.assert_allclose(found["embeddings"], wanted, atol=1e-5)
    command = ["features", str(encoder_folder), str(file), "--output", str(output)]
    assert main([*command, "--pooling", "cls+max"]) == 0
    wanted = embed(encoder_folder, TEXTS, pooling="cls+max")
    with np.load(output) as found:
        np.testing.assert_allclose(found["embeddings"], wanted, atol=1e-5)


def check_tokens(found: dict[str, Any], text: str, wanted: list[str]) -> None:
    """Check the tokens of a text and their offsets."""
    assert list(found["tokens"]) == wanted
    spans = list(zip(found["starts"], found["ends"], strict=True))
    assert spans[0] == spans[-1] == (0, 0)
    for token, (start, end) in zip(wanted[1:-1], spans[1:-1], strict=True):
        piece = token.removeprefix("##")
        assert piece == "[UNK]" or len(text[start:end]) == len(piece)
        assert start < end <= len(text)


def test_vectors_of_tokens(
    encoder_folder: Path, file: Path, tmp_path: Path, tokens: Any
) -> None:
    output = tmp_path / "tokens.npz"
    write_features(encoder_folder, file, output, level="token", **SETTINGS)
    vectors, words = tokens
    with np.load(output, allow_pickle=False) as stored:
        found = dict(stored)
    splits = found["row_splits"]
    assert len(splits) == len(TEXTS) + 1
    assert splits[-1] == len(found["tokens"])
    for row, text in enumerate(TEXTS):
        part = {
            name: found[name][splits[row] : splits[row + 1]]
            for name in ("tokens", "starts", "ends", "embeddings")
        }
        check_tokens(part, text, words[row])
        np.testing.assert_allclose(part["embeddings"], vectors[row], atol=1e-5)
    assert max(len(row) for row in words) == 9  # some were cut


@pytest.mark.slow
def test_tokens_of_several_layers(
    encoder_folder: Path, file: Path, tmp_path: Path
) -> None:
    output = tmp_path / "tokens.npz"
    settings = {
        "layers": "0,2",
        "combine_layers": "concat",
        "normalize": True,
        **SETTINGS,
    }
    write_features(encoder_folder, file, output, level="token", **settings)
    vectors = np.load(output)["embeddings"]
    assert vectors.shape[1] == 32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


@pytest.mark.thorough
def test_parquet(encoder_folder: Path, file: Path, tmp_path: Path, tokens: Any) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    output = tmp_path / "texts.parquet"
    write_features(encoder_folder, file, output, **SETTINGS)
    table = parquet.read_table(output).to_pydict()
    assert table["text"] == TEXTS
    assert table["line"] == list(range(2, len(TEXTS) + 2))
    assert table["id"] == [str(i) for i in range(len(TEXTS))]
    wanted = embed(encoder_folder, TEXTS, max_length=9)
    np.testing.assert_allclose(table["embedding"], wanted, atol=1e-5)
    write_features(encoder_folder, file, output, level="token", **SETTINGS)
    for row, vectors, words in zip(
        parquet.read_table(output).to_pylist(), *tokens, strict=True
    ):
        check_tokens(row, row["text"], words)
        np.testing.assert_allclose(row["embeddings"], vectors, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "settings", "parts"),
    [
        ("a.csv", {}, ["`output`", ".npz", ".parquet", "a.csv"]),
        ("none/a.npz", {}, ["no such folder"]),
        ("a.npz", {"level": "word"}, ["`level`", "text, token", "word"]),
        ("a.npz", {"level": "token", "pooling": "max"}, ["`pooling`", "tokens"]),
        ("a.npz", {"column": "sentence"}, ["`sentence`", "`text`"]),
        ("a.npz", {"pooling": "cls+mode"}, ["`pooling`", "mean, cls", "mode"]),
    ],
)
def test_wrong_arguments(
    encoder_folder: Path,
    file: Path,
    tmp_path: Path,
    name: str,
    settings: dict[str, Any],
    parts: list[str],
) -> None:
    output = tmp_path / name
    refused(lambda: write_features(encoder_folder, file, output, **settings), *parts)


def test_npz_is_for_vectors_that_fit_in_memory(
    encoder_folder: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "_most_bytes", lambda: 500)
    output = tmp_path / "a.npz"
    refused(
        lambda: write_features(encoder_folder, file, output, **SETTINGS),
        "`output` must end with .parquet",
    )
    assert files_of(tmp_path) == {}


def test_a_bad_row_leaves_the_old_file(encoder_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.npz"
    output.write_text("old")
    rows = [("text",), *[("see you",)] * 40, ("",), ("six",)]
    texts = write_tsv(tmp_path / "texts.tsv", rows)
    refused(
        lambda: write_features(encoder_folder, texts, output, batch_size=1),
        "texts.tsv:42:",
        "empty",
    )
    blank = write_tsv(tmp_path / "blank.tsv", [("text",), (" ",)])
    nulls = tmp_path / "nulls.jsonl"
    nulls.write_text('{"text": null}\n{}\n', "utf-8")
    for file in (blank, nulls):
        for place in (output, tmp_path / "a.parquet"):
            refused(
                lambda file=file, place=place: write_features(
                    encoder_folder, file, place, skip_empty=True
                ),
                f"{file.name}: has no text: all rows are empty",
            )
    names = ["a.npz", "blank.tsv", "nulls.jsonl", "texts.tsv"]
    assert output.read_text() == "old"
    assert sorted(files_of(tmp_path)) == names


def test_a_full_disk_is_one_line(
    encoder_folder: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(features.os, "replace", full)
    output = tmp_path / "a.npz"
    refused(
        lambda: write_features(encoder_folder, file, output), "a.npz", "No space left"
    )
    assert not files_of(tmp_path)


@pytest.mark.slow
def test_vectors_of_few_bits(encoder_folder: Path, file: Path, tmp_path: Path) -> None:
    exact = tmp_path / "exact.npz"
    write_features(encoder_folder, file, exact)
    vectors = np.load(exact)["embeddings"]
    for dtype in ("int8", "binary"):
        write_features(encoder_folder, file, tmp_path / "few.npz", dtype=dtype)
        stored = read_vectors(tmp_path / "few.npz").packed
        wanted = PackedVectors.of(vectors, dtype, rescored=False)
        assert stored.dtype == dtype and stored.width == 16
        np.testing.assert_array_equal(stored.values, wanted.values)
    place = tmp_path / "a.parquet"
    refused(
        lambda: write_features(encoder_folder, file, place, dtype="int8"), "Parquet"
    )
