"""Documents that pretraining reads, and the vocabulary learned from them.

Read `documents` first, with `wikipedia` and `sentence_rules` for its forms; then
`word_counts` and `vocabulary_learning`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.corpus.documents import CorpusReport as CorpusReport
    from bert_keras.corpus.documents import RawDocument as RawDocument
    from bert_keras.corpus.documents import raw_documents as raw_documents
    from bert_keras.corpus.documents import sentences_of as sentences_of
    from bert_keras.corpus.vocabulary_learning import (
        learn_vocabulary as learn_vocabulary,
    )
    from bert_keras.corpus.vocabulary_learning import (
        write_vocabulary as write_vocabulary,
    )

_PLACES = {
    "CorpusReport": "documents",
    "RawDocument": "documents",
    "learn_vocabulary": "vocabulary_learning",
    "raw_documents": "documents",
    "sentences_of": "documents",
    "write_vocabulary": "vocabulary_learning",
}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # otherwise type checkers accept any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
