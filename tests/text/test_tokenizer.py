"""`WordPieceTokenizer` against the `tokenizers` library, goldens and its own rules."""

from __future__ import annotations

import functools
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from conftest import thorough
from goldens import make_marks_golden

from bert_keras.errors import CheckpointError, ConfigError
from bert_keras.text import characters
from bert_keras.text.tokenizer import WordPieceTokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
needs_data = pytest.mark.skipif(
    not (DATA / "vocab").is_dir(), reason=f"the released vocabularies are not in {DATA}"
)
RELEASED = {  # name: lower-cased
    "bert-base-uncased": True,
    "bert-base-cased": False,
    "bert-base-multilingual-cased": False,
    "bert-base-chinese": True,
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Odd tokens included: inner punctuation, a lone `##`, what no text can yield.
SMALL = [
    *SPECIAL,
    *"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,'#[]-_éñσςßıİ一世𠀀가",
    *(
        f"##{c}"
        for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    ),
    *(
        "un",
        "##want",
        "##ed",
        "run",
        "##ning",
        "don't",
        "##'",
        "##",
        "",
        "a b",
        "\x00c",
    ),
    *("[unused1]", "x\u200d", "\u302e", "##\u302e", "##\u0301", "ᄀ", "##ᅡ", "##ᆨ"),
    *("##é", "##σ", "##ς", "##一", "\ufffd", "\u00a0", "\ue000", "##\uf8ff", "\uf8ff"),
]
# (text, why it is here)
TORTURE = [
    ("", "empty"),
    (" \t\r\n", "white space alone"),
    ("UNwantéd,running", "Google's own example"),
    ("A\x00B\x07C\x7fD\x85E\x0bF\x0cG", "controls are dropped, not spaces"),
    ("a\u00a0b\u2028c\u3000d\u1680e\u200bf\ufeffg\u00adh", "Unicode spaces, formats"),
    ("a\ufffdb\ue000c\uf8ffd\U000f0000e\U0010ffffg", "private use, a non-character"),
    ("ΑΣ ΣΑΣ, ΟΔΥΣΣΕΥΣ", "final sigma"),
    ("İIıi ẞßﬁ ² ½ … ™ Å K Ω", "case and compatibility forms"),
    ("e\u0301\u0323 e\u0323\u0301 a\u302e\u0591\u1abf\u302f\u07fd", "order of marks"),
    ("가각힣 \u1100\u1161\u11a8 ㄱ", "Hangul"),
    ("한국어とカタカナ、中文abc中文\u2b820豈\U0002f800\U0002b820\U0002b920", "CJK"),
    ("👨\u200d👩\u200d👧 ❤\ufe0f 🏳\ufe0f\u200d🌈 🇩🇪", "emoji sequences"),
    ("नमस्ते ภาษาไทย עִבְרִית العَرَبِيَّة தமிழ்", "scripts with marks"),
    (
        "[MASK] a[MASK]b [mask] [[CLS]] [SEP][SEP] [MA\u200dSK] [UN\u0301K] [PAD",
        "specials",
    ),
    ("é[MASK]é ##ed ##a #", "specials beside accents, hashes"),
    ("\u037e ≠ ≮ \u1fef \u2000 \u0340", "decompose to punctuation or space"),
    ("\u1d15e\u1d165 \U0001d15e\U0001d164 \u0bca", "decompose to several"),
    ("don't wo-rk_a`b^c~d$e+f<g=h>i|j", "ASCII punctuation"),
    *(
        ("a" * n + s, f"{n} characters")
        for n in (99, 100, 101, 401)
        for s in ("", "é", "-")
    ),
    *(("é" * n + " x", f"{n} accented") for n in (99, 100, 101, 401)),
    *(("𝐀" * n, f"{n} characters of 4 bytes") for n in (99, 100, 101)),
    *(
        ("a" * 99 + "\u0301\u200d" * 5 + s, "marks do not count")
        for s in ("", "b", "bc")
    ),
    ("\U00011938\u1c89\ua7cb\ua7dc\U00010d50\U00016ea0\u2c2f", "newer Unicode"),
]
# Marks which the reference's old Unicode does not know as accents stay in words, in
# canonical order with the marks around them. Here the second goes before the first.
REORDERED = "\u1dea\u1baa\u1d46"
BROKEN = [  # not UTF-8
    b"a\xffb",
    b"\xef\xbb\xbfbom",
    b"cut \xe4\xb8",
    b"surrogate \xed\xa0\x80 x",
    b"over\xc0\x80long",
    b"high \xf4\x90\x80\x80.",
    b"\x80\x80\x80",
    b"\xf0\x9f\x98ok\xf0\x9f\x98\x80",
]


def reference(
    vocabulary: list[str],
    *,
    lowercase: bool = True,
    parse: bool = False,
    strip_accents: bool | None = None,
    chinese: bool = True,
    most: int = 100,
) -> tokenizers.Tokenizer:
    """Return the tokenizer of the `tokenizers` library that ours must equal."""
    model = tokenizers.models.WordPiece(
        {token: i for i, token in enumerate(vocabulary)},
        unk_token="[UNK]",
        max_input_chars_per_word=most,
    )
    result = tokenizers.Tokenizer(model)
    result.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=chinese,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    result.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    if parse:
        result.add_special_tokens(
            [
                tokenizers.AddedToken(token, special=True, normalized=False)
                for token in SPECIAL
            ]
        )
    return result


@functools.cache
def released(name: str) -> list[str]:
    path = DATA / "vocab" / f"{name}-vocab.txt"
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


@functools.cache
def small(**settings) -> WordPieceTokenizer:
    return WordPieceTokenizer(SMALL, **settings)


def graph(tokenizer: WordPieceTokenizer):
    spec = [tf.TensorSpec([None], tf.string)]
    return tf.function(tokenizer.__call__, input_signature=spec, autograph=False)


def differing(ours, theirs: tokenizers.Tokenizer, texts: list[str]) -> list[str]:
    """Return the texts whose ids differ."""
    wrong = []
    for i in range(0, len(texts), 4096):
        batch = texts[i : i + 4096]
        expected = theirs.encode_batch_fast(batch, add_special_tokens=False)
        received = ours(tf.constant(batch, tf.string))
        values, splits = received.values.numpy(), received.row_splits.numpy()
        for text, row, first, last in zip(
            batch, expected, splits[:-1], splits[1:], strict=True
        ):
            if row.ids != values[first:last].tolist():
                wrong.append(text)
    return wrong


@functools.cache
def fuzz(count: int, *, seed: int) -> list[str]:
    """Return mixed strings: scripts, marks, controls, specials, long words."""
    rng = random.Random(seed)
    marks = [chr(c) for f, last in characters.MARKS for c in range(f, last + 1)]
    blocks = [
        (0x20, 0x7E), (0x20, 0x7E), (0x00, 0xFF), (0x100, 0x24F), (0x300, 0x36F),
        (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xFFF),
        (0x1100, 0x11FF), (0x1AB0, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x2BFF),
        (0x3000, 0x33FF), (0x4E00, 0x4FFF), (0xAC00, 0xAD00), (0xD7A0, 0xD7FF),
        (0xE000, 0xE010), (0xF8F0, 0xFFFF), (0x10000, 0x107FF), (0x10D00, 0x11FFF),
        (0x1D100, 0x1D1FF), (0x1F300, 0x1F9FF), (0x20000, 0x20100),
        (0x2A6D0, 0x2A710), (0x2B730, 0x2B930), (0x2F800, 0x2FA20),
        (0xE0000, 0xE01FF), (0x10FFF0, 0x10FFFF), (0, 0x10FFFF),
    ]  # fmt: skip
    words = (
        "the quick Brown FOX jumps-over can't naïve Übergröße Ελλάς привет Ёлка "
        "שָׁלוֹם مرحبا नमस्ते ประเทศไทย 日本語テキスト 中文 한국어 👨‍👩‍👧 ﬁn ＡＢＣ x² "
        "[MASK] [SEP] [CLS]a ##ing hi, world. don't $5.00 e\u0301te\u0301 I\u0307 ΣΑΣ"
    ).split()

    def piece() -> str:
        kind = rng.random()
        if kind < 0.35:
            return rng.choice(words)
        if kind < 0.6:
            first, last = rng.choice(blocks)
            codes = (rng.randint(first, last) for _ in range(rng.randint(1, 6)))
            return "".join(chr(c) for c in codes if not 0xD800 <= c < 0xE000)
        if kind < 0.7:
            return rng.choice("aeioucñß가σ") + "".join(rng.choices(marks, k=3))
        if kind < 0.72:
            return rng.choice("aéж字𝐀ก") * rng.randint(97, 104)
        if kind < 0.78:
            return rng.choice(SPECIAL)
        return rng.choice(
            [" ", " ", " ", " ", "\t", "\n", "\x00", "\u200d", "\u00a0", "\u3000", "-"]
        )

    return ["".join(piece() for _ in range(rng.randint(1, 12))) for _ in range(count)]


def in_context(codes) -> list[str]:
    """Return each character alone, in a word, between spaces and after an accent.

    From U+3000 on, sixteen in one text: no character there changes the code path.
    """
    forms = [
        (chr(c), f"a{chr(c)}b", f"a {chr(c)} b", f"é{chr(c)}B.")
        for c in codes
        if not 0xD800 <= c < 0xE000
    ]
    short = [text for texts in forms if texts[0] < "\u3000" for text in texts]
    rest = [text for texts in forms if texts[0] >= "\u3000" for text in texts]
    return short + [" ".join(rest[i : i + 64]) for i in range(0, len(rest), 64)]


# Ids


@pytest.mark.parametrize(
    ("lowercase", "strip_accents", "parse"),
    [
        (True, None, False),
        (True, None, True),
        (False, None, False),
        (False, None, True),
        (True, False, True),
        (False, True, False),
    ],
)
def test_ids_equal_the_reference(lowercase, strip_accents, parse):
    ours = small(
        lowercase=lowercase,
        strip_accents=strip_accents,
        special_tokens_in_text="parse" if parse else "literal",
    )
    theirs = reference(
        SMALL, lowercase=lowercase, strip_accents=strip_accents, parse=parse
    )
    texts = [text for text, _ in TORTURE] + fuzz(600, seed=3)
    assert differing(graph(ours), theirs, texts) == []


def test_ids_without_chinese_characters_set_apart():
    ours = small(tokenize_chinese_chars=False)
    theirs = reference(SMALL, chinese=False)
    texts = [text for text, _ in TORTURE] + fuzz(500, seed=4)
    assert differing(graph(ours), theirs, texts) == []


@pytest.mark.parametrize("most", [1, 7, 200])
def test_ids_with_another_limit_of_word_length(most):
    ours = small(max_word_characters=most)
    words = [c * n for c in ("a", "é", "𐀀") for n in (most - 1, most, most + 1)]
    assert differing(graph(ours), reference(SMALL, most=most), words) == []


def test_hand_computed_ids():
    vocabulary = [*SPECIAL, "un", "##want", "##ed", ",", "run", "##ning", "世"]
    tokenizer = WordPieceTokenizer(vocabulary)
    ids = tokenizer(["UNwant\u00e9d,running", "", "世unwant\u0000ed[MASK]"])
    assert ids.dtype == tf.int32
    assert ids.to_list() == [[5, 6, 7, 8, 9, 10], [], [11, 5, 6, 7, 1, 1, 1]]


@needs_data
@pytest.mark.parametrize("name", RELEASED)
def test_released_vocabularies(name):
    vocabulary, lowercase = released(name), RELEASED[name]
    parse = "uncased" in name or "multilingual" in name  # the rest: slow tests
    ours = WordPieceTokenizer(
        vocabulary,
        lowercase=lowercase,
        special_tokens_in_text="parse" if parse else "literal",
    )
    theirs = reference(vocabulary, lowercase=lowercase, parse=parse)
    texts = [text for text, _ in TORTURE] + fuzz(300, seed=5)
    assert differing(graph(ours), theirs, texts) == []


@pytest.mark.thorough
@needs_data
@pytest.mark.parametrize("name", RELEASED)
def test_every_code_point(name):
    vocabulary, lowercase = released(name), RELEASED[name]
    ours = graph(WordPieceTokenizer(vocabulary, lowercase=lowercase))
    theirs = reference(vocabulary, lowercase=lowercase)
    whole = "multilingual" in name
    for first in range(0, 0x110000, 0x8000):
        # Planes 4 to 13 are unassigned: one vocabulary sees all of them.
        step = 1 if whole or not 0x40000 <= first < 0xE0000 else 61
        texts = in_context(range(first, first + 0x8000, step))
        assert differing(ours, theirs, texts) == []


def fuzzed():
    """Return vocabularies and modes; one in `make test`, the rest is thorough."""
    slow = ("bert-base-multilingual-cased", "parse")
    return [
        pytest.param(
            *case, marks=pytest.mark.slow if case == slow else pytest.mark.thorough
        )
        for case in itertools.product(RELEASED, ("literal", "parse"))
    ]


@needs_data
@pytest.mark.parametrize(("name", "parse"), fuzzed())
def test_fuzz_of_100_000(name, parse):
    vocabulary, lowercase = released(name), RELEASED[name]
    ours = WordPieceTokenizer(
        vocabulary, lowercase=lowercase, special_tokens_in_text=parse
    )
    theirs = reference(vocabulary, lowercase=lowercase, parse=parse == "parse")
    assert differing(graph(ours), theirs, fuzz(100_000, seed=6)) == []


@pytest.mark.thorough
def test_characters_are_those_of_the_reference():
    script = ROOT / "tests" / "goldens" / "find_characters.py"
    subprocess.run([sys.executable, script, "--check"], check=True)


def test_mixed_batches_keep_their_order():
    tokenizer = small()
    texts = ["un", "é", "", "run x", "世", "a b", "\x00", "é é"]
    whole = tokenizer(texts).to_list()
    assert whole == [tokenizer([text]).to_list()[0] for text in texts]
    assert whole[::-1] == tokenizer(texts[::-1]).to_list()


@pytest.mark.parametrize("lowercase", [True, False])
def test_bytes_that_are_not_utf8(lowercase):
    tokenizer = small(lowercase=lowercase)
    expected = reference(SMALL, lowercase=lowercase).encode_batch(
        [text.decode("utf-8", "replace") for text in BROKEN]
    )
    texts = tf.constant(BROKEN)
    assert tokenizer(texts).to_list() == [row.ids for row in expected]
    ids, starts, ends = offsets(tokenizer, texts)
    assert ids == [row.ids for row in expected]
    for row, first, last in zip(expected, starts, ends, strict=True):
        assert list(zip(first, last, strict=True)) == row.offsets


def test_empty_batches_and_strings():
    tokenizer = small(special_tokens_in_text="parse")
    assert tokenizer([]).to_list() == []
    assert tokenizer(["", " ", "\u200d", "\u3000"]).to_list() == [[]] * 4
    assert graph(tokenizer)(tf.constant([], tf.string)).shape[0] == 0
    for cells in tokenizer.tokenize_with_offsets(["", "\u0301"]):
        assert cells.to_list() == [[], []]
    assert tokenizer(["lone \ud800 un"]).to_list() == tokenizer(["lone un"]).to_list()


@pytest.mark.slow
def test_a_megabyte_among_short_texts():
    # Memory of texts x longest text would be tens of GB here.
    tokenizer = small()
    long = ["é" * 500_000, "ab " * 333_333 + "é", "a" * 1_000_000, "가" * 350_000]
    ids = graph(tokenizer)(tf.constant([*long, *["un é"] * 2000]))
    lengths = ids.row_lengths().numpy()
    assert lengths[:4].tolist() == [1, 2 * 333_333 + 1, 1, 1]
    assert set(lengths[4:].tolist()) == {2}
    _, starts, ends = tokenizer.tokenize_with_offsets([*long, *["un é"] * 2000])
    assert (starts[0].numpy(), ends[0].numpy()) == ([0], [1_000_000])
    assert ends[-1].numpy().tolist() == [2, 5]


# Offsets


def offsets(tokenizer, texts, unit="characters"):
    cells = tokenizer.tokenize_with_offsets(texts, unit=unit)
    return [tensor.to_list() for tensor in cells]


@pytest.mark.parametrize(
    ("text", "surfaces"),
    [
        ("Ünïcode", ["Ün", "ïcode"]),
        ("a\x00b c\u200d", ["a\x00b", "c"]),
        ("世界x", ["世", "界", "x"]),
        ("x👨\u200d👩x ab", ["x👨\u200d👩x", "ab"]),
        ("ＡＢ ab", ["ＡＢ", "ab"]),
        ("[MASK]ab[SEP]", ["[MASK]", "ab", "[SEP]"]),
        ("e\u0301x\u0301 ab", ["e\u0301x", "ab"]),
    ],
)
def test_offsets_give_the_surface(text, surfaces):
    vocabulary = [*SPECIAL, "un", "##icode", "ab", "世", "x", "ex", "ᄀ", "##ᅡ"]
    tokenizer = WordPieceTokenizer(vocabulary, special_tokens_in_text="parse")
    _, starts, ends = offsets(tokenizer, [text])
    spans = list(zip(starts[0], ends[0], strict=True))
    assert [text[start:end] for start, end in spans] == surfaces
    _, starts, ends = offsets(tokenizer, [text], unit="bytes")
    whole = text.encode()
    spans = zip(starts[0], ends[0], strict=True)
    assert [whole[start:end].decode() for start, end in spans] == surfaces


def test_pieces_of_one_character_share_its_offsets():
    tokenizer = WordPieceTokenizer([*SPECIAL, "ᄀ", "##ᅡ", "##x"])
    assert offsets(tokenizer, ["가x"]) == [[[5, 6, 7]], [[0, 0, 1]], [[1, 1, 2]]]


@pytest.mark.parametrize("parse", ["literal", "parse"])
@pytest.mark.parametrize("lowercase", [True, False])
def test_offsets_equal_the_reference(lowercase, parse):
    tokenizer = small(lowercase=lowercase, special_tokens_in_text=parse)
    theirs = reference(SMALL, lowercase=lowercase, parse=parse == "parse")
    texts = [text for text, _ in TORTURE] + fuzz(1000, seed=8)
    expected = theirs.encode_batch(texts)
    ids, starts, ends = offsets(tokenizer, texts)
    assert ids == tokenizer(texts).to_list()
    for text, row, first, last in zip(texts, expected, starts, ends, strict=True):
        assert list(zip(first, last, strict=True)) == row.offsets, ascii(text)
    byte_ids, byte_starts, byte_ends = offsets(tokenizer, texts, unit="bytes")
    assert byte_ids == ids
    for received, characters_ in ((byte_starts, starts), (byte_ends, ends)):
        for text, row, places in zip(texts, received, characters_, strict=True):
            assert row == [len(text[:place].encode()) for place in places]


def test_offsets_of_reordered_marks():
    tokenizer = small()
    ids, starts, ends = offsets(tokenizer, [REORDERED])
    assert ids == [reference(SMALL).encode(REORDERED).ids]
    assert (starts, ends) == ([[0]], [[3]])


@pytest.mark.parametrize("parse", ["literal", "parse"])
def test_fuzz_of_marks(parse):
    vocabulary = make_marks_golden.VOCABULARY
    tokenizer = WordPieceTokenizer(vocabulary, special_tokens_in_text=parse)
    texts = make_marks_golden.mark_texts(1000, seed=12)
    expected = reference(vocabulary, parse=parse == "parse").encode_batch(texts)
    for text, row, *found in zip(
        texts, expected, *offsets(tokenizer, texts), strict=True
    ):
        ids, starts, ends = found
        assert ids == row.ids, ascii(text)
        assert list(zip(starts, ends, strict=True)) == row.offsets, ascii(text)


# Goldens


@needs_data
@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-cased"])
def test_google_tokenization_py(name):
    """790 texts through Google's own code, whose word limit is 200 characters."""
    known = {  # where `tokenizers`, and so we, differ from Google's code
        "Σίσυφος ΟΔΟΣ": "Python's lower() has a rule for a final sigma",
        "\U00020000\U0002a6d6\U0002b740\U0002b820\U0002ceb0": (
            "the reference's CJK block starts at U+2B920, Google's at U+2B820"
        ),
        "\ue000private": "the reference drops private-use characters",
    }
    if not RELEASED[name]:
        known.pop("Σίσυφος ΟΔΟΣ")
    path = DATA / "golden_tokenization" / f"{name}.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    tokenizer = WordPieceTokenizer(
        released(name), lowercase=RELEASED[name], max_word_characters=200
    )
    received = tokenizer([row["text"] for row in rows]).to_list()
    different = {
        row["text"]
        for row, ids in zip(rows, received, strict=True)
        if row["ids"] != ids
    }
    assert len(rows) == 790
    assert different == set(known)


