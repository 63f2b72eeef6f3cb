"""The example of a model is the first widget of its card."""

from __future__ import annotations

from pathlib import Path

import pytest

from bert_keras.serving.example import card_example


@pytest.mark.parametrize(
    ("metadata", "wanted"),
    [
        ("widget:\n- text: Wie geht es?\n- text: two", {"text": "Wie geht es?"}),
        (
            "widget:\n- text: one\n  text_pair: two\n  example_title: pair",
            {"text_a": "one", "text_b": "two", "example_title": "pair"},
        ),
        (
            "widget:\n- source_sentence: a\n  sentences: [b, c]",
            {"query": "a", "texts": "b\nc"},
        ),
        ("widget:\n- text: 3", {}),
        ("widget: text", {}),
        ("widget: [text", {}),
        ("license: mit", {}),
    ],
)
def test_the_first_example_of_a_card(
    tmp_path: Path, metadata: str, wanted: dict[str, str]
) -> None:
    card = f"---\n{metadata}\n---\n# A model\n"
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    assert card_example(tmp_path) == wanted


def test_a_folder_without_a_card_has_no_example(tmp_path: Path) -> None:
    assert card_example(tmp_path) == {}
    (tmp_path / "README.md").write_text("# A model\n", encoding="utf-8")
    assert card_example(tmp_path) == {}
