"""Keras layers and functional models: the encoder, its heads, and the decoder.

Read `encoder`, `block`, `layers`, `heads`, `optimizers`, in that order, then `decoder`
and `encoder_decoder` for models that write; `pooling`, `recurrent_head`, `contrastive`
and `lora` serve single tasks. This package imports only Keras and NumPy, so the models
also train where TensorFlow is not installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.model.decoder import BertDecoder as BertDecoder
    from bert_keras.model.encoder import BertEncoder as BertEncoder
    from bert_keras.model.encoder_decoder import (
        BertEncoderDecoder as BertEncoderDecoder,
    )
    from bert_keras.model.optimizers import AdamW as AdamW
    from bert_keras.model.optimizers import Lamb as Lamb
    from bert_keras.model.optimizers import WarmupLinearDecay as WarmupLinearDecay

_PLACES = {
    "AdamW": "optimizers",
    "BertDecoder": "decoder",
    "BertEncoder": "encoder",
    "BertEncoderDecoder": "encoder_decoder",
    "Lamb": "optimizers",
    "WarmupLinearDecay": "optimizers",
}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # otherwise type checkers accept any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