@needs_data
def test_google_unit_cases():
    path = DATA / "golden_tokenization" / "google_unit_cases.json"
    golden = json.loads(path.read_text("utf-8"))
    for case in golden["cases"]:
        lowercase = case.get("do_lower_case", False)
        if case["kind"] == "basic":  # words, not pieces: each word is a token here
            words = case["tokens"]
        else:
            words = case["vocab"]
        vocabulary = [*words, *(token for token in SPECIAL if token not in words)]
        tokenizer = WordPieceTokenizer(vocabulary, lowercase=lowercase)
        tokens = tokenizer.ids_to_tokens(tokenizer([case["text"]]))
        assert [t.decode() for t in tokens.to_list()[0]] == case["tokens"]
    codes = {
        "is_whitespace": characters.SPACES,
        "is_control": characters.DELETED,
        "is_punctuation": characters.PUNCTUATION,
    }
    for kind, ranges in codes.items():
        for answer, texts in golden[kind].items():
            for text in texts:
                inside = any(first <= ord(text) <= last for first, last in ranges)
                assert inside == (answer == "true"), (kind, ascii(text))


@needs_data
def test_published_cases():
    path = DATA / "golden_tokenization" / "published_cases.json"
    tokenizers_ = {
        name: WordPieceTokenizer(released(name), lowercase=RELEASED[name])
        for name in ("bert-base-uncased", "bert-base-multilingual-cased")
    }
    for case in json.loads(path.read_text("utf-8")):
        tokenizer = tokenizers_[case["vocab"]]
        tokens = tokenizer.ids_to_tokens(tokenizer([case["text"]]))
        assert [t.decode() for t in tokens.to_list()[0]] == case["tokens"]


