"""Which form of a model to serve on this machine: `bench` measures each.

A form is a model folder or an export. Each is exported, measured and served in
processes of its own, one after the other. This module needs no TensorFlow; the process
that measures a form is `python -m bert_keras.serving.forms`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert_keras.checkpoints import resolve
from bert_keras.config import KEY
from bert_keras.data.columns import Columns
from bert_keras.errors import BertKerasError, ConfigError, DataError, needs, one_line
from bert_keras.exports.saved_model_folder import ANSWERS, EXTRA, find_saved_model
from bert_keras.files.json_file import read_json
from bert_keras.inference.predictor import load_predictor
from bert_keras.inference.session import check_installed, find_engine
from bert_keras.runs.environment import processor_features
from bert_keras.runs.notes import collected, say_once
from bert_keras.runs.progress import report
from bert_keras.serving.client import AsyncClient
from bert_keras.settings import (
    HEADER,
    MAX_DROP,
    check_number,
    check_whole_number,
)
from bert_keras.tasks.base import Task
from bert_keras.tasks.protocols import text_specs, texts_of

FOLDER = "folder"
_ALIKE = 0.95  # of the best speed; so fast ones count as equal, and the first is taken
_SPEED = "served_texts_per_second"
_TEXTS, _RUNS = 256, 20  # texts without `data`; of one text
_WORDS = "the meeting is on monday at noon and lunch follows for all of us".split()
_PATIENCE = 300.0  # seconds until a server answers
_EX_DATAERR = 65  # `os.EX_DATAERR`, which Windows lacks


class Form(NamedTuple):
    """A form of a model.

    Args:
        kind: `folder`, `saved_model`, `onnx` or `openvino`.
        is_int8: whether it computes in int8.
        path: where it is; `None` if it has to be exported.
    """

    kind: str
    is_int8: bool = False
    path: str | None = None

    @property
    def name(self) -> str:
        words = (self.kind, "int8" if self.is_int8 else "", self.path or "")
        return " ".join(filter(None, words))

    @property
    def options(self) -> str:
        """The options of `export` that write it."""
        int8 = " --int8 --int8-only" if self.is_int8 else ""
        texts = " --calibrate FILE" if self.needs_texts else ""
        return f"--format {self.kind}{int8}{texts}"

    @property
    def needs_texts(self) -> bool:
        """Whether `bench` calibrates it with texts when it exports it."""
        return self.is_int8 and self.kind == "openvino" and self.path is None


# The exports that are made of a model folder.
MADE = (
    *map(Form, ("saved_model", "onnx", "openvino")),
    *(Form(kind, is_int8=True) for kind in ("onnx", "openvino")),
)


class Bench(NamedTuple):
    """What `bench` returns.

    Attributes:
        rows: for each form its `form` and `path`, and what was measured:
            `milliseconds` of one short text in a process, `texts_per_second` of many,
            `served_texts_per_second` under the clients, `memory_mb` of the server,
            `disk_mb`, and with labels the task's main score by its name; `None` where
            it could not be measured, with the `reason`.
        advice: lines that name the form to take, by what, and its commands.
    """

    rows: list[dict[str, Any]]
    advice: list[str]


def bench(
    model: str,
    exports: Sequence[str] = (),
    *,
    clients: int = 32,
    data: str | None = None,
    calibrate: str | None = None,
    columns: Mapping[str, str] | None = None,
    header: str = HEADER[0],
    max_drop: float = MAX_DROP.default,
    seconds: float = 3.0,
) -> Bench:
    """Measure the forms of a model on this machine, and name the ones to take.

    Args:
        model: a model folder, of which all forms are made in a temporary folder unless
            `exports` are given; or an export.
        exports: further forms, such as what `export` wrote.
        clients: of a server; each sends its next text when it has its answer.
        data: a file with the texts to measure with; labelled rows are scored, too.
        calibrate: a file with texts that calibrate int8 for OpenVINO, only without
            `exports`; by default `data`.
        columns, header: of both files, as in `evaluate`.
        max_drop: how much lower than the folder's the score of the form to take may be,
            as for `export`.
        seconds: that each speed is measured, at least.

    Raises:
        ConfigError: an argument is out of range, or an export is of another task.
        DataError: the rows of `data` cannot be read.
    """
    check_whole_number("clients", clients, least=1)
    MAX_DROP.check(max_drop)
    check_number("seconds", seconds, least=0, most=3600)
    forms = [_form_of(path) for path in dict.fromkeys((model, *exports))]
    task = _task_at(forms[0])
    for form in forms[1:]:
        other = _task_at(form)
        if task and other and other != task:
            raise ConfigError(
                f"`exports` must be of the task {task}, as {model}; received "
                f"{form.path}, which is of {other}"
            )
    with needs("`bench`", extra="client", runtime_extra="client"):
        import httpx  # noqa: F401
    if forms == [Form(FOLDER, path=model)]:
        forms += MADE
    elif calibrate is not None:
        raise ConfigError(
            "`calibrate` is for the forms that `bench` makes of a model folder alone; "
            f"received {calibrate} with {', '.join(form.name for form in forms)}"
        )
    rows, found = [], []
    reading = {"columns": dict(columns or {}), "header": header}
    with tempfile.TemporaryDirectory(prefix="bert-keras-") as place:
        for number, form in enumerate(forms, 1):
            report(f"{number} of {len(forms)}: {form.name}")
            row: dict[str, Any] = {"form": form.name, "path": form.path}
            rows.append(row)
            try:
                texts = calibrate or data
                path = form.path or _made(model, form, texts, Path(place), reading)
                row["disk_mb"] = _size(path) / 1e6
                found.append(_measured(path, data, seconds, reading))
                row |= found[-1]["row"]
                row |= _served(path, found[-1], clients, seconds)
                report(
                    f"{form.name}: {row['milliseconds']:.1f} ms for one text, "
                    f"{row[_SPEED]:,.0f} texts/s served"
                )
            except DataError:  # no other form could read the rows
                raise
            except (BertKerasError, OSError) as error:
                row["reason"] = one_line(error)
    score, allowed = "", 0.0
    if scored := [each for each in found if each["score"]]:
        score, allowed = scored[0]["score"], max_drop * scored[0]["most_score"]
    texts = data if calibrate is None and not score else calibrate
    unscored = found[0]["unscored"] if found else ""
    advice = _advice(model, forms, rows, clients, score, allowed, texts, unscored)
    made = [row for form, row in zip(forms, rows, strict=True) if form.needs_texts]
    if calibrate in (None, data) and any(score in row for row in made):
        advice.append(
            f"openvino int8 was calibrated with the scored rows of {data}, so its "
            "score may be too high: give other texts, such as training rows "
            "(`--calibrate`)"
        )
    return Bench(rows, advice)


def _form_of(path: str) -> Form:
    """Return the form that is at a path."""
    kind = find_engine(path)
    if kind is None:
        return Form("saved_model" if find_saved_model(path) else FOLDER, path=path)
    record = read_json(Path(path) / ANSWERS)
    return Form(kind, record.get("precision") == "int8", path)


def _task_at(form: Form) -> str | None:
    """Return the task that the files of a form name; `None` if they do not."""
    place = find_saved_model(form.path or "") or Path(form.path or "")
    files = {FOLDER: "config.json", "saved_model": f"{EXTRA}/{ANSWERS}"}
    file = place / files.get(form.kind, ANSWERS)
    record = read_json(file) if file.is_file() else {}
    if form.kind == FOLDER:
        record = record.get(KEY)
    task = record.get("task") if isinstance(record, dict) else None
    return task if isinstance(task, str) else None


def _made(
    model: str, form: Form, texts: str | None, place: Path, reading: Mapping[str, Any]
) -> str:
    """Return the folder of a new export; `texts` is a file that calibrates it.

    `reading` are `columns` and `header` of the file, as for `Task.read`.
    """
    if form.kind in ("onnx", "openvino"):
        check_installed(form.kind)
    words = form.options.split()
    if "FILE" in words:
        words[words.index("FILE")] = texts or str(_sample_file(model, place))
        if texts:
            words += ["--header", reading["header"]]
            for role, column in reading["columns"].items():
                words += ["--column", f"{role}={column}"]
    folder = place / form.name.replace(" ", "-")
    _run("bert_keras", "export", model, folder, *words, "--quiet")
    return str(folder)


def _sample_file(model: str, place: Path) -> Path:
    """Write some texts that calibrate int8; return the file."""
    from bert_keras.models.folder import Folder

    task = Folder.open(model).task()
    items = [[x] if isinstance(x, str) else x for x in _samples(task)]
    rows = [json.dumps(dict(zip(task.roles, x, strict=True))) for x in items]
    path = place / "texts.jsonl"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def _size(path: str) -> int:
    """Return the bytes of the files of a form; of versions, of the newest."""
    folder = find_saved_model(path) or resolve(path)
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def _run(module: str, *words: Any) -> str:
    """Run a module in a process of its own, and return what it prints.

    Raises:
        DataError: `measure` cannot read the rows.
        BertKerasError: it fails; the message is its last line.
    """
    command = [sys.executable, "-m", module, *map(str, words)]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True)
    if done.returncode == _EX_DATAERR:
        raise DataError(_last_line(done.stderr))
    if done.returncode:
        raise BertKerasError(_last_line(done.stderr) or f"exit {done.returncode}")
    return done.stdout


def _environment() -> dict[str, str]:
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}


def _last_line(printed: str) -> str:
    lines = printed.strip().splitlines()
    return lines[-1].removeprefix("bert-keras: ") if lines else ""


def _measured(
    path: str, data: str | None, seconds: float, reading: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what `measure` returns in a process of its own."""
    words = [path, str(seconds)]
    if data is not None:
        words += [data, json.dumps(reading)]
    found: dict[str, Any] = json.loads(_run(__name__, *words).splitlines()[-1])
    return found


