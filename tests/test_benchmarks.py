"""Benchmarks run whole at a tiny size."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.thorough
def test_memory() -> None:
    words = "--size tiny --batch 2 --length 8 --way plain".split()
    command = [sys.executable, ROOT / "benchmarks/memory.py", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert json.loads(done.stdout)["seconds"] > 0
