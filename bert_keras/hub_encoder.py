"""A BERT as TF-Hub's encoders are: an object to save, called on a dict of ids.

Source: tensorflow/hub `docs/reusable_saved_models.md` and
`docs/common_saved_model_apis/text.md`; tensorflow/models
`official/nlp/tools/export_tfhub_lib.py` for `mlm`, `vocab_file` and `do_lower_case`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.checkpoints import match
from bert_keras.checkpoints.base import check_finite, shapes_of
from bert_keras.checkpoints.hub_names import head_axis, to_hub
from bert_keras.config import BertConfig
from bert_keras.encoder import BertEncoder
from bert_keras.hub_preprocessor import INPUTS, SavedPart
from bert_keras.initialization import undrawn
from bert_keras.masked_lm_head import MaskedLMHead

POOLER, MASKED_LM = "bert/pooler/", "cls/predictions/"
_POSITIONS = "masked_lm_positions"


def hub_encoder(
    config: BertConfig,
    arrays: Mapping[str, np.ndarray],
    *,
    lowercase: bool,
    vocabulary: Path,
) -> tuple[Any, Any]:
    """Return an encoder for `tf.saved_model.save`, and its signature.

    It takes the dict of `INPUTS`, int32 [B, T], and `training`; dropout is drawn from
    TensorFlow's own numbers. It gives `pooled_output` and `default` [B, H],
    `sequence_output` [B, T, H] and `encoder_outputs`, a list of the hidden states
    behind each block. With a masked-LM head it has `mlm`, which also takes
    `masked_lm_positions` int32 [B, P] and gives `mlm_logits` [B, P, V]. Variables have
    the names and shapes of the hub's own; attention's have an axis of heads.

    Args:
        config: the sizes.
        arrays: canonical name to array, canonical shape, of the encoder and perhaps of
            the masked-LM head; each is asked for once. Without a pooler,
            `pooled_output` is the hidden state of `[CLS]`.
        lowercase: of the tokenizer, told by `do_lower_case`.
        vocabulary: its `vocab.txt`, which becomes an asset.

    Raises:
        CheckpointError: a value is not finite.
        MismatchError: a weight is missing, unexpected or misshapen.
    """
    network = _Network(config, arrays)

    @tf.function(autograph=False)
    def encode(inputs: Any, training: bool = False) -> dict[str, Any]:
        with network.scope():
            outputs, _ = network.encode(inputs, training)
        return {**outputs, "default": outputs["pooled_output"]}

    @tf.function(autograph=False)
    def predict(inputs: Any, training: bool = False) -> dict[str, Any]:
        with network.scope():
            outputs, batch = network.encode(inputs, training)
            tokens, positions = outputs["sequence_output"], inputs[_POSITIONS]
            table = network.encoder.token_table(batch)
            return {**outputs, "mlm_logits": network.head(tokens, table, positions)}

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32, name=n) for n in INPUTS],
        autograph=False,
    )
    def serve(*rows: Any) -> dict[str, Any]:
        outputs = encode(dict(zip(INPUTS, rows, strict=True)), training=False)
        del outputs["encoder_outputs"]  # a signature gives no lists
        return outputs

    variables = network.variables
    core = [v for name, v in variables.items() if not name.startswith(MASKED_LM)]
    root = _reusable(encode, tuple(INPUTS), core)
    if len(core) < len(variables):
        inputs = (*INPUTS, _POSITIONS)
        root.mlm = _reusable(predict, inputs, list(variables.values()))
    # For those who do without the preprocessor.
    root.do_lower_case = tf.Variable(lowercase, trainable=False, name="do_lower_case")
    root.vocab_file = tf.saved_model.Asset(os.fspath(vocabulary))
    root.variables = [*core, root.do_lower_case]
    return root, serve


class _Network:
    """Our layers, run on variables of the hub's names and shapes.

    Attributes:
        encoder, head: the layers; `head` is `None` without a masked-LM head.
        variables: canonical name to variable.
    """

    def __init__(self, config: BertConfig, arrays: Mapping[str, np.ndarray]) -> None:
        shapes = shapes_of(arrays)
        self.has_pooler = any(name.startswith(POOLER) for name in shapes)
        with undrawn():
            self.encoder = BertEncoder(
                config, pooler=self.has_pooler, outputs=("hidden_states",)
            )
        self.head: Any = None
        self.weights = {weight.path: weight for weight in self.encoder.weights}
        if any(name.startswith(MASKED_LM) for name in shapes):
            self.head = MaskedLMHead.on(self.encoder)
            self.head.build()
            self.weights |= {weight.path: weight for weight in self.head.weights}
        wanted = {name: tuple(self.weights[name].shape) for name in self.weights}
        self.variables = {
            name: _variable(name, arrays[name], config.num_attention_heads)
            for name in match(wanted, shapes)
        }

    def encode(self, inputs: Any, training: bool) -> tuple[dict[str, Any], Any]:
        """Return the hub's outputs, and the batch of ours that they are of."""
        batch = {ours: inputs[theirs] for theirs, ours in INPUTS.items()}
        found = self.encoder(batch, training=training)
        tokens = found["sequence_output"]
        outputs = {
            "pooled_output": found["pooled_output"]
            if self.has_pooler
            else tokens[:, 0],
            "sequence_output": tokens,
            "encoder_outputs": found["hidden_states"][1:],
        }
        return outputs, batch

    def scope(self) -> Any:
        """Return the scope in which the layers use the variables."""
        values = [
            (weight, tf.reshape(self.variables[name], weight.shape))
            for name, weight in self.weights.items()
        ]
        # Keras draws dropout from numbers in variables of its own. Here TensorFlow
        # draws them, so that a SavedModel has no variables but weights.
        for state in self.encoder.non_trainable_variables:
            drawn = tf.random.uniform(state.shape, maxval=2**31 - 1, dtype=tf.int32)
            values.append((state, tf.cast(drawn, state.dtype)))
        return keras.StatelessScope(state_mapping=values)


def _variable(name: str, array: Any, heads: int) -> tf.Variable:
    """Return a weight as a variable of the hub's name and shape."""
    array = np.asarray(array, np.float32)
    check_finite(array, name=name, place="the source")
    split = head_axis(name)
    if split is not None:
        axis, shape = split[0], array.shape
        array = array.reshape(*shape[:axis], heads, -1, *shape[axis + 1 :])
    return tf.Variable(array, name=to_hub(name))


def _reusable(function: Any, inputs: tuple[str, ...], variables: list[Any]) -> Any:
    """Return an object that is called, with a trace for training and one without."""
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in inputs}
    for training in (False, True):
        function.get_concrete_function(specs, training=training)
    part = SavedPart()
    part.__call__ = function
    part.variables = variables
    part.trainable_variables = list(variables)
    part.regularization_losses = []
    return part
