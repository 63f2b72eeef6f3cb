"""Shared fixtures: a tiny vocabulary, encoder, trained model and its data."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest

from bert_keras.errors import BertKerasError

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    None,
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *"win cash prize free now see you at six lunch home sale shoes half off".split(),
    *(",", ".", "!", "é", "日", "本"),
]
ROWS = [
    ("see you at six", "ham"),
    ("lunch at home", "ham"),
    ("you at home now?", "ham"),
    ("see you, lunch at six", "ham"),
    ("win cash now", "spam"),
    ("free cash prize!", "spam"),
    ("you win a prize", "spam"),
    ("a free prize, win now", "spam"),
    ("shoes half off", "promo"),
    ("sale: shoes now half price", "promo"),
    ("summer sale", "promo"),
    ("half off at the sale", "promo"),
]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed what Keras initializes layers without a seed from, before the fixtures."""
    random.seed(item.nodeid)
    _trace_answers(item.path.stem not in ANSWERS_WITHOUT_GRAPHS)
    _trace_functions(item.path.stem not in WITHOUT_GRAPHS)


# Files of tests whose functions run without a graph: a tiny model answers a few texts,
# and makes a few updates, before a graph is traced. Others prove what graphs compute.
WITHOUT_GRAPHS = set(
    "test_embedder test_embedding_apis test_engine test_evaluation test_features "
    "test_first_score test_generation test_head_fit test_index test_index_model "
    "test_keras_hub test_lengths test_long_sources test_long_texts test_model_garden "
    "test_new_tokens test_other_tools test_plan test_question_answering test_redaction "
    "test_releases test_reranking test_rest test_searching test_several_runs "
    "test_shrinking test_sparse_vectors test_token_classification "
    "test_token_vectors".split()
)
# Here only the answers: the updates are many.
ANSWERS_WITHOUT_GRAPHS = {*WITHOUT_GRAPHS, "test_contrastive_fit", "test_entailment"}


def _trace_answers(is_traced: bool) -> None:
    """Let predictors that are made from now on trace graphs, or call the model."""
    from bert_keras.answering import answer_graphs

    traced = _TRACED.setdefault("traced", answer_graphs.traced)
    answer_graphs.traced = traced if is_traced else _Untraced


def _trace_functions(is_traced: bool) -> None:
    import tensorflow as tf

    tf.config.run_functions_eagerly(not is_traced)


_TRACED: dict[str, Any] = {}  # the function that traces


