"""The documents name only paths, links, public names and options that exist."""

from __future__ import annotations

import argparse
import configparser
import dataclasses
import pkgutil
import re
from pathlib import Path

import pytest
from conftest import ROOT

from bert_keras.cli.parser import parser
from bert_keras.tasks import TASKS, find_task
from bert_keras.tasks.classifier import Confidence

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "examples/**/*.md", "saved_models/*.md")
    for path in ROOT.glob(pattern)
)
# The changelog names what has moved; the migration page names the options of others,
# and test_migration checks ours.
LASTING = [page for page in PAGES if page.name != "CHANGELOG.md"]
OURS = [
    page for page in LASTING if page.name not in ("migration.md", "CONTRIBUTING.md")
]
FOLDERS = "bert_keras|tests|docs|benchmarks"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.M | re.S)
FOREIGN = ("python ", "pytest ", "make ", "pip ", "tensorflow_model_server ", "curl ")


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


def wrong_options(text: str) -> list[str]:
    """Return each option that its verb, or any verb if none is named, lacks."""
    verbs = next(
        a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)
    )
    options = {
        verb: set(given._option_string_actions) for verb, given in verbs.choices.items()
    }
    known = {option for found in options.values() for option in found}
    wrong = []
    for command in commands(text):
        if command.startswith(FOREIGN):
            continue
        verb = re.match(r"bert-keras ([a-z-]+)", command)
        if verb and verb[1] not in options:
            wrong.append(command)
            continue
        allowed = options[verb[1]] if verb else known
        outside = re.sub(r"\"[^\"]*\"|'[^']*'", "", command)
        named = re.findall(r"(?<!\S)--[a-z][a-z-]*", outside)
        wrong += [f"{option}: {command}" for option in named if option not in allowed]
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_each_link_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place) if place else page
        if not target.exists() or (anchor and anchor not in headings(target)):
            wrong.append(link)
    assert not wrong


@pytest.mark.parametrize("page", LASTING, ids=name_of)
def test_each_path_and_name_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = re.findall(rf"(?<![\w/.])(?:{FOLDERS})/[\w./-]*[\w/]", text)
    wrong = [path for path in paths if not (ROOT / path).exists()]
    for name in set(re.findall(r"(?<![\w/.-])bert_keras(?:\.[A-Za-z]\w*)+", text)):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            wrong.append(name)
    assert not wrong


@pytest.mark.parametrize("page", OURS, ids=name_of)
def test_each_option_is_known(page: Path) -> None:
    assert not wrong_options(page.read_text(encoding="utf-8"))


def test_extras_are_those_of_the_package() -> None:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    text = "".join(page.read_text(encoding="utf-8") for page in LASTING)
    named = set(re.findall(r"'?\.\[([a-z-]+)\]", text))
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


def settings_of(heading: str) -> dict[str, tuple[str, bool]]:
    """Return default and `can change later` of each setting below a heading."""
    text = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    _, _, text = text.partition(f"\n{heading}\n")
    text = text.partition("\n## ")[0].partition("\n### ")[0]
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return {row[0][2:].strip("`"): (row[1], row[2].strip() == "yes") for row in rows}


@pytest.mark.parametrize("name", TASKS)
def test_settings_of_a_task_are_those_of_its_class(name: str) -> None:
    task = find_task(name)
    told = settings_of(f"## {name}")
    if issubclass(task, Confidence):
        told |= settings_of("### Settings of calibration and abstention")
    fields = {field.name: field.default for field in dataclasses.fields(task)}  # type: ignore[arg-type]
    assert set(told) == set(fields)
    assert {name for name, (_, free) in told.items() if free} == set(task.free_settings)
    for setting, (default, _) in told.items():
        value = fields[setting]
        if re.fullmatch(r"`[^`]*`", default) and not isinstance(value, tuple):
            word = str(value).lower() if isinstance(value, bool) else str(value)
            assert default == f"`{word}`", setting
