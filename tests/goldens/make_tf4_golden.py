"""Make `tf4/`: tiny models that the TensorFlow classes of transformers 4 wrote.

Run in a separate environment, since transformers 5 has no TensorFlow:

    pip install transformers==4.46.3 tf_keras==2.21.0
    python tests/goldens/make_tf4_golden.py

Each folder holds what `save_pretrained` wrote, a vocabulary, and `outputs.npz`: ids and
what the class gives for them.
"""

from __future__ import annotations

import copy
import os
import shutil
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
import transformers

GOLDEN = Path(__file__).with_name("tf4")
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg", "##a", "##b"]
IDS = np.array([[2, 5, 6, 7, 3, 0], [2, 11, 4, 3, 9, 3]], np.int32)
SEGMENTS = np.array([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], np.int32)
H5, SAFE, SHARDS = (
    {"safe_serialization": False},
    {"safe_serialization": True},
    {"safe_serialization": False, "max_shard_size": "1KB"},
)
CASES = {
    "ForPreTraining": H5,
    "ForSequenceClassification": SHARDS,
    "ForTokenClassification": SAFE,
    "ForQuestionAnswering": {**SAFE, "max_shard_size": "1KB"},
    "ForMultipleChoice": SAFE,
    "EncoderDecoder": H5,
    "DistilBertForMaskedLM": H5,
    "DistilBertForSequenceClassification": SHARDS,
    "ElectraForMaskedLM": H5,
    "ElectraForMultipleChoice": SAFE,
    "ElectraForSequenceClassification": H5,
    "ElectraForTokenClassification": SHARDS,
}


def main() -> None:
    shutil.rmtree(GOLDEN, ignore_errors=True)
    draw = np.random.default_rng(0)
    for name, how in CASES.items():
        kind, _, head = name.rpartition("For")
        config = getattr(transformers, f"{kind or 'Bert'}Config")(
            vocab_size=len(VOCABULARY),
            hidden_size=4,
            num_hidden_layers=1 if how is H5 else 2,
            num_attention_heads=2,
            max_position_embeddings=8,
            num_labels=2,
            **({"hidden_dim": 6} if kind == "DistilBert" else {"intermediate_size": 6}),
            **({"embedding_size": 3} if kind == "Electra" else {}),
        )
        batch = {
            "input_ids": IDS,
            "attention_mask": (IDS > 0).astype(np.int32),
            "token_type_ids": SEGMENTS,
        }
        if kind == "DistilBert":
            del batch["token_type_ids"]
        if head == "MultipleChoice":  # one row of two choices
            batch = {key: value[None] for key, value in batch.items()}
        if name == "EncoderDecoder":
            joint = transformers.EncoderDecoderConfig
            both = joint.from_encoder_decoder_configs(config, copy.deepcopy(config))
            model = transformers.TFEncoderDecoderModel(both)
            batch |= {"decoder_input_ids": IDS, "decoder_attention_mask": IDS > 0}
        else:
            model = getattr(transformers, f"TF{kind or 'Bert'}For{head}")(config)
        model(batch)
        for variable in model.variables:
            variable.assign(0.5 * draw.normal(size=variable.shape).astype("float32"))
        outputs = {k: v.numpy() for k, v in model(batch).items() if tf.is_tensor(v)}
        folder = GOLDEN / name
        model.save_pretrained(folder, **how)
        vocabulary = "".join(f"{token}\n" for token in VOCABULARY)
        (folder / "vocab.txt").write_text(vocabulary)
        np.savez(folder / "outputs.npz", **batch, **outputs)


if __name__ == "__main__":
    main()
