"""Ask an exported SavedModel, without bert_keras and without Keras.

    python examples/ask_savedmodel.py saved_models/emails/1 "first text" "second text"

Prints a line a text: its label, how probable that is, and the text. Like a server, it
loads TensorFlow and the libraries of tensorflow-text's ops, nothing else; a model of
pairs is asked with an even number of texts, two and two.
"""

import importlib.util
import sys
from pathlib import Path

import tensorflow as tf


def load_text_ops() -> None:
    """Load the op libraries of tensorflow-text without importing the package."""
    found = importlib.util.find_spec("tensorflow_text")
    if found is None or found.origin is None:
        sys.exit("tensorflow-text is not installed: its ops are in the model")
    for library in sorted((Path(found.origin).parent / "python/ops").glob("_*.so")):
        tf.load_op_library(str(library))


def main(folder: str, texts: list[str]) -> None:
    load_text_ops()
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    names = sorted(serve.structured_input_signature[1])  # text, or text_a and text_b
    inputs = {name: texts[i :: len(names)] for i, name in enumerate(names)}
    answers = serve(**{name: tf.constant(part) for name, part in inputs.items()})
    labels = [label.decode() for label in answers["label"].numpy()]
    scores = answers["score"].numpy()
    shown = zip(*inputs.values(), strict=True)
    for label, score, parts in zip(labels, scores, shown, strict=True):
        print(f"{label:<12} {score:.3f}  {' | '.join(parts)}")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
