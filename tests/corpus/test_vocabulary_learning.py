"""A vocabulary learned from a corpus: counted words, merged pairs, the folder."""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from conftest import ROOT, SHARED, files_of, refused

from bert_keras.corpus import vocabulary_learning, word_counts
from bert_keras.corpus.documents import raw_documents
from bert_keras.corpus.vocabulary_learning import (
    learn_vocabulary,
    merge_pairs,
    write_vocabulary,
)
from bert_keras.corpus.word_counts import count_words
from bert_keras.text.characters import TOO_LONG
from bert_keras.text.normalization import WordSplitter
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.text.tokenizer_files import SPECIAL_TOKENS

WIKI = SHARED / "data" / "wiki_en"
ODD_TEXTS = [
    "Héllo, WORLD!  it's don't\tx\ny",
    "a\x0bb\x0cc\x1fd\x85e\xa0f\u2003g\u200bh\u2028i \x00 j",
    "日本語text中 中, ÅÀ ǅ İI ß ﬁ e\u0301e\u0301",
    "w" * 100 + " " + "w" * 101 + " " + "é" * 101 + " " + "日" * 101,
    "[MASK] [PAD] ##a <b> $3.14 \ue000\uf8ff\ufffd",
    "",
    " \n ",
    "한국어 हिन्दी ไทย עברית 𝒳𝒴 😀😀",
]


def naive_merges(words: dict[str, int], pieces: int, min_count: int) -> list[str]:
    """Byte-pair encoding by definition: all pairs are recounted after each merge."""
    split = {w: [w[0], *("##" + c for c in w[1:])] for w in words}
    known = {piece for word in split.values() for piece in word}
    found: list[str] = []
    while len(found) < pieces:
        counts: Counter[tuple[str, str]] = Counter()
        for word, parts in split.items():
            for pair in zip(parts, parts[1:], strict=False):
                counts[pair] += words[word]
        if not counts:
            break
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        if counts[best] < min_count:
            break
        new = best[0] + best[1].removeprefix("##")
        if new not in known:
            known.add(new)
            found.append(new)
        for word, parts in split.items():
            i, merged = 0, []
            while i < len(parts):
                if tuple(parts[i : i + 2]) == best:
                    merged.append(new)
                    i += 2
                else:
                    merged.append(parts[i])
                    i += 1
            split[word] = merged
    return found


def test_the_trainer_of_tf_text() -> None:
    text = "the lowest tower is lower than the newer towers, and 中 new"
    texts = [text, "the new tower"] * 3
    found = learn_vocabulary(texts, size=60, learner="tf-text", reserved=["[unused0]"])
    assert found == learn_vocabulary(
        texts[::-1], size=60, learner="tf-text", reserved=["[unused0]"]
    )
    assert found[:6] == [*SPECIAL_TOKENS, "[unused0]"]
    assert len(set(found)) == len(found) <= 60
    assert {"tower", "new", "中", "##w"} < set(found)
    assert "##中" not in found  # it can only be a separate word
    assert found.index("[UNK]") not in WordPieceTokenizer(found)([text]).to_list()[0]
    refused(lambda: learn_vocabulary(texts, learner="bpe"), "`learner` must be")


def test_pairs_are_merged_as_by_hand() -> None:
    # ##o##w 7 times; then l##ow 7; then ##e##w and n##ew, 6 each, by their characters.
    words = {"low": 5, "lower": 2, "new": 6}
    expected = ["##ow", "low", "##ew", "new", "##er", "lower"]
    assert merge_pairs(words, pieces=9) == expected
    assert merge_pairs({"new": 6, "low": 5}, pieces=2) == ["##ew", "new"]
    assert merge_pairs({"aaaaaa": 1}, pieces=9) == [
        *("##aa", "##aaa", "##aaaaa", "aaaaaa")
    ]
    assert merge_pairs({"a": 5, "b": 5}, pieces=9) == []
    assert merge_pairs({}, pieces=9) == []
    assert merge_pairs({"ab": 3, "cd": 2}, pieces=9, min_count=3) == ["ab"]
    assert merge_pairs({"ab": 3, "cd": 2}, pieces=1, known=["ab"]) == ["cd"]


