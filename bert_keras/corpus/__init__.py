"""Read documents for pretraining, and learn a vocabulary from them.

Read `documents` first, with `wikipedia` and `sentence_rules` for its forms; then
`word_counts` and `vocabulary_learning`.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
