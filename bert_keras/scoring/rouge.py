"""ROUGE of summaries by `rouge-score`, and the sentences that raise it most.

Sources: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries"; Liu 2019
(arXiv:1903.10318), section 3, for the greedy choice. No TensorFlow.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_keras.errors import needs
from bert_keras.settings import STEMMERS, check_choice

METRICS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
# rouge-score knows a to z and 0 to 9 only; for texts of these the words are the same.
_WORD = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\\W_\u3040-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)


class Rouge:
    """Words and ROUGE F-measures of texts.

    Words are runs of letters and digits in lower case, and each Chinese or Japanese
    character; for English text they equal the tokens of `rouge-score`.

    Args:
        stemmer: `porter` compares English words of four letters and more by their stem,
            as option -m of the ROUGE 1.5.5 of papers does; `none` compares them
            unchanged.

    Raises:
        ConfigError: `stemmer` is unknown, or rouge-score is not installed.

    Example:
        >>> Rouge().score(["The cat sat."], ["A cat sits."])["rouge1"]
        0.3333333333333333
    """

    def __init__(self, stemmer: str = "porter") -> None:
        check_choice("stemmer", stemmer, STEMMERS)
        with needs("ROUGE", extra="summarization"):
            from nltk.stem.porter import PorterStemmer
            from rouge_score.rouge_scorer import RougeScorer
        self.stemmer = stemmer
        self._stem = functools.lru_cache(maxsize=1 << 16)(PorterStemmer().stem)
        self._scorer = RougeScorer(METRICS, tokenizer=self)

    def tokenize(self, text: str) -> list[str]:
        """Return the words of a text; `rouge-score` requires this name."""
        words = _WORD.findall(text.lower())
        if self.stemmer == "none":
            return words
        return [self._stem(word) if len(word) > 3 else word for word in words]

    def score(
        self, references: Sequence[str], summaries: Sequence[str]
    ) -> dict[str, float]:
        """Return the mean F-measures, from 0 to 1.

        `rougeL` compares whole texts, `rougeLsum` their sentences, with a line
        break between them, as papers report it.
        """
        each = self.score_each(references, summaries)
        return {name: float(np.mean([row[name] for row in each])) for name in METRICS}

    def score_each(
        self, references: Sequence[str], summaries: Sequence[str]
    ) -> list[dict[str, float]]:
        """Return the F-measures of each summary."""
        return [
            {
                name: float(score.fmeasure)
                for name, score in self._scorer.score(reference, summary).items()
            }
            for reference, summary in zip(references, summaries, strict=True)
        ]

    def best_sentences(
        self, sentences: Sequence[str], summary: str, *, most: int
    ) -> list[int]:
        """Return the sentences that a perfect model would choose, in their order.

        At most `most`. Greedy: from none, add the sentence that raises the sum of
        ROUGE-1 and ROUGE-2 most, as long as any does. Bigrams do not cross sentences.
        """
        words = [self.tokenize(sentence) for sentence in sentences]
        reference = self.tokenize(summary)
        grams = [_Ngrams(words, reference, n) for n in (1, 2)]
        chosen: list[int] = []
        best = 0.0
        while len(chosen) < min(most, len(words)):
            scores = np.sum([gram.f1_with_each() for gram in grams], axis=0)
            scores[chosen] = -1.0
            index = int(np.argmax(scores))
            if scores[index] <= best + 1e-12:  # equal up to rounding
                break
            best = float(scores[index])
            chosen.append(index)
            for gram in grams:
                gram.add(index)
        return sorted(chosen)


class _Ngrams:
    """Counts of the reference's n-grams in each sentence, and in those chosen."""

    def __init__(
        self, sentences: Sequence[list[str]], reference: list[str], n: int
    ) -> None:
        wanted = collections.Counter(_ngrams(reference, n))
        index = {gram: i for i, gram in enumerate(wanted)}
        self.wanted = np.fromiter(wanted.values(), int, len(wanted))
        self.counts = np.zeros((len(sentences), len(wanted)), int)
        self.sizes = np.array([max(len(words) - n + 1, 0) for words in sentences])
        for row, words in enumerate(sentences):
            for gram in _ngrams(words, n):
                if gram in index:
                    self.counts[row, index[gram]] += 1
        self.chosen = np.zeros(len(wanted), int)
        self.size = 0

    def f1_with_each(self) -> np.ndarray:
        """Return the F-measure of the chosen sentences with each further one, [S]."""
        hits = np.minimum(self.chosen + self.counts, self.wanted).sum(axis=1)
        return 2 * hits / np.maximum(self.size + self.sizes + self.wanted.sum(), 1)

    def add(self, row: int) -> None:
        self.chosen += self.counts[row]
        self.size += int(self.sizes[row])


def _ngrams(words: list[str], n: int) -> list[Any]:
    return list(zip(*(words[start:] for start in range(n)), strict=False))
