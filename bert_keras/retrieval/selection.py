"""Which rows to label next: `select_rows`, by uncertainty and by coverage.

Sources: Settles 2009, "Active Learning Literature Survey", section 3.1, for margin and
entropy; Hacohen et al. 2022 (arXiv:2202.02794) for typical texts of clusters, which
gain most while labels are few; Arthur and Vassilvitskii 2007 for k-means++.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_keras.data.items import as_strings
from bert_keras.errors import BertKerasError, ConfigError, DataError, shown
from bert_keras.inference.equal_texts import joined
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.inference.session import is_export
from bert_keras.models.folder import Folder
from bert_keras.retrieval.embedder import Source, load_embedder, vectors_of
from bert_keras.runs.notes import say
from bert_keras.runs.progress import Progress
from bert_keras.scoring.calibration import yes_or_no
from bert_keras.scoring.similarity import unit_rows
from bert_keras.settings import SELECTIONS, check_choice, check_whole_number
from bert_keras.tasks.hugging_face import MULTI_LABEL, SINGLE_LABEL
from bert_keras.tasks.protocols import check_dense
from bert_keras.text.truncation import Truncation

_SHORTLIST = 20  # uncertain texts that `mixture` considers for each that it selects
_FEW = 10  # labelled texts a class, below which `mixture` considers all texts
_ROUNDS = 10  # of k-means
_AT_ONCE = 4096  # texts compared with all centers at once
_SAME = 0.98  # texts with a cosine above it count as one


def select_rows(
    model: Source,
    texts: Iterable[str],
    *,
    count: int = 50,
    strategy: str | None = None,
    labelled: Iterable[str] = (),
    seed: int = 42,
    batch_size: int = 32,
    **settings: Any,
) -> list[int]:
    """Return the numbers of the texts to label next, from 0, the best first.

    Texts that are equal, but for case and spaces, to a labelled or a selected one are
    left out, and by `coverage` and `mixture` also those with almost the same vector.

    Args:
        model: a classifier of single texts, an embedding model, or an encoder; for
            `coverage` also a predictor of vectors, as in `load_embedder`.
        texts: N strings.
        count: number of texts to select; fewer if no others are left.
        strategy: `margin`, the least difference between the two likeliest classes;
            `entropy`, the least certain distribution; `coverage`, typical texts of
            groups that no labelled one is in; `mixture`, coverage among the texts of
            least margin, or, if `labelled` has some texts but fewer than 10 a class,
            among all texts. `None`: `mixture` for a classifier, else `coverage`.
        labelled: texts that already have a label.
        seed: seed of the groups.
        batch_size: texts computed at once.
        **settings: arguments of `load_embedder`, for the vectors of `coverage` and
            `mixture`; a classifier also computes in the `precision`.

    Raises:
        ConfigError: an argument is out of range, or the strategy needs a classifier.
        DataError: there is no text.

    Example:
        >>> texts = ["win a prize", "Win a  prize", "see you at six"]
        >>> sorted(select_rows("models/bert", texts, count=2))
        [0, 2]
    """
    check_whole_number("count", count, least=1)
    check_choice("strategy", strategy, (None, *SELECTIONS))
    pool, known = as_strings(texts), as_strings(labelled, name="labelled")
    if not pool:
        raise DataError("`texts` must be at least one; received none")
    if strategy is None:
        strategy = "mixture" if class_count(model) else "coverage"
    rows = distinct_rows(pool, known)
    if len(rows) < len(pool):
        say(
            "texts that are empty, or duplicates of another or of a labelled text, are "
            f"left out: {len(pool) - len(rows):,} of {len(pool):,}"
        )
    if len(rows) < count:
        say(f"`count` is {count:,}; {len(rows):,} different texts are left to select")
    if not rows:
        return []
    if strategy == "mixture" and 0 < len(known) < _FEW * class_count(model):
        say(
            f"fewer than {_FEW} labelled texts per class: all texts are considered, "
            "not only uncertain ones"
        )
        strategy = "coverage"
    if strategy in ("coverage", "mixture"):
        embedder = load_embedder(model, **settings)
        check_dense(embedder.model.task, "a selection of rows")
    else:
        of_vectors = {**settings, "precision": None}
        given = [name for name, value in of_vectors.items() if value is not None]
        if given:
            raise ConfigError(
                f"`{given[0]}` is for the vectors of coverage and mixture; received "
                f"{shown(settings[given[0]])} with `strategy` {strategy}"
            )
    if strategy != "coverage":
        doubts = uncertainties(
            model,
            [pool[row] for row in rows],
            strategy,
            batch_size,
            precision=settings.get("precision", "float32"),
        )
        order = np.argsort(-doubts, kind="stable")
        if strategy != "mixture":
            return [rows[place] for place in order[:count].tolist()]
        rows = [rows[place] for place in order[: _SHORTLIST * count].tolist()]
    given = [pool[row] for row in rows] + known
    vectors = unit_rows(vectors_of(embedder, given, batch_size, progress="vectors"))
    size = len(rows)
    found = covering_rows(vectors[:size], count, covered=vectors[size:], seed=seed)
    if len(found) < min(count, size):
        say(f"only {len(found):,} texts are selected: the others are almost equal")
    return [rows[place] for place in found]


def class_count(model: Source) -> int:
    """Return the number of classes of a classifier of single texts; 0 for others."""
    if isinstance(model, Predictor):
        task = model.model.task
    else:
        try:
            task = Folder.open(model).task()
        except BertKerasError:  # an encoder without a head
            return 0
    has_classes = task.head_codec.problem_type in (SINGLE_LABEL, MULTI_LABEL)
    is_single = has_classes and getattr(task, "pairs", None) is not True
    return len(getattr(task, "classes", ())) if is_single else 0


def distinct_rows(texts: Sequence[str], known: Iterable[str] = ()) -> list[int]:
    """Return the first row of each text that is not known, whatever case and spaces.

    Example:
        >>> distinct_rows(["a b", "A  b", "", "c"], known=["C"])
        [0]
    """
    seen = {"", *(_plain(text) for text in known)}
    found = []
    for row, text in enumerate(texts):
        key = _plain(text)
        if key not in seen:
            seen.add(key)
            found.append(row)
    return found


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def uncertainties(
    model: Source,
    texts: Sequence[str],
    strategy: str,
    batch_size: int = 32,
    *,
    precision: str = "float32",
) -> np.ndarray:
    """Return how uncertain a classifier is of N texts, float [N], higher for more.

    The entropy in nats for `entropy`, else 1 minus the margin. Of several labels the
    most uncertain counts. Truncated texts are reported as in `Predictor.predict`.

    Raises:
        ConfigError: the model is no classifier of single texts.
    """
    if not isinstance(model, Predictor) and is_export(model):
        model = load_predictor(model, precision=precision)  # class_count reads folders
    if not class_count(model):
        raise ConfigError(
            f"`strategy` {strategy} needs a classifier of single texts: use coverage "
            "before there is one"
        )
    predictor = model
    if not isinstance(predictor, Predictor):
        predictor = load_predictor(predictor, precision=precision)
    if not texts:
        return np.zeros(0)
    counts = Truncation()
    parts: dict[str, Any] = {"batch_size": batch_size, "truncation": counts}
    with Progress("uncertainties", unit="texts", total=len(texts)) as shown:
        found = joined(list(predictor.stream((texts,), seen=shown.add, **parts)))
    predictor.tell_truncated(counts)
    p = found["probabilities"].astype("float64")
    if predictor.model.task.head_codec.problem_type == MULTI_LABEL:
        p = yes_or_no(p.ravel()).reshape(*p.shape, 2)
    else:
        p = p[:, np.newaxis]
    if strategy == "entropy":
        doubts = -(p * np.log(np.maximum(p, 1e-30))).sum(axis=-1)
    else:
        best = np.sort(p, axis=-1)
        doubts = 1 - (best[..., -1] - best[..., -2])
    largest: np.ndarray = doubts.max(axis=1)
    return largest


def covering_rows(
    vectors: np.ndarray,
    count: int,
    *,
    covered: np.ndarray | None = None,
    seed: int = 42,
) -> list[int]:
    """Return rows that cover a set of vectors, the most typical ones first.

    The vectors are grouped by k-means, in as many groups as rows are covered and
    wanted; of the groups without a covered row, the largest first, the row nearest to
    the center is taken.

    Args:
        vectors: float32 [N, D] of length 1.
        count: number of rows.
        covered: float32 [M, D], vectors that are already covered.
        seed: seed of the groups.
    """
    known = vectors[:0] if covered is None else covered
    both = np.concatenate([known, vectors])
    centers = _centers(both, min(len(known) + count, len(both)), seed)
    groups, nearness = _nearest(both, centers)
    sizes = np.bincount(groups, minlength=len(centers))
    taken = np.bincount(groups[: len(known)], minlength=len(centers))
    chosen: list[int] = []
    rows, near = groups[len(known) :], nearness[len(known) :]
    left = np.ones(len(vectors), bool)
    if len(known):
        left &= _nearest(vectors, known)[1] < _SAME
    while len(chosen) < count and left.any():
        # First the groups without a row, then the ones with the most texts for each.
        there = np.bincount(rows[left], minlength=len(centers)) > 0
        group = int(np.where(there, sizes / (1e-6 + taken), -1.0).argmax())
        members = np.flatnonzero(left & (rows == group))
        row = int(members[near[members].argmax()])
        chosen.append(row)
        taken[group] += 1
        left[row] = False
        left &= vectors @ vectors[row] < _SAME
    return chosen


def _centers(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the centers of k-means by cosine, [K, D], from the seeds of k-means++."""
    draw = np.random.default_rng(seed)
    first = int(draw.integers(len(vectors)))
    chosen, gaps = [first], 1 - vectors @ vectors[first]
    for _ in range(1, count):
        shares = np.maximum(gaps, 0).astype("float64")
        total = shares.sum()
        if total <= 0:
            break
        chosen.append(int(draw.choice(len(vectors), p=shares / total)))
        gaps = np.minimum(gaps, 1 - vectors @ vectors[chosen[-1]])
    centers = vectors[chosen]
    for _ in range(_ROUNDS):
        groups, _near = _nearest(vectors, centers)
        sums = np.zeros_like(centers)
        np.add.at(sums, groups, vectors)
        is_empty = np.bincount(groups, minlength=len(centers)) == 0
        centers = np.where(is_empty[:, np.newaxis], centers, unit_rows(sums))
    return centers


def _nearest(vectors: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest center of each vector, int [N], and their cosine, [N]."""
    groups, cosines = [], []
    for start in range(0, max(len(vectors), 1), _AT_ONCE):
        products = vectors[start : start + _AT_ONCE] @ centers.T
        groups.append(products.argmax(axis=1))
        cosines.append(products.max(axis=1))
    return np.concatenate(groups), np.concatenate(cosines)