@needs_data
def test_tf_text_cases():
    """The cases of tf-text's tests, except for options that BERT does not have:
    unused tokens kept whole, NFD that keeps the accents."""
    path = DATA / "golden_tokenization" / "tf_text_cases.json"
    golden = json.loads(path.read_text("utf-8"))
    vocabulary = list(golden["vocab"])
    vocabulary += [token for token in SPECIAL if token not in vocabulary]
    compared = 0
    for case in golden["test_bert_tokenizer"]:
        if case.get("preserve_unused_token"):
            continue
        tokenizer = WordPieceTokenizer(
            vocabulary, lowercase=case.get("lower_case", False)
        )
        tokens = tokenizer.ids_to_tokens(tokenizer(case["text_inputs"])).to_list()
        for row, words in zip(tokens, case["expected"], strict=True):
            assert [t.decode() for t in row] == [t for word in words for t in word]
            compared += 1
    for case in golden["test_basic_tokenize"]:
        if case.get("normalization_form") == "NFD":
            continue
        for text, words in zip(
            case["text_inputs"], case["expected_tokens"], strict=True
        ):
            tokenizer = WordPieceTokenizer(
                [*SPECIAL, *dict.fromkeys(words)],
                lowercase=case.get("lower_case", False),
            )
            tokens = tokenizer.ids_to_tokens(tokenizer([text])).to_list()[0]
            assert [t.decode() for t in tokens] == words
            compared += 1
    assert compared == 17


