"""The report holds its data, escaped, and needs no other file."""

import csv
import io
import os
import re
import urllib.parse
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from bert_keras.errors import DataError
from bert_keras.report.confusions import confusions
from bert_keras.report.report import write_report
from bert_keras.report.values import signed, words
from bert_keras.scoring.classification import classification_scores
from bert_keras.scoring.curves import decision_curves

EVIL = "<script>alert(\"1\")</script> & 'quoted'"
NOTHING: dict[str, Any] = {
    "settings": {},
    "data": {},
    "history": [],
    "scores": {},
    "mistakes": [],
}
VOID = {"meta", "br", "wbr"}


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
        if self.open and self.open[-1] not in ("style", "script"):
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
        assert not re.search(r"\bsrc=|url\(|@import|<link", source)
        assert set(re.findall(r'href="(\w+:)', source)) <= {"data:"}
        assert source.count("<script") == source.count("<script>") == 1
        return Page(source)

    return report


def slice_of(name, value=0.9, low: float | None = 0.85, rows=40):
    high = None if low is None else 0.95
    return {"slice": name, "rows": rows, "f1": value, "low": low, "high": high}


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
        curves={EVIL: {EVIL: decision_curves([0, 1, 1], [0.2, 0.1, 0.9])}},
        slices={EVIL: {EVIL: [slice_of(EVIL), slice_of(EVIL)]}},
        doubtful_labels={EVIL: [{"line": 1, "text": EVIL, "label": EVIL}]},
        learning_curve=[{"rows": 1, EVIL: 0.5}],
        usage={EVIL: EVIL},
        best_score="f1",
    )
    assert page.count("script") == 1  # ours
    assert page.text.count(EVIL) > 10
    policy = next(a for _, a in page.tags if a.get("http-equiv"))
    assert policy["content"].startswith("default-src 'none'")


def test_texts_are_truncated_and_made_printable(report):
    page = report(mistakes=[{"text": "x" * 5000 + "end"}, {"text": "a\0b\ud800c\x1b"}])
    assert "x" * 299 + "…" in page.text and "end" not in page.text
    assert "a\ufffdb\ufffdc\ufffd" in page.text
    page = report(mistakes=[{"text": "t", "probability": 0.5}] * 31)
    assert "30 of 31 are shown." in page.text


@pytest.mark.parametrize("num_classes", [2, 60, 150])
def test_confusion_matrix_of_any_size(report, num_classes):
    scores = scores_of(num_classes)
    page = report(scores={"dev": scores})
    matrix = np.array(scores["confusion_matrix"])
    cells = [
        a["title"]
        for tag, a in page.tags
        if tag == "td" and "true" in a.get("title", "")
    ]
    if num_classes <= 100:
        assert len(cells) == np.count_nonzero(matrix)  # zeros are blank
    else:
        assert "The 60 of 150 classes with the most mistakes." in page.text
        assert 0 < len(cells) <= 3600
    true, predicted = np.argwhere(matrix)[0]
    share = 100 * matrix[true, predicted] / matrix[true].sum()
    told = f"true class {true}, predicted class {predicted}: {share:.1f} %"
    assert told in cells or num_classes > 100
    found = next(a for _, a in page.tags if a.get("class", "").startswith("matrix"))
    assert ("dense" in found["class"]) == (num_classes > 12)


def test_the_most_confused_classes_come_first_with_examples(report):
    matrix = np.diag([20] * 4)
    matrix[3, 1], matrix[2, 0], matrix[0, 2] = 5, 2, 1
    mistakes = [{"text": "an example", "label": "d", "prediction": "b"}]
    ((_, listed), _) = confusions(matrix, list("abcd"), mistakes)
    assert [tuple(row.values()) for row in listed.value["rows"]] == [
        ("d", "b", 5, "20%", "an example"),
        ("c", "a", 2, "9%", ""),
        ("a", "c", 1, "5%", ""),
    ]
    row = dict.fromkeys("abcd", {"f1": 0.5, "support": 20})
    scores = {"confusion_matrix": matrix, "per_class": row}
    page = report(scores={"test": scores, "dev": scores}, mistakes=mistakes)
    test, dev = page.text.split("Results on dev")[-2:]
    assert "Text of an example" in dev and "of an example" not in test  # dev is last


def test_pairs_of_very_many_classes(report):
    pairs = [{"label": "a", "prediction": "b", "rows": 3}]
    scores = {"confusions": pairs, "per_class": {"a": {"f1": 0.5, "support": 4}}}
    text = report(scores={"dev": scores}).text
    assert "Most confused classes" in text and "75%" in text


def test_classes_that_are_confused_are_neighbours():
    pairs = np.zeros((14, 14), int)
    for one, other in ((0, 13), (13, 5), (2, 9)):
        pairs[one, other] = 3
    ((_, listed), (_, shown)) = confusions(pairs, list("abcdefghijklmn"))
    assert [row["label"] for row in listed.value["rows"]] == ["a", "c", "n"]
    order = "".join(shown.value["names"])
    assert order[:3] in ("anf", "fna") and order[3:5] in ("cj", "jc")


