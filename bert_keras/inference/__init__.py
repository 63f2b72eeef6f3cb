"""Answer texts with a trained model: predict, embed and search.

Read `predictor` first. `served_model` and `engine` run what `export` wrote, `embedder`
gives vectors, and `features` and `search` write and read files of them.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
