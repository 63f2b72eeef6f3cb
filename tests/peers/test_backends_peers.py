"""Encoder and BiLSTM on JAX and torch equal those on TensorFlow; training on both.

The process of JAX cannot import TensorFlow: `model/` needs Keras and NumPy alone.
Keras chooses its backend at import, so each runs in a separate process.
"""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from conftest import ROOT, thorough, write_encoder

from bert_keras.checkpoints import write_huggingface
from bert_keras.config import BertConfig
from bert_keras.inference.predictor import load_predictor

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

LAYOUTS = {"padded": PADDED, "packed": PACKED}

# Batches come from one .npz; the encoder's outputs, and the losses of a classifier that
# is trained upon it with dropout, go into another.
SCRIPT = """
    import os, sys

    class NoTensorFlow:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("tensorflow", "tensorflow_text", "keras_hub"):
                raise ImportError(f"{name} is not to be had here")

    if os.environ["KERAS_BACKEND"] == "jax":  # torch looks for TensorFlow by itself
        sys.meta_path.insert(0, NoTensorFlow())

    import keras, numpy as np
    from bert_keras.errors import ConfigError
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.model.heads import PooledHead
    from bert_keras.model.optimizers import BertAdamW
    from bert_keras.model.recurrent_head import RecurrentHead

    def tags(states, batch):
        head = RecurrentHead(3, features="last", units=4, dropout_rate=0.0)
        given = states, batch["padding_mask"], batch.get("sequence_ids")
        head(*given)
        for number, weight in enumerate(head.weights):
            weight.assign(np.random.default_rng(number).normal(size=weight.shape))
        return head(*given)

    def outputs(folder, batches):
        encoder = BertEncoder.from_pretrained(
            folder, outputs=("hidden_states", "attentions")
        )
        found = {}
        for layout, batch in batches.items():
            given = encoder(batch)
            given["tags"] = tags(given["hidden_states"], batch)
            for key, value in given.items():
                parts = value if isinstance(value, list) else [value]
                for index, part in enumerate(parts):
                    part = keras.ops.convert_to_numpy(part)
                    found[f"{layout}/{key}/{index}"] = part
        if keras.config.backend() != "tensorflow":
            fused = BertEncoder.from_pretrained(folder, attention="fused")
            for layout, batch in batches.items():
                for key, value in fused(batch).items():
                    value = keras.ops.convert_to_numpy(value)
                    found[f"fused/{layout}/{key}"] = value
            found["fused/error"] = training_error(fused, batches["padded"])
        return found

    def training_error(encoder, batch):
        try:
            encoder(batch, training=True)
        except ConfigError as error:
            return str(error)
        return ""

    def losses(folder, batch, rematerialize):
        encoder = BertEncoder.from_pretrained(
            folder, rematerialize=rematerialize, seed=1
        )
        names = ("token_ids", "segment_ids", "padding_mask")
        inputs = {n: keras.Input((None,), dtype="int32", name=n) for n in names}
        logits = PooledHead(2, seed=2)(encoder(inputs)["pooled_output"])
        model = keras.Model(inputs, logits)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(BertAdamW(0.01), loss=loss)
        labels = np.array([0, 1, 1])
        before = model.evaluate(batch, labels, verbose=0)
        history = model.fit(
            batch, labels, batch_size=3, epochs=8, shuffle=False, verbose=0
        ).history
        after = model.evaluate(batch, labels, verbose=0)
        return np.array([before, *history["loss"], after])

    def small_table_gradients():
        import jax
        from bert_keras.model.layers import rows_of_small_table

        draw = np.random.default_rng(0)
        table = draw.normal(size=(5, 3)).astype("float32")
        ids = draw.integers(0, 5, (4, 6))
        weights = draw.normal(size=(4, 6, 3)).astype("float32")
        for rows in (rows_of_small_table, lambda table, ids: table[ids]):
            yield jax.grad(lambda table: (rows(table, ids) * weights).sum())(table)

    folder, path, trains, results = sys.argv[1:]
    with np.load(path) as file:
        batches = {"padded": {}, "packed": {}}
        for name in file.files:
            layout, key = name.split("/")
            batches[layout][key] = file[name]
    found = {"backend": keras.config.backend(), **outputs(folder, batches)}
    if trains == "True":
        for way, rematerialize in (("kept", False), ("recomputed", True)):
            found[f"losses/{way}"] = losses(folder, batches["padded"], rematerialize)
    if keras.config.backend() == "jax":
        np.testing.assert_allclose(*small_table_gradients(), rtol=1e-5, atol=1e-6)
    np.savez(results, **found)
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
    np.savez(
        path,
        **{
            f"{layout}/{name}": np.array(values, "int32")
            for layout, batch in LAYOUTS.items()
            for name, values in batch.items()
        },
    )
    return path


@pytest.fixture(scope="module")
def results(folder, batches, tmp_path_factory):
    """Return a function of a backend to what the script gives on it: outputs, losses.

    On TensorFlow nothing is trained; other tests do that.
    """
    found = {}

    def of(backend):
        if backend not in found:
            path = tmp_path_factory.mktemp(backend) / "results.npz"
            trains = str(backend != "tensorflow")
            arguments = [str(folder), str(batches), trains, str(path)]
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(SCRIPT), *arguments],
                env={**os.environ, "KERAS_BACKEND": backend},
                capture_output=True,
                text=True,
                timeout=300,
            )
            assert done.returncode == 0, done.stderr[-4000:]
            with np.load(path) as file:
                everything = {name: file[name] for name in file.files}
            assert everything.pop("backend") == backend
            names = [name for name in everything if name.startswith("losses/")]
            losses = {name[len("losses/") :]: everything.pop(name) for name in names}
            names = [name for name in everything if name.startswith("fused/")]
            fused = {name[len("fused/") :]: everything.pop(name) for name in names}
            found[backend] = everything, losses, fused
        return found[backend]

    return of


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_outputs_equal_those_on_tensorflow(backend, results):
    pytest.importorskip(backend)
    expected, found = results("tensorflow")[0], results(backend)[0]
    assert set(found) == set(expected)
    assert len(found) == 2 * (1 + 1 + 3 + 2 + 1)
    errors = {name: np.abs(found[name] - expected[name]).max() for name in found}
    print("largest error", max(errors.values()))
    assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_fused_attention_equals_written_attention(backend, results):
    pytest.importorskip(backend)
    written, _, fused = results(backend)
    error = str(fused.pop("error"))
    assert "`attention` must be 'written' to drop attention probabilities" in error
    assert len(fused) == 4
    for name, values in fused.items():
        expected = written[f"{name}/0"]
        if name.endswith("sequence_output"):  # padding's own outputs mean nothing
            layout = name.split("/")[0]
            real = np.array(LAYOUTS[layout]["padding_mask"], bool)
            values, expected = values[real], expected[real]
        np.testing.assert_allclose(values, expected, atol=TOLERANCE, err_msg=name)


@pytest.mark.thorough
def test_gpu_benchmark(tmp_path):
    """The script runs whole at a tiny size, on whichever device JAX finds."""
    pytest.importorskip("jax")
    path = tmp_path / "speed.json"
    sizes = "--sizes tiny --lengths 32 --tokens 64 --steps 1 --jobs inference"
    subprocess.run(
        [sys.executable, ROOT / "benchmarks/gpu_speed.py", *sizes.split()]
        + ["--json", path],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    table = json.loads(path.read_text())["table"]
    assert len(table) == 5
    assert all(row["useful_tokens_per_second"] > 0 for row in table)


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_packed_rows_equal_padded_ones(backend, results):
    pytest.importorskip(backend)
    found = results(backend)[0]
    expected = found["padded/pooled_output/0"]
    np.testing.assert_allclose(
        found["packed/pooled_output/0"], expected, atol=TOLERANCE
    )
    sizes = np.sum(PADDED["padding_mask"], axis=1)
    for name in ("sequence_output", "tags"):
        padded, packed = (found[f"{layout}/{name}/0"] for layout in LAYOUTS)
        tokens = packed.reshape(-1, packed.shape[-1])
        places = zip(PACKED["cls_positions"], sizes, strict=True)
        for row, (start, size) in enumerate(places):
            np.testing.assert_allclose(
                tokens[start : start + size], padded[row, :size], atol=TOLERANCE
            )


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_fit(backend, results):
    # Dropout is on: recomputation in the backward pass must draw the same masks.
    pytest.importorskip(backend)
    losses = results(backend)[1]
    kept, again = losses["kept"], losses["recomputed"]
    assert np.isfinite(kept).all()
    assert kept[-1] < kept[0] / 2, kept
    np.testing.assert_allclose(again, kept, rtol=1e-3)


# KerasHub's idiom: the same lines upon its backbone and upon ours.
OWN_MODEL = """
    import sys
    import keras, keras_hub, numpy as np
    from bert_keras import BertConfig, BertEncoder

    def trained(encoder):
        x = encoder.output["sequence_output"]
        x = keras.layers.GlobalAveragePooling1D()(x)
        model = keras.Model(encoder.input, keras.layers.Dense(2)(x))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(0.02), loss)
        batch = {
            "token_ids": np.array([[2, 7, 8, 3], [2, 9, 3, 0]]),
            "segment_ids": np.zeros((2, 4), "int32"),
            "padding_mask": np.array([[1, 1, 1, 1], [1, 1, 1, 0]]),
        }
        model.fit(batch, np.array([0, 1]), epochs=20, verbose=0)
        model.save(sys.argv[1])
        again = keras.saving.load_model(sys.argv[1])
        for each in (model, again):
            assert each.predict(batch, verbose=0).argmax(-1).tolist() == [0, 1]

    keras.utils.set_random_seed(0)
    trained(
        keras_hub.models.BertBackbone(
            vocabulary_size=20,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=16,
            dropout=0.0,
            max_sequence_length=8,
        )
    )
    config = BertConfig(
        vocab_size=20,
        num_hidden_layers=1,
        num_attention_heads=2,
        hidden_size=8,
        intermediate_size=16,
        hidden_dropout_prob=0.0,
        max_position_embeddings=8,
    )
    trained(BertEncoder(config, seed=0))
    print(keras.config.backend())
