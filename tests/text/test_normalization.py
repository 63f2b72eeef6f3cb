"""Words of texts: marks in canonical order, as the reference has them."""

from __future__ import annotations

import json
from pathlib import Path

from bert_keras.text.tokenizer import WordPieceTokenizer

GOLDEN = Path(__file__).parents[1] / "goldens" / "marks.json"


def test_marks_come_in_canonical_order() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    tokenizer = WordPieceTokenizer(golden["vocabulary"])
    texts = [row["text"] for row in golden["rows"]]
    assert len(texts) == 400
    cells = tokenizer.tokenize_with_offsets(texts, unit="characters")
    assert tokenizer(texts).to_list() == cells[0].to_list()
    received = zip(*(tensor.to_list() for tensor in cells), strict=True)
    for row, (ids, starts, ends) in zip(golden["rows"], received, strict=True):
        assert ids == row["ids"], ascii(row["text"])
        offsets = [list(pair) for pair in zip(starts, ends, strict=True)]
        assert offsets == row["offsets"], ascii(row["text"])


def test_a_text_is_put_in_order_by_itself() -> None:
    # Each part is in a batch with others, with marks and without.
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    tokenizer = WordPieceTokenizer(golden["vocabulary"])
    rows = golden["rows"][:12]
    for row in rows:
        assert tokenizer([row["text"]]).to_list() == [row["ids"]]
        assert tokenizer(["é", row["text"], ""]).to_list()[1] == row["ids"]
