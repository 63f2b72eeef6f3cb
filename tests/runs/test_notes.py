"""Notes: printed once, and collected by `collected` blocks."""

from __future__ import annotations

import concurrent.futures

import pytest

from bert_keras.runs import notes
from bert_keras.runs.notes import (
    collected,
    notes_so_far,
    prefixed,
    say,
    say_once,
    show,
)


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "_printed", set())


def test_a_block_collects_what_it_prints_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with collected() as outer:
        say("a")
        with collected() as inner:
            say("a")
            show("no note")
            say("b")
            assert notes_so_far() == ("a", "b")
        say("b")
    say("b")
    assert outer == inner == ["a", "b"]
    assert capsys.readouterr().err.split("\n") == ["a", "no note", "b", "b", ""]
    assert notes_so_far() == ()


def test_notes_of_a_silent_block_go_no_further(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with collected() as outer:
        with collected(shown=False) as silent, collected() as inner:
            say("a")
            say_once("b")
            show("no note")
        assert capsys.readouterr().err == "" and outer == []
        say("a")
        say_once("b")
    assert silent == inner == outer == ["a", "b"]
    assert capsys.readouterr().err == "a\nb\n"


def test_a_note_that_was_printed_before_is_collected(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(2):  # two calls of `train`
        with collected() as found:
            say_once("a")
            say_once("a")
        assert found == ["a"]
    assert capsys.readouterr().err == "a\n"


def test_an_error_shows_the_notes_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    with collected() as outer, pytest.raises(ValueError), collected(shown=False):
        say("a")
        raise ValueError
    assert outer == ["a"] and capsys.readouterr().err == "a\n"
    say("b")  # in no block
    assert outer == ["a"]


def test_notes_of_other_threads_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """A silent block of one thread does not silence the others."""
    with (
        collected(shown=False) as found,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        pool.submit(say, "a").result()
    assert found == [] and capsys.readouterr().err == "a\n"


def test_a_prefix_is_put_before_notes(capsys: pytest.CaptureFixture[str]) -> None:
    with collected() as found, prefixed("model: "):
        say("a")
    assert found == ["model: a"] and capsys.readouterr().err == "model: a\n"
