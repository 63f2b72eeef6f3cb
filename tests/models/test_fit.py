"""Keras's `fit` and `evaluate` on strings: rows set aside, labels that are unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from conftest import ROWS, refused

from bert_keras.models.fit_data import read_rows, unused_settings
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.generation import Translation
from bert_keras.tasks.given_labels import label_errors
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.multiple_choice import MultipleChoice
from bert_keras.tasks.next_sentence import NextSentence
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.reranking import Reranking
from bert_keras.tasks.tagging.task import TokenClassification as Tags

TEXTS, LABELS = (list(column) for column in zip(*sorted(ROWS), strict=True))
CLASSES = ("ham", "promo", "spam")


def compiled(
    make_model: Callable[..., Any], task: Any, *, run_eagerly: bool = True
) -> TaskModel:
    """Return a model that learns nothing; without a graph, unless that matters."""
    model: TaskModel = make_model(task)
    still = keras.optimizers.SGD(0.0)
    model.compile(optimizer=still, loss=task.loss(), run_eagerly=run_eagerly)
    return model


@pytest.fixture(scope="module")
def classifier(make_model: Callable[..., Any]) -> TaskModel:
    """Return a classifier that learns nothing."""
    return compiled(make_model, Classification(CLASSES))


def parts(model: TaskModel, x: Any, y: Any, **options: Any) -> tuple[Any, Any]:
    """Return the rows that `fit` trains on and those that it sets aside, sorted."""
    seen: list[Any] = []

    class Seen(Exception):
        """What Keras was given."""

    class Base:
        def fit(self, *data: Any, validation_data: Any = None, **kwargs: Any) -> None:
            seen.extend([data, validation_data])
            raise Seen

    keras.utils.set_random_seed(options.pop("seed", 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model).__mro__[1], "fit", Base.fit, raising=False)
        with pytest.raises(Seen):
            model.fit(x, y, **options)
    (x, y, *_), held = seen
    if isinstance(x, tf.data.Dataset):
        kept = [row for row in x.unbatch().as_numpy_iterator()]
    else:
        kept = list(zip(x, y, strict=True))
    aside = list(held.unbatch().as_numpy_iterator())
    return kept, aside


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.slow
def test_held_out_rows_are_of_all_classes(classifier: TaskModel, seed: int) -> None:
    order = np.argsort(LABELS, kind="stable")
    texts, labels = np.array(TEXTS)[order], np.array(LABELS)[order]
    kept, aside = parts(classifier, texts, labels, validation_split=0.5, seed=seed)
    assert len(kept) == len(aside) == 6
    # The last six rows are of two classes, and the first six of two others.
    assert {label for _, label in aside} | {b"ham"} != {b"spam", b"ham"}
    assert {label for _, label in kept} == {b"ham", b"promo", b"spam"}
    assert sorted(x for x, _ in kept + aside) == sorted(t.encode() for t in TEXTS)
    again = parts(classifier, texts, labels, validation_split=0.5, seed=seed)
    assert again[1] == aside


@pytest.mark.thorough
def test_a_class_of_one_row_is_trained_on(classifier: TaskModel) -> None:
    labels = ["ham"] * 11 + ["spam"]
    for seed in range(8):
        kept, aside = parts(classifier, TEXTS, labels, validation_split=0.4, seed=seed)
        assert b"spam" in {label for _, label in kept}
        assert len(aside) == 5
    numbers = parts(classifier, TEXTS, [0] * 11 + [2], validation_split=0.9)[0]
    assert 2 in {label for _, label in numbers}


def test_without_shuffling_the_last_rows_are_held_out(classifier: TaskModel) -> None:
    _, aside = parts(classifier, TEXTS, LABELS, validation_split=0.25, shuffle=False)
    assert [text.decode() for text, _ in aside] == TEXTS[9:]


@pytest.mark.thorough
def test_other_forms_of_rows_are_split(make_model: Callable[..., Any]) -> None:
    model = compiled(make_model, NextSentence())
    pairs = (TEXTS, tf.constant(TEXTS[::-1]))
    weights = np.arange(12.0)
    options = {"validation_split": 0.25, "sample_weight": weights}
    _, aside = parts(model, pairs, np.arange(12) % 2, **options)
    for (text, other), label, weight in aside:
        row = TEXTS.index(text.decode())
        assert (TEXTS[11 - row].encode(), row % 2, row) == (other, label, weight)
    # Numbers that are not classes may all be held out.
    number = compiled(make_model, Regression())
    assert len(parts(number, TEXTS, np.arange(12), validation_split=0.25)[1]) == 3


def test_a_split_is_trained_and_scored(make_model: Callable[..., Any]) -> None:
    model = compiled(make_model, MultiLabel(CLASSES))
    lists = [[label, "ham"][row % 2 :] for row, label in enumerate(LABELS)]
    assert len(parts(model, TEXTS, lists, validation_split=0.25)[1]) == 3
    labels = [f"{label},ham" for label in LABELS]
    found = model.fit(TEXTS, labels, validation_split=0.25, verbose=0).history
    assert set(found) >= {"loss", "val_loss"}


@pytest.mark.parametrize("size", [0, 2.5])
def test_a_batch_has_rows(classifier: TaskModel, size: Any) -> None:
    rule = "`batch_size` must be a whole number"
    refused(lambda: classifier.fit(["a"], [0], batch_size=size), rule)
    refused(lambda: classifier.evaluate(["a"], [0], batch_size=size), rule)


@pytest.mark.parametrize("split", [1.5, -0.1, 1.0, 0.01])
def test_an_invalid_split(classifier: TaskModel, split: float) -> None:
    action = lambda: classifier.fit(TEXTS[:2], ["ham", "spam"], validation_split=split)  # noqa: E731
    refused(action, "`validation_split`")


def test_a_split_beside_validation_data_is_not_used(
    classifier: TaskModel, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"validation_data": (TEXTS[:2], LABELS[:2]), "validation_split": 0.5}
    assert len(parts(classifier, TEXTS, LABELS, **given)[1]) == 2
    assert "`validation_split` is not used" in capsys.readouterr().err


def test_inputs_that_cannot_be_split(classifier: TaskModel) -> None:
    data = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(4)
    refused(lambda: classifier.fit(data, validation_split=0.5), "`validation_data`")
    action = lambda: classifier.fit(TEXTS, LABELS[1:], validation_split=0.5)  # noqa: E731
    refused(action, "`y`", "the same number of rows as `x`", "11 and 12")


@pytest.mark.parametrize("shuffle", [True, False])
def test_columns_of_unequal_length(classifier: TaskModel, shuffle: bool) -> None:
    texts, labels = TEXTS[:4], LABELS[:3]
    few: Any = {"sample_weight": np.ones(3), "verbose": 0}
    for name, action in (
        ("`y`", lambda: classifier.fit(texts, labels, shuffle=shuffle)),
        ("`sample_weight`", lambda: classifier.fit(texts, LABELS[:4], **few)),
        ("`y`", lambda: classifier.evaluate(texts, labels)),
    ):
        refused(action, name, "the same number of rows as `x`", "3 and 4")
    held = (texts, labels)
    action = lambda: classifier.fit(TEXTS, LABELS, validation_data=held)  # noqa: E731
    refused(action, "`y` of `validation_data`", "3 and 4")


def test_texts_that_are_no_rows(classifier: TaskModel) -> None:
    refused(lambda: classifier.fit("win a prize", "spam"), "`x`", "a list", "prize")
    refused(lambda: classifier.fit([], []), "`x`", "at least one row", "0")
    refused(lambda: classifier.fit((TEXTS, None), LABELS), "`x`", "a list", "None")
    refused(lambda: classifier.fit(validation_split=0.5), "`x`", "a list", "None")
    refused(classifier.evaluate, "`x`", "a list", "None")
    refused(lambda: classifier.fit(iter(TEXTS), LABELS), "`x`", "a list", "iterator")
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS))
    refused(lambda: classifier.fit(rows), "`x`", "a batched dataset")
    batches: Any = type("Batches", (keras.utils.PyDataset,), {})()
    refused(lambda: classifier.predict(batches), "`x`", "a list", "Batches")


def test_columns_that_are_not_read(
    classifier: TaskModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were left out in silence, also a second text that changes the answer."""
    columns: dict[str, Any] = {"text": TEXTS, "label": LABELS}
    data = tf.data.Dataset.from_tensor_slices
    for name, more in (("text_pair", TEXTS), ("sample_weight", [1.0] * 12)):
        x = {**columns, name: more}
        texts = {key: x[key] for key in ("text", name)}
        for action in (
            lambda x=x: classifier.fit(x),
            lambda x=x: classifier.evaluate(data(x).batch(4)),
            lambda t=texts: classifier.predict(t),
            lambda t=texts: classifier.fit(data((t, LABELS)).batch(4)),
            lambda x=x: classifier.fit(TEXTS, LABELS, validation_data=x),
            lambda t=texts: classifier.train_on_batch(t, LABELS),
        ):
            refused(action, "must be text;", f"received {name}, too")
    capsys.readouterr()
    for read, unread in ((True, "id"), (False, "label, id")):
        x, y, _ = read_rows(classifier.task, {**columns, "id": TEXTS}, is_labelled=read)
        assert x == TEXTS and y == (LABELS if read else None)
        line = f"columns of `x` that are not read: {unread}\n"
        assert capsys.readouterr().err == line


