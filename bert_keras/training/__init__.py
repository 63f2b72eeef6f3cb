"""Fine-tune a task, with several seeds or a search of settings; evaluate it.

What happens in a run stands in `finetune`, from its first line to the model folder, and
in `loop`, from update to update. Below them are `config`, `data` and `results`;
`progress`, `checkpoint` and `best_epoch`; `rows`, `updates`, `train_step`, and the
losses, `objective` of `models`.
Then read `evaluation`, `several_runs`, `findings`, `divergence` and `tracking`.
Pretraining is another task with another source of batches: it uses `loop`, `updates`,
`train_step`, `checkpoint` and `progress`.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
