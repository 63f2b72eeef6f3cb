"""Question answering: offsets, windows, targets, thresholds, files and the CLI."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused, write_encoder, write_tsv

from bert_keras.cli.main import main
from bert_keras.data.columns import Columns
from bert_keras.data.table import as_columns
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.loading import new_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.scoring.answers import normalize_answer
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.base import changed
from bert_keras.tasks.protocols import texts_of
from bert_keras.tasks.question_answering.answers import (
    cut_out,
    normalized,
    normalized_text,
)
from bert_keras.tasks.question_answering.spans import text_spans
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.text.preprocessor import Preprocessor, as_tensors
from bert_keras.training.config import TrainConfig

QUESTION = "when do I see you?"
TEXTS = {
    "plain": "see you at six, lunch at home",
    "accents": "naïve café — see Ünïcödé",
    "combining": "cafe\u0301 se\u0301e you\u0308 n\u0303",
    "cjk": "see 日本 in 東京都 now",
    "emoji": "win 🎉🎉 cash 👩\u200d🚀 see ✌\ufe0f you ❤\ufe0f",
    "controls": "see\u200byou\u00ad at\tsix\r\nnow \u2028 end",
    "capitals": "İSTANBUL ŒUVRE ẞ six",
    "empty": "",
    "blank": " \n\t ",
    "long word": "x" * 300 + " six",
}


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Any]) -> TaskModel:
    """Return a model with random weights whose windows hold 24 tokens."""
    return make_model(QuestionAnswering(stride=5, n_best=4))


def with_task(model: TaskModel, **changes: Any) -> QuestionAnswering:
    return dataclasses.replace(model.task, **changes)


def questions(model: TaskModel, contexts: list[str], question: str = QUESTION) -> Any:
    """Return the rows of answers in a batch."""
    answers = model.answer(as_tensors([[question] * len(contexts), contexts]))
    return rows_of({key: value.numpy() for key, value in answers.items()})


def test_answers_are_parts_of_the_text(model: TaskModel) -> None:
    contexts = list(TEXTS.values())
    for context, row in zip(contexts, questions(model, contexts), strict=True):
        for span in [row, *row["n_best"]]:
            if span["start"] < 0:
                assert (span["answer"], span["end"]) == ("", -1)
                continue
            assert span["answer"] == context[span["start"] : span["end"]] != ""
        scores = [span["score"] for span in row["n_best"]]
        assert scores == sorted(scores, reverse=True)
        assert sum(scores) <= 1 + 1e-5
        if context.strip():
            assert row["answer"] == row["n_best"][0]["answer"]
        else:
            assert (row["n_best"], row["start"], row["score"]) == ([], -1, 0.0)


def test_marks_belong_to_their_letter(make_model: Callable[..., Any]) -> None:
    # Spans of one token: each piece of the text occurs, including dropped marks.
    model = make_model(QuestionAnswering(max_answer_tokens=1, n_best=20))
    (row,) = questions(model, ["e\u0301\u0323 日 you\ufe0f"])
    found = {span["answer"] for span in row["n_best"]}
    assert found == {"e\u0301\u0323", "日", "you\ufe0f"}


def test_broken_bytes_count_as_python_counts_them(model: TaskModel) -> None:
    text = b"win \xff\xe6\x97 six \xc3("
    answers = model.answer((tf.constant(["when?"]), tf.constant([text])))
    shown = text.decode("utf-8", "replace")
    for start, end, answer in zip(
        *(answers[f"n_best_{key}"][0].numpy() for key in ("starts", "ends", "answers")),
        strict=True,
    ):
        assert shown[start:end] == answer.decode() != ""


@pytest.mark.slow
def test_a_lone_surrogate_is_one_character(model: TaskModel) -> None:
    (row,) = Predictor(model).predict([("when?", "\ud83d six")])
    span = next(span for span in row["n_best"] if span["answer"] == "six")
    assert (span["start"], span["end"]) == (2, 5)


def test_no_texts_have_no_answers(model: TaskModel) -> None:
    answers = model.answer((tf.constant([], tf.string), tf.constant([], tf.string)))
    assert {value.shape[0] for value in answers.values()} == {0}
    assert answers["n_best_scores"].shape == (0, 4)


def test_places_that_are_not_in_the_context(model: TaskModel) -> None:
    texts = tf.constant([QUESTION]), tf.constant(["naïve café"])
    for place in ([0, 10], [9, 10], [-1, -1], [-2, -2]):
        model.task.examples(model.preprocessor, texts, tf.constant([place]))
    for place in ([900, 905], [0, 11], [5, 2], [0, 0], [-7, -3], [-1, 4], [-3, -3]):
        refused(
            lambda y=place: model.task.examples(
                model.preprocessor, texts, tf.constant([y])
            ),
            "first character and end of an answer in its context",
            f"received '{place[0]}, {place[1]}'",
        )


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.slow
def test_windows_in_parts_are_as_windows_at_once(model: TaskModel, layout: str) -> None:
    preprocessor = model.preprocessor.replace(layout=layout)
    # Some 80 windows, so that three parts are computed.
    contexts = ["see you at six. " * 60, "", "win cash now " * 20, "lunch at home"]
    texts = as_tensors([[QUESTION] * 4, contexts])
    batch = model.task.features(preprocessor, texts)
    assert batch["questions"].windows.ids.nrows() > 70
    once = model.task.answer(model(batch, training=False), batch)
    parts = model.answer(texts, preprocessor=preprocessor)
    assert set(once) == set(parts)
    for key, value in once.items():
        if value.dtype == tf.string:
            assert parts[key].numpy().tolist() == value.numpy().tolist()
        else:
            np.testing.assert_allclose(parts[key], value, atol=1e-5)


@pytest.mark.thorough
def test_an_answer_far_down_is_found(make_model: Callable[..., Any]) -> None:
    model = make_model(QuestionAnswering(stride=5, n_best=4))
    answered = "lunch at home, free prize"
    context = "see you at six. " * 40 + answered + " win cash now!" * 40
    columns = as_columns(
        question=["what?"] * 2,
        context=[context, answered],
        answers=[[("prize", context.index("prize"))], [("prize", 20)]],
    )
    model.compile("adam", loss=model.task.loss())
    model.optimizer.learning_rate = 1e-2
    x, y = as_tensors(texts_of(model.task, columns)), model.task.targets(columns)
    model.fit(tf.data.Dataset.from_tensors((x, y)).repeat(60), verbose=0)
    for row, text in zip(
        questions(model, columns["context"], "what?"), columns["context"], strict=True
    ):
        assert row["answer"] == "prize"
        assert row["start"] == text.index("prize")


def test_score_is_the_share_among_all_spans(model: TaskModel) -> None:
    # Every span of a short text is listed, so that the probabilities sum to 1.
    task = with_task(model, n_best=64, max_answer_tokens=1)
    texts = as_tensors([["when?"], ["see you at six"]])
    batch = task.features(model.preprocessor, texts)
    outputs = model(batch, training=False)
    answers = task.answer(outputs, batch)
    scores = answers["n_best_scores"].numpy()[0]
    assert (scores > 0).sum() == 4
    assert scores.sum() == pytest.approx(1, abs=1e-5)
    null = dataclasses.replace(task, no_answer=True)
    answers = null.answer(outputs, batch)
    null_score = float(answers["null_score"][0])
    scores = answers["n_best_scores"].numpy()[0]
    assert scores.sum() + scores[0] * math.exp(null_score) == pytest.approx(1, 1e-4)


def test_the_threshold_decides_between_answer_and_no_answer(model: TaskModel) -> None:
    texts = as_tensors([[QUESTION] * 2, ["see you at six", ""]])
    batch = model.task.features(model.preprocessor, texts)
    outputs = model(batch, training=False)

    def answers(**changes: Any) -> Any:
        task = with_task(model, **changes)
        found = task.answer(outputs, batch)
        return rows_of({key: value.numpy() for key, value in found.items()})

    null_score = answers()[0]["null_score"]
    given, empty = answers(no_answer=True, threshold=null_score + 0.01)
    assert given["answer"] == given["n_best"][0]["answer"] != ""
    none, _ = answers(no_answer=True, threshold=null_score - 0.01)
    assert (none["answer"], none["start"], none["end"]) == ("", -1, -1)
    assert none["n_best"] == given["n_best"]
    assert none["score"] == pytest.approx(
        given["score"] * math.exp(null_score), rel=1e-4
    )
    assert (empty["answer"], empty["score"]) == ("", pytest.approx(1.0))


# Which answers are listed.

CONTEXTS = [
    "SoCal, so cal! The SoC at SoCal, in SoCal. A so-cal; an SoCal the",
    "win, Win! WIN. win? the win: (win) a win; win win cash at home now",
    "see you at six",
    "six",
    "... !! ?",
    "",
    "日本 see 日本 you, İSTANBUL cafe\u0301 at six now " * 6,
]


def overlap(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the share of the characters of two spans that is in both."""
    both = min(one["end"], other["end"]) - max(one["start"], other["start"])
    covered = max(one["end"], other["end"]) - min(one["start"], other["start"])
    return both / covered