def test_columns_of_tables_and_lists_of_lists(classifier: TaskModel) -> None:
    class Series:
        """A column whose rows have other labels than their places, as in pandas."""

        shape = (12,)

        def __init__(self, cells: list[Any]) -> None:
            self.cells = cells

        def __getitem__(self, label: int) -> Any:
            raise KeyError(label)

        def to_list(self) -> list[Any]:
            return self.cells

    class DataFrame:
        shape, columns, to_dict = (12, 2), ["text", "label"], dict

    texts, labels = Series(TEXTS), Series(LABELS)
    assert parts(classifier, texts, labels, validation_split=0.25)[1]
    assert read_rows(classifier.task, texts)[0] == TEXTS
    rows: Any = [{"text": text, "label": "ham"} for text in TEXTS]
    for given in (pa.Table.from_pylist(rows), rows):
        for action in (classifier.predict, classifier.fit):
            part = "of text, label: give `x` as"
            refused(lambda a=action, x=given: a(x), "`x` must be the column", part)
    table: Any = DataFrame()
    refused(lambda: classifier.predict(table), "`x` must be the column", "table[NAME]")
    refused(
        lambda: classifier.fit(TEXTS, LABELS, validation_data=table),
        "`validation_data` must be",
    )
    refused(lambda: classifier.fit(TEXTS, LABELS, validation_data=TEXTS), "(x, y)")
    each = [[text] for text in TEXTS]
    for x in (each, np.array(each)):
        assert list(read_rows(classifier.task, x)[0]) == TEXTS
    pairs = [("win", "cash")]
    refused(lambda: classifier.predict(pairs), "one string", "tuple of two lists")
    refused(lambda: classifier.fit(TEXTS, [["ham"], "spam"] * 6), "`y`", "one type")
    refused(lambda: classifier.fit(TEXTS, [["ham", "spam"]] * 12), "one class")
    refused(lambda: classifier.fit(TEXTS, [[1.0], [1.0, 2.0]] * 6), "one length")


