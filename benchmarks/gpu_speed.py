"""Speed of the encoder on a GPU, beside transformers. Needs keras and jax alone.

    python benchmarks/gpu_speed.py [--sizes base large] [--lengths 128 512]
        [--tokens 16384] [--steps 20] [--attention written fused]
        [--layouts padded packed] [--json speed.json]

Runs `BertEncoder` on the JAX backend, without TensorFlow, with random weights and
random texts whose lengths are uniform between 16 and the row length: inference and a
step of masked-LM pretraining (15% of the tokens, AdamW), padded (one text a row) and
packed (several texts a row). The peer is `BertForMaskedLM` of transformers with torch's
scaled dot-product attention on the same texts, in batches of equal lengths as far as
possible, padded to the longest; it is left out where torch or transformers is missing.
Both compute in bfloat16 with float32 weights in training.

Prints useful tokens/s, which leave out padding, and the model FLOP/s utilization (MFU):
the operations of the useful tokens alone (2 per weight of a matrix product and token,
and attention within each text; training counts three times), divided by the dense
bfloat16 peak of the device where `PEAKS` has it.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import importlib.metadata as metadata
import importlib.util
import itertools
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "jax"
# torch needs memory on the same device.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import keras
import numpy as np
from keras import ops

from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder, batch_inputs
from bert_keras.model.heads import MaskedLMHead
from bert_keras.model.optimizers import BertAdamW

# Dense bfloat16 FLOP/s from the makers' data sheets.
PEAKS = {
    "H100 80GB HBM3": 989e12,
    "H100 PCIe": 756e12,
    "H200": 989e12,
    "A100": 312e12,
    "L4": 121e12,
}
SHORTEST = 16
MASKED = 0.15
SPECIAL = 5  # ids below stand for [PAD], [UNK], [CLS], [SEP] and [MASK]


@dataclasses.dataclass(frozen=True)
class Work:
    """What is computed: model, rows and texts.

    Attributes:
        config: sizes of the model.
        length: tokens of a row, T.
        rows: rows of a batch, B.
        texts: lengths of the texts, as many as fill about four packed batches.
    """

    config: BertConfig
    length: int
    rows: int
    texts: list[int]

    @classmethod
    def of(cls, size: str, length: int, tokens: int, seed: int = 0) -> Work:
        rows = max(tokens // length, 1)
        draw = np.random.default_rng(seed)
        shortest = min(SHORTEST, length)
        count = 4 * rows * 2 * length // (shortest + length)
        texts = draw.integers(shortest, length + 1, count)
        config = BertConfig.from_preset(size)
        config = dataclasses.replace(config, attention_probs_dropout_prob=0.0)
        return cls(config, length, rows, texts.tolist())

    def masked(self, count: int) -> int:
        """Return the predictions of a row with `count` tokens."""
        return max(int(MASKED * count), 1)

    def operations(self, texts: list[int], *, training: bool) -> float:
        """Return the floating-point operations of the useful tokens."""
        c = self.config
        tokens = sum(texts)
        weights = 4 * c.hidden_size**2 + 2 * c.hidden_size * c.intermediate_size
        attention = sum(4 * size * size * c.hidden_size for size in texts)
        total = c.num_hidden_layers * (2 * tokens * weights + attention)
        if not training:
            return total
        head = c.hidden_size**2 + c.hidden_size * c.vocab_size
        return 3 * (total + 2 * MASKED * tokens * head)


@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch dict, and the lengths of the texts in it."""

    arrays: dict[str, np.ndarray]
    texts: list[int]


def batches(work: Work, *, packed: bool) -> list[Batch]:
    """Return full batches of rows of one length, with targets for masked tokens."""
    rows: list[list[int]] = []
    for size in work.texts:
        places = [row for row in rows[-64:] if sum(row) + size <= work.length]
        if packed and places:
            max(places, key=sum).append(size)
        else:
            rows.append([size])
    found = []
    for start in range(0, len(rows) - work.rows + 1, work.rows):
        found.append(_batch(work, rows[start : start + work.rows], packed, start))
    return found


