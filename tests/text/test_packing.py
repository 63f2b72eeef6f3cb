"""Packing: truncation, the joined tokens, padded and packed rows, the preprocessor."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
import tokenizers
from conftest import refused
from hypothesis import strategies as st

from bert_keras.settings import TRUNCATIONS
from bert_keras.text.packing import (
    both_ends,
    join,
    locate,
    pack_pairs,
    pack_rows,
    pad_rows,
    truncate_pair,
    unpack,
)
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

CLS, SEP, PAD = 101, 102, 7
SIZES = list(itertools.product(range(9), range(9), range(9)))  # a, b, budget


def ragged(*rows: list[int]) -> tf.RaggedTensor:
    """Return rows of int32 pieces."""
    return tf.ragged.constant(rows, dtype=tf.int32, ragged_rank=1)


def of_sizes(*sizes: int) -> tf.RaggedTensor:
    """Return texts of some sizes, every token different from 1 on."""
    starts = np.cumsum([1, *sizes])
    rows = [
        list(range(start, start + n)) for start, n in zip(starts, sizes, strict=False)
    ]
    return ragged(*rows)


def by_hand(a: int, b: int, budget: int, how: str) -> tuple[int, int]:
    """Return how many pieces stay, by taking away one at a time."""
    if how == "longest_first":  # as in the Rust library: shares, not single pieces
        first, second = sorted((a, b))
        if first > budget:
            second = first
        else:
            second = max(first, budget - first)
        if first + second > budget:
            first = budget // 2
            second = first + budget % 2
        small, large = min(a, b, first), min(max(a, b), second)
        return (large, small) if a > b else (small, large)
    while a + b > budget:
        if how == "round_robin":
            from_a = a > b
        elif how == "only_first":
            from_a = a > 0
        else:
            from_a = b == 0
        a, b = (a - 1, b) if from_a else (a, b - 1)
    return a, b


@pytest.mark.parametrize("how", TRUNCATIONS)
def test_truncation_is_that_by_hand(how: str) -> None:
    for budget in range(9):
        cases = [(a, b) for a, b, n in SIZES if n == budget]
        a = of_sizes(*(case[0] for case in cases))
        b = of_sizes(*(case[1] for case in cases))
        kept_a, kept_b = truncate_pair(a, b, budget, how=how)
        sizes = zip(kept_a.row_lengths(), kept_b.row_lengths(), strict=True)
        wanted = [by_hand(*case, budget, how) for case in cases]
        assert [tuple(map(int, pair)) for pair in sizes] == wanted


def test_truncation_keeps_the_beginning() -> None:
    a, b = truncate_pair(ragged([1, 2, 3]), ragged([4, 5, 6]), 4, how="round_robin")
    assert (a.to_list(), b.to_list()) == ([[1, 2]], [[4, 5]])


def test_longest_first_is_that_of_the_tokenizers_library() -> None:
    words = {f"w{n}": n for n in range(20)}
    reference = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({**words, "[UNK]": 99}, unk_token="[UNK]")
    )
    reference.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    for budget in range(1, 9):
        cases = [(a, b) for a, b, n in SIZES if n == budget]
        texts_a = [[f"w{n}" for n in range(a)] for a, _ in cases]
        texts_b = [[f"w{n}" for n in range(10, 10 + b)] for _, b in cases]
        reference.enable_truncation(budget, strategy="longest_first")
        pairs = [
            (" ".join(a), " ".join(b)) for a, b in zip(texts_a, texts_b, strict=True)
        ]
        wanted = [encoded.ids for encoded in reference.encode_batch(pairs)]
        a = ragged(*([words[word] for word in text] for text in texts_a))
        b = ragged(*([words[word] for word in text] for text in texts_b))
        a, b = truncate_pair(a, b, budget, how="longest_first")
        assert tf.concat([a, b], axis=1).to_list() == wanted


def test_an_unknown_truncation_is_rejected() -> None:
    a = ragged([1])
    refused(lambda: truncate_pair(a, a, 3, how="middle"), "`truncation`", "'middle'")


def test_join_of_single_texts() -> None:
    ids, segments = join(ragged([1, 2], []), None, cls_id=CLS, sep_id=SEP)
    assert ids.to_list() == [[CLS, 1, 2, SEP], [CLS, SEP]]
    assert segments.to_list() == [[0, 0, 0, 0], [0, 0]]


def test_join_of_pairs() -> None:
    a, b = ragged([1, 2], []), ragged([3], [4, 5])
    ids, segments = join(a, b, cls_id=CLS, sep_id=SEP)
    assert ids.to_list() == [[CLS, 1, 2, SEP, 3, SEP], [CLS, SEP, 4, 5, SEP]]
    assert segments.to_list() == [[0, 0, 0, 0, 1, 1], [0, 0, 1, 1, 1]]


def test_padded_rows() -> None:
    ids, segments = ragged([1, 2, 3], [4]), ragged([0, 0, 1], [0])
    batch = pad_rows(ids, segments, pad_id=PAD, multiple=4)
    assert batch["token_ids"].numpy().tolist() == [[1, 2, 3, PAD], [4, PAD, PAD, PAD]]
    assert batch["segment_ids"].numpy().tolist() == [[0, 0, 1, 0], [0, 0, 0, 0]]
    assert batch["padding_mask"].numpy().tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]


@pytest.mark.parametrize("lay", [pad_rows, pack_rows])
def test_an_empty_batch(lay: Any) -> None:
    none = of_sizes()
    batch = lay(none, none)
    assert not batch["padding_mask"].numpy().any()
    assert batch["token_ids"].shape[1] >= 1


def packed_cases() -> Iterator[tuple[str, list[int], dict[str, int]]]:
    draw = np.random.default_rng(0)
    yield "one", [5], {}
    yield "one long", [300], {}
    yield "one long among short", [3, 200, 4, 4, 90], {}
    yield "equal", [12] * 40, {}
    yield "shorter than a row", [2, 3], {}
    yield "in row lengths", [96, 96, 1], {}
    yield "in short rows", [10, 9, 8, 2], {"row_tokens": 12}
    yield "in multiples", [20, 33, 7, 50], {"multiple": 16, "row_tokens": 50}
    for number in range(12):
        sizes = draw.geometric(0.04, size=draw.integers(1, 70)).clip(2, 128)
        yield f"random {number}", [int(size) for size in sizes], {}


PACKED = {name: (sizes, settings) for name, sizes, settings in packed_cases()}


@pytest.fixture(scope="module", params=PACKED)
def packed(request: pytest.FixtureRequest) -> tuple[list[int], dict, dict]:
    """Return sizes of texts, how they are packed, and the batch of them."""
    sizes, settings = PACKED[request.param]
    ids = of_sizes(*sizes)
    segments = tf.ragged.map_flat_values(lambda flat: flat % 2, ids)
    batch = pack_rows(ids, segments, pad_id=PAD, **settings)
    return sizes, settings, {key: value.numpy() for key, value in batch.items()}


def test_each_text_is_complete_and_at_its_position(packed: Any) -> None:
    sizes, _, batch = packed
    tokens = batch["token_ids"].reshape(-1)
    first = 1
    for size, start in zip(sizes, batch["cls_positions"], strict=True):
        assert tokens[start : start + size].tolist() == list(range(first, first + size))
        length = batch["token_ids"].shape[1]
        assert start // length == (start + size - 1) // length  # in one row
        first += size


def test_each_text_has_its_positions_segments_and_its_own_number(packed: Any) -> None:
    sizes, _, batch = packed
    seen = set()
    length = batch["token_ids"].shape[1]
    for size, start in zip(sizes, batch["cls_positions"], strict=True):
        place = slice(start, start + size)
        flat = {key: value.reshape(-1)[place] for key, value in batch.items()}
        assert flat["position_ids"].tolist() == list(range(size))
        assert flat["segment_ids"].tolist() == [t % 2 for t in flat["token_ids"]]
        (number,) = set(flat["sequence_ids"].tolist())
        assert number >= 1
        seen.add((start // length, number))
    assert len(seen) == len(sizes)  # no two texts of a row share a number


def test_everything_else_is_padding(packed: Any) -> None:
    sizes, _, batch = packed
    mask = batch["padding_mask"]
    assert mask.sum() == sum(sizes)
    assert (batch["token_ids"][mask == 0] == PAD).all()
    for key in ("segment_ids", "position_ids", "sequence_ids"):
        assert not batch[key][mask == 0].any()


def test_rows_have_the_wanted_length(packed: Any) -> None:
    sizes, settings, batch = packed
    length = batch["token_ids"].shape[1]
    multiple = settings.get("multiple", 1)
    assert length % multiple == 0
    # Rows are shared out evenly, so they may be up to twice as long as requested.
    most = 2.2 * max(settings.get("row_tokens", 96), *sizes) + multiple
    assert length <= max(most, max(sizes))


def test_short_texts_fill_rows_well() -> None:
    sizes = np.random.default_rng(3).integers(4, 40, size=128)
    mask = pack_rows(of_sizes(*sizes), of_sizes(*sizes))["padding_mask"].numpy()
    assert mask.mean() > 0.9


@pytest.mark.parametrize("sizes", [[3, 9, 1, 4, 4], [5], []])
@pytest.mark.parametrize("lay", [pad_rows, pack_rows])
def test_unpack_is_the_way_back(lay: Any, sizes: list[int]) -> None:
    ids = of_sizes(*sizes)
    others = ids * 10
    batch = lay(ids, tf.zeros_like(ids), targets=others)
    assert batch["targets"].shape == batch["token_ids"].shape
    hidden = batch["padding_mask"].numpy() == 0
    assert (batch["targets"].numpy()[hidden] == -1).all()
    assert unpack(batch["token_ids"], batch).to_list() == ids.to_list()
    both = tf.stack([batch["token_ids"], batch["targets"]], axis=-1)
    found = unpack(both, batch)
    assert found.to_list() == tf.stack([ids, others], axis=-1).to_list()


@hypothesis.settings(max_examples=40, derandomize=True, deadline=None)
@hypothesis.given(
    sizes=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=9),
    budget=st.integers(0, 16),
    how=st.sampled_from(TRUNCATIONS),
)
def test_truncation_only_cuts_ends_and_no_more_than_needed(
    sizes: list[tuple[int, int]], budget: int, how: str
) -> None:
    sides = [of_sizes(*(pair[side] for pair in sizes)) for side in (0, 1)]
    kept = truncate_pair(*sides, budget, how=how)
    for before, after in zip(sides, kept, strict=True):
        for whole, part in zip(before.to_list(), after.to_list(), strict=True):
            assert part == whole[: len(part)]
    lengths = [int(n) for n in kept[0].row_lengths() + kept[1].row_lengths()]
    assert lengths == [min(sum(pair), budget) for pair in sizes]


@hypothesis.settings(max_examples=25, derandomize=True, deadline=None)
@hypothesis.given(
    sizes=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), max_size=12),
    row_tokens=st.one_of(st.none(), st.integers(1, 200)),
    multiple=st.sampled_from([1, 8, 16]),
)
def test_any_texts_are_packed_whole_and_found_again(
    sizes: list[tuple[int, int]], row_tokens: int | None, multiple: int
) -> None:
    sides = [of_sizes(*(pair[side] for pair in sizes)) for side in (0, 1)]
    segments = [tf.ragged.map_flat_values(lambda ids: ids % 2, ids) for ids in sides]
    one = pack_rows(
        sides[0], segments[0], pad_id=PAD, row_tokens=row_tokens, multiple=multiple
    )
    pairs = pack_pairs(*zip(sides, segments, strict=True), multiple=multiple)
    assert len(pairs[0]["token_ids"]) == len(pairs[1]["token_ids"])
    for batch, ids in zip((one, *pairs), (sides[0], *sides), strict=True):
        assert unpack(batch["token_ids"], batch).to_list() == ids.to_list()
        assert batch["token_ids"].shape[1] % multiple == 0
        mask = batch["padding_mask"].numpy() == 1
        assert mask.sum() == ids.flat_values.shape[0]
        assert ((batch["sequence_ids"].numpy() > 0) == mask).all()
        # The positions count each text from 0, so all of a text lie side by side.
        positions = unpack(batch["position_ids"], batch).to_list()
        assert positions == [list(range(len(row))) for row in ids.to_list()]


@pytest.fixture(scope="module")
def tokenizer() -> WordPieceTokenizer:
    letters = "abcdefgh"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    return WordPieceTokenizer([*special, *letters, *(f"##{c}" for c in letters)])


def test_a_long_text_is_truncated(tokenizer: WordPieceTokenizer) -> None:
    batch = Preprocessor(tokenizer, max_length=4, layout="padded")(["a b c d e", ""])
    assert batch["token_ids"].numpy().tolist() == [[2, 4, 5, 3], [2, 3, 0, 0]]


def test_a_pair_is_truncated_as_configured(tokenizer: WordPieceTokenizer) -> None:
    pair = (["a b c"], ["d e f g"])
    rows = {
        how: Preprocessor(tokenizer, max_length=6, truncation=how).join(pair)[0]
        for how in TRUNCATIONS
    }
    assert {how: ids.to_list()[0] for how, ids in rows.items()} == {
        "longest_first": [2, 4, 3, 7, 8, 3],
        "round_robin": [2, 4, 5, 3, 7, 3],
        "only_first": [2, 3, 7, 8, 9, 3],
        "only_second": [2, 4, 5, 6, 3, 3],
    }


def test_two_strings_in_a_list_are_not_a_pair(tokenizer: WordPieceTokenizer) -> None:
    ids, _ = Preprocessor(tokenizer).join(["a", "b"])
    assert ids.to_list() == [[2, 4, 3], [2, 5, 3]]


def test_lengths_report_truncated_texts(tokenizer: WordPieceTokenizer) -> None:
    preprocessor = Preprocessor(tokenizer, max_length=5)
    lengths, cut = preprocessor.lengths(["a", "a b c", "a b c d"])
    assert lengths.numpy().tolist() == [3, 5, 5]
    assert cut.numpy().tolist() == [False, False, True]
    lengths, cut = preprocessor.lengths((["a", "a b"], ["b", "c"]))
    assert lengths.numpy().tolist() == [5, 5]
    assert cut.numpy().tolist() == [False, True]


@pytest.mark.parametrize(("layout", "pairs"), [("packed", False), ("padded", True)])
def test_the_same_in_a_function_and_in_tf_data(
    tokenizer: WordPieceTokenizer, layout: str, pairs: bool
) -> None:
    preprocessor = Preprocessor(tokenizer, max_length=9, layout=layout)
    texts: Any = tf.constant(["a b", "", "hag fed cab", "é a", "a b c d e f g h a"])
    texts = (texts, texts[::-1]) if pairs else texts
    eager = preprocessor(texts)
    traced = tf.function(preprocessor)(texts)
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(5)
    if pairs:
        dataset = dataset.map(lambda a, b: preprocessor((a, b)))
    else:
        dataset = dataset.map(preprocessor)
    (streamed,) = dataset
    for other in (traced, streamed):
        assert set(other) == set(eager)
        for key, value in eager.items():
            np.testing.assert_array_equal(other[key], value)


def test_a_preprocessor_is_restored_from_its_config(
    tokenizer: WordPieceTokenizer,
) -> None:
    preprocessor = Preprocessor(
        tokenizer,
        max_length=6,
        truncation="only_second",
        layout="padded",
        length_multiple=8,
    )
    again = Preprocessor.from_config(preprocessor.get_config())
    assert again.get_config() == preprocessor.get_config()
    pair = (["a b c"], ["d e"])
    assert again(pair)["token_ids"].numpy().tolist() == [[2, 4, 5, 6, 3, 3, 0, 0]]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("max_length", 2),
        ("truncation", "middle"),
        ("layout", "square"),
        ("length_multiple", 0),
    ],
)
def test_a_wrong_setting_is_named(
    tokenizer: WordPieceTokenizer, setting: str, value: Any
) -> None:
    action = lambda: Preprocessor(tokenizer, **{setting: value})  # noqa: E731
    refused(action, f"`{setting}`", f"received {value!r}")


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_tokens_are_located_in_rows(layout):
    sizes = [5, 0, 9, 3, 40, 2]
    ids = tf.RaggedTensor.from_row_lengths(tf.range(1, sum(sizes) + 1), sizes)
    offsets = tf.ragged.constant([[0, 4], [], [8], [], [1, 2, 39], [1]], dtype=tf.int32)
    lay = pack_rows if layout == "packed" else pad_rows
    batch = lay(ids, tf.zeros_like(ids))
    positions, slots = locate(offsets, batch)
    rows = batch["token_ids"].numpy()
    assert positions.shape[0] == len(rows)
    for row in positions.numpy():
        kept = row[row >= 0].tolist()
        assert kept == sorted(kept)
        assert (row[len(kept) :] == -1).all()
    assert positions.shape[1] == max((positions.numpy() >= 0).sum(1))
    found = np.take_along_axis(rows, np.maximum(positions, 0), axis=1).ravel()
    expected = tf.gather(ids, offsets, batch_dims=1)
    assert tf.gather(found, slots.flat_values).numpy().tolist() == [
        int(token) for token in expected.flat_values
    ]
    assert len(set(slots.flat_values.numpy())) == 7


def test_nothing_to_locate():
    ids = tf.ragged.constant([[1, 2], [3]], dtype=tf.int32)
    none = tf.ragged.constant([[], []], dtype=tf.int32)
    positions, slots = locate(none, pad_rows(ids, tf.zeros_like(ids)))
    assert positions.numpy().tolist() == [[-1], [-1]]
    assert slots.to_list() == [[], []]


def test_pairs_are_packed_in_the_same_rows():
    rng = np.random.default_rng(3)
    sides = []
    for _ in range(2):
        rows = [rng.integers(1, 99, rng.integers(1, 40)).tolist() for _ in range(30)]
        ids = tf.ragged.constant(rows, tf.int32, row_splits_dtype=tf.int64)
        sides.append((ids, ids.with_values(tf.zeros_like(ids.values))))
    first, second = pack_pairs(*sides, labels=sides[1][0])
    assert len(first["token_ids"]) == len(second["token_ids"]) < 30
    for batch, (ids, _) in zip((first, second), sides, strict=True):
        assert unpack(batch["token_ids"], batch).to_list() == ids.to_list()
        assert 0.7 < np.mean(batch["padding_mask"])
    places = []
    for batch in (first, second):
        starts, ranks = batch["cls_positions"], batch["sequence_ids"]
        rows = starts // ranks.shape[1]
        ranks = tf.gather(tf.reshape(ranks, [-1]), starts)
        places.append(tf.stack([rows, ranks], axis=1).numpy().tolist())
    assert places[0] == places[1]
    assert unpack(second["labels"], second).to_list() == sides[1][0].to_list()


def test_both_ends_of_a_text() -> None:
    pieces = tf.ragged.constant([list(range(20)), [1, 2], []], tf.int32, ragged_rank=1)
    kept = both_ends(pieces, tf.constant([8, 2, 0]))
    assert kept.to_list() == [[0, 1, 14, 15, 16, 17, 18, 19], [1, 2], []]