def same_answer(one: dict[str, Any], other: dict[str, Any]) -> bool:
    names = (normalize_answer(span["answer"]) for span in (one, other))
    return len(set(names)) == 1 or overlap(one, other) > 0.5


def test_listed_answers_are_distinct(model: TaskModel) -> None:
    texts = as_tensors([[QUESTION] * len(CONTEXTS), CONTEXTS])
    batch = model.task.features(model.preprocessor, texts)
    outputs = model(batch, training=False)

    def answers(task: QuestionAnswering) -> Any:
        found = {k: v.numpy() for k, v in task.answer(outputs, batch).items()}
        return rows_of(found)

    task = with_task(model, max_answer_tokens=5)
    spans = dataclasses.replace(task._finder(), n_best=1000)._spans(
        outputs, batch, batch["questions"].windows
    )
    every = text_spans(spans, batch["questions"].windows.text, texts=len(CONTEXTS))
    questions = batch["questions"]
    cut = cut_out(every, questions.contexts, questions.starts, questions.ends)
    rows = {n: answers(dataclasses.replace(task, n_best=n)) for n in (1, 4, 12)}
    for number in range(len(CONTEXTS)):
        columns = [each[number].numpy().tolist() for each in cut]
        all_spans = [
            {"answer": text.decode(), "start": start, "end": end}
            for text, start, end in zip(*columns, strict=True)
            if text
        ]
        wanted: list[dict[str, Any]] = []  # the plain way, of all spans, best first
        for span in all_spans:
            if not any(same_answer(span, other) for other in wanted):
                wanted.append(span)
        for n_best, found_rows in rows.items():
            row = found_rows[number]
            found = [
                {k: v for k, v in s.items() if k != "score"} for s in row["n_best"]
            ]
            assert found == wanted[:n_best]
            if found:
                assert row["answer"] == all_spans[0]["answer"]