@needs_data
def test_tf_text_wordpiece_cases():
    """Cases without options; words with punctuation are several words to BERT."""
    path = DATA / "golden_tokenization" / "tf_text_wordpiece_cases.json"
    golden = json.loads(path.read_text("utf-8"))
    compared = 0
    for case in golden["testWordPieceOpAndVerifyOffsets"]:
        if set(case) - {"tokens", "expected_subwords", "vocab", "token_out_type"}:
            continue
        if case.get("token_out_type") not in (None, "string"):
            continue
        vocabulary = [*golden["vocabs"][case["vocab"]], *SPECIAL]
        tokenizer = WordPieceTokenizer(vocabulary, lowercase=False)
        for words, expected in zip(
            case["tokens"], case["expected_subwords"], strict=True
        ):
            for word, pieces in zip(words, expected, strict=True):
                if not word.isalpha():
                    continue
                tokens = tokenizer.ids_to_tokens(tokenizer([word])).to_list()[0]
                assert [t.decode() for t in tokens] == pieces
                compared += 1
    assert compared >= 30


# Settings and files


@pytest.mark.parametrize("missing", ["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
def test_required_tokens(missing):
    with pytest.raises(ConfigError, match=rf"must hold \{missing[:-1]}"):
        WordPieceTokenizer([token for token in SPECIAL if token != missing])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"vocabulary": [*SPECIAL, "a", "a"]}, "each token once; received 'a' as 5"),
        ({"vocabulary": [*SPECIAL, 3]}, "must hold strings; received 3"),
        ({"vocabulary": [*SPECIAL, "a" * 257]}, "at most 256 bytes"),
        ({"vocabulary": [*SPECIAL, "\ud800"]}, "Unicode text"),
        (
            {"vocabulary": SPECIAL, "special_tokens_in_text": "no"},
            "one of literal, parse",
        ),
        ({"vocabulary": SPECIAL, "max_word_characters": 0}, "from 1 to 1000000"),
    ],
)
def test_settings_out_of_range(settings, message):
    with pytest.raises(ConfigError, match=message):
        WordPieceTokenizer(**settings)


