"""Hard negatives of pairs: texts that a model finds near, though they do not match.

Source: Karpukhin et al. 2020 (arXiv:2004.04906), section 3.2; Moreira et al. 2024
(arXiv:2407.15831) for margins to the positive.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_keras.data.columns import Columns
from bert_keras.data.items import as_strings
from bert_keras.errors import ConfigError, DataError, counted, received
from bert_keras.inference.predictor import Predictor
from bert_keras.retrieval.embedder import (
    Source,
    load_embedder,
    stored_vectors,
    vectors_of,
    with_prompt,
)
from bert_keras.retrieval.vector_store import VectorStore
from bert_keras.runs.notes import collected, notes_so_far, say
from bert_keras.runs.progress import Progress
from bert_keras.settings import check_whole_number
from bert_keras.tasks.negatives import NEGATIVE, negatives_of, pairs_of
from bert_keras.tasks.protocols import check_scores_pairs

_AT_ONCE = 256  # texts whose candidates are ranked at once


class MinedNegatives(NamedTuple):
    """Rows with negatives, and what is known of them.

    Attributes:
        columns: the pairs, with lists of texts as `negative`; new ones come last.
        positive_score, negative_score: the mean scores beside the text, of pairs and of
            new negatives: by `measure`; NaN without any.
        mined: the number of new negatives.
        without: the number of rows for which none was found.
        kept: the number of negatives that the pairs had.
        measure: the name of the scores.
        gap: how much lower than its pair's the score of a new negative is, on average.
        unknown: the number of pairs whose second text is not in the corpus.
        notes: the lines on what was truncated or not used.
    """

    columns: Columns
    positive_score: float
    negative_score: float
    mined: int
    without: int
    kept: int = 0
    measure: str = "cosine"
    gap: float = float("nan")
    unknown: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the facts in one line."""
        rows = len(self.columns)
        line = (
            f"{counted(self.mined, 'negatives')} for {counted(rows, 'pairs')}; mean "
            f"{self.measure} {self.positive_score:.3f} of all pairs"
        )
        if self.mined:
            line += (
                f", {self.negative_score:.3f} of negatives and "
                f"{self.negative_score + self.gap:.3f} of the pairs that they belong to"
            )
        if self.without == rows:
            line += "; a wider range or a smaller margin may find some"
        elif self.without:
            line += f"; {counted(self.without, 'pairs')} got none and are kept without"
        if self.kept:
            line += f"; kept {counted(self.kept, 'negatives')} that the pairs had"
        return line


@collected()
def mine_negatives(
    source: Source,
    pairs: Columns,
    corpus: Iterable[str] | None = None,
    *,
    negatives: int = 5,
    ranks: tuple[int, int] = (10, 50),
    margin: float = 0.05,
    batch_size: int = 32,
    rerank: Predictor | None = None,
    **settings: Any,
) -> MinedNegatives:
    """Return pairs with hard negatives, to train `embedding` on.

    The texts of the corpus are ranked by their score beside each first text: the cosine
    of their vectors, or what the model's kind of vectors is compared by. Left out are
    the text itself, every text that is paired with it in some row, negatives that the
    row has, and all copies of a text but the first, whatever their case and white
    space. Candidates are the ranks from `ranks[0]` to `ranks[1] - 1`; the first rank is
    0. The nearest candidates become negatives if their score is lower than the pair's
    by at least `margin`.

    Args:
        source: a model, as in `load_embedder`.
        pairs: rows of `text` and `text_pair`; negatives that they have are kept.
        corpus: texts; by default the second texts of the pairs.
        negatives: maximum number of new ones for each row.
        ranks: the first ranks are often unknown positives.
        margin: least difference of the scores, or of the other model's.
        batch_size: texts computed at once.
        rerank: a model that scores pairs of texts, by whose scores the margin is
            measured; texts are still ranked by their vectors.
        **settings: arguments of `load_embedder`.

    Raises:
        ConfigError: an argument is out of range, or `rerank` does not score pairs.
        DataError: the pairs have labels, so that not all of them match.
    """
    check_whole_number("negatives", negatives, least=1)
    _check_ranks(ranks, margin)
    if "label" in pairs:
        raise DataError(
            "must hold pairs that match; it has the column `label`: leave out the "
            "pairs that do not match, and the column",
            path=pairs.path,
        )
    if rerank is not None:
        check_scores_pairs(rerank.model.task)
    first, second = pairs_of(pairs)
    different: dict[str, str] = {}
    for text in second if corpus is None else as_strings(corpus):
        different.setdefault(_key(text), text)
    texts = list(different.values())
    if not texts:
        raise DataError("`corpus` must hold at least one text; received none")
    predictor = load_embedder(source, **settings)
    task: Any = predictor.model.task
    query, document = (with_prompt(predictor, each) for each in ("query", "document"))
    vectors = vectors_of(query, first, batch_size, progress="vectors of first texts")
    unknown = sum(_key(text) not in different for text in second)
    if unknown:
        has = "has" if unknown == 1 else "have"
        say(
            f"{unknown:,} of {counted(len(second), 'pairs')} {has} a second text that "
            "is not in the corpus, where the right text may then become a negative; "
            "give second texts as the corpus has them, with the title before the text "
            "if there is one"
        )
    index = {text: row for row, text in enumerate(dict.fromkeys([*texts, *second]))}
    name = f"vectors of the corpus{' and of second texts' if unknown else ''}"
    documents = stored_vectors(document, list(index), batch_size, progress=name)
    documents = documents.compared()
    queries = documents.asked(vectors)
    corpus_rows = np.arange(len(texts))
    found = _ranked(queries, documents.take(corpus_rows), texts, pairs, ranks)
    kept = negatives_of(pairs)
    for row, held in enumerate(kept):
        known = set(map(_key, held))
        found[row] = [each for each in found[row] if _key(each[0]) not in known]
    rows = np.array([index[text] for text in second], np.int64)
    scores = documents.pair_scores(queries, rows)
    if rerank is not None:
        found, scores = _by_other(rerank, first, second, found, batch_size)
    chosen = [
        [(text, value) for text, value in near if value <= score - margin][:negatives]
        for near, score in zip(found, scores, strict=True)
    ]
    values = [value for row in chosen for _, value in row]
    gaps = [
        float(score) - value
        for row, score in zip(chosen, scores, strict=True)
        for _, value in row
    ]
    mined = [
        [*held, *(text for text, _ in row)]
        for held, row in zip(kept, chosen, strict=True)
    ]
    return MinedNegatives(
        Columns(pairs.path, {**pairs.cells, NEGATIVE: mined}, pairs.lines),
        float(np.mean(scores)),
        float(np.mean(values)) if values else float("nan"),
        len(values),
        sum(not row for row in chosen),
        sum(map(len, kept)),
        task.similarity.name if rerank is None else "score",
        float(np.mean(gaps)) if gaps else float("nan"),
        unknown,
        notes_so_far(),
    )