def test_answers_are_normalized_as_in_the_script() -> None:
    texts = [
        *CONTEXTS[:-1],
        *(
            "The  Denver Broncos!",
            "a an the",
            "theme a-n An ant",
            "",
            " \u3000x ",
            "the a b",
        ),
        *("$5.00", "U.S.A.", "“the” end", "thé a", "x\ty\n z"),
    ]
    found = [text.decode() for text in normalized(tf.constant(texts)).numpy()]
    assert found == [normalize_answer(text) for text in texts]
    texts += [
        "a\u0301 the_ a",
        "an\u2028a\x0bthe",
        "c\x00d",
        "\x0b a \x85x\u00a0",
        "İΣ a ½the",
    ]
    odd = [text.decode() for text in normalized(tf.constant(texts)).numpy()]
    assert [normalized_text(text) for text in texts] == odd


# What is trained on.


def test_targets_name_what_they_are() -> None:
    context = "see you at six, at home"
    columns = Columns(
        "a.json",
        {
            "question": ["?"] * 5,
            "context": [context] * 5,
            "answers": [
                [("six", 11)],
                [],
                [("six", 10), ("at", 16), ("at", 8)],
                [("six", 12), ("", 0), ("x", -1)],
                [("home", 19)],
            ],
            "id": list("abcde"),
        },
        [1, 2, 3, 4, 5],
    )
    task = QuestionAnswering.from_columns(columns)
    assert task.no_answer
    wanted = [[11, 14], [-1, -1], [16, 18], [-2, -2], [19, 23]]
    assert task.targets(columns).tolist() == wanted
    answers, questions = task.notes(columns)
    assert answers == (
        "a.json: 4 of 8 answers, of 2 of 5 questions, do not stand where "
        "`answer_start` says: c ('six' at 10), d ('six' at 12), d ('' at 0), "
        "d ('x' at -1)"
    )
    assert "1 of 5 questions" in questions
    assert questions.startswith("a.json: ")
    assert questions.endswith(": d")
    facts = task.describe(columns)
    assert facts["wrong_offsets"] == 1 and facts["misplaced_answers"] == 4
    # Some answers of a question are misplaced, and it is trained on by another.
    (line,) = task.notes(columns.take([0, 2]))
    assert line.endswith(": c ('six' at 10)")
    assert task.notes(columns.take([0, 1, 4])) == []
    many = columns.take([2] * 14)
    assert task.notes(many)[0].endswith(" and 4 more")
    assert not QuestionAnswering.from_columns(columns.take([0, 4])).no_answer
    refused(lambda: QuestionAnswering.from_columns(columns.take([3])), "a.json", "d")
    refused(lambda: QuestionAnswering.from_columns(columns.take([1])), "no question")


