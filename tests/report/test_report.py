"""The report holds its data, escaped, and needs no other file."""

import os
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from bert_keras.errors import DataError
from bert_keras.report.report import write_report
from bert_keras.scoring.classification import classification_scores

EVIL = "<script>alert(\"1\")</script> & 'quoted'"
NOTHING: dict[str, Any] = {
    "settings": {},
    "data": {},
    "history": [],
    "scores": {},
    "mistakes": [],
}
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Collects the text and the tags, and checks that every tag is closed."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.words = [], [], []
        self.terms = []  # the names on the cards
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)
            if self.open[-1] == "dt":
                self.terms.append(data)

    def count(self, tag):
        return sum(name == tag for name, _ in self.tags)

    @property
    def text(self):
        return "\n".join(word.strip() for word in self.words if word.strip())


@pytest.fixture
def report(tmp_path):
    def report(**parts):
        path = write_report(tmp_path / "r.html", **({"title": "Run"} | NOTHING | parts))
        assert os.listdir(tmp_path) == ["r.html"]
        source = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(src|href)=|url\(|@import|<script|<link", source)
        return Page(source)

    return report


def scores_of(num_classes, names=None):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, num_classes, 400)
    p = rng.dirichlet(np.ones(num_classes), 400)
    names = names or [f"class {number}" for number in range(num_classes)]
    return classification_scores(labels, p, class_names=names)


def test_a_whole_run(report):
    history = [
        {"epoch": 1, "step": s, "loss": 1 / s, "learning_rate": 5e-5} for s in (1, 2)
    ]
    history += [{"epoch": e, "dev_loss": 0.5, "dev_accuracy": 0.9} for e in (1, 2)]
    split = {"rows": 4400, "mean_tokens": 23.41, "classes": {"ham": 3828, "spam": 572}}
    page = report(
        settings={"learning_rate": 5e-5, "seed": 12345, "columns": {"text": 1}},
        data={"train": split, "dev": {"rows": 9, "classes": {"ham": 7}}, "folds": 3},
        history=history,
        scores={"dev": scores_of(2, ["ham", "spam"]), "test": scores_of(2)},
        mistakes=[
            {"text": "less", "label": "ham", "prediction": "spam", "probability": 0.6},
            {"text": "more", "label": "ham", "prediction": "spam", "probability": 0.9},
        ],
        environment={"keras": "3.15.0"},
        command="bert_keras train",
    )
    text = page.text
    for word in ("Run", "Macro F1", "400 examples", "4,400", "23.4100", "5e-05",
                 "12345", '{"text": 1}', "3,828", "Results on test", "bert_keras train",
                 "3.15.0", "Loss by step", "Loss by epoch", "Learning rate by step",
                 "Accuracy by confidence",
                 "Scores by epoch", "Dev accuracy", "folds"):  # fmt: skip
        assert word in text, word
    assert text.index("more") < text.index("less")
    assert page.count("svg") == 6 and page.count("h1") == 1


def test_nothing_given_makes_a_page(report):
    page = report()
    assert page.text == "Run\nRun" and page.count("section") == 0


def test_untrusted_text_is_escaped(report):
    scores = scores_of(2, [EVIL, "b"]) | {EVIL: 1.0, "more": {EVIL: {EVIL: EVIL}}}
    page = report(
        title=EVIL,
        settings={EVIL: EVIL},
        data={EVIL: {EVIL: EVIL, "classes": {EVIL: 1}}, "x": EVIL},
        history=[{"epoch": 1, "step": 1, EVIL: 1.0}],
        scores={EVIL: scores},
        mistakes=[{"text": EVIL, EVIL: EVIL, "probability": "x"}],
        environment={EVIL: EVIL},
        command=EVIL,
    )
    assert "script" not in {tag for tag, _ in page.tags}
    assert page.text.count(EVIL) > 10
    policy = next(a for _, a in page.tags if a.get("http-equiv"))
    assert policy["content"].startswith("default-src 'none'")


def test_texts_are_truncated_and_made_printable(report):
    page = report(mistakes=[{"text": "x" * 5000 + "end"}, {"text": "a\0b\ud800c\x1b"}])
    assert "x" * 299 + "…" in page.text and "end" not in page.text
    assert "a\ufffdb\ufffdc\ufffd" in page.text
    page = report(mistakes=[{"text": "t", "probability": 0.5}] * 101)
    assert "100 of 101 are shown." in page.text


