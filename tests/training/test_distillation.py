"""Students: what they learn of a teacher, from which teachers, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROWS, refused, thorough

from bert_keras.cli.main import main
from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import load_predictor
from bert_keras.models.loading import new_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.objective import TaskObjective
from bert_keras.runs.notes import collected
from bert_keras.scoring.similarity import MAXSIM
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.generation import AbstractiveSummarization, Translation
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.multiple_choice import MultipleChoice
from bert_keras.tasks.next_sentence import NextSentence
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.reranking import Reranking
from bert_keras.tasks.tagging.task import TokenClassification
from bert_keras.training.config import TrainConfig
from bert_keras.training.distillation import (
    Distillation,
    soft_target_loss,
    some_training_rows,
)
from bert_keras.training.finetune import train
from bert_keras.training.rows import TrainingRows

TEXTS = [text for text, _ in ROWS]
LABELS = [label for _, label in ROWS]
FEW = as_columns(text=TEXTS, label=LABELS)
NUMBERS = [str(len(text)) for text in TEXTS]
PAIRS = {"text": TEXTS, "text_pair": TEXTS[::-1]}
CHOICES = [TEXTS[:2], TEXTS[1:4]] * 6
TASKS = {
    "classification": (Classification(("ham", "promo", "spam")), FEW),
    "multi-label": (MultiLabel(("ham", "promo", "spam")), FEW),
    "regression": (Regression(), as_columns(text=TEXTS, label=NUMBERS)),
    "next-sentence": (NextSentence(), as_columns(**PAIRS, label=["next"] * 12)),
    "multiple-choice": (
        MultipleChoice(),
        as_columns(context=TEXTS, choices=CHOICES, label=["1"] * 12),
    ),
    "reranking": (
        Reranking(objective="listwise"),
        as_columns(text=TEXTS[:3] * 4, text_pair=TEXTS, label=["1", "0", "0", "0"] * 3),
    ),
    "token-classification": (
        TokenClassification(("O", "X")),
        as_columns(
            text=TEXTS, label=[" ".join("O" * len(text.split())) for text in TEXTS]
        ),
    ),
    "question-answering": (
        QuestionAnswering(),
        as_columns(
            question=["what now"] * 12,
            context=TEXTS,
            answers=[[(text.split()[0], 0)] for text in TEXTS],
        ),
    ),
    "embedding": (Embedding(), as_columns(**PAIRS)),
    "sparse": (Embedding(kind="sparse"), as_columns(**PAIRS)),
    "translation": (Translation(), as_columns(source=TEXTS, target=TEXTS[::-1])),
    "abstractive-summarization": (
        AbstractiveSummarization(decoder="shared", long="windows"),
        as_columns(source=[4 * text for text in TEXTS], target=TEXTS),
    ),
}
NO_DEV = {"validation_split": 0.0, "epochs": 1}


def distilled(task: Any, rows: Any, teacher: Any, **given: Any) -> Any:
    return Distillation.of(task, TrainConfig(teacher=teacher, **given), rows)


@pytest.mark.parametrize(
    "name",
    [
        *("classification", "multi-label", "token-classification", "reranking"),
        *("question-answering", "embedding", "sparse"),
        *("translation", "abstractive-summarization"),
        *map(thorough, ("regression", "next-sentence", "multiple-choice")),
    ],
)
@pytest.mark.slow
def test_outputs_of_the_teacher_itself_are_learned_already(
    name: str, make_model: Any, tmp_path: Path
) -> None:
    """Its own outputs, from its answers, leave no loss and no gradient."""
    task, rows = TASKS[name]
    model = make_model(task)
    folder = save_model(model, tmp_path / "teacher")
    found = distilled(task, rows, folder)
    batches = TrainingRows(
        model, rows, batch_size=8, epochs=1, seed=1, distillation=found
    )
    objective = TaskObjective(model, distillation=found)
    for inputs, labels in batches.dataset():
        outputs = model(inputs, training=False)
        sums, counts = objective.sums(outputs, labels), objective.counts(labels)
        assert abs(float(sums["distillation"][0] / counts["distillation"])) < 1e-4
        other = objective.sums(outputs**2, labels)["distillation"][0]
        assert float(other / counts["distillation"]) > 1e-3


def test_of_rows_without_labels_only_the_teachers_answers_are_learned(
    make_model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, rows = TASKS["classification"]
    model = make_model(task)
    folder = save_model(model, tmp_path / "teacher")
    more = as_columns(text=["a prize at home", "free lunch", "sale at six"])
    found = Distillation.of(task, TrainConfig(teacher=folder), rows, more)
    assert "the teacher answers 3 unlabeled rows" in capsys.readouterr().err
    batches = TrainingRows(
        model, rows, batch_size=15, epochs=1, seed=1, distillation=found
    )
    ((inputs, labels),) = batches.dataset()
    metric = keras.metrics.SparseCategoricalAccuracy()
    objective = TaskObjective(model, metrics=[metric], distillation=found)
    outputs = np.random.default_rng(0).normal(size=(15, 3)).astype("float32")
    sums, counts = objective.sums(outputs, labels), objective.counts(labels)
    known = labels["weights"].numpy() == 1
    targets = labels["targets"].numpy()[known]
    p = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    wanted = -np.log(p[known, targets]).sum()
    assert float(sums["loss"][0]) == pytest.approx(0.5 * wanted, rel=1e-5)
    q = np.exp(found.outputs[batches.rows_of(0)] / 2)
    q, p = q / q.sum(axis=1, keepdims=True), np.exp(outputs / 2)
    p = p / p.sum(axis=1, keepdims=True)
    divergence = 4 * (q * np.log(q / p)).sum()
    assert float(sums["distillation"][0]) == pytest.approx(0.5 * divergence, rel=1e-4)
    assert float(counts["loss"]) == float(counts["distillation"]) == 15
    hits = outputs[known].argmax(axis=1) == targets
    assert float(metric.result()) == pytest.approx(hits.mean())
    assert len(batches.place(1).rows()["unlabeled lines"]) == 3
    assert str(batches.place(1)).count("lines") == 2


def test_a_student_learns_similarities_at_each_of_its_widths() -> None:
    config = TrainConfig(teacher="t")
    for task in (Embedding(dimensions=(4, 2)), Embedding(objective="similarity")):
        loss = soft_target_loss(task, config)
        assert loss.dimensions == task.loss().dimensions == task.dimensions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "teacher"),
    [("tokens", Reranking()), thorough("dense", Reranking(activation="linear"))],
)
def test_the_scores_of_a_reranker_are_learned(
    kind: str,
    teacher: Any,
    make_model: Any,
    encoder_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of a row's second text and negatives, not of the other texts of the batch."""
    negatives = [[TEXTS[3], TEXTS[4]], [], [TEXTS[5]], [TEXTS[7]]]
    rows = as_columns(text=TEXTS[:4], text_pair=TEXTS[8:], negative=negatives)
    folder = save_model(make_model(teacher), tmp_path / "teacher")
    model = make_model(Embedding(kind=kind, scale=3.0))
    found = distilled(model.task, rows, folder, batch_size=4)
    line = "the teacher answers 8 pairs of the training rows"
    assert line in capsys.readouterr().err
    pairs = [(TEXTS[0], each) for each in (TEXTS[8], *negatives[0])]
    scores = np.array([row["score"] for row in found.predictor.predict(pairs)])
    if teacher.activation == "sigmoid":
        scores = np.log(scores / (1 - scores))
    np.testing.assert_allclose(found.outputs[0], scores, atol=1e-4)
    assert (found.outputs < -1e8).sum(axis=1).tolist() == [0, 2, 1, 1]
    batches = TrainingRows(
        model, rows, batch_size=4, epochs=1, seed=1, distillation=found
    )
    ((inputs, labels),) = batches.dataset()
    outputs = model(inputs, training=False)
    sums = TaskObjective(model, distillation=found).sums(outputs, labels)
    vectors = keras.ops.convert_to_numpy(outputs)
    vectors = vectors.reshape(4, 4, -1, vectors.shape[-1])
    wanted = 0.0
    for row, own in zip(batches.rows_of(0), vectors, strict=True):
        count = 1 + len(negatives[row])
        student = 3 * MAXSIM.matrix(own[:1], own[1 : 1 + count])[0] / 2
        taught = found.outputs[row, :count] / 2
        p, q = (np.exp(x) / np.exp(x).sum() for x in (taught, student))
        wanted += 4 * (p * np.log(p / q)).sum()
    assert float(sums["distillation"][0]) == pytest.approx(0.5 * wanted, abs=1e-4)
    refused(
        lambda: distilled(model.task, rows, folder, batch_size=4, accumulation=2),
        "`accumulation` must be 1 with a `teacher` that scores pairs",
    )
    refused(
        lambda: distilled(Embedding(objective="vectors"), FEW, folder),
        "`objective` must be ranking with a `teacher` that scores pairs",
    )
    bare = as_columns(text=TEXTS[:4], text_pair=TEXTS[8:])
    refused(lambda: distilled(model.task, bare, folder), "the column `negative`")
    result = train(
        "embedding",
        encoder=encoder_folder,
        train=rows,
        output=tmp_path / "out",
        config=TrainConfig(teacher=str(folder), epochs=1, validation_split=0.0),
        task_settings={"kind": kind},
    )
    (row,) = result.report["students"]
    assert row["model"] == "student"