def _by_other(
    rerank: Predictor,
    first: Sequence[str],
    second: Sequence[str],
    found: Sequence[Sequence[tuple[str, float]]],
    batch_size: int,
) -> tuple[list[list[tuple[str, float]]], np.ndarray]:
    """Return texts with another model's scores, and the scores of the pairs."""
    pairs = [*zip(first, second, strict=True)]
    for text, near in zip(first, found, strict=True):
        pairs += [(text, each) for each, _ in near]
    with Progress("scores of pairs", unit="pairs", total=len(pairs)) as shown:
        rows = rerank.score_pairs(pairs, batch_size=batch_size, seen=shown.add)
    scores = [float(row["score"]) for row in rows]
    rest = iter(scores[len(first) :])
    scored = [[(each, next(rest)) for each, _ in near] for near in found]
    return scored, np.array(scores[: len(first)])


def _ranked(
    queries: np.ndarray,
    documents: VectorStore,
    texts: Sequence[str],
    pairs: Columns,
    ranks: tuple[int, int],
) -> list[list[tuple[str, float]]]:
    """Return texts and scores of the ranks of each row, without its positives."""
    first, second = pairs_of(pairs)
    keys = [_key(text) for text in texts]
    positives: dict[str, set[str]] = {}
    for text, pair in zip(map(_key, first), map(_key, second), strict=True):
        positives.setdefault(text, {text}).add(pair)
    top = min(ranks[1] + max(map(len, positives.values())), len(texts))
    found = []
    with Progress("searching", unit="texts", total=len(first)) as shown:
        for start in range(0, len(first), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            nearest = documents.nearest(queries[part], top)
            for text, rows, scores in zip(first[part], *nearest, strict=True):
                known = positives[_key(text)]
                near = [
                    (texts[row], float(score))
                    for row, score in zip(rows, scores, strict=True)
                    if row >= 0 and keys[row] not in known
                ]
                found.append(near[slice(*ranks)])
            shown.add(len(first[part]))
    return found


def _key(text: str) -> str:
    """Return what equal texts share, whatever their case and white space."""
    return " ".join(text.split()).casefold()


def _check_ranks(ranks: tuple[int, int], margin: float) -> None:
    first, end = ranks
    if not 0 <= first < end:
        raise ConfigError(
            "`ranks` must be two whole numbers from 0, the second one larger; received "
            f"{first}:{end}"
        )
    if not 0 <= margin < np.inf:
        raise ConfigError(
            f"`margin` must be a finite number of at least 0; {received(margin)}"
        )
