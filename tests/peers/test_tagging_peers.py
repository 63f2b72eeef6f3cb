"""Entity scores equal seqeval's, token classification transformers', both ways."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.inference.predictor import Predictor
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.scoring.entities import entities_of, entity_scores
from bert_keras.tasks.tagging.task import TokenClassification
from bert_keras.text.tokenizer import WordPieceTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
seqeval = pytest.importorskip("seqeval.metrics")

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdé,.", "##a", "##b", "##c"]
CLASSES = ("O", "I-x", "B-y", "I-y", "E-y", "S-x")
WORDS = ["a", "abc", "d,d", "ca.", "é", "zz", "bab"]
TOLERANCE = 2e-5


@pytest.mark.parametrize("prefixes", ["BI", "I", "BIES"])
@pytest.mark.parametrize("seed", range(5))
def test_scores_equal_seqeval(seed, prefixes):
    drawn = random.Random(seed)
    tags = ["O", "O", *(f"{p}-{kind}" for p in prefixes for kind in ("a", "b-c", "d"))]
    sizes = [drawn.randrange(1, 15) for _ in range(60)]
    labels = [drawn.choices(tags, k=size) for size in sizes]
    predictions = [
        [tag if drawn.random() < 0.7 else drawn.choice(tags) for tag in row]
        for row in labels
    ]
    for row in labels:
        peer = seqeval.sequence_labeling.get_entities(row)
        assert [(e.type, e.start, e.end - 1) for e in entities_of(row)] == peer
    ours = entity_scores(labels, predictions)
    report = seqeval.classification_report(
        labels, predictions, output_dict=True, zero_division=0
    )
    names = {"f1": "f1-score", "precision": "precision", "recall": "recall"}
    for key, theirs in names.items():
        assert ours[key] == pytest.approx(report["micro avg"][theirs])
        for kind, scores in ours["per_class"].items():
            assert scores[key] == pytest.approx(report[kind][theirs])
            assert scores["support"] == report[kind]["support"]
    assert ours["macro_f1"] == pytest.approx(report["macro avg"]["f1-score"])
    wanted = seqeval.accuracy_score(labels, predictions)
    assert ours["word_accuracy"] == pytest.approx(wanted)


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    """Return the folder of their model of random weights, with our vocabulary."""
    folder = tmp_path_factory.mktemp("peer")
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        initializer_range=0.5,
        id2label=dict(enumerate(CLASSES)),
        label2id={tag: number for number, tag in enumerate(CLASSES)},
    )
    model = transformers.BertForTokenClassification(config)
    torch.nn.init.normal_(model.classifier.bias)
    model.save_pretrained(folder)
    WordPieceTokenizer(TOKENS, strip_accents=False).save(folder)
    return folder


def their_logits(folder, sentences):
    """Return the logits at the first piece of each word, in the words' order."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.BertForTokenClassification.from_pretrained(folder).eval()
    found = []
    for sentence in sentences:
        batch = tokenizer(sentence, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**batch).logits[0].numpy()
        words = batch.word_ids(0)
        found += [logits[words.index(number)] for number in range(len(sentence))]
    return np.array(found)


def our_logits(model, sentences):
    words = tf.ragged.constant(sentences, tf.string, ragged_rank=1).to_tensor("")
    batch = model.task.features(model.preprocessor, words)
    numbers = batch["words"].numpy()
    logits = model(batch).numpy()[numbers >= 0]
    return logits[np.argsort(numbers[numbers >= 0])]


def test_token_classification_both_ways(peer, tmp_path):
    drawn = random.Random(2)
    sentences = [drawn.choices(WORDS, k=size) for size in (1, 5, 7, 2, 4)]
    model = load_model(peer)
    assert isinstance(model.task, TokenClassification)
    assert model.task.classes == CLASSES
    wanted = their_logits(peer, sentences)
    assert np.abs(our_logits(model, sentences) - wanted).max() < TOLERANCE
    tags = [tag for row in Predictor(model).predict(sentences) for tag in row["tags"]]
    assert tags == [CLASSES[number] for number in wanted.argmax(-1)]

    folder = save_model(model, tmp_path / "ours")
    config = transformers.AutoConfig.from_pretrained(folder)
    assert config.id2label == dict(enumerate(CLASSES))
    assert config.architectures == ["BertForTokenClassification"]
    assert np.abs(their_logits(folder, sentences) - wanted).max() < TOLERANCE
