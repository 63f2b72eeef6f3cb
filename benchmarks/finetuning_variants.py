"""Variants of fine-tuning on small sets, each beside plain fine-tuning.

    python benchmarks/finetuning_variants.py [--sets sms mrpc] \
[--variants plain decay top average] [--seeds 5] [--rows 96] [--test-rows 300]

- `decay`: the learning rate of a block is 0.8 times the rate of the block above it, and
  the embeddings have the lowest (`--layer-decay` of other tools).
- `top`: the top block starts with random weights (Zhang et al. 2021, arXiv:2006.05987).
- `average`: the mean of the weights after each update of the second half.

All train all-MiniLM-L6-v2 for the same 10 epochs on the same rows, without dev rows,
and score the same test rows. Prints means and standard deviations over seeds, which
also choose the rows, and the mean difference from `plain` with its standard deviation.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from inputs import Rows, cola, encoder_path, news, sms, table

DECAY = 0.8


def pairs(name: str, first: int, second: int, label: int) -> Any:
    def rows(rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
        parts = [table(f"{name}/{part}.tsv")[1:] for part in ("train", "dev")]
        train, test = (
            [((row[first], row[second]), row[label]) for row in part] for part in parts
        )
        return [train[n] for n in rng.permutation(len(train))], test

    return rows


SETS: dict[str, Any] = {
    "news": news(24),
    "sms": sms(96),
    "cola": cola(96),
    "mrpc": pairs("glue_mrpc", 3, 4, 0),
    "sick": pairs("sick", 0, 1, 2),
}


def columns_of(rows: Rows | list[Any]) -> Any:
    from bert_keras.data.table import as_columns

    texts, labels = map(list, zip(*rows, strict=True))
    if isinstance(texts[0], str):
        return as_columns(text=texts, label=labels)
    firsts, seconds = map(list, zip(*texts, strict=True))
    return as_columns(text=firsts, text_pair=seconds, label=labels)


def block_of(path: str, blocks: int) -> int:
    """Return the number of a weight's block from 1; 0 for the embeddings."""
    if "embeddings" in path:
        return 0
    found = [n for n in range(blocks) if f"/layer_{n}/" in path]
    return found[0] + 1 if found else blocks + 1


def reset_block(model: Any, number: int, seed: int) -> None:
    """Give a block BERT's random start."""
    random = np.random.default_rng(seed)
    blocks = model.backbone.config.num_hidden_layers
    for weight in model.backbone.trainable_weights:
        if block_of(weight.path, blocks) != number:
            continue
        name = weight.path.rpartition("/")[2]
        if name == "kernel":
            weight.assign(random.normal(0, 0.02, weight.shape))
        else:
            weight.assign(np.full(weight.shape, float(name == "gamma")))


def accuracy(variant: str, train: Any, test: Any, seed: int) -> float:
    import keras

    from bert_keras.inference.predictor import Predictor
    from bert_keras.model.optimizers import optimizer_of
    from bert_keras.models.loading import new_model
    from bert_keras.tasks.classification import Classification
    from bert_keras.training.config import TrainConfig
    from bert_keras.training.updates import new_schedule, training_rows, updates

    keras.utils.clear_session()
    task = Classification.from_columns(train)
    config = TrainConfig(seed=seed, max_length=64, epochs=10, batch_size=16)
    model = new_model(task, encoder_path(), config, tell=str)
    size = model.backbone.config
    config = config.finalized(task, len(train), size.hidden_size)
    rows = training_rows(model, train, config)
    factors = {}
    if variant == "decay":
        for weight in model.trainable_variables:
            below = (
                size.num_hidden_layers
                + 1
                - block_of(weight.path, size.num_hidden_layers)
            )
            factors[weight.path] = DECAY**below
    if variant == "top":
        reset_block(model, size.num_hidden_layers, seed)
    schedule = new_schedule(config, steps=rows.steps)
    optimizer = optimizer_of(config, schedule, factors=factors)
    optimizer.build(model.trainable_variables)
    total = [np.zeros(weight.shape) for weight in model.trainable_variables]
    made = 0
    for step, update in enumerate(updates(model, rows, optimizer)):
        update.wait()
        if variant == "average" and 2 * step >= rows.steps:
            made += 1
            for each, weight in zip(total, model.trainable_variables, strict=True):
                each += weight.numpy()
    if made:
        for each, weight in zip(total, model.trainable_variables, strict=True):
            weight.assign(each / made)
    answers = Predictor(model, freeze=False).answers(test)
    return float(task.score(test, answers)["accuracy"])


def results(options: argparse.Namespace) -> Iterator[str]:
    for name in options.sets:
        found: dict[str, list[float]] = {}
        for seed in range(options.seeds):
            train, test = SETS[name](np.random.default_rng(seed))
            data = [
                columns_of(rows)
                for rows in (train[: options.rows], test[: options.test_rows])
            ]
            for variant in options.variants:
                found.setdefault(variant, []).append(accuracy(variant, *data, seed))
        for variant, values in found.items():
            gains = np.subtract(values, found.get("plain", values))
            spread = np.std([values, gains], axis=1, ddof=min(1, len(values) - 1))
            yield (
                f"{name}  {variant}: {np.mean(values):.3f} ± {spread[0]:.3f}, "
                f"difference {gains.mean():+.3f} ± {spread[1]:.3f}, {len(values)} seeds"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = ["plain", "decay", "top", "average"]
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--variants", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=96)
    parser.add_argument("--test-rows", type=int, default=300)
    for line in results(parser.parse_args()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
