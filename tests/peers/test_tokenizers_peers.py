"""Added tokens and folders of other tools against transformers and `tokenizers`."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from bert_keras.text.added_tokens import AddedToken
from bert_keras.text.tokenizer import WordPieceTokenizer

SHARED = Path(__file__).resolve().parents[3] / "shared" / "cases"
CONTENTS = "[E1] Covid19 run Éa a世 don't _ un Σ . İ 🙂 <n>".split(" ")
MORE = "\u0301 [MASK] RUN x1 covid E é ÉA 世 \u3000 \t \u302e [SEP] ﬁ Ω".split(" ")


def texts_of(rng: random.Random, count: int) -> list[str]:
    pieces = [*CONTENTS, *MORE, " ", "  ", *"aBc1-"]
    return ["".join(rng.choices(pieces, k=rng.randrange(14))) for _ in range(count)]


@pytest.mark.parametrize("flag", ["plain", "single_word", "lstrip", "rstrip", "all"])
def test_a_saved_folder_gives_the_ids_of_transformers(
    tmp_path: Path, minilm: Path, flag: str
) -> None:
    transformers = pytest.importorskip("transformers")
    rng = random.Random(flag)
    tokens = [
        AddedToken(
            content,
            special=rng.random() < 0.5,
            normalized=rng.random() < 0.5,
            **{n: flag in (n, "all") for n in ("single_word", "lstrip", "rstrip")},
        )
        for content in CONTENTS
    ]
    vocabulary = WordPieceTokenizer.from_folder(minilm).vocabulary
    ours = WordPieceTokenizer(
        vocabulary, added_tokens=tokens, special_tokens_in_text="parse"
    )
    ours.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    theirs = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    texts = texts_of(rng, 5000)
    wanted = theirs(texts, add_special_tokens=False)["input_ids"]
    assert ours(texts).to_list() == wanted


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folders that the shared script writes as other tools do."""
    script = SHARED / "make_folders.py"
    if not script.is_file():
        pytest.skip(f"the folders of other tools are made by {script}, which is absent")
    folder = tmp_path_factory.mktemp("cases")
    subprocess.run([sys.executable, str(script), str(folder)], check=True)
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "base",
        "01-added-tokens/fast4",
        "01-added-tokens/slow4",
        "01-added-tokens/v5",
        "02-unused-token/model",
        "05-own-normalizer/model",
        "06-upper-case-entry/model",
        "07-duplicate-line/model",
    ],
)
def test_folders_of_other_tools(cases: Path, tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    text = "[E1] Tom [/E1] has covid19, COVID19 or a_b; Café [outline] the URL 日本"
    theirs = transformers.AutoTokenizer.from_pretrained(str(cases / name))
    wanted = theirs(text, add_special_tokens=False)["input_ids"]
    ours = WordPieceTokenizer.from_folder(cases / name)
    assert ours(text).numpy().tolist() == wanted
    ours.save(tmp_path)
    assert WordPieceTokenizer.from_folder(tmp_path)(text).numpy().tolist() == wanted
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    again = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert again(text, add_special_tokens=False)["input_ids"] == wanted
