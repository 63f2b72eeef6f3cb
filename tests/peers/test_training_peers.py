"""Fine-tuning without dropout takes the very steps of transformers on torch.

And reranking takes the very steps of sentence-transformers' `CrossEncoder`.
"""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.data.columns import Columns
from bert_keras.data.table import as_columns
from bert_keras.inference.predictor import Predictor
from bert_keras.model.encoder import BertEncoder
from bert_keras.model.optimizers import BertAdamW, WarmupLinearDecay
from bert_keras.models.model_folder import save_model
from bert_keras.models.task_model import TaskModel
from bert_keras.tasks.base import Task
from bert_keras.tasks.classification import Classification
from bert_keras.tasks.question_answering.task import QuestionAnswering
from bert_keras.tasks.reranking import Reranking
from bert_keras.tasks.tagging.task import TokenClassification
from bert_keras.text.preprocessor import Preprocessor
from bert_keras.text.tokenizer import WordPieceTokenizer
from bert_keras.training.config import TrainConfig
from bert_keras.training.updates import new_optimizer, training_rows, updates

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
PAIR = ("text", "text_pair")


def data(seed: int) -> tuple[list[tuple[str, str]], np.ndarray]:
    """Return pairs of random letters, and whether both start with the same half."""
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


def their_losses(peer, loss_of):
    """Train on the losses of the steps as users of transformers do; return them."""
    groups = [
        {"params": [], "weight_decay": 0.01},
        {"params": [], "weight_decay": 0.0},
    ]
    for name, weight in peer.named_parameters():
        groups["bias" in name or "LayerNorm" in name]["params"].append(weight)
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-6)
    decay = transformers.get_linear_schedule_with_warmup(optimizer, WARMUP, STEPS)
    peer.train()
    losses = []
    for step in range(STEPS):
        loss = loss_of(step)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()
        decay.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


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
    model.compile(BertAdamW(schedule), loss=task.loss())
    losses = Losses()
    texts = tuple(tf.constant(part) for part in zip(*pairs, strict=True))
    dataset = tf.data.Dataset.from_tensor_slices((texts, labels)).batch(BATCH)
    model.fit(dataset, callbacks=[losses], verbose=0)

    peer = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def loss_of(step):
        chosen = slice(step * BATCH, (step + 1) * BATCH)
        first, second = zip(*pairs[chosen], strict=True)
        batch = tokenizer(
            list(first),
            list(second),
            truncation=True,
            max_length=24,
            padding=True,
            return_tensors="pt",
        )
        target = torch.tensor(labels[chosen], dtype=torch.long)
        return peer(**batch, labels=target).loss

    wanted = their_losses(peer, loss_of)
    np.testing.assert_allclose(losses.each(), wanted, atol=1e-5)


def some_letters(draws: np.random.Generator, least: int, most: int) -> list[str]:
    return draws.choice(WORDS[5:], draws.integers(least, most)).tolist()


def tagged_words() -> tuple[Task, Columns]:
    """Return sentences, the tag of whose words hangs on the word before as well."""
    draws = np.random.default_rng(5)
    texts = [some_letters(draws, 1, 20) for _ in range(STEPS * BATCH)]
    labels = []
    for words in texts:
        pairs = zip(["z", *words], words, strict=False)
        labels.append(["B-x" if a < "k" < b else "O" for a, b in pairs])
    columns = as_columns(text=texts, label=labels)
    return TokenClassification(("O", "B-x")), columns


def questions() -> tuple[Task, Columns]:
    """Return contexts and a letter of each, with which the question starts."""
    draws = np.random.default_rng(6)
    asked, contexts, answers = [], [], []
    for _ in range(STEPS * BATCH):
        context = some_letters(draws, 2, 16)
        place = int(draws.integers(len(context)))
        asked.append(" ".join([context[place], *some_letters(draws, 1, 4)]))
        contexts.append(" ".join(context))
        answers.append([(context[place], 2 * context.index(context[place]))])
    columns = as_columns(question=asked, context=contexts, answers=answers)
    return QuestionAnswering(), columns


def loss_of_tags(peer, tokenizer, columns, rows):
    texts = [columns["text"][row] for row in rows]
    batch = tokenizer(
        texts, is_split_into_words=True, padding=True, return_tensors="pt"
    )
    labels = torch.full(batch["input_ids"].shape, -100)
    for at, row in enumerate(rows):
        tags = [["O", "B-x"].index(tag) for tag in columns["label"][row]]
        labels[at, 1 : 1 + len(tags)] = torch.tensor(tags)
    return peer(**batch, labels=labels).loss


