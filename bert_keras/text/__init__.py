"""Tokenize texts and make batches of them, in the TensorFlow graph.

Read `preprocessor`, `tokenizer`, `normalization`, `packing`, in that order; `ragged`
holds the operations on rows that they all use, `tokenizer_files` the files of a
folder. `windows`, `masking` and `sentences` build on them.
"""
