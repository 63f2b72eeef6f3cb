"""What is known of summarization before TensorFlow is imported."""

from __future__ import annotations

import dataclasses

from bert_keras.settings import STEMMERS, Option, option
from bert_keras.tasks.declaration import Row, RowForm, TaskHelp, records

STEMMER = Option(
    "porter",
    "stemmer of the ROUGE scores: porter for English, or none",
    words=STEMMERS,
    free=True,
    read_by=("scores",),
)


@dataclasses.dataclass(frozen=True)
class SummarizationSettings:
    """The settings of `Summarization`."""

    max_sentences: int = option(
        3, "the maximum number of sentences in a summary", least=1, most=1000, free=True
    )
    trigram_blocking: bool = option(
        False,
        "skips a sentence that shares three consecutive words with a selected one",
        free=True,
    )
    stemmer: str = STEMMER.field()


def _row(row: Row) -> Row:
    """Return `summary` and `sentences`: `text`, `start`, `end` and `score` each."""
    keys = {"text": "sentences", "start": "starts", "end": "ends", "score": "scores"}
    return {"summary": row["summary"], "sentences": records(row, keys)}


HELP = TaskHelp(
    place="bert_keras.tasks.summarization:Summarization",
    settings=SummarizationSettings,
    summary="the sentences of a document that make its summary",
    data="the columns document and summary",
    file="train.jsonl",
    rows='{"document": "A storm hit the coast. Nobody was hurt. Trains stopped.", '
    '"summary": "A storm stopped trains."}',
    scores="ROUGE-1, ROUGE-2 and ROUGE-L, next to the scores of the leading sentences "
    "and of the best selection",
    answers="summary, sentences, starts, ends, scores",
    row_forms=(RowForm(("summary", "sentences", "starts", "ends", "scores"), _row),),
    columns=({"document": "document", "summary": "summary"},),
    labels=("summary",),
)
