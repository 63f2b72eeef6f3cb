"""The contract: what every task must do, run for each task of `TASKS`.

A new task adds a module of its name to `task_cases`; everything here then runs
its cases without changes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import ROOT, assert_near, refused, thorough, write_encoder
from task_cases import Case, cases_of, first_case

from bert_keras.data.columns import Columns
from bert_keras.distribution.replicas import seed_states
from bert_keras.exports.saved_model import export_model
from bert_keras.exports.warmup import WARMUP
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.loading import load_model, new_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks import TASKS, find_task
from bert_keras.tasks.answer_rows import rows_of
from bert_keras.tasks.protocols import input_specs, texts_of
from bert_keras.text.preprocessor import Preprocessor, as_tensors
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training.config import TrainConfig
from bert_keras.training.evaluation import evaluate

CASES = {name: cases_of(name) for name in TASKS}
SCRIPT = ROOT / "examples" / "ask_savedmodel.py"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A case and its model after `case.steps` updates on one batch of raw texts.

    `loss` is that of the batch before and after; the labels went into `fit` as strings.
    """

    case: Case
    model: TaskModel
    loss: tuple[float, float]
    is_first: bool = True  # the form of its task that is proven in every way
    own_answers: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def texts(self) -> Any:
        """The texts of the rows, as the model reads them: one tensor or a pair."""
        return as_tensors(texts_of(self.case.task, self.case.columns))

    @property
    def training_texts(self) -> Any:
        """The texts of the rows in the form for `fit`: one tensor or a pair."""
        return as_tensors(texts_of(self.case.task, self.case.columns, use="train"))

    @property
    def more_texts(self) -> Any:
        """The texts of the rows and others."""
        parts = texts_of(self.case.task, self.case.columns)
        more = zip(parts, self.case.others, strict=True)
        return as_tensors([part + others for part, others in more])

    @property
    def targets(self) -> np.ndarray:
        """What the rows teach, as the loss wants it."""
        return self.case.task.targets(self.case.columns)

    def answers(self, model: TaskModel | None = None) -> dict[str, np.ndarray]:
        """Return the answers of a model, or of this one, to `more_texts`."""
        if model is None and self.own_answers:
            return dict(self.own_answers)
        answers = (model or self.model).answer(self.more_texts)
        found = {key: value.numpy() for key, value in answers.items()}
        if model is None:
            self.own_answers.update(found)
        return found

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The model's predictor, whose graphs are traced once."""
        return Predictor(self.model)

    @property
    def tied(self) -> np.ndarray:
        """Which rows of `more_texts` repeat a word until windows of them are equal.

        The same answer then occurs at several places, and rounding decides which.
        """
        texts = texts_of(self.case.task, self.case.columns)[-1] + self.case.others[-1]
        words = [str(text).split() for text in texts]
        return np.array([len(each) - len(set(each)) > 15 for each in words])


# Tasks whose graphs are those of others: writing, one head on the pooled output (of
# pairs), and one on each token.
ALIKE = {
    *("abstractive-summarization", "feature-tagging", "multi-label", "next-sentence"),
    "regression",  # `reranking` inherits from it
}
SERVED_ALIKE = {"reranking", *ALIKE}
# Their first forms are slow tests; each has fast ones of its own.
SLOW = {"masked-lm", "summarization", "translation"}
FORMS = [(name, form) for name in TASKS for form in CASES[name]]


def _parameters(alike: set[str]) -> list[Any]:
    """Return every form of every task; some are thorough, and some slow.

    Thorough are all forms after a task's first one, and the tasks `alike`.
    """

    def marks(name: str, form: str) -> list[pytest.MarkDecorator]:
        if _is_later(name, form) or name in alike:
            return [pytest.mark.thorough]
        return [pytest.mark.slow] if name in SLOW else []

    return [pytest.param(each, id="-".join(each), marks=marks(*each)) for each in FORMS]


def _is_later(name: str, form: str) -> bool:
    return form != next(iter(CASES[name]))


def some(alike: set[str]) -> pytest.MarkDecorator:
    """Return the mark of a test for which more tasks are thorough.

    The forms are the same, in the same order, so that each is trained once for all.
    """
    return pytest.mark.parametrize("trained", _parameters(alike), indirect=True)