def marked(model: TaskModel, layout: str, target: list[int], context: str) -> Any:
    """Return the tokens of each window that are start and end, and the window's."""
    texts = as_tensors([["when?"], [context]])
    preprocessor = model.preprocessor.replace(layout=layout)
    batch, y, _ = model.task.examples(preprocessor, texts, tf.constant([target]))
    windows = []
    tokens = model.preprocessor.tokenizer.vocabulary
    for ids, marks in zip(batch["token_ids"].numpy(), y.numpy(), strict=True):
        for window in range(1, marks[:, 0].max() + 1):
            here = marks[:, 0] == window
            found = [np.flatnonzero(marks[here, column]) for column in (1, 2)]
            names = [[tokens[i] for i in ids[here][places]] for places in found]
            windows.append((names, ids[here].tolist()))
    return windows


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_windows_without_the_answer_learn_cls(model: TaskModel, layout: str) -> None:
    context = "see you at six, lunch at home " * 4
    at = context.rindex("lunch at")
    windows = marked(model, layout, [at, at + len("lunch at")], context)
    names = [names for names, _ in windows]
    assert [["lunch"], ["at"]] in names
    assert [["[CLS]"], ["[CLS]"]] in names
    assert len({tuple(map(tuple, each)) for each in names}) == 2


def test_parts_of_words_and_accents_are_found(model: TaskModel) -> None:
    context = "cafe\u0301 xyz"
    ((names, _),) = marked(model, "padded", [0, 5], context)
    assert names == [["c"], ["##e"]]
    ((names, _),) = marked(model, "padded", [7, 8], context)
    assert names == [["##y"], ["##y"]]
    ((names, _),) = marked(model, "padded", [-1, -1], context)
    assert names == [["[CLS]"], ["[CLS]"]]
    # Wrong offsets, and an answer that is dropped as a whole: nothing is learned.
    for target, text in (([-2, -2], context), ([4, 5], "win \u200b now")):
        ((names, _),) = marked(model, "padded", target, text)
        assert names == [[], []]


def test_an_answer_wider_than_its_window_learns_cls(model: TaskModel) -> None:
    windows = marked(model, "padded", [0, 120], "see you at six, lunch " * 6)
    assert {tuple(map(tuple, names)) for names, _ in windows} == {
        (("[CLS]",), ("[CLS]",))
    }


