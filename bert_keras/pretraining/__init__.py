"""Pretrain a new BERT on your own text, or continue from a checkpoint.

Documents become shards, shards batches, batches weights.

Read `data`, `blocks`, `shards`, `pairs`, `manifest` for the data; `pretrain`, `plan`,
`source`, `input`, `task`, `loop` and `pretrainer` for the training; `beam` for corpora
that do not fit on one machine.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