serves = some(SERVED_ALIKE)
# What Keras does with a model differs by the form of inputs and outputs alone.
keras_runs = some({*TASKS} - {"classification", "multiple-choice", "embedding"})


@pytest.fixture(scope="module", params=_parameters(ALIKE))
def trained(request: pytest.FixtureRequest, make_model: Callable[..., Any]) -> Trained:
    name, form = request.param
    case = CASES[name][form]
    model = make_model(case.task)
    model.compile(
        optimizer=keras.optimizers.Adam(5e-3),
        loss=case.task.loss(),
        metrics=case.task.metrics(),
    )
    made = Trained(case, model, (0.0, 0.0))
    x, y = made.training_texts, made.targets
    batch, target, weights = case.task.examples(model.preprocessor, x, y)
    before = float(case.task.loss()(target, model(batch), weights))
    if case.target:
        y = tf.constant(case.columns[case.target])
    rows = tf.data.Dataset.from_tensors((x, y))
    model.fit(rows.repeat(case.steps), verbose=0)
    after = float(case.task.loss()(target, model(batch), weights))
    return Trained(case, model, (before, after), not _is_later(name, form))


def first_form_only(trained: Trained) -> None:
    """Skip what Keras and the base class do, and a task's form cannot change."""
    if not trained.is_first:
        pytest.skip("proven with the first form of the task")


def assert_same_answers(trained: Trained, found: dict[str, Any]) -> None:
    """Check answers to `more_texts`; in a tied row, all but the places."""
    wanted = trained.answers()
    found = {key: np.asarray(value) for key, value in found.items()}
    if {"n_best_starts", "summary"} & set(wanted):
        assert 1 <= trained.tied.sum() <= 2
        for name in {"starts", "ends", "n_best_starts", "n_best_ends"} & set(wanted):
            for answers in (found, wanted):
                answers[name] = answers[name][~trained.tied]
    assert_same(found, wanted)


