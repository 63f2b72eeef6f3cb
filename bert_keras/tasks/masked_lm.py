"""Masked language model: the words that fit at each `[MASK]` of a text.

Trained on plain text with dynamic masking; evaluated on held-out text with fixed masks,
and by the pseudo-perplexity of its texts: each token is masked in turn, and the mean
log-probability of the masked tokens is the pseudo-log-likelihood per token.

Sources: Devlin et al. 2018 (arXiv:1810.04805), section 3.1; Salazar et al. 2020
(arXiv:1910.14659).
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.columns import Columns
from bert_keras.data.items import as_strings
from bert_keras.data.memory import is_path
from bert_keras.data.parallel import stream_texts
from bert_keras.data.row_source import RowSource
from bert_keras.data.rows import ending_of, stream_lines
from bert_keras.errors import ConfigError, received
from bert_keras.model.encoder import BertEncoder, batch_inputs, named_inputs
from bert_keras.model.heads import NO_LABEL, MaskedAccuracy, MaskedLMHead
from bert_keras.runs.notes import say_once
from bert_keras.settings import check_whole_number, with_options_documented
from bert_keras.tasks.base import Answers, Batch, Run, Task, refuse_weights
from bert_keras.tasks.hugging_face import HeadCodec
from bert_keras.tasks.masked_lm_settings import MaskedLMSettings
from bert_keras.tasks.needs import Needs
from bert_keras.tasks.protocols import texts_of
from bert_keras.text.masking import Masking, mask_id_of, ordinary
from bert_keras.text.packing import locate
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.ragged import keep, laid_like, put, segment_ids, sizes_of, slices
from bert_keras.text.tokenizer import WordPieceTokenizer

if TYPE_CHECKING:
    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Target


class _MaskedCodec(HeadCodec):
    """The masked-LM head, which is also one of `BertForPreTraining`'s."""

    def reads(self, config: Mapping[str, Any]) -> bool:
        named = config.get("architectures") or ()
        return super().reads(config) or "BertForPreTraining" in named


def _inputs() -> Batch:
    return batch_inputs(cls_positions=False) | named_inputs(["masked_positions"])


