"""Fine-tuning: settings, the update step, the loop, resuming.

Read `config`, `finetune`, `run`, `epochs`, `loop`, `updates`, `rows`, `train_step`, in
that order; `findings`, `several_runs`, `progress`, `divergence` and `tracking` build on
them. Pretraining also uses `loop`, `train_step` and the schedule of `updates`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bert_keras import lazy_names

if TYPE_CHECKING:
    from bert_keras.training.config import TrainConfig as TrainConfig
    from bert_keras.training.finetune import evaluate as evaluate
    from bert_keras.training.finetune import train as train
    from bert_keras.training.several_runs import search_settings as search_settings
    from bert_keras.training.several_runs import train_seeds as train_seeds
    from bert_keras.training.several_runs import train_sizes as train_sizes

_PLACES = {
    "TrainConfig": "config",
    "evaluate": "finetune",
    "search_settings": "several_runs",
    "train": "finetune",
    "train_seeds": "several_runs",
    "train_sizes": "several_runs",
}
__all__ = [*sorted(_PLACES)]
if not TYPE_CHECKING:  # otherwise type checkers accept any name
    __getattr__, __dir__ = lazy_names(__name__, _PLACES)
