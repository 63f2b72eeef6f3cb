"""The operations of a fine-tuning step, before and after the forms with fewer passes.

    python benchmarks/training_operations.py [--precision bfloat16] [--rounds 3]

all-MiniLM-L6-v2 is fine-tuned on SMS messages, batches of 32, as in
`training_speed.py`, on one thread, so that the times of the operations add up to that
of the step. `plain` is the same model with what TensorFlow derives from the formulas:
the gradient of GELU, dropout by Keras, which draws 32 bits per unit, and the clipping
and the update of Keras's AdamW, operation by operation. TensorFlow's profiler measures
each operation; both sides run alternately, each in its own process.
"""

from __future__ import annotations

import argparse
import collections
import json
import statistics
import sys
import tempfile
from pathlib import Path

from alternating import machine, result_of
from inputs import DATA, encoder_path

FIRST, LAST = 8, 28  # updates that are profiled
OUTER = ("Run", "Process", "DoCompute")  # they contain the others
SIDES = ("plain", "bert_keras")


def make_plain() -> None:
    """Replace the forms with fewer passes by what TensorFlow derives."""
    import keras

    from bert_keras.model import block, optimizers

    def dropout(x, rate, seed):  # type: ignore[no-untyped-def]
        if seed is None or rate == 0:
            return x
        return keras.random.dropout(x, rate, seed=block._DrawnSeed(seed))

    block.dropout = dropout
    block._gelu_for_training = block._gelu
    for name in ("_is_one_pass", "_apply_weight_decay", "update_step"):
        delattr(optimizers.BertAdamW, name)
    del optimizers._Adam._clip_gradients


def profile(side: str, precision: str) -> dict[str, float]:
    """Return the milliseconds of each kind of operation in one update."""
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    if side == "plain":
        make_plain()
    from training_speed import BATCH, CLASSES, MAX_LENGTH, RATE, rows

    from bert_keras import Classification, TrainConfig, as_columns
    from bert_keras.models.loading import new_model
    from bert_keras.training.updates import fit

    texts, labels = rows("sms")
    config = TrainConfig(
        epochs=1,
        batch_size=BATCH,
        learning_rate=RATE,
        max_length=MAX_LENGTH,
        precision="float32" if precision == "float32" else f"mixed_{precision}",
        seed=1,
    )
    model = new_model(Classification(CLASSES), encoder_path(), config)
    count = 0
    with tempfile.TemporaryDirectory() as folder:

        def after_update(_: object) -> None:
            nonlocal count
            count += 1
            if count == FIRST:
                tf.profiler.experimental.start(folder)
            elif count == LAST:
                tf.profiler.experimental.stop()

        columns = as_columns(text=texts, label=labels)
        fit(model, columns, config, after_update=after_update)
        return operations(next(Path(folder).rglob("*.xplane.pb")))


def operations(path: Path) -> dict[str, float]:
    """Return the milliseconds of each kind of operation in a profile, per update."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    found: collections.Counter[str] = collections.Counter()
    for plane in space.planes:
        if not plane.name.startswith("/host:CPU"):
            continue
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                # Operations are `name:Kind`.
                node, colon, kind = name.rpartition(":")
                kind = kind.lstrip("_")
                if colon and node and kind.isalnum() and kind not in OUTER:
                    found[kind] += event.duration_ps / 1e9 / (LAST - FIRST)
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--precision", choices=("float32", "bfloat16"), default="bfloat16"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=24, help="rows of the table")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(profile(options.side, options.precision)))
        return
    if not (DATA / "sms_spam").is_dir():
        print(f"skipped: {DATA} is absent")
        return
    print(json.dumps(machine()))
    measured: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        for side in SIDES:
            command = [sys.executable, __file__, "--side", side]
            command += ["--precision", options.precision]
            measured[side].append(result_of(command))
    kinds = {kind for found in measured.values() for each in found for kind in each}
    table = {
        kind: [
            statistics.median(each.get(kind, 0.0) for each in measured[side])
            for side in SIDES
        ]
        for kind in kinds
    }
    order = sorted(table, key=lambda kind: -max(table[kind]))
    shown = {kind: table[kind] for kind in order[: options.most]}
    shown["all others"] = [
        sum(table[kind][i] for kind in order[options.most :]) for i in range(2)
    ]
    shown["sum"] = [sum(each[i] for each in table.values()) for i in range(2)]
    print(f"{'ms per update':<28}{SIDES[0]:>12}{SIDES[1]:>12}")
    for kind, (plain, ours) in shown.items():
        print(f"{kind:<28}{plain:>12.2f}{ours:>12.2f}")


if __name__ == "__main__":
    main()
