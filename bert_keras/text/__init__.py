"""Strings to token ids to rows, in the TensorFlow graph.

Read `normalization`, `tokenizer`, `packing`, `preprocessor`, in that order; `windows`,
`masking` and `sentences` build on them.
"""
