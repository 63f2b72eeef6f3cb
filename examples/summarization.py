"""Train a summarizer on articles with summaries, and let it read one that is new.

    python examples/summarization.py ENCODER_FOLDER

ENCODER_FOLDER is a Hugging Face BERT folder or a Google checkpoint. Needs
`pip install 'bert_keras[summarization]'`. Prints the ROUGE of the sentences it chooses
from ten articles, of their first sentences and of the best there are, then a summary.
"""

import sys
import tempfile
from pathlib import Path

from bert_keras import Summarization, TrainConfig, load, train

DATA = Path(__file__).resolve().parent / "data" / "articles"
ARTICLE = """Nobody in Quill had ever seen the lake without ducks. In spring they were
gone. Biologists now know why: a pike of 1.40 metres had eaten most of them. Anglers
caught the fish on Sunday after a wait of six hours. It weighs 23 kilos, more than any
pike caught in the county before. The fish was brought to the zoo at Orr. Since Monday
the first ducks are back."""


def show(name: str, scores: dict[str, float]) -> None:
    names = ("rouge1", "rouge2", "rougeLsum")
    print(f"{name:<8}" + "  ".join(f"{key} {scores[key]:.3f}" for key in names))


def main(encoder: str) -> None:
    articles = Summarization.read(DATA / "train.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            Summarization,
            encoder=encoder,
            train=articles,
            test=Summarization.read(DATA / "test.jsonl"),
            output=Path(folder) / "model",
            config=TrainConfig(
                epochs=8,
                batch_size=4,
                learning_rate=2e-4,
                dev_share=0.2,  # six articles choose the best epoch
                max_length=256,  # longer articles become windows of whole sentences
            ),
            task_settings={"max_sentences": 2, "trigram_blocking": True},
        )
        scores = result.scores["test"]
        show("chosen", scores)
        for name, others in scores["baselines"].items():
            show(name, others)
        (answer,) = load(result.folder).predict([ARTICLE])
    for sentence in answer["sentences"]:
        print(f"{sentence['score']:.2f}  {' '.join(sentence['text'].split())}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
