"""Texts longer than a row: windows, both ends, answers, training and what is said."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from conftest import ROWS, assert_near, refused, thorough

from bert_keras.answering.answering import Spec
from bert_keras.data.table import as_columns
from bert_keras.explanations.explainer import explain
from bert_keras.exports.engine_graph import EngineGraph
from bert_keras.exports.saved_model import export_model
from bert_keras.inference import session as session_module
from bert_keras.inference.engine import EngineModel
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.inference.session import Session
from bert_keras.model.layers import for_engines
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.reading import windows
from bert_keras.reading.windows import LongTexts
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.next_sentence import NextSentence
from bert_keras.tasks.plain_settings import check_effects
from bert_keras.tasks.protocols import truncation_remedy
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.reranking import Reranking
from bert_keras.tasks.summarization import Summarization
from bert_keras.tasks.token_features import TokenFeatures
from bert_keras.training.config import TrainConfig
from bert_keras.training.evaluation import evaluate
from bert_keras.training.head_fit import HeadInputs
from bert_keras.training.lengths import check_truncation
from bert_keras.training.rows import TrainingRows

CLASSES = ("ham", "promo", "spam")
# No two windows are alike: words come in another order in each.
WORDS = "see you at six lunch home win cash now prize free sale shoes half off".split()
LONG = " ".join(np.random.default_rng(0).choice(WORDS, 150))
TEXTS = ["", "see you", LONG, LONG[:60], LONG[50:400], "win cash now"]


def windows_model(
    make_model: Callable[..., Any], task: Any = None, **settings: Any
) -> Any:
    """Return an untrained model whose answers differ from window to window."""
    task = task or Classification(CLASSES, long="windows", **settings)
    model = make_model(task)
    rng = np.random.default_rng(1)
    for weight in model.trainable_weights:
        if "pooler" in weight.path or not weight.path.startswith("bert/"):
            weight.assign(rng.normal(0, 1, weight.shape))
    return model


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Any]) -> Any:
    """Return a model that weights windows by attention; tests do not change it."""
    return windows_model(make_model, combine="attention", stride=15)


@pytest.fixture(scope="module")
def predictor(model: Any) -> Predictor:
    """Return the model's predictor, whose graphs are traced once."""
    return Predictor(model)


