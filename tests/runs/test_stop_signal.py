"""`StopSignal`: a run ends where it is saved, and handlers are restored."""

from __future__ import annotations

import signal
import threading

import pytest

from bert_keras.runs.stop_signal import RunStopped, StopSignal


@pytest.fixture(autouse=True)
def handlers() -> object:
    # A shell that starts a job in the background lets it ignore SIGINT.
    given = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    yield
    assert {n: signal.getsignal(n) for n in before} == before
    signal.signal(signal.SIGINT, given)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_is_noted_and_then_obeyed(name: str) -> None:
    saved: list[int] = []
    with pytest.raises(RunStopped, match=f"stopped by {name}"), StopSignal() as stop:
        assert not stop.is_due()
        stop.leave()
        signal.raise_signal(signal.Signals[name])
        stop.leave()  # `is_due` has not returned true yet
        assert stop.is_due()
        stop.leave(lambda: saved.append(1))
    assert saved == [1]


def test_repeatable_work_is_interrupted_at_once() -> None:
    with pytest.raises(RunStopped), StopSignal() as stop, stop.at_once():
        signal.raise_signal(signal.SIGTERM)
        raise KeyError("never comes here")
    with pytest.raises(RunStopped), StopSignal() as stop:
        signal.raise_signal(signal.SIGTERM)
        with stop.at_once():
            raise KeyError("never comes here")


def test_an_interruption_is_told_as_it_is_whatever_it_crosses() -> None:
    told = "^stopped by SIGINT; the work so far is saved$"
    with (
        pytest.raises(RunStopped, match=told) as found,
        StopSignal() as stop,
        stop.at_once(),
    ):
        try:
            signal.raise_signal(signal.SIGINT)
        except RunStopped as error:  # as a layer of Keras does
            raise RuntimeError(f"Exception encountered in a layer: {error}") from None
    assert found.value.by_hand
    with pytest.raises(KeyError), StopSignal() as stop, stop.at_once():
        raise KeyError("an error of the work itself")


def test_a_second_ctrl_c_ends_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), StopSignal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_due()
        signal.raise_signal(signal.SIGINT)
        raise KeyError("never comes here")


def test_another_thread_receives_no_signal() -> None:
    seen: list[bool] = []

    def work() -> None:
        with StopSignal() as stop:
            seen.append(stop.is_due())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
