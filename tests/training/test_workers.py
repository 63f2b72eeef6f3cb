"""Several workers, over loopback, by the scripts that a cluster would run."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT, ROWS, thorough, write_encoder, write_tsv
from pretraining.test_data import TOKENIZER, write
from pretraining.test_pretrain import assert_close

from bert_keras.cli.main import main
from bert_keras.cli.options import config_of
from bert_keras.cli.parser import parse
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.runs.stop_signal import EXIT_CODE as STOPPED

CLUSTER = ROOT / "examples" / "cluster"
LOST = "bert-keras: another worker has ended or is unreachable ("
# A command whose workers exchange numbers, until the test ends one of them.
WORKER = """
import sys
from pathlib import Path
from bert_keras.cli import main, tasks
from bert_keras.errors import DataError
from bert_keras.runs.environment import load_tensorflow

def exchange(options):
    load_tensorflow()
    from bert_keras.distribution.strategy import find_strategy

    devices = find_strategy("multi-worker")
    folder, number = Path(sys.argv[1]), 0
    with devices.together():
        while True:
            number += devices.agree(1)
            if number == 3:
                (folder / f"up{devices.worker}").touch()
            if (folder / f"fail{devices.worker}").exists():
                raise DataError("has no rows", path="train.tsv")

tasks.VERBS["tasks"] = (tasks.add_tasks, exchange)
sys.exit(main.main(["tasks"]))
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return a command that pretrains, without the folder of the run."""
    folder = tmp_path_factory.mktemp("workers")
    (folder / "vocab").mkdir()
    TOKENIZER.save(folder / "vocab")
    write(folder / "data", masking="dynamic")
    words = f"pretrain --data {folder}/data --vocab {folder}/vocab --size 1/16/2 "
    words += "--set hidden_dropout_prob=0 --set attention_probs_dropout_prob=0 "
    words += "--steps 40 --batch-size 12 --checkpoint-every 4 --keep 99 "
    words += "--learning-rate 3e-3 --global-clipnorm 0.1"
    return shlex.split(words)


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("", 0))
        return [each.getsockname()[1] for each in found]


@contextlib.contextmanager
def two_workers(folder: Path) -> Iterator[list[subprocess.Popen]]:
    """Start two workers; give them when both have exchanged numbers."""
    cluster = {"worker": [f"localhost:{port}" for port in free_ports(2)]}
    with contextlib.ExitStack() as stack:
        workers = []
        for index in range(2):
            place = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            worker = subprocess.Popen(
                [sys.executable, "-c", WORKER, str(folder)],
                cwd=ROOT,
                env={**os.environ, "TF_CONFIG": json.dumps(place)},
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(worker)
            stack.callback(worker.kill)
            workers.append(worker)
        while not all((folder / f"up{index}").exists() for index in range(2)):
            assert all(worker.poll() is None for worker in workers)
            time.sleep(0.05)
        yield workers


@pytest.mark.parametrize(
    ("lost", "how"),
    [
        pytest.param(1, "killed", marks=pytest.mark.slow),
        thorough(0, "killed"),
        thorough(0, "error"),
    ],
)
def test_a_worker_that_ends_ends_its_peer(tmp_path: Path, lost: int, how: str) -> None:
    with two_workers(tmp_path) as workers:
        begin = time.perf_counter()
        if how == "killed":
            workers[lost].kill()
        else:
            (tmp_path / f"fail{lost}").touch()
        said = [worker.communicate(timeout=60)[1] for worker in workers]
    assert time.perf_counter() - begin < 30
    assert workers[1 - lost].returncode == os.EX_UNAVAILABLE == 69
    assert said[1 - lost].startswith(LOST) and said[1 - lost].count("\n") == 1
    if how == "error":
        assert workers[lost].returncode == 2
        assert said[lost] == "bert-keras: train.tsv: has no rows\n"


def start(command: list[str], output: Path) -> subprocess.Popen:
    (port,) = free_ports(1)
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", str(CLUSTER / "two_workers.sh"), *command, "--output", str(output)],
        env={
            **os.environ,
            "PATH": programs,
            "PORT": str(port),
            "PYTHONPATH": str(ROOT),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def children(process: subprocess.Popen) -> list[int]:
    """Return the processes that a script has started, in their order."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(number) for number in path.read_text().split()]


@pytest.mark.thorough
def test_a_killed_worker_ends_its_peer_and_the_job_resumes(
    command: list[str], tmp_path: Path
) -> None:
    run = tmp_path / "two"
    job = start(command, run)
    while not (run / "checkpoints" / "step-000000004").exists():
        assert job.poll() is None, job.communicate()[1][-3000:]
        time.sleep(0.01)
    os.kill(children(job)[1], signal.SIGKILL)
    begin = time.perf_counter()
    said = job.communicate(timeout=60)[1]
    assert time.perf_counter() - begin < 30
    assert job.returncode == os.EX_UNAVAILABLE
    assert said.count(LOST) == 1
    assert "Traceback" not in said
    assert not (run / "model").exists()

    job = start(command, run)
    said = job.communicate(timeout=300)[1]
    assert job.returncode == 0, said[-3000:]
    assert said.count("resuming after step") == 1  # the chief reports it
    for worker in (0, 1):
        assert f"strategy multi-worker: worker {worker} of 2, 2 replicas" in said
    assert main([*command, "--output", str(tmp_path / "one")]) == 0
    assert_close(run / "model", tmp_path / "one" / "model")