class _Untraced:
    """A function that is called as its graph would be."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self._function, self._signature = function, signature

    def __call__(self, *tensors: Any) -> Any:
        return self._function(*tensors)

    @property
    def structured_outputs(self) -> dict[str, Any]:
        import tensorflow as tf

        texts = [tf.fill([1] * spec.shape.rank, "a") for spec in self._signature]
        return {
            name: tf.TensorSpec([None, *value.shape[1:]], value.dtype)
            for name, value in self(*texts).items()
        }


# Files that take longest start first: otherwise one of them would run alone at the end.
LONGEST = (
    "test_task_contract test_finetune test_task_model test_main test_pretrain "
    "test_contrastive_fit test_distillation test_tokenizer test_generation test_folder "
    "test_grpc_services"
).split()
# Files whose tests share a server stay in one process, which starts it once.
SHARE_A_SERVER = (
    "test_grpc_services test_http_connection test_open_inference test_page test_rest "
    "test_server"
).split()


# Slow tests of which `make test-ci` runs the forms that are not thorough: one of each
# kind that no fast test has.
CHOSEN_SLOW = {
    "checkpoints/test_checkpoint_memory.py",
    "checkpoints/test_hostile_folders.py",
    "cli/test_imports.py",
    "pretraining/test_pretrain.py::"
    "test_a_signal_saves_a_run_that_then_ends_with_the_same_bytes",
    "retrieval/test_export.py::test_a_reranker_in_the_graph",
    "retrieval/test_export.py::test_the_nearest_texts",
    "serving/test_embedding_apis.py::test_a_served_index_is_searched",
    "serving/test_server.py",
    "tasks/test_generation.py",
    "tasks/test_task_contract.py::test_an_export_gives_the_same_answers",
    "test_documents.py",
    "test_public_names.py",
    "test_readme.py",
    "training/test_contrastive_fit.py::"
    "test_a_contrastive_run_is_scored_by_whole_folds_and_resumes",
    "training/test_finetune.py::test_mixed_precision_learns_nearly_alike",
    "training/test_first_score.py",
}
# Thorough tests that it runs, too: kills and resuming, replicas and workers, examples,
# all characters.
CHOSEN = {
    "training/test_loop.py::test_a_run_that_is_killed_ends_with_the_same_bytes",
    "pretraining/test_pretrain.py::test_a_run_that_was_killed_ends_with_the_same_bytes",
    "training/test_finetuning_replicas.py::"
    "test_a_run_on_replicas_resumes_with_the_same_bytes",
    "distribution/test_replicas.py::test_two_replicas_are_one_device",
    "training/test_workers.py::test_a_worker_that_ends_ends_its_peer",
    "training/test_workers.py::test_a_killed_worker_ends_its_peer_and_the_job_resumes",
    "test_examples.py::test_task_example_runs",
    "text/test_tokenizer.py::test_every_code_point[bert-base-uncased]",
}


def thorough(*values: Any) -> Any:
    """Return the parameters of a case that only `make test-thorough` runs."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def pytest_configure(config: pytest.Config) -> None:
    """Give a worker of a parallel run one core, not all of them."""
    if hasattr(config, "workerinput"):
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give a process whole files, and all that share a server."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "server" if Path(file).stem in SHARE_A_SERVER else file

    return Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark chosen tests; start with the files that take longest, the rest in order."""
    for item in items:
        case = item.nodeid.removeprefix("tests/")
        name = case.partition("[")[0]
        marks = {mark.name for mark in item.iter_markers()} & {"slow", "thorough"}
        places = {name, name.partition("::")[0]}
        if (marks and {case, name} & CHOSEN) or (
            marks == {"slow"} and places & CHOSEN_SLOW
        ):
            item.add_marker("chosen")
    first = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path.stem, len(first)))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave out what costs much and proves nothing here.

    TensorFlow rewrites each new graph to make it faster, which took a sixth of the
    processor time of tests that run a graph a few times. Graphs are rewritten in
    `tests/peers`, whose models are compared with other libraries, and in all processes
    that tests start, such as commands and examples.
    """
    import tensorflow as tf

    if not any("peers" in item.path.parts for item in session.items):
        options = {"disable_meta_optimizer": True}
        tf.config.optimizer.set_experimental_options(options)
    _freeze_imports()


def _freeze_imports() -> None:
    """Leave all that is imported out of garbage collections.

    They walked through TensorFlow's million objects again and again, and took a fifth
    of the processor time of the tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 10)


def needs_browser() -> pytest.MarkDecorator:
    """Return the mark of a module with browser tests; without playwright, skip it."""
    needed = "needs playwright: pip install 'bert_keras[browser]'"
    pytest.importorskip("playwright.sync_api", reason=needed)
    return pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Return Chromium, driven by playwright; see `needs_browser`."""
    from playwright import sync_api

    with sync_api.sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        yield chromium
        chromium.close()


# Elements that reach beyond the right edge of a page, outside of scrolled parts.
TOO_WIDE = """[...document.querySelectorAll("body *")].filter((each) => {
  const box = each.getBoundingClientRect();
  return !each.closest(".scroll") && box.right > innerWidth + 1;
}).map((each) => each.outerHTML.slice(0, 80))"""


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that opens a page; its console must stay empty.

    The page may load nothing but itself.
    """
    errors: list[str] = []
    contexts = []

    def show(content: str, width: int = 1400, scheme: str = "light") -> Any:
        viewport = {"width": width, "height": 800}
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda told: errors.append(told.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        path = tmp_path / f"{len(contexts)}.html"
        path.write_text(content, encoding="utf-8")
        page.on(
            "request",
            lambda request: (
                request.url.startswith("http") and errors.append(request.url)
            ),
        )
        page.goto(path.as_uri())
        return page

    yield show
    for context in contexts:
        context.close()
    assert not errors


class Clock:
    """Replaces `time`; only explicit actions take time."""

    now = 100.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock that progress reads."""
    from bert_keras.runs import progress

    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