def measure(
    path: str, seconds: float, data: str | None = None, reading: str = "{}"
) -> dict[str, Any]:
    """Return the speeds of a form in this process, its score, and the texts.

    `reading` is how the file is read, as in `_made`, in JSON.

    Returns:
        `row` for the table, `score` and `most_score` (name and scale of the task's main
        score; no name without labels), `unscored` (why there are none), `items` and the
        number of `roles` of each.
    """
    predictor = load_predictor(path)
    task, rows, unscored = predictor.model.task, None, ""
    items = _samples(task)
    if data is not None:
        rows, unscored = _rows(task, data, json.loads(reading))
        parts = texts_of(task, rows)
        items = [*parts[0]] if len(parts) == 1 else [*zip(*parts, strict=True)]
        rows = None if unscored else rows
    by_length = sorted(items, key=lambda item: len(str(item)))
    short = by_length[len(items) // 4]
    predictor.predict(items[:32])
    for _ in range(3):
        predictor.predict([short])
    alone: list[float] = []
    while len(alone) < _RUNS or sum(alone) < seconds / 3:
        started = time.perf_counter()
        predictor.predict([short])
        alone.append(time.perf_counter() - started)
    done, started = 0, time.perf_counter()
    while (spent := time.perf_counter() - started) < seconds or not done:
        some = items[:_TEXTS]
        predictor.predict(some)
        done += len(some)
    row: dict[str, Any] = {
        "milliseconds": 1000 * statistics.median(alone),
        "texts_per_second": done / spent,
    }
    score = ""
    if rows is not None:
        scores = task.score(rows, predictor.answers(rows))
        if task.best_score in scores:  # not of pairs without similarities
            score = task.best_score
            row[score] = float(scores[score])
    return {
        "row": row,
        "score": score,
        "most_score": task.most_score or 1.0,
        "unscored": unscored,
        "items": items[:_TEXTS],
        "roles": len(next(iter(text_specs(task).values()))),
    }


def _rows(task: Task, data: str, reading: Mapping[str, Any]) -> tuple[Columns, str]:
    """Return the rows of a file, and why they have no labels, if they have none."""
    try:
        return task.read(data, **reading), ""
    except DataError as error:
        return task.read(data, roles=task.roles, **reading), str(error)


def _samples(task: Task) -> list[Any]:
    """Return different texts of 5 to 60 words, as `predict` takes them."""
    draw = random.Random(0)

    def text(words: int) -> str:
        return " ".join(draw.choices(_WORDS, k=words))

    specs = next(iter(text_specs(task).values()))
    items = []
    for row in range(_TEXTS):
        words = 5 + 55 * (row % 32) // 31
        parts = [text(words) if x.rank == 1 else text(words).split() for x in specs]
        items.append(parts[0] if len(parts) == 1 else tuple(parts))
    return items


def _served(
    path: str, found: Mapping[str, Any], clients: int, seconds: float
) -> dict[str, Any]:
    """Return the speed of `serve` under clients, and its memory."""
    items = [tuple(x) if found["roles"] > 1 else x for x in found["items"]]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "bert_keras", "serve", f"bench={path}", "--quiet"]
    command += ["--no-grpc", "--port", url.rpartition(":")[2]]
    command += ["--max-requests", str(max(256, 2 * clients))]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, env=_environment(), stdout=subprocess.DEVNULL, stderr=errors
        )
        try:
            if not _is_ready(url, process):
                errors.seek(0)
                raise BertKerasError(_last_line(errors.read()) or "serve: no answer")
            with collected(shown=False) as notes:
                rate = asyncio.run(_rate(url, items, clients, seconds))
            if any("truncated" in note for note in notes):
                say_once(
                    "some texts are truncated: the model does not read all of them"
                )
            memory = _resident_mb(process.pid)
        finally:
            process.terminate()
            process.wait()
    return {_SPEED: rate, "memory_mb": memory}