@pytest.mark.parametrize("texts", [None, [["nested"]], [1, 2], tf.constant([["a"]])])
def test_texts_must_be_a_list_of_strings(texts):
    with pytest.raises(ConfigError, match="`texts` must be"):
        WordPieceTokenizer(SPECIAL)(texts)


def test_unit_must_be_known():
    with pytest.raises(ConfigError, match="`unit` must be one of bytes, characters"):
        WordPieceTokenizer(SPECIAL).tokenize_with_offsets(["a"], unit="words")


def test_special_ids():
    tokenizer = WordPieceTokenizer(["a", "[SEP]", "[CLS]", "[UNK]", "[PAD]"])
    received = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id)
    assert received == (4, 3, 2, 1)
    assert tokenizer.mask_id is None
    assert tokenizer.vocab_size == 5


def test_config_round_trip():
    tokenizer = small(
        lowercase=False, special_tokens_in_text="parse", max_word_characters=200
    )
    config = json.loads(json.dumps(tokenizer.get_config()))
    again = WordPieceTokenizer.from_config(config)
    assert again.get_config() == tokenizer.get_config()
    text = ["É [MASK] un世", "a" * 150]
    assert again(text).to_list() == tokenizer(text).to_list()


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [None, True, False])
def test_folder_round_trip(tmp_path, lowercase, strip_accents):
    tokenizer = small(
        lowercase=lowercase,
        strip_accents=strip_accents,
        tokenize_chinese_chars=False,
        special_tokens_in_text="parse",
    )
    tokenizer.save(tmp_path / "new")
    again = WordPieceTokenizer.from_folder(tmp_path / "new")
    assert again.get_config() == tokenizer.get_config()
    assert not again.notes
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["tokenizer_config.json", "vocab.txt"]


def test_a_line_break_in_a_token_is_not_saved(tmp_path):
    with pytest.raises(ConfigError, match="cannot hold the token"):
        WordPieceTokenizer([*SPECIAL, "a\nb"]).save(tmp_path)


def test_folder_of_tokenizer_json(tmp_path):
    theirs = reference(SMALL, lowercase=False, strip_accents=True, most=50)
    theirs.add_tokens(["[EXTRA]"])
    theirs.save(str(tmp_path / "tokenizer.json"))
    tokenizer = WordPieceTokenizer.from_folder(tmp_path)
    assert tokenizer.vocabulary == (*SMALL, "[EXTRA]")
    assert tokenizer.tokenize("a [EXTRA]") == ["a", "[EXTRA]"]
    assert (tokenizer.lowercase, tokenizer.strip_accents) == (False, True)
    assert tokenizer.max_word_characters == 50
    assert not tokenizer.notes
    config = {"do_lower_case": True, "strip_accents": None}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = WordPieceTokenizer.from_folder(tmp_path, special_tokens_in_text="parse")
    assert (tokenizer.lowercase, tokenizer.strip_accents) == (True, True)
    assert tokenizer.special_tokens_in_text == "parse"


def test_strip_accents_of_tokenizer_json_alone_is_not_used_as_in_transformers(tmp_path):
    theirs = reference(SMALL, lowercase=False, strip_accents=True)
    theirs.save(str(tmp_path / "tokenizer.json"))
    config = {"do_lower_case": False, "tokenizer_class": "BertTokenizer"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = WordPieceTokenizer.from_folder(tmp_path)
    assert not tokenizer.strip_accents
    assert "strip_accents=True of tokenizer.json is not used" in tokenizer.notes[0]
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert WordPieceTokenizer.from_folder(tmp_path).strip_accents


def test_the_last_of_equal_lines_counts(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "un", "a", "un", "b"]))
    tokenizer = WordPieceTokenizer.from_folder(tmp_path)
    assert tokenizer(["un b"]).to_list() == [[7, 8]]
    assert "'un', again in line 8" in tokenizer.notes[0]
    tokenizer.save(tmp_path / "again")
    again = WordPieceTokenizer.from_folder(tmp_path / "again")
    assert again(["un b"]).to_list() == [[7, 8]]


MARKS = [
    {"content": "[E1]", "special": True},
    {"content": "covid19", "normalized": True},
    {"content": "un", "normalized": False, "single_word": True},
    {"content": "<n>", "normalized": False, "lstrip": True, "rstrip": True},
]


def test_added_tokens_are_no_single_text():
    tokenizer = WordPieceTokenizer([*SPECIAL, "a", "b"])
    with pytest.raises(ConfigError, match="`tokens` must be a list .* received 'ab'"):
        tokenizer.add_tokens("ab")
    with pytest.raises(ConfigError, match="`added_tokens` must be a list"):
        WordPieceTokenizer(SPECIAL, added_tokens="ab")


def test_ids_of_arrays_and_tensors_have_tokens():
    tokenizer = WordPieceTokenizer([*SPECIAL, "a", "b"])
    for one in (5, np.int64(5), tf.constant(5), np.array(5)):
        assert tokenizer.id_to_token(one) == "a"
        assert tokenizer.decode([one, 6]) == "a b"
    with pytest.raises(ConfigError, match="`id` must be a whole number"):
        tokenizer.id_to_token(np.float32(5.5))


def test_hand_computed_added_tokens(tmp_path):
    tokenizer = WordPieceTokenizer(
        [*SPECIAL, "a", "un", "##ning", "run", "##un", "<", ">", "n"],
        added_tokens=MARKS,
    )
    e1, covid, mark = 13, 14, 15  # after the vocabulary, which has `un`
    texts = ["[E1] a COVID19", "[e1]a", "unun un", "run", "a <n>  a<n>", "UN covid190"]
    wanted = [
        [e1, 5, covid],
        [1, 1, 1, 5],
        [6, 9, 6],
        [8],
        [5, mark, 5, mark],
        [6, covid, 1],
    ]
    assert tokenizer(texts).to_list() == wanted
    ids, starts, ends = tokenizer.tokenize_with_offsets(texts[4])
    assert starts.numpy().tolist() == [0, 1, 7, 8]
    assert ends.numpy().tolist() == [1, 7, 8, 11]
    assert tokenizer.decode([e1, 5, covid]) == "a covid19"
    assert len(tokenizer) == 16
    tokenizer.save(tmp_path)
    again = WordPieceTokenizer.from_folder(tmp_path)
    assert again.get_config() == tokenizer.get_config()
    assert WordPieceTokenizer(**again.get_config())(texts).to_list() == wanted


