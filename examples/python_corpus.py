"""Real English without a download: the documentation that comes with Python.

    python examples/python_corpus.py corpus [--characters 8000000]

Writes `train.txt` and `held_out.txt`, a blank line between documents: the topics of
`help()`, and of each installed module the prose of its docstrings (read, never run).
One document of fifty is held out. What is there depends on what is installed.
"""

import argparse
import ast
import sys
import sysconfig
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

HELD_OUT = 50  # one document of so many
_SECTIONS = ("Args:", "Returns:", "Raises:", "Parameters", "Examples", "Example:")


def documents() -> Iterator[str]:
    """Yield the paragraphs of each document, a paragraph a line."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield prose(topics[name])
    paths = sysconfig.get_paths()
    for place in (paths["stdlib"], paths["purelib"]):
        for path in sorted(Path(place).rglob("*.py")):
            if place == paths["purelib"] or "site-packages" not in path.parts:
                yield "\n".join(filter(None, map(prose, docstrings(path))))


def docstrings(path: Path) -> list[str]:
    """Return the docstrings of a module, in their order."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old escapes in strings
            tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, RecursionError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))
    return [text for node in nodes if (text := ast.get_docstring(node))]


def prose(text: str) -> str:
    """Return the paragraphs that read like sentences, each as a line."""
    kept = []
    for paragraph in text.replace("\r", "").split("\n\n"):
        line = " ".join(paragraph.split())
        letters = sum(c.isalpha() or c == " " for c in line)
        plain = ">>>" not in line and not line.startswith(_SECTIONS)
        if plain and line.count(" ") > 3 and letters > 0.85 * len(line):
            kept.append(line)
    return "\n".join(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--characters", type=int, default=8_000_000)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    found: dict[bool, list[str]] = {False: [], True: []}
    seen, size = set(), 0
    for document in documents():
        number = zlib.crc32(document.encode())
        if document.count("\n") > 2 and number not in seen:
            seen.add(number)
            found[number % HELD_OUT == 0].append(document)
            size += len(document)
        if size > options.characters:
            break
    for name, part in (("train", found[False]), ("held_out", found[True])):
        path = options.folder / f"{name}.txt"
        path.write_text("\n\n".join(part) + "\n", encoding="utf-8")
        characters = sum(map(len, part))
        print(f"{path}: {len(part):,} documents, {characters:,} characters")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
