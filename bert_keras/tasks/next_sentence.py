"""Next sentence: does the second text follow the first? A pretraining task of BERT.

Source: Devlin et al. 2018 (arXiv:1810.04805), section 3.1, task 2: half of the pairs
are neighbours in a document, half end with a sentence from another document. The head
is the pretraining head, so a checkpoint with this head works without fine-tuning.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.data.columns import Columns
from bert_keras.data.memory import is_path
from bert_keras.data.row_source import RowSource
from bert_keras.data.rows import ending_of, read_text
from bert_keras.errors import ConfigError, DataError, received
from bert_keras.lazy_names import deferred, serializable
from bert_keras.scoring.calibration import yes_or_no
from bert_keras.settings import with_options_documented
from bert_keras.tasks.base import Answers, Batch
from bert_keras.tasks.classifier import SingleLabel
from bert_keras.tasks.hugging_face import HeadCodec
from bert_keras.tasks.needs import Needs
from bert_keras.tasks.next_sentence_settings import NEXT, NOT_NEXT, NextSentenceSettings

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from bert_keras.model import heads
    from bert_keras.model.encoder import BertEncoder
else:
    keras, tf, heads = deferred("keras", "tensorflow", "bert_keras.model.heads")

_SEED = 42  # so that a file gives the same pairs each time it is read
Sentence = tuple[int, str]  # its line in the file, and the text


@serializable
@with_options_documented
@dataclasses.dataclass(frozen=True)
class NextSentence(NextSentenceSettings, SingleLabel):
    """Whether the second text of a pair follows the first.

    Output 0 means that it does, as in Google's code and Hugging Face's
    `BertForNextSentencePrediction`. A pair is `abstained` if the probability of its
    answer is below `abstain_below`.
    """

    name = "next-sentence"
    head_codec = HeadCodec("BertForNextSentencePrediction")
    columns = {**SingleLabel.columns, "text_pair": "text_pair"}
    pairs = True

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        return dataclasses.replace(super().needs, scopes=("cls/seq_relationship/",))

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.labels
        # The command line passes the label `1` as a number.
        labels = tuple(map(str, given)) if isinstance(given, list | tuple) else ()
        if len(labels) != 2 or len(set(labels)) != 2:
            raise ConfigError(
                "`labels` must be a list of two different words, for a pair that "
                f"follows and one that does not; {received(given)}"
            )
        object.__setattr__(self, "labels", labels)

    @classmethod
    def read_own(cls, source: RowSource) -> Columns | None:
        """Return pairs built from a `.txt` file of documents, see `pairs_of_documents`.

        It has one sentence per line, blank lines between documents, and no tabs.
        """
        place = os.fspath(source.data) if is_path(source.data) else ""
        is_text = ending_of(place) == ".txt" and source.header != "yes"
        if source.labelled and not source.columns and is_text:
            text = read_text(place)
            if "\t" not in text:
                return pairs_of_documents(_documents(text), path=place)
        return None

    @property
    def names(self) -> tuple[str, ...]:
        return self.labels

    @property
    def positive_class(self) -> str:  # type: ignore[override]
        return self.labels[0]

    def distributions(self, answers: Answers) -> np.ndarray:
        """Return [N, 2]: probabilities that the second text follows, and does not."""
        return yes_or_no(answers["probability"])[:, ::-1]

    def outputs(self, encoder: BertEncoder, inputs: Batch, seed: int | None) -> Any:
        with keras.name_scope("cls"):
            head = heads.PooledHead.on(
                encoder,
                self.units,
                seed=seed,
                dropout_rate=0.0,  # pretraining has no dropout here
                name="seq_relationship",
            )
            return head(encoder.pool(inputs))

    def answer(self, outputs: Any, batch: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """Return `is_next` bool [B] and its `probability` float32 [B]; if the task may
        abstain, also `abstained` bool [B].
        """
        probability = tf.nn.softmax(self.scaled_logits(outputs))[:, 0]
        answers = {"is_next": probability >= 0.5, "probability": probability}
        if self.may_abstain:
            score = tf.maximum(probability, 1 - probability)
            answers["abstained"] = score < self.abstain_below
        return answers


def pairs_of_documents(
    documents: Sequence[Sequence[Sentence]], *, path: str
) -> Columns:
    """Return pairs of consecutive sentences, half with a random second sentence.

    Random sentences come from other documents: first a document is drawn, then one of
    its sentences.

    Args:
        documents: the sentences of each, at least one.
        path: the file, for errors.

    Raises:
        DataError: there are fewer than two documents, or none has two sentences.

    Example:
        >>> documents = [[(1, "It rains."), (2, "I stay in.")], [(4, "Two eggs.")]]
        >>> made = pairs_of_documents(documents, path="stories.txt")
        >>> made["text"], made["label"] in (["next"], ["not_next"])
        (['It rains.'], True)
    """
    if len(documents) < 2:
        raise DataError(
            "must hold two documents or more, with one sentence per line and blank "
            f"lines between documents; holds {len(documents)}",
            path=path,
        )
    places = [(d, i) for d, each in enumerate(documents) for i in range(len(each) - 1)]
    if not places:
        raise DataError("must have a document of two sentences or more", path=path)
    draw = np.random.default_rng(_SEED)
    is_false = set(draw.permutation(len(places))[: len(places) // 2].tolist())
    cells: dict[str, list[str]] = {"text": [], "text_pair": [], "label": []}
    lines = []
    for number, (d, i) in enumerate(places):
        line, first = documents[d][i]
        second = documents[d][i + 1][1]
        if number in is_false:
            other = int(draw.integers(len(documents) - 1))
            other += other >= d  # any document except this one
            second = documents[other][int(draw.integers(len(documents[other])))][1]
        cells["text"].append(first)
        cells["text_pair"].append(second)
        cells["label"].append(NOT_NEXT if number in is_false else NEXT)
        lines.append(line)
    return Columns(path, cells, lines)


def _documents(text: str) -> list[list[Sentence]]:
    """Return the sentences of each document, with their lines."""
    documents: list[list[Sentence]] = [[]]
    for line, sentence in enumerate(text.split("\n"), 1):
        if sentence.strip():
            documents[-1].append((line, sentence.strip()))
        else:
            documents.append([])
    return [document for document in documents if document]
