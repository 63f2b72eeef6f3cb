"""Masked language model: the words that fit at each `[MASK]` of a text.

Trained on plain text with dynamic masking; evaluated on held-out text with fixed masks.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.1.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.memory import is_path
from bert_keras.data.rows import ending_of
from bert_keras.data.table import Columns, read_lines
from bert_keras.errors import received
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.masked_lm_head import NO_LABEL, MaskedAccuracy, MaskedLMHead
from bert_keras.settings import check_whole_number
from bert_keras.tasks.answer_rows import of_masks
from bert_keras.tasks.base import Task
from bert_keras.tasks.masked_lm.pseudo_likelihood import pseudo_log_likelihoods
from bert_keras.tasks.masked_lm.texts import (
    filled,
    hidden_batch,
    hidden_scores,
    logits_at,
    measured,
    parted,
    pieces_with_masks,
)
from bert_keras.text.masking import Masking, mask_id_of
from bert_keras.text.packing import locate
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.ragged import keep, sizes_of


@keras.saving.register_keras_serializable(package="bert_keras")
@dataclasses.dataclass(frozen=True)
class MaskedLM(Task):
    """The most probable words at each `[MASK]`, and a language model of one's own text.

    In prediction `[MASK]` is read as the special token; in training and scoring it is
    plain text. Other special tokens are always plain text.

    Args:
        top_k: answers for each mask, 1000 at most.
        mask_rate, mask_share, random_share, max_predictions, mask_unit: how tokens are
            masked in training and scoring, see `masking.Masking`.
        pseudo_perplexity_texts: number of texts for which `evaluate` also computes the
            pseudo-perplexity, at one forward pass a token.

    Raises:
        ConfigError: a setting is out of its range.
    """

    name = "masked-lm"
    summary = "the words that fit at each [MASK]; adapts BERT to your own plain text"
    architecture = "BertForMaskedLM"
    columns = {"text": "text"}
    best_score = "log_likelihood"
    pooler = False
    pretrained_scopes = ("cls/predictions/",)
    free_settings = (
        "top_k",
        "mask_rate",
        "mask_share",
        "random_share",
        "max_predictions",
        "mask_unit",
        "pseudo_perplexity_texts",
    )

    top_k: int = 5
    mask_rate: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    max_predictions: int = 80
    mask_unit: str = "piece"
    pseudo_perplexity_texts: int = 0

    def __post_init__(self) -> None:
        for name, least, most in (
            ("top_k", 1, 1000),  # answers for each of the masks of a batch
            ("pseudo_perplexity_texts", 0, 1_000_000),
            ("max_predictions", 1, 100_000),
        ):
            check_whole_number(name, getattr(self, name), least=least, most=most)
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
    def read(
        cls,
        source: Any,
        *,
        columns: Mapping[str, str | int | None] | None = None,
        header: str = "auto",
        roles: Sequence[str] | None = None,
    ) -> Columns:
        """Return the texts of a file: its lines, or a column of a table.

        The lines of a `.txt` file are texts, blank ones skipped, if no column is named.
        """
        if not columns and is_path(source):
            place = os.fspath(source)
            if ending_of(place) == ".txt":
                return read_lines(place)
        return super().read(source, columns=columns, header=header)

    @classmethod
    def from_model_config(cls, config: Mapping[str, Any]) -> MaskedLM:
        return cls()

    @classmethod
    def reads(cls, config: Mapping[str, Any]) -> bool:
        names = config.get("architectures") or ()
        return "BertForMaskedLM" in names or "BertForPreTraining" in names

    def targets(self, columns: Columns) -> np.ndarray:
        """Return the masking seed of each text, int64 [N]."""
        texts = self.texts(columns)[0]
        blank = [
            (row, f"`text` must hold a word to predict; {received(text)}")
            for row, text in enumerate(texts)
            if not text.strip()
        ]
        if blank:
            raise columns.error(blank)
        return np.arange(len(texts), dtype="int64")

    def redrawn(self, rows: tuple[Any, ...], draws: Any) -> tuple[Any, ...]:
        """Return the rows with new masking seeds: dynamic masking."""
        return rows[0], draws

    # Text to batch.

    def features(self, preprocessor: Preprocessor, texts: Any) -> dict[str, Any]:
        tokenizer = preprocessor.tokenizer
        mask_id = mask_id_of(tokenizer)
        between = parted(texts)
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
    ) -> tuple[dict[str, Any], Any, Any]:
        """Return batch, labels int32 [R, P] (-1: none) and no weights, in graph."""
        batch = hidden_batch(preprocessor, texts, targets, self.masking())
        labels = batch.pop("labels")
        del batch["slots"]  # for answers alone
        return batch, labels, None

    # The model.

    def inputs(self) -> dict[str, Any]:
        positions = keras.Input((None,), dtype="int32", name="masked_positions")
        return {**super().inputs(), "masked_positions": positions}

    def outputs(
        self, encoder: BertEncoder, inputs: dict[str, Any], seed: int | None
    ) -> Any:
        """Return the logits of the masked positions, float32 [R, P, V]."""
        head = MaskedLMHead.on(encoder, seed=seed)
        given = dict(inputs)
        positions = given.pop("masked_positions")
        x = encoder.read_at(given, positions)["sequence_output"]
        return head(x, encoder.token_table(given))

    def loss(self) -> keras.losses.Loss:
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=NO_LABEL
        )

    def metrics(self) -> list[Any]:
        return [MaskedAccuracy(name="accuracy")]

    # Answers and scores.

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `tokens` string and `probabilities` float32 [B, E, k], the likeliest
        of each mask, and `sequences` string [B, k], the text with the first, second …
        of each mask filled in. A text with fewer masks than E is filled up with "", 0.
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

    def rows(self, answers: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
        """Return `masks`, a list of `token` and `probability` for each mask of a text,
        and `sequences`; both empty where the text has no mask.
        """
        return [of_masks(row) for row in super().rows(answers)]

    def respond(
        self,
        texts: Any,
        preprocessor: Preprocessor,
        run: Callable[[dict[str, Any]], Any],
        *,
        scored: bool = False,
    ) -> dict[str, tf.Tensor]:
        """Return the answers at each `[MASK]`, or scores of hidden tokens."""
        if not scored:
            return super().respond(texts, preprocessor, run)
        batch = self.scored_batch(preprocessor, texts)
        return measured(run(batch), batch)

    def scored_batch(self, preprocessor: Preprocessor, texts: Any) -> dict[str, Any]:
        """Return the batch whose hidden tokens are scored; masks depend on the text."""
        draws = tf.strings.to_hash_bucket_fast(
            tf.convert_to_tensor(texts, tf.string), 2**62
        )
        return hidden_batch(preprocessor, texts, draws, self.masking())

    def score(
        self, columns: Columns, answers: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Return loss (nats a token), perplexity and accuracy at the hidden tokens."""
        return {**hidden_scores(answers), "num_examples": len(columns)}

    def further_scores(
        self, model: Any, columns: Columns, batch_size: int
    ) -> dict[str, Any]:
        texts = self.texts(columns)[0][: self.pseudo_perplexity_texts]
        if not texts:
            return {}
        found = pseudo_log_likelihoods(model, texts, batch_size=batch_size)
        count = sum(tokens for _, tokens in found)
        mean = sum(total for total, _ in found) / max(count, 1)
        return {
            "pseudo_perplexity": float(np.exp(-mean)),
            "pseudo_perplexity_tokens": count,
        }
