"""Fine-tune a task, with several seeds or a search of settings; evaluate it.

What happens in a run stands in `finetune`, from its first line to the model folder.
What it follows is decided in `plan`, as values of `choices`: the options of `config`,
the rows by `data`, the method and the vector of a text by `methods` and `opens_in`, and
the longest input by `lengths`. `results` is what it writes.
What all methods have in common is in `trainer`. Finetune is in `loop`, from update to
update; below it are `progress`, `checkpoint` and `best_epoch`; `rows`, `updates`,
`train_step`, and the losses, `objective` of `models`. Linear is in `head_fit`, which
fits a `linear_head`, also by `self_training`; contrastive is in `contrastive_fit`, on
`balanced_batches`. A long run begins with a `first_score`. What a teacher gives is in
`distillation`, with `taught_states` and `word_variants`.
Then read `estimate`, `evaluation`, `several_runs`, `shrinking`, `findings`,
`divergence` and `tracking`.
Pretraining is another task with another source of batches: it uses `loop`, `updates`,
`train_step`, `checkpoint` and `progress`.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
