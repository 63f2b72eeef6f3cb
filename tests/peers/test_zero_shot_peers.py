"""Classes without training rows: probabilities equal transformers' pipeline."""

import numpy as np
import pytest

from bert_keras.inference.engine_export import export_to_engine
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.text.tokenizer import WordPieceTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "win", "now", "see", "you", "."]
WORDS += ["this", "is", "about", "example", "we", "are", "late", "early"]
TEXTS = ["win now.", "see you", "you win you win . now " * 9, "we are late ."]
CLASSES = ["win", "late now", "you"]
OUTPUTS = (
    ("contradiction", "neutral", "entailment"),
    ("ENTAILMENT", "NEUTRAL", "CONTRADICTION"),
    ("entailment", "not_entailment"),
)


@pytest.fixture(params=OUTPUTS, ids="-".join)
def folder(request, tmp_path):
    """Return the folder of an entailment model of transformers."""
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=40,
        initializer_range=0.3,
        id2label=dict(enumerate(request.param)),
        label2id={name: number for number, name in enumerate(request.param)},
    )
    model = transformers.BertForSequenceClassification(config)
    model.save_pretrained(tmp_path / "nli")
    WordPieceTokenizer(WORDS).save(tmp_path / "nli")
    return tmp_path / "nli"


def theirs(folder, **settings):
    """Return the probabilities of the pipeline, float [N, C], in our order."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    pipeline = transformers.pipeline(
        "zero-shot-classification",
        model=transformers.AutoModelForSequenceClassification.from_pretrained(folder),
        tokenizer=transformers.BertTokenizer(vocab=vocabulary, model_max_length=40),
    )
    found = []
    for row in pipeline(TEXTS, CLASSES, **settings):
        scores = dict(zip(row["labels"], row["scores"], strict=True))
        found.append([scores[name] for name in CLASSES])
    return np.array(found)


def ours(rows):
    return np.array([[row["probabilities"][name] for name in CLASSES] for row in rows])


@pytest.mark.parametrize(
    "multi_label, template", [(False, None), (True, "this is about {} .")]
)
def test_probabilities_are_theirs(folder, multi_label, template, tmp_path):
    given = {} if template is None else {"hypothesis_template": template}
    wanted = theirs(folder, multi_label=multi_label, **given)
    made = Predictor(load_model(folder)).with_classes(
        CLASSES, template=template, multi_label=multi_label
    )
    np.testing.assert_allclose(ours(made.predict(TEXTS)), wanted, atol=1e-5)
    np.testing.assert_allclose(  # text by text, and as classes of the request
        ours(made.predict([(text, CLASSES) for text in TEXTS])), wanted, atol=1e-5
    )
    # The folder is an entailment model for their pipeline, too.
    save_model(made.model, tmp_path / "classes")
    again = theirs(tmp_path / "classes", multi_label=multi_label, **given)
    np.testing.assert_allclose(again, wanted, atol=1e-5)
    loaded = Predictor(load_model(tmp_path / "classes"))
    np.testing.assert_allclose(ours(loaded.predict(TEXTS)), wanted, atol=1e-5)


@pytest.mark.parametrize("folder", OUTPUTS[:1], indirect=True, ids="-".join)
def test_an_engine_answers_alike(folder, tmp_path):
    pytest.importorskip("openvino")
    made = Predictor(load_model(folder)).with_classes(CLASSES)
    export_to_engine(made.model, tmp_path / "engine", format="openvino")
    found = load_predictor(tmp_path / "engine").predict(TEXTS)
    np.testing.assert_allclose(ours(found), ours(made.predict(TEXTS)), atol=1e-4)
