"""On JAX, `keras.distribution` with the encoder under `fit` equals one device.

Two virtual CPU devices, in a separate process.
"""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

pytest.importorskip("jax")

# Writes losses and weights of a classifier on the encoder, trained in three ways.
FIT = """
    import sys
    import keras, numpy as np
    from bert_keras.config import BertConfig
    from bert_keras.model.encoder import BertEncoder
    from bert_keras.model.heads import PooledHead
    from bert_keras.model.optimizers import BertAdamW

    devices = keras.distribution.list_devices()
    assert len(devices) == 2, devices
    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=24, max_position_embeddings=16,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    rng = np.random.default_rng(0)
    ids = rng.integers(4, 40, (32, 8)).astype("int32")
    mask = (np.arange(8) < rng.integers(2, 9, (32, 1))).astype("int32")
    batch = {
        "token_ids": ids * mask, "segment_ids": ids * 0, "padding_mask": mask,
    }
    labels = rng.integers(0, 2, 32)

    def distribution(way):
        if way == "one":
            return None
        if way == "data":
            return keras.distribution.DataParallel(
                devices=devices, auto_shard_dataset=False
            )
        mesh = keras.distribution.DeviceMesh((1, 2), ["batch", "model"], devices)
        layouts = keras.distribution.LayoutMap(mesh)
        layouts[".*/self/(query|key|value)/kernel"] = (None, "model")
        layouts[".*/attention/output/dense/kernel"] = ("model", None)
        layouts[".*/intermediate/dense/kernel"] = (None, "model")
        layouts[".*layer_[0-9]+/output/dense/kernel"] = ("model", None)
        return keras.distribution.ModelParallel(
            layout_map=layouts, batch_dim_name="batch", auto_shard_dataset=False
        )

    for way in ("one", "data", "model"):
        keras.backend.clear_session()  # the same names of layers each time
        keras.distribution.set_distribution(distribution(way))
        encoder = BertEncoder(config, seed=1)
        inputs = {n: keras.Input((None,), dtype="int32", name=n) for n in batch}
        pooled = encoder(inputs)["pooled_output"]
        model = keras.Model(inputs, PooledHead(2, dropout_rate=0.0, seed=2)(pooled))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(BertAdamW(0.01, global_clipnorm=0.1), loss=loss)
        history = model.fit(
            batch, labels, batch_size=8, epochs=5, shuffle=False, verbose=0
        ).history
        kernel = [w for w in model.weights if w.path.endswith("self/query/kernel")][0]
        held_by = len(kernel.value.sharding.device_set)
        assert held_by == (1 if way == "one" else 2), (way, held_by)
        assert kernel.value.is_fully_replicated == (way != "model"), way
        np.savez(f"{sys.argv[1]}/{way}.npz", loss=history["loss"], **{
            w.path: keras.ops.convert_to_numpy(w) for w in model.weights
        })
"""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Return losses and weights by the way of training."""
    folder = tmp_path_factory.mktemp("distribution")
    flags = "--xla_force_host_platform_device_count=2"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FIT), str(folder)],
        env={**os.environ, "KERAS_BACKEND": "jax", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {path.stem: dict(np.load(path)) for path in folder.glob("*.npz")}


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["data", "model"])
def test_two_devices_are_one(fitted, way):
    one, two = fitted["one"], fitted[way]
    assert set(two) == set(one)
    assert one["loss"][-1] < one["loss"][0]
    for name, wanted in one.items():
        np.testing.assert_allclose(two[name], wanted, atol=1e-5, err_msg=name)
