"""`model.compile` and `model.fit` in your own code, strings in.

    python examples/keras_fit.py ENCODER_FOLDER

ENCODER_FOLDER is a Hugging Face BERT folder or a Google checkpoint. Prints the loss and
accuracy of each epoch, then the probabilities of two new texts.
"""

import sys

import keras

from bert_keras import AdamW, TaskModel

TEXTS = ["what a lovely day", "I am so happy for you", "the food was wonderful"] * 8
TEXTS += ["this is awful", "I want my money back", "the room was dirty"] * 8
LABELS = ["good"] * 24 + ["bad"] * 24

keras.utils.set_random_seed(1)
model = TaskModel.from_pretrained(
    sys.argv[1], "classification", classes=("bad", "good"), max_length=64
)
model.compile(AdamW(2e-4))  # with the task's own loss and metrics
model.fit(TEXTS, LABELS, batch_size=16, epochs=3, verbose=2)
logits = model.predict(["a wonderful evening", "awful service"], verbose=0)
print(model.task.classes, keras.ops.softmax(logits).numpy().round(3).tolist())
