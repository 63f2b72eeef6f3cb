"""The house: which room may import which, and the light modules stay light.

`ROOMS` is the table of contents of the package; a new room takes its place in it.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT

PACKAGE = ROOT / "bert_keras"
# What any room may import, and the only modules outside of the rooms.
GROUND = {
    *("__init__", "__main__", "config", "errors", "lazy_names", "settings", "spark"),
    "version",
}
_BELOW_TASKS = {
    *("checkpoints", "data", "distribution", "explained", "model", "reading"),
    *("scoring", "text"),
}
_BELOW_ANSWERING = {"files", "generation", "runs", "tasks", *_BELOW_TASKS}
_BELOW_MODELS = {"answering", "exports", *_BELOW_ANSWERING}
_BELOW_INFERENCE = {"models", *_BELOW_MODELS}
_BELOW_SERVING = {"inference", "retrieval", *_BELOW_INFERENCE}
_BELOW_TRAINING = {"report", *_BELOW_SERVING}
ROOMS: dict[str, set[str]] = {
    "files": set(),
    "scoring": set(),
    "checkpoints": {"files"},
    "text": {"files"},
    "runs": {"files"},
    "model": {"checkpoints", "runs"},  # for `from_pretrained`
    "report": {"files"},
    "corpus": {"files", "runs", "text"},
    "data": {"files", "runs", "scoring", "text"},
    "distribution": {"runs"},
    "generation": {"model"},
    "explained": {"model", "text"},
    "reading": {"checkpoints", "model", "text"},
    "tasks": {"generation", "runs", *_BELOW_TASKS},
    "answering": _BELOW_ANSWERING,
    "exports": {"answering", *_BELOW_ANSWERING},
    "models": _BELOW_MODELS,
    "inference": _BELOW_INFERENCE,
    "retrieval": {"inference", *_BELOW_INFERENCE},
    "serving": _BELOW_SERVING,
    "explanations": {"report", *_BELOW_SERVING},
    "training": {"explanations", *_BELOW_TRAINING},
    "pretraining": {"corpus", "training", *_BELOW_TRAINING},
}
ROOMS["cli"] = set(ROOMS)
FORBIDDEN = {
    "model": {"tensorflow", "tensorflow_text", "keras_hub"},
    "scoring": {"tensorflow", "tensorflow_text", "keras", "keras_hub"},
}
# The contract of a task names its abilities, and they name the contract.
ONE_CONCEPT = ("tasks.base", "tasks.protocols")
# Modules of `tasks/` that are of no task; others ask a task or its reader instead of
# importing its class. A capability of one room may have tasks of its own, which no user
# names.
OF_ALL_TASKS = {
    *("__init__", "answer_rows", "base", "catalog", "declaration", "hugging_face"),
    *("long_text_settings", "long_texts", "needs", "plain_settings", "protocols"),
    *("given_labels", "negatives", "redaction"),
}
OF_ONE_ROOM = {
    "models.zero_shot": "zero_shot",
    "retrieval.export": "searching",
    "retrieval.features": "token_features",
}
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
TASK_MODULES = {name.split(".")[1] for name in MODULES if name.startswith("tasks.")}
LIGHT = (
    "bert_keras bert_keras.cli.main bert_keras.cli.training bert_keras.training.config"
)


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Return each module that a file imports, and whether it needs none to be imported.

    Functions import later, and `if TYPE_CHECKING` for hints alone: a reader follows
    both.
    """
    tree = parsed(path)
    first = {*map(id, tree.body)}
    found = []
    for node in ast.walk(tree):
        called = id(node) not in first
        if isinstance(node, ast.Import):
            found += [(alias.name, called) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            found += [(f"{node.module}.{each.name}", called) for each in node.names]
    return tuple(found)


def room_of(module: str) -> str:
    """Return the room of a dotted module, without the package's name."""
    return module.split(".")[0]


def test_every_module_is_in_a_room() -> None:
    alone = {name for name in MODULES if "." not in name}
    assert alone == GROUND
    assert {room_of(name) for name in MODULES if "." in name} == set(ROOMS)


def test_rooms_have_no_import_cycle() -> None:
    order = tuple(graphlib.TopologicalSorter(ROOMS).static_order())
    assert set(order) == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_allowed_rooms(room: str) -> None:
    wrong = []
    for name, path in MODULES.items():
        if room_of(name) != room:
            continue
        for module, called in imports(path):
            package, _, rest = module.partition(".")
            other = room_of(rest)
            if package in FORBIDDEN.get(room, ()) and not called:
                wrong.append(f"{name}: {module}")
            if package != "bert_keras" or other not in ROOMS or other == room:
                continue
            if other not in ROOMS[room]:
                wrong.append(f"{name}: {module}")
    assert not wrong


def test_modules_of_a_room_have_no_import_cycle() -> None:
    """Neither when they are imported, nor by a function, nor by a type hint."""
    graph: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        own = [m for m, _ in imports(path) if m.startswith("bert_keras.")]
        places = (next((p for p in places_of(m) if p in MODULES), "") for m in own)
        graph[name] = {p for p in places if room_of(p) == room_of(name)} - {name}
    first, second = ONE_CONCEPT
    graph[second] -= {first}
    graphlib.TopologicalSorter(graph).prepare()


def test_no_other_room_knows_a_task_by_its_class() -> None:
    found = {}
    for name, path in MODULES.items():
        parts = [module.split(".") for module, _ in imports(path)]
        used = {part[2] for part in parts if part[:2] == ["bert_keras", "tasks"]}
        used = {each for each in used - OF_ALL_TASKS if each in TASK_MODULES}
        if used and room_of(name) != "tasks":
            found[name] = " ".join(sorted(used))
    assert found == OF_ONE_ROOM


@pytest.mark.parametrize("name", sorted(GROUND - {"__main__"}))
def test_the_foundations_import_no_room(name: str) -> None:
    found = [module for module, called in imports(MODULES[name]) if not called]
    rooms = {room_of(m.partition(".")[2]) for m in found if m.startswith("bert_keras.")}
    assert not rooms & set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_a_docstring(room: str) -> None:
    source = MODULES[f"{room}.__init__"].read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(source))


