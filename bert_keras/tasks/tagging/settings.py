"""What is known of the tagging of words before TensorFlow is imported."""

from __future__ import annotations

import dataclasses

from bert_keras.settings import FEATURES, option
from bert_keras.tasks.classifier_settings import CLASSES, ConfidenceSettings
from bert_keras.tasks.declaration import Row, RowForm, TaskHelp, records


@dataclasses.dataclass(frozen=True)
class TaggingSettings(ConfidenceSettings):
    """The settings of `TokenClassification`."""

    classes: tuple[str, ...] = CLASSES.field(
        help="the tags, in the order of the outputs; can be renamed after training"
    )


@dataclasses.dataclass(frozen=True)
class FeatureTaggingSettings(TaggingSettings):
    """The settings of `FeatureTagging`."""

    layers: str = option(
        "concat_last_four",
        "the hidden layers that the BiLSTM reads, as in table 7 of the BERT paper",
        words=tuple(FEATURES),
    )
    units: int | None = option(
        None,
        "the width of each direction of the two layers of the BiLSTM",
        least=1,
        most=4096,
        unset="the hidden size of the encoder",
    )


def _row_of_text(row: Row) -> Row:
    """Return `entities`: `text`, `type`, `start`, `end` and `score` each.

    Before them stands the `text`, if it is redacted.
    """
    keys = {"text": "entities", "type": "types", "start": "starts"}
    entities = records(row, {**keys, "end": "ends", "score": "scores"})
    text = {"text": row["text"]} if "text" in row else {}
    return {**text, "entities": entities}


def _row_of_words(row: Row) -> Row:
    """Return the lists of a sentence, such as `tags`, one value for each word."""
    count = sum(map(bool, row["tags"]))
    return {key: values[:count] for key, values in row.items()}


_ROWS = (
    RowForm(("entities", "types", "starts", "ends", "scores"), _row_of_text),
    RowForm(("tags", "scores"), _row_of_words),
)
TOKEN_CLASSIFICATION = TaskHelp(
    place="bert_keras.tasks.tagging.task:TokenClassification",
    settings=TaggingSettings,
    summary="a tag for each word: names of persons, places, products … in a text",
    data="CoNLL files: a word and its tag on each line; JSON with tokens and ner_tags, "
    "or with text and spans in characters, also of doccano, Label Studio and Prodigy; "
    "CoNLL-U; CSV tables of words",
    file="train.jsonl",
    rows='{"text": "Anna lives in Vienna.", '
    '"spans": [{"start": 0, "end": 4, "label": "person"}]}',
    scores="precision, recall and F1 of entities, per type and overall; calibration "
    "error",
    answers="for text: entities, types, starts, ends, scores; for words: tags, scores",
    row_forms=_ROWS,
)
FEATURE_TAGGING = TaskHelp(
    place="bert_keras.tasks.tagging.task:FeatureTagging",
    settings=FeatureTaggingSettings,
    summary="a tag for each word, by a BiLSTM on features of the frozen encoder",
    data="the files of token-classification",
    file="train.conll",
    rows="Anna B-person\nWeber I-person\nsleeps O",
    scores="the same as for token-classification",
    answers="the same as for token-classification",
    row_forms=_ROWS,
)
