"""The tasks by name: `TASKS`, each with what a user has to know about it.

A task declares it, light, beside its class: `classification_settings.py` beside
`classification.py`. It is imported when it is first read.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping

from bert_keras.tasks.declaration import TaskHelp


class _Tasks(Mapping[str, TaskHelp]):
    """A mapping whose values are imported from `module:name`."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> TaskHelp:
        module, _, attribute = self._places[name].partition(":")
        found = importlib.import_module(f"bert_keras.tasks.{module}")
        entry: TaskHelp = getattr(found, attribute)
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


TASKS = _Tasks(
    {
        "abstractive-summarization": "generation_settings:ABSTRACTIVE_SUMMARIZATION",
        "classification": "classification_settings:HELP",
        "embedding": "embedding_settings:HELP",
        "feature-tagging": "tagging.settings:FEATURE_TAGGING",
        "masked-lm": "masked_lm_settings:HELP",
        "multi-label": "multi_label_settings:HELP",
        "multiple-choice": "multiple_choice_settings:HELP",
        "next-sentence": "next_sentence_settings:HELP",
        "question-answering": "question_answering.settings:HELP",
        "regression": "regression_settings:HELP",
        "reranking": "reranking_settings:HELP",
        "summarization": "summarization_settings:HELP",
        "token-classification": "tagging.settings:TOKEN_CLASSIFICATION",
        "translation": "generation_settings:TRANSLATION",
    }
)
# Tasks that only exports have: what `name_of` gives, and their names.
SEARCH = "search"
SEARCHING = "bert_keras.tasks.searching:SearchingEmbedding"
RERANKED = "bert_keras.tasks.searching:RerankedSearch"
VARIANTS = {SEARCHING: SEARCH, RERANKED: SEARCH}
