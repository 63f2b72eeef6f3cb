"""A map of texts by their embeddings: `map_texts`.

PCA (Pearson 1901) by default; t-SNE (van der Maaten and Hinton 2008) and UMAP (McInnes
et al. 2018, arXiv:1802.03426) with scikit-learn and umap-learn.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_keras.data.items import as_strings
from bert_keras.errors import BertKerasError, ConfigError, counted, needs, received
from bert_keras.explanations.pages import framed, scripted_page
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.report.page import write_file
from bert_keras.retrieval.embedder import Source, embed
from bert_keras.settings import PROJECTIONS, check_choice
from bert_keras.tasks.protocols import Deciding

_LETTERS = 300  # of a text that is shown
_LEAST = {"pca": 2, "tsne": 2, "umap": 4}  # texts that a projection needs


@dataclasses.dataclass(frozen=True)
class EmbeddingMap:
    """N texts as points in the plane.

    Attributes:
        texts: N strings.
        points: float32 [N, 2].
        labels: the class of each text; empty if they have none.
        projection: `pca`, `tsne` or `umap`.
        shares: for `pca`, the shares of the variance along both axes.
    """

    texts: tuple[str, ...]
    points: np.ndarray
    labels: tuple[str, ...]
    projection: str
    shares: tuple[float, float] | None = None

    def page(self, *, title: str = "Map of texts") -> str:
        """Return a self-contained HTML page with each text at its point."""
        names = list(dict.fromkeys(self.labels))
        names = sorted(names) if len(names) > 1 else names
        numbers = {name: number for number, name in enumerate(names)}
        data = {
            "texts": [text[:_LETTERS] for text in self.texts],
            "points": np.round(self.points.astype("float64"), 4).tolist(),
            "names": names,
            "classes": [numbers[label] for label in self.labels],
        }
        return scripted_page("map", title=title, data=data, note=self._note())

    def _note(self) -> str:
        texts = counted(len(self.texts), "texts")
        note = f"{texts}, {_NAMES[self.projection]} of their vectors"
        if self.shares:
            note += f": the axes explain {sum(self.shares):.0%} of the variance"
        return f"{note}."

    def write(
        self, path: str | os.PathLike[str], *, title: str = "Map of texts"
    ) -> Path:
        """Write the page and return its path.

        Raises:
            DataError: it cannot be written.
        """
        return write_file(path, self.page(title=title))

    def _repr_html_(self) -> str:
        return framed(self.page())


_NAMES = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}


def map_texts(
    model: Source,
    texts: Any,
    *,
    labels: Sequence[str] | str | None = None,
    projection: str = "pca",
    seed: int = 0,
    batch_size: int = 32,
    **settings: Any,
) -> EmbeddingMap:
    """Return a map on which texts with similar vectors are near each other.

    Args:
        model: a model folder, an encoder or a predictor of vectors, as in `embed`.
        texts: N strings, at least two, or four for `umap`.
        labels: the class of each text, for its colour; `predicted`: the predicted one,
            if the model has classes.
        projection: `pca`, `tsne` or `umap`.
        seed: seed of `tsne` and `umap`.
        batch_size: texts computed at once.
        **settings: arguments of `load_embedder`, such as `layers` and `pooling`.

    Raises:
        ConfigError: a setting is out of its range, or a package is missing.

    Example:
        >>> map_texts("models/emails", mails, labels=classes).write("map.html")
    """
    check_choice("projection", projection, PROJECTIONS)
    strings = as_strings(texts)
    least = _LEAST[projection]
    if len(strings) < least:
        raise ConfigError(
            f"`texts` must be at least {least} for the projection {projection}; "
            f"{received(len(strings))}"
        )
    project = None if projection == "pca" else _projector(projection, seed)
    if isinstance(labels, str):
        check_choice("labels", labels, ("predicted",))
        labels = _predicted(model, strings, batch_size)
    names = tuple(map(str, labels)) if labels is not None else ()
    if names and len(names) != len(strings):
        raise ConfigError(
            f"`labels` must be as many as the texts, {len(strings)}; "
            f"{received(len(names))}"
        )
    vectors = embed(model, strings, batch_size=batch_size, **settings)
    shares = None
    if project is None:
        points, shares = principal_components(vectors)
    else:
        points = np.asarray(project(vectors), "float32")
    return EmbeddingMap(tuple(strings), points, names, projection, shares)


def _predicted(model: Source, texts: list[str], batch_size: int) -> list[str]:
    """Return the predicted class of each text; none for a model without classes."""
    if isinstance(model, Predictor):
        return []  # it returns vectors
    try:
        predictor = load_predictor(model)
    except BertKerasError:
        return []  # an encoder; if it is broken, `embed` raises the error
    task = predictor.model.task
    if not isinstance(task, Deciding) or len(task.roles) > 1:
        return []
    answers = predictor.predict(texts, batch_size=batch_size)
    return [str(answer["label"]) for answer in answers if "label" in answer]


def principal_components(vectors: np.ndarray) -> tuple[np.ndarray, tuple[float, float]]:
    """Return vectors along the two axes of most variance, and each axis's share of it.

    The largest entry of an axis is positive, so that maps can be compared.

    Args:
        vectors: float [N, D].

    Returns:
        float32 [N, 2], and two shares of 1.
    """
    centred = vectors.astype("float64") - vectors.mean(axis=0, dtype="float64")
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    axes = np.concatenate([axes, np.zeros_like(axes)])[:2]  # if D is 1
    sizes = np.concatenate([sizes, np.zeros(2)])
    largest = np.abs(axes).argmax(axis=1)
    signs = np.where(axes[np.arange(2), largest] < 0, -1.0, 1.0)
    total = max(float((sizes**2).sum()), 1e-30)
    shares = (float(sizes[0] ** 2) / total, float(sizes[1] ** 2) / total)
    return (centred @ (axes * signs[:, None]).T).astype("float32"), shares


def _projector(projection: str, seed: int) -> Any:
    """Return another package's function from vectors to points."""
    places = {"tsne": ("sklearn.manifold", "TSNE"), "umap": ("umap", "UMAP")}
    package, name = places[projection]
    with needs(f"`projection` {projection}", extra="maps"):
        kind = getattr(importlib.import_module(package), name)

    def project(vectors: np.ndarray) -> Any:
        # If all texts are equal, t-SNE would crash the process.
        if np.allclose(vectors, vectors[0], rtol=1e-4, atol=1e-5):
            return np.zeros((len(vectors), 2))
        settings: dict[str, Any] = {"random_state": seed}
        if projection == "tsne":  # it reads 3 * perplexity neighbours of each text
            settings["perplexity"] = min(30.0, (len(vectors) - 1) / 3)
        else:
            # With a seed, umap-learn has one thread, and warns without `n_jobs`.
            settings |= {"n_neighbors": min(15, len(vectors) - 1), "n_jobs": 1}
        return kind(n_components=2, **settings).fit_transform(vectors)

    return project
