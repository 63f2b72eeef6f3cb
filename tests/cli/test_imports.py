"""What a verb does not use it does not import, and which modules it runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, ROWS, refused, thorough, write_collection, write_tsv

from bert_keras.data.table import check_columns
from bert_keras.tasks import TASKS, find_task
from bert_keras.tasks.base import roles_with

# Only presets of KerasHub, other formats and other verbs need them.
UNUSED = {
    *("keras_hub.models", "nltk", "rouge_score", "kagglesdk.kaggle_client"),
    *("pandas", "pyarrow", "matplotlib", "sklearn", "scipy.stats", "tensorboard"),
    *("openvino", "onnx", "onnxruntime", "torch", "transformers", "grpc", "fsspec"),
    "bert_keras.models.convert",
}
READS = {
    *("jinja2", "rich.progress", "bert_keras.training", "bert_keras.report"),
    *("bert_keras.explanations", "bert_keras.serving", "bert_keras.pretraining"),
}
VERBS = {
    "predict": ("predict MODEL hello", UNUSED | READS),
    "evaluate": ("evaluate MODEL ROWS", UNUSED | {"bert_keras.explanations"}),
    "export": (
        "export MODEL OUTPUT",
        UNUSED | READS - {"jinja2", "bert_keras.report"},
    ),
    "train": (
        "train classification --encoder MODEL --train ROWS --dev ROWS --output "
        "OUTPUT --epochs 1 --explain-mistakes 0",
        UNUSED | {"bert_keras.explanations", "bert_keras.serving"},
    ),
}
# `export` may import less than `train`, so one process runs both, in this order.
TOGETHER = ("export", "train")
# Prints the modules that commands import, and those of ours whose functions they call.
SCRIPT = """
import json, sys, threading
from bert_keras.cli.main import main
called, told = set(), []
def note(frame, event, argument):
    if frame.f_code.co_flags & 1:  # a function: no module's or class's own code
        called.add(frame.f_globals.get("__name__", ""))
threading.settrace(note)
for words in json.loads(sys.argv[1]):
    called.clear()
    sys.settrace(note)
    code = main(words)
    sys.settrace(None)
    ours = sorted(name for name in called if name.startswith("bert_keras."))
    told.append([code, sorted(sys.modules), ours])
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def ran(
    spam_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[set[str], set[str]]]:
    """Return a function that runs a verb in a separate process, once.

    It returns the imported modules, and those of ours whose functions were called.
    """
    place = tmp_path_factory.mktemp("verbs")
    rows = write_tsv(place / "rows.tsv", [("text", "label"), *ROWS])
    found: dict[str, tuple[set[str], set[str]]] = {}

    def ran(verb: str) -> tuple[set[str], set[str]]:
        if verb not in found:
            verbs = TOGETHER if verb in TOGETHER else (verb,)
            places = {"MODEL": spam_folder, "ROWS": rows}
            commands = [
                [
                    str({**places, "OUTPUT": place / name}.get(word, word))
                    for word in VERBS[name][0].split()
                ]
                for name in verbs
            ]
            done = subprocess.run(
                [sys.executable, "-c", SCRIPT, json.dumps(commands)],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=True,
            )
            told = json.loads(done.stdout.splitlines()[-1])
            for name, (code, modules, called) in zip(verbs, told, strict=True):
                assert code == 0, done.stderr
                found[name] = set(modules), set(called)
        return found[verb]

    return ran


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb",
    ["train", "export", thorough("predict"), thorough("evaluate")],
)
def test_a_verb_imports_what_it_uses(verb: str, ran: Callable[[str], Any]) -> None:
    imported, _ = ran(verb)
    assert "tensorflow" in imported
    assert sorted(VERBS[verb][1] & imported) == []


@pytest.mark.slow
def test_the_documents_count_the_modules_that_run(ran: Callable[[str], Any]) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    told = re.search(r"call functions of (\d+)\s+modules", page)
    assert told is not None
    files = {
        path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."): path
        for path in (ROOT / "bert_keras").rglob("*.py")
    }
    called = ran("train")[1] | ran("export")[1]
    paths = {files.get(name) or files[f"{name}.__init__"] for name in called}
    assert len(paths) == pytest.approx(int(told[1]), abs=8)
    # The reading path leads through files that these commands run.
    listed = re.findall(r"^\| `([a-z_/]+\.py)` \|", page, re.MULTILINE)
    read = {ROOT / "bert_keras" / name for name in listed}
    assert sorted(str(path) for path in read - paths) == []


