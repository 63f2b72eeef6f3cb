"""What the site has beyond the pages: the API by module, and links out of `docs/`.

MkDocs calls these functions, see `hooks` in mkdocs.yml.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "bert_keras"
# A link, unless its target has a scheme or is a place on the page.
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Add the pages of the API to the last section of the navigation."""
    (section,) = config.nav[-1].values()
    section.append(
        {"API": ["api/index.md", *(f"api/{module}.md" for module in modules())]}
    )
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the API, one for each module with public names."""
    lines = ["# API", "", "| module | what you do with it |", "|---|---|"]
    for module, names in modules().items():
        summary = summary_of(module)
        lines.append(f"| [`{module}`]({module}.md) | {summary} |")
        parts = [f"# {module}", summary]
        parts += [entry(name, file) for name, file in sorted(names.items())]
        content = "\n\n".join(parts)
        files.append(File.generated(config, f"api/{module}.md", content=content))
    lines += ["", "## Names of `bert_keras`", "", "| name | module |", "|---|---|"]
    for name, file in sorted(public_names(PACKAGE / "__init__.pyi").items()):
        module = module_of(file)
        anchor = f"{module}.md#{file}.{name}"
        lines.append(f"| [`bert_keras.{name}`]({anchor}) | `{module}` |")
    files.append(File.generated(config, "api/index.md", content="\n".join(lines)))
    return files


def entry(name: str, module: str) -> str:
    """Return the entry of a public name; the fields of a config are on another page."""
    reference = f"::: {module}.{name}"
    if not name.endswith("Config") or name == "BertConfig":
        return reference
    plain = "    options: { show_signature: false, members: false }"
    return f"{reference}\n{plain}\n\nIts fields are the [options](../options.md)."


def modules() -> dict[str, dict[str, str]]:
    """Return each public module with its names, and the file of each."""
    found: dict[str, dict[str, str]] = {}
    for path in [PACKAGE / "__init__.pyi", *sorted(PACKAGE.glob("*/__init__.pyi"))]:
        for name, module in public_names(path).items():
            found.setdefault(module_of(module), {})[name] = module
    return dict(sorted(found.items()))


def module_of(module: str) -> str:
    """Return the subpackage of a file's module, or the module itself."""
    return ".".join(module.split(".")[:2])


def summary_of(module: str) -> str:
    """Return what users do with a module: the first paragraph of its docstring."""
    path = PACKAGE / module.partition(".")[2]
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def public_names(stub: Path) -> dict[str, str]:
    """Return the names that the stub of a package imports, with their modules."""
    package = ".".join(stub.parent.relative_to(ROOT).parts)
    return {
        node.names[0].name: f"{package}.{node.module}"
        for node in ast.parse(stub.read_text("utf-8")).body
        if isinstance(node, ast.ImportFrom) and node.module != "version"
    }


def title_of(place: str) -> str:
    """Return the first heading of a page."""
    return (ROOT / place).read_text("utf-8").partition("\n")[0].removeprefix("# ")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Name linked pages by their titles, and files out of `docs/` by their paths."""
    folder = posixpath.dirname(page.file.src_uri)

    def changed(found: re.Match[str]) -> str:
        mark, text, target, _ = found.groups()
        place = posixpath.normpath(posixpath.join("docs", folder, target))
        if mark or place.startswith("docs/"):
            is_page = text.endswith(".md") and (ROOT / place).is_file()
            return found[0].replace(text, title_of(place), 1) if is_page else found[0]
        return f"{text} (`{place}`)" if text not in place else f"`{place}`"

    return LINK.sub(changed, markdown)


def on_page_content(html: str, **given: Any) -> str:
    """Keep the options within the prose on one line each."""
    parts = re.split(r"(<pre.*?</pre>|<code>.*?</code>)", html, flags=re.S)
    option = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
    return "".join(
        option.sub(r'<span class="option">\g<0></span>', part)
        if part.startswith("<code>")
        else part
        for part in parts
    )
