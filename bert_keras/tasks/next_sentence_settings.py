"""What is known of next-sentence prediction before TensorFlow is imported."""

from __future__ import annotations

import dataclasses

from bert_keras.settings import option
from bert_keras.tasks.classifier_settings import ConfidenceSettings
from bert_keras.tasks.declaration import RowForm, TaskHelp

NEXT, NOT_NEXT = "next", "not_next"


@dataclasses.dataclass(frozen=True)
class NextSentenceSettings(ConfidenceSettings):
    """The settings of `NextSentence`."""

    labels: tuple[str, str] = option(
        (NEXT, NOT_NEXT),
        "the two labels in the file: follows, does not follow",
        form="two names",
        unset=f"{NEXT}, {NOT_NEXT}",
    )


HELP = TaskHelp(
    place="bert_keras.tasks.next_sentence:NextSentence",
    settings=NextSentenceSettings,
    summary="whether a text follows another, as BERT learned it in pretraining",
    data="the columns text, text_pair and label (next or not_next), or documents in a "
    ".txt file",
    file="train.csv",
    rows="text,text_pair,label\nIt rained.,We stayed at home.,next",
    scores="accuracy, F1, Matthews correlation, calibration error",
    answers="is_next, probability; abstained",
    row_forms=(RowForm(("is_next", "probability")),),
    columns=({"text": "text", "text_pair": "text_pair", "label": "label"},),
)
