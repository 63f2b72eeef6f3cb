"""The peers of `whole_commands.py`: plain scripts as one writes them.

    python benchmarks/whole_command_peer.py predict MODEL --text TEXT | --input FILE
    python benchmarks/whole_command_peer.py train ENCODER FILE OUTPUT --epochs 6
    python benchmarks/whole_command_peer.py vectors | search ENCODER FILE VECTORS
    python benchmarks/whole_command_peer.py serve MODEL --port 8601
    python benchmarks/whole_command_peer.py classifier ENCODER OUTPUT
    python benchmarks/whole_command_peer.py engine EXPORT --text TEXT | --input FILE
    python benchmarks/whole_command_peer.py serve_engine EXPORT --port 8601
    python benchmarks/whole_command_peer.py optimum EXPORT --input FILE
    python benchmarks/whole_command_peer.py fastembed EXPORT --text TEXT

Threads are on all cores, texts are sorted by length, no gradients are kept where none
are needed. Only what a command needs is imported.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

BATCH = 32
TRAINING_BATCH = 16


def column(path: str, name: str) -> list[str]:
    with open(path, encoding="utf-8", newline="") as file:
        return [row[name] for row in csv.DictReader(file)]


def classifier(options: argparse.Namespace) -> None:
    """Write an untrained classifier on an encoder."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    names = ("ham", "spam")
    model = AutoModelForSequenceClassification.from_pretrained(
        options.folder,
        id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )
    model.save_pretrained(options.file)
    AutoTokenizer.from_pretrained(options.folder).save_pretrained(options.file)


def predict(options: argparse.Namespace) -> None:
    """Print the class of each text."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.set_num_threads(os.cpu_count() or 1)
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    model = AutoModelForSequenceClassification.from_pretrained(options.folder).eval()
    texts = [options.text] if options.text else column(options.input, "text")
    print(*answers(model, tokenizer, texts), sep="\n")


def answers(model: Any, tokenizer: Any, texts: list[str]) -> list[str]:
    """Return the class of each text."""
    import torch

    found = [""] * len(texts)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    with torch.inference_mode():
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = tokenizer(
                [texts[row] for row in rows],
                truncation=True,
                max_length=256,
                padding=True,
                return_tensors="pt",
            )
            best = model(**batch).logits.argmax(-1).tolist()
            for row, label in zip(rows, best, strict=True):
                found[row] = model.config.id2label[label]
    return found


def train(options: argparse.Namespace) -> None:
    """Train like `bert-keras train`: the same updates, and the best epoch is kept."""
    from peer import TransformersPeer

    texts, labels = column(options.file, "text"), column(options.file, "label")
    if options.dev:
        held, truth = column(options.dev, "text"), column(options.dev, "label")
    else:
        aside = max(1, len(texts) // 10)
        held, truth = texts[-aside:], labels[-aside:]
        texts, labels = texts[:-aside], labels[:-aside]
    side = TransformersPeer(options.folder, sorted({*labels, *truth}), seed=0)
    steps, best = -(-len(texts) // TRAINING_BATCH), -1
    made = 0

    def after_update() -> None:
        nonlocal made, best
        made += 1
        if made % steps:
            return
        _, found = side.predict(held, batch_size=BATCH, max_length=128, by_length=True)
        side.model.train()
        right = sum(a == b for a, b in zip(found, truth, strict=True))
        if right >= best:
            best = right
            side.model.save_pretrained(options.output)

    side.fine_tune(
        texts,
        labels,
        epochs=options.epochs,
        batch_size=TRAINING_BATCH,
        learning_rate=2e-4 if options.dev else 1e-4,
        max_length=128,
        after_update=after_update,
    )
    side.tokenizer.save_pretrained(options.output)
    print(best / len(truth))


def vectors(options: argparse.Namespace) -> Any:
    """Write the vectors of the texts, and return the model and the vectors."""
    import numpy as np
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(options.folder, device="cpu")
    texts = column(options.file, "text")
    found = model.encode(texts, batch_size=BATCH, show_progress_bar=False)
    np.savez(options.output, vectors=found)
    return model, found


def search(options: argparse.Namespace) -> None:
    """Print the texts nearest to a query; the vectors are stored the first time."""
    import numpy as np

    texts = column(options.file, "text")
    if Path(options.output).exists():
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(options.folder, device="cpu")
        found = np.load(options.output)["vectors"]
    else:
        model, found = vectors(options)
    query = model.encode([options.text], show_progress_bar=False)[0]
    for row in np.argsort(-(found @ query))[:5]:
        print(texts[row])


def serve(options: argparse.Namespace) -> None:
    """Answer requests by a pipeline, with Python's own server."""
    from transformers import pipeline

    classify = pipeline("text-classification", options.folder)
    serve_by(lambda text: classify(text, truncation=True)[0], options.port)


