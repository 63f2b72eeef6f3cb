"""Runs of `TrainStep` in a separate process, on one device or on several.

    python replica_cases.py FOLDER OUTPUT STRATEGY CASE…

`FOLDER` holds pretraining data. Weights and what the updates returned go into
`OUTPUT/CASE.npz`. Several strategies in one process disturb each other.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np

STEPS = 20


@dataclasses.dataclass(frozen=True)
class Case:
    """What is trained: all but one device and several have in common."""

    optimizer: str = "adamw"
    precision: str = "float32"
    batch_size: int = 12
    parts: int = 1
    layout: str = "padded"
    epochs: int | None = None
    dropout_rate: float = 0.0
    global_clipnorm: float = 0.1
    objective: str = "masked"


CASES = {
    # SGD shows the length of a gradient as it is, which Adam's updates do not; the one
    # epoch ends with a batch of one example.
    "sgd": Case("sgd", batch_size=14, epochs=1),
    "adamw": Case(layout="packed"),
    "lamb": Case("lamb"),
    "parts": Case(parts=3, layout="packed"),
    "float16": Case(precision="mixed_float16"),
    "bfloat16": Case(precision="mixed_bfloat16"),
    "dropout": Case(dropout_rate=0.3),
    "replaced": Case(objective="replaced-token", parts=2, layout="packed"),
}


def train(folder: Path, devices: Any, case: Case) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the model after some updates, and what these returned."""
    import keras
    import tensorflow as tf

    from bert_keras.config import BertConfig
    from bert_keras.distribution.replicas import distributed
    from bert_keras.model.optimizers import BertAdamW, Lamb, WarmupLinearDecay
    from bert_keras.model.replaced_tokens import ReplacedTokens, put_at
    from bert_keras.models.objective import TaskObjective
    from bert_keras.pretraining import task
    from bert_keras.pretraining.config import PretrainConfig
    from bert_keras.pretraining.input import pretraining_dataset
    from bert_keras.pretraining.pretrainer import generator_config, new_pretrainer
    from bert_keras.text.tokenizer import WordPieceTokenizer
    from bert_keras.training.train_step import TrainStep

    tokenizer = WordPieceTokenizer.from_folder(folder / "vocab")
    sizes = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        hidden_dropout_prob=case.dropout_rate,
        attention_probs_dropout_prob=case.dropout_rate,
    )

    class Sgd(keras.optimizers.SGD):
        """Clips by the norm of a table's gradient, not of that of each token."""

        def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
            dense = [tf.convert_to_tensor(gradient) for gradient in grads]
            return super().apply(dense, trainable_variables)

    class Fixed(ReplacedTokens):
        """Samples that do not depend on how rows are split."""

        def call(self, token_ids: Any, logits: Any, positions: Any, **_: Any) -> Any:
            read = tf.gather(token_ids, tf.maximum(positions, 0), batch_dims=1)
            return put_at(token_ids, positions, (read * 3 + 1) % sizes.vocab_size)

    config = PretrainConfig(precision=case.precision, objective=case.objective)
    generator = None
    if case.objective != "masked":
        task.ReplacedTokens = Fixed
        generator = generator_config(sizes, 0.5)
    rate = WarmupLinearDecay(3e-3, total_steps=STEPS, warmup_steps=2)
    clip = {"global_clipnorm": case.global_clipnorm}
    with devices.strategy.scope():
        model = new_pretrainer(
            sizes, config, next_sentence=generator is None, generator=generator
        )
        if case.optimizer == "sgd":
            optimizer = Sgd(0.3, weight_decay=0.01, **clip)
        else:
            optimizer = {"adamw": BertAdamW, "lamb": Lamb}[case.optimizer](rate, **clip)
        if case.precision == "mixed_float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
        optimizer.build(model.trainable_variables)
    dataset = distributed(
        devices.strategy,
        lambda share: pretraining_dataset(
            folder / "data",
            tokenizer,
            batch_size=case.batch_size // case.parts,
            epochs=case.epochs,
            layout=case.layout,
            objective=case.objective,
            seed=3,
            redraw=False,
            share=share,
        ),
    )
    step = TrainStep(model, optimizer, TaskObjective(model), dataset.element_spec)
    batches = iter(dataset)
    found: dict[str, list[Any]] = {}
    for number in itertools.count():
        some = list(itertools.islice(batches, case.parts))
        if not some or (case.epochs is None and number == STEPS):
            break
        made = step(some)
        assert made.is_made
        for name, values in made.sums.items():
            total = float(made.totals[name])
            found.setdefault(name, []).append([*values.numpy(), total])
    return model, {name: np.array(values) for name, values in found.items()}


def devices_of(strategy: str) -> Any:
    """Return a strategy's devices; `mirrored` has two, made of the processor."""
    import tensorflow as tf

    if strategy == "mirrored":
        (cpu,) = tf.config.list_physical_devices("CPU")
        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, halves)
    from bert_keras.distribution.strategy import find_strategy

    return find_strategy(strategy)


def main(folder: str, output: str, strategy: str, *names: str) -> None:
    devices = devices_of(strategy)
    for name in names:
        found = results(Path(folder), devices, name)
        np.savez(Path(output) / f"{name}.npz", **found)


def results(folder: Path, devices: Any, name: str) -> dict[str, np.ndarray]:
    """Return weights and what the updates returned of a case."""
    from bert_keras.distribution.replicas import seed_states, set_replica_seeds

    model, found = train(folder, devices, CASES[name])
    if name == "dropout":
        states = [each.value for each in seed_states(model)]
        found["seeds"] = _of_each(devices, states)
        set_replica_seeds(model, devices.strategy)
        found["seeds_again"] = _of_each(devices, states)
        found["dropped"] = _dropped(devices, model)
    weights = {f"weights/{w.path}": w.numpy() for w in model.weights}
    return {**weights, **found}


def _of_each(devices: Any, states: Any) -> np.ndarray:
    """Return the seeds of each replica, [replicas, states, 2]."""
    found = [devices.strategy.experimental_local_results(state) for state in states]
    return np.array([[each.numpy() for each in row] for row in found]).swapaxes(0, 1)


def _dropped(devices: Any, model: Any) -> np.ndarray:
    """Return what each replica makes of the same text in training."""
    import tensorflow as tf

    text = tf.constant([[2, 10, 11, 12, 13, 14, 15, 3]])
    batch = {
        "token_ids": text,
        "segment_ids": tf.zeros_like(text),
        "padding_mask": tf.ones_like(text),
        "masked_positions": text[:, :1],
    }
    run = tf.function(
        lambda: devices.strategy.run(
            lambda: model(batch, training=True)["next_sentence"]
        )
    )
    found = devices.strategy.experimental_local_results(run())
    return np.array([each.numpy() for each in found])


if __name__ == "__main__":
    main(*sys.argv[1:])
