"""Tasks on the pooled output equal transformers; their scores, SciPy and sklearn."""

import dataclasses
import json
import warnings

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.scoring.correlation import pearson, spearman
from bert_keras.scoring.multi_label import multi_label_scores
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.multi_label import MultiLabel
from bert_keras.tasks.next_sentence import NextSentence
from bert_keras.tasks.regression import Regression
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
stats = pytest.importorskip("scipy.stats")
metrics = pytest.importorskip("sklearn.metrics")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "win", "now", "see", "you", "."]
TEXTS = ["win now.", "see you", "you win you win . now", ""]
OTHERS = ["now", "win now. see you .", "", "you"]
CONFIG = {
    "vocab_size": len(WORDS),
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "initializer_range": 0.3,
}
NAMES = ("blue", "green", "red")
# Our task, and the keys of a transformers config besides the sizes.
TASKS = {
    "classification": (Classification(NAMES, pairs=True), {}),
    "multi-label": (
        MultiLabel(NAMES, pairs=True),
        {"problem_type": "multi_label_classification"},
    ),
    "regression": (Regression(pairs=True), {"num_labels": 1}),
    "next-sentence": (NextSentence(), {}),
}
CLASSES = {
    "next-sentence": transformers.BertForNextSentencePrediction,
    "pretrained": transformers.BertForPreTraining,
}


def tokens():
    """Return the pairs in the form that transformers accepts."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = transformers.BertTokenizer(vocab=vocabulary)
    return tokenizer(TEXTS, OTHERS, padding=True, return_tensors="pt")


def logits_of(model):
    with torch.no_grad():
        outputs = model.eval()(**tokens())
    name = "seq_relationship_logits" if "prediction_logits" in outputs else "logits"
    return outputs[name].numpy()


def ours(model):
    texts = tuple(tf.constant(part) for part in (TEXTS, OTHERS))
    return model(model.task.features(model.preprocessor, texts)).numpy()


@pytest.mark.parametrize("name", TASKS)
def test_their_folder_answers_here(name, tmp_path):
    torch.manual_seed(1)
    _, extra = TASKS[name]
    if name in ("classification", "multi-label"):
        extra = {**extra, "id2label": dict(enumerate(NAMES))}
    config = transformers.BertConfig(**CONFIG, **extra)
    wanted = CLASSES.get(name, transformers.BertForSequenceClassification)(config)
    wanted.save_pretrained(tmp_path)
    WordPieceTokenizer(WORDS).save(tmp_path)
    found = load_model(tmp_path).task
    assert found.name == name
    if name != "next-sentence":
        found = dataclasses.replace(found, pairs=True)  # a config does not tell
    loaded = load_model(tmp_path, task=found)
    if hasattr(loaded.task, "classes"):
        assert loaded.task.classes == NAMES
    np.testing.assert_allclose(ours(loaded), logits_of(wanted), atol=2e-5)


def test_the_head_of_the_pretraining_answers_here(tmp_path):
    torch.manual_seed(2)
    wanted = transformers.BertForPreTraining(transformers.BertConfig(**CONFIG))
    wanted.save_pretrained(tmp_path)
    WordPieceTokenizer(WORDS).save(tmp_path)
    loaded = load_model(tmp_path, task="next-sentence")
    np.testing.assert_allclose(ours(loaded), logits_of(wanted), atol=2e-5)


@pytest.mark.parametrize("name", TASKS)
def test_our_folder_answers_there(name, tmp_path):
    task, _ = TASKS[name]
    encoder = BertEncoder(BertConfig(**CONFIG), seed=3)
    preprocessor = Preprocessor(
        WordPieceTokenizer(WORDS), max_length=32, layout="packed"
    )
    model = TaskModel(encoder, task, preprocessor, seed=4)
    save_model(model, tmp_path / "model")
    read = CLASSES.get(name, transformers.AutoModelForSequenceClassification)
    theirs, told = read.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    np.testing.assert_allclose(logits_of(theirs), ours(model), atol=2e-5)
    if name != "next-sentence":
        assert theirs.config.problem_type == task.head_codec.problem_type
        assert theirs.config.num_labels == task.units


@pytest.mark.parametrize("name", ["multi-label", "regression"])
def test_losses_are_theirs(name):
    draw = np.random.default_rng(5)
    task, extra = TASKS[name]
    logits = draw.normal(size=(6, task.units)).astype("float32")
    targets = draw.random((6, task.units)).astype("float32").round()
    if name == "regression":
        wanted = torch.nn.MSELoss()(torch.tensor(logits), torch.tensor(targets))
        targets = targets[:, 0]
    else:
        loss = torch.nn.BCEWithLogitsLoss()
        wanted = loss(torch.tensor(logits), torch.tensor(targets))
    assert float(task.loss()(targets, logits)) == pytest.approx(float(wanted), 1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("levels", [2, 5, 1000])
def test_correlations_are_those_of_scipy(seed, levels):
    draw = np.random.default_rng(seed)
    x = draw.integers(0, levels, 200) / 7
    y = x + draw.integers(0, levels, 200)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0])
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("rows", "num_classes"), [(1, 2), (7, 3), (200, 12)])
def test_multi_label_scores_are_those_of_scikit_learn(seed, rows, num_classes):
    draw = np.random.default_rng(seed)
    targets = (draw.random((rows, num_classes)) < 0.3).astype(int)
    targets[:, -1] = seed % 2 if rows > 1 else targets[:, -1]  # never, or always
    p = draw.random((rows, num_classes)).round(1 if seed % 2 else 6)  # ties, or none
    limits = draw.random(num_classes)
    names = [str(number) for number in range(num_classes)]
    found = multi_label_scores(targets, p, thresholds=limits, class_names=names)
    predicted = (p >= limits).astype(int)
    json.dumps(found, allow_nan=False)
    assert found["exact_match"] == pytest.approx(
        metrics.accuracy_score(targets, predicted)
    )
    for average in ("micro", "macro"):
        f1 = metrics.f1_score(targets, predicted, average=average, zero_division=0)
        assert found[f"{average}_f1"] == pytest.approx(f1)
    assert found["label_ranking_average_precision"] == pytest.approx(
        metrics.label_ranking_average_precision_score(targets, p)
    )
    columns = metrics.precision_recall_fscore_support(
        targets, predicted, zero_division=0
    )
    for key, wanted in zip(
        ("precision", "recall", "f1", "support"), columns, strict=True
    ):
        values = [each[key] for each in found["per_class"].values()]
        assert values == pytest.approx(wanted.tolist())
    occurs = targets.any(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        precisions = metrics.average_precision_score(targets, p, average=None)
    values = [each["average_precision"] for each in found["per_class"].values()]
    assert values == pytest.approx(np.where(occurs, precisions, 0).tolist())
    if occurs.any():
        mean = np.atleast_1d(precisions)[occurs].mean()
        assert found["mean_average_precision"] == pytest.approx(mean)
    if num_classes > 1:
        log_losses = [
            metrics.log_loss(
                targets[:, i], np.clip(p[:, i], 2**-24, 1 - 2**-24), labels=[0, 1]
            )
            for i in range(num_classes)
        ]
        assert found["loss"] == pytest.approx(np.mean(log_losses))
