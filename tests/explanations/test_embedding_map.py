"""The map of texts: its axes, classes and page."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_keras.errors import ConfigError
from bert_keras.explanations.embedding_map import map_texts, principal_components

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


def test_a_page_of_true_classes(encoder_folder: Path, tmp_path: Path) -> None:
    found = map_texts(encoder_folder, TEXTS, labels=["b", "a", "a"])
    page = found.write(tmp_path / "map.html", title="Mails").read_text("utf-8")
    assert page.count("</script>") == 2 and "PCA" in page
    data = json.loads(re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)[0])
    assert data["names"] == ["a", "b"] and data["classes"] == [1, 0, 0]
    assert data["texts"] == TEXTS
    np.testing.assert_allclose(data["points"], found.points, atol=1e-4)
    assert "<iframe" in found._repr_html_()


def test_classes_are_predicted(spam_folder: Path, encoder_folder: Path) -> None:
    found = map_texts(spam_folder, TEXTS, labels="predicted")
    assert set(found.labels) <= {"ham", "promo", "spam"} and len(found.labels) == 3
    assert map_texts(encoder_folder, TEXTS, labels="predicted").labels == ()


@pytest.mark.parametrize(
    ("texts", "changes", "message"),
    [
        (TEXTS, {"projection": "globe"}, "`projection` must be one of pca, tsne, umap"),
        (TEXTS, {"labels": ["a"]}, "`labels` must be as many as the texts, 3"),
        (TEXTS[:1], {}, "`texts` must be two or more; received 1"),
    ],
)
def test_wrong_settings_are_refused(
    encoder_folder: Path, texts: list[str], changes: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        map_texts(encoder_folder, texts, **changes)


def test_a_missing_package_is_named(
    encoder_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ConfigError, match=r"pip install 'bert_keras\[maps\]'"):
        map_texts(encoder_folder, TEXTS, projection="umap")
