"""Train a summarizer on articles with summaries, and summarize a new article.

    python examples/summarization.py ENCODER_FOLDER

ENCODER_FOLDER is a Hugging Face BERT folder or a Google checkpoint. Needs
`pip install 'bert_keras[summarization]'`. Prints the ROUGE scores of the sentences
selected from 24 test articles before and after training, the scores of the first two
sentences and of the best two, then a summary. With all-MiniLM-L6-v2, in about 80
seconds on two cores:

    before    rouge1 0.283  rouge2 0.167  rougeLsum 0.267
    after     rouge1 0.460  rouge2 0.340  rougeLsum 0.440
    lead_2    rouge1 0.313  rouge2 0.184  rougeLsum 0.297
    oracle    rouge1 0.886  rouge2 0.830  rougeLsum 0.874
    0.34  Biologists now know why: a pike of 1.40 metres had eaten most of them.
    0.35  Anglers caught the fish on Sunday after a wait of six hours.
"""

import sys
import tempfile
from pathlib import Path

from bert_keras import (
    Predictor,
    Summarization,
    TrainConfig,
    evaluate,
    load_predictor,
    train,
)
from bert_keras.models import new_model

DATA = Path(__file__).resolve().parent / "data" / "articles"
ARTICLE = """Nobody in Quill had ever seen the lake without ducks. In spring they were
gone. Biologists now know why: a pike of 1.40 metres had eaten most of them. Anglers
caught the fish on Sunday after a wait of six hours. It weighs 23 kilos, more than any
pike caught in the county before. The fish was brought to the zoo at Orr. Since Monday
the first ducks are back."""


def show(name: str, scores: dict[str, float]) -> None:
    names = ("rouge1", "rouge2", "rougeLsum")
    print(f"{name:<10}" + "  ".join(f"{key} {scores[key]:.3f}" for key in names))


def main(encoder: str) -> None:
    test = Summarization.read(DATA / "test.jsonl")
    config = TrainConfig(
        epochs=12,
        batch_size=2,
        learning_rate=1.5e-4,
        validation_split=0.15,  # eleven articles, which select the best epoch
        max_length=192,  # longer articles become windows of whole sentences
    )
    task = Summarization(max_sentences=2)
    before = evaluate(Predictor(new_model(task, encoder, config)), test)
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            task,
            encoder=encoder,
            train=Summarization.read(DATA / "train.jsonl"),
            test=test,
            output=Path(folder) / "model",
            config=config,
        )
        (answer,) = load_predictor(result.folder).predict([ARTICLE])
    after = result.scores["test"]
    baselines = after["baselines"]
    for name, scores in {"before": before, "after": after, **baselines}.items():
        show(name, scores)
    for sentence in answer["sentences"]:
        print(f"{sentence['score']:.2f}  {' '.join(sentence['text'].split())}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
