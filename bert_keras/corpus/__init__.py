"""Documents that pretraining reads, and the vocabulary learned from them.

Read `documents` first, then `reader`, then `vocabulary_learning`.
"""