def loss_of_spans(peer, tokenizer, columns, rows):
    asked = [columns["question"][row] for row in rows]
    contexts = [columns["context"][row] for row in rows]
    batch = tokenizer(asked, contexts, padding=True, return_tensors="pt")
    places = torch.tensor(
        [
            len(question.split()) + 2 + columns["answers"][row][0][1] // 2
            for question, row in zip(asked, rows, strict=True)
        ]
    )
    # Their own loss counts padding among the places where an answer might be.
    padding = (1 - batch["attention_mask"]) * -1e9
    found = peer(**batch)
    both = (found.start_logits, found.end_logits)
    entropy = torch.nn.functional.cross_entropy
    return sum(entropy(logits + padding, places) for logits in both) / 2


@pytest.mark.parametrize(
    ("rows", "kind", "loss_of"),
    [
        (tagged_words, "TokenClassification", loss_of_tags),
        (questions, "QuestionAnswering", loss_of_spans),
    ],
)
def test_every_update_of_a_run_has_the_loss_of_transformers(
    rows, kind, loss_of, tmp_path
):
    task, columns = rows()
    preprocessor = Preprocessor(
        WordPieceTokenizer(WORDS), max_length=32, layout="packed"
    )
    encoder = BertEncoder(CONFIG, pooler=task.needs.pooler, seed=3)
    model = TaskModel(encoder, task, preprocessor, seed=3)
    folder = save_model(model, tmp_path / "model")
    config = TrainConfig(epochs=1, batch_size=BATCH, learning_rate=RATE, seed=2)
    order = training_rows(model, columns, config)
    optimizer = new_optimizer(config, steps=STEPS)
    optimizer.build(model.trainable_variables)
    losses = [update.loss for update in updates(model, order, optimizer)]

    peer = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    wanted = their_losses(
        peer, lambda step: loss_of(peer, tokenizer, columns, order.rows_of(step))
    )
    assert min(wanted) < 0.7 * wanted[0]  # something is learned
    np.testing.assert_allclose(losses, wanted, atol=1e-5)


def rankings() -> Columns:
    """Return queries with two documents, the right one of early letters."""
    draws = np.random.default_rng(8)
    rows = []
    for two in list(itertools.product(WORDS[5:], repeat=2))[: STEPS * BATCH // 2]:
        for label, letters in ((1, WORDS[5:20]), (0, WORDS[16:])):
            document = " ".join(draws.choice(letters, draws.integers(2, 28)))
            rows.append(
                {"query": " ".join(two), "document": document, "label": str(label)}
            )
    return Reranking.read(rows)


def loss_of_rankings(peer, objective, columns, rows):
    """Return the loss of a `CrossEncoder`, by its own classes where it has one."""
    from sentence_transformers.cross_encoder import losses as theirs

    queries, documents = ([columns[role][n] for n in rows] for role in PAIR)
    labels = torch.tensor([float(columns["label"][row]) for row in rows])
    if objective == "pointwise":
        return theirs.BinaryCrossEntropyLoss(peer)([queries, documents], labels)
    if objective == "margin-mse":  # the two documents of a query are adjacent
        given = [queries[::2], documents[::2], documents[1::2]]
        return theirs.MarginMSELoss(peer)(given, labels[::2] - labels[1::2])
    # `ListNetLoss` reads grades through a softmax, which gives the wrong ones a share.
    pairs = list(zip(queries, documents, strict=True))
    scores = peer(peer.preprocess(pairs))["scores"].view(-1, 2)
    return torch.nn.functional.cross_entropy(scores, labels.view(-1, 2))


@pytest.mark.parametrize("objective", ["pointwise", "listwise", "margin-mse"])
def test_every_update_of_a_run_has_the_loss_of_a_cross_encoder(objective, tmp_path):
    from sentence_transformers import CrossEncoder

    columns = rankings()
    task = Reranking.from_columns(columns, objective=objective)
    preprocessor = Preprocessor(
        WordPieceTokenizer(WORDS), max_length=24, layout="packed"
    )
    model = TaskModel(BertEncoder(CONFIG, seed=3), task, preprocessor, seed=3)
    folder = save_model(model, tmp_path / "model")
    size = BATCH if objective == "pointwise" else BATCH // 2  # whole queries
    config = TrainConfig(epochs=1, batch_size=size, learning_rate=RATE, seed=2)
    order = training_rows(model, columns, config)
    assert order.steps == STEPS
    optimizer = new_optimizer(config, steps=STEPS)
    optimizer.build(model.trainable_variables)
    losses = [update.loss for update in updates(model, order, optimizer)]

    peer = CrossEncoder(str(folder), max_length=24, device="cpu")
    wanted = their_losses(
        peer,
        lambda step: loss_of_rankings(peer, objective, columns, order.rows_of(step)),
    )
    assert min(wanted) < 0.7 * wanted[0]  # something is learned
    # Adam enlarges the rounding of small gradients.
    np.testing.assert_allclose(losses, wanted, rtol=1e-3, atol=1e-5)
    texts = [(columns["text"][row], columns["text_pair"][row]) for row in range(40)]
    found = [row["score"] for row in Predictor(model).predict(texts)]
    np.testing.assert_allclose(found, peer.predict(texts), atol=1e-3)
