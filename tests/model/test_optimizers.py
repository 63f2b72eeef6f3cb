"""`BertAdamW` and `WarmupLinearDecay`: by hand, against Keras, and after a reload."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.errors import ConfigError
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.optimizers import NOT_DECAYED, BertAdamW, Lamb, WarmupLinearDecay

SHAPES = {"kernel": (3, 2), "bias": (2,), "gamma": (2,), "beta": (2,), "table": (6, 2)}
ADAM = {"learning_rate": 0.01, "weight_decay": 0.1, "epsilon": 1e-6}


def variables():
    rng = np.random.default_rng(0)
    return [
        keras.Variable(rng.normal(size=shape).astype("float32"), name=name)
        for name, shape in SHAPES.items()
    ]


def dense_gradients(steps):
    rng = np.random.default_rng(1)
    return [
        [rng.normal(size=shape).astype("float32") for shape in SHAPES.values()]
        for _ in range(steps)
    ]


def of_repeated_rows(gradient, step):
    """Return slices whose rows repeat, and the same gradient as a dense array."""
    rows = np.array([[1, 4, 1], [0, 0, 0], [5, 2, 5]])[step % 3]
    values = gradient[:3]
    dense = np.zeros_like(gradient)
    np.add.at(dense, rows, values)
    slices = tf.IndexedSlices(tf.constant(values), tf.constant(rows), gradient.shape)
    return slices, dense


def keras_adamw(**settings):
    optimizer = keras.optimizers.AdamW(**settings)
    optimizer.exclude_from_weight_decay(var_names=list(NOT_DECAYED))
    return optimizer


def apply(optimizer, weights, gradients):
    optimizer.apply_gradients(zip(gradients, weights, strict=True))


def assert_same(found, expected, atol=1e-6):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=atol, err_msg=a.name)


# The schedule.


def test_schedule_by_hand():
    schedule = WarmupLinearDecay(0.8, total_steps=12, warmup_steps=4)
    expected = [0.0, 0.2, 0.4, 0.6, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0]
    found = [float(schedule(step)) for step in range(14)]
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_schedule_without_warmup():
    schedule = WarmupLinearDecay(1.0, total_steps=4)
    found = [float(schedule(step)) for step in range(6)]
    np.testing.assert_allclose(found, [1, 0.75, 0.5, 0.25, 0, 0], atol=1e-7)


def test_schedule_of_warmup_alone():
    schedule = WarmupLinearDecay(1.0, total_steps=4, warmup_steps=4)
    found = [float(schedule(step)) for step in range(6)]
    np.testing.assert_allclose(found, [0, 0.25, 0.5, 0.75, 0, 0], atol=1e-7)


def test_schedule_of_a_long_pretraining_is_exact_enough():
    schedule = WarmupLinearDecay(1e-4, total_steps=1_000_000, warmup_steps=10_000)
    assert float(schedule(10_000)) == pytest.approx(1e-4, rel=1e-6)
    assert float(schedule(505_000)) == pytest.approx(5e-5, rel=1e-6)
    assert float(schedule(999_999)) == pytest.approx(1e-4 / 990_000, rel=1e-5)


def test_schedule_round_trip():
    schedule = WarmupLinearDecay(0.8, total_steps=12, warmup_steps=4)
    again = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(schedule)
    )
    assert type(again) is WarmupLinearDecay
    assert again.get_config() == schedule.get_config()


@pytest.mark.parametrize(
    ("total", "warmup"), [(0, 0), (10, 11), (10, -1), (-5, -6), (-5, 0)]
)
def test_schedule_errors(total, warmup):
    with pytest.raises(ConfigError, match=f"received {warmup} and {total}"):
        WarmupLinearDecay(1.0, total_steps=total, warmup_steps=warmup)


# AdamW by hand.


def test_first_step_by_hand():
    # m = 0.1 g, v = 0.001 g^2 and both corrections give a step of lr * sign(g).
    kernel = keras.Variable(np.array([2.0, -4.0], "float32"), name="kernel")
    bias = keras.Variable(np.array([2.0, -4.0], "float32"), name="bias")
    optimizer = BertAdamW(**ADAM, global_clipnorm=None)
    gradient = np.array([0.5, -3.0], "float32")
    apply(optimizer, [kernel, bias], [gradient, gradient])
    decayed = np.array([2.0, -4.0]) * (1 - 0.01 * 0.1)
    step = np.array([0.01, -0.01])
    np.testing.assert_allclose(kernel.numpy(), decayed - step, atol=2e-6)
    np.testing.assert_allclose(bias.numpy(), [2.0 - 0.01, -4.0 + 0.01], atol=2e-6)


@pytest.mark.parametrize("amsgrad", [False, True])
def test_epsilon_is_that_of_the_corrected_moments(amsgrad):
    # Corrected, the moments of equal gradients g are g and g^2 in each step.
    weight = keras.Variable(np.zeros(1, "float32"), name="bias")
    optimizer = BertAdamW(**ADAM, global_clipnorm=None, amsgrad=amsgrad)
    for steps in range(1, 4):
        apply(optimizer, [weight], [np.array([1e-6], "float32")])
        expected = -steps * 0.01 * 1e-6 / (1e-6 + 1e-6)
        np.testing.assert_allclose(weight.numpy(), [expected], rtol=1e-4)


def test_decay_alone_by_hand():
    # A gradient of zero moves nothing, so what is left is the decay.
    weights = variables()
    before = [weight.numpy() for weight in weights]
    apply(BertAdamW(**ADAM), weights, [np.zeros_like(values) for values in before])
    for weight, values in zip(weights, before, strict=True):
        share = 1.0 if weight.name in NOT_DECAYED else 1 - 0.01 * 0.1
        np.testing.assert_allclose(weight.numpy(), values * share, rtol=1e-6)


def test_biases_and_layer_norm_of_an_encoder_do_not_decay():
    config = BertConfig(
        vocab_size=9,
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=4,
    )
    encoder = BertEncoder(config)
    weights = encoder.trainable_weights
    for weight in weights:
        weight.assign(np.ones(weight.shape))
    apply(BertAdamW(**ADAM), weights, [np.zeros(w.shape, "float32") for w in weights])
    kept = {weight.path for weight in weights if np.all(weight.numpy() == 1.0)}
    assert kept == {
        path for path in (w.path for w in weights) if "LayerNorm" in path
    } | {path for path in (w.path for w in weights) if path.endswith("/bias")}
    decayed = [w.numpy() for w in weights if w.path not in kept]
    assert len(decayed) == 3 + 6 + 1  # tables, kernels of the block, the pooler's
    for values in decayed:
        np.testing.assert_allclose(values, 1 - 0.01 * 0.1, rtol=1e-6)


# AdamW and Keras, whose epsilon is another one.

NO_EPSILON = {**ADAM, "epsilon": 1e-12}


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("in_graph", [False, True])
def test_equal_to_keras_on_dense_gradients(clip, in_graph):
    ours, theirs = variables(), variables()
    settings = {**NO_EPSILON, "global_clipnorm": clip}
    optimizer, peer = BertAdamW(**settings), keras_adamw(**settings)
    optimizer.build(ours)

    def step(*gradients):
        apply(optimizer, ours, gradients)

    step = tf.function(step) if in_graph else step
    for gradients in dense_gradients(6):
        step(*map(tf.constant, gradients))
        apply(peer, theirs, gradients)
    assert_same(ours, theirs)
    for name in ("_momentums", "_velocities"):
        assert_same(getattr(optimizer, name), getattr(peer, name))
    assert int(optimizer.iterations) == 6


@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_equal_to_keras_on_repeated_rows(clip, amsgrad):
    # Keras gets the dense gradient: of slices it would clip by another norm.
    ours, theirs = variables(), variables()
    settings = {**NO_EPSILON, "global_clipnorm": clip, "amsgrad": amsgrad}
    optimizer, peer = BertAdamW(**settings), keras_adamw(**settings)
    for number, gradients in enumerate(dense_gradients(6)):
        slices, dense = of_repeated_rows(gradients[-1], number)
        apply(optimizer, ours, [*gradients[:-1], slices])
        apply(peer, theirs, [*gradients[:-1], dense])
    assert_same(ours, theirs)


def test_clipping_counts_a_repeated_row_once_as_its_sum():
    # Row 0 occurs with 3 and with 4: its gradient is 7, not sqrt(3^2 + 4^2) = 5.
    # After clipping to 1 it is 1, and beta 0 makes the velocity its square.
    table = keras.Variable(np.zeros((2, 1), "float32"), name="table")
    optimizer = BertAdamW(0.01, beta_2=0.5, global_clipnorm=1.0)
    slices = tf.IndexedSlices(tf.constant([[3.0], [4.0]]), tf.constant([0, 0]), [2, 1])
    apply(optimizer, [table], [slices])
    velocity = optimizer._velocities[0].numpy()
    np.testing.assert_allclose(velocity, [[0.5 * 1.0], [0.0]], rtol=1e-6)


def test_small_gradients_are_not_clipped():
    weights, same = variables(), variables()
    gradients = [0.01 * values for values in dense_gradients(1)[0]]
    apply(BertAdamW(**ADAM, global_clipnorm=1.0), weights, gradients)
    apply(BertAdamW(**ADAM, global_clipnorm=None), same, gradients)
    assert_same(weights, same, atol=1e-7)


@pytest.mark.parametrize(
    "settings",
    [
        {"amsgrad": True},
        {"use_ema": True, "ema_overwrite_frequency": 2},
        {"gradient_accumulation_steps": 2},
        {"clipvalue": 0.1},
        {"clipnorm": 0.1},
        {"loss_scale_factor": 8.0},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_equal_to_keras_with_its_other_settings(settings):
    ours, theirs = variables(), variables()
    settings = {**NO_EPSILON, "global_clipnorm": None, **settings}
    optimizer, peer = BertAdamW(**settings), keras_adamw(**settings)
    for gradients in dense_gradients(4):
        apply(optimizer, ours, gradients)
        apply(peer, theirs, gradients)
    assert_same(ours, theirs)


def test_learning_rate_follows_the_schedule():
    schedule = WarmupLinearDecay(0.1, total_steps=4, warmup_steps=2)
    weight = keras.Variable(np.zeros(1, "float32"), name="bias")
    optimizer = BertAdamW(schedule, epsilon=1e-12, global_clipnorm=None)
    places = [0.0]
    for _ in range(5):
        apply(optimizer, [weight], [np.ones(1, "float32")])
        places.append(float(weight.numpy()[0]))
    # A constant gradient makes each step as long as the rate.
    expected = [0.0, -0.05, -0.1, -0.05, 0.0]
    np.testing.assert_allclose(np.diff(places), expected, atol=1e-6)


# Saving.


def test_config_round_trip():
    optimizer = BertAdamW(
        WarmupLinearDecay(0.1, total_steps=9, warmup_steps=3),
        weight_decay=0.2,
        beta_1=0.8,
        beta_2=0.9,
        epsilon=1e-3,
        global_clipnorm=2.0,
    )
    stored = keras.saving.serialize_keras_object(optimizer)
    for name in ("BertAdamW", "AdamW"):  # the second as `.keras` files name it
        again = keras.saving.deserialize_keras_object({**stored, "class_name": name})
        assert type(again) is BertAdamW
        assert again.get_config() == optimizer.get_config()


def compiled_model():
    inputs = keras.Input((2,))
    x = keras.layers.Dense(3, activation="tanh", name="dense")(inputs)
    x = keras.layers.LayerNormalization(name="LayerNorm")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, name="out")(x))
    schedule = WarmupLinearDecay(0.1, total_steps=20, warmup_steps=2)
    model.compile(BertAdamW(schedule, weight_decay=0.5), loss="mse")
    return model


@pytest.mark.slow
def test_training_continues_after_a_reload(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 2)), rng.normal(size=(8, 1))
    model = compiled_model()
    model.fit(x, y, batch_size=8, epochs=3, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert type(again.optimizer) is BertAdamW
    assert type(again.optimizer._learning_rate) is WarmupLinearDecay
    assert int(again.optimizer.iterations) == 3
    losses = [
        m.fit(x, y, batch_size=8, epochs=3, verbose=0).history["loss"]
        for m in (model, again)
    ]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    for a, b in zip(model.weights, again.weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-6)


def test_biases_do_not_decay_after_a_reload(tmp_path):
    model = compiled_model()
    model.optimizer.build(model.trainable_variables)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    weights = again.trainable_weights
    for weight in weights:
        weight.assign(np.ones(weight.shape))
    optimizer = again.optimizer
    optimizer.iterations.assign(2)  # the peak of the schedule
    apply(optimizer, weights, [np.zeros(w.shape, "float32") for w in weights])
    for weight in weights:
        share = 1 - 0.1 * 0.5 if weight.name == "kernel" else 1.0
        np.testing.assert_allclose(
            weight.numpy(), share, rtol=1e-6, err_msg=weight.path
        )


# LAMB.


def test_lamb_by_hand():
    rng = np.random.default_rng(5)
    kernel = rng.normal(size=(3, 2)).astype("float32")
    bias = rng.normal(size=2).astype("float32")
    weights = [keras.Variable(kernel, name="kernel"), keras.Variable(bias, name="bias")]
    optimizer = Lamb(0.1, weight_decay=0.5, global_clipnorm=None)
    m = [np.zeros((3, 2)), np.zeros(2)]
    v = [np.zeros((3, 2)), np.zeros(2)]
    wanted = [kernel.astype("float64"), bias.astype("float64")]
    for step in range(1, 4):
        gradients = [rng.normal(size=w.shape).astype("float32") for w in wanted]
        apply(optimizer, weights, [tf.constant(g) for g in gradients])
        for i, gradient in enumerate(gradients):
            m[i] = 0.9 * m[i] + 0.1 * gradient
            v[i] = 0.999 * v[i] + 0.001 * gradient.astype("float64") ** 2
            update = m[i] / (1 - 0.9**step)
            update /= np.sqrt(v[i] / (1 - 0.999**step)) + 1e-6
            rate = 0.1
            if i == 0:  # the bias neither decays nor is scaled
                update = update + 0.5 * wanted[i]
                rate *= np.linalg.norm(wanted[i]) / np.linalg.norm(update)
            wanted[i] = wanted[i] - rate * update
    for weight, values in zip(weights, wanted, strict=True):
        np.testing.assert_allclose(weight.numpy(), values, atol=1e-5)


def test_lamb_leaves_a_weight_of_zeros_unscaled_and_is_restored_from_its_config():
    weight = keras.Variable(np.zeros((2, 2), "float32"), name="kernel")
    optimizer = Lamb(0.1, weight_decay=0.5)
    again = Lamb.from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
    apply(again, [weight], [tf.ones((2, 2))])
    np.testing.assert_allclose(weight.numpy(), -0.1, atol=1e-4)


@pytest.mark.parametrize("kind", [BertAdamW, Lamb])
def test_a_factor_of_a_weight_is_one_of_its_learning_rate(kind):
    gradients = dense_gradients(2)
    plain, faster, both = variables(), variables(), variables()
    for weights, rate, factors in (
        (plain, 0.01, {}),
        (faster, 0.03, {}),
        (both, 0.01, {"table": 3.0}),
    ):
        optimizer = kind(rate, weight_decay=0.0)
        optimizer.factors = factors
        for step in gradients:
            optimizer.apply([keras.ops.convert_to_tensor(g) for g in step], weights)
    for one, three, found in zip(plain, faster, both, strict=True):
        wanted = three if found.path == "table" else one
        np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-6)