@pytest.mark.thorough
def test_fine_tuning_on_two_workers_is_that_on_one(tmp_path: Path) -> None:
    write_encoder(tmp_path / "encoder")
    rows = write_tsv(tmp_path / "rows.tsv", [("text", "label"), *(ROWS * 4)[:45]])
    words = f"train classification --encoder {tmp_path}/encoder --train {rows} "
    words += (
        f"--dev {rows} --batch-size 4 --epochs 3 --checkpoint-every 3 --max-length 24 "
    )
    words += "--learning-rate 3e-3 --weight-decay 0.1 --patience 3"
    command = shlex.split(words)
    output = tmp_path / "two"
    job = start(command, output)
    kept = tmp_path / ".two.run" / "checkpoints"
    while not (kept / "step-000000003").exists():
        assert job.poll() is None, job.communicate()[1][-3000:]
        time.sleep(0.01)
    os.kill(children(job)[1], signal.SIGTERM)  # only one is told to stop
    said = job.communicate(timeout=120)[1]
    assert job.returncode == STOPPED, said[-3000:]
    assert said.count("the work so far is saved") == 2 and not output.exists()
    steps = sorted(path.name for path in kept.iterdir())

    job = start(command, output)
    out, said = job.communicate(timeout=300)
    assert job.returncode == 0, said[-3000:]
    step = int(steps[-1].removeprefix("step-"))
    assert said.count(f"resuming after step {step} of 36") == 1  # the chief reports it
    for worker in (0, 1):
        assert f"strategy multi-worker: worker {worker} of 2, 2 replicas" in said
    assert out.count("Macro F1") == 2  # both return the scores
    assert sorted(os.listdir(tmp_path)) == ["encoder", "rows.tsv", "two"]
    assert main([*command, "--output", str(tmp_path / "one")]) == 0
    assert_close(output, tmp_path / "one")


def commands(name: str) -> list[list[str]]:
    """Return the words of the commands of ours that an example gives."""
    text = (CLUSTER / name).read_text(encoding="utf-8")
    if name.endswith(".yaml"):
        job: Any = yaml.safe_load(text)
        pod = job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
        container = pod["containers"][0]
        assert container["name"] == "tensorflow"
        return [container["command"] + container["args"]]
    code = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found = re.findall(r"bert-keras [^&;\n]*", code)
    return [shlex.split(each) for each in found]


@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("slurm.sh", "multi-worker"),
        ("tfjob.yaml", "multi-worker"),
        ("tpu_vm.sh", "tpu"),
    ],
)
def test_the_commands_of_the_examples_are_ours(name: str, strategy: str) -> None:
    (words,) = commands(name)
    assert words[0] == "bert-keras"
    config = config_of(parse(words[1:]), PretrainConfig)
    assert config.strategy == strategy
    assert config.batch_size % 32 == 0


def test_the_start_on_a_tpu_installs_all_that_is_needed() -> None:
    # Without dependencies, since TensorFlow's package has another name there.
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = re.findall(r"^[\w-]+", config["options"]["install_requires"], re.MULTILINE)
    script = (CLUSTER / "tpu_vm.sh").read_text()
    assert len(wanted) >= 9
    assert not [name for name in wanted if name not in script and name != "numpy"]


@pytest.mark.parametrize("name", ["slurm.sh", "tpu_vm.sh", "two_workers.sh"])
def test_the_scripts_are_bash(name: str) -> None:
    path = CLUSTER / name
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize(
    ("name", "code", "ended", "tries"),
    [
        ("slurm.sh", 0, 0, 1),
        ("slurm.sh", 2, 2, 1),
        ("slurm.sh", 75, 75, 1),
        ("slurm.sh", 69, 69, 5),
        ("tpu_vm.sh", 0, 0, 1),
        ("tpu_vm.sh", 2, 2, 1),
        ("tpu_vm.sh", 75, 75, 1),
        ("tpu_vm.sh", 1, 1, 20),
    ],
)
def test_the_scripts_distinguish_a_saved_run_from_a_failure(
    tmp_path: Path, name: str, code: int, ended: int, tries: int
) -> None:
    programs = tmp_path / "programs"
    (tmp_path / "bert" / "bin").mkdir(parents=True)
    (tmp_path / "bert" / "bin" / "activate").touch()
    programs.mkdir()
    for program in ("srun", "bert-keras", "scontrol", "python3", "pip", "sleep"):
        path = programs / program
        path.write_text(f'#!/bin/sh\necho "$0" >> {tmp_path}/called\nexit {code}\n')
        path.chmod(0o755)
    for program in ("python3", "pip", "sleep"):
        (programs / program).write_text("#!/bin/sh\n")
    done = subprocess.run(
        ["bash", str(CLUSTER / name)],
        env={
            "PATH": f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "HOME": str(tmp_path),
            "SLURM_JOB_ID": "17",
        },
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == ended, done.stderr
    called = [Path(line).name for line in (tmp_path / "called").read_text().split()]
    program = "srun" if name == "slurm.sh" else "bert-keras"
    assert called.count(program) == tries
    assert ("scontrol" in called) == (name == "slurm.sh" and code == 75)