@pytest.fixture(scope="session", autouse=True)
def no_explained_mistakes() -> Iterator[None]:
    """Leave the explanations out of reports, which take a second or two a run."""
    from bert_keras.training import config

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "EXPLAIN_SECONDS", 0.0)
        yield


@pytest.fixture
def load_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `load_predictor` give one predictor for a folder: one set of graphs."""
    from bert_keras.inference import predictor

    loaded, load = {}, predictor.load_predictor

    def load_or_reuse(folder: Any, **settings: Any) -> Any:
        key = (os.fspath(folder), repr(settings))
        if key not in loaded:
            loaded[key] = load(folder, **settings)
        return loaded[key]

    monkeypatch.setattr(predictor, "load_predictor", load_or_reuse)


@pytest.fixture(scope="session")
def rows() -> list[tuple[str, str]]:
    """Return twelve short texts of three classes, each with its class."""
    return ROWS


@pytest.fixture(scope="session")
def vocabulary() -> list[str]:
    """Return the tokens of the tiny models."""
    return VOCABULARY


def write_encoder(folder: Path, **changes: Any) -> Path:
    """Write a pretrained encoder: 2 layers, hidden 16, random weights, no dropout."""
    from bert_keras.checkpoints import write_huggingface
    from bert_keras.config import BertConfig
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.text.tokenizer import WordPieceTokenizer

    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.3,
    ).replace(**changes)
    encoder = BertEncoder(config, seed=5)
    arrays = {weight.path: weight.numpy() for weight in encoder.weights}
    settings = {**config.to_dict(), "architectures": ["BertModel"]}
    write_huggingface(folder, arrays, settings)
    WordPieceTokenizer(VOCABULARY).save(folder)
    return folder


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tiny encoder that the models of these tests use."""
    return write_encoder(tmp_path_factory.mktemp("tiny") / "encoder")


@pytest.fixture(scope="session")
def make_model(encoder_folder: Path) -> Callable[..., Any]:
    """Return a function that puts a task on the tiny encoder, untrained."""
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.models.task_model import TaskModel
    from bert_keras.text.preprocessor import Preprocessor
    from bert_keras.text.tokenizer import WordPieceTokenizer

    def make(task: Any, *, layout: str = "packed", dtype: Any = None) -> Any:
        encoder = BertEncoder.from_pretrained(
            str(encoder_folder),
            pooler=task.needs.pooler,
            outputs=task.needs.outputs,
            dtype=dtype,
        )
        tokenizer = WordPieceTokenizer.from_folder(encoder_folder)
        preprocessor = Preprocessor(tokenizer, max_length=24, layout=layout)
        return TaskModel(encoder, task, preprocessor, seed=1)

    return make