"""


@pytest.mark.parametrize(
    "backend",
    ["torch", *map(thorough, ("tensorflow", "jax"))],
)
def test_own_model_as_with_keras_hub(backend, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(OWN_MODEL), tmp_path / "model.keras"],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.split() == [backend], done.stderr[-4000:]


# Strings and labels by name, and the example of an own model, in one process.
ON_STRINGS = """
    import runpy, sys
    import keras, numpy as np
    from bert_keras import BertAdamW, TaskModel

    encoder, folder, example = sys.argv[1:]
    texts = ["win cash now", "free prize", "see you at six", "lunch at home"] * 4
    texts[0] += " now" * 20
    labels = ["spam", "spam", "ham", "ham"] * 4
    settings = {"classes": ("ham", "spam"), "max_length": 16, "seed": 1}
    model = TaskModel.from_pretrained(encoder, "classification", **settings)
    model.compile(BertAdamW(0.01))
    given = {"validation_data": (texts[:4], labels[:4]), "batch_size": 4, "verbose": 0}
    history = model.fit(texts, labels, epochs=6, **given).history
    assert history["loss"][-1] < history["loss"][0] / 2, history
    assert model.evaluate(texts, labels, verbose=0)[1] == 1.0
    model.save_to_preset(folder)
    np.save(f"{folder}/logits.npy", model.predict(texts, verbose=0))
    # Tasks whose batches also hold strings, for the answers.
    places = np.array([[0, len(text.split()[0])] for text in texts])
    for task, x, y in (
        ("question-answering", (texts, texts), places),
        ("multiple-choice", (texts, [["win", "see"]] * 16), [0, 0, 1, 1] * 4),
    ):
        model = TaskModel.from_pretrained(encoder, task, max_length=32, seed=1)
        model.compile(BertAdamW(0.01))
        losses = model.fit(x, y, epochs=4, verbose=0).history["loss"]
        assert losses[-1] < losses[0], (task, losses)
    sys.argv = [example, encoder]
    runpy.run_path(example, run_name="__main__")
    print(keras.config.backend())
"""


@pytest.mark.parametrize("backend", ["jax", thorough("torch")])
def test_strings(backend, tmp_path):
    """`TaskModel.fit` tells what it truncates; its folder gives the same answers."""
    pytest.importorskip(backend)
    encoder = write_encoder(tmp_path / "encoder", max_position_embeddings=64)
    folder, example = tmp_path / "model", ROOT / "examples/own_model.py"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ON_STRINGS), encoder, folder, example],
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.split()[-1] == backend and "accuracy 0." in done.stdout
    line = "1 of 16 train texts (6%) is truncated to 16 tokens: it has 25 tokens"
    assert done.stderr.count(line) == 1, done.stderr[-4000:]
    assert done.stderr.count("1 of 4 validation texts (25%)") == 1
    assert done.stderr.count("1 of 16 texts (6%)") == 2  # `evaluate` and `predict`
    texts = ["win cash now" + " now" * 20, "free prize", "see you at six"]
    found = load_predictor(folder).model.predict(texts, verbose=0)
    expected = np.load(folder / "logits.npy")[:3]
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)
