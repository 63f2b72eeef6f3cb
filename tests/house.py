"""What weighs in the package, by its source: `python tests/house.py [REVISION …]`.

Prints a table of Markdown with a column for each revision of the repository, and one
for the working tree: lines of each room, the contract of a task, what other rooms know
of concrete tasks, and the lengths of functions. CONTRIBUTING.md holds it.
"""

from __future__ import annotations

import ast
import collections
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "bert_keras/"
# Modules of `tasks/` that are of no task, in any of the revisions.
OF_ALL_TASKS = {
    *("__init__", "answer_rows", "base", "catalog", "declaration", "hugging_face"),
    *("long_text_settings", "long_texts", "needs", "negatives", "plain_settings"),
    *("given_labels", "protocols", "redaction"),
}
LONG = 80
Sources = dict[str, str]


def sources_of(revision: str | None) -> Sources:
    """Return the modules of the package by path; `None`: of the working tree."""
    if revision is None:
        places = sorted((ROOT / PACKAGE).rglob("*.py"))
        return {str(p.relative_to(ROOT)): p.read_text("utf-8") for p in places}
    command = ["git", "archive", revision, PACKAGE]
    data = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    found: Sources = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if member.name.endswith(".py") and file is not None:
                found[member.name] = file.read().decode()
    return found


def facts_of(sources: Sources) -> dict[str, str]:
    """Return the facts by name, as they are shown."""
    trees = {path: ast.parse(text) for path, text in sources.items()}
    functions = [each for tree in trees.values() for each in functions_of(tree)]
    spans = [each.end_lineno - each.lineno + 1 for each in functions]  # type: ignore[operator]
    lines = collections.Counter[str]()
    for path, text in sources.items():
        parts = path.split("/")
        lines[parts[1] if len(parts) > 2 else "(ground)"] += len(text.splitlines())
    protocols = classes_of(trees.get("bert_keras/tasks/protocols.py"))
    members = classes_of(trees["bert_keras/tasks/base.py"])["Task"]
    known = concrete_imports(trees)
    words = collections.Counter(
        name for text in sources.values() for name in _names(text)
    )
    private = [f.name for f in functions if f.name.startswith("_") and f.name[1] != "_"]
    longest = sorted(functions, key=lambda f: f.end_lineno - f.lineno)[-1]  # type: ignore[operator]
    found = {
        "modules": f"{len(sources)}",
        "members of `Task` in `tasks/base.py`": f"{len(members)}",
        "protocols of tasks": f"{len(protocols)}",
        "of these with one task that defines them": f"{one_definer(trees, protocols)}",
        "modules of other rooms that import one task's": f"{len(known)}",
        f"functions above {LONG} lines": f"{sum(span > LONG for span in spans)}",
        "the longest function": f"`{longest.name}`, {max(spans)} lines",
        "lines of a function, median": f"{sorted(spans)[len(spans) // 2]}",
        "private functions named once beside their definition": (
            f"{sum(words[name] == 2 for name in set(private))}"
        ),
    }
    rooms = {f"lines of `{room}`": f"{count:,}" for room, count in lines.items()}
    return found | rooms | {"lines": f"{lines.total():,}"}


def functions_of(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def classes_of(tree: ast.Module | None) -> dict[str, set[str]]:
    """Return the public members of the protocols of a module, and of `Task`."""
    found = {}
    for node in tree.body if tree else []:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = {ast.unparse(base) for base in node.bases}
        if "Protocol" in bases or node.name == "Task":
            names = {
                each.name
                if isinstance(each, ast.FunctionDef)
                else ast.unparse(each.target)
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AnnAssign)
            }
            found[node.name] = {name for name in names if not name.startswith("_")}
    return found


def one_definer(
    trees: Mapping[str, ast.Module], protocols: Mapping[str, set[str]]
) -> int:
    """Return how many protocols have all of their members in one class alone."""
    classes = [
        {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
        | {
            ast.unparse(target)
            for each in node.body
            if isinstance(each, ast.Assign | ast.AnnAssign)
            for target in getattr(each, "targets", [getattr(each, "target", None)])
            if target is not None
        }
        for path, tree in trees.items()
        if path.startswith("bert_keras/tasks/") and not path.endswith("protocols.py")
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name != "Task"
    ]
    counts = [sum(names <= each for each in classes) for names in protocols.values()]
    return sum(count == 1 for count in counts)


def concrete_imports(trees: Mapping[str, ast.Module]) -> set[str]:
    """Return the modules outside of `tasks/` that import a module of one task."""
    tasks = {
        path.split("/")[2].removesuffix(".py")
        for path in trees
        if path.startswith("bert_keras/tasks/")
    }
    found = set()
    for path, tree in trees.items():
        if path.startswith("bert_keras/tasks/") or path.count("/") < 2:
            continue
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            for alias in node.names:
                parts = f"{node.module}.{alias.name}".split(".")
                is_task = parts[:2] == ["bert_keras", "tasks"] and parts[2] in tasks
                if is_task and parts[2] not in OF_ALL_TASKS:
                    found.add(path)
    return found


def _names(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef):
            yield node.name


def main() -> None:
    revisions: list[str | None] = [*sys.argv[1:], None]
    facts = [facts_of(sources_of(revision)) for revision in revisions]
    names = list(dict.fromkeys(name for each in facts for name in each))
    rooms = sorted(name for name in names if name.startswith("lines of `"))
    head = [name for name in names if name not in rooms and name != "lines"]
    titles = [f"commit {each[:8]}" if each else "now" for each in revisions]
    print(f"| | {' | '.join(titles)} |")
    print("|---|" + "---|" * len(titles))
    for name in [*head, *rooms, "lines"]:
        print(f"| {name} | {' | '.join(each.get(name, '–') for each in facts)} |")


if __name__ == "__main__":
    main()
