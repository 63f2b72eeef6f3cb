"""One block of documents to one shard of pretraining examples: `ShardWriter`.

All draws come from generators keyed by the seed, the block and the pass over
it (Philox: Salmon et al. 2011), so it does not matter which process makes which shard.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bert_keras.errors import DataError
from bert_keras.files.records import serialize, write_records
from bert_keras.pretraining.blocks import Block
from bert_keras.pretraining.config import PretrainingDataConfig
from bert_keras.pretraining.manifest import SUMMED, Shard, shard_name
from bert_keras.pretraining.pairs import (
    Pairs,
    Rows,
    Tokens,
    make_pairs,
    make_rows,
    tokens_of,
)
from bert_keras.text.masking import Masking, mask_id_of
from bert_keras.text.tokenizer import WordPieceTokenizer

_SENTENCES_AT_ONCE = 2000
_ROWS_AT_ONCE = 2048
# The purpose of a generator: pairs, the order in the shard, masks.
_PAIRS, _ORDER, _MASKS = range(3)


class ShardWriter:
    """Writes the shards of a job; one in each process.

    Arguments are as in `write_pretraining_data`.

    Raises:
        ConfigError: the vocabulary has no `[MASK]`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        to_sentences: Callable[[Any], Iterable[str]],
        tokenizer: WordPieceTokenizer,
        config: PretrainingDataConfig,
    ) -> None:
        self.folder = Path(folder)
        self.to_sentences = to_sentences
        self.tokenizer = tokenizer
        self.config = config
        mask_id_of(tokenizer)
        self.inside = np.array([t.startswith("##") for t in tokenizer.vocabulary])
        self._tokenize = _tokenizing(tokenizer)
        self._hide = _hiding(tokenizer, masking_of(config))

    def __call__(self, block: Block) -> dict[str, Any]:
        """Write the shard of a block and return the facts about it.

        Raises:
            DataError: `to_sentences` returns something other than sentences; next
                sentences are requested and only one document has text; writing fails.
        """
        tokens, sentences = self._read(block)
        pairs = self._pairs(block.number, tokens)
        counts = {"real_tokens": 0, "masked_tokens": 0}
        size = write_records(
            self.folder / shard_name(block.number),
            self._records(block.number, tokens, pairs, counts),
        )
        shard = Shard(
            number=block.number,
            file=shard_name(block.number),
            bytes=size,
            text_blake2b=block.text_blake2b,
            documents=len(block.documents),
            characters=block.characters,
            sentences=sentences,
            tokens=len(tokens.ids),
            unknown_tokens=int((tokens.ids == self.tokenizer.unk_id).sum()),
            instances=len(pairs.labels),
            not_next=int(pairs.labels.sum()),
            **counts,
        )
        return dataclasses.asdict(shard)

    def _random(self, *key: int) -> np.random.Generator:
        seeds = np.random.SeedSequence(self.config.seed, spawn_key=key)
        return np.random.Generator(np.random.Philox(seeds))

    def _read(self, block: Block) -> tuple[Tokens, int]:
        """Return the tokens of a block's documents and the number of sentences."""
        texts: list[bytes] = []
        counts = []
        for document in block.documents:
            found = [_encoded(text) for text in self.to_sentences(document)]
            texts += found
            counts.append(len(found))
        ids, sizes = [np.zeros(0, "int32")], [np.zeros(0, "int64")]
        for start in range(0, len(texts), _SENTENCES_AT_ONCE):
            rows = self._tokenize(
                tf.constant(texts[start : start + _SENTENCES_AT_ONCE], tf.string)
            )
            ids.append(rows.values.numpy())
            sizes.append(rows.row_lengths().numpy())
        return tokens_of(np.concatenate(ids), np.concatenate(sizes), counts), len(texts)

    def _pairs(self, number: int, tokens: Tokens) -> Pairs:
        """Return the pairs of all passes over a block, in random order."""
        if not len(tokens.ids):
            empty = np.zeros([0, 2], "int64")
            return Pairs(empty, empty, np.zeros(0, "int32"))
        inside = self.inside[tokens.ids]
        passes = [
            make_pairs(tokens, self.config, self._random(_PAIRS, number, i), inside)
            for i in range(self.config.duplicates)
        ]
        pairs = Pairs(*map(np.concatenate, zip(*passes, strict=True)))
        order = self._random(_ORDER, number).permutation(len(pairs.labels))
        return pairs.take(order)

    def _records(
        self, number: int, tokens: Tokens, pairs: Pairs, counts: dict[str, int]
    ) -> Iterator[bytes]:
        """Yield the examples of a shard, and count tokens."""
        random = self._random(_MASKS, number)
        for start in range(0, len(pairs.labels), _ROWS_AT_ONCE):
            some = pairs.take(slice(start, start + _ROWS_AT_ONCE))
            rows = make_rows(
                tokens,
                some,
                max_length=self.config.max_length,
                cls_id=self.tokenizer.cls_id,
                sep_id=self.tokenizer.sep_id,
                pad_id=self.tokenizer.pad_id,
            )
            counts["real_tokens"] += int(rows.padding_mask.sum())
            features = {
                "input_ids": rows.token_ids,
                "input_mask": rows.padding_mask,
                "segment_ids": rows.segment_ids,
                "next_sentence_labels": some.labels[:, np.newaxis],
            }
            if self.config.masking == "static":
                features |= self._static(rows, random)
                masked = int(features["masked_lm_weights"].sum())
                counts["masked_tokens"] += masked
            yield from serialize(features)

    def _static(self, rows: Rows, random: np.random.Generator) -> dict[str, np.ndarray]:
        """Return the masked rows and their masks, under Google's names."""
        draws = random.integers(2**63, size=len(rows.token_ids))
        sizes = rows.padding_mask.sum(axis=1)
        flat = rows.token_ids[rows.padding_mask > 0]
        ids = tf.RaggedTensor.from_row_lengths(flat, sizes, validate=False)
        hidden, positions, labels = (x.numpy() for x in self._hide(ids, draws))
        token_ids = rows.token_ids.copy()
        token_ids[rows.padding_mask > 0] = hidden
        chosen = positions >= 0
        return {
            "input_ids": token_ids,
            "masked_lm_positions": np.where(chosen, positions, 0),
            "masked_lm_ids": np.where(chosen, labels, 0),
            "masked_lm_weights": chosen.astype("float32"),
        }