@pytest.mark.slow
def test_the_rest_of_keras_hub_is_imported_at_its_first_use() -> None:
    script = (
        "import sys\n"
        "from bert_keras.models.keras_hub_task import Task\n"
        "import keras_hub\n"
        "assert 'keras_hub.models' not in sys.modules\n"
        "from keras_hub import tokenizers\n"
        "assert keras_hub.models.Task is Task and keras_hub.__version__\n"
        "assert keras_hub.src and not hasattr(keras_hub, 'nothing')\n"
        "import kagglehub\n"
        "assert callable(kagglehub.model_download)\n"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )


# Verbs in one process, each with what neither it nor a verb before it may import.
FURTHER = [
    ("completion bash", {"tensorflow", "numpy"}),
    ("tasks", {"tensorflow", "keras"}),
    ("info MODEL", {"bert_keras.training.loop", "bert_keras.explanations"}),
    ("compare MODEL OTHER --output PAGE", {"bert_keras.training.loop"}),
    ("vocab TEXT --output WORDS --size 60", {"bert_keras.inference.predictor"}),
    ("features MODEL ROWS --output VECTORS", {"bert_keras.retrieval.index"}),
    ("search MODEL ROWS hello", {"bert_keras.training.loop"}),
    ("convert MODEL FOLDER", {"bert_keras.explanations", "bert_keras.serving"}),
    ("explain MODEL hello --output WHY", {"bert_keras.serving", "starlette"}),
    ("serve MODEL --port 0 --no-grpc", {"grpc", "bert_keras.pretraining.loop"}),
    (
        "pretraining-data TEXT --output DATA --vocab MODEL",
        {"bert_keras.pretraining.loop"},
    ),
]
IN_ONE_PROCESS = """
import json, sys
from bert_keras.cli.main import main

def run(words):
    if words[0] == "serve":
        from bert_keras.serving.server import Server
        Server.run = lambda self, started: started()
    return main(words)

told = [[run(words), sorted(sys.modules)] for words in json.loads(sys.argv[1])]
print(json.dumps(told))
"""


@pytest.mark.thorough
def test_further_verbs_import_what_they_use(spam_folder: Path, tmp_path: Path) -> None:
    known = {"MODEL": spam_folder, "PAGE": tmp_path / "page.html"}
    known["OTHER"] = shutil.copytree(spam_folder, tmp_path / "other")
    known["ROWS"] = write_tsv(tmp_path / "rows.tsv", [("text", "label"), *ROWS])
    known |= {"WHY": tmp_path / "why.html", "VECTORS": tmp_path / "vectors.npz"}
    text = "win cash now. see you at six.\n\nfree prize.\n" * 9
    (tmp_path / "TEXT").write_text(text)

    def place(word: str) -> str:
        return str(known.get(word, tmp_path / word)) if word.isupper() else word

    commands = [[place(word) for word in line.split()] for line, _ in FURTHER]
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, json.dumps(commands)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout.splitlines()[-1])
    # `vocab`, in the same process, uses pyarrow.
    never = UNUSED - {"bert_keras.models.convert", "grpc", "pyarrow"}
    found = {
        line: (code, sorted((never | unused) & set(modules)))
        for (line, unused), (code, modules) in zip(FURTHER, told, strict=True)
    }
    assert found == dict.fromkeys(found, (0, [])), done.stderr


