"""Question answering equals Hugging Face: models both ways, windows, and the scores.

Inputs and random weights are new at each run. A failure prints the seed; the
environment variable PEERS_SEED runs it again.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.inference.predictor import Predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.scoring.answers import squad1_scores
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    *("the", "cat", "sat", ".", ",", "?", "日", "本"),
]
WORDS = ["the", "cat", "sat.", "Zoë", "日本", "dog,", "🎉", "mats", "e\u0301te\u0301"]
LONGEST = 32


def text_of(rng, count):
    return " ".join(rng.choice(WORDS, count))


@pytest.fixture
def theirs(rng, tmp_path):
    """Return their model with random weights, and its folder as they write it."""
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=LONGEST,
    )
    model = transformers.BertForQuestionAnswering(config).eval()
    for name, weight in model.named_parameters():
        mean = 1.0 if name.endswith("LayerNorm.weight") else 0.0
        values = rng.normal(mean, 0.3, tuple(weight.shape)).astype("float32")
        weight.data = torch.from_numpy(values)
    folder = tmp_path / "theirs"
    model.save_pretrained(folder)
    WordPieceTokenizer(VOCABULARY).save(folder)
    return model, folder


def their_logits(model, ids, segments):
    with torch.no_grad():
        found = model(
            input_ids=torch.tensor([ids]), token_type_ids=torch.tensor([segments])
        )
    return np.stack([found.start_logits[0], found.end_logits[0]], axis=-1)


def their_best_span(model, tokenizer, question, context, task):
    """Return the best span of their windows, by trying every one.

    Each start counts in the window with most context for it, as in `run_squad.py`.
    """
    asked = tokenizer(question, add_special_tokens=False)["input_ids"]
    room = LONGEST - 3 - len(asked)
    step = min(task.stride, (room + 1) // 2)
    windows = tokenizer(
        question,
        context,
        max_length=LONGEST,
        truncation="only_second",
        stride=room - step,  # their stride is the overlap
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    found, nulls = {}, []
    for row, ids in enumerate(windows["input_ids"]):
        logits = their_logits(model, ids, windows["token_type_ids"][row])
        nulls.append(float(logits[0].sum()))
        places = [i for i, part in enumerate(windows.sequence_ids(row)) if part == 1]
        for i, start in enumerate(places):
            around = min(i, len(places) - 1 - i)
            for end in places[i : i + task.max_answer_tokens]:
                offsets = windows["offset_mapping"][row]
                span = (row * step + i, row * step + end - places[0])
                score = float(logits[start, 0] + logits[end, 1])
                characters = (offsets[start][0], offsets[end][1])
                found.setdefault(span[0], {}).setdefault(row, (around, []))[1].append(
                    (score, characters)
                )
    spans = []
    for by_row in found.values():
        spans += max(by_row.items(), key=lambda item: (item[1][0], -item[0]))[1][1]
    return max(spans), min(nulls), len(windows["input_ids"])


def test_their_folder_answers_here_as_there(theirs, rng):
    model, folder = theirs
    task = QuestionAnswering(stride=7, max_answer_tokens=6)  # several windows
    predictor = Predictor(with_task(load_model(folder), task))
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    items = [
        (text_of(rng, asked), text_of(rng, size))
        for asked, size in ((1, 1), (2, 9), (3, 25), (1, 60))
    ]
    for item, row in zip(items, predictor.predict(items), strict=True):
        (score, (start, _)), null, windows = their_best_span(
            model, tokenizer, *item, task
        )
        assert row["start"] == start, windows
        assert row["null_score"] == pytest.approx(null - score, abs=1e-3)
        assert row["answer"] == item[1][row["start"] : row["end"]]


def with_task(model, task):
    """Return a model with the same weights and another task of the same head."""
    made = TaskModel(model.backbone, task, model.preprocessor)
    made.set_weights(model.get_weights())
    return made


def test_logits_of_their_folder(theirs, rng):
    model, folder = theirs
    ours = load_model(folder)
    assert ours.task == QuestionAnswering()
    for size in (2, 12, 29):
        ids = rng.integers(5, len(VOCABULARY), size).tolist()
        segments = rng.integers(0, 2, size).tolist()
        batch = {
            "token_ids": np.array([ids]),
            "segment_ids": np.array([segments]),
            "padding_mask": np.ones((1, size), "int32"),
        }
        wanted = their_logits(model, ids, segments)
        np.testing.assert_allclose(ours(batch)[0], wanted, atol=2e-5)


def test_our_saved_folder_opens_there(theirs, tmp_path):
    _, folder = theirs
    encoder = BertEncoder.from_pretrained(str(folder), pooler=False)
    tokenizer = WordPieceTokenizer.from_folder(folder)
    preprocessor = Preprocessor(tokenizer, max_length=LONGEST, layout="packed")
    task = QuestionAnswering(no_answer=True, threshold=0.5)
    ours = TaskModel(encoder, task, preprocessor, seed=3)
    saved = save_model(ours, tmp_path / "ours")
    model, report = transformers.BertForQuestionAnswering.from_pretrained(
        saved, output_loading_info=True
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    texts = (tf.constant(["the cat?"]), tf.constant(["日本 sat, the dog."]))
    batch = task.features(preprocessor, texts)
    wanted = their_logits(
        model.eval(),
        batch["token_ids"][0].numpy().tolist(),
        batch["segment_ids"][0].numpy().tolist(),
    )
    np.testing.assert_allclose(ours(batch)[0], wanted, atol=2e-5)


def test_scores_equal_torchmetrics(rng):
    peer = pytest.importorskip("torchmetrics.functional.text").squad
    golds, predictions = [], []
    for _ in range(200):
        # Never articles alone: they score those as 2.0 does.
        golds.append(["sat " + text_of(rng, rng.integers(0, 4)) for _ in range(3)])
        cut = rng.choice(golds[-1]).split()
        predictions.append(" ".join(["The", *cut[: rng.integers(0, 5)]]) + "!")
        if predictions[-1] == "The!":
            predictions[-1] = "cat"
    given = [
        {"prediction_text": text, "id": str(i)} for i, text in enumerate(predictions)
    ]
    target = [
        {"answers": {"answer_start": [0] * 3, "text": gold}, "id": str(i)}
        for i, gold in enumerate(golds)
    ]
    wanted = {key: float(value) for key, value in peer(given, target).items()}
    assert squad1_scores(golds, predictions) == pytest.approx(wanted, rel=1e-5)
