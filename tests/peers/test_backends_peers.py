"""The encoder on JAX and torch equals the one on TensorFlow, and trains on JAX.

Keras takes its backend when it is imported, so each runs in a process of its own.
"""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from bert_keras.checkpoints import write_huggingface
from bert_keras.config import BertConfig

TOLERANCE = 2e-5
CONFIG = BertConfig(
    vocab_size=40,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=24,
    max_position_embeddings=16,
)
PADDED = {
    "token_ids": [[2, 7, 8, 9, 10, 3], [2, 30, 31, 3, 0, 0], [2, 3, 0, 0, 0, 0]],
    "segment_ids": [[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]],
    "padding_mask": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]],
}
PACKED = {  # the same three texts in two rows
    "token_ids": [[2, 7, 8, 9, 10, 3], [2, 30, 31, 3, 2, 3]],
    "segment_ids": [[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]],
    "padding_mask": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]],
    "position_ids": [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 0, 1]],
    "sequence_ids": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 2, 2]],
    "cls_positions": [0, 6, 10],
}

# Batches come from one .npz, outputs go into another.
FORWARD = """
    import sys
    import keras, numpy as np
    from bert_keras.encoder import BertEncoder

    folder, batches, outputs = sys.argv[1:]
    encoder = BertEncoder.from_pretrained(
        folder, outputs=("hidden_states", "attentions")
    )
    found = {"backend": np.array(keras.config.backend())}
    with np.load(batches) as file:
        for layout in ("padded", "packed"):
            scope = f"{layout}/"
            batch = {
                name.removeprefix(scope): file[name]
                for name in file.files
                if name.startswith(scope)
            }
            for key, value in encoder(batch).items():
                parts = value if isinstance(value, list) else [value]
                for index, part in enumerate(parts):
                    part = keras.ops.convert_to_numpy(part)
                    found[f"{layout}/{key}/{index}"] = part
    np.savez(outputs, **found)
"""

# Prints the losses of an encoder and head of the user's own, with dropout and without.
FIT = """
    import sys
    import keras, numpy as np
    from bert_keras.encoder import BertEncoder
    from bert_keras.heads import PooledHead
    from bert_keras.optimizers import AdamW

    folder, batches, rematerialize = sys.argv[1:]
    encoder = BertEncoder.from_pretrained(
        folder, rematerialize=rematerialize == "True", seed=1
    )
    names = ("token_ids", "segment_ids", "padding_mask")
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    logits = PooledHead(2, seed=2)(encoder(inputs)["pooled_output"])
    model = keras.Model(inputs, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(AdamW(0.01), loss=loss)
    with np.load(batches) as file:
        batch = {name: file[f"padded/{name}"] for name in names}
    labels = np.array([0, 1, 1])
    before = model.evaluate(batch, labels, verbose=0)
    history = model.fit(
        batch, labels, batch_size=3, epochs=8, shuffle=False, verbose=0
    ).history
    after = model.evaluate(batch, labels, verbose=0)
    print("LOSSES", keras.config.backend(), before, *history["loss"], after)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a model folder with random weights, made without any backend."""
    from bert_keras.checkpoints.names import TABLE

    rng = np.random.default_rng(0)
    arrays = {}
    for name in TABLE:
        if not name.startswith("bert/"):
            continue
        for index in range(CONFIG.num_hidden_layers if "#" in name else 1):
            mean = 1.0 if name.endswith("gamma") else 0.0
            values = rng.normal(mean, 0.2, shape_of(name)).astype("float32")
            arrays[name.replace("#", str(index))] = values
    path = tmp_path_factory.mktemp("model")
    config = {"architectures": ["BertModel"], **CONFIG.to_dict()}
    write_huggingface(path, arrays, config)
    return path


def shape_of(name):
    hidden, inner = CONFIG.hidden_size, CONFIG.intermediate_size
    rows = {
        "word_embeddings": CONFIG.vocab_size,
        "position_embeddings": CONFIG.max_position_embeddings,
        "token_type_embeddings": CONFIG.type_vocab_size,
    }
    last = name.rpartition("/")[2]
    if last in rows:
        return rows[last], hidden
    into = inner if "#/output/dense" in name else hidden
    out = inner if "intermediate" in name else hidden
    return (into, out) if last == "kernel" else (out,)


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    path = tmp_path_factory.mktemp("batches") / "batches.npz"
    layouts = {"padded": PADDED, "packed": PACKED}
    np.savez(
        path,
        **{
            f"{layout}/{name}": np.array(values, "int32")
            for layout, batch in layouts.items()
            for name, values in batch.items()
        },
    )
    return path


def run(script, backend, *arguments):
    """Run a script on a backend and return what it prints."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


@pytest.fixture(scope="module")
def outputs(folder, batches, tmp_path_factory):
    """Return a function of a backend to the outputs of the encoder on it."""
    found = {}

    def of(backend):
        if backend not in found:
            path = tmp_path_factory.mktemp(backend) / "outputs.npz"
            run(FORWARD, backend, folder, batches, path)
            with np.load(path) as file:
                found[backend] = {name: file[name] for name in file.files}
            assert found[backend].pop("backend") == backend
        return found[backend]

    return of


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_outputs_equal_those_on_tensorflow(backend, outputs):
    pytest.importorskip(backend)
    expected, found = outputs("tensorflow"), outputs(backend)
    assert set(found) == set(expected)
    assert len(found) == 2 * (1 + 1 + 3 + 2)
    errors = {name: np.abs(found[name] - expected[name]).max() for name in found}
    print("largest error", max(errors.values()))
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_packed_rows_equal_padded_ones(backend, outputs):
    pytest.importorskip(backend)
    found = outputs(backend)
    expected = found["padded/pooled_output/0"]
    np.testing.assert_allclose(
        found["packed/pooled_output/0"], expected, atol=TOLERANCE
    )
    tokens = found["packed/sequence_output/0"].reshape(-1, CONFIG.hidden_size)
    sizes = np.sum(PADDED["padding_mask"], axis=1)
    for row, (start, size) in enumerate(
        zip(PACKED["cls_positions"], sizes, strict=True)
    ):
        np.testing.assert_allclose(
            tokens[start : start + size],
            found["padded/sequence_output/0"][row, :size],
            atol=TOLERANCE,
        )


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_fit(backend, folder, batches):
    # Dropout is on: recomputation in the backward pass must draw the same masks.
    pytest.importorskip(backend)
    kept, again = (
        losses(run(FIT, backend, folder, batches, choice), backend)
        for choice in (False, True)
    )
    assert kept[-1] < kept[0] / 2, kept
    np.testing.assert_allclose(again, kept, rtol=1e-3)


def losses(printed, backend):
    word, used, *values = printed.splitlines()[-1].split()
    assert (word, used) == ("LOSSES", backend)
    assert np.isfinite(np.array(values, float)).all()
    return np.array(values, float)
