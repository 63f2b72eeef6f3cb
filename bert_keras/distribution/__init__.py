"""Choose GPUs, several machines or a TPU for training.

Devices, replicas, and sums over replicas.

Read `strategy` first, then `replicas`.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
