"""Fine-tuning without dropout takes the very steps of transformers on torch."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.encoder import BertEncoder
from bert_keras.model_folder import save_model
from bert_keras.optimizers import AdamW, WarmupLinearDecay
from bert_keras.preprocessor import Preprocessor
from bert_keras.task_model import TaskModel
from bert_keras.tasks.classification import Classification
from bert_keras.tokenizer import WordPieceTokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
CONFIG = BertConfig(
    vocab_size=len(WORDS),
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=40,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
STEPS, WARMUP, BATCH, RATE = 60, 6, 8, 2e-3


def data(seed: int) -> tuple[list[tuple[str, str]], np.ndarray]:
    """Return pairs of random letters, and whether both begin with the same half."""
    draws = np.random.default_rng(seed)

    def text() -> str:
        return " ".join(draws.choice(WORDS[5:], draws.integers(1, 16)))

    pairs = [(text(), text()) for _ in range(STEPS * BATCH)]
    labels = [(a[0] < "n") == (b[0] < "n") for a, b in pairs]
    return pairs, np.array(labels, "int32")


class Losses(keras.callbacks.Callback):
    """The loss of each batch, from the mean since the epoch began."""

    def __init__(self) -> None:
        super().__init__()
        self.means: list[float] = []

    def on_train_batch_end(self, batch, logs=None):
        self.means.append(float(logs["loss"]))

    def each(self) -> np.ndarray:
        sums = np.array(self.means) * np.arange(1, len(self.means) + 1)
        return np.diff(sums, prepend=0.0)


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_every_step_has_the_loss_of_transformers(layout, tmp_path):
    keras.utils.set_random_seed(3)
    encoder = BertEncoder(CONFIG, seed=3)
    preprocessor = Preprocessor(WordPieceTokenizer(WORDS), layout=layout, max_length=24)
    task = Classification(("different", "same"), pairs=True)
    model = TaskModel(encoder, task, preprocessor, seed=3)
    folder = save_model(model, tmp_path / "model")
    pairs, labels = data(seed=4)
    schedule = WarmupLinearDecay(RATE, total_steps=STEPS, warmup_steps=WARMUP)
    model.compile(AdamW(schedule), loss=task.loss())
    losses = Losses()
    texts = tuple(tf.constant(part) for part in zip(*pairs, strict=True))
    dataset = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(BATCH)
    model.fit(dataset, callbacks=[losses], verbose=0)

    peer = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    groups = [
        {"params": [], "weight_decay": 0.01},
        {"params": [], "weight_decay": 0.0},
    ]
    for name, weight in peer.named_parameters():
        groups["bias" in name or "LayerNorm" in name]["params"].append(weight)
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6)
    decay = transformers.get_linear_schedule_with_warmup(optimizer, WARMUP, STEPS)
    peer.train()
    wanted = []
    for start in range(0, len(pairs), BATCH):
        first, second = zip(*pairs[start : start + BATCH], strict=True)
        batch = tokenizer(
            list(first),
            list(second),
            truncation=True,
            max_length=24,
            padding=True,
            return_tensors="pt",
        )
        target = torch.tensor(labels[start : start + BATCH], dtype=torch.long)
        loss = peer(**batch, labels=target).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()
        decay.step()
        optimizer.zero_grad()
        wanted.append(loss.item())
    np.testing.assert_allclose(losses.each(), wanted, atol=2e-5)
