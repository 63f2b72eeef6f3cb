"""BERT for Keras 3 and TensorFlow, from raw text to a served model.

Names are imported on first access, so that `import bert_keras` and the help of the
command line do not wait for TensorFlow. More names are public in `bert_keras.training`,
`.pretraining`, `.corpus`, `.models`, `.inference`, `.explanations`,
`.checkpoints`, `.distribution`, `.scoring` and `.serving`.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
