"""Tagging of words: `TaggingTask`, `TokenClassification` and `FeatureTagging`.

`TaggingTask` holds data, answers and scores; its subclasses differ in the model alone.
`FeatureTagging` keeps the encoder frozen.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 5.3 and table 7: hidden layers
without fine-tuning, a BiLSTM of two layers, a linear layer on the first piece.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.data.class_names import (
    are_positions,
    check_names,
    class_entries,
    class_names,
    say_numbers,
    with_clean_names,
)
from bert_keras.data.columns import Columns
from bert_keras.data.conll import WORD_LINES
from bert_keras.data.duplicates import contradicting_labels, near_names
from bert_keras.data.holdout import Strata, classes_of
from bert_keras.data.memory import source_of
from bert_keras.data.row_source import RowSource
from bert_keras.data.rows import refuse_lines
from bert_keras.data.tagged import (
    read_tagged,
    stream_words,
    tag_problem,
    to_bio,
    with_one_scheme,
)
from bert_keras.errors import ConfigError, DataError, received, shown
from bert_keras.lazy_names import deferred, serializable
from bert_keras.reading.token_rows import TokenizedText
from bert_keras.reading.token_windows import WORD_PLACES, TokenWindows
from bert_keras.runs.notes import say_once
from bert_keras.scoring.entities import (
    Entity,
    FoundEntities,
    entities_of,
    entity_scores,
    of_one_word,
    parse_tag,
    scheme_of,
    tags_of,
    word_scores,
)
from bert_keras.settings import with_options_documented
from bert_keras.tasks.answer_rows import plain_values
from bert_keras.tasks.base import Answers, Batch, Run, Task, by_reader
from bert_keras.tasks.classifier import Confidence
from bert_keras.tasks.given_labels import checked, class_numbers
from bert_keras.tasks.hugging_face import HeadCodec
from bert_keras.tasks.needs import Needs
from bert_keras.tasks.protocols import TextSpec, string_parts
from bert_keras.tasks.redaction import Redaction
from bert_keras.tasks.tagging import words
from bert_keras.tasks.tagging.explanation import explained_entities
from bert_keras.tasks.tagging.settings import FeatureTaggingSettings, TaggingSettings
from bert_keras.tasks.tagging.spelling import spelled_entities

if TYPE_CHECKING:
    import keras
    import tensorflow as tf
    from typing_extensions import Self  # in typing since Python 3.11

    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Target
    from bert_keras.model import heads, recurrent_head
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.preprocessor import Preprocessor
else:
    keras, tf = deferred("keras", "tensorflow")
    heads, recurrent_head = deferred(
        "bert_keras.model.heads", "bert_keras.model.recurrent_head"
    )

# Entries of a batch for the answers, not inputs of the model.
_FOR_ANSWERS = ("words", "word_mask", "texts", "starts", "ends")


class TagsCodec(HeadCodec):
    """A head on each token, with an output for each tag."""

    def settings(self, config: Mapping[str, Any]) -> dict[str, Any] | None:
        found = super().settings(config)
        return None if found is None else {"classes": class_names(config)}

    def entries(self, task: Any) -> dict[str, Any]:
        return class_entries(task.classes)


@dataclasses.dataclass(frozen=True)
class TaggingTask(TaggingSettings, Confidence, Task):
    """A task of one tag for each word; a subclass defines the layers on the encoder.

    A row holds a list of words, or a text that is split at spaces, and as many tags. A
    plain text is split by the tokenizer, at spaces and punctuation. A word is labelled
    at its first piece; its other pieces have no loss. Sentences longer than
    `max_length` are read in windows (`words.lay_windows`). An entity whose score is
    below `abstain_below` is omitted.
    """

    columns = {"text": "text", "label": "label"}
    needs = Needs(pooler=False, rows_per_text=None)
    head_codec = TagsCodec()

    def __post_init__(self) -> None:
        super().__post_init__()
        found = check_names(self.classes, least=2, what="tags")
        object.__setattr__(self, "classes", found)
        if self.may_abstain and "O" not in self.classes:
            raise ConfigError(
                "`abstain_below` and `answered_accuracy` need `O` among the classes; "
                f"received {', '.join(self.classes)}"
            )

    @property
    def has_plain_tags(self) -> bool:
        """Whether each tag, such as a part of speech, belongs to one word alone."""
        return scheme_of(self.classes) == "words"

    @property
    def best_score(self) -> str:  # type: ignore[override]
        return "word_accuracy" if self.has_plain_tags else "f1"

    # Data.

    @classmethod
    def read_own(cls, source: RowSource) -> Columns | None:
        """Return words and tags, see `tagged`, or the words of a CoNLL file alone."""
        given: dict[str, Any] = {"columns": source.columns, "header": source.header}
        if source.labelled:
            return read_tagged(source.data, **given, bad_rows=source.bad_rows)
        parts = stream_words(source_of(source.data), **given)
        return None if parts is None else next(parts)

    @classmethod
    def stream_own(
        cls, source: RowSource, rows_at_once: int
    ) -> Iterator[Columns] | None:
        return stream_words(
            os.fspath(source.data),
            columns=source.columns,
            header=source.header,
            rows_at_once=rows_at_once,
            name=source.others.get("id"),
            bad_rows=source.bad_rows,
        )

    @classmethod
    def strata(cls, columns: Columns, **settings: Any) -> Strata:
        """Return the types of entities in each sentence."""
        return [
            {parse_tag(tag)[1] for tag in tags} - {""}
            for tags in split_cells(columns, "label")
        ]

    @classmethod
    def from_columns(cls, columns: Columns, **settings: Any) -> Self:
        """Return the task with `O`, and the tags of BIO of each type, sorted; or with
        the plain tags of the data, sorted.

        Raises:
            DataError: a tag is invalid, all are `O`, or they are numbers without
                `classes` that names them.
        """
        cells = {**columns.cells, "label": split_cells(columns, "label")}
        found = with_one_scheme(Columns(columns.path, cells, columns.lines))
        if "classes" in settings:
            return cls(**with_clean_names(settings))
        scheme = scheme_of(tag for tags in found["label"] for tag in tags)
        kinds = sorted(classes_of(cls.strata(found)))
        if scheme == "numbers":
            message = "`label` holds numbers of tags: set `classes` to their names"
            columns.refuse([(0, message)])
        if not kinds:
            message = "`label` must hold a tag that is not O, in some sentence"
            columns.refuse([(0, message)])
        if scheme == "words":
            return cls(**{"classes": tuple(kinds), **settings})
        classes = ("O", *(f"{prefix}-{kind}" for kind in kinds for prefix in "BI"))
        return cls(**{"classes": classes, **settings})

    def texts(self, columns: Columns, *, use: str) -> tuple[list[Any], ...]:
        """Return lists of words, or plain texts where there are no tags."""
        if "label" in columns:
            return (split_cells(columns, "text"),)
        return super().texts(columns, use=use)

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        """Return texts, or lists of words, which must not be mixed."""
        if not any(isinstance(item, list | tuple) for item in items):
            return string_parts(items, 1)
        for row, item in enumerate(items):
            words = isinstance(item, list | tuple)
            if not words or not all(isinstance(w, str) and w for w in item):
                raise DataError(
                    "`texts` must all be strings, or all be lists of non-empty words; "
                    f"received {shown(item)} at index {row}"
                )
        return ([list(item) for item in items],)

    def labels(self, columns: Columns) -> list[list[str]]:
        """Return the tags of each sentence; numbers by their places in `classes`."""
        labels, count = split_cells(columns, "label"), len(self.classes)
        found = {tag for tags in labels for tag in tags}
        if not are_positions(found, self.classes):
            if scheme_of(found) == "numbers" != scheme_of(self.classes):
                rule = f"`label` must hold tags, or their numbers from 0 to {count - 1}"
                columns.refuse(
                    [
                        (row, f"{rule}; {received(tag)}")
                        for row, tags in enumerate(labels)
                        for tag in tags
                        if int(tag) >= count
                    ]
                )
            return labels
        say_numbers(columns.path, "label", self.classes, of="tags")
        return [[self.classes[int(tag)] for tag in tags] for tags in labels]

    def entities_in(self, tags: Sequence[str]) -> list[Entity]:
        """Return the entities of a sentence; of plain tags, each word."""
        return entities_of(of_one_word(tags) if self.has_plain_tags else tags)

    def notes(self, columns: Columns) -> list[str]:
        """Return warnings about types that are almost equal, and contradictions."""
        labels = self.labels(columns)
        kinds = (parse_tag(tag)[1] for tags in labels for tag in tags)
        return [
            *near_names((kind for kind in kinds if kind), columns.path),
            *contradicting_labels(
                [split_cells(columns, "text")],
                [tuple(tags) for tags in labels],
                columns,
            ),
        ]

    def targets(self, columns: Columns) -> np.ndarray:
        """Return the tag of each word, int32 [N, W], filled with -1.

        Tags are converted to the scheme of the classes; a tag without a class in it,
        such as `I-x` where there is only `B-x`, is ignored in the loss.

        Raises:
            DataError: a tag's type is not among the classes, the numbers of tags and
                words differ, or a word is empty.
        """
        index = {parse_tag(tag): number for number, tag in enumerate(self.classes)}
        prefixes = "".join(sorted(prefix for prefix, _ in index))
        kinds = {kind for _, kind in index} - {""}
        sentences, labels = split_cells(columns, "text"), self.labels(columns)
        problems: list[tuple[int, str]] = []
        for row, (sentence, tags) in enumerate(zip(sentences, labels, strict=True)):
            problems += _problems(columns, row, sentence, tags, kinds)
        refuse_lines(columns.path, problems)
        values = np.full((len(labels), max(map(len, labels), default=0)), -1, "int32")
        for row, tags in enumerate(labels):
            ours = tags_of(entities_of(tags), len(tags), prefixes=prefixes)
            values[row, : len(tags)] = [index.get(parse_tag(tag), -1) for tag in ours]
        return values

    # From words to the batch dict, in graph.

    def signatures(self) -> dict[str, tuple[TextSpec, ...]]:
        return {**super().signatures(), "words": (TextSpec("words", rank=2),)}

    @property
    def reader(self) -> TokenWindows:
        return words.WINDOWS

    @by_reader
    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        """Return the batch dict of texts, string [B], or of words, string [B, W].

        It holds besides: `words`, see `lay_windows`; `word_mask` and, where texts were
        given, `starts` and `ends`, see `Pieces`; and the `texts`.
        """
        texts = tf.convert_to_tensor(texts)
        pieces = _pieces(preprocessor, texts)
        batch = words.lay_windows(preprocessor, pieces)
        batch["word_mask"] = pieces.mask
        if texts.shape.rank == 1:
            batch |= {"texts": texts, "starts": pieces.starts, "ends": pieces.ends}
        return batch

    def examples(
        self, preprocessor: Preprocessor, texts: Any, targets: Any, weights: Any = None
    ) -> tuple[Batch, Any, Any]:
        batch = self.features(preprocessor, texts)
        tags, mask = words.of_one_width(
            self.encode_targets(targets), batch["word_mask"]
        )
        right = (tags >= 0) == mask
        if targets.dtype != tf.string:  # -1 is a word that has no tag in the loss
            right |= mask
        names = tf.where(tags < 0, "", tf.gather(self.classes, tf.maximum(tags, 0)))
        rule = 'one tag for each word, "" elsewhere'
        tags = checked(tags, names, right, rule)
        found = words.targets_at(batch["words"], mask, tf.cast(tags, tf.int32))
        if weights is not None:  # of sentences, [B], for each of their words
            weights = tf.reshape(tf.cast(weights, tf.float32), [-1, 1])
            weights = tf.broadcast_to(weights, tf.shape(mask))
            weights = tf.maximum(words.targets_at(batch["words"], mask, weights), 0)
        inputs = {key: batch[key] for key in batch if key not in _FOR_ANSWERS}
        return inputs, found, weights

    def encode_targets(self, targets: Any) -> Any:
        """Return the numbers of tags by name or number, -1 for none."""
        if not isinstance(getattr(targets, "dtype", None), tf.DType):
            return targets
        if targets.dtype != tf.string:
            tags = tf.cast(targets, tf.int32)
            known = (tf.cast(tags, targets.dtype) == targets) & (tags >= -1)
            known &= tags < len(self.classes)
            rule = f"from 0 to {len(self.classes) - 1}, the number of a tag, or -1"
            return checked(tags, targets, known, rule)
        none = targets == ""  # after the last word of a shorter sentence
        tags = tf.where(none, self.classes[0], targets)
        return tf.where(none, -1, class_numbers(tags, self.classes))

    def lengths(self, preprocessor: Preprocessor, texts: Any) -> tuple[Any, Any]:
        """Return each sentence's tokens, int32 [B]; none is cut."""
        pieces = _pieces(preprocessor, tf.convert_to_tensor(texts))
        sizes = tf.cast(pieces.ids.row_lengths(), tf.int32) + 2
        return sizes, tf.zeros_like(sizes)

    # The loss, answers and scores.

    def loss(self) -> keras.losses.Loss:
        """Return the mean cross-entropy of the words of a batch."""
        return keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=-1
        )

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return the entities of texts, see `words.find_entities`, or the tags of
        words.

        For words: `tags` string [B, W] and their probabilities `scores` float32 [B, W];
        empty and 0 where there is no word.
        """
        p, mask = self._probabilities(outputs, batch), batch["word_mask"]
        tags, scores = tf.argmax(p, axis=-1), tf.reduce_max(p, axis=-1)
        if self.may_abstain:
            below = self.abstain_below
            tags = words.sure_tags(self.classes, tags, scores, mask, below=below)
            scores = tf.gather(p, tags, batch_dims=2)
        if "texts" in batch:
            pieces = words.Pieces(None, None, mask, batch["starts"], batch["ends"])
            return words.find_entities(
                self.classes, tags, scores, pieces, batch["texts"]
            )
        names = tf.gather(tf.constant(self.classes), tags)
        return {
            "tags": tf.where(mask, names, ""),
            "scores": tf.where(mask, scores, 0.0),
        }

    def numbers(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return the probabilities of the tags of all words, float32 [W, C], in
        graph.
        """
        logits = tf.reshape(self.scaled_logits(outputs), [-1, len(self.classes)])
        at = tf.gather(logits, batch[WORD_PLACES])
        return {"probabilities": tf.nn.softmax(at)}

    def spelled(
        self,
        numbers: Mapping[str, np.ndarray],
        rows: Sequence[TokenizedText],
        *,
        scored: bool = False,
    ) -> dict[str, np.ndarray]:
        below = self.abstain_below if self.may_abstain else 0.0
        return spelled_entities(
            self.classes, numbers["probabilities"], rows, below=below, scored=scored
        )

    def recipe(self) -> dict[str, Any]:
        return {
            "meaning": "probabilities of the tags of a word: softmax of the output at "
            "its first token, divided by temperature",
            "activation": "softmax",
            "temperature": self.temperature,
            "classes": list(self.classes),
            "abstain_below": self.abstain_below,
        }

    def redaction(
        self, preprocessor: Preprocessor, types: str | Sequence[str] | None
    ) -> Redaction:
        found = Redaction(self.classes, preprocessor.tokenizer, types)
        if self.abstain_below:
            say_once(
                "entities whose score is below `abstain_below`, "
                f"{self.abstain_below:g}, are not redacted"
            )
        return found

    def _probabilities(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Return the probabilities of the tags of each word, float32 [B, W, C]."""
        logits = self.scaled_logits(outputs)
        at = words.values_of_words(logits, batch["words"], batch["word_mask"])
        return tf.nn.softmax(at)

    def respond(
        self, texts: Any, preprocessor: Preprocessor, run: Run, *, scored: bool = False
    ) -> dict[str, tf.Tensor]:
        """Return the answers; to be scored, with `probabilities` float32 [B, W, C], 0
        where there is no word.
        """
        batch = self.features(preprocessor, texts)
        outputs = run(batch)
        answers = self.answer(outputs, batch)
        if scored and "texts" not in batch:
            p = self._probabilities(outputs, batch)
            answers["probabilities"] = tf.where(batch["word_mask"][..., None], p, 0.0)
        return answers

    def score(self, columns: Columns, answers: Answers) -> dict[str, Any]:
        """Return entity scores, and the calibration of all entities found.

        Tags are compared in BIO, whatever the schemes of the rows and the classes are;
        plain tags word by word.
        """
        scores = self._found(columns, answers).scores(
            temperature=self.temperature, abstain_below=self.abstain_below
        )
        labels, found = self.labels(columns), self._predicted(columns, answers)
        if self.has_plain_tags:
            return {**word_scores(labels, found), **scores}
        labels, found = ([to_bio(tags) for tags in each] for each in (labels, found))
        return {**entity_scores(labels, found), **scores}

    def tune(self, columns: Columns, answers: Answers) -> Self:
        """Return the task with temperature and threshold fitted on dev rows."""
        found = self._found(columns, answers)
        task, factor = self, 1.0
        if self.calibration == "temperature":
            factor = found.best_factor()
            task = task.with_temperature(factor)
        return task.with_threshold(found.confidence(factor), found.right)

    def _found(self, columns: Columns, answers: Answers) -> FoundEntities:
        labels, classes = self.labels(columns), self.classes
        if self.has_plain_tags:
            labels = [of_one_word(tags) for tags in labels]
            classes = tuple(of_one_word(classes))
        return FoundEntities(labels, classes, answers["probabilities"])

    def _predicted(self, columns: Columns, answers: Answers) -> list[list[str]]:
        sizes = map(len, split_cells(columns, "label"))
        tags = plain_values(answers["tags"])
        return [row[:size] for row, size in zip(tags, sizes, strict=True)]

    def mistakes(self, columns: Columns, answers: Answers) -> list[dict[str, Any]]:
        """Return the sentences with wrong entities, most confident first."""
        found = []
        sentences, labels = split_cells(columns, "text"), self.labels(columns)
        pairs = zip(labels, self._predicted(columns, answers), strict=True)
        for row, (label, prediction) in enumerate(pairs):
            right, given = self.entities_in(label), self.entities_in(prediction)
            if right == given:
                continue
            if self.has_plain_tags:  # the wrong words alone
                same = {*right} & {*given}
                right, given = (
                    [each for each in some if each not in same]
                    for some in (right, given)
                )
            tags = zip(*(tags_of(e, len(label)) for e in (right, given)), strict=True)
            wrong = [place for place, (a, b) in enumerate(tags) if a != b]
            found.append(
                {
                    "line": columns.lines[row],
                    "text": " ".join(sentences[row]),
                    "label": _shown(sentences[row], right),
                    "prediction": _shown(sentences[row], given),
                    "probability": float(answers["scores"][row, wrong].max()),
                }
            )
        return sorted(found, key=lambda mistake: -mistake["probability"])

    def describe(self, columns: Columns) -> dict[str, Any]:
        labels = self.labels(columns)
        counts = collections.Counter(
            entity.type for tags in labels for entity in self.entities_in(tags)
        )
        facts: dict[str, Any] = {"rows": len(columns), "words": sum(map(len, labels))}
        if not self.has_plain_tags:
            facts["entities"] = sum(counts.values())
        return {**facts, "classes": dict(sorted(counts.items()))}

    def explained(self, item: Item) -> list[Target]:
        return explained_entities(self, item)


def split_cells(columns: Columns, role: str) -> list[list[str]]:
    """Return lists of words or tags; cells that are strings are split at spaces."""
    cells: list[Any] = columns[role]
    return [
        cell.split() if isinstance(cell, str) else list(map(str, cell))
        for cell in cells
    ]


def _problems(
    columns: Columns, row: int, sentence: list[str], tags: list[str], kinds: set[str]
) -> list[tuple[int, str]]:
    """Return line and reason of each wrong tag of a sentence."""
    lines = [columns.lines[row]] * len(tags)
    if WORD_LINES in columns:
        lines = columns[WORD_LINES][row]
    problems = []
    for line, tag in zip(lines, tags, strict=True):
        kind = parse_tag(tag)[1]
        if kind and kind not in kinds:
            reason = tag_problem(tag) or (
                f"the type of a tag must be one of {', '.join(sorted(kinds))}; "
                f"{received(tag)}"
            )
            problems.append((line, reason))
    if not problems and len(sentence) != len(tags):
        reason = (
            f"`label` must hold a tag for each of {len(sentence)} words; "
            f"holds {len(tags)}"
        )
        problems.append((columns.lines[row], reason))
    if "" in sentence:
        problems.append((columns.lines[row], "`text` must not hold empty words"))
    return problems


def _shown(sentence: list[str], entities: Sequence[Entity]) -> str:
    """Return the entities of a sentence as readable text."""
    return "; ".join(
        f"{' '.join(sentence[start:end])} ({kind})" for kind, start, end in entities
    )


def _pieces(preprocessor: Preprocessor, texts: Any) -> words.Pieces:
    if texts.shape.rank == 1:
        return words.pieces_of_texts(preprocessor.tokenizer, texts)
    return words.pieces_of_words(preprocessor.tokenizer, texts)


@serializable
@with_options_documented
@dataclasses.dataclass(frozen=True)
class TokenClassification(TaggingTask):
    """Tags of words, the encoder fine-tuned; answers are the entities of a text.

    Example:
        >>> rows = as_columns(text=["Ann met Bo"], label=["B-person O B-person"])
        >>> TokenClassification.from_columns(rows).classes
        ('O', 'B-person', 'I-person')
    """

    name = "token-classification"
    head_codec = TagsCodec("BertForTokenClassification")
    # At the usual rate, 64 sentences of WNUT-17 teach no entity (docs/figures.md).
    needs = Needs(pooler=False, rows_per_text=None, times_if_few=3.0)

    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the logits of each token, float32 [R, T, C]."""
        head = heads.PooledHead.on(encoder, len(self.classes), seed=seed)
        return head(encoder(inputs)["sequence_output"])


@serializable
@with_options_documented
@dataclasses.dataclass(frozen=True)
class FeatureTagging(FeatureTaggingSettings, TaggingTask):
    """Tags of words by a small BiLSTM on a frozen encoder.

    Only the head is trained, from scratch, at a much higher learning rate than in
    fine-tuning.
    """

    name = "feature-tagging"
    needs = Needs(
        pooler=False,
        outputs=("hidden_states",),
        rows_per_text=None,
        learning_rate=1e-3,
        not_for_engines="Keras's exporters do not support its BiLSTM",
    )

    @classmethod
    def inherited(cls, held: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sizes of the head of the encoder's folder."""
        return {} if held is None else {"layers": held.layers, "units": held.units}

    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return the logits of each token, float32 [B, T, C]."""
        head = recurrent_head.RecurrentHead(
            len(self.classes),
            features=self.layers,
            units=self.units or encoder.config.hidden_size,
            dropout_rate=encoder.config.hidden_dropout_prob,
            initializer_range=encoder.config.initializer_range,
            seed=seed,
        )
        states = encoder(inputs, training=False)["hidden_states"]
        return head(states, inputs["padding_mask"], inputs["sequence_ids"])

    def frozen(self, encoder: BertEncoder) -> list[keras.layers.Layer]:
        return encoder.layers
