"""Peak memory of one training step of BERT-base, with each option that saves memory.

    python benchmarks/memory.py [--size base] [--batch 32] [--length 128]

Each variant runs in its own process: a new model and one update of a batch of full rows
(forward, backward, AdamW). The peak is the largest resident set of the process, less
its size after TensorFlow was loaded. Prints a table with the peak, the seconds of the
update (including tracing the graph), and the number of trainable weights.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time

from alternating import result_of

WAYS: dict[str, dict[str, object]] = {
    "plain": {},
    "rematerialize": {"rematerialize": True},
    "accumulation 4": {"accumulation": 4},
    "mixed_bfloat16": {"precision": "mixed_bfloat16"},
    "freeze-layers 6": {"freeze_layers": 6},
    "lora-rank 8": {"lora_rank": 8},
    "lamb": {"optimizer": "lamb"},
    "rematerialize, accumulation 4": {"rematerialize": True, "accumulation": 4},
    "lora-rank 8, accumulation 4": {"lora_rank": 8, "accumulation": 4},
    "lora-rank 8, rematerialize": {"lora_rank": 8, "rematerialize": True},
}


def measure(size: str, batch: int, length: int, way: dict[str, object]) -> None:
    """Run one update; print peak and time as JSON."""
    import numpy as np
    import tensorflow as tf

    from bert_keras import BertConfig, BertEncoder, Classification, TrainConfig
    from bert_keras.model.lora import add_lora, freeze_layers
    from bert_keras.models.objective import TaskObjective
    from bert_keras.models.task_model import TaskModel
    from bert_keras.text.preprocessor import Preprocessor
    from bert_keras.text.tokenizer import WordPieceTokenizer
    from bert_keras.training.train_step import TrainStep
    from bert_keras.training.updates import new_optimizer

    config = TrainConfig(batch_size=batch, **way)  # type: ignore[arg-type]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    before = _peak()
    encoder = BertEncoder(
        BertConfig.from_preset(size),
        rematerialize=config.rematerialize,
        seed=1,
        dtype=config.precision,
    )
    task = Classification(("one", "other"))
    tokenizer = WordPieceTokenizer(vocabulary)
    preprocessor = Preprocessor(tokenizer, max_length=length, layout="padded")
    model = TaskModel(encoder, task, preprocessor, seed=2)
    freeze_layers(encoder, config.freeze_layers)
    if config.lora_rank:
        add_lora(encoder, config.lora_rank, seed=3)
    config = config.finalized(task, 100, encoder.config.hidden_size)
    optimizer = new_optimizer(config, steps=100)
    optimizer.build(model.trainable_variables)
    rows = batch // config.accumulation
    ids = np.random.default_rng(4).integers(5, 1000, (rows, length), dtype="int32")
    inputs = {
        "token_ids": tf.constant(ids),
        "segment_ids": tf.zeros_like(ids),
        "padding_mask": tf.ones_like(ids),
    }
    labels = {"targets": tf.constant(np.arange(rows) % 2, tf.int32)}
    spec = tf.nest.map_structure(
        lambda each: tf.TensorSpec([None, *each.shape[1:]], each.dtype),
        (inputs, labels),
    )
    update = TrainStep(model, optimizer, TaskObjective(model), spec)
    start = time.perf_counter()
    made = update([(inputs, labels)] * config.accumulation)
    made.wait()
    learned = sum(int(np.prod(w.shape)) for w in model.trainable_weights)
    found = {
        "peak": _peak() - before,
        "seconds": time.perf_counter() - start,
        "learned": learned,
    }
    print(json.dumps(found))


def _peak() -> int:
    """Return the largest resident set so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--way", choices=WAYS, help="measure only this variant")
    options = parser.parse_args()
    if options.way:
        measure(options.size, options.batch, options.length, WAYS[options.way])
        return
    sizes = f"{options.size}, batch {options.batch} x {options.length} tokens"
    print(f"| {sizes} | peak GB | of plain | s, with tracing | trainable weights |")
    print("|---|---|---|---|---|", flush=True)
    plain = 0.0
    for way in WAYS:
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, *sys.argv, "--way", way]
        found = result_of(command, env=environment)
        peak = found["peak"] / 1e9
        plain = plain or peak
        print(
            f"| {way} | {peak:.2f} | {peak / plain:.0%} | {found['seconds']:.0f} | "
            f"{found['learned'] / 1e6:.1f} M |",
            flush=True,
        )


if __name__ == "__main__":
    main()
