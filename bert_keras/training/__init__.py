"""Fine-tune a task, with several seeds or a search of settings; evaluate it.

Read `config`, `finetune`, `run`, `epochs`, `loop`, `updates`, `rows`, `train_step`, in
that order; `findings`, `several_runs`, `progress`, `divergence` and `tracking` build on
them. Pretraining also uses `loop`, `train_step` and the schedule of `updates`.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