def shard_writer(
    folder: str,
    to_sentences: Callable[[Any], Iterable[str]],
    tokenizer: str,
    config: PretrainingDataConfig,
) -> ShardWriter:
    """Return the writer of another process; `tokenizer` is its config as JSON."""
    return ShardWriter(
        folder,
        to_sentences=to_sentences,
        tokenizer=_tokenizer_of(tokenizer),
        config=config,
    )


@functools.lru_cache(maxsize=1)  # its tables and graphs take a second
def _tokenizer_of(config: str) -> WordPieceTokenizer:
    return WordPieceTokenizer.from_config(json.loads(config))


@functools.lru_cache(maxsize=4)
def _tokenizing(tokenizer: WordPieceTokenizer) -> Any:
    """Return the tokenizer as a graph, which takes a second to trace."""
    strings = tf.TensorSpec([None], tf.string)
    return tf.function(tokenizer.__call__, input_signature=[strings])


@functools.lru_cache(maxsize=4)
def _hiding(tokenizer: WordPieceTokenizer, masking: Masking) -> Any:
    """Return the graph that hides tokens: flat ids, positions and labels [B, P]."""

    @tf.autograph.experimental.do_not_convert
    def hide(ids: Any, draws: Any) -> tuple[Any, Any, Any]:
        masked = masking(ids, draws, tokenizer)
        shape = tf.stack([tf.shape(draws)[0], masking.max_predictions])
        positions = masked.offsets.to_tensor(-1, shape=shape)
        return masked.ids.values, positions, masked.labels.to_tensor(-1, shape=shape)

    ids = tf.RaggedTensorSpec([None, None], tf.int32)
    return tf.function(hide, input_signature=[ids, tf.TensorSpec([None], tf.int64)])


def masking_of(config: PretrainingDataConfig) -> Masking:
    """Return how a job hides tokens."""
    return Masking(
        rate=config.mask_rate,
        mask_share=config.mask_share,
        random_share=config.random_share,
        max_predictions=config.predictions,
        unit=config.mask_unit,
    )


def _encoded(text: Any) -> bytes:
    if not isinstance(text, str):
        kind = type(text).__name__
        raise DataError(f"`to_sentences` must give strings; received a {kind}")
    return text.encode("utf-8", "surrogatepass")


def totals_of(
    shards: Sequence[dict[str, Any]], config: PretrainingDataConfig
) -> dict[str, Any]:
    """Return the sums over all shards, and the resulting shares.

    Raises:
        DataError: there is no instance, since no document is long enough.
    """
    sums = {key: sum(shard[key] for shard in shards) for key in SUMMED}
    unknown = sum(shard["unknown_tokens"] for shard in shards)
    not_next = sum(shard["not_next"] for shard in shards)
    instances = sums["instances"]
    if not instances:
        need = "a sentence"
        if config.next_sentence == "order":
            need = "two sentences, for `next_sentence` order"
        raise DataError(
            f"`documents` must hold one with at least {need}; received "
            f"{sums['documents']:,} with {sums['sentences']:,} sentences in all"
        )
    return {
        **sums,
        "real_token_share": sums["real_tokens"] / (instances * config.max_length),
        "unknown_token_share": unknown / max(sums["tokens"], 1),
        "not_next_share": not_next / instances,
    }
