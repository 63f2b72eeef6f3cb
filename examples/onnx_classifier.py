"""Classify texts with an exported ONNX file, using onnxruntime, tokenizers and NumPy.

    bert-keras export models/emails emails.onnx --format onnx
    python examples/onnx_classifier.py emails.onnx "You have won!" "See you at six"

Prints one JSON object per text, with its label and the probability of each class.
Everything the script needs to know about the model is in `answers.json`, next to it.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def classify(folder: str, texts: list[str]) -> list[dict]:
    """Return text, label and probabilities for each text."""
    place = Path(folder)
    described = json.loads((place / "answers.json").read_text(encoding="utf-8"))
    answer = described["answer"]
    if answer["activation"] != "softmax" or "classes" not in answer:
        sys.exit(f"{folder}: must be a classifier; it is {described['task']}")
    session = onnxruntime.InferenceSession(str(place / described["model"]))
    # It truncates to the maximum length and pads to the longest text.
    tokenizer = Tokenizer.from_file(str(place / described["tokenizer"]))
    rows = tokenizer.encode_batch(texts)
    batch = {
        "input_ids": [row.ids for row in rows],
        "token_type_ids": [row.type_ids for row in rows],
        "attention_mask": [row.attention_mask for row in rows],
    }
    inputs = {name: np.array(values, "int64") for name, values in batch.items()}
    (logits,) = session.run(None, inputs)
    scaled = logits / answer["temperature"]
    powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    probabilities = powers / powers.sum(axis=1, keepdims=True)
    return [
        {
            "text": text,
            "label": answer["classes"][row.argmax()],
            "probabilities": dict(zip(answer["classes"], row.tolist(), strict=True)),
        }
        for text, row in zip(texts, probabilities, strict=True)
    ]


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    for found in classify(sys.argv[1], sys.argv[2:]):
        print(json.dumps(found, ensure_ascii=False))
