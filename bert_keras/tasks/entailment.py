"""Classes without training rows: does a text entail a sentence about a class?

A text is paired with a sentence for each class, and an entailment model scores the
pairs; they share packed rows, as the choices of multiple choice do.

Sources: Yin et al. 2019 (arXiv:1909.00161); which outputs count, and the sentence, are
the same as in transformers' pipeline `zero-shot-classification`; so are probabilities.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bert_keras.data.class_names import (
    check_names,
    chosen_names,
    class_entries,
    listed,
    renamed,
)
from bert_keras.errors import ConfigError, received
from bert_keras.lazy_names import deferred
from bert_keras.reading.choices import GIVEN_LIMIT, LIMITS, PLACE, Choices
from bert_keras.reading.windows import LongTexts
from bert_keras.tasks.base import Batch, by_reader
from bert_keras.tasks.classifier import NamedClasses
from bert_keras.tasks.hugging_face import SINGLE_LABEL, ClassesCodec
from bert_keras.tasks.needs import Needs
from bert_keras.tasks.protocols import TextSpec, list_parts

if TYPE_CHECKING:
    import tensorflow as tf

    from bert_keras.explained.item import Item
    from bert_keras.explained.targets import Rows
    from bert_keras.model import encoder, heads
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.preprocessor import Preprocessor
else:
    tf, heads, encoder = deferred(
        "tensorflow", "bert_keras.model.heads", "bert_keras.model.encoder"
    )

GIVEN = "classes"  # the signature, and its input, of classes in a request


class EntailedCodec(ClassesCodec):
    """Classes of a pooled head, or the classes of an entailment model."""

    def entries(self, task: Any) -> dict[str, Any]:
        if not task.entailment:
            return super().entries(task)
        return {**class_entries(task.entailment), "problem_type": SINGLE_LABEL}


class EntailedClasses(NamedClasses):
    """Named classes with an output each, or scored by an entailment model's head.

    `entailment` names the outputs of that head; empty: there is an output for each
    class. The task then reads single texts, and `classes` and `template` may change.
    """

    head_codec = EntailedCodec()
    entailment: tuple[str, ...]
    template: str
    against_contradiction: ClassVar[bool] = False  # else against the other classes

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.entailment:
            return
        check_names(self.entailment, least=2, what="outputs")
        check_template(self.template)
        if self.pairs:
            raise ConfigError(
                "`pairs` must be false with `entailment`, which pairs each text with "
                f"`template`; {received(self.pairs)}"
            )
        if self.long != "truncate":
            raise ConfigError(
                "`long` must be truncate with `entailment`, which reads a text once "
                f"for each class; {received(self.long)}"
            )
        self._scoring()

    def adjusted(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings; thresholds belong to their classes."""
        if self.entailment and "classes" in settings and hasattr(self, "thresholds"):
            return {"thresholds": (), **settings}
        return dict(settings)

    def new_names(self, classes: Any) -> tuple[str, ...]:
        """Return other classes, which may be more or fewer with `entailment`."""
        if not self.entailment:
            return renamed(classes, len(self.classes))
        return chosen_names(classes, least=self.least_classes)

    @property
    def least_classes(self) -> int:
        """The least number of classes that a text is compared with."""
        return 1 if self.against_contradiction else 2

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        found = super().needs
        if not self.entailment:
            return found
        return dataclasses.replace(
            found,
            scopes=("classifier/",),
            inputs=lambda: encoder.choice_inputs(),
            readings=len(self.classes),
        )

    @property
    def units(self) -> int:
        return len(self.entailment or self.classes)

    # Text to batch.

    def signatures(self) -> dict[str, tuple[TextSpec, ...]]:
        """Return the signature of texts, and with `entailment` of texts with classes.

        These are string [B, C], "" where a text has fewer.
        """
        found = super().signatures()
        if not self.entailment:
            return found
        names = TextSpec(GIVEN, rank=2)
        return {**found, GIVEN: (*found["serving_default"], names)}

    def parts(self, items: Sequence[Any]) -> tuple[list[Any], ...]:
        """Return texts, or texts and lists of classes from `(text, [class, …])`."""
        has_lists = any(isinstance(item, tuple | list) for item in items)
        if not self.entailment or not has_lists:
            return super().parts(items)
        form = "(text, [class, class …]), the classes different and none empty"
        return list_parts(items, form, least=self.least_classes, are_different=True)

    @by_reader
    def features(self, preprocessor: Preprocessor, texts: Any) -> Batch:
        """Return the batch dict of texts; of pairs with each class with `entailment`.

        It holds `classes` then, and the `limits` of those that have some.
        """
        if not self.entailment:
            return super().features(preprocessor, texts)
        text, names = self._with_names(texts)
        batch = preprocessor.pair_choices(text, self._sentences(names))
        batch[GIVEN] = names
        if limits := self.class_limits:
            is_given = isinstance(texts, tuple)
            limit = tf.constant(GIVEN_LIMIT if is_given else limits, tf.float32)
            batch[LIMITS] = tf.broadcast_to(limit, tf.shape(names))
        return batch

    def lengths(self, preprocessor: Preprocessor, texts: Any) -> tuple[Any, Any]:
        if not self.entailment:
            return super().lengths(preprocessor, texts)
        text, names = self._with_names(texts)
        return preprocessor.choice_lengths(text, self._sentences(names))

    def _sentences(self, names: Any) -> Any:
        """Return the sentence about each class, tf.string [B, C]; "" for ""."""
        before, _, after = self.template.partition(PLACE)
        return tf.where(names == "", "", tf.strings.join([before, names, after]))

    def _with_names(self, texts: Any) -> tuple[Any, Any]:
        """Return texts, tf.string [B], and the classes of each, [B, C]."""
        if isinstance(texts, tuple):
            text, names = (tf.convert_to_tensor(part, tf.string) for part in texts)
            return text, _different(names, self.least_classes)
        text = tf.convert_to_tensor(texts, tf.string)
        names = tf.constant([self.classes])
        return text, tf.tile(names, [tf.shape(text)[0], 1])

    @property
    def class_limits(self) -> tuple[float, ...]:
        """The probabilities from which on the classes apply, if they have some."""
        return ()

    @property
    def row_reader(self) -> LongTexts:
        if not self.entailment:
            return self.reader
        return Choices(
            entry=GIVEN,
            template=self.template,
            usual=self.classes,
            limits=self.class_limits,
            least=self.least_classes,
        )

    @property
    def answers_ids(self) -> bool:
        return super().answers_ids and not self.entailment

    @property
    def may_read_windows(self) -> bool:  # type: ignore[override]
        return not self.entailment and super().may_read_windows

    # The model.

    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        """Return a logit for each class, float32 [B, C]."""
        if not self.entailment:
            return super().outputs(encoder, inputs, seed)
        head = heads.PooledHead.on(encoder, len(self.entailment), seed=seed)
        found = head(encoder.pool(heads.ChoiceRows(name="choice_rows")(inputs)))
        entails, contradicts = self._scoring()
        scores = found[:, entails : entails + 1]
        if self.against_contradiction:  # the softmax over both is a sigmoid
            scores = scores - found[:, contradicts : contradicts + 1]
        rows = heads.ChoiceScores(name="choice_scores", dtype="float32")
        return rows(scores, inputs["padding_mask"], inputs["cls_positions"])

    def _scoring(self) -> tuple[int, int]:
        """Return the outputs that mean entailment and contradiction.

        Raises:
            ConfigError: none is named so.
        """
        return entailing_output(self.entailment), contradicting_output(self.entailment)

    def class_tensor(self, outputs: Any, batch: Mapping[str, Any]) -> Any:
        """Return the classes of each text, tf.string [B, C], in graph."""
        # Tiled: server-side batching needs a batch axis in every output.
        tiled = tf.tile(tf.constant([self.classes]), [tf.shape(outputs)[0], 1])
        return batch.get(GIVEN, tiled)

    def explained_rows(self, item: Item) -> Rows:
        """Return a row for each class; the words of `template` are not explained."""
        if not self.entailment:
            return super().explained_rows(item)
        if len(item.parts) > 1:
            raise ConfigError(
                "an explained text must have the classes of the model; "
                f"{received(item.parts[1])}"
            )
        features, text = item.features(), item.words.add("text", item.parts[0])
        length = features["token_ids"].shape[-1]
        sentence = np.full(length, item.no_word, text.dtype)
        return item.joined_rows(features, [[text, sentence]] * len(self.classes))


