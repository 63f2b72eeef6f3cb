"""Pretraining without dropout takes the very steps of transformers on torch, and what
is pretrained opens there with equal logits."""

import dataclasses

import numpy as np
import pytest
from pretraining.test_data import TOKENIZER, write
from pretraining.test_pretrain import CONFIG, STILL

from bert_keras.config import BertConfig
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


@pytest.mark.parametrize("accumulation", [1, 2])
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
    groups = [
        {"params": [], "weight_decay": 0.01},
        {"params": [], "weight_decay": 0.0},
    ]
    for name, weight in peer.named_parameters():
        groups["bias" in name or "LayerNorm" in name]["params"].append(weight)
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, eps=1e-6)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, 0, config.steps)
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
        found.loss.backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), config.global_clipnorm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
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