def test_stale_files_of_another_tokenizer_are_removed(tmp_path):
    vocabulary = [*SPECIAL, "a", "b"]
    reference(vocabulary).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "added_tokens.json").write_text('{"a b": 7}')
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "b"}')
    new = WordPieceTokenizer([*vocabulary, "c"]).add_tokens(["d"])
    with pytest.warns(UserWarning, match="removed tokenizer.json, added_tokens.json, "):
        new.save(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "vocab.txt",
        "tokenizer_config.json",
    }
    again = WordPieceTokenizer.from_folder(tmp_path)
    assert again.get_config() == new.get_config()
    new.save(tmp_path)  # without a warning
    preset = tmp_path / "assets" / "tokenizer"
    preset.mkdir(parents=True)
    (preset / "vocabulary.txt").write_text("a")
    with pytest.raises(CheckpointError, match="KerasHub preset, whose own vocabulary"):
        new.save(tmp_path)


def test_tokens_added_to_a_tokenizer_get_the_next_ids():
    first = WordPieceTokenizer([*SPECIAL, "a", "x"], added_tokens=MARKS[:1])
    second = first.add_tokens(["x", "[E2]"], special=True)
    assert first(["[E2]"]).to_list() != second(["[E2]"]).to_list() == [[8]]
    assert second(["[E1]a[E2]X x"]).to_list() == [[7, 5, 8, 6, 6]]
    assert second.decode([7, 5, 8, 6]) == "a"
    with pytest.raises(ConfigError, match="'x' twice with other flags"):
        second.add_tokens(["x"])


@pytest.mark.parametrize("written", ["fast", "slow", "json", "never_split"])
def test_added_tokens_of_each_file(tmp_path, written):
    vocabulary = [*SPECIAL, "a", "[outline]"]
    more = {"[E1]": 7, "x1": 8}
    theirs = reference(vocabulary)
    theirs.add_special_tokens(["[outline]", "[E1]"])
    theirs.add_tokens(["x1"])
    config = {"do_lower_case": True}
    if written == "never_split":
        config["never_split"] = ["[outline]"]
    if written == "fast":
        config["added_tokens_decoder"] = {
            "6": {"content": "[outline]", "special": True},
            "8": {"content": "x1", "normalized": False},
            "7": {"content": "[E1]", "special": True},
        }
    if written in ("slow", "never_split"):
        config["additional_special_tokens"] = ["[outline]", {"content": "[E1]"}]
        (tmp_path / "added_tokens.json").write_text(json.dumps(more))
    if written in ("fast", "json"):
        theirs.save(str(tmp_path / "tokenizer.json"))
    if written != "json":
        (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = WordPieceTokenizer.from_folder(tmp_path)
    assert tokenizer(["[outline] [E1]a x1"]).to_list() == [[6, 7, 5, 8]]
    assert not tokenizer.notes
    assert tokenizer.decode([6, 7, 5, 8]) == "a x1"


@pytest.mark.parametrize("parse", ["literal", "parse"])
@pytest.mark.parametrize(
    "flag",
    ["mixed", *map(thorough, ("plain", "single_word", "lstrip", "rstrip"))],
)
def test_added_tokens_equal_the_reference(parse, flag):
    rng = random.Random(f"{parse} {flag}")
    contents = (
        "[E1] Covid19 run runrun nn Éa a世 don't _ un ##ed Σ . e\u0301 a\u00a0b İ"
    )
    tokens = [
        tokenizers.AddedToken(
            content.replace("\u00a0", " "),
            normalized=rng.random() < 0.5,
            special=rng.random() < 0.5,
            **{
                name: flag == name or (flag == "mixed" and rng.random() < 0.5)
                for name in ("single_word", "lstrip", "rstrip")
            },
        )
        for content in contents.split(" ")
    ]
    theirs = reference(SMALL, parse=parse == "parse")
    for token in tokens:
        (theirs.add_special_tokens if token.special else theirs.add_tokens)([token])
    names = ("content", "special", "single_word", "lstrip", "rstrip", "normalized")
    ours = small_with_added(
        [{name: getattr(token, name) for name in names} for token in tokens], parse
    )
    more = "\u0301 [MASK] RUN x1 covid E é ÉA 世 \u3000 \t \x00 \u302e [SEP] ﬁ Ω".split(
        " "
    )
    pieces = [*(token.content for token in tokens), *more, " ", "  ", *"aBc1-"]
    texts = ["".join(rng.choices(pieces, k=rng.randrange(12))) for _ in range(1000)]
    assert differing(graph(ours), theirs, texts) == []


@pytest.mark.parametrize(
    "name", ["course", "quicktour", "digits", "uncleaned", "nfkc", "words", "spaces"]
)
def test_normalizers_and_pre_tokenizers_of_tokenizer_json(tmp_path, name):
    from tokenizers import normalizers, pre_tokenizers

    n, p = normalizers, pre_tokenizers
    stripped = [n.NFD(), n.Lowercase(), n.StripAccents()]
    kinds = {
        "course": (
            n.Sequence(stripped),
            p.Sequence([p.WhitespaceSplit(), p.Punctuation()]),
        ),
        "quicktour": (n.Sequence(stripped), p.Whitespace()),
        "digits": (
            n.Sequence([n.Replace("_", "xy"), n.BertNormalizer(strip_accents=False)]),
            p.Sequence([p.Whitespace(), p.Digits(individual_digits=True)]),
        ),
        "uncleaned": (n.BertNormalizer(clean_text=False), p.BertPreTokenizer()),
        "nfkc": (n.Sequence([n.NFKC(), *stripped]), p.WhitespaceSplit()),
        "words": (n.BertNormalizer(), p.Whitespace()),
        "spaces": (n.BertNormalizer(), p.WhitespaceSplit()),
    }
    vocabulary = [token for token in SMALL if "\0" not in token]
    theirs = reference(vocabulary)
    theirs.normalizer, theirs.pre_tokenizer = kinds[name]
    theirs.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = WordPieceTokenizer.from_folder(tmp_path)
    odd = ["a_b 1½ ##ed ##", "日本 ａ\ufb01 x1y", "+1\x85\0a \U000f0000 \U0010fffd"]
    odd.append("a\u219bb a\u226eb \u302e")  # accents of other characters than letters
    texts = [*fuzz(2000, seed=5), *odd]
    assert differing(graph(ours), theirs, texts) == []
    ours.save(tmp_path / "again")
    again = WordPieceTokenizer.from_folder(tmp_path / "again")
    assert again.get_config() == ours.get_config()
    saved = tokenizers.Tokenizer.from_file(str(tmp_path / "again" / "tokenizer.json"))
    assert differing(graph(again), saved, texts[:100]) == []


def small_with_added(tokens, parse):
    return WordPieceTokenizer(SMALL, added_tokens=tokens, special_tokens_in_text=parse)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "BertJapaneseTokenizer"),
        ({"tokenizer_class": "AlbertTokenizerFast"}, "'AlbertTokenizer' does not"),
        ({"cls_token": "<s>"}, r"`cls_token` must be \[CLS\]; received '<s>'"),
        ({"added_tokens_decoder": {"9": {"content": "x"}}}, "'x' must have the id 7"),
        (
            {"added_tokens_decoder": {"7": {"lstrip": 1}}},
            "added tokens must be written",
        ),
        ("spiece.model", "spiece.model, SentencePiece"),
        ("▁pieces", "has the piece '▁한국'"),
        ({"normalizer": {"type": "NFKC"}}, "must not join characters; received NFKC"),
        ({"normalizer": {"type": "Prepend"}}, "must have steps .* received {'type'"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "must be one of BertPreTokenizer"),
        ({"pre_tokenizer": None}, "must split at white space"),
        ({"post_processor": {"type": "RobertaProcessing"}}, "`post_processor` must"),
    ],
)
def test_other_tokenizers_are_refused(tmp_path, files, message):
    vocabulary = [*SPECIAL, "a", "b"]
    if files == "▁pieces":
        vocabulary = [*SPECIAL, "▁한국", "어"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    if files == "spiece.model":
        (tmp_path / files).write_bytes(b"")
    if isinstance(files, dict) and list(files)[0].endswith(("zer", "processor")):
        theirs = json.loads(reference(vocabulary).to_str()) | files
        (tmp_path / "tokenizer.json").write_text(json.dumps(theirs))
    elif isinstance(files, dict):
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(files))
    with pytest.raises(CheckpointError, match=message) as caught:
        WordPieceTokenizer.from_folder(tmp_path)
    assert "\n" not in str(caught.value)


