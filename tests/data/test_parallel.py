"""Parallel files, and pairs with an empty side."""

import pytest

from bert_keras.data.parallel import read_parallel
from bert_keras.errors import DataError, NoRowsError


def written(folder, source, target):
    (folder / "a.de").write_text(source, encoding="utf-8")
    (folder / "a.en").write_text(target, encoding="utf-8")
    return folder / "a.de", folder / "a.en"


def test_lines_are_pairs_and_empty_sides_are_named(tmp_path, capsys):
    files = written(tmp_path, "eins\r\n\nzwei\ndrei\n", "one\nnone\n \nthree")
    pairs = read_parallel(*files)
    assert pairs["source"] == ["eins", "drei"] and pairs["target"] == ["one", "three"]
    assert pairs.lines == [1, 4]
    said = capsys.readouterr().err
    assert "a.de: left out 2 of 4 pairs" in said and "lines 2, 3" in said


def test_files_of_unequal_lengths_are_refused(tmp_path):
    files = written(tmp_path, "eins\nzwei\n", "one\n")
    with pytest.raises(DataError, match="must have as many lines as .*a.en, 1; has 2"):
        read_parallel(*files)


def test_files_without_a_pair_are_refused(tmp_path):
    files = written(tmp_path, "eins\n \n", "\ntwo\n")
    with pytest.raises(NoRowsError, match="no pair with a source and a target"):
        read_parallel(*files)


def test_an_empty_line_at_the_end_is_half_of_a_pair(tmp_path, capsys):
    files = written(tmp_path, "eins\nzwei\n\n", "one\ntwo\nthree\n")
    assert read_parallel(*files)["target"] == ["one", "two"]
    assert "left out 1 of 3 pairs" in capsys.readouterr().err