def _batch(work: Work, rows: list[list[int]], packed: bool, seed: int) -> Batch:
    shape = (len(rows), work.length)
    draw = np.random.default_rng(seed)
    ids = draw.integers(SPECIAL, work.config.vocab_size, shape, dtype=np.int32)
    sequences, places = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    masked = np.full((len(rows), work.masked(work.length)), -1, np.int32)
    for row, sizes in enumerate(rows):
        end = sum(sizes)
        sequences[row, :end] = np.repeat(np.arange(len(sizes)) + 1, sizes)
        places[row, :end] = np.concatenate([np.arange(size) for size in sizes])
        count = work.masked(end)
        masked[row, :count] = np.sort(draw.permutation(end)[:count])
    real = (sequences > 0).astype(np.int32)
    arrays = {"token_ids": ids * real, "segment_ids": 0 * ids, "padding_mask": real}
    if packed:
        arrays |= {"position_ids": places, "sequence_ids": sequences}
    targets = np.take_along_axis(ids, np.maximum(masked, 0), axis=1)
    arrays |= {"columns": masked, "targets": np.where(masked < 0, -1, targets)}
    return Batch(arrays, [size for sizes in rows for size in sizes])


def inference(work: Work, attention: str) -> Callable[[dict[str, Any]], Any]:
    """Return a compiled function from a batch to the last block's outputs."""
    encoder = BertEncoder(
        work.config,
        pooler=False,
        attention=attention,
        dtype="mixed_bfloat16",
        seed=0,
    )
    # Weights in bfloat16, as the peer has them: read once a step in half the bytes.
    weights = [ops.cast(v.value, "bfloat16") for v in encoder.trainable_variables]
    others = [v.value for v in encoder.non_trainable_variables]

    @jax.jit
    def run(weights: Any, inputs: dict[str, Any]) -> Any:
        outputs, _ = encoder.stateless_call(weights, others, inputs, training=False)
        return outputs["sequence_output"]

    names = [each.name for each in encoder.inputs]
    return lambda arrays: run(weights, {k: arrays.get(k) for k in names})


def pretraining(
    work: Work, attention: str, rematerialize: bool
) -> Callable[[dict[str, Any]], Any]:
    """Return a function that makes one masked-LM update and returns its loss."""
    encoder = BertEncoder(
        work.config,
        pooler=False,
        attention=attention,
        rematerialize=rematerialize,
        dtype="mixed_bfloat16",
        seed=0,
    )
    inputs = batch_inputs(cls_positions=False)
    columns = keras.Input((None,), dtype="int32", name="columns")
    head = MaskedLMHead.on(encoder, seed=0)
    read = encoder.read_at(inputs, columns)["sequence_output"]
    logits = head(read, encoder.token_table(inputs))
    model = keras.Model({**inputs, "columns": columns}, logits)
    names = [each.name for each in model.inputs]
    optimizer = BertAdamW(1e-4)
    optimizer.build(model.trainable_variables)

    def loss_of(weights: Any, others: Any, arrays: dict[str, Any]) -> Any:
        x = {name: arrays.get(name) for name in names}
        logits, others = model.stateless_call(weights, others, x, training=True)
        kept = ops.cast(arrays["targets"] >= 0, "float32")
        losses = keras.losses.sparse_categorical_crossentropy(
            ops.maximum(arrays["targets"], 0), logits, from_logits=True
        )
        return ops.sum(losses * kept) / ops.sum(kept), others

    def update(state: Any, arrays: dict[str, Any]) -> Any:
        weights, others, slots = state
        compute = jax.value_and_grad(loss_of, has_aux=True)
        (loss, others), gradients = compute(weights, others, arrays)
        weights, slots = optimizer.stateless_apply(slots, gradients, weights)
        return loss, (weights, others, slots)

    compiled = jax.jit(update, donate_argnums=0)
    state = tuple(
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            optimizer.variables,
        )
    )

    def step(arrays: dict[str, Any]) -> Any:
        nonlocal state
        loss, state = compiled(state, arrays)
        return loss

    return step


def measured(
    run: Callable[[Any], Any], inputs: list[Any], wait: Callable[[Any], Any], steps: int
) -> tuple[float, list[int]]:
    """Return the seconds of some steps, and which input each of them took."""
    for each in inputs:  # compiles, and warms up
        wait(run(each))
    order = [step % len(inputs) for step in range(steps)]
    start = time.perf_counter()
    for index in order:
        result = run(inputs[index])
    wait(result)
    return time.perf_counter() - start, order


def ours(
    work: Work, options: argparse.Namespace
) -> Iterator[tuple[str, str, float, list[int]]]:
    """Yield job, form, seconds and text lengths of each measurement of ours."""
    for attention in options.attention:
        for layout in options.layouts:
            made = batches(work, packed=layout == "packed")
            arrays = [jax.device_put(batch.arrays) for batch in made]
            form = f"{layout}, {attention}"
            for job in options.jobs:
                if job == "inference":
                    run = inference(work, attention)
                else:
                    run = pretraining(work, attention, options.rematerialize)
                seconds, order = measured(
                    run, arrays, jax.block_until_ready, options.steps
                )
                sizes = [size for index in order for size in made[index].texts]
                yield job, form, seconds, sizes