def test_settings_that_are_not_used_are_told(tmp_path):
    vocabulary = [*SPECIAL, "a", "b"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    place, whole = tmp_path / "tokenizer_config.json", tmp_path / "tokenizer.json"

    def told(**config):
        place.write_text(json.dumps({"do_lower_case": True, **config}))
        return "; ".join(WordPieceTokenizer.from_folder(tmp_path).notes)

    assert "not used" not in told(truncation_side="right", do_basic_tokenize=True)
    assert "truncation_side 'left' is not used: a text" in told(truncation_side="left")
    assert "do_basic_tokenize False is not used" in told(do_basic_tokenize=False)
    theirs = json.loads(reference(vocabulary).to_str())
    whole.write_text(json.dumps({**theirs, "padding": {"direction": "Left"}}))
    assert "padding_side 'left' is not used" in told()
    assert "not used" not in told(padding_side="right")


@pytest.mark.parametrize(("token", "lowercase"), [("un", True), ("Un", False)])
def test_lower_casing_is_guessed_from_the_vocabulary(tmp_path, token, lowercase):
    text = "\r\n".join([*SPECIAL, "<S>", token, "", "", ""])
    (tmp_path / "vocab.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    tokenizer = WordPieceTokenizer.from_folder(tmp_path)
    assert tokenizer.vocabulary == (*SPECIAL, "<S>", token)
    assert tokenizer.lowercase == lowercase
    assert "guessed" in tokenizer.notes[0]


@needs_data
@pytest.mark.parametrize("name", RELEASED)
def test_lower_casing_of_the_released_vocabularies(tmp_path, name):
    path = DATA / "vocab" / f"{name}-vocab.txt"
    (tmp_path / "vocab.txt").write_bytes(path.read_bytes())
    tokenizer = WordPieceTokenizer.from_folder(tmp_path)
    assert tokenizer.lowercase == RELEASED[name]
    tokenizer.save(tmp_path / "copy")
    assert (tmp_path / "copy" / "vocab.txt").read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "contains no vocabulary"),
        ({"vocab.txt": b"[PAD]\n\xff\n"}, "must be UTF-8 text; byte 6"),
        ({"vocab.txt": b"[PAD]\na\n"}, r"must hold \[UNK\]"),
        ({"vocab.txt": b""}, "must hold"),
        ({"tokenizer.json": b"{"}, "not a JSON file"),
        ({"tokenizer.json": b"[]"}, "must hold a JSON object"),
        ({"tokenizer.json": b'{"model": {}}'}, "no WordPiece vocabulary"),
        (
            {"tokenizer.json": b'{"model": {"type": "BPE", "vocab": {"a": 0}}}'},
            "must be 'WordPiece'; received 'BPE'",
        ),
        ({"tokenizer.json": b'{"model": {"vocab": {"a": 1}}}'}, "ids must be 0, 1"),
        (
            {"vocab.txt": b"a\n", "tokenizer_config.json": b'{"do_lower_case": 1}'},
            "`do_lower_case` must be bool; received 1",
        ),
    ],
)
def test_broken_folders(tmp_path, files, message):
    with pytest.raises(CheckpointError, match="missing: no such folder"):
        WordPieceTokenizer.from_folder(tmp_path / "missing")
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        WordPieceTokenizer.from_folder(tmp_path)
    assert "\n" not in str(caught.value)


# Graphs


CUSTOM_OPS = {"FastWordpieceTokenizeWithOffsets"}


_OPEN_LARGE_ONES = """
import sys
from bert_keras.text.tokenizer_files import check_tokens, read_folder
settings, _ = read_folder(sys.argv[2])
assert check_tokens(settings["vocabulary"])[-1] == "w999999"
from bert_keras.text.tokenizer import WordPieceTokenizer
tokenizer = WordPieceTokenizer.from_folder(sys.argv[1])
assert tokenizer(["w299999 w5"]).to_list() == [[299999, 5]]
"""


@pytest.mark.thorough
def test_large_vocabularies_open_in_time_linear_in_their_size(tmp_path):
    def words(count):
        return [*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), count))]

    plain, whole = tmp_path / "plain", tmp_path / "whole"
    plain.mkdir()
    (plain / "vocab.txt").write_text("\n".join(words(300_000)))
    whole.mkdir()
    vocab = {token: i for i, token in enumerate(words(1_000_000))}
    model = {"type": "WordPiece", "vocab": vocab}
    (whole / "tokenizer.json").write_text(json.dumps({"model": model}))
    # Linear work takes 10 s here, quadratic work hours.
    command = [sys.executable, "-c", _OPEN_LARGE_ONES, str(plain), str(whole)]
    subprocess.run(command, check=True, timeout=300, capture_output=True)