@pytest.mark.parametrize("seed", range(12))
def test_merges_equal_the_definition(seed: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(vocabulary_learning, "_FEW", [0, 4, 32, 9999][seed % 4])
    draw = random.Random(seed)
    letters = "ab" if seed % 3 == 0 else "abcdé日"
    words = {
        "".join(draw.choices(letters, k=draw.randint(1, 9))): draw.randint(1, 6)
        for _ in range(60)
    }
    expected = naive_merges(words, 80, 2)
    order = sorted(words, key=lambda _: draw.random())
    shuffled = {word: words[word] for word in order}
    found = merge_pairs(shuffled, pieces=80, min_count=2)
    assert len(expected) > 20
    assert found == expected


def test_a_piece_is_never_longer_than_the_tokenizer_accepts() -> None:
    pieces = merge_pairs({"日" * 100: 10}, pieces=99)
    assert 16 < max(map(len, pieces)) <= 64
    WordPieceTokenizer([*SPECIAL_TOKENS, *pieces])


@pytest.mark.parametrize(
    ("lowercase", "strip_accents", "chinese"),
    [
        (True, None, True),
        (False, None, False),
        (True, False, True),
        (False, True, True),
    ],
)
def test_words_are_those_of_the_tokenizer(
    lowercase: bool, strip_accents: bool | None, chinese: bool
) -> None:
    settings: dict[str, Any] = {"lowercase": lowercase, "strip_accents": strip_accents}
    settings["tokenize_chinese_chars"] = chinese
    counted = count_words(ODD_TEXTS * 3, **settings)
    settings["strip_accents"] = lowercase if strip_accents is None else strip_accents
    words = WordSplitter(**settings)(tf.constant(ODD_TEXTS)).strings.numpy().tolist()
    expected = Counter(word.decode() for word in words)
    long = sum(expected.pop(word) for word in list(expected) if chr(TOO_LONG) in word)
    assert counted.counts == {word: 3 * n for word, n in expected.items()}
    assert counted.too_long == 3 * long > 0
    assert counted.words == 3 * (sum(expected.values()) + long)
    assert counted.texts == 3 * len(ODD_TEXTS)
    by_count = sorted(counted.counts, key=lambda word: (-counted.counts[word], word))
    assert list(counted.counts) == by_count


def test_how_texts_are_joined_does_not_matter(monkeypatch: Any) -> None:
    texts = ODD_TEXTS * 5
    whole = count_words(texts)
    monkeypatch.setattr(word_counts, "_TEXT_BYTES", 50)
    monkeypatch.setattr(word_counts, "_STRING_BYTES", 120)
    assert count_words(reversed(texts)) == whole


def test_rare_words_are_dropped_if_there_are_too_many(monkeypatch: Any) -> None:
    monkeypatch.setattr(word_counts, "_TEXT_BYTES", 500)
    monkeypatch.setattr(word_counts, "_STRING_BYTES", 1000)
    frequent = {f"f{n}": 40 + n for n in range(200)}
    rare = [f"r{n}" for n in range(20_000)]
    tokens = [word for word, count in frequent.items() for _ in range(count)] + rare
    random.Random(1).shuffle(tokens)
    texts = [" ".join(tokens[i : i + 50]) for i in range(0, len(tokens), 50)]
    counted = count_words(texts, max_words=1000)
    assert len(counted.counts) <= 1000
    assert counted.forgotten >= 19_000
    assert counted.missed > 0
    for word, count in frequent.items():
        assert count - counted.missed <= counted.counts[word] <= count
    assert count_words(texts, max_words=1000) == counted
    assert count_words(texts, max_words=30_000).forgotten == 0
    refused(lambda: count_words(texts, max_words=10), "`max_words`", "received 10")


def test_the_order_of_a_vocabulary() -> None:
    assert learn_vocabulary(["low lower lowest"] * 2, size=25)[5:] == [
        *("e", "l", "o", "r", "s", "t", "w"),
        *("##e", "##l", "##o", "##r", "##s", "##t", "##w"),
        *("##ow", "low", "lowe", "##st", "lower", "lowest"),
    ]
    said: list[str] = []
    vocabulary = learn_vocabulary(
        ["Low, lower LOWEST 低", "Low, lower 低"],
        size=100,
        reserved=["[unused0]", "low", "w"],
        say=said.append,
    )
    assert vocabulary == [
        *SPECIAL_TOKENS,
        *("[unused0]", "low", "w"),
        *(",", "e", "l", "o", "r", "低"),
        *("##e", "##l", "##o", "##r", "##w"),
        *("##ow", "##er", "lower"),
    ]
    assert said == [
        "2 texts, 9 words, 5 of them different; 11.1111% would be [UNK]",
        "22 tokens; 7 characters occur 2 times or more, 2 less often",
        "78 tokens fewer than requested: no other pair of pieces occurs 2 times",
    ]


def test_cased_and_chinese_vocabularies() -> None:
    texts = ["Über über 中文字 中文字"] * 2
    cased = learn_vocabulary(
        texts, size=40, lowercase=False, tokenize_chinese_chars=False
    )
    assert {"Ü", "ü", "##b", "Über", "über", "##文", "中文字"} <= set(cased)
    assert not {"u", "uber"} & set(cased)
    uncased = learn_vocabulary(texts, size=40)
    assert {"u", "uber", "中"} <= set(uncased)
    assert not {"U", "ü", "##文", "中文字"} & set(uncased)
    accents = learn_vocabulary(texts, size=40, strip_accents=False)
    assert {"ü", "über"} <= set(accents) and "Über" not in accents


def test_the_folder_opens_as_a_tokenizer(tmp_path: Path) -> None:
    texts = ["Größe zählt, sagt Größe."] * 3
    settings: dict[str, Any] = {"lowercase": False, "tokenize_chinese_chars": False}
    vocabulary = learn_vocabulary(texts, size=60, reserved=["[unused0]"], **settings)
    folder = tmp_path / "new" / "vocabulary"
    written = write_vocabulary(folder, vocabulary, **settings)
    opened = WordPieceTokenizer.from_folder(folder)
    assert opened.get_config() == written.get_config()
    assert opened.vocabulary == tuple(vocabulary)
    assert not opened.notes
    tokens = opened.ids_to_tokens(opened(["Größe zählt, sagt Größe."])).to_list()[0]
    assert b"".join(t.removeprefix(b"##") for t in tokens).decode() == (
        "Größezählt,sagtGröße."
    )
    write_vocabulary(folder, vocabulary[:-1], **settings)
    assert len(WordPieceTokenizer.from_folder(folder).vocabulary) == len(vocabulary) - 1
    (folder / "model.safetensors").write_bytes(b"")
    refused(lambda: write_vocabulary(folder, vocabulary), "must not hold a model")
    (tmp_path / "file").write_text("")
    refused(lambda: write_vocabulary(tmp_path / "file", vocabulary), "written")


def test_the_verb_needs_no_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("Größe zählt, sagt Größe. " * 3, "utf-8")
    code = (
        "import sys; from bert_keras.cli.main import main\n"
        "code = main(['vocab', 'corpus.txt', '--size', '40', '--output', 'new'])\n"
        "sys.exit(code or 'tensorflow' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert WordPieceTokenizer.from_folder(tmp_path / "new").vocabulary == tuple(
        learn_vocabulary(["Größe zählt, sagt Größe. " * 3], size=40)
    )


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"size": 20}, ["`size`", "27 tokens in all", "received 20"]),
        ({"size": 5}, ["`size` must be a whole number of at least 6", "received 5"]),
        ({"size": 50.0}, ["`size`", "received 50.0"]),
        ({"min_count": 0}, ["`min_count`", "received 0"]),
        ({"min_count": 1000}, ["`min_count`", "no character", "1000"]),
        ({"reserved": ["a1", "b", "a1"]}, ["`reserved`", "'a1' is twice"]),
        ({"reserved": ["[MASK]"]}, ["`reserved`", "'[MASK]' is one of ours"]),
        ({"reserved": ["a b"]}, ["`reserved`", "'a b'"]),
        ({"reserved": ["x" * 300]}, ["256 bytes"]),
        ({"reserved": "abc"}, ["`reserved` must be a list of tokens; received 'abc'"]),
    ],
)
def test_wrong_arguments(changes: dict[str, Any], parts: list[str]) -> None:
    texts = ["some words and no other ones"] * 3
    settings = {"size": 100, **changes}
    refused(lambda: learn_vocabulary(texts, **settings), *parts)


