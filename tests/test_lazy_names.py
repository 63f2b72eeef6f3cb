"""What the first use of a public name prints, by `TF_CPP_MIN_LOG_LEVEL`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from conftest import ROOT

from bert_keras.lazy_names import quiet_imports

NOTE = "WARNING: All log messages before absl::InitializeLog() is called are written"
LINES = [
    NOTE,
    "I0000 00:00:1795938606.779453 7948 cudart_stub.cc:31] Could not find cuda drivers",
    "2026-11-29 08:00:00.123456: I tensorflow/core/port.cc:153] oneDNN is on.",
    "W0000 00:00:1795938606.779453 7948 computation_placer.cc:177] registered",
    "E0000 00:00:1795938606.779453 7948 cuda_dnn.cc:8310] Unable to register cuDNN",
    "F0000 00:00:1795938606.779453 7948 fatal.cc:1] fatal",
    "<string>:1: UserWarning: of Python",
]


@pytest.mark.parametrize(
    ("level", "dropped"),
    [(None, 0), ("0", 0), ("1", 3), ("2", 4), ("3", 5), ("loud", 0)],
)
def test_a_level_drops_the_messages_below_it(
    level: str | None,
    dropped: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delitem(sys.modules, "tensorflow_text", raising=False)
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    if level is not None:
        monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    with pytest.raises(ImportError), quiet_imports():
        os.write(2, "".join(f"{line}\n" for line in LINES).encode())
        raise ImportError  # which drops nothing more
    assert capfd.readouterr().err.splitlines() == LINES[dropped:]


def test_a_public_name_is_imported_quietly() -> None:
    code = "import bert_keras; bert_keras.load_predictor"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
