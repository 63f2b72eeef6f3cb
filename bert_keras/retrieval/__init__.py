"""Vectors of texts, and what is found by them: embed, search, mine and select.

Read `embedder` first, then `index`, which searches. `packed_vectors` and
`sparse_vectors` hold vectors, and `vector_file` stores them.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