def assert_same(found: dict[str, Any], wanted: dict[str, np.ndarray]) -> None:
    """Check that two answers are equal: strings exactly, numbers within 1e-5."""
    assert set(found) == set(wanted)
    for key, value in wanted.items():
        if value.dtype == object:
            assert np.asarray(found[key]).tolist() == value.tolist()
        else:
            given = np.asarray(found[key])
            if value.ndim == 3:  # the vectors of tokens, 0 after the last of a batch
                width = min(given.shape[1], value.shape[1])
                assert not given[:, width:].any() and not value[:, width:].any()
                given, value = given[:, :width], value[:, :width]
            np.testing.assert_allclose(given, value, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", TASKS)
def test_the_list_of_tasks_matches_the_classes(name: str) -> None:
    assert find_task(name).name == name


@pytest.mark.parametrize(
    "name", [thorough(name) if name in ALIKE else name for name in TASKS]
)
def test_no_two_dropouts_draw_the_same_mask(name: str, tmp_path: Path) -> None:
    task = first_case(name).task
    folder = write_encoder(tmp_path / "dropping", hidden_dropout_prob=0.1)
    encoder = BertEncoder.from_pretrained(
        str(folder), pooler=task.needs.pooler, outputs=task.needs.outputs, seed=3
    )
    preprocessor = Preprocessor(
        WordPieceTokenizer.from_folder(folder), max_length=24, layout="packed"
    )
    model = TaskModel(encoder, task, preprocessor, seed=3)
    states = [tuple(np.asarray(state)) for state in seed_states(model)]
    if encoder.trainable:
        assert len(states) > len(encoder.blocks)
    assert len(set(states)) == len(states)


def test_logits_and_answers_have_their_shapes(trained: Trained) -> None:
    case, model = trained.case, trained.model
    batch = case.task.features(model.preprocessor, trained.texts)
    outputs = model(batch)
    wanted = case.outputs
    assert len(outputs.shape) == len(wanted)
    sizes = zip(outputs.shape, wanted, strict=True)
    assert all(size == want for size, want in sizes if want is not None)
    assert outputs.dtype == tf.float32
    for value in case.task.answer_inferred(model.infer(batch), batch).values():
        assert value.shape[0] == len(case.columns)


def test_one_batch_of_raw_texts_is_overfitted(trained: Trained) -> None:
    before, after = trained.loss
    assert after < trained.case.loss < before


@keras_runs
@pytest.mark.slow
def test_raw_texts_and_numbers_go_into_evaluate(trained: Trained) -> None:
    first_form_only(trained)
    # Keras weighs a batch by the first size of its inputs: texts where `[CLS]`s are
    # read, else rows, which hold several.
    whole = trained.case.compares or not trained.case.task.needs.pooler
    size = len(trained.case.columns) if whole else 5
    scores = trained.model.evaluate(
        trained.training_texts,
        trained.targets,
        batch_size=size,
        verbose=0,
        return_dict=True,
    )
    assert scores["loss"] == pytest.approx(trained.loss[1], rel=1e-3)


@keras_runs
def test_raw_texts_go_into_predict(trained: Trained) -> None:
    first_form_only(trained)
    found = trained.model.predict(trained.texts, batch_size=5, verbose=0)
    task, model = trained.case.task, trained.model
    if None in trained.case.outputs:
        pytest.skip("its outputs have no fixed size, so batches cannot be joined")
    wanted = model(task.features(model.preprocessor, trained.texts))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_the_best_score_is_among_the_scores(trained: Trained) -> None:
    task, columns = trained.case.task, trained.case.columns
    answers = trained.predictor.answers(columns)
    scores = task.score(columns, answers)
    assert isinstance(scores[task.best_score], float)
    assert task.mistakes(columns, answers) == []  # it was overfitted


def test_answers_are_fit_for_json(trained: Trained) -> None:
    rows = rows_of(trained.answers())
    assert len(rows) == len(trained.case.columns) + len(trained.case.others[0])
    json.dumps(rows, allow_nan=False)


def test_the_order_of_a_batch_does_not_matter(trained: Trained) -> None:
    flipped = tf.nest.map_structure(lambda part: part[::-1], trained.more_texts)
    answers = {k: v.numpy()[::-1] for k, v in trained.model.answer(flipped).items()}
    assert_same_answers(trained, answers)


def test_a_text_alone_is_answered_as_in_a_batch(trained: Trained) -> None:
    alone = tf.nest.map_structure(lambda part: part[-2:-1], trained.more_texts)
    answers = trained.model.answer(alone)
    assert_same(answers, {k: v[-2:-1] for k, v in trained.answers().items()})


def test_packed_and_padded_rows_give_the_same_answers(trained: Trained) -> None:
    model = trained.model
    settings = {**model.preprocessor.settings(), "layout": "padded"}
    padded = Preprocessor(model.preprocessor.tokenizer, **settings)
    assert model.preprocessor.layout == "packed"
    answers = model.answer(trained.more_texts, preprocessor=padded)
    assert_same_answers(trained, answers)


def test_a_model_folder_gives_the_same_answers(
    trained: Trained, tmp_path: Path
) -> None:
    loaded = load_model(save_model(trained.model, tmp_path / "model"))
    assert loaded.task == trained.case.task
    assert_same_answers(trained, trained.answers(loaded))


OTHER_TYPES: dict[str, dict[str, Any]] = {
    "distilbert": {"model_type": "distilbert", "type_vocab_size": 0},
    "electra": {"model_type": "electra", "embedding_size": 8},
}
NEED_BERT = {"next-sentence", "translation", "abstractive-summarization"}
QUICK = {("classification", "electra"), ("embedding", "distilbert")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "model_type"),
    [
        each if each in QUICK else thorough(*each)
        for each in ((name, kind) for name in TASKS for kind in OTHER_TYPES)
    ],
)
def test_a_step_on_another_model_type(
    name: str, model_type: str, tmp_path: Path
) -> None:
    case = first_case(name)
    folder = write_encoder(tmp_path / "encoder", **OTHER_TYPES[model_type])
    if name in NEED_BERT:
        refused(lambda: TaskModel.from_pretrained(folder, case.task), "type bert")
        return
    model = TaskModel.from_pretrained(folder, case.task, max_length=24, seed=1)
    model.compile(optimizer=keras.optimizers.Adam(5e-3), loss=case.task.loss())
    made = Trained(case, model, (0.0, 0.0))
    y = tf.constant(case.columns[case.target]) if case.target else made.targets
    before = [weight.numpy() for weight in model.trainable_weights]
    model.fit(tf.data.Dataset.from_tensors((made.training_texts, y)), verbose=0)
    pairs = zip(model.trainable_weights, before, strict=True)
    moved = [np.any(weight.numpy() != old) for weight, old in pairs]
    assert sum(moved) > len(moved) / 2
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert loaded.task == case.task
    assert loaded.backbone.config == model.backbone.config
    assert_same_answers(made, made.answers(loaded))