@pytest.mark.slow
def test_variants_of_the_training_rows_are_rows_without_labels(
    make_model: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, rows = TASKS["classification"]
    folder = save_model(make_model(task), tmp_path / "teacher")
    more = as_columns(text=["a prize at home", "free lunch"])
    config = TrainConfig(teacher=folder, augment=2)
    with collected() as told:
        found = Distillation.of(task, config, rows)
    assert told[0].startswith("24 variants of the training rows, ")
    assert "the teacher answers 24 unlabeled rows" in capsys.readouterr().err
    assert len(found.outputs) == len(found.weights) == 36
    assert found.weights.tolist() == [1.0] * 36
    both = Distillation.of(task, config, rows, more)
    kept = [*more["text"], *found.unlabeled["text"]]
    assert both.unlabeled["text"] == kept
    assert np.unique(both.outputs[12:], axis=0).shape[0] > 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hidden", "relations"])
def test_what_the_teacher_computes_inside_is_learned(
    kind: str, make_model: Any, tmp_path: Path
) -> None:
    """Of the teacher itself there is nothing to learn; other weights get gradients."""
    task, rows = TASKS["classification"]
    model = make_model(task)
    folder = save_model(model, tmp_path / "teacher")
    found = distilled(task, rows, folder, distill=kind)
    found.check_student(model)
    batches = TrainingRows(
        model, rows, batch_size=12, epochs=1, seed=1, distillation=found
    )
    objective = TaskObjective(model, distillation=found)
    ((inputs, labels),) = batches.dataset()

    def loss() -> Any:
        with objective.recording():
            sums = objective.sums(model(inputs, training=False), labels)
        return sums["states"][0] / objective.counts(labels)["states"]

    assert abs(float(loss())) < 1e-6
    for block in model.backbone.blocks[::-1]:
        block.query.kernel.assign(block.query.kernel + 0.3)
        block.value.kernel.assign(block.value.kernel * 2)
    with tf.GradientTape() as tape:
        value = loss()
    assert float(value) > 1e-4
    assert np.abs(tape.gradient(value, block.value.kernel.value)).max() > 0
    assert block.watch is None


@pytest.mark.parametrize("name", TASKS)
def test_few_training_rows_are_compared(name: str, monkeypatch: Any) -> None:
    """Without dev and test rows, and queries of a reranker stay whole."""
    task, rows = TASKS[name]
    assert some_training_rows(task, rows) is rows
    monkeypatch.setattr("bert_keras.training.distillation._MOST_TRAINING_ROWS", 8)
    some = some_training_rows(task, rows)
    assert len(some) == 8
    if name == "classification":
        assert set(some["label"]) == set(LABELS)
    if name == "reranking":
        assert len(set(some["text"])) == 2


@pytest.mark.slow
def test_a_student_of_kept_layers(
    spam_folder: Path, train_spam: Any, tmp_path: Path
) -> None:
    """It starts as its teacher without the other layers, and the report shows both."""
    result = train_spam(
        tmp_path / "small", encoder=None, teacher=str(spam_folder), keep_layers=(1,)
    )
    assert result.model.backbone.config.num_hidden_layers == 1
    rows = result.report["students"]
    assert [row["model"] for row in rows] == ["teacher", "student"]
    wanted = load_predictor(spam_folder).answers(FEW)
    share = np.mean(
        wanted["probabilities"].argmax(axis=1) == result.model.task.targets(FEW)
    )
    assert rows[0]["accuracy"] == pytest.approx(share)
    assert rows[1]["megabytes"] < rows[0]["megabytes"]
    assert result.report["settings"]["keep_layers"] == "1"
    assert "Student and teacher" in (tmp_path / "small" / "report.html").read_text()
    card = (tmp_path / "small" / "README.md").read_text()
    assert "learned from the labels and from `spam`" in card
    assert "milliseconds for 1,000 rows" in card


def test_the_head_is_the_teachers_whatever_the_order_of_its_classes(
    make_model: Any, tmp_path: Path
) -> None:
    teacher = make_model(TASKS["classification"][0])
    folder = save_model(teacher, tmp_path / "teacher")
    task = Classification(("spam", "ham", "promo"))
    config = TrainConfig(teacher=folder, keep_layers="0,1")
    model = new_model(task, str(folder), config)
    with collected() as told:
        found = distilled(task, FEW, folder)
    assert any("matched by name" in line for line in told)
    given = rows_of({key: v.numpy() for key, v in teacher.answer(TEXTS).items()})
    labels = model.answer(TEXTS)["label"].numpy()
    assert [name.decode() for name in labels] == [row["label"] for row in given]
    p = np.exp(found.outputs)
    wanted = [[row["probabilities"][name] for name in task.classes] for row in given]
    np.testing.assert_allclose(p / p.sum(axis=1, keepdims=True), wanted, atol=1e-5)


def test_a_regression_starts_with_the_answers_of_its_teacher(
    make_model: Any, tmp_path: Path
) -> None:
    teacher = make_model(Regression())
    folder = save_model(teacher, tmp_path / "teacher")
    task = Regression(mean=9.0, std=4.0)
    config = TrainConfig(teacher=folder, keep_layers="0,1")
    model = new_model(task, str(folder), config)
    found, wanted = (each.answer(TEXTS)["score"] for each in (model, teacher))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.slow
def test_an_export_teaches_a_new_student_with_another_vocabulary(
    spam_export: Path, encoder_folder: Path, train_spam: Any, tmp_path: Path
) -> None:
    result = train_spam(
        tmp_path / "small", teacher=str(spam_export), distill_weight=1.0, epochs=1
    )
    assert result.report["students"][0]["megabytes"] > 0
    found = distilled(result.model.task, FEW, str(spam_export))
    assert found.outputs.shape == (12, 3)


@pytest.mark.slow
def test_the_command(
    spam_folder: Path, spam_file: Path, tmp_path: Path, capsys: Any
) -> None:
    command = ["train", "classification", "--train", str(spam_file), "--dev"]
    command += [str(spam_file), "--output", str(tmp_path / "small"), "--epochs", "1"]
    student = ["--teacher", str(spam_folder), "--student", "1/8/2", "--augment", "2"]
    assert main([*command, *student]) == 0
    told = capsys.readouterr().err
    assert "the teacher answers 24 unlabeled rows" in told
    assert "| augment | 2 |" in (tmp_path / "small" / "README.md").read_text()
    assert "the student 1/8/2 has random weights" in told
    assert "the teacher answers 12 training rows" in told
    assert "student on dev: accuracy" in told
    assert main(command) == 2
    assert "`encoder` must be given" in capsys.readouterr().err


@pytest.mark.parametrize("file", ["saved_model.pb", "onnx/model.onnx"])
def test_the_command_takes_exports_as_teachers_of_other_encoders(
    file: str, spam_file: Path, tmp_path: Path, capsys: Any
) -> None:
    teacher = tmp_path / "export"
    (teacher / "onnx").mkdir(parents=True)
    for name in (file, "answers.json"):
        (teacher / name).touch()
    command = ["train", "classification", "--train", str(spam_file), "--output"]
    command += [str(tmp_path / "small"), "--teacher", str(teacher)]
    assert main([*command, "--keep-layers", "0"]) == 2
    told = f"without `encoder`; received the export {teacher}\n"
    assert capsys.readouterr().err.endswith(told)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"temperature": 3.0}, ("`temperature` needs `teacher`", "3.0")),
        ({"student": "1/8/2"}, ("`student` needs `teacher`",)),
        (
            {"teacher": "t", "student": "1/8"},
            ("`student` must be layers/hidden/heads",),
        ),
        ({"distill": "hidden"}, ("`distill` needs `teacher`", "hidden")),
        ({"teacher": "t", "distill_weight": 0.0}, ("`distill_weight` must be",)),
        ({"augment": 1}, ("`augment` needs `teacher`; received 1",)),
        ({"teacher": "t", "restarts": 1}, ("`restarts` must be 0",)),
        (
            {"teacher": "t", "student": "1/8/2", "keep_layers": "0"},
            ("`student` is a new encoder, which keeps no layers",),
        ),
    ],
)
def test_options_that_do_not_go_together(changes: Any, parts: tuple[str, ...]) -> None:
    refused(lambda: TrainConfig(**changes), *parts)


