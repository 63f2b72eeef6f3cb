"""Make `marks.json`: strings rich in combining marks, with ids and offsets.

    python tests/goldens/make_marks_golden.py

The results are those of the `tokenizers` library. The fuzz test also uses `mark_texts`.
"""

from __future__ import annotations

import json
import pathlib
import random
import sys

import tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bert_keras.text import characters  # noqa: E402

KEPT = [chr(c) for a, b in characters.KEPT_MARKS for c in range(a, b + 1)]
ACCENTS = [chr(c) for a, b in characters.MARKS for c in range(a, b + 1)]
DROPPED = [chr(c) for pair in characters.DELETED for c in pair]
COMPOSED = [
    *map(chr, (*range(0xC0, 0x180), *range(0x1E00, 0x1F00))),
    *"\u0344\u0390\u0f73\u0f75\u0f81\u1f82\uac00\uac01\ufb2c",
    *"\U000110ab\U0001d15e\U0001d160\U0001d163\U0001d1bf",
]
# Marks of later Unicode versions, letters to the reference; one of class 0.
NEWER = [*"\u034f\u07fd\u0898\u09fe\u0d3b\u1ac0\u1d46\U00016ff0"]
LETTERS = [*"abuné ,.!世가豈\u3000\U0002f800", "[MASK]", "[SEP]"]
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "b", "e", "u", "n", "##a", "##b", "##e", "##u", "##n", ",", ".", "世"),
    *KEPT,
    *(f"##{mark}" for mark in KEPT),
]


def mark_texts(count: int, seed: int) -> list[str]:
    """Return random strings of letters and of marks of every combining class."""
    rng = random.Random(seed)
    kinds = (ACCENTS, KEPT, KEPT, COMPOSED, DROPPED, NEWER, LETTERS, LETTERS)
    return [
        "".join(rng.choice(rng.choice(kinds)) for _ in range(rng.randint(1, 14)))
        for _ in range(count)
    ]


def main() -> None:
    model = tokenizers.models.WordPiece(
        {token: i for i, token in enumerate(VOCABULARY)}, unk_token="[UNK]"
    )
    reference = tokenizers.Tokenizer(model)
    reference.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    reference.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    rows = []
    for text in mark_texts(400, seed=1):
        found = reference.encode(text)
        rows.append({"text": text, "ids": found.ids, "offsets": found.offsets})
    golden = {
        "tokenizers": tokenizers.__version__,
        "vocabulary": VOCABULARY,
        "rows": rows,
    }
    path = pathlib.Path(__file__).with_name("marks.json")
    path.write_text(json.dumps(golden, indent=None) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