def check_template(template: Any) -> None:
    """Raise ConfigError unless a template is a text with one `{}`."""
    if not isinstance(template, str) or template.count(PLACE) != 1:
        raise ConfigError(
            "`template` must be a text with one {}, the place of the name of a class; "
            f"{received(template)}"
        )


def entailing_output(names: Sequence[str]) -> int:
    """Return the number of the output that means entailment.

    Raises:
        ConfigError: none is named so.
    """
    found = [i for i, name in enumerate(names) if name.lower().startswith("entail")]
    if not found:
        raise ConfigError(
            f"one of the model's outputs must be named entailment; received "
            f"{listed(names)}"
        )
    return found[0]


def contradicting_output(names: Sequence[str]) -> int:
    """Return the number of the output that means contradiction.

    If none has that name, the one that transformers takes: the first, or the last if
    the first is entailment.
    """
    named = [i for i, name in enumerate(names) if name.lower().startswith("contra")]
    last_or_first = len(names) - 1 if entailing_output(names) == 0 else 0
    return named[0] if named else last_or_first


def _different(names: Any, least: int) -> Any:
    """Return classes, tf.string [B, C], which the graph refuses if two are equal.

    Or if a text has fewer than `least`; "" is none.
    """
    line = Choices(entry=GIVEN, least=least).rule()
    is_name = names != ""
    equal = (names[:, :, tf.newaxis] == names[:, tf.newaxis]) & is_name[:, tf.newaxis]
    count = tf.reduce_sum(tf.cast(is_name, tf.int32), axis=1)
    alike = tf.reduce_sum(tf.cast(equal, tf.int32), axis=[1, 2])  # each with itself
    fits = tf.reduce_all((count >= least) & (alike == count))
    with tf.control_dependencies([tf.debugging.Assert(fits, [line])]):
        return tf.identity(names)
