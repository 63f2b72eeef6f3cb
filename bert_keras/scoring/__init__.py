"""Answers against truth: scores, calibration and thresholds, in NumPy alone.

Read `classification` and `probabilities` first, then `calibration`; each other file
holds the scores of one kind of answer.
"""