# A command and what its line names; `bare.csv` has `body` and `label`.
TRAIN = "train --encoder m --output o"
WITHOUT_A_COLUMN = (
    ("train classification --encoder e --train bare.csv --output o", "`text`"),
    ("train regression --encoder e --train rows.csv --dev bare.csv --output o", "text"),
    ("train classification --encoder e --train rows.csv --slice to --output o", "to"),
    ("train multi-label --encoder e --train rows.csv --label tags --output o", "tags"),
    ("train embedding --encoder e --train rows.csv --text-pair b --output o", "b"),
    ("evaluate m rows.csv --label kind", "kind"),
    ("evaluate m bare.csv", "text"),
    ("evaluate m rows.csv --slice to", "to"),
    ("predict m --input rows.csv --text body", "body"),
    ("predict m --input bare.csv", "text"),
    ("predict m --input rows.jsonl --column id=number", "number"),
    ("features m bare.csv --output f.npz", "text"),
    ("search m bare.csv query", "text"),
    ("select m rows.csv --labelled bare.csv --output s.csv", "text"),
    ("mine m --pairs rows.csv --output n.jsonl", "text_pair"),
    ("explain m --input rows.csv --text body --output e.html", "body"),
    ("explain m --input bare.csv --view map --output e.html", "text"),
    ("explain m --input bare.csv --output e.html", "text"),
    ("explain m --input rows.csv --label truth --output e.html", "truth"),
    ("predict m --input bare.csv --classes a,b", "text"),
    ("predict m --input rows.csv --task reranking", "text_pair"),
    ("predict m --input rows.jsonl --task question-answering", "question"),
    ("shrink m o --dev bare.csv", "text"),
    ("classes m o --classes a,b --dev bare.csv", "text"),
    ("export m o --format onnx --int8 --dev bare.csv", "text"),
    ("export m o --format openvino --int8 --calibrate bare.csv", "text"),
    (f"{TRAIN} classification --train rows.csv --unlabeled bare.csv", "text"),
    (f"{TRAIN} multi-label --train bare.csv", "text"),
    (f"{TRAIN} multi-label --train bare.csv --label win,lose", "text"),
    (f"{TRAIN} next-sentence --train rows.csv", "text_pair"),
    (f"{TRAIN} embedding --train rows.csv", "text_pair"),
    (f"{TRAIN} reranking --train rows.csv", "text_pair"),
    (f"{TRAIN} reranking --train rows.csv --column query=text", "document"),
    (f"{TRAIN} multiple-choice --train rows.jsonl", "context"),
    (f"{TRAIN} question-answering --train rows.jsonl", "question"),
    (f"{TRAIN} masked-lm --train bare.csv", "text"),
    (f"{TRAIN} translation --train rows.csv", "source"),
    (f"{TRAIN} abstractive-summarization --train rows.csv", "document"),
)
_WITHOUT_TENSORFLOW = """
import json, sys
from bert_keras.cli.main import main
codes = [main(words.split()) for words in json.loads(sys.argv[1])]
print(json.dumps([codes, [n for n in ("tensorflow", "keras") if n in sys.modules]]))
"""


def test_a_missing_column_is_told_before_tensorflow_is_imported(tmp_path: Path) -> None:
    (tmp_path / "bare.csv").write_text("body,label\nwin cash,1\n")
    (tmp_path / "rows.csv").write_text("text,label\nwin cash,1\n")
    (tmp_path / "rows.jsonl").write_text('{"text": "win cash", "label": "1"}\n')
    (tmp_path / "m").mkdir()
    entry = {"bert_keras": {"task": "classification"}}
    (tmp_path / "m" / "config.json").write_text(json.dumps(entry))
    done = without_tensorflow([words for words, _ in WITHOUT_A_COLUMN], tmp_path)
    codes, imported = json.loads(done.stdout)
    assert set(codes) == {2} and not imported
    lines = done.stderr.splitlines()
    for (words, name), line in zip(WITHOUT_A_COLUMN, lines, strict=True):
        assert re.search(rf"has no (column|key) `{name.strip('`')}`[;,] ", line), words


# Commands of a path NONE, where there is no model; ENC is an encoder.
WITHOUT_A_MODEL = (
    *("predict NONE hi", "evaluate NONE rows.csv", "export NONE o", "info NONE"),
    *("explain NONE hi --output e.html", "explain NONE hi --view map --output e.html"),
    *("features NONE rows.csv --output f.npz", "search NONE rows.csv hi"),
    *("convert NONE o", "classes NONE o --classes a,b", "shrink NONE o --dev rows.csv"),
    *("search ENC rows.csv hi --rerank NONE", "search ENC rows.csv hi --fuse NONE"),
    "search ENC rows.csv hi --query-encoder NONE",
    "evaluate ENC beir --query-encoder NONE",
    "select NONE rows.csv --output s.csv",
    "mine NONE --pairs pairs.csv --output n.jsonl",
    "mine ENC --pairs pairs.csv --output n.jsonl --rerank NONE",
    *("serve NONE", "serve a=ENC b=NONE", "serve ENC --index index.npz --rerank NONE"),
    "train classification --output o --train rows.csv --encoder NONE",
    "train classification --output o --train rows.csv --teacher NONE",
    *(
        "pretrain --encoder NONE --data d --output o",
        "vocab f --output v --extend NONE",
    ),
    *("export ENC o --index NONE", "export ENC o --index index.npz --rerank NONE"),
    *("evaluate ENC beir --index NONE", "serve ENC --index NONE"),
    "search ENC rows.csv hi --index NONE/x/index.npz",
)