@pytest.mark.parametrize("num_classes", [2, 60])
def test_confusion_matrix_of_any_size(report, num_classes):
    scores = scores_of(num_classes)
    page = report(scores={"dev": scores})
    cells = [a["title"] for tag, a in page.tags if tag == "td" and "title" in a]
    assert len(cells) == num_classes**2
    (first,) = (c for c in cells if c.startswith("true class 1, predicted class 0:"))
    row = scores["confusion_matrix"][1]
    assert first.endswith(f": {100 * row[0] / sum(row):.1f} % of the row")
    matrix = next(a for _, a in page.tags if a.get("class", "").startswith("matrix"))
    assert ("dense" in matrix["class"]) == (num_classes == 60)


def test_too_many_classes_show_their_most_common_confusions(report):
    matrix = np.zeros((150, 150), int)
    matrix[7, 9], matrix[3, 4] = 5, 80
    page = report(scores={"dev": {"confusion_matrix": matrix}})
    assert "150 classes are too many" in page.text and page.count("tr") < 10
    assert page.text.endswith("True\nPredicted\nCount\n3\n4\n80\n7\n9\n5")


def test_scores_of_other_tasks_are_shown(report):
    scores = {
        "num_examples": 5,
        "pearson": np.float32(0.87),
        "exact": True,
        "missing": None,
        "note": "a word",
        "buckets": {"short": {"f1": 0.5}, "long": {"count": 7}},
        "flat": {"inner": 3},
        "thresholds": [0.25, 0.5],
        "confusion_matrix": [[1, 2], [3]],
    }
    text = report(scores={"test": scores}).text
    for word in ("0.8700", "a word", "short", "Count", "inner", "[0.25, 0.5]", "–",
                 "[[1, 2], [3]]"):  # fmt: skip
        assert word in text, word


@pytest.mark.parametrize(
    ("best", "scores", "shown"),
    [
        ("spearman", {"num_examples": 9, "loss": 2.0, "pearson": 0.5, "spearman": 0.4},
         ["Spearman", "Pearson"]),
        ("f1", {"num_examples": 9, "exact": 81.5, "num_answerable": 7, "f1": 88.25},
         ["F1", "Exact"]),
        ("f1", {"token_accuracy": 0.9, "precision": 0.5, "recall": 0.6, "f1": 0.55},
         ["F1", "Token accuracy", "Precision"]),
        ("", {"num_examples": 9, "mlm_loss": 1.5}, ["Mlm loss"]),
        ("", {"num_examples": 9}, []),
    ],
)  # fmt: skip
def test_the_best_score_is_on_the_first_card(report, best, scores, shown):
    page = report(scores={"dev": scores}, best_score=best)
    assert page.terms == shown


def test_mistakes_of_other_tasks_keep_their_order(report):
    rows = [
        {"line": 7, "document": "d" * 200, "prediction": "", "rouge1": 0.1},
        {"line": 3, "document": "x", "prediction": ["a", "b"], "rouge1": 0.05},
    ]
    page = report(mistakes=rows)
    assert "Mistakes" in page.text and "Most confident" not in page.text
    assert page.text.index("d" * 200) < page.text.index('["a", "b"]')
    wide = [a for tag, a in page.tags if tag == "td" and a.get("class") == "text"]
    assert len(wide) == 1


def test_history_with_odd_values(report):
    history = [
        {"loss": 0.5},
        {"loss": float("nan"), "note": "x", "ok": True},
        {"epoch": 1, "dev_seconds": 12.0, "dev_loss": None},
    ]
    text = report(history=history).text
    assert "Loss (1 not finite)" in text and "Dev seconds by epoch" in text
    assert "Loss by record" in text


def test_an_old_report_is_replaced_and_a_failure_leaves_it(tmp_path, monkeypatch):
    path = tmp_path / "r.html"
    path.write_text("old")
    with pytest.raises(AttributeError):
        write_report(path, title="new", **(NOTHING | {"scores": None}))
    assert path.read_text() == "old"
    assert write_report(path, title="new", **NOTHING) == path
    assert "<h1>new</h1>" in path.read_text()
    with pytest.raises(DataError, match="cannot be written: No such file"):
        write_report(tmp_path / "no" / "r.html", title="new", **NOTHING)

    def full_disk(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(DataError, match="cannot be written: No space left"):
        write_report(path, title="newer", **NOTHING)
    assert "<h1>new</h1>" in path.read_text() and os.listdir(tmp_path) == ["r.html"]