def test_both_layouts_have_the_same_loss(model: TaskModel) -> None:
    contexts = ["see you at six, lunch at home " * 3, "you at six", "win now"]
    texts = as_tensors([["when?"] * 3, contexts])
    targets = tf.constant([[11, 14], [-1, -1], [-2, -2]])
    losses = []
    for layout in ("packed", "padded"):
        preprocessor = model.preprocessor.replace(layout=layout)
        batch, y, _ = model.task.examples(preprocessor, texts, targets)
        losses.append(float(model.task.loss()(y, model(batch))))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_lengths_are_those_of_the_whole(model: TaskModel) -> None:
    texts = as_tensors([["when?", "see " * 30], ["see you " * 50, ""]])
    lengths, lost = model.task.lengths(model.preprocessor, texts)
    assert (lengths + lost).numpy().tolist()[1] == 33
    assert lengths.numpy().tolist()[0] > 100
    assert lost.numpy().tolist() == [0, 20]  # 10 of the question's 30 are read


# Scores.


def given_answers(
    texts: list[str], nulls: list[float], probabilities: Any = 0.5
) -> dict[str, np.ndarray]:
    column = np.array([[text.encode()] for text in texts], object)
    return {
        "answer": column[:, 0],
        "n_best_answers": column,
        "score": np.full(len(texts), 0.5, "float32"),
        "null_score": np.array(nulls, "float32"),
        "span_probabilities": np.full((len(texts), 1), probabilities, "float32"),
        "null_probabilities": np.full((len(texts), 1), 0.25, "float32"),
    }


def test_the_script_is_that_of_the_data() -> None:
    columns = as_columns(
        question=["?"] * 3,
        context=["six"] * 3,
        answers=[[("six", 0)], [("six", 0)], [("at six", 0)]],
    )
    answers = given_answers(["six", "you", "six"], [9.0, 9.0, 9.0])
    task = QuestionAnswering()
    scores = task.score(columns, answers)
    assert scores["exact_match"] == pytest.approx(100 / 3)
    assert scores["f1"] == pytest.approx(500 / 9)
    assert scores["expected_calibration_error"] == pytest.approx(1 / 2 - 1 / 3)
    assert task.tune(columns, answers) == task
    assert [m["prediction"] for m in task.mistakes(columns, answers)] == ["you", "six"]
    two = QuestionAnswering(no_answer=True).score(columns, answers)
    assert (two["f1"], two["HasAns_total"]) == (0.0, 3)
    assert two["best_f1"] == pytest.approx(500 / 9)
    columns["answers"][1] = []
    one = task.score(columns, answers)  # a model that always answers
    assert (one["NoAns_f1"], one["HasAns_exact"]) == (0.0, 50.0)


def test_tuned_on_dev() -> None:
    columns = as_columns(
        question=["?"] * 4,
        context=["six"] * 4,
        answers=[[("six", 0)], [("six", 0)], [], []],
    )
    answers = given_answers(["six"] * 4, [-3.0, 1.0, 2.0, 4.0])
    task = QuestionAnswering(no_answer=True).tune(columns, answers)
    assert task.threshold == 1.5
    given = QuestionAnswering(no_answer=True, threshold=3.0)
    assert given.tune(columns, answers).threshold == 3.0
    refused(
        lambda: changed(QuestionAnswering(), threshold=3.0),
        "`threshold` has an effect only with `no_answer` True",
    )
    scores = task.score(columns, answers)
    assert scores["f1"] == 100.0
    # Two spans of 0.5 and two times none of 0.25, all right.
    assert scores["expected_calibration_error"] == pytest.approx(0.625)


