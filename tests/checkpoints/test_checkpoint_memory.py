"""Reading a checkpoint needs at most 1.3 times its size in memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

from bert_keras.checkpoints import write_google, write_huggingface
from bert_keras.checkpoints.keras_hub import write_keras_hub
from bert_keras.checkpoints.matching import encoder_shapes
from bert_keras.checkpoints.model_garden import write_model_garden
from bert_keras.config import BertConfig

# 108 MB, of large matrices as in BERT-large.
CONFIG = BertConfig(
    vocab_size=2_000,
    hidden_size=1_024,
    num_hidden_layers=2,
    num_attention_heads=16,
    intermediate_size=4_096,
    max_position_embeddings=64,
    hidden_act="gelu_new",
)
MEASURE = """
import sys
from bert_keras.checkpoints import read_checkpoint
if sys.argv[2] in ("google", "model-garden"):
    import google_crc32c
elif sys.argv[2] == "keras-hub":
    import h5py
else:
    import safetensors
def peak():  # of this program alone: `getrusage` counts what started it, too
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
before = peak()
arrays = dict(read_checkpoint(sys.argv[1]).arrays)
print((peak() - before) / sum(array.nbytes for array in arrays.values()))
"""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs Linux")
@pytest.mark.parametrize(
    "origin", ["huggingface", "keras-hub", "google", "model-garden"]
)
@pytest.mark.slow
def test_all_weights_at_once(origin: str, tmp_path: Path) -> None:
    arrays = {n: np.ones(s, "float32") for n, s in encoder_shapes(CONFIG).items()}
    writers = {
        "google": write_google,
        "keras-hub": write_keras_hub,
        "model-garden": write_model_garden,
    }
    write = writers.get(origin, write_huggingface)
    write(tmp_path, arrays, {**CONFIG.to_dict(), "architectures": ["BertModel"]})
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) > 100_000_000
    command = [sys.executable, "-c", MEASURE, str(tmp_path), origin]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    taken = float(done.stdout)
    print(f"{origin}: {taken:.2f} times the size")
    assert 0.9 < taken <= 1.3
