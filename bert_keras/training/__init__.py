"""Fine-tune a task, with several seeds or a search of settings; evaluate it.

What happens in a run stands in `finetune`, from its first line to the model folder, and
in `loop`, from update to update. Below them are `config`, `data` and `results`;
`progress`, `checkpoint` and `best_epoch`; `rows`, `updates`, `objective`, `train_step`.
Then read `evaluation`, `several_runs`, `findings`, `divergence` and `tracking`.
Pretraining also uses `loop`, `checkpoint`, `progress`, `objective`, `train_step` and
the schedule of `updates`.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