@keras.saving.register_keras_serializable(package="bert_keras")
@with_options_documented
@dataclasses.dataclass(frozen=True)
class MaskedLM(MaskedLMSettings, Task):
    """The most probable words at each `[MASK]`, and a language model of your own text.

    In prediction `[MASK]` is read as the special token; in training and scoring it is
    plain text. Other special tokens are always plain text.
    """

    name = "masked-lm"
    head_codec = _MaskedCodec("BertForMaskedLM")
    columns = {"text": "text"}
    best_score = "log_likelihood"
    needs = Needs(
        pooler=False,
        scopes=("cls/predictions/",),
        inputs=_inputs,
        filled_inputs=("masked_positions",),
        read_tokens=("[MASK]",),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.masking()

    def masking(self) -> Masking:
        """Return how tokens are masked."""
        return Masking(
            rate=self.mask_rate,
            mask_share=self.mask_share,
            random_share=self.random_share,
            max_predictions=self.max_predictions,
            unit=self.mask_unit,
        )

    # Data.

    @classmethod
    def read_own(cls, source: RowSource) -> Columns | None:
        parts = cls.stream_own(source, sys.maxsize)
        return None if parts is None else next(parts)

    @classmethod
    def stream_own(
        cls, source: RowSource, rows_at_once: int
    ) -> Iterator[Columns] | None:
        """Yield the lines of a `.txt` file as texts, blank ones skipped or kept."""
        path = os.fspath(source.data) if is_path(source.data) else ""
        is_table = source.columns or source.header == "yes"
        if is_table or ending_of(path) != ".txt":
            return None
        keeps = source.bad_rows == "keep"
        lines = enumerate(stream_lines(path), 1)
        texts = ((number, t) for number, t in lines if keeps or t.strip())
        return stream_texts(path, texts, rows_at_once, role="text")

    def targets(self, columns: Columns) -> np.ndarray:
        """Return the masking seed of each text, int64 [N]."""
        texts = texts_of(self, columns)[0]
        blank = [
            (row, f"`text` must hold a word to predict; {received(text)}")
            for row, text in enumerate(texts)
            if not text.strip()
        ]
        columns.refuse(blank)
        return np.arange(len(texts), dtype="int64")

    def resample(self, rows: tuple[Any, ...], draws: Any) -> tuple[Any, ...]:
        """Return the rows with new masking seeds: dynamic masking."""
        return rows[0], draws

    # Text to batch.

    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        tokenizer = preprocessor.tokenizer
        mask_id = mask_id_of(tokenizer)
        between = tf.strings.split(tf.convert_to_tensor(texts, tf.string), MASK)
        ids, segments = preprocessor.join_pieces(pieces_with_masks(tokenizer, between))
        batch = preprocessor.lay(ids, segments)
        places = tf.ragged.range(sizes_of(ids))
        masks = keep(places, ids.values == mask_id)
        positions, slots = locate(masks, batch)
        return {
            **batch,
            "masked_positions": positions,
            "slots": slots,
            "between": between,
            "tokens": tf.constant(tokenizer.vocabulary),
        }

    def examples(
        self, preprocessor: Preprocessor, texts: Any, targets: Any, weights: Any = None
    ) -> tuple[Batch, Any, Any]:
        """Return batch, labels int32 [R, P] (-1: none) and no weights, in graph."""
        refuse_weights(self, weights)
        targets = tf.convert_to_tensor(targets)
        if not targets.dtype.is_integer:
            raise ConfigError(
                "`y` must be left out, or be masking seeds, whole numbers; received "
                f"{targets.dtype.name}"
            )
        batch = hidden_batch(preprocessor, texts, targets, self.masking())
        labels = batch.pop("labels")
        del batch["slots"]  # only for answers
        return batch, labels, None

    # The model.

    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the logits of the masked positions, float32 [R, P, V]."""
        head = MaskedLMHead.on(encoder, seed=seed)
        given = dict(inputs)
        positions = given.pop("masked_positions")
        x = encoder.read_at(given, positions)["sequence_output"]
        return head(x, encoder.token_table(given))

    def from_named(self, named: Mapping[str, Any], batch: Mapping[str, Any]) -> Any:
        places = tf.maximum(batch["masked_positions"], 0)
        return tf.gather(named["logits"], places, batch_dims=1)

    def loss(self) -> keras.losses.Loss:
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=NO_LABEL
        )

    def metrics(self) -> list[Any]:
        return [MaskedAccuracy(name="accuracy")]

    # Answers and scores.

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `tokens` string and `probabilities` float32 [B, E, k], the likeliest
        for each mask, and `sequences` string [B, k], the text with the first, second …
        of each mask filled in. A text with fewer masks than E is padded with "" and 0.
        """
        slots, tokens = batch["slots"], batch["tokens"]
        logits = logits_at(outputs, slots)
        # A table of embeddings may have more rows than the vocabulary has tokens.
        known = tf.nn.softmax(logits)[:, : tf.size(tokens)]
        best, ids = tf.math.top_k(known, min(self.top_k, tokens.shape[0]))
        words = tf.gather(tokens, ids)
        return {
            "tokens": slots.with_flat_values(words).to_tensor(""),
            "probabilities": slots.with_flat_values(best).to_tensor(0.0),
            "sequences": filled(batch["between"], slots.with_flat_values(words)),
        }

    def recipe(self) -> dict[str, Any]:
        return {
            "meaning": "probabilities of the tokens of the vocabulary at each "
            "place of the row: softmax of the output",
            "activation": "softmax",
        }

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        (texts,) = super().parts(items)
        if not all(MASK in text for text in texts):
            say_once(f"texts without {MASK} have no word to fill: their `masks` are []")
        return (texts,)

    def respond(
        self, texts: Any, preprocessor: Preprocessor, run: Run, *, scored: bool = False
    ) -> dict[str, tf.Tensor]:
        """Return the answers at each `[MASK]`, or the scores of hidden tokens."""
        if not scored:
            batch = self.features(preprocessor, texts)
            return self.answer(run(batch), batch)
        batch = self.scored_batch(preprocessor, texts)
        return measured(run(batch), batch)

    def scored_batch(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        """Return the batch whose hidden tokens are scored; masks depend on the text."""
        draws = tf.strings.to_hash_bucket_fast(
            tf.convert_to_tensor(texts, tf.string), 2**62
        )
        return hidden_batch(preprocessor, texts, draws, self.masking())

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        """Return loss (nats per token), perplexity and accuracy at hidden tokens."""
        count = int(answers["predictions"].sum())
        mean = float(answers["loss"].astype("float64").sum()) / max(count, 1)
        return {
            "loss": mean,
            "log_likelihood": -mean,
            "perplexity": float(np.exp(mean)),
            "accuracy": int(answers["correct"].sum()) / max(count, 1),
            "num_predictions": count,
            "num_examples": len(columns),
        }

    def explained(self, item: Item) -> list[Target]:
        """Return the log-odds of the best word at each `[MASK]`."""
        text, features = item.parts[0], item.features()
        spans, start = [], 0
        for part in text.split(MASK):
            spans.append((start, start + len(part)))
            start += len(part) + len(MASK)
        pieces = item.words.add_spans("text", text, spans)
        gap = np.array([item.no_word], np.int32)
        flat = np.concatenate([x for part in pieces for x in (part, gap)])[:-1]
        length = features["token_ids"].shape[1]
        room = int(np.asarray(features["padding_mask"]).sum()) - 2
        words = item.words_in_row(length, (1, flat[:room]))[np.newaxis]
        rows = item.rows(features, words)
        masks = int((np.asarray(features["masked_positions"]) >= 0).sum())
        if not masks:
            raise ConfigError(f"a text must have a {MASK} to explain; {received(text)}")
        vocabulary = item.preprocessor.tokenizer.vocabulary
        logits = item.outputs(rows)[0]
        found = []
        for slot in range(masks):
            best = int(logits[slot, : len(vocabulary)].argmax())
            target = item.answer_odds(
                rows, vocabulary, best, size=logits.shape[-1], places=[(0, slot)]
            )
            if masks > 1:
                name = f"{target.name} ({slot + 1})"
                target = dataclasses.replace(target, name=name)
            found.append(target)
        return found

    def further_scores(
        self, model: Any, columns: Columns, batch_size: int
    ) -> dict[str, Any]:
        texts = texts_of(self, columns)[0][: self.pseudo_perplexity_texts]
        if not texts:
            return {}
        found = pseudo_log_likelihoods(model, texts, batch_size=batch_size)
        count = sum(tokens for _, tokens in found)
        mean = sum(total for total, _ in found) / max(count, 1)
        return {
            "pseudo_perplexity": float(np.exp(-mean)),
            "pseudo_perplexity_tokens": count,
        }


MASK = "[MASK]"


def pieces_with_masks(tokenizer: WordPieceTokenizer, between: Any) -> Any:
    """Return the ids of texts split at their masks, ragged int32 [B, None].

    A mask ends a word on either side, as in the `tokenizers` library.
    """
    pieces = tokenizer(between.values)
    sizes = sizes_of(pieces) + 1  # each followed by a mask
    starts = tf.cumsum(sizes, exclusive=True)
    flat = tf.fill([tf.reduce_sum(sizes)], mask_id_of(tokenizer))
    places = tf.ragged.range(starts, starts + sizes - 1).values
    flat = put(flat, places, pieces.values)
    splits = tf.gather(tf.pad(tf.cumsum(sizes), [[1, 0]]), between.row_splits)
    # The last part of a text is not followed by a mask.
    return slices(flat, splits[:-1], splits[1:] - splits[:-1] - 1)


def filled(between: Any, words: Any) -> Any:
    """Return texts with their masks filled in, string [B, k].

    `between` ragged string [B, None] has one part more than the text has masks; a
    truncated mask has no word in `words`, ragged string [B, None, k], and is unchanged.
    """
    count = words.flat_values.shape[-1]
    text = between.value_rowids()
    part = tf.ragged.range(between.row_lengths()).flat_values  # from 0 in each text
    known = part < tf.gather(words.row_lengths(), text)
    last = part + 1 == tf.gather(between.row_lengths(), text)
    # One extra row, to be read if a part has no word.
    table = tf.concat([words.flat_values, tf.fill([1, count], "")], axis=0)
    place = tf.where(known, tf.gather(words.row_splits, text) + part, 0)
    fallback = tf.where(last, "", MASK)[:, tf.newaxis]
    word = tf.where(known[:, tf.newaxis], tf.gather(table, place), fallback)
    parts = tf.repeat(between.flat_values[:, tf.newaxis], count, axis=1)
    # A piece inside a word is joined to the word before it.
    inside = tf.strings.regex_full_match(word, "##.+")
    parts = tf.where(inside, tf.strings.regex_replace(parts, r"\s+$", ""), parts)
    word = tf.where(inside, tf.strings.regex_replace(word, "^##", ""), word)
    columns = [
        tf.strings.reduce_join(
            between.with_flat_values(parts[:, i] + word[:, i]), axis=1
        )
        for i in range(count)
    ]
    return tf.stack(columns, axis=1)


def hidden_batch(
    preprocessor: Preprocessor, texts: Any, draws: Any, masking: Masking
) -> dict[str, Any]:
    """Return the batch of texts, string [B], with some tokens masked, in graph.

    `draws` int64 [B] are the masking seeds. The batch dict has `masked_positions` int32
    [R, P], the columns to predict, -1 if a row has fewer; `labels` int32 [R, P], the
    original tokens there, else -1; `slots`, ragged int32 [B, None], the index in the
    R*P of each hidden token.
    """
    ids, segments = preprocessor.join(texts)
    masked = masking(ids, draws, preprocessor.tokenizer)
    batch = preprocessor.lay(masked.ids, segments)
    multiple = preprocessor.length_multiple
    positions, slots = locate(masked.offsets, batch, multiple=multiple)
    return {
        **batch,
        "masked_positions": positions,
        "slots": slots,
        "labels": laid_like(positions, slots.flat_values, masked.labels.flat_values),
    }


def logits_at(outputs: Any, slots: Any) -> Any:
    """Return the logits of hidden tokens, float32 [N, V], text by text.

    `outputs` float [R, P, V] are for all positions; `slots` as in `hidden_batch`.
    """
    flat = tf.reshape(outputs, [-1, tf.shape(outputs)[-1]])
    return tf.cast(tf.gather(flat, slots.flat_values), tf.float32)


def measured(outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
    """Return the losses of the outputs, float [R, P, V], of a `hidden_batch`.

    By text: `loss` float32 [B], the sum in nats; `predictions` and `correct` int32 [B].
    """
    slots = batch["slots"]
    logits = logits_at(outputs, slots)
    labels = tf.gather(tf.reshape(batch["labels"], [-1]), slots.flat_values)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    found = tf.argmax(logits, axis=-1, output_type=tf.int32) == labels
    correct = slots.with_flat_values(tf.cast(found, tf.int32))
    return {
        "loss": tf.reduce_sum(slots.with_flat_values(losses), axis=1),
        "predictions": sizes_of(slots),
        "correct": tf.reduce_sum(correct, axis=1),
    }


def pseudo_perplexity(
    predictor: Any, texts: Iterable[str], *, batch_size: int = 64
) -> list[dict[str, Any]]:
    """Return the pseudo-perplexity of each text under a masked language model.

    Args:
        predictor: the `Predictor` of a masked-lm model.
        texts: strings, see `data.items.as_items`; long ones are truncated as in
            training.
        batch_size: passes computed at once; a text takes one pass per token.

    Returns:
        One dict per text: `log_likelihood`, the sum over its tokens (nats), `tokens`
        without the special ones, and `pseudo_perplexity`, exp(-mean); for a text
        without tokens it is `None`.

    Raises:
        ConfigError: the model has another task.
        DataError: a text is not a string.

    Example:
        >>> pseudo_perplexity(load_predictor("models/mine"), ["See you at six."])
        [{'log_likelihood': -9.2, 'tokens': 5, 'pseudo_perplexity': 6.3}]
    """
    strings = as_strings(texts)
    model = predictor.model
    if "masked_positions" not in model.task.needs.keras_inputs():
        raise ConfigError(
            f"`predictor` must be of a masked-lm model; received {model.task.name}"
        )
    found = pseudo_log_likelihoods(model, strings, batch_size=batch_size)
    return [
        {
            "log_likelihood": total,
            "tokens": count,
            "pseudo_perplexity": math.exp(-total / count) if count else None,
        }
        for total, count in found
    ]


def pseudo_log_likelihoods(
    model: Any, texts: Sequence[str], *, batch_size: int
) -> list[tuple[float, int]]:
    """Return the pseudo-log-likelihood (nats) and the token count of each text.

    `batch_size` passes are computed at once, grouped by length.
    """
    check_whole_number("batch_size", batch_size, least=1)
    if not texts:
        return []
    tokenizer = model.preprocessor.tokenizer
    mask_id = mask_id_of(tokenizer)
    ids, _ = model.preprocessor.join(texts)
    sizes = sizes_of(ids).numpy()
    # The text and the place of each token.
    text = segment_ids(ids.row_splits).numpy()
    place = tf.ragged.range(sizes).values.numpy()
    chosen = np.flatnonzero(ordinary(ids.values, tokenizer).numpy())
    chosen = chosen[np.argsort(sizes[text[chosen]], kind="stable")]
    totals = np.zeros(len(sizes))
    score = _scorer(model)
    for start in range(0, len(chosen), batch_size):
        some = chosen[start : start + batch_size]
        rows = text[some]
        tokens = tf.gather(ids, rows).to_tensor(tokenizer.pad_id).numpy()
        mask = tf.sequence_mask(sizes[rows], dtype=tf.int32)
        positions = place[some, np.newaxis]
        labels = np.take_along_axis(tokens, positions, axis=1)
        np.put_along_axis(tokens, positions, mask_id, axis=1)
        found = score(tokens, mask, positions, labels).numpy()
        np.add.at(totals, rows, found.astype(np.float64))
    counts = np.bincount(text[chosen], minlength=len(sizes))
    return list(zip(totals.tolist(), counts.tolist(), strict=True))


def _scorer(model: Any) -> Any:
    """Return a function that computes log-probabilities of labels, int32 [B, 1]."""
    rows = tf.TensorSpec([None, None], tf.int32)

    @tf.function(input_signature=[rows] * 4, autograph=False)
    def score(tokens: Any, mask: Any, positions: Any, labels: Any) -> Any:
        batch = {
            "token_ids": tokens,
            "segment_ids": tf.zeros_like(tokens),
            "padding_mask": mask,
            "masked_positions": positions,
        }
        logits = tf.cast(model.computed(batch), tf.float32)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return -losses[:, 0]

    return score