@pytest.mark.parametrize("texts", [[], ["", " \n"], ["\x00\u200b"]])
def test_an_empty_corpus(texts: list[str]) -> None:
    refused(lambda: learn_vocabulary(texts, size=100), "must hold words")


def test_one_string_is_not_a_corpus() -> None:
    refused(lambda: learn_vocabulary("a text", size=100), "`texts`")
    texts: Any = ["a", 1]
    refused(lambda: learn_vocabulary(texts, size=100), "`texts`", "received a int")


@pytest.mark.slow
def test_texts_of_a_megabyte() -> None:
    texts = ["word " * 200_000, "x" * 1_000_000, "日" * 300_000, "é" * 500_000]
    words = count_words(texts)
    assert words.counts == {"日": 300_000, "word": 200_000}
    assert words.too_long == 2


class Stopped(Exception):
    pass


class Corpus:
    """Documents of several sentences, which can stop at one, and counts what is split.

    Args:
        count: documents.
        stop: the number of the document at which it stops.
    """

    def __init__(self, count: int = 60, *, stop: int | None = None) -> None:
        self.count, self.stop = count, stop
        self.split = 0

    def __iter__(self) -> Any:
        numbers = random.Random(4)
        for i in range(self.count):
            if i == self.stop:
                raise Stopped
            yield "\n".join(
                " ".join(f"w{numbers.randrange(1, 4000) ** 2 % 1201}" for _ in range(9))
                for _ in range(9)
            )

    def sentences(self, document: str) -> list[str]:
        self.split += 1
        return document.splitlines()


