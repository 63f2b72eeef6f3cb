"""Pretrain a new BERT on your own text, or continue from a checkpoint.

Documents become shards, shards batches, batches weights.

Read `data`, `blocks`, `shards`, `pairs`, `manifest` for the data; `pretrain`, `plan`,
`source`, `input`, `task`, `loop` and `pretrainer` for the training; `budget` and
`clock` for a budget of time; `beam` for corpora that do not fit on one machine.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
