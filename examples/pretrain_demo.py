"""Pretrain a new BERT from text files: the English documentation of Python.

    make pretrain-demo   (or: python examples/pretrain_demo.py [--steps 4000])

Builds a corpus from Python's documentation, learns a vocabulary, writes the pretraining
data, pretrains a small BERT for a few minutes, and fills in masks with a randomly
initialized model and with the pretrained one. Each step is a command that is printed
before it runs; an interrupted pretraining run resumes.
"""

import argparse
import time
from pathlib import Path

from email_demo import run

import bert_keras as bk

HERE = Path(__file__).resolve().parent
WORK = HERE.parent / "models" / "pretrain_demo"
SIZE = "2/128/2"
# No dropout: each text is seen only a few times. Small models learn faster with 0.08.
SETTINGS = "hidden_dropout_prob=0 attention_probs_dropout_prob=0 initializer_range=0.08"
SENTENCES = [
    "Return a new [MASK] with the same elements.",
    "If the file does not [MASK], an error is raised.",
    "This function takes two [MASK] and returns their sum.",
    "The default value is [MASK].",
]


def show(title: str, predictor: bk.Predictor) -> None:
    print(f"\n{title}")
    for text, answer in zip(SENTENCES, predictor.predict(SENTENCES), strict=True):
        words = [f"{w['token']} {w['probability']:.2f}" for w in answer["masks"][0]]
        print(f"  {text:<55} {', '.join(words)}")


def new_model(vocabulary: Path) -> bk.Predictor:
    """Return a model with random weights."""
    tokenizer = bk.WordPieceTokenizer.from_folder(vocabulary)
    sizes = bk.BertConfig.from_preset(SIZE, vocab_size=tokenizer.vocab_size)
    encoder = bk.BertEncoder(sizes, pooler=False, seed=0)
    return bk.Predictor(
        bk.TaskModel(encoder, bk.MaskedLM(), bk.Preprocessor(tokenizer), seed=0)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=4000)
    steps, started = parser.parse_args().steps, time.perf_counter()
    corpus, vocabulary = WORK / "corpus", WORK / "vocabulary"
    model = WORK / f"run_{steps}"
    if not (corpus / "train.txt").exists():
        run("python", HERE / "python_corpus.py", corpus)
    train, held_out = corpus / "train.txt", corpus / "held_out.txt"
    if not (vocabulary / "vocab.txt").exists():
        run("bert-keras", "vocab", train, "--size", 6000, "--output", vocabulary)
    data = ["--vocab", vocabulary, "--form", "text", "--masking", "dynamic"]
    data += ["--max-length", 64]
    for text, rate in ((train, 0.5), (held_out, 0.15)):  # more masks to learn from
        output = ["--mask-rate", rate, "--output", WORK / f"data_{text.stem}"]
        run("bert-keras", "pretraining-data", text, *data, *output)
    pretrain = ["--data", WORK / "data_train", "--held-out", WORK / "data_held_out"]
    pretrain += ["--size", SIZE, "--vocab", vocabulary, "--output", model]
    pretrain += ["--steps", steps, "--batch-size", 16, "--learning-rate", 2e-3]
    pretrain += ["--warmup-ratio", 0.1, "--evaluate-every", 500]
    pretrain += [word for each in SETTINGS.split() for word in ("--set", each)]
    run("bert-keras", "pretrain", *pretrain, "--checkpoint-every", 500)
    show("fill-mask with random weights", new_model(vocabulary))
    after = bk.load_predictor(model / "model", task="masked-lm")
    show(f"fill-mask after {steps:,} steps", after)
    print(f"\ndone in {time.perf_counter() - started:.0f} s", end="; ")
    print(f"model folder, to fine-tune: {model / 'model'}; report: {model}/report.html")


if __name__ == "__main__":
    main()
