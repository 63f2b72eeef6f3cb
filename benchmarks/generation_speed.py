"""Training and decoding speed of an encoder-decoder beside transformers on torch.

    python benchmarks/generation_speed.py [--encoder FOLDER] [--rounds 3] [--tokens 24]
        [--data FOLDER] [--model FOLDER] [--batch-size 32] [--updates 8]
        [--work train decode]
        [--precision mixed_bfloat16] [--processor-time]

Both sides have the same weights: an encoder (all-MiniLM-L6-v2 by default) and a new
decoder of 3 layers, 384 wide, with 8,000 tokens. Texts are random words of 6 to 20
tokens or, with `--data`, pairs drawn from the Multi30k files `train.en.gz` and
`train.de.gz` in FOLDER, whose German vocabulary is learned first. Measured are real
source and target tokens a second of training updates, batches in random order, and
sentences a second of beam search with 4 beams, 32 sentences at a time.

A random decoder writes `--tokens` tokens for each sentence, so both sides take the same
steps. `--model` is a trained model, such as one kept by `generation_quality.py --keep`:
it translates 512 sentences of `val.en.gz`, sorted by length on both sides, and decides
where each ends. The rounds alternate; the median of each side is printed. `--precision`
applies to decoding.
`--processor-time` measures both sides with one thread, per second of processor time:
other work on the machine changes such a figure less. Needs `.venv-peers`; about five
minutes on two otherwise idle cores.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inputs import encoder_path

ROWS, BEAMS = 32, 4
SENTENCES = 512  # that a trained model translates
UNITS = {"train": "tokens/s", "decode": "sentences/s"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", type=Path, help="a trained model, with --data")
    parser.add_argument("--batch-size", type=int, default=ROWS, help="of training")
    parser.add_argument("--updates", type=int, default=8, help="of training")
    parser.add_argument("--work", nargs="+", choices=UNITS, default=list(UNITS))
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--processor-time", action="store_true")
    options = parser.parse_args()
    clock, threads = time.perf_counter, os.cpu_count() or 1
    if options.processor_time:
        import tensorflow as tf

        clock, threads = time.process_time, 1
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    encoder = options.encoder or encoder_path()
    count = options.batch_size * options.updates
    with tempfile.TemporaryDirectory() as temporary:
        from generation_quality import multi30k

        from bert_keras import load_model, save_model

        pairs, vocabulary = random_pairs(encoder, count)
        if options.data is not None:
            vocabulary = str(Path(temporary, "vocabulary"))
            pairs = multi30k_pairs(options.data, count, vocabulary)
        sources = [source for source, _ in pairs[:ROWS]]
        if options.model is not None:
            model, folder = load_model(options.model), str(options.model)
            options.tokens = model.task.max_target_length
            sources = multi30k(options.data, "dev")["source"][:SENTENCES]
            sources.sort(key=len)
        else:
            model = new_model(encoder, options.tokens, vocabulary)
            folder = str(Path(temporary, "model"))
            save_model(model, folder)
        theirs = Theirs(folder, encoder, pairs, sources, options, clock)
        theirs.set_threads(threads)
        ours = Ours(model, folder, pairs, sources, options, clock)
    for name in options.work:
        if name == "decode":
            theirs.set_precision(options.precision)
        sides: dict[str, Callable[[], float]] = {
            "bert_keras": getattr(ours, name),
            "transformers": getattr(theirs, name),
        }
        for run in sides.values():
            run()  # traces the graph
        speeds: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(options.rounds):
            for side, run in sides.items():
                speeds[side].append(run())
        median = {side: statistics.median(found) for side, found in speeds.items()}
        for side, speed in median.items():
            print(f"{name:<8}{side:<14}{speed:>10,.1f} {UNITS[name]}")
        ratio = median["bert_keras"] / median["transformers"]
        print(f"{name:<8}{'ratio':<14}{ratio:>10.2f}")


def random_pairs(encoder: str, count: int) -> tuple[list[tuple[str, str]], Any]:
    """Return pairs of random words, and the vocabulary of the targets."""
    from bert_keras import WordPieceTokenizer

    draw = random.Random(7)
    known = WordPieceTokenizer.from_folder(encoder).vocabulary
    words = [word for word in known[2000:12000] if word.isalpha() and word.isascii()]

    def text() -> str:
        return " ".join(draw.choices(words[:3000], k=draw.randint(4, 18)))

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    fillers = [f"[unused{number}]" for number in range(8000)]
    vocabulary = [*special, *words, *fillers][:8000]
    return [(text(), text()) for _ in range(count)], {"vocabulary": vocabulary}


def multi30k_pairs(data: Path, count: int, folder: str) -> list[tuple[str, str]]:
    """Return pairs of Multi30k, and learn the vocabulary of all targets."""
    from generation_quality import learn_vocabulary, multi30k

    rows = multi30k(data, "train")
    learn_vocabulary(rows["target"], Path(folder))
    pairs = list(zip(rows["source"], rows["target"], strict=True))
    return random.Random(7).sample(pairs, count)


def new_model(encoder: str, tokens: int, vocabulary: Any) -> Any:
    """Return a model whose decoder is random."""
    from bert_keras import TrainConfig
    from bert_keras.models.loading import new_model
    from bert_keras.tasks.generation import Translation

    task = Translation(
        decoder="3/384/6",
        target_vocab=vocabulary,
        beams=BEAMS,
        max_target_length=tokens,
        length_ratio=100.0,
    )
    return new_model(task, encoder, TrainConfig(max_length=64))


class Ours:
    """Updates as `train` makes them, and answers as `export` holds them."""

    def __init__(
        self,
        model: Any,
        folder: str,
        pairs: list[tuple[str, str]],
        sources: list[str],
        options: argparse.Namespace,
        clock: Callable[[], float],
    ) -> None:
        from bert_keras import Predictor, load_predictor

        self.model = model
        self.pairs = pairs
        self.sources = sources
        self.batch_size = options.batch_size
        self.updates = options.updates
        self.clock = clock
        self.predictor = Predictor(model, freeze=False)
        if options.precision != "float32":
            self.predictor = load_predictor(folder, precision=options.precision)

    def train(self) -> float:
        from bert_keras import TrainConfig, as_columns
        from bert_keras.training.updates import new_optimizer, training_rows, updates

        sources, targets = zip(*self.pairs, strict=True)
        columns = as_columns(source=list(sources), target=list(targets))
        config = TrainConfig(batch_size=self.batch_size, epochs=2, learning_rate=1e-6)
        rows = training_rows(self.model, columns, config)
        optimizer = new_optimizer(config, steps=rows.steps)
        optimizer.build(self.model.trainable_variables)
        tokens, started = 0, 0.0
        for step, update in enumerate(updates(self.model, rows, optimizer), 1):
            if step > self.updates:  # the first epoch traces the step
                tokens += update.real_tokens
            elif step == self.updates:
                started = self.clock()
        return tokens / (self.clock() - started)

    def decode(self) -> float:
        started = self.clock()
        self.predictor.predict(self.sources, batch_size=ROWS)
        return len(self.sources) / (self.clock() - started)


class Theirs:
    """transformers' model, `generate` and a plain loop with fused AdamW."""

    def __init__(
        self,
        folder: str,
        encoder: str,
        pairs: list[tuple[str, str]],
        sources: list[str],
        options: argparse.Namespace,
        clock: Callable[[], float],
    ) -> None:
        from transformers import AutoTokenizer, EncoderDecoderModel

        from bert_keras import load_model

        self.clock = clock
        self.model = EncoderDecoderModel.from_pretrained(folder)
        self.tokenizer = AutoTokenizer.from_pretrained(encoder)
        preprocessor = load_model(folder)
        tokenizer = preprocessor.task.target_tokenizer(preprocessor.preprocessor)
        self.targets = [
            [2, *row[: options.tokens - 1], 3]
            for row in tokenizer([t for _, t in pairs]).to_list()
        ]
        self.pairs, self.sources, self.tokens = pairs, sources, options.tokens
        self.batch_size = options.batch_size

    def set_threads(self, count: int) -> None:
        import torch

        torch.set_num_threads(count)

    def set_precision(self, precision: str) -> None:
        import torch

        self.model.to(getattr(torch, precision.removeprefix("mixed_")))

    def train(self) -> float:
        import torch
        from peer import PeerUpdates

        update = PeerUpdates(self.model, 1e-6, len(self.pairs) // self.batch_size)
        tokens, started = 0, self.clock()
        for start in range(0, len(self.pairs), self.batch_size):
            some = slice(start, start + self.batch_size)
            sources = [source for source, _ in self.pairs[some]]
            batch = self.tokenizer(sources, padding=True, return_tensors="pt")
            rows = self.targets[some]
            longest = max(map(len, rows)) - 1
            inputs = torch.zeros(len(rows), longest, dtype=torch.long)
            labels = torch.full((len(rows), longest), -100)
            for number, row in enumerate(rows):
                inputs[number, : len(row) - 1] = torch.tensor(row[:-1])
                labels[number, : len(row) - 1] = torch.tensor(row[1:])
            mask = (labels >= 0).long()
            logits = self.model(
                **batch, decoder_input_ids=inputs, decoder_attention_mask=mask
            ).logits
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), label_smoothing=0.1
            )
            update(loss)
            tokens += int(batch["attention_mask"].sum()) + int(mask.sum())
        return tokens / (self.clock() - started)

    def decode(self) -> float:
        import torch

        self.model.eval()
        started = self.clock()
        with torch.no_grad():
            for start in range(0, len(self.sources), ROWS):
                some = self.sources[start : start + ROWS]
                batch = self.tokenizer(some, padding=True, return_tensors="pt")
                self.model.generate(
                    batch["input_ids"],
                    attention_mask=batch["attention_mask"],
                    num_beams=BEAMS,
                    num_return_sequences=BEAMS,
                    max_length=self.tokens + 1,
                    decoder_start_token_id=2,
                    eos_token_id=3,
                    pad_token_id=0,
                )
        return len(self.sources) / (self.clock() - started)


if __name__ == "__main__":
    main()