def peer(
    work: Work, options: argparse.Namespace
) -> Iterator[tuple[str, str, float, list[int]]]:
    """Yield the same of transformers on torch, texts sorted by length."""
    import torch
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    texts = sorted(work.texts)
    inputs, sizes = [], []
    for start in range(0, len(texts) - work.rows + 1, work.rows):
        group = texts[start : start + work.rows]
        longest = max(group)
        draw = np.random.default_rng(start)
        ids = draw.integers(SPECIAL, work.config.vocab_size, (len(group), longest))
        real = np.arange(longest) < np.array(group)[:, None]
        masked = (draw.random(ids.shape) < MASKED) & real
        arrays = {
            "input_ids": ids * real,
            "attention_mask": real.astype(np.int64),
            "labels": np.where(masked, ids, -100),
        }
        tensors = {k: torch.from_numpy(v).to(device) for k, v in arrays.items()}
        inputs.append(tensors)
        sizes.append(group)
    config = transformers.BertConfig(**work.config.to_dict())
    config._attn_implementation = "sdpa"

    def wait(_: Any) -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for job in options.jobs:
        model = transformers.BertForMaskedLM(config).to(device)
        if job == "inference":
            encoder = model.bert.to(torch.bfloat16).eval()

            @torch.inference_mode()
            def run(arrays: dict[str, Any], encoder: Any = encoder) -> Any:
                return encoder(arrays["input_ids"], arrays["attention_mask"])
        else:
            on_gpu = device == "cuda"
            optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=on_gpu)
            model.train()

            def run(
                arrays: dict[str, Any], model: Any = model, optimizer: Any = optimizer
            ) -> Any:
                with torch.autocast(device, dtype=torch.bfloat16):
                    loss = model(**arrays).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                return loss

        seconds, order = measured(run, inputs, wait, options.steps)
        yield (
            job,
            "transformers, sdpa, sorted",
            seconds,
            [size for index in order for size in sizes[index]],
        )
        del model


def table_of(side: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the figures of one side, and print each."""
    device = jax.devices()[0].device_kind
    peak = next((PEAKS[name] for name in PEAKS if name in device), None)
    table = []
    for size, length in itertools.product(options.sizes, options.lengths):
        work = Work.of(size, length, options.tokens)
        for job, form, seconds, texts in SIDES[side](work, options):
            rate = sum(texts) / seconds
            flops = work.operations(texts, training=job == "pretraining")
            mfu = flops / seconds / peak if peak else None
            table.append(
                {
                    "size": size,
                    "length": length,
                    "job": job,
                    "form": form,
                    "useful_tokens_per_second": rate,
                    "mfu": mfu,
                }
            )
            shown = f"{mfu:6.1%}" if mfu is not None else "     -"
            print(
                f"{size:<6}{length:>4}  {job:<12}{form:<28}"
                f"{rate:>12,.0f} useful tokens/s  MFU {shown}",
                flush=True,
            )
    return table


SIDES = {"ours": ours, "peer": peer}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["base", "large"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--tokens", type=int, default=16_384, help="tokens of a batch")
    parser.add_argument("--steps", type=int, default=20, help="measured steps")
    parser.add_argument(
        "--attention", nargs="+", default=["written", "fused"], help="forms to measure"
    )
    parser.add_argument("--layouts", nargs="+", default=["padded", "packed"])
    parser.add_argument("--jobs", nargs="+", default=["inference", "pretraining"])
    parser.add_argument("--rematerialize", action="store_true")
    parser.add_argument("--json", type=Path, help="file of the figures")
    options = parser.parse_args()
    versions = {name: _version(name) for name in ("keras", "jax", "torch")}
    print(", ".join(f"{name} {versions[name]}" for name in versions))
    sides = ["ours"]
    if all(importlib.util.find_spec(name) for name in ("torch", "transformers")):
        sides.append("peer")
    else:
        print("transformers on torch: left out, not installed")
    table = []
    for side in sides:  # each in its own process, which gives the memory back
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as process:
            table += process.submit(table_of, side, options).result()
    device = jax.devices()[0].device_kind
    print(device)
    if options.json:
        found = {"device": device, "versions": versions, "table": table}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


if __name__ == "__main__":
    main()
