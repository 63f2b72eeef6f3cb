"""Quality of models that write, ours and transformers after the same updates.

    python benchmarks/generation_quality.py translation --data FOLDER
    python benchmarks/generation_quality.py summaries --data FOLDER
        [--epochs N] [--seeds 3] [--minutes 60] [--output scores.json]
        [--rows N] [--dev-rows N] [--sides NAME …] [--keep FOLDER]

translation: Multi30k, English to German; FOLDER holds `train.en.gz`, `train.de.gz`,
`val.en.gz` and `val.de.gz`. Encoder: all-MiniLM-L6-v2, or one of its size at random
(`random encoder`); decoder: 3 layers, 384 wide, with 8,000 cased German tokens that
`vocab` learned. Scores: BLEU and chrF of sacrebleu on `val`.

summaries: SciTLDR-A, abstracts and one sentence; FOLDER holds `train.jsonl` and
`dev.jsonl`. The decoder starts from the encoder. Scores: mean ROUGE with the first
summary of each paper of `dev`; beside them the first sentence (`lead`), and one
sentence that the task `summarization` selects (`extractive`).

Both sides start from the same weights and make the same updates: the same rows in the
same order, the same learning rates, schedule and smoothing. Dropout differs, and
transformers pads. Both search with 4 beams. A run that would start after `--minutes` is
left out and reported; with `--output`, scores are kept in a file, and the same command
continues. `--keep` saves the last model of ours. Needs `.venv-peers`, sacrebleu and
rouge-score. On two otherwise idle cores an epoch of all rows of Multi30k takes about
ten minutes for ours.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
from inputs import encoder_path

from bert_keras import (
    BertEncoder,
    Predictor,
    Summarization,
    TrainConfig,
    WordPieceTokenizer,
    as_columns,
    evaluate,
    save_model,
)
from bert_keras.data.columns import Columns
from bert_keras.files.atomic import replaced_file
from bert_keras.models.loading import new_model
from bert_keras.tasks.generation import AbstractiveSummarization, Translation
from bert_keras.training.updates import fit, training_rows

OURS, THEIRS, RANDOM = "bert_keras", "transformers", "random encoder"
LEAD, EXTRACTIVE = "lead", "extractive"
BEAMS, LONGEST, DECODED_AT_ONCE = 4, 64, 32
Scores = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is compared, and how it is trained.

    Args:
        sides: in the order of the table.
        scores: names of those that are shown.
        epochs, batch_size, max_length: of the training.
        rate, new_rate: learning rates of weights with a start, and of new ones.
        repeats: n-grams of this length are written once; 0 allows all.
    """

    sides: tuple[str, ...]
    scores: tuple[str, ...]
    epochs: int
    batch_size: int
    max_length: int
    rate: float
    new_rate: float
    repeats: int


SETTINGS = {
    "translation": Setting(
        sides=(OURS, THEIRS, RANDOM),
        scores=("bleu", "chrf"),
        epochs=10,
        batch_size=64,
        max_length=64,
        rate=1e-4,
        new_rate=1e-3,
        repeats=0,
    ),
    "summaries": Setting(
        sides=(LEAD, EXTRACTIVE, OURS, THEIRS),
        scores=("rouge1", "rouge2", "rougeL"),
        epochs=10,
        batch_size=16,
        max_length=256,
        rate=1e-4,
        new_rate=5e-4,
        repeats=3,
    ),
}