@pytest.mark.slow
def test_one_hot_labels_need_a_loss_that_reads_them(
    classifier: TaskModel, make_model: Callable[..., Any]
) -> None:
    hot = np.eye(3)[[CLASSES.index(label) for label in LABELS]]
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, hot)).batch(4)
    for given in (TEXTS, hot), (TEXTS, hot.tolist()), (rows,):
        refused(lambda g=given: classifier.fit(*g), "`y` must be one class", "3)")
    held = lambda: classifier.fit(TEXTS, LABELS, validation_data=(TEXTS, hot))  # noqa: E731
    refused(held, "`y` of `validation_data` must be one class")
    refused(lambda: classifier.evaluate(TEXTS, hot), "`y` must be one class")
    model = make_model(Classification(CLASSES))
    still = keras.optimizers.SGD(0.0)
    model.compile(still, keras.losses.CategoricalCrossentropy(from_logits=True))
    found = model.fit(TEXTS, hot, verbose=0).history["accuracy"]
    plain = model.predict(TEXTS, verbose=0).argmax(axis=1) == hot.argmax(axis=1)
    assert found == [pytest.approx(plain.mean())]


@pytest.mark.parametrize("given", [{7: 2.0}, {"spam": 2.0, 2: 1.0}, "balanced"])
def test_weights_of_classes_that_do_not_fit(classifier: TaskModel, given: Any) -> None:
    action = lambda: classifier.fit(TEXTS, LABELS, class_weight=given)  # noqa: E731
    refused(action, "`class_weight` must be", given if given == "balanced" else "")


