"""Make `release-X/`: a model folder of each task and an export, with their answers.

Run once for a release, before its version is set to the next:

    PYTHONPATH=.:tests python tests/goldens/make_release_golden.py

Later versions must open all of them with the same answers; `test_releases.py` checks
it. The weights are random, so that no answer is certain.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import keras
import numpy as np
from conftest import VOCABULARY
from task_cases import Case, first_case

from bert_keras.config import BertConfig
from bert_keras.exports.saved_model import export_model
from bert_keras.inference.predictor import load_predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks import TASKS, protocols
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.version import __version__

GOLDEN = Path(__file__).with_name(f"release-{__version__}")
EXPORTED = "classification"


def main() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for name in TASKS:
        case = first_case(name)
        if name == "feature-tagging":  # the tests' BiLSTM takes 0.5 MB
            task = dataclasses.replace(case.task, units=4)
            case = dataclasses.replace(case, task=task)
        model = model_of(case)
        save_model(model, GOLDEN / name)
        (GOLDEN / name / "README.md").unlink(missing_ok=True)
        texts = texts_of(case)
        answers = load_predictor(GOLDEN / name).predict(texts)
        written = {"texts": texts, "answers": [plain(each) for each in answers]}
        text = json.dumps(written, ensure_ascii=False, indent=1)
        (GOLDEN / f"{name}.json").write_text(text + "\n")
        if name == EXPORTED:
            export_model(model, GOLDEN / "export")


def model_of(case: Case) -> TaskModel:
    """Return a tiny model with random weights."""
    keras.utils.set_random_seed(7)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    encoder = BertEncoder(
        config, pooler=case.task.needs.pooler, outputs=case.task.needs.outputs
    )
    preprocessor = Preprocessor(WordPieceTokenizer(VOCABULARY), max_length=32)
    model = TaskModel(encoder, case.task, preprocessor)
    draw = np.random.default_rng(7)
    for weight in model.weights:
        noise = 0.3 * draw.normal(size=weight.shape)
        weight.assign(weight.numpy() + noise.astype("float32"))
    return model


def texts_of(case: Case) -> list[object]:
    """Return the case's texts as `predict` takes them."""
    roles = protocols.texts_of(case.task, case.columns)
    return (
        list(roles[0])
        if len(roles) == 1
        else [list(row) for row in zip(*roles, strict=True)]
    )


def plain(answer: object) -> object:
    """Return an answer as JSON holds it."""
    return json.loads(json.dumps(answer, default=lambda array: array.tolist()))


if __name__ == "__main__":
    main()
