"""Find the character classes of `bert_keras/text/characters.py` by asking `tokenizers`.

    python tests/goldens/find_characters.py           prints the ranges
    python tests/goldens/find_characters.py --check   exits 1 if they differ

Sweeps the normalizers and the pre-tokenizer of the `tokenizers` library over all
1,112,064 code points, which takes about 15 seconds; run it for each new release of
that library and each new Python (whose `unicodedata` does the decomposition).
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import textwrap
from collections.abc import Iterable

import tokenizers
from tokenizers.normalizers import NFD, BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from bert_keras.text import characters  # noqa: E402

CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
NAMES = ("DELETED", "SPACES", "CJK", "PUNCTUATION", "MARKS", "KEPT_MARKS")
BEHIND, BEFORE = "\u0334", "\u0345"  # of the lowest combining class, and the highest


def normalizer(*, clean=False, chinese=False, strip=False, lower=False):
    """Return one step of the reference's normalizer, as a function of a text."""
    return BertNormalizer(
        clean_text=clean,
        handle_chinese_chars=chinese,
        strip_accents=strip,
        lowercase=lower,
    ).normalize_str


def find() -> dict[str, characters.Ranges]:
    """Return the ranges of each class."""
    clean, chinese = normalizer(clean=True), normalizer(chinese=True)
    strip, split = normalizer(strip=True), BertPreTokenizer().pre_tokenize_str
    order = NFD().normalize_str
    found: dict[str, list[int]] = {name: [] for name in NAMES}
    for code in CODES:
        text = f"a{chr(code)}b"
        cleaned = clean(text)
        if cleaned == "ab":
            found["DELETED"].append(code)
        elif cleaned == "a b":
            found["SPACES"].append(code)
        if chinese(text) == f"a {chr(code)} b":
            found["CJK"].append(code)
        if len(split(text)) == 3:
            found["PUNCTUATION"].append(code)
        if strip(text) == "ab":
            found["MARKS"].append(code)
        elif order(chr(code)) == chr(code):  # else it decomposes
            moves = order(f"a{BEFORE}{chr(code)}") != f"a{BEFORE}{chr(code)}"
            if moves or order(f"a{chr(code)}{BEHIND}") != f"a{chr(code)}{BEHIND}":
                found["KEPT_MARKS"].append(code)
    return {name: ranges(codes) for name, codes in found.items()}


def wrong_forms() -> list[str]:
    """Return the characters that `characters.normalized` turns into something else."""
    wrong = []
    strip, lower = normalizer(strip=True), normalizer(lower=True)
    both = normalizer(strip=True, lower=True)
    for code in CODES:
        text = chr(code)
        for reference, lowercase, strip_accents in (
            (strip, False, True),
            (lower, True, False),
            (both, True, True),
        ):
            (ours,) = characters.normalized(
                [text], lowercase=lowercase, strip_accents=strip_accents
            )
            if ours != reference(f"a{text}")[1:]:
                wrong.append(
                    f"U+{code:04X} lowercase={lowercase} strip={strip_accents}"
                )
    return wrong


def ranges(codes: Iterable[int]) -> characters.Ranges:
    """Return sorted code points as (first, last) pairs."""
    pairs: list[list[int]] = []
    for code in codes:
        if pairs and pairs[-1][1] == code - 1:
            pairs[-1][1] = code
        else:
            pairs.append([code, code])
    return tuple((first, last) for first, last in pairs)


def written(name: str, found: characters.Ranges) -> str:
    """Return the lines of Python that state the ranges."""
    words = (f"{a:X}" if a == b else f"{a:X}-{b:X}" for a, b in found)
    text = textwrap.fill(" ".join(words), 84, break_on_hyphens=False)
    return f'{name} = _ranges(\n    """\n{textwrap.indent(text, "    ")}\n    """\n)'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="print differences only")
    check = parser.parse_args().check
    differing = []
    for name, found in find().items():
        if not check:
            print(written(name, found))
        if found != getattr(characters, name):
            differing.append(name)
    differing += wrong_forms()
    print(
        f"# tokenizers {tokenizers.__version__}: "
        + ("differs in " + ", ".join(differing[:20]) if differing else "no difference")
    )
    return 1 if check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