@pytest.mark.parametrize("task", [Embedding(), Reranking("listwise")])
def test_weights_of_rows_that_are_compared(
    make_model: Callable[..., Any], task: Any
) -> None:
    x, y = (tf.constant(TEXTS[:2]),) * 2, tf.constant([[0.5, 1.0]] * 2)
    model = make_model(task)
    for given in (x, {}):  # a batch dict, too
        action = lambda x=given: model.preprocess_samples(x, y, tf.ones(2))  # noqa: E731
        refused(action, "`sample_weight` must be None", task.name)


def test_class_weights_by_name_and_number() -> None:
    weights = Classification(CLASSES).weights_by_class({"spam": 4.0, 0: 2.0})
    assert weights == {0: 2.0, 1: 1.0, 2: 4.0}
    many = MultiLabel(CLASSES)
    refused(
        lambda: many.weights_by_class({"ham": 2.0}), "`class_weight`", "multi-label"
    )


def test_settings_that_only_train_uses_are_told(
    classifier: TaskModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    sure: dict[str, Any] = {"answered_accuracy": 0.9, "calibration": "temperature"}
    for task, unused in (
        (Classification(CLASSES), []),
        (Classification(CLASSES, class_weights="balanced"), ["class_weights balanced"]),
        (
            Classification(CLASSES, **sure),
            [f"{k} {sure[k]}" for k in sure],
        ),
        (MultiLabel(CLASSES), ["threshold_tuning f1 (give `thresholds`)"]),
        (MultiLabel(CLASSES, thresholds=0.4), []),
        (Regression(), ["scaling standard (give `mean` and `std`)"]),
        (Regression(mean=1015.5), []),
        (Regression(activation="sigmoid"), []),
    ):
        assert unused_settings(task, has_trained_head=False) == unused
    assert unused_settings(Regression(), has_trained_head=True) == []
    balanced = Classification(CLASSES, class_weights="balanced")
    monkeypatch.setattr(classifier, "task", balanced)
    parts(classifier, TEXTS, LABELS, validation_split=0.25)
    line = "only `train` uses class_weights balanced; `fit` does not"
    assert line in capsys.readouterr().err


@pytest.mark.parametrize("nothing", [None, float("nan")])
def test_rows_without_a_value(classifier: TaskModel, nothing: Any) -> None:
    texts, part = ["win a prize", nothing], "a value in each row; row 1 has"
    for x in (texts, np.array(texts, object)):
        refused(lambda x=x: classifier.fit(x, LABELS[:2]), "`x`", part, str(nothing))
        refused(lambda x=x: classifier.predict(x), "`x`", part, str(nothing))
    refused(lambda: classifier.evaluate(TEXTS[:2], ["ham", nothing]), "`y`", part)
    held = (texts, LABELS[:2])
    action = lambda: classifier.fit(TEXTS, LABELS, validation_data=held)  # noqa: E731
    refused(action, "`x` of `validation_data`", part)


def test_rows_with_fewer_tags_than_words() -> None:
    task, words = Tags(("O", "B-x")), [["win", "a", "prize"], ["six"]]
    for y in ([[1, 0, 0], [0]], [[1, 0, 0], [0, -1, -1]], np.array([[1, 0, 0]] * 2)):
        read_rows(task, words, y)
    for y in ([[1], [0]], [["B-x"], ["O"]], np.array([[1, 0]] * 2)):
        refused(
            lambda y=y: read_rows(task, words, y), "`y` must have a value", "row 0 has"
        )


def test_rows_of_two_types(classifier: TaskModel) -> None:
    texts, part = ["win a prize", 3], "row 1 has 3, row 0 'win a prize'"
    refused(lambda: classifier.predict(texts), "`x` must hold one type", part)
    refused(lambda: classifier.fit(texts, LABELS[:2]), "`x` must hold one type", part)
    refused(lambda: classifier.predict("win a prize"), "`x` must be a list")


def test_cells_that_tensorflow_cannot_read(classifier: TaskModel) -> None:
    texts = ["win a prize", "half \ud800"]
    refused(lambda: classifier.predict(texts), "`x` must hold Unicode text; row 1 has")
    words = [["a", "b"], ["\ud800", "d"]]
    refused(lambda: read_rows(Tags(("O", "B-x")), words), "`x` must hold Unicode")
    refused(
        lambda: classifier.fit(TEXTS[:2], LABELS[:2], sample_weight=[1.0, "1"]),
        "`sample_weight` must hold numbers; row 1 has '1'",
    )


def test_a_task_that_draws_no_targets_needs_y(classifier: TaskModel) -> None:
    rows = tf.data.Dataset.from_tensor_slices(TEXTS).batch(4)
    for x in (TEXTS, rows, rows.map(lambda text: {"text": text})):
        for action in (classifier.fit, classifier.evaluate):
            refused(lambda a=action, x=x: a(x), "`y`", "classification", "None")
    for held in ((TEXTS,), rows):
        action = lambda h=held: classifier.fit(TEXTS, LABELS, validation_data=h)  # noqa: E731
        refused(action, "`y`", "classification")


@pytest.mark.slow
def test_held_out_rows_are_scored_in_batches(
    make_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = compiled(make_model, Classification(CLASSES))
    found: list[int] = []

    def scored(data: Any) -> dict[str, Any]:
        found.append(len(data[1]))
        return {"loss": 0.0}

    monkeypatch.setattr(model, "train_step", lambda data: {"loss": 0.0})
    monkeypatch.setattr(model, "test_step", scored)
    monkeypatch.setattr(model, "get_metrics_result", dict)
    weighed = (TEXTS, LABELS, np.ones(len(TEXTS)))
    for given, held, sizes in (
        ({}, (TEXTS, LABELS), [5, 5, 2]),
        ({"validation_batch_size": 4}, weighed, [4, 4, 4]),
        ({"shuffle": False}, weighed, [5, 5, 2]),
    ):
        found.clear()
        options = {"batch_size": 5, "verbose": 0, **given}
        model.fit(TEXTS, LABELS, validation_data=held, **options)
        assert found == sizes


@pytest.mark.parametrize(
    ("task", "labels", "rule"),
    [
        (Classification(CLASSES), ["eggs"] + LABELS[1:], "one of ham, promo"),
        (Classification(CLASSES), ["é" * 5000] + LABELS[1:], "éé…'"),
        (Classification(CLASSES), [3] * 12, "from 0 to 2"),
        (Classification(CLASSES), [-1] * 12, "received '-1'"),
        (Classification(CLASSES), [0.5] * 12, "from 0 to 2"),
        (Classification(CLASSES), [7.0] * 12, "from 0 to 2"),
        (MultiLabel(CLASSES), ["ham,eggs"] * 12, "received 'eggs'"),
        (MultiLabel(CLASSES), [["ham", ""], ["eggs", ""]] * 6, "received 'eggs'"),
        (MultiLabel(CLASSES), [[0, 2, 1]] * 12, "0 or 1 for each class"),
        (Tags(("O", "B-x")), [[0, 2]] * 12, "from 0 to 1"),
        (NextSentence(), ["maybe"] * 12, "received 'maybe'"),
        (Regression(), ["1", "two"] * 6, "a number; received 'two'"),
        (Regression(), [1.0, np.inf] * 6, "a finite number; received 'inf'"),
        (
            MultipleChoice(),
            ["0", "x"] * 6,
            "a whole number from 0; received 'x'",
        ),
    ],
)
def test_an_unknown_label_is_one_line(task: Any, labels: Any, rule: str) -> None:
    def in_graph() -> None:
        data = tf.data.Dataset.from_tensor_slices(labels).batch(4)
        with label_errors():
            list(data.map(task.encode_targets))

    for action in (in_graph, lambda: task.encode_targets(tf.constant(labels))):
        line = refused(action, "`label` must be", rule)
        assert len(line) < 200


def test_flags_of_other_classes() -> None:
    task = MultiLabel(CLASSES)
    for y in ([[0, 1]], [0, 1]):
        action = lambda y=y: task.encode_targets(tf.constant(y))  # noqa: E731
        refused(action, "`y` must be", "3 classes", "received shape")


def test_places_of_another_form() -> None:
    for y in (["win"], [1], [[1, 2, 3]], [[0.0, 2.0]]):
        refused(
            lambda y=y: QuestionAnswering().encode_targets(tf.constant(y)),
            "`y` must be the first character of each answer",
            "integers [N, 2]",
        )


def test_known_labels_pass() -> None:
    for task, labels, wanted in (
        (Classification(CLASSES), ["spam", "ham"], [2, 0]),
        (Classification(CLASSES), [2, 0], [2, 0]),
        (Classification(CLASSES), [2.0, 0.0], [2, 0]),
        (Classification(CLASSES), [["spam"], ["ham"]], [2, 0]),
        (Classification(CLASSES), [[0.5, 0.5, 0.0]], [[0.5, 0.5, 0.0]]),
        (MultiLabel(CLASSES), ["spam , ham", ""], [[1, 0, 1], [0, 0, 0]]),
        (MultiLabel(CLASSES), [["spam", "ham"], ["", ""]], [[1, 0, 1], [0, 0, 0]]),
        (Regression(), ["-1.5", " 2e1 ", ".5"], [-1.5, 20, 0.5]),
        (MultipleChoice(), ["0", "12"], [0, 12]),
        (QuestionAnswering(), [[0, 3], [-1, -1]], [[0, 3], [-1, -1]]),
    ):
        assert task.encode_targets(tf.constant(labels)).numpy().tolist() == wanted


@pytest.mark.slow
def test_fit_and_evaluate_report_an_unknown_label(
    make_model: Callable[..., Any],
) -> None:
    model = compiled(make_model, Classification(CLASSES), run_eagerly=False)
    known = tf.data.Dataset.from_tensor_slices((TEXTS[:4], ["eggs"] * 4)).batch(4)
    for action in (
        lambda: model.fit(TEXTS, ["ham", "eggs"] * 6, verbose=0),
        lambda: model.evaluate(known, verbose=0),
    ):
        line = refused(action, "`label` must be one of ham, promo, spam")
        assert line.endswith("received 'eggs'")


def test_other_errors_of_tensorflow_are_unchanged() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError), label_errors():
        tf.reshape(tf.zeros([4]), [3])


@pytest.mark.thorough
def test_truncated_rows_are_told_once_by_each_call(
    make_model: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Keras's methods have cut texts in silence, and so have all verbs for targets."""
    model = compiled(make_model, Classification(CLASSES))
    texts = [f"{text} " * (30 if text == TEXTS[0] else 1) for text in TEXTS]
    rows = tf.data.Dataset.from_tensor_slices((texts, LABELS)).batch(5)
    named = rows.map(lambda text, label: {"text": text, "label": label})

    def told(action: Callable[[], object]) -> list[str]:
        capsys.readouterr()
        action()
        return [line.split(" tokens")[0] for line in _lines(capsys.readouterr().err)]

    one = "1 of 12 {}texts (8%) is truncated to 24"
    train, held = one.format("train "), one.format("validation ")
    quiet: dict[str, Any] = {"verbose": 0}
    fit = {**quiet, "epochs": 2}
    assert told(lambda: model.fit(texts, LABELS, shuffle=False, **fit)) == [train]
    assert told(lambda: model.fit(rows, validation_data=named, **fit)) == [train, held]
    stop = keras.callbacks.EarlyStopping("loss")
    given = {"validation_data": (texts, LABELS), "callbacks": [stop], **fit}
    assert told(lambda: model.fit(texts, LABELS, **given)) == [held, train]
    assert given["callbacks"] == [stop]  # the user's list is as it was
    for x, y in ((texts, LABELS), (rows, None), (named, None)):
        assert told(lambda x=x, y=y: model.evaluate(x, y, **quiet)) == [one.format("")]
    batches = rows.map(lambda text, _: text)
    for x in (texts, np.array(texts, object), {"text": texts}, batches):
        assert told(lambda x=x: model.predict(x, **quiet)) == [one.format("")]
    assert told(lambda: model.fit(TEXTS, LABELS, **fit)) == []
    # The texts of pairs are each their own, and targets may be texts.
    pairs = compiled(make_model, Embedding(objective="similarity"))
    given = ((texts, TEXTS), [0.5] * len(TEXTS))
    assert told(lambda: pairs.fit(*given, **fit)) == [
        "1 of 24 train texts (4%) is truncated to 24"
    ]
    writer = compiled(make_model, Translation(max_target_length=6))
    targets = ["sale", *["see you at six, see you now"] * 11]
    assert told(lambda: writer.fit(TEXTS, targets, **quiet)) == [
        "11 of 12 train targets (92%) are truncated to 6"
    ]


def _lines(said: str) -> list[str]:
    return [line for line in said.splitlines() if "truncated" in line]
