"""Build your own Keras model: the encoder, the decoder, optimizers.

Read `encoder`, `block`, `layers`, `heads`, `optimizers`, in that order, then `decoder`
and `encoder_decoder` for models that write; `pooling`, `recurrent_head`, `contrastive`
and `lora` serve single tasks. This package imports only Keras and NumPy, so the models
also train where TensorFlow is not installed.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