# Heads of one kind each.
@pytest.mark.parametrize(
    "name", ["feature-tagging", "multiple-choice", "question-answering", "regression"]
)
def test_a_model_is_trained_further_with_its_weights(name: str, tmp_path: Path) -> None:
    task = first_case(name).task
    folder = write_encoder(tmp_path / "encoder")
    config = TrainConfig(seed=1, max_length=24)
    given = new_model(task, folder, config)
    weights = [weight.numpy() for weight in given.weights]
    given.task = task.finalize(given)
    own = save_model(given, tmp_path / "model")
    config = dataclasses.replace(config, seed=2)
    further = new_model(task, own, config)
    assert further.has_pretrained_head
    for found, wanted in zip(further.weights, weights, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6, err_msg=found.path)


def test_a_keras_file_gives_the_same_answers(trained: Trained, tmp_path: Path) -> None:
    first_form_only(trained)
    trained.model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.task == trained.case.task
    assert_same_answers(trained, trained.answers(loaded))


@pytest.fixture(scope="module")
def exports(
    make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[Path, Predictor]]:
    """Return a function that exports a task's model once, and loads the export.

    Where no model is given, an untrained one is made.
    """
    folder, made = tmp_path_factory.mktemp("served"), {}

    def export(name: str, model: TaskModel | None = None) -> tuple[Path, Predictor]:
        if name not in made:
            first = next(iter(CASES.get(name, {}).values()), None)
            version = export_model(model or make_model(first.task), folder / name)
            made[name] = version, load_predictor(version)
        return made[name]

    return export


@pytest.fixture
def exported(
    trained: Trained,
    exports: Callable[..., tuple[Path, Predictor]],
    request: pytest.FixtureRequest,
) -> tuple[Path, Predictor]:
    """Return the folder of a trained model's export, and the loaded export."""
    name, form = request.node.callspec.params["trained"]
    return exports(name if trained.is_first else f"{name}-{form}", trained.model)


@pytest.fixture
def served(exported: tuple[Path, Predictor]) -> Predictor:
    return exported[1]


@serves
@pytest.mark.slow
def test_an_export_gives_the_same_answers(trained: Trained, served: Predictor) -> None:
    assert_same_answers(trained, served.model.answer(trained.more_texts))
    # What a server may be sent: texts without a word alone, and none at all.
    for specs in input_specs(trained.case.task).values():
        for texts, row in ((2, ""), (2, " \n"), (0, "")):
            shapes = [[texts, *[1] * (spec.shape.rank - 1)] for spec in specs]
            blank = tuple(tf.fill(shape, row) for shape in shapes)
            if texts and trained.case.task.name == "reranking":
                with pytest.raises(tf.errors.InvalidArgumentError, match="query must"):
                    served.model.answer(blank)
                continue
            for value in served.model.answer(blank).values():
                assert value.shape[0] == texts
                assert not value.dtype.is_floating or np.isfinite(value).all()


@serves
@pytest.mark.slow
def test_an_export_predicts_and_scores_like_the_model(
    trained: Trained, served: Predictor
) -> None:
    task, columns = trained.case.task, trained.case.columns
    parts = zip(texts_of(task, columns), trained.case.others, strict=True)
    items = list(zip(*(texts + others for texts, others in parts), strict=True))
    if len(trained.case.others) == 1:
        items = [text for (text,) in items]
    kept = [number for number, tied in enumerate(trained.tied) if not tied][-7:]
    wanted = [rows_of(trained.answers())[number] for number in kept]
    found = served.predict([items[number] for number in kept], batch_size=2)
    assert_near(found, wanted)
    if len(input_specs(task)) > 1:  # the other form, too
        other = trained.case.other_form
        assert_near(served.predict(other), trained.predictor.predict(other))
    assert served.predict([]) == []
    assert_near(evaluate(served, columns), evaluate(trained.predictor, columns))


