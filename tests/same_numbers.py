"""Compare the numbers of the working tree with those of another revision.

    python tests/same_numbers.py REVISION [NAME…]

With the code of either, on the same machine, this trains each task by each method and
from a teacher, and pretrains, with fixed seeds. It then answers from the model folder,
the SavedModel, an ONNX folder and a server. Weights and answers have to be equal to the
last bit. A line tells each difference, and the exit status is 1 if there is one. NAME
limits the runs, such as `classification`, `linear/regression` or `taught/`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
METHODS = {
    "finetune": (),  # all tasks
    "linear": ("classification", "multi-label", "regression"),
    "contrastive": ("classification", "multi-label"),
}
UPDATES = {"epochs": 2, "batch_size": 4}


def main(revision: str, *names: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        tree, found = Path(folder, "tree"), []
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--detach", str(tree), revision], check=True)
        try:
            for at in (tree, ROOT):
                found.append(_numbers_of(at, Path(folder, "out.json"), names))
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)
    before, after = found
    wrong = [name for name in before if before[name] != after.get(name)]
    for name in wrong:
        print(f"{name}: {before[name]} at {revision}, now {after.get(name)}")
    new = len(after.keys() - before.keys())
    print(f"{len(before) - len(wrong)} of {len(before)} numbers are equal; {new} new")
    return bool(wrong)


def _numbers_of(tree: Path, output: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Return what `numbers` yields with the code and the tests' cases of a tree."""
    paths = os.pathsep.join(map(str, (tree, tree / "tests")))
    command = [sys.executable, __file__, "--write", str(output), *names]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": paths})
    return json.loads(output.read_text("utf-8"))


