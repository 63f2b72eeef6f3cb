"""Extractive summarization: the most important sentences of a document.

Each sentence has a `[CLS]` before it and a `[SEP]` after it, the segment of sentences
alternates, and a linear layer on the hidden state of each `[CLS]` scores the sentence.

Source: Liu 2019 (arXiv:1903.10318), sections 2 and 3, with the simple classifier; Liu
and Lapata 2019 (arXiv:1908.08345). Unlike there, documents longer than the encoder's
maximum are not truncated but split into windows of whole sentences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.columns import Columns
from bert_keras.errors import received
from bert_keras.model.encoder import BertEncoder, batch_inputs, named_inputs
from bert_keras.model.heads import PooledHead
from bert_keras.scoring.rouge import Rouge
from bert_keras.settings import with_options_documented
from bert_keras.tasks.answer_rows import plain_values
from bert_keras.tasks.base import Answers, Batch, Task
from bert_keras.tasks.needs import Needs
from bert_keras.tasks.summarization_settings import SummarizationSettings
from bert_keras.text.packing import locate
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.ragged import (
    laid_like,
    never_empty,
    segment_ids,
    sizes_of,
    starts_of,
    with_sizes,
)
from bert_keras.text.sentences import (
    Sentences,
    choose_sentences,
    list_sentences,
    split_sentences,
)
from bert_keras.text.windows import units_in_windows, values_of

if TYPE_CHECKING:
    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Target


def some_sentences(texts: Any) -> Sentences:
    """Return the sentences of documents; an empty document has one empty sentence."""
    found = split_sentences(texts)
    return Sentences(
        never_empty(found.texts, ""),
        never_empty(found.starts, 0),
        never_empty(found.ends, 0),
    )


def sentence_windows(preprocessor: Preprocessor, sentences: Any) -> dict[str, Any]:
    """Return documents as windows of whole sentences, at most `max_length` tokens.

    `sentences` is ragged string [B, None], at least one in each document; one too long
    for a window is truncated. The batch dict has `sentence_positions` int32 [R, P], the
    columns of the [CLS]s of each row, -1 if it has fewer; and `numbers` int32 [R, P],
    the index of each one's sentence in the whole batch, else -1.
    """
    ids, _ = preprocessor.join(sentences.flat_values)
    sizes = sizes_of(ids)
    windows = units_in_windows(sentences.with_values(sizes), preprocessor.max_length)
    numbers = tf.range(tf.shape(sizes)[0])
    ranks = numbers - tf.gather(tf.math.segment_min(numbers, windows), windows)
    sentence = segment_ids(ids.row_splits)
    joined = with_sizes(ids.values, tf.math.segment_sum(sizes, windows))
    segments = joined.with_values(tf.gather(ranks % 2, sentence))
    batch = preprocessor.lay(joined, segments)
    first = starts_of(ids) - tf.gather(starts_of(joined), windows)
    first = with_sizes(first, tf.math.segment_sum(tf.ones_like(windows), windows))
    multiple = preprocessor.length_multiple
    positions, slots = locate(first, batch, multiple=multiple)
    found = laid_like(positions, slots.flat_values, numbers)
    return {**batch, "sentence_positions": positions, "numbers": found}


_MEANINGS = {  # in `answers.json`, see `Needs`
    "token_type_ids": "0 for the first sentence of a row, 1 for the second one, 0 for "
    "the third one, and so on",
    "sentence_positions": "places of the [CLS] of each sentence in its row, from 0, "
    "padded with -1, whose outputs mean nothing",
}


def _inputs() -> Batch:
    return batch_inputs(cls_positions=False) | named_inputs(["sentence_positions"])


@keras.saving.register_keras_serializable(package="bert_keras")
@with_options_documented
@dataclasses.dataclass(frozen=True)
class Summarization(SummarizationSettings, Task):
    """The sentences of a document that make its summary.

    Learns from documents with a reference summary: the targets are the sentences that
    together raise ROUGE-1 and ROUGE-2 against the reference, chosen greedily.
    """

    name = "summarization"
    roles = ("document",)
    columns = {"document": "document", "summary": "summary"}
    best_score = "rougeLsum"
    needs = Needs(
        pooler=False,
        inputs=_inputs,
        meanings=_MEANINGS,
        max_length=512,
        rows_per_text=None,
    )

    def targets(self, columns: Columns) -> np.ndarray:
        """Return 1 for each target sentence, else 0, int32 [N, S] padded with -1.

        Raises:
            DataError: a document or a summary has no word; named by line.
            ConfigError: rouge-score is not installed.
        """
        rouge = Rouge(self.stemmer)
        problems = [
            (row, f"`{role}` must hold a word; {received(cell)}")
            for role in self.columns
            for row, cell in enumerate(columns[role])
            if not rouge.tokenize(cell)
        ]
        columns.refuse(problems)
        documents = list_sentences(columns["document"])
        most = max(map(len, documents))
        targets = np.full((len(documents), most), -1, "int32")
        for row, sentences in enumerate(documents):
            targets[row, : len(sentences)] = 0
            targets[row, self._best(rouge, sentences, columns["summary"][row])] = 1
        return targets

    def _best(self, rouge: Rouge, sentences: Sequence[str], summary: str) -> list[int]:
        return rouge.best_sentences(sentences, summary, most=self.max_sentences)

    # From documents to windows of sentences, in graph.

    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        """Return the batch dict of windows, with the sentences of the documents."""
        found = some_sentences(texts)
        batch = sentence_windows(preprocessor, found.texts)
        return {**batch, **found._asdict()}

    def examples(
        self, preprocessor: Preprocessor, texts: Any, targets: Any, weights: Any = None
    ) -> tuple[Batch, Any, Any]:
        """Return the batch, targets int32 [R, P, 1] and weights [R, P], 0 at padding.

        `targets` int32 [B, S] are as returned by `targets`; `weights` float32 [B], or
        `None`.
        """
        sentences = some_sentences(texts).texts
        batch = sentence_windows(preprocessor, sentences)
        numbers = batch.pop("numbers")
        rows = sentences.value_rowids()
        places = tf.ragged.range(sentences.row_lengths()).flat_values
        wanted = tf.gather_nd(targets, tf.stack([rows, places], axis=1))
        weight = tf.cast(numbers >= 0, tf.float32)
        numbers = tf.maximum(numbers, 0)
        if weights is not None:
            weight *= tf.gather(tf.gather(tf.cast(weights, tf.float32), rows), numbers)
        return batch, tf.gather(wanted, numbers)[..., tf.newaxis], weight

    def lengths(self, preprocessor: Preprocessor, texts: Any) -> tuple[Any, Any]:
        """Return the number of tokens of each document in all windows, and the number
        truncated from its sentences, int32 [B] each.
        """
        sentences = some_sentences(texts).texts
        sizes, lost = preprocessor.lengths(sentences.flat_values)
        return (
            tf.reduce_sum(sentences.with_values(sizes), axis=1),
            tf.reduce_sum(sentences.with_values(lost), axis=1),
        )

    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the logits of the sentences' [CLS]s, float32 [R, P, 1]."""
        head = PooledHead.on(encoder, 1, seed=seed, name="summarizer")
        given = dict(inputs)
        positions = given.pop("sentence_positions")
        return head(encoder.read_at(given, positions)["sequence_output"])

    def loss(self) -> keras.losses.Loss:
        return keras.losses.BinaryCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )

    # Answers and scores.

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `summary` string [B] and its sentences.

        `sentences` string, `starts` and `ends` int32 (positions in characters) and
        `scores` float32 (probability of each) are [B, max_sentences], in the order of
        the document, padded with empty strings, -1 and 0.
        """
        texts, numbers = batch["texts"], batch["numbers"]
        logits = tf.cast(outputs[..., 0], tf.float32)
        flat = values_of(logits, numbers, tf.shape(texts.flat_values)[0])
        scores = texts.with_values(tf.sigmoid(flat)).to_tensor(-1.0)
        chosen = choose_sentences(
            scores,
            texts,
            most=self.max_sentences,
            trigram_blocking=self.trigram_blocking,
        )
        found = chosen >= 0
        index = tf.maximum(chosen, 0)

        def pick(values: Any, fill: Any) -> tf.Tensor:
            return tf.where(found, tf.gather(values, index, batch_dims=1), fill)

        sentences = pick(texts.to_tensor(""), "")
        joined = tf.strings.reduce_join(sentences, axis=1, separator=" ")
        return {
            "summary": tf.strings.strip(joined),
            "sentences": sentences,
            "starts": pick(batch["starts"].to_tensor(0), -1),
            "ends": pick(batch["ends"].to_tensor(0), -1),
            "scores": pick(scores, 0.0),
        }

    def recipe(self) -> dict[str, Any]:
        return {
            "meaning": "each sentence of a document starts with [CLS] and ends with "
            "[SEP]; a row is as many whole sentences as fit in max_length tokens; the "
            "score of a sentence is the sigmoid of the output for the place of its "
            "[CLS] in sentence_positions; the best max_sentences are the summary, in "
            "the order of the document; with trigram_blocking, a sentence that shares "
            "three consecutive words with a better one of the summary is left out",
            "activation": "sigmoid",
            "max_sentences": self.max_sentences,
            "trigram_blocking": self.trigram_blocking,
        }

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        """Return mean ROUGE F-measures; `baselines` has the scores of two baselines.

        `lead_3` (for three sentences) is the start of each document, `oracle` the
        choice of a perfect model.
        """
        rouge, most = Rouge(self.stemmer), self.max_sentences
        documents = list_sentences(columns["document"])
        best = [
            [sentences[index] for index in self._best(rouge, sentences, summary)]
            for sentences, summary in zip(documents, columns["summary"], strict=True)
        ]
        references = _lines(list_sentences(columns["summary"]))
        lead = [sentences[:most] for sentences in documents]
        return {
            "num_examples": len(columns),
            **rouge.score(references, _lines(_chosen(answers))),
            "baselines": {
                f"lead_{most}": rouge.score(references, _lines(lead)),
                "oracle": rouge.score(references, _lines(best)),
            },
        }

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        """Return the summaries that lack a sentence they should have, worst first."""
        rouge, chosen = Rouge(self.stemmer), _chosen(answers)
        documents, summaries = list_sentences(columns["document"]), columns["summary"]
        wrong = [
            row
            for row, sentences in enumerate(documents)
            for best in [self._best(rouge, sentences, summaries[row])]
            if not {sentences[index] for index in best} <= set(chosen[row])
        ]
        scores = rouge.score_each(
            _lines(list_sentences([summaries[row] for row in wrong])),
            _lines([chosen[row] for row in wrong]),
        )
        found = [
            {
                "line": columns.lines[row],
                "text": columns["document"][row],
                "summary": summaries[row],
                "prediction": " ".join(chosen[row]),
                **of_row,
            }
            for row, of_row in zip(wrong, scores, strict=True)
        ]
        return sorted(found, key=lambda row: row[self.best_score])

    def explained(self, item: Item) -> list[Target]:
        """Return the log-odds of each sentence of the summary."""
        item.refuse("target", "against")
        text, features = item.parts[0], item.features()
        starts, ends = (np.asarray(features[k].values) for k in ("starts", "ends"))
        spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
        pieces = item.words.add_spans("document", text, spans)
        rows = item.rows(features, _words_of_sentences(item, features, pieces))
        numbers = np.asarray(features["numbers"])
        chosen = {(each["start"], each["end"]) for each in item.answer["sentences"]}
        targets = []
        for number, (start, end) in enumerate(spans):
            if (start, end) in chosen:
                row, column = np.argwhere(numbers == number)[0].tolist()
                one, place = rows.take([row]), (0, column)
                name = text[start:end]
                targets.append(item.weighted_sum(name, one, [1.0], place=place))
        return targets

    def describe(self, columns: Columns) -> dict[str, Any]:
        counts = [len(each) for each in list_sentences(columns["document"])]
        return {
            "rows": len(columns),
            "mean_sentences": round(float(np.mean(counts)), 1),
        }


def _words_of_sentences(
    item: Item, features: Mapping[str, Any], pieces: Sequence[np.ndarray]
) -> np.ndarray:
    """Return the word of each token in windows of sentences, see `sentence_windows`."""
    numbers = np.asarray(features["numbers"])
    positions = np.asarray(features["sentence_positions"])
    sizes = np.asarray(features["padding_mask"]).sum(axis=1)
    length = features["token_ids"].shape[1]
    words = []
    for row in range(len(numbers)):
        parts = []
        columns = [*positions[row][positions[row] >= 0].tolist(), int(sizes[row])]
        for place in range(len(columns) - 1):
            count = columns[place + 1] - columns[place] - 2
            parts.append((columns[place] + 1, pieces[numbers[row, place]][:count]))
        words.append(item.words_in_row(length, *parts))
    return np.stack(words)


def _chosen(answers: Answers) -> list[list[str]]:
    return [
        [text for text in row if text] for row in plain_values(answers["sentences"])
    ]


def _lines(texts: Sequence[Sequence[str]]) -> list[str]:
    """Return sentences one per line, as `rougeLsum` requires."""
    return ["\n".join(text.replace("\n", " ") for text in each) for each in texts]
