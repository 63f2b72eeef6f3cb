"""A new BERT: documents to shards, shards to batches, batches to weights.

Read `data`, `blocks`, `shards`, `pairs`, `manifest` for the data; `pretrain`, `plan`,
`input`, `loop` and `pretrainer` for the training; `beam` for corpora that do not fit
on one machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.pretraining.beam import (
        run_beam_pretraining_data as run_beam_pretraining_data,
    )
    from bert_keras.pretraining.config import PretrainConfig as PretrainConfig
    from bert_keras.pretraining.config import (
        PretrainingDataConfig as PretrainingDataConfig,
    )
    from bert_keras.pretraining.data import (
        write_pretraining_data as write_pretraining_data,
    )
    from bert_keras.pretraining.input import pretraining_dataset as pretraining_dataset
    from bert_keras.pretraining.pretrain import pretrain as pretrain
    from bert_keras.pretraining.pretrainer import BertPretrainer as BertPretrainer
    from bert_keras.pretraining.pretrainer import pretraining_loss as pretraining_loss
    from bert_keras.pretraining.pretrainer import (
        pretraining_metrics as pretraining_metrics,
    )

_PLACES = {
    "BertPretrainer": "pretrainer",
    "PretrainConfig": "config",
    "PretrainingDataConfig": "config",
    "pretrain": "pretrain",
    "pretraining_dataset": "input",
    "pretraining_loss": "pretrainer",
    "pretraining_metrics": "pretrainer",
    "run_beam_pretraining_data": "beam",
    "write_pretraining_data": "data",
}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # otherwise type checkers accept any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
