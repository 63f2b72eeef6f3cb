"""Load a trained model: predict, embed, search, export and convert.

Read `model_folder`, `predictor`, `export`, in that order. `convert` writes checkpoints
of other formats; it is not in `checkpoints` because it needs models and tokenizers.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
