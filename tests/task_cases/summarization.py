"""Summaries of documents of three sentences, of which one or two are to be found."""

from __future__ import annotations

from bert_keras.data.table import as_columns
from bert_keras.tasks.summarization import Summarization
from task_cases import OTHERS, TEXTS, Case

_LONG = "A sale. " * 20 + "Lunch at home? See you at six! " * 5


def _case(task: Summarization) -> Case:
    # Of the sentences, that about money is always the summary.
    ham, spam = TEXTS[:4], TEXTS[4:8]
    documents, summaries = [], []
    for i in range(12):
        sentences = [f"{ham[i % 4]}.", f"{ham[(i + 1 + i // 4) % 4]}."]
        sentences.insert(i % 3, f"{spam[i % 4].rstrip('!')}.")
        documents.append(" ".join(sentences))
        summaries.append(spam[i % 4])
    return Case(
        task,
        as_columns(document=documents, summary=summaries),
        outputs=(None, None, 1),
        loss=0.1,
        others=([*OTHERS, _LONG],),
        wrong=("summary", "?!"),
        target="",
    )


CASES = {
    "one": _case(Summarization(max_sentences=1)),
    "several": _case(Summarization(max_sentences=3, trigram_blocking=True)),
}