def _is_ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Wait until a server answers; return whether it does."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{url}/v2/health/ready", timeout=60).close()  # noqa: S310
            return True
        time.sleep(0.05)
    return False


async def _rate(url: str, items: Sequence[Any], clients: int, seconds: float) -> float:
    """Return the texts per second of clients that each wait for their answer."""
    given = itertools.cycle(items)
    limits: dict[str, Any] = {"batch_size": 1, "concurrency": clients, "timeout": 120}
    async with AsyncClient(url, model="bench", **limits) as client:
        await client.predict([*itertools.islice(given, 2 * clients)])  # warms up
        done, started = 0, time.perf_counter()
        while (spent := time.perf_counter() - started) < seconds or not done:
            some = [*itertools.islice(given, 8 * clients)]
            await client.predict(some)
            done += len(some)
        return done / spent


def _resident_mb(process: int) -> float | None:
    """Return the resident memory of a process; `None` where the system hides it."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/status").read_text("ascii").splitlines()
        line = next(line for line in lines if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024 / 1e6
    return None


def _advice(
    model: str,
    forms: Sequence[Form],
    rows: Sequence[Mapping[str, Any]],
    clients: int,
    score: str,
    allowed: float,
    texts: str | None = None,
    unscored: str = "",
) -> list[str]:
    """Return lines that tell which form to take for what, and where int8 is slower.

    Args:
        model: what was given.
        forms: of the rows.
        rows: of the table.
        clients: of the server.
        score: the name of the task's main score; empty without labels.
        allowed: how much lower than the first row's it may be.
        texts: the file that calibrates int8 in the commands, if one is known.
        unscored: why the rows have no labels, if some were given.
    """
    pairs = [*zip(forms, rows, strict=True)]
    speeds = {form: row[_SPEED] for form, row in pairs if row.get(_SPEED)}
    scores = {form: row[score] for form, row in pairs if score in row}
    least = next(iter(scores.values()), 0.0) - allowed
    lines = []
    # Without labels, nobody knows how well int8 answers.
    able = [x for x in speeds if (scores[x] >= least if score else not x.is_int8)]
    if able:
        most = max(speeds[form] for form in able)
        best = next(form for form in able if speeds[form] >= _ALIKE * most)
        times = {form: row["milliseconds"] for form, row in pairs if form in able}
        quick = min(times, key=times.__getitem__)
        many = f"the most texts/s, under {clients} clients"
        one = "the least time for one text, in a process"
        uses = {f"for {many}": best, f"for {one}": quick}
        if quick is best:
            uses = {f"for {many}, and {one}": best}
        for use, form in uses.items():
            why = f"{speeds[form]:,.0f} texts/s, {times[form]:.1f} ms for one text"
            if score:
                why += f", {score} {scores[form]:.4f}"
            commands = _commands(model, form, texts)
            lines.append(f"{use}, take {form.name} ({why}): {commands}")
    if not score and any(form.is_int8 for form in speeds):
        line = "int8 is not chosen without a score: give labelled rows (`--data`)"
        lines.append(f"{line}; {unscored}" if unscored else line)
    for form, speed in speeds.items():
        exact = [v for x, v in speeds.items() if x.kind == form.kind and not x.is_int8]
        if form.is_int8 and exact and speed < min(exact):
            line = f"{form.name} serves fewer texts/s than float32 on this machine"
            features = processor_features()
            if features["avx2"] and not features["avx512_vnni"]:
                line += ", whose processor has no VNNI instructions"
            lines.append(line)
    return lines


def _commands(model: str, form: Form, texts: str | None) -> str:
    """Return the commands that serve a form."""
    if form.path is not None:
        return f"bert-keras serve {shlex.quote(form.path)}"
    options = form.options.replace("FILE", shlex.quote(texts or "FILE"))
    export = f"bert-keras export {shlex.quote(model)} EXPORT {options}"
    return f"{export}; bert-keras serve EXPORT"


if __name__ == "__main__":
    try:
        print(json.dumps(measure(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])))
    except DataError as error:
        print(error, file=sys.stderr)
        sys.exit(_EX_DATAERR)
    except BertKerasError as error:
        sys.exit(str(error))