def learn(corpus: Corpus, folder: Path | None, **changes: Any) -> list[str]:
    settings = {"size": 300, "max_words": 1000, **changes}
    return learn_vocabulary(
        corpus, to_sentences=corpus.sentences, folder=folder, **settings
    )


@pytest.fixture
def short_stages(monkeypatch: Any) -> None:
    """Let counts be kept every few documents, and words be forgotten on the way."""
    monkeypatch.setattr(word_counts, "_STAGE", 2000)
    monkeypatch.setattr(word_counts, "_BLOCK", 1000)
    monkeypatch.setattr(word_counts, "_STRING_BYTES", 300)


@pytest.mark.usefixtures("short_stages")
def test_a_stopped_count_resumes(tmp_path: Path) -> None:
    said: list[str] = []
    whole = learn(Corpus(), None, max_words=1000, say=said.append)
    assert learn(Corpus(), tmp_path / "whole") == whole
    assert [path.name for path in (tmp_path / "whole").iterdir()] == [
        "unfinished-counts"
    ]
    for stops in ([3], [17, 18, 41], [59]):
        folder = tmp_path / str(stops)
        for stop in stops:
            with pytest.raises(Stopped):
                learn(Corpus(stop=stop), folder)
        corpus, again = Corpus(), []
        assert learn(corpus, folder, say=again.append) == whole
        assert again == said
        assert corpus.split < 60 - stops[-1] + 8
    # All was counted, and only what came after failed.
    refused(lambda: learn(Corpus(), folder, size=20), "`size`")
    corpus = Corpus()
    assert learn(corpus, folder) == whole
    assert corpus.split == 0
    write_vocabulary(folder, whole)
    assert {path.name for path in folder.iterdir()} == {
        "tokenizer_config.json",
        "vocab.txt",
    }


