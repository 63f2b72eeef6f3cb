"""Multiple choice equals Hugging Face transformers, folders both ways."""

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.model.encoder import BertEncoder
from bert_keras.models.loading import load_model
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.multiple_choice import MultipleChoice
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
CONTEXTS = ["A man sits down at the piano.", "", "naïve 東京 🎉 " * 10]
CHOICES = [
    ["He plays a song.", "He eats the piano.", "It rains in the hall."],
    ["a", "b", "c c c"],
    ["short", "a much longer choice than the others, " * 4, "x"],
]


def their_logits(model, tokenizer):
    contexts = [context for context in CONTEXTS for _ in range(3)]
    choices = [choice for row in CHOICES for choice in row]
    encoded = tokenizer(
        contexts,
        choices,
        padding=True,
        truncation=True,
        max_length=32,
        return_tensors="pt",
    )
    rows = {name: value.reshape(3, 3, -1) for name, value in encoded.items()}
    with torch.no_grad():
        return model.eval()(**rows).logits.numpy()


def our_logits(model, layout):
    preprocessor = model.preprocessor.replace(layout=layout)
    texts = (tf.constant(CONTEXTS), tf.constant(CHOICES))
    return model(model.task.features(preprocessor, texts)).numpy()


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_their_model_opens_here(minilm, rng, tmp_path, layout):
    config = transformers.BertConfig(**SMALL)
    model = transformers.BertForMultipleChoice(config)
    for weight in model.parameters():
        values = rng.normal(0, 0.2, tuple(weight.shape)).astype("float32")
        weight.data = torch.from_numpy(values)
    model.save_pretrained(tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    tokenizer.save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    assert isinstance(ours.task, MultipleChoice)
    expected = their_logits(model, tokenizer)
    np.testing.assert_allclose(our_logits(ours, layout), expected, atol=TOLERANCE)


def test_our_model_opens_there(minilm, tmp_path):
    encoder = BertEncoder(BertConfig(**SMALL), seed=1)
    tokenizer = WordPieceTokenizer.from_folder(minilm)
    task = MultipleChoice()
    model = TaskModel(
        encoder, task, Preprocessor(tokenizer, max_length=32, layout="packed"), seed=2
    )
    save_model(model, tmp_path)
    loaded, info = transformers.AutoModelForMultipleChoice.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert type(loaded) is transformers.BertForMultipleChoice
    assert not any(info.values()), info
    expected = their_logits(
        loaded, transformers.AutoTokenizer.from_pretrained(tmp_path)
    )
    np.testing.assert_allclose(our_logits(model, "packed"), expected, atol=TOLERANCE)