def test_public_names_are_not_modules() -> None:
    # Importing the module would put it in the place of the name.
    import bert_keras

    assert not set(bert_keras.__all__) & (GROUND | set(ROOMS))


def reading_path() -> dict[str, int]:
    """Return the modules of the documented path, in order, each with its lines."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_/]+)\.py` \| (\d+) \|", text, re.MULTILINE)
    return {name.replace("/", "."): int(lines) for name, lines in rows}


def places_of(module: str) -> Iterator[str]:
    """Yield the modules that an imported name may mean, the most specific first."""
    name = module.partition(".")[2]
    yield name
    package, _, word = name.rpartition(".")
    stub = PACKAGE.joinpath(*package.split("."), "__init__.pyi")
    found = re.search(
        rf"from \.([a-z_.]+) import {word} as",
        stub.read_text("utf-8") if stub.exists() else "",
    )
    if found:
        yield f"{package}.{found[1]}"
    yield package
    yield f"{package}.__init__"


def test_the_reading_path_does_not_turn_back() -> None:
    path = reading_path()
    assert 30 < len(path) <= 45
    read: list[str] = []
    back = []
    for name in path:
        for module, _ in imports(MODULES[name]):
            other = next((place for place in places_of(module) if place in path), None)
            if other in read:
                back.append(f"{name}: {other}")
        read.append(name)
    assert not back


def test_the_reading_path_has_the_right_lengths() -> None:
    told = reading_path()
    for name, lines in told.items():
        found = len(MODULES[name].read_text("utf-8").splitlines())
        assert abs(found - lines) <= max(found // 10, 10), name


def test_no_file_asserts() -> None:
    found = [
        name
        for name, path in MODULES.items()
        for node in ast.walk(parsed(path))
        if type(node) is ast.Assert
    ]
    assert not found


def test_the_light_modules_import_nothing_heavy() -> None:
    check = (
        f"import sys, {', '.join([*LIGHT.split(), 'bert_keras.tasks'])}\n"
        "heavy = ('tensorflow', 'keras', 'keras_hub', 'numpy', 'safetensors')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    command = [sys.executable, "-c", check]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_an_export_is_answered_without_tensorflow() -> None:
    """NumPy apart, what answers the folder of an engine imports nothing heavy."""
    answering = "inference.predictor inference.answered_rows retrieval.embedder"
    tasks = "classification embedding multi_label multiple_choice regression reranking"
    tasks += " question_answering.task tagging.task"
    modules = [*answering.split(), *(f"tasks.{name}" for name in tasks.split())]
    check = (
        f"import sys, {', '.join(f'bert_keras.{name}' for name in modules)}\n"
        "heavy = ('tensorflow', 'keras', 'keras_hub', 'pyarrow', 'jinja2', 'rich')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    command = [sys.executable, "-c", check]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_takes_less_than_a_second() -> None:
    """Of processor time: how long one waits is the other programs' doing as well."""
    command = [sys.executable, "-m", "bert_keras", "--help"]
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seconds.append(used)
    assert b"train" in done.stdout
    assert min(seconds) < 1.0
