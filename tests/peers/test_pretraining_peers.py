"""Pretraining without dropout takes the very steps of transformers on torch, and what
is pretrained opens there with equal logits."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from pretraining.test_data import TOKENIZER, write
from pretraining.test_pretrain import CONFIG, STILL

from bert_keras.checkpoints.names import to_huggingface
from bert_keras.config import BertConfig
from bert_keras.model.replaced_tokens import ReplacedTokens, put_at
from bert_keras.models.objective import TaskObjective
from bert_keras.pretraining.config import PretrainConfig
from bert_keras.pretraining.input import pretraining_dataset
from bert_keras.pretraining.pretrain import pretrain

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def as_torch(batch, labels):
    """Return inputs, labels [B, T] (-100: none) and pairs [B] for transformers."""
    dense = np.full(batch["token_ids"].shape, -100)
    rows, columns = np.nonzero(batch["masked_positions"] >= 0)
    places = batch["masked_positions"][rows, columns]
    dense[rows, places] = labels["masked_lm"][rows, columns]
    inputs = {
        "input_ids": batch["token_ids"],
        "token_type_ids": batch["segment_ids"],
        "attention_mask": batch["padding_mask"],
    }
    tensors = {k: torch.tensor(v, dtype=torch.long) for k, v in inputs.items()}
    pairs = torch.tensor(labels["next_sentence"], dtype=torch.long)
    return tensors, torch.tensor(dense, dtype=torch.long), pairs


def peer_update(peer, config):
    """Return a function that updates a model of torch by a loss, as a run does."""
    groups = [
        {"params": [], "weight_decay": 0.01},
        {"params": [], "weight_decay": 0.0},
    ]
    for name, weight in peer.named_parameters():
        groups["bias" in name or "LayerNorm" in name]["params"].append(weight)
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, eps=1e-6)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 0, config.steps)

    def step(loss):
        loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), config.global_clipnorm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

    return step


@pytest.mark.parametrize(
    "accumulation", [pytest.param(1, marks=pytest.mark.thorough), 2]
)
def test_every_step_has_the_loss_of_transformers(accumulation, tmp_path):
    (tmp_path / "vocab").mkdir()
    TOKENIZER.save(tmp_path / "vocab")
    write(tmp_path / "data", masking="dynamic")
    first = pretrain(
        dataclasses.replace(STILL, num_hidden_layers=2),
        tmp_path / "data",
        tmp_path / "first",
        vocab=tmp_path / "vocab",
        config=dataclasses.replace(CONFIG, steps=1),
    ).folder
    config = dataclasses.replace(CONFIG, steps=40, accumulation=accumulation)
    result = pretrain(first, tmp_path / "data", tmp_path / "run", config=config)

    peer = transformers.BertForPreTraining.from_pretrained(first)
    step = peer_update(peer, config)
    dataset = pretraining_dataset(
        tmp_path / "data",
        TOKENIZER,
        batch_size=config.batch_size,
        seed=config.seed,
        epochs=None,
    )
    peer.train()
    losses = []
    for batch, labels in dataset.take(config.steps).as_numpy_iterator():
        inputs, masked, pairs = as_torch(batch, labels)
        found = peer(**inputs, labels=masked, next_sentence_label=pairs)
        step(found.loss)
        losses.append(found.loss.item())
    ours = [row["loss"] for row in result.history]
    np.testing.assert_allclose(ours, losses, atol=1e-5)


def test_a_pretrained_model_opens_with_equal_logits(tmp_path):
    (tmp_path / "vocab").mkdir()
    TOKENIZER.save(tmp_path / "vocab")
    write(tmp_path / "data", masking="static")
    sizes = BertConfig(
        vocab_size=TOKENIZER.vocab_size,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=40,
        hidden_act="gelu_new",
    )
    config = PretrainConfig(steps=3, batch_size=8, learning_rate=1e-2)
    result = pretrain(
        sizes,
        tmp_path / "data",
        tmp_path / "run",
        vocab=tmp_path / "vocab",
        config=config,
    )
    peer = transformers.BertForPreTraining.from_pretrained(result.folder).eval()
    dataset = pretraining_dataset(tmp_path / "data", TOKENIZER, batch_size=16)
    batch, labels = next(dataset.as_numpy_iterator())
    inputs, _, _ = as_torch(batch, labels)
    with torch.inference_mode():
        wanted = peer(**inputs)
    found = result.model(batch, training=False)
    rows, columns = np.nonzero(batch["masked_positions"] >= 0)
    places = batch["masked_positions"][rows, columns]
    np.testing.assert_allclose(
        found["masked_lm"].numpy()[rows, columns],
        wanted.prediction_logits.numpy()[rows, places],
        atol=2e-5,
    )
    np.testing.assert_allclose(
        found["next_sentence"].numpy(),
        wanted.seq_relationship_logits.numpy(),
        atol=2e-5,
    )


class Pair(torch.nn.Module):
    """Generator and discriminator of transformers, with the embeddings of one."""

    def __init__(self, folder):
        super().__init__()
        self.judge = transformers.ElectraForPreTraining.from_pretrained(folder)
        self.fill = transformers.ElectraForMaskedLM.from_pretrained(
            folder / "generator"
        )
        self.fill.electra.embeddings = self.judge.electra.embeddings
        self.fill.generator_lm_head.weight = (
            self.judge.electra.embeddings.word_embeddings.weight
        )

    def forward(self, inputs, masked, tokens):
        """Return both losses, of masked tokens and of the tokens that were read."""
        original = torch.where(masked >= 0, masked, inputs["input_ids"])
        replaced = (tokens != original).long()
        judged = self.judge(**{**inputs, "input_ids": tokens}, labels=replaced)
        return self.fill(**inputs, labels=masked).loss, judged.loss


@pytest.fixture
def detecting(tmp_path):
    """Return a run of one step, whose embeddings are narrower than its model."""
    (tmp_path / "vocab").mkdir()
    TOKENIZER.save(tmp_path / "vocab")
    write(tmp_path / "data", masking="dynamic")
    sizes = STILL.replace(
        num_hidden_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        model_type="electra",
        embedding_size=12,
    )
    config = dataclasses.replace(CONFIG, steps=1, objective="replaced-token")
    data, vocab = tmp_path / "data", tmp_path / "vocab"
    return pretrain(sizes, data, tmp_path / "first", vocab=vocab, config=config)


def detection_batches(folder, count, config):
    dataset = pretraining_dataset(
        folder,
        TOKENIZER,
        batch_size=config.batch_size,
        seed=config.seed,
        epochs=None,
        objective="replaced-token",
    )
    for batch, labels in dataset.take(count).as_numpy_iterator():
        inputs, masked, _ = as_torch(batch, {**labels, "next_sentence": [0]})
        yield batch, labels, inputs, masked


def test_replaced_tokens_have_losses_and_gradients_of_transformers(detecting, tmp_path):
    peer, model = Pair(detecting.folder).train(), detecting.model
    ((batch, labels, inputs, masked),) = detection_batches(tmp_path / "data", 1, CONFIG)
    objective = TaskObjective(model)
    with tf.GradientTape() as tape:
        outputs = model(batch, training=True)
        sums, counts = objective.sums(outputs, labels), objective.counts(labels)
        loss = objective.loss(sums, counts)
    tokens = torch.tensor(outputs["replaced_token"][..., 1].numpy(), dtype=torch.long)
    theirs = peer(inputs, masked, tokens)
    names = ("masked_lm", "replaced_token")
    found = [float(sums[name][0] / counts[name]) for name in names]
    np.testing.assert_allclose(found, [x.item() for x in theirs], atol=1e-5)
    (theirs[0] + 50 * theirs[1]).backward()
    weights = model.trainable_variables
    gradients = tape.gradient(loss, [weight.value for weight in weights])
    wanted = {n: p.grad.numpy() for n, p in peer.named_parameters()}
    assert len(wanted) == len(weights)  # the embeddings are shared there as here
    for weight, gradient in zip(weights, gradients, strict=True):
        own, part = weight.path, "judge"
        if own.startswith("generator/"):
            own, part = own.removeprefix("generator/"), "fill"
        theirs_name, transposed = to_huggingface(own, model_type="electra")
        value = wanted[f"{part}.{theirs_name}"]
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient),
            value.T if transposed else value,
            atol=1e-5,
            err_msg=weight.path,
        )


def test_every_step_on_replaced_tokens_has_the_loss_of_transformers(
    detecting, tmp_path, monkeypatch
):
    def sample(token_ids, positions, xp):
        return xp.where(positions % 3 > 0, (token_ids + positions) % 20 + 5, token_ids)

    def call(self, token_ids, logits, positions, training=None):
        read = tf.gather(token_ids, tf.maximum(positions, 0), batch_dims=1)
        return put_at(token_ids, positions, sample(read, positions, tf))

    monkeypatch.setattr(ReplacedTokens, "call", call)
    config = dataclasses.replace(
        CONFIG, steps=20, objective="replaced-token", layout="padded"
    )
    data = tmp_path / "data"
    result = pretrain(detecting.folder, data, tmp_path / "run", config=config)
    peer = Pair(detecting.folder).train()
    step = peer_update(peer, config)
    losses = []
    for batch, _, inputs, masked in detection_batches(data, config.steps, config):
        tokens = batch["token_ids"].copy()
        rows, slots = np.nonzero(batch["masked_positions"] >= 0)
        places = batch["masked_positions"][rows, slots]
        tokens[rows, places] = sample(tokens[rows, places], places, np)
        tokens = torch.tensor(tokens, dtype=torch.long)
        masked_loss, judged_loss = peer(inputs, masked, tokens)
        loss = masked_loss + config.discriminator_weight * judged_loss
        step(loss)
        losses.append(loss.item())
    ours = [row["loss"] for row in result.history]
    np.testing.assert_allclose(ours, losses, rtol=1e-5)
