"""The pages in a browser: they draw, without errors, on narrow and wide screens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import TOO_WIDE, needs_browser

from bert_keras.explained.words import Word
from bert_keras.explanations.attention import Attention, AttentionList
from bert_keras.explanations.embedding_map import EmbeddingMap
from bert_keras.explanations.explanation import Explanation, Explanations

pytestmark = needs_browser()


def some_attention(pair: bool = True) -> Attention:
    """Return two layers, three heads and five tokens; heads look at token `head`."""
    random = np.random.default_rng(0)
    p = np.full((2, 3, 5, 5), 0.05)
    for head in range(3):
        p[:, head, :, head] = 0.8
    vectors = random.normal(size=(2, 3, 5, 8))
    return Attention(
        ("[CLS]", "<b>win</b>", "[SEP]", "extraordinarily", "[SEP]"),
        np.array([0, 0, 0, 1, 1]) * int(pair),
        p,
        vectors,
        vectors,
    )


@pytest.mark.parametrize("width", [400, 1400])
def test_attention_is_drawn(show: Callable[..., Any], width: int) -> None:
    page = show(AttentionList([some_attention(), some_attention(False)]).page(), width)
    assert page.evaluate(TOO_WIDE) == []
    lines = page.locator("#view line")
    assert lines.count() > 50
    assert page.locator("#chips button").count() == 3
    page.locator("#view .token").nth(1).hover()
    assert page.locator("#view line").count() == 15  # of one token, in three heads
    shades = page.locator("#view rect[fill-opacity]").evaluate_all(
        "(all) => all.map((each) => Number(each.getAttribute('fill-opacity')))"
    )
    assert sorted(shades)[-3:] == pytest.approx([0.8] * 3, abs=0.01)
    page.locator("#chips button").nth(0).click()
    page.mouse.move(0, 0)
    assert page.locator("#chips button[aria-pressed=true]").count() == 2
    page.select_option("#filter", "AB")
    assert page.locator("#view line").count() == 2 * 3 * 2
    page.select_option("#text", "1")
    assert not page.locator("#filter").is_visible()
    page.click("[data-view=model]")
    assert page.locator("#view canvas").count() == 6
    assert page.evaluate(TOO_WIDE) == []
    page.locator("#view canvas").nth(5).click()
    assert page.locator("#layer").input_value() == "1"
    assert page.locator("#chips button[aria-pressed=true]").inner_text() == "2"
    page.click("[data-view=neurons]")
    assert page.locator("#view tbody tr").count() == 5
    page.locator("#view tbody th").nth(3).click()
    assert page.locator("#view tr.chosen th").inner_text() == "extraordinarily"
    assert page.evaluate(TOO_WIDE) == []


def test_a_notebook_shows_attention(show: Callable[..., Any]) -> None:
    page = show(f"<!DOCTYPE html><body>{some_attention()._repr_html_()}")
    frame = page.frame_locator("iframe")
    frame.locator("#view line").first.wait_for(state="attached")


@pytest.mark.parametrize("width", [400, 1400])
def test_a_map_reads_out_texts(show: Callable[..., Any], width: int) -> None:
    points = np.array([[0.0, 0.0], [1.0, 1.0], [0.5, 2.0]])
    made = EmbeddingMap(
        ("first", "<i>second</i>", "third"), points, ("a", "b", "a"), "pca"
    )
    page = show(made.page(), width)
    assert page.locator("#map circle").count() == 3
    page.locator("#map circle").nth(1).hover()
    assert page.locator("#tip").inner_text().split() == ["b", "<i>second</i>"]
    page.locator("#legend button").nth(0).click()
    assert page.locator("#map circle").count() == 1
    assert page.evaluate(TOO_WIDE) == []


@pytest.mark.parametrize("width", [400, 1400])
def test_words_have_colours(show: Callable[..., Any], width: int) -> None:
    text = "win extraordinarily-" + "long" * 40
    words = (Word("win", 0, 3, "text"), Word("extraordinarily", 4, 19, "text"))
    made = Explanation(
        texts={"text": text},
        words=words,
        targets=("spam",),
        against=("ham",),
        attributions=np.array([[1.5, -0.5]], "float32"),
        values=np.array([2.0]),
        baseline_values=np.array([1.0]),
        gaps=np.array([0.0]),
        steps=np.array([50]),
        unit="log-odds",
        answer={"label": "spam", "score": 0.9},
    )
    found = Explanations([made], method="integrated-gradients", baseline="pad")
    page = show(found.page(), width)
    assert page.locator(".text span.for").inner_text() == "win"
    assert page.locator(".bars th").all_inner_texts() == ["win", "extraordinarily"]
    note = page.locator(".head .note").inner_text()
    assert note.startswith(
        "log-odds 2.0000, without the words 1.0000; the words add up"
    )
    assert page.locator("details p").is_hidden()
    assert page.locator(".text span.against").get_attribute("title") == "-0.5000"
    background = "(each) => getComputedStyle(each).backgroundColor"
    assert "38, 132, 84" in page.locator(".text span.for").evaluate(background)
    assert page.evaluate(TOO_WIDE) == []
