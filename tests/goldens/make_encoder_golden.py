"""Make `encoder.npz`: what Hugging Face transformers computes with tiny random weights.

    python tests/goldens/make_encoder_golden.py

Needs torch and transformers. Each case holds its `config.json`, the weights under
Hugging Face's names, a padded batch, every hidden state and attention probability, the
pooled output and, for classifiers, the logits. Run it again when a case is added; the
seeds are fixed, so the others do not change except in the last bits.
"""

from __future__ import annotations

import json
import pathlib

import numpy as np
import torch
import transformers

SIZES = {
    "vocab_size": 23,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 9,
    "attn_implementation": "eager",  # the one that returns attention probabilities
}
# name: class, what differs from the defaults
CASES = {
    "gelu": ("BertModel", {}),
    "gelu_new": ("BertModel", {"hidden_act": "gelu_new"}),
    "relu": ("BertModel", {"hidden_act": "relu", "layer_norm_eps": 1e-3}),
    "silu": ("BertModel", {"hidden_act": "silu", "type_vocab_size": 3}),
    "one_segment": ("BertModel", {"type_vocab_size": 1}),
    "causal": ("BertModel", {"is_decoder": True}),
    "classifier": (
        "BertForSequenceClassification",
        {"id2label": {0: "ham", 1: "spam", 2: "eggs"}},
    ),
}
LENGTHS = (7, 4, 1)


def main() -> None:
    arrays: dict[str, np.ndarray] = {}
    for seed, (case, (class_name, changes)) in enumerate(CASES.items()):
        config = transformers.BertConfig(**SIZES, **changes)
        model = getattr(transformers, class_name)(config).eval()
        draw_weights(model, seed)
        arrays[f"{case}/config"] = np.array(config_text(config, class_name))
        for name, weight in model.state_dict().items():
            arrays[f"{case}/weights/{name}"] = weight.numpy()
        batch = draw_batch(config, seed)
        for name, values in batch.items():
            arrays[f"{case}/inputs/{name}"] = values
        for name, values in answers(model, batch).items():
            arrays[f"{case}/outputs/{name}"] = values
    np.savez_compressed(pathlib.Path(__file__).with_name("encoder.npz"), **arrays)


def draw_weights(model: torch.nn.Module, seed: int) -> None:
    """Set all weights, biases too, to numbers large enough that each one matters."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        mean = 1.0 if name.endswith("LayerNorm.weight") else 0.0
        weight.data.normal_(mean, 0.3, generator=generator)


def draw_batch(config: transformers.BertConfig, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (len(LENGTHS), max(LENGTHS))
    mask = np.arange(shape[1]) < np.array(LENGTHS)[:, None]
    return {
        "input_ids": rng.integers(1, config.vocab_size, shape) * mask,
        "token_type_ids": rng.integers(0, config.type_vocab_size, shape) * mask,
        "attention_mask": mask.astype("int64"),
    }


def answers(
    model: torch.nn.Module, batch: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    tensors = {name: torch.tensor(values) for name, values in batch.items()}
    with torch.no_grad():
        outputs = model(**tensors, output_hidden_states=True, output_attentions=True)
    found = {
        "hidden_states": torch.stack(outputs.hidden_states),
        "attentions": torch.stack(outputs.attentions),
    }
    for name in ("pooler_output", "logits"):
        if name in outputs:
            found[name] = outputs[name]
    return {name: values.numpy() for name, values in found.items()}


def config_text(config: transformers.BertConfig, class_name: str) -> str:
    values = {**config.to_dict(), "architectures": [class_name]}
    return json.dumps(values, sort_keys=True)


if __name__ == "__main__":
    main()