def logits_by_hand(model: Any, text: str) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Return the logits of a text and the places of its windows, computed one by one.

    Windows are cut from the words here: the vocabulary has each as one piece.
    """
    tokenizer, task = model.preprocessor.tokenizer, model.task
    ids, starts, ends = tokenizer.tokenize_with_offsets([text], unit="characters")
    ids, starts, ends = (each[0].numpy() for each in (ids, starts, ends))
    vectors, places, first = [], [], 0
    while True:
        part = ids[first : first + 22]
        row = np.array([[tokenizer.cls_id, *part, tokenizer.sep_id]])
        batch = {"token_ids": row, "segment_ids": 0 * row, "padding_mask": 0 * row + 1}
        vectors.append(model.backbone(batch)["pooled_output"].numpy()[0])
        last = min(first + 22, len(ids))
        places.append((starts[first], ends[last - 1]) if len(ids) else (0, 0))
        if last == len(ids):
            break
        first += task.stride or 22
    scores = np.array(vectors) @ model.get_layer("windows").query.numpy()
    weights = np.exp(scores) / np.exp(scores).sum()
    kernel, bias = model.get_layer("classifier").get_weights()
    return weights @ np.array(vectors) @ kernel + bias, places


def test_all_windows_of_a_text_are_read(model: Any, predictor: Predictor) -> None:
    answers = predictor.predict(TEXTS)
    for text, answer in zip(TEXTS, answers, strict=True):
        logits, places = logits_by_hand(model, text)
        p = np.exp(logits) / np.exp(logits).sum()
        found = [answer["probabilities"][name] for name in CLASSES]
        np.testing.assert_allclose(found, p, atol=1e-5)
        assert (answer["start"], answer["end"]) in places
    assert (answers[2]["start"], answers[2]["end"]) != (0, len(LONG))


def test_the_window_that_decides_gives_most_to_the_answer(
    make_model: Callable[..., Any],
) -> None:
    model = windows_model(make_model)  # the mean of the windows
    (answer,) = Predictor(model).predict([LONG])
    model.task = Classification(CLASSES)
    best = CLASSES.index(answer["label"])
    _, starts, ends = model.preprocessor.tokenizer.tokenize_with_offsets(
        [LONG], unit="characters"
    )
    margins = {}
    for first in range(0, len(starts[0]), 22):
        end = ends[0].numpy()[first : first + 22][-1]
        place = int(starts[0].numpy()[first]), int(end)
        batch = model.preprocessor(tf.constant([LONG[slice(*place)]]))
        logits = model({**batch, "window_starts": tf.constant([1])}).numpy()[0]
        margins[place] = logits[best] - logits.mean()
    assert (answer["start"], answer["end"]) == max(margins, key=margins.__getitem__)


@pytest.mark.slow
def test_folder_and_export_give_the_same_answers(
    model: Any, predictor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = predictor.predict(TEXTS)
    monkeypatch.setattr(windows, "_AT_ONCE", 3)  # several parts of packed rows
    folder = save_model(model, tmp_path / "folder")
    served = load_predictor(export_model(model, tmp_path / "served"))
    loaded = load_model(folder)
    assert loaded.task == model.task
    for other in (Predictor(loaded), served):
        found = other.predict(TEXTS)
        for each, other in zip(found, wanted, strict=True):
            assert each["probabilities"] == pytest.approx(other["probabilities"], 1e-4)
            assert (each["start"], each["end"]) == (other["start"], other["end"])
    rows = as_columns(text=TEXTS, label=[row["label"] for row in wanted])
    assert evaluate(served, rows)["accuracy"] == 1
    assert "longer texts in windows" in (folder / "README.md").read_text()


@pytest.mark.slow
def test_pairs_read_the_first_text_in_each_window(
    make_model: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    task = Classification(("no", "yes"), pairs=True, long="windows")
    model = make_model(task, layout="padded")
    pairs = (tf.constant(["see you", LONG]), tf.constant([LONG, ""]))
    batch = task.features(model.preprocessor, pairs)
    ids, segments = batch["token_ids"].numpy(), batch["segment_ids"].numpy()
    assert batch["window_starts"].numpy().tolist() == [1, *[0] * 7, 1]
    assert (ids[:8, :4] == ids[0, :4]).all() and (segments[:8, 4:20] == 1).all()
    answers = Predictor(model).predict([("see you", LONG), (LONG, "")])
    assert answers[1]["end"] == 0
    said = capsys.readouterr().err
    assert "1 of 2 texts (50%) is longer than 24 tokens: read in 8.0 windows" in said
    assert "1 of 2 texts (50%) is truncated" in said  # a first text: half of a window


@pytest.mark.slow
def test_windows_over_the_limit_are_counted(
    make_model: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    model = windows_model(make_model, max_windows=2)
    short, long = Predictor(model).predict([LONG[:200], LONG])
    said = capsys.readouterr().err
    assert (
        "are longer than 24 tokens: read in 2.0 windows on average, 2.0 times" in said
    )
    line = "truncated: it has 152 tokens, of which 70% are not read; a higher"
    assert f"{line} `max_windows` reads them in full, for " in said
    assert long["end"] <= 250 and short["end"] <= 200


@pytest.mark.parametrize(
    ("task", "labels"),
    [
        thorough(Classification(CLASSES, long="head-tail"), None),
        thorough(MultiLabel(CLASSES, long="windows", combine="max"), None),
        (Regression(long="windows", train_windows=2), np.arange(12.0)),
        (Reranking(long="windows", train_windows=2), np.arange(12.0) % 2),
        (Embedding(long="windows", train_windows=2), np.arange(24).reshape(12, 2)),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
@pytest.mark.slow
def test_fit_and_answers_of_each_task(
    make_model: Callable[..., Any], task: Any, labels: Any
) -> None:
    texts = [f"{text} {LONG if i % 3 else ''}" for i, (text, _) in enumerate(ROWS)]
    model = make_model(task)
    model.compile(run_eagerly=True)
    y = [label for _, label in ROWS] if labels is None else labels
    is_of_pairs = isinstance(task, Reranking | Embedding)
    x = (texts, texts[::-1]) if is_of_pairs else texts
    history = model.fit(x, y, epochs=2, batch_size=6, verbose=0).history["loss"]
    assert np.isfinite(history).all()
    given = list(zip(*x, strict=True)) if isinstance(task, Reranking) else texts
    answers = Predictor(model).predict(given)
    decides = task.reads_windows and not isinstance(task, Embedding)
    assert all(("start" in each) == decides for each in answers)


def test_both_ends_are_read(make_model: Callable[..., Any]) -> None:
    model = make_model(Classification(CLASSES, long="head-tail"), layout="padded")
    words = [f"{word}" for word in LONG.split()]
    batch = model.task.features(model.preprocessor, tf.constant([LONG]))
    kept = model.preprocessor.tokenizer([" ".join(words[:6] + words[-16:])])[0]
    assert batch["token_ids"][0, 1:-1].numpy().tolist() == kept.numpy().tolist()
    found = explain(model, [LONG], method="gradient-input")[0]
    read = found.attributions[0] != 0
    assert read[:6].all() and read[-16:].all() and not read[6:-16].any()


def test_the_cost_counts_the_tokens_of_each_window(
    model: Any, predictor: Predictor, make_model: Callable[..., Any]
) -> None:
    pairs = windows_model(make_model, pairs=True, stride=4)
    for made, texts in ((model, [LONG, "see you"]), (pairs, ([LONG, "a"], [LONG, ""]))):
        batch = made.task.features(made.preprocessor.replace(layout="padded"), texts)
        text = np.cumsum(batch["window_starts"]) - 1
        tokens = np.asarray(batch["padding_mask"]).sum(axis=1)
        wanted = [np.bincount(text), np.bincount(text, tokens)]
        found = made.task.windows_of(made.preprocessor, texts)
        np.testing.assert_array_equal(found, np.transpose(wanted))


def test_a_head_is_fitted_on_vectors_of_some_windows_at_a_time(model: Any) -> None:
    vectors = Predictor(HeadInputs(model), freeze=False).answers(
        as_columns(text=TEXTS[1:])
    )["vector"]
    kernel, bias = model.get_layer("classifier").get_weights()
    for text, vector in zip(TEXTS[1:], vectors, strict=True):
        logits, _ = logits_by_hand(model, text)
        np.testing.assert_allclose(vector @ kernel + bias, logits, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "options", "parts"),
    [
        ({"combine": "attention"}, {"method": "linear"}, ["`combine` must be mean"]),
        ({"train_windows": 2}, {"method": "linear"}, ["`train_windows` has no effect"]),
        ({"combine": "first", "stride": 9}, {}, ["`stride` has no effect", "first"]),
    ],
)
def test_settings_of_windows_without_an_effect_are_refused(
    settings: dict[str, Any],
    options: dict[str, Any],
    parts: list[str],
    plan_for: Any,
) -> None:
    rows = as_columns(text=TEXTS[1:], label=[*"ababa"])
    given = {"long": "windows", **settings}
    config = TrainConfig(**options)
    refused(
        lambda: plan_for(
            "classification", train=rows, config=config, task_settings=given
        ),
        *parts,
    )


def test_windows_leave_no_truncation_to_choose() -> None:
    task = Classification(CLASSES, long="windows")
    config = TrainConfig(truncation="only_first")
    refused(lambda: check_truncation(task, config), "`truncation` has no effect")


@pytest.mark.slow
def test_fit_draws_windows_of_texts_by_role(make_model: Callable[..., Any]) -> None:
    model = make_model(Classification(CLASSES, long="windows", train_windows=1))
    model.compile(run_eagerly=True)
    are_drawn: list[bool] = []
    real = LongTexts.long_batch

    def long_batch(self: Any, *given: Any, **more: Any) -> Any:
        are_drawn.append(more.get("draws") is not None)
        return real(self, *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LongTexts, "long_batch", long_batch)
        x = {"text": np.array([LONG, "see you"])}
        model.fit(x, np.array(["ham", "spam"]), batch_size=2, verbose=0)
    assert are_drawn and all(are_drawn)


@pytest.mark.slow
def test_training_draws_other_windows_in_each_epoch(
    make_model: Callable[..., Any],
) -> None:
    model = make_model(Classification(CLASSES, long="windows", train_windows=3))
    columns = as_columns(text=[LONG, "see you"], label=["ham", "spam"])
    rows = TrainingRows(model, columns, batch_size=2, epochs=6, seed=1)
    batches = [inputs for inputs, _ in rows.dataset()]
    assert all(sorted(b["window_starts"].numpy()) == [0, 0, 1, 1] for b in batches)
    assert len({b["token_ids"].numpy().tobytes() for b in batches}) > 3
    again = [inputs for inputs, _ in rows.dataset()]  # the same at each reading
    for one, other in zip(batches, again, strict=True):
        np.testing.assert_array_equal(one["token_ids"], other["token_ids"])


@pytest.mark.slow
def test_an_explanation_covers_the_windows(model: Any, predictor: Predictor) -> None:
    text = LONG[:200]
    found = explain(model, [text], method="gradient-input")[0]
    assert [word.text for word in found.words] == text.split()
    assert (found.attributions[0] != 0).all() and not found.read_to
    (answer,) = predictor.predict([text])
    p = answer["score"]
    assert found.values[0] == pytest.approx(np.log(p / (1 - p)), abs=1e-3)


def test_the_page_of_a_long_text_opens_the_window_that_decided(model: Any) -> None:
    parts = [LONG[:100], LONG[100:300], LONG[300:420]]
    explained = explain(model, ["\n\n".join(parts)], method="gradient-input")
    answer = explained[0].answer
    starts = [0, 102, 304, 424]
    is_open = [
        start < answer["end"] and end > answer["start"]
        for start, end in itertools.pairwise(starts)
    ]
    page = explained.page()
    passages = re.findall("<details class=.passage.( open)?>", page)
    assert [bool(each) for each in passages] == is_open
    assert not all(is_open)
    assert "\n\n</" not in page.partition("<details")[2]  # no blank lines


def test_settings_without_windows_are_rejected() -> None:
    task = Classification(CLASSES, combine="max")
    rule = "`combine` has an effect only with `long` 'windows'"
    refused(lambda: check_effects(task, {"combine": "max"}), rule, "'truncate'")
    assert "long" not in Classification(CLASSES).get_config()


def test_an_entailment_model_truncates() -> None:
    names = ("contradiction", "entailment", "neutral")
    rule = "`long` must be truncate with `entailment`"
    refused(lambda: MultiLabel(CLASSES, entailment=names, long="windows"), rule)


PROMPTS = {"query": "win now ", "document": "sale "}
UNPOOLED = {"prompts": PROMPTS, "default_prompt": "query", "include_prompt": False}


@pytest.mark.parametrize(
    "settings",
    [{}, {"combine": "max", "normalize": False}, thorough(UNPOOLED)],
    ids=["mean", "max", "prompt"],
)
@pytest.mark.slow
def test_a_vector_is_combined_from_the_vectors_of_windows(
    make_model: Callable[..., Any], tmp_path: Path, settings: Any
) -> None:
    model = make_model(Embedding(long="windows", **settings))
    texts = ["see you", LONG[:200], ""]
    found = np.array([row["embedding"] for row in Predictor(model).predict(texts)])
    plain = Embedding(**{**settings, "combine": "mean"})
    alone = Predictor(make_model(plain))
    room = 22 - 2 * bool(plain.prompts)  # two words of the prompt
    for text, vector in zip(texts, found, strict=True):
        words = text.split()
        parts = [words[at : at + room] for at in range(0, max(len(words), 1), room)]
        rows = alone.predict([" ".join(part) for part in parts])
        each = np.array([row["embedding"] for row in rows])
        wanted = each.max(0) if model.task.combine == "max" else each.mean(0)
        if plain.normalize:
            wanted /= np.linalg.norm(wanted)
        np.testing.assert_allclose(vector, wanted, atol=1e-5)
    folder = save_model(model, tmp_path / "folder")
    for predictor in (
        load_predictor(folder),
        load_predictor(export_model(model, tmp_path / "served")),
    ):
        rows = predictor.predict(texts)
        np.testing.assert_allclose([row["embedding"] for row in rows], found, atol=1e-5)


@pytest.mark.slow
def test_two_long_texts_are_explained(make_model: Callable[..., Any]) -> None:
    model = make_model(Embedding(long="windows"))
    found = explain(model, [(LONG[:200], LONG[50:300])], method="gradient-input")[0]
    assert [word.text for word in found.words] == [
        *LONG[:200].split(),
        *LONG[50:300].split(),
    ]
    assert (found.attributions[0] != 0).all() and not found.read_to


@pytest.mark.slow
def test_the_best_window_scores_a_document(
    make_model: Callable[..., Any], tmp_path: Path
) -> None:
    model = windows_model(make_model, Reranking(long="windows"))
    query, documents = "see you", [LONG, "win cash now", LONG[60:300]]
    rows = Predictor(model).predict([(query, each) for each in documents])
    alone = Predictor(windows_model(make_model, Reranking()))
    for text, row in zip(documents, rows, strict=True):
        words = text.split()
        parts = [" ".join(words[at : at + 19]) for at in range(0, len(words), 19)]
        scores = [each["score"] for each in alone.predict([(query, p) for p in parts])]
        assert row["score"] == pytest.approx(max(scores), abs=1e-5)
        assert text[row["start"] : row["end"]] == parts[int(np.argmax(scores))]
    served = load_predictor(export_model(model, tmp_path / "served"))
    (ranking,) = served.predict([(query, documents)])
    order = sorted(range(3), key=lambda place: -rows[place]["score"])
    assert ranking["places"] == order
    assert ranking["starts"] == [rows[place]["start"] for place in order]
    best = served.rank(query, documents)[0]
    assert (best["index"], best["end"]) == (order[0], rows[order[0]]["end"])


class GraphSession(Session):
    """Runs the graph of an engine's file, in TensorFlow."""

    def __init__(self, model: Any) -> None:
        self.graph = EngineGraph(model)
        self.outputs = self.graph.outputs_by_name()

    def specs(self) -> Any:
        inputs = self.graph.specs().items()
        return (
            [Spec(name, each.shape, np.dtype(each.dtype)) for name, each in inputs],
            [
                Spec(name, each.shape, np.dtype(each.dtype))
                for name, each in self.outputs.items()
            ],
        )

    def run(self, inputs: Any) -> Any:
        with for_engines():
            found = self.graph({k: tf.constant(v) for k, v in inputs.items()})
        return [found[name].numpy() for name in self.outputs]