class Comparison:
    """One task, with its rows and the folder of its vocabulary."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.name = options.task
        self.setting = SETTINGS[self.name]
        self.epochs = options.epochs or self.setting.epochs
        self.folder = folder
        self.keep = options.keep
        self.minilm = encoder_path()
        read = multi30k if self.name == "translation" else scitldr
        self.train = first(read(options.data, "train"), options.rows)
        self.dev = first(read(options.data, "dev"), options.dev_rows)
        self.vocabulary = Path(self.minilm)
        if self.name == "translation":
            self.vocabulary = folder / "vocabulary"
            learn_vocabulary(self.train["target"], self.vocabulary)

    def run(self, side: str, seed: int) -> Scores:
        """Train a side with a seed; return its scores on the dev rows."""
        started = time.perf_counter()
        if side in (LEAD, EXTRACTIVE):
            scores = self._selected(side, seed)
        else:
            model, config = self._new(seed, is_random=side == RANDOM)
            score = self._of_transformers if side == THEIRS else self._of_ours
            scores = score(model, config)
        keras.backend.clear_session()
        seconds = round(time.perf_counter() - started)
        return {**scores, "rows": len(self.train["source"]), "seconds": seconds}

    def _config(self, seed: int) -> TrainConfig:
        return TrainConfig(
            epochs=self.epochs,
            batch_size=self.setting.batch_size,
            learning_rate=self.setting.rate,
            new_learning_rate=self.setting.new_rate,
            max_length=self.setting.max_length,
            seed=seed,
        )

    def _new(self, seed: int, *, is_random: bool) -> tuple[Any, TrainConfig]:
        decoding = {"beams": BEAMS, "max_target_length": LONGEST}
        task: Any
        if self.name == "translation":
            vocabulary = str(self.vocabulary)
            task = Translation(decoder="3/384/6", target_vocab=vocabulary, **decoding)
        else:
            repeats = self.setting.repeats
            task = AbstractiveSummarization(no_repeat_ngram=repeats, **decoding)
        config = self._config(seed)
        model = new_model(task, self.minilm, config)
        if is_random:
            fresh = BertEncoder(model.backbone.config, pooler=False, seed=seed)
            pairs = zip(model.backbone.weights, fresh.weights, strict=True)
            for weight, other in pairs:
                weight.assign(keras.ops.convert_to_tensor(other))
        return model, config

    def _selected(self, side: str, seed: int) -> Scores:
        """Return the scores of one sentence of each document."""
        train, dev = (
            as_columns(document=rows["source"], summary=rows["target"])
            for rows in (self.train, self.dev)
        )
        task = Summarization(max_sentences=1)
        config = self._config(seed)
        model = new_model(task, self.minilm, config)
        if side == EXTRACTIVE:
            fit(model, train, config)
        scores = evaluate(Predictor(model), dev)
        return dict(scores["baselines"]["lead_1"] if side == LEAD else scores)

    def _of_ours(self, model: Any, config: TrainConfig) -> Scores:
        started = time.perf_counter()
        fit(model, columns_of(self.train), config)
        trained = time.perf_counter()
        if self.keep:
            save_model(model, self.keep)
        scores = evaluate(Predictor(model), columns_of(self.dev))
        return {**scores, "training_seconds": round(trained - started)}

    def _of_transformers(self, model: Any, config: TrainConfig) -> Scores:
        """Train and score transformers' model from the weights of ours."""
        import torch
        from transformers import AutoTokenizer, BertTokenizerFast, EncoderDecoderModel

        from bert_keras.text.detokenizer import spaced  # the same spaces on both sides

        start = self.folder / "start"
        save_model(model, start)
        torch.manual_seed(config.seed)
        torch.set_num_threads(os.cpu_count() or 1)
        peer = EncoderDecoderModel.from_pretrained(start)
        sources = AutoTokenizer.from_pretrained(self.minilm)
        targets = BertTokenizerFast(
            str(self.vocabulary / "vocab.txt"),
            do_lower_case=self.name == "summaries",
        )
        rows = training_rows(model, columns_of(self.train), config)
        update = self._updates_of(peer, model, rows.steps)
        started = time.perf_counter()
        for step in range(rows.steps):
            some = rows.rows_of(step)
            batch = encoded(
                sources, self.train["source"], some, self.setting.max_length
            )
            target = encoded(targets, self.train["target"], some, LONGEST + 1)
            ids, mask = target["input_ids"], target["attention_mask"][:, 1:]
            logits = peer(
                **batch, decoder_input_ids=ids[:, :-1], decoder_attention_mask=mask
            ).logits
            labels = ids[:, 1:].masked_fill(mask == 0, -100)
            update(
                torch.nn.functional.cross_entropy(
                    logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1
                )
            )
        trained = time.perf_counter()
        peer.eval()
        first_id, last_id = targets.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        texts: list[str] = []
        dev = self.dev["source"]
        for start_row in range(0, len(dev), DECODED_AT_ONCE):
            some = range(start_row, min(start_row + DECODED_AT_ONCE, len(dev)))
            batch = encoded(sources, dev, some, self.setting.max_length)
            with torch.no_grad():
                ids = peer.generate(
                    batch["input_ids"],
                    attention_mask=batch["attention_mask"],
                    num_beams=BEAMS,
                    no_repeat_ngram_size=self.setting.repeats,
                    max_length=LONGEST + 1,
                    decoder_start_token_id=first_id,
                    eos_token_id=last_id,
                    pad_token_id=0,
                )
            texts += targets.batch_decode(ids, skip_special_tokens=True)
        answers = {"text": spaced(texts).numpy()}
        scores = model.task.score(columns_of(self.dev), answers)
        return {**scores, "training_seconds": round(trained - started)}

    def _updates_of(self, peer: Any, model: Any, steps: int) -> Any:
        """Return transformers' updates, with the learning rates of ours."""
        import torch
        from peer import PeerUpdates

        update = PeerUpdates(peer, self.setting.rate, steps)
        part = "decoder." if self.name == "translation" else ".crossattention."
        new = {id(w) for name, w in peer.named_parameters() if part in name}
        optimizer = update.optimizer
        for group in list(optimizer.param_groups):
            mine = [weight for weight in group["params"] if id(weight) in new]
            group["params"] = [w for w in group["params"] if id(w) not in new]
            rate = self.setting.new_rate
            optimizer.add_param_group(
                {**group, "params": mine, "lr": rate, "initial_lr": rate}
            )
        warmup = int(steps * TrainConfig().warmup_ratio)

        def share(step: int) -> float:
            if step < warmup:
                return step / warmup
            return (steps - step) / max(steps - warmup, 1)

        shares = [share] * len(optimizer.param_groups)
        update.schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, shares)
        return update