@pytest.mark.slow
def test_teachers_that_cannot_teach(
    spam_folder: Path,
    spam_export: Path,
    pair_folder: Path,
    make_model: Any,
    tmp_path: Path,
) -> None:
    def refuse(task: Any, rows: Any, teacher: Path, *parts: str, **given: Any) -> None:
        refused(lambda: distilled(task, rows, str(teacher), **given), *parts)

    task, rows = TASKS["classification"]
    refuse(
        *TASKS["regression"], spam_folder, "of the task regression", "classification"
    )
    two = Classification(("ham", "spam"))
    refuse(two, FEW, spam_folder, "must have the classes", "ham, spam", "promo")
    tags, words = TASKS["token-classification"]
    refuse(tags, words, spam_folder, "of the task token-classification")
    pairs = Classification(("different", "same"), pairs=False)
    refuse(pairs, FEW, pair_folder, "`teacher` cannot read the training rows", "pairs")
    refuse(*TASKS["sparse"], spam_folder, "must be below 1", distill_weight=1.0)
    task_of, pair_rows = TASKS["embedding"]
    encoder = save_model(make_model(task_of), tmp_path / "embedding")
    given = {"batch_size": 8, "accumulation": 2}
    refuse(task_of, pair_rows, encoder, "`accumulation` must be 1", **given)
    prompted = make_model(Embedding(prompts={"query": "see "}))
    taught = distilled(prompted.task, pair_rows, str(encoder))
    refused(lambda: taught.check_student(prompted), "`prompts` must be the teacher's")
    sparse = make_model(Embedding(kind="sparse"))
    refused(
        lambda: taught.check_student(sparse), "`kind` must be the teacher's 'dense'"
    )
    writer, rows_of = TASKS["translation"]
    wrote = save_model(make_model(writer), tmp_path / "translation")
    taught = distilled(writer, rows_of, str(wrote))
    whole = make_model(Translation(long="windows"))
    refused(lambda: taught.check_student(whole), "`long` must be the teacher's")
    words = [*"abc", "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    other = make_model(Translation(target_vocab={"vocabulary": words}))
    refused(lambda: taught.check_student(other), "must have the vocabulary", "another")
    numbers = save_model(make_model(Regression()), tmp_path / "numbers")
    given = {"temperature": 3.0}
    refuse(*TASKS["regression"], numbers, "`temperature` has no effect", **given)
    given = {"distill": "hidden"}
    refuse(task, rows, spam_export, "with `distill` hidden", "export", **given)
    both = {"train": FEW, "output": tmp_path / "out"}
    for changes, part in (
        ({"teacher": str(spam_folder)}, "`encoder` must be given; or `keep_layers`"),
        ({"teacher": str(spam_export), "keep_layers": "0"}, "must be a model folder"),
    ):
        config = TrainConfig(**NO_DEV, **changes)
        refused(lambda config=config: train(task, config=config, **both), part)
    teacher = make_model(tags)
    folder = save_model(teacher, tmp_path / "tags")
    found, config = distilled(tags, words, str(folder)), TrainConfig(teacher=folder)
    refused(
        lambda: Distillation.of(tags, config, words, FEW),
        "`unlabeled` needs a teacher's answers to whole texts",
    )
    part = "`augment` needs a teacher's answers to whole texts, one by one"
    refuse(tags, words, folder, part, "token-classification", augment=1)
    choosing, choices = TASKS["multiple-choice"]
    folder = save_model(make_model(choosing), tmp_path / "choices")
    part = "`augment` needs a task of one text or a pair of texts"
    refuse(choosing, choices, folder, part, "multiple-choice", augment=1)
    part = "`augment` needs a teacher that is a model folder"
    refuse(task, FEW, spam_export, part, "an export", augment=1)
    longer = dataclasses.replace(found)
    teacher.preprocessor = teacher.preprocessor.replace(max_length=30)
    longer.check_student(teacher)
