"""Query an exported SavedModel of any task, without bert_keras and without Keras.

    python examples/ask_savedmodel.py saved_models/emails/1 "first text" "second text"

Prints one JSON object per row, with its inputs and every output of the graph by name.
Like a server, it loads only TensorFlow and the ops of tensorflow-text. If the model
reads several texts, such as question and context, give that many for each row, in the
order of `assets.extra/answers.json`. If the last one is a list, such as the choices for
a context, all texts form one row.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path


def load_tensorflow():
    """Import TensorFlow and the ops of tensorflow-text, without its package or logs."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Some log lines ignore all settings: only Python's own stderr is shown.
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    found = importlib.util.find_spec("tensorflow_text")
    if found is None or found.origin is None:
        sys.exit("tensorflow-text is not installed: the model needs its ops")
    for library in sorted((Path(found.origin).parent / "python/ops").glob("_*.so")):
        tf.load_op_library(str(library))
    return tf


def rows_of(texts: list[bytes], specs: list) -> list[list]:
    """Return the texts of each row, one per input; the last may be a list of texts."""
    count = len(specs)
    if specs[-1].shape.rank == 2 and len(texts) >= count:
        return [[*texts[: count - 1], texts[count - 1 :]]]
    if specs[-1].shape.rank == 2 or len(texts) % count:
        names = ", ".join(spec.name for spec in specs)
        sys.exit(f"the model reads {names} in each row; received {len(texts)} texts")
    return [texts[start : start + count] for start in range(0, len(texts), count)]


def plain(value):
    """Return a JSON-compatible value; bytes that are not UTF-8 are replaced."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def main(folder: str, texts: list[str]) -> None:
    if not (Path(folder) / "saved_model.pb").is_file():
        sys.exit(f"{folder}: must be one version of a SavedModel, such as NAME/1")
    tf = load_tensorflow()
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    inputs = serve.structured_input_signature[1]
    described = Path(folder) / "assets.extra" / "answers.json"
    names = sorted(inputs)
    if described.is_file():
        names = json.loads(described.read_text(encoding="utf-8"))["inputs"]
    rows = rows_of([os.fsencode(text) for text in texts], [inputs[n] for n in names])
    columns = {
        name: list(part)
        for name, part in zip(names, zip(*rows, strict=True), strict=True)
    }
    answers = serve(**{name: tf.constant(part) for name, part in columns.items()})
    columns |= {name: value.numpy().tolist() for name, value in answers.items()}
    for row in zip(*columns.values(), strict=True):
        found = {key: plain(value) for key, value in zip(columns, row, strict=True)}
        print(json.dumps(found, allow_nan=False))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
