"""Choose GPUs, several machines or a TPU for training.

Devices, replicas, and sums over replicas.

Read `strategy` first, then `replicas`.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
