"""Build your own Keras model: the encoder, the decoder, optimizers.

Read `encoder`, `block`, `layers`, `heads`, `optimizers`, in that order, then `decoder`
and `encoder_decoder` for models that write; `pooling`, `recurrent_head`, `contrastive`
and `lora` serve single tasks. This package imports only Keras and NumPy, so the models
also train where TensorFlow is not installed.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
