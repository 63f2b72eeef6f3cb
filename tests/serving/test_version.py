"""A version answers while its graphs are traced."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_keras.serving.config import ServeConfig
from bert_keras.serving.signatures import Signature, TokenSignature
from bert_keras.serving.version import Version

TEXTS = [b"win cash n\xc3\xb6w", b"see you at six", b""]


def answers(version: Version) -> dict[str, Any]:
    return version.submit(version.signature(""), [TEXTS]).result(timeout=60)


@pytest.mark.slow
def test_a_version_answers_before_its_graphs_are_traced(
    spam_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_start, trace = threading.Event(), TokenSignature.warm_up

    def waiting(self: TokenSignature, parts: Any) -> None:
        may_start.wait()
        trace(self, parts)

    monkeypatch.setattr(TokenSignature, "warm_up", waiting)
    version = Version(str(spam_folder), 1, config=ServeConfig(), seen=lambda *_: None)
    try:
        before = answers(version)
        may_start.set()
        version.wait_for_warm_up()
        after = answers(version)
    finally:
        may_start.set()
        version.drain()
    assert before.keys() == after.keys()
    assert before["label"].tolist() == after["label"].tolist()
    found, wanted = (each["probabilities"] for each in (before, after))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_a_failed_warm_up_is_raised(
    spam_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Signature, parts: Any) -> None:
        raise ValueError("no such op")

    monkeypatch.setattr(TokenSignature, "warm_up", broken)
    version = Version(str(spam_folder), 1, config=ServeConfig(), seen=lambda *_: None)
    with pytest.raises(ValueError, match="no such op"):
        version.wait_for_warm_up()
    version.drain()
