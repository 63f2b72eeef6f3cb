"""`model.compile` and `model.fit` in your own code, strings in.

    python examples/keras_fit.py ENCODER_FOLDER

ENCODER_FOLDER is a Hugging Face BERT folder or a Google checkpoint. Prints the loss and
accuracy of each epoch, then the probabilities of two new texts.
"""

import sys

import keras

from bert_keras import (
    AdamW,
    BertEncoder,
    Classification,
    Preprocessor,
    TaskModel,
    WordPieceTokenizer,
)

TEXTS = ["what a lovely day", "I am so happy for you", "the food was wonderful"] * 8
TEXTS += ["this is awful", "I want my money back", "the room was dirty"] * 8
LABELS = ["good"] * 24 + ["bad"] * 24

keras.utils.set_random_seed(1)
encoder = BertEncoder.from_pretrained(sys.argv[1])
preprocessor = Preprocessor(WordPieceTokenizer.from_folder(sys.argv[1]), max_length=64)
task = Classification(classes=("bad", "good"))
model = TaskModel(encoder, task, preprocessor)
model.compile(optimizer=AdamW(2e-4), loss=task.loss(), metrics=task.metrics())
model.fit(TEXTS, LABELS, batch_size=16, epochs=3, verbose=2)
logits = model.predict(["a wonderful evening", "awful service"], verbose=0)
print(task.classes, keras.ops.softmax(logits).numpy().round(3).tolist())
