"""Read documents for pretraining, and learn a vocabulary from them.

Read `documents` first, with `wikipedia` and `sentence_rules` for its forms; then
`word_counts` and `vocabulary_learning`.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
