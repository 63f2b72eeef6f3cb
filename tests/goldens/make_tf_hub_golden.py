"""Make `tf_hub/`: a tiny BERT that the Model Garden itself exported for TF-Hub.

Run in a separate environment, with the releases that wrote these files:

    pip install tf-models-official==2.20.0 tf_keras==2.20.1 scipy
    TF_USE_LEGACY_KERAS=1 python tests/goldens/make_tf_hub_golden.py

`export_model` is the function that wrote the hub's BERTs. Its `saved_model.pb` (1.3 MB)
is not kept: our reader has no use for the graph. `outputs.npz` holds ids and what the
SavedModel, loaded again, gives for them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
from official.legacy.bert import configs
from official.nlp.tools import export_tfhub_lib

GOLDEN = Path(__file__).with_name("tf_hub")
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *"abcdefghij",
    *("##a", "##b", "##c", "win", "cash", "free", "home", ",", "."),
]
IDS = np.array([[2, 5, 6, 7, 3, 0], [2, 20, 21, 3, 9, 3]], np.int32)
SEGMENTS = np.array([[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], np.int32)
POSITIONS = np.array([[1, 2], [4, 5]], np.int32)


def main() -> None:
    config = configs.BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=40,
        type_vocab_size=2,
    )
    _, pretrainer = export_tfhub_lib._create_model(bert_config=config, with_mlm=True)
    draw = np.random.default_rng(0)
    for variable in pretrainer.variables:
        variable.assign(0.3 * draw.normal(size=variable.shape).astype("float32"))
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = Path(folder, "vocab.txt")
        vocabulary.write_text("".join(f"{token}\n" for token in VOCABULARY))
        checkpoint = tf.train.Checkpoint(**pretrainer.checkpoint_items)
        exported = Path(folder, "exported")
        export_tfhub_lib.export_model(
            str(exported),
            bert_config=config,
            model_checkpoint_path=checkpoint.save(f"{folder}/checkpoint"),
            with_mlm=True,
            vocab_file=str(vocabulary),
            do_lower_case=True,
        )
        batch = {
            "input_word_ids": IDS,
            "input_mask": (IDS > 0).astype(np.int32),
            "input_type_ids": SEGMENTS,
        }
        outputs = outputs_of(tf.saved_model.load(str(exported)), batch)
        shutil.rmtree(GOLDEN, ignore_errors=True)
        for part in ("variables", "assets"):
            shutil.copytree(exported / part, GOLDEN / part)
    np.savez(GOLDEN / "outputs.npz", **batch, **outputs)


def outputs_of(model: object, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what the encoder and its `mlm` give."""
    found = model(batch, training=False)
    positions = {"masked_lm_positions": POSITIONS}
    logits = model.mlm({**batch, **positions}, training=False)["mlm_logits"]
    names = [variable.name for variable in model.trainable_variables]
    return {
        "pooled_output": found["pooled_output"].numpy(),
        "sequence_output": found["sequence_output"].numpy(),
        "encoder_outputs": np.stack(found["encoder_outputs"]),
        "mlm_logits": logits.numpy(),
        "names": np.array(names),
        **positions,
    }


if __name__ == "__main__":
    main()
