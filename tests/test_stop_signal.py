"""`StopSignal`: a run leaves where it is saved, and handlers are as they were."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from bert_keras.stop_signal import RunStopped, StopSignal


@pytest.fixture(autouse=True)
def handlers() -> object:
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    yield
    assert {n: signal.getsignal(n) for n in before} == before


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_is_noted_and_then_obeyed(name: str) -> None:
    saved: list[int] = []
    with pytest.raises(RunStopped, match=f"stopped by {name}"), StopSignal() as stop:
        assert not stop.is_due()
        stop.leave()
        os.kill(os.getpid(), signal.Signals[name])
        stop.leave()  # nobody has been told to save yet
        assert stop.is_due()
        stop.leave(lambda: saved.append(1))
    assert saved == [1]


def test_work_that_is_made_again_is_left_at_once() -> None:
    with pytest.raises(RunStopped), StopSignal() as stop, stop.at_once():
        os.kill(os.getpid(), signal.SIGTERM)
        raise KeyError("never comes here")
    with pytest.raises(RunStopped), StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with stop.at_once():
            raise KeyError("never comes here")


def test_a_second_ctrl_c_ends_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), StopSignal() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_due()
        os.kill(os.getpid(), signal.SIGINT)
        raise KeyError("never comes here")


def test_another_thread_hears_of_no_signal() -> None:
    seen: list[bool] = []

    def work() -> None:
        with StopSignal() as stop:
            seen.append(stop.is_due())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
