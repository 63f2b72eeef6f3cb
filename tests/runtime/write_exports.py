"""Write exports for an engine, and what TensorFlow answers, for `check_exports.py`.

python tests/runtime/write_exports.py FOLDER [onnx|openvino]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from conftest import VOCABULARY
from verbs import answers_of_verbs, write_data

from bert_keras.config import BertConfig
from bert_keras.inference.engine_export import export_to_engine
from bert_keras.inference.predictor import Predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.embedding import Embedding
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.multiple_choice import MultipleChoice
from bert_keras.tasks.next_sentence import NextSentence
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.tasks.regression import Regression
from bert_keras.tasks.reranking import Reranking
from bert_keras.tasks.tagging.task import TokenClassification
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

CLASSES = ("ham", "promo", "spam")
NLI = ("contradiction", "neutral", "entailment")
TAGS = ("O", "B-person", "I-person", "B-place", "I-place")
PROMPTS = {"query": "see: ", "document": "you "}
TASKS: dict[str, Any] = {
    "classification": Classification(CLASSES, abstain_below=0.334),
    "pairs": Classification(CLASSES, pairs=True),
    "windows": Classification(CLASSES, long="windows", stride=9),
    "head-tail": Classification(CLASSES, long="head-tail"),
    "multi-label": MultiLabel(CLASSES),
    "regression": Regression(),
    "similarity": Regression(pairs=True, activation="sigmoid"),
    "two-rows": Regression(pairs=True, pooling="mean", pair_encoder="bi"),
    "embedding": Embedding(prompts=PROMPTS, normalize=True),
    "sparse": Embedding(kind="sparse"),
    "tokens": Embedding(
        kind="tokens",
        prompts=PROMPTS,
        default_prompt="query",
        default_side="query",
        query_expansion=9,
        skip_words=("you",),
    ),
    "reranking": Reranking(),
    "reranking-windows": Reranking(long="windows"),
    "by-vectors": Classification(CLASSES, pooling="mean", normalize=True),
    "entailment": Classification(CLASSES, entailment=NLI, template="see {}: you"),
    "each-class": MultiLabel(CLASSES, entailment=NLI, thresholds=(0.3, 0.5, 0.7)),
    "token-classification": TokenClassification(TAGS, abstain_below=0.21),
    "question-answering": QuestionAnswering(no_answer=True, stride=4, n_best=3),
    "multiple-choice": MultipleChoice(abstain_below=0.34),
    "next-sentence": NextSentence(abstain_below=0.6),
}
TEXTS = [
    *("free cash prize", "", "lunch at six, you", "é 日本 🎉\u200b", "Sale " * 40),
    *("see you at six", "win \ud800 now", " ".join(map(chr, range(97, 123))) * 3),
]
_LONG = [(place, text) for place, text in enumerate(TEXTS) if text]


def task_model(task: Any) -> TaskModel:
    """Return a tiny model of a task."""
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        # Correlations of nearly equal numbers would differ by more than they do.
        initializer_range=0.5 if isinstance(task, Regression) else 0.02,
    )
    encoder = BertEncoder(config, pooler=task.needs.pooler, seed=1)
    tokenizer = WordPieceTokenizer(VOCABULARY, lowercase=True)
    return TaskModel(encoder, task, Preprocessor(tokenizer, max_length=24), seed=2)


def items_of(task: Any) -> list[list[Any]]:
    """Return the texts of each kind that a task answers."""
    if isinstance(task, MultipleChoice):
        some = [text for text in TEXTS if text.strip()]  # no choice is empty
        return [[(text, some[place : place + 2] + ["you"]) for place, text in _LONG]]
    found: list[list[Any]] = [TEXTS]
    if len(task.roles) > 1:
        found = [[(text, TEXTS[-1 - place]) for place, text in enumerate(TEXTS)]]
    if getattr(task, "entailment", ()):
        found.append(
            [(text, ["you", *CLASSES[: 1 + place % 3]]) for place, text in _LONG]
        )
    if isinstance(task, TokenClassification):
        found.append([text.split() for _, text in _LONG])
    return found


def write_exports(folder: Path, engine: str, names: Any = TASKS) -> None:
    """Write an export and its answers for each task, and the answers of verbs."""
    predictors = {}
    for name in names:
        task = TASKS[name]
        model = task_model(task)
        predictors[name] = Predictor(model)
        place = folder / name
        export_to_engine(model, place, format=engine)
        expected = []
        for items in items_of(task):
            answers = predictors[name].predict(items)
            expected.append({"items": items, "answers": answers})
        (folder / f"{name}.json").write_text(json.dumps(expected), encoding="utf-8")
    with tempfile.TemporaryDirectory() as place:
        data = folder / "data"
        write_data(data)
        found = answers_of_verbs(
            [*predictors], predictors.__getitem__, data, Path(place)
        )
    (data / "verbs.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    target, *kind = sys.argv[1:]
    Path(target).mkdir(parents=True, exist_ok=True)
    write_exports(Path(target), *(kind or ["onnx"]))
