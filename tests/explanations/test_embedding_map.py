"""The map of texts: its axes, classes and page."""

from __future__ import annotations

import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_keras.errors import ConfigError
from bert_keras.explanations.embedding_map import (
    _projector,
    map_texts,
    principal_components,
)

TEXTS = ["see you at six", "win cash </script> now", "free prize"]


def test_principal_components_keep_the_distances_of_a_plane() -> None:
    random = np.random.default_rng(0)
    plane = random.normal(size=(30, 2)) * [3.0, 1.0]
    axes, _ = np.linalg.qr(random.normal(size=(5, 5)))
    vectors = plane @ axes[:2] + 7
    points, shares = principal_components(vectors)
    assert points.shape == (30, 2) and points.dtype == np.float32
    assert sum(shares) == pytest.approx(1) and shares[0] > 0.7

    def distances(x: np.ndarray) -> np.ndarray:
        return np.linalg.norm(x[:, None] - x[None], axis=-1)

    np.testing.assert_allclose(distances(points), distances(plane), atol=1e-4)
    np.testing.assert_allclose(principal_components(vectors)[0], points)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_few_vectors_have_places(size: int) -> None:
    points, shares = principal_components(np.ones((2, size)) * [[1.0], [3.0]])
    assert points.shape == (2, 2)
    assert abs(points[0, 0] - points[1, 0]) == pytest.approx(2 * size**0.5)
    assert shares[0] == pytest.approx(1)


@pytest.mark.slow
def test_a_page_of_true_classes(encoder_folder: Path, tmp_path: Path) -> None:
    found = map_texts(encoder_folder, TEXTS, labels=["b", "a", "a"])
    page = found.write(tmp_path / "map.html", title="Mails").read_text("utf-8")
    assert page.count("</script>") == 2 and "PCA" in page
    data = json.loads(re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)[0])
    assert data["names"] == ["a", "b"] and data["classes"] == [1, 0, 0]
    assert data["texts"] == TEXTS
    np.testing.assert_allclose(data["points"], found.points, atol=1e-4)
    assert "<iframe" in found._repr_html_()


@pytest.mark.thorough
def test_classes_are_predicted(spam_folder: Path, encoder_folder: Path) -> None:
    found = map_texts(spam_folder, TEXTS, labels="predicted")
    assert set(found.labels) <= {"ham", "promo", "spam"} and len(found.labels) == 3
    assert map_texts(encoder_folder, TEXTS, labels="predicted").labels == ()


@pytest.mark.parametrize(
    ("texts", "changes", "message"),
    [
        (TEXTS, {"projection": "globe"}, "`projection` must be one of pca, tsne, umap"),
        (TEXTS, {"labels": ["a"]}, "`labels` must be as many as the texts, 3"),
        (TEXTS, {"labels": "abc"}, "`labels` must be one of predicted; received 'abc'"),
        (TEXTS[:1], {}, "`texts` must be at least 2 for the projection pca; .* 1"),
        (TEXTS, {"projection": "umap"}, "`texts` must be at least 4 for .* umap; .* 3"),
    ],
)
def test_wrong_settings_are_refused(
    encoder_folder: Path, texts: list[str], changes: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        map_texts(encoder_folder, texts, **changes)


def test_a_missing_package_is_named_before_texts_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ConfigError, match=r"package umap: .* 'bert_keras\[maps\]'"):
        map_texts("no/model", [*TEXTS, "lunch"], labels="predicted", projection="umap")


PACKAGES = {"tsne": "sklearn.manifold", "umap": "umap"}


@pytest.mark.parametrize(
    ("projection", "settings"),
    [
        ("tsne", {"perplexity": 1.0}),
        ("umap", {"n_neighbors": 3, "n_jobs": 1}),
    ],
)
@pytest.mark.slow
def test_what_other_packages_are_given(
    encoder_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    projection: str,
    settings: dict[str, float],
) -> None:
    """A stand-in for each package; whether the real one accepts it is tested below."""
    seen = {}

    class StandIn:
        def __init__(self, **given: Any) -> None:
            seen.update(given)

        def fit_transform(self, vectors: np.ndarray) -> np.ndarray:
            return vectors[:, :2].astype("float64")

    module = types.SimpleNamespace(TSNE=StandIn, UMAP=StandIn)
    monkeypatch.setitem(sys.modules, PACKAGES[projection], module)
    texts = [*TEXTS, "lunch"]
    found = map_texts(encoder_folder, texts, projection=projection, seed=7)
    assert seen == {"n_components": 2, "random_state": 7, **settings}
    assert found.points.shape == (4, 2) and found.points.dtype == np.float32
    seen.clear()
    same = map_texts(encoder_folder, ["lunch"] * 4, projection=projection)
    assert not same.points.any() and not seen  # t-SNE cannot take equal vectors


@pytest.mark.parametrize(
    "projection", ["tsne", pytest.param("umap", marks=pytest.mark.thorough)]
)
def test_groups_stay_together(projection: str) -> None:
    reason = f"needs {projection}: pip install 'bert_keras[maps]'"
    pytest.importorskip(PACKAGES[projection], reason=reason)
    random = np.random.default_rng(0)
    groups = np.repeat(np.eye(3, 8) * 10, 12, axis=0)
    vectors = (groups + random.normal(size=groups.shape)).astype("float32")
    project = _projector(projection, 0)
    points = project(vectors)
    centres = points.reshape(3, 12, 2).mean(1)
    distances = np.linalg.norm(points[:, None] - centres, axis=-1)
    assert (distances.argmin(1) == np.repeat(range(3), 12)).all()
    np.testing.assert_array_equal(project(vectors), points)  # by the seed