def test_an_answer_that_is_not_sure_is_not_given() -> None:
    columns = as_columns(
        question=["?"] * 4,
        context=["six"] * 4,
        answers=[[("six", 0)], [("six", 0)], [("at", 0)], [("six", 0)]],
    )
    sure = np.array([[0.9], [0.6], [0.5], [0.4]])
    answers = given_answers(["six"] * 4, [0.0] * 4, sure)
    task = QuestionAnswering(answered_accuracy=1.0).tune(columns, answers)
    assert task.abstain_below == pytest.approx(0.55)
    scores = task.score(columns, answers)
    assert scores["exact_match"] == 75.0  # of all questions, answered or not
    assert (scores["coverage"], scores["answered_accuracy"]) == (0.5, 1.0)
    assert task.unreached("dev") == []
    wrong = given_answers(["at"] * 4, [0.0] * 4, sure)
    (note,) = task.tune(columns.take([0, 1, 3, 3]), wrong).unreached("dev")
    assert note.startswith("no threshold gives `answered_accuracy` 1 on dev")


@pytest.mark.slow
def test_the_temperature_makes_scores_as_sure_as_right(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    contexts = [text for text in TEXTS.values() if "six" in text or "see" in text]
    task = QuestionAnswering(stride=5, calibration="temperature")
    model = make_model(task)
    # A model that is far too sure: its answers are right in every second row.
    kernel = model.get_layer("qa_outputs").kernel
    kernel.assign(kernel * 300)
    given = [row["answer"] for row in questions(model, contexts)]
    golds = [[(text, 0)] for text in given]
    golds[::2] = [[("not in it", 0)]] * len(golds[::2])
    columns = as_columns(
        question=[QUESTION] * len(contexts), context=contexts, answers=golds
    )

    def measured() -> dict[str, np.ndarray]:
        texts = as_tensors(texts_of(model.task, columns, use="score"))
        found = model.answer(texts, scored=True)
        return {key: value.numpy() for key, value in found.items()}

    answers = measured()
    tuned = task.tune(columns, answers)
    assert 1 < tuned.temperature <= 10
    right = np.array([text != "not in it" for ((text, _),) in golds])

    def loss(task: QuestionAnswering) -> float:
        model.task = task
        sure = measured()["score"]
        likely = np.maximum(np.where(right, sure, 1 - sure), 1e-7)
        return float(-np.log(likely).mean())

    best = tuned.temperature
    losses = [loss(with_task(model, temperature=t)) for t in (best, 0.8 * best, 1.0)]
    assert losses[0] == min(losses)
    model.task = dataclasses.replace(tuned, abstain_below=0.5)
    after = model.task.score(columns, measured())
    assert after["exact_match"] == task.score(columns, answers)["exact_match"]
    rows = questions(model, contexts)
    assert [row["answer"] for row in rows] == [
        "" if row["abstained"] else text for row, text in zip(rows, given, strict=True)
    ]
    assert all(row["abstained"] == (row["score"] < 0.5) for row in rows)
    assert all(row["start"] == -1 for row in rows if row["abstained"])
    served = tf.saved_model.load(export_model(model, tmp_path)).signatures
    found = served["serving_default"](
        question=tf.constant([QUESTION] * len(contexts)), context=tf.constant(contexts)
    )
    np.testing.assert_allclose(found["score"], [r["score"] for r in rows], atol=1e-5)
    assert "span_probabilities" not in found


# Settings, files and the command line.


def test_settings_out_of_range() -> None:
    refused(lambda: QuestionAnswering(stride=0), "`stride`", "received 0")
    refused(lambda: QuestionAnswering(n_best=True), "`n_best`", "True")
    refused(lambda: QuestionAnswering(threshold=math.nan), "`threshold`", "nan")
    refused(lambda: QuestionAnswering(no_answer=1), "`no_answer`", "received 1")


def test_columns_are_for_tables(tmp_path: Path) -> None:
    path = squad_file(tmp_path / "a.json")
    refused(lambda: QuestionAnswering.read(path, columns={"id": "x"}), "`columns`")
    path = write_tsv(tmp_path / "a.tsv", [("question", "context"), ("a?", "b c")])
    columns = QuestionAnswering.read(path, roles=QuestionAnswering.roles)
    assert columns.cells == {"question": ["a?"], "context": ["b c"]}


def squad_file(path: Path, *, repeat: int = 1) -> Path:
    questions = [
        ("when?", "see you at six", "six", 11),
        ("where?", "lunch at home now", "home", 9),
        ("who?", "you win a prize", "you", 0),
        ("what?", "win cash now! " * 12 + "free prize", "prize", 173),
        ("what?", "see you at six", None, 0),
        ("who?", "half off at the sale", None, 0),
        ("who?", "you see", "you", 3),  # not there
    ]
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": f"q{number}-{copy}",
                    "question": question,
                    "is_impossible": text is None,
                    "answers": [{"text": text, "answer_start": start}] if text else [],
                }
            ],
        }
        for copy in range(repeat)
        for number, (question, context, text, start) in enumerate(questions)
    ]
    data = {"data": [{"title": "t", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


@pytest.mark.slow
def test_from_file_to_answers(
    encoder_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    load_once: None,
) -> None:
    file = squad_file(tmp_path / "train.json", repeat=6)
    dev = squad_file(tmp_path / "dev.json")
    folder = tmp_path / "model"
    command = ["train", "question-answering", "--encoder", str(encoder_folder)]
    command += ["--train", str(file), "--dev", str(dev), "--output", str(folder)]
    command += ["--max-length", "24", "--set", "stride=6", "--learning-rate", "1e-2"]
    assert main([*command, "--epochs", "12", "--batch-size", "8"]) == 0
    told = capsys.readouterr()
    assert "6 of 42 questions are not trained on" in told.err
    assert "q6-0" in told.err
    assert "Best F1" in told.out
    task = load_predictor(folder).model.task
    assert (task.no_answer, task.stride) == (True, 6)
    assert task.threshold != 0
    assert (folder / "report.html").is_file()

    assert main(["evaluate", str(folder), str(dev), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["f1"] == pytest.approx(scores["best_f1"])
    assert scores["f1"] > 80

    assert main(["predict", str(folder), "--input", str(dev)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["id"] for row in rows] == [f"q{number}-0" for number in range(7)]
    assert "context" not in rows[0]
    assert (rows[0]["answer"], rows[0]["start"], rows[0]["end"]) == ("six", 11, 14)
    assert rows[3]["start"] == 173

    assert main(["predict", str(folder), "when?", "see you at six"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["question"], row["context"]) == ("when?", "see you at six")
    assert row["answer"] == "six"


def test_the_default_length_is_that_of_the_paper(
    encoder_folder: Path, tmp_path: Path
) -> None:
    long = write_encoder(tmp_path / "long", max_position_embeddings=512)
    for folder, length in ((long, 384), (encoder_folder, 40)):  # or all that fits
        model = new_model(QuestionAnswering(), folder, TrainConfig())
        assert model.preprocessor.max_length == length


def test_a_folder_of_hugging_face_answers(model: TaskModel, tmp_path: Path) -> None:
    folder = save_model(model, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["BertForQuestionAnswering"]
    del config["bert_keras"]
    (folder / "config.json").write_text(json.dumps(config))
    predictor = load_predictor(folder)
    assert predictor.model.task == QuestionAnswering()
    assert predictor.model.preprocessor.max_length == 40
    (row,) = predictor.predict([("when?", "see you at six")])
    assert row["answer"] in "see you at six"


@pytest.mark.thorough
def test_a_megabyte_needs_no_more_than_its_windows(tmp_path: Path) -> None:
    import resource

    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.tokenizer import WordPieceTokenizer

    folder = write_encoder(tmp_path / "e", max_position_embeddings=128, hidden_size=64)
    preprocessor = Preprocessor(
        WordPieceTokenizer.from_folder(folder), max_length=128, layout="packed"
    )
    encoder = BertEncoder.from_pretrained(str(folder), pooler=False)
    predictor = Predictor(TaskModel(encoder, QuestionAnswering(), preprocessor, seed=1))
    text = "see you at six, lunch at home. "
    predictor.predict([("when?", text * 40)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    context = text * (1_000_000 // len(text))
    (row,) = predictor.predict([("when?", context)])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert row["answer"] == context[row["start"] : row["end"]] != ""
    # All windows at once would need 2.5 GB for the attention of one layer.
    assert grown < 700_000  # kB