@pytest.mark.usefixtures("short_stages")
def test_rare_words_are_dropped_in_the_same_way(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(word_counts, "_STAGE", 20_000)
    texts = [" ".join(f"r{i}x{n}" for n in range(400)) + " often" for i in range(60)]

    def texts_until(stop: int) -> Any:
        yield from texts[:stop]
        raise Stopped

    whole = count_words(texts, max_words=1000)
    assert whole.forgotten and whole.missed
    for stop in (20, 45):
        with pytest.raises(Stopped):
            count_words(texts_until(stop), max_words=1000, keep=tmp_path / "counts")
    assert (tmp_path / "counts").exists()
    assert count_words(texts, max_words=1000, keep=tmp_path / "counts") == whole


@pytest.mark.usefixtures("short_stages")
def test_any_number_of_workers_counts_the_same(tmp_path: Path) -> None:
    texts = [
        " ".join(f"r{i % 40}x{n}" for n in range(90)) + "\noften" for i in range(60)
    ]

    def count(given: Any, workers: int, keep: Path | None = None) -> Any:
        return count_words(
            given,
            to_sentences=str.splitlines,
            max_words=1000,
            workers=workers,
            keep=keep,
        )

    def first_texts() -> Any:
        yield from texts[:45]
        raise Stopped

    whole = count(texts, 1)
    assert whole.forgotten and whole.missed and whole.texts == 120
    with pytest.raises(Stopped):
        count(first_texts(), 3, tmp_path / "counts")
    assert (tmp_path / "counts").exists()
    assert count(texts, 3, tmp_path / "counts") == whole
    refused(lambda: count(texts, 0), "`workers`")


@pytest.mark.usefixtures("short_stages")
def test_counts_of_other_texts_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        learn(Corpus(stop=30), tmp_path)
    kept = tmp_path / "unfinished-counts"
    data = kept.read_bytes()
    others: list[Any] = [["other texts"] * 60, ["few"], []]
    for texts in others:
        corpus = Corpus()
        action = lambda t=texts, c=corpus: learn_vocabulary(  # noqa: E731
            t, to_sentences=c.sentences, folder=tmp_path, max_words=1000
        )
        refused(action, str(kept), "texts other than", "delete it")
    refused(lambda: learn(Corpus(), tmp_path, lowercase=False), "`lowercase` True")
    refused(
        lambda: learn_vocabulary(Corpus(), folder=tmp_path, max_words=1000),
        "`sentences_by`",
    )
    for broken in (b"", b"[]\n", b"{}\n", b"\x89PNG", data + b"x y\n"):
        kept.write_bytes(broken)
        refused(lambda: learn(Corpus(), tmp_path), str(kept), "not a file of word")
    kept.write_bytes(data[: data.rindex(b"\n", 0, -1) + 1])
    refused(lambda: learn(Corpus(), tmp_path), str(kept), "is truncated")
    # More texts than those of a run that had counted all.
    kept.unlink()
    learn(Corpus(), tmp_path)
    refused(lambda: learn(Corpus(70), tmp_path), "texts other than")
    (tmp_path / "config.json").write_text("{}")
    refused(lambda: learn(Corpus(), tmp_path), "must not hold a model")


@pytest.mark.usefixtures("short_stages")
def test_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        learn(Corpus(stop=5), tmp_path)
    before = files_of(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        refused(lambda: learn(Corpus(), tmp_path), "unfinished-counts", "be written")
        vocabulary = [*SPECIAL_TOKENS, *(f"token{i}" for i in range(1000))]
        refused(lambda: write_vocabulary(tmp_path, vocabulary), "cannot be written")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files_of(tmp_path) == before
    assert learn(Corpus(), tmp_path) == learn(Corpus(), None)


@pytest.mark.slow
def test_a_killed_count_resumes(tmp_path: Path, monkeypatch: Any) -> None:
    script = (
        "import os, pathlib, signal\n"
        "from corpus.test_vocabulary_learning import *\n"
        "word_counts._STAGE = word_counts._BLOCK = 2000\n"
        "class Killed(Corpus):\n"
        "    def __iter__(self):\n"
        "        for number, document in enumerate(super().__iter__()):\n"
        "            if number == 35:\n"
        "                os.kill(os.getpid(), signal.SIGKILL)\n"
        "            yield document\n"
        f"learn(Killed(), pathlib.Path({str(tmp_path)!r}))\n"
    )
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    env = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", script], env=env)
    assert done.returncode == -signal.SIGKILL
    assert list(files_of(tmp_path)) == ["unfinished-counts"]
    monkeypatch.setattr(word_counts, "_STAGE", 2000)
    corpus = Corpus()
    assert learn(corpus, tmp_path) == learn(Corpus(), None)
    assert corpus.split < 60 - 35 + 8


@pytest.mark.skipif(not WIKI.exists(), reason="needs shared/data/wiki_en")
def test_few_words_of_held_out_text_are_unknown(tmp_path: Path) -> None:
    documents = list(itertools.islice(raw_documents(WIKI / "wiki_00"), 40))
    texts = [d.text for i, d in enumerate(documents) if i % 8]
    held_out = [d.text for d in documents[::8]]
    vocabulary = learn_vocabulary(texts, size=1500)
    assert len(vocabulary) == len(set(vocabulary)) == 1500
    # Neither the order of the texts nor how they are cut.
    cut = [line for text in reversed(texts) for line in text.split("\n")]
    assert learn_vocabulary(cut, size=1500) == vocabulary
    tokenizer = write_vocabulary(tmp_path, vocabulary)
    ids = tokenizer(held_out).values.numpy()
    assert len(ids) > 10_000
    assert (ids == tokenizer.unk_id).mean() < 0.002
    # Nearly every token is of use.
    seen = set(tokenizer(texts).values.numpy().tolist())
    assert len(seen) > 0.9 * 1500
