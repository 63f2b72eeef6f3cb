"""An encoder and a decoder that generates text from it: `BertEncoderDecoder`.

Source: Rothe, Narayan and Severyn 2020 (arXiv:1907.12461), section 2. The names of the
ways to start are theirs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from bert_keras.config import BertConfig
from bert_keras.model.decoder import BertDecoder, target_inputs
from bert_keras.model.encoder import (
    MEMORY,
    MEMORY_PLACES,
    TARGET,
    BatchModel,
    BertEncoder,
    batch_inputs,
    frozen_paths,
    named_inputs,
    seed_behind,
    with_frozen,
)
from bert_keras.model.layers import undrawn

if TYPE_CHECKING:
    from bert_keras.checkpoints import Checkpoint


def source_inputs() -> dict[str, Any]:
    """Return Keras inputs of sources that are read in several rows.

    `memory_places` int32 [R, M] are the places of the tokens of a source, among the
    tokens of all rows of the encoder laid end to end, or -1 at padding; a source and
    its target have the same row. `memory_sequence_ids` int32 [R, M], of packed rows,
    are the numbers of the targets in their rows.
    """
    return named_inputs((MEMORY_PLACES, f"{MEMORY}sequence_ids"))


def logits_of(encoder: BertEncoder, decoder: BertDecoder, inputs: Any) -> Any:
    """Return the logits of targets, float32 [R, T, V].

    `inputs` are the Keras inputs of the encoder and of `target_inputs`, and perhaps of
    `source_inputs`.
    """
    own = {k: v for k, v in inputs.items() if not k.startswith((TARGET, MEMORY))}
    memory = encoder(own)["sequence_output"]
    kept = own
    if MEMORY_PLACES in inputs:
        places = inputs[MEMORY_PLACES]
        memory = ops.reshape(memory, (-1, memory.shape[-1]))
        memory = ops.take(memory, ops.maximum(places, 0), axis=0)
        kept = {
            "padding_mask": ops.cast(places >= 0, "int32"),
            "sequence_ids": inputs[f"{MEMORY}sequence_ids"],
        }
    given = {
        **{k: v for k, v in inputs.items() if k.startswith(TARGET)},
        "memory": memory,
        "padding_mask": kept["padding_mask"],
        "sequence_ids": kept["sequence_ids"],
    }
    return decoder(given)


@keras.saving.register_keras_serializable(package="bert_keras")
class BertEncoderDecoder(BatchModel, keras.Model):
    """An encoder, and a decoder that attends to its output, as a functional model.

    Inputs are the batch dicts of the sources (see `BertEncoder`) and of the targets
    (see `target_inputs`). The output is the logits of the next token at each target
    token, float32 [R, T, V].

    Args:
        encoder: the encoder, without a pooler.
        config: sizes of the decoder; `None`: the encoder's.
        shared: whether the decoder uses the embeddings and blocks of the encoder.
        tied: whether the output shares the table of the decoder's token embeddings.
        rematerialize, seed: as in `BertDecoder`.

    Example:
        >>> encoder = BertEncoder(BertConfig.from_preset("tiny"), pooler=False)
        >>> model = BertEncoderDecoder(encoder)
        >>> ids = np.array([[101, 7592, 102]])
        >>> ones, target = np.ones_like(ids), np.array([[101, 2748]])
        >>> tuple(model({
        ...     "token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ones,
        ...     "target_token_ids": target, "target_padding_mask": 0 * target + 1,
        ... }).shape)
        (1, 2, 30522)
    """

    def __init__(
        self,
        encoder: BertEncoder,
        config: BertConfig | None = None,
        *,
        shared: bool = False,
        tied: bool = True,
        rematerialize: bool = False,
        seed: int | None = None,
        name: str = "encoder_decoder",
    ) -> None:
        inputs = {**batch_inputs(cls_positions=False), **target_inputs()}
        decoder = BertDecoder(
            config or encoder.config,
            memory_size=encoder.config.hidden_size,
            shared=encoder if shared else None,
            tied=tied,
            rematerialize=rematerialize,
            # The encoder may have the same seed.
            seed=None if seed is None else seed_behind(encoder.config, seed) + 1,
            dtype=encoder.dtype_policy,
        )
        super().__init__(inputs, logits_of(encoder, decoder, inputs), name=name)
        self.encoder = encoder
        self.decoder = decoder
        self._settings = {
            "shared": shared,
            "tied": tied,
            "rematerialize": rematerialize,
            "seed": seed,
        }

    @classmethod
    def from_pretrained(
        cls,
        path: str | os.PathLike[str] | Checkpoint,
        *,
        rematerialize: bool = False,
        seed: int | None = None,
        dtype: Any = None,
    ) -> BertEncoderDecoder:
        """Return the model of an `EncoderDecoderModel` folder, with its weights.

        Arguments as in `BertEncoder` and its `from_pretrained`.

        Raises:
            CheckpointError: it contains no decoder, or a part is missing or broken.
        """
        # The file readers are imported only when needed.
        from bert_keras.checkpoints import assign, read_checkpoint
        from bert_keras.checkpoints.huggingface import decoder_settings

        checkpoint = read_checkpoint(path)
        settings = decoder_settings(checkpoint)
        with undrawn():
            encoder = BertEncoder(
                checkpoint.config,
                pooler=False,
                rematerialize=rematerialize,
                seed=seed,
                dtype=dtype,
            )
            model = cls(encoder, **settings, rematerialize=rematerialize, seed=seed)
        assign(model, checkpoint, optional=("bert/pooler/",))
        encoder.source = str(checkpoint.path)
        return model

    def get_config(self) -> dict[str, Any]:
        return {
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "config": self.decoder.config.to_dict(),
            "name": self.name,
            "frozen": frozen_paths(self),
            **self._settings,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        settings = dict(config)
        settings["encoder"] = keras.saving.deserialize_keras_object(
            settings["encoder"], custom_objects=custom_objects
        )
        settings["config"] = BertConfig.from_dict(settings["config"], ignore=())
        return with_frozen(cls, settings)
