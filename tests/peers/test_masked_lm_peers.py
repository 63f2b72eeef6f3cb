"""The masked language model equals Hugging Face transformers, folders both ways."""

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.errors import CheckpointError
from bert_keras.inference.predictor import Predictor, load_predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.masked_lm import MaskedLM, pseudo_perplexity
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TOLERANCE = 2e-5
SMALL = {
    "vocab_size": 30_522,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
}
TEXTS = [
    "The doctor ran to the emergency room to see [MASK] patient.",
    "[MASK]Ünïcödé[MASK]ing , 東[MASK]京 🎉 [mask] [MASK]",
    "no mask here",
    "",
    "a " * 60 + "[MASK]",
]


def theirs_in(folder, minilm, rng, name, **changes):
    """Save a model of transformers with random weights; return it and its tokenizer."""
    config = transformers.BertConfig(**{**SMALL, **changes})
    model = getattr(transformers, name)(config)
    for key, weight in model.named_parameters():
        mean = 1.0 if key.endswith("LayerNorm.weight") else 0.0
        values = rng.normal(mean, 0.2, tuple(weight.shape)).astype("float32")
        weight.data = torch.from_numpy(values)
    model.tie_weights()
    model.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    tokenizer.save_pretrained(folder)
    return model.eval(), tokenizer


def their_masks(model, tokenizer, texts):
    """Return the logits of each mask, a list of [M, V]."""
    encoded = tokenizer(
        texts, padding=True, truncation=True, max_length=32, return_tensors="pt"
    )
    with torch.no_grad():
        outputs = model(**encoded)
    logits = getattr(outputs, "prediction_logits", None)
    logits = outputs.logits if logits is None else logits
    is_mask = encoded["input_ids"] == tokenizer.mask_token_id
    return [row[mask].numpy() for row, mask in zip(logits, is_mask, strict=True)]


def our_masks(model, texts):
    batch = model.task.features(model.preprocessor, tf.constant(texts))
    logits = model(batch)
    flat = tf.reshape(logits, [-1, logits.shape[-1]])
    slots = batch["slots"]
    return [tf.gather(flat, row).numpy() for row in slots]


def assert_equal_masks(found, expected):
    assert [len(row) for row in found] == [len(row) for row in expected]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("BertForMaskedLM", {}),
        ("BertForMaskedLM", {"hidden_act": "relu", "layer_norm_eps": 1e-3}),
        ("BertForPreTraining", {}),
    ],
)
def test_their_model_opens_here(minilm, rng, tmp_path, name, changes):
    model, tokenizer = theirs_in(tmp_path, minilm, rng, name, **changes)
    ours = load_model(tmp_path)
    assert isinstance(ours.task, MaskedLM)
    expected = their_masks(model, tokenizer, TEXTS)
    assert [len(row) for row in expected] == [1, 4, 0, 0, 0]
    assert_equal_masks(our_masks(ours, TEXTS), expected)


def test_answers_are_those_of_their_pipeline(minilm, rng, tmp_path):
    model, tokenizer = theirs_in(tmp_path, minilm, rng, "BertForMaskedLM")
    fill = transformers.pipeline("fill-mask", model=model, tokenizer=tokenizer)
    expected = fill(TEXTS[0])
    (found,) = load_predictor(tmp_path).predict(TEXTS[:1])
    (mask,) = found["masks"]
    assert [each["token"] for each in mask] == [
        tokenizer.convert_ids_to_tokens(each["token"]) for each in expected
    ]
    np.testing.assert_allclose(
        [each["probability"] for each in mask],
        [each["score"] for each in expected],
        rtol=1e-4,
    )


@pytest.mark.parametrize("with_pooler", [False, True])
def test_our_model_opens_there(minilm, tmp_path, with_pooler):
    encoder = BertEncoder(BertConfig(**SMALL), pooler=with_pooler, seed=1)
    tokenizer = WordPieceTokenizer.from_folder(minilm)
    model = TaskModel(
        encoder,
        MaskedLM(),
        Preprocessor(tokenizer, max_length=32, layout="packed"),
        seed=2,
    )
    for weight in model.weights:
        noise = np.random.default_rng(len(weight.path)).normal(0, 0.2, weight.shape)
        weight.assign_add(noise.astype("float32"))
    save_model(model, tmp_path)
    loaded, info = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert type(loaded) is transformers.BertForMaskedLM
    if not with_pooler:
        assert not any(info.values()), info
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    expected = their_masks(loaded.eval(), theirs, TEXTS)
    assert_equal_masks(our_masks(model, TEXTS), expected)
    assert_equal_masks(our_masks(load_model(tmp_path), TEXTS), expected)


def test_a_model_that_is_not_tied_is_rejected(minilm, rng, tmp_path):
    theirs_in(tmp_path, minilm, rng, "BertForMaskedLM", tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match="cls.predictions.decoder.weight"):
        load_model(tmp_path)


def test_pseudo_perplexity_is_that_of_one_pass_per_token(minilm, rng, tmp_path):
    model, tokenizer = theirs_in(tmp_path, minilm, rng, "BertForMaskedLM")
    texts = ["See you at six, in the café!", "unbelievably [SEP]", ""]
    predictor = Predictor(load_model(tmp_path))
    found = pseudo_perplexity(predictor, texts, batch_size=5)
    for text, row in zip(texts, found, strict=True):
        plain = tokenizer(text, split_special_tokens=True)["input_ids"]
        total = 0.0
        for place in range(1, len(plain) - 1):
            hidden = torch.tensor([plain])
            hidden[0, place] = tokenizer.mask_token_id
            with torch.no_grad():
                logits = model(hidden).logits[0, place]
            total += float(torch.log_softmax(logits, -1)[plain[place]])
        assert row["tokens"] == len(plain) - 2
        assert row["log_likelihood"] == pytest.approx(total, abs=1e-3)
        if row["tokens"]:
            mean = total / row["tokens"]
            assert row["pseudo_perplexity"] == pytest.approx(np.exp(-mean), rel=1e-3)
        else:
            assert row["pseudo_perplexity"] is None
