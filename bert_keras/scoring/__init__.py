"""Compute the scores of answers: accuracy, F1, calibration, retrieval, EM.

In NumPy alone.

Read `classification` and `calibration` first; each other file holds the scores of one
kind of answer.
"""

from bert_keras.lazy_names import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