def numbers(folder: Path, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield a digest by name, or the error in its place, of each run and answer."""
    from conftest import write_encoder
    from task_cases import cases_of, first_case

    from bert_keras.tasks import TASKS

    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    encoder = write_encoder(folder / "encoder", **dropout)
    for method, tasks in METHODS.items():
        for name in tasks or TASKS:
            if _is_chosen(f"{method}/{name}", names):
                made = folder / method / name
                yield from _trained(first_case(name), method, encoder, made)
    windows = {"pooling": "mean", "long": "windows", "max_windows": 3}
    for name in METHODS["contrastive"]:
        case, run = first_case(name), f"contrastive windows/{name}"
        if _is_chosen(run, names):
            task = dataclasses.replace(case.task, **windows)
            given = {"max_length": 8, "method": "contrastive"}
            yield run, _digest_or_error(_run, task, case, encoder, folder / run, given)
    for name in TASKS:
        for form, case in cases_of(name).items():
            run = f"taught/{name}, {form}"
            if _is_chosen(run, names):
                place = folder / "taught" / name / form
                yield run, _digest_or_error(_taught, case, encoder, place)
    for kind in ("pretrain", "pretrain taught"):
        if _is_chosen(kind, names):
            yield kind, _digest_or_error(_pretrained, encoder, folder / kind)


def _is_chosen(name: str, names: tuple[str, ...]) -> bool:
    return not names or any(each in name for each in names)


def _trained(
    case: Any, method: str, encoder: Path, output: Path
) -> Iterator[tuple[str, str]]:
    """Yield the digests of a trained model and of its answers."""
    from bert_keras import TrainConfig, export_model, load_model, train
    from bert_keras.inference.engine_export import export_to_engine

    name, model = f"{method}/{output.name}", output / "model"
    settings = UPDATES if method == "finetune" else {}
    rows = {role: list(cells) for role, cells in case.columns.cells.items()}
    config = TrainConfig(method=method, max_length=24, seed=3, **settings)

    def weights() -> str:
        train(case.task, encoder=encoder, train=rows, output=model, config=config)
        return _of_bytes(_model_file(model))

    def exported() -> str:
        export_model(load_model(model), output / "exported")
        return _answers(output / "exported", texts)

    def engine() -> str:
        export_to_engine(load_model(model), output / "onnx", format="onnx")
        return _answers(output / "onnx", texts)

    texts = list(zip(*case.others, strict=True)) if case.others[1:] else case.others[0]
    steps: dict[str, Callable[[], str]] = {
        "weights": weights,
        "predict": lambda: _answers(model, texts),
        "SavedModel": exported,
        "ONNX": engine,
        "serve": lambda: _served(model, texts),
    }
    for step, function in steps.items():
        yield f"{name} {step}", _digest_or_error(function)


def _run(
    task: Any, case: Any, encoder: Path, output: Path, given: dict[str, Any]
) -> str:
    """Return the digest of the weights of a model trained on the rows of a case."""
    from bert_keras import TrainConfig, train

    rows = {role: list(cells) for role, cells in case.columns.cells.items()}
    config = TrainConfig(**{"max_length": 24, "seed": 3, **given})
    train(task, encoder=encoder, train=rows, output=output, config=config)
    return _of_bytes(_model_file(output))


def _taught(case: Any, encoder: Path, output: Path) -> str:
    """Return the digest of a student whose teacher has learned the same rows."""
    teacher = output / "teacher"
    given = {"method": "finetune", **UPDATES}
    _run(case.task, case, encoder, teacher, given)
    given["teacher"] = str(teacher)
    return _run(case.task, case, encoder, output / "student", given)


def _answers(folder: Path, texts: Any) -> str:
    from bert_keras import load_predictor

    return _of_rows(load_predictor(folder).predict(texts))


def _served(model: Path, texts: Any) -> str:
    from bert_keras.serving import Client, ServeConfig, Server

    config = ServeConfig(port=0, grpc_port=0)
    # A server may refuse an empty text.
    some = [each for each in texts if each and "" not in (each, *each)]
    with Server([f"model={model}"], config=config, is_quiet=True).running() as server:
        return _of_rows(Client(server.url, model="model").predict(some))


def _pretrained(encoder: Path, output: Path) -> str:
    from bert_keras.cli.main import main

    output.mkdir(parents=True)
    corpus, data, run = output / "corpus.txt", output / "data", output / "run"
    lines = ["see you at six. lunch at home.", "win cash now. a free prize.", ""]
    corpus.write_text("\n\n".join(lines * 20), encoding="utf-8")
    vocab = ("--vocab", str(encoder))
    settings = ("--steps", "4", "--batch-size", "4", "--seed", "3")
    taught = []
    if output.name.endswith("taught"):
        student = ("--teacher", run / "model", "--keep-layers", "0", *settings)
        last = ("pretrain", "--data", data, "--output", run / "student", *student)
        taught = [last]
    for command in (
        ("pretraining-data", corpus, *vocab, "--output", data, "--max-length", "24"),
        ("pretrain", "--data", data, *vocab, "--size", "1/16/2", "--output", run)
        + ("--held-out", data, *settings),
        *taught,
    ):
        if code := main(list(map(str, command))):
            return f"exit status {code}"
    return _of_bytes(_model_file((run / "student" if taught else run) / "model"))


def _model_file(folder: Path) -> bytes:
    """Return the tensors of a model folder without the header's metadata."""
    content = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    return json.dumps(header, sort_keys=True).encode() + content[8 + size :]


def _of_rows(rows: Any) -> str:
    return _of_bytes(json.dumps(rows, default=_plain, sort_keys=True).encode())


def _plain(value: Any) -> Any:
    return value.tolist()


def _of_bytes(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _digest_or_error(function: Callable[..., str], *given: Any) -> str:
    """Return a digest, or the message of an error, which has to stay the same, too."""
    from bert_keras import BertKerasError

    try:
        return function(*given)
    except BertKerasError as error:
        return str(error).splitlines()[0]


def _write(output: str, *names: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, str] = {}
        for name, value in numbers(Path(folder), names):
            print(f"{name}: {value}", file=sys.stderr, flush=True)
            found[name] = value.replace(folder, "FOLDER")
    Path(output).write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    first, *others = sys.argv[1:]
    if first == "--write":
        del sys.path[0]  # the folder of this file; the cases are those of the tree
        _write(*others)
    else:
        sys.exit(main(first, *others))