def multi30k(folder: Path, part: str) -> dict[str, list[str]]:
    name = {"train": "train", "dev": "val"}[part]
    sides = []
    for language in ("en", "de"):
        place = folder / f"{name}.{language}.gz"
        sides.append(gzip.decompress(place.read_bytes()).decode("utf-8").splitlines())
    pairs = [pair for pair in zip(*sides, strict=True) if all(map(str.strip, pair))]
    return {"source": [s for s, _ in pairs], "target": [t for _, t in pairs]}


def scitldr(folder: Path, part: str) -> dict[str, list[str]]:
    lines = (folder / f"{part}.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return {
        "source": [" ".join(row["source"]) for row in rows],
        "target": [row["target"][0] for row in rows],
    }


def first(rows: dict[str, list[str]], count: int | None) -> dict[str, list[str]]:
    return {name: texts[:count] for name, texts in rows.items()}


def columns_of(rows: dict[str, list[str]]) -> Columns:
    return as_columns(source=rows["source"], target=rows["target"])


def learn_vocabulary(texts: list[str], folder: Path) -> None:
    from bert_keras.cli.main import main

    folder.mkdir()
    (folder / "corpus.txt").write_text("\n\n".join(texts), encoding="utf-8")
    words = ["vocab", str(folder / "corpus.txt"), "--size", "8000", "--cased"]
    if main([*words, "--output", str(folder), "--quiet"]):
        raise SystemExit("the vocabulary was not learned")
    WordPieceTokenizer.from_folder(folder)


def encoded(tokenizer: Any, texts: list[str], rows: Any, longest: int) -> Any:
    return tokenizer(
        [texts[row] for row in rows],
        padding=True,
        truncation=True,
        max_length=longest,
        return_tensors="pt",
    )


def show(name: str, found: dict[str, dict[str, Scores]]) -> None:
    """Print means and standard deviations of the sides, and the signatures."""
    setting = SETTINGS[name]
    print(f"{name:<16}{''.join(f'{score:>16}' for score in setting.scores)}  seeds")
    signatures: dict[str, str] = {}
    for side in setting.sides:
        runs = list(found.get(side, {}).values())
        cells = []
        for score in setting.scores:
            values = [run[score] for run in runs]
            cell = f"{statistics.mean(values):.3f}" if values else "-"
            if len(values) > 1:
                cell += f" ± {statistics.stdev(values):.3f}"
            cells.append(f"{cell:>16}")
        print(f"{side:<16}{''.join(cells)}  {len(runs)}")
        for run in runs:
            signatures.update(run.get("signatures", {}))
    for score, signature in signatures.items():
        print(f"{score}: {signature}")


def compare(options: argparse.Namespace, run: Callable[[str, int], Scores]) -> None:
    """Make the runs that are missing, seeds in the outer loop, and print the table."""
    begun, left_out = time.perf_counter(), []
    found: dict[str, dict[str, Scores]] = {}  # by side and seed
    if options.output and options.output.exists():
        found = json.loads(options.output.read_text(encoding="utf-8"))
    setting = SETTINGS[options.task]
    for seed in range(1, options.seeds + 1):
        for side in options.sides or setting.sides:
            if str(seed) in found.get(side, {}) or (side == LEAD and seed > 1):
                continue
            if time.perf_counter() - begun > 60 * options.minutes:
                left_out.append(f"{side} seed {seed}")
                continue
            scores = run(side, seed)
            found.setdefault(side, {})[str(seed)] = scores
            if options.output:
                with replaced_file(options.output) as temporary:
                    temporary.write_text(json.dumps(found, indent=1))
            shown = "  ".join(f"{name} {scores[name]:.3f}" for name in setting.scores)
            line = f"{side:<16}seed {seed}  {shown}  {scores['seconds']} s"
            print(line, flush=True)
    show(options.task, found)
    if left_out:
        print(f"left out after {options.minutes:g} minutes: {'; '.join(left_out)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=SETTINGS)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sides", nargs="+")
    parser.add_argument("--rows", type=int, help="maximum number of training rows")
    parser.add_argument("--dev-rows", type=int, help="maximum number of dev rows")
    parser.add_argument(
        "--minutes",
        type=float,
        default=60,
        help="do not start runs after this many minutes",
    )
    parser.add_argument("--output", type=Path, help="JSON file of scores")
    parser.add_argument("--keep", type=Path, help="new folder for the last model")
    options = parser.parse_args()
    unknown = set(options.sides or ()) - set(SETTINGS[options.task].sides)
    if unknown:
        parser.error(f"--sides of {options.task}: {SETTINGS[options.task].sides}")
    with tempfile.TemporaryDirectory() as folder:
        compare(options, Comparison(options, Path(folder)).run)


if __name__ == "__main__":
    main()
