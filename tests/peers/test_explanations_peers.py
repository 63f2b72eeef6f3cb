"""Attributions equal those of captum on transformers with the same weights."""

import numpy as np
import pytest

from bert_keras.config import BertConfig
from bert_keras.explanations import explain
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.classification import Classification
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
captum = pytest.importorskip("captum.attr")

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIALS, "win", "##ner", "now", "see", "you", ".", "cash", "##es"]
TEXT, PAIR = "winner see you cashes now.", "you win. see"
NAMES = ("blue", "green", "red")
# The word of each piece, counted through both texts.
PIECES = [0, 0, 1, 2, 3, 3, 4, 5], [6, 7, 8, 9]
STEPS = 20


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return our model, and transformers' of the same folder."""
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    preprocessor = Preprocessor(
        WordPieceTokenizer(WORDS), max_length=32, layout="packed"
    )
    task = Classification(NAMES, pairs=True)
    model = TaskModel(BertEncoder(config, seed=3), task, preprocessor, seed=4)
    folder = save_model(model, tmp_path_factory.mktemp("saved") / "model")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    return model, theirs.eval()


def log_odds(theirs, index, against):
    """Return the function that captum explains: ids to the log-odds of a class."""

    def forward(ids, segments):
        logits = theirs(input_ids=ids, token_type_ids=segments).logits
        if against is not None:
            return logits[:, index] - logits[:, against]
        others = [number for number in range(len(NAMES)) if number != index]
        return logits[:, index] - torch.logsumexp(logits[:, others], dim=1)

    return forward


def encoded(baseline):
    """Return ids, those of the baseline, segments, and the columns of the pieces."""
    number = {word: place for place, word in enumerate(WORDS)}
    first = "win ##ner see you cash ##es now .".split()
    second = "you win . see".split()
    pieces = ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
    ids = torch.tensor([[number[piece] for piece in pieces]])
    segments = torch.tensor([[0] * (len(first) + 2) + [1] * (len(second) + 1)])
    special = ids < len(SPECIALS)
    return ids, torch.where(special, ids, number[baseline]), segments


def of_words(values):
    """Return the sums of the attributions [1, T, H] of each word."""
    tokens = values.sum(-1)[0].detach().numpy().astype("float64")
    first, second = PIECES
    tokens = np.concatenate([tokens[1 : 1 + len(first)], tokens[2 + len(first) : -1]])
    return np.bincount(np.concatenate([first, second]), tokens)


@pytest.mark.parametrize("against", [None, "green"])
@pytest.mark.parametrize("baseline", ["pad", "mask"])
def test_integrated_gradients_equal_captum(models, baseline, against):
    ours, theirs = models
    settings = {"target": "red", "against": against, "baseline": baseline}
    found = explain(ours, [(TEXT, PAIR)], steps=STEPS, **settings)[0]
    ids, base, segments = encoded(f"[{baseline.upper()}]")
    method = captum.LayerIntegratedGradients(
        log_odds(theirs, 2, None if against is None else 1),
        theirs.bert.embeddings.word_embeddings,
    )
    wanted = method.attribute(
        ids, baselines=base, additional_forward_args=(segments,), n_steps=STEPS
    )
    np.testing.assert_allclose(found.attributions[0], of_words(wanted), atol=1e-4)
    change = found.values[0] - found.baseline_values[0]
    assert abs(change) > 0.1
    assert found.attributions[0].sum() == pytest.approx(change, rel=0.01)


def test_gradient_times_input_equals_captum(models):
    ours, theirs = models
    found = explain(ours, [(TEXT, PAIR)], method="gradient-input", target="red")[0]
    ids, _, segments = encoded("[PAD]")
    method = captum.LayerGradientXActivation(
        log_odds(theirs, 2, None), theirs.bert.embeddings.word_embeddings
    )
    wanted = method.attribute(ids, additional_forward_args=(segments,))
    np.testing.assert_allclose(found.attributions[0], of_words(wanted), atol=1e-4)
    assert np.abs(found.attributions[0]).max() > 0.1


def test_occlusion_equals_captum(models):
    ours, theirs = models
    found = explain(ours, [(TEXT, PAIR)], method="occlusion", target="red")[0]
    ids, base, segments = encoded("[PAD]")
    groups = np.full(ids.shape[1], -1)
    first, second = PIECES
    groups[1 : 1 + len(first)] = first
    groups[2 + len(first) : -1] = second
    special = len(first) + len(second)
    mask = torch.tensor(np.where(groups < 0, special, groups))[None]
    forward = log_odds(theirs, 2, None)
    wanted = captum.FeatureAblation(forward).attribute(
        ids, baselines=base, feature_mask=mask, additional_forward_args=(segments,)
    )[0]
    columns = [int(np.flatnonzero(groups == word)[0]) for word in range(10)]
    np.testing.assert_allclose(
        found.attributions[0], wanted[columns].numpy(), atol=1e-4
    )
