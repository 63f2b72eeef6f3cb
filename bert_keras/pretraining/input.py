"""Shards of pretraining examples to batches, in the graph: `pretraining_dataset`.

Reads the files of `write_pretraining_data` and of Google's code, plain or
gzipped; their content is detected from the first example.

Source: google-research/bert `run_pretraining.py`, for the features and their types.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_keras.distribution.replicas import ALONE, Share
from bert_keras.errors import ConfigError
from bert_keras.pretraining.files import LABEL, PretrainingFiles, find_files
from bert_keras.pretraining.records import SHUFFLE, examples_in_order, parts_in_order
from bert_keras.settings import (
    CAUSAL,
    LAYOUTS,
    OBJECTIVES,
    REPLACED_TOKEN,
    check_choice,
    check_whole_number,
)
from bert_keras.text.masking import Masking
from bert_keras.text.packing import locate, pack_rows
from bert_keras.text.ragged import laid_like
from bert_keras.text.tokenizer import WordPieceTokenizer

Features = Mapping[str, Any]
_NONE = -1  # padding in rows with fewer masked tokens


def static_rows(columns: Features) -> tuple[dict[str, Any], Any]:
    """Return the batch and the targets of data with stored masks."""
    chosen = columns["masked_lm_weights"] > 0
    positions = tf.where(chosen, columns["masked_lm_positions"], _NONE)
    targets = tf.where(chosen, columns["masked_lm_ids"], _NONE)
    return _batch(columns, columns["input_ids"], positions), targets


def causal_rows(columns: Features) -> tuple[dict[str, Any], Any]:
    """Return the tokens unchanged; each except the last predicts the next one."""
    ids = columns["input_ids"]
    has_next = columns["input_mask"][:, 1:] > 0
    places = tf.broadcast_to(tf.range(ids.shape[1] - 1), tf.shape(has_next))
    positions = tf.where(has_next, places, _NONE)
    return _batch(columns, ids, positions), tf.where(has_next, ids[:, 1:], _NONE)


def dynamic_rows(
    columns: Features, masking: Masking, draws: Any, tokenizer: WordPieceTokenizer
) -> tuple[dict[str, Any], Any]:
    """Return the batch, masked from these draws, int64 [B], and the targets."""
    sizes = tf.reduce_sum(columns["input_mask"], axis=1)
    ids = tf.RaggedTensor.from_tensor(columns["input_ids"], lengths=sizes)
    masked = masking(ids, draws, tokenizer)
    length = columns["input_ids"].shape[1]
    most = min(masking.max_predictions, length)
    shape = tf.stack([tf.shape(sizes)[0], most])
    positions = masked.offsets.to_tensor(_NONE, shape=shape)
    targets = masked.labels.to_tensor(_NONE, shape=shape)
    token_ids = masked.ids.to_tensor(tokenizer.pad_id, shape=[None, length])
    static = [None, most]
    return (
        _batch(columns, token_ids, tf.ensure_shape(positions, static)),
        tf.ensure_shape(targets, static),
    )


def _batch(columns: Features, token_ids: Any, positions: Any) -> dict[str, Any]:
    return {
        "token_ids": token_ids,
        "segment_ids": columns["segment_ids"],
        "padding_mask": columns["input_mask"],
        "masked_positions": positions,
    }


def packed_rows(
    batch: Features, targets: Any, pad_id: int
) -> tuple[dict[str, Any], Any]:
    """Pack several examples per row, with the positions and tokens to predict."""
    given = batch["masked_positions"]
    sizes = tf.reduce_sum(batch["padding_mask"], axis=1)
    counts = tf.reduce_sum(tf.cast(given >= 0, tf.int32), axis=1)
    ragged = tf.RaggedTensor.from_tensor
    rows = pack_rows(
        ragged(batch["token_ids"], lengths=sizes),
        ragged(batch["segment_ids"], lengths=sizes),
        pad_id=pad_id,
        row_tokens=None,
    )
    positions, slots = locate(ragged(given, lengths=counts), rows)
    labels = ragged(targets, lengths=counts)
    laid = laid_like(positions, slots.flat_values, labels.flat_values)
    return {**rows, "masked_positions": positions}, laid


def cut_rows(batch: Features, targets: Any) -> tuple[dict[str, Any], Any]:
    """Cut the batch to columns in which some row has a token; at least one."""
    positions = batch["masked_positions"]
    sizes = tf.reduce_sum(batch["padding_mask"], axis=1)
    tokens = tf.maximum(tf.reduce_max(sizes), 1)
    masked = tf.reduce_sum(tf.cast(positions >= 0, tf.int32), axis=1)
    most = tf.maximum(tf.reduce_max(masked), 1)
    cut = {key: value[:, :tokens] for key, value in batch.items()}
    return {**cut, "masked_positions": positions[:, :most]}, targets[:, :most]


def original_tokens(batch: Features, targets: Any) -> Any:
    """Return the tokens before they were masked, int32 [B, T], -1 at padding."""
    positions = batch["masked_positions"]
    slots = tf.where(positions >= 0)
    columns = tf.cast(tf.gather_nd(positions, slots), tf.int64)
    places = tf.stack([slots[:, 0], columns], axis=1)
    ids = tf.where(batch["padding_mask"] > 0, batch["token_ids"], _NONE)
    return tf.tensor_scatter_nd_update(ids, places, tf.gather_nd(targets, slots))


def pretraining_dataset(
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tokenizer: WordPieceTokenizer,
    *,
    batch_size: int,
    objective: str = "masked",
    masking: Masking | None = None,
    next_sentence: bool = True,
    seed: int = 0,
    shuffle: int = SHUFFLE,
    epochs: int | None = 1,
    redraw: bool = True,
    skip_batches: int = 0,
    layout: str = "padded",
    padding: str = "longest",
    drop_remainder: bool = False,
    share: Share = ALONE,
) -> tf.data.Dataset:
    """Return batches for masked-LM and next-sentence training.

    Each element is `(batch, labels)`, two dicts of int32. The batch: `token_ids`,
    `segment_ids`, `padding_mask` [B, T] and `masked_positions` [B, P], -1 where a row
    has fewer. The labels: `masked_lm` [B, P], the original tokens, -1 at padding, and
    `next_sentence` [B], 0 if B follows A; it is omitted if the manifest says that the
    data has no pairs. For replaced tokens they have no `next_sentence`, and
    `replaced_token` [B, T] are all original tokens, -1 at padding. Packed rows hold
    several examples: R rows take the place of B, except in `next_sentence`, and the
    batch has the additional entries of `packing.pack_rows`.

    Order and masks depend on `seed` (and, with `redraw`, on TensorFlow's global seed if
    one is set). Each epoch has its own, and so does each iteration of the dataset, as
    in Keras's `fit` with `epochs`. To resume an interrupted run, create the same
    dataset with `skip_batches`.

    Args:
        files: a folder, a file, a pattern such as `data/*.tfrecord`, or several files.
        tokenizer: the tokenizer of the data.
        batch_size: examples of a batch, B.
        objective: `masked`; `replaced-token`, whose masks are the same; or `causal` for
            a left-to-right model: nothing is hidden, each token predicts the next one
            (for data without masks).
        masking: for data without masks (`dynamic`), how tokens are hidden; `None`
            follows the manifest, or uses `Masking()` if there is none.
        next_sentence: `False` omits those labels.
        seed: of the order and the masks.
        shuffle: size of the buffer from which the next example is drawn, in addition to
            shuffling the files; 0 keeps the order of examples and files.
        epochs: passes over the data in one dataset; `None` repeats it forever, in the
            same order each time that it is iterated.
        redraw: `False` gives the same order and masks each time that the dataset is
            iterated, for held-out data.
        skip_batches: number of batches to skip at the start, without computing them.
        layout: `padded`, one example per row, or `packed`, several, so that a
            batch has little padding.
        padding: for padded rows; `longest` cuts T and P to the longest row of a batch;
            `full` keeps the T and P of the files, for compilers that need one shape.
        drop_remainder: drop a last batch that is not full.
        share: the replicas that the batches are for; each batch is split into one
            element for each of these replicas, see `replicas.distributed`.

    Raises:
        ConfigError: an argument is wrong; `masking` or `causal` is given for data that
            has masks.
        DataError: there is no file, one is broken or has other features, a run has not
            finished, or the data was made with another vocabulary or other text rules.

    Example:
        >>> dataset = pretraining_dataset("data", tokenizer, batch_size=32)
        >>> batch, labels = next(iter(dataset))
        >>> labels["masked_lm"].shape == batch["masked_positions"].shape
        True
    """
    check_whole_number("batch_size", batch_size, least=1)
    check_whole_number("shuffle", shuffle, least=0)
    check_whole_number("skip_batches", skip_batches, least=0)
    check_whole_number("seed", seed, least=0)
    if epochs is not None:
        check_whole_number("epochs", epochs, least=1)
    check_choice("objective", objective, OBJECTIVES)
    check_choice("layout", layout, LAYOUTS)
    check_choice("padding", padding, ("longest", "full"))
    found = find_files(files, tokenizer)
    to_batch = _batch_of_records(
        found,
        tokenizer,
        objective=objective,
        masking=_masking_for(found, objective, masking),
        next_sentence=next_sentence,
        layout=layout,
        padding=padding,
    )
    dataset = examples_in_order(
        found,
        seed=seed,
        shuffle=shuffle,
        epochs=epochs,
        redraw=redraw,
        skip=skip_batches * batch_size,
    )
    dataset = dataset.batch(batch_size, drop_remainder=drop_remainder)
    if share != ALONE:
        own = None
        if epochs is None:
            own = parts_in_order(
                found,
                share,
                seed=seed,
                shuffle=shuffle,
                batch_size=batch_size,
                skip_batches=skip_batches,
                drop_remainder=drop_remainder,
            )
        dataset = dataset.flat_map(share.parts) if own is None else own
    dataset = dataset.map(to_batch, num_parallel_calls=tf.data.AUTOTUNE)
    if found.examples is not None:
        rest = max(found.examples * (epochs or 0) - skip_batches * batch_size, 0)
        count = rest // batch_size if drop_remainder else -(-rest // batch_size)
        count *= share.count
        if epochs is None:
            count = tf.data.INFINITE_CARDINALITY
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(count))
    return dataset.prefetch(tf.data.AUTOTUNE)


def _batch_of_records(
    found: PretrainingFiles,
    tokenizer: WordPieceTokenizer,
    *,
    objective: str,
    masking: Masking,
    next_sentence: bool,
    layout: str,
    padding: str,
) -> Callable[[Any, Any], tuple[Features, Features]]:
    """Return a function that makes batch and labels, in graph.

    It takes serialized records [B] and their draws. The arguments are those of
    `pretraining_dataset`; `masking` is the one in effect.
    """

    @tf.autograph.experimental.do_not_convert
    def to_batch(records: Any, draws: Any) -> tuple[Features, Features]:
        columns = {
            name: tf.cast(values, tf.int32)
            for name, values in tf.io.parse_example(records, found.features).items()
        }
        if found.examples is None:  # no manifest gives the vocabulary
            tf.debugging.assert_less(
                columns["input_ids"],
                tokenizer.vocab_size,
                "an id of `input_ids` is not in the vocabulary",
            )
        if found.is_masked:
            batch, targets = static_rows(columns)
        elif objective == CAUSAL:
            batch, targets = causal_rows(columns)
        else:
            batch, targets = dynamic_rows(columns, masking, draws, tokenizer)
        if layout == "packed":
            batch, targets = packed_rows(batch, targets, tokenizer.pad_id)
        elif padding == "longest":
            batch, targets = cut_rows(batch, targets)
        labels = {"masked_lm": targets}
        if objective == REPLACED_TOKEN:
            labels["replaced_token"] = original_tokens(batch, targets)
        elif found.has_pairs and next_sentence:
            labels["next_sentence"] = columns[LABEL][:, 0]
        return batch, labels

    return to_batch


def _masking_for(
    found: PretrainingFiles, objective: str, masking: Masking | None
) -> Masking:
    """Return how tokens are hidden; raise ConfigError where masks are stored."""
    if found.is_masked and objective == CAUSAL:
        raise ConfigError(
            "`objective` must be masked for data with stored masks, as in "
            f"{found.paths[0]}; received causal: write the data with dynamic masking"
        )
    if found.is_masked and masking is not None:
        raise ConfigError(
            f"`masking` must be None for data with stored masks, as in "
            f"{found.paths[0]}; received {masking}"
        )
    return masking or found.masking
