"""BERT for Keras 3 and TensorFlow, from raw text to a served model.

Names are imported on first access, so that `import bert_keras` and the help of the
command line do not wait for TensorFlow. More names are public in `bert_keras.training`,
`.pretraining`, `.corpus`, `.models`, `.exports`, `.inference`, `.retrieval`,
`.explanations`, `.checkpoints`, `.distribution`, `.scoring` and `.serving`.
"""

import os
import platform

from bert_keras.lazy_names import attach_names

# By itself, TensorFlow uses oneDNN only on processors with AVX-512 VNNI or more. With
# AVX2, it trains on long texts 1.7 times as fast by oneDNN (docs/figures.md).
if platform.machine() in ("x86_64", "AMD64"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