@pytest.mark.parametrize(
    "task",
    [
        Classification(CLASSES, long="windows", combine="attention"),
        MultiLabel(CLASSES, long="windows", combine="max"),
        Reranking(long="windows"),
        Embedding(long="windows"),
    ],
    ids=lambda task: task.name,
)
@pytest.mark.slow
def test_the_graph_of_an_engine_combines_windows(
    make_model: Callable[..., Any], task: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_MOST_ROWS", 10)  # several runs
    model = windows_model(make_model, task)
    engine = EngineModel(task, model.preprocessor, GraphSession(model))
    texts = [(text, LONG) for text in TEXTS] if isinstance(task, Reranking) else TEXTS
    found, wanted = (Predictor(each).predict(texts) for each in (engine, model))
    assert_near(found, wanted)


def test_only_tasks_with_the_setting_are_told_of_windows() -> None:
    entailed = Classification(CLASSES, entailment=("entailment", "neutral"))
    tasks = [Embedding(), Embedding(kind="sparse"), Classification(CLASSES)]
    assert [truncation_remedy(task, "windows") for task in tasks] == ["windows"] * 3
    others = [TokenFeatures(), NextSentence(), entailed, Embedding(long="windows")]
    assert [truncation_remedy(task, "windows") for task in others] == [""] * 4
    assert "`max_question_tokens`" in truncation_remedy(QuestionAnswering(), "windows")
    assert "`max_length`" in truncation_remedy(Summarization(), "windows")