def test_a_missing_model_is_told_before_tensorflow_is_imported(
    tmp_path: Path, encoder_folder: Path
) -> None:
    (tmp_path / "empty").mkdir()
    write_collection(tmp_path / "beir")
    (tmp_path / "index.npz").touch()
    (tmp_path / "rows.csv").write_text("text,label\nwin cash,1\n")
    (tmp_path / "pairs.csv").write_text("text,text_pair\nwin cash,free cash\n")
    commands = [
        words.replace("NONE", place).replace("ENC", str(encoder_folder))
        for place in ("none", "empty")
        for words in WITHOUT_A_MODEL
    ]
    done = without_tensorflow(commands, tmp_path)
    codes, imported = json.loads(done.stdout)
    lines = done.stderr.splitlines()
    for words, code, line in zip(commands, codes, lines, strict=True):
        assert code == 2 and re.search(
            r"(none|empty)(/x/index.npz)?: (cannot be written: )?"
            r"(no such (folder|file)|contains no checkpoint|must be an index)",
            line,
        ), (words, line)
    assert not imported


# The same in Python.
CALLS = """
import sys
import bert_keras
from bert_keras import retrieval, serving
pairs = bert_keras.as_columns(text=["a"], text_pair=["b"])
for call in (
    lambda: bert_keras.load_predictor("none"),
    lambda: bert_keras.embed("none", ["a"]),
    lambda: bert_keras.search("none", ["a"], "a"),
    lambda: bert_keras.SearchIndex.load("none", "none.npz"),
    lambda: retrieval.mine_negatives("none", pairs),
    lambda: retrieval.write_features("none", "rows.csv", "v.npz"),
    lambda: serving.Server(["none"]),
):
    try:
        call()
    except bert_keras.BertKerasError as error:
        print(error)
print({"tensorflow", "keras"} & {*sys.modules})
"""


def test_functions_tell_a_missing_model_before_tensorflow_is_imported(
    tmp_path: Path,
) -> None:
    (tmp_path / "rows.csv").write_text("text,label\nwin cash,1\n")
    done = subprocess.run(
        [sys.executable, "-c", CALLS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    *errors, imported = done.stdout.splitlines()
    assert imported == "set()" and len(errors) == CALLS.count("lambda")
    assert {*errors} == {"none: no such folder"}


def without_tensorflow(
    commands: Sequence[str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run commands in one process; print their codes, and what was imported."""
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT_TENSORFLOW, json.dumps(commands)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_later_row_may_have_a_key_that_the_first_ones_lack(tmp_path: Path) -> None:
    """And what is not known to be a table is left to its reader."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "win"}\n' * 2000 + '{"text": "win", "id": "7"}\n')
    check_columns(str(path), {"text": "text", "id": "id"})
    refused(lambda: check_columns(str(path), {"text": "body"}), "has no key `body`")
    path.with_suffix(".json").write_text('{"data": []}')
    check_columns(str(path.with_suffix(".json")), {"text": "text"})


@pytest.mark.parametrize("name", [name for name in TASKS if TASKS[name].columns])
def test_the_columns_that_a_task_declares_are_those_that_it_needs(name: str) -> None:
    task, first = find_task(name), TASKS[name].columns[0]
    optional = {*roles_with(task.columns, "optional"), "answers"}  # of several forms
    assert first == {r: each for r, each in task.columns.items() if r not in optional}
    texts = TASKS[name].needed({}, labelled=False)[0].keys()
    assert texts and not texts & {"label", "target", "summary"}


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("reranking", "query,document,label"),
        ("reranking", "text,text_pair,negative"),
        ("reranking", "query,positive,negatives"),
        ("multiple-choice", "context,choices,label"),
        ("multiple-choice", "sent1,sent2,ending0,ending1,ending2,ending3,label"),
        ("question-answering", "question,context,answer,answer_start"),
        ("question-answering", "paragraphs,title"),
        ("token-classification", "tokens,ner_tags"),
    ],
)
def test_every_form_of_a_table_is_accepted(
    name: str, columns: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(dict.fromkeys(columns.split(","), "a")))
    check_columns(str(path), *(TASKS[name].needed({}, labelled=True) or [{}]))
    other = {"text": "a", "label": "b"}
    needed = TASKS["reranking"].needed({"text": "question"}, labelled=True)
    path.write_text(json.dumps(other))
    refused(lambda: check_columns(str(path), *needed), "has no key `question`")


def test_without_a_checkpoint_tensorflow_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a new model, which `pretrain --size` makes."""
    from bert_keras.cli.arguments import load_backend

    loaded: list[bool] = []
    place = "bert_keras.runs.environment.load_tensorflow"
    monkeypatch.setattr(place, lambda: loaded.append(True))
    load_backend(checkpoints=[None, None])
    assert loaded