def engine(options: argparse.Namespace) -> None:
    """Print the class of each text, by ONNX Runtime and tokenizers."""
    texts = [options.text] if options.text else column(options.input, "text")
    print(*engine_of(options.folder)(texts), sep="\n")


def serve_engine(options: argparse.Namespace) -> None:
    """Answer requests by ONNX Runtime and tokenizers, with Python's own server."""
    classify = engine_of(options.folder)
    serve_by(lambda text: classify([text])[0], options.port)


def engine_of(folder: str) -> Callable[[list[str]], list[str]]:
    """Return a function that returns the classes of texts, by an ONNX file."""
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    session = onnxruntime.InferenceSession(str(Path(folder) / "onnx/model.onnx"))
    names = [each.name for each in session.get_inputs()]
    config = json.loads((Path(folder) / "config.json").read_text("utf-8"))
    labels = {int(key): name for key, name in config["id2label"].items()}

    def classify(texts: list[str]) -> list[str]:
        found = [""] * len(texts)
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            given = tokenizer.encode_batch([texts[row] for row in rows])
            parts = {
                "input_ids": [each.ids for each in given],
                "token_type_ids": [each.type_ids for each in given],
                "attention_mask": [each.attention_mask for each in given],
            }
            feed = {name: np.array(parts[name], np.int64) for name in names}
            logits, *_ = session.run(None, feed)
            for row, best in zip(rows, logits.argmax(-1).tolist(), strict=True):
                found[row] = labels[best]
        return found

    return classify


def optimum(options: argparse.Namespace) -> None:
    """Print the class of each text, by optimum's pipeline on the file in int8."""
    from optimum.onnxruntime import ORTModelForSequenceClassification
    from transformers import AutoTokenizer, pipeline

    model = ORTModelForSequenceClassification.from_pretrained(
        options.folder, file_name="model_quantized.onnx"
    )
    tokenizer = AutoTokenizer.from_pretrained(options.folder)
    classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
    texts = sorted(column(options.input, "text"), key=len)
    found = classify(texts, batch_size=BATCH, truncation=True, max_length=256)
    print(*(each["label"] for each in found), sep="\n")


def fastembed(options: argparse.Namespace) -> None:
    """Print the vector of a text, by fastembed on the file of an export."""
    from fastembed import TextEmbedding

    file = Path(options.folder) / "model.onnx"  # where it looks for it
    if not file.exists():
        file.symlink_to("onnx/model.onnx")
    model = TextEmbedding(
        "sentence-transformers/all-MiniLM-L6-v2", specific_model_path=options.folder
    )
    (vector,) = model.embed([options.text])
    print(vector.tolist())


def serve_by(classify: Callable[[str], Any], port: int) -> None:
    """Answer requests with what a function returns for a text."""
    import http.server

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # noqa: N802
            self._reply("live")

        def do_POST(self) -> None:  # noqa: N802
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._reply(str(classify(text)))

        def _reply(self, text: str) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

    place = ("127.0.0.1", port)
    http.server.ThreadingHTTPServer(place, Handler).serve_forever()


COMMANDS = {
    each.__name__: each
    for each in (
        *(classifier, predict, train, vectors, search, serve, engine, serve_engine),
        *(optimum, fastembed),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("folder")
    parser.add_argument("file", nargs="?")
    parser.add_argument("output", nargs="?")
    parser.add_argument("--text")
    parser.add_argument("--input")
    parser.add_argument("--dev")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    COMMANDS[options.command](options)


if __name__ == "__main__":
    main()