@pytest.fixture
def plan_for(encoder_folder: Path, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that makes the plan of a run on the tiny encoder."""
    from bert_keras.training.choices import TrainRequest
    from bert_keras.training.finetune import plan_of

    def plan_for(task: Any, **given: Any) -> Any:
        given = {"encoder": encoder_folder, "output": tmp_path / "planned", **given}
        return plan_of(TrainRequest(task=task, **given))[0]

    return plan_for


@pytest.fixture(scope="session")
def train_spam(encoder_folder: Path) -> Callable[..., Any]:
    """Return a function that trains a classifier of single texts, with changes."""
    from bert_keras.data.table import as_columns
    from bert_keras.tasks.classification import Classification
    from bert_keras.training.config import TrainConfig
    from bert_keras.training.finetune import train

    texts, labels = zip(*ROWS, strict=True)
    few = as_columns(text=texts, label=labels)
    many = as_columns(text=texts * 10, label=labels * 10)
    fields = {field.name for field in dataclasses.fields(TrainConfig)}

    def train_spam(output: Path, **changes: Any) -> Any:
        settings = {"epochs": 2, "batch_size": 8, "learning_rate": 1e-2}
        # By the pooler, which other tools read.
        settings |= {"method": "finetune", "max_length": 24}
        settings |= {key: changes.pop(key) for key in fields & set(changes)}
        given = {"encoder": encoder_folder, "train": many, "dev": few}
        return train(
            changes.pop("task", Classification),
            output=output,
            config=TrainConfig(**settings),
            **{**given, **changes},
        )

    return train_spam


@pytest.fixture(scope="session")
def spam_run(
    train_spam: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """Return what `train` returned for `spam_folder`."""
    folder = tmp_path_factory.mktemp("trained") / "spam"
    return train_spam(folder, command="bert-keras train …")


@pytest.fixture(scope="session")
def spam_folder(spam_run: Any) -> Path:
    """Return the model folder of a trained classifier of single texts."""
    return spam_run.folder


@pytest.fixture(scope="session")
def spam_model(spam_folder: Path) -> Any:
    """Return the model of `spam_folder`; tests do not change it."""
    from bert_keras.models.loading import load_model

    return load_model(spam_folder)


@pytest.fixture(scope="session")
def spam_export(spam_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the first version of `spam_folder`'s SavedModel; it is never changed."""
    from bert_keras.exports.saved_model import export_model

    return export_model(spam_model, tmp_path_factory.mktemp("served") / "spam")


@pytest.fixture(scope="session")
def pair_folder(
    make_model: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return the model folder of a classifier of pairs, untrained."""
    from bert_keras.models.model_folder import save_model
    from bert_keras.tasks.classification import Classification

    task = Classification(("different", "same"), pairs=True)
    folder = tmp_path_factory.mktemp("trained") / "pairs"
    return save_model(make_model(task), folder)


@pytest.fixture(scope="session")
def pair_model(pair_folder: Path) -> Any:
    """Return the model of `pair_folder`; tests do not change it."""
    from bert_keras.models.loading import load_model

    return load_model(pair_folder)


@pytest.fixture
def spam_file(tmp_path: Path) -> Path:
    """Return a TSV file of the texts and classes, with a header."""
    return write_tsv(tmp_path / "spam.tsv", [("text", "label"), *ROWS])


def is_noise(path: str) -> bool:
    """Return whether a weight's gradient is 0 except for rounding.

    The gradient of a key's bias is: it adds the same to all scores of a softmax. Adam
    makes steps of the rounding, so two runs that are equal otherwise differ there.
    """
    return path.endswith("attention/self/key/bias")


def write_tsv(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    """Write rows of cells and return the path."""
    lines = "".join("\t".join(row) + "\n" for row in rows)
    path.write_text(lines, encoding="utf-8")
    return path


def write_collection(folder: Path) -> Path:
    """Write documents, queries and judgements in the form of BEIR."""
    (folder / "qrels").mkdir(parents=True)
    documents = [
        {"_id": f"d{row}", "title": "note" * (row < 1), "text": text}
        for row, (text, _) in enumerate(ROWS)
    ]
    documents.append({"_id": "empty", "title": "", "text": ""})
    queries = {"q1": "free cash", "q2": "lunch at six", "q3": "shoes", "q4": "home"}
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    lines = [json.dumps({"_id": name, "text": text}) for name, text in queries.items()]
    (folder / "queries.jsonl").write_text("\n".join(lines))
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td0\t2\nq1\td5\t1\nq2\tempty\t1\nq3\td1\t0\n"
    )
    return folder


def assert_near(found: Any, wanted: Any) -> None:
    """Check that two values of JSON are equal, numbers within 1e-4."""
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert set(found) == set(wanted)
        for key, value in wanted.items():
            assert_near(found[key], value)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_near(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=1e-4, rel=1e-4)
    else:
        assert found == wanted


def refused(action: Callable[[], object], *parts: str) -> str:
    """Check that an error is one line that holds `parts`; return the line."""
    with pytest.raises(BertKerasError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    for part in parts:
        assert part in message
    return message


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder and of those below it, by relative path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
