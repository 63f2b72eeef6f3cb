"""Check what `write_exports.py` wrote, where TensorFlow is not installed, or blocked.

python tests/runtime/check_exports.py FOLDER
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from verbs import DOCUMENTS, answers_of_verbs

# Modules of the package that the answer to one text does not need.
UNUSED = (
    *("checkpoints.checkpoint", "data.large_files", "data.tagged", "data.squad"),
    *("text.characters", "text.tokenizer_files", "tasks.generation_settings"),
    *("exports.model_card", "retrieval.vector_file", "serving.config", "cli.training"),
)
HEAVY = ("tensorflow", "keras", "tensorflow_text", "torch", "jax")


class Blocked:
    """Finds no heavy package, as where none is installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def are_near(one: Any, other: Any) -> bool:
    """Return whether answers are equal, numbers to 1e-5."""
    if isinstance(one, dict):
        return set(one) == set(other) and all(are_near(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(are_near, one, other))
    if isinstance(one, float):
        return math.isclose(one, other, abs_tol=1e-5)
    return bool(one == other)


def exports_of(folder: Path) -> list[Path]:
    """Return the folders of the exports."""
    return sorted(
        each for each in folder.iterdir() if (each / "answers.json").is_file()
    )


def check_answers(folder: Path) -> None:
    """Compare the answers of each export, all texts at once and one alone."""
    from bert_keras.inference.predictor import load_predictor

    found = exports_of(folder)
    for place in found:
        predictor = load_predictor(place)
        for expected in json.loads(place.with_suffix(".json").read_text("utf-8")):
            items = [
                tuple(item) if isinstance(item, list) else item
                for item in expected["items"]
            ]
            for size in (32, 3):
                answers = predictor.predict(items, batch_size=size)
                for pair in zip(answers, expected["answers"], strict=True):
                    assert are_near(*pair), (place.name, size, *pair)
            assert are_near(predictor.predict(items[:1]), expected["answers"][:1])
    assert found, folder


def check_verbs(folder: Path) -> None:
    """Compare what other verbs return."""
    from bert_keras.inference.predictor import load_predictor

    data, names = folder / "data", [place.name for place in exports_of(folder)]
    with tempfile.TemporaryDirectory() as place:
        found = answers_of_verbs(
            names, lambda name: load_predictor(folder / name), data, Path(place)
        )
    found = json.loads(json.dumps(found))
    expected = json.loads((data / "verbs.json").read_text("utf-8"))
    for name, values in expected.items():
        assert are_near(found[name], values), (name, found[name], values)


def check_vectors(folder: Path) -> None:
    """Embed with and without a prompt."""
    from bert_keras.retrieval import embed

    plain, asked = (
        embed(folder / "embedding", ["see you"], prompt=prompt)
        for prompt in (None, "query")
    )
    assert plain.shape == (1, 16) and abs(plain - asked).max() > 1e-4


def check_server(folder: Path) -> None:
    """Serve the exports, one with an index; ask for answers and signatures."""
    from bert_keras import SearchIndex
    from bert_keras.serving import Server
    from bert_keras.serving.config import ServeConfig

    index = folder / "index.npz"
    SearchIndex.of(folder / "embedding", DOCUMENTS, index=index)
    config = ServeConfig(port=0, index=f"embedding={index}", hybrid=True)
    asked = {
        "classification": {"instances": ["free cash prize"]},
        "embedding": {"instances": ["free cash prize"]},
        "token-classification": {
            "signature_name": "words",
            "instances": [["free", "cash", "prize"]],
        },
        "entailment": {
            "signature_name": "classes",
            "instances": [{"text": "free cash prize", "classes": ["you", "ham"]}],
        },
    }
    asked = {name: data for name, data in asked.items() if (folder / name).exists()}
    named = [str(folder / name) for name in asked]
    with Server(named, config=config, is_quiet=True).running() as server:
        url = f"{server.url}/v1/models"
        for name, given in asked.items():
            data = json.dumps(given).encode()
            with urllib.request.urlopen(f"{url}/{name}:predict", data) as answer:
                (row,) = json.load(answer)["predictions"]
            if "score" in row:
                probabilities = row["probabilities"]
                assert math.isclose(row["score"], max(probabilities), abs_tol=1e-6)
            if "tags" in row:
                _, expected = json.loads((folder / f"{name}.json").read_text("utf-8"))
                assert are_near(row, expected["answers"][0])
        with urllib.request.urlopen(f"{url}/classification/metadata") as answer:
            facts = json.load(answer)["metadata"]["signature_def"]["signature_def"]
        given = {"signature_name": "search", "instances": ["free cash"], "top": 2}
        place, data = f"{url}/embedding", json.dumps(given).encode()
        with urllib.request.urlopen(f"{place}:predict", data, timeout=60) as answer:
            (found,) = json.load(answer)["predictions"]
    assert len(found["texts"]) == 2 and found["texts"][0] in DOCUMENTS
    assert facts["serving_default"]["inputs"]["text"]["dtype"] == "DT_STRING"


def check_command_line(folder: Path) -> None:
    """Answer on the command line; what needs TensorFlow says so in one line."""
    place = str(folder / "classification")
    blocked = (
        "import runpy, sys; from check_exports import Blocked; "
        "sys.meta_path.insert(0, Blocked()); sys.argv[0] = 'bert-keras'; "
        "runpy.run_module('bert_keras', run_name='__main__')"
    )
    own = [sys.executable, "-c", blocked]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        here = Path(__file__).parent
        return subprocess.run([*own, *words], cwd=here, capture_output=True, text=True)

    done = run("predict", place, "free cash prize")
    assert json.loads(done.stdout)["probabilities"], done.stderr
    assert "classification" in run("info", place).stdout
    for words, message in (
        (("predict", place, "hi", "--set", "abstain_below=0.9"), "needs TensorFlow"),
        (("predict", str(folder), "hi"), "contains no checkpoint"),
    ):
        done = run(*words)
        lines = done.stderr.strip().splitlines()
        assert done.returncode == 2 and message in lines[-1], done.stderr


def check_imports(folder: Path) -> None:
    """Answer one text in a process of its own; it imports what it needs."""
    script = (
        "import sys; from bert_keras.cli.main import main; code = main(sys.argv[1:]); "
        "print(*sys.modules, file=sys.stderr); raise SystemExit(code)"
    )
    words = ["predict", str(folder / "classification"), "free cash prize"]
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    unused = {*HEAVY, *(f"bert_keras.{name}" for name in UNUSED)}
    assert not unused & set(done.stderr.split())


def check_further_commands(folder: Path) -> None:
    """Run the other verbs in this process."""
    from bert_keras.cli.main import main

    data, embedder, index = folder / "data", folder / "embedding", folder / "index.npz"
    rows, queries = data / "embedding.jsonl", data / "classification.jsonl"
    with tempfile.TemporaryDirectory() as place:
        mined, vectors = Path(place) / "mined.jsonl", Path(place) / "vectors.npz"
        for words in (
            ("evaluate", folder / "classification", queries, "--json"),
            ("evaluate", embedder, data / "collection", "--index", index, "--tune"),
            ("search", embedder, queries, "home", "--index", index, "--hybrid"),
            ("search", embedder, rows, "home", "--fuse", embedder),
            ("mine", embedder, "--pairs", rows, "--output", mined, "--range", "0:3"),
            ("features", embedder, queries, "--output", vectors),
        ):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                assert main([*map(str, words), "--quiet"]) == 0, words
            assert printed.getvalue() or mined.stat().st_size, words


if __name__ == "__main__":
    sys.meta_path.insert(0, Blocked())  # type: ignore[arg-type]
    given = Path(sys.argv[1]).resolve()
    for check in (
        check_answers,
        check_verbs,
        check_vectors,
        check_server,
        check_command_line,
        check_imports,
        check_further_commands,
    ):
        check(given)
        print(check.__name__, "passed", flush=True)
    assert not set(HEAVY) & set(sys.modules)