@serves
@pytest.mark.slow
def test_an_export_answers_each_warm_up_request(
    trained: Trained, exported: tuple[Path, Predictor]
) -> None:
    logs = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    signatures = input_specs(trained.case.task)
    version, served = exported
    asked = set()
    for record in tf.data.TFRecordDataset(str(version / "assets.extra" / WARMUP)):
        request = logs.PredictionLog.FromString(record.numpy()).predict_log.request
        name = request.model_spec.signature_name
        given = {k: tf.make_ndarray(v) for k, v in request.inputs.items()}
        assert set(given) == {spec.name for spec in signatures[name]}
        parts = tuple(tf.constant(given[spec.name]) for spec in signatures[name])
        for value in served.model.answer(parts).values():
            assert len(value) == len(parts[0])
        asked.add(name)
    assert asked == set(signatures)


def test_a_task_is_restored_from_its_config(trained: Trained) -> None:
    task = trained.case.task
    stored = json.loads(json.dumps(keras.saving.serialize_keras_object(task)))
    assert keras.saving.deserialize_keras_object(stored) == task


def test_cells_and_targets_mean_the_same(trained: Trained) -> None:
    if not trained.case.target:
        pytest.skip("its targets are more than a cell of the file")
    names = tf.constant(trained.case.columns[trained.case.target])
    encoded = trained.case.task.encode_targets(names)
    np.testing.assert_array_equal(encoded, trained.targets)
    np.testing.assert_array_equal(
        trained.case.task.encode_targets(trained.targets), trained.targets
    )


def test_a_wrong_label_is_named_by_its_line(trained: Trained) -> None:
    if trained.case.wrong is None:
        pytest.skip("it has no labels")
    columns, (role, cell) = trained.case.columns, trained.case.wrong
    cells = {**columns.cells, role: [cell, *columns[role][1:]]}
    wrong = Columns("a.tsv", cells, columns.lines)
    refused(lambda: trained.case.task.targets(wrong), "a.tsv:1:", cell)


# Imports the unchanged script in a process without our package.
ASK_ALL = """
import importlib.util, json, sys
jobs = json.load(sys.stdin)
spec = importlib.util.spec_from_file_location("ask", sys.argv[1])
ask = importlib.util.module_from_spec(spec)
spec.loader.exec_module(ask)
tf = ask.load_tensorflow()
ask.load_tensorflow = lambda: tf
for folder, texts in jobs:
    ask.main(folder, texts)
    print()
loaded = {"keras_hub", "tensorflow_text", "bert_keras"} & set(sys.modules)
assert not loaded, loaded
"""


@pytest.mark.parametrize(
    "names",
    [
        [name for name in TASKS if name not in SERVED_ALIKE],
        pytest.param(list(TASKS), marks=pytest.mark.thorough),
    ],
    ids=["most", "all"],
)
@pytest.mark.slow
def test_the_script_queries_every_task(
    exports: Callable[..., tuple[Path, Predictor]], names: list[str]
) -> None:
    jobs, wanted = [], []
    for name in names:
        version, served = exports(name)
        specs = input_specs(served.model.task)["serving_default"]
        texts = ["see [MASK] at six", "cash\udcff win", "lunch. home"]
        given_bytes = [text.encode("utf-8", "surrogateescape") for text in texts]
        parts: list[Any] = [given_bytes]
        if specs[-1].shape.rank == 2:
            parts = [given_bytes[:1], [given_bytes[1:]]]
        elif len(specs) == 2:
            texts, parts = texts[:2], [given_bytes[:1], given_bytes[1:2]]
        jobs.append((str(version), texts))
        wanted.append(served.model.answer(tuple(map(tf.constant, parts))))
    done = subprocess.run(
        [sys.executable, "-c", ASK_ALL, str(SCRIPT)],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        cwd=exports(next(iter(TASKS)))[0],  # where our modules are not found
        env={**os.environ, "PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "0"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    blocks = done.stdout.removesuffix("\n\n").split("\n\n")
    for block, answers in zip(blocks, wanted, strict=True):
        rows = [json.loads(line) for line in block.splitlines()]
        for key, value in answers.items():
            plain = value.numpy().tolist()
            assert len(rows) == len(plain)
            for row, each in zip(rows, plain, strict=True):
                assert_near(row[key], decoded(each))


def decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [decoded(each) for each in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
