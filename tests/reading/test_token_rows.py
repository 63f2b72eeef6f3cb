"""Rows of ids without TensorFlow: those of the graph, for any text and any reader."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import VOCABULARY, refused

from bert_keras.reading.late_interaction import LateInteraction
from bert_keras.reading.text_vector import TextVector
from bert_keras.reading.token_rows import TokenRows
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.multiple_choice import MultipleChoice
from bert_keras.tasks.protocols import text_specs
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.tasks.tagging.task import TokenClassification
from bert_keras.text.preprocessor import Preprocessor, as_tensors, one_or_all
from bert_keras.text.token_ids import TokenIds
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.text.tokenizer_files import write_tokenizer_json

LENGTH = 12
LETTERS = "abcdé ïÉΣſßﬆ日本 \u00a0\u200b\n,.!-'\"[]#\ud800\u0301\u0327\ufffd\x00İ🙂한½"
PROMPTS = {"query": "see you: ", "document": "win "}
FLAGS = [
    {"lowercase": True},
    {"lowercase": False},
    {"lowercase": True, "strip_accents": False, "tokenize_chinese_chars": False},
    {"lowercase": True, "special_tokens_in_text": "parse"},
    {"lowercase": False, "max_word_characters": 5},
    {
        "lowercase": True,
        "added_tokens": [
            {"content": "a b", "lstrip": True},
            {"content": "[new]", "special": True},
            {"content": "日本", "single_word": True, "normalized": False},
        ],
    },
]


def ids_of(tokenizer: WordPieceTokenizer, folder: Path) -> TokenIds:
    """Return the tokenizer of the file that an export writes."""
    write_tokenizer_json(folder, tokenizer.get_config(), max_length=LENGTH)
    return TokenIds(folder)


def random_texts(count: int, seed: int, *, more: Sequence[str] = ()) -> list[str]:
    """Return texts of letters of all kinds, and of tokens."""
    draw = random.Random(seed)
    parts = [*LETTERS, *LETTERS, *more]
    return ["".join(draw.choices(parts, k=draw.randrange(40))) for _ in range(count)]


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_ids_and_places_are_those_of_the_graph(
    flags: dict[str, Any], tmp_path: Path
) -> None:
    tokenizer = WordPieceTokenizer(VOCABULARY, **flags)
    more = ["[SEP]", "[MASK]", "a b", "[new]", " 日本 ", "win", "prize", "[UNK]"]
    texts = random_texts(5000, 1, more=more)
    of_text = ids_of(tokenizer, tmp_path)
    ids, starts, ends = tokenizer.tokenize_with_offsets(
        as_tensors([texts]), unit="characters"
    )
    assert [each.ids for each in of_text(texts)] == ids.to_list()
    # A token that takes white space may take what is put around a CJK character, too:
    # `check_equal` compares those of a model when it is exported.
    added = {
        len(VOCABULARY) + place for place in range(len(flags.get("added_tokens", ())))
    }
    columns = (of_text(texts, with_places=True), starts.to_list(), ends.to_list())
    for each, *wanted in zip(*columns, strict=True):
        if added.isdisjoint(each.ids):
            places = [[place[side] for place in each.places] for side in (0, 1)]
            assert places == wanted


READERS = [
    {},
    {"long": "head-tail"},
    {"long": "windows", "stride": 3},
    {"long": "windows", "max_windows": 2},
    {"long": "windows", "combine": "first"},
    {"kind": LateInteraction, "skip_words": ("you", "win", "no word")},
    {"kind": LateInteraction, "query_expansion": 9, "default_query": True},
    {"kind": LateInteraction, "query_expansion": 9, "attend_expansion": True},
]
BEFORE = [
    {},
    {"prompts": PROMPTS, "query_length": 7},
    {"prompts": PROMPTS, "default_prompt": "query", "include_prompt": False},
    {"prompts": PROMPTS, "default_prompt": "document", "default_length": 6},
]
WAYS = ("longest_first", "round_robin", "only_first", "only_second")


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, TokenIds]:
    tokenizer = WordPieceTokenizer(VOCABULARY, lowercase=True)
    return tokenizer, ids_of(tokenizer, tmp_path_factory.mktemp("ids"))


@pytest.mark.parametrize("reading", READERS, ids=str)
@pytest.mark.parametrize("before", BEFORE, ids=str)
def test_rows_are_those_of_the_graph(
    reading: dict[str, Any], before: dict[str, Any], tokenizers: tuple[Any, TokenIds]
) -> None:
    settings = {**reading, **before}
    kind = settings.pop("kind", TextVector)
    one_row = kind(**settings)
    texts, others = random_texts(20, 2), random_texts(20, 3)
    draw = random.Random(4)
    sides = [draw.randrange(2) for _ in texts]
    forms: list[Any] = [(one_row, (texts,), None, WAYS[0])]
    if before:
        forms.append((one_row, (texts,), sides, WAYS[0]))
    elif kind is TextVector:
        forms += [(one_row, (texts, others), None, way) for way in WAYS]
    if kind is TextVector and not one_row.reads_windows:
        two_rows = TextVector(**settings, pair_encoder="bi")
        forms.append((two_rows, (texts, others), None, WAYS[0]))
    for reader, parts, of_side, way in forms:
        preprocessor = Preprocessor(tokenizers[0], max_length=LENGTH, truncation=way)
        rows = TokenRows(tokenizers[1], LENGTH, way)
        tokens = rows.tokenize(reader, parts, of_side)
        tensors = as_tensors(parts)
        more = {"sides": None if of_side is None else tf.constant(of_side)}
        wanted = reader.batch(preprocessor, tensors, **more)
        for name, values in rows.batch(reader, tokens).items():
            np.testing.assert_array_equal(values, wanted[name], err_msg=name)
        lengths = rows.lengths(reader, tokens)
        read, lost = reader.lengths(preprocessor, tensors, **more)
        np.testing.assert_array_equal(lengths.read, read)
        np.testing.assert_array_equal(lengths.lost, lost)
        if reader.reads_windows:
            windows = reader.windows_of(preprocessor, tensors, **more)
            np.testing.assert_array_equal(lengths.windows, windows)


def test_no_text_is_an_empty_batch(tokenizers: tuple[Any, TokenIds]) -> None:
    rows = TokenRows(tokenizers[1], LENGTH)
    assert rows.batch(TextVector(), [])["token_ids"].shape == (0, 1)


NLI = ("contradiction", "neutral", "entailment")
TAGS = ("O", "B-person", "I-person", "E-place", "place")
SPELLED: list[Any] = [
    TokenClassification(TAGS),
    TokenClassification(TAGS, abstain_below=0.6),
    TokenClassification(("DET", "NOUN", "VERB")),
    QuestionAnswering(n_best=3, max_answer_tokens=6),
    QuestionAnswering(no_answer=True, stride=2, max_question_tokens=3, temperature=2.0),
    QuestionAnswering(abstain_below=0.6, max_answer_tokens=2),
]
CHOSEN: list[Any] = [
    Classification(("spam", "ham"), entailment=NLI, template="you {}: win"),
    MultiLabel(("spam", "ham"), entailment=NLI, thresholds=(0.3, 0.7)),
    MultipleChoice(),
]


def parts_of(task: Any) -> list[tuple[Any, ...]]:
    """Return texts of each signature, and long ones, with lists where it has some."""
    texts, draw = random_texts(30, 5, more=("see", " win", "the ")), random.Random(6)
    some = [text for text in dict.fromkeys(texts) if text]
    found = []
    for specs in text_specs(task).values():
        lists = [draw.sample(some, draw.randrange(2, 5)) for _ in texts]
        given = [texts[::-1] if each.rank == 1 else lists for each in specs]
        found.append((texts, *given[1:]) if specs[0].rank == 1 else tuple(given))
        if all(each.rank == 1 for each in specs):
            found.append(tuple(["".join(texts)] for _ in specs))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("task", SPELLED, ids=str)
@pytest.mark.parametrize("scored", [False, True])
def test_spelled_answers_are_those_of_the_graph(
    task: Any, scored: bool, tokenizers: tuple[Any, TokenIds]
) -> None:
    preprocessor = Preprocessor(tokenizers[0], max_length=LENGTH)
    rows, draw = TokenRows(tokenizers[1], LENGTH), np.random.default_rng(7)
    for parts in parts_of(task):
        tensors = one_or_all(tuple(map(as_tensors, ((each,) for each in parts))))
        tokens = rows.tokenize(task.reader, parts)
        batch = rows.batch(task.reader, tokens)
        features = task.features(preprocessor, tensors)
        np.testing.assert_array_equal(batch["token_ids"], features["token_ids"])
        size = (*batch["token_ids"].shape, len(getattr(task, "classes", "ab")))
        logits = 2 * draw.normal(size=size).astype("float32")
        # The graph computes windows in parts, of which each is asked for its logits.
        known = {
            ids.tobytes(): row
            for ids, row in zip(batch["token_ids"], logits, strict=True)
        }

        def run(part: Any, known: Any = known, shape: Any = size[1:]) -> Any:
            ids = part["token_ids"].numpy()
            ids = np.pad(ids, ((0, 0), (0, shape[0] - ids.shape[1])))
            found = np.stack([known[each.tobytes()] for each in ids])
            return tf.constant(found[:, : part["token_ids"].shape[1]])

        wanted = task.respond(tensors, preprocessor, run, scored=scored)
        logits = np.stack([known[ids.tobytes()] for ids in batch["token_ids"]])
        numbers = {k: v.numpy() for k, v in task.numbers(logits, batch).items()}
        found = task.spelled({**batch, **numbers}, tokens, scored=scored)
        assert set(found) == set(wanted)
        for name, values in wanted.items():
            if values.dtype.is_floating:
                middle = values.numpy()
                if name.endswith("_probabilities"):  # at the temperature of the task
                    middle = middle[:, middle.shape[1] // 2][:, np.newaxis]
                np.testing.assert_allclose(found[name], middle, atol=1e-6)
            else:
                np.testing.assert_array_equal(found[name], values, err_msg=name)
        lengths = rows.lengths(task.reader, tokens)
        read, lost = task.lengths(preprocessor, tensors)
        np.testing.assert_array_equal(lengths.read, read)
        np.testing.assert_array_equal(lengths.lost, lost)


@pytest.mark.parametrize("task", CHOSEN, ids=str)
def test_rows_of_choices_are_those_of_the_graph(
    task: Any, tokenizers: tuple[Any, TokenIds]
) -> None:
    for way in WAYS:
        preprocessor = Preprocessor(tokenizers[0], max_length=LENGTH, truncation=way)
        rows = TokenRows(tokenizers[1], LENGTH, way)
        for parts in parts_of(task):
            tensors = one_or_all(tuple(map(as_tensors, ((each,) for each in parts))))
            tokens = rows.tokenize(task.row_reader, parts)
            batch = rows.batch(task.row_reader, tokens)
            wanted = task.features(preprocessor, tensors)
            assert set(batch) == set(wanted)
            for name, values in batch.items():
                np.testing.assert_array_equal(values, wanted[name], err_msg=name)
            lengths = rows.lengths(task.row_reader, tokens)
            read, lost = task.lengths(preprocessor, tensors)
            np.testing.assert_array_equal(lengths.read, read)
            np.testing.assert_array_equal(lengths.lost, lost)


def test_classes_that_are_equal_are_refused(tokenizers: tuple[Any, TokenIds]) -> None:
    rows = TokenRows(tokenizers[1], LENGTH)
    for names in (["a", "a"], ["a", ""]):
        refused(
            lambda names=names: rows.tokenize(CHOSEN[0].row_reader, (["see"], [names])),
            "`classes` of a text must be 2 or more different names",
        )
