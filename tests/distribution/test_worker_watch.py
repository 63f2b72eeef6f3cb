"""Workers that watch each other: one that is gone ends the others, with one line.

The workers here are processes that import no TensorFlow and pass the number that they
agree on through a file.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

from bert_keras.distribution.worker_watch import EXIT_CODE

WORKER = """
import contextlib, json, os, sys, threading, time, types
from pathlib import Path
from bert_keras.distribution.worker_watch import WorkerWatch

worker, workers, folder, seconds, how = sys.argv[1:]
worker, place = int(worker), Path(folder) / "number"

def agree(number):
    if worker == 0:
        place.with_name("new").write_text(str(number))
        place.with_name("new").rename(place)
    while not place.exists():
        time.sleep(0.01)
    number = int(place.read_text())
    place.with_name(f"met{worker}").touch()  # as an all-reduce, which waits for all
    while not all(place.with_name(f"met{n}").exists() for n in range(int(workers))):
        time.sleep(0.01)
    return number

devices = types.SimpleNamespace(
    worker=worker, workers=int(workers), is_chief=worker == 0, agree=agree,
    host=os.environ.get("HOST", "localhost"),
)
def finish(most):  # as a checkpoint that is being written
    written = Path(folder) / f"written{worker}"
    while how == "write" and not written.exists():
        time.sleep(0.01)

def left(address):  # what a run that is over has left open
    names = [thread.name for thread in threading.enumerate()]
    place = "/proc/self/fd/"
    files = [os.path.realpath(place + name) for name in os.listdir(place)]
    sockets = sum("socket:" in file for file in files)
    facts = {"threads": names.count("workers"), "sockets": sockets, "at": address}
    (Path(folder) / f"left{worker}").write_text(json.dumps(facts))

watch = WorkerWatch(devices)
with contextlib.ExitStack() as stack:
    address = []
    stack.callback(left, address)
    stack.enter_context(watch)
    if worker == 0 and watch._listener is not None:
        address += watch._listener.getsockname()[:1]
    watch.finish = finish
    (Path(folder) / f"up{worker}").touch()
    while not all((Path(folder) / f"up{n}").exists() for n in range(int(workers))):
        time.sleep(0.01)
    time.sleep(float(seconds))
    if how == "write":
        (Path(folder) / f"written{worker}").touch()
    if how in ("raise", "write"):
        raise SystemExit(3)
"""


def start(folder: Path, plans: list[tuple[float, str]]) -> list[subprocess.Popen]:
    """Start a worker for each plan: how long it works, and how it ends."""
    found = []
    for worker, (seconds, how) in enumerate(plans):
        words = [str(worker), str(len(plans)), str(folder), str(seconds), how]
        command = [sys.executable, "-c", WORKER, *words]
        found.append(
            subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        )
    while not all((folder / f"up{n}").exists() for n in range(len(plans))):
        assert all(process.poll() is None for process in found)
        time.sleep(0.01)
    time.sleep(0.3)  # the chief has taken the connections
    return found


def ended(process: subprocess.Popen, seconds: float = 20) -> tuple[int, str]:
    """Return exit code and last words of a worker."""
    _, said = process.communicate(timeout=seconds)
    return process.returncode, said


@pytest.mark.parametrize("killed", [0, 2])
def test_a_worker_that_is_killed_ends_the_others(tmp_path: Path, killed: int) -> None:
    workers = start(tmp_path, [(60, "leave")] * 3)
    begin = time.perf_counter()
    workers[killed].send_signal(signal.SIGKILL)
    others = [worker for n, worker in enumerate(workers) if n != killed]
    for worker in others:
        code, said = ended(worker)
        assert code == EXIT_CODE
        assert said.count("\n") == 1
        assert "has ended, so this one ends, too" in said
    assert time.perf_counter() - begin < 10
    ended(workers[killed])


def test_an_error_in_one_worker_ends_the_others(tmp_path: Path) -> None:
    workers = start(tmp_path, [(60, "leave"), (0.5, "raise")])
    assert ended(workers[1])[0] == 3
    code, said = ended(workers[0])
    assert code == EXIT_CODE
    assert said.startswith("bert-keras: worker 1 has ended")


def test_workers_that_fail_together_tell_their_own_ends(tmp_path: Path) -> None:
    # As where a loss is not finite, which all of them see.
    workers = start(tmp_path, [(1.0, "raise")] * 3)
    assert [ended(worker) for worker in workers] == [(3, "")] * 3


def test_the_chief_writes_to_the_end_and_tells_its_own_error(tmp_path: Path) -> None:
    workers = start(tmp_path, [(4.0, "write"), (0.5, "raise")])
    time.sleep(2.5)  # longer than workers wait for one another
    assert workers[0].poll() is None
    assert workers[1].poll() is None  # its end would make a scheduler kill the chief
    assert [ended(worker) for worker in workers] == [(3, "")] * 2
    assert (tmp_path / "written0").exists()


def test_what_is_being_written_is_finished_when_a_worker_dies(tmp_path: Path) -> None:
    workers = start(tmp_path, [(2.5, "write"), (60, "leave")])
    workers[1].send_signal(signal.SIGKILL)
    ended(workers[1])
    code, said = ended(workers[0])
    assert (tmp_path / "written0").exists()
    assert code in (3, EXIT_CODE) and said.count("\n") <= 1


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("how", ["leave", "raise"])
def test_the_end_of_a_run_closes_its_sockets_and_its_thread(
    tmp_path: Path, how: str
) -> None:
    for worker in start(tmp_path, [(0.5, how)] * 2):
        ended(worker)
    facts = [json.loads((tmp_path / f"left{n}").read_text()) for n in range(2)]
    # The chief listens at the address of the cluster, not on all interfaces.
    assert facts[0].pop("at") in (["127.0.0.1"], ["::1"])
    assert [(each["threads"], each["sockets"]) for each in facts] == [(0, 0)] * 2


def test_an_address_that_is_no_interface_here_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST", "192.0.2.1")  # of RFC 5737: nobody's
    told = [ended(worker) for worker in start(tmp_path, [(0.1, "leave")] * 2)]
    assert told[1] == (0, "")
    assert told[0][0] == 0
    assert told[0][1].startswith("bert-keras: workers cannot be watched from 192.0.2.1")
    assert told[0][1].count("\n") == 1


def test_workers_that_are_done_take_their_leave(tmp_path: Path) -> None:
    workers = start(tmp_path, [(2.0, "leave"), (0.1, "leave"), (1.0, "leave")])
    assert [ended(worker) for worker in workers] == [(0, "")] * 3
