"""Token classification: what its cases in the contract test do not show."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import refused
from task_cases.token_classification import CLASSES, rows

from bert_keras.cli.main import main
from bert_keras.data.columns import Columns
from bert_keras.data.table import as_columns
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import Predictor
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.scoring.entities import entities_of
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.tagging.task import TokenClassification
from bert_keras.text.preprocessor import as_tensors

TEXTS = ["see you at six!", "", "win cash, win " * 12, "é日本 – 🎉 e\u0301", "lunch"]
CONLL = "win B-deal\ncash I-deal\nnow O\n\nlunch O\nat O\nsix B-time\n"


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Any]) -> Any:
    """Return a tagger of random weights; at `max_length` 24 texts need windows."""
    return make_model(TokenClassification(CLASSES))


@pytest.fixture(scope="module")
def folder(model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(model, tmp_path_factory.mktemp("tagger") / "model")


def words_of(text: str) -> list[str]:
    from bert_keras.data.spans import split_words

    return [text[start:end] for start, end in split_words(text)]


@pytest.mark.parametrize("label", ["B-x E-x O S-x B-x", "I-x I-x O I-x B-x"])
def test_right_tags_of_another_scheme_are_right(label: str) -> None:
    task = TokenClassification(("O", "B-x", "I-x"))
    columns = as_columns(text=["a b c d e"], label=[label])
    answers = {
        "tags": np.array([[b"B-x", b"I-x", b"O", b"B-x", b"B-x"]], object),
        "probabilities": np.eye(3)[[[1, 2, 0, 1, 1]]],
    }
    scores = task.score(columns, answers)
    assert scores["f1"] == scores["word_accuracy"] == 1


def test_texts_and_their_words_have_the_same_tags(model: Any) -> None:
    predictor = Predictor(model)
    found = predictor.predict(TEXTS)
    tagged = predictor.predict([words_of(text) for text in TEXTS])
    total = 0
    for text, row, answer in zip(TEXTS, found, tagged, strict=True):
        words = words_of(text)
        assert len(answer["tags"]) == len(answer["scores"]) == len(words)
        wanted = entities_of(answer["tags"])
        total += len(wanted)
        for entity, (kind, first, last) in zip(row["entities"], wanted, strict=True):
            assert entity["type"] == kind
            assert entity["text"] == text[entity["start"] : entity["end"]]
            assert words_of(entity["text"]) == words[first:last]
            scores = answer["scores"][first:last]
            assert entity["score"] == pytest.approx(np.mean(scores), abs=1e-5)
    assert total > 5


@pytest.mark.slow
def test_an_export_accepts_texts_and_words(model: Any, tmp_path: Path) -> None:
    served = tf.saved_model.load(export_model(model, tmp_path / "served")).signatures
    assert set(served) == {"serving_default", "words", "ids"}
    found = served["serving_default"](text=tf.constant(TEXTS))
    wanted = model.answer(TEXTS)
    assert set(found) == {"entities", "types", "starts", "ends", "scores"}
    for key, value in wanted.items():
        assert value.shape[0] == len(TEXTS)
        if value.dtype == tf.string:
            assert found[key].numpy().tolist() == value.numpy().tolist()
        else:
            np.testing.assert_allclose(found[key], value, atol=1e-5)
    words = tf.constant([["win", "", "cash"], ["", "", ""]])
    tags = served["words"](words=words)["tags"].numpy()
    assert [[bool(tag) for tag in row] for row in tags] == [
        [True, False, True],
        [False, False, False],
    ]
    ids = {
        "token_ids": tf.constant([[2, 5, 3]]),
        "segment_ids": tf.zeros([1, 3], "int32"),
    }
    logits = served["ids"](**ids, padding_mask=tf.ones([1, 3], "int32"))["logits"]
    assert logits.shape == (1, 3, len(CLASSES))


def test_the_loss_is_the_mean_over_first_pieces(model: Any) -> None:
    # By hand, from the logits of each word: "lunch" is a piece, "notit" five.
    columns = as_columns(text=["lunch notit", "at"], label=["B-time O", "O"])
    task = model.task
    words = tf.constant([["lunch", "notit"], ["at", ""]])
    batch, targets, weights = task.examples(
        model.preprocessor, words, task.targets(columns)
    )
    logits = model(batch)
    assert int(tf.reduce_sum(tf.cast(targets >= 0, tf.int32))) == 3
    assert weights is None
    found = float(task.loss()(targets, logits))
    features = task.features(model.preprocessor, words)
    chance = tf.nn.log_softmax(logits).numpy()[features["words"].numpy() >= 0]
    numbers = features["words"].numpy()[features["words"].numpy() >= 0]
    real = np.array([CLASSES.index(tag) for tag in ("B-time", "O", "O")])[numbers]
    assert found == pytest.approx(-chance[np.arange(3), real].mean(), rel=1e-5)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_weights_of_sentences_are_those_of_their_words(model: Any, layout: str) -> None:
    words, tags = tf.constant([["lunch", "notit"], ["at", ""]]), [["B-time", "O"]] * 2
    tags[1] = ["O", ""]
    preprocessor = model.preprocessor.replace(layout=layout)
    given = tf.constant(tags), tf.constant([2.0, 0.5])
    _, targets, weights = model.task.examples(preprocessor, words, *given)
    assert sorted(weights[targets >= 0].numpy().tolist()) == [0.5, 2.0, 2.0]
    assert not weights[targets < 0].numpy().any()


def test_long_sentences_do_not_change_their_beginning(model: Any) -> None:
    # A window sees its own words only: the first one is the sentence that ends there.
    long = ["win", "at", "home", "six"] * 12
    alone = Predictor(model).predict([long[:22]])[0]
    found = Predictor(model).predict([long])[0]
    assert len(found["tags"]) == 48
    np.testing.assert_allclose(found["scores"][:16], alone["scores"][:16], atol=1e-5)


def test_classes_are_those_of_the_data() -> None:
    columns = as_columns(text=["a b c", "d"], label=["I-x E-x O", "S-a-b"])
    task = TokenClassification.from_columns(columns)
    assert task.classes == ("O", "B-a-b", "I-a-b", "B-x", "I-x")
    assert task.targets(columns).tolist() == [[3, 4, 0], [1, -1, -1]]
    mixed = as_columns(text=["a b"], label=["B-x NOUN"])
    refused(
        lambda: TokenClassification.from_columns(mixed), "the tag must be O", "'NOUN'"
    )
    nothing = Columns("a.conll", {"text": [["a"]], "label": [["O"]]}, [3])
    refused(lambda: TokenClassification.from_columns(nothing), "a.conll:3:", "not O")


def test_targets_follow_the_scheme_of_the_model() -> None:
    columns = as_columns(text=["a b c d"], label=["B-x I-x B-x O"])
    bioes = TokenClassification(("O", "B-x", "I-x", "E-x", "S-x"))
    assert bioes.targets(columns).tolist() == [[1, 3, 4, 0]]
    plain = TokenClassification(("x", "O"))
    assert plain.targets(columns).tolist() == [[0, 0, 0, 1]]
    assert TokenClassification(("O", "I-x")).targets(columns).tolist() == [[1, 1, 1, 0]]


def test_unknown_tags_are_rejected_by_line(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("a O\n\nb O\nc B-mood\n", encoding="utf-8")
    task = load_model(folder).task
    message = refused(lambda: task.targets(task.read(path)), f"{path}:4: ", "'B-mood'")
    assert "deal, time" in message


def test_each_word_needs_a_tag() -> None:
    columns = as_columns(text=["a b"], label=["O"])
    task = TokenClassification(CLASSES)
    refused(lambda: task.targets(columns), "a tag for each of 2 words; holds 1")
    columns = as_columns(text=[["a", ""]], label=[["O", "O"]])
    refused(lambda: task.targets(columns), "must not hold empty words")


@pytest.mark.parametrize("classes", [(), ("O",), ("O", "B-a", "B-a")])
def test_bad_classes(classes: tuple[str, ...]) -> None:
    refused(lambda: TokenClassification(classes), "`classes` must be two or more")


@pytest.mark.parametrize("texts", [[["a"], "b"], [["a", 1]], [["a", ""]], [7]])
def test_misuse_of_predict_is_reported(model: Any, texts: list[Any]) -> None:
    refused(lambda: Predictor(model).predict(texts), "`texts` must")


def test_mistakes_are_listed_as_entities() -> None:
    task = TokenClassification(CLASSES)
    columns = as_columns(
        text=["win cash now", "see you"], label=["B-deal I-deal O", "O O"]
    )
    answers = {
        "tags": np.array([[b"B-deal", b"O", b"O"], [b"O", b"O", b""]], object),
        "scores": np.array([[0.9, 0.7, 0.8], [0.9, 0.9, 0.0]]),
    }
    assert task.mistakes(columns, answers) == [
        {
            "line": 1,
            "text": "win cash now",
            "label": "win cash (deal)",
            "prediction": "win (deal)",
            "probability": 0.7,
        }
    ]
    p = np.full((2, 3, len(CLASSES)), 0.1)
    p[..., 0] = p[0, 0, 1] = 0.6
    p[0, 0, 0] = 0.1
    scores = task.score(columns, {**answers, "probabilities": p})
    assert scores["f1"] == 0
    assert scores["expected_calibration_error"] == pytest.approx(0.6)
    assert task.describe(columns) == {
        "rows": 2,
        "words": 5,
        "entities": 1,
        "classes": {"deal": 1},
    }


@pytest.mark.thorough
def test_the_command_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.conll"
    path.write_text(CONLL, encoding="utf-8")
    assert main(["evaluate", str(folder), str(path), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["num_examples"] == 2
    assert main(["predict", str(folder), "win cash now"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert set(row) == {"text", "entities"}
    assert main(["predict", str(folder), "--input", str(path)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(line["tags"]) for line in lines] == [3, 3]
    assert lines[0]["text"] == ["win", "cash", "now"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "task",
    [
        "token-classification",
        pytest.param("feature-tagging", marks=pytest.mark.thorough),
    ],
)
def test_training_from_a_file(task: str, encoder_folder: Path, tmp_path: Path) -> None:
    sentences, tags = rows(6)
    text = "\n\n".join(
        "\n".join(f"{word} {tag}" for word, tag in zip(*pair, strict=True))
        for pair in zip(sentences * 4, tags * 4, strict=True)
    )
    path = tmp_path / "train.conll"
    path.write_text(text, encoding="utf-8")
    command = ["train", task, "--encoder", str(encoder_folder), "--train", str(path)]
    command += ["--dev", str(path), "--output", str(tmp_path / "model")]
    command += ["--learning-rate", "1e-2", "--max-length", "24", "--epochs"]
    if task == "feature-tagging":  # its encoder is frozen
        command += ["24", "--set", "layers=last", "--set", "units=16"]
    else:
        command += ["8"]
    assert main([*command, "--batch-size", "8"]) == 0
    scores = json.loads((tmp_path / "model/scores.json").read_text(encoding="utf-8"))
    assert scores["dev"]["f1"] > 0.9
    assert "deal" in (tmp_path / "model/report.html").read_text(encoding="utf-8")


def sure_model(make_model: Callable[..., Any], **settings: Any) -> Any:
    return make_model(TokenClassification(CLASSES, **settings))


def nearly_right(model: Any) -> Columns:
    """Return sentences with the tags of a model, except for every fourth."""
    texts, _ = rows(5)
    labels = [row["tags"] for row in Predictor(model).predict(texts)]
    for label in labels[::4]:
        label.insert(0, label.pop())
    return as_columns(text=texts, label=labels)


def answered(model: Any, items: list[Any]) -> list[dict[str, Any]]:
    """Return the answers to texts or lists of words, without tracing a graph."""
    answers = model.answer(as_tensors(model.task.parts(items)))
    return rows_of({name: value.numpy() for name, value in answers.items()})


@pytest.mark.thorough
def test_entities_that_are_not_sure_are_left_out(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    found = answered(sure_model(make_model), TEXTS)
    sure = [entity["score"] for row in found for entity in row["entities"]]
    below = float(np.median(sure))
    model = sure_model(make_model, abstain_below=below)
    kept = answered(model, TEXTS)
    for row, fewer in zip(found, kept, strict=True):
        wanted = [each for each in row["entities"] if each["score"] >= below]
        assert [each["text"] for each in fewer["entities"]] == [
            each["text"] for each in wanted
        ]
        scores = [each["score"] for each in fewer["entities"]]
        assert scores == pytest.approx([each["score"] for each in wanted], abs=1e-6)
    assert 0 < sum(len(row["entities"]) for row in kept) < len(sure)
    tagged = answered(model, [words_of(text) for text in TEXTS])
    for row, answer in zip(kept, tagged, strict=True):
        assert len(entities_of(answer["tags"])) == len(row["entities"])
    served = tf.saved_model.load(export_model(model, tmp_path / "served")).signatures
    names = served["serving_default"](text=tf.constant(TEXTS))["entities"].numpy()
    assert [[n.decode() for n in row if n] for row in names] == [
        [each["text"] for each in row["entities"]] for row in kept
    ]


def test_the_temperature_is_fitted_to_entities(make_model: Callable[..., Any]) -> None:
    task = TokenClassification(CLASSES, calibration="temperature", temperature=0.2)
    model = make_model(task)
    columns = nearly_right(model)
    answers = Predictor(model).answers(columns)
    tuned = task.tune(columns, answers)

    def loss(temperature: float) -> float:
        """Return the mean of -log p that an entity found is right, or is not."""
        model.task = TokenClassification(CLASSES, temperature=temperature)
        losses = []
        found = answered(model, columns["text"])
        for label, row in zip(columns["label"], found, strict=True):
            for entity in entities_of(row["tags"]):
                score = np.mean(row["scores"][entity.start : entity.end])
                right = entity in entities_of(label)
                losses.append(-np.log(score if right else 1 - score))
        return float(np.mean(losses))

    best = tuned.temperature
    assert loss(best) < min(loss(0.8 * best), loss(1.25 * best), loss(0.2))
    model.task = tuned
    scores = tuned.score(columns, Predictor(model).answers(columns))
    before = task.score(columns, answers)
    assert scores["uncalibrated_calibration_error"] != pytest.approx(
        scores["expected_calibration_error"]
    )
    assert scores["f1"] == before["f1"]  # a temperature changes no tag


def test_the_threshold_keeps_entities_right(make_model: Callable[..., Any]) -> None:
    p = np.full((2, 3, 3), 0.1)  # of O, B-x and I-x
    p[0, :, 1] = 0.8, 0.1, 0.7
    p[0, 1, 0] = 0.8
    p[1, :, 0] = 0.1, 0.8, 0.8
    p[1, 0, 1] = 0.6
    p /= p.sum(axis=-1, keepdims=True)
    columns = as_columns(text=["a b c", "d e f"], label=["B-x O B-x", "O O O"])
    task = TokenClassification(("O", "B-x", "I-x"), answered_accuracy=1.0)
    tuned = task.tune(columns, {"probabilities": p})
    assert tuned.abstain_below == pytest.approx((p[0, 2, 1] + p[1, 0, 1]) / 2)
    scores = tuned.score(
        columns,
        {
            "probabilities": p,
            "tags": np.array([[b"B-x", b"O", b"B-x"], [b"O"] * 3], object),
            "scores": p.max(axis=-1),
        },
    )
    assert scores["precision"] == scores["answered_accuracy"] == 1.0
    assert scores["coverage"] == pytest.approx(2 / 3)  # of the entities found


def test_abstaining_needs_a_tag_for_no_entity() -> None:
    refused(lambda: TokenClassification(("B-x", "I-x"), abstain_below=0.5), "`O`")


@pytest.mark.thorough
def test_fit_takes_tags_by_name(make_model: Callable[..., Any]) -> None:
    texts = np.array([["win", "cash", "now"], ["lunch", "six", ""]])
    numbers = np.array([[0, 1, 2], [2, 0, -1]])
    names = np.array([*CLASSES[:3], ""])[numbers]
    losses = []
    words = [["win", "cash", "now"], ["lunch", "six"]]
    lists = [[tag for tag in row if tag] for row in names.tolist()]
    for x, tags in ((texts, numbers), (texts, names), (words, lists)):
        tagger = make_model(TokenClassification(CLASSES))
        tagger.compile(run_eagerly=True)
        losses += tagger.fit(x, tags, shuffle=False, verbose=0).history["loss"]
    np.testing.assert_allclose(losses[1:], losses[0], rtol=1e-6)
    unknown = np.array([["O", "B-eggs", "O"]] * 2)
    refused(lambda: tagger.evaluate(texts, unknown, verbose=0), "`label`", "B-eggs")


def test_tags_that_are_not_of_words(model: Any) -> None:
    words = tf.constant([["win", "cash", ""]])

    def targets(tags: Any) -> list[int]:
        _, found, _ = model.task.examples(
            model.preprocessor, words, tf.constant([tags])
        )
        return found.numpy()[found.numpy() >= 0].tolist()

    for tags in (["O", "O", ""], ["O", "O"], [0, 0, -1], [0, 0], ["O", "O", "", ""]):
        assert targets(tags) == [0, 0]
    assert targets([0, -1]) == [0]  # without a part in the loss
    for wrong in (["O"], ["O", ""], ["O", "", "O"], ["O"] * 3, ["O"] * 4, [0, 0, 0]):
        refused(lambda wrong=wrong: targets(wrong), "`label` must be one tag for each")