def test_one_custom_op_in_the_graph():
    tokenizer = small_with_added(MARKS, "parse")

    def everything(texts):
        return (
            tokenizer(texts),
            tokenizer.tokenize_with_offsets(texts),
            tokenizer.tokenize_with_offsets(texts, unit="characters"),
        )

    spec = tf.TensorSpec([None], tf.string)
    graph_def = tf.function(everything).get_concrete_function(spec).graph.as_graph_def()
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes += function.node_def
    core = {name for name in dir(tf.raw_ops) if not name.startswith("_")}
    known = {"StatelessIf", "RightShift", "Placeholder"}
    assert {node.op for node in nodes} - core - known == CUSTOM_OPS
    ops = {"UnicodeDecode", "ResourceGather", "Cumsum", *CUSTOM_OPS}
    places = {node.device for node in nodes if node.op in ops}
    assert len(places) == 1 and "CPU:0" in places.pop()
    assert graph_def.ByteSize() < 700_000  # the models are not constants


SERVE = """
import importlib.util, json, sys
import tensorflow as tf
[folder] = importlib.util.find_spec("tensorflow_text").submodule_search_locations
tf.load_op_library(folder + "/python/ops/_fast_wordpiece_tokenizer.so")
model = tf.saved_model.load(sys.argv[1])
texts = json.loads(sys.argv[2])
result = {key: cells.numpy().tolist() for key, cells in model.serve(texts).items()}
assert not {"tensorflow_text", "bert_keras"} & set(sys.modules)
print(json.dumps(result))
"""


@pytest.mark.thorough  # `test_task_contract.py` does so with whole models
def test_export_runs_in_a_process_with_tensorflow_alone(tmp_path):
    tokenizer = small_with_added(MARKS, "parse")

    def serve(texts):
        ids, starts, ends = tokenizer.tokenize_with_offsets(texts, unit="characters")
        cells = {"ids": tokenizer(texts), "starts": starts, "ends": ends}
        return {key: value.to_tensor(-1) for key, value in cells.items()}

    archive = keras.export.ExportArchive()
    archive.track(tokenizer)
    spec = [tf.TensorSpec([None], tf.string, name="texts")]
    archive.add_endpoint("serve", serve, input_signature=spec)
    archive.write_out(str(tmp_path / "model"), verbose=False)
    texts = ["UNwantéd [MASK] 世界", "run", "", "가 e\u0301x", "a <n> COVID19un un"]
    expected = {key: value.numpy().tolist() for key, value in serve(texts).items()}
    done = subprocess.run(
        [sys.executable, "-c", SERVE, tmp_path / "model", json.dumps(texts)],
        check=True,
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout.splitlines()[-1]) == expected
    assert (tmp_path / "model" / "saved_model.pb").stat().st_size < 1_000_000


def test_tf_data_and_ids_to_tokens():
    tokenizer = small()
    dataset = tf.data.Dataset.from_tensor_slices(["un", "é", "run", "x y"])
    rows = dataset.batch(3).map(tokenizer, num_parallel_calls=2)
    received = [row for batch in rows for row in batch.to_list()]
    assert received == tokenizer(["un", "é", "run", "x y"]).to_list()
    tokens = tokenizer.ids_to_tokens(tf.constant([[0, 1], [2, 3]]))
    assert tokens.numpy().tolist() == [[b"[PAD]", b"[UNK]"], [b"[CLS]", b"[SEP]"]]


@pytest.mark.parametrize("text", ["runningun", "é世", ""])
def test_one_string_is_the_row_of_a_batch(text):
    tokenizer = small()
    expected = tokenizer([text]).to_list()[0]
    assert tokenizer(text).numpy().tolist() == expected
    assert tokenizer(tf.constant(text)).numpy().tolist() == expected
    one = tokenizer.tokenize_with_offsets(text, unit="characters")
    several = tokenizer.tokenize_with_offsets([text], unit="characters")
    assert [a.numpy().tolist() for a in one] == [b.to_list()[0] for b in several]
    dataset = tf.data.Dataset.from_tensors(text).map(tokenizer)
    assert next(iter(dataset)).numpy().tolist() == expected


def test_pieces_of_texts():
    tokenizer = small()
    assert tokenizer.tokenize("Running, UNwanted 世一") == (
        ["run", "##ning", ",", "un", "##want", "##ed", "世", "一"]
    )
    assert tokenizer.tokenize(["run", "", "\u2603"]) == [["run"], [], ["[UNK]"]]


def test_tokens_and_ids():
    tokenizer = small()
    assert len(tokenizer) == len(SMALL) == tokenizer.vocab_size
    assert [tokenizer.token_to_id(token) for token in SMALL] == list(range(len(SMALL)))
    assert tokenizer.token_to_id("no such token") is None
    assert tokenizer.id_to_token(4) == "[MASK]"
    for wrong in (-1, len(SMALL), "4"):
        with pytest.raises(ConfigError, match="`id` must be a whole number from 0 to"):
            tokenizer.id_to_token(wrong)


def test_decoding_equals_the_reference():
    tokenizer = WordPieceTokenizer(
        [*SPECIAL, *"abcdt.,?!'-", "##b", "##.", "##'", "do", "not", "n't", "'s", "##"]
    )
    decoder = tokenizers.decoders.WordPiece(cleanup=True)
    rng = random.Random(0)
    rows = [rng.choices(range(len(tokenizer)), k=12) for _ in range(500)]
    for row in rows:
        tokens = [tokenizer.id_to_token(i) for i in row]
        found = tokenizer.decode(row, skip_special_tokens=False)
        assert found == decoder.decode(tokens), tokens
        plain = [token for token in tokens if token not in SPECIAL]
        assert tokenizer.decode(row) == decoder.decode(plain), tokens


def test_decoding_of_lists_arrays_and_tensors():
    tokenizer = small()
    ids = tokenizer(["running un", "a."])
    assert tokenizer.decode(ids) == ["running un", "a."]
    assert tokenizer.decode(ids.to_list()) == ["running un", "a."]
    assert tokenizer.decode(ids.to_tensor(tokenizer.pad_id)) == ["running un", "a."]
    assert tokenizer.decode(ids[1].numpy()) == "a."
    assert tokenizer.decode(list(ids[1].numpy())) == "a."
    assert tokenizer.decode([]) == ""
    with pytest.raises(ConfigError, match="`id` must be.*received 9999"):
        tokenizer.decode([5, 9999])


def test_repr_describes_the_tokenizer():
    expected = "<WordPieceTokenizer: 5 tokens, cased, special tokens in texts: literal>"
    assert repr(WordPieceTokenizer(SPECIAL, lowercase=False)) == expected


def test_the_vocabulary_is_not_tracked():
    tokenizer = WordPieceTokenizer(SMALL)
    assert type(tokenizer.vocabulary) is tuple
    sizes = [int(np.prod(variable.shape)) for variable in tokenizer.variables]
    assert len(sizes) == 8
    assert tokenizer.trainable_variables == ()