def test_classes_are_sorted_and_have_a_dash_without_rows(report):
    row = {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0}
    names = [f"c{number}" for number in range(20)]
    rows = {name: row for name in names}
    for number, name in enumerate(names[1:]):
        rows[name] = row | {"f1": 1 - number / 100, "support": 3}
    text = report(scores={"test": {"per_class": rows}}).text
    worst, every = text.split("Worst 15 of 20 classes")[1].split("All 20 classes")
    assert worst.split()[5] == "c19" and "c0\n" not in worst
    assert every.split()[-5:] == ["c0", "–", "–", "–", "0"]


def test_contents_and_the_order_of_sections(report):
    scores = {"dev": scores_of(2), "test": scores_of(2), "other": scores_of(2)}
    page = report(scores=scores, command="x", settings={"best": None})
    links = [a["href"] for tag, a in page.tags if tag == "a"]
    ids = [a["id"] for tag, a in page.tags if tag == "section" and "id" in a]
    assert links == [f"#{name}" for name in ids]
    assert ids == ["scores", "results-on-test", "results-on-other", "results-on-dev",
                   "settings", "command"]  # fmt: skip
    folded = ["open" not in a for tag, a in page.tags if tag == "details"]
    assert folded == [False, False, False, True, True, True]
    assert "None" not in page.text


def test_a_number_shown_as_0_has_no_sign() -> None:
    shown = [signed(value, 3) for value in (0.0004, -0.0004, 0.0006, -0.0006)]
    assert shown == ["0.000", "0.000", "+0.001", "-0.001"]


def test_names_of_scores():
    keys = ("mrr", "accuracy_at_1", "dev_recall_at_10", "rougeL", "chrf", "macro_f1")
    assert list(map(words, keys)) == [
        "MRR", "Accuracy@1", "Dev recall@10", "ROUGE-L", "chrF", "Macro F1"
    ]  # fmt: skip


def test_no_label_to_check_is_said(report):
    assert (
        "None: for no row is the model confident enough"
        in report(doubtful_labels={"dev": []}).text
    )
    assert "Labels to check" not in report().text


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
        ("", {"num_examples": 9, "mlm_loss": 1.5}, ["MLM loss"]),
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
    with pytest.raises(TypeError):
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


def test_slices_have_the_interval_of_all_rows_on_the_card(report):
    slices = {
        "all rows": [slice_of("all rows", 0.88, 0.86)],
        "channel": [slice_of("web"), slice_of("phone", 0.7, None, rows=4)],
    }
    scores = {"dev": {"num_examples": 44, "f1": 0.88}}
    page = report(scores=scores, slices={"dev": slices}, best_score="f1")
    assert "F1 by channel" in page.text and "F1 by all rows" not in page.text
    cells = [word for word in page.words if " to 0." in word]
    assert cells == ["0.8600 to 0.9500", "0.860 to 0.950", "0.850 to 0.950"]
    assert page.text.index("all rows") < page.text.index("web")


def test_curves_of_one_decision_have_its_thresholds(report):
    labels, p = np.array([0, 1, 0, 1, 1]), np.array([0.2, 0.4, 0.5, 0.8, 0.9])
    curves = {"spam": decision_curves(labels, p)}
    page = report(scores={"dev": {"f1": 0.5}}, curves={"dev": curves})
    assert page.count("svg") == 3
    for word in ("ROC curve", "spam (AUC 0.833)", "Scores by threshold", "0.3000"):
        assert word in page.text, word
    both = report(curves={"dev": curves | {"sale": decision_curves(labels, 1 - p)}})
    assert both.count("svg") == 2 and "Scores by threshold" not in both.text


def test_doubtful_labels_can_be_saved(report):
    rows = [{"line": 7, "label": "ham", "text": 'Win, "now"\n&'}]
    page = report(doubtful_labels={"dev": rows, "test": rows * 1000})
    assert "30 of 1,001 are shown." in page.text
    (link,) = (attrs for tag, attrs in page.tags if "download" in attrs)
    assert link["download"] == "doubtful_labels.csv"
    text = urllib.parse.unquote(link["href"].partition(",")[2])
    saved = list(csv.DictReader(io.StringIO(text)))
    assert len(saved) == 1000
    assert saved[0] == {
        "set": "dev",
        "line": "7",
        "label": "ham",
        "text": rows[0]["text"],
    }


def test_a_learning_curve_and_usage(report):
    rows = [
        {"rows": 50, "dev": 0.7, "test": 0.6},
        {"rows": 100, "dev": 0.8, "test": None},
    ]
    page = report(
        learning_curve=rows, best_score="f1", usage={"In Python": "import this"}
    )
    assert "F1 by training rows" in page.text and "import this" in page.text
    assert page.count("circle") == 3
