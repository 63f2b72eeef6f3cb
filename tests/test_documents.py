"""The documents name only paths, links, public names and options that exist."""

from __future__ import annotations

import argparse
import ast
import configparser
import doctest
import functools
import importlib
import pkgutil
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT

import bert_keras
from bert_keras.cli.parser import parser
from bert_keras.cli.tasks import settings_table
from bert_keras.tasks import TASKS

PACKAGE = ROOT / "bert_keras"
DOCS = sorted((ROOT / "docs").rglob("*.md"))

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "saved_models/*.md")
    for path in ROOT.glob(pattern)
)
# The changelog names what has moved; the migration page names the options of others,
# and test_migration checks ours.
LASTING = [page for page in PAGES if page.name != "CHANGELOG.md"]
OURS = [
    page for page in LASTING if page.name not in ("migration.md", "CONTRIBUTING.md")
]
# Their figures stand in FIGURES, too, beside the command that measured them.
GUIDES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            *("index", "which-way", "tasks", "training", "no-labels", "generation"),
            *("search", "students", "pretraining", "own-model", "own-task", "serving"),
            *("explanations", "command-line", "speed", "checkpoints"),
        )
    ),
]
FIGURES = [ROOT / "docs" / f"{name}.md" for name in ("figures", "speed-table")]
NUMBER = r"(?<![\w.,/])\d[\d,]*(?:\.\d+)?(?![\w.]*\d)"
# A score, a share, seconds or a ratio has a decimal point; a speed has a unit.
FIGURE = re.compile(
    r"(?<![\w.,/])(?:\d{1,3}\.\d+(?![\w.]*\d)"
    r"|\d[\d,]*(?= (?:texts|tokens|rows|requests|sentences)/s))"
)
VERSION = re.compile(
    r"(?:Keras|KerasHub|TensorFlow|TF Model Garden|sentence-transformers|Python|Docker"
    r"|NumPy|`kserve`) (?:≥ )?\d[\d.]*(?:(?:,| to| and) \d[\d.]*)*"
)
FOLDERS = "bert_keras|tests|docs|benchmarks"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.M | re.S)
FOREIGN = (
    *("python ", "pytest ", "make ", "pip ", "curl "),
    *("tensorflow_model_server ", "docker ", "kubectl "),
)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def headings(page: Path) -> set[str]:
    """Return the anchors of a page, as GitHub makes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}


def commands(text: str) -> list[str]:
    """Return the lines of shell blocks and the code within the prose."""
    blocks = [block for kind, block in FENCE.findall(text) if kind == "bash"]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    spans = re.findall(r"`([^`]+)`", FENCE.sub("", text))
    return [*lines, *(" ".join(span.split()) for span in spans)]


@functools.cache
def options_of_verbs() -> dict[str, set[str]]:
    verbs = next(
        a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)
    )
    return {
        verb: set(given._option_string_actions) for verb, given in verbs.choices.items()
    }


def wrong_options(text: str) -> list[str]:
    """Return each option that its verb, or any verb if none is named, lacks."""
    options = options_of_verbs()
    known = {option for found in options.values() for option in found}
    wrong = []
    for command in commands(text):
        if command.startswith(FOREIGN):
            continue
        verb = re.match(r"bert-keras ([a-z][a-z-]*)", command)
        if verb and verb[1] not in options:
            wrong.append(command)
            continue
        allowed = options[verb[1]] if verb else known
        outside = re.sub(r"\"[^\"]*\"|'[^']*'", "", command)
        named = re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", outside)
        wrong += [f"{option}: {command}" for option in named if option not in allowed]
    return wrong


def found_on(pages: list[Path], find: Callable[[Path, str], list[str]]) -> list[str]:
    """Return what is wrong on any of the pages, each with its page."""
    texts = ((page, page.read_text(encoding="utf-8")) for page in pages)
    return [f"{name_of(page)}: {w}" for page, text in texts for w in find(page, text)]


def test_each_link_leads_somewhere() -> None:
    def wrong(page: Path, text: str) -> list[str]:
        found = []
        for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text)):
            if re.match(r"[a-z]+:", link):
                continue
            place, _, anchor = link.partition("#")
            target = (page.parent / place) if place else page
            if not target.exists() or (anchor and anchor not in headings(target)):
                found.append(link)
        return found

    assert found_on(PAGES, wrong) == []


def test_each_path_and_name_exists() -> None:
    def wrong(page: Path, text: str) -> list[str]:
        paths = re.findall(rf"(?<![\w/.])(?:{FOLDERS})/[\w./-]*[\w/]", text)
        found = [path for path in paths if not (ROOT / path).exists()]
        for name in set(re.findall(r"(?<![\w/.-])bert_keras(?:\.[A-Za-z]\w*)+", text)):
            try:
                pkgutil.resolve_name(name)
            except (ImportError, AttributeError):
                found.append(name)
        return found

    assert found_on(LASTING, wrong) == []


def test_each_option_is_known() -> None:
    assert found_on(OURS, lambda page, text: wrong_options(text)) == []


def figures_without_source(text: str) -> list[str]:
    """Return the figures of a text, outside code, that the pages of figures lack."""
    held = set()
    for page in FIGURES:
        held |= set(re.findall(NUMBER, page.read_text(encoding="utf-8")))
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", FENCE.sub("", VERSION.sub("", text)))
    return sorted(set(FIGURE.findall(prose)) - held)


def test_each_figure_of_a_guide_is_on_a_page_of_figures() -> None:
    assert found_on(GUIDES, lambda page, text: figures_without_source(text)) == []


def test_a_figure_without_source_is_found() -> None:
    known = "nDCG@10 is 0.4753 and 2.52 times as fast, of 203 texts/s, with Python 3.10"
    assert figures_without_source(f"{known}, `--max-drop 0.0123`") == []
    wrong = "0.4754, 97.31%, 2.59 times as fast, 91,207 texts/s"
    found = ["0.4754", "2.59", "91,207", "97.31"]
    assert figures_without_source(f"{known}; {wrong}") == found


def test_extras_are_those_of_the_package() -> None:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    text = "".join(page.read_text(encoding="utf-8") for page in LASTING)
    named = set(re.findall(r"(?:\.|bert_keras)\[([a-z-]+)\]", text))
    named |= set(re.findall(r"`\[([a-z-]+)\]`", text))
    assert len(named) > 5
    assert named <= set(config["options.extras_require"])


def test_a_wrong_option_is_found() -> None:
    block = "```bash\nbert-keras train x \\\n  --steps 3 --epochs 3\n```\n"
    wrong = wrong_options(f"`--epoch 3` and `--steps`\n\n{block}")
    assert [line.partition(":")[0] for line in wrong] == ["--steps", "--epoch"]
    assert wrong_options("`bert-keras pretrain --beam x`")
    assert wrong_options("`bert-keras go`")
    assert not wrong_options("`bert-keras pretraining-data --beam '--runner=x'`")


@pytest.mark.parametrize("name", TASKS)
def test_the_page_of_a_task_has_its_settings_rows_and_figure(name: str) -> None:
    """`tests/cli/test_tasks.py` compares them with the class."""
    page = (ROOT / "docs" / "tasks" / f"{name}.md").read_text(encoding="utf-8")
    told = TASKS[name]
    for part in (settings_table(name), told.rows, told.data, f"images/{name}.svg"):
        assert part in page


def test_the_overview_leads_to_each_task() -> None:
    page = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\(tasks/([a-z-]+)\.md\)", page)) == set(TASKS)


def test_figures_are_those_that_are_drawn() -> None:
    draw = runpy.run_path(str(ROOT / "docs" / "draw.py"))
    for name, figure in draw["FIGURES"].items():
        path = ROOT / "docs" / "images" / f"{name}.svg"
        assert path.read_text(encoding="utf-8") == draw["drawn"](figure), name
    rooms = (ROOT / "docs" / "images" / "rooms.svg").read_text(encoding="utf-8")
    assert rooms == draw["drawn_rooms"]()
    named = set(re.findall(r">([a-z]+)/", rooms.replace(", ", ">")))
    assert named == {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {
        *("files", "runs", "corpus", "cli", "explained", "answering")
    }


def test_the_site_has_every_page() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8")))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in DOCS}
    assert listed == pages


def test_the_start_is_the_tour_of_the_readme() -> None:
    """`tests/test_readme.py` runs it."""
    tours = [
        re.findall(r"<!-- tour -->\n```bash\n.*?```", page.read_text("utf-8"), re.S)
        for page in (ROOT / "README.md", ROOT / "docs" / "index.md")
    ]
    assert tours[0] == tours[1] != []


def test_python_on_a_page_parses_and_its_names_are_public() -> None:
    def wrong(page: Path, text: str) -> list[str]:
        used: set[str] = set()
        for code in [block for kind, block in FENCE.findall(text) if kind == "python"]:
            for node in ast.walk(ast.parse(code, name_of(page))):
                if isinstance(node, ast.ImportFrom) and node.module == "bert_keras":
                    used |= {alias.name for alias in node.names}
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    used |= {node.attr} if node.value.id == "bert_keras" else set()
        return sorted(used - set(bert_keras.__all__))

    assert found_on(LASTING, wrong) == []


@pytest.mark.slow
def test_the_python_of_the_start_runs(
    encoder_folder: Path,
    spam_folder: Path,
    spam_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    text = text.partition("\n## ")[2]  # above, the screen that says what it is for
    blocks = re.findall(r"<!-- run -->\n```python\n(.*?)```", text, flags=re.S)
    assert len(blocks) == text.count("```python") == 5
    (tmp_path / "models").mkdir()
    rows = spam_file.read_text(encoding="utf-8").replace(",", "")
    (tmp_path / "train.csv").write_text(rows.replace("\t", ","), encoding="utf-8")
    (tmp_path / "models" / "emails").symlink_to(spam_folder)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {"encoder": encoder_folder}
    for block in blocks:
        exec(compile(block, "docs/index.md", "exec"), found)
    assert {"label", "score", "probabilities"} <= set(found["answers"][0])
    assert (tmp_path / "models" / "mine" / "README.md").is_file()
    assert 0 <= float(capsys.readouterr().out) <= 1


def test_the_citation_names_the_version() -> None:
    import yaml

    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert found["version"] == bert_keras.__version__
    assert found["license"] == "Apache-2.0" and found["cff-version"] == "1.2.0"


@pytest.mark.parametrize("room", ["model", "scoring"])
def test_the_examples_in_the_docstrings_of_a_room_run(room: str) -> None:
    place = importlib.import_module(f"bert_keras.{room}")
    attempted = 0
    for found in pkgutil.iter_modules(place.__path__, f"bert_keras.{room}."):
        module = importlib.import_module(found.name)
        result = doctest.testmod(module, extraglobs={"np": np})
        assert not result.failed, found.name
        attempted += result.attempted
    assert attempted
