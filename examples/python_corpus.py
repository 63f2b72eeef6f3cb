"""Build an English corpus offline from the documentation that comes with Python.

    python examples/python_corpus.py FOLDER

Writes `train.txt` and `held_out.txt` (one document in fifty), with one paragraph per
line and a blank line between documents: the topics of `help()`, and the prose in the
docstrings of each installed module (which is parsed, never run).
"""

import ast
import sys
import sysconfig
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

HELD_OUT = 50  # one document in this many
SECTIONS = ("Args:", "Returns:", "Raises:", "Parameters", "Examples", "Example:")


def documents() -> Iterator[tuple[str, str]]:
    """Yield the package (or `python`) and a document with one paragraph per line."""
    from pydoc_data.topics import topics

    yield from (("python", prose(topics[name])) for name in sorted(topics))
    paths = sysconfig.get_paths()
    for place in (paths["stdlib"], paths["purelib"]):
        for path in sorted(Path(place).rglob("*.py")):
            installed = place == paths["purelib"]
            if installed or "site-packages" not in path.parts:
                origin = path.relative_to(place).parts[0] if installed else "python"
                yield origin, "\n".join(filter(None, map(prose, docstrings(path))))


def docstrings(path: Path) -> list[str]:
    """Return the docstrings of a module, in order."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in old strings
            tree = ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))
    return [text for node in nodes if (text := ast.get_docstring(node))]


def prose(text: str) -> str:
    """Return the paragraphs that read like sentences, each as a line."""
    kept = []
    for line in (" ".join(part.split()) for part in text.split("\n\n")):
        letters = sum(c.isalpha() or c == " " for c in line)
        plain = ">>>" not in line and not line.startswith(SECTIONS)
        if plain and line.count(" ") > 3 and letters > 0.85 * len(line):
            kept.append(line)
    return "\n".join(kept)


def write_corpus(folder: Path, characters: int = 8_000_000) -> dict[int, list[str]]:
    """Write the files; return {checksum: [package, document]}, without duplicates."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[int, list[str]] = {}
    for origin, text in documents():
        if text.count("\n") > 2:
            found[zlib.crc32(text.encode())] = [origin, text]
        if sum(len(text) for _, text in found.values()) > characters:
            break
    for name, held_out in (("held_out", True), ("train", False)):
        part = [d for n, (_, d) in found.items() if (n % HELD_OUT == 0) == held_out]
        path = folder / f"{name}.txt"
        path.write_text("\n\n".join(part) + "\n", encoding="utf-8")
        print(f"{path}: {len(part):,} documents, {sum(map(len, part)):,} characters")
    return found


if __name__ == "__main__":
    write_corpus(Path(sys.argv[1]))
