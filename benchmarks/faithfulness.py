"""Faithfulness of explanations: comprehensiveness and sufficiency on held-out texts.

    python benchmarks/faithfulness.py [--data emails sms] [--texts 200] [--share 0.2]
        [--methods integrated-gradients …] [--models FOLDER]

Fine-tunes all-MiniLM-L6-v2 (4 epochs, 2e-4, batches of 16) on the e-mails of
`examples/data` and on 500 messages of the SMS Spam Collection, and explains the
predicted classes of held-out texts. The share of words with the highest attributions,
rounded up, is taken out of each text, or kept alone. Prints for each method the mean of

- comprehensiveness: probability of the class for the text minus that without these
  words (higher is better),
- sufficiency: probability for the text minus that for these words alone (lower is
  better),

with the standard error of the mean, and for integrated gradients the completeness gap.
Random words are the mean of ten draws. Of the messages, half are spam.

Source: DeYoung et al. 2020 (arXiv:1911.03429), ERASER, section 4.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from default_settings import emails, messages
from inputs import encoder_path

from bert_keras import (
    Classification,
    Predictor,
    TrainConfig,
    explain,
    load_predictor,
    train,
)
from bert_keras.explanations import Explanation

DRAWS = 10
DATA = {"emails": emails, "sms": lambda seed: messages(500, seed)}
METHODS = {
    "integrated-gradients": {},
    "integrated-gradients, [MASK]": {"baseline": "mask"},
    "gradient-input": {},
    "occlusion": {},
}
RANDOM = "random words"


def chosen_texts(name: str, count: int) -> list[str]:
    """Return held-out texts; of messages half are spam."""
    test = DATA[name](0).test
    if name == "emails":
        return list(test["text"][:count])
    rows = list(zip(test["text"], test["label"], strict=True))
    spam, ham = (
        [text for text, each in rows if each == label] for label in ("spam", "ham")
    )
    return [*spam[: count // 2], *ham[: count - count // 2]]


def trained(name: str, folder: Path) -> Predictor:
    """Return a classifier, trained unless its folder is there."""
    if not folder.exists():
        data = DATA[name](0)
        result = train(
            Classification,
            encoder=encoder_path(),
            train=data.train,
            dev=data.dev,
            test=data.test,
            output=folder,
            config=TrainConfig(epochs=4, batch_size=16, learning_rate=2e-4, seed=0),
        )
        print(f"{name}: test accuracy {result.scores['test']['accuracy']:.3f}")
    return load_predictor(folder)


def halves(found: Explanation, words: np.ndarray) -> tuple[str, str]:
    """Return the text without some words, and these words alone."""
    text, taken = found.texts["text"], set(words.tolist())
    rest, last = [], 0
    for place in sorted(taken):
        rest.append(text[last : found.words[place].start])
        last = found.words[place].end
    alone = [found.words[place].text for place in sorted(taken)]
    return " ".join("".join([*rest, text[last:]]).split()), " ".join(alone)


def changes(
    predictor: Predictor,
    found: list[Explanation],
    ranks: list[np.ndarray],
    share: float,
) -> np.ndarray:
    """Return comprehensiveness and sufficiency of each text, float [N, 2].

    Args:
        predictor: of the class.
        found: N explanations.
        ranks: the words of each text, the most important first.
        share: of the words that are taken out.
    """
    texts = []
    for each, rank in zip(found, ranks, strict=True):
        count = math.ceil(share * len(rank))
        texts += halves(each, rank[:count])
    answers = predictor.predict(texts)
    values = []
    for row, each in enumerate(found):
        label = each.answer["label"]
        full = each.answer["probabilities"][label]
        without, alone = (
            answers[2 * row + half]["probabilities"][label] for half in (0, 1)
        )
        values.append([full - without, full - alone])
    return np.array(values)


def show(name: str, values: np.ndarray, note: str = "") -> None:
    means = values.mean(axis=0)
    errors = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    print(
        f"  {name:<30}comprehensiveness {means[0]:.3f} ± {errors[0]:.3f}"
        f"   sufficiency {means[1]:+.3f} ± {errors[1]:.3f}{note}",
        flush=True,
    )


def measure(name: str, predictor: Predictor, options: argparse.Namespace) -> None:
    """Print the figures of one data set."""
    texts = chosen_texts(name, options.texts)
    print(f"{name}: {len(texts)} texts, {options.share:.0%} of the words", flush=True)
    for number, method in enumerate(options.methods):
        start = time.perf_counter()
        settings = METHODS[method]
        found = list(explain(predictor, texts, method=method.split(",")[0], **settings))
        seconds = (time.perf_counter() - start) / len(texts)
        found = [each for each in found if each.words]
        if not number:
            random = np.random.default_rng(0)
            drawn = [
                changes(
                    predictor,
                    found,
                    [random.permutation(len(each.words)) for each in found],
                    options.share,
                )
                for _ in range(DRAWS)
            ]
            show(RANDOM, np.mean(drawn, axis=0))
        ranks = [np.argsort(-each.attributions[0], kind="stable") for each in found]
        note = f"   {seconds:.2f} s a text"
        gaps = np.array([each.gaps[0] for each in found])
        if not np.isnan(gaps).any():
            steps = np.array([each.steps[0] for each in found])
            note += (
                f"; gap: median {np.median(gaps):.2%}, largest {gaps.max():.2%}, "
                f"{np.mean(steps == steps.min()):.0%} with {steps.min()} points, "
                f"most {steps.max()}"
            )
        show(method, changes(predictor, found, ranks, options.share), note)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--models", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = options.models or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        for name in options.data:
            measure(name, trained(name, place / name), options)


if __name__ == "__main__":
    main()
